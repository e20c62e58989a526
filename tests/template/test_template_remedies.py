"""What messages advise: the remedy for a mistake that people make."""

from __future__ import annotations

import pytest

from selectrie import Template
from selectrie.errors import TemplateError

QUOTES = "no value is called 'wizard'; if it is a text, put it in quotes: 'wizard'"


@pytest.mark.parametrize(
    ("source", "values", "column", "reason"),
    [
        ("x <<select 'x' options=[wizard, 'knight']>>", {}, 25, QUOTES),
        ("<<#if rank == wizard>>x<</if>>", {"rank": "knight"}, 15, QUOTES),
        ("<<#if wizard in roles>>x<</if>>", {"roles": ["knight"]}, 7, QUOTES),
        (
            "<<#if a == wizards>>x<</if>>",
            {"a": 1, "wizard": 2},
            12,
            "no value is called 'wizards'; did you mean 'wizard'?",
        ),
        ("<<wizard>>", {}, 3, "no value is called 'wizard'"),
    ],
)
def test_a_text_without_quotes(source, values, column, reason):
    """In a list or a comparison an unknown name may be one."""
    with pytest.raises(TemplateError) as caught:
        Template(source).check(values)
    assert (caught.value.column, caught.value.reason) == (column, reason)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "x <<select 'x' options=a>>",
            "options must be a list or a mapping from texts to values, or an Enum class, not none",
        ),
        (
            "x <<select 'x' grammar=a>>",
            "grammar=none: expected a Grammar, or the name of a file or of an installed one",
        ),
        ("x <<beam 'x' regex=a>>", "regex=none: expected a text"),
        ("<<#joint>><<select 'x' options=a>><</joint>>", "options must be a list or a mapping"),
    ],
)
def test_none_says_nothing_of_what_may_stand_there(source, reason):
    """Told before a model is asked; a gen may go without."""
    with pytest.raises(TemplateError) as caught:
        Template(source).check({"a": None})
    assert caught.value.reason.startswith(reason)
    Template("x <<gen 'x' regex=a stop=a max_tokens=a temperature=a>>").check({"a": None})


def test_a_view_of_a_mapping_has_an_order():
    """A set has none, so `list` of it would make choices in no order."""
    for options, advice in (({"a": 1}.keys(), "pass list(…) of it"), ({"a"}, "a set has no order, so pass sorted(…)")):
        with pytest.raises(TemplateError) as caught:
            Template("x <<select 'x' options=a>>").check({"a": options})
        assert caught.value.reason.endswith(advice)
