"""Who guesses what comes next: a second engine, the text itself; and who is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie import load
from selectrie.core.rows import DenseRows
from selectrie.core.types import Capacity, Limits, ModelKind
from selectrie.decoding.sampling.task import GuessTask, SampleSpec, SampleTask
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.engine.requests.speculative import EngineDrafter, LookupDrafter, check_draft
from selectrie.errors import ClosedError, OptionError, ProtocolError, UnsupportedModelError
from selectrie.options import SamplingParams, StopParams
from selectrie.testing import HashModel, make_vocabulary
from selectrie.testing.fakes import WIDE
from selectrie.testing.oracles import probabilities, run
from tests.support.n_examples import n_examples
from tests.support.task_driver import Driver

CHECK = SelfCheck(8, 0.0, 0.0)
PROMPT = np.array([0, 3], dtype=np.int32)
NO_ENDS = np.empty(0, dtype=np.int32)
seeds = st.integers(0, 2**31)


def spec_of(vocabulary, prompt=PROMPT, **options) -> SampleSpec:
    """Twelve tokens of the model's own distribution."""
    options = {
        "seed": 4,
        "sampling": SamplingParams.UNCHANGED,
        "stopping": StopParams(max_tokens=12, ignore_eog=True),
        **options,
    }
    return SampleSpec(prompt=prompt, pieces=vocabulary.pieces, eog=vocabulary.eog, **options)


def guesses_alone(model, prompt, *, max_tokens, depth, branching, barred) -> list[tuple[int, ...]]:
    """The paths of a `GuessTask`, in order: each level the most probable continuations of the level before."""
    level, found = [(1.0, ())], []
    for _ in range(depth):
        candidates = [
            (p * q, (*path, token))
            for p, path in level
            for token, q in enumerate(probabilities(model, [*prompt, *path]))
            if token not in barred
        ]
        level = sorted(candidates, reverse=True)[: min(branching, max_tokens - len(found))]
        found += [path for _, path in level]
    return found


def paths_of(parents, tokens) -> list[tuple[int, ...]]:
    """The token path of every proposal."""
    paths: list[tuple[int, ...]] = []
    for parent, token in zip(parents.tolist(), tokens.tolist(), strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return paths


@settings(max_examples=n_examples(60))
@given(
    seed=seeds,
    max_tokens=st.integers(1, 9),
    depth=st.integers(1, 4),
    branching=st.integers(1, 4),
    barred=st.sets(seeds),
)
def test_a_guess_is_what_the_model_thinks_most_probable(seed, max_tokens, depth, branching, barred):
    """Level by level, in any order of evaluation the same paths, from its floor, without the last level's rows."""
    barred = np.array(sorted({token % 26 for token in barred}), dtype=np.int32)[:9]
    model = HashModel(seed)
    how = {"max_tokens": max_tokens, "depth": depth, "branching": branching, "barred": barred}
    task = GuessTask(PROMPT, **how)
    driver = Driver(model, [task.floor])
    guessed = paths_of(*driver.run(task))
    assert guessed == guesses_alone(model, PROMPT.tolist(), **how)
    assert len(guessed) == min(max_tokens, depth * branching)
    assert set(driver.told) == {(*PROMPT, *path) for path in guessed if len(path) < max(map(len, guessed))} | {
        (*PROMPT,)
    }


def test_the_comparison_of_guesses_can_fail():
    """Another model guesses something else."""
    how = {"max_tokens": 6, "depth": 3, "branching": 2, "barred": NO_ENDS}
    guessed = paths_of(*run(GuessTask(PROMPT, **how), HashModel(1)))
    assert guessed != guesses_alone(HashModel(2), PROMPT.tolist(), **how)


def test_a_guess_keeps_to_ask_and_tell():
    """Out of step it is refused."""
    task = GuessTask(PROMPT, max_tokens=2, depth=2, branching=1, barred=NO_ENDS)
    row = DenseRows(HashModel(0).row(PROMPT)[None])
    capacity = Capacity(1, 1, 1)
    with pytest.raises(ProtocolError, match="called again"):
        task.ask(capacity)
    task.tell(row)
    with pytest.raises(ProtocolError, match="no row is expected"):
        task.tell(row)
    with pytest.raises(ProtocolError, match="no result"):
        task.result()
    with pytest.raises(ProtocolError, match="below the floor"):
        task.ask(Capacity(1, 0, 1))


def test_a_model_that_bars_everything_guesses_nothing():
    """Every token ends the text: there is nothing to propose."""
    parents, tokens = run(GuessTask(PROMPT, max_tokens=4, depth=2, branching=2, barred=np.arange(26)), HashModel(0))
    assert (len(parents), len(tokens)) == (0, 0)


@pytest.mark.short("3-1-1", "8-3-2")
@pytest.mark.parametrize(("depth", "branching"), [(1, 1), (3, 1), (3, 2), (5, 3)])
@pytest.mark.parametrize("other", [3, 8])
def test_a_second_engine_changes_no_text(depth, branching, other):
    """The same weights or others: the text is the one without a draft; with the same weights greedy calls are saved."""
    vocabulary = make_vocabulary()
    for sampling in (SamplingParams.UNCHANGED, SamplingParams.GREEDY):
        spec = spec_of(vocabulary, sampling=sampling)
        plain = run(SampleTask(spec), HashModel(3))
        with Engine(HashModel(other), check=CHECK) as second:
            model = HashModel(3)
            drafted = run(SampleTask(replace(spec, drafter=EngineDrafter(second, depth, branching))), model)
        assert drafted.tokens.tolist() == plain.tokens.tolist()
        assert drafted.logp.tolist() == plain.logp.tolist()
        assert drafted.n_drafted > 0
        if other == 3 and sampling is SamplingParams.GREEDY:
            assert model.calls == 1 + -(-11 // (depth + 1))


def test_the_second_engine_keeps_what_it_has_evaluated():
    """Of the text it evaluates what is new since its last proposal: no row of a token drawn is evaluated over and over."""
    draft_model = HashModel(3)
    with Engine(draft_model, check=CHECK) as second:
        spec = spec_of(make_vocabulary(), sampling=SamplingParams.GREEDY)
        run(SampleTask(replace(spec, drafter=EngineDrafter(second, depth=3))), HashModel(3))
    assert max(draft_model.evaluations.values()) == 2  # as a guess, and as text
    assert draft_model.calls == 3 * 3


@pytest.mark.parametrize(
    "limits",
    [
        replace(WIDE, nodes=4),
        replace(WIDE, sequences=2),
        replace(WIDE, rows_per_call=1),
        Limits(nodes=4, sequences=9, rows_per_call=9, kind=ModelKind.RECURRENT, max_idle_rows=9),
    ],
)
def test_a_second_engine_too_small_guesses_nothing(limits):
    """No error: the sequence goes on without a draft."""
    spec = spec_of(make_vocabulary())
    with Engine(HashModel(3, limits=limits), check=CHECK) as second:
        drafted = run(SampleTask(replace(spec, drafter=EngineDrafter(second, depth=4, branching=2))), HashModel(3))
    assert drafted.n_drafted == 0
    assert drafted.tokens.tolist() == run(SampleTask(spec), HashModel(3)).tokens.tolist()


def test_a_second_engine_may_be_a_forking_one():
    """It guesses from states as well."""
    spec = spec_of(make_vocabulary(), sampling=SamplingParams.GREEDY)
    limits = Limits(nodes=60, sequences=12, rows_per_call=9, kind=ModelKind.RECURRENT, max_idle_rows=60)
    model = HashModel(3)
    with Engine(HashModel(3, limits=limits), check=CHECK) as second:
        drafted = run(SampleTask(replace(spec, drafter=EngineDrafter(second, depth=3, branching=2))), model)
    assert drafted.tokens.tolist() == run(SampleTask(spec), HashModel(3)).tokens.tolist()
    assert model.calls == 1 + -(-11 // 4)


def test_a_closed_second_engine_ends_the_sequence():
    """With its own error."""
    second = Engine(HashModel(3), check=CHECK)
    second.close()
    with pytest.raises(ClosedError):
        run(SampleTask(spec_of(make_vocabulary(), drafter=EngineDrafter(second))), HashModel(3))


@pytest.mark.parametrize(
    ("tokens", "n_gram", "max_tokens", "expected"),
    [
        ([5, 6, 7, 8, 9, 5, 6], 3, 8, [7, 8, 9, 5, 6, 7, 8, 9]),  # "5 6" stood at the beginning; on and on
        ([5, 6, 7, 8, 9, 5, 6], 3, 2, [7, 8]),
        ([5, 6, 7, 5, 6, 8, 5, 6], 2, 2, [8, 5]),  # the latest of two
        ([5, 6, 7, 9, 6, 8, 5, 6], 2, 2, [7, 9]),  # the longer one, though earlier
        ([5, 6, 7, 9, 6, 8, 5, 6], 1, 2, [8, 5]),
        ([5, 5, 5], 3, 4, [5, 5, 5, 5]),
        ([5, 6, 7], 3, 4, []),
        ([5], 3, 4, []),
    ],
)
def test_a_text_that_repeats_itself_is_looked_up(tokens, n_gram, max_tokens, expected):
    """What followed where the last tokens stood before, in one unbranched run."""
    parents, proposed = LookupDrafter(n_gram).propose(np.array(tokens, dtype=np.int32), max_tokens)
    assert proposed.tolist() == expected
    assert parents.tolist() == list(range(-1, len(expected) - 1))


@settings(max_examples=n_examples(60))
@given(
    tokens=st.lists(st.integers(0, 3), min_size=1, max_size=30), n_gram=st.integers(1, 4), max_tokens=st.integers(1, 6)
)
def test_a_look_up_is_what_reading_backwards_finds(tokens, n_gram, max_tokens):
    """The slow twin tries every length and place, and reads what it proposes as it goes."""
    expected: list[int] = []
    for n in range(n_gram, 0, -1):
        starts = [s for s in range(len(tokens) - n) if tokens[s : s + n] == tokens[len(tokens) - n :]]
        if starts:
            read = list(tokens)
            for i in range(min(max_tokens, 5)):
                read.append(read[starts[-1] + n + i])
            expected = read[len(tokens) :]
            break
    _, proposed = LookupDrafter(n_gram, n_tokens=5).propose(np.array(tokens, dtype=np.int32), max_tokens)
    assert proposed.tolist() == expected


def test_a_look_up_saves_calls_where_the_text_goes_round():
    """A model that says `a b c` over and over: after the first round every call brings nine tokens."""
    cycle = {3: 4, 4: 5, 5: 3}
    planted = {}
    path = (*PROMPT,)
    for _ in range(30):
        follows = cycle[path[-1]]
        planted[path] = [50.0 if token == follows else 0.0 for token in range(26)]
        path = (*path, follows)
    model = HashModel(0, planted=planted)
    spec = spec_of(make_vocabulary(), stopping=StopParams(max_tokens=30), drafter=LookupDrafter())
    sampled = run(SampleTask(spec), model)
    assert sampled.tokens.tolist() == list(path[len(PROMPT) :])
    assert model.calls == 1 + 2 + 3  # the prompt; b and c, of which nothing is known; 27 tokens by nine


def test_drafts_that_cannot_work_are_refused():
    """A forking model, the engine itself, other tokens, and what does not propose: each with its reason."""
    with Engine(HashModel(0), check=CHECK) as engine, Engine(HashModel(1), check=CHECK) as second:
        model = HashModel(0)
        check_draft(EngineDrafter(second), model)
        check_draft(LookupDrafter(), model)
        for kind in (ModelKind.RECURRENT, ModelKind.HYBRID):
            forking = HashModel(0, limits=replace(WIDE, kind=kind))
            with pytest.raises(UnsupportedModelError, match=f"a {kind.value} model has a state at the tip alone"):
                check_draft(LookupDrafter(), forking)
        with pytest.raises(OptionError, match="a second engine"):
            check_draft(EngineDrafter(engine), engine._model)
        with pytest.raises(OptionError, match="a method `propose`"):
            check_draft("small.gguf", model)
        other = HashModel(0, vocabulary=make_vocabulary([b"a", b"b"]))
        with pytest.raises(UnsupportedModelError, match="hash-1: its tokens are not those of hash-0"):
            check_draft(EngineDrafter(second), other)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LookupDrafter(0),
        lambda: LookupDrafter(2, 0),
        lambda: EngineDrafter(None, 0),
        lambda: EngineDrafter(None, 1, 0),
    ],
)
def test_drafters_of_nothing_are_refused(make):
    """Every length is at least one."""
    with pytest.raises(OptionError, match="at least 1"):
        make()


def test_a_draft_on_real_kernels_changes_no_text(tiny_model):
    """On f32 weights, up to the first draw that rounding could change; greedily, with its own weights, it guesses right."""
    path = tiny_model("f32")
    with load(path, n_threads=1, n_ctx=256) as engine, load(path, n_threads=1, n_ctx=256) as second:
        prompt = engine.vocabulary.encode(b"Once upon a time")
        drafter = EngineDrafter(second, depth=3, branching=2)
        for sampling in (SamplingParams.GREEDY, SamplingParams()):
            spec = spec_of(engine.vocabulary, prompt, sampling=sampling, tolerance=engine.tolerance)
            plain = engine._model_thread.submit(SampleTask(spec)).result()
            handle = engine._model_thread.submit(SampleTask(replace(spec, drafter=drafter)))
            drafted = handle.result()
            n = min((*plain.close_steps, *drafted.close_steps, len(plain.tokens)))
            assert n > 0
            assert drafted.tokens[:n].tolist() == plain.tokens[:n].tolist()
            np.testing.assert_allclose(drafted.logp[:n], plain.logp[:n], rtol=0, atol=engine.tolerance)
            if sampling is SamplingParams.GREEDY and n == len(plain.tokens):
                assert drafted.n_accepted == 8
                assert handle.cost.model_calls <= 4
