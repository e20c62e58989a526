"""Stop strings, hold-back and whole characters, against a twin that looks at all bytes so far."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from selectrie.decoding.sampling.sequence import IncrementalDetokenizer
from selectrie.errors import OptionError, ProtocolError
from tests.support.n_examples import n_examples

whole = [b"a", b"b", b"ab", b"\n", "é".encode(), "€".encode(), "🤗".encode()]
broken = [
    b"\xc3",
    b"\xe2\x82",
    b"\xe2",
    b"\x82",
    b"\xac",
    b"\xf0",
    b"\xf0\x9f",
    b"\x9f\xa4",
    b"\xff",
    b"\x80",
    b"\xed\xa0",
]
parts = st.sampled_from(whole + broken)
streams = st.lists(parts, max_size=12).map(b"".join)
stops = st.lists(st.lists(parts, min_size=1, max_size=3).map(b"".join), max_size=3)
cuts = st.lists(st.integers(0, 40), max_size=6)


def is_beginning(tail: bytes) -> bool:
    """Is this a character that lacks bytes: do some continuation bytes make it one character?"""
    fillings = [tail + filler * n for filler in (b"\x80", b"\xbf") for n in range(1, 4)]
    return any(len(filled.decode("utf-8", "replace")) == 1 for filled in fillings)


def text_of(data: bytes) -> str:
    """Bytes as text, less an incomplete character at the end."""
    for n in range(min(3, len(data)), 0, -1):
        if is_beginning(data[-n:]):
            data = data[:-n]
            break
    return data.decode("utf-8", "replace")


def stopped_at(data: bytes, stop: list[bytes]) -> tuple[bytes, bytes | None]:
    """What stands before the first stop string to be complete (of several the longest), and which it was."""
    for end in range(1, len(data) + 1):
        ends_here = [s for s in stop if data[:end].endswith(s)]
        if ends_here:
            longest = max(ends_here, key=len)
            return data[: end - len(longest)], longest
    return data, None


def shown(data: bytes, stop: list[bytes], *, finished: bool) -> str:
    """All that may have been emitted after these bytes."""
    before, found = stopped_at(data, stop)
    if found is None and not finished:
        held = [n for n in range(1, len(before) + 1) if any(len(s) > n and s.startswith(before[-n:]) for s in stop)]
        before = before[: len(before) - max(held, default=0)]
    return text_of(before)


def pieces_of(data: bytes, at: list[int]) -> list[bytes]:
    places = [0, *sorted(min(place, len(data)) for place in at), len(data)]
    return [data[i:j] for i, j in pairwise(places)]


@given(streams, stops, cuts)
@settings(max_examples=n_examples(300))
@example(b"xabab", [b"abab"], [2, 4])
@example(b"abcd", [b"abcd", b"bc"], [1])
@example(b"a\xe2\x82END", [b"END"], [2, 4])
def test_every_cutting_emits_the_same(data, stop, at):
    """After each piece all text so far is what the bytes so far decide; so are the stop string and the bytes before it."""
    emitter, text, fed = IncrementalDetokenizer(stop), "", b""
    for piece in pieces_of(data, at):
        text, fed = text + emitter.feed(piece), fed + piece
        assert text == shown(fed, stop, finished=False)
        assert (emitter.data, emitter.stopped) == stopped_at(fed, stop)
        if emitter.stopped:
            break
    text += emitter.finish()
    assert text == shown(fed, stop, finished=True)
    assert text.startswith(shown(fed, stop, finished=False))
    assert emitter.finish() == ""
    with pytest.raises(ProtocolError):
        emitter.feed(b"a")


def test_the_twin_tells_characters_apart():
    """The comparison rests on it: what lacks bytes, what is whole, what is broken."""
    assert [is_beginning(tail) for tail in (b"\xc3", b"\xe2\x82", b"\xf0\x9f\xa4", b"\xed", b"\xe0", b"\xf4")] == [
        True
    ] * 6
    assert [is_beginning(tail) for tail in (b"a", b"\xff", b"\x80", b"\xed\xa0", b"\xc0", b"\xe2\x82\xac")] == [
        False
    ] * 6


@pytest.mark.parametrize(
    ("stop", "pieces", "emitted", "rest"),
    [
        ([], [b"a", b"b"], ["a", "b"], ""),
        ([b"\n\n"], [b"a\n", b"b\n", b"c"], ["a", "\nb", "\nc"], ""),
        ([b"\n\n"], [b"a\n"], ["a"], "\n"),
        ([b"END"], [b"aE", b"N", b"D"], ["a", "", ""], ""),
        ([b"END"], [b"aE", b"NENDx"], ["a", "EN"], ""),
        ([b"aab"], [b"aa", b"a", b"b"], ["", "a", ""], ""),
        ([], [b"\xf0\x9f", b"\xa4", b"\x97!"], ["", "", "🤗!"], ""),
        ([], [b"\xf0\x9f", b"a"], ["", "�a"], ""),
        ([], [b"a\xe2\x82"], ["a"], ""),
        ([], [b"a\xf4\x8f", b"\xf4\x90"], ["a", "���"], ""),
        (["é".encode()], [b"a\xc3", b"\xa8"], ["a", "è"], ""),
        ([b"bc", b"abcd"], [b"xabcd"], ["xa"], ""),
        ([b"bc", b"abc"], [b"xabc"], ["x"], ""),
    ],
)
def test_emitted_by_hand(stop, pieces, emitted, rest):
    """Hold-back begins with the first byte of a possible stop string and ends with the byte that rules it out."""
    emitter = IncrementalDetokenizer(stop)
    got = []
    for piece in pieces:
        got.append(emitter.feed(piece))
        if emitter.stopped is not None:
            break
    assert got == emitted
    assert emitter.finish() == rest


def test_a_stop_string_that_is_complete_too_early_is_text():
    """One that later bytes complete counts, wherever it begins."""
    emitter = IncrementalDetokenizer([b"END", b"NDx"])
    assert [emitter.feed(b"aEND", goes_on=True), emitter.feed(b"x")] == ["aE", ""]
    assert (emitter.stopped, emitter.data) == (b"NDx", b"aE")
    emitter = IncrementalDetokenizer([b"END"])
    assert [emitter.feed(b"ENDE", goes_on=True), emitter.feed(b"NDEND")] == ["END", ""]
    assert (emitter.stopped, emitter.data) == (b"END", b"END")


def test_an_empty_stop_string_is_refused():
    """It would end every text before its first byte."""
    with pytest.raises(OptionError, match="stop"):
        IncrementalDetokenizer([b"a", b""])


def test_long_stop_strings_take_no_memory_until_they_are_met():
    """64 of 100 kB each, and one of 400 kB that is nearly met, are followed in less than their own size."""
    stops = [bytes([65 + n % 26, n]) * 50_000 for n in range(64)] + [b"z" * 400_000]
    emitter = IncrementalDetokenizer(stops)
    tracemalloc.start()
    for _ in range(1000):
        emitter.feed(b" some text" + b"z" * 10)
        emitter.feed(b"A")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < sum(map(len, stops)) / 10
    assert emitter.stopped is None


@given(st.text("ab", max_size=60), st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=3))
def test_strings_that_begin_in_themselves_are_found(data, stop):
    """Two letters make borders within borders; a byte at a time, with the first byte that completes one."""
    stops = [one.encode() for one in stop]
    emitter = IncrementalDetokenizer(stops)
    for at in range(len(data)):
        if emitter.stopped is None:
            emitter.feed(data[at : at + 1].encode())
    before, found = stopped_at(data.encode(), stops)
    assert (emitter.data, emitter.stopped) == (before, found)
