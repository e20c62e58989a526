"""Replaying: a recorded request has the same result, and what is not there is named."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import selectrie
from selectrie import (
    DecisionParams,
    Engine,
    GenerationParams,
    PromptParams,
    RenderParams,
    SamplingParams,
    SearchParams,
    StopParams,
    Template,
)
from selectrie.core.path_model import PathLimits
from selectrie.engine.connect import PathRuntime
from selectrie.engine.requests.loglikelihood import Sequences
from selectrie.errors import (
    DeadlineError,
    IncompatibleOptionsError,
    MissingRowError,
    MissingTextError,
    OptionError,
    SelectrieError,
    TraceFileError,
    UnknownOptionError,
    WholeRowsError,
)
from selectrie.testing import HashModel, PathsOf
from selectrie.traces.reader import read_trace
from tests.support.deciding import BYTES, LIMITS, PLAIN, QUESTIONS, STATE
from tests.support.n_examples import n_examples
from tests.support.real_data import real_file
from tests.support.traced import ANY_TEXT, ASKED, CATS, GREEDY, TIED, engine_of, hash_model, same_values
from tests.traces.test_reader import changed, recorded, written


def record(path, *asks, model=None, **options):
    """Record requests of a fake; return their answers."""
    with engine_of(model or hash_model()) as engine, selectrie.record(engine, path, **options):
        return [ask(engine) for ask in asks]


@pytest.mark.parametrize("name", ASKED)
def test_a_recorded_request_has_the_same_result(name, tmp_path):
    """To the last bit, but for seconds; also when it is asked twice."""
    [expected] = record(tmp_path / "run.trace", ASKED[name], full_rows=True)
    with selectrie.load(tmp_path / "run.trace") as replayed:
        for _ in range(2):
            assert same_values(ASKED[name](replayed), expected)


@pytest.mark.short("backwards")
@pytest.mark.parametrize("names", [tuple(ASKED), tuple(reversed(ASKED))], ids=["in order", "backwards"])
def test_requests_have_the_same_results_in_any_order(names, tmp_path):
    """Each result is that of its own recording, which the memory of earlier ones had shaped."""
    answers = record(tmp_path / "run.trace", *ASKED.values(), full_rows=True)
    expected = dict(zip(ASKED, answers, strict=True))
    with selectrie.load(str(tmp_path / "run.trace")) as replayed:
        assert [name for name in names if not same_values(ASKED[name](replayed), expected[name])] == []


class Drifting(HashModel):
    """A model whose rows are a little different each time, as those of quantised weights are in other company."""

    def __init__(self):
        super().__init__(7, vocabulary=BYTES, limits=LIMITS, sharpness=0.5)
        still, moves = self._row_of, np.random.default_rng(1)
        self._row_of = lambda path: still(path) + moves.normal(0, 1e-4, BYTES.n_tokens).astype(np.float32)


@pytest.mark.parametrize("name", ["select, healed", "select, best first", "generate, greedy", "grammar"])
def test_a_request_that_was_asked_twice_is_answered_twice(name, tmp_path):
    """Each answer has its own bits, whatever was read of its rows in between; the third is the first again."""
    ask, others = ASKED[name], [ASKED["rank"], lambda engine: engine.prompt_logprobs(["a cat bat"], top=3)]

    def afresh(engine):
        engine.trim()
        return ask(engine)

    asks = [others[0], afresh, others[1], afresh]
    _, first, _, second = record(tmp_path / "run.trace", *asks, model=Drifting())
    assert not same_values(first, second)
    with selectrie.load(tmp_path / "run.trace") as replayed:
        answers = [ask(replayed) for _ in range(3)]
    assert [same_values(*pair) for pair in zip(answers, [first, second, first], strict=True)] == [True] * 3


def test_a_request_of_a_batch_can_be_asked_alone(tmp_path):
    """Each request was recorded by itself, with what it was offered."""
    pairs = [(prompt, CATS) for prompt in ("a cat", "a bat", "one car ")]
    [batch] = record(tmp_path / "run.trace", lambda engine: engine.select_many(pairs))
    with selectrie.load(tmp_path / "run.trace") as replayed:
        for (prompt, choices), expected in reversed(list(zip(pairs, batch, strict=True))):
            assert same_values(replayed.select(prompt, choices), expected)


def test_concurrent_requests_have_the_same_results(tmp_path):
    """What was recorded from many threads at once, on little room, is replayed one by one."""
    prompts = [f"{'a b' * n}: " for n in range(12)]
    model = hash_model(nodes=240)
    search = SearchParams(method="best_first")
    with engine_of(model) as engine, selectrie.record(engine, tmp_path / "run.trace"):

        async def all_at_once():
            return await asyncio.gather(*(engine.aselect(prompt, CATS, search=search) for prompt in prompts))

        answers = asyncio.run(all_at_once())
    with selectrie.load(tmp_path / "run.trace") as replayed:
        for prompt, expected in zip(prompts, answers, strict=True):
            assert same_values(replayed.select(prompt, CATS, search=search), expected)


def test_searches_that_shared_little_room_have_the_same_results(tmp_path):
    """How many rows a search asks for depends on the room that others leave it, which is recorded."""
    prompts, search = [f"{'a b' * (n % 5)}{n}: " for n in range(12)], SearchParams(method="best_first")
    with engine_of(hash_model(nodes=120)) as engine, selectrie.record(engine, tmp_path / "run.trace"):
        answers = engine.select_many([(prompt, CATS) for prompt in prompts], search=search)
    with selectrie.load(tmp_path / "run.trace") as replayed:
        for prompt, expected in zip(prompts, answers, strict=True):
            assert same_values(replayed.select(prompt, CATS, search=search), expected)


def test_another_request_runs_if_its_rows_are_there(tmp_path):
    """Fewer choices, another rule and another search read recorded rows by their paths."""
    record(tmp_path / "run.trace", lambda engine: engine.rank("a cat", CATS))
    with selectrie.load(tmp_path / "run.trace", tokenizer=BYTES) as replayed, engine_of(hash_model()) as engine:
        for ask in (
            lambda e: e.select("a cat", CATS[:3]),
            lambda e: e.select("a cat", CATS[::-1]),
            lambda e: e.select("a cat", CATS, rule="token_mean"),
            lambda e: e.select("a cat", CATS, search=SearchParams(method="best_first")),
        ):
            answer, expected = ask(replayed), ask(engine)
            assert answer.text == expected.text
            assert [one.logp for one in answer.choices] == [one.logp for one in expected.choices]
            assert answer.certificate.proved == expected.certificate.proved


def test_a_missing_row_is_named(tmp_path):
    """The error has the path as text, what is missing, and the file."""
    record(tmp_path / "run.trace", lambda engine: engine.select("a cat", CATS))
    with selectrie.load(tmp_path / "run.trace", tokenizer=BYTES) as replayed:
        with pytest.raises(MissingRowError, match="does not have the row after") as caught:
            replayed.select([0, 2 + ord("a"), 2 + ord("b")], [" cat", " bat"])
        assert caught.value.path == "<bos>ab"
        assert caught.value.what == "the row"
        assert caught.value.trace == str(tmp_path / "run.trace")
        assert caught.value.exit_code == 3
        with pytest.raises(MissingRowError, match="the 40 most probable tokens after '<bos>a cat'"):
            replayed.generate("a cat", seed=1, sampling=GREEDY, options=GenerationParams(n_alternatives=40))
        assert replayed.select("a cat", CATS).text


def test_a_missing_row_of_a_near_tie_is_not_passed_over(tmp_path):
    """Scores of the shared memory alone would be another answer, so there is none."""
    record(tmp_path / "run.trace", lambda engine: engine.select(TIED, ["a", "b", "c"], rule="token_mean"))
    data = read_trace(tmp_path / "run.trace")
    assert len(data.tasks) == 4
    record(tmp_path / "one.trace", lambda engine: engine.score(TIED, "a"), lambda engine: engine.score(TIED, "b"))
    with selectrie.load(tmp_path / "one.trace") as replayed, pytest.raises(MissingRowError):
        replayed.select(TIED, ["a", "b"])


def test_a_missing_text_is_named(tmp_path):
    """A text that was not encoded, and a chat that was not rendered."""
    chat = [{"role": "user", "content": "a cat"}]
    record(tmp_path / "run.trace", lambda engine: engine.select(chat, CATS))
    with selectrie.load(tmp_path / "run.trace") as replayed:
        with pytest.raises(MissingTextError, match="the tokens of 'one more'") as caught:
            replayed.select("one more", CATS)
        assert (caught.value.text, caught.value.trace) == ("one more", str(tmp_path / "run.trace"))
        with pytest.raises(MissingTextError, match="chat template"):
            replayed.select([{"role": "user", "content": "a bat"}], CATS)
        assert replayed.select(chat, CATS).text


def test_with_a_tokenizer_any_text_is_read(tmp_path):
    """A trace without its vocabulary needs one; another one is refused."""
    ask = ASKED["select, healed"]
    [expected] = record(tmp_path / "run.trace", ask, vocabulary=False)
    with pytest.raises(OptionError, match="recorded without its vocabulary"):
        selectrie.load(tmp_path / "run.trace")
    with pytest.raises(OptionError, match="that of the model that was recorded"):
        selectrie.load(tmp_path / "run.trace", tokenizer=selectrie.testing.make_vocabulary())
    with engine_of(hash_model()) as engine:
        for tokenizer in (BYTES, engine):
            with selectrie.load(tmp_path / "run.trace", tokenizer=tokenizer) as replayed:
                assert same_values(ask(replayed), expected)
                with pytest.raises(MissingRowError):
                    replayed.select("any other text", CATS)


def test_sampling_needs_whole_rows(tmp_path):
    """A trace without them refuses it before it runs; one with them runs other seeds too."""
    short = StopParams(max_tokens=1)
    record(tmp_path / "few", lambda engine: engine.select("a cat", CATS))
    record(tmp_path / "full", lambda engine: engine.generate("a cat", seed=1, stopping=short), full_rows=True)
    with selectrie.load(tmp_path / "few") as replayed, pytest.raises(WholeRowsError, match="full_rows=True"):
        replayed.generate("a cat", seed=1)
    with selectrie.load(tmp_path / "full") as replayed, engine_of(hash_model()) as engine:
        for seed in range(5):
            sampling = SamplingParams(temperature=0.7)
            drawn = [one.generate("a cat", seed=seed, sampling=sampling, stopping=short) for one in (replayed, engine)]
            assert drawn[0].completions[0].tokens == drawn[1].completions[0].tokens


PAGE = Template("Name: <<name>>\nClass: <<#select 'class'>>ranger<<or>>wizard<</select>>\n")
LATE = {
    "generate": lambda e, s: e.generate(
        "a cat", seed=1, sampling=GREEDY, options=GenerationParams(deadline_s=s), stopping=StopParams(max_tokens=9)
    ),
    "prompt_logprobs": lambda e, s: e.prompt_logprobs(["a cat", "a bat"], deadline_s=s),
    "render": lambda e, s: e.render(PAGE, {"name": "Q"}, rendering=RenderParams(seed=1, deadline_s=s)),
}


@pytest.mark.parametrize("name", LATE)
def test_no_deadline_passes_in_a_replay(name, tmp_path):
    """A request that was late goes on to the row where its recording ends, and one that was not is answered."""
    with engine_of(hash_model()) as engine, selectrie.record(engine, tmp_path / "run.trace"):
        with suppress(DeadlineError):
            assert LATE[name](engine, 1e-9).completions[0].finish == "deadline"
        expected = engine.select("a cat", CATS)
    with selectrie.load(tmp_path / "run.trace") as replayed:
        for _ in range(2):
            with pytest.raises(MissingRowError):
                LATE[name](replayed, 1e-9)
        assert same_values(replayed.select("a cat", CATS), expected)
    [in_time] = record(tmp_path / "run.trace", lambda engine: LATE[name](engine, 1e9))
    with selectrie.load(tmp_path / "run.trace") as replayed:
        assert same_values(LATE[name](replayed, 1e-9), in_time)


def test_values_of_earlier_requests_are_replayed_with_a_request(tmp_path):
    """A request that found what an unrecorded one had read does so again."""
    ask = lambda engine: engine.prompt_logprobs(["a cat bat"], top=2)  # noqa: E731
    with engine_of(hash_model()) as engine:
        engine.prompt_logprobs(["a cat"], top=2)
        with selectrie.record(engine, tmp_path / "run.trace"):
            expected = ask(engine)
    with selectrie.load(tmp_path / "run.trace") as replayed:
        assert same_values(ask(replayed), expected)
        with pytest.raises(SelectrieError):
            replayed.prompt_logprobs(["a cat"], top=3)


def test_sequences_that_were_not_scored_together_are_scored_by_their_rows(tmp_path):
    """Fewer sequences have the values of the recorded rows; others are missing."""
    several = Sequences.of([([3, 4, 5], [6, 7]), ([3, 4], [8, 9])])
    [expected] = record(tmp_path / "run.trace", lambda engine: engine.loglikelihood_scorer(16).loglikelihoods(several))
    with selectrie.load(tmp_path / "run.trace") as replayed, replayed.loglikelihood_scorer(16) as scorer:
        answer = scorer.loglikelihoods(Sequences.of([([3, 4], [8, 9])]))
        assert answer.logp.tolist() == [expected.logp[1]]
        with pytest.raises(MissingRowError):
            scorer.loglikelihoods(Sequences.of([([3, 4], [9, 9])]))
    with pytest.raises(SelectrieError):
        scorer.loglikelihoods(Sequences.of([([3, 4], [8, 9])]))


@pytest.mark.parametrize("hides_rest", [False, True])
def test_rows_of_a_server_are_replayed_with_their_bounds(hides_rest, tmp_path):
    """An engine on rows by path gives the same answer from its trace, precision and intervals too."""
    names = ("select", "select, healed", "select, best first", "score", "select_many", "decide", "loglikelihoods")
    limits = PathLimits(named_ids=4, top_ids=3, queries_per_request=2, requests_in_flight=2, path_tokens=200)
    model = PathsOf(hash_model(), limits=limits, hides_rest=hides_rest, tolerance=1e-4)
    asks = [*(ASKED[name] for name in names), *SPELLINGS.values()]
    with Engine(PathRuntime(model)) as engine, selectrie.record(engine, tmp_path / "run.trace"):
        expected = [ask(engine) for ask in asks]
    steps = [values.step for task in read_trace(tmp_path / "run.trace").tasks for values in task.steps]
    assert any((step.rest_low < step.rest_high).any() for step in steps)
    with selectrie.load(tmp_path / "run.trace") as replayed:
        assert replayed.identity.precision == "remote"
        assert [ask for ask, one in zip(asks, expected, strict=True) if not same_values(ask(replayed), one)] == []


SPELLINGS = {
    "score": lambda e: e.score("a c", "at", tokenizations="all", budget_nodes=9),
    "score, begins": lambda e: e.score("a c", "at cat", tokenizations="all", budget_nodes=3),
    "select": lambda e: e.select("a c", ["at", "s"], tokenizations="all"),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_all_spellings_of_a_text_are_replayed(name, tmp_path):
    """Their search is recorded as others are: bounds, rows and the canonical share are the same."""
    [expected, again] = record(tmp_path / "run.trace", *[SPELLINGS[name]] * 2, model=HashModel(7, sharpness=0.5))
    with selectrie.load(tmp_path / "run.trace") as replayed:
        assert same_values(SPELLINGS[name](replayed), expected)
        assert same_values(SPELLINGS[name](replayed), again)


def test_a_torn_trace_answers_what_it_has(tmp_path):
    """The complete blocks count, and a missing row says that the end is missing."""
    [expected, _] = record(tmp_path / "run.trace", ASKED["select"], lambda engine: engine.select("zebra ", CATS))
    whole = (tmp_path / "run.trace").read_bytes()
    (tmp_path / "torn.trace").write_bytes(whole[:-3])
    with selectrie.load(tmp_path / "torn.trace", tokenizer=BYTES) as replayed:
        assert same_values(ASKED["select"](replayed), expected)
        with pytest.raises(MissingRowError, match="whose end is missing"):
            replayed.select([5, 6, 7], [" cat"])


def test_what_an_engine_says_of_its_model_is_what_was_recorded(tmp_path):
    """Identity, limits, self-check, tolerance and vocabulary are those of the model."""
    with engine_of(hash_model()) as engine:
        with selectrie.record(engine, tmp_path / "run.trace", full_rows=True):
            ASKED["generate"](engine)
        said = engine.identity, engine.limits, engine.self_check, engine.tolerance, engine.vocabulary.digest
    with selectrie.load(tmp_path / "run.trace") as replayed:
        assert (replayed.identity, replayed.limits, replayed.self_check, replayed.tolerance) == said[:4]
        assert replayed.vocabulary.digest == said[4]
        replayed.trim()


def test_options_that_a_trace_does_not_have_are_refused(tmp_path):
    """A back end, an option of one, and no tokenizer."""
    record(tmp_path / "run.trace")
    with pytest.raises(IncompatibleOptionsError, match="no model is opened"):
        selectrie.load(tmp_path / "run.trace", backend="llama.cpp")
    with pytest.raises(UnknownOptionError, match="n_ctx"):
        selectrie.load(tmp_path / "run.trace", n_ctx=100)
    with pytest.raises(OptionError, match="tokenizer"):
        selectrie.load(tmp_path / "run.trace", tokenizer=7)


HEADERS = {
    "no object": {"identity": "[]"},
    "not JSON": {"limits": "{"},
    "too deep": {"check": "[" * 100_000},
    "another field": {"identity": '{"name": 1}'},
    "a wrong type": {"check": '{"batch_multiple": 1.5, "moved": 0.0, "tolerance": 0.0, "n_rows": 1}'},
    "no tolerance": {"check": '{"batch_multiple": 1, "moved": 0.0, "tolerance": NaN, "n_rows": 1}'},
    "no searches": {"searches": "{}"},
    "a wrong number": {"searches": '{"n_together": -1, "max_named": null}'},
    "no digest": {"vocabulary_digest": "00"},
}


@pytest.mark.parametrize("wrong", [*HEADERS, "a huge limit", "a wrong kind", "a wrong bucket", "a wrong precision"])
def test_a_wrong_header_is_refused(wrong, tmp_path):
    """What the header says about the model is checked before it is used."""
    record(tmp_path / "run.trace")
    trace = read_trace(tmp_path / "run.trace")
    limits, identity = json.loads(trace.header.limits), json.loads(trace.header.identity)
    more = {
        "a huge limit": {"limits": json.dumps(limits | {"nodes": 10**30})},
        "a wrong kind": {"limits": json.dumps(limits | {"kind": "vast"})},
        "a wrong bucket": {"limits": json.dumps(limits | {"batch_sizes": {"multiple": 1, "buckets": [1]}})},
        "a wrong precision": {"identity": json.dumps(identity | {"precision": "some"})},
    }
    records = [replace(trace.header, **(HEADERS | more)[wrong]), *trace.tokens, trace.specials]
    with pytest.raises(TraceFileError):
        selectrie.load(written(tmp_path / "wrong.trace", records))


@settings(max_examples=n_examples(24))
@given(st.data())
def test_any_changed_trace_gives_answers_or_our_errors(tmp_path_factory, data):
    """A trace with one field changed loads and answers, or ends in an error of the tree."""
    records = list(recorded()[1])
    at = data.draw(st.integers(0, min(60, len(records) - 1)))
    records[at] = changed(records[at], data)
    path = tmp_path_factory.getbasetemp() / "stranger.trace"
    with suppress(UnicodeEncodeError):
        written(path, records)
    with suppress(SelectrieError), selectrie.load(path) as replayed:
        for name in ("select, healed", "select, near tie", "generate", "chat", "prompt_logprobs"):
            with suppress(SelectrieError):
                ASKED[name](replayed)


def test_the_vocabulary_comes_back_as_it_was(tmp_path):
    """Every field of it, and how its tokenizer works."""
    vocabulary = replace(
        PLAIN,
        declared_bos=0,
        white_space=" \u3000",
        strips_left=np.array([1], dtype=np.int32),
        user_defined=np.array([70], dtype=np.int32),
        ambiguous=frozenset([b"<x>", b"<y>"]),
        texts=(*PLAIN.texts[:-1], "\ud800"),
    )
    model = hash_model(vocabulary=vocabulary)
    record(
        tmp_path / "run.trace",
        lambda e: e.select("a cat", CATS, prompting=PromptParams(parse_special=True)),
        model=model,
    )
    with selectrie.load(tmp_path / "run.trace") as replayed:
        own = replayed.vocabulary
        for name in (
            "pieces",
            "texts",
            "bos",
            "eos",
            "declared_bos",
            "space_prefix",
            "bos_in_chats",
            "white_space",
            "ambiguous",
        ):
            assert getattr(own, name) == getattr(vocabulary, name), name
        for name in ("eog", "control", "strips_left", "strips_right", "user_defined"):
            assert getattr(own, name).tolist() == getattr(vocabulary, name).tolist(), name
        assert own.tokenizing == vocabulary.tokenizing
        assert (own.chat_template, own.normalize, own.spacing) == (None, None, None)


def test_states_of_a_table_have_the_same_decisions(tmp_path):
    """A unit of states is decided in a memory of its own; what it was told is in the trace."""
    ask = lambda engine: list(engine.decide_iter([STATE, "Where is it?", STATE], QUESTIONS))  # noqa: E731
    params = DecisionParams(rule="calibrated")
    units = lambda engine: _units(engine, params)  # noqa: E731
    expected = record(tmp_path / "run.trace", ask, units)
    with selectrie.load(tmp_path / "run.trace") as replayed:
        assert same_values([ask(replayed), units(replayed)], expected)


def _units(engine, params):
    """The decisions of two units of states, as `decide_table` makes them."""
    with engine._decision_scorer(engine._decision_maker(QUESTIONS, params)) as scorer:
        return [scorer.decisions(unit) for unit in ([STATE, "Where is it?"], ["I want it back."])]


@pytest.mark.short("embedded", "tiny-rwkv*")
@pytest.mark.parametrize("name", ["embedded", "tiny-rwkv-7v0-834K.gguf", "stories260K.gguf"])
def test_real_weights(name, tmp_path):
    """On attention and on recurrent weights: a select with healing, a search, a text, a chat."""
    source = None if name == "embedded" else real_file(f"weights/{name}")
    search = SearchParams(method="best_first")
    asks = [
        lambda e: e.select("Once upon a ", ["time", "day", "cat"]),
        lambda e: e.rank("The cat sat on the", [" mat", " hat", " map", " mats"], search=search),
        lambda e: e.generate("Once", n=2, seed=1, sampling=GREEDY, stopping=StopParams(max_tokens=8)),
        lambda e: e.generate("Once", n=2, seed=1, stopping=StopParams(max_tokens=8)),
        lambda e: e.prompt_logprobs(["Once upon a time", "Once upon a cat"], top=3),
        lambda e: e.select("It is", grammar=ANY_TEXT, search=SearchParams(max_tokens=8, budget_nodes=40)),
        lambda e: e.decide("It broke!", QUESTIONS["angry"]),
    ]
    with selectrie.load(source, n_threads=1, n_ctx=512, untrusted=False) as engine:
        expected = [ask(engine) for ask in asks]
        engine.trim()
        with selectrie.record(engine, tmp_path / "run.trace", full_rows=True):
            answers = [ask(engine) for ask in asks]
    assert [one for one, ask in enumerate(asks) if not same_values(answers[one], expected[one])] == []
    with selectrie.load(tmp_path / "run.trace") as replayed:
        assert [one for one, ask in enumerate(asks) if not same_values(ask(replayed), expected[one])] == []
