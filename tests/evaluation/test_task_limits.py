"""A task's file makes no step run for ever and no text grow without bound."""

from __future__ import annotations

import pytest

from selectrie.errors import InputFileError, TemplateError
from selectrie.evaluation import tasks
from selectrie.evaluation.tasks import FieldError, Preparation, TaskFile, parse_task, render_text

TASK = 'name = "t"\nversion = 1\nkind = "multiple_choice"\nsource = "x"\nmetrics = ["acc"]\n'


def prepared(*given):
    """A field with these steps."""
    return Preparation.of_table(
        TaskFile("t.toml", ""), "here", 0, {"field": "a", "steps": [list(one) for one in given]}
    )


def test_a_pattern_that_would_take_years_is_stopped(monkeypatch):
    """By the time limit of the package `regex`; the error names the pattern."""
    monkeypatch.setattr(tasks, "SUB_SECONDS", 0.05)
    with pytest.raises(FieldError, match=r"\(a\|aa\)\+\$.* takes more than"):
        prepared(("sub", "(a|aa)+$", "b")).apply("a" * 60 + "c")
    assert prepared(("sub", r"\s+(?=\w)", r"\1")).apply("a  b ") == r"a\1b "


@pytest.mark.parametrize(
    "pattern", ["((a{100}){100}){100}", "a{1000000}", "(?:(?:(?:a?){,9999}){9999}){9999}", "a" * 10_001]
)
def test_a_pattern_that_is_large_when_written_out_is_refused(pattern):
    """It would be compiled to as much before any time limit begins."""
    with pytest.raises(InputFileError, match="more than 10000 characters with its repeats written out"):
        prepared(("sub", pattern, ""))


def test_the_largest_pattern_is_read():
    """Ten thousand characters written out, and not one more."""
    assert prepared(("sub", "a{10000}", "b")).apply("a" * 10_001) == "ba"
    assert prepared(("sub", "(ab{0}){5000}", "c")).apply("a" * 5_000) == "c"
    for pattern in ("a{10001}", "(ab{0}){5001}"):
        with pytest.raises(InputFileError, match="more than 10000 characters"):
            prepared(("sub", pattern, ""))


def test_repeats_that_are_small_are_read():
    """Counts, classes and escaped braces."""
    assert prepared(("sub", r"(?:[{(]a){2,3}\{9999\}|b{20}", "-")).apply("{a(a{9999} " + "b" * 20) == "- -"


@pytest.mark.parametrize("step", [("replace", "a", "a" * 10), ("sub", "a", "a" * 10), ("sub", "", "aaaaaaaaaa")])
def test_texts_do_not_grow_without_bound(step, monkeypatch):
    """Twelve times tenfold is refused before it is made."""
    monkeypatch.setattr(tasks, "MAX_CHARACTERS", 10_000)
    assert len(prepared(step).apply("a")) >= 10
    with pytest.raises(FieldError, match="more than 10000 characters"):
        prepared(*[step] * 12).apply("a")
    with pytest.raises(FieldError, match="more than 10000 characters"):
        prepared(*[step] * 3).apply(["a"] * 100)


def test_a_long_text_that_does_not_grow_is_read(monkeypatch):
    """The bound is on what steps add."""
    monkeypatch.setattr(tasks, "MAX_CHARACTERS", 10)
    assert prepared(("replace", "a", "b"), ("strip",)).apply([" " + "a" * 9] * 3) == ["b" * 9] * 3


def test_templates_of_fields_do_not_grow_without_bound(monkeypatch):
    """A text that holds a field twice, in a field that holds a field twice."""
    monkeypatch.setattr(tasks, "MAX_CHARACTERS", 1_000)
    assert render_text("<<a>><<a>>", {"a": "b" * 500}) == "b" * 1_000
    with pytest.raises(TemplateError, match="longer than 1000 characters"):
        render_text("<<a>><<a>>", {"a": "b" * 501})


@pytest.mark.parametrize(
    "line", ["a" + ".a" * 50_000 + " = 1", "[a" + ".a" * 50_000 + "]", 'b = {"a"' + ' . "a"' * 50_000 + " = 1}"]
)
def test_a_key_of_very_many_parts_is_refused(line):
    """With its line, and before the reader of TOML sees it."""
    with pytest.raises(InputFileError, match="a key has more than 64 parts") as raised:
        parse_task(TASK + line, "t.toml")
    assert raised.value.line == 6


def test_dots_in_texts_are_no_parts_of_keys():
    """Neither in strings of any kind nor in comments."""
    dots = "." * 99
    for text in (f'"{dots}"', f"'{dots}'", f'"""\n{dots}\n"""', f"'''\n{dots}'''", f'"\\"{dots}" # {dots}'):
        with pytest.raises(InputFileError, match=r"at least one \[\[format\]\]"):
            parse_task(TASK + f"description = {text}", "t.toml")


def test_a_number_of_thousands_of_digits_is_refused():
    """As what is no TOML."""
    with pytest.raises(InputFileError, match="not TOML"):
        parse_task("version = " + "9" * 5_000, "t.toml")
