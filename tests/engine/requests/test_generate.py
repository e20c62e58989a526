"""`Engine.generate`: every sequence is what it would be alone, whatever runs beside it, drafts for it or shares its prompt."""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import selectrie
from selectrie import EngineDrafter, GenerationParams, LookupDrafter, PromptParams, SamplingParams, StopParams
from selectrie.core.types import Limits, ModelKind
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.errors import (
    DeadEndError,
    OptionError,
    PromptError,
    PromptTooLongError,
    QueueFullError,
    TextError,
    TokenRangeError,
    UnsupportedModelError,
)
from selectrie.results import Completion, Generation
from selectrie.testing import HashModel, TableModel, make_vocabulary
from tests.support.n_examples import n_examples

NOTHING_IS_CLOSE = SelfCheck(8, 0.0, 0.0)
SMALL = Limits(nodes=60, sequences=6, rows_per_call=5, kind=ModelKind.ATTENTION, max_idle_rows=4096)
"""Room for a few sequences at a time, and prompts that take several calls."""

PROMPTS = ["a", "a cat", "a cat b", "a cat bat sat at", "b", "cat : a bat.\ncat ur"]

prompts = st.lists(st.sampled_from(PROMPTS), min_size=1, max_size=4)
seeds = st.integers(0, 2**40)
samplings = st.sampled_from(
    [
        SamplingParams(),
        SamplingParams.GREEDY,
        SamplingParams.UNCHANGED,
        SamplingParams(temperature=1.4, top_k=6, repeat_penalty=1.2, presence_penalty=0.3, penalty_last_n=5),
    ]
)
stoppings = st.builds(
    StopParams,
    max_tokens=st.integers(1, 9),
    stop=st.lists(st.sampled_from(["at", " c", "é", "tt"]), max_size=2),
    ignore_eog=st.booleans(),
)


def engine_on(model) -> Engine:
    """An engine that measures nothing first."""
    return Engine(model, check=NOTHING_IS_CLOSE)


def alone(completion: Completion, prompt, **how) -> Completion:
    """The sequence run again with nothing beside it, from the seed that it reports, under its old numbers."""
    with engine_on(HashModel(1)) as engine:
        again = engine.generate(prompt, seed=completion.seed, **how)[0]
    return replace(again, prompt_index=completion.prompt_index, index=completion.index)


def same_where_certain(one: Completion, other: Completion) -> bool:
    """The same tokens, but for what follows a draw that either calls close."""
    close = min([*one.close_steps, *other.close_steps, len(one.tokens)])
    first, second = ([token.id for token in c.tokens][:close] for c in (one, other))
    return first == second and (close < len(one.tokens) or one.text == other.text)


# Together and alone


@given(given_prompts=prompts, n=st.integers(1, 4), seed=seeds, sampling=samplings, stopping=stoppings)
@settings(max_examples=n_examples(12))
def test_every_sequence_is_what_it_is_alone(given_prompts, n, seed, sampling, stopping):
    """Many prompts of many lengths with n sequences each: the same records as one by one, though room is short."""
    how = {"sampling": sampling, "stopping": stopping, "options": GenerationParams(n_alternatives=2, named=[3, 7])}
    with engine_on(HashModel(1, limits=SMALL)) as engine:
        together = engine.generate(given_prompts, n=n, seed=seed, **how)
    assert [(c.prompt_index, c.index, c.seed) for c in together] == [
        (p, i, seed + i) for p in range(len(given_prompts)) for i in range(n)
    ]
    # The record compares text, bytes, tokens, log-probabilities to the bit, alternatives, and how it ended.
    assert list(together) == [alone(c, given_prompts[c.prompt_index], **how) for c in together]


def test_the_comparison_can_fail():
    """Another seed, prompt or chain gives another record."""
    how = {"stopping": StopParams(max_tokens=9, ignore_eog=True)}
    with engine_on(HashModel(1)) as engine:
        one = engine.generate("a cat", seed=5, **how)[0]
        assert one == alone(one, "a cat", **how)
        assert one != alone(replace(one, seed=6), "a cat", **how)
        assert one != alone(one, "a bat", **how)
        assert one != alone(one, "a cat", sampling=SamplingParams.UNCHANGED, **how)
    other = replace(one, tokens=(*one.tokens[:-1], replace(one.tokens[-1], id=99)))
    assert not same_where_certain(one, other)
    assert same_where_certain(one, replace(other, close_steps=(len(one.tokens) - 1,)))


def test_prompts_are_evaluated_once_as_far_as_they_agree():
    """The common beginning of all prompts and sequences is evaluated once, though it takes several calls."""
    shared = "cat : a bat at sat"
    given_prompts = [shared + end for end in (" : u", " b", "\n\n")]
    model = HashModel(2, limits=replace(SMALL, nodes=400, sequences=64))
    with engine_on(model) as engine:
        result = engine.generate(given_prompts, n=3, seed=1, stopping=StopParams(max_tokens=1))
        n_shared = len(engine.tokens(shared, ["u"]).prompt)
    assert n_shared > 2 * SMALL.rows_per_call
    assert set(model.evaluations.values()) == {1}
    assert model.rows == sum(result.prompt_tokens) - 2 * n_shared
    assert model.rows <= result.cost.rows + 3  # shares of merged calls are rounded


def test_sequences_that_agree_are_evaluated_once():
    """Greedy sequences of one prompt are one path of the context tree."""
    model = HashModel(3)
    with engine_on(model) as engine:
        result = engine.generate(
            "a cat", n=8, sampling=SamplingParams.GREEDY, stopping=StopParams(max_tokens=20, ignore_eog=True)
        )
        n_prompt = result.prompt_tokens[0]
    assert len(set(result.texts)) == 1
    assert model.rows == n_prompt + 19
    assert set(model.evaluations.values()) == {1}


def test_a_seed_is_drawn_and_reported_where_none_is_given():
    """Two requests without a seed differ; each can be repeated from the seeds that it reports."""
    with engine_on(HashModel(1)) as engine:
        first, second = (
            engine.generate("a", n=2, stopping=StopParams(max_tokens=30, ignore_eog=True)) for _ in range(2)
        )
        assert first.texts != second.texts
        assert [b.seed - a.seed for a, b in pairwise(first)] == [1]
        again = engine.generate("a", n=2, seed=first[0].seed, stopping=first.stopping)
    assert again == first
    assert again.id != first.id


def test_nothing_is_held_afterwards():
    """Branches go when their sequences end; prompts stay as cache until they are trimmed."""
    model = HashModel(1)
    with engine_on(model) as engine:
        engine.generate(["a cat", "a bat"], n=3, seed=1)
        assert all(len(path) <= 3 for path in model.contexts.values())
        engine.trim()
        assert model.contexts == {0: ()}


# What is drawn


@pytest.mark.parametrize("n", [1, 2])
def test_the_best_of_many_are_the_most_probable(n):
    """`best_of` draws as many as it says and gives the n of highest joint, best first, each with its own seed."""
    how = {"seed": 40, "stopping": StopParams(max_tokens=6)}
    with engine_on(HashModel(4)) as engine:
        every = engine.generate(["a", "a cat"], n=5, **how)
        best = engine.generate(["a", "a cat"], n=n, options=GenerationParams(best_of=5), **how)
    for prompt in range(2):
        expected = sorted(every.of(prompt), key=lambda c: -sum(token.logp for token in c.tokens))[:n]
        assert [c.seed for c in best.of(prompt)] == [c.seed for c in expected]
        assert [c.index for c in best.of(prompt)] == list(range(n))
        assert [replace(c, index=e.index) for c, e in zip(best.of(prompt), expected, strict=True)] == expected
    assert best.n_drawn == every.n_drawn == sum(len(c.tokens) for c in every)


def table_model() -> TableModel:
    """Small enough to walk by hand: greedy is "at" and a line end."""
    after_a = {"t": 0.75, "<eos>": 0.25}
    return TableModel({(): {"a": 0.5, "b": 0.25, "<eos>": 0.25}, ("a",): after_a, ("a", "t"): {"\n": 1.0}})


def test_log_probabilities_are_those_of_the_table():
    """Joint and token log-probabilities are the model's own, whatever the chain: a walk that can be checked by hand."""
    with engine_on(table_model()) as engine:
        one = engine.generate(
            [0],
            seed=0,
            sampling=SamplingParams.GREEDY,
            stopping=StopParams(stop="\n"),
            options=GenerationParams(n_alternatives=3),
        )[0]
    assert (one.text, one.finish, one.stop, one.ended_by) == ("at", "stop", "\n", None)
    assert [token.logp for token in one.tokens] == pytest.approx(np.log([0.5, 0.75, 1.0]))
    assert one.logp == pytest.approx(np.log(0.375))
    assert [token.label for token in one.alternatives[0]] == ["a", "<eos>", "b"]
    assert one.n_close == 0


def test_only_choices_are_generated():
    """Every text is one of the choices; the most probable walk is the one that masked greedy decoding takes."""
    choices = ["at", "cat", " bat", "catu", "é", "ur"]
    with engine_on(HashModel(5)) as engine:
        drawn = engine.generate(
            ["a", "b cat"], n=20, seed=1, sampling=SamplingParams.UNCHANGED, options=GenerationParams(choices=choices)
        )
        assert set(drawn.texts) <= set(choices)
        assert len(set(drawn.texts)) >= 4
        assert {c.finish for c in drawn} <= {"automaton", "eog"}
        apart = [choice for choice in choices if choice != "cat"]  # what no other continues
        greedy = engine.generate("a", sampling=SamplingParams.GREEDY, options=GenerationParams(choices=apart))
        select = engine.select("a", apart, prompting=PromptParams(boundary="split"), terminator="none")
    assert greedy.texts == (apart[select.greedy_index],)


def test_a_delimiter_stands_before_every_choice():
    """It is generated too, as it is scored by `select`."""
    with engine_on(HashModel(5)) as engine:
        how = {"options": GenerationParams(choices=["cat", "bat"]), "prompting": PromptParams(delimiter=" ")}
        assert set(engine.generate("a", n=6, seed=1, **how).texts) <= {" cat", " bat"}


@pytest.mark.parametrize("draft", ["itself", "another", "look-up"])
@pytest.mark.parametrize("stop", [(), ("at",)])
def test_a_draft_changes_nothing(draft, stop):
    """The records are those without it; a draft that knows the model saves most calls."""
    how = {
        "n": 2,
        "seed": 9,
        "sampling": SamplingParams(temperature=0.5),
        "stopping": StopParams(max_tokens=12, stop=stop),
    }
    plain_model, model = HashModel(6, sharpness=3), HashModel(6, sharpness=3)
    second = engine_on(HashModel(6 if draft == "itself" else 7, sharpness=3))
    with engine_on(plain_model) as plain, engine_on(model) as engine, second:
        expected = plain.generate(["a cat", "b"], **how)
        drafter = LookupDrafter(2) if draft == "look-up" else EngineDrafter(second, depth=3, branching=2)
        drafted = engine.generate(["a cat", "b"], draft=drafter, **how)
        assert engine.generate(["a cat", "b"], draft=second, **how) == drafted
    assert drafted == expected
    assert sum(c.n_drafted for c in drafted) > 0
    if draft == "itself":
        assert sum(c.n_accepted for c in drafted) > 0
        assert drafted.cost.model_calls < expected.cost.model_calls


def test_a_deadline_ends_sequences_with_what_they_have():
    """A sequence whose time is up is the beginning of what it would have been, and says so."""
    model = HashModel(8)
    with engine_on(model) as engine:
        how = {"n": 2, "seed": 3, "stopping": StopParams(max_tokens=30, ignore_eog=True)}
        whole = engine.generate("a", **how)
        now = [0.0]
        engine._model_thread._clock = engine._model_thread.scheduler._clock = lambda: now[0]
        model.on_decode = lambda: now.__setitem__(0, now[0] + 1)
        late = engine.generate("a", options=GenerationParams(deadline_s=7.5), **how)
        model.on_decode = None
        assert engine.generate("a", **how) == whole
    for part, all_of_it in zip(late, whole, strict=True):
        assert part.finish == "deadline"
        assert 0 < len(part.tokens) < 30
        assert part.tokens == all_of_it.tokens[: len(part.tokens)]
        assert part.data == all_of_it.data[: len(part.data)]


# Prompts


def test_prompts_are_told_apart_by_what_is_in_them():
    """Text, ids as list, tuple or array, messages: each alone is one prompt, a list of them is many."""
    message = {"role": "user", "content": "cat"}
    vocabulary = make_vocabulary()
    ids = [0, *vocabulary.tokenize(b"a cat")]
    how = {"seed": 4, "stopping": StopParams(max_tokens=5)}
    with engine_on(HashModel(1)) as engine:
        one = engine.generate("a cat", **how)
        for prompt in (ids, tuple(ids), np.array(ids), ["a cat"], [ids], (tuple(ids),), np.array([ids])):
            assert engine.generate(prompt, **how) == one
        chat = engine.generate([message], **how)
        assert chat == engine.generate([[message]], **how)
        assert chat == engine.generate("u:cat<eos>\na:", prompting=PromptParams(parse_special=True), **how)
        many = engine.generate(["a cat", ids, [message]], **how)
    assert many.texts == (*one.texts, *one.texts, *chat.texts)
    assert many.of(2) == tuple(replace(c, prompt_index=2) for c in chat)
    assert many.of(-1) == many.of(2)
    with pytest.raises(IndexError):
        many.of(3)


def test_a_prompt_that_is_too_long_loses_its_beginning_where_that_is_allowed():
    """BOS and the newest tokens stay, so that prompt and `max_tokens` fit."""
    how = {"seed": 4, "stopping": StopParams(max_tokens=11)}
    with engine_on(HashModel(1, limits=SMALL)) as engine:
        with pytest.raises(PromptTooLongError) as caught:
            engine.generate(["a", "a" * 60], **how)
        cut = engine.generate("u" + "a" * 60, prompting=PromptParams(truncate="left"), **how)
        assert cut.texts == engine.generate("a" * 49, **how).texts
    assert (caught.value.request, caught.value.required_tokens, caught.value.available_tokens) == (1, 71, 60)
    assert cut.prompt_tokens == (50,)


@pytest.mark.parametrize(
    ("prompts", "how", "error"),
    [
        ([], {}, OptionError),
        (b"a", {}, PromptError),
        (None, {}, OptionError),
        ([1, "a"], {}, PromptError),
        (["a", 1], {}, PromptError),
        ("a\ud800", {}, TextError),
        ([[0, 99]], {}, TokenRangeError),
        ("a", {"n": 0}, OptionError),
        ("a", {"n": True}, OptionError),
        ("a", {"seed": -2}, OptionError),
        ("a", {"seed": 1 << 128}, OptionError),
        ("a", {"seed": "1"}, OptionError),
        ("a", {"seed": True}, OptionError),
        (np.array(5), {}, PromptError),
        (
            "a",
            {"options": GenerationParams(choices=["catu at", "a"]), "stopping": StopParams(max_tokens=1)},
            OptionError,
        ),
        ("a", {"sampling": {"temperature": -1}}, OptionError),
        ("a", {"sampling": SamplingParams(logit_bias={99: 1.0})}, TokenRangeError),
        ("a", {"stopping": StopParams(stop_tokens=[99])}, TokenRangeError),
        ("a", {"stopping": None}, OptionError),
        ("a", {"options": GenerationParams(named=[99])}, TokenRangeError),
        ("a", {"options": GenerationParams(choices=["at"]), "stopping": StopParams(min_tokens=1)}, OptionError),
        ("a", {"options": {"best_of": 0}}, OptionError),
        ("a", {"n": 3, "options": GenerationParams(best_of=2)}, OptionError),
        ("a", {"options": GenerationParams(choices=["at", "a\ud800"])}, TextError),
        ("a", {"prompting": PromptParams(delimiter=" ")}, OptionError),
        ("a", {"prompting": {"boundary": "slit"}}, OptionError),
        ("a", {"draft": "small"}, OptionError),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused_before_any_call(prompts, how, error):
    """Whatever is wrong is one clear error, and the model has done nothing."""
    model = HashModel(1)
    with engine_on(model) as engine:
        with pytest.raises(error):
            engine.generate(prompts, **how)
        with pytest.raises(error):
            engine.stream(prompts, **how)
        assert engine._model_thread.scheduler.idle
    assert (model.calls, model.contexts) == (0, {0: ()})


@pytest.mark.parametrize(
    "fields",
    [
        {"best_of": 0},
        {"choices": []},
        {"choices": "cat"},
        {"n_alternatives": -1},
        {"named": 3},
        {"priority": 1.5},
        {"priority": True},
        {"deadline_s": 0},
        {"deadline_s": float("nan")},
        {"deadline_s": "1"},
    ],
    ids=str,
)
def test_options_are_checked_when_they_are_made(fields):
    """Each field of the record is refused by its name."""
    with pytest.raises(OptionError) as caught:
        GenerationParams(**fields)
    assert caught.value.name == next(iter(fields))


def test_an_engine_does_not_draft_for_itself_nor_for_other_tokens():
    """It would wait for its own answer; guesses of another tokenizer would be of other texts."""
    other = make_vocabulary([b"a", b"b"])
    with engine_on(HashModel(1)) as engine, engine_on(HashModel(1, vocabulary=other)) as stranger:
        with pytest.raises(OptionError):
            engine.generate("a", draft=engine)
        with pytest.raises(UnsupportedModelError):
            engine.generate("a", draft=stranger)


def test_the_error_of_one_sequence_ends_the_request_and_no_other():
    """What a stop callback raises reaches the caller; requests beside it do not notice; nothing is left running."""

    def fails(text: str) -> bool:
        raise ZeroDivisionError(text)

    with engine_on(HashModel(1)) as engine:
        beside = engine.stream("a cat", seed=2, stopping=StopParams(max_tokens=50, ignore_eog=True))
        with pytest.raises(ZeroDivisionError):
            engine.generate(["a", "b"], n=3, stopping=StopParams(when=fails, ignore_eog=True))
        with pytest.raises(DeadEndError):
            engine.generate("a", sampling=SamplingParams(logit_bias=dict.fromkeys(range(26), -np.inf)))
        kept = beside.generation()
        assert alone(kept[0], "a cat", stopping=kept.stopping) == kept[0]


def test_a_full_queue_is_said_at_once():
    """What cannot wait is refused with all of its request, `load` tells beforehand, and the engine goes on."""
    model, go_on = HashModel(1), threading.Event()
    model.on_decode = lambda: go_on.wait(20)
    with Engine(model, check=NOTHING_IS_CLOSE, max_waiting=3) as engine:
        assert (engine.load.n_active, engine.load.n_waiting) == (0, 0)
        with pytest.raises(QueueFullError, match="no room for 40 more; ask for fewer at once") as caught:
            engine.generate("a", n=40, stopping=StopParams(max_tokens=3))
        assert (caught.value.max_waiting, caught.value.n_tasks) == (3, 40)
        go_on.set()
        assert any(engine._model_thread.call(lambda: engine._model_thread.scheduler.idle) for _ in range(5))
        assert engine.select("a", ["at", " cat"]).text
        assert engine.generate("a", n=2, seed=1, stopping=StopParams(max_tokens=3))


# Records


def test_the_openai_object_is_what_the_api_gives():
    """Numbered through prompt by prompt, prompts counted once, log-probabilities and offsets per token."""
    with engine_on(table_model()) as engine:
        result = engine.generate(
            [[0], [0]],
            n=2,
            seed=0,
            sampling=SamplingParams.GREEDY,
            stopping=StopParams(stop="\n"),
            options=GenerationParams(n_alternatives=1),
        )
        short = engine.generate([0], sampling=SamplingParams.GREEDY, stopping=StopParams(max_tokens=1))
    made = result.to_openai(model="table")
    logp = [float(np.log(p)) for p in (0.5, 0.75, 1.0)]
    assert json.loads(json.dumps(made)) == {
        "id": f"cmpl-{result.id}",
        "object": "text_completion",
        "created": result.created,
        "model": "table",
        "choices": [
            {
                "text": "at",
                "index": index,
                "logprobs": {
                    "tokens": ["a", "t", "\n"],
                    "token_logprobs": pytest.approx(logp, abs=1e-7),
                    "top_logprobs": [
                        {token: pytest.approx(value, abs=1e-7)} for token, value in zip("at\n", logp, strict=True)
                    ],
                    "text_offset": [0, 1, 2],
                },
                "finish_reason": "stop",
            }
            for index in range(4)
        ],
        "usage": {"prompt_tokens": 2, "completion_tokens": 12, "total_tokens": 14},
    }
    assert short.to_openai()["choices"][0]["finish_reason"] == "length"
    assert short.to_openai()["choices"][0]["logprobs"]["top_logprobs"] is None
    assert len({r.to_openai()["id"] for r in (result, short, replace(result, id="x"))}) == 3


def test_the_openai_chat_object_is_what_the_api_gives():
    """Messages in, a message out; bytes of every token."""
    with engine_on(table_model()) as engine:
        result = engine.generate(
            [0],
            sampling=SamplingParams.GREEDY,
            stopping=StopParams(max_tokens=1),
            options=GenerationParams(n_alternatives=1),
        )
    made = json.loads(json.dumps(result.to_openai(chat=True)))
    token = {"id": 3, "token": "a", "logprob": pytest.approx(np.log(0.5), abs=1e-7), "bytes": [97]}
    assert made["object"] == "chat.completion"
    assert made["id"] == f"chatcmpl-{result.id}"
    assert made["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "a", "refusal": None},
            "logprobs": {"content": [{**token, "top_logprobs": [token]}], "refusal": None},
            "finish_reason": "length",
        }
    ]


def test_the_token_drawn_is_among_its_alternatives_in_a_completion_object():
    """As the API has it, a place holds one more where the token drawn is not among the most probable."""
    with engine_on(table_model()) as engine:
        a = engine.vocabulary.pieces.index(b"a")
        result = engine.generate(
            [0],
            sampling=SamplingParams(temperature=0, logit_bias={a: -math.inf}),
            stopping=StopParams(max_tokens=1),
            options=GenerationParams(n_alternatives=1),
        )
    logprobs = result.to_openai()["choices"][0]["logprobs"]
    (token,), (logp,), (top,) = logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]
    assert token != "a"
    assert list(top) == ["a", token]
    assert top[token] == logp < top["a"]


def test_the_openai_object_begins_with_its_name():
    """The fields of both objects stand in the order in which the API gives them."""
    with engine_on(table_model()) as engine:
        result = engine.generate([0], stopping=StopParams(max_tokens=1))
    for chat in (False, True):
        assert list(result.to_openai(chat=chat)) == ["id", "object", "created", "model", "choices", "usage"]


def test_usage_counts_what_was_drawn_and_not_given():
    """Sequences that `best_of` left out were work as well, as in the API."""
    with engine_on(HashModel(1)) as engine:
        made = engine.generate("a", seed=1, stopping=StopParams(max_tokens=5), options=GenerationParams(best_of=4))
    usage = made.to_openai()["usage"]
    assert usage["completion_tokens"] == made.n_drawn > len(made[0].tokens)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_bytes_that_are_no_text_are_told_apart():
    """An incomplete character at the end is in the JSON's bytes, which are there only where the text is not all."""
    pieces = make_vocabulary().pieces
    found = []
    with engine_on(HashModel(1)) as engine:
        for piece in (b"\xc3", "é".encode()):
            how = SamplingParams(temperature=0, logit_bias={pieces.index(piece): 1e6})
            found.append(engine.generate("a", sampling=how, stopping=StopParams(max_tokens=1))[0].to_dict())
    broken, whole = found
    assert (broken["text"], broken["text_bytes"]) == ("", [0xC3])
    assert whole["text"] == "é"
    assert "text_bytes" not in whole


def test_a_seed_of_numpy_is_a_seed():
    """It stands in the record as a plain number, which JSON knows."""
    how = {"stopping": StopParams(max_tokens=4)}
    with engine_on(HashModel(1)) as engine:
        result = engine.generate("a", seed=np.int64(3), **how)
        assert result == engine.generate("a", seed=3, **how)
    assert json.loads(json.dumps(result.to_dict()))["completions"][0]["seed"] == 3


@pytest.mark.parametrize("truncate", ["error", "left"])
def test_tokens_that_no_prompt_leaves_room_for_are_told_apart(truncate):
    """Each remedy is proposed only where it is enough, first that for what has more tokens; else both together."""
    with engine_on(HashModel(1, limits=SMALL)) as engine:
        with pytest.raises(PromptTooLongError) as caught:
            engine.generate(
                "a", stopping=StopParams(max_tokens=SMALL.nodes + 1), prompting=PromptParams(truncate=truncate)
            )
        assert caught.value.remedy.startswith("lower `max_tokens`")
        with pytest.raises(PromptTooLongError) as caught:
            engine.generate("a" * SMALL.nodes, stopping=StopParams(max_tokens=2))
        assert caught.value.remedy.startswith("shorten the prompt")
        with pytest.raises(PromptTooLongError) as caught:  # one token would fit
            engine.generate("a", stopping=StopParams(max_tokens=SMALL.nodes))
        assert caught.value.remedy == f"lower `max_tokens` ({SMALL.nodes}), shorten the prompt, or set truncate='left'"
        with pytest.raises(PromptTooLongError) as caught:
            engine.generate("a" * SMALL.nodes, stopping=StopParams(max_tokens=SMALL.nodes + 1))
        assert caught.value.remedy == f"shorten the prompt and lower `max_tokens` ({SMALL.nodes + 1})"


@given(seed=seeds)
@settings(max_examples=n_examples(15))
def test_offsets_are_where_tokens_begin_in_the_text(seed):
    """The text from a token's offset on begins with the token, where token and text are whole characters."""
    with engine_on(
        HashModel(1, vocabulary=make_vocabulary(p for p in make_vocabulary().pieces[2:] if p.isascii()))
    ) as engine:
        made = engine.generate("a", seed=seed, stopping=StopParams(max_tokens=12, stop="at")).to_openai()["choices"][0]
    text, logprobs = made["text"], made["logprobs"]
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        whole = offset + len(token) <= len(text) and token not in ("<bos>", "<eos>")  # which have no text
        assert not whole or text[offset:].startswith(token)
    assert logprobs["text_offset"] == sorted(logprobs["text_offset"])


def test_records_are_ready_for_json_and_to_be_read():
    """`to_dict` holds what a repetition needs, infinities left out; `repr` shows the texts."""
    with engine_on(HashModel(1)) as engine:
        sampling = SamplingParams(logit_bias={3: -np.inf, 4: 1.5})
        result = engine.generate(
            ["a", "é"], n=6, seed=7, sampling=sampling, stopping=StopParams(max_tokens=4, when=lambda _: False)
        )
    made = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert made["sampling"]["logit_bias"] == {"3": None, "4": 1.5}
    assert made["stopping"]["when"] is True
    assert [c["seed"] for c in made["completions"]] == [*range(7, 13)] * 2
    assert [c["text"] for c in made["completions"]] == list(result.texts)
    assert repr(result).startswith("Generation(2 prompts, n=6)\n  0.0 ")
    assert repr(result).endswith("… 4 more")
    assert isinstance(result[1:3], tuple)
    assert isinstance(result, Generation)
    assert len(result) == 12


# Real weights


@pytest.fixture(scope="module")
def real(weights):
    """A trained model of 260 000 parameters."""
    with selectrie.load(weights("stories260K.gguf"), n_threads=1) as engine:
        yield engine


STORIES = ["Once upon a time", "Once upon a time there was a little girl. She went to the", "Tom"]


def test_real_sequences_together_are_those_alone(real):
    """On f32 weights: the same tokens, but for draws that lie within the tolerance of an interval's edge."""
    how = {"stopping": StopParams(max_tokens=12), "sampling": SamplingParams(temperature=1.0)}
    together = real.generate(STORIES, n=2, seed=11, **how)
    singles = [real.generate(STORIES[c.prompt_index], seed=c.seed, **how)[0] for c in together]
    assert all(same_where_certain(one, other) for one, other in zip(together, singles, strict=True))
    assert sum(one.text == other.text for one, other in zip(together, singles, strict=True)) >= 5
    for one, other in zip(together, singles, strict=True):
        if one.text == other.text:
            assert one.logp == pytest.approx(other.logp, abs=len(one.tokens) * real.tolerance)


@pytest.mark.parametrize("drafter", [LookupDrafter(), "engine"], ids=["look-up", "engine"])
def test_a_real_draft_changes_no_text(real, weights, drafter):
    """The same tokens but where a draw is close, in fewer calls."""
    how = {"seed": 3, "sampling": SamplingParams.GREEDY, "stopping": StopParams(max_tokens=24)}
    plain = real.generate(STORIES[1], **how)
    if drafter == "engine":
        with selectrie.load(weights("stories260K.gguf"), n_threads=1, n_ctx=256) as second:
            drafted = real.generate(STORIES[1], draft=second, **how)
        assert drafted.cost.model_calls < plain.cost.model_calls / 2
    else:
        drafted = real.generate(STORIES[1], draft=drafter, **how)
    assert same_where_certain(plain[0], drafted[0])
    assert drafted[0].n_drafted > 0


def test_real_tokens_are_drawn_as_often_as_their_probability_says(real):
    """Chi-square of 500 first tokens under consecutive seeds against the model's own distribution: 9 degrees of freedom,
    below 27.88 (p = 0.001)."""
    n_drawn, n_bins = 500, 9
    how = {"sampling": SamplingParams.UNCHANGED, "stopping": StopParams(max_tokens=1)}
    drawn = real.generate("Once upon a time, there was a", n=n_drawn, seed=0, **how)
    top = real.generate(
        "Once upon a time, there was a", seed=0, options=GenerationParams(n_alternatives=n_bins), **how
    )[0]
    p = np.exp([token.logp for token in top.alternatives[0]])
    counts = Counter(c.tokens[0].id for c in drawn)
    observed = np.array([counts[token.id] for token in top.alternatives[0]])
    observed, expected = np.append(observed, n_drawn - observed.sum()), n_drawn * np.append(p, 1 - p.sum())
    assert expected.min() > 5
    assert ((observed - expected) ** 2 / expected).sum() < 27.88
    shifted = np.roll(observed, 1)
    assert ((shifted - expected) ** 2 / expected).sum() > 27.88


def test_the_texts_of_one_request_have_a_limit():
    """Each is a task of its own, so a slip of the keyboard would fill the memory; nothing is evaluated."""
    with engine_on(model := HashModel(1)) as engine:
        grammar = selectrie.Grammar.from_regex("a|b")
        for ask in (
            lambda n: engine.generate("a", n=n),
            lambda n: engine.generate("a", options=GenerationParams(best_of=n)),
            lambda n: engine.sample("a", grammar, n=n),
            lambda n: engine.render(selectrie.Template(f"a<<gen 'x' n={n}>>")),
        ):
            for n in (65_537, 10**9):
                with pytest.raises(OptionError, match="from 1 to 65536"):
                    ask(n)
    assert model.calls == 0
