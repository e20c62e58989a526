"""Draws the rationales behind which the options of a decision are scored."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from selectrie.core.model import ModelDescription
from selectrie.core.types import Cost
from selectrie.core.vocabulary import Vocabulary
from selectrie.decide.answers import Answer, DecisionUsage
from selectrie.decide.asks import Ask
from selectrie.decide.templates import Page
from selectrie.decide.thinking import Rationales, Thinking, spread_of_winner
from selectrie.engine.requests.session import Prepared, Session, time_args
from selectrie.errors import IncompatibleOptionsError, OptionError, PromptError, SelectrieError, WholeRowsError
from selectrie.options import PromptParams, StopParams
from selectrie.results import Completion, Generation, Selection

if TYPE_CHECKING:
    from selectrie.engine.requests.generate import GenerateRequest, Prompts


K = TypeVar("K")


class Draw(Protocol):
    """Prepares a request to draw sequences, as `Runtime.prepare_generate` does."""

    def __call__(self, model: ModelDescription, prompts: Prompts, request: GenerateRequest) -> Prepared[Generation]: ...


OPEN_THOUGHT = re.compile(r"<(\w*think\w*)>\s*\Z")
"""Matches a thinking block that a chat template opens at the end of the prompt."""
_EMPTY_THOUGHT = re.compile(r"<(\w*think\w*)>\s*</\1>(\s*)\Z")
"""Matches the empty block with which a chat template switches thinking off."""
_NEEDS_MARKERS = "the text that ends a rationale, such as '\\nAnswer: ': {} has no block of thinking"
SOME_TIME = "2000-01-01T00:00:00"
"""A fixed time for chat templates, so that two rendered chats can be compared."""


@dataclass(frozen=True, slots=True)
class Markers:
    """The texts around a rationale.

    Attributes:
        start: The text before it.
        stop: The text at which it ends.
        close: The text between `stop` and the answer.
        gap: The text between a rationale without `stop` and that text.
    """

    start: str
    stop: str
    close: str = ""
    gap: str = ""

    def around(self, rationale: str, *, has_stop: bool = True) -> str:
        """Return the text from the prompt to the answer, with a rationale in it."""
        return f"{self.start}{rationale}{'' if has_stop else self.gap}{self.stop}{self.close}"


@dataclass(frozen=True, slots=True, eq=False)
class DrawnRationales:
    """The rationales of a question about a state.

    Attributes:
        completions: The rationales.
        is_counted: Whether the question's usage has their cost; with
            `Thinking.shared`, that of one question has it.
    """

    completions: tuple[Completion, ...]
    is_counted: bool = True

    def usage(self) -> DecisionUsage:
        """Return the work of drawing them, as the answer to the question counts it."""
        drawn = self.completions if self.is_counted else ()
        n_tokens = sum(len(one.tokens) for one in drawn)
        return DecisionUsage(0, 0, sum((one.cost for one in drawn), Cost()), output_tokens=n_tokens)

    def record(self, ask: Ask, answer: Answer, selections: Sequence[Selection]) -> Rationales:
        """Return the record of the rationales of an answer."""
        winner = [one.value for one in ask.options].index(answer.value)
        probabilities = [ask.option_probabilities(one.choices.probability)[winner] for one in selections]
        return Rationales(
            texts=tuple(one.text for one in self.completions),
            n_cut=sum(one.finish == "length" for one in self.completions),
            spread=spread_of_winner(probabilities),
            seed=self.completions[0].seed,
        )


@dataclass(frozen=True, slots=True)
class Thinker:
    """Draws rationales for the questions of a decision.

    Attributes:
        params: The options of the rationales.
        markers: The texts around a rationale.
        is_native: Whether the markers are those of the chat template.
        draw: Prepares the request that draws them.
    """

    params: Thinking
    markers: Markers
    is_native: bool
    draw: Draw

    @classmethod
    def of(
        cls, model: ModelDescription, params: Thinking | None, draw: Draw | None, *, in_chat: bool
    ) -> Thinker | None:
        """Return what draws the rationales of a model; None without options.

        Args:
            model: The model.
            params: The options of the rationales.
            draw: Prepares the request that draws them; None if the call draws none.
            in_chat: Whether the chat template writes the prompts.

        Raises:
            IncompatibleOptionsError: If the call draws none.
            OptionError: If there are no markers.
            WholeRowsError: If the model is a server's that draws no text.
        """
        if params is None:
            return None
        if draw is None:
            raise IncompatibleOptionsError(
                "think", "`fit_calibration` or `extract`", "only `decide` and `classify` think"
            )
        markers = None if params.stop is None else Markers(params.start or "", params.stop)
        if markers is None:
            markers = model.vocabulary.derived(_find_markers) if in_chat else None
        if markers is None:
            subject = "the model's chat template" if in_chat else "a plain page"
            raise OptionError("think.stop", None, _NEEDS_MARKERS.format(subject))
        thinker = cls(params, markers, params.stop is None, draw)
        try:
            draw(model, "?", thinker._request(PromptParams()))
        except WholeRowsError as error:
            raise WholeRowsError("`think`", "ask for the answer at once") from error
        return thinker

    def run(
        self,
        session: Session,
        pages: Mapping[K, Page],
        prompting_of: Callable[[Page], PromptParams],
        name_in_errors: Callable[[K], AbstractContextManager[None]],
    ) -> dict[K, DrawnRationales]:
        """Draw the rationales behind several pages, which end in the text before them.

        Args:
            session: The session in which they are drawn.
            pages: The page of each question, or of each state whose questions share it.
            prompting_of: Returns the options of the prompt that is a page.
            name_in_errors: Returns the context that names a key of `pages` in errors.
        """
        found: dict[K, DrawnRationales] = {}
        for is_chat in (True, False):
            keys = [key for key, page in pages.items() if page.is_chat is is_chat]
            if not keys:
                continue
            request = self._request(prompting_of(pages[keys[0]]))
            try:
                drawn = self.draw(session.model, [pages[key].prompt for key in keys], request).run(session).completions
            except SelectrieError as error:
                at, error.request = keys[error.request or 0], None
                with name_in_errors(at):
                    raise
            n = self.params.n
            found |= {key: DrawnRationales(tuple(drawn[at * n : (at + 1) * n])) for at, key in enumerate(keys)}
        return found

    def max_rows(self, n_choice_rows: int) -> int:
        """Return the rows that the rationales of an answer, and what follows, may take.

        Each is drawn, and read again with its markers before the choices, which take
        `n_choice_rows`.
        """
        n_read = self.params.max_tokens + len(self.markers.around("").encode()) + n_choice_rows
        return self.params.n * (self.params.max_tokens + n_read)

    def insert(self, completion: Completion) -> str:
        """Return the text from the prompt to the answer, with a drawn rationale."""
        return self.markers.around(completion.text, has_stop=completion.stop is not None)

    def _request(self, prompting: PromptParams) -> GenerateRequest:
        """Return the options of the request that draws rationales."""
        from selectrie.engine.requests.generate import GenerateRequest  # imported on first use

        stopping = StopParams(max_tokens=self.params.max_tokens, stop=self.markers.stop)
        return GenerateRequest(self.params.n, self.params.seed, self.params.sampling, stopping, prompting=prompting)


def _find_markers(vocabulary: Vocabulary) -> Markers | None:
    """Return the block of thinking that a chat template knows, or None without one.

    Either the template opens a block, or it writes an empty one where the argument
    `enable_thinking=False` turns thinking off; then the model itself opens it.
    """
    chat = vocabulary.chat_template
    if chat is None:
        return None
    chat = partial(chat, **time_args(vocabulary, SOME_TIME if vocabulary.chat_time is None else None))
    question: Mapping[str, str] = {"role": "user", "content": "?"}
    try:
        on, off = (chat([question], enable_thinking=is_on) for is_on in (True, False))
    except PromptError:
        return None
    opened, empty = OPEN_THOUGHT.search(on), _EMPTY_THOUGHT.search(off)
    tag = opened or empty
    if tag is None:
        return None
    start = "" if opened is not None else f"<{tag[1]}>\n"
    return Markers(start, f"</{tag[1]}>", "\n\n" if empty is None else empty[2], "\n")
