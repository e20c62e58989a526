"""`<<gen … json=true>>`: whatever a model writes between the quotes, the text parses as a JSON string."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import selectrie
from selectrie import RenderParams, Template
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.engine.rendering.slot_ends import json_string_end, string_body
from selectrie.errors import TemplateError
from selectrie.results import TextEvent
from selectrie.testing import HashModel, TableModel, make_vocabulary
from tests.support.n_examples import n_examples

EXACT = SelfCheck(batch_multiple=1, moved=0.0, tolerance=0.0)
ESCAPES = rb"\u \ud \\ \\\" \" \n u00 d83d \ud83d\u 3d\ud de00 DFFF a\ ab abc".split()
QUOTES = (b'",', b'"}', b'"\n', b'."', b'x": "')
CHARACTERS = (b"\n\n", b"\xf0\x9f", b"\x98\x80", "é".encode())
AWKWARD = make_vocabulary([*(bytes([byte]) for byte in range(256)), *ESCAPES, *QUOTES, *CHARACTERS])
"""Every byte, and tokens that end within escapes, surrogate pairs and characters, or hold quotes."""
BODIES = st.lists(
    st.sampled_from([*'ab\\"/u0dD8cé\n\x00\x7f\N{GRINNING FACE}', r"\u", r"\ud83d", r"\ude00", r"\n"]), max_size=8
).map("".join)


def parses(text):
    """Is this the inside of a JSON string, and no half of a surrogate pair in what it says?"""
    try:
        json.loads(f'"{text}"').encode()
    except (json.JSONDecodeError, UnicodeEncodeError):
        return False
    return True


@settings(max_examples=n_examples(200))
@given(BODIES)
@example(r"\ud83d")
@example(r"\ud83da")
@example(r"\ude00")
@example(r"\uD83D\uDE00")
def test_the_body_of_a_string_is_what_json_reads(text):
    """The grammar agrees with `json.loads`, and a broken text is cut to the longest beginning that parses."""
    assert bool(string_body().accepts(text)) == parses(text) == (json_string_end(text) == len(text))
    assert json_string_end(text) == max(n for n in range(len(text) + 1) if parses(text[:n]))


@settings(max_examples=n_examples(60), deadline=None)
@given(
    seed=st.integers(0, 999),
    most=st.integers(1, 12),
    temperature=st.sampled_from([0, 0.7, 3]),
    after=st.sampled_from(['"', '", "b": 1}', '"}', '"\n', "", "\n", " and more"]),
    stop=st.sampled_from(["", " stop='u'", " stop=['\\\\', '0', 'd8']", " stop='\"'"]),
    before=st.sampled_from(['{"a": "', '{"a": "x', "é: "]),
)
def test_what_is_written_always_parses(seed, most, temperature, after, stop, before):  # noqa: PLR0917
    """Whatever the model, the temperature, the stop texts, what follows, and wherever `max_tokens` cuts; streamed too."""
    slot = f"<<gen 'a' json=true n=2 max_tokens={most} temperature={temperature}{stop}>>"
    template, rendering = Template(before + slot + after), RenderParams(seed=seed)
    with Engine(HashModel(seed, vocabulary=AWKWARD, sharpness=3.0), check=EXACT) as engine:
        page = engine.render(template, rendering=rendering)
        events = list(engine.stream_render(template, rendering=rendering))
    assert all(map(parses, page["a"])), page["a"]
    assert page.text == before + page["a"][0] + after
    assert "".join(event.text for event in events if isinstance(event, TextEvent)) == page.text
    for one in page.selections["a"].completions:
        assert one.data.decode("utf-8", "ignore").startswith(one.text)
        assert one.finish in {"stop", "length"}


def on_table(*pieces):
    """An engine whose model writes these tokens, nearly for certain, after `"`."""
    table = {tuple(pieces[:n]): {piece: 0.99} for n, piece in enumerate(pieces)}
    return Engine(TableModel(table, prompt=("<bos>",), vocabulary=AWKWARD), check=EXACT)


@pytest.mark.parametrize(
    ("tokens", "most", "text"),
    [
        (("ab", '",'), 9, "ab"),
        (("ab", '\\"', "ab", '",'), 9, r"ab\"ab"),
        (("ab", "a\\"), 2, "aba"),
        (("ab", "\\ud83d\\u", "de00", '",'), 9, r"ab\ud83d\ude00"),
        (("ab", "\\ud83d\\u", "de00"), 2, "ab"),
        (("ab", "\\\\", '",'), 9, r"ab\\"),
    ],
)
def test_it_ends_before_the_closing_quote_and_never_within_an_escape(tokens, most, text):
    """Worked by hand: an escaped quote is text, and half an escape or half a surrogate pair is left out."""
    with on_table('"', *tokens) as engine:
        page = engine.render(Template(f"""\"<<gen 'a' json=true max_tokens={most}>>\","""))
    assert page.text == f'"{text}",'


def test_without_json_a_control_character_may_stand_there():
    """What `json=true` is for: here the model's line end breaks the string."""
    with on_table('"', "ab", "\n", "ab", '"') as engine:
        free = engine.render(Template("""\"<<gen 'a' stop='"'>>\""""))
        body = engine.render(Template("""\"<<gen 'a' json=true max_tokens=6>>\""""))
    assert not parses(free["a"])
    assert parses(body["a"])


@pytest.mark.parametrize(
    ("tag", "said"),
    [
        ("gen 'a' json=true regex='a+'", "json= and regex= both define what is allowed"),
        ("gen 'a' grammar='json' json=true", "grammar= and json= both define what is allowed"),
        ("gen 'a' json='yes'", "json='yes': expected True or False"),
        ("select 'a' json=true options=['a']", "select takes no argument 'json'"),
    ],
)
def test_what_json_cannot_stand_beside(tag, said):
    """Refused when the template is made, at its place."""
    with pytest.raises(TemplateError, match=said.replace("(", r"\(")):
        Template(f'"<<{tag}>>"')


def test_json_false_is_as_if_nothing_were_said():
    """A value may say so, too; the text parses on the embedded model, in the other dialect as well."""
    with selectrie.load() as llm:
        plain, off = (llm.render(Template(f"\"<<gen 'a' max_tokens=4{one}>>\"")) for one in ("", " json=false"))
        given_false = llm.render(Template("\"<<gen 'a' max_tokens=4 json=flag>>\""), flag=False)
        handlebars = llm.render(Template("\"{{gen 'a' max_tokens=40 json=true}}\"", dialect="handlebars"))
    assert plain.text == off.text == given_false.text
    assert isinstance(json.loads(handlebars.text), str)
