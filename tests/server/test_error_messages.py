"""Errors in the words of a client over HTTP."""

from __future__ import annotations

import pytest

from selectrie.errors import (
    OptionError,
    OptionRef,
    PromptError,
    PromptTooLongError,
    PythonOnly,
    SelectrieError,
    TextError,
    Words,
    words,
)
from selectrie.server.decision_wire import errors_about
from selectrie.server.http_errors import HttpError, error_of

TOO_LONG = PromptTooLongError(
    required_tokens=9, available_tokens=8, remedy=words("shorten `state`, or ask without {} (`list_options=False`)", "the `state`")
)  # fmt: skip
MAPPING = OptionError("choices", 3, Words("texts as keys", PythonOnly("; else, Option(value, text=…)")))


@pytest.mark.parametrize(
    ("error", "message", "param"),
    [
        (TOO_LONG, "needs 9 tokens, the context holds 8; shorten `input`, or ask without the `state` (list_options=false)", "input"),
        (PromptError("is 7: expected text", where="input[1]['content']"), "input[1]['content'] is 7: expected text", "input[1].content"),
        (TextError("input", "is no text"), "input: is no text", "input"),
    ],
    ids=["too long", "a part", "a text"],
)  # fmt: skip
def test_the_field_that_is_asked_about_is_named(error: SelectrieError, message: str, param: str):
    """In place of the argument, with values as JSON; what is no option stays."""
    with pytest.raises(HttpError) as caught, errors_about("input"):
        raise error
    assert (caught.value.message, caught.value.param) == (message, param)


@pytest.mark.parametrize("error", [MAPPING, TextError("inputs", "is no text"), PromptError("the input is empty")])
def test_other_errors_pass(error: SelectrieError):
    """Options have their own names, and a message that happens to name the field is not read."""
    with pytest.raises(type(error)), errors_about("input"):
        raise error


def test_clients_read_no_advice_for_python():
    """Classes and None mean nothing in JSON."""
    assert str(MAPPING) == "choices=3: expected texts as keys; else, Option(value, text=…)"
    assert error_of(MAPPING).message == "choices=3: expected texts as keys"


def test_names_of_clients_are_cut():
    """A slot and an option, each to 80 characters; a lone surrogate in them can be written."""
    error = OptionError("o\ud800" * 100, 1, words("at most `n=2` of {}", OptionRef("top")))
    error.slot = "s" * 200
    assert (
        error_of(error).message == f"{'s' * 79}…: {('o' + chr(92) + 'ud800') * 39}o…=1: expected at most n=2 of `top`"
    )
