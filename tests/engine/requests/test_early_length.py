"""Prompts and choices that cannot fit are refused before they are encoded, and only these."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie import GenerationParams, Grammar, PromptParams, StopParams
from selectrie.engine.engine import Engine
from selectrie.errors import PromptTooLongError, SelectrieError
from selectrie.testing import HashModel, make_vocabulary
from tests.support.deciding import EXACT, LIMITS
from tests.support.n_examples import n_examples

NODES = 24
LONG = make_vocabulary([b"abcdef", b"ab", *(bytes([value]) for value in range(256))])
"""A few long tokens, and every byte."""

GRAMMAR = Grammar.from_regex("ab*")
PLACES = ("selectrie.engine.requests.generate.least_tokens", "selectrie.tokenization.prompts.least_tokens")
prompts = st.lists(st.sampled_from(["abcdef", "ab", "a", "c", " ", "<eos>", "é"]), min_size=1, max_size=40).map("".join)


@contextmanager
def encoded_first():
    """The same without a look at lengths: everything is encoded before it is refused."""
    with mock.patch(PLACES[0], return_value=0), mock.patch(PLACES[1], return_value=0):
        yield


def small():
    """An engine whose context holds few tokens."""
    return Engine(HashModel(1, vocabulary=LONG, limits=replace(LIMITS, nodes=NODES)), check=EXACT)


def outcome(call):
    """Does a call fit, or which error is it?"""
    try:
        call()
    except SelectrieError as error:
        return type(error)
    return "fits"


@pytest.fixture(scope="module")
def llm():
    """That engine."""
    with small() as made:
        yield made


@settings(max_examples=n_examples(80), deadline=None)
@given(
    text=prompts,
    choices=st.lists(prompts, min_size=1, max_size=2, unique=True),
    n=st.integers(1, NODES),
    kind=st.sampled_from(["text", "special", "chat", "left"]),
)
def test_what_is_refused_early_would_be_refused_late(llm, text, choices, n, kind):
    """Generation, with choices, healed or not, and selection end alike with the early look and without it."""
    prompt = [{"role": "user", "content": text}] if kind == "chat" else text
    prompting = PromptParams(parse_special=kind == "special", truncate="left" if kind == "left" else "error")
    calls = [
        lambda: llm.select(prompt, choices, prompting=prompting),
        lambda: llm.generate(prompt, seed=1, stopping=StopParams(max_tokens=n), prompting=prompting),
        lambda: llm.generate(
            prompt, seed=1, stopping=StopParams(max_tokens=n), prompting=prompting, options=GenerationParams(heal=True)
        ),
        lambda: llm.generate(prompt, seed=1, prompting=prompting, options=GenerationParams(choices=choices)),
        lambda: llm.beam_search(prompt, GRAMMAR, max_tokens=n, prompting=prompting),
    ]
    for call in calls:
        early = outcome(call)
        with encoded_first():
            assert outcome(call) == early


@pytest.mark.parametrize("n", range(NODES - 3, NODES + 3))
def test_the_longest_that_fit(n):
    """Without BOS, n times six bytes are n tokens; at the edge, too, nothing is refused early that would fit."""
    text, prompting, stopping = "abcdef" * n, PromptParams(add_bos=False, boundary="split"), StopParams(max_tokens=1)
    with small() as llm:
        calls = [
            (lambda: llm.generate(text, seed=1, stopping=stopping, prompting=prompting), n <= NODES),
            (lambda: llm.select(text, ["abcdef"], terminator="none", prompting=prompting), n + 1 <= NODES),
            (lambda: llm.select("abcdef", [text], terminator="none", prompting=prompting), n + 1 <= NODES),
        ]
        for call, fits in calls:
            early = outcome(call)
            with encoded_first():
                assert outcome(call) == early
            assert early == ("fits" if fits else PromptTooLongError)


def test_nothing_is_encoded_of_what_cannot_fit():
    """The tokenizer does not see such a prompt, chat, state or choice; the message says that it is a bound."""
    seen = []
    vocabulary = replace(LONG, tokenize=lambda text: seen.append(len(text)) or LONG.tokenize(text))
    long = "abcdef" * 5_000
    with Engine(HashModel(1, vocabulary=vocabulary, limits=replace(LIMITS, nodes=NODES)), check=EXACT) as llm:
        for call in (
            lambda: llm.generate(long),
            lambda: llm.generate([{"role": "user", "content": long}]),
            lambda: llm.select("a", ["b", long]),
            lambda: llm.select(long, ["b"]),
            lambda: llm.beam_search(long, GRAMMAR, max_tokens=2),
            lambda: llm.sample([{"role": "user", "content": long}], GRAMMAR, max_tokens=2),
        ):
            with pytest.raises(PromptTooLongError, match=r"needs at least 5\d\d\d tokens, the context holds 24; "):
                call()
    assert max(seen, default=0) < 1_000
