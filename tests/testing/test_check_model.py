"""`check_model` passes the fakes and finds every bug planted in them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from selectrie.core.rows import DenseRows
from selectrie.core.types import ROOT, BatchSizes, Limits, ModelKind
from selectrie.errors import CapacityError, DecodeError, DecodeInterrupted, OptionError, ProtocolError
from selectrie.testing import HashModel, LawBroken, TableModel, check_model, make_vocabulary
from selectrie.testing.fakes import WIDE
from tests.support.far_rows import FarModel, FarRows


def interrupt_next(model):
    """Interrupt the next call of a fake in its first program."""

    def interrupt():
        model.on_decode = None
        model.interrupt()

    model.on_decode = interrupt


def tight(kind: ModelKind) -> Limits:
    """Limits that random work runs into all the time."""
    return Limits(nodes=30, sequences=8, rows_per_call=6, kind=kind, max_idle_rows=10)


@pytest.mark.parametrize("kind", tuple(ModelKind))
@pytest.mark.parametrize("limits", [tight, lambda kind: replace(WIDE, kind=kind)], ids=["tight", "wide"])
def test_fakes_keep_the_laws(kind, limits):
    """Both fakes pass, on every kind of model and with limits met at every step, to the bit."""
    report = check_model(
        lambda: HashModel(3, limits=limits(kind)),
        seed=1,
        steps=150,
        fail_next=lambda model: model.fail_next(DecodeError("planned")),
        interrupt_next=interrupt_next,
    )
    assert report.worst_nats == 0
    assert min(report.rows_compared, report.calls, report.refusals) > 20
    check_model(lambda: TableModel({(): {"a": 1.0}}, limits=limits(kind)), seed=2, steps=40)


SIZES = (BatchSizes(3), BatchSizes.fixed({1: 0.002, 4: 0.003, 9: 0.02}))


@pytest.mark.parametrize("kind", tuple(ModelKind))
@pytest.mark.parametrize("sizes", SIZES, ids=["multiple", "fixed"])
def test_padded_fakes_keep_the_laws(kind, sizes):
    """Calls filled up to a multiple, and calls split among programs of fixed sizes: every row to the bit."""
    report = check_model(
        lambda: HashModel(3, limits=replace(tight(kind), batch_sizes=sizes)),
        seed=1,
        steps=150,
        fail_next=lambda model: model.fail_next(DecodeError("planned")),
        interrupt_next=interrupt_next,
    )
    assert report.worst_nats == 0
    assert min(report.rows_compared, report.calls, report.refusals) > 20


@pytest.mark.parametrize("kind", tuple(ModelKind))
def test_rows_that_have_to_be_fetched_keep_the_laws(kind):
    """Nothing is read before it was fetched."""
    report = check_model(lambda: FarModel(HashModel(3, limits=tight(kind))), seed=1, steps=150)
    assert report.worst_nats == 0
    assert report.rows_compared > 20


class Siblings(HashModel):
    """Bug: one logit moves by 1e-3 where more than three rows stand beside each other in the call."""

    def extend(self, parents, tokens, wanted, keep):
        extension = super().extend(parents, tokens, wanted, keep)
        matrix = np.array([extension.rows.logits(i) for i in range(len(extension.rows))], dtype=np.float32)
        matrix = matrix.reshape(len(extension.rows), 26)
        matrix[:, 3] += 1e-3 * (len(tokens) > 3)
        return replace(extension, rows=DenseRows(matrix))


class StaleRows(HashModel):
    """Bug: rows are remembered by node id, and ids are used again."""

    def extend(self, parents, tokens, wanted, keep):
        extension = super().extend(parents, tokens, wanted, keep)
        memory = self.__dict__.setdefault("memory", {})
        wanted_nodes = [int(n) % 5 for n in extension.nodes[wanted]]
        matrix = [memory.setdefault(n, extension.rows.logits(i).copy()) for i, n in enumerate(wanted_nodes)]
        return replace(extension, rows=DenseRows(np.array(matrix, dtype=np.float32).reshape(len(matrix), 26)))


class WrongBranches(HashModel):
    """Bug: a second branch below a node is wrong, as a hybrid's is where its state has moved on."""

    def extend(self, parents, tokens, wanted, keep):
        carried = {path[:-1] for path in self.contexts.values()}
        extension = super().extend(parents, tokens, wanted, keep)
        paths = [self.contexts[n] for n in extension.nodes[wanted].tolist()]
        matrix = np.empty((len(paths), 26), dtype=np.float32)
        for i, path in enumerate(paths):
            matrix[i] = extension.rows.logits(i)
            matrix[i, 3] += path[:-1] in carried
        return replace(extension, rows=DenseRows(matrix))


class OffByOne(HashModel):
    """Bug: the rows of a call come in reverse."""

    def extend(self, parents, tokens, wanted, keep):
        extension = super().extend(parents, tokens, wanted, keep)
        return replace(extension, rows=extension.rows.take(np.arange(len(extension.rows))[::-1]))


class NoRollback(HashModel):
    """Bug: a decode that fails leaves its nodes behind."""

    def extend(self, parents, tokens, wanted, keep):
        failure, self._failure = self._failure, None
        extension = super().extend(parents, tokens, wanted, keep)
        if failure is not None:
            raise failure
        return extension


class Leak(HashModel):
    """Bug: what is forgotten is only released, and every tenth release is lost."""

    def release(self, nodes, *, forget=False):
        self.count = getattr(self, "count", 0) + 1
        if self.count % 10:
            super().release(nodes, forget=False)


class Greedy(HashModel):
    """Bug: a call that is too large is cut off instead of refused."""

    def extend(self, parents, tokens, wanted, keep):
        n = self.limits.rows_per_call
        return super().extend(parents[:n], tokens[:n], wanted[:n], keep[:n])


class Timid(HashModel):
    """Bug: refuses calls for which there is room."""

    def extend(self, parents, tokens, wanted, keep):
        if len(tokens) in (3, 4):
            raise CapacityError("rows", required=len(tokens), available=2)
        return super().extend(parents, tokens, wanted, keep)


class Wrapping(HashModel):
    """Bug: token ids are taken modulo the vocabulary."""

    def extend(self, parents, tokens, wanted, keep):
        return super().extend(parents, np.asarray(tokens) % 26, wanted, keep)


class Forgetful(HashModel):
    """Bug: a dead parent is taken for the root."""

    def extend(self, parents, tokens, wanted, keep):
        known = np.array([p if p < 0 or p in self.contexts else ROOT for p in parents], dtype=np.int32)
        return super().extend(known, tokens, wanted, keep)


class DeepFind(HashModel):
    """Bug: `match_prefix` names a child for its parent's path."""

    def match_prefix(self, tokens):
        node, depth = super().match_prefix(tokens)
        for deeper, path in self.contexts.items():
            if depth and len(path) == depth + 1 and path[:-1] == self.contexts[node]:
                self._tree.inc_ref(deeper)
                super().release(np.array([node]))
                return deeper, depth
        return node, depth


class MovingSolo(HashModel):
    """Bug: what a solo model computes depends on the work done before."""

    def new_context(self, nodes):
        return HashModel(self.rows)


class Unpadded(HashModel):
    """Bug: says nothing of the rows that a call is filled up with."""

    def extend(self, parents, tokens, wanted, keep):
        return replace(super().extend(parents, tokens, wanted, keep), rows_padded=0)


class OneProgram(HashModel):
    """Bug: counts a call as one program, however many it runs."""

    def extend(self, parents, tokens, wanted, keep):
        return replace(super().extend(parents, tokens, wanted, keep), n_programs=1)


class Lenient(HashModel):
    """Bug: takes any multiple at any time, and ignores what it cannot use."""

    def set_batch_multiple(self, value):
        with suppress(OptionError, ProtocolError):
            super().set_batch_multiple(value)


class Eager(HashModel):
    """Bug: a multiple that it refuses is set all the same."""

    def set_batch_multiple(self, value):
        try:
            super().set_batch_multiple(value)
        except (OptionError, ProtocolError):
            self._limits = replace(self._limits, max_idle_rows=1)
            raise


class PlainSolo(HashModel):
    """Bug: a solo model does not get the batch sizes."""

    def new_context(self, nodes, *args):
        return HashModel(3, limits=replace(self.limits, batch_sizes=BatchSizes()))


@pytest.mark.parametrize("sizes", SIZES, ids=["multiple", "fixed"])
@pytest.mark.parametrize("planted", [Unpadded, OneProgram, Lenient, Eager, PlainSolo])
def test_wrong_batch_sizes_are_caught(planted, sizes):
    """Each broken model breaks the law of batch sizes."""
    with pytest.raises(LawBroken) as caught:
        check_model(
            lambda: planted(3, limits=replace(tight(ModelKind.ATTENTION), batch_sizes=sizes)), seed=1, steps=300
        )
    assert caught.value.law == 6


class Misfetched(HashModel):
    """Bug: one of the values that are fetched is wrong."""

    wrong = ""

    def extend(self, parents, tokens, wanted, keep):
        extension = super().extend(parents, tokens, wanted, keep)
        return replace(extension, rows=MisfetchedRows(extension.rows, self.wrong))


class MisfetchedRows(FarRows):
    """Rows of which one value is wrong where only a part is fetched."""

    def __init__(self, rows, wrong):
        super().__init__(rows)
        self.wrong = wrong

    def fetch(self, reads):
        part = super().fetch(reads)
        if not len(reads().whole):
            right = getattr(part, self.wrong)
            moved = {
                "_logp": lambda: right - 0.1,
                "_masses": lambda: tuple(one - 0.1 for one in right),
                "_rests": lambda: tuple(one - 0.1 for one in right),
                "_tops": lambda: tuple((ids, logp - 0.1) for ids, logp in right),
                "_best": lambda: (right + 1) % len(make_vocabulary().pieces),
            }
            setattr(part, self.wrong, moved[self.wrong]())
        return part


@pytest.mark.parametrize("wrong", ["_logp", "_masses", "_rests", "_tops", "_best"])
def test_wrong_values_of_fetched_rows_are_caught(wrong):
    """Whatever kind of value is wrong."""

    def planted():
        model = Misfetched(3, limits=tight(ModelKind.ATTENTION))
        model.wrong = wrong
        return model

    with pytest.raises(LawBroken) as caught:
        check_model(planted, seed=1, steps=60)
    assert caught.value.law == 7
    assert caught.value.difference_nats > 1e-3


@pytest.mark.parametrize("kind", tuple(ModelKind))
def test_a_fake_that_cannot_be_interrupted_keeps_the_laws(kind):
    """Its calls go on, and their rows are right."""
    limits = replace(tight(kind), can_interrupt=False)
    report = check_model(lambda: HashModel(3, limits=limits), seed=1, steps=150, interrupt_next=interrupt_next)
    assert report.worst_nats == 0


class Deaf(HashModel):
    """Bug: says that it can be interrupted, and cannot."""

    def interrupt(self):
        pass


class Touchy(HashModel):
    """Bug: is interrupted, and says that it cannot be."""

    def interrupt(self):
        self._is_interrupted = self._is_decoding


class Resentful(HashModel):
    """Bug: an interrupt while no call runs ends the next one."""

    def interrupt(self):
        self._is_interrupted = True


class HalfDone(HashModel):
    """Bug: an interrupted call keeps its capacity."""

    def extend(self, parents, tokens, wanted, keep):
        try:
            return super().extend(parents, tokens, wanted, keep)
        except DecodeInterrupted:
            super().extend(parents[:1], tokens[:1], wanted[:1], keep[:1])
            raise


@pytest.mark.parametrize(
    ("planted", "can_interrupt", "law"),
    [(Deaf, True, 8), (Touchy, False, 8), (Resentful, True, 8), (Resentful, False, 8), (HalfDone, True, 5)],
)
def test_wrong_interrupts_are_caught(planted, can_interrupt, law):
    """A call that goes on, that ends, or that leaves something behind, against what the limits say."""
    limits = replace(tight(ModelKind.ATTENTION), can_interrupt=can_interrupt)
    with pytest.raises(LawBroken) as caught:
        check_model(lambda: planted(3, limits=limits), seed=1, steps=100, interrupt_next=interrupt_next)
    assert caught.value.law == law


def test_an_interrupt_while_idle_is_tried_on_any_model():
    """No hook of the back end is needed for it."""
    with pytest.raises(LawBroken, match="an interrupt that must have no effect"):
        check_model(lambda: Resentful(3, limits=tight(ModelKind.ATTENTION)), seed=1, steps=100)


@pytest.mark.parametrize(
    ("planted", "law"),
    [
        (Siblings, 4),
        (StaleRows, 4),
        (WrongBranches, 4),
        (OffByOne, 4),
        (NoRollback, 5),
        (Leak, 5),
        (Greedy, 5),
        (Wrapping, 5),
        (Forgetful, 5),
        (DeepFind, 4),
        (MovingSolo, 1),
    ],
)
def test_planted_bugs_are_caught(planted, law):
    """Each broken model breaks its law, and the message says where."""
    with pytest.raises(LawBroken) as caught:
        check_model(
            lambda: planted(3, limits=tight(ModelKind.ATTENTION)),
            seed=1,
            steps=300,
            fail_next=lambda model: model.fail_next(DecodeError("planned")),
        )
    assert caught.value.law == law
    assert f"law {law}" in str(caught.value)
    if law == 4:
        assert caught.value.difference_nats > 1e-4
        assert caught.value.path


def test_a_model_that_refuses_what_fits_is_caught():
    """A capacity error within the room that the model states is passed on."""
    with pytest.raises(CapacityError):
        check_model(lambda: Timid(3), seed=1, steps=100)


def test_the_tolerance_is_what_decides():
    """A model that moves by 1e-3 nats passes at 2e-3, reports how far it moved, and fails at 1e-4."""
    report = check_model(lambda: Siblings(3), seed=1, steps=60, tolerance_nats=2e-3)
    assert 1e-4 < report.worst_nats <= 2e-3
    with pytest.raises(LawBroken):
        check_model(lambda: Siblings(3), seed=1, steps=60, tolerance_nats=1e-4)
