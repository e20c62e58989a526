"""Builds a page of text, or turns of a chat, while a model decides parts of it."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np

from selectrie.core.tracked_text import TEMPLATE, TrackedText, match_trimmed
from selectrie.core.types import IntArray
from selectrie.core.vocabulary import TIME_ARGUMENT, ChatTemplate, Vocabulary, to_bytes
from selectrie.errors import IncompatibleOptionsError, PromptError, ProtocolError, words
from selectrie.tokenization.canonical import split_stable
from selectrie.tokenization.encoding import PromptText, encode_after, encode_text
from selectrie.tokenization.prompts import ROLE, clip_stripped, template_spans, track_args, with_fixed_end, with_text

_KEY = blake2b(b"selectrie turns", digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """One turn of a chat.

    Attributes:
        role: The role.
        before: The text that the template writes before the content.
        after: The text that the template writes after the content.
        said: The content; None while the turn is open.
    """

    role: str
    before: TrackedText
    after: TrackedText
    said: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ChatTurns:
    """The turns of a chat so far; the last one may be open.

    `open_turn` and `close_turn` return new records.

    Attributes:
        template: The model's own chat template, or None if it has none.
        args: Further arguments of the template.
        ends: Spellings of the tokens that end a generation.
        all: The turns.
    """

    template: ChatTemplate | None
    args: Mapping[str, Any]
    ends: tuple[str, ...] = ()
    all: tuple[ChatTurn, ...] = ()

    @property
    def open(self) -> ChatTurn | None:
        """Return the open turn, or None."""
        return self.all[-1] if self.all and self.all[-1].said is None else None

    def open_turn(self, role: str) -> ChatTurns:
        """Return the turns with one more turn, which is open.

        An assistant's turn begins with the template's generation prompt if there is
        one, and with the white space that a finished turn has after it. The template,
        rendered with the new turn, must write earlier turns as before.

        Raises `PromptError` if a turn is open, if the model has no chat template, if
        the role is not a word, or if the template refuses these roles or rewrites
        earlier turns.
        """
        self._check_role(role)
        new = _mark(len(self.all))
        rendered = self._render_with(role, new)
        if not rendered.startswith(self._written):
            raise self._rewrite_error(role)
        before, after = rendered[len(self._written) :].split(new)
        if role == "assistant" and self.all:
            start = self._generation_start()
            if start and not (before.startswith(start) and not before[len(start) :].strip()):
                before = start
        self._check_said(role, rendered)
        return replace(self, all=(*self.all, ChatTurn(role, before, self._text_between(role, after))))

    def close_turn(self, said: str) -> ChatTurns:
        """Return the turns with the open turn closed; `said` is its content.

        Raises `PromptError` if none is open.
        """
        if self.open is None:
            raise PromptError("no turn is open, so none can be closed")
        return replace(self, all=(*self.all[:-1], replace(self.all[-1], said=said)))

    def _check_role(self, role: str) -> None:
        """Raise `PromptError` if a turn of this role cannot begin now."""
        if self.template is None:
            raise PromptError(
                "this model has no chat template, so a page cannot have roles; write the turns as text, "
                "formatted as the model expects"
            )
        if self.open is not None:
            raise PromptError(f"a turn of {role!r} cannot begin inside a turn of {self.open.role!r}; close that first")
        if not ROLE.fullmatch(role):
            raise PromptError(f"role {role!r}: expected a word such as 'user', 'assistant' or 'system'")

    @property
    def _written(self) -> str:
        """Return the text of all turns so far, with a mark in place of each content."""
        return self._join_turns([_mark(index) for index in range(len(self.all))])

    def _join_turns(self, said: Sequence[str]) -> str:
        """Return the text of all turns with the contents `said`."""
        return "".join([turn.before + text + turn.after for turn, text in zip(self.all, said, strict=True)])

    def _render(self, role: str, messages: Sequence[Mapping[str, str]], *, generates: bool = False) -> TrackedText:
        """Render messages, whose contents are marks, as text of the template.

        The contents are marks, which stand for the real ones.
        """
        if self.template is None:
            raise PromptError("this model has no chat template")
        render = partial(self.template, add_generation_prompt=generates)
        values = [{key: TrackedText(text, TEMPLATE) for key, text in message.items()} for message in messages]
        try:
            plain = render(messages, **self.args)
            rendered = render(values, **track_args(self.args)) if self.args else plain
        except PromptError as error:
            before = f" after {self._roles}" if self.all else " at the beginning"
            raise PromptError(f"a turn of {role!r} is not possible{before}: {error}") from error
        if rendered != plain:
            raise PromptError(
                words(
                    "the model's chat template changes what `template_args` say, so their text cannot be distinguished "
                    "from its own"
                )
            )
        return rendered if isinstance(rendered, TrackedText) else TrackedText(rendered, TEMPLATE)

    def _messages(self, *, marked: bool) -> list[Mapping[str, str]]:
        """Return the turns as messages, with marks in place of contents if `marked`."""
        said = [_mark(index) if marked else turn.said or "" for index, turn in enumerate(self.all)]
        return [{"role": turn.role, "content": text} for turn, text in zip(self.all, said, strict=True)]

    def _render_with(self, role: str, content: str, *, marked: bool = True) -> TrackedText:
        """Return the rendering of the turns with one more message of `role`.

        Raises `PromptError` unless its content occurs in the rendering exactly once.
        Some templates write a system message only into the next message of the user, so
        that one is added if needed and cut off again.
        """
        messages = [*self._messages(marked=marked), {"role": role, "content": content}]
        refusal: PromptError | None = None
        try:
            rendered = self._render(role, messages)
        except PromptError as error:
            refusal, rendered = error, TrackedText("")
        if rendered.count(content) != 1 and role not in ("user", "assistant"):
            next_one = _mark(len(messages))
            try:
                rendered, _, _ = self._render(role, [*messages, {"role": "user", "content": next_one}]).partition(
                    next_one
                )
            except PromptError as error:
                refusal = refusal or error
        if rendered.count(content) != 1:
            raise refusal or PromptError(
                f"the model's chat template leaves out what a turn of {role!r} says{self._after}, or says it twice"
            )
        return rendered

    def _generation_start(self) -> TrackedText:
        """Return the template's generation prompt; "" if it has none.

        It is the text that the template writes for the assistant to continue.
        """
        rendered = self._render("assistant", self._messages(marked=True), generates=True)
        if not rendered.startswith(self._written):
            raise self._rewrite_error("assistant")
        return rendered[len(self._written) :]

    def _text_between(self, role: str, after: TrackedText) -> TrackedText:
        """Return the text that the template writes after a turn if others follow it.

        `after` is its text after the turn as the last one, where some templates
        write one more end token.
        """
        end = next((end for end in self.ends if end and after.endswith(end)), "")
        if not end:
            return after
        new = _mark(len(self.all))
        next_one = {"role": "assistant" if role == "user" else "user", "content": _mark(len(self.all) + 1)}
        try:
            _, _, followed = self._render(
                role, [*self._messages(marked=True), {"role": role, "content": new}, next_one]
            ).partition(new)
        except PromptError:
            return after
        # The end token is written only after the last turn of a chat.
        ends_chat = followed.startswith(after.removesuffix(end)) and not followed.startswith(after)
        return after.removesuffix(end) if ends_chat else after

    def _check_said(self, role: str, rendered: str) -> None:
        """Raise `PromptError` if the template rewrites the contents of earlier turns.

        `rendered` is the rendering with marks in place of the contents.
        """
        if not self.all:
            return
        rest = rendered[len(self._written) :]
        actual = self._render_with(role, _mark(len(self.all)), marked=False)
        befores, afters = [turn.before for turn in self.all], [turn.after for turn in self.all]
        written = map(operator.add, ["", *afters], [*befores, rest])
        if match_trimmed(actual, list(written), [turn.said or "" for turn in self.all]) is None:
            raise self._rewrite_error(role)

    @property
    def _roles(self) -> str:
        return ", ".join(turn.role for turn in self.all)

    @property
    def _after(self) -> str:
        return f" after {self._roles}" if self.all else ""

    def _rewrite_error(self, role: str) -> PromptError:
        """Return the error for a template that rewrites earlier turns."""
        return PromptError(
            words(
                "with a turn of {} the model's chat template rewrites the turns before it ({}), "
                "which are on the page already (templates do that if they move the system message, "
                "or strip reasoning from earlier answers); "
                "render such a chat in pages of one answer each, or write the turns as text with `parse_special`",
                repr(role),
                self._roles,
            )
        )


def _mark(index: int) -> str:
    """Return the mark that replaces a turn's content while it is rendered."""
    return f"m{_KEY}n{index}m"


def turns_of(template: ChatTemplate | None, args: Mapping[str, Any], ends: Sequence[str]) -> ChatTurns:
    """Return a chat without any turn yet.

    Raises `IncompatibleOptionsError` for the template argument `add_generation_prompt`,
    which a page sets itself.
    """
    if "add_generation_prompt" in args:
        remedy = "the page opens its turns itself, so leave it out"
        raise IncompatibleOptionsError("template_args['add_generation_prompt']", "a template", remedy)
    return ChatTurns(template, dict(args), tuple(ends))


_KEEP_FROM_BYTES = 256
"""Length from which the beginning of a text becomes fixed tokens.

Shorter text costs less than searching a position to cut it.
"""


@dataclass(frozen=True, slots=True, eq=False)
class _Text:
    """A text as a linked list of pieces, the last one first.

    An earlier state of the page can thus be kept at no cost.
    """

    last: str = ""
    before: _Text | None = None

    def since(self, start: _Text | None = None) -> str:
        """Return the text that was added after `start`, or the whole text."""
        pieces: list[str] = []
        part: _Text | None = self
        while part is not None and part is not start:
            pieces.append(part.last)
            part = part.before
        return "".join(reversed(pieces))


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """An immutable state of a page, which the page can return to any number of times.

    Attributes:
        tokens: int32[], the fixed tokens.
        rest: The text after them, as it is on the page.
        control: The control token at the end of the tokens, which may swallow white
            space at the beginning of `rest`; None if there is none.
        keep_from: Length of `rest` in bytes at which its beginning is next turned into
            fixed tokens.
        text: The whole text.
        turns: Turns of the chat.
        opened: The text at the beginning of the open turn.
        continues: As in `PromptText`.
        is_normalized: Whether the fixed tokens are of text that was changed as the
            tokenizer normalises it.
    """

    tokens: IntArray
    rest: bytes
    control: int | None
    keep_from: int
    text: _Text
    turns: ChatTurns
    opened: _Text | None = None
    continues: bool = False
    is_normalized: bool = False


class GrowingPrompt:
    """A prompt to which text and tokens are appended, one after the other.

    It makes no model call. Its content is fixed tokens and the text after them. That
    text can be encoded separately with the same result, so a slot never encodes the
    whole page again. Control tokens come only from the chat template, and from literals
    with `parse_special`.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        template_args: Mapping[str, Any] | None = None,
        parse_special: bool = False,
    ) -> None:
        """Create an empty page.

        From the first `open_role` on, text and slots are allowed only in turns. White
        space between turns is not part of the page.

        Args:
            vocabulary: The vocabulary.
            template_args: Arguments for the model's chat template.
            parse_special: Whether control tokens are recognised in literals.
        """
        self._vocabulary, self._parse_special = vocabulary, parse_special
        self._time = str((template_args or {}).get(TIME_ARGUMENT, ""))
        start = () if vocabulary.bos is None else (vocabulary.bos,)
        tokens = np.array(start, dtype=np.int32)
        ends = [vocabulary.texts[token] for token in vocabulary.eog.tolist()]
        turns = turns_of(vocabulary.chat_template, template_args or {}, ends)
        self._at = self._start = Snapshot(tokens, b"", None, _KEEP_FROM_BYTES, _Text(), turns)

    @property
    def text(self) -> str:
        """Return the text of the page.

        Control tokens of the turns are spelled as the template spells them.
        """
        return self._at.text.since()

    @property
    def prompt(self) -> PromptText:
        """Return the prompt on which the next slot is conditioned.

        Raises `PromptError` between turns, and if the page is empty and the model adds
        no BOS token.
        """
        if self._is_between_turns:
            raise PromptError("on a page with roles, a slot must be inside one, such as the assistant's")
        prompt, turn = self._page, self._at.turns.open
        if turn is not None and turn.role == "assistant" and self._at.text is self._at.opened:
            prompt = with_fixed_end(self._vocabulary, prompt)
        if not len(prompt.prefix) and not prompt.text:
            raise PromptError(
                "the page is empty before this slot, and this model adds no BOS token, so "
                "nothing predicts the first token; begin the page with text"
            )
        return prompt

    @property
    def ends_turn(self) -> bool:
        """Return whether the end of generation ends the open turn.

        It does in an assistant's turn that the template ends with an
        end-of-generation token.
        """
        turn = self._at.turns.open
        if turn is None or turn.role != "assistant":
            return False
        tokens, rest = self._vocabulary.encode_spans(template_spans(self._vocabulary, turn.after))
        first = tokens[:1].tolist() or encode_after(self._vocabulary, tokens, rest)[:1]
        return bool(first) and bool(np.isin(first[0], self._vocabulary.eog))

    def add(self, text: str, *, literal: bool = False) -> str:
        """Append text to the page, and return the part that was added.

        White space between turns is not added. Control tokens are recognised only in a
        `literal` of a page with `parse_special`. Raises `PromptError` for other text
        between turns, and `TextError` for a lone surrogate.
        """
        data = to_bytes(text, "text of the page")
        if not text:
            return text
        if self._is_between_turns:
            if text.strip():
                raise PromptError(
                    f"{clip_stripped(text)} is outside every role; on a page with roles, only white space is "
                    "allowed there"
                )
            return ""
        self._write(text, [(data, literal and self._parse_special)])
        return text

    def add_drawn(self, context: IntArray, tokens: IntArray, data: bytes) -> str:
        """Append drawn bytes to the page, and return them as text.

        The page keeps the drawn tokens that spell only the end of the page and `data`,
        even if they differ from the tokenizer's own. The rest of `data` becomes text,
        encoded together with later text. Bytes that are not text become U+FFFD.

        Raises `ProtocolError` if the context is not the page's.

        Args:
            context: int32[], tokens of the page up to its end, or to a position in its
                last part of text, after which the tokens were drawn.
            tokens: int32[], the drawn tokens. They spell the rest of the page, then
                `data`, and maybe more (a stop text, an end token).
            data: The drawn bytes to write.
        """
        if self._is_between_turns:
            raise PromptError("on a page with roles, generated text must be inside one, such as the assistant's")
        text = data.decode("utf-8", "replace")
        page = self._page
        healed = self._rest_after(page, context)
        written = text.encode()
        n_kept, n_bytes = self._match_characters(tokens, healed, written)
        if n_bytes >= len(healed):
            own = np.concatenate([context, tokens[:n_kept]])
            n_fixed = min(len(page.prefix), len(context))
            opened = with_text(self._vocabulary, own[:n_fixed], own[n_fixed:])
            page = replace(page, prefix=opened.prefix, text=opened.text)
            written = (healed + written)[n_bytes:]
        self._set_content(replace(page, text=page.text + written), None, _Text(text, self._at.text))
        return text

    def before_control(self, literal: str) -> tuple[str, bool] | None:
        """Return the text of a literal before its first control token, and its kind.

        The second value is whether that token ends a generation. White space
        that the token swallows is left out. Returns None if the literal has no
        control token or they are not recognised.
        """
        if not self._parse_special:
            return None
        vocabulary, data = self._vocabulary, to_bytes(literal, "text of the page")
        tokens, _ = vocabulary.encode_spans([(data, True)])
        if not len(tokens):
            return None
        first, start = self._first_control(tokens, [(data, True)])
        text = data[:start].decode()
        swallows = (vocabulary.strips_left == tokens[first]).any()
        if swallows:
            text = vocabulary.without_trailing_space(text.encode()).decode()
        return text, bool(np.isin(tokens[first], vocabulary.eog))

    def mark(self) -> Snapshot:
        """Return the present state of the page, for `back_to`."""
        return self._at

    def back_to(self, mark: Snapshot) -> None:
        """Return the page to an earlier state, as given by `mark`."""
        self._at = mark

    def open_role(self, role: str) -> str:
        """Begin a turn; return the text that the template writes before its content.

        That text is then on the page. An assistant's turn begins with the template's
        generation prompt. Raises `PromptError` as `ChatTurns.open_turn` does, and if
        the page already has text outside every turn.
        """
        at = self._at
        if not at.turns.all and at.text.since().strip():
            raise PromptError(
                f"{clip_stripped(at.text.since())} comes before the first role; on a page with roles, only white "
                "space is allowed there"
            )
        turns = at.turns.open_turn(role)
        before = turns.all[-1].before
        spans = template_spans(self._vocabulary, before)
        # White space before the first turn is not part of the page.
        self._at = replace(at if at.turns.all else self._start, turns=turns)
        if not at.turns.all and not self._vocabulary.bos_in_chats:
            self._at = replace(self._at, tokens=self._at.tokens[:0])
        self._write(before, spans)
        self._at = replace(self._at, opened=self._at.text)
        return str.__str__(before)

    def close_role(self) -> str:
        """End the turn; return the text that the template writes after its content.

        That text is then on the page. Raises `PromptError` if no turn is open.
        """
        at = self._at
        turns = at.turns.close_turn(at.text.since(at.opened))
        after = turns.all[-1].after
        self._write(after, template_spans(self._vocabulary, after))
        self._at = replace(self._at, turns=turns, opened=None)
        return str.__str__(after)

    @property
    def _is_between_turns(self) -> bool:
        return bool(self._at.turns.all) and self._at.turns.open is None

    @property
    def _page(self) -> PromptText:
        """Return the page without white space that its last control token swallows."""
        at, rest = self._at, self._swallow(self._at.rest)
        text = self._vocabulary.normalized(rest)
        time = self._time if at.turns.all else ""
        return PromptText(at.tokens, text, at.continues, at.is_normalized or text != rest, time)

    def _swallow(self, rest: bytes) -> bytes:
        """Return `rest` without white space that the last control token swallows."""
        control = self._at.control
        swallows = control is not None and (self._vocabulary.strips_right == control).any()
        return self._vocabulary.without_leading_space(rest) if swallows else rest

    def _write(self, text: str, spans: Sequence[tuple[bytes, bool]]) -> None:
        """Append text to the page.

        `spans` are pairs of a piece of the text and whether control tokens are
        recognised in it.
        """
        if not text:
            return
        at, vocabulary = self._at, self._vocabulary
        data, new_text = b"".join([span for span, _ in spans]), _Text(text, at.text)
        tokens, rest = vocabulary.encode_spans(spans)
        if not len(tokens):
            self._set_content(
                PromptText(at.tokens, at.rest + data, at.continues, at.is_normalized), at.control, new_text
            )
            return
        first, start = self._first_control(tokens, spans)
        run = self._swallow(at.rest + data[:start])
        if (vocabulary.strips_left == tokens[first]).any():
            run = vocabulary.without_trailing_space(run)
        own = np.asarray(encode_after(vocabulary, at.tokens, run, continues=at.continues), dtype=np.int32)
        control = int(tokens[-1])
        tokens = tokens[first:]
        if at.text.before is None and not run and tokens[0] == vocabulary.bos and len(at.tokens):
            tokens = tokens[1:]  # the page begins with it already
        is_normalized = at.is_normalized or vocabulary.normalized(data) != data or vocabulary.normalized(run) != run
        prefix = np.concatenate([at.tokens, own, tokens])
        page = PromptText(prefix, rest, continues=True, is_normalized=is_normalized)
        self._set_content(page, control, new_text)

    def _first_control(self, tokens: IntArray, spans: Sequence[tuple[bytes, bool]]) -> tuple[int, int]:
        """Return the index of the first control token, and its position in the text.

        The index is that in `tokens`, the position that in the bytes of
        `spans`.
        """
        first = int(np.flatnonzero(np.isin(tokens, self._vocabulary.control))[0])
        spelling = to_bytes(self._vocabulary.texts[tokens[first]], "control token")
        start = 0
        for data, has_control in spans:
            if has_control and spelling in data:
                return first, start + data.index(spelling)
            start += len(data)
        raise ProtocolError("a control token is missing from the text of the template")

    def _set_content(self, page: PromptText, control: int | None, text: _Text) -> None:
        """Set the content of the page.

        If the text after the fixed tokens is long, its beginning becomes fixed tokens.
        """
        self._at = replace(
            self._at,
            tokens=page.prefix,
            rest=page.text,
            control=control,
            text=text,
            continues=page.continues,
            is_normalized=page.is_normalized,
        )
        if len(page.text) < self._at.keep_from:
            return
        kept = split_stable(self._vocabulary, self._page)
        if len(kept.prefix) == len(page.prefix):
            # Text without a settled position is not searched again each time.
            self._at = replace(self._at, keep_from=2 * len(page.text))
        else:
            self._at = replace(
                self._at,
                tokens=kept.prefix,
                rest=kept.text,
                control=None,
                keep_from=_KEEP_FROM_BYTES,
                is_normalized=kept.is_normalized,
            )

    def _rest_after(self, page: PromptText, context: IntArray) -> bytes:
        """Return the bytes of the page after a context, as tokens spell them.

        Raises `ProtocolError` if the context is not the page's.
        """
        own = encode_text(self._vocabulary, page)
        tokens = np.concatenate([page.prefix, np.asarray(own, dtype=np.int32)])
        n = len(context)
        if (
            n > len(tokens)
            or not np.array_equal(tokens[:n], context)
            or (self._vocabulary.lengths[tokens[n:]] == 0).any()
        ):
            raise ProtocolError("the tokens were not drawn after this page")
        return self._vocabulary.decode(tokens[n:])

    def _match_characters(self, tokens: IntArray, healed: bytes, written: bytes) -> tuple[int, int]:
        """Return how many tokens and bytes spell whole characters of a text.

        The text is `healed`, the end of the page, followed by `written`. The
        tokens counted are the first ones.
        """
        target = healed + written
        best = at = 0, 0
        for token in tokens.tolist():
            piece = self._vocabulary.pieces[token]
            if not piece or not target.startswith(piece, at[1]):
                break
            at = at[0] + 1, at[1] + len(piece)
            if target[at[1] : at[1] + 1] < b"\x80" or target[at[1]] >= 0xC0:
                best = at
        return best
