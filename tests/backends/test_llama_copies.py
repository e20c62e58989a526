"""Paths copied from one context to another: the same bits as where they were evaluated, whatever else is held."""

from __future__ import annotations

import numpy as np
import pytest

from selectrie.backends.llama_cpp.model import LlamaModel, open_model
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.core.types import ROOT
from selectrie.errors import CapacityError, InternalError
from tests.support.arrays import ints
from tests.support.llama_twin import SinglePath
from tests.support.llama_work import KINDS, Work, chain, logp
from tests.support.measured import row_nats

COPYING = ["attention", "sliding-window"]


def opened(path, **options) -> LlamaModel:
    return open_model(path, LlamaOptions(n_threads=1, **options))


def evaluated(model: LlamaModel, path, tail):
    """All log-probabilities behind a path that is held and the tokens of a tail, in one call."""
    node, depth = model.match_prefix(ints(*path))
    assert depth == len(path)
    got = chain(model, node, tail)
    rows = np.array([logp(got.rows, i) for i in range(len(tail))])
    model.release(ints(*got.nodes, node), forget=True)
    return rows


@pytest.mark.short("attention-1")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", COPYING)
def test_copies_equal_each_path_alone_among_random_work(model_of, kind, seed):
    """Paths with beginnings that both contexts hold, copied while others come, go and are evicted; and back again."""
    path, rng = model_of(kind), np.random.default_rng(seed)
    with opened(path, n_ctx=220, n_batch=128) as model:
        twin = SinglePath(path)
        work = Work(model, twin, rng, tokens=KINDS[kind].tokens)
        other, moved, before, n_copied = model.new_context(160, 4), [], (), 0
        for _ in range(40):
            for _ in range(3):
                work.step()
            shared = before if rng.random() < 0.5 else next((p for _, p, _ in work.held if len(p) > 8), ())
            one = (*shared[: int(rng.integers(len(shared) + 1))], *work._random(int(rng.integers(1, 60))))[:120]
            node, depth = other.match_prefix(ints(*one))
            got = chain(other, node, one[depth:] or work._random(1))
            other.release(ints(*got.nodes, node))
            room = model.capacity()
            try:
                model.copy_path(other, ints(*one))
            except CapacityError:
                assert model.capacity() == room
                continue
            n_copied += 1
            tail = tuple(work._random(3))
            free = model.capacity()
            # One leaf more, and the path and its tail, whatever else is held of it.
            fits = free.sequences > 1 and free.nodes >= len(one) + len(tail)
            rows = evaluated(model, one, tail) if fits else []
            moved += [float(np.abs(row - twin.row((*one, *tail[: i + 1]))).max()) for i, row in enumerate(rows)]
            if model.copied_part(ints(*one)) == (0, len(one)):
                again = model.new_context(160, 4)
                again.copy_path(model, ints(*one))
                back = evaluated(again, one, tail)
                moved += [float(np.abs(a - twin.row((*one, *tail[: i + 1]))).max()) for i, a in enumerate(back)]
                again.close()
            before = one
        assert n_copied > 15
        assert len(moved) > 60
        assert max(moved) <= row_nats(path)
        other.close()
        work.finish()


@pytest.mark.short("q8_0")
@pytest.mark.parametrize("name", ["q8_0", "q4_0", "sliding-window"])
def test_a_path_that_went_there_and_back_has_the_same_bits(tiny_model, name):
    """Behind foreign cells rows of quantised weights move; a path that is taken back into an empty context does not."""
    path = tiny_model("f32", shape=name) if name == "sliding-window" else tiny_model(name)
    tokens, tail = np.random.default_rng(0).integers(3, 400, 200), tuple(range(20, 28))
    with opened(path) as model:
        model.set_batch_multiple(8)
        assert model.limits.copies_paths is (name != "sliding-window")
        chain(model, ROOT, range(300, 337))
        first = model.new_context(300)
        got = chain(first, ROOT, tokens)
        first.release(got.nodes)
        model.copy_path(first, ints(*tokens))
        expected = evaluated(first, tokens, tail)
        second = model.new_context(300)
        second.copy_path(model, ints(*tokens))
        assert evaluated(second, tokens, tail).tobytes() == expected.tobytes()
        middle = tokens[:96]
        assert evaluated(second, middle, tail).tobytes() == evaluated(first, middle, tail).tobytes()
        first.close()
        second.close()


def test_what_was_copied_is_known_until_it_is_dropped(tiny_model):
    """The last part of a path counts; nodes that were evaluated are none, and dropped ones are none either."""
    with opened(tiny_model("q8_0")) as model:
        path = ints(*range(10, 60))
        other = model.new_context(100)
        other.release(chain(other, ROOT, path).nodes)
        own = chain(model, ROOT, path[:20])
        model.copy_path(other, path)
        assert (model.copied_part(path), model.copied_part(path[:20])) == ((20, 50), (0, 0))
        assert model.capacity().nodes_cached == len(path)
        model.release(own.nodes)
        model.trim(0)
        model.copy_path(other, path[:30])
        assert (model.copied_part(path), model.copied_part(path[:7])) == ((0, 30), (0, 7))
        other.close()


def test_a_copy_that_finds_no_room_changes_nothing(tiny_model):
    """Held nodes are not dropped for it; cached ones are."""
    with opened(tiny_model("q8_0"), n_ctx=64, n_batch=32) as model:
        other, path = model.new_context(60, rows=32), ints(*range(10, 50))
        node = ROOT
        for part in (path[:20], path[20:]):
            node = int(chain(other, node, part).nodes[-1])
        held = chain(model, ROOT, range(100, 130))
        room = model.capacity()
        with pytest.raises(CapacityError):
            model.copy_path(other, path)
        assert (model.capacity(), model.match_prefix(path)[1]) == (room, 0)
        model.release(held.nodes)
        model.copy_path(other, path)
        assert model.copied_part(path) == (0, len(path))
        other.close()


def test_states_are_not_copied(tiny_model):
    """A recurrent-state model says so in its limits, and refuses."""
    with opened(tiny_model("f32", shape="recurrent")) as model:
        assert not model.limits.copies_paths
        assert model.copied_part(ints(1, 2)) == (0, 0)
        with pytest.raises(InternalError):
            model.copy_path(model, ints(1, 2))
