"""Files a caller hands over: taken as they stand, refused with the line where they cannot be."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.cli import inputs
from selectrie.errors import InputFileError, OptionError

EMOJI = "🤗"


@pytest.fixture
def write(tmp_path: Path):
    """`write("name", b"...")`: the path of a new file."""

    def make(name: str, data: bytes) -> str:
        path = tmp_path / name
        path.write_bytes(data)
        return str(path)

    return make


@pytest.mark.parametrize(
    ("data", "choices"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b" a \n\tb\n", [" a ", "\tb"]),
        (b"a\rb\nc\r\r\n", ["a\rb", "c\r"]),
        (b"a\x0bb\x0cc\xc2\x85d\xe2\x80\xa8e\n", ["a\x0bb\x0cc\x85d\u2028e"]),
        (EMOJI.encode() + b"\n", [EMOJI]),
        (b"a\na\n", ["a", "a"]),
    ],
    ids=repr,
)
def test_a_choices_file_gives_up_its_line_ends_and_nothing_else(write, data: bytes, choices: list[str]):
    """CR before the line end and the last line end go; spaces, other controls and repeats stay."""
    assert inputs.read_choices(write("c.txt", data)) == choices


@given(choices=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), min_size=1), min_size=1))
def test_choices_come_back_as_written(tmp_path: Path, choices: list[str]):
    """Whatever holds no line end survives the way through a file, with either kind of line end."""
    for end in ("\n", "\r\n"):
        path = tmp_path / "c.txt"
        path.write_bytes(end.join(choices).encode())
        assert inputs.read_choices(str(path)) == choices


@pytest.mark.parametrize(
    ("name", "data", "line", "reason"),
    [
        ("c.txt", b"", None, "holds no choices"),
        ("c.txt", b"a\n\nb\n", 2, "the line is empty"),
        ("c.txt", b"a\nb\n\n", 3, "the line is empty"),
        ("c.txt", b"a\n\xff\xfe\n", 2, "byte 0xff is not UTF-8"),
        ("c.txt", b"a\nb\nc\xe2\x82", 3, "byte 0xe2 is not UTF-8"),
        ("c.json", b'["a",\n"b"', 2, "not JSON"),
        ("c.json", b'{"a": 1}', None, "expected a JSON array of texts, not an object"),
        ("c.json", b'["a", 3]', None, "element 1 is a number, expected a text"),
        ("c.json", b"[]", None, "holds no choices"),
        ("c.json", b'["a", ""]', None, "element 1 is empty"),
        ("c.json", b"[" * 100_000, None, "JSON|nested too deeply"),
    ],
    ids=repr,
)
def test_a_bad_choices_file_is_refused_with_its_line(write, name: str, data: bytes, line: int | None, reason: str):
    """The error names the file, the line where there is one, and what is wrong."""
    path = write(name, data)
    with pytest.raises(InputFileError, match=reason) as caught:
        inputs.read_choices(path)
    assert caught.value.path == path
    if line is not None or b"[[" not in data:
        assert caught.value.line == line


def test_the_empty_choice_can_be_allowed(write):
    """With `allow_empty` a blank line is a choice like any other."""
    assert inputs.read_choices(write("c.txt", b"a\n\nb\n"), allow_empty=True) == ["a", "", "b"]
    assert inputs.read_choices(write("c.json", b'["a", ""]'), allow_empty=True) == ["a", ""]


def test_a_json_file_may_hold_line_ends(write):
    """Texts over several lines go into a .json file; the ending decides in either case."""
    assert inputs.read_choices(write("C.JSON", b'["a\\nb", " c"]')) == ["a\nb", " c"]


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    """Missing files and folders are the caller's mistake, with the system's reason."""
    with pytest.raises(InputFileError, match=r"gone\.txt: No such file"):
        inputs.read_choices(str(tmp_path / "gone.txt"))
    with pytest.raises(InputFileError, match=r"directory|denied"):
        inputs.read_prompt(str(tmp_path))


@pytest.mark.parametrize(
    ("data", "prompt"),
    [(b"Q: A:", "Q: A:"), (b"A:\n", "A:"), (b"A:\r\n", "A:"), (b"A:\n\n", "A:\n"), (b" \n", " "), (b"", "")],
    ids=repr,
)
def test_a_prompt_file_loses_one_line_end(write, data: bytes, prompt: str):
    """Editors add one line end; a second one was meant."""
    assert inputs.read_prompt(write("p.txt", data)) == prompt


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch):
    """`-` reads what is piped in, as bytes."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("é\nb\n".encode()), encoding="ascii"))
    assert inputs.read_choices("-") == ["é", "b"]


def test_chat_messages_keep_their_other_keys(write):
    """Role and content are checked, what else a template may want is handed on."""
    path = write("m.json", b'[{"role": "user", "content": "Hi", "name": "Ada"}]')
    assert inputs.read_messages(path) == [{"role": "user", "content": "Hi", "name": "Ada"}]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[]", "expected a JSON array of messages"),
        (b'{"role": "user"}', "expected a JSON array of messages"),
        (b'["Hi"]', "message 0 is a text"),
        (b'[{"role": "user"}]', "message 0: 'content' is missing or null"),
        (b'[{"role": "user", "content": "a"}, {"role": 1, "content": "b"}]', "message 1: 'role' is a number"),
        (b'[{"role": "user", "content": [{"type": "text"}]}]', "'content' is an array, expected text"),
        (b'[{"role": "user", "role": "system", "content": ""}]', "the key 'role' occurs twice"),
    ],
    ids=repr,
)
def test_bad_chat_messages_are_refused(write, data: bytes, reason: str):
    """The message is named by its place."""
    with pytest.raises(InputFileError, match=reason):
        inputs.read_messages(write("m.json", data))


def test_a_prior_names_choices(write):
    """Numbers become floats; choices may be left out."""
    assert inputs.read_prior(write("p.json", b'{" a": 1, " b": 0.5}'), [" a", " b", " c"]) == {" a": 1.0, " b": 0.5}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[0.5]", "expected a JSON object"),
        (b'{"a": 0.5}', "'a' is not one of the choices"),
        (b'{" a": -1}', "-1 is not a probability"),
        (b'{" a": NaN}', "nan is not a probability"),
        (b'{" a": true}', "True is not a probability"),
        (b'{" a": "0.5"}', "'0.5' is not a probability"),
        (b'{" a": 1, " a": 2}', "occurs twice"),
    ],
    ids=repr,
)
def test_a_bad_prior_is_refused(write, data: bytes, reason: str):
    """A misspelt choice (its leading space) must not silently lose its prior."""
    with pytest.raises(InputFileError, match=reason):
        inputs.read_prior(write("p.json", data), [" a"])


def test_token_ids_are_whole_numbers():
    """Commas and spaces separate; signs, words and nothing at all are refused."""
    assert inputs.parse_token_ids("1,2, 30") == inputs.parse_token_ids("1 2 30\n") == [1, 2, 30]
    for text in ("", "1,-2", "1,two", "1.5", "²"):
        with pytest.raises(OptionError, match="token ids such as 1,2,3"):
            inputs.parse_token_ids(text)


def test_template_arguments_are_json():
    """`false` is false and not a text; a text needs its quotes, and the error says how."""
    assert inputs.parse_template_args(["enable_thinking=false", 'date="a=b"', "n=3"]) == {
        "enable_thinking": False,
        "date": "a=b",
        "n": 3,
    }
    for item in ("x", "=1", "x=False", "x=today", "x="):
        with pytest.raises(OptionError, match=r"key=value|a JSON value"):
            inputs.parse_template_args([item])
    with pytest.raises(OptionError, match="each key once"):
        inputs.parse_template_args(["x=1", "x=2"])
