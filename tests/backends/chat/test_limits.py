"""A model file's chat template is somebody else's program: what it makes is limited, and what it raises is one error."""

from __future__ import annotations

import pytest

from selectrie.backends.chat import environment
from selectrie.backends.chat.template import JinjaTemplate
from selectrie.core.tracked_text import TrackedText
from selectrie.errors import PromptError
from tests.support.chat_templates import TEMPLATES


def rendered(source, said="Hi"):
    """What a template makes of one message."""
    return JinjaTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"})([{"role": "user", "content": said}])


@pytest.mark.parametrize("said", ["Hi", TrackedText("Hi")], ids=["plain", "tracked"])
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% for a in range(99999) %}{{ messages[0].content }}{% endfor %}", "writes more than 65536 characters"),
        ("{% macro m() %}{% for a in range(99999) %}a{% endfor %}{% endmacro %}{{ m()[:1] }}", "writes more than"),
        ("{{ 'a' * 10 ** 10 }}", "makes a product of more than 65536 characters or items"),
        ("{{ 10 ** 10 * messages[0].content }}", "makes a product"),
        ("{{ ([0] * 10 ** 10) | length }}", "makes a product"),
        ("{{ 10 ** (10 ** 10) }}", "makes a number of more than 65536 bits"),
    ],
)
def test_the_error_says_what_is_too_much_and_what_to_do(source, reason, said, monkeypatch):
    """Which limit, and that the chat can be rendered by the caller. Nothing of that size is made."""
    monkeypatch.setattr(environment, "MAX_CHARACTERS", 65536)
    with pytest.raises(PromptError, match=f"chat template is not rendered: it {reason}.*; render the chat yourself"):
        rendered(source, said)


def test_what_stays_within_the_limits_is_made(monkeypatch):
    """Products, powers and texts up to the limit are what Jinja makes of them."""
    monkeypatch.setattr(environment, "MAX_CHARACTERS", 6)
    assert rendered("{{ 'ab' * 3 }}") == rendered("{{ 3 * 'ab' }}") == "ababab"
    assert rendered("{{ 2 ** 10 }}") == "1024"
    assert rendered("{{ 4 ** 0.5 * 1.5 }}{{ -1 * 'ab' }}") == "3.0"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ 1 / 0 }}", "ZeroDivisionError: division by zero"),
        ("{{ range(10 ** 30) }}", "OverflowError"),
        ("{% for a in range(100001) %}{% endfor %}", "OverflowError: Range too big"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError"),
        ("{{ " + "(" * 3_000 + "1" + ")" * 3_000 + " }}", "RecursionError"),
        ("{% break %}", "SyntaxError: 'break' outside loop"),
    ],
)
def test_exceptions_that_are_not_jinjas_become_our_error(source, reason):
    """Their class is named, and they are the cause."""
    with pytest.raises(PromptError, match=f"chat template cannot be rendered: {reason}") as raised:
        rendered(source)
    assert type(raised.value.__cause__).__name__ in reason


def test_what_a_template_says_itself_is_shown_in_part():
    """An error is not as long as the text that a template raises."""
    with pytest.raises(PromptError, match="refuses these messages: aaa") as raised:
        rendered("{{ raise_exception('a' * 10 ** 6) }}")
    assert len(str(raised.value)) < 500


def test_a_template_that_cannot_be_read_is_broken():
    """It refuses no messages; the error has the line."""
    with pytest.raises(PromptError, match="chat template is broken, in line 2: unexpected '}'"):
        rendered("Hi\n{{ }")


@pytest.mark.parametrize("kind", [str, TrackedText])
@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_of_the_field_render_long_chats(name, kind):
    """201 messages, tracked or not."""
    said = kind("What is it?\n" * 8)
    messages = [{"role": "assistant" if turn % 2 else "user", "content": said} for turn in range(201)]
    assert JinjaTemplate(TEMPLATES[name], {"bos_token": "<s>", "eos_token": "</s>"})(messages).count("What") >= 201 * 8


def test_one_rendering_inside_another():
    """A template has no state: renderings that nest, or that follow one that failed, change nothing."""
    template = JinjaTemplate(
        "{% for message in messages %}{{ message.content * 9 }}{{ inner() if inner }}{% endfor %}", {}
    )
    expected = "x" * 9
    for _ in range(3):
        with pytest.raises(PromptError):
            template([{"content": "x"}, {"content": None}])
        assert template([{"content": "x"}]) == expected
    assert template([{"content": "x"}], inner=lambda: template([{"content": "x"}])[:3]) == expected + "xxx"
