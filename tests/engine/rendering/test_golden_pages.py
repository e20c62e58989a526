"""Whole pages on the model that comes with selectrie: their text, and what was decided on them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

import pytest
from rich.cells import cell_len

import selectrie
from selectrie import Page
from selectrie.cli.report import terminal
from selectrie.cli.report.results import page_report
from selectrie.template.syntax.ast import Block, Comment, Each, GenEach, If, Include, Joint, Role, Segment, Set, Slot
from selectrie.template.syntax.tags import TAGS
from tests.support.golden_pages import FOLDER, alike, described, names, rendered, template, values


@pytest.fixture(scope="module")
def page() -> Iterator[Callable[[str], Page]]:
    """The page of a name, on the model that comes with selectrie, rendered once."""
    with selectrie.load(n_threads=1) as engine:
        yield cache(partial(rendered, engine))


@pytest.mark.parametrize("name", names())
def test_a_page_is_as_it_was(page, name):
    """Text, slots and values of a page are those of its file."""
    got = described(page(name))
    golden = (FOLDER / f"{name}.golden").read_text(encoding="utf-8")
    assert alike(golden, got), got


@pytest.mark.parametrize("name", names())
def test_a_page_can_be_explained_and_sent(page, name):
    """Its report has a heading for each decision and fits 80 columns; it is JSON without NaN; its events are its text."""
    file = io.StringIO()
    terminal.show(page_report(page(name)), file, width=80)
    lines = file.getvalue().splitlines()
    assert max(map(cell_len, lines)) <= 80
    headings = [slot.path for slot in page(name).slots if slot.kind != "joint"]
    assert [path for path in headings if not any(line.startswith(f"{path} (") for line in lines)] == []
    sent = json.loads(page(name).to_json())
    assert [slot["name"] for slot in sent["slots"]] == [slot.name for slot in page(name).slots]
    assert "".join(event.text for event in page(name).events()) == page(name).text


@pytest.mark.parametrize("name", names())
def test_values_are_checked_without_a_model(name):
    """Every page's template and values pass the check."""
    template(name).check(values(name))


def test_there_are_pages():
    """The list of pages is not empty, and every file with values belongs to one."""
    assert len(names()) >= 9
    assert {path.stem for path in FOLDER.glob("*.json")} <= set(names())


PAGE = """\
Armor: plate
====================
armor <- 'plate' (select, p 0.90, ended by text)
====================
armor = 'plate'
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Armor: plate", "Armor:  plate"),
        ("'plate' (", "'chain' ("),
        ("p 0.90", "p 0.86"),
        ("by text", "by eog"),
        ("= 'plate'", "= 1"),
        ("armor = 'plate'\n", "armor = 'plate'\nmore = 1\n"),
    ],
)
def test_another_page_is_found_out(old, new):
    """The comparison fails for another text, winner, probability, terminator or value."""
    assert alike(PAGE, PAGE)
    assert alike(PAGE, PAGE.replace("p 0.90", "p 0.91"))
    assert not alike(PAGE, PAGE.replace(old, new, 1))


def tags(body: Sequence[Segment]) -> Iterator[str]:
    """Names of the tags of a template, those inside of others too."""
    kinds = {Each: "each", GenEach: "geneach", Block: "block", Joint: "joint", Set: "set", Include: "include"}
    for segment in body:
        if isinstance(segment, Slot):
            yield segment.kind
            continue
        if isinstance(segment, If):
            yield "if"
            for inner in (*(body for _, body in segment.branches), segment.otherwise):
                yield from tags(inner)
        elif isinstance(segment, Role):
            yield segment.role
        elif type(segment) in kinds:
            yield kinds[type(segment)]
        if not isinstance(segment, Comment):
            yield from tags(getattr(segment, "body", ()))


def test_pages_have_every_tag():
    """There is a page with each tag of the language."""
    written = {tag for name in names() for tag in tags(template(name).document.body)}
    sources = "".join(template(name).source for name in names())
    written |= {tag for tag in ("raw", "unless", "role") if f"<<#{tag}" in sources or f"<<~#{tag}" in sources}
    assert set(TAGS) - written == set()
