"""The tabs of the page: what a test fills in, and which call they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab.

    Attributes:
        name: Its name.
        path: The path of its call.
        fields: Texts of its fields, by their names, that make a request with an answer; those of its example stay.
        at_fault: A field that an error can name: the path in the body as the server says it, and the field's own.
    """

    name: str
    path: str
    fields: Mapping[str, str] = field(default_factory=dict)
    at_fault: tuple[str, str] = ("prompt", "prompt")

    def __str__(self) -> str:
        return self.name.lower()


SELECT = Tab(
    "Select",
    "/v1/select",
    {"prompt": "The capital of France is", "choices": " Paris\n Rome"},
    ("choices[1]", "choices"),
)
RANK = Tab(
    "Rank",
    "/v1/rank",
    {"prompt": "The capital of Italy is", "choices": " Paris\n Rome\n Oslo"},
    ("choices[2]", "choices"),
)
DECIDE = Tab(
    "Decide",
    "/v1/decisions",
    {"state": "The parcel came late, and it was broken."},
    ("questions.intent.instructions", "q.instructions"),
)
FIRST = (SELECT, RANK, DECIDE)
"""Tried in `make test`."""
GRAMMAR = Tab("Grammar", "/v1/select", {"prompt": "They live in"}, ("grammar", "source"))
TEMPLATE = Tab("Template", "/v1/render", {}, ("template", "template"))
GENERATE = Tab("Generate", "/v1/completions", {"prompt": "Once upon a time"}, ("prompt", "prompt"))
LATER = (GRAMMAR, TEMPLATE, GENERATE)
"""Tried in `.ci/run`."""
ALL = (*FIRST, *LATER)
CASES = [pytest.param(one, id=str(one)) for one in FIRST]
CASES += [pytest.param(one, id=str(one), marks=pytest.mark.long) for one in LATER]
