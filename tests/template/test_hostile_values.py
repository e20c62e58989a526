"""Values of any kind end in one clear error, soon, and nothing of an object is asked that templates have no use for."""

from __future__ import annotations

from contextlib import suppress
from typing import ClassVar

import numpy as np
import pytest

from selectrie import Template
from selectrie.errors import OptionError, TemplateError
from selectrie.options import SamplingParams, StopParams
from selectrie.template import interpreter
from selectrie.template.analysis import dry_run
from selectrie.template.values.values import contains

USES = (
    "<<v>>",
    "<<v.a>>",
    "<<v[0]>>",
    "<<w[v]>>",
    "<<#each v>>a<</each>>",
    "<<#if v>>a<</if>>",
    "<<#if v == 'a'>>a<</if>>",
    "<<#if v < 3>>a<</if>>",
    "<<#if 'a' in v>>a<</if>>",
    "a<<select 's' options=v>>",
    "a<<select 's' options=[v]>>",
    "a<<select 's' options=w prior=v>>",
    "a<<select 's' options=w temperature=v>>",
    "a<<select 's' options=w seed=v>>",
    "a<<select 's' options=w rule=v>>",
    "a<<select 's' options=w hidden=v>>",
    "a<<select 's' regex=v>>",
    "a<<gen 'g' max_tokens=v>>",
    "a<<gen 'g' stop=v>>",
    "a<<gen 'g' grammar=v>>",
    "a<<#geneach 'x' num=v>><<gen 'this'>><</geneach>>",
    "a<<#joint k=v>><<select 's' options=w>><</joint>>",
    "a<<beam 's' options=v>>",
)


class Shy:
    """Writes down what is asked of it, and fails. Its class anybody may see."""

    asked: ClassVar[list[str]] = []

    def __getattribute__(self, name):
        if name == "__class__":
            return Shy
        Shy.asked.append(name)
        raise RuntimeError(name)

    def _refuse(self, *_):
        Shy.asked.append("a special method")
        raise RuntimeError

    __repr__ = __str__ = __eq__ = __bool__ = __len__ = __iter__ = __getitem__ = __lt__ = __contains__ = _refuse
    __hash__ = None


def deep(n):
    """A list in a list in a list."""
    found = []
    for _ in range(n):
        found = [found]
    return found


@pytest.mark.parametrize("use", USES)
def test_nothing_is_asked_of_an_object(use):
    """No attribute, no special method, not even its repr for the message."""
    Shy.asked.clear()
    template = Template(use)
    values = {"v": Shy(), "w": ["a", "b"]}
    if use != "<<#if v == 'a'>>a<</if>>":
        with pytest.raises(TemplateError):
            template.check(values)
    else:
        template.check(values)  # it is no text: not equal, and no mistake
    assert not Shy.asked


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    "value",
    [deep(50_000), 10**6000, range(10**12), np.arange(3), b"ab", iter("ab"), 1j, [Shy()]],
    ids=["deep", "digits", "endless", "array", "bytes", "iterator", "complex", "shy"],
)
def test_odd_values_are_accepted_or_refused(use, value):
    """Whichever it is: no other exception, and nothing goes through a range of any length."""
    with suppress(TemplateError):
        Template(use).check({"v": value, "w": ["a", "b"]})


def test_a_place_in_a_range_is_computed():
    """Whole numbers of it, as int or float, and nothing else."""
    endless = range(0, 10**15, 2)
    for item, expected in ((4, True), (4.0, True), (5, False), (4.5, False), ("4", False), (True, False)):
        assert contains(endless, item) is expected
    assert not contains(endless, float("inf"))


def test_an_option_of_any_size_has_a_message():
    """Values without a repr, and those of a long one."""
    with pytest.raises(OptionError, match="temperature=<int>: expected"):
        SamplingParams(temperature=10**6000)
    with pytest.raises(OptionError, match="max_tokens=<int>: expected a whole number from"):
        StopParams(max_tokens=10**6000)
    with pytest.raises(OptionError) as caught:
        StopParams(max_tokens=list(range(100_000)))
    assert len(str(caught.value)) < 1200


@pytest.mark.parametrize("body", ["", "<<! nothing >>", "a"])
def test_loops_within_loops_end(body, monkeypatch):
    """Turns without a segment count too: 10**10 of them are refused, and not tried."""
    monkeypatch.setattr(dry_run, "MAX_SEGMENTS", 1_000)
    template = Template(f"<<#each v>><<#each v as w>>{body}<</each>><</each>>")
    values = {"v": list(range(100_000))}
    with pytest.raises(TemplateError, match="passes more than 1000 segments"):
        template.check(values)
    steps = interpreter.Interpreter(template, values, 1_000)
    with pytest.raises(TemplateError, match="passes more than"):
        list(iter(steps.step, None))
