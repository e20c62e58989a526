"""Completions over HTTP: the shapes that clients of OpenAI and vLLM rely on, each by a test of its name."""

from __future__ import annotations

import asyncio
import json
import math
import socket
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("fastapi", reason="needs the extra 'server'")

import selectrie
from selectrie import GenerationParams, PromptParams, SamplingParams, StopParams
from selectrie.core.vocabulary import Tokenizing
from selectrie.engine.engine import Engine
from selectrie.server import ServerOptions, app
from selectrie.server.generation import completions
from selectrie.server.serve import Serving, _bind
from selectrie.testing import HashModel, make_vocabulary
from tests.support.deciding import BYTES, EXACT, LIMITS, fake
from tests.support.n_examples import n_examples
from tests.support.real_data import real_file
from tests.support.serving import ask, asked, running

A, B = 2 + ord("a"), 2 + ord("b")
E_ACUTE = [2 + 0xC3, 2 + 0xA9]
EXACTLY = PromptParams(add_bos=False)
LEAST = -9999.0


def complete(llm, *, status=200, options=None, **body):
    """The answer to a request."""
    reply = ask(app(llm, options or ServerOptions()), "POST", "/v1/completions", body)
    assert reply.status == status, reply.data
    return reply.json if status == 200 else reply.error


def ids_of(text):
    """The tokens of a text in the vocabulary of bytes, without BOS."""
    return [2 + byte for byte in text.encode()]


def joined(events):
    """The choices that the chunks of a stream make up, by index, and the usage."""
    choices, usage = {}, None
    for event in events:
        usage = event.get("usage") or usage
        for one in event["choices"]:
            found = choices.setdefault(one["index"], {"text": "", "logprobs": None, "finish_reason": None})
            assert found["finish_reason"] is None, "a chunk after the last"
            found["text"] += one["text"]
            if one["logprobs"] is not None:
                before = found["logprobs"] or {name: [] for name in one["logprobs"]}
                found["logprobs"] = {name: before[name] + one["logprobs"][name] for name in before}
            for name in ("token_ids", "prompt_token_ids"):
                if name in one:
                    found[name] = found.get(name, []) + one[name]
            found |= {name: one[name] for name in ("finish_reason", "stop_reason")}
    return [choices[index] for index in sorted(choices)], usage


def events_of(data):
    """The objects of a stream, which ends as it must."""
    *lines, last = [line for line in data.decode().split("\n\n") if line]
    assert last == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


# Prompts


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("ab", [[0, A, B]]),
        (["ab", "b"], [[0, A, B], [0, B]]),
        ([A, B], [[A, B]]),
        ([[A, B], [B]], [[A, B], [B]]),
        (["a", [B]], [[0, A], [B]]),
        ([0, A], [[0, A]]),
        ("<bos>a<eos>", [[0, A, 1]]),
        (["", "a"], [[0], [0, A]]),
        ("", [[0]]),
        (None, [[0]]),
    ],
    ids=str,
)
def test_every_form_of_a_prompt(prompt, expected):
    """Ids are taken as they are; text gets the model's own BOS once, and control tokens are read in it."""
    with fake() as llm:
        found = complete(llm, prompt=prompt, max_tokens=1, return_token_ids=True)
        assert [one["prompt_token_ids"] for one in found["choices"]] == expected
        assert [one["index"] for one in found["choices"]] == list(range(len(expected)))
        assert found["usage"]["prompt_tokens"] == sum(map(len, expected))
        wanted = llm.generate(expected, seed=7, stopping=StopParams(max_tokens=4), prompting=EXACTLY)
        drawn = complete(llm, prompt=prompt, max_tokens=4, seed=7, top_k=40, top_p=0.95, min_p=0.05, temperature=0.8)
        assert [one["text"] for one in drawn["choices"]] == list(wanted.texts)


def test_a_missing_prompt_is_the_empty_one():
    """The text after BOS, as OpenAI's starts a new document."""
    with fake() as llm:
        assert complete(llm, seed=1)["choices"] == complete(llm, prompt="", seed=1)["choices"]


def test_an_empty_prompt_needs_a_bos():
    """Without one nothing predicts the first token: 400, which names the field and what to do."""
    with fake(bos=None) as llm:
        for prompt in ({}, {"prompt": None}, {"prompt": ""}):
            error = complete(llm, status=400, **prompt)
            assert (error["code"], error["param"]) == ("prompt", "prompt")
            assert "no BOS" in error["message"]
        assert complete(llm, status=400, prompt=["a", ""])["param"] == "prompt[1]"
        assert complete(llm, prompt="a", return_token_ids=True)["choices"][0]["prompt_token_ids"] == [A]
    with fake() as llm:
        assert complete(llm, status=400, prompt="", add_special_tokens=False)["param"] == "prompt"


def test_bos_is_left_out_on_request():
    """By vLLM's `add_special_tokens`."""
    with fake() as llm:
        found = complete(llm, prompt="ab", add_special_tokens=False, return_token_ids=True, echo=True)["choices"][0]
        assert found["prompt_token_ids"] == [A, B]
        assert found["text"].startswith("ab")


def test_control_tokens_of_a_prompt_are_read_unless_told_otherwise(embedded):
    """As vLLM and lm-eval have it, with a warning; `parse_special` says it, and then nothing is warned of."""
    text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    with selectrie.load(embedded, n_threads=1) as llm:
        plain, special = (llm.encode(text, prompting=PromptParams(parse_special=one)).tolist() for one in (False, True))
        assert len(special) < len(plain)
        for given, expected in (({}, special), ({"parse_special": True}, special), ({"parse_special": False}, plain)):
            answer = complete(llm, prompt=[text, "Hi"], max_tokens=1, return_token_ids=True, **given)
            assert answer["choices"][0]["prompt_token_ids"] == expected
            assert ("warnings" in answer) == (not given)
        [warning] = complete(llm, prompt=text, max_tokens=0, echo=True, logprobs=0)["warnings"]
        assert warning == (
            "the prompt spells '<|im_start|>', '<|im_end|>', which are read as control tokens; "
            "parse_special=false reads them as text"
        )
        assert "warnings" not in complete(llm, prompt=special, max_tokens=1)


@pytest.mark.parametrize(
    ("prompt", "k", "expected", "text"),
    [
        ("abab", 3, [0, A, B], "ab"),
        ("abab", 1, [0], ""),
        ("abab", 9, [0, A, B, A, B], "abab"),
        ([A, B, A], 2, [B, A], "ba"),
        ([A, B, A], -1, [B, A], "ba"),
        ("aaab", -1, [0, B], "b"),
    ],
    ids=str,
)
def test_a_prompt_is_cut_to_its_last_tokens(prompt, k, expected, text):
    """By `truncate_prompt_tokens`: the BOS that was added stays, and -1 leaves as much as the context has room for."""
    with fake(nodes=5) as llm:
        how = {"truncate_prompt_tokens": k, "max_tokens": 4 if k < 0 else 1}
        found = complete(llm, prompt=prompt, echo=True, return_token_ids=True, **how)["choices"][0]
    assert found["prompt_token_ids"] == expected
    assert found["text"].startswith(text)
    assert len(found["text"]) - len(text) <= how["max_tokens"]


# Echo


def check_entries(llm, choice, ids, k, *, n_drawn, how):
    """The lists of a choice are those of the engine, to the last bit, on the same state of the cache."""
    llm.trim()
    [scored] = llm.prompt_logprobs([ids], top=k)
    drawn = (
        [] if not n_drawn else llm.generate([ids], prompting=EXACTLY, options=GenerationParams(n_alternatives=k), **how)
    )
    tokens = [*ids, *(one.id for whole in drawn for one in whole.tokens)]
    lists = choice["logprobs"]
    assert {len(values) for values in lists.values()} == {len(tokens)}
    own = [*scored.logp, *(one.logp for whole in drawn for one in whole.tokens)]
    assert lists["token_logprobs"] == own
    steps = [step for whole in drawn for step in whole.alternatives or ((),) * len(whole.tokens)]
    tops = [*scored.top, *([(one.id, one.logp) for one in step] for step in steps)]
    for token, logp, top, found in zip(tokens, own, tops, lists["top_logprobs"], strict=True):
        if logp is None:
            assert found is None
            continue
        assert set(top) <= {(int(name.removeprefix("token_id:")), value) for name, value in found.items()}
        assert found[f"token_id:{token}"] == logp
        assert len(found) <= k + 1


@pytest.mark.parametrize("n_drawn", [0, 1, 5])
@pytest.mark.parametrize("k", [0, 1, 4])
def test_echoed_values_are_the_engines(n_drawn, k):
    """The first is null, then one for each further prompt token, then those that were drawn; also with `max_tokens: 0`."""
    ids = [0, *ids_of("Once é"), 1, A]
    how = {"seed": 3, "sampling": SamplingParams.UNCHANGED, "stopping": StopParams(max_tokens=max(1, n_drawn))}
    with fake() as llm:
        body = {"prompt": ids, "max_tokens": n_drawn, "seed": 3, "return_tokens_as_token_ids": True}
        answer = complete(llm, **body, echo=True, logprobs=k)
        [choice] = answer["choices"]
        assert choice["logprobs"]["token_logprobs"][0] is None
        assert choice["logprobs"]["top_logprobs"][0] is None
        assert answer["usage"]["completion_tokens"] == n_drawn
        check_entries(llm, choice, ids, k, n_drawn=n_drawn, how=how)
        if not n_drawn:
            assert (choice["finish_reason"], choice["text"]) == ("length", "<bos>Once é<eos>a")


def test_the_comparison_with_the_engine_can_fail():
    """A bit of one value, or an entry too many, is noticed."""
    with fake() as llm:
        [choice] = complete(
            llm, prompt=[0, A, B], max_tokens=0, echo=True, logprobs=2, return_tokens_as_token_ids=True
        )["choices"]
        how = {"n_drawn": 0, "how": {}}
        check_entries(llm, choice, [0, A, B], 2, **how)
        lists = choice["logprobs"]
        moved = np.nextafter(lists["token_logprobs"][1], 0)
        for changes in (
            {"token_logprobs": [None, moved, lists["token_logprobs"][2]]},
            {"tokens": [*lists["tokens"], "x"]},
        ):
            with pytest.raises(AssertionError):
                check_entries(llm, {"logprobs": {**lists, **changes}}, [0, A, B], 2, **how)


def test_what_lm_eval_slices():
    """One prompt of ids with `max_tokens: 1`: exactly len(prompt) + 1 entries, whose [n:-1] are the continuation's."""
    context, continuation = [A, B, A], [B, B]
    with fake() as llm:
        body = {
            "model": "m",
            "prompt": [[*context, *continuation], [A]],
            "temperature": 0,
            "max_tokens": 1,
            "seed": 1234,
        }
        first, second = complete(llm, **body, logprobs=1, echo=True)["choices"]
        values = first["logprobs"]["token_logprobs"]
        assert [len(one["logprobs"]["token_logprobs"]) for one in (first, second)] == [6, 2]
        [scored] = llm.prompt_logprobs([[*context, *continuation]])
        assert values[len(context) : -1] == list(scored.logp[len(context) :])
        for own, top, is_greedy in zip(
            values[1:-1], first["logprobs"]["top_logprobs"][1:-1], scored.is_greedy[1:], strict=True
        ):
            assert (own == max(top.values())) == is_greedy


def test_what_an_answer_took_is_counted():
    """A prompt that is scored and continued is evaluated once, and so it counts one by one."""
    for n_drawn, rows in ((0, 3), (1, 4), (3, 6)):
        with fake() as llm:
            application = app(llm)
            body = {"prompt": [[0, A, B, A]], "echo": True, "logprobs": 1, "max_tokens": n_drawn, "ignore_eos": True}
            assert ask(application, "POST", "/v1/completions", body).status == 200
            counted = ask(application, "GET", "/metrics").data.decode()
            for name in ('rows_total{kind="new"}', "rows_one_by_one_total"):
                assert f"selectrie_{name} {rows}.0" in counted, (n_drawn, counted)
            assert llm._model.rows == rows


def test_an_end_of_generation_counts_as_an_entry():
    """The token that ends a text is listed and is no part of the text."""
    row = np.full(258, -np.inf)
    row[1] = 0.0
    with fake(planted={(A,): row}) as llm:
        [choice] = complete(llm, prompt=[A], echo=True, logprobs=1, max_tokens=9)["choices"]
    assert choice["text"] == "a"
    assert choice["logprobs"]["tokens"] == ["a", "<eos>"]
    assert choice["logprobs"]["text_offset"] == [0, 1]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", None)


def test_an_echo_without_logprobs_has_none():
    """No row is read for it: the model is asked for the prompt once."""
    with fake() as llm:
        [choice] = complete(llm, prompt="abc", echo=True, max_tokens=0)["choices"]
        assert (choice["text"], choice["logprobs"]) == ("abc", None)
        assert llm._model.calls == 0


def test_impossible_tokens_are_sent_as_a_number():
    """JSON has no infinity: -9999.0, as OpenAI and vLLM send it."""
    row = np.full(258, -np.inf)
    row[A] = 0.0
    with fake(planted={(0,): row}) as llm:
        how = {"echo": True, "max_tokens": 0, "logprobs": 2, "prompt_logprobs": 2}
        [choice] = complete(llm, prompt="b", **how)["choices"]
    assert choice["logprobs"]["token_logprobs"] == [None, LEAST]
    assert choice["logprobs"]["top_logprobs"] == [None, {"a": 0.0, "b": LEAST}]
    own = {"logprob": LEAST, "rank": None, "decoded_token": "b"}
    assert choice["prompt_logprobs"] == [
        None,
        {str(B): own, str(A): {"logprob": 0.0, "rank": 1, "decoded_token": "a"}},
    ]


# Texts and places of tokens


def test_of_two_tokens_with_one_text_the_larger_value_stays():
    """A dictionary by text cannot hold both; with ids as names it can."""
    vocabulary = make_vocabulary([b"a", b"a", b"b"])
    row = np.log([1e-9, 1e-9, 0.2, 0.5, 0.3 - 2e-9])
    how = {"prompt": [[0, 2]], "logprobs": 3, "max_tokens": 0, "echo": True}
    with Engine(HashModel(1, vocabulary=vocabulary, limits=LIMITS, planted={(0,): row}), check=EXACT) as llm:
        [choice] = complete(llm, **how)["choices"]
        [by_id] = complete(llm, **how, return_tokens_as_token_ids=True)["choices"]
    own = choice["logprobs"]["token_logprobs"][1]
    assert own == pytest.approx(math.log(0.2))
    assert choice["logprobs"]["top_logprobs"][1] == {
        "a": pytest.approx(math.log(0.5)),
        "b": pytest.approx(math.log(0.3)),
    }
    assert by_id["logprobs"]["tokens"] == ["token_id:0", "token_id:2"]
    top = by_id["logprobs"]["top_logprobs"][1]
    assert list(top) == ["token_id:3", "token_id:4", "token_id:2"]
    assert top["token_id:2"] == own


def test_the_drawn_token_is_among_the_most_probable():
    """Also where it is none of them, with the value that it has beside them."""
    with fake() as llm:
        [choice] = complete(llm, prompt="a", logprobs=1, seed=1, logit_bias={str(B): 100})["choices"]
    lists = choice["logprobs"]
    assert lists["tokens"][0] == "b"
    for token, own, top in zip(lists["tokens"], lists["token_logprobs"], lists["top_logprobs"], strict=True):
        assert top[token] == own
        assert len(top) == 2


@pytest.mark.parametrize(
    ("prompt", "text", "tokens", "offsets"),
    [
        ("é€", "é€", ["<bos>", *[f"bytes:\\x{b:02x}" for b in "é€".encode()]], [0, 0, 0, 1, 1, 1]),
        ([0, A, 1, B], "<bos>a<eos>b", ["<bos>", "a", "<eos>", "b"], [0, 5, 6, 11]),
        ("a<eos>b", "a<eos>b", ["<bos>", "a", "<eos>", "b"], [0, 0, 1, 6]),
        ("<bos>a", "<bos>a", ["<bos>", "a"], [0, 5]),
        ([2 + 0xC3, A], "\ufffda", ["bytes:\\xc3", "a"], [0, 1]),
        ([A, 2 + 0xC3], "a\ufffd", ["a", "bytes:\\xc3"], [0, 1]),
        ([2 + 0xA9, *E_ACUTE, A], "\ufffdéa", ["bytes:\\xa9", "bytes:\\xc3", "bytes:\\xa9", "a"], [0, 1, 1, 2]),
        ([2 + 0xE2, 2 + 0x82, 1], "\ufffd<eos>", ["bytes:\\xe2", "bytes:\\x82", "<eos>"], [0, 0, 1]),
    ],
    ids=ascii,
)
def test_places_are_counted_in_characters_of_the_text(prompt, text, tokens, offsets):
    """Control tokens are shown by their names, except a BOS that was added; tokens within a character have its place."""
    with fake() as llm:
        [choice] = complete(llm, prompt=prompt, echo=True, max_tokens=0, logprobs=0)["choices"]
    assert choice["text"] == text
    assert choice["logprobs"]["tokens"] == tokens
    assert choice["logprobs"]["text_offset"] == offsets


def place_of(data, at):
    """The slow way: the number of the character that a byte lies in, broken ones being those that Python replaces."""
    place = start = 0
    while start < len(data):
        try:
            end = start + len(data[start:].decode()[0].encode())
        except UnicodeDecodeError as error:
            end = start + (
                error.end if error.start == 0 else len(data[start : start + error.start].decode()[0].encode())
            )
        if at < end:
            return place
        place, start = place + 1, end
    return place


BYTE_IDS = st.sampled_from([A, *E_ACUTE, 2 + 0xE2, 2 + 0x82, 2 + 0xAC, 2 + 0xF0, 2 + 0x9F, 2 + 0xFF, 0, 1])


@settings(max_examples=n_examples(60), deadline=None)
@given(ids=st.lists(BYTE_IDS, min_size=1, max_size=8), after=st.lists(BYTE_IDS, max_size=5))
def test_places_are_those_of_the_bytes(ids, after):
    """Of any tokens, whole characters or not, echoed and drawn: a token's place is the character of its first byte."""
    planted = {}
    for index, token in enumerate(after):
        planted[(*ids, *after[:index])] = np.where(np.arange(258) == token, 0.0, -np.inf)
    with fake(planted=planted) as llm:
        how = {"max_tokens": len(after), "temperature": 0, "return_token_ids": True}
        [choice] = complete(llm, prompt=ids, echo=True, logprobs=0, **how)["choices"]
        streamed, _ = joined(events_of(stream_of(llm, prompt=ids, echo=True, logprobs=0, **how)))
        [alone] = complete(llm, prompt=ids, logprobs=0, **how)["choices"]
    drawn = choice["token_ids"]
    assert after[: len(drawn)] == drawn
    shown = [BYTES.pieces[token] or BYTES.texts[token].encode() for token in ids]
    pieces = [BYTES.pieces[token] for token in drawn]
    before = b"".join(shown)
    stream = before + b"".join(pieces)
    n_cut = next((n for n in (3, 2, 1) if is_beginning(stream[-n:]) and len(stream) - n >= len(before)), 0)
    assert choice["text"] == stream[: len(stream) - n_cut].decode("utf-8", "replace")
    starts = np.cumsum([0, *map(len, [*shown, *pieces])])[:-1].tolist()
    offsets = choice["logprobs"]["text_offset"]
    for piece, at, found in zip([*shown, *pieces], starts, offsets, strict=True):
        assert not piece or found == min(place_of(stream, at), len(choice["text"]))
    assert offsets == sorted(offsets)
    assert all(offset <= len(choice["text"]) for offset in offsets)
    assert [{**choice, "index": 0}] == [{**one, "index": 0} for one in streamed]
    places = places_after(before, pieces)
    for piece, place, found in zip(pieces, places, alone["logprobs"]["text_offset"] if drawn else [], strict=True):
        assert not piece or found == min(place, len(alone["text"]))


@pytest.mark.parametrize(
    ("drawn", "echoed", "alone", "offsets"),
    [
        ([0x8A], "x\U0001f98a", "\U0001f98a", [0, 1, 1, 1, 1]),
        ([ord("y")], "x\ufffdy", "y", [0, 1, 1, 1, 2]),
        ([0xC3], "x\ufffd", "", [0, 1, 1, 1, 2]),
        ([0x8A, 0xC3], "x\U0001f98a", "\U0001f98a", [0, 1, 1, 1, 1, 2]),
    ],
    ids=["completed", "broken off", "broken off by another", "an unfinished one is left out"],
)
def test_a_prompt_that_ends_inside_a_character(drawn, echoed, alone, offsets):
    """Prompt and text are one run of bytes, so no byte is shown twice; what is drawn ends with a whole character."""
    ids, drawn = [2 + byte for byte in b"x\xf0\x9f\xa6"], [2 + byte for byte in drawn]
    planted = {}
    for index, token in enumerate(drawn):
        planted[(*ids, *drawn[:index])] = np.where(np.arange(258) == token, 0.0, -np.inf)
    with fake(planted=planted) as llm:
        how = {"prompt": ids, "max_tokens": len(drawn), "temperature": 0, "logprobs": 0}
        [choice] = complete(llm, echo=True, **how)["choices"]
        assert (choice["text"], choice["logprobs"]["text_offset"]) == (echoed, offsets)
        [streamed], _ = joined(events_of(stream_of(llm, echo=True, **how)))
        assert streamed["text"] == echoed
        assert complete(llm, **how)["choices"][0]["text"] == alone
        options = {"stopping": StopParams(max_tokens=len(drawn)), "sampling": SamplingParams.GREEDY}
        assert list(llm.generate([ids], prompting=EXACTLY, **options).texts) == [alone]
        assert complete(llm, **{**how, "max_tokens": 0}, echo=True)["choices"][0]["text"] == "x\ufffd"


def places_after(before, pieces):
    """The places of drawn tokens in their own text, which has a character that the prompt began whole or not at all."""
    tail = next((before[-n:] for n in (3, 2, 1) if is_beginning(before[-n:])), b"")
    data = tail + b"".join(pieces)
    starts = np.cumsum([len(tail), *map(len, pieces)])[: len(pieces)].tolist()
    is_dropped = bool(tail) and not is_beginning(data) and data.decode("utf-8", "replace")[0] == "\ufffd"
    return [max(0, place_of(data, at) - is_dropped) for at in starts]


def is_beginning(data):
    """Do some further bytes make the data one character?"""
    filled = [data + filler * n for filler in (b"\x80", b"\xbf", b"\x90") for n in (1, 2, 3)]
    return bool(data) and any(len(one.decode("utf-8", "replace")) == 1 for one in filled)


def test_the_slow_way_to_count_places():
    """The comparison rests on it."""
    assert places_after(b"a\xf0", [b"\x9f", b"a", b"b"]) == [0, 0, 1]
    assert places_after(b"a\xc3", [b"\xa9", b"a"]) == [0, 1]
    assert places_after(b"a\xc3", [b"\xc3", b"\xc3", b"a"]) == [0, 1, 2]
    assert places_after(b"ab", [b"\xc3", b"a"]) == [0, 1]
    data = "aé".encode() + b"\xe2\x82" + "€".encode() + b"\xff"
    assert [place_of(data, at) for at in range(len(data) + 1)] == [0, 1, 1, 2, 2, 3, 3, 3, 4, 5]


@pytest.mark.parametrize(
    "prompt", [[A] * 200, "a" * 1_000, ["b", "ab" * 500], ["b", [A] * 200]], ids=["ids", "text", *"ab"]
)
def test_a_prompt_that_cannot_fit_is_not_tokenized(prompt):
    """Its bytes or ids say so; one token less than does not fit is evaluated."""

    def tokenize(text):
        assert len(text) < 100
        return [2 + byte for byte in text]

    byte_by_byte = {"tokenize": tokenize, "examine": lambda _: Tokenizing(altered=frozenset())}
    with fake(nodes=100, **byte_by_byte) as llm:
        error = complete(llm, status=400, prompt=prompt, max_tokens=0)
        assert (error["code"], error["param"]) == ("prompt_too_long", "prompt[1]" if prompt[0] == "b" else "prompt")
        assert (
            "needs at least 199 tokens, the context holds 100; shorten `prompt`, set truncate_prompt_tokens=-1"
            in error["message"]
        )
        assert llm._model.calls == 0
        assert complete(llm, prompt=[A] * 101, max_tokens=0, echo=True, logprobs=0)["usage"]["prompt_tokens"] == 101


def test_many_prompts_are_counted_before_they_are_tokenized():
    """Their bytes and ids say how many tokens they have at least; `n` scored copies count, dropped tokens do not."""
    seen = []
    byte_by_byte = {"tokenize": seen.append, "examine": lambda _: Tokenizing(altered=frozenset())}
    options = ServerOptions(max_prompts=10_000, max_rows=9_000)
    with fake(nodes=100, **byte_by_byte) as llm:
        for body in (
            {"prompt": ["a" * 90] * 501},  # a token has at most five bytes, those of `<eos>`
            {"prompt": [[A] * 90] * 101},
            {"prompt": ["a" * 90, [A] * 90] * 42, "n": 2, "echo": True, "logprobs": 0},
            {"prompt": [[A] * 95] * 101, "truncate_prompt_tokens": 90},
        ):
            error = complete(llm, status=400, options=options, max_tokens=0, **body)
            assert (error["code"], error["param"]) == ("too_many_rows", "prompt")
            assert "has at least 90" in error["message"]
        error = complete(llm, status=400, options=options, prompt=[[A]] * 9_001, max_tokens=0)
        assert (error["code"], error["param"]) == ("too_many_rows", "prompt")
        assert not seen


@settings(max_examples=n_examples(60), deadline=None)
@given(
    prompts=st.lists(
        st.one_of(st.text("ab<eos>é", min_size=1, max_size=12), st.lists(st.just(A), min_size=1, max_size=12)),
        min_size=1,
        max_size=6,
    ),
    truncate=st.sampled_from([None, -1, 3, 9]),
    n=st.integers(1, 3),
    max_rows=st.integers(6, 60),
)
def test_what_is_counted_early_would_be_refused_late(prompts, truncate, n, max_rows):
    """Without the early count the answer is the same: the same status, code and field."""
    options, body = ServerOptions(max_rows=max_rows), {"max_tokens": 0, "echo": True, "logprobs": 0}
    body |= {"prompt": prompts, "truncate_prompt_tokens": truncate, "n": n}
    replies = []
    with fake(nodes=8) as llm:
        for check in (completions._check_lengths, lambda *_: None):
            with mock.patch.object(completions, "_check_lengths", check):
                replies.append(ask(app(llm, options), "POST", "/v1/completions", body))
    early, late = replies
    assert early.status == late.status
    if early.status != 200:
        assert early.error["code"] in {"too_many_rows", "prompt_too_long"}
        assert late.error["code"] in {"too_many_rows", "prompt_too_long"}


# vLLM's fields


def test_prompt_logprobs_are_those_of_vllm():
    """Null first, then by id: the token itself and the most probable ones, with ranks and texts."""
    with fake() as llm:
        [choice] = complete(llm, prompt="ab", prompt_logprobs=3, max_tokens=1)["choices"]
        assert choice["logprobs"] is None
        [scored] = llm.prompt_logprobs([[0, A, B]], top=3)
        for k in (1, 5):
            [other] = complete(llm, prompt="ab", prompt_logprobs=3, max_tokens=0, echo=True, logprobs=k)["choices"]
            assert other["prompt_logprobs"] == choice["prompt_logprobs"]
            assert [len(top) for top in other["logprobs"]["top_logprobs"][1:]] == [k + 1] * 2
    first, *rest = choice["prompt_logprobs"]
    assert first is None
    for token, logp, top, found in zip((A, B), scored.logp[1:], scored.top[1:], rest, strict=True):
        assert next(iter(found)) == str(token)
        assert found[str(token)]["logprob"] == logp
        for rank, (other, value) in enumerate(top, 1):
            assert (found[str(other)]["rank"], found[str(other)]["logprob"]) == (rank, value)
        assert len(found) == len({token, *(other for other, _ in top)})


def test_named_tokens_have_their_values():
    """`logprob_token_ids` at each drawn position in place of the most probable ones, and beside them in the echo."""
    with fake() as llm:
        how = {"return_tokens_as_token_ids": True, "max_tokens": 2, "seed": 1, "logprob_token_ids": [A, B, A]}
        [choice] = complete(llm, prompt=[0, A], echo=True, logprobs=2, **how)["choices"]
        llm.trim()
        [scored] = llm.prompt_logprobs([[0, A]], top=2, named=[A, B])
        drawn = llm.generate(
            [[0, A]],
            seed=1,
            sampling=SamplingParams.UNCHANGED,
            stopping=StopParams(max_tokens=2),
            prompting=EXACTLY,
            options=GenerationParams(named=[A, B]),
        )[0]
    _, echoed, *rest = choice["logprobs"]["top_logprobs"]
    named = dict(zip((A, B), scored.named[1], strict=True))
    assert echoed == {f"token_id:{one}": value for one, value in {**dict(scored.top[1]), **named}.items()}
    for token, values, found in zip(drawn.tokens, drawn.named, rest, strict=True):
        expected = {A: values[0], B: values[1], token.id: token.logp}
        assert found == {f"token_id:{one}": value for one, value in expected.items()}


def test_ids_come_back():
    """`return_token_ids`: those of the prompt, and those that were drawn."""
    with fake() as llm:
        [choice] = complete(llm, prompt="ab", max_tokens=3, seed=2, return_token_ids=True, ignore_eos=True)["choices"]
        wanted = llm.generate(
            "ab", seed=2, sampling=SamplingParams.UNCHANGED, stopping=StopParams(max_tokens=3, ignore_eog=True)
        )
    assert choice["prompt_token_ids"] == [0, A, B]
    assert choice["token_ids"] == [one.id for one in wanted[0].tokens]


def test_a_request_may_name_itself():
    """By `request_id`, cut to what a header can hold."""
    with fake() as llm:
        reply = ask(app(llm), "POST", "/v1/completions", {"prompt": "a", "request_id": "my\nid-7" + "x" * 200})
    assert reply.json["id"] == "cmpl-" + ("myid-7" + "x" * 200)[:128]
    assert reply.headers["x-request-id"] == reply.json["id"].removeprefix("cmpl-")


def test_a_lower_priority_goes_first(monkeypatch):
    """As in vLLM, where the operator allows it; in the engine the higher number does."""
    seen = []
    with fake() as llm:
        run = Engine._run

        def noted(self, *args, **named):
            seen.append(named["priority"])
            return run(self, *args, **named)

        monkeypatch.setattr(Engine, "_run", noted)
        complete(llm, options=ServerOptions(allow_priority=True), prompt="ab", priority=3, echo=True, logprobs=1)
    assert seen == [-3, -3]


# Choices


def test_choices_are_numbered_prompt_by_prompt():
    """Choice i of prompt p is number p·n + i, with the seed plus i."""
    with fake() as llm:
        found = complete(llm, prompt=["a", "b"], n=3, seed=5, max_tokens=4)
        wanted = llm.generate(
            ["a", "b"], n=3, seed=5, sampling=SamplingParams.UNCHANGED, stopping=StopParams(max_tokens=4)
        )
    assert [one["index"] for one in found["choices"]] == list(range(6))
    assert [one["text"] for one in found["choices"]] == list(wanted.texts)
    assert found["usage"] == {
        "prompt_tokens": 4,
        "completion_tokens": wanted.n_drawn,
        "total_tokens": 4 + wanted.n_drawn,
    }


def test_the_best_of_several_is_returned():
    """And all that were drawn count in the usage."""
    with fake() as llm:
        found = complete(llm, prompt="a", best_of=5, n=2, seed=5, max_tokens=4, ignore_eos=True)
        wanted = llm.generate(
            "a",
            n=2,
            seed=5,
            sampling=SamplingParams.UNCHANGED,
            stopping=StopParams(max_tokens=4, ignore_eog=True),
            options=GenerationParams(best_of=5),
        )
    assert [one["text"] for one in found["choices"]] == list(wanted.texts)
    assert found["usage"]["completion_tokens"] == 20


def test_what_is_not_said_is_as_openai_has_it():
    """At most 16 tokens, from the model's own distribution; temperature 0 is greedy."""
    with fake() as llm:
        found = complete(llm, prompt="a", seed=9)
        plain = StopParams(max_tokens=16)
        wanted = llm.generate("a", seed=9, sampling=SamplingParams.UNCHANGED, stopping=plain)
        assert found["choices"][0]["text"] == wanted.texts[0]
        greedy = llm.generate("a", sampling=SamplingParams.GREEDY, stopping=plain)
        assert complete(llm, prompt="a", temperature=0)["choices"][0]["text"] == greedy.texts[0]
        assert found["object"] == "text_completion"
        assert found["model"] == llm.identity.name


def test_how_a_text_ends():
    """`finish_reason` is "stop" or "length", and vLLM's `stop_reason` says by which text or token."""
    planted = {}
    for index in range(6):
        planted[(0, *ids_of("abcdef"[:index]))] = np.where(np.arange(258) == ids_of("abcdef")[index], 0.0, -np.inf)
    with fake(planted=planted) as llm:
        for how, text, reason, cause in (
            ({"max_tokens": 3}, "abc", "length", None),
            ({"stop": "cd"}, "ab", "stop", "cd"),
            ({"stop": ["e", "cd", "f"]}, "ab", "stop", "cd"),
            ({"stop_token_ids": [A + 3]}, "abc", "stop", A + 3),
            ({"stop": ["b", "f"], "min_tokens": 3}, "abcde", "stop", "f"),
        ):
            [choice] = complete(llm, prompt="", temperature=0, logprobs=0, **{"max_tokens": 6, **how})["choices"]
            assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (text, reason, cause), how
            assert max(choice["logprobs"]["text_offset"]) <= len(text)
            assert len(choice["logprobs"]["tokens"]) >= len(text)


# Streams


def stream_of(llm, **body):
    """What is sent for a request of a stream."""
    reply = ask(app(llm), "POST", "/v1/completions", {**body, "stream": True})
    assert (reply.status, reply.headers["content-type"].partition(";")[0]) == (200, "text/event-stream"), reply.data
    return reply.data


@settings(max_examples=n_examples(40), deadline=None)
@given(
    prompt=st.sampled_from(["a", ["a", "éb"], [[A], [0, *E_ACUTE[:1]], [1]]]),
    n=st.integers(1, 3),
    how=st.fixed_dictionaries(
        {"seed": st.integers(0, 9), "max_tokens": st.integers(0, 6)},
        optional={
            "echo": st.booleans(),
            "logprobs": st.integers(0, 2),
            "return_token_ids": st.booleans(),
            "stop": st.sampled_from(["a", ["\x00", "b"]]),
            "top_k": st.sampled_from([3, 20]),
            "return_tokens_as_token_ids": st.booleans(),
            "logprob_token_ids": st.just([A, B]),
        },
    ).map(lambda how: {"logprobs": 0, **how} if "logprob_token_ids" in how else how),
)
def test_a_stream_is_the_whole_answer_in_pieces(prompt, n, how):
    """Texts, lists over tokens, ids, reasons and usage of each choice add up to those of the answer at once."""
    with fake() as llm:
        whole = complete(llm, prompt=prompt, n=n, **how)
        events = events_of(stream_of(llm, prompt=prompt, n=n, **how, stream_options={"include_usage": True}))
    choices, usage = joined(events)
    for one, found in zip(whole["choices"], choices, strict=True):
        one.pop("index")
        assert found == one
    assert usage == whole["usage"]
    assert events[-1]["choices"] == []
    assert all(event["usage"] is None for event in events[:-1])
    assert len({event["id"] for event in events}) == 1


def test_a_stream_without_its_options_has_no_usage():
    """And its first chunk says what was ignored."""
    with fake() as llm:
        events = events_of(stream_of(llm, prompt="a", stranger=1))
    assert "usage" not in events[0]
    assert events[0]["warnings"] == ["the field 'stranger' is unknown and was ignored"]
    assert all("warnings" not in event for event in events[1:])


def test_a_client_that_leaves_ends_the_work():
    """Within one model call; nothing stays in the queue."""

    async def left(llm):
        leave = asyncio.Event()

        async def reads(reply, _message):
            if reply.data.count(b"data: ") > 4:
                leave.set()

        body = {"prompt": ["a", "b"], "n": 2, "max_tokens": 20_000, "ignore_eos": True, "stream": True, "echo": True}
        await asked(app(llm), "POST", "/v1/completions", body, leave=leave, on_send=reads)

    with fake() as llm:
        asyncio.run(left(llm))
        assert any(llm._model_thread.call(lambda: llm._model_thread.scheduler.idle) for _ in range(5))
        assert llm._model.calls < 20_000


# What is refused


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("use_beam_search", True),
        ("length_penalty", 0.5),
        ("suffix", "b"),
        ("prompt_embeds", "AAAA"),
        ("truncation_side", "right"),
        ("stream_interval", 8),
        ("kv_transfer_params", {"a": 1}),
        ("bad_words", ["a"]),
        ("allowed_token_ids", [3]),
    ],
)
def test_what_is_not_offered_is_named(name, value):
    """400 `unsupported` with the field, never ignored."""
    with fake() as llm:
        error = complete(llm, status=400, prompt="a", **{name: value})
        assert (error["code"], error["param"]) == ("unsupported", name)
        assert llm._model.calls == 0


def test_of_several_fields_that_are_not_offered_the_first_of_the_table_is_named():
    """So the error does not depend on the order in which a client writes its fields."""
    fields = {"allowed_token_ids": [3], "length_penalty": 0.5, "use_beam_search": True}
    with fake() as llm:
        for name in reversed([*fields]):
            assert complete(llm, status=400, prompt="a", **fields)["param"] == name
            fields.pop(name)


def test_fields_that_ask_for_nothing_are_taken():
    """Null, and the values that clients send by default."""
    nothing = {"suffix": None, "response_format": {"type": "text"}, "use_beam_search": False, "length_penalty": 1.0}
    with fake() as llm:
        for named in (None, []):
            found = complete(
                llm,
                prompt="a",
                user="me",
                stop=None,
                logprobs=None,
                logprob_token_ids=named,
                stream_options=None,
                **nothing,
            )
            assert "warnings" not in found
            assert found["choices"][0]["logprobs"] is None


def test_unknown_fields_are_listed():
    """In `warnings`, and ignored."""
    with fake() as llm:
        assert complete(llm, prompt="a", x=1)["warnings"] == ["the field 'x' is unknown and was ignored"]


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"prompt": 7}, "prompt"),
        ({"prompt": {}}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": ["a", 7]}, "prompt[1]"),
        ({"prompt": [A, "a"]}, "prompt[1]"),
        ({"prompt": [[A, True]]}, "prompt[0][1]"),
        ({"prompt": [[A, -1]]}, "prompt[0][1]"),
        ({"prompt": [A, 1.5]}, "prompt[1]"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"echo": 1}, "echo"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs": 21}, "logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"logprob_token_ids": [A]}, "logprob_token_ids"),
        ({"logprob_token_ids": {}, "logprobs": 1}, "logprob_token_ids"),
        ({"logprob_token_ids": list(range(129)), "logprobs": 1}, "logprob_token_ids"),
        ({"logprob_token_ids": ["a"], "logprobs": 1}, "logprob_token_ids[0]"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        ({"add_special_tokens": 1}, "add_special_tokens"),
        ({"return_token_ids": 1}, "return_token_ids"),
        ({"return_tokens_as_token_ids": "x"}, "return_tokens_as_token_ids"),
        ({"n": 0}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 3, "stream": True}, "best_of"),
        ({"min_tokens": 3, "max_tokens": 2}, "min_tokens"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"request_id": 7}, "request_id"),
    ],
    ids=str,
)
def test_what_is_wrong_is_named(changes, param):
    """400 `option` with the path to the value, and no call of the model."""
    with fake() as llm:
        error = complete(llm, status=400, **{"prompt": "a", **changes})
        assert (error["code"], error["param"], error["type"]) == ("option", param, "invalid_request_error")
        assert llm._model.calls == 0


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"prompt": [[A], [999]]}, "token_range", "prompt[1][0]"),
        ({"prompt": [A, 999]}, "token_range", "prompt[1]"),
        ({"prompt": "a\ud800"}, "text", "prompt"),
        ({"prompt": ["a", "b\ud800"]}, "text", "prompt[1]"),
        ({"stop_token_ids": [A, 999]}, "token_range", "stop_token_ids[1]"),
        ({"logprob_token_ids": [999], "logprobs": 1}, "token_range", "logprob_token_ids[0]"),
        ({"prompt": "a" * 60, "max_tokens": 9}, "prompt_too_long", "prompt"),
        ({"prompt": ["a", "a" * 60], "max_tokens": 9}, "prompt_too_long", "prompt[1]"),
        ({"prompt": "a" * 60, "max_tokens": 9, "stream": True}, "prompt_too_long", "prompt"),
        ({"prompt": "a" * 9, "max_tokens": 60}, "prompt_too_long", "max_tokens"),
        ({"prompt": ["a"], "max_tokens": 99, "stream": True}, "prompt_too_long", "max_tokens"),
        ({"repeat_last_n": 2**63}, "option", "repeat_last_n"),
        ({"penalty_last_n": 2**63}, "option", "penalty_last_n"),
        ({"prompt": ["a" * 70], "max_tokens": 0, "echo": True, "logprobs": 1}, "prompt_too_long", "prompt[0]"),
    ],
    ids=lambda value: ascii(value)[:60],
)
def test_what_the_model_cannot_do_is_named(changes, code, param):
    """Tokens that do not exist, text that is none, and prompts that do not fit: 400, before any call."""
    with fake(nodes=64) as llm:
        error = complete(llm, status=400, **{"prompt": "a", **changes})
        assert error["code"] == code
        assert error["param"] == param
        assert llm._model.calls == 0


@pytest.mark.parametrize(
    ("options", "body", "message"),
    [
        ({"max_n": 2}, {"n": 3}, "from 1 to 2"),
        ({"max_n": 2}, {"best_of": 3}, "from 1 to 2"),
        ({"max_prompts": 2}, {"prompt": ["a", "b", "c"]}, "at most 2 prompts"),
        ({"max_stops": 1}, {"stop": ["a", "b"]}, "at most 1"),
        ({"max_logprobs": 3}, {"logprobs": 4}, "from 0 to 3"),
        ({"max_logprobs": 3}, {"prompt_logprobs": 4}, "from 0 to 3"),
        ({"max_rows": 99}, {"prompt": ["a", "b"], "max_tokens": 50}, "expected at most 99"),
        ({"max_rows": 99}, {"prompt": "a" * 99}, "expected at most 99"),
        ({"max_rows": 99}, {"prompt": "a" * 40, "n": 3, "echo": True, "logprobs": 1}, "expected at most 99"),
    ],
    ids=str,
)
def test_limits_are_checked_before_the_model(options, body, message):
    """All of them are options of the server."""
    with fake() as llm:
        error = complete(llm, status=400, options=ServerOptions(**options), **{"prompt": "a", **body})
        assert message in error["message"]
        assert llm._model.calls == 0
        complete(llm, **{"prompt": "a", **body, "max_tokens": 1})


# Real weights and real clients


@pytest.fixture(scope="module")
def served():
    """A server with the embedded model, and its engine."""
    with selectrie.load(n_threads=1) as llm, running(app(llm)) as url:
        yield llm, url


def test_the_client_of_openai(served):
    """Completions at once and as a stream, with vLLM's fields through `extra_body`."""
    openai = pytest.importorskip("openai", reason="needs the extra 'test-clients'")
    llm, url = served
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0)
    how = {
        "model": "embedded",
        "prompt": "Once upon a time",
        "max_tokens": 8,
        "seed": 3,
        "temperature": 1,
        "logprobs": 2,
    }
    llm.trim()
    found = client.completions.create(**how, echo=True, extra_body={"min_tokens": 2, "return_token_ids": True})
    ids = found.choices[0].prompt_token_ids
    llm.trim()
    [scored] = llm.prompt_logprobs([ids], top=2)
    stopping = StopParams(max_tokens=8, min_tokens=2)
    drawn = llm.generate([ids], seed=3, sampling=SamplingParams.UNCHANGED, stopping=stopping, prompting=EXACTLY)[0]
    assert found.choices[0].text == "Once upon a time" + drawn.text
    assert found.choices[0].logprobs.token_logprobs == [*scored.logp, *(one.logp for one in drawn.tokens)]
    assert found.usage.completion_tokens == len(drawn.tokens)
    chunks = list(client.completions.create(**how, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].usage.prompt_tokens == len(ids)
    assert len("".join(one.choices[0].text for one in chunks[:-1])) > 0
    with pytest.raises(openai.BadRequestError, match="suffix") as caught:
        client.completions.create(**how, suffix="x")
    assert (caught.value.code, caught.value.param) == ("unsupported", "suffix")


@pytest.mark.parametrize("weights", ["stories260K.gguf", None], ids=["SentencePiece", "embedded"])
def test_an_echoed_text_is_the_text_that_was_sent(weights):
    """The BOS that was added and spaces of the tokenizer are no part of it, so places are those in the client's text."""
    path = None if weights is None else str(real_file(f"weights/{weights}"))
    with selectrie.load(path, n_threads=1) as llm:
        bos = llm.vocabulary.texts[llm.vocabulary.bos]
        for prompt in ("Once upon a time", " é 🤗\n\nTom", "a", " Tom", "  b", f"{bos}Tom", f"Tom{bos}had {bos} a"):
            [choice] = complete(llm, prompt=prompt, echo=True, max_tokens=0, logprobs=1)["choices"]
            assert choice["text"] == prompt
            found = list(zip(choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"], strict=True))
            for token, offset in found[1:]:
                if not token.startswith("bytes:"):
                    assert prompt.startswith((token, token[1:] if token[0] == " " else token), offset)


def test_answers_on_a_kept_connection_do_not_wait():
    """Nagle's algorithm is off: asyncio switches it off for sockets that name their protocol."""
    with _bind(Serving(port=0)) as listening:
        assert listening.proto == socket.IPPROTO_TCP
