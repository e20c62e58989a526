"""One sequence drawn token by token: what it asks for, where it ends, and that neither drafts nor neighbours move it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import log
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.core.automaton import ChoiceAutomaton
from selectrie.core.numerics import uniform
from selectrie.core.rows import DenseRows
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import Capacity, Limits, ModelKind
from selectrie.decoding.sampling.sampler import Sampler
from selectrie.decoding.sampling.task import DraftLimits, DraftTree, Sampled, SampleSpec, SampleTask
from selectrie.engine.scheduler.scheduler import Job, Scheduler
from selectrie.errors import CancelledError, OptionError, ProtocolError, TokenRangeError
from selectrie.options import SamplingParams, StopParams
from selectrie.testing import HashModel, TableModel, make_vocabulary
from selectrie.testing.fakes import EOS, spell
from selectrie.testing.oracles import probabilities, run
from tests.support.n_examples import n_examples
from tests.support.task_driver import Driver

VOCABULARY = make_vocabulary()
PIECES = VOCABULARY.pieces
PROMPT = np.array([0, 3], dtype=np.int32)
WIDE = Capacity(rows=512, nodes=4096, sequences=256)
SAME = SamplingParams.UNCHANGED

seeds = st.integers(0, 2**31)
chains = st.sampled_from(
    [
        SAME,
        SamplingParams(),
        SamplingParams.GREEDY,
        SamplingParams(temperature=1.5, top_k=5, top_p=0.9, min_p=0),
        SamplingParams(
            temperature=1, repeat_penalty=1.3, frequency_penalty=0.4, penalty_last_n=4, logit_bias={3: -2.0, 7: 1.0}
        ),
    ]
)
stops = st.lists(st.sampled_from(["at", " c", "é", "\n", "ab", "tt"]), max_size=2)
stoppings = st.builds(
    lambda max_tokens, at_least, **named: StopParams(max_tokens, min_tokens=min(max_tokens, at_least), **named),
    max_tokens=st.integers(1, 9),
    at_least=st.sampled_from([0, 0, 1, 2, 4, 9]),
    stop=stops,
    stop_tokens=st.lists(st.integers(2, 25), max_size=1),
    ignore_eog=st.booleans(),
)


def spec_of(model=None, prompt=PROMPT, *, eog=(EOS,), **options) -> SampleSpec:
    """A specification in the tiny vocabulary."""
    vocabulary = VOCABULARY if model is None else model.vocabulary
    options = {"seed": 0, **options}
    return SampleSpec(
        prompt=np.asarray(prompt, dtype=np.int32),
        pieces=vocabulary.pieces,
        texts=vocabulary.texts,
        eog=np.array(eog, dtype=np.int32),
        **options,
    )


def facts(sampled: Sampled) -> dict[str, object]:
    """Everything about a sequence that may not depend on how it was made."""
    return {
        "text": sampled.text,
        "data": sampled.data,
        "tokens": sampled.tokens.tolist(),
        "logp": sampled.logp.tolist(),
        "alternatives": sampled.alternatives,
        "named": sampled.named,
        "ends": (sampled.finish, sampled.stop, sampled.ended_by),
        "close": sampled.close_steps,
    }


def twin(model, spec: SampleSpec) -> dict[str, object]:
    """The slow version: every step evaluates the whole path anew, with a new sampler, and reads all bytes again."""
    stopping, automaton = spec.stopping, spec.automaton
    no_ends = np.setdiff1d(np.arange(len(PIECES)), spec.eog)
    state = automaton.start() if automaton else 0
    drawn, logp, finish, stop, n_free = [], [], None, None, 0
    while finish is None:
        path = [*spec.prompt.tolist(), *drawn]
        allowed = no_ends if stopping.ignore_eog else None
        if len(drawn) < stopping.min_tokens:
            allowed = np.setdiff1d(no_ends, stopping.stop_tokens)
        if automaton is not None:
            allowed = [*automaton.allowed(state), *(spec.eog if automaton.can_end(state) else ())]
            allowed = np.array(sorted(set(allowed) & set(no_ends) if stopping.ignore_eog else allowed))
            if not len(automaton.allowed(state)):
                finish = "automaton"
                break
        allowed = None if allowed is None else np.asarray(allowed, dtype=np.int32)
        row, sampler = DenseRows(model.row(path)[None]), Sampler(spec.sampling, np.array(path, dtype=np.int32))
        token = sampler.draw(row, 0, uniform(spec.seed, len(drawn)), allowed=allowed, tolerance=spec.tolerance).token
        drawn.append(token)
        logp.append(log(probabilities(model, path)[token]))
        data = b"".join(PIECES[t] for t in drawn)
        ends = [(at, -len(s.encode()), s) for s in stopping.stop for at in ends_of(s.encode(), data) if at > n_free]
        found = ends if len(drawn) > stopping.min_tokens else []
        n_free = len(data) if len(drawn) <= stopping.min_tokens else n_free
        if token in spec.eog or token in stopping.stop_tokens:
            finish, drawn_text = "eog" if token in spec.eog else "stop", drawn[:-1]
            data = b"".join(PIECES[t] for t in drawn_text)
        elif found:
            finish, (end, less, stop) = "stop", min(found)
            data = data[: end + less]
        elif len(drawn) == stopping.max_tokens:
            finish = "length"
        if automaton is not None and finish in (None, "length"):
            state = automaton.advance(state, token)
            finish = "automaton" if not len(automaton.allowed(state)) else finish
    data = b"" if not drawn else data
    return {"tokens": drawn, "logp": logp, "data": data, "text": whole_characters(data), "ends": (finish, stop)}


def ends_of(stop: bytes, data: bytes) -> list[int]:
    """Where a stop string ends in the data."""
    return [at for at in range(len(stop), len(data) + 1) if data[:at].endswith(stop)]


def whole_characters(data: bytes) -> str:
    """The text of bytes, an incomplete character at the end left out."""
    for n in range(min(4, len(data) + 1)):
        head = data[: len(data) - n].decode("utf-8", "replace")
        if data.decode("utf-8", "replace") == head + "\ufffd" and data[len(data) - n :][:1] >= b"\xc2":
            return head
    return data.decode("utf-8", "replace")


def check_twin(sampled: Sampled, expected: dict[str, object]) -> None:
    """The sequence is the twin's."""
    assert sampled.tokens.tolist() == expected["tokens"]
    assert (sampled.text, sampled.data) == (expected["text"], expected["data"])
    assert (sampled.finish, sampled.stop) == expected["ends"]
    np.testing.assert_allclose(sampled.logp, expected["logp"], atol=1e-5)
    assert sampled.joint == pytest.approx(sum(expected["logp"]), abs=1e-4)


class Guesses:
    """A drafter that proposes random trees: duplicates, wrong guesses and right ones (`truth`: tokens to come)."""

    def __init__(self, seed: int, truth: Sequence[int] = (), n_prompt: int = len(PROMPT)) -> None:
        self._rng = np.random.default_rng(seed)
        self._truth, self._n_prompt = list(truth), n_prompt
        self.most: list[int] = []

    def propose(self, tokens, most):
        self.most.append(most)
        assert not tokens.flags.writeable
        n = int(self._rng.integers(0, 9))
        parents = [int(self._rng.integers(-1, i)) for i in range(n)]
        depth: list[int] = []
        ids = []
        for parent in parents:
            depth.append(0 if parent < 0 else depth[parent] + 1)
            at = len(tokens) - self._n_prompt + depth[-1]
            is_right = at < len(self._truth) and self._rng.random() < 0.7
            ids.append(self._truth[at] if is_right else int(self._rng.integers(len(PIECES))))
        return np.array(parents, dtype=np.int32), np.array(ids, dtype=np.int32)


class Oracle:
    """A drafter that knows what will be drawn, `depth` tokens of it."""

    def __init__(self, truth: Sequence[int], depth: int, n_prompt: int = len(PROMPT)) -> None:
        self._truth, self._depth, self._n_prompt = list(truth), depth, n_prompt

    def propose(self, tokens, most):
        done = len(tokens) - self._n_prompt
        ids = np.array(self._truth[done : done + min(self._depth, most)], dtype=np.int32)
        return np.arange(-1, len(ids) - 1, dtype=np.int32), ids


class Fixed:
    """A drafter that always proposes the same."""

    def __init__(self, parents, tokens) -> None:
        self._proposal = parents, tokens

    def propose(self, tokens, most):
        return self._proposal


def choices(*paths: Sequence[int]) -> ChoiceAutomaton:
    return ChoiceAutomaton(TokenTrie.from_sequences(paths))


def work(scheduler: Scheduler, most_steps: int = 2000) -> None:
    for _ in range(most_steps):
        if scheduler.idle:
            return
        scheduler.step()
    pytest.fail("the scheduler does not finish")


def assert_empty(model) -> None:
    """Nothing is held, and after `trim` nothing is cached."""
    model.trim(0)
    assert model.contexts == {0: ()}


@settings(max_examples=n_examples(150))
@given(seed=seeds, weights=st.integers(0, 50), sampling=chains, stopping=stoppings)
def test_a_sequence_is_what_evaluating_every_path_anew_would_draw(seed, weights, sampling, stopping):
    """Tokens, text, bytes, log-probabilities and the way it ends are the slow twin's."""
    model = HashModel(weights)
    spec = spec_of(seed=seed, sampling=sampling, stopping=stopping, eog=(EOS, 17))
    sampled = run(SampleTask(spec), model)
    check_twin(sampled, twin(model, spec))
    assert model.rows == len(PROMPT) + len(sampled.tokens) - 1
    assert_empty(model)


def test_the_first_tokens_do_not_end_a_sequence():
    """Stop tokens and ends are not drawn, a stop string counts if a later token completes it, and only then the callback."""
    pieces = ("ca", "t", "a", "t", "\n", "at", "a")
    for n, expected in ((0, "c"), (2, "cata"[:3]), (3, "cat"), (4, "catat\n"), (5, "catat\n"), (6, "catat\nata")):
        sampled = forced(*pieces, stopping=StopParams(max_tokens=7, min_tokens=n, stop=["at"]))
        assert sampled.text == expected, n
    heard = []
    forced("ca", "a", "t", stopping=StopParams(max_tokens=3, min_tokens=1, when=heard.append))
    assert heard == ["caa", "caat"]
    for seed in range(20):
        stopping = StopParams(max_tokens=9, min_tokens=5, stop_tokens=range(2, 12))
        sampled = run(SampleTask(spec_of(seed=seed, sampling=SAME, stopping=stopping)), HashModel(seed))
        assert len(sampled.tokens) >= 5
        assert not set(sampled.tokens[:5].tolist()) & {EOS, *range(2, 12)}
    with pytest.raises(ProtocolError, match="automaton"):
        spec_of(stopping=StopParams(min_tokens=1), automaton=choices([3]))


@pytest.mark.parametrize("sampling", [SAME, SamplingParams.GREEDY])
def test_named_tokens_are_read_from_every_row(sampling):
    """With a draft too, in the order in which they were named, and equal to the token's own value to the last bit."""
    named, model = (5, 3, EOS, 5), HashModel(2)
    spec = spec_of(seed=4, sampling=sampling, stopping=StopParams(max_tokens=6, ignore_eog=True), named=named)
    for drafter in (None, Guesses(1)):
        sampled = run(SampleTask(replace(spec, drafter=drafter)), HashModel(2))
        path = [*PROMPT, *sampled.tokens.tolist()]
        for index, values in enumerate(sampled.named):
            row = DenseRows(model.row(path[: len(PROMPT) + index])[None])
            assert values == tuple(row.logp(0, named).tolist())
            own = [value for one, value in zip(named, values, strict=True) if one == sampled.tokens[index]]
            assert all(value == sampled.logp[index] for value in own)
        assert len(sampled.named) == 6


def test_the_comparison_with_the_twin_can_fail():
    """Another seed is another sequence, and a token more is noticed."""
    model = HashModel(3)
    spec = spec_of(seed=5, sampling=SAME)
    expected = twin(model, spec)
    with pytest.raises(AssertionError):
        check_twin(run(SampleTask(replace(spec, seed=6)), model), expected)


@settings(max_examples=n_examples(60))
@given(
    seed=seeds, weights=st.integers(0, 50), extra=st.lists(st.tuples(*[st.integers(0, 8)] * 3), min_size=1, max_size=4)
)
def test_any_room_from_the_floor_on_gives_the_same_sequence(seed, weights, extra):
    """With a draft or without, an ask stays within its room, releases what it left, and moves nothing."""
    spec = spec_of(seed=seed, sampling=SAME, stopping=StopParams(max_tokens=8, ignore_eog=True))
    alone = run(SampleTask(spec), HashModel(weights))
    floor = SampleTask(spec).floor
    rooms = [Capacity(floor.rows + a, floor.nodes + b, floor.sequences + c) for a, b, c in extra]
    assert floor == Capacity(1, 7, 1)
    for drafter in (None, Guesses(seed, alone.tokens)):
        driver = Driver(HashModel(weights), rooms)
        assert facts(driver.run(SampleTask(replace(spec, drafter=drafter)))) == facts(alone)
        assert max(driver.told.values()) == 1


@pytest.mark.short("attention", "recurrent")
@pytest.mark.parametrize("kind", ModelKind)
@settings(max_examples=n_examples(40))
@given(seed=seeds, weights=st.integers(0, 50), stopping=stoppings, sampling=chains)
def test_a_draft_changes_no_sequence(kind, seed, weights, stopping, sampling):
    """Whatever is guessed, in a model of any kind; and what was guessed is counted."""
    limits = Limits(nodes=400, sequences=100, rows_per_call=40, kind=kind, max_idle_rows=400)
    spec = spec_of(seed=seed, sampling=sampling, stopping=stopping, n_alternatives=2)
    without = run(SampleTask(spec), HashModel(weights))
    model = HashModel(weights, limits=limits)
    drafted = run(SampleTask(replace(spec, drafter=Guesses(seed, without.tokens))), model)
    assert facts(drafted) == facts(without)
    assert drafted.n_accepted <= drafted.n_drafted
    assert model.rows == len(PROMPT) + len(without.tokens) - 1 + drafted.n_drafted - drafted.n_accepted
    assert_empty(model)


@pytest.mark.parametrize(("depth", "calls"), [(0, 9), (1, 5), (2, 3), (4, 2), (8, 1), (20, 1)])
def test_right_guesses_save_calls(depth, calls):
    """Ten tokens: the first from the prompt's row, the other nine from 9 / (depth + 1) calls, rounded up."""
    spec = spec_of(seed=1, sampling=SAME, stopping=StopParams(max_tokens=10, ignore_eog=True))
    truth = run(SampleTask(spec), HashModel(2)).tokens
    model = HashModel(2)
    drafted = run(SampleTask(replace(spec, drafter=Oracle(truth, depth))), model)
    assert drafted.tokens.tolist() == truth.tolist()
    assert model.calls == 1 + calls
    assert drafted.n_accepted == drafted.n_drafted == 9 - calls
    assert model.rows == len(PROMPT) + 9


def test_no_guess_is_deeper_than_what_may_still_be_drawn():
    """Of three tokens two are evaluated: one guess below the first, none below the second, none at all before one token."""
    ids = np.full(20, 3, dtype=np.int32)
    for most, drafted in ((1, 0), (2, 0), (3, 1), (4, 2)):
        spec = spec_of(
            sampling=replace(SamplingParams.GREEDY, logit_bias={3: 100.0}),
            stopping=StopParams(max_tokens=most),
            drafter=Fixed(np.arange(-1, 19, dtype=np.int32), ids),
        )
        sampled = run(SampleTask(spec), HashModel(0))
        assert (sampled.n_drafted, sampled.n_accepted) == (drafted, drafted)
        assert sampled.tokens.tolist() == [3] * most


@pytest.mark.parametrize(
    ("parents", "tokens", "limits", "expected"),
    [
        ([-1, 0, 1], [5, 6, 7], (9, 9, 9), ([0, 1, 2], [5, 6, 7])),
        ([-1, 0, 1], [5, 6, 7], (2, 9, 9), ([0, 1], [5, 6])),  # most
        ([-1, 0, 1], [5, 6, 7], (9, 1, 9), ([0], [5])),  # depth
        ([-1, -1, 0, 1], [5, 6, 7, 8], (9, 9, 1), ([0, 1], [5, 7])),  # branches
        ([-1, -1, -1, 1], [5, 6, 7, 8], (9, 9, 2), ([0, 0, 2], [5, 6, 8])),
        ([-1, -1, 0, 1, 3], [5, 5, 6, 6, 7], (9, 9, 1), ([0, 1, 2], [5, 6, 7])),  # duplicates
        ([-1, 0, -1], [1, 6, 7], (9, 9, 9), ([0], [7])),  # below a token that ends the sequence
        ([-1, 0, -1], [5, 1, 5], (9, 9, 9), ([0], [5])),
        ([], [], (9, 9, 9), ([], [])),
    ],
)
def test_a_proposal_is_cut_to_what_is_worth_evaluating(parents, tokens, limits, expected):
    """Places run from the tip, 0; equal paths once, no deeper, no wider, no more than there is room for."""
    most, depth, branches = limits
    proposed = np.array(parents, dtype=np.int32), np.array(tokens, dtype=np.int32)
    tree = DraftTree.of(proposed, DraftLimits(most, depth, branches, 26), {EOS})
    assert (tree.parents, tree.tokens) == expected


def test_a_long_draft_is_read_in_one_pass():
    """20 000 proposals in a row take no longer, each, than a few: a second for all is plenty."""
    n = 20_000
    proposed = np.arange(-1, n - 1, dtype=np.int32), np.full(n, 3, dtype=np.int32)
    start = process_time()
    tree = DraftTree.of(proposed, DraftLimits(n, n, 1, 26), {EOS})
    assert process_time() - start < 1
    assert tree.parents == list(range(n))


@pytest.mark.parametrize(
    ("proposed", "error", "words"),
    [
        (None, OptionError, "two integer arrays of equal length"),
        (([-1],), OptionError, "two integer arrays of equal length"),
        (([-1, 0], [3]), OptionError, "of equal length"),
        (([-1.0], [3]), OptionError, "integer"),
        (([[-1]], [[3]]), OptionError, "integer"),
        (([0], [3]), OptionError, "the parent of proposal 0 is 0"),
        (([-1, -2], [3, 3]), OptionError, "the parent of proposal 1 is -2"),
        (([-1, 2, 0], [3, 3, 3]), OptionError, "the parent of proposal 1 is 2"),
        (([-1], [26]), TokenRangeError, "ids run from 0 to 25"),
        (([-1, 0], [3, -1]), TokenRangeError, "token -1"),
    ],
)
def test_a_wrong_proposal_ends_its_own_sequence_and_no_other(proposed, error, words):
    """One clear error, before anything is asked for; the sequence beside it goes on."""
    scheduler = Scheduler(HashModel(0))
    spec = spec_of(seed=3, sampling=SAME, stopping=StopParams(max_tokens=6, ignore_eog=True))

    class Wrong:
        def propose(self, tokens, most):
            return proposed

    jobs = [Job(SampleTask(replace(spec, drafter=drafter))) for drafter in (None, Wrong())]
    for job in jobs:
        scheduler.submit(job)
    work(scheduler)
    with pytest.raises(error, match=words):
        jobs[1].future.result(timeout=0)
    assert facts(jobs[0].future.result(timeout=0)) == facts(run(SampleTask(spec), HashModel(0)))
    assert_empty(scheduler.model)


@pytest.mark.parametrize("kind", [ModelKind.ATTENTION, ModelKind.RECURRENT])
@settings(max_examples=n_examples(40))
@given(data=st.data(), weights=st.integers(0, 50))
def test_sequences_together_are_each_alone(kind, data, weights):
    """Prompts that share beginnings, drafts, small models, some cancelled on the way: the others are as if alone."""
    limits = Limits(data.draw(st.integers(40, 90)), data.draw(st.integers(24, 40)), 16, kind, 400)
    model = HashModel(weights, limits=limits)
    scheduler = Scheduler(model)
    n = data.draw(st.integers(1, 6))
    specs = []
    for i in range(n):
        prompt = [0, 3, 4, 5][: data.draw(st.integers(1, 4))] + data.draw(st.lists(st.integers(2, 25), max_size=2))
        drafted = data.draw(st.booleans()) and not kind.is_recurrent
        specs.append(
            spec_of(
                prompt=prompt,
                seed=data.draw(st.integers(0, 5)),
                sampling=data.draw(chains),
                stopping=data.draw(stoppings),
                drafter=Guesses(i, data.draw(st.lists(st.integers(2, 25), max_size=9))) if drafted else None,
            )
        )
    cancel_at = {i: data.draw(st.integers(0, 12)) for i in range(n) if data.draw(st.booleans())}
    jobs = [Job(SampleTask(spec)) for spec in specs]
    for job in jobs:
        scheduler.submit(job)
    for step in range(400):
        for i, job in enumerate(jobs):
            job.cancelled = job.cancelled or cancel_at.get(i) == step
        if scheduler.idle:
            break
        scheduler.step()
    assert scheduler.idle
    for i, (job, spec) in enumerate(zip(jobs, specs, strict=True)):
        if i in cancel_at and isinstance(job.future.exception(timeout=0), CancelledError):
            continue
        assert facts(job.future.result(timeout=0)) == facts(
            run(SampleTask(replace(spec, drafter=None)), HashModel(weights))
        )
    scheduler.forget_all()
    assert_empty(model)


def test_equal_sequences_share_every_row():
    """Four sequences of one prompt and one seed cost what one costs."""
    model = HashModel(4)
    scheduler = Scheduler(model)
    spec = spec_of(seed=9, sampling=SAME, stopping=StopParams(max_tokens=6, ignore_eog=True))
    jobs = [Job(SampleTask(spec)) for _ in range(4)]
    for job in jobs:
        scheduler.submit(job)
    work(scheduler)
    assert {job.future.result(timeout=0).text for job in jobs} == {jobs[0].future.result().text}
    assert model.rows == len(PROMPT) + 5


@pytest.mark.parametrize("kind", [ModelKind.RECURRENT, ModelKind.HYBRID])
def test_a_forking_model_needs_few_states_however_long_the_sequence(kind):
    """The state behind the tip is given back as soon as the tip has moved on: 30 tokens with three states."""
    limits = Limits(nodes=100, sequences=3, rows_per_call=4, kind=kind, max_idle_rows=100)
    spec = spec_of(seed=2, sampling=SAME, stopping=StopParams(max_tokens=30, ignore_eog=True))
    model = HashModel(1, limits=limits)
    assert facts(run(SampleTask(spec), model)) == facts(run(SampleTask(spec), HashModel(1)))
    assert max(model.evaluations.values()) == 1


TABLE = {
    (): {"a": 0.5, "b": 0.25, "<eos>": 0.25},
    ("a",): {"t": 0.75, "<eos>": 0.25},
    ("b",): {"a": 0.25, "b": 0.25, "c": 0.5},
    ("a", "t"): {"<eos>": 0.5, "s": 0.5},
    ("b", "a"): {"<eos>": 1.0},
    ("b", "b"): {"t": 0.75, "u": 0.25},
    ("b", "c"): {"r": 1.0},
}
SEQUENCES = {
    "": 0.25,
    "a": 0.5 * 0.25,
    "at": 0.5 * 0.75 * 0.5,
    "ats": 0.5 * 0.75 * 0.5,
    "ba": 0.25 * 0.25,
    "bbt": 0.25 * 0.25 * 0.75,
    "bbu": 0.25 * 0.25 * 0.25,
    "bcr": 0.25 * 0.5,
}
"""Every sequence of three tokens at most that the table can give, with its probability."""


@pytest.mark.parametrize("drafter", [None, Fixed([-1, 0, -1, 2], [3, 9, 4, 5])])
def test_sequences_come_as_often_as_they_are_probable(monkeypatch, drafter):
    """Exactly: every combination of three uniform numbers from the middles of four equal intervals is drawn once."""
    counts, joint = Counter(), {}
    spec = spec_of(prompt=[0], sampling=SAME, stopping=StopParams(max_tokens=3), drafter=drafter)
    for numbers in product((0.125, 0.375, 0.625, 0.875), repeat=3):
        monkeypatch.setattr(
            "selectrie.decoding.sampling.task.uniform", lambda _seed, step, numbers=numbers: numbers[step]
        )
        sampled = run(SampleTask(spec), TableModel(TABLE))
        counts[sampled.text] += 1
        joint[sampled.text] = sampled.joint
    assert {text: count / 4**3 for text, count in counts.items()} == SEQUENCES
    for text, p in SEQUENCES.items():
        assert joint[text] == pytest.approx(log(p), abs=1e-6)


def test_the_random_numbers_are_those_of_seed_and_step(monkeypatch):
    """Asked for once per token, in order, drafted or not."""
    asked = []

    def recorded(seed, step):
        asked.append((seed, step))
        return uniform(seed, step)

    monkeypatch.setattr("selectrie.decoding.sampling.task.uniform", recorded)
    spec = spec_of(seed=11, sampling=SAME, stopping=StopParams(max_tokens=4, ignore_eog=True))
    truth = run(SampleTask(spec), HashModel(0)).tokens
    run(SampleTask(replace(spec, drafter=Oracle(truth, 2))), HashModel(0))
    assert asked == [(11, step) for step in range(4)] * 2


def forced(*pieces: str, eog=(EOS,), **options) -> Sampled:
    """A model that says these pieces after `<bos>` and then `.` for ever, drawn greedily."""
    steps = (*pieces, *["."] * 12)
    table = {steps[:n]: {steps[n]: 1.0} for n in range(len(steps) - 1)}
    options = {"sampling": SamplingParams.GREEDY, "stopping": StopParams(max_tokens=12), **options}
    return run(SampleTask(spec_of(prompt=[0], eog=eog, **options)), TableModel(table))


@pytest.mark.parametrize(
    ("pieces", "stopping", "expected"),
    [
        (["a", "<eos>"], StopParams(), ("a", "eog", None, EOS, 2)),
        (["<eos>"], StopParams(), ("", "eog", None, EOS, 1)),
        (["cat", "<eos>"], StopParams(max_tokens=1), ("cat", "length", None, None, 1)),
        (["cat", "<eos>"], StopParams(max_tokens=2), ("cat", "eog", None, EOS, 2)),
        (["ca", "t", "s"], StopParams(stop="at"), ("c", "stop", "at", None, 2)),
        (["ca", "t", "s"], StopParams(stop=["ts", "at"]), ("c", "stop", "at", None, 2)),
        (["ca", "a"], StopParams(stop="at", max_tokens=2), ("caa", "length", None, None, 2)),
        (["ca", "a"], StopParams(stop_tokens=[3]), ("ca", "stop", None, 3, 2)),
        (["a", "é", "b"], StopParams(stop="é"), ("a", "stop", "é", None, 2)),
        (["a", "\\xc3", "\\xa9", "b"], StopParams(max_tokens=4), ("aéb", "length", None, None, 4)),
        (["a", "\\xc3", "\\xa9"], StopParams(max_tokens=2), ("a", "length", None, None, 2)),
        (["a", "\\xc3", "<eos>"], StopParams(), ("a", "eog", None, EOS, 3)),
        (["a", "\\xc3", "b"], StopParams(max_tokens=3), ("a\ufffdb", "length", None, None, 3)),
        (["a", "b", "c"], StopParams(when=lambda text: text.endswith("b")), ("ab", "callback", None, None, 2)),
        (["a", "b", "c"], StopParams(when=lambda text: text.endswith("b"), stop="b"), ("a", "stop", "b", None, 2)),
    ],
)
def test_each_way_to_end(pieces, stopping, expected):
    """Text, finish, the stop string, the token that is no text, and how many were drawn."""
    sampled = forced(*pieces, stopping=stopping)
    assert (sampled.text, sampled.finish, sampled.stop, sampled.ended_by, len(sampled.tokens)) == expected
    assert len(sampled.logp) == len(sampled.tokens)


def test_an_incomplete_character_is_in_the_bytes_and_not_in_the_text():
    """The text stops before it; the bytes have it."""
    sampled = forced("a", "\\xc3", stopping=StopParams(max_tokens=2))
    assert (sampled.text, sampled.data) == ("a", b"a\xc3")


def test_every_end_of_generation_token_ends_it_and_none_is_drawn_when_they_are_ignored():
    """Two such ids; ignoring them forbids both, though they are the most probable by far."""
    model = HashModel(0, planted={(*PROMPT,): [9.0 if i in (1, 7) else 0.0 for i in range(26)]})
    for seed in range(6):
        spec = spec_of(seed=seed, eog=(1, 7), sampling=SAME)
        sampled = run(SampleTask(spec), model)
        assert (sampled.finish, sampled.ended_by) == ("eog", sampled.tokens[-1])
        ignoring = replace(spec, stopping=StopParams(max_tokens=20, ignore_eog=True))
        sampled = run(SampleTask(ignoring), model)
        assert sampled.finish == "length"
        assert not {1, 7} & set(sampled.tokens.tolist())


@settings(max_examples=n_examples(60))
@given(seed=seeds, weights=st.integers(0, 30), stopping=stoppings, is_drafted=st.booleans())
def test_streamed_text_is_the_text(seed, weights, stopping, is_drafted):
    """Pieces of text taken after every tell add up to it, and none is taken back."""
    taken = []

    class Streaming(SampleTask):
        def tell(self, rows):
            super().tell(rows)
            taken.append(self.new_text())

    spec = spec_of(seed=seed, stopping=stopping, sampling=SAME)
    spec = replace(spec, drafter=Guesses(seed)) if is_drafted else spec
    task = Streaming(spec)
    sampled = run(task, HashModel(weights))
    assert "".join(taken) == sampled.text
    assert task.new_text() == ""


@pytest.mark.parametrize(
    ("prompt", "pieces", "expected"),
    [
        (["\\xc3"], ["\\xa9", "a"], ("éa", b"\xa9a")),
        (["\\xc3"], ["a", "b"], ("ab", b"ab")),
        (["\\xc3"], ["\\xc3", "\\xa9"], ("é", b"\xc3\xa9")),
        (["\\xc3"], ["a", "\\xa9"], ("a\ufffd", b"a\xa9")),
        (["a"], ["\\xa9", "a"], ("\ufffda", b"\xa9a")),
        (["\\xc3", "<eos>"], ["\\xa9", "a"], ("\ufffda", b"\xa9a")),
        (["\\xc3", "\\xa9"], ["b", "a"], ("ba", b"ba")),
    ],
)
def test_a_character_that_the_prompt_began_is_finished(prompt, pieces, expected):
    """Whole in the text, its own bytes alone in the data; where it is broken off, its remains are not this text's."""
    table = {tuple(pieces[:n]): {pieces[n]: 1.0} for n in range(len(pieces))}
    prompt = ("<bos>", *prompt)
    spec = spec_of(prompt=spell(VOCABULARY, prompt), sampling=SamplingParams.GREEDY, stopping=StopParams(max_tokens=2))
    sampled = run(SampleTask(spec), TableModel(table, prompt=prompt))
    assert (sampled.text, sampled.data) == expected


def test_log_probabilities_are_the_models_own():
    """Before temperature, bias and masks; the alternatives are the most probable tokens with theirs."""
    model = HashModel(8)
    spec = spec_of(
        seed=4,
        sampling=SamplingParams(temperature=0.3, logit_bias={5: 50.0}),
        stopping=StopParams(max_tokens=2, ignore_eog=True),
        n_alternatives=3,
    )
    sampled = run(SampleTask(spec), model)
    assert sampled.tokens.tolist() == [5, 5]
    for step, path in enumerate(((*PROMPT,), (*PROMPT, 5))):
        p = probabilities(model, path)
        best = sorted(range(26), key=lambda token: -p[token])[:3]
        assert sampled.logp[step] == pytest.approx(log(p[5]), abs=1e-6)
        assert [token.id for token in sampled.alternatives[step]] == best
        assert [token.logp for token in sampled.alternatives[step]] == pytest.approx(
            [log(p[t]) for t in best], abs=1e-6
        )
        assert [token.piece for token in sampled.alternatives[step]] == [PIECES[t] for t in best]


@settings(max_examples=n_examples(60))
@given(
    paths=st.lists(st.lists(st.integers(2, 6), min_size=1, max_size=4).map(tuple), min_size=1, max_size=6),
    seed=seeds,
    ignore=st.booleans(),
)
def test_an_automaton_restricts_every_step(paths, seed, ignore):
    """The tokens are one of the paths, the slow twin's, ended by EOG where a path goes on and by the automaton where not."""
    spec = spec_of(seed=seed, sampling=SAME, stopping=StopParams(ignore_eog=ignore), automaton=choices(*paths))
    sampled = run(SampleTask(spec), HashModel(seed % 7))
    check_twin(sampled, twin(HashModel(seed % 7), spec))
    drawn = tuple(sampled.tokens.tolist())
    goes_on = any(path[: len(drawn) - 1] == drawn[:-1] and len(path) >= len(drawn) for path in paths)
    if sampled.finish == "eog":
        assert drawn[:-1] in paths
        assert goes_on
    else:
        assert sampled.finish == "automaton"
        assert drawn in paths
    drafted = run(SampleTask(replace(spec, drafter=Guesses(seed, sampled.tokens))), HashModel(seed % 7))
    assert facts(drafted) == facts(sampled)


def test_an_automaton_of_the_empty_choice_ends_before_the_first_token():
    """Nothing is drawn and nothing below the prompt is evaluated."""
    model = HashModel(0)
    sampled = run(SampleTask(spec_of(automaton=choices(()))), model)
    assert (sampled.text, sampled.finish, len(sampled.tokens), sampled.joint) == ("", "automaton", 0, 0.0)
    assert model.rows == len(PROMPT)


class Ways:
    """An automaton given as {state: (allowed, can end)}; every token leads to the next state."""

    def __init__(self, ways, *, as_row: bool) -> None:
        self._ways, self._as_row = ways, as_row

    def start(self):
        return 0

    def allowed(self, state):
        ids = np.array(self._ways[state][0], dtype=np.int32)
        return np.isin(np.arange(26), ids) if self._as_row else ids

    def advance(self, state, token):
        assert token in self._ways[state][0]
        return state + 1

    def can_end(self, state):
        return self._ways[state][1]


@pytest.mark.parametrize("as_row", [True, False])
def test_a_dead_end_is_an_error_and_an_end_is_not(as_row):
    """Allowed tokens come as ids or as a row; a state that allows nothing must be one where the text can end."""
    good = Ways([([3, 4], False), ([5], True), ([], True)], as_row=as_row)
    spec = spec_of(seed=1, sampling=SamplingParams(logit_bias={EOS: -np.inf}), automaton=good)
    sampled = run(SampleTask(spec), HashModel(0))
    assert sampled.finish == "automaton"
    assert sampled.tokens.tolist() in ([3, 5], [4, 5])
    dead = Ways([([3, 4], False), ([], False)], as_row=as_row)
    with pytest.raises(ProtocolError, match="allows nothing in state 1"):
        run(SampleTask(replace(spec, automaton=dead)), HashModel(0))


@pytest.mark.parametrize("is_drafted", [True, False])
@pytest.mark.parametrize("n_told", range(5))
def test_a_deadline_ends_it_with_what_is_there(n_told, is_drafted):
    """At any moment, between ask and tell too; what is told afterwards is ignored, and it is never undone."""
    model = HashModel(5)
    spec = spec_of(seed=2, sampling=SAME, stopping=StopParams(max_tokens=9, ignore_eog=True))
    whole = run(SampleTask(spec), model)
    task = SampleTask(replace(spec, drafter=Oracle(whole.tokens, 1)) if is_drafted else spec)
    paths = [tuple(PROMPT)]
    for turn in range(n_told + 1):
        if turn == n_told:
            task.expire()
        task.tell(DenseRows(np.array([model.row(path) for path in paths])))
        ask = task.ask(WIDE)
        if ask is None:
            break
        paths = [(*PROMPT, *whole.tokens[: task.n_tokens + i]) for i in range(len(ask.tokens))]
    sampled = task.result()
    task.expire()
    n = n_told and (2 * n_told - 1 if is_drafted else n_told)
    assert (sampled.finish, sampled.tokens.tolist()) == ("deadline", whole.tokens[:n].tolist())
    assert sampled.text == whole_characters(b"".join(PIECES[t] for t in sampled.tokens))
    assert task.finish == "deadline"
    assert task.ask(WIDE) is None


def test_a_deadline_after_the_end_changes_nothing():
    """It has ended as it has ended."""
    task = SampleTask(spec_of(stopping=StopParams(max_tokens=1)))
    task.tell(DenseRows(HashModel(0).row(PROMPT)[None]))
    task.expire()
    assert task.result().finish in ("length", "eog")


def test_a_callback_that_raises_ends_its_own_sequence_alone():
    """Its error is its caller's answer; the sequence beside it ends as it would alone."""

    def fail(text):
        raise ZeroDivisionError(text)

    scheduler = Scheduler(HashModel(0))
    spec = spec_of(seed=3, sampling=SAME, stopping=StopParams(max_tokens=6, ignore_eog=True))
    jobs = [Job(SampleTask(replace(spec, stopping=replace(spec.stopping, when=when)))) for when in (None, fail)]
    for job in jobs:
        scheduler.submit(job)
    work(scheduler)
    with pytest.raises(ZeroDivisionError):
        jobs[1].future.result(timeout=0)
    assert facts(jobs[0].future.result(timeout=0)) == facts(run(SampleTask(spec), HashModel(0)))
    assert_empty(scheduler.model)


def test_the_callback_sees_the_text_that_is_out():
    """After every token that is text, what no stop string can take back any more."""
    seen = []
    forced("ca", "a", "t", stopping=StopParams(max_tokens=4, stop="at", when=seen.append))
    assert seen == ["c", "ca"]


def test_close_draws_are_counted_by_step():
    """Two tokens of equal probability and a number beside the edge between them; no edge, no closeness."""
    spec = spec_of(prompt=[0], sampling=SamplingParams.GREEDY, stopping=StopParams(max_tokens=3), tolerance=0.01)
    table = {(): {"a": 1.0}, ("a",): {"b": 0.5, "c": 0.499, "s": 0.001}, ("a", "b"): {"t": 0.9, "s": 0.1}}
    assert run(SampleTask(spec), TableModel(table)).close_steps == (1,)
    assert run(SampleTask(replace(spec, tolerance=0.0)), TableModel(table)).close_steps == ()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"prompt": []}, ProtocolError, "at least one token"),
        ({"prompt": [0, 26]}, TokenRangeError, "token 26"),
        ({"eog": (-1,)}, TokenRangeError, "token -1"),
        ({"stopping": StopParams(stop_tokens=[99])}, TokenRangeError, "token 99"),
        ({"sampling": SamplingParams(logit_bias={26: 1.0})}, TokenRangeError, "token 26"),
        ({"seed": -1}, OptionError, "seed"),
        ({"seed": 1 << 128}, OptionError, "below 2"),
        ({"n_alternatives": -1}, OptionError, "n_alternatives"),
        ({"tolerance": float("nan")}, OptionError, "tolerance"),
        ({"tolerance": -0.1}, OptionError, "tolerance"),
    ],
)
def test_a_wrong_specification_is_refused_when_it_is_made(options, error, words):
    """One clear error each."""
    with pytest.raises(error, match=words):
        spec_of(**options)


def test_ask_and_tell_in_the_wrong_order_are_refused():
    """Nothing moves: the sequence goes on where it was."""
    model = HashModel(0)
    spec = spec_of(seed=1, sampling=SAME, stopping=StopParams(max_tokens=3, ignore_eog=True))
    task = SampleTask(spec)
    row = DenseRows(model.row(PROMPT)[None])
    with pytest.raises(ProtocolError, match="called again"):
        task.ask(WIDE)
    with pytest.raises(ProtocolError, match="no result"):
        task.result()
    with pytest.raises(ProtocolError, match="got 2 rows, expected 1"):
        task.tell(DenseRows(np.stack([model.row(PROMPT)] * 2)))
    task.tell(row)
    with pytest.raises(ProtocolError, match="no row is expected"):
        task.tell(row)
    with pytest.raises(ProtocolError, match="below the floor"):
        task.ask(Capacity(1, 1, 1))
    drawn = [task.n_tokens]
    while (ask := task.ask(WIDE)) is not None:
        assert ask.tokens.shape == (1,)
        whole = [*PROMPT, *run(SampleTask(spec), HashModel(0)).tokens[: task.n_tokens]]
        task.tell(DenseRows(model.row(whole)[None]))
        drawn.append(task.n_tokens)
    assert drawn == [1, 2, 3]
    assert facts(task.result()) == facts(run(SampleTask(spec), HashModel(0)))
