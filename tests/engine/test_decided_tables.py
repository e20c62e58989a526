"""Data frames of each library: the answers of a scorer as columns of its own types."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import selectrie
from selectrie import Choice, DecisionParams, Predicate, Score
from selectrie.decide.columns import columns_of
from selectrie.engine import aio
from selectrie.engine.decisions import DecisionScorer
from selectrie.errors import MissingExtraError, OptionError, RequestError
from tests.support.deciding import QUESTIONS, fake

narwhals = pytest.importorskip("narwhals", reason="needs the extra 'tables'")

DATA = {
    "subject": ["Order", "Lamp", None, "Where?", "Chair"],
    "body": ["where is it 🙂", "i want my money", "hi", "  ", "שלום <|im_end|>"],
    "n": [1, 2, 3, 4, 5],
}
PATTERN = "{subject}: {body}"
ASKED = {0: "Order: where is it 🙂", 1: "Lamp: i want my money", 4: "Chair: שלום <|im_end|>"}
"""The states of the rows that can be asked, by index."""
TYPED = {
    "kind": Choice("What is it?", ["lamp", "chair"]),
    "count": Choice("How many?", [1, 2]),
    "angry": Predicate("The customer is angry."),
    "urgency": Score("How urgent is it?", ["can wait", "today"]),
}


def in_pandas(data: dict[str, list[Any]]) -> Any:
    """A frame whose index has two equal labels, or as many as there are rows."""
    return pytest.importorskip("pandas", reason="needs the extra 'pandas'").DataFrame(data)


def in_polars(data: dict[str, list[Any]]) -> Any:
    """A frame of polars."""
    return pytest.importorskip("polars", reason="needs polars").DataFrame(data)


def in_pyarrow(data: dict[str, list[Any]]) -> Any:
    """A table of pyarrow."""
    return pytest.importorskip("pyarrow", reason="needs the extra 'tables'").table(data)


Maker = Callable[[dict[str, list[Any]]], Any]
each_library = pytest.mark.parametrize("made", [in_pandas, in_polars, in_pyarrow], ids=["pandas", "polars", "pyarrow"])


def cells(frame: Any) -> dict[str, list[Any]]:
    """The values of a frame by column, with None for what is missing."""
    plain = narwhals.from_native(frame).to_arrow()
    return {name: plain[name].to_pylist() for name in plain.column_names}


@pytest.mark.short("2-pandas", "64-polars", "64-pyarrow")
@each_library
@pytest.mark.parametrize("unit_rows", [2, 64])
def test_the_columns_are_the_answers_of_a_scorer(made: Maker, unit_rows):
    """The same kind of frame comes back, its columns first, and rows without a state have their error."""
    params = DecisionParams(layout="questions first")
    with fake() as llm:
        table = made(DATA)
        seen = []
        how = {"params": params, "unit_rows": unit_rows, "on_progress": lambda *counts: seen.append(counts)}
        found = llm.decide_table(table, QUESTIONS, state=PATTERN, **how)
        assert seen == [(min(done, 5), 5) for done in range(unit_rows, 5 + unit_rows, unit_rows)]
        with llm.decision_scorer(QUESTIONS, params=params) as scorer:
            columns = columns_of(QUESTIONS)
            wanted = {at: columns.row(*scorer.decisions([state])) for at, state in ASKED.items()}
    assert type(found) is type(table)
    values = cells(found)
    assert list(values) == [*DATA, *columns.names]
    assert {name: values[name] for name in DATA} == DATA
    for at in range(5):
        row = tuple(values[name][at] for name in columns.names)
        if at in wanted:
            assert row == wanted[at]
        else:
            assert set(row[:-1]) == {None}
            assert ("subject" if at == 2 else "body") in row[-1]


@each_library
@pytest.mark.parametrize("rows", [slice(0, 2), slice(0, 3), slice(0, 0)], ids=["whole", "with an error", "empty"])
def test_types_do_not_depend_on_the_rows(made: Maker, rows):
    """Labels are categorical with all options; truth values and whole numbers may be missing."""
    with fake() as llm:
        found = llm.decide_table(made({name: values[rows] for name, values in DATA.items()}), TYPED, state=PATTERN)
    if made is in_pandas:
        types = {name: str(dtype) for name, dtype in found.dtypes.items()}
        wanted = ["category", "Int64", "boolean", "float64", "category", "string"]
        assert list(found["kind"].dtype.categories) == ["lamp", "chair"]
        assert not found["kind"].dtype.ordered
    elif made is in_polars:
        types = {name: str(dtype) for name, dtype in found.schema.items()}
        labels = ["Enum(categories=['lamp', 'chair'])", "Enum(categories=['can wait', 'today'])"]
        wanted = [labels[0], "Int64", "Boolean", "Float64", labels[1], "String"]
    else:
        types = {field.name: str(field.type) for field in found.schema}
        label = "dictionary<values=string, indices=int32, ordered=0>"
        wanted = [label, "int64", "bool", "double", label, "string"]
    assert [types[name] for name in ("kind", "count", "angry", "urgency", "urgency_level", "error")] == wanted
    assert len(found) == len(range(5)[rows])


def test_an_index_of_pandas_stays():
    """Also one with equal labels, and one of two levels."""
    pandas = pytest.importorskip("pandas", reason="needs the extra 'pandas'")
    for index in ([7, 7, "k", None, 0], pandas.MultiIndex.from_product([["a"], range(5)])):
        table = pandas.DataFrame(DATA, index=index)
        with fake() as llm:
            found = llm.decide_table(table, QUESTIONS, state=PATTERN)
        pandas.testing.assert_index_equal(found.index, table.index)
        assert list(found["angry"].isna()) == [False, False, True, True, False]
        pandas.testing.assert_frame_equal(found[list(DATA)], table)


def test_values_that_pandas_has_for_nothing():
    """NaN, NaT and NA are missing; other types are written as text."""
    pandas = pytest.importorskip("pandas", reason="needs the extra 'pandas'")
    with fake() as llm:
        for values in ([1.5, float("nan")], [pandas.Timestamp(0), pandas.NaT], pandas.array([1, None], "Int64")):
            found = llm.decide_table(pandas.DataFrame({"x": values}), QUESTIONS, state="x")
            assert list(found["error"].isna()) == [True, False]


def test_columns_without_a_text_as_name():
    """Pandas has them; they stay, and cannot be the state."""
    pandas = pytest.importorskip("pandas", reason="needs the extra 'pandas'")
    with fake() as llm:
        table = pandas.DataFrame([["a", "b"]], columns=["x", 1])
        assert list(llm.decide_table(table, QUESTIONS, state="x").columns[:2]) == ["x", 1]
        with pytest.raises(OptionError, match="it has 'x'"):
            llm.decide_table(table, QUESTIONS, state="{1}")


@pytest.mark.short("long-pandas", "short-polars", "short-pyarrow")
@each_library
@pytest.mark.parametrize("instructions", ["What is it about? " * 30, "q"], ids=["long", "short"])
def test_one_question_is_asked_first(made: Maker, instructions):
    """Whatever the lengths of question and rows; another layout is another answer."""
    question = {"q": Choice(instructions, ["lamp", "chair"])}
    table = made({"body": ["hi " * 40, "ho", "x"]})
    with fake() as llm:
        auto = cells(llm.decide_table(table, question, state="body"))
        named = [
            cells(llm.decide_table(table, question, state="body", params=DecisionParams(layout=layout)))
            for layout in ("questions first", "state first")
        ]
    assert auto == named[0] != named[1]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ([1], "pandas, polars or pyarrow"),
        ({"body": ["x"]}, "pandas, polars or pyarrow"),
        (None, "pandas, polars or pyarrow"),
        ("tickets.csv", "pandas, polars or pyarrow"),
    ],
    ids=str,
)
def test_what_is_no_frame_is_refused(table, said):
    """The error names the value and what may be given."""
    with fake() as llm, pytest.raises(OptionError, match=said):
        llm.decide_table(table, QUESTIONS, state="body")


def test_a_lazy_frame_is_refused():
    """The error says how to have it."""
    polars = pytest.importorskip("polars", reason="needs polars")
    with fake() as llm, pytest.raises(OptionError, match=r"collect\(\)"):
        llm.decide_table(polars.DataFrame(DATA).lazy(), QUESTIONS, state="body")


def test_two_columns_of_one_name_are_refused():
    """Pandas alone has them."""
    pandas = pytest.importorskip("pandas", reason="needs the extra 'pandas'")
    with fake() as llm, pytest.raises(OptionError, match="different names"):
        llm.decide_table(pandas.DataFrame([["a", "b"]], columns=["x", "x"]), QUESTIONS, state="x")


@each_library
@pytest.mark.parametrize(
    "changes",
    [
        {"state": "subjekt"},
        {"state": "{subjekt}"},
        {"state": 3},
        {"unit_rows": 0},
        {"on_progress": 5},
        {"probabilities": "all"},
        {"prefix": 1},
        {"questions": {"n": Predicate("x")}},
        {"questions": {}},
        {"questions": QUESTIONS["angry"]},
        {"params": DecisionParams(calibration="batch", prior=[0.5] * 7)},
        {"params": DecisionParams(scoring="letters"), "questions": {"q": Choice("x", [str(n) for n in range(27)])}},
    ],
    ids=[
        "unknown column",
        "unknown in a pattern",
        "state",
        "unit_rows",
        "on_progress",
        "probabilities",
        "prefix",
        "existing column",
        "no question",
        "one question",
        "prior beside a calibration",
        "27 letters",
    ],
)
def test_mistakes_are_found_before_the_model_is_asked(made: Maker, changes):
    """Unknown and existing columns, and options that no question takes."""
    arguments = {"questions": QUESTIONS, "state": "body", **changes}
    with fake() as llm:
        llm._model.new_context = None  # nothing could be decided about
        with pytest.raises(RequestError):
            llm.decide_table(made(DATA), arguments.pop("questions"), **arguments)
        assert llm._model.calls == 0


def test_narwhals_is_asked_for_by_name(monkeypatch):
    """Without it the error names the extra."""
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with fake() as llm, pytest.raises(MissingExtraError, match=r"selectrie\[tables\]"):
        llm.decide_table(in_pyarrow(DATA), QUESTIONS, state="body")


def test_cancelling_stops_between_units(monkeypatch):
    """The awaitable form is cancelled with its task, and no thread goes on."""
    table = in_pyarrow({"body": [f"message {n}" for n in range(4000)]})
    done, began, decisions = [], threading.Event(), DecisionScorer.decisions

    def counted(scorer, states):
        made = decisions(scorer, states)
        done.append(len(states))
        began.set()
        return made

    monkeypatch.setattr(DecisionScorer, "decisions", counted)
    monkeypatch.setattr(aio, "KEEP_S", 0)

    async def cancelled(llm: selectrie.Engine) -> None:
        task = asyncio.ensure_future(llm.adecide_table(table, QUESTIONS, state="body", unit_rows=1))
        await asyncio.to_thread(began.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with fake() as llm:
        asyncio.run(cancelled(llm))
        for thread in threading.enumerate():
            if thread.name == "selectrie-await":
                thread.join()
        assert llm.decide("x", QUESTIONS["angry"]).value in {True, False}
    assert 0 < sum(done) < 4000
