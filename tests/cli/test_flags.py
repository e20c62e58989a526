"""Errors in the words of the command line."""

from __future__ import annotations

import ast
from copy import copy
from dataclasses import fields, replace
from pathlib import Path

import pytest

from selectrie import Template, errors
from selectrie.backends.table import BACKENDS
from selectrie.cli.arguments import flags_of, message_of
from selectrie.cli.groups import ModelGroup
from selectrie.cli.requests import _LOAD_NAMES
from selectrie.cli.serve import ServingGroup
from selectrie.errors import (
    THE_PROMPT,
    DeadEndError,
    GrammarError,
    IncompatibleOptionsError,
    ModelFileError,
    NothingFoundError,
    OptionError,
    OptionRef,
    PromptTooLongError,
    PythonOnly,
    SelectrieError,
    remedies,
    words,
)

_serve_flag = pytest.importorskip(
    "selectrie.server.transport.http_errors", reason="needs the extra 'server'"
)._serve_flag
FLAGS = {
    name: "--" + name.replace("_", "-")
    for name in ("n_ctx", "max_tokens", "truncate", "exact", "any_path", "logit_bias", "json")
} | {
    "n": "-n",
    "file": "FILE",
    "budget_nodes": "--budget",
    "stop_tokens": "--stop-token",
    "untrusted": "--untrusted/--trusted",
}


def of_request(error: SelectrieError) -> SelectrieError:
    error.request = 2
    return error


def of_slot(error: SelectrieError) -> SelectrieError:
    with (
        pytest.raises(type(error)),
        errors.of_slot("gen 'x' at page.tmpl:3:8", {"max_tokens": "max_tokens", "exact": "exact"}),
    ):
        raise error
    return error


def of_question(error: SelectrieError) -> SelectrieError:
    with pytest.raises(type(error)), errors.of_slot("question 'x'"):
        raise error
    return error


LONG = PromptTooLongError(
    required_tokens=9,
    available_tokens=8,
    remedy=remedies(words("shorten {}", THE_PROMPT), "lower `max_tokens`", "raise `budget_nodes`", "set `exact=True`"),
    larger_context=remedies(operator="load with a larger `n_ctx`"),
)
NEEDS = "needs 9 tokens, the context holds 8"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OptionError("max_tokens", 0, "at least 1"), "--max-tokens 0: expected at least 1"),
        (OptionError("budget_nodes", "a=b", "a number"), "--budget 'a=b': expected a number"),
        (OptionError("stop_tokens[1]", -1, "an id"), "--stop-token -1: expected an id"),
        (OptionError("logit_bias[3]", 1e999, words("less{}", PythonOnly(", or None for none"))), "--logit-bias 3=inf: expected less"),
        (OptionError("json", True, "no --tsv"), "--json: expected no --tsv"),
        (OptionError("untrusted", True, words("`untrusted=False`")), "--untrusted: expected --trusted"),
        (OptionError("untrusted", False, words("`untrusted=True`")), "--trusted: expected --untrusted"),
        (
            IncompatibleOptionsError("json", OptionRef("stop_tokens"), words("leave out `budget_nodes=2`")),
            "--json cannot be combined with --stop-token; leave out --budget 2",
        ),
        (OptionError("file", None, "a file"), "FILE is not given; give a file"),
        (OptionError("n", 1, words("at least `max_tokens={}`, `exact` or `exact=True`", 3)), "-n 1: expected at least --max-tokens 3, --exact or --exact"),
        (OptionError("n", 1, words("`canonical_only=False`, not {}", "`exact` n_ctx='n_ctx'")), "-n 1: expected --any-path, not `exact` n_ctx='n_ctx'"),
        (OptionError("n", 1, words("two, or `exact=False`")), "-n 1: expected two, or leaving out --exact"),
        (OptionError("n", 1, words("`truncate='all of it'`")), "-n 1: expected --truncate 'all of it'"),
        (OptionError("n", 1, words("`unknown=2` or `unknown`")), "-n 1: expected unknown=2 or `unknown`"),
        (IncompatibleOptionsError(OptionRef("exact", value=False), "json", "take one"), "leaving out --exact cannot be combined with json; take one"),
        (ModelFileError("max_tokens=3.gguf", words("is large; lower `n_ctx`")), "max_tokens=3.gguf: is large; lower --n-ctx"),
        (OptionError("unknown", 1, "two"), "unknown=1: expected two"),
        (of_request(OptionError("n", 0, "1")), "request 2: -n 0: expected 1"),
        (of_slot(OptionError("max_tokens", 0, "1")), "gen 'x' at page.tmpl:3:8: max_tokens=0: expected 1"),
        (of_slot(copy(LONG)), f"gen 'x' at page.tmpl:3:8: {NEEDS}; lower `max_tokens`, set exact=true, or load with a larger --n-ctx"),
        (
            of_question(copy(LONG)),
            f"question 'x': {NEEDS}; shorten the prompt, lower --max-tokens, raise --budget, set --exact, or load with a larger --n-ctx",
        ),
        (
            PromptTooLongError(required_tokens=9, available_tokens=8, remedy=words("set `truncate='left'`"), larger_context=words("load with a larger `n_ctx`")),
            "needs 9 tokens, the context holds 8; set --truncate left, or load with a larger --n-ctx",
        ),
        (
            NothingFoundError("n_ctx.gbnf", "none is short", words("raise `budget_nodes` ({}), or lower `max_tokens`", 2)),
            "no text of n_ctx.gbnf was found: none is short; raise --budget (2), or lower --max-tokens",
        ),
        (DeadEndError(2), "none of the 2 tokens allowed here is possible; allow more, or forbid less by --logit-bias"),
        (GrammarError("n_ctx is not defined"), "n_ctx is not defined"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value[:40],
)  # fmt: skip
def test_arguments_are_named_as_flags(error: SelectrieError, message: str):
    """References to the command's options, with their values; all other text stays, whatever it looks like.

    A slot has its tag's words, and no option that the tag does not have.
    """
    assert message_of(error, FLAGS) == message


def test_without_flags_the_message_is_the_librarys():
    """As for errors outside of a command."""
    assert message_of(OptionError("n", 0, "1"), {}) == "n=0: expected 1"


NOT_ON_THE_COMMAND = {"tokenizer", "prefix", "buckets"}
"""Options of back ends that no flag gives.

A tokenizer is an object, or a folder beside that of the model. A prefix is an object. The sizes of programs are chosen by those
who write code for a machine; the command takes those that were tried.
"""


def test_every_option_of_a_back_end_has_a_flag():
    """The flags that name and load a model are the options of all back ends, and those of `load` itself."""
    of_back_ends = {field.name for backend in BACKENDS for field in fields(backend.options_type())}
    flags = {_LOAD_NAMES.get(field.name, field.name) for field in fields(ModelGroup)}
    assert flags - {"model", "backend", "untrusted"} == of_back_ends - NOT_ON_THE_COMMAND


def test_remedies_of_operators_have_flags_of_serve():
    """A server's client reads of them, by the flag that `selectrie serve` has."""
    flags, found = flags_of({"model": ModelGroup, "serving": ServingGroup}), set()
    for path in Path(errors.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.keyword) and call.arg == "operator" and isinstance(call.value, ast.Constant):
                found |= {
                    (option.name, _serve_flag(replace(option, value=None)))
                    for option in words(call.value.value).options
                }
    assert len(found) >= 4
    assert {(name, flags[name].partition("/")[0]) for name, _ in found} == found


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x <<select 'x' options=a>>", "options must be a list or a mapping from texts to values, not 3"),
        ("x <<select 'x' grammar=a>>", "grammar=3: expected the name of a file or of an installed one"),
        ("x <<select 'x' options=['a'] rule='calibrated'>>", "rule='calibrated' needs content-free prompts; use another rule"),
        ("x <<gen 'x' stop=''>>", "stop[0]='': expected a text that is not empty; leave `stop` out for none"),
    ],
)  # fmt: skip
def test_templates_have_words_of_their_own(source: str, message: str):
    """Neither classes of Python's nor flags of the command, which are no arguments of tags."""
    with pytest.raises(errors.TemplateError) as caught:
        Template(source).check({"a": 3})
    assert message_of(caught.value, {**FLAGS, "stop": "--stop"}).partition(": ")[2].partition("\n")[0] == message
