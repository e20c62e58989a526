"""Determines how the text of a slot ends if its tag has no terminator.

It ends with the text that follows on the page, or with the end of the turn. After an
open quote of JSON, it is the contents of a string (RFC 8259, section 7). The RFC allows
a lone surrogate, which readers refuse or misread; here surrogates come in pairs only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.sampling.sequence import n_incomplete
from selectrie.engine.requests.constrained_prompt import add_following, remove_following, shorten_following
from selectrie.errors import GrammarError, OptionError
from selectrie.grammar import Grammar
from selectrie.results import BeamResult, Completion, Hypothesis, Samples, Selection, Signature

_BODY = (
    r'([^"\\\x00-\x1F]'
    r'|\\["\\/bfnrt]'
    r"|\\u[0-9A-CE-Fa-ce-f][0-9A-Fa-f]{3}"
    r"|\\u[Dd][0-7][0-9A-Fa-f]{2}"
    r"|\\u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2})*"
)
_JSON_BODY = re.compile(_BODY)
AnyResult = TypeVar("AnyResult", Samples, BeamResult)
QUOTES = {'"': '"', "'": "'", "`": "`", "\N{RIGHT DOUBLE QUOTATION MARK}": "\N{LEFT DOUBLE QUOTATION MARK}"}
"""Maps each closing quote to its opening quote."""
_LINE_END = re.compile(r"\r?\n")


@cache
def string_body() -> Grammar:
    """Return the grammar of the contents of a JSON string, without its quotes."""
    return Grammar.from_regex(_BODY, name="json string")


def json_string_end(text: str, start: int = 0) -> int:
    """Return where the longest valid contents of a JSON string from `start` end.

    They end before a quote, a control character, or a wrong or incomplete escape.
    """
    match = _JSON_BODY.match(text, start)
    return start if match is None else match.end()


def default_stop(following: str, before: str) -> str:
    """Return the stop text of a `gen` that sets none; "" if there is none.

    If `following` begins with a quote that the end of `before` opens, it is that quote.
    Otherwise it is `following` up to its first line end, or that line end if only white
    space comes before it.

    Args:
        following: Text after the slot.
        before: Text before the slot.
    """
    if following and before and QUOTES.get(following[0]) == before[-1]:
        return following[0]
    end = _LINE_END.search(following)
    if end is None:
        return following
    line = following[: end.start()]
    return line if line.strip() else end[0]


def default_stops(following: str, before: str) -> tuple[str, ...]:
    """Return the stop texts of a `gen` that sets none; () if there are none.

    The first is `default_stop`. If it is CRLF, LF alone is added, because models write
    it.
    """
    stop = default_stop(following, before)
    return (stop, "\n") if stop == "\r\n" else (stop,) if stop else ()


@dataclass(frozen=True, slots=True, eq=False)
class Ending:
    """The grammar and terminator used to search a slot at a position of the page.

    Attributes:
        grammar: The grammar to search: `own`, with `text` appended to each text.
        own: The slot's grammar.
        text: The beginning of the following text that ends the slot's text, or "".
        terminator: "auto", "none" or "eog".
        is_json: Whether `own` is the contents of a JSON string. A text that was broken
            off is cut back to whole characters and escapes.
    """

    grammar: Grammar
    own: Grammar
    text: str
    terminator: str
    is_json: bool = False

    def strip(self, text: str, *, complete: bool = True) -> str:
        """Return a text of `grammar` without the appended `self.text`.

        A text that is not `complete` was broken off, perhaps within `self.text`: as
        much of its end is removed as begins `self.text` and follows a text of the
        slot's grammar.
        """
        if not self.text:
            return text
        if complete:
            return text.removesuffix(self.text)
        if self.is_json:
            return text[: json_string_end(text)]
        for n in range(min(len(self.text), len(text)), 0, -1):
            if text.endswith(self.text[:n]) and self.own.accepts(text[:-n]):
                return text[:-n]
        return text

    def is_complete(self, text: str) -> bool:
        """Return whether `text` is a text of the slot's grammar plus `self.text`."""
        return text.endswith(self.text) and bool(self.own.accepts(text.removesuffix(self.text)))

    def strip_selection(self, selection: Selection) -> Selection:
        """Return the selection without `self.text`, under the slot's grammar."""
        return remove_following(selection, self.own, self.text)

    def strip_draws(self, draws: Samples) -> Samples:
        """Return the samples without `self.text`, under the slot's grammar."""
        return self._replace_texts(draws, texts=tuple(map(self._strip_hypothesis, draws.texts)))

    def strip_beam(self, result: BeamResult) -> BeamResult:
        """Return the result without `self.text`, under the slot's grammar."""
        return self._replace_texts(
            result,
            hypotheses=tuple(map(self._strip_hypothesis, result.hypotheses)),
            incomplete=tuple(map(self._strip_hypothesis, result.incomplete)),
            greedy=None if result.greedy is None else self._strip_hypothesis(result.greedy),
        )

    def _replace_texts(self, result: AnyResult, **texts: Any) -> AnyResult:
        """Return the result with other fields, as one of the slot's own grammar."""
        if not self.text:
            return result
        signature = self._signature(result.signature)
        return replace(result, grammar=self.own.name, grammar_digest=self.own.digest, signature=signature, **texts)

    def strip_completion(self, one: Completion) -> Completion:
        """Return the completion with `self.text` removed from its end.

        If that text ended it (finish "callback", from `is_complete`), the finish
        becomes "stop".
        """
        if not self.text:
            return one
        complete = one.finish in {"automaton", "callback", "eog"}
        text = self.strip(one.text, complete=complete)
        if text == one.text:
            return one
        n_cut = n_incomplete(one.data) + len(one.text[len(text) :].encode())
        data = one.data[: len(one.data) - n_cut]
        ended = {"finish": "stop", "stop": self.text} if complete else {}
        return replace(one, text=text, data=data, **ended)  # type: ignore[arg-type]

    def _strip_hypothesis(self, one: Hypothesis) -> Hypothesis:
        """Return a text of a beam search without the text that ended it."""
        text = self.strip(one.text, complete=one.complete)
        n_cut = len(one.text[len(text) :].encode())
        return replace(one, text=text, data=one.data[: len(one.data) - n_cut])

    def _signature(self, signature: Signature) -> Signature:
        return add_following(signature, self.text)


def ending_of_string(vocabulary: Vocabulary, following: str) -> Ending:
    """Return the ending of a slot that is the contents of a JSON string.

    The contents end with the closing quote. If the following text begins with that
    quote, they end with the beginning of that text (`shorten_following`).
    """
    text = shorten_following(vocabulary, following) if following.startswith('"') else '"'
    return Ending(string_body().followed_by(text), string_body(), text, "none", is_json=True)


def require_following(following: str) -> str:
    """Return `following`; raise `OptionError` if it is empty."""
    if not following:
        raise OptionError("terminator", "text", "another: no text is known to follow this slot")
    return following


def ending_of(
    vocabulary: Vocabulary, grammar: Grammar, terminator: str | None, following: str, *, ends_turn: bool
) -> Ending:
    """Return how the texts of a grammar end at a position of the page.

    Args:
        vocabulary: The model's vocabulary.
        grammar: The slot's grammar.
        terminator: The slot's argument. None means the text that follows, if there is
            one and the grammar can be followed by it, else the end of the turn, else
            "auto".
        following: Text known to come next, or "".
        ends_turn: Whether an assistant turn ends here.

    Raises:
        OptionError: For "text", if no text follows or it cannot be used.
    """
    text = shorten_following(vocabulary, require_following(following) if terminator == "text" else following)
    if text and terminator in (None, "text"):
        try:
            return Ending(grammar.followed_by(text), grammar, text, "none")
        except GrammarError as error:
            if terminator == "text":
                raise OptionError("terminator", "text", f"another: {error}") from error
    if terminator is None:
        terminator = "eog" if ends_turn and len(vocabulary.eog) and not text else "auto"
    return Ending(grammar, grammar, "", terminator)
