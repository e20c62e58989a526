"""Data files: whatever is in them, records or one error that names file and line."""

from __future__ import annotations

import builtins
import csv
import io
import json
import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from selectrie.errors import InputFileError, MissingExtraError
from selectrie.evaluation import dataset
from selectrie.evaluation.dataset import MAX_WHOLE_BYTES, read_data
from selectrie.runs.data_files import MAX_LINE_BYTES
from tests.support.n_examples import n_examples

GOOD = b'{"a": 1}\n'


def read(tmp_path, name, data):
    """The records of a file with these bytes, as (place, fields)."""
    path = tmp_path / name
    path.write_bytes(data)
    return [(one.number, dict(one.fields)) for one in read_data(path).records]


@pytest.mark.parametrize(
    ("name", "data", "records"),
    [
        ("a.jsonl", b'{"a": "x"}\n\n  \r\n{"a": [1, 2.5, null, true]}', [(1, {"a": "x"}), (4, {"a": [1, 2.5, None, True]})]),
        ("a.JSONL", b'\xef\xbb\xbf{"a": "\xe2\x80\xa8"}\r\n', [(1, {"a": "\u2028"})]),
        ("a.ndjson", b'{"a": "\\ud83d\\ude00"}', [(1, {"a": "\U0001f600"})]),
        ("a.json", b'[{"a": 1},\n {"b": {"c": []}}]\n', [(1, {"a": 1}), (2, {"b": {"c": []}})]),
        ("a.csv", b'a,b\r\n1,"x, ""y"""\r\n\r\n,z\r\n', [(2, {"a": "1", "b": 'x, "y"'}), (4, {"a": "", "b": "z"})]),
        ("a.csv", b'\xef\xbb\xbfa,b\n"one\r\n\ntwo",2\n3,4', [(2, {"a": "one\r\n\ntwo", "b": "2"}), (5, {"a": "3", "b": "4"})]),
        ("a.tsv", b"a\tb\n1,0\t nan \n", [(2, {"a": "1,0", "b": " nan "})]),
    ],
)  # fmt: skip
def test_records_with_their_lines(name, data, records, tmp_path):
    """Values as written: JSON's own kinds; in tables every value is text, numbers too; a record has the line it begins at."""
    assert read(tmp_path, name, data) == records


MISTAKES = {
    "truncated": ("a.jsonl", GOOD + b'{"a": "x', 2, "not JSON: Unterminated string"),
    "truncated list": ("a.json", b'[{"a": 1},\n{"a": ', 2, "not JSON: Expecting value"),
    "not an object": ("a.jsonl", GOOD + b"[1]\n", 2, "expected an object, not a list"),
    "null": ("a.jsonl", b"null", 1, "expected an object, not null"),
    "two objects on a line": ("a.jsonl", b'{"a": 1} {"a": 2}', 1, "not JSON: Extra data"),
    "an object, not a list": ("a.json", b'{"a": 1}', None, "expected a list of objects, not an object"),
    "a number in the list": ("a.json", b'[{"a": 1}, 3]', 2, "expected an object, not a number"),
    "bad UTF-8": ("a.jsonl", GOOD + b'{"a": "\xff"}', 2, "not UTF-8: byte 0xff"),
    "bad UTF-8 in a list": ("a.json", b'[\n\n{"a": "\xc3("}]', 3, "not UTF-8: byte 0xc3"),
    "bad UTF-8 in a table": ("a.csv", b"a\n1\n\xe9\n", 3, "not UTF-8: byte 0xe9"),
    "UTF-16": ("a.jsonl", '{"a": 1}'.encode("utf-16"), 1, "not UTF-8: byte 0xff"),
    "half a character": ("a.jsonl", GOOD + b'{"a": "\\uD83d x"}', 2, "\\ud83d is half a character"),
    "half a character as a key": ("a.json", b'[{"\\udfff": 0}]', None, "\\udfff is half a character"),
    "a key twice": ("a.jsonl", GOOD + b'{"a": {"b": 1, "b": 2}}', 2, "the key 'b' occurs twice"),
    "NaN": ("a.jsonl", b'{"a": NaN}', 1, "NaN is not a finite number"),
    "infinity": ("a.jsonl", b'{"a": -Infinity}', 1, "-Infinity is not a finite number"),
    "too large a number": ("a.jsonl", b'{"a": 1e999}', 1, "1e999 is not a finite number"),
    "a number of 5000 digits": ("a.jsonl", b'{"a": ' + b"9" * 5000 + b"}", 1, "not JSON"),
    "nesting": ("a.jsonl", b'{"a": ' + b"[" * 200_000, 1, "not JSON"),
    "torn quotes": ("a.csv", b'a,b\n1,2\n3,"4\n5,6\n', 3, "unexpected end of data"),
    "text behind quotes": ("a.csv", b'a,b\n1,"2"3\n', 2, "expected after"),
    "more columns": ("a.csv", b"a,b\n1,2\n\n1,2,3\n", 4, "3 fields, and the header has 2"),
    "fewer columns": ("a.tsv", b"a\tb\n1\n", 2, "1 fields, and the header has 2"),
    "a column twice": ("a.csv", b"a,a\n1,2\n", 1, "two columns are called 'a'"),
    "a column without name": ("a.csv", b"a,\n1,2\n", 1, "a column has no name"),
    "an empty first line": ("a.csv", b"\na,b\n", 1, "it names no columns"),
    "old line ends": ("a.csv", b"a,b\r1,2\r", 1, "not CSV"),
    "a huge field": ("a.csv", b'a\n"' + b"x" * 200_000 + b'"\n', 2, "field larger than field limit"),
    "empty": ("a.jsonl", b"", None, "no records"),
    "blank": ("a.jsonl", b"\n \n", None, "no records"),
    "an empty list": ("a.json", b"[]", None, "no records"),
    "an empty text": ("a.json", b"", 1, "not JSON"),
    "an empty table": ("a.csv", b"", None, "it is empty"),
    "only a header": ("a.csv", b"a,b\n", None, "no records"),
    "another kind": ("a.txt", GOOD, None, "its name must end in one of .jsonl"),
    "no Parquet": ("a.parquet", b"PAR1 it says", None, ""),
    "an empty Parquet": ("a.parquet", b"", None, ""),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_error_with_its_place(mistake, tmp_path):
    """`InputFileError` with path, line and what is wrong."""
    name, data, line, reason = MISTAKES[mistake]
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    with pytest.raises(InputFileError) as caught:
        read(tmp_path, name, data)
    error = caught.value
    assert (error.path, error.line) == (str(tmp_path / name), line)
    assert reason in error.reason
    assert str(error).startswith(f"{error.path}:" if line is None else f"{error.path}:{line}:")


@pytest.mark.parametrize(("name", "line"), [("a.jsonl", 2), ("a.csv", 2), ("a.json", None), ("a.parquet", None)])
def test_a_line_of_a_gigabyte_ends_at_once(name, line, tmp_path):
    """A line is read up to a bound, and a file that would be read as a whole not at all."""
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    path.write_bytes(GOOD)
    os.truncate(path, 1 << 30)
    assert max(MAX_LINE_BYTES, MAX_WHOLE_BYTES) < 1 << 30
    with pytest.raises(InputFileError, match=r"line has more than 16 MiB|larger than 256 MiB") as caught:
        read_data(path)
    assert caught.value.line == line


def test_what_is_no_file_is_told(tmp_path):
    """A folder, a pipe, nothing, a name that cannot be one."""
    folder, pipe = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    folder.mkdir()
    os.mkfifo(pipe)
    bad = {folder: "not a file", pipe: "not a plain file", tmp_path / "c.jsonl": "No such file", tmp_path / "\0.csv": "null",
           tmp_path / ("d" * 300 + ".csv"): "name too long"}  # fmt: skip
    for path, reason in bad.items():
        with pytest.raises(InputFileError, match=reason):
            read_data(path)


def test_a_table_of_columns_is_read_like_lists_of_objects(tmp_path):
    """Parquet gives the values JSON gives, nested ones too; a torn file, a column twice and bytes that are no text are told."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    records = [{"q": "é", "c": {"text": ["a", "b"], "label": ["A", "B"]}, "n": 3}, {"q": "", "c": None, "n": None}]
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.Table.from_pylist(records), path)
    assert [dict(one.fields) for one in read_data(path).records] == records
    whole = path.read_bytes()
    torn = {
        "cut": whole[: len(whole) // 2],
        "tail": whole[:-6] + b"\xff\xff" + whole[-4:],
        "middle": whole[:30] + bytes(200) + whole[230:],
    }
    for name, data in torn.items():
        with pytest.raises(InputFileError):
            read(tmp_path, f"{name}.parquet", data)
    parquet.write_table(pa.table([[1], [2]], names=["a", "a"]), path)
    with pytest.raises(InputFileError, match="two columns are called 'a'"):
        read_data(path)
    text = pa.array([b"\xff"], pa.binary()).view(pa.string())
    parquet.write_table(pa.table([text], names=["a"]), path)
    with pytest.raises(InputFileError, match="not Parquet that can be read"):
        read_data(path)


def test_parquet_without_its_package_says_how_to_get_it(tmp_path, monkeypatch):
    """`MissingExtraError` with the extra's name."""
    real = builtins.__import__

    def without(name, *rest):
        if name.split(".")[0] == "pyarrow":
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"selectrie\[parquet\]"):
        read(tmp_path, "a.parquet", b"PAR1")


SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
BITS = st.sampled_from([b'{"a": ', b'"', b"}", b"[", b"]", b",", b"\n", b"\r", b"a", b"1e400", b"\\ud800", b"\xff", b"\0", b"\t", b"PAR1"])  # fmt: skip
ANY = st.binary(max_size=80) | st.lists(BITS, max_size=14).map(b"".join)


@settings(max_examples=n_examples(150))
@given(data=ANY, suffix=st.sampled_from(SUFFIXES))
@example(data=b"\n1", suffix=".csv")
@example(data=b"a\n\0", suffix=".csv")
def test_any_bytes_give_records_or_that_error(data, suffix, tmp_path_factory):
    """Nothing else comes out; what comes out are texts that can be written again."""
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path_factory.mktemp("any") / f"a{suffix}"
    path.write_bytes(data)
    paths, records = [str(path)], [{"any": "record"}]
    try:
        records = [one.fields for one in read_data(path).records]
    except InputFileError as error:
        paths.append(error.path)
    assert records
    assert set(paths) == {str(path)}
    json.dumps(records, allow_nan=False, ensure_ascii=False).encode()


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
VALUES = st.recursive(
    TEXTS | st.integers() | st.booleans() | st.none(), lambda inner: st.lists(inner, max_size=3), max_leaves=5
)


@settings(max_examples=n_examples(60))
@given(
    records=st.lists(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=3), min_size=1, max_size=4),
    is_ascii=st.booleans(),
)
def test_what_json_wrote_is_read_again(records, is_ascii, tmp_path_factory):
    """As lines and as a list, escaped and not."""
    folder = tmp_path_factory.mktemp("json")
    lines = [json.dumps(record, ensure_ascii=is_ascii) for record in records]
    (folder / "a.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "a.json").write_text(f"[{','.join(lines)}]", encoding="utf-8")
    for name in ("a.jsonl", "a.json"):
        found = read_data(folder / name).records
        assert [dict(one.fields) for one in found] == records
        assert [one.number for one in found] == list(range(1, len(records) + 1))


@settings(max_examples=n_examples(60))
@given(
    rows=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4),
    dialect=st.sampled_from([("csv", ","), ("tsv", "\t")]),
)
def test_what_csv_wrote_is_read_again(rows, dialect, tmp_path_factory):
    """Quotes, delimiters and line ends within a field come back as they were."""
    suffix, delimiter = dialect
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([("a", "b"), *rows])
    path = tmp_path_factory.mktemp("csv") / f"a.{suffix}"
    path.write_bytes(text.getvalue().encode())
    assert [tuple(one.fields.values()) for one in read_data(path).records] == rows


def test_the_digest_is_that_of_the_bytes(tmp_path):
    """Equal for equal bytes, whatever the name; another for any other byte."""
    for name, data in (("a.jsonl", GOOD), ("b.jsonl", GOOD), ("c.jsonl", GOOD + b"\n")):
        (tmp_path / name).write_bytes(data)
    one, same, other = (read_data(tmp_path / name).digest for name in ("a.jsonl", "b.jsonl", "c.jsonl"))
    assert one == same != other


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path, monkeypatch):
    """Records and digest are of the same bytes, or there are none."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD)
    digest = dataset.digest_of_bytes

    def grown(path):
        with path.open("ab") as file:
            file.write(GOOD)
        return digest(path)

    monkeypatch.setattr(dataset, "digest_of_bytes", grown)
    with pytest.raises(InputFileError, match="changed while it was read"):
        read_data(path)
