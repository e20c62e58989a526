"""How many rows of the model a table takes in either layout, before a run.

A layout says what prompts share. State first, the questions about one row share its
state; questions first, all rows share the question and its list of options. Which is
less depends on the lengths, so it is counted for the first rows of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

from selectrie.decide.params import DecisionParams
from selectrie.decide.prompts import DecisionPrompt
from selectrie.decide.questions import Question
from selectrie.decide.states import State
from selectrie.engine.requests.selection import Choices
from selectrie.errors import RequestError
from selectrie.options import PromptParams
from selectrie.results import TokenPlan
from selectrie.tokenization.prompts import Prompt

SAMPLED = 8
"""Number of table rows that are counted."""
STATE_FIRST, QUESTIONS_FIRST = "state first", "questions first"


class CountsTokens(Protocol):
    """What an estimate needs of an engine; it makes no model call."""

    def decision_prompts(
        self, state: State, questions: Mapping[str, Question], *, params: DecisionParams | None = None
    ) -> dict[str, tuple[DecisionPrompt, ...]]: ...

    def tokens(
        self, prompt: Prompt, choices: Choices, *, terminator: str, following: str, prompting: PromptParams
    ) -> TokenPlan: ...


@dataclass(frozen=True, slots=True)
class RowEstimate:
    """Rows of the model for all prompts of a table, without baselines of the rule.

    Attributes:
        state_first, questions_first: The number of rows in this layout.
        n_sampled: Number of table rows that were counted.
    """

    state_first: int
    questions_first: int
    n_sampled: int

    @property
    def layout(self) -> str:
        """Return the layout that takes fewer rows; state first if they are equal."""
        return QUESTIONS_FIRST if self.questions_first < self.state_first else STATE_FIRST


def row_estimate(
    llm: CountsTokens, states: Iterable[State], n_rows: int, questions: Mapping[str, Question], params: DecisionParams
) -> RowEstimate | None:
    """Return the estimate for a table; None if none of its first rows can be asked.

    No model call is made.

    Args:
        llm: The engine.
        states: The states of the first rows, of which at most `SAMPLED` are read.
        n_rows: Number of rows of the table.
        questions: The questions by name.
        params: Options of the decision; their layout is not read.
    """
    first, second = _Rows(llm), _Rows(llm)
    for state in islice(states, SAMPLED):
        with suppress(RequestError):
            needs = [
                rows.needs(llm.decision_prompts(state, questions, params=replace(params, layout=layout)))
                for rows, layout in ((first, STATE_FIRST), (second, QUESTIONS_FIRST))
            ]
            first.seen.append(needs[0])
            second.seen.append(needs[1])
    if not first.seen:
        return None
    return RowEstimate(first.total(n_rows), second.total(n_rows), len(first.seen))


class _Rows:
    """The tokens before the answers of some table rows, as a tree that they share.

    Attributes:
        seen: What `needs` returned for each table row.
    """

    def __init__(self, llm: CountsTokens) -> None:
        self._llm = llm
        self._nodes: dict[tuple[int, int], int] = {}
        self.seen: list[tuple[frozenset[int], int]] = []

    def needs(self, prompts: Mapping[str, Sequence[DecisionPrompt]]) -> tuple[frozenset[int], int]:
        """Return the nodes of the tree that the prompts of one table row need.

        Returns:
            The nodes, and the number of rows of the options' own tokens.
        """
        nodes: set[int] = set()
        n_inner = 0
        for prompt in (one for own in prompts.values() for one in own):
            if prompt.choices is None:
                n_inner += prompt.n_tokens  # of a grammar: what it shares is not known
                continue
            plan = self._llm.tokens(
                prompt.prompt,
                prompt.choices,
                terminator=prompt.terminator,
                following=prompt.following,
                prompting=prompt.prompting,
            )
            n_inner += plan.rows_inner
            at = -1
            for token, _ in plan.context:
                at = self._nodes.setdefault((at, token), len(self._nodes))
                nodes.add(at)
        return frozenset(nodes), n_inner

    def total(self, n_rows: int) -> int:
        """Return the rows of a whole table: what all rows share counts once."""
        shared: frozenset[int] = frozenset()
        if len(self.seen) > 1:
            shared = frozenset.intersection(*(nodes for nodes, _ in self.seen))
        own = sum(len(nodes - shared) + n_inner for nodes, n_inner in self.seen)
        return len(shared) + round(own * n_rows / len(self.seen))
