"""What the tests of decisions share: engines on fakes that read any text, questions, and the select that each prompt is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from selectrie import Choice, DecisionParams, Option, Predicate, Score
from selectrie.core.types import Limits, ModelKind
from selectrie.decide.templates import DecisionPrompt
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.options import ScoringRule
from selectrie.results import Selection
from selectrie.testing import HashModel, make_vocabulary

EXACT = SelfCheck(batch_multiple=1, moved=0.0, tolerance=0.0)
"""A fake's rows are the same bits in every layout."""
LIMITS = Limits(nodes=1 << 15, sequences=256, rows_per_call=512, kind=ModelKind.ATTENTION, max_idle_rows=1 << 15)
BYTES = make_vocabulary(bytes([value]) for value in range(256))
"""One token for each byte, with a chat template; `<eos>` ends a turn."""
PLAIN = replace(BYTES, chat_template=None)
"""The same without a chat template."""

STATE = "My parcel has not come!"
QUESTIONS = {
    "intent": Choice("What does the customer want?", ["track order", "refund", "re"]),
    "angry": Predicate("The customer is angry.", yes_when="they shout"),
    "urgency": Score("How urgent is this?", ["can wait", "this week", "today"]),
}
DESCRIBED = Choice("Which team?", [Option(1, "sales", "prices, offers"), Option(2, "repairs"), Option(3, "post")])


def fake(
    seed: int = 1,
    *,
    chat: bool = True,
    nodes: int = 1 << 15,
    planted: Mapping[tuple[int, ...], Sequence[float]] | None = None,
    sharpness: float = 0.5,
    tolerance: float = 0.0,
    **changes: Any,
) -> Engine:
    """An engine on a model that hashes its context, byte by byte, but for planted rows; `changes` are to its vocabulary.

    `tolerance` is said to be that of its rows.
    """
    limits = replace(LIMITS, nodes=nodes)
    vocabulary = replace(BYTES if chat else PLAIN, **changes)
    model = HashModel(seed, vocabulary=vocabulary, limits=limits, sharpness=sharpness, planted=planted)
    return Engine(model, check=replace(EXACT, tolerance=tolerance))


def rests(llm: Engine, max_steps: int) -> bool:
    """Has the model nothing more to do, within so many steps?"""
    thread = llm._model_thread
    return any(thread.call(lambda: thread.scheduler.idle) for _ in range(max_steps))


def nothing_is_held(llm: Engine) -> bool:
    """Does the model rest, with no task and no node in use?"""
    is_idle = rests(llm, 50)
    llm.trim()
    return is_idle and llm._model.contexts == {0: ()} and not llm.load.n_active + llm.load.n_waiting


def selected(llm: Engine, prompt: DecisionPrompt, rule: str | ScoringRule = "joint") -> Selection:
    """The select that a prompt is, asked by hand."""
    assert prompt.choices is not None
    return llm.select(
        prompt.prompt,
        prompt.choices,
        rule=rule,
        terminator=prompt.terminator,
        following=prompt.following,
        prior=prompt.prior,
        search=prompt.search,
        prompting=prompt.prompting,
    )


def only(prompts: dict[str, tuple[DecisionPrompt, ...]]) -> DecisionPrompt:
    """The one prompt of one question."""
    [(prompt,)] = prompts.values()
    return prompt


def prompt_of(llm: Engine, question: Any, state: Any = STATE, **params: Any) -> DecisionPrompt:
    """The one prompt of a question."""
    return only(llm.decision_prompts(state, {"q": question}, params=DecisionParams(**params)))
