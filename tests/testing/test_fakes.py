"""The fakes and the oracles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.core.rows import DenseRows
from selectrie.core.types import ROOT, BatchSizes, Limits, ModelKind
from selectrie.errors import (
    CapacityError,
    ClosedError,
    DecodeError,
    DecodeInterrupted,
    NodeError,
    NonFiniteLogitsError,
    OptionError,
    ProtocolError,
    TextError,
    TokenRangeError,
)
from selectrie.testing import (
    FakeModel,
    HashModel,
    TableModel,
    enumerate_table,
    make_vocabulary,
    naive_joint,
    naive_local,
    naive_unless_continued,
    numbered_vocabulary,
    score_paths_alone,
    spell,
)
from selectrie.testing.fakes import WIDE
from tests.support.arrays import ints
from tests.support.n_examples import n_examples

VOCABULARY = make_vocabulary()
KINDS = tuple(ModelKind)
BOS = 0


def tight(kind: ModelKind) -> Limits:
    """Limits that random work runs into all the time."""
    return Limits(nodes=30, sequences=8, rows_per_call=6, kind=kind, max_idle_rows=10)


def flags(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.bool_)


def extend(model, parents, tokens, wanted=None, keep=None):
    n = len(parents)
    wanted = flags(*(wanted or [1] * n))
    return model.extend(ints(*parents), ints(*tokens), wanted, flags(*(keep or [1] * n)))


def logp_row(model: FakeModel, path) -> np.ndarray:
    return DenseRows(model.row(path)[None]).logp(0, np.arange(len(VOCABULARY.pieces)))


# The vocabulary


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("a cat", ["a", " cat"]),
        ("a c", ["a", " c"]),  # the prompt of "a cat": its last token goes when "at" follows
        ("a ", ["a", " "]),
        ("cats", ["cat", "s"]),
        ("cart", ["ca", "r", "t"]),
        (" cart", [" car", "t"]),
        ("é", ["é"]),
        ("", []),
    ],
)
def test_longest_match_makes_tokens(text, pieces):
    """Text is cut by longest match from the left, so that what follows changes what stands before."""
    assert tuple(VOCABULARY.tokenize(text.encode())) == spell(VOCABULARY, pieces)


@given(st.lists(st.sampled_from([p for p in VOCABULARY.pieces if p]), max_size=8).map(b"".join))
def test_tokens_spell_the_text(text):
    """The bytes of the tokens are the text, and no control token comes out of text."""
    tokens = VOCABULARY.tokenize(text)
    assert b"".join(VOCABULARY.pieces[t] for t in tokens) == text
    assert not set(tokens) & set(VOCABULARY.control.tolist())


def test_numbered_tokens_are_spelt_by_their_number():
    """Texts are sequences of numbers in angle brackets, and anything else is refused."""
    vocabulary = numbered_vocabulary(20)
    assert vocabulary.n_tokens == 20
    assert (vocabulary.bos, vocabulary.eos, vocabulary.eog.tolist(), vocabulary.control.tolist()) == (1, 2, [2], [])
    tokens = [3, 19, 1, 0]
    text = b"".join(vocabulary.pieces[token] for token in tokens)
    assert text == b"<3><19><1><0>"
    assert vocabulary.tokenize(text) == tokens
    for other in (b"a", b"<20>", b"<3", b"<3> <4>"):
        with pytest.raises(TextError, match="no token of this vocabulary begins at byte"):
            vocabulary.tokenize(other)
    with pytest.raises(OptionError, match="n_tokens"):
        numbered_vocabulary(2)


def test_text_outside_the_vocabulary_is_refused():
    """A byte that no token has is an error and not dropped."""
    with pytest.raises(TextError, match="byte 1"):
        VOCABULARY.tokenize(b"axe")


def test_half_a_character_is_a_token():
    """The two bytes of é are tokens, for text that is cut between them."""
    assert VOCABULARY.tokenize("é".encode()[:1]) == [23]
    assert VOCABULARY.tokenize("é".encode()[1:]) == [24]


# The fakes


def test_hash_rows_depend_on_the_whole_path_and_the_seed():
    """Contexts with equal sums, equal sets or equal ends have different rows; equal contexts have equal ones."""
    paths = [(), (3,), (3, 4), (4, 3), (0, 7), (7, 0), (3, 3, 4), (4, 4, 4), (3, 4, 0), (0, 3, 4)]
    rows = {tuple(HashModel(seed).row(path).tolist()) for path in paths for seed in (0, 1)}
    assert len(rows) == 2 * len(paths)
    assert HashModel(5).row((1, 2)).tolist() == HashModel(5, limits=tight(ModelKind.HYBRID)).row((1, 2)).tolist()


FIRST_LOGITS = (-0.63745064, 0.35698989, -0.29830277, -0.77507263)


def test_hash_rows_stay_what_they_are():
    """The first logits of one row, so that numbers in other tests do not move unnoticed."""
    expected = np.array(FIRST_LOGITS, dtype=np.float32)
    np.testing.assert_allclose(HashModel(7).row((0, 3))[:4], expected, rtol=1e-6)


def test_sharpness_scales_and_planted_rows_replace():
    """Sharpness 0 is uniform, 3 is three times the logits of 1, and a planted row stands as given."""
    planted = [float(i) for i in range(26)]
    model = HashModel(1, sharpness=3.0, planted={(0, 5): planted})
    np.testing.assert_allclose(model.row((0, 4)), 3 * HashModel(1).row((0, 4)), rtol=1e-6)
    assert model.row((0, 5)).tolist() == planted
    assert not HashModel(1, sharpness=0.0).row((0, 4)).any()


def test_table_rows_by_hand():
    """Named tokens have the probability written down, the others share the rest, unnamed contexts are uniform."""
    model = TableModel({(): {"a": 0.6, "b": 0.4}, ("a",): {"t": 0.5, "<eos>": 0.26}})
    a, b, t, eos = spell(VOCABULARY, ["a", "b", "t", "<eos>"])
    first = np.exp(logp_row(model, (BOS,)))
    assert first[[a, b]] == pytest.approx([0.6, 0.4], abs=1e-7)
    assert first.sum() == pytest.approx(1, abs=1e-7)
    assert np.count_nonzero(first) == 2
    second = np.exp(logp_row(model, (BOS, a)))
    assert second[[t, eos]] == pytest.approx([0.5, 0.26], abs=1e-7)
    assert second[b] == pytest.approx(0.24 / 24, abs=1e-7)
    assert np.exp(logp_row(model, (BOS, b))) == pytest.approx(np.full(26, 1 / 26), abs=1e-7)
    assert np.exp(logp_row(model, ())) == pytest.approx(np.full(26, 1 / 26), abs=1e-7)


def test_table_after_a_prompt():
    """Keys count from the end of the prompt given."""
    model = TableModel({("t",): {"s": 1.0}}, prompt=("<bos>", "ca"))
    path = (BOS, *spell(VOCABULARY, ["ca", "t"]))
    assert logp_row(model, path)[spell(VOCABULARY, ["s"])[0]] == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("row", [{"a": 0.7, "b": 0.4}, {"a": -0.1}])
def test_table_rows_that_do_not_fit_one_are_refused(row):
    """Probabilities above one or below zero are a mistake in the table."""
    with pytest.raises(OptionError):
        TableModel({(): row})


def test_counters_and_repeats():
    """A pair that exists, or stands twice, is one node; it is evaluated again only where its row is wanted."""
    model = HashModel(0)
    first = extend(model, [ROOT, ~0, ~0, ~0], [BOS, 3, 4, 3])
    assert first.nodes[1] == first.nodes[3]
    assert (first.rows_evaluated, first.rows_repeated, len(first.rows)) == (3, 0, 4)
    assert first.rows.logits(1).tolist() == first.rows.logits(3).tolist() == model.row((BOS, 3)).tolist()
    quiet = extend(model, [first.nodes[0]], [3], wanted=[0])
    assert (quiet.nodes[0], quiet.rows_evaluated) == (first.nodes[1], 0)
    again = extend(model, [first.nodes[0]], [3])
    assert (again.rows_evaluated, again.rows_repeated) == (1, 1)
    assert (model.calls, model.rows, model.call_sizes) == (2, 4, [3, 1])
    assert model.evaluations[(BOS, 3)] == 2


def test_rows_read_too_late_raise():
    """The buffer of a call is gone with the next one, as a back end's own would be."""
    model = HashModel(0)
    late = extend(model, [ROOT], [BOS]).rows
    saved = late.copy()
    extend(model, [ROOT], [3])
    with pytest.raises(NonFiniteLogitsError):
        late.logp(0, 1)
    assert saved.logits(0).tolist() == model.row((BOS,)).tolist()


def test_failures_change_nothing():
    """A planned failure, an interrupt in the middle, and every refusal leave contexts, room and counters as they were."""
    model = HashModel(0, limits=tight(ModelKind.ATTENTION))
    node = int(extend(model, [ROOT], [BOS]).nodes[0])
    before = (model.contexts, model.capacity(), model.calls, model.rows)
    model.fail_next(DecodeError("planned"))
    with pytest.raises(DecodeError, match="planned"):
        extend(model, [node], [3])
    model.on_decode = model.interrupt
    with pytest.raises(DecodeInterrupted):
        extend(model, [node], [3])
    model.on_decode = None
    cases = (
        ([ROOT] * 7, range(2, 9), CapacityError),
        ([999], [3], NodeError),
        ([~0], [3], NodeError),
        ([node], [26], TokenRangeError),
        ([node], [-1], TokenRangeError),
        ([node, node], [3], ProtocolError),
    )
    for parents, tokens, error in cases:
        with pytest.raises(error):
            extend(model, parents, tokens)
    with pytest.raises(NodeError):
        model.release(ints(node, node))
    assert (model.contexts, model.capacity(), model.calls, model.rows) == before
    model.interrupt()
    assert extend(model, [node], [3]).rows_evaluated == 1


def test_programs_of_fixed_sizes_share_a_call():
    """A call is split and padded by the seconds that its programs take; one that fails half-way changes nothing."""
    fixed = BatchSizes.fixed({1: 0.002, 4: 0.003})
    model = HashModel(0, limits=replace(WIDE, batch_sizes=fixed))
    first = extend(model, [ROOT, ~0, ~0, ~0, ~0], [BOS, 3, 4, 5, 6])
    assert (first.rows_evaluated, first.rows_padded, first.n_programs) == (5, 0, 2)
    assert (model.calls, model.call_sizes, model.program_sizes) == (1, [5], [4, 1])
    second = extend(model, [int(first.nodes[0])] * 2, [7, 8])
    assert (second.rows_evaluated, second.rows_padded, second.n_programs) == (2, 2, 1)
    quiet = extend(model, [ROOT], [BOS], wanted=[0])
    assert (quiet.rows_evaluated, quiet.rows_padded, quiet.n_programs) == (0, 0, 0)
    assert model.new_context(8).limits.batch_sizes == fixed
    with pytest.raises(OptionError, match="fixed"):
        model.set_batch_multiple(8)

    before = (model.contexts, model.capacity(), model.calls, model.rows)
    n_programs = iter(range(2))
    model.on_decode = lambda: model.interrupt() if next(n_programs) else None
    with pytest.raises(DecodeInterrupted):
        extend(model, [int(first.nodes[1])] * 5, [9, 10, 11, 12, 13])
    assert next(n_programs, None) is None, "the second program was interrupted"
    assert (model.contexts, model.capacity(), model.calls, model.rows) == before


def test_a_multiple_fills_calls_up():
    """It is set on an empty tree, within the rows of a call, and limits follow it."""
    model = HashModel(0, limits=replace(WIDE, rows_per_call=30))
    model.set_batch_multiple(8)
    assert (model.limits.rows_per_call, model.limits.batch_sizes) == (24, BatchSizes(8))
    call = extend(model, [ROOT, ~0], [BOS, 3])
    assert (call.rows_padded, call.n_programs, model.program_sizes) == (6, 1, [8])
    with pytest.raises(ProtocolError, match="2 nodes"):
        model.set_batch_multiple(1)
    model.release(call.nodes, forget=True)
    for value in (0, 31):
        with pytest.raises(OptionError, match="1 to 30"):
            model.set_batch_multiple(value)
    model.set_batch_multiple(1)
    assert model.limits.rows_per_call == 30


def test_a_model_that_cannot_be_interrupted_goes_on():
    """An interrupt in the middle of a decode has no effect."""
    model = HashModel(0, limits=replace(WIDE, can_interrupt=False))
    model.on_decode = model.interrupt
    assert extend(model, [ROOT], [BOS]).rows_evaluated == 1


def test_cache_goes_leaf_first_when_room_is_needed():
    """Released nodes stay until room is needed, then the least recently used leaf goes; held ones never do."""
    model = HashModel(0, limits=replace(WIDE, nodes=4))
    nodes = extend(model, [ROOT, ~0, ~0, ~0], [BOS, 3, 4, 5]).nodes
    model.release(nodes[1:3])
    assert len(model.contexts) == 5
    extend(model, [int(nodes[0])], [6])
    assert sorted(model.contexts.values()) in (
        [(), (0,), (0, 4), (0, 5), (0, 6)],
        [(), (0,), (0, 3), (0, 5), (0, 6)],
    )
    extend(model, [int(nodes[0])], [7])
    with pytest.raises(CapacityError):
        extend(model, [int(nodes[0])], [8])
    assert sorted(model.contexts.values()) == [(), (0,), (0, 5), (0, 6), (0, 7)]


def test_forking_models_extend_kept_nodes_only():
    """Without `keep` there is no state to go on from, `match_prefix` passes over the node, and a call has one round."""
    model = HashModel(0, limits=tight(ModelKind.RECURRENT))
    kept, loose = extend(model, [ROOT, ROOT], [3, 4], keep=[1, 0]).nodes.tolist()
    assert model.match_prefix(ints(3, 9)) == (kept, 1)
    assert model.match_prefix(ints(4, 9)) == (ROOT, 0)
    extend(model, [kept], [5])
    with pytest.raises(NodeError):
        extend(model, [loose], [5])
    with pytest.raises(CapacityError, match="rounds"):
        extend(model, [ROOT, ~0, ~0], [6, 7, 8])
    again = extend(model, [ROOT], [4], wanted=[0])
    assert (again.rows_evaluated, again.rows_repeated) == (1, 1)
    extend(model, [loose], [5])


def test_a_closed_model_says_so():
    """Every verb but `close` raises after `close`."""
    model = HashModel(0)
    model.close()
    model.close()
    verbs = (
        lambda: extend(model, [ROOT], [3]),
        lambda: model.match_prefix(ints(3)),
        lambda: model.release(ints()),
        model.capacity,
        lambda: model.trim(0),
        lambda: model.new_context(3),
    )
    for verb in verbs:
        with pytest.raises(ClosedError):
            verb()


# The oracles

pieces = st.sampled_from([3, 5, 8])
path_sets = st.lists(st.lists(pieces, min_size=1, max_size=3), min_size=1, max_size=5, unique_by=tuple)
probability = st.sampled_from([0.0, 0.1, 0.2, 0.3])
rows = st.fixed_dictionaries({"a": probability, "c": probability, "t": probability})
keys = st.lists(st.sampled_from(["a", "c", "t"]), max_size=2).map(tuple)
tables = st.dictionaries(keys, rows, max_size=6)


def sparse(table) -> TableModel:
    """A table whose rests go to `<eos>`, so that few texts are possible."""
    named = [(), *((a,) for a in "act"), *((a, b) for a in "act" for b in "act")]
    full = {key: dict(table.get(key, {"a": 0.3, "c": 0.3, "t": 0.3})) for key in named}
    return TableModel({key: {**row, "<eos>": 1 - sum(row.values())} for key, row in full.items()})


@settings(max_examples=n_examples(40))
@given(tables, path_sets)
def test_oracles_agree_with_writing_out_every_text(table, paths):
    """Joint and unless-continued by recursion equal counting all texts; the longest choices and none make one."""
    model = sparse(table)
    exact = enumerate_table(model, [BOS], paths)
    np.testing.assert_allclose(np.exp(naive_joint(model, [BOS], paths)), exact.joint, atol=1e-12)
    np.testing.assert_allclose(np.exp(naive_unless_continued(model, [BOS], paths)), exact.longest, atol=1e-12)
    assert sum(exact.longest) + exact.none == pytest.approx(1, abs=1e-12)


@given(st.integers(0, 99), path_sets)
def test_local_probabilities_sum_to_one(seed, paths):
    """Masked step-by-step choice always ends in one of the set."""
    assert np.exp(naive_local(HashModel(seed), [BOS], paths)).sum() == pytest.approx(1, abs=1e-12)


def test_joint_and_local_disagree_by_hand():
    """Joint looks below the branch, masked choice does not.

    p(a) = .6, p(c) = .1, p(t | a) = .01, p(t | c) = .98
    joint   a t = .006         c t = .098
    local   a t = .6/.7        c t = .1/.7      masked choice walks into the mass that lies below a
    """
    model = TableModel({(): {"a": 0.6, "c": 0.1}, ("a",): {"t": 0.01}, ("c",): {"t": 0.98}})
    paths = [spell(VOCABULARY, "at"), spell(VOCABULARY, "ct")]
    assert np.exp(naive_joint(model, [BOS], paths)) == pytest.approx([0.006, 0.098], abs=1e-7)
    assert np.exp(naive_local(model, [BOS], paths)) == pytest.approx([6 / 7, 1 / 7], abs=1e-7)


def test_unless_continued_by_hand():
    """A choice keeps what its continuations in the set do not take.

    p(a) = .5, p(t | a) = .8, p(s | a t) = .25, all else elsewhere; choices a, a t, a t s
    longest   a: .5 * .2      a t: .5 * .8 * .75      a t s: .5 * .8 * .25
    """
    model = TableModel({(): {"a": 0.5}, ("a",): {"t": 0.8}, ("a", "t"): {"s": 0.25}})
    paths = [spell(VOCABULARY, p) for p in ("a", "at", "ats")]
    assert np.exp(naive_unless_continued(model, [BOS], paths)) == pytest.approx([0.1, 0.3, 0.1], abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_paths_alone_equal_the_definition(kind):
    """Scoring through the port, path by path and in small calls, gives the joint that the rows define."""
    model = HashModel(4, limits=tight(kind))
    context, paths = [BOS, 5, 6, 7, 8, 9, 3], [[3, 4, 5, 6, 7, 8, 9, 2], [3, 4], [9], []]
    alone = score_paths_alone(model, context, paths)
    assert [len(tokens) for tokens in alone] == [8, 2, 1, 0]
    assert [sum(tokens) for tokens in alone] == pytest.approx(naive_joint(model, context, paths), abs=1e-6)
    assert list(model.contexts) == [ROOT]
