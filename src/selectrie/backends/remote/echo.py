"""Any server that echoes prompts with their log-probabilities: `/v1/completions`.

Only the values of a text that was sent can be had, so a row is a request for each named
token. A request says the values of every token on its path, so the rows of one call
cost as many requests as there are paths that no other path goes on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selectrie.backends.remote.dialect import DEFAULT_CONTEXT, ServedModel, check_length, partial_row, together
from selectrie.backends.remote.transport import Answer, Transport
from selectrie.core.path_model import PathLimits, RowBounds, RowQuery
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import OptionError

_PATH = "/v1/completions"
_NAMED, _QUERIES = 1024, 1024
_ROUNDING = 1e-5
_TOP = 5
"""Number of most probable tokens that the request which checks values asks for."""

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Sent:
    """A path as it is sent.

    Attributes:
        prompt: Token ids, or a text.
        n_hidden: Number of tokens at its beginning that the echo may leave out: a BOS
            that the server puts before a text.
    """

    prompt: list[int] | str
    n_hidden: int


class EchoDialect:
    """A server with `echo`.

    Args:
        transport: The connection.
        model: The model.
        vocabulary: The vocabulary, by which tokens become texts.
        takes_ids: Whether prompts may be token ids. Otherwise they are texts.
    """

    def __init__(self, transport: Transport, model: ServedModel, vocabulary: Vocabulary, *, takes_ids: bool) -> None:
        self._transport, self._model, self._vocabulary, self._takes_ids = transport, model, vocabulary, takes_ids
        self.limits = PathLimits(
            named_ids=min(_NAMED, model.n_tokens),
            top_ids=0,
            queries_per_request=_QUERIES,
            requests_in_flight=transport.server.concurrency,
            path_tokens=max(1, (model.n_context or DEFAULT_CONTEXT) - 2),
        )

    async def rows(self, queries: Sequence[RowQuery]) -> list[RowBounds]:
        paths: list[Tokens] = [tuple(query.path.tolist()) for query in queries]
        wanted = {(*path, token) for path, query in zip(paths, queries, strict=True) for token in query.named.tolist()}
        values: dict[Tokens, float] = {}
        for sequence, found in await together(self._echoed(one) for one in longest(wanted)):
            for n in range(2, len(sequence) + 1):
                if sequence[:n] in wanted:
                    value = found[n - 1]
                    values[sequence[:n]] = value.logp()
        rows = []
        for path, query in zip(paths, queries, strict=True):
            known = {token: values[path + (token,)] for token in query.named.tolist()}  # noqa: RUF005 - unpacking in an index is read as Python 3.11
            answer = Answer({}, self._transport.server.url + _PATH)
            rows.append(partial_row(query, known, [], n_tokens=self._model.n_tokens, rounding=_ROUNDING, answer=answer))
        return rows

    async def _echoed(self, sequence: Tokens) -> tuple[Tokens, list[Answer]]:
        """Return the values of a sequence, one for each token; the first is null."""
        sent = self._sent(sequence)
        answer = await self._asked(sent, {"echo": True, "logprobs": 1})
        usage = answer["usage"]
        check_length(usage["prompt_tokens"].whole(), sequence, usage["prompt_tokens"])
        (choice,) = answer["choices"].sequence(1)
        lists = choice["logprobs"]
        texts, values = lists["tokens"].texts(), lists["token_logprobs"].sequence()
        n_drawn = usage["completion_tokens"].whole()
        n_hidden = len(sequence) + n_drawn - len(values)
        if len(texts) != len(values) or n_hidden not in {0, sent.n_hidden}:
            lists["token_logprobs"].wrong(
                f"has {len(values)} values for {len(sequence)} tokens of a prompt and {n_drawn} drawn: "
                "the server's echo is off by one, or of another prompt"
            )
        for token, text in zip(sequence[n_hidden:], texts, strict=False):
            self._check_spelling(token, text, lists["tokens"], may_begin=token == sequence[n_hidden])
        return sequence, [*values[:n_hidden], *values]

    def prompt_of(self, ids: Sequence[int]) -> list[int] | str:
        """Return tokens as the server takes a prompt.

        Raises `OptionError` if their text would be read as other tokens.
        """
        return self._sent(tuple(ids)).prompt

    def _sent(self, sequence: Tokens) -> _Sent:
        """Return a path as a prompt.

        Raises `OptionError` if its text would be read as other tokens.
        """
        if self._takes_ids:
            return _Sent(list(sequence), 0)
        vocabulary = self._vocabulary
        begins = bool(sequence) and sequence[0] == vocabulary.bos
        own = sequence[1:] if begins else sequence
        data = b"".join(vocabulary.pieces[token] or vocabulary.texts[token].encode() for token in own)
        if vocabulary.space_prefix and vocabulary.spacing is None:
            data = data.removeprefix(b" ")
        tokens, rest = vocabulary.encode_spans([(data, True)])
        read = [*tokens.tolist(), *vocabulary.encode_run(rest, after=int(tokens[-1]) if len(tokens) else None)]
        if begins != (vocabulary.bos is not None) or tuple(read) != own or not _is_text(data):
            shown = data[-60:].decode("utf-8", "backslashreplace")
            reason = "a path whose text has these tokens: this server takes texts alone, and reads this one as others"
            raise OptionError("path", f"…{shown}", reason)
        return _Sent(data.decode(), int(begins))

    async def _asked(self, sent: _Sent, fields: Mapping[str, Any]) -> Answer:
        body = {"model": self._model.name, "prompt": sent.prompt, "max_tokens": 1, "temperature": 0, **fields}
        return await self._transport.post(_PATH, body)

    def _check_spelling(self, token: int, text: str, answer: Answer, *, may_begin: bool) -> None:
        """Raise `ServerError` if a server shows a token as another text than it has."""
        piece = self._vocabulary.pieces[token]
        if not piece or text == f"token_id:{token}":
            return
        try:
            plain = piece.decode()
        except UnicodeDecodeError:
            return  # shown as bytes, as U+FFFD or not at all
        if text != plain and not (may_begin and text == plain.removeprefix(" ")):
            answer.wrong(f"shows {text[:40]!r} for token {token}, which is {plain[:40]!r} here: another tokenizer")

    async def read_again(self, path: Sequence[int], named: Sequence[int]) -> Mapping[int, float]:  # noqa: ARG002
        sent = self._sent(tuple(path))
        answer = await self._asked(sent, {"logprobs": _TOP})
        (choice,) = answer["choices"].sequence(1)
        rows = choice["logprobs"]["top_logprobs"].sequence()
        if not rows:
            return {}  # it drew the end of the text
        known = {text: value.logp() for text, value in rows[0].items()}
        found = {token: value for text, value in known.items() for token in self._only_token(text)}
        return {token: value for token, value in found.items() if self._can_be_sent((*path, token))}

    def _can_be_sent(self, sequence: Tokens) -> bool:
        try:
            self._sent(sequence)
        except OptionError:
            return False
        return True

    def _only_token(self, text: str) -> list[int]:
        """Return the token that a text stands for, or none if it is not certain."""
        texts, ids = self._vocabulary.by_bytes()
        data = text.encode("utf-8", "surrogatepass")
        low, high = bisect_left(texts, data), bisect_right(texts, data)
        return [int(ids[low])] if high - low == 1 and self._is_certain(text) else []

    def _is_certain(self, text: str) -> bool:
        return "\ufffd" not in text and text.strip() == text.strip(" ") and bool(text)

    async def encode(self, text: str) -> list[int] | None:
        answer = await self._transport.try_post("/extras/tokenize", {"input": text})
        if answer is None:
            answer = await self._transport.try_post("/tokenize", {"prompt": text, "add_special_tokens": False})
            return None if answer is None else answer["tokens"].whole_numbers()
        tokens, bos = answer["tokens"].whole_numbers(), self._vocabulary.bos
        return tokens[1:] if bos is not None and tokens[:1] == [bos] else tokens


def longest(sequences: set[Tokens]) -> list[Tokens]:
    """Return the sequences with which no other one begins."""
    ordered = sorted(sequences)
    return [one for one, following in zip(ordered, [*ordered[1:], ()], strict=True) if following[: len(one)] != one]


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
