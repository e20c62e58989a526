"""Iterators over requests that are read as they are needed: the results of the list, in windows."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from selectrie import SearchParams, Template
from selectrie.engine.aio import WindowItems, by_windows
from selectrie.engine.engine import WINDOW
from selectrie.errors import ChoiceError, IncompatibleOptionsError, OptionError, PromptError, TemplateError
from tests.support.deciding import fake

PROMPTS = [f"{number} " for number in range(WINDOW + 3)]
SHEET = Template("<<name>>: <<select 'x' options=['b', 'c']>>")


@pytest.fixture(scope="module")
def llm():
    """An engine on a fake."""
    with closing(fake()) as made:
        yield made


def answers(selections):
    """What does not depend on which requests share their rows."""
    return [(one.text, one.logp, one.value) for one in selections]


def test_an_iterator_decides_as_the_list_does(llm):
    """In order, and no more than a window is read ahead."""
    read = []

    def prompts():
        for one in PROMPTS:
            read.append(one)
            yield one

    found = llm.select_iter(prompts(), choices=[7, 8])
    assert read == []
    first = next(found)
    assert read == PROMPTS[:WINDOW]
    assert answers([first, *found]) == answers(llm.select_many(PROMPTS, choices=[7, 8]))
    assert answers(llm.select_iter([("a", ["b"]), ("c", ["d", "e"])])) == answers(
        llm.select_many([("a", ["b"]), ("c", ["d", "e"])])
    )


@pytest.mark.parametrize(("given", "total"), [(PROMPTS, len(PROMPTS)), (iter(PROMPTS), 0)])
def test_progress_counts_requests_over_all_windows(llm, given, total):
    """The number in all is 0 where it is not known."""
    seen = []
    search = SearchParams(on_progress=lambda done, in_all: seen.append((done, in_all)))
    assert len(list(llm.select_iter(given, ["b", "c"], search=search))) == len(PROMPTS)
    assert seen == [(done, total) for done in range(1, len(PROMPTS) + 1)]


def test_pages_of_rows_that_are_read_as_they_are_needed(llm):
    """They are those of `render_many`."""
    rows = [{"name": str(number)} for number in range(WINDOW + 2)]
    pages = llm.render_iter(SHEET, iter(rows))
    assert [page.text for page in pages] == [page.text for page in llm.render_many(SHEET, rows)]


def test_the_awaitable_iterators_are_the_same(llm):
    """In windows, each in a thread; what a window gave comes before the error of the next one."""

    async def listed(items):
        return [one async for one in items]

    async def before_error(items, found):
        async for one in items:
            found.append(one)

    assert answers(asyncio.run(listed(llm.aselect_iter(iter(PROMPTS), [7, 8])))) == answers(
        llm.select_many(PROMPTS, [7, 8])
    )
    rows = [{"name": str(number)} for number in range(WINDOW + 2)]
    pages = asyncio.run(listed(llm.arender_iter(SHEET, iter(rows))))
    assert [page.text for page in pages] == [page.text for page in llm.render_many(SHEET, rows)]
    found = []
    with pytest.raises(PromptError) as caught:
        asyncio.run(before_error(llm.aselect_iter([*PROMPTS, 3.5], choices=["b", "c"]), found))
    assert (len(found), caught.value.request) == (WINDOW, len(PROMPTS))
    assert llm.aselect_iter.__name__ == "aselect_iter"


def test_an_invalid_row_ends_the_iterator_with_its_index(llm):
    """Rows of earlier windows have their results; the index counts all rows."""
    found = llm.select_iter([*PROMPTS, 3.5], choices=["b", "c"])
    assert len([next(found) for _ in range(WINDOW)]) == WINDOW
    with pytest.raises(PromptError) as caught:
        next(found)
    assert caught.value.request == len(PROMPTS)
    with pytest.raises(TemplateError) as missing:
        list(llm.render_iter(SHEET, [{"name": "a"}] * WINDOW + [{}]))
    assert missing.value.request == WINDOW


def test_what_an_iterator_cannot_take(llm):
    """It is refused before anything is read."""
    with pytest.raises(IncompatibleOptionsError, match="rule='batch' cannot be combined with an iterator"):
        llm.select_iter(PROMPTS, ["b"], rule="batch")
    with pytest.raises(OptionError, match="prompts beside `choices`"):
        llm.select_iter("text", ["b"])
    with pytest.raises(ChoiceError, match="sorted"):
        llm.select_iter(PROMPTS, {"b"})
    with pytest.raises(OptionError, match="mappings from names to values"):
        llm.render_iter(SHEET, {"name": "a"})


def test_what_was_read_is_run_before_an_error_of_reading():
    """The items before it are not lost."""

    def items():
        yield from range(5)
        raise ValueError("torn")

    found = WindowItems(by_windows(items(), 3, lambda window, first: [(first, one) for one in window]))
    assert [next(found) for _ in range(5)] == [(0, 0), (0, 1), (0, 2), (3, 3), (3, 4)]
    with pytest.raises(ValueError, match="torn"):
        next(found)
