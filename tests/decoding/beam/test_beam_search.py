"""Beam search on an automaton: wide enough it is exhaustive, and no room, neighbour or order moves what it finds."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.core.automaton import ChoiceAutomaton
from selectrie.core.rows import DenseRows
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import Capacity, Limits, ModelKind
from selectrie.decoding.beam.expansion import BeamOutcome, BeamSpec
from selectrie.decoding.beam.search import BeamTask
from selectrie.engine.scheduler.scheduler import Job, Scheduler
from selectrie.errors import OptionError, ProtocolError, TokenRangeError
from selectrie.options import BeamSearchParams
from selectrie.testing import HashModel, TableModel, make_vocabulary
from selectrie.testing.fakes import EOS, spell
from selectrie.testing.oracles import naive_joint, run
from tests.support.n_examples import n_examples
from tests.support.task_driver import Driver

VOCABULARY = make_vocabulary()
PIECES = VOCABULARY.pieces
PROMPT = np.array([0, 3], dtype=np.int32)
WIDE = Capacity(rows=512, nodes=4096, sequences=256)
EVERYTHING = BeamSearchParams(width=64, n=64, max_tokens=6)
NEAR = 1e-6
"""Nats between float64 sums of a row and the library's, whose exponentials are float32."""

ROOMS = st.lists(
    st.builds(Capacity, rows=st.integers(1, 5), nodes=st.integers(6, 20), sequences=st.integers(1, 6)),
    min_size=1,
    max_size=4,
)
token_paths = st.lists(st.integers(2, 25), min_size=1, max_size=4).map(tuple)
path_sets = st.lists(token_paths, min_size=1, max_size=12, unique=True)
seeds = st.integers(0, 10**6)


def automaton_of(paths) -> ChoiceAutomaton:
    """Accepts these token paths."""
    tokens = np.concatenate([np.array(path, dtype=np.int32) for path in paths])
    return ChoiceAutomaton(TokenTrie.from_flat(tokens, np.cumsum([0, *map(len, paths)])))


def texts(*pieces: str) -> list[tuple[int, ...]]:
    """Token paths written as pieces with a bar between: "a|t"."""
    return [spell(VOCABULARY, path.split("|")) for path in pieces]


def task_of(paths, beam=EVERYTHING, terminator="none", **spec) -> BeamTask:
    """A beam search over some token paths."""
    automaton = paths if hasattr(paths, "allowed") else automaton_of(paths)
    return BeamTask(PROMPT, automaton, BeamSpec(VOCABULARY, beam, terminator=terminator, **spec))


def search(model, paths, beam=EVERYTHING, terminator="none", **spec) -> BeamOutcome:
    """What it finds on a model nobody else uses."""
    return run(task_of(paths, beam, terminator, **spec), model)


def facts(outcome: BeamOutcome) -> dict[str, object]:
    """Everything that may not depend on how the work was cut."""

    def plain(path):
        return (path.tokens.tolist(), path.token_logp.tolist(), path.logp, path.score, path.n_paths, path.group)

    return {
        "finished": list(map(plain, outcome.finished)),
        "broken": list(map(plain, outcome.broken)),
        "greedy": outcome.greedy and plain(outcome.greedy),
        "agrees": outcome.agrees_with_greedy,
        "stopped": outcome.stopped,
        "lost": outcome.lost,
        "counts": (outcome.n_merged, outcome.n_dead_ends, outcome.n_refused, outcome.n_evaluated),
        "heal": (outcome.heal.low, outcome.heal.high),
    }


def joint(model, path, terminator="none") -> float:
    """The slow twin: every token of the path alone."""
    return naive_joint(model, PROMPT, [path if terminator == "none" else (*path, EOS)])[0]


def brute_force(model, paths, terminator, *, merges: bool, penalty: float = 0.0) -> dict[bytes, float]:
    """The score of every text, by bytes."""
    by_text: dict[bytes, list[tuple[float, int]]] = {}
    for path in paths:
        data = b"".join(PIECES[token] for token in path)
        by_text.setdefault(data, []).append((joint(model, path, terminator), len(path)))
    scores = {}
    for data, ways in by_text.items():
        if merges:
            scores[data] = np.logaddexp.reduce([logp for logp, _ in ways]) / max(ways)[1] ** penalty
        else:
            scores[data] = max(logp / n**penalty for logp, n in ways)
    return scores


# Wide enough is exhaustive


@given(
    paths=path_sets,
    seed=seeds,
    terminator=st.sampled_from(["none", "eog"]),
    penalty=st.sampled_from([0.0, 0.7, 1.0]),
    merges=st.booleans(),
)
@settings(max_examples=n_examples(25))
def test_a_wide_beam_is_exhaustive(paths, seed, terminator, penalty, merges):
    """With room for every path, the texts and their scores are those of brute force over all token paths."""
    model = HashModel(seed)
    beam = replace(EVERYTHING, length_penalty=penalty, merge_equal_text=merges)
    found = search(model, paths, beam, terminator).finished
    expected = brute_force(model, paths, terminator, merges=merges, penalty=penalty)
    assert {path.data: path.score for path in found} == pytest.approx(expected, abs=NEAR)
    assert [path.score for path in found] == sorted((path.score for path in found), reverse=True)


@given(paths=path_sets, seed=seeds, n=st.integers(1, 3), terminator=st.sampled_from(["none", "eog"]))
@settings(max_examples=n_examples(20))
def test_the_first_n_are_settled_before_everything_is_read(paths, seed, n, terminator):
    """Ending by bounds changes none of the first n texts, which a full evaluation puts there too."""
    model = HashModel(seed)
    beam = replace(EVERYTHING, n=n, merge_equal_text=False)
    found = search(model, paths, beam, terminator).finished
    expected = sorted(brute_force(model, paths, terminator, merges=False).values(), reverse=True)[:n]
    assert [path.score for path in found] == pytest.approx(expected, abs=NEAR)


@given(paths=path_sets, seed=seeds, width=st.integers(1, 3), terminator=st.sampled_from(["none", "eog"]))
@settings(max_examples=n_examples(20))
def test_every_text_is_one_of_the_grammar_and_its_joint_is_right(paths, seed, width, terminator):
    """However narrow the beam, each path given is accepted and has the joint of evaluating it alone."""
    model = HashModel(seed, sharpness=2.0)
    beam = BeamSearchParams(width=width, n=3, max_tokens=6)
    for path in search(model, paths, beam, terminator).finished:
        assert tuple(path.tokens.tolist()) in paths
        assert path.logp_path == pytest.approx(joint(model, path.tokens.tolist(), terminator), abs=NEAR)
        assert path.logp >= path.logp_path


@given(paths=path_sets, seed=seeds, width=st.integers(1, 3), terminator=st.sampled_from(["none", "eog"]))
@settings(max_examples=n_examples(20))
def test_what_was_lost_bounds_what_was_not_found(paths, seed, width, terminator):
    """No path that the beam did not find scores more than the bound it reports."""
    model = HashModel(seed)
    outcome = search(
        model, paths, BeamSearchParams(width=width, n=64, max_tokens=6, merge_equal_text=False), terminator
    )
    found = {path.data for path in outcome.finished}
    rest = brute_force(model, paths, terminator, merges=False)
    assert all(score <= outcome.lost + NEAR for data, score in rest.items() if data not in found)


# Greedy


@given(paths=path_sets, seed=seeds, width=st.integers(1, 2), terminator=st.sampled_from(["none", "eog"]))
@settings(max_examples=n_examples(25))
def test_it_never_loses_to_masked_greedy_decoding(paths, seed, width, terminator):
    """The winner is at least as probable as what masked greedy decoding writes."""
    outcome = search(HashModel(seed), paths, BeamSearchParams(width=width, max_tokens=6), terminator)
    if outcome.greedy is not None and outcome.finished:
        assert outcome.finished[0].logp >= outcome.greedy.logp


def test_greedy_decoding_wins_where_the_beam_pruned_it():
    """Greedy's path is behind after two tokens, so a beam of one drops it, and it wins in the end."""
    rows = {(): {"b": 0.5, "c": 0.45}, ("b",): {"s": 0.40, "t": 0.38}, ("c",): {"s": 0.95}}
    rows |= {("b", "s"): {"u": 0.9}, ("c", "s"): {"u": 0.01, "r": 0.01}}
    model = TableModel(rows, prompt=("<bos>", "a"))
    paths = texts("b|s|u", "c|s|u", "c|s|r")
    outcome = search(model, paths, BeamSearchParams(width=1, max_tokens=3))
    assert outcome.finished[0].data == b"bsu"
    assert outcome.agrees_with_greedy
    assert outcome.finished[0].logp == pytest.approx(log(0.5 * 0.4 * 0.9), abs=NEAR)


def test_a_beam_of_two_follows_two():
    """`c` is second after one token and wins in the end, as both paths are followed."""
    rows = {(): {"b": 0.5, "c": 0.45}, ("b",): {"s": 0.40}, ("c",): {"s": 0.95}}
    model = TableModel(rows, prompt=("<bos>", "a"))
    outcome = search(model, texts("b|s", "c|s"), BeamSearchParams(width=2, max_tokens=2))
    assert [path.data for path in outcome.finished][:1] == [b"cs"]


def test_greedy_ends_where_the_end_is_more_probable():
    """Masked greedy decoding ends at a text that may go on where the end of generation is the most probable token."""
    model = TableModel({(): {"a": 0.9}, ("a",): {"<eos>": 0.6, "t": 0.4}}, prompt=("<bos>", "a"))
    outcome = search(model, texts("a", "a|t"), BeamSearchParams(max_tokens=4), "eog")
    assert outcome.greedy is not None
    assert outcome.greedy.data == b"a"


# Rooms, batches, other tasks


@given(paths=path_sets, seed=seeds, rooms=ROOMS, width=st.integers(1, 4), terminator=st.sampled_from(["none", "eog"]))
@settings(max_examples=n_examples(25))
def test_no_room_moves_a_number(paths, seed, rooms, width, terminator):
    """In any sequence of rooms the answer has the same bits, and every ask keeps to its room."""
    model = HashModel(seed)
    beam = BeamSearchParams(width=width, n=3, max_tokens=6)
    roomy = Driver(model, [WIDE]).run(task_of(paths, beam, terminator))
    assert facts(Driver(model, rooms).run(task_of(paths, beam, terminator))) == facts(roomy)


@given(paths=path_sets, seed=seeds, branches=st.integers(3, 12), width=st.integers(1, 4))
@settings(max_examples=n_examples(12))
def test_forking_models_find_the_same(paths, seed, branches, width):
    """On a model that has a state at tips alone, with few states, the answer has the same bits."""
    beam = BeamSearchParams(width=width, n=3, max_tokens=6)
    alone = search(HashModel(seed), paths, beam)
    limits = Limits(nodes=200, sequences=branches, rows_per_call=8, kind=ModelKind.RECURRENT, max_idle_rows=4096)
    assert facts(on_scheduler(HashModel(seed, limits=limits), [task_of(paths, beam)])[0]) == facts(alone)


@given(sets=st.lists(path_sets, min_size=2, max_size=4), seed=seeds, kind=st.sampled_from(list(ModelKind)))
@settings(max_examples=n_examples(12))
def test_together_is_alone(sets, seed, kind):
    """Several searches on one small model each find what they find alone, bit for bit."""
    beam = BeamSearchParams(width=3, n=2, max_tokens=6)
    limits = Limits(nodes=40, sequences=9, rows_per_call=7, kind=kind, max_idle_rows=64)
    together = on_scheduler(HashModel(seed, limits=limits), [task_of(paths, beam, "eog") for paths in sets])
    for paths, outcome in zip(sets, together, strict=True):
        assert facts(outcome) == facts(search(HashModel(seed), paths, beam, "eog"))


def on_scheduler(model, tasks) -> list[BeamOutcome]:
    """All of them side by side."""
    return [job.future.result() for job in worked_off(model, tasks)]


def worked_off(model, tasks) -> list[Job]:
    """Their jobs, done."""
    scheduler = Scheduler(model)
    jobs = [Job(task) for task in tasks]
    for job in jobs:
        scheduler.submit(job)
    while not scheduler.idle:
        scheduler.step()
    return jobs


@given(paths=path_sets, seed=seeds, kind=st.sampled_from(list(ModelKind)), branches=st.integers(3, 8))
@settings(max_examples=n_examples(40))
def test_rows_evaluated_again_are_counted(paths, seed, kind, branches):
    """In a small room a search gives paths up and evaluates them again: the cost says how many rows, for every kind of model."""
    limits = Limits(nodes=60, sequences=branches, rows_per_call=16, kind=kind, max_idle_rows=64)
    model = HashModel(seed, limits=limits)
    [job] = worked_off(model, [task_of(paths, BeamSearchParams(width=6, n=3, max_tokens=6), "eog")])
    assert job.cost.rows == model.evaluations.total()
    assert job.cost.rows_repeated == sum(n - 1 for n in model.evaluations.values())


@pytest.mark.short("!256-*")
@pytest.mark.parametrize(
    ("width", "branches", "most"),
    [(256, 254, 1.05), (12, 12, 1.05), (14, 12, 1.15), (16, 12, 1.3), (24, 12, 1.7), (48, 12, 1.9)],
)
def test_a_beam_wider_than_the_room_gives_up_what_is_cheapest(width, branches, most):
    """Few rows come again where few paths do not fit, and the answer is that of a large room."""
    beam, letters = BeamSearchParams(width=width, n=4, max_tokens=8), range(2, 26)
    limits = Limits(nodes=4096, sequences=branches, rows_per_call=512, kind=ModelKind.ATTENTION, max_idle_rows=4096)
    model = HashModel(7, limits=limits, sharpness=2.0)
    [job] = worked_off(model, [task_of(Suspicious(letters, 8), beam)])
    large = replace(limits, sequences=1024)
    roomy = search(HashModel(7, limits=large, sharpness=2.0), Suspicious(letters, 8), beam)
    assert facts(job.future.result()) == facts(roomy)
    assert job.cost.rows <= most * len(model.evaluations), job.cost


class Suspicious:
    """Accepts every path of a few tokens; a state is a path, and a token that comes with another path's state is caught."""

    def __init__(self, tokens, length) -> None:
        self.tokens, self.length = np.array(tokens, dtype=np.int32), length
        self.paths: list[tuple[int, ...]] = [()]
        self.number = {(): 0}

    def start(self):
        return 0

    def allowed(self, state):
        return self.tokens if len(self.paths[state]) < self.length else self.tokens[:0]

    def advance(self, state, token):
        path = (*self.paths[state], token)
        if path not in self.number:
            self.number[path] = len(self.paths)
            self.paths.append(path)
        return self.number[path]

    def can_end(self, state):
        return len(self.paths[state]) == self.length


@given(seed=seeds, width=st.integers(1, 6))
@settings(max_examples=n_examples(20))
def test_reordering_beams_never_mixes_states(seed, width):
    """Whatever places beams take from step to step, each is led by the automaton's state of its own tokens."""
    automaton = Suspicious([3, 4, 5], 4)
    task = task_of(automaton, BeamSearchParams(width=width, n=4, max_tokens=4))
    run(task, HashModel(seed))
    tree = task._tree
    assert all(automaton.paths[tree.state[node]] == tree.tokens(node) for node in range(len(tree)))


def test_mixed_states_would_be_noticed():
    """The check above fails for a search whose states were swapped at a reorder."""
    automaton = Suspicious([3, 4, 5], 4)
    task = task_of(automaton, BeamSearchParams(width=3, n=4, max_tokens=4))
    run(task, HashModel(1))
    tree = task._tree
    tree.state[1], tree.state[2] = tree.state[2], tree.state[1]
    assert not all(automaton.paths[tree.state[node]] == tree.tokens(node) for node in range(len(tree)))


# Texts, paths, duplicates


def test_paths_of_one_text_are_added_up():
    """`cat` as one token, as `ca|t` and as `c|at` is one text with the sum of the three."""
    model = TableModel({(): {"cat": 0.2, "ca": 0.3, "c": 0.1, "b": 0.25}, ("ca",): {"t": 0.5}, ("c",): {"at": 0.4}})
    paths = texts("cat", "ca|t", "c|at", "b")
    spec = BeamSpec(VOCABULARY, EVERYTHING, terminator="none")
    outcome = run(BeamTask(np.array([0], dtype=np.int32), automaton_of(paths), spec), model)
    assert [path.data for path in outcome.finished] == [b"cat", b"b"]
    assert outcome.finished[0].logp == pytest.approx(log(0.2 + 0.15 + 0.04), abs=NEAR)
    assert outcome.finished[0].logp_path == pytest.approx(log(0.2), abs=NEAR)
    assert (outcome.finished[0].n_paths, outcome.n_merged) == (3, 2)


def test_without_merging_the_best_path_stands_for_a_text():
    """Then the other token of the same probability comes first, and no text comes twice."""
    model = TableModel({(): {"cat": 0.2, "ca": 0.3, "c": 0.1, "b": 0.25}, ("ca",): {"t": 0.5}, ("c",): {"at": 0.4}})
    spec = BeamSpec(VOCABULARY, replace(EVERYTHING, merge_equal_text=False), terminator="none")
    outcome = run(BeamTask(np.array([0], dtype=np.int32), automaton_of(texts("cat", "ca|t", "c|at", "b")), spec), model)
    assert [(path.data, path.n_paths) for path in outcome.finished] == [(b"b", 1), (b"cat", 3)]


@given(seed=seeds, width=st.integers(1, 4), n=st.integers(1, 5))
@settings(max_examples=n_examples(12))
def test_duplicates_take_no_place_among_the_texts(seed, width, n):
    """However many paths spell it, a text is given once."""
    paths = [
        path
        for word in (("cat", "ca|t", "c|at", "c|a|t"), (" cat", " c|at", " |cat"), ("bat", "b|at"))
        for path in texts(*word)
    ]
    found = search(HashModel(seed), paths, BeamSearchParams(width=width, n=n, max_tokens=4)).finished
    assert len({path.data for path in found}) == len(found)


def test_control_tokens_keep_texts_apart():
    """Two paths of equal bytes, one with a control token in between, are two texts."""
    paths = [*texts("a|t"), (3, 0, 8)]
    found = search(HashModel(4), paths).finished
    assert [path.data for path in found] == [b"at", b"at"]
    assert all(path.n_paths == 1 for path in found)


def test_canonical_paths_alone_count():
    """With a tokenizer of longest matches `cat` is the token of that name; its other paths are refused and counted."""
    paths = texts("cat", "ca|t", "c|at", "b|at")
    outcome = search(HashModel(2), paths, canonical=lambda path: VOCABULARY.tokenize(decoded(path)) == list(path))
    assert [path.tokens.tolist() for path in outcome.finished] == [list(texts("cat")[0])]
    assert outcome.n_refused == 3


def test_neighbours_that_cannot_be_are_not_followed():
    """A pair that no encoding has costs no row and is no path."""
    asked = []

    def may_be_adjacent(left, right):
        asked.append((left, right))
        return (left, right) not in {spell(VOCABULARY, ("c", "at")), spell(VOCABULARY, ("ca", "t"))}

    outcome = search(HashModel(2), texts("cat", "ca|t", "c|at", "b|at"), may_be_adjacent=may_be_adjacent)
    assert {path.data for path in outcome.finished} == {b"cat", b"bat"}
    assert all(path.n_paths == 1 for path in outcome.finished)
    assert spell(VOCABULARY, ("b", "at")) in asked


def decoded(path) -> bytes:
    return b"".join(PIECES[token] for token in path)


# Groups


def test_groups_differ_by_diversity():
    """Two groups of one path: without diversity both take the best token, with it the second takes the next best."""
    model = TableModel({(): {"b": 0.5, "c": 0.4, "r": 0.1}}, prompt=("<bos>", "a"))
    paths = texts("b", "c", "r")
    plain = search(model, paths, BeamSearchParams(width=2, groups=2, n=2, max_tokens=2), "eog")
    apart = search(model, paths, BeamSearchParams(width=2, groups=2, n=2, diversity=1.0, max_tokens=2), "eog")
    assert [path.data for path in plain.finished] == [b"b"]
    assert [(path.data, path.group) for path in apart.finished] == [(b"b", 0), (b"c", 1)]
    assert apart.finished[1].logp == pytest.approx(joint(model, paths[1], "eog"), abs=NEAR)


@given(paths=path_sets, seed=seeds, groups=st.sampled_from([2, 3]), diversity=st.sampled_from([0.0, 0.5, 3.0]))
@settings(max_examples=n_examples(12))
def test_diversity_moves_no_joint(paths, seed, groups, diversity):
    """Whatever groups do to each other's order, the joints given are raw, and the best text of the first group is given."""
    model = HashModel(seed)
    beam = BeamSearchParams(width=6, groups=groups, n=6, diversity=diversity, max_tokens=6, merge_equal_text=False)
    found = search(model, paths, beam, "eog").finished
    for path in found:
        assert path.logp == pytest.approx(joint(model, path.tokens.tolist(), "eog"), abs=NEAR)
    assert len({path.data for path in found}) == len(found)


# The caller's own extensions


def test_expand_chooses_what_comes_next():
    """The callback sees each path with its best tokens and decides which are followed; greedy decoding keeps to it."""
    seen = []

    def expand(path, candidates):
        seen.append((path.data, [token.piece for token in candidates], path.can_end))
        return [token.id for token in candidates if token.piece != b"b"]

    model = TableModel({(): {"b": 0.6, "c": 0.3, "r": 0.1}}, prompt=("<bos>", "a"))
    outcome = search(model, texts("b", "c", "r|s"), BeamSearchParams(n=3, max_tokens=3, expand=expand))
    assert [path.data for path in outcome.finished] == [b"c", b"rs"]
    assert seen == [(b"", [b"b", b"c", b"r"], False), (b"r", [b"s"], False)]
    assert outcome.greedy is not None
    assert outcome.greedy.data == b"c"


@pytest.mark.parametrize(("answer", "told"), [([9], "expand=9"), (["b"], "expand='b'"), ([-1], "expand=-1")])
def test_expand_may_not_leave_the_grammar(answer, told):
    """A token that may not follow, and what is no token, are refused by name."""
    with pytest.raises(OptionError, match=told):
        search(HashModel(1), texts("b", "c"), BeamSearchParams(expand=lambda _path, _candidates: answer))


# Ends: length, budget, dead ends


class Endless:
    """Any number of `a`, and at last `t`."""

    def start(self):
        return 0

    def allowed(self, state):
        return np.array([3, 8] if state == 0 else [], dtype=np.int32)

    def advance(self, _state, token):
        return 0 if token == 3 else 1

    def can_end(self, state):
        return state == 1


def test_a_path_broken_off_is_no_text():
    """Where nothing is finished within `max_tokens`, there is only a beginning, and it says so."""
    model = TableModel({}, prompt=("<bos>", "a"))
    automaton = Endless()
    automaton.allowed = lambda _state: np.array([3], dtype=np.int32)
    outcome = search(model, automaton, BeamSearchParams(max_tokens=3))
    assert (outcome.finished, outcome.stopped) == ((), "length")
    assert [(path.data, path.complete) for path in outcome.broken] == [(b"aaa", False)]


def test_bounds_end_an_endless_grammar():
    """`t` at once is more probable than anything that begins with `a`: two steps, and the rest is proved behind."""
    model = TableModel({(): {"t": 0.6, "a": 0.4}}, prompt=("<bos>", "a"))
    outcome = search(model, Endless(), BeamSearchParams(width=4, max_tokens=50))
    assert [path.data for path in outcome.finished] == [b"t"]
    assert (outcome.stopped, outcome.n_evaluated) == ("done", 1)
    assert outcome.lost == pytest.approx(log(0.4), abs=NEAR)


def test_a_length_penalty_keeps_long_paths_in_play():
    """Divided by length, `aat` beats `t`, which is more probable as a whole."""
    rows = {(): {"t": 0.4, "a": 0.6}, ("a",): {"a": 0.8, "t": 0.2}, ("a", "a"): {"t": 0.6}}
    model = TableModel(rows, prompt=("<bos>", "a"))
    plain = search(model, Endless(), BeamSearchParams(width=4, max_tokens=5))
    divided = search(model, Endless(), BeamSearchParams(width=4, max_tokens=5, length_penalty=1.0))
    assert (plain.finished[0].data, divided.finished[0].data) == (b"t", b"aat")
    assert divided.finished[0].score == pytest.approx(log(0.6 * 0.8 * 0.6) / 3, abs=NEAR)


@pytest.mark.parametrize("budget", [1, 2, 5])
def test_a_budget_is_kept(budget):
    """No more nodes are evaluated, and what was found by then is given."""
    outcome = search(HashModel(1), Endless(), BeamSearchParams(width=2, max_tokens=40, n=30, budget_nodes=budget))
    assert outcome.n_evaluated <= budget
    assert outcome.stopped == "budget"


def test_dead_ends_are_dropped_and_counted():
    """A state that may neither end nor go on is left out; the other text is found."""

    class DeadEnd(Endless):
        def allowed(self, state):
            return np.array([3, 8] if state == 0 else [], dtype=np.int32)

        def advance(self, _state, token):
            return 2 if token == 3 else 1

    outcome = search(HashModel(1), DeadEnd(), BeamSearchParams(n=3))
    assert [path.data for path in outcome.finished] == [b"t"]
    assert outcome.n_dead_ends == 1


def test_forbidden_tokens_are_never_taken():
    """A row of one possible token that is not allowed leaves nothing, and nothing is made up."""
    model = TableModel({(): {"u": 1.0}}, prompt=("<bos>", "a"))
    outcome = search(model, texts("b", "c"))
    assert (outcome.finished, outcome.broken) == ((), ())


# Healing


def test_healed_bytes_are_taken_off():
    """The prompt's last token was ` c`; paths spell it first, and what text goes on with it is the condition."""
    table = {(): {" c": 0.3, " cat": 0.2, " car": 0.1, " ": 0.1}, (" c",): {"at": 0.5, "a": 0.2}, (" ",): {"c": 0.5}}
    model = TableModel(table | {(" ", "c"): {"at": 0.1}})
    paths = texts(" cat", " c|at", " |c|at", " car")
    spec = BeamSpec(VOCABULARY, EVERYTHING, terminator="none", healed=b" c")
    prompt = np.array([0], dtype=np.int32)
    outcome = run(BeamTask(prompt, automaton_of(paths), spec), model)
    p_c = 0.3 + 0.2 + 0.1 + 0.1 * 0.5
    left = 0.5 / 24  # of the row after " ", spread over the tokens it does not name, "cat" and "ca" among them
    p_c += 0.1 * left * sum(piece.startswith(b"c") for piece in PIECES) - 0.1 * left
    assert outcome.heal.low == pytest.approx(log(p_c), abs=1e-3)
    expected = log((0.2 + 0.15 + 0.1 * 0.5 * 0.1) / p_c)
    assert [path.data for path in outcome.finished] == [b"at", b"ar"]
    assert outcome.finished[0].logp == pytest.approx(expected, abs=1e-3)


@given(rooms=ROOMS, seed=seeds)
@settings(max_examples=n_examples(20))
def test_healing_keeps_to_the_room(rooms, seed):
    """The rows that only the healed bytes need are asked for within the room, and move nothing."""
    paths = texts(" cat", " c|at", " |c|at", " car", " |ca|t")
    task = {"healed": b" ca", "beam": BeamSearchParams(width=2, n=3, max_tokens=3)}
    roomy = Driver(HashModel(seed), [WIDE]).run(task_of(paths, **task))
    assert facts(Driver(HashModel(seed), rooms).run(task_of(paths, **task))) == facts(roomy)


# Ties, protocol, requests


def test_ties_go_by_the_order_of_tokens():
    """Of equally probable texts those with smaller ids come first, in the beam and in the answer."""
    model = TableModel({}, prompt=("<bos>", "a"))
    every = list(product([4, 3, 5], [9, 7]))
    found = search(model, every, BeamSearchParams(width=2, n=3, max_tokens=2, merge_equal_text=False)).finished
    assert [tuple(path.tokens.tolist()) for path in found] == [(3, 7), (3, 9), (4, 7)]


def test_close_steps_are_named():
    """A step that the tolerance could have decided otherwise is named; without a tolerance only exact ties are."""
    rows = {("a",): {"b": 0.41, "c": 0.4}}
    model = TableModel(rows)
    paths = texts("a|b|s", "a|c|s")
    prompt = np.array([0], dtype=np.int32)
    for tolerance, expected in ((0.0, ()), (0.1, (2,))):
        spec = BeamSpec(VOCABULARY, BeamSearchParams(width=1, max_tokens=4), terminator="none", tolerance=tolerance)
        assert run(BeamTask(prompt, automaton_of(paths), spec), model).close_steps == expected


def test_a_deadline_ends_it_with_what_there_is():
    """After `expire` the result is there, and what is told later is ignored."""
    task = task_of(Endless(), BeamSearchParams(width=2, max_tokens=20, n=20))
    model = HashModel(1)
    task.tell(DenseRows(model.row(PROMPT)[None]))
    ask = task.ask(WIDE)
    assert ask is not None
    task.expire()
    task.tell(DenseRows(np.stack([model.row(PROMPT)] * int(ask.wanted.sum()))))
    assert task.ask(WIDE) is None
    outcome = task.result()
    assert outcome.stopped == "deadline"
    assert [path.data for path in outcome.finished] == [b"t"]


def test_steps_out_of_turn_are_refused():
    """Asking twice, telling twice, too many rows, a result too early: each is a protocol error that changes nothing."""
    model = HashModel(1)
    task = task_of(texts("a|t", "b|at"))
    row = DenseRows(model.row(PROMPT)[None])
    with pytest.raises(ProtocolError):
        task.ask(WIDE)
    with pytest.raises(ProtocolError):
        task.result()
    with pytest.raises(ProtocolError):
        task.tell(DenseRows(np.stack([model.row(PROMPT)] * 2)))
    task.tell(row)
    with pytest.raises(ProtocolError):
        task.tell(row)
    with pytest.raises(ProtocolError):
        task.ask(Capacity(1, 1, 1))
    assert task.ask(WIDE) is not None


def test_wrong_prompts_and_options_are_refused():
    """A prompt without tokens, one of tokens that are none, a terminator that cannot be."""
    automaton = automaton_of(texts("a"))
    with pytest.raises(ProtocolError):
        BeamTask(PROMPT[:0], automaton, BeamSpec(VOCABULARY))
    with pytest.raises(TokenRangeError):
        BeamTask(np.array([99], dtype=np.int32), automaton, BeamSpec(VOCABULARY))
    with pytest.raises(OptionError):
        BeamSpec(VOCABULARY, terminator="text")
    with pytest.raises(OptionError):
        BeamSpec(replace(VOCABULARY, eog=np.empty(0, dtype=np.int32)), terminator="eog")
    with pytest.raises(OptionError):
        BeamSpec(VOCABULARY, tolerance=inf)
