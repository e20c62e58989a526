"""What callers give wrong, and what they may do with a grammar."""

from __future__ import annotations

import copy
import pickle

import pytest

from selectrie.errors import GrammarError, InputFileError, OptionError
from selectrie.grammar import Grammar

LISTS = 'root ::= "[" item ("," item)* "]"\nitem ::= [0-9] | root'


@pytest.mark.parametrize(
    "read",
    [Grammar.from_gbnf, Grammar.from_regex, Grammar.from_lark, Grammar.from_llguidance],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("given", [None, 3, b"root"], ids=repr)
def test_what_is_no_text_is_refused_by_value(read, given):
    """Bytes and other things are no grammar's text, and are told as our error."""
    with pytest.raises(OptionError, match="a str"):
        read(given)


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (Grammar.from_gbnf, "move.gbnf"),
        (Grammar.from_lark, "./move.lark"),
        (Grammar.from_json_schema, "person.json"),
    ],
)
def test_a_file_name_is_no_grammar(read, name):
    """Who gives a file's name as the text is told what reads files."""
    with pytest.raises(OptionError, match=r"Grammar\.from_file reads files"):
        read(name)


@pytest.mark.parametrize("limit", [-1, 1.5, "3", True])
def test_a_limit_is_a_whole_number(limit):
    """Before a text is listed."""
    with pytest.raises(OptionError, match=f"limit={limit!r}: expected a whole number of at least 0"):
        Grammar.from_gbnf(LISTS).expand(limit)


def test_only_texts_are_tried():
    """A number is neither str nor bytes."""
    with pytest.raises(OptionError, match="text=3: expected a str or bytes"):
        Grammar.from_gbnf(LISTS).accepts(3)


def test_a_folder_is_told_as_one(tmp_path):
    """Whatever its name, and also where a notation is asked for."""
    (tmp_path / "one.gbnf").mkdir()
    for path, ending in ((tmp_path, None), (tmp_path / "one.gbnf", None), (tmp_path, ".json")):
        with pytest.raises(InputFileError, match="Is a directory"):
            Grammar.from_file(path, ending=ending)


def test_a_file_may_be_read_as_another_notation(tmp_path):
    """By the ending it would have."""
    path = tmp_path / "schema.txt"
    path.write_bytes(b'\xef\xbb\xbf{\r\n"type": "boolean"}')
    assert Grammar.from_file(path, ending=".json").accepts("true")
    with pytest.raises(InputFileError, match="ends in"):
        Grammar.from_file(path)


def test_line_ends_are_those_of_any_system(tmp_path):
    """CRLF and CR end a line as LF does."""
    path = tmp_path / "one.gbnf"
    for end in (b"\n", b"\r\n", b"\r"):
        path.write_bytes(b"root ::= a (" + end + b'"b")' + end + b'a ::= "a"' + end)
        assert [*Grammar.from_file(path).expand()] == ["ab"]


def test_a_grammar_is_pickled_as_it_was_read():
    """Sent to another process it has the same name, digest, rules and texts, though it was compiled before."""
    grammar = Grammar.from_gbnf(LISTS, name="lists")
    assert grammar.accepts("[1,[2]]")
    sent = pickle.loads(pickle.dumps(grammar))  # noqa: S301 - our own
    assert (sent.name, sent.digest, dict(sent.rules)) == ("lists", grammar.digest, dict(grammar.rules))
    assert [*sent.expand(5)] == [*grammar.expand(5)]


def test_a_copy_of_a_grammar_is_itself():
    """It never changes, so that what was compiled is shared."""
    grammar = Grammar.from_gbnf(LISTS)
    assert copy.copy(grammar) is grammar
    assert copy.deepcopy([grammar])[0] is grammar


def test_a_schema_is_pickled():
    """Also what llguidance holds."""
    grammar = Grammar.from_json_schema({"type": "boolean"})
    sent = pickle.loads(pickle.dumps(grammar))  # noqa: S301 - our own
    assert sent.digest == grammar.digest
    assert sent.accepts("true")
    assert not sent.accepts("1")


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (Grammar.from_gbnf, 'root ::= "\ud800"'),
        (Grammar.from_gbnf, 'root ::= "a\ud800" "'),
        (Grammar.from_regex, "[\ud800-\udfff]a"),
        (Grammar.from_lark, 'start: "\ud800"'),
        (Grammar.from_json_schema, '{"type": "\ud800", }'),
    ],
)
def test_an_error_about_a_lone_surrogate_can_be_printed(read, text):
    """It stands in the line that the error shows, where the caret stays below its place."""
    with pytest.raises(GrammarError) as caught:
        read(text)
    message = str(caught.value)
    assert message.encode().decode() == message
    line, caret = message.split("\n")[1:]
    assert "\ufffd" in line
    assert caret.index("^") == caught.value.column + 1
