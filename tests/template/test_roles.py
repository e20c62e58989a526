"""Roles that a value names: histories of chats."""

from __future__ import annotations

import pytest

import selectrie
from selectrie import RenderParams, Template
from selectrie.errors import TemplateError
from selectrie.template.syntax.ast import Literal, Path, Role
from selectrie.template.syntax.parser import parse

HISTORY = "<<#each messages as m>><<#role m.role>><<m.content>><</role>>\n<</each>>"
ASKED = "<<#assistant>><<select 'label' options=['refund', 'praise']>><</assistant>>"
MESSAGES = [
    {"role": "system", "content": "Choose one of these labels: refund, praise."},
    {"role": "user", "content": "You are the best shop in town!"},
]


@pytest.fixture(scope="module")
def llm():
    """The embedded model."""
    with selectrie.load(n_threads=1) as engine:
        yield engine


@pytest.mark.parametrize(
    ("source", "dialect", "role"),
    [
        ("<<#role m.role>>x<</role>>", "selectrie", Path("m", ("role",))),
        ("<<#role m[0]>>x<</role>>", "selectrie", Path("m", (0,))),
        ("<<#role this>>x<</role>>", "selectrie", Path("this")),
        ("<<#role name=speaker>>x<</role>>", "selectrie", Path("speaker")),
        ("{{#role this.role}}x{{/role}}", "handlebars", Path("this", ("role",))),
    ],
)
def test_a_role_may_be_a_value(source, dialect, role):
    """Read as written; a bare name is a role without its quotes."""
    assert parse(source, dialect=dialect).body == (Role(role, (Literal("x"),)),)


def test_a_history_is_what_its_turns_are(llm):
    """Turn by turn as the same roles written out; roles without quotes are told."""
    page = llm.render(Template(HISTORY + ASKED), messages=MESSAGES, rendering=RenderParams(seed=1))
    turns = "".join(f"<<#{one['role']}>>{one['content']}<</{one['role']}>>" for one in MESSAGES)
    written = llm.render(Template(turns + ASKED), rendering=RenderParams(seed=1))
    assert page.text == written.text
    assert page.values == written.values
    assert page.selections["label"].logp == pytest.approx(written.selections["label"].logp, abs=16 * llm.tolerance)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"role": None, "content": "x"}, "a role must be a text such as 'user', not none"),
        ({"role": " ", "content": "x"}, "a role must be a text such as 'user', not ' '"),
        ({"role": ["user"], "content": "x"}, "a role must be a text such as 'user', not a list of 1"),
        ({"roll": "user", "content": "x"}, "the mapping has no key 'role'; did you mean 'roll'?"),
    ],
)
def test_a_value_that_is_no_role_is_told_before_a_model_is_asked(message, reason):
    """Below the value in the tag."""
    with pytest.raises(TemplateError) as caught:
        Template(HISTORY + ASKED).check({"messages": [message]})
    assert (caught.value.reason, caught.value.line, caught.value.column) == (reason, 1, 32)
    assert Template(HISTORY).needs == ("messages",)


def test_a_role_that_a_slot_decides(llm):
    """It is known when its turn begins."""
    text = "<<#assistant>><<select 'next' options=['user', 'tool']>><</assistant>><<#role name=next>>x<</role>>"
    page = llm.render(Template(text), rendering=RenderParams(seed=1))
    assert page.text.endswith(f"<|im_start|>{page['next']}\nx<|im_end|>\n")
