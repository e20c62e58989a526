"""Files of blocks: torn ends are told from damage, and no block grows without bound."""

from __future__ import annotations

import io
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.traces import blocks
from selectrie.traces.blocks import MAGIC, MAX_PAYLOAD_BYTES, MAX_RATIO, BlockError, BlockReader, BlockWriter

PAYLOADS = [b"one", bytes(5_000), b"", b"two" * 1000]


def written(payloads=PAYLOADS, *, end=True, n_items=1) -> bytes:
    """A file of these payloads."""
    file = io.BytesIO()
    writer = BlockWriter(file)
    for one in payloads:
        writer.write(one, n_items)
    if end:
        writer.end()
    assert writer.n_bytes == len(file.getvalue())
    return file.getvalue()


def read(data: bytes) -> tuple[list[bytes], blocks.FileTail]:
    """The payloads of a file, and its tail."""
    reader = BlockReader(io.BytesIO(data))
    return [payload for payload, _ in reader], reader.tail


@given(st.lists(st.binary(max_size=300) | st.builds(bytes, st.integers(0, 9_000)), max_size=5), st.booleans())
def test_payloads_come_back(payloads, end):
    """Whatever is written is read, and whether the file was ended."""
    data = written(payloads, end=end)
    assert read(data) == (payloads, blocks.FileTail(len(data), 0, is_complete=end))


def test_a_torn_file_keeps_its_complete_blocks():
    """Cut at any byte, a file has the blocks before, and its tail says what is left."""
    whole = written()
    starts = [len(written(PAYLOADS[:n], end=False)) for n in range(len(PAYLOADS) + 1)]
    for cut in range(len(MAGIC), len(whole)):
        payloads, tail = read(whole[:cut])
        n_complete = sum(start <= cut for start in starts) - 1
        assert payloads == PAYLOADS[:n_complete]
        assert tail == blocks.FileTail(starts[n_complete], cut - starts[n_complete], is_complete=False)


def test_every_changed_byte_is_noticed():
    """A file with one byte changed, anywhere, never reads as a whole one."""
    whole = written()
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 0x10
        try:
            _, tail = read(bytes(changed))
        except BlockError:
            continue
        assert not tail.is_complete  # a length that reaches beyond the end reads as torn


def test_blocks_cannot_be_left_out_moved_or_added():
    """The digests are a chain."""
    first, second = written([b"a", b"b"]), written([b"b"])
    size = len(second) - len(written([]))
    one, other = first[16 : 16 + size], first[16 + size : 16 + 2 * size]
    rest = first[16 + 2 * size :]
    for wrong in (other + one + rest, other + rest, one + rest, one + one + other + rest):
        with pytest.raises(BlockError, match="is not what was written"):
            read(MAGIC + wrong)
    with pytest.raises(BlockError, match=f"goes on after its end at byte {len(first)}"):
        read(first + b"x")


def framed(method: int, stored: bytes, n_payload: int) -> bytes:
    """A file of one block with a right digest, whatever else is wrong."""
    numbers = blocks._NUMBERS.pack(method, len(stored), n_payload)
    return MAGIC + numbers + blocks._chain_digest(b"", numbers, stored) + stored


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "does not begin as a trace does"),
        (b"GGUF" * 10, "does not begin as a trace does"),
        (framed(3, b"ab", 2), "the block at byte 16 has impossible numbers"),
        (framed(0, b"ab", 3), "has impossible numbers"),
        (framed(1, b"ab", 2), "has impossible numbers"),
        (framed(1, zlib.compress(bytes(2**20)), 2**20), "has impossible numbers"),  # 1000 times smaller
        (framed(1, b"ab", 2**32 - 1), "has impossible numbers"),
        (framed(2, b"", 1), "has impossible numbers"),
        (framed(1, b"ab", 3), "cannot be decompressed"),
        (framed(1, zlib.compress(bytes(4000)), 3999), "has another length than it says"),
        (framed(1, zlib.compress(bytes(4000)), 4001 - 2), "has another length than it says"),
        (framed(1, zlib.compress(bytes(4000)), 4001), "has another length than it says"),
        (framed(1, zlib.compress(bytes(4000))[:-1], 4000), "has another length than it says"),
        (framed(1, zlib.compress(bytes(4000)) + b"x", 4000), "has another length than it says"),
    ],
)
def test_impossible_blocks_are_refused(data, reason):
    """Numbers that no writer writes, and bytes that do not decompress to their length."""
    with pytest.raises(BlockError, match=reason):
        read(data)


def test_a_bomb_is_decompressed_no_further_than_it_says():
    """A block that would become 1 GB ends after the bytes that its head states."""
    stored = zlib.compress(bytes(1 << 26))
    n_payload = MAX_RATIO * len(stored)
    assert n_payload < 1 << 26
    with pytest.raises(BlockError, match="another length"):
        read(framed(1, stored, n_payload))


def test_a_writer_keeps_to_the_bounds_of_the_reader():
    """What compresses too well, or has too many items, is stored as it is."""
    for payload, n_items in ((bytes(1 << 20), 1), (b"ab" * 40_000, 1), (b"ab" * 500, 250)):
        data = written([payload], n_items=n_items)
        reader = BlockReader(io.BytesIO(data))
        [(found, most)] = list(reader)
        assert found == payload
        assert n_items <= most


def test_a_payload_beyond_the_largest_is_refused():
    """A writer refuses what a reader would."""
    with pytest.raises(BlockError, match="is too large"):
        BlockWriter(io.BytesIO()).write(bytes(MAX_PAYLOAD_BYTES + 1), 1)
