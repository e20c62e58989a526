"""Rows on an accelerator say what rows in the host's memory say, and little crosses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.core.partial_rows import SelectedRows
from selectrie.core.rows import DenseRows, Reads, TokenSet, TopTokens
from selectrie.errors import NonFiniteLogitsError, UnreadRowError

torch = pytest.importorskip("torch", reason="torch is not installed")

from selectrie.backends.transformers.model import TorchRows, rows_of
from tests.support.n_examples import n_examples

NEAR = 2e-7
"""Nats: `DenseRows` takes exponentials in float32, with a relative error of 6e-8 each."""
DEVICES = ("cpu", "cuda")
seeds = st.integers(0, 2**32 - 1)


def device_of(name):
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    return torch.device(name)


def matrix_of(rng, n, v):
    """Logits of few different values, so that there are ties."""
    return (rng.standard_normal((n, v)) * 3).round(1).astype(np.float32)


def reads_of(rng, n, v):
    def ids(k):
        return rng.choice(v, size=min(k, v), replace=False).astype(np.int32)

    def row():
        return int(rng.integers(n))

    m = int(rng.integers(0, 12))
    allowed = [None, ids(5), rng.random(v) < 0.5, None]
    return Reads(
        n,
        rng.integers(n, size=m),
        rng.integers(v, size=m).astype(np.int32),
        masses=tuple(TokenSet(row(), ids(k)) for k in (0, 3, 300)),
        rests=tuple(TokenSet(row(), ids(k)) for k in (0, 2)),
        tops=tuple(TopTokens(row(), int(rng.integers(1, 12)), one) for one in allowed),
        whole=np.unique(rng.integers(n, size=1)),
        best=bool(rng.integers(2)),
    )


def assert_near(rows, dense, reads):
    """The same tokens in the same order, and the same numbers up to rounding."""
    np.testing.assert_allclose(rows.logp(reads.owner, reads.ids), dense.logp(reads.owner, reads.ids), rtol=0, atol=NEAR)
    for one in reads.masses:
        assert rows.log_mass(one.row, one.ids) == pytest.approx(dense.log_mass(one.row, one.ids), abs=NEAR)
    for one in reads.rests:
        assert rows.log_rest(one.row, one.ids) == pytest.approx(dense.log_rest(one.row, one.ids), abs=NEAR)
    for one in reads.tops:
        (ids, logp), (expected, values) = rows.top(one.row, one.k, one.allowed), dense.top(one.row, one.k, one.allowed)
        assert ids.tolist() == expected.tolist()
        np.testing.assert_allclose(logp, values, rtol=0, atol=NEAR)
    for row in reads.whole.tolist():
        assert rows.logits(row).tolist() == dense.logits(row).tolist()
    if reads.best:
        assert rows.best().tolist() == dense.best().tolist()


@pytest.mark.parametrize("device", DEVICES)
@given(seed=seeds, v=st.sampled_from([7, 40, 700]))
@settings(max_examples=n_examples(60))
def test_rows_on_the_device_are_the_dense_ones(device, seed, v):
    """Read one by one, fetched at once, cut, reordered, copied and stacked."""
    rng = np.random.default_rng(seed)
    matrix, index = matrix_of(rng, 5, v), rng.integers(5, size=6)
    reads, order = reads_of(rng, 6, v), rng.permutation(6)[:4]
    dense, rows = DenseRows(matrix, index), TorchRows(torch.tensor(matrix, device=device_of(device)), index)
    assert_near(rows, dense, reads)
    fetched = rows.fetch(lambda: reads)
    assert isinstance(fetched, SelectedRows)
    assert_near(fetched, dense, reads)
    assert_near(rows.take(order).fetch(lambda: reads.take(order)), dense.take(order), reads.take(order))
    both = Reads.concatenated([reads.take([1, 2]), reads])
    assert_near(rows.slice(1, 3).stacked([rows]).copy().fetch(lambda: both), dense.slice(1, 3).stacked([dense]), both)


@pytest.mark.parametrize("device", DEVICES)
def test_a_row_has_the_same_bits_alone_and_among_others(device):
    """The normaliser, and all that is read by it, knows no neighbour."""
    rng = np.random.default_rng(0)
    logits = torch.tensor(matrix_of(rng, 40, 3000), device=device_of(device))
    ids = np.arange(3000)
    together = TorchRows(logits).logp(np.arange(40)[:, None], ids)
    for i in (0, 7, 39):
        alone = TorchRows(logits[i : i + 1].clone())
        assert alone.logp(0, ids).tolist() == together[i].tolist()
        assert alone.log_mass(0, ids) == TorchRows(logits).log_mass(i, ids)
        assert alone.log_rest(0, ids[:9]) == TorchRows(logits).log_rest(i, ids[:9])


def test_reading_a_set_does_not_change_double_logits():
    """What is left out of a sum is left out of a copy, also where no conversion makes one."""
    logits = torch.arange(12, dtype=torch.float64).reshape(2, 6)
    before = logits.clone()
    rows = TorchRows(logits)
    expected = torch.logsumexp(before[1, 1:5], 0) - torch.logsumexp(before[1], 0)
    assert rows.log_rest(1, [0, 5]) == pytest.approx(float(expected))
    assert torch.equal(logits, before)


def test_ties_beyond_what_was_looked_at_go_by_id():
    """A whole row of equal logits: the first ids, whatever the device returns first."""
    rows = TorchRows(torch.zeros(1, 5000))
    assert rows.top(0, 3)[0].tolist() == [0, 1, 2]
    assert rows.top(0, 3, np.arange(100, 900, dtype=np.int32))[0].tolist() == [100, 101, 102]


@pytest.mark.parametrize("bad", [np.nan, np.inf, "all forbidden"])
def test_a_broken_row_is_found(bad):
    """It raises when it is read or fetched; the others stay readable."""
    matrix = matrix_of(np.random.default_rng(1), 3, 30)
    matrix[1, 4 if bad != "all forbidden" else slice(None)] = -np.inf if bad == "all forbidden" else bad
    rows = TorchRows(torch.tensor(matrix))
    for read in (
        rows.check,
        rows.best,
        lambda: rows.logp(1, 0),
        lambda: rows.log_mass(1, [0]),
        lambda: rows.log_rest(1, [0]),
        lambda: rows.top(1, 2),
        lambda: rows.fetch(lambda: Reads(3)),
    ):
        with pytest.raises(NonFiniteLogitsError):
            read()
    assert np.isfinite(rows.logp([0, 2], 3)).all()
    assert len(rows.slice(2, 3).fetch(lambda: Reads(1))) == 1


def test_little_crosses():
    """512 rows of 152 000 tokens are 311 MB; what a trie reads of them is less than one."""
    n, v = 512, 152_000
    rng = np.random.default_rng(0)
    rows = TorchRows(torch.randn(n, v, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(0)))
    owner = np.repeat(np.arange(n), 4)
    eog = np.array([1, 2], dtype=np.int32)
    reads = Reads(
        n,
        owner,
        rng.integers(v, size=len(owner)).astype(np.int32),
        masses=tuple(TokenSet(i, eog) for i in range(n)),
        tops=tuple(TopTokens(i, 1) for i in range(n)),
    )
    fetched = rows.fetch(lambda: reads)
    assert rows.n_bytes_read <= 1 << 20
    assert fetched.nbytes <= 1 << 20
    with pytest.raises(UnreadRowError):
        fetched.logits(0)


def test_logits_in_the_host_s_memory_are_read_where_they_are():
    """No copy of float32; other types are converted."""
    logits = torch.randn(3, 9)
    rows = rows_of(logits, [2, 0])
    assert isinstance(rows, DenseRows)
    assert np.shares_memory(rows.logits(0), logits.numpy())
    assert rows_of(logits.to(torch.bfloat16)).logits(0).dtype == np.float32
