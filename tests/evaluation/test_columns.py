"""Tables without a task file: the words for their columns are a task, whose figures are those of a task file to the bit."""

from __future__ import annotations

import json
import re
import string
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import selectrie
from selectrie.decide.states import row_states
from selectrie.errors import IncompatibleOptionsError, InputFileError, OptionError
from selectrie.evaluation import Item, evaluate
from selectrie.evaluation.columns import Columns, build_task, columns_with_defaults, data_of
from selectrie.evaluation.dataset import items_of, read_data
from selectrie.evaluation.evaluator import evaluate_tasks
from selectrie.evaluation.results import record_to_json
from selectrie.evaluation.runner import Configuration, reload
from selectrie.evaluation.tasks import parse_task
from tests.support.n_examples import n_examples

ROWS = [
    {"question": "What is the capital of France?", "A": "Paris", "B": "London", "C": "Berlin", "answer": "A"},
    {"question": "What is the capital of Italy?", "A": "Tokyo", "B": "Rome", "C": "Paris", "answer": "B"},
    {"question": "What colour is grass?", "A": "blue", "B": "red", "C": "green", "answer": "C"},
]
ABC = Columns("Q: {question} A:", ("A", "B", "C"), gold="answer")

TASK_FILE = """name = "capitals"
version = 1
kind = "multiple_choice"
source = "written by hand"
metrics = ["acc", "acc_norm"]

[[format]]
needs = ["question", "A", "B", "C"]
context = "Q: <<question>> A:"
choices = ["<<A>>", "<<B>>", "<<C>>"]
gold = "answer"
gold_as = "label"
labels = ["A", "B", "C"]
content_free = { question = ["N/A", "[MASK]", ""] }
"""


@pytest.fixture(scope="module")
def llm():
    """The model that comes with selectrie."""
    with selectrie.load(n_threads=1) as engine:
        yield engine


def items(rows, columns):
    """The items of rows."""
    data = data_of(rows)
    return items_of(build_task("data", columns, data), data).items


def gold_of(values, *, choices=("one", "two", "three"), gold_as=None, names=("a", "b", "c")):
    """The right choices of rows with these values of the column `gold`."""
    rows = [{"q": "x", **dict(zip(names, choices, strict=True)), "gold": value} for value in values]
    return [one.gold[0] for one in items(rows, Columns("q", names, gold="gold", gold_as=gold_as))]


def write_csv(path: Path, rows) -> str:
    """A CSV file of rows whose cells need no quotes."""
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_columns_are_a_task_file_to_the_bit(llm, tmp_path):
    """Records, metrics with contexts of their own, and figures equal those of a task file written by hand, and of the text
    of the task that was made."""
    path = write_csv(tmp_path / "capitals.csv", ROWS)
    metrics = ("acc", "brier", "calibrated", "acc_mutual_info")
    found = Configuration((path,), columns=ABC, metrics=metrics).read()
    (tmp_path / "hand.toml").write_text(TASK_FILE)
    (tmp_path / "made.toml").write_text(found.sources[0][0].text)
    configurations = (
        found,
        *(Configuration((f"{tmp_path / name}={path}",), metrics=metrics).read() for name in ("hand.toml", "made.toml")),
    )
    mine, *others = (evaluate_tasks(llm, one.tasks) for one in configurations)
    assert mine["capitals"].figures.metrics["acc"].value == 1
    for one in others:
        assert one.tasks[0].figures == mine.tasks[0].figures
        assert list(map(record_to_json, one.tasks[0].records)) == list(map(record_to_json, mine.tasks[0].records))
    rows = evaluate(
        llm, ROWS, metrics, context="Q: {question} A:", choices=["A", "B", "C"], gold="answer", task="capitals"
    )
    assert rows.tasks[0].figures == mine.tasks[0].figures


@pytest.mark.parametrize(
    ("values", "gold"),
    [
        ([0, 2], [0, 2]),
        ([1, 3], [0, 2]),
        (["0", "1"], [0, 1]),
        (["B", " C"], [1, 2]),
        (["b", "c"], [1, 2]),
        (["two", "three"], [1, 2]),
        ([np.int64(0), np.int64(2)], [0, 2]),
    ],
)
def test_the_meaning_of_a_right_answer_is_found(values, gold):
    """Index, number, letter, name of a column, text: what all rows fit."""
    assert gold_of(values) == gold


def test_meanings_that_agree_are_one():
    """Columns A, B, C in this order are letters too."""
    assert gold_of(["C", "A"], names=("A", "B", "C")) == [2, 0]


@pytest.mark.parametrize(
    ("values", "options", "said"),
    [
        ([1, 2], {}, r"differ in line 1: index \(choice 1\), number \(choice 0\)"),
        (["A", "C"], {"names": ("B", "A", "C")}, r"letter \(choice 0\), column \(choice 1\)"),
        (["2", "3"], {"choices": ("3", "2", "4")}, r"number \(choice 1\), text \(choice 1\)|differ in line 2"),
    ],
)
def test_an_ambiguous_right_answer_is_an_error(values, options, said):
    """Named with its row and what it could mean; `gold_as` says which."""
    with pytest.raises(OptionError, match=said):
        gold_of(values, **options)
    assert gold_of(
        values, gold_as="number" if isinstance(values[0], int) else "text" if values[0] == "2" else "letter", **options
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["B", 0], r"data:2: gold is 0: expected the letter of a choice, as in the rows before$"),
        (["four"], r"data:1: gold is 'four': expected the index or number or letter or text or column of a choice$"),
        ([None], r"data:1: the column 'gold' has no value"),
        ([float("nan")], r"data:1: the column 'gold' has no value"),
        ([3, 0], r"data:2: gold is 0: expected the number of a choice"),
    ],
)
def test_a_right_answer_that_no_choice_is(values, said):
    """The row, its value and what was expected."""
    with pytest.raises(InputFileError, match=said):
        gold_of(values)


def test_a_list_is_a_column_of_choices():
    """Of one number or another; the right ones may be several."""
    rows = [{"q": "x", "options": ["a", "b"], "gold": "B"}, {"q": "y", "options": ["a", "b", "c"], "gold": ["A", "C"]}]
    found = items(rows, Columns("q", "options", gold="gold"))
    assert [(one.choices, one.gold) for one in found] == [(("a", "b"), (1,)), (("a", "b", "c"), (0, 2))]


def test_labels_are_the_choices_of_a_classification():
    """The different texts of the column, sorted; or texts in their order, whose indices the column may hold."""
    rows = [{"text": "good", "label": "pos"}, {"text": "bad", "label": " neg"}, {"text": "fine", "label": "pos"}]
    found = items(rows, Columns("text", labels="label"))
    assert [(one.context, one.choices, one.gold) for one in found] == [
        ("good", ("neg", "pos"), (1,)),
        ("bad", ("neg", "pos"), (0,)),
        ("fine", ("neg", "pos"), (1,)),
    ]
    named = items(rows, Columns("text", labels=["pos", "neg", "other"], gold="label"))
    assert [one.gold for one in named] == [(0,), (1,), (0,)]
    numbered = items(
        [{"text": "good", "label": 1}, {"text": "bad", "label": 0}],
        Columns("text", labels=["neg", "pos"], gold="label"),
    )
    assert [one.gold for one in numbered] == [(1,), (0,)]
    flags = items([{"text": "x", "spam": True}, {"text": "y", "spam": False}], Columns("text", labels="spam"))
    assert [(one.choices, one.gold) for one in flags] == [(("false", "true"), (1,)), (("false", "true"), (0,))]


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).map(lambda text: text + "|")
TRICKY = st.lists(st.sampled_from(["<", "<<", "\\", ">>", "{{", "}}", '"', "\n", "\x7f", "a"]), max_size=6).map("".join)


@settings(max_examples=n_examples(30))
@given(
    st.lists(ANY_TEXT | TRICKY.map(lambda t: t + "."), min_size=2, max_size=4, unique_by=str.strip),
    TRICKY,
    TRICKY,
    ANY_TEXT,
)
def test_any_text_may_be_a_label_a_name_or_a_part_of_a_pattern(labels, before, after, name):
    """What a pattern gives in a table of decisions it gives here, whatever tags, braces and quotes are in it."""
    name = re.sub(r"[{}]", "", name)
    pattern = before + "{" + name + "}" + after
    row = {name: "value <<x>>", "gold": 0}
    found = items([row], Columns(pattern, labels=labels, gold="gold", gold_as="index"))[0]
    assert found.context == row_states(pattern, tuple(row)).of(["value <<x>>"])
    assert found.choices == tuple(labels)


@settings(max_examples=n_examples(25))
@given(
    st.integers(2, 5),
    st.lists(st.integers(0, 4), min_size=1, max_size=6),
    st.sampled_from(["index", "number", "letter", "column", "text"]),
)
def test_a_meaning_is_found_or_ambiguous_never_another(n, rights, meaning):
    """Against the right answers that were written down."""
    rights = [right % n for right in rights]
    names = tuple(f"option {i}" for i in range(n))
    choices = tuple(f"text {i}" for i in range(n))
    write = {
        "index": str,
        "number": lambda i: i + 1,
        "letter": lambda i: string.ascii_uppercase[i],
        "column": names.__getitem__,
        "text": choices.__getitem__,
    }
    values = [write[meaning](right) for right in rights]
    ambiguous = None
    try:
        found = gold_of(values, choices=choices, names=names)
    except OptionError as error:
        ambiguous = error
        found = gold_of(values, choices=choices, names=names, gold_as=meaning)
    assert found == rights
    assert ambiguous is None or (meaning in ("index", "number") and ambiguous.name == "gold_as")


@pytest.mark.parametrize("suffix", ["csv", "tsv", "json", "jsonl", "parquet", "pandas", "polars", "rows"])
def test_every_format_has_the_same_items(suffix, tmp_path):
    """Files of each suffix, data frames, and rows."""
    path = tmp_path / f"data.{suffix}"
    source: object = path
    if suffix in ("csv", "tsv"):
        write_csv(path, ROWS)
        path.write_text(path.read_text().replace(",", "," if suffix == "csv" else "\t"))
    elif suffix == "json":
        path.write_text(json.dumps(ROWS))
    elif suffix == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif suffix == "parquet":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.Table.from_pylist(ROWS), path)
    else:
        source = ROWS if suffix == "rows" else pytest.importorskip(suffix).DataFrame(ROWS)
    assert items(source, ABC) == items(ROWS, ABC)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"context": "questoin", "choices": ("A", "B"), "gold": "answer"}, "context.*'questoin'.*has 'question', 'A'"),
        ({"context": "{question} {it}", "choices": ("A", "B"), "gold": "answer"}, "context.*'it'"),
        ({"context": "question", "choices": ("A", "X"), "gold": "answer"}, "choices='X'.*a column of data"),
        ({"context": "question", "choices": ("A", "B"), "gold": "right"}, "gold='right'.*a column of data"),
        ({"context": "question", "labels": "right"}, "labels='right'.*a column of data"),
        ({"context": "question", "choices": ("A", "B")}, "gold is not given"),
        ({"context": "question", "gold": "answer"}, "choices is not given"),
        ({"context": "question", "labels": "A", "gold": "answer"}, "a list of texts, because `gold`"),
        ({"context": "question", "labels": ("A",), "gold": "answer"}, "at least two"),
        ({"context": "question", "labels": ("A", "B"), "choices": ("A", "B"), "gold": "answer"}, "cannot be combined"),
        ({"context": "question", "choices": {"A", "B"}, "gold": "answer"}, "a list of different texts"),
        ({"context": "question", "choices": ("A", "A"), "gold": "answer"}, "a list of different texts"),
        ({"context": "question", "choices": ("A", "B"), "gold": "answer", "gold_as": "key"}, "one of index, number"),
        ({"context": "question", "choices": "list", "gold": "answer", "gold_as": "column"}, "one of index, number"),
        ({"context": "question", "labels": "answer", "gold_as": "text"}, "the labels are texts"),
        ({"context": "question", "labels": "same"}, "a column with 2 to 1000 different labels; it has 1"),
    ],
)
def test_wrong_words_are_refused(columns, said):
    """One error that names the option, its value, and what there is."""
    rows = [{**row, "same": "x", "list": ["a", "b"]} for row in ROWS]
    with pytest.raises(OptionError, match=said):
        items(rows, Columns(**columns))


def test_rows_without_values_are_refused():
    """A missing cell of a column that is used; others may be missing."""
    rows = [{**ROWS[0], "note": None}, {**ROWS[1], "B": None}]
    assert items(rows[:1], ABC)
    for missing in (None, "", float("nan")):
        rows[1]["B"] = missing
        with pytest.raises(InputFileError, match=r"data:2: the column 'B' has no choice; one column with a list may"):
            items(rows, ABC)
    with pytest.raises(InputFileError, match=r"data:2: the column 'l' has no value"):
        items([{"q": "x", "l": "a"}, {"q": "x", "l": " "}], Columns("q", labels="l"))
    for blank in ("", " \n"):
        rows = [{"q": "x", "l": "a"}, {"q": blank, "l": "b"}]
        with pytest.raises(InputFileError, match=r"data:2: the column 'q' has a blank text, .* remove the row"):
            items(rows, Columns("q", labels="l"))
        assert len(items(rows, Columns("Mail: {q}", labels="l"))) == 2
    with pytest.raises(OptionError, match="at least one row"):
        data_of([])
    with pytest.raises(OptionError, match="a data frame of pandas"):
        data_of(3)


def test_the_call_names_what_it_lacks(llm):
    """Rows without the names of columns, and an argument of another program."""
    with pytest.raises(
        OptionError, match="the column of the questions; the table has no column 'text', but 'question'"
    ):
        evaluate(llm, ROWS)
    with pytest.raises(OptionError, match="at least one row"):
        evaluate(llm, [])
    with pytest.raises(OptionError, match="items alone, or the rows of a table"):
        evaluate(llm, [Item("a", ("b", "c"), (0,)), {"text": "a"}])
    with pytest.raises(IncompatibleOptionsError, match="`labels` cannot be combined with items"):
        evaluate(llm, [Item("a", ("b", "c"), (0,))], labels=["b", "c"])
    with pytest.raises(TypeError, match="context"):
        evaluate(llm, ROWS, text="question")


@pytest.mark.parametrize(
    ("names", "given", "expected"),
    [
        (["text", "label"], {}, Columns("text", labels="label")),
        (["text", "label"], {"labels": ["x", "y"]}, Columns("text", labels=["x", "y"], gold="label")),
        (["text", "label", "a", "b"], {"choices": ["a", "b"]}, Columns("text", ["a", "b"], gold="label")),
        (["text", "label", "right"], {"labels": ["x", "y"], "gold": "right"}, Columns("text", (), ["x", "y"], "right")),
        (["text", "kind", "label"], {"labels": "kind"}, Columns("text", labels="kind")),
        (["text", "label", "q"], {"context": "{q}?"}, Columns("{q}?", labels="label")),
        (["question", "choices", "answer"], {}, Columns("question", "choices", gold="answer")),
        (["text", "label", "question", "choices", "answer"], {}, Columns("text", labels="label")),
    ],
)
def test_text_and_label_are_the_columns_if_others_are_not_named(names, given, expected):
    """Whatever is named is taken as it is."""
    assert columns_with_defaults(names, **given) == expected


def test_a_table_without_the_default_columns_is_refused():
    """The error names the columns that the table has, or the option that is missing."""
    with pytest.raises(OptionError, match="has no column 'text', but 'q', 'label'"):
        columns_with_defaults(["q", "label"])
    with pytest.raises(OptionError, match="gold is not given; give the column with the right choice"):
        columns_with_defaults(["text", "y"], labels=["a", "b"])


def test_a_table_of_texts_and_labels_is_evaluated_without_naming_columns(llm, tmp_path):
    """From a file and from rows; the accuracy is that of the only task."""
    rows = [{"text": f"a {word} film", "label": label} for word, label in (("great", "good"), ("awful", "bad"))]
    found = selectrie.evaluate(llm, write_csv(tmp_path / "mine.csv", rows), labels=["good", "bad"])
    by_name = selectrie.evaluate(llm, rows, context="text", labels=["good", "bad"], gold="label")
    assert found.tasks[0].records == by_name.tasks[0].records
    assert found.accuracy == found["items"].figures.metrics["acc"].value
    assert (list(found), len(found)) == ([found["items"]], 1)
    assert selectrie.compare(found, by_name)[0].task == "items"
    assert selectrie.evaluate(llm, rows)["items"].records[0].choices[1] == found["items"].records[0].choices[0]
    with pytest.raises(KeyError, match="'mine': expected one of 'items'"):
        _ = found["mine"]
    with pytest.raises(OptionError, match="'acc' among the metrics"):
        _ = selectrie.evaluate(llm, rows, ["brier"]).accuracy
    with pytest.raises(OptionError, match="one task; read"):
        _ = replace(found, tasks=found.tasks * 2).accuracy


def test_a_run_keeps_the_task_that_was_made(tmp_path, monkeypatch):
    """It is read again from the text in its description, without the words."""
    monkeypatch.chdir(tmp_path)
    path = write_csv(tmp_path / "a.csv", ROWS)
    loaded = Configuration((path,), columns=ABC).read()
    described = json.loads(json.dumps(loaded.to_dict()))
    assert "columns" not in described
    again = reload(described, "run")
    assert [one.items for one in again.tasks] == [one.items for one in loaded.tasks]
    assert again.to_dict() == loaded.to_dict()
    named = Configuration((f"capitals={path}",), columns=ABC, limit=2).read()
    assert [(one.task, len(one.items)) for one in named.tasks] == [("capitals", 2)]
    assert parse_task(named.sources[0][0].text, "again.toml") == named.sources[0][0]
    with pytest.raises(OptionError, match="cannot be combined"):
        Configuration((path,), task="generic", columns=ABC)
    assert read_data(Path(path)).records[0].fields["A"] == "Paris"
