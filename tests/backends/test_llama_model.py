"""A llama.cpp model is the model port: rows are those of each path alone, whatever else is held."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from selectrie.backends.llama_cpp.model import LlamaModel, open_model
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.backends.llama_cpp.sequences import AttentionSequences
from selectrie.core.types import ROOT, BatchSizes, CallCost, ModelKind, Precision
from selectrie.errors import CapacityError, ClosedError, NodeError, OptionError, ProtocolError, TokenRangeError
from tests.support.arrays import ints
from tests.support.llama_twin import SinglePath
from tests.support.llama_work import KINDS, Work, chain, fan, flags, logp
from tests.support.measured import row_nats

GENERATED = {
    ModelKind.ATTENTION: "tiny",
    ModelKind.SLIDING_WINDOW: "sliding-window",
    ModelKind.RECURRENT: "recurrent",
    ModelKind.HYBRID: "hybrid",
}
FAST_NATS = 0.6
"""Of a half-precision cache and unpadded calls."""


def opened(path, **options) -> LlamaModel:
    return open_model(path, LlamaOptions(n_threads=1, **options))


@pytest.fixture
def model(any_model):
    with opened(any_model) as model:
        yield model


@pytest.mark.short("attention", "recurrent")
@pytest.mark.parametrize("kind", GENERATED)
def test_a_prompt_and_a_tree_equal_each_path_alone(tiny_model, kind):
    """A prompt cut into two calls, two levels below it, then its inner nodes and its end again: on every kind of model."""
    path = tiny_model("f32", shape=GENERATED[kind])
    with opened(path) as model:
        assert model.limits.kind is kind
        work = Work(model, SinglePath(path), np.random.default_rng(1), tokens=range(3, 200))
        prompt = work.run((), 20)
        prompt = work.run(prompt, 19)
        work.tree(prompt, 12)
        work.tree(prompt[: 20 if kind.is_recurrent else 17], 5)
        work.tree(prompt, 7)
        assert work.rows_compared >= 20
        assert work.worst_nats <= row_nats(path)


@pytest.mark.short("48-attention", "48-recurrent", "None-hybrid")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_ctx", [None, 48])
def test_random_interleavings_equal_each_path_alone(model_of, kind, n_ctx):
    """Calls anywhere in the tree, releases, forgetting, trimming and eviction by lack of room move no row."""
    assert max(_interleave(model_of, kind, n_ctx, seed=3, steps=100)) <= row_nats(model_of(kind))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_ctx", [None, 48, 200])
def test_many_random_interleavings_equal_each_path_alone(model_of, kind, n_ctx):
    """Over many seeds the largest move stays within what the machine needs."""
    moved = [m for seed in range(20) for m in _interleave(model_of, kind, n_ctx, seed=seed, steps=150)]
    assert max(moved) <= row_nats(model_of(kind))


def _interleave(model_of, kind, n_ctx, *, seed, steps):
    path = model_of(kind)
    with opened(path, n_ctx=n_ctx, n_batch=64) as model:
        work = Work(model, SinglePath(path), np.random.default_rng(seed), tokens=KINDS[kind].tokens)
        for _ in range(steps):
            work.step()
        work.finish()
        assert work.rows_compared > steps // 3
        return work.moved_nats


def test_a_comparison_can_fail(tiny_model):
    """The same work against other weights' rows is nats away."""
    with opened(tiny_model("f32", seed=1)) as model:
        work = Work(model, SinglePath(tiny_model("f32", seed=2)), np.random.default_rng(0), tokens=range(3, 200))
        work.run((), 6)
        assert work.worst_nats > 0.1


def _branch_behind_what_was_dropped(model, path) -> float:
    """Nats between rows below an early node of a long prompt, whose neighbours in memory are dropped and used anew, and
    each path alone."""
    work = Work(model, SinglePath(path), np.random.default_rng(0), tokens=range(3, 500))
    work.run((), 20)
    first = ints(*(node for node, _, _ in work.held))
    long = work.run((), 60)
    model.release(first, forget=True)
    work.run((), 40)
    work.tree(long[:18], 3)
    return work.worst_nats


def test_without_the_keeper_a_sliding_window_forgets(model_of):
    """The planted bug: cells of a cached prompt that one id alone owns are given away, and branching there is nats wrong."""
    path = model_of("sliding-window")
    with opened(path) as model:
        model._sequences = AttentionSequences(model._tree, model._context, keeper=False)
        assert _branch_behind_what_was_dropped(model, path) > 0.1


def test_with_the_keeper_a_sliding_window_forgets_nothing(model_of):
    """The same work, once more: what is dropped takes the keeper from nothing that stays."""
    path = model_of("sliding-window")
    with opened(path) as model:
        assert _branch_behind_what_was_dropped(model, path) <= row_nats(path)


def test_the_keeper_of_a_sliding_window_holds_no_dropped_cell(tiny_model):
    """Beside a prompt that stays, three times the cells of the context are used and dropped: there is room to the end."""
    with opened(tiny_model("f32", shape="sliding-window"), n_ctx=64, n_batch=32) as model:
        chain(model, ROOT, [3, 4])
        for _ in range(3 * model._context.size.cells // 28):
            model.release(chain(model, ROOT, range(100, 128)).nodes, forget=True)
        assert model.limits.nodes - model.capacity().nodes == 2


def test_existing_nodes_come_back_and_are_evaluated_only_where_their_row_is_wanted(model, any_model):
    """The same run again costs nothing; with its third row wanted, one row on a scratch branch."""
    first = chain(model, ROOT, [5, 6, 7, 8])
    again = model.extend(ints(ROOT, ~0, ~1, ~2), ints(5, 6, 7, 8), flags(4), flags(4))
    assert again.nodes.tolist() == first.nodes.tolist()
    assert (again.rows_evaluated, again.rows_padded, len(again.rows), again.decode_s) == (0, 0, 0, 0.0)
    wanted = model.extend(ints(ROOT, ~0, ~1, ~2), ints(5, 6, 7, 8), flags(4, 2), flags(4))
    assert (wanted.rows_evaluated, wanted.rows_repeated, len(wanted.rows)) == (1, 1, 1)
    found = logp(wanted.rows, 0)
    expected = logp(chain(model, ROOT, [5, 6, 7]).rows, 2)
    np.testing.assert_allclose(found, expected, rtol=0, atol=row_nats(any_model))


def test_a_pair_that_stands_twice_in_a_call_is_one_node(model):
    """Two elements, one row, two references; both wanted rows are that row."""
    got = model.extend(ints(ROOT, ROOT, ~0, ~1), ints(5, 5, 6, 6), flags(4, 0, 1, 3), flags(4))
    assert got.nodes.tolist() == [got.nodes[0]] * 2 + [got.nodes[2]] * 2
    assert got.rows_evaluated == 2
    assert len(got.rows) == 3
    np.testing.assert_array_equal(got.rows.logits(0), got.rows.logits(1))
    model.release(got.nodes[:1], forget=True)
    assert model.capacity().nodes == model.limits.nodes - 2


def test_find_gives_the_deepest_node_and_a_reference(model):
    """A prompt found again is held again, and stays when everything else is trimmed."""
    nodes = chain(model, ROOT, [5, 6, 7]).nodes
    model.release(nodes)
    node, depth = model.match_prefix(ints(5, 6, 9))
    assert (node, depth) == (nodes[1], 2)
    assert model.trim(0) == 1
    assert model.match_prefix(ints(5, 6, 7)) == (node, 2)
    assert model.match_prefix(ints(9)) == (ROOT, 0)
    assert model.capacity().nodes == model.limits.nodes - 2


def test_trim_drops_what_idled_while_others_were_evaluated(model):
    """A released prompt idles for three rows: it goes when three are too many, not when four are."""
    old = chain(model, ROOT, [5, 6])
    model.release(old.nodes)
    chain(model, ROOT, [7, 8, 9])
    assert model.trim(4) == 0
    assert model.trim(3) == 2
    assert model.match_prefix(ints(5)) == (ROOT, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_calls_that_cannot_be_done_change_nothing(model_of, kind):
    """Every refusal leaves room and rows as they were."""
    with opened(model_of(kind), n_ctx=64, n_batch=32) as model:
        held = chain(model, ROOT, range(60, 80))
        top = int(held.nodes[-1])
        room = model.capacity()
        before = logp(fan(model, top, [50]).rows, 0)
        model.trim(0)
        rows = model.limits.rows_per_call
        refused = (
            (CapacityError, [top] * (rows + 1), range(30, 31 + rows)),
            (CapacityError, [top, *(~i for i in range(29))], range(30, 60)),
            (NodeError, [top + 500], [5]),
            (NodeError, [~0], [5]),
            (TokenRangeError, [top], [100_000]),
            (ProtocolError, [top, top], [5]),
        )
        chain(model, top, range(90, 110))
        room = model.capacity()
        for error, parents, tokens in refused:
            with pytest.raises(error):
                model.extend(ints(*parents), ints(*tokens), flags(len(tokens)), flags(len(tokens)))
            assert model.capacity() == room
        after = logp(fan(model, top, [50]).rows, 0)
        np.testing.assert_allclose(after, before, rtol=0, atol=row_nats(model_of(kind)))


def test_more_branches_than_sequences_are_refused(any_model):
    """One leaf more than there are ids is refused by number; as many as there are work, and wait for room afterwards."""
    with opened(any_model, n_batch=16) as model:
        branches = model.limits.sequences
        assert branches == 14
        prompt = chain(model, ROOT, [5, 6])
        top = int(prompt.nodes[-1])
        with pytest.raises(CapacityError) as caught:
            fan(model, top, range(20, 20 + branches + 1))
        assert (caught.value.required, caught.value.available) == (branches + 1, branches)
        leaves = fan(model, top, range(20, 20 + branches))
        assert model.capacity().sequences == 0
        with pytest.raises(CapacityError):
            fan(model, top, [50])
        one_more = fan(model, int(leaves.nodes[0]), [50])
        assert model.capacity().sequences == 0
        again = model.extend(ints(top), ints(20), flags(1, 0), flags(1))
        assert again.rows_repeated == 1
        model.release(leaves.nodes[1:3])
        assert model.capacity().sequences == 2
        fan(model, top, [50, 51])
        assert one_more.nodes[0] != leaves.nodes[0]


def test_a_full_tree_takes_a_whole_call_of_rows_again(any_model):
    """`limits.nodes` is honest: with every node held, a call of repeated rows and its padding still find cells."""
    with opened(any_model, n_ctx=256, n_batch=64) as model:
        assert model.limits.nodes == 256
        top = ROOT
        for start in range(0, 256, 64):
            top = int(chain(model, top, range(3 + start, 67 + start)).nodes[-1])
        assert model.capacity().nodes == 0
        node, _ = model.match_prefix(ints(*range(3, 200)))
        again = model.extend(
            ints(ROOT, *(~i for i in range(63))), ints(*range(3, 67)), flags(64, *range(64)), flags(64)
        )
        assert (again.rows_repeated, len(again.rows)) == (64, 64)
        assert node
        with pytest.raises(CapacityError):
            fan(model, top, [5])


def test_forking_models_take_one_round_and_extend_only_kept_nodes(model_of):
    """Branching inside a call, and a parent without a state, are refused."""
    with opened(model_of("recurrent")) as model:
        with pytest.raises(ProtocolError, match="one round"):
            model.extend(ints(ROOT, ~0, ~0), ints(5, 6, 7), flags(3), flags(3))
        run = model.extend(ints(ROOT, ~0, ~1), ints(5, 6, 7), flags(3), flags(3, 2))
        with pytest.raises(NodeError, match="keep"):
            model.extend(run.nodes[:1], ints(9), flags(1), flags(1))
        assert model.match_prefix(ints(5, 6, 7, 8)) == (run.nodes[2], 3)
        assert model.match_prefix(ints(5, 6, 9)) == (ROOT, 0)
        assert model.capacity().sequences == model.limits.sequences - 1


@pytest.mark.parametrize("kind", ["recurrent", "hybrid"])
def test_states_come_when_a_node_is_asked_for_again_and_kept(model_of, kind):
    """A node made without keep gets a state by a second call; a repeated pair in one call is evaluated for both runs."""
    path = model_of(kind)
    twin = SinglePath(path)
    with opened(path) as model:
        first = model.extend(ints(ROOT, ~0), ints(65, 66), flags(2), flags(2))
        again = model.extend(ints(ROOT, ~0), ints(65, 66), flags(2, 0), flags(2, 1))
        assert again.nodes.tolist() == first.nodes.tolist()
        assert (again.rows_evaluated, again.rows_repeated) == (2, 2)
        np.testing.assert_allclose(logp(again.rows, 0), twin.row((65,)), rtol=0, atol=row_nats(path))
        top = int(again.nodes[1])
        got = model.extend(ints(top, top, ~0, ~1), ints(70, 70, 71, 72), flags(4, 0, 2, 3), flags(4, 3))
        for i, tail in enumerate([(70,), (70, 71), (70, 72)]):
            np.testing.assert_allclose(logp(got.rows, i), twin.row((65, 66, *tail)), rtol=0, atol=row_nats(path))
        assert (got.rows_evaluated, got.rows_repeated) == (4, 1)
        more = fan(model, int(got.nodes[3]), [73])
        np.testing.assert_allclose(logp(more.rows, 0), twin.row((65, 66, 70, 72, 73)), rtol=0, atol=row_nats(path))


def test_states_that_nobody_holds_make_room_for_others(model_of):
    """Ten kept nodes on eight ids: released ones lose their state, held ones keep it, and too many held ones are refused."""
    path = model_of("recurrent")
    twin = SinglePath(path)
    with opened(path, n_batch=8) as model:
        assert model.limits.sequences == 7
        prompt = fan(model, ROOT, [65], keep=True)
        for token in range(70, 80):
            one = fan(model, int(prompt.nodes[0]), [token], keep=True)
            model.release(one.nodes)
        two = fan(model, int(prompt.nodes[0]), [90], keep=True)
        np.testing.assert_allclose(logp(two.rows, 0), twin.row((65, 90)), rtol=0, atol=row_nats(path))
        held = [fan(model, int(prompt.nodes[0]), [100 + i], keep=True) for i in range(5)]
        assert model.capacity().sequences == 0
        with pytest.raises(CapacityError):
            fan(model, int(prompt.nodes[0]), [110], keep=True)
        last = fan(model, int(held[0].nodes[0]), [111])
        np.testing.assert_allclose(logp(last.rows, 0), twin.row((65, 100, 111)), rtol=0, atol=row_nats(path))


def test_padding_gives_the_same_bits_however_a_run_is_cut(tiny_model):
    """Calls of 8, 16, 24 and 32 rows, and odd ones filled up to them, on f32, f16, q8_0 and q4_K_M weights."""
    tokens = np.random.default_rng(5).integers(3, 500, 96).astype(np.int32)
    for quantisation in ("f32", "f16", "q8_0", "q4_k_m"):
        rows = []
        for cut in (96, 8, 16, 24, 32, 1, 7, 29):
            with opened(tiny_model(quantisation)) as model:
                top, parts = ROOT, []
                for start in range(0, 96, cut):
                    got = chain(model, top, tokens[start : start + cut])
                    assert (got.rows_evaluated + got.rows_padded) % 8 == 0
                    parts.append(got.rows.copy())
                    top = int(got.nodes[-1])
                rows.append(np.stack([part.logits(i) for part in parts for i in range(len(part))]))
        for other in rows[1:]:
            np.testing.assert_array_equal(other, rows[0], err_msg=quantisation)


def test_which_rows_are_wanted_moves_no_bit(tiny_model):
    """The number of rows that give logits is filled up, too: the last layer runs on those alone."""
    with opened(tiny_model("q8_0")) as model:
        every = chain(model, ROOT, range(5, 21)).rows.copy()
    for wanted in ([15], [0, 1, 2], [3, 7, 15]):
        with opened(tiny_model("q8_0")) as model:
            got = model.extend(ints(ROOT, *(~i for i in range(15))), ints(*range(5, 21)), flags(16, *wanted), flags(16))
            for i, j in enumerate(wanted):
                np.testing.assert_array_equal(got.rows.logits(i), every.logits(j))


def test_the_granule_is_set_while_the_tree_is_empty(any_model):
    """A self-check may find another batch_multiple; calls are filled up to it, and limits follow."""
    with opened(any_model, n_batch=64) as model:
        assert model.limits.batch_sizes == BatchSizes(8)
        assert model.limits.call_cost == CallCost(256, 16, 1, 128)
        model.set_batch_multiple(32)
        got = chain(model, ROOT, [5])
        assert (got.rows_padded, got.n_programs) == (31, 1)
        with pytest.raises(ProtocolError, match="1 nodes"):
            model.set_batch_multiple(8)
        model.release(got.nodes, forget=True)
        model.set_batch_multiple(24)
        assert (model.limits.rows_per_call, model.limits.batch_sizes.multiple) == (48, 24)
        with pytest.raises(OptionError):
            model.set_batch_multiple(65)
    with opened(any_model, precision=Precision.FAST) as fast:
        assert fast.limits.batch_sizes == BatchSizes(1)
        assert fast.limits.call_cost == CallCost(256, 16, 1, 128)
        assert chain(fast, ROOT, [5]).rows_padded == 0
        assert fast.identity.precision == "fast"
        rows = chain(fast, ROOT, range(5, 25)).rows
        moved = np.abs(logp(rows, 19) - SinglePath(any_model).row(tuple(range(5, 25)))).max()
        assert 0 < moved <= FAST_NATS


def test_a_solo_model_gives_the_same_bits_whatever_the_model_holds(model):
    """A second context on the same weights: before other work, after it, and used a second time."""

    def solo_rows() -> np.ndarray:
        with model.new_context(40) as solo:
            assert solo.limits.nodes >= 40
            prompt = chain(solo, ROOT, range(5, 25))
            rows = []
            for token in (30, 31, 30):
                path = chain(solo, int(prompt.nodes[-1]), [token, 40, 41])
                rows.append(np.stack([path.rows.logits(i) for i in range(3)]))
                solo.release(path.nodes, forget=True)
            np.testing.assert_array_equal(rows[0], rows[2])
            return np.concatenate(rows)

    before = solo_rows()
    crowd = chain(model, ROOT, range(50, 90))
    crowd = np.concatenate([crowd.nodes, fan(model, int(crowd.nodes[-1]), range(30, 60)).nodes])
    np.testing.assert_array_equal(solo_rows(), before)
    model.release(crowd, forget=True)
    model.set_batch_multiple(1)
    with model.new_context(8) as solo:
        assert solo.limits.batch_sizes.multiple == 1
        model.close()
        chain(solo, ROOT, [5])
    with pytest.raises(ClosedError):
        model.new_context(8)


def test_use_after_close_is_refused_and_closing_twice_is_fine(any_model):
    """Every verb says so."""
    model = opened(any_model)
    model.close()
    model.close()
    for use in (
        lambda: chain(model, ROOT, [5]),
        lambda: model.match_prefix(ints(5)),
        lambda: model.release(ints()),
        model.capacity,
        lambda: model.trim(0),
        lambda: model.new_context(8),
    ):
        with pytest.raises(ClosedError):
            use()
    model.interrupt()


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_memory_stays_flat(model_of, kind):
    """Five thousand calls with branches that come and go: resident memory grows by less than 5 MB over the last 4 500."""
    with opened(model_of(kind)) as model:
        top = int(chain(model, ROOT, range(60, 100)).nodes[-1])
        for i in range(5_000):
            got = fan(model, top, range(60 + i % 7, 72 + i % 7), keep=True)
            model.release(got.nodes, forget=bool(i % 3))
            if i == 500:
                before = resident_bytes()
        assert resident_bytes() - before < 5e6


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_the_way_to_a_larger_context_is_an_option(tiny_model):
    """It is for errors about prompts that are too long."""
    with opened(tiny_model("f32")) as model:
        assert model.limits.larger_context == "load with a larger `n_ctx`"
