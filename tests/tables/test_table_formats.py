"""Tables in every format, into every format: what was read stays as it is, and new columns come behind it."""

from __future__ import annotations

import csv
import io
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie import Choice, Predicate
from selectrie.decide.columns import columns_of
from selectrie.errors import InputFileError, OptionError
from selectrie.tables.formats import check_output, open_table, scan, writer_of
from tests.support.n_examples import n_examples

ADDED = columns_of({"q": Choice("", ["a", "b"]), "p": Predicate("x")})
CELLS = ("a", 0.25, 1.0, 0.5, float("inf"), "", True, 0.75, 0.5, 0.1, 1e-300, 'below "x"', None)
ERROR = (*[None] * 12, "option: it is empty")
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
JSON = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT | st.lists(TEXT)
)


def converted(source, out, unit_rows=3):
    """Write a table with cells for its even rows and errors for its odd ones; the bytes."""
    table = open_table(source)
    found = scan(table, unit_rows)
    with out.open("wb") as file:
        writer = writer_of(file, out, table, found, ADDED)
        for rows in table.units(unit_rows):
            writer.write(rows, [ERROR if at % 2 else CELLS for at in range(len(rows))])
        writer.close()
    return out.read_bytes()


def read_csv(data, delimiter=","):
    """The header and the rows of delimited text."""
    header, *rows = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), delimiter=delimiter, strict=True)
    return header, rows


def test_a_row_of_csv_is_copied_as_it_is_written(tmp_path):
    """Mark, quotes, line ends, blanks and a missing last line end stay; empty lines are no rows."""
    source = tmp_path / "in.csv"
    source.write_bytes('\ufeffid,"body"\r\n 01 ,"two\r\nlines, ""q"""\r\n\r\n2,5" pipe\n3,'.encode())
    expected = (
        '\ufeffid,"body",q,q_probability,q_confidence,q_label_mass,q_margin,q_abstained,'
        "p,p_probability,p_confidence,p_label_mass,p_margin,p_abstained,error\r\n"
        ' 01 ,"two\r\nlines, ""q""",a,0.25,1.0,0.5,inf,,true,0.75,0.5,0.1,1e-300,"below ""x""",\r\n'
        '2,5" pipe,,,,,,,,,,,,,option: it is empty\n'
        '3,,a,0.25,1.0,0.5,inf,,true,0.75,0.5,0.1,1e-300,"below ""x""",\r\n'
    )
    assert converted(source, tmp_path / "out.csv").decode() == expected


def test_an_object_is_copied_as_it_is_written(tmp_path):
    """Order of keys, numbers and spaces stay; keys differ from row to row; cells that JSON has not are null."""
    source = tmp_path / "in.jsonl"
    source.write_text('{"b": 1.0e2,"a":[1, {"x":2}]}\n \n{ }\r\n{"c": 12345678901234567890, "b": NaN }')
    first, second, third = converted(source, tmp_path / "out.jsonl").decode().splitlines()
    new = (
        '"q": "a", "q_probability": 0.25, "q_confidence": 1.0, "q_label_mass": 0.5, "q_margin": null, "q_abstained": '
        '"", "p": true, "p_probability": 0.75, "p_confidence": 0.5, "p_label_mass": 0.1, "p_margin": 1e-300, '
        '"p_abstained": "below \\"x\\"", "error": null}'
    )
    assert first == '{"b": 1.0e2,"a":[1, {"x":2}], ' + new
    assert second.startswith('{"q": null, ')
    assert second.endswith('"error": "option: it is empty"}')
    assert third == '{"c": 12345678901234567890, "b": NaN, ' + new
    assert scan(open_table(source)).names == ("b", "a", "c")


@settings(max_examples=n_examples(15), deadline=None)
@given(data=st.data())
def test_delimited_text_reads_back_in_every_format(data, tmp_path_factory):
    """Whatever is in the fields, however the rows are cut into units, each format gives it back as text."""
    folder = tmp_path_factory.mktemp("tables")
    names = data.draw(st.lists(TEXT.filter(lambda one: one.strip("\r\n")), min_size=2, max_size=3, unique=True))
    names = [name for name in names if name not in ADDED.names] or ["x"]
    rows = data.draw(st.lists(st.lists(TEXT, min_size=len(names), max_size=len(names)), max_size=5))
    rows = [row for row in rows if len(row) > 1 or row[0]]
    source = folder / data.draw(st.sampled_from(["in.csv", "in.tsv"]))
    with source.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="," if source.suffix == ".csv" else "\t", quoting=csv.QUOTE_ALL)
        writer.writerows([names, *rows])
    unit_rows = data.draw(st.integers(1, 3))
    for suffix, delimiter in ((".csv", ","), (".tsv", "\t")):
        header, read = read_csv(converted(source, folder / f"out{suffix}", unit_rows), delimiter)
        assert header == [*names, *ADDED.names]
        assert [row[: len(names)] for row in read] == rows
    objects = [
        json.loads(line) for line in converted(source, folder / "out.jsonl", unit_rows).decode().split("\n")[:-1]
    ]
    assert [[one[name] for name in names] for one in objects] == rows
    assert all(list(one) == [*names, *ADDED.names] for one in objects)


@settings(max_examples=n_examples(15), deadline=None)
@given(rows=st.lists(st.dictionaries(st.sampled_from("abc"), JSON), min_size=1, max_size=5))
def test_objects_read_back_in_every_format(rows, tmp_path_factory):
    """JSON Lines keeps every value; in delimited text what is no text is written as JSON writes it."""
    folder = tmp_path_factory.mktemp("tables")
    source = folder / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    names = list(dict.fromkeys(name for row in rows for name in row))
    written = [json.loads(line) for line in converted(source, folder / "out.jsonl").splitlines()]
    assert [{name: value for name, value in one.items() if name in names} for one in written] == rows
    header, read = read_csv(converted(source, folder / "out.csv"))
    assert header == [*names, *ADDED.names]

    def shown(value):
        if value is None:
            return ""
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    assert [row[: len(names)] for row in read] == [[shown(row.get(name)) for name in names] for row in rows]


def test_parquet_keeps_types_and_cut(tmp_path):
    """Types, metadata and values of the input stay, whatever its row groups; labels are dictionaries."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    from datetime import datetime
    from decimal import Decimal

    table = arrow.table(
        {
            "id": arrow.array(range(10), arrow.int16()),
            "when": arrow.array([datetime(2026, 1, 2)] * 10, arrow.timestamp("ns")),  # noqa: DTZ001
            "price": arrow.array([Decimal("1.10")] * 10, arrow.decimal128(9, 2)),
            "tags": arrow.array([["x"], None] * 5, arrow.list_(arrow.string())),
            "body": ["text 🙂", None] * 5,
        }
    ).replace_schema_metadata({"made": "by hand"})
    results = []
    for size in (3, 10):
        parquet.write_table(table, tmp_path / "in.parquet", row_group_size=size)
        found = open_table(tmp_path / "in.parquet")
        assert [len(rows) for rows in found.units(4)] == [4, 4, 2]
        assert [row for rows in found.units(4) for row in rows.values(["body", "tags"])] == list(
            zip(table["body"].to_pylist(), table["tags"].to_pylist(), strict=True)
        )
        converted(tmp_path / "in.parquet", tmp_path / "out.parquet", 4)
        results.append(parquet.read_table(tmp_path / "out.parquet"))
    assert results[0].equals(results[1])
    assert results[0].select(table.column_names).equals(table)
    assert results[0].schema.metadata == {b"made": b"by hand"}
    assert results[0].schema.field("q").type == arrow.dictionary(arrow.int32(), arrow.string())
    assert results[0].schema.field("p").type == arrow.bool_()
    assert results[0]["q"].to_pylist() == ["a", None] * 5
    header, rows = read_csv(converted(tmp_path / "in.parquet", tmp_path / "out.csv"))
    assert rows[0][:5] == ["0", "2026-01-02 00:00:00", "1.10", '["x"]', "text 🙂"]
    assert header[:5] == table.column_names


@pytest.mark.parametrize(
    ("values", "kind", "read"),
    [
        (["1", "2"], "int64", [1, 2]),
        (["1", "2.5", "NaN"], "double", [1.0, 2.5, None]),
        (["true", "null"], "bool", [True, None]),
        (['"x"', "null"], "string", ["x", None]),
        (["[1]", '"x"'], "string", ["[1]", '"x"']),
        (["1", "9007199254740993"], "int64", [1, 9007199254740993]),
        (["0.5", "9007199254740993"], "string", ["0.5", "9007199254740993"]),
        (["12345678901234567890"], "string", ["12345678901234567890"]),
    ],
)
def test_json_lines_as_parquet(values, kind, read, tmp_path):
    """A column has the type that its values have in common; else it is text with JSON, and nothing is rounded."""
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "in.jsonl").write_text("".join(f'{{"x": {value}}}\n' for value in values))
    converted(tmp_path / "in.jsonl", tmp_path / "out.parquet")
    table = parquet.read_table(tmp_path / "out.parquet")
    assert str(table.schema.field("x").type) == kind
    values = table["x"].to_pylist()
    assert [None if isinstance(value, float) and math.isnan(value) else value for value in values] == read


@pytest.mark.parametrize("header", ["a,b\tc", '"a,b"', '\ufeff"a;b"', "a b"])
def test_names_of_columns_may_have_other_delimiters(header, tmp_path):
    """The only name in quotes, or a name beside others."""
    path = tmp_path / "t.tsv"
    path.write_text(f"{header}\n")
    assert open_table(path).header()[0] == [one.strip('"') for one in header.strip("\ufeff").split("\t")]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("t.csv", b"a,b\n1,2\n1,2,3\n", r"t.csv:3: 3 fields, and the header has 2"),
        ("t.csv", b'a,b\n1,"x\ny"\n1,\xff\n', r"t.csv:4: not UTF-8: byte 0xff"),
        ("t.csv", b'a,b\n1,2\n1,"x\n', r"t.csv:3: .*in the row that begins here"),
        ("t.csv", b"a,a\n1,2\n", r"t.csv:1: two columns are called 'a'"),
        ("t.csv", b"", r"t.csv: it is empty"),
        (
            "t.tsv",
            b"a,b\n1,2\n",
            r"t.tsv:1: the header has one column, 'a,b': if ',' .*, name the file .csv; else quote",
        ),
        ("t.csv", b"a\tb\n1\t2\n", r"t.csv:1: the header has one column, .* name the file .tsv; else quote it"),
        ("t.csv", b"a;b\n1;2\n", r"t.csv:1: the header has one column, .* save it with commas, as .csv"),
        ("t.csv", b"a\n" + b"x" * 140_000 + b"\n", r"t.csv:2: .*csv.field_size_limit\(N\)"),
        ("t.csv", "a,b\n".encode("utf-16"), r"t.csv:1: not UTF-8: byte 0xff"),
        ("t.jsonl", b'{"a": 1}\n[1]\n', r"t.jsonl:2: expected an object"),
        ("t.jsonl", b'{"a": 1, "a": 2}\n', r"t.jsonl:1: .*'a' occurs twice"),
        ("t.jsonl", b'{"a": "\\ud800"}\n', r"t.jsonl:1: .*half a character"),
        ("t.txt", b"a", r"its name must end in one of .csv, .tsv, .jsonl, .ndjson, .parquet"),
        ("t.parquet", b"PAR1", r"not Parquet that can be read"),
    ],
)
def test_what_cannot_be_read(name, data, message, tmp_path):
    """Errors name the file and the line."""
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputFileError, match=message):
        scan(open_table(tmp_path / name))


def test_outputs_that_cannot_be(tmp_path):
    """Standard output, the table itself, folders and bytes in a text file are refused with what to do."""
    source = tmp_path / "t.csv"
    source.write_text("a\n1\n")
    for out, message in (
        ("-", "a run has a folder beside it"),
        (tmp_path / "x.txt", "whose name ends in one of"),
        (source, "another file than the table itself"),
        (tmp_path / "none" / "x.csv", "in a folder that exists"),
        (tmp_path / ("x" * 300 + ".csv"), "can be written"),
    ):
        with pytest.raises(OptionError, match=message):
            check_output(type(tmp_path)(out), source)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(OptionError, match="in a folder that exists"):
        check_output(tmp_path / "folder.csv", source)
    with pytest.raises(InputFileError, match="not a file"):
        open_table(tmp_path / "folder.csv")
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"b": [b"x"]}), tmp_path / "t.parquet")
    found = scan(open_table(tmp_path / "t.parquet"))
    with pytest.raises(OptionError, match="the column 'b' holds bytes"):
        check_output(tmp_path / "x.csv", tmp_path / "t.parquet", found)
