"""The time that chat templates write: which one, and in which words."""

from __future__ import annotations

import locale
from datetime import datetime

import pytest

from selectrie.backends.chat.template import JinjaTemplate
from selectrie.core.tracked_text import TrackedText
from selectrie.errors import PromptError

DIRECTIVES = [
    "%a",
    "%A",
    "%b",
    "%B",
    "%c",
    "%d",
    "%h",
    "%H",
    "%I",
    "%j",
    "%m",
    "%M",
    "%p",
    "%r",
    "%S",
    "%U",
    "%w",
    "%W",
    "%x",
    "%X",
    "%y",
    "%Y",
    "%-d",
    "%e",
    "%^a",
    "%Ey",
    "%Od",
    "%%",
    "%%a",
    "%5d",
]


def rendered(source, **template_args):
    """What a template makes of no message."""
    return JinjaTemplate(source, {})([], **template_args)


@pytest.mark.parametrize("directive", DIRECTIVES)
@pytest.mark.parametrize("time", [*map(datetime.fromisoformat, ("2026-01-31T07:05:09", "2024-12-04T23:59:00"))])
def test_the_locale_is_c(directive, time):
    """Directives are written as the C locale of the process writes them."""
    assert locale.setlocale(locale.LC_TIME) == "C"
    assert rendered(f"{{{{ strftime_now('{directive}') }}}}", strftime_now=time.isoformat()) == time.strftime(directive)


@pytest.mark.parametrize("kind", [str, TrackedText])
def test_other_names_of_days_are_not_asked_for(kind, monkeypatch):
    """No directive that depends on the locale reaches the C library."""
    asked = []

    class Spy(datetime):
        def strftime(self, form):
            asked.append(str(form))
            return super().strftime(form)

    monkeypatch.setattr("selectrie.backends.chat.template.datetime", Spy)
    text = rendered("{{ strftime_now('%A, %-d %B %Y, %I:%M %p') }}", strftime_now=kind("2026-01-31T07:05:00"))
    assert text == "Saturday, 31 January 2026, 07:05 AM"
    assert asked[-1] == "Saturday, %-d January %Y, %I:%M AM"


def test_a_time_that_is_none_is_refused():
    """The error has the value and the form that is expected."""
    with pytest.raises(PromptError, match="strftime_now='today': expected a local time in ISO 8601"):
        rendered("{{ strftime_now('%Y') }}", strftime_now="today")
