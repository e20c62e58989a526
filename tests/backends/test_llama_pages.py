"""Equal bits in any company on real weights, by the slow twin: paths in whole pages of cells.

The twin only calls llama.cpp, so this says what its kernels do on this processor, not what selectrie does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import llama_cpp
import pytest

from selectrie.backends.llama_cpp.library import log, processor, repacks_safely
from tests.support.paged_twin import Layout, PagedTwin
from tests.support.real_data import REAL_FILES, real_model

TEXT = ' home in his trunk. "All the girls who have stands are going to wear fancy costumes," she argued,'
CHOICES = (" and some of the boys.", " and some of the girls too", " and then she went")
NEIGHBOUR = " It most often came to her on Sunday mornings, the one day in the week when she lay late abed."
LANES = 16 if "AVX512" in processor() else 8
"""Cells that a kernel sums together: a page of 8 is as good as one of 16 where this is 8."""


class Loaded:
    """A model without a context, and its tokens of the texts above."""

    def __init__(self, file: str) -> None:
        path = real_model(file)
        log.install()
        with log.our_calls():
            self.model = llama_cpp.llama_model_load_from_file(
                str(path).encode(), llama_cpp.llama_model_default_params()
            )
        self.vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.prompt, self.neighbour = (self.tokens(text, begin=True) for text in (TEXT, NEIGHBOUR))
        self.choices = [self.tokens(text) for text in CHOICES]

    def tokens(self, text: str, *, begin: bool = False) -> list[int]:
        buffer = (llama_cpp.llama_token * 64)()
        raw = text.encode()
        return list(buffer[: llama_cpp.llama_tokenize(self.vocabulary, raw, len(raw), buffer, 64, begin, False)])

    def twin(self, **options: Any) -> PagedTwin:
        with log.our_calls():
            return PagedTwin(self.model, **options)


@pytest.fixture(scope="module", params=REAL_FILES)
def loaded(request: pytest.FixtureRequest) -> Iterator[Loaded]:
    """One real model after the other."""
    one = Loaded(request.param)
    yield one
    llama_cpp.llama_model_free(one.model)


def bits(scored: Sequence[tuple[bytes, Any]]) -> list[tuple[bytes, bytes]]:
    """The hash of each choice's rows, and the bits of its log-probabilities."""
    return [(rows, logp.tobytes()) for rows, logp in scored]


def backwards(twin: PagedTwin, one: Loaded) -> list[tuple[bytes, bytes]]:
    """In reversed order, what choices share evaluated once, and the prompt cut in the middle of a page and of a call."""
    return bits(twin.score(one.prompt, one.choices[::-1], cut=11))[::-1]


def a_part(twin: PagedTwin, one: Loaded) -> list[tuple[bytes, bytes]]:
    """The last choice without the others, behind what another request left of the prompt."""
    kept = twin.path([])
    twin.extend([(kept, [*one.prompt[:13], *one.neighbour[:3]])], wanted=False)
    scored = bits(twin.score(one.prompt, one.choices[2:], together=True))
    twin.drop(kept)
    return scored


def among_others(twin: PagedTwin, one: Loaded) -> list[tuple[bytes, bytes]]:
    """Among other paths that grow in the same calls, and after some of them have left holes."""
    others = [twin.path([]) for _ in range(3)]
    twin.extend([(other, one.neighbour[i:18]) for i, other in enumerate(others)], wanted=False)
    twin.drop(others.pop(1))
    base = twin.path(one.prompt[:-9])
    twin.extend([(others[1], one.neighbour[:5]), (base, one.prompt[len(base.tokens) : -9])], wanted=False)
    scored = bits(twin.score(one.prompt, one.choices, together=True))
    for path in (*others, base):
        twin.drop(path)
    return scored


Company = Callable[[PagedTwin, Loaded], list[tuple[bytes, bytes]]]
COMPANIES: tuple[Company, ...] = (backwards, a_part, among_others)


@pytest.mark.short("gemma*")
def test_a_row_has_the_same_bits_in_any_company(loaded: Loaded) -> None:
    """Neither the set, its order, the cuts, other paths, earlier work nor eviction change a bit of a row."""
    twin = loaded.twin()
    alone = bits(twin.score(loaded.prompt, loaded.choices, together=True))
    scored = {company.__name__: company(twin, loaded) for company in COMPANIES}
    assert [name for name, some in scored.items() if some != alone[-len(some) :]] == []
    twin.close()


@pytest.mark.parametrize("loaded", REAL_FILES[:1], indirect=True)
def test_keys_and_values_in_half_precision_keep_the_law(loaded: Loaded) -> None:
    """Bits are equal among others where keys and values are f16, too."""
    twin = loaded.twin(f16=True)
    alone = bits(twin.score(loaded.prompt, loaded.choices, together=True))
    assert among_others(twin, loaded) == alone
    twin.close()


FAULTS = {
    "half a page": Layout(page=LANES // 2),
    "calls of 7": Layout(rows=7, outputs=7),
    "calls of 10": Layout(rows=10, outputs=10),
    "calls of 13": Layout(rows=13, outputs=13),
    "pages out of order": Layout(ascending=False),
    "another companion": Layout(copies=False),
    "one output": Layout(outputs=1),
}


def where_seen(layout: Layout, twin: PagedTwin, one: Loaded) -> list[tuple[bytes, bytes]]:
    """A request in which the fault of this layout was seen to change bits; for most of them any will do."""
    prompt, choices = one.prompt, one.choices
    if layout.outputs == 1:
        prompt, choices = prompt[:7], [prompt[7:8]]
    elif not layout.ascending:
        prompt, choices = [*prompt, *one.neighbour], [choices[0][:1]]
    return bits(twin.score(prompt, choices, cut=16 if layout.rows == 8 else layout.rows, together=True))


@pytest.fixture(scope="module")
def by_the_law(loaded: Loaded) -> list[list[tuple[bytes, bytes]]]:
    """The requests in which faults were seen, by the lawful layout."""
    lawful = loaded.twin()
    requests = (Layout(), FAULTS["pages out of order"], FAULTS["one output"])
    scored = [where_seen(request, lawful, loaded) for request in requests]
    lawful.close()
    return scored


@pytest.mark.short("*half a page*", "*out of order*")
@pytest.mark.parametrize("loaded", REAL_FILES[:1], indirect=True)
@pytest.mark.parametrize("fault", FAULTS)
def test_each_part_of_the_law_is_needed(
    loaded: Loaded, by_the_law: list[list[tuple[bytes, bytes]]], fault: str
) -> None:
    """A layout that breaks a part of the law changes bits, so the comparison above can fail."""
    twin = loaded.twin(layout=FAULTS[fault])
    is_unseen = where_seen(FAULTS[fault], twin, loaded) in by_the_law
    twin.close()
    # Other kernels than the repacked ones of AVX2 need other rows, or more of them, to show these.
    rare = (
        set() if LANES == 8 and repacks_safely() else {"calls of 10", "calls of 13", "one output", "pages out of order"}
    )
    assert not is_unseen or fault in rare
