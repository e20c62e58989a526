"""Regular expressions that values bring are compiled once, and kept within a bound."""

from __future__ import annotations

import pytest

from selectrie.template.analysis.template import Template
from selectrie.template.values import sources
from selectrie.template.values.sources import Patterns


@pytest.fixture
def template():
    """A template whose values bring a pattern."""
    return Template("<<select 'name' regex=r>>")


def test_patterns_of_many_values_are_not_all_kept(template):
    """Of 300 patterns the last 64 stay; one that is kept is the same object, one that is not is compiled anew."""
    made = [template.read_regex(f"a{n}") for n in range(300)]
    assert len(template._sources.patterns) == sources.MAX_PATTERNS == 64
    assert template.read_regex("a299") is made[299]
    assert template.read_regex("a236") is made[236]
    assert template.read_regex("a0") is not made[0]
    assert template.read_regex("a0").accepts("a0")


def test_the_pattern_used_last_stays(template):
    """What is used again and again is compiled once."""
    first = template.read_regex("first")
    for n in range(200):
        template.read_regex(f"a{n}")
        assert template.read_regex("first") is first


def test_large_patterns_are_counted_by_their_bytes(template, monkeypatch):
    """They give way where they hold more than their bound together, but for the last one."""
    size = template.read_regex("a{50}").held_bytes
    assert size > 50 * 100
    monkeypatch.setattr(sources, "MAX_PATTERN_BYTES", 3 * size)
    for letter in "bcdefg":
        template.read_regex(letter + "{50}")
    assert 1 <= len(template._sources.patterns) <= 3
    monkeypatch.setattr(sources, "MAX_PATTERN_BYTES", 0)
    kept = template.read_regex("h{50}")
    assert len(template._sources.patterns) == 1
    assert template.read_regex("h{50}") is kept


def test_the_first_of_two_threads_is_kept():
    """Both get the same grammar."""
    one, other = (Template("x").read_regex("a") for _ in range(2))
    kept = Patterns()
    assert kept.get("a") is None
    assert kept.keep("a", one) is kept.keep("a", other) is kept.get("a") is one
