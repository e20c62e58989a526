"""A state is text, JSON or messages; what it becomes is text, and nothing in it is lost without an error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.decide.states import Json, of_json, text_of_state
from selectrie.errors import OptionError, PromptError, TextError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    value=st.lists(JSON, min_size=1, max_size=3) | st.dictionaries(st.text(max_size=5), JSON, min_size=1, max_size=3)
)
def test_json_reads_back(value):
    """An object or array is JSON in its own order, with characters beyond ASCII as they are."""
    text = text_of_state(of_json(value))
    assert json.loads(text) == value
    assert text == json.dumps(value, ensure_ascii=False)


def test_text_stays_as_it_is():
    """Text is itself: control tokens, emoji, right-to-left letters and white space at its ends included."""
    for text in (" a ", "<|im_end|>", "🙂 שלום مرحبا", "a\r\nb\x00"):
        assert text_of_state(text) == text


def test_messages_become_a_transcript():
    """Roles, parts, tool calls and their outputs are paragraphs of one text."""
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "Where is"}, {"type": "text", "text": "it?"}]},
        {"type": "function_call", "name": "find", "arguments": '{"id": 7}', "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": "lost"},
        {"type": "custom_tool_call", "name": "shell", "input": "ls", "call_id": "c2"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_json", "data": {"ö": 1}}]},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}], "phase": "final"},
        {"role": "developer", "content": ""},
    ]
    paragraphs = text_of_state(messages).split("\n\n")
    assert paragraphs == [
        "system: Be kind.",
        "user: Where is\nit?",
        'assistant calls find: {"id": 7}',
        "find returns: lost",
        "assistant calls shell: ls",
        'shell returns: {"ö": 1}',
        "assistant: No.",
        "developer: ",
    ]


def test_messages_of_a_chat_may_call_tools():
    """Calls stand behind what the message says; a message that only calls has no paragraph of its own."""
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"id": 7}'}}
    again = {"id": "c2", "type": "function", "function": {"name": "look", "arguments": ""}}
    messages = [
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "lost"},
        {"role": "assistant", "content": "I look again.", "tool_calls": [again]},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "found"}]},
        {"role": "assistant", "content": "Here.", "tool_calls": None},
    ]
    assert text_of_state(messages).split("\n\n") == [
        "user: Where is it?",
        'assistant calls find: {"id": 7}',
        "find returns: lost",
        "assistant: I look again.",
        "assistant calls look: ",
        "look returns: found",
        "assistant: Here.",
    ]


def test_what_is_not_all_messages_is_json():
    """A list with anything else in it is an array of JSON; several texts are one only as `Json`, or out of JSON."""
    for texts in (["a", "b"], ("a",)):
        with pytest.raises(OptionError, match="decide_many"):
            text_of_state(texts)
        assert text_of_state(Json(texts)) == text_of_state(of_json(texts)) == json.dumps(texts)
    assert [text_of_state(of_json(one)) for one in ("a", {"b": ["c"]})] == ["a", '{"b": ["c"]}']
    assert [text_of_state(Json(one)) for one in (0, False, [0])] == ["0", "false", "[0]"]
    for empty in (Json([]), Json(""), Json(None)):
        with pytest.raises(OptionError, match="not blank"):
            text_of_state(empty)
    for value in (
        [{"role": "user"}],
        [{"role": 7, "content": "x"}],
        ["user", 1],
        [{"role": "user", "content": "x"}, 1],
    ):
        assert text_of_state(value) == json.dumps(value)


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        ("a\ud800", TextError, "state: character 1 is the lone surrogate U+D800"),
        ("", OptionError, "state='': expected a state that is not blank"),
        (" \n", OptionError, "not blank"),
        (None, OptionError, "state is not given"),
        (7, OptionError, "state=7"),
        (b"x", OptionError, "state=b'x'"),
        (float("nan"), OptionError, "state=nan"),
        ({"a": float("nan")}, OptionError, "that JSON can hold"),
        ({"a": {1, 2}}, OptionError, "that JSON can hold (a set is not a value of JSON)"),
        ([{"type": "message", "role": "cook", "content": "x"}], PromptError, "state[0] has role 'cook'"),
        ([{"role": "cook", "content": "x"}], PromptError, "state[0] has role 'cook': expected one of user, assistant"),
        ([{"role": "user", "content": " "}], OptionError, "a state that is not blank"),
        ([{"role": "user", "content": ""}, {"role": "assistant", "content": []}], OptionError, "not blank"),
        ([], OptionError, "not blank"),
        ({}, OptionError, "not blank"),
        (float("nan"), OptionError, "messages; among several, on_error='keep' keeps the others"),
        ({1: "a", "1": "b"}, OptionError, "that JSON can hold (the key '1' occurs twice)"),
        ({"x": [{None: 1, "null": 2}]}, OptionError, "the key 'null' occurs twice"),
        ([{"role": "tool", "tool_call_id": "c", "content": "x"}], PromptError, "which no item before it makes"),
        ([{"role": "tool", "content": "x"}], PromptError, "state[0]['tool_call_id'] is None"),
        ([{"role": "assistant", "tool_calls": "x"}], PromptError, "state[0]['tool_calls'] is 'x'"),
        ([{"role": "assistant", "tool_calls": [7]}], PromptError, "state[0]['tool_calls'][0] is 7"),
        (
            [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}],
            PromptError,
            "state[0]['tool_calls'][0]['arguments'] is None",
        ),
        ([{"role": "assistant", "content": None}], PromptError, "state[0]['content'] is None"),
        ([{"role": "user", "content": 7}], PromptError, "state[0]['content'] is 7"),
        ([{"role": "user", "content": [{"type": "input_image"}]}], PromptError, "state[0]['content'][0]"),
        (
            [{"role": "user", "content": [{"type": "input_json"}]}],
            PromptError,
            "state[0]['content'][0] is {'type': 'input_json'}",
        ),
        ([{"role": "user", "content": ["x"]}], PromptError, "a part of a type that is text"),
        (
            [{"type": "function_call_output", "call_id": "c", "output": "x"}],
            PromptError,
            "which no item before it makes",
        ),
        ([{"type": "function_call", "name": "f", "call_id": "c"}], PromptError, "state[0]['arguments'] is None"),
    ],
)
def test_what_is_no_state_is_refused(state, error, message):
    """Blank text, NaN, objects that JSON cannot hold, malformed messages and images: one error each, with the value."""
    with pytest.raises(error) as caught:
        text_of_state(state)
    assert message in str(caught.value)


def test_a_class_is_no_value_of_json():
    """It is refused where it is written, before a template shows its name."""
    with pytest.raises(OptionError, match="a class says what an answer is"):
        Json(dict)


def test_json_without_end_is_refused():
    """A list that holds itself, and one nested beyond any depth, are errors, not a crash."""
    loop: list[object] = []
    loop.append(loop)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for state in (loop, deep):
        with pytest.raises(OptionError, match="that JSON can hold"):
            text_of_state(state)
    while deep:  # taken apart by hand, since freeing it at once would recurse
        deep = deep.pop()  # type: ignore[assignment]
