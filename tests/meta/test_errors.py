"""The tree of errors: copies and other processes see what was raised."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from pathlib import Path

import pytest

from selectrie import errors
from selectrie.errors import OptionRef, PythonOnly, SelectrieError, joined, of_request, words

VALUES = {"int": 3, "float": 1.5, "object": [1], "int | None": 4, "str | None": "b", "Mapping[str, int]": {"m": 5}}
KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, SelectrieError)]


def made(kind: type[SelectrieError]) -> SelectrieError:
    """One of this kind, of whatever its arguments are."""
    if not inspect.isfunction(kind.__init__):
        return kind("a reason")
    args, named = [], {}
    for parameter in list(inspect.signature(kind).parameters.values()):
        if parameter.kind == parameter.VAR_POSITIONAL:
            return kind("a reason")
        value = VALUES.get(parameter.annotation, "a")
        if parameter.kind == parameter.KEYWORD_ONLY:
            named[parameter.name] = value
        elif parameter.kind != parameter.VAR_KEYWORD:
            args.append(value)
    return kind(*args, **named)


def through_pickle(error: SelectrieError) -> SelectrieError:
    """What another process sees of it."""
    other: SelectrieError = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    return other


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("copied", [copy.copy, through_pickle])
def test_a_copy_says_the_same(kind, copied):
    """Kind, message, and every attribute: a pool of processes hands errors on so, and breaks where it cannot."""
    error = made(kind)
    error.request = 7
    other = copied(error)
    assert type(other) is kind
    assert str(other) == str(error)
    assert str(other).startswith("request 7: ")
    assert (other.args, vars(other)) == (error.args, vars(error))
    other.request = 8
    assert error.request == 7


@pytest.mark.parametrize("kind", [errors.ModelFileError, errors.InputFileError])
def test_long_paths_and_reasons_are_cut_in_messages(kind):
    """The message stays short; the attributes hold the whole."""
    error = kind("p" * 5000, "r" * 5000)
    assert (len(error.path), len(error.reason)) == (5000, 5000)
    assert str(error) == "p" * 999 + "…: " + "r" * 999 + "…"
    assert len(str(errors.ChoiceError("r" * 5000, index=1, choice="c" * 5000))) < 1100


def test_a_text_knows_its_options():
    """Those of its template alone, also after a copy and within other words; a value's text is never read."""
    text = words("raise `max_tokens` ({}), or set `exact=False`, not {}", 5, "`n`, {} or n=1")
    assert text == "raise `max_tokens` (5), or set exact=False, not `n`, {} or n=1"
    outer = words("{}; {}{}", text, OptionRef("top", 2), PythonOnly(", or None"))
    for one in (outer, copy.deepcopy(outer), pickle.loads(pickle.dumps(outer))):  # noqa: S301 - our own
        assert one == f"{text}; top=2, or None"
        written = one.worded(lambda option: f"<{option.name}:{option.value}>")
        assert written == "raise <max_tokens:None> (5), or set <exact:False>, not `n`, {} or n=1; <top:2>"


@pytest.mark.parametrize(("remedies", "text"), [("a", "a"), ("ab", "a, or b"), ("abc", "a, b, or c")])
def test_remedies_are_joined(remedies, text):
    """As a list in words, of which one is enough."""
    assert joined(remedies, last=", or ") == text


REWRITING = re.compile(r"""str\(error\)\.(?:replace|remove\w+)\(|re\.\w+\([^\n]*str\(error""")


def test_messages_are_not_rewritten():
    """A shell words the parts of a message (`SelectrieError.worded`), and never searches its text."""
    sources = Path(errors.__file__).parent
    found = {one.relative_to(sources).as_posix() for one in sources.rglob("*.py") if REWRITING.search(one.read_text())}
    assert not found


def test_the_innermost_request_counts():
    """An index that is there stays."""
    with pytest.raises(SelectrieError) as caught, of_request(1), of_request(2), of_request(None):
        raise errors.DecodeError("no")
    assert caught.value.request == 2
