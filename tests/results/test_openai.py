"""Sequences in OpenAI's format, from records written by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from selectrie.cli.generation import _is_chat
from selectrie.options import PromptParams
from selectrie.results import TokenScore
from selectrie.results.generation import chat_completion, finish_reason, text_completion


@dataclass(frozen=True)
class Drawn:
    """What the format reads of a `Completion`."""

    text: str
    tokens: tuple[TokenScore, ...]
    alternatives: tuple[tuple[TokenScore, ...], ...] = ()
    finish: str = "stop"
    healed: bytes = b""


def token(piece: bytes, logp: float = -1.0, spelling: str = "") -> TokenScore:
    return TokenScore(0, piece, logp, spelling)


def logprobs(one: Drawn) -> dict:
    """Those of a completion object, as JSON gives them back."""
    return json.loads(json.dumps(text_completion([one])))["choices"][0]["logprobs"]


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("eog", "stop"),
        ("stop", "stop"),
        ("callback", "stop"),
        ("automaton", "stop"),
        ("length", "length"),
        ("deadline", "length"),
    ],
)
def test_the_reason_is_length_where_there_would_be_more(finish, reason):
    """Both objects say so: out of tokens or time is "length", a text that has ended is "stop"."""
    one = Drawn("a", (token(b"a"),), finish=finish)
    assert finish_reason(finish) == reason
    for made in (text_completion([one]), chat_completion([one])):
        assert made["choices"][0]["finish_reason"] == reason


@pytest.mark.parametrize(
    ("text", "pieces", "offsets"),
    [
        ("", [], []),
        ("one two", [b"one", b" two"], [0, 3]),
        ("é!", [b"\xc3", b"\xa9", b"!"], [0, 0, 1]),  # characters, not bytes
        ("a", [b"ab", b"c", b"d"], [0, 1, 1]),  # ended by "bcd"
        ("ab", [b"ab", b""], [0, 2]),  # ended by a control token
    ],
)
def test_offsets_count_characters_of_the_text(text, pieces, offsets):
    """What is no text any more, such as a stop string, stands at its end."""
    assert logprobs(Drawn(text, tuple(map(token, pieces))))["text_offset"] == offsets


def test_alternatives_of_one_spelling_are_one():
    """The most probable is listed; the token drawn is always among them, and impossible ones have the API's least number."""
    place = (token(b"a", -0.5), token(b"\xe6", -1.0), token(b"\xe7", -2.0), token(b"", -3.0, "<eos>"))
    found = logprobs(Drawn("b", (token(b"b", -float("inf")),), (place,)))
    assert found["top_logprobs"] == [{"a": -0.5, "\N{REPLACEMENT CHARACTER}": -1.0, "<eos>": -3.0, "b": -9999.0}]
    assert list(found["top_logprobs"][0]) == ["a", "\N{REPLACEMENT CHARACTER}", "<eos>", "b"]
    assert found["token_logprobs"] == [-9999.0]


def test_a_chat_is_a_chat_where_every_prompt_is_rendered():
    """Of the command line: messages, or text with a system message; one plain prompt among them makes texts of all."""
    messages = [{"role": "user", "content": "a"}]
    plain, with_system = {"prompting": PromptParams()}, {"prompting": PromptParams(system="Be brief.")}
    assert _is_chat([messages, messages], plain)
    assert _is_chat(["a"], with_system)
    assert not _is_chat([messages, "a"], plain)
    assert not _is_chat([[1, 2]], plain)
