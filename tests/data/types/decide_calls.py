"""Calls of `decide` with the types that a checker is to find; read by `tests/decide/test_types.py`, never run."""

from __future__ import annotations

from enum import Enum

from selectrie import Choice, DecisionParams, Engine, Grammar, Option, Predicate, Score


class Team(Enum):
    """Two teams."""

    SALES = "sales"
    POST = "post"


def questions() -> None:
    """Questions know the type of their values."""
    reveal_type(Choice("q", ["a", "b"]))  # Choice[str]
    reveal_type(Choice("q", [1, 2]))  # Choice[int]
    reveal_type(Choice("q", [True, False]))  # Choice[bool]
    reveal_type(Choice("q", Team))  # Choice[Team]
    reveal_type(Choice("q", [Team.SALES]))  # Choice[Team]
    reveal_type(Choice("q", {1: "one", 2: "two"}))  # Choice[int]
    reveal_type(Choice("q", [Option(1, "one"), Option(2, "two")]))  # Choice[int]
    reveal_type(Choice(options=["a"]))  # Choice[str]
    reveal_type(Choice("q", Grammar.from_regex("[a-z]+")))  # Choice[str]


def answers(llm: Engine) -> None:
    """The answer has the question's kind, and its value the type of the options."""
    reveal_type(llm.decide("s", Choice("q", ["a", "b"])))  # ChoiceAnswer[str]
    reveal_type(llm.decide("s", Choice("q", Team)).value)  # Team
    reveal_type(llm.decide("s", Choice("q", [1, 2])).probabilities)  # Mapping[int, float]
    reveal_type(llm.decide("s", Predicate("p")))  # PredicateAnswer
    reveal_type(llm.decide({"a": 1}, Score("q", ["a", "b"])).score)  # float
    reveal_type(llm.decide("s", Score("q", {0.5: "a"}), params=DecisionParams(permutations=1)))  # ScoreAnswer
    reveal_type(llm.decide("s", {"x": Predicate("p"), "y": Choice("q", ["a"])}))  # Decision
    reveal_type(llm.decide([{"role": "user", "content": "x"}], {"x": Predicate("p")}))  # Decision
    reveal_type(llm.decide("s", {"x": Predicate("p")}).predicates["x"])  # PredicateAnswer
    reveal_type(llm.decide_many(["s"], {"x": Predicate("p")}))  # list[Decision]
    reveal_type(llm.decide_iter(["s"], {"x": Score("q", ["a"])}))  # Iterator[Decision]


async def awaited(llm: Engine) -> None:
    """The awaitable forms have the same types."""
    reveal_type(await llm.adecide("s", Choice("q", Team)))  # ChoiceAnswer[Team]
    reveal_type(await llm.adecide("s", Predicate("p")))  # PredicateAnswer
    reveal_type(await llm.adecide("s", Score("q", ["a"])))  # ScoreAnswer
    reveal_type(await llm.adecide("s", {"x": Predicate("p")}))  # Decision
    reveal_type(await llm.adecide_many(["s"], {"x": Predicate("p")}))  # list[Decision]
    reveal_type(llm.adecide_iter(["s"], {"x": Predicate("p")}))  # AsyncIterator[Decision]
