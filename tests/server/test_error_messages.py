"""Errors in the words of a client over HTTP."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from selectrie import errors
from selectrie.errors import (
    MessageText,
    ModelError,
    OptionError,
    OptionRef,
    PromptError,
    PromptTooLongError,
    PythonOnly,
    Quoted,
    SelectrieError,
    TextError,
    remedies,
    words,
)
from selectrie.server import app
from selectrie.server.calls.call_bodies import CALLS, fields_of_call
from selectrie.server.calls.extraction import EXTRACT_FIELDS
from selectrie.server.decisions.decisions import DECISIONS_FIELDS, SYSTEMONE_FIELDS
from selectrie.server.decisions.question_bodies import ChoiceQuestion, PredicateQuestion, QuestionOption
from selectrie.server.generation.chat import ChatBody
from selectrie.server.generation.completions import FIELDS
from selectrie.server.generation.generation import options_of
from selectrie.server.transport.http_errors import error_of
from tests.support.deciding import fake
from tests.support.serving import ask

REMEDIES = remedies(
    "shorten `state`", words("ask without {} (`list_options=False`)", "the `state`"), "raise `budget_nodes`"
)
LARGER = remedies(operator="load with a larger `n_ctx` and `precision='fast'`")
TOO_LONG = PromptTooLongError(required_tokens=9, available_tokens=8, remedy=REMEDIES, larger_context=LARGER)
ASKED = {"type": "predicate", "instructions": "Is it?"}
SCORE = {"type": "score", "instructions": "How?"}
CHOICE = {"type": "choice", "instructions": "Which?", "choices": [{"value": "b"}, {"value": "c"}]}
MAPPING = OptionError("choices", 3, MessageText("texts as keys", PythonOnly("; else, Option(value, text=…)")))


@pytest.mark.parametrize(
    ("error", "message", "param"),
    [
        (PromptError("is 7: expected text", where="input[1]['content']"), "input[1]['content'] is 7: expected text", "input[1].content"),
        (TextError("input", "is no text"), "input: is no text", "input"),
    ],
    ids=["a part", "a text"],
)  # fmt: skip
def test_the_field_that_is_asked_about_is_named(error: SelectrieError, message: str, param: str):
    """By its path in the request."""
    found = error_of(error, DECISIONS_FIELDS)
    assert (found.message, found.param) == (message, param)


def test_remedies_are_those_of_the_request():
    """Fields in place of arguments, with values as JSON; what is no option stays, what it has no field for is left out.

    What the operator can do has the flags of `serve`.
    """
    assert str(TOO_LONG) == (
        "needs 9 tokens, the context holds 8; shorten `state`, ask without the `state` (list_options=False), "
        "raise `budget_nodes`, or load with a larger `n_ctx` and precision='fast'"
    )
    found = error_of(TOO_LONG, DECISIONS_FIELDS)
    assert found.param == "input"
    assert found.message == (
        "needs 9 tokens, the context holds 8; shorten `input`, ask without the `state` (list_options=false), "
        "or the operator can load with a larger --n-ctx and --precision fast"
    )
    error = PromptError(words("it is not rendered; {}", remedies("give it with `boundary='split'`")))
    assert error_of(error).message == "it is not rendered"
    error = ModelError(words("it ended; {}", remedies(operator="open it here (`untrusted=False`)")))
    assert error_of(error).message == "it ended; the operator can open it here (without --untrusted)"


@pytest.mark.parametrize("error", [TextError("inputs", "is no text"), PromptError("the input is empty")])
def test_errors_about_no_field_have_no_path(error: SelectrieError):
    """A message that happens to name a field is not read."""
    assert error_of(error, DECISIONS_FIELDS).param is None


def test_clients_read_no_advice_for_python():
    """Classes and None mean nothing in JSON."""
    assert str(MAPPING) == "choices=3: expected texts as keys; else, Option(value, text=…)"
    assert error_of(MAPPING).message == "choices=3: expected texts as keys"


@pytest.mark.parametrize(
    ("value", "python", "json"),
    [
        (True, "True", "true"),
        ((1, None), "(1, None)", "[1, null]"),
        ({"a": [False, "é"]}, "{'a': [False, 'é']}", '{"a": [false, "é"]}'),
        ("it's", '"it\'s"', '"it\'s"'),
        ("a", "'a'", "'a'"),
        (["\ud800"], "['\\ud800']", '["\\ud800"]'),
        (1e30, "1e+30", "1e+30"),
        ({1}, "{1}", "{1}"),
        ([None] * 100, "[" + "None, " * 13 + "…", "[" + "null, " * 13 + "…"),
    ],
    ids=str,
)
def test_values_are_written_as_json(value: object, python: str, json: str):
    """A text alone keeps the quotes of names, and what JSON does not have is as in Python."""
    asked, said = OptionError("k", value, "a text"), PromptError(words("is {}: expected text", Quoted(value)))
    assert (str(asked), str(said)) == (f"k={python}: expected a text", f"is {python}: expected text")
    assert (error_of(asked).message, error_of(said).message) == (
        f"k={json}: expected a text",
        f"is {json}: expected text",
    )
    assert str(PromptError(words("is {}", Quoted(None)))) == "is None"
    assert error_of(PromptError(words("is {}", Quoted(None)))).message == "is null"


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/v1/completions", {"prompt": "a", "suffix": [True]}, "suffix: [true] is not offered; leave the field out"),
        ("/v1/completions", {"prompt": "a", "suffix": ["\ud800"]}, 'suffix: ["\\ud800"] is not offered; leave the field out'),
        ("/v1/completions", {"prompt": "a", "n": True}, "n=true: expected a whole number from 1 to 128"),
        ("/v1/decisions", {"input": [{"role": None}], "questions": [ASKED]}, 'input[0]={"role": null}: expected a message'),
        ("/v1/decisions", {"input": "a", "questions": [], "min_confidence": True}, "min_confidence=true: expected a number from 0 to 1"),
        ("/v1/systemone", {"state": [{"role": "user", "content": [{"type": None}]}], "questions": {"q": ASKED}}, 'is {"type": null}: expected a part'),
        ("/v1/select", {"prompt": [3, None], "choices": ["b"]}, "prompt[1] is not given"),
    ],
)  # fmt: skip
def test_a_client_reads_its_values_as_it_sent_them(path: str, body: dict[str, object], message: str):
    """Null, true and arrays, in whatever layer the value is refused."""
    with fake() as llm:
        found = ask(app(llm), "POST", path, body).error["message"]
    assert message in found
    assert not re.search("None|True|False|Threshold", found), found


@pytest.mark.parametrize(
    ("path", "body", "param", "message"),
    [
        ("/v1/select", {"prompt": "a", "choices": ["b", "c"], "prior": [0, 0]}, "prior", "every prior is 0"),
        ("/v1/select", {"prompt": "a", "choices": ["b", "c"], "prior": [1]}, "prior", "prior=1 weights: expected 2"),
        ("/v1/select", {"prompt": "a", "choices": ["b", "c"], "prior": [1, -1]}, "prior[1]", "prior[1]=-1: expected"),
        ("/v1/select", {"prompt": "a", "regex": ""}, "regex", "empty"),
        ("/v1/decisions", {"input": "x", "questions": [CHOICE], "list_options": "x"}, "list_options", "true or false or 'if they fit'"),
        ("/v1/completions", {"prompt": "a", "stop": ["a"] * 65}, "stop", "stop=65 items: expected at most 64"),
        ("/v1/decisions", {"input": "x", "questions": [SCORE | {"low": 5, "high": 1}]}, "questions[0].high", "high=1"),
        ("/v1/decisions", {"input": "x", "permutations": 3, "questions": [CHOICE]}, "permutations", "permutations=3"),
        ("/v1/decisions", {"input": "x", "questions": [CHOICE | {"examples": [{"state": "y", "answer": "z"}]}]}, "questions[0].examples[0].answer", "examples[0].answer='z'"),
        ("/v1/classify", {"text": "a", "labels": ["a", "b"], "examples": [{"state": "x", "answer": "z"}]}, "examples[0].answer", "examples[0].answer='z'"),
    ],
)  # fmt: skip
def test_the_path_to_the_value_is_named(path: str, body: dict[str, object], param: str, message: str):
    """Not that of what is around it, and counts are no values."""
    with fake() as llm:
        found = ask(app(llm), "POST", path, body).error
    assert (found["param"], message in found["message"]) == (param, True), found


def test_names_of_clients_are_cut():
    """A slot and an option, each to 80 characters; a lone surrogate in them can be written."""
    error = OptionError("o\ud800" * 100, 1, words("at most `n=2` of {}", OptionRef("top")))
    error.slot = "s" * 200
    assert (
        error_of(error).message == f"{'s' * 79}…: {('o' + chr(92) + 'ud800') * 39}o…=1: expected at most n=2 of `top`"
    )


CALLED = (
    "errors.py",
    "options",
    "core",
    "results",
    "tokenization",
    "grammar",
    "backends",
    "decide",
    "decoding",
    "engine",
)
"""Where what endpoints call lies."""
NOT_OVER_HTTP = {
    "engine/requests/speculative.py", "engine/tracing/record.py", "engine/tracing/replay.py", "decide/classification.py",
    "decide/threshold.py",
}  # fmt: skip
"""Options and calls that no endpoint has."""
NOT_SET = {"top", "on_error"}
"""Options that no endpoint sets, so no error is about them."""


def options_named() -> Iterator[tuple[str, str]]:
    """Each option that a message may name outside of remedies, which are left out where it does not exist, with its place."""
    rooms = Path(errors.__file__).parent
    for one in sorted(rooms.rglob("*.py")):
        path = one.relative_to(rooms)
        if path.parts[0] in CALLED and path.as_posix() not in NOT_OVER_HTTP:
            for call in ast.walk(ast.parse(one.read_text(encoding="utf-8"))):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args:
                    text = getattr(call.args[0], "value", None)
                    if call.func.id == "OptionRef" and isinstance(text, str):
                        yield text, f"{path}:{call.lineno}"
                    elif call.func.id == "words" and isinstance(text, str):
                        yield from ((option.name, f"{path}:{call.lineno}") for option in words(text, *[""] * 9).options)


def test_messages_name_what_requests_have():
    """Fields of an endpoint or of a question; a remedy that needs anything else is one of `remedies`."""
    fields = {
        name
        for names in (options_of(ChatBody, {}), FIELDS, DECISIONS_FIELDS, SYSTEMONE_FIELDS, EXTRACT_FIELDS)
        for name in names
    }
    fields |= {name for call in CALLS.values() for name in fields_of_call(call, {})}
    fields |= {name for kind in (ChoiceQuestion, QuestionOption, PredicateQuestion) for name in kind.model_fields}
    found = list(options_named())
    assert len(found) > 30
    assert [(name, where) for name, where in found if name not in fields | NOT_SET] == []
