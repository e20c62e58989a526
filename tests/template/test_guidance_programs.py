"""Programs of guidance 0.0.x run as they are: the kinds that its first page and tutorials show, in words of our own.

Beside each program `name.hbs` stand its values and what they become (`name.json`) and the page it made there (`name.page`), in which
⟦name⟧, ⟦list.0.field⟧ stands for what the model decides. What a program decides is the model's; names, kinds of values, lists and
the text between are the program's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest

import selectrie
from selectrie import Template
from selectrie.errors import TemplateError
from selectrie.results import SlotEvent, TextEvent
from selectrie.template.syntax.parser import parse
from tests.support.written_templates import written

FOLDER = Path(__file__).resolve().parent.parent / "data" / "templates"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.json"))
HOLE = re.compile("⟦(.*?)⟧")


def facts(name: str) -> dict:
    """What is known of a program beforehand."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def program(name: str) -> Template:
    """The program of a file; its name says which language it is."""
    return Template.from_file(FOLDER / f"{name}.hbs")


@pytest.fixture(scope="module")
def llm(embedded) -> Iterator[selectrie.Engine]:
    """The embedded model, loaded once."""
    with selectrie.load(embedded, n_threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def pages(llm) -> dict[str, selectrie.Page]:
    """Every program's page."""
    return {name: llm.render(program(name), facts(name)["given"]) for name in PROGRAMS}


def is_of(kind: object, value: object) -> bool:
    """Is a value of the kind that a program's facts name? A list of texts: one of them; "*": a list of such items."""
    if isinstance(kind, list):
        return value in kind
    if isinstance(kind, str):
        return {
            "text": isinstance(value, str),
            "digits": isinstance(value, str) and value.isdecimal(),
            "number": isinstance(value, float),
        }[kind]
    if "*" not in kind:
        return (
            isinstance(value, dict) and list(value) == list(kind) and all(is_of(kind[key], value[key]) for key in kind)
        )
    least, most = kind.get("n", kind.get("least")), kind.get("n", kind.get("most"))
    return isinstance(value, list) and least <= len(value) <= most and all(is_of(kind["*"], item) for item in value)


def filled(text: str, page: selectrie.Page) -> str:
    """A page's pattern with what was decided in the holes; a list is written as the program `list` joins it."""

    def value(hole: re.Match[str]) -> str:
        steps = [int(step) if step.isdecimal() else step for step in hole[1].split(".")]
        found = reduce(lambda held, step: held[step], steps[1:], page[steps[0]])
        return found if isinstance(found, str) else ",".join(f" {one}" for one in found)

    return HOLE.sub(value, text)


def pattern(name: str) -> str:
    """The page that a program makes."""
    return (FOLDER / f"{name}.page").read_text(encoding="utf-8")


@pytest.mark.short("!character")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_makes_the_page_it_made_there(pages, name):
    """Every piece of text in its place, and between them what was decided."""
    assert pages[name].text == filled(pattern(name), pages[name])


@pytest.mark.parametrize("name", PROGRAMS)
def test_its_values_have_their_names_and_kinds(pages, name):
    """Each name that the program gives a value to, texts, lists of exactly so many, lists of fields, and nothing else."""
    known, page = facts(name), pages[name]
    wrong = [key for key, kind in known["kinds"].items() if not is_of(kind, page[key])]
    assert (wrong, set(page.values)) == ([], set(known["kinds"]))
    for key, value in known.get("exactly", {}).items():
        assert page[key] == value


@pytest.mark.parametrize("name", PROGRAMS)
def test_its_pieces_come_in_order(pages, name):
    """Events in page order make up the page; hidden ones (of a list, whether it goes on) are decided and stand nowhere."""
    known, page = facts(name), pages[name]
    events = page.events()
    on_page = [e.text for e in events if isinstance(e, TextEvent) or not e.hidden]
    assert "".join(on_page) == page.text
    hidden = {e.name for e in events if isinstance(e, SlotEvent) and e.hidden}
    assert hidden == set(known.get("hidden", ()))


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_checked_without_a_model_and_reads_as_it_is_written(name):
    """A missing value is named before anything is evaluated; the text written from its segments reads as the same program."""
    read = program(name)
    given = facts(name)["given"]
    read.check(given)
    assert set(read.needs) <= set(given)
    for missing in read.needs:
        with pytest.raises(TemplateError, match=rf"\b{missing}\b"):
            read.check({key: value for key, value in given.items() if key != missing})
    again = parse(written(read.document), name=read.document.name, dialect="handlebars")
    assert (
        again == parse(read.source, name=read.document.name, dialect="handlebars") or again.body == read.document.body
    )


def test_a_given_name_may_be_decided_anew(llm):
    """As there: before the slot the name is the given value, behind it what was decided. Our own language asks for two names."""
    text = "Page {{page}}, next page {{#select 'page'}}8{{or}}9{{/select}}: {{page}}."
    page = llm.render(Template(text, dialect="handlebars"), page=7)
    assert page.text == f"Page 7, next page {page['page']}: {page['page']}."
    with pytest.raises(TemplateError, match="no value is called 'page'"):
        Template(text, dialect="handlebars").check({})
    with pytest.raises(TemplateError, match="'page' is used here, but only decided later, by a select"):
        Template("Page <<page>>, next page <<select 'page' options=['8', '9']>>")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "{{#geneach 'turns' stop=False}}{{set 'said' (await 'said')}}{{gen 'this'}}{{/geneach}}",
            "await has no meaning",
        ),
        ("{{await 'said'}}", "rendered in one pass"),
        ("{{parse_best pros options}}", "templates cannot call functions"),
        ("{{#each (range 3)}}{{this}}{{/each}}", "templates cannot call functions"),
        ("{{gen 'x' parse=True}}", "no argument 'parse'"),
        ("{{gen 'x' save_prompt='p'}}", "no argument 'save_prompt'"),
        ("{{gen 'x' list_append=True}}", "geneach"),
        ("{{gen 'x' stop_regex='a+'}}", "regex="),
        ("{{gen 'x' token_healing=False}}", "always healed"),
        ("{{#geneach 'x' single_call=True}}{{gen 'this'}}{{/geneach}}", "one by one"),
        ("{{#geneach 'x' num_iterations=2}}{{gen 'this'}}{{break}}{{/geneach}}", "break has no meaning"),
        ("{{shell 'ls'}}", "templates cannot call functions"),
        ("{{#select 'x'}}a{{/select}} {{#if x}}", "if"),
    ],
    ids=lambda value: value[:30],
)
def test_what_has_no_meaning_here_is_told_with_its_place(text, told):
    """One error before any model call, with the line and a caret below what is meant."""
    with pytest.raises(TemplateError) as caught:
        Template(text, name="old.hbs", dialect="handlebars")
    message = str(caught.value)
    assert message.startswith("old.hbs:1:")
    assert told in caught.value.reason
    assert message.rstrip().endswith("^")


def test_the_comparison_can_fail(pages):
    """Another text between slots, a value of another kind, and a list of another length are noticed."""
    page = pages["character"]
    assert page.text != filled(pattern("character").replace("armor", "armour", 1), page)
    assert not is_of({"*": "text", "n": 4}, page["items"])
    assert not is_of({"*": {"name": "text"}, "n": 3}, page["items"])
    assert not is_of(["mail"], page["armor"])
    assert not is_of("digits", page["name"] + "x")
