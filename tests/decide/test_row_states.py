"""The state of a row: a column, or a pattern of columns; what is missing is an error of the row."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.decide.states import row_states
from selectrie.errors import OptionError

COLUMNS = ("subject", "body", "a b")


def test_a_column_is_its_value():
    """Text stays as it is, with white space at its ends; an object or messages stay a state."""
    states = row_states("body", COLUMNS)
    assert states.columns == ("body",)
    for value in (" text\n", {"role": "x"}, [{"role": "user", "content": "hi"}]):
        assert states.of([value]) == value


def test_a_pattern_joins_columns():
    """Doubled braces are braces, a column may come twice, and messages become a transcript."""
    states = row_states("{{{subject}}} {body}/{subject} {a b}", COLUMNS)
    assert states.columns == ("subject", "body", "a b")
    messages = [{"role": "user", "content": "hi"}]
    assert states.of(["S", messages, {"k": "é"}]) == '{S} user: hi/S {"k": "é"}'


@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=2, max_size=4))
def test_a_pattern_is_the_texts_between_its_columns(texts):
    """Any text between columns stays as it is once its braces are doubled."""
    pattern = "{body}".join(text.replace("{", "{{").replace("}", "}}") for text in texts)
    assert row_states(pattern, COLUMNS).of(["🙂{}"]) == "🙂{}".join(texts)


def test_a_column_with_braces_in_its_name():
    """A column's name is taken as it is before it is read as a pattern."""
    assert row_states("{x}", ["x", "{x}"]).columns == ("{x}",)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (True, "true"),
        (0.5, "0.5"),
        (np.float32(0.5), "0.5"),
        (np.int64(3), "3"),
        (date(2026, 1, 2), "2026-01-02"),
        (Decimal("1.10"), "1.10"),
    ],
)
def test_numbers_and_dates_are_text(value, text):
    """What a typed table holds is written as people write it."""
    assert row_states("body", COLUMNS).of([value]) == text
    assert row_states("<{body}>", COLUMNS).of([value]) == f"<{text}>"


@pytest.mark.parametrize("state", ["body", "x {body}"])
@pytest.mark.parametrize("value", [None, float("nan"), np.float64("nan"), Decimal("nan"), "", " \n", b"x", object()])
def test_what_is_missing_is_an_error(state, value):
    """None, NaN, blank text and values that are no text name their column."""
    with pytest.raises(OptionError) as error:
        row_states(state, COLUMNS).of([value])
    assert error.value.name == "body"


def test_values_of_pandas_that_are_missing():
    """`pd.NA` and `pd.NaT` are missing too."""
    pandas = pytest.importorskip("pandas")
    for value in (pandas.NA, pandas.NaT):
        with pytest.raises(OptionError, match="body"):
            row_states("body", COLUMNS).of([value])


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("bdy", "state='bdy': expected the name of a column, or .* the table has 'subject', 'body', 'a b'"),
        ("{bdy} x", "state='bdy': expected a column of the table; it has 'subject', 'body', 'a b'"),
        ("{} x", "state='': expected a column of the table"),
        ("{body", "braces in pairs; {{ stands for '{'"),
        ("body}", "braces in pairs; }} stands for '}'"),
    ],
)
def test_mistakes_name_the_columns(state, message):
    """An unknown column names those that there are, and a single brace says what to write."""
    with pytest.raises(OptionError, match=message):
        row_states(state, COLUMNS)


def test_many_columns_are_cut():
    """An error about a wide table does not name all of it."""
    with pytest.raises(OptionError, match=r"'c19' and 980 more"):
        row_states("x", [f"c{i}" for i in range(1000)])
