"""`repr`, notebook, terminal and page write the numbers of a result alike, with the digits that hold."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import unescape
from typing import Any, Literal

import pytest

from selectrie import Choice, Engine, Grammar, Predicate, Score, load
from selectrie.cli.report import results as reports
from selectrie.cli.report.terminal import show
from selectrie.decide.drawn_answers import draw_answers
from selectrie.results import Generation, JointSelection, Page, SampledChoice
from selectrie.results.drawing.beams import draw_beam
from selectrie.results.drawing.choices import draw_selection
from tests.support.real_data import real_model

NOT_OF_THE_MODEL = re.compile(
    r"[\d.]+ (?:times|s)\b|(?:within|closer than|temperature) [\d.e-]+|\b\d\.\d (?=['\"·])|\b\d\.\d\d(?=, ['\"])|<\w+"
)
"""Work, seconds, tolerances, temperatures, places of completions, scores of scales and names of control tokens."""
NUMBER = re.compile(r"(?:[≈<>] )?\d+(?:\.\d+)? %|-?\d+\.\d+")

TEMPLATE = """\
The sky is<<#joint>> <<#select 'colour'>>blue<<or>>red<</select>> and <<#select 'form'>>wide<<or>>low<</select>><</joint>>.
It is<<#select 'time' temperature=1>> day<<or>> night<</select>> and<<gen 'rest' max_tokens=3>>"""


@dataclass
class Ticket:
    """A type of four values."""

    kind: Literal["refund", "order"]
    urgent: bool


def in_html(result: Any) -> str:
    """What a notebook shows of a result, tooltips too, without markup."""
    html = re.sub(r'<span title="([^"]*)"', r"\1<span", result._repr_html_())
    return unescape(re.sub(r"<style.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL))


def in_terminal(report: Any) -> str:
    """A report as a terminal that is wide enough shows it."""
    file = io.StringIO()
    show(report, file, width=500)
    return file.getvalue()


def in_json(drawing: Any) -> str:
    """All texts of a drawing that the page shows; the numbers that it has beside them are not shown."""
    found: list[str] = []
    pending = [drawing]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, dict):
            pending += [value for name, value in one.items() if name not in ("attributes", "value", "work")]
        elif isinstance(one, list):
            pending += one
    return "\n".join(found)


def numbers(text: str) -> set[str]:
    """The probabilities and the log-probabilities in a text, as they are written."""
    return set(NUMBER.findall(NOT_OF_THE_MODEL.sub("", text)))


def results(llm: Engine) -> Iterator[tuple[Any, list[str]]]:
    """Each result of an engine, and what notebook, terminal and page show of it."""
    selection = llm.select("The capital of Australia is", [" Sydney", " Canberra", " Melbourne"])
    yield (
        selection,
        [in_terminal(reports.selection_report(selection, explain=True)), in_json(draw_selection(selection))],
    )
    yield selection.trie(), []
    questions = {
        "topic": Choice("What is it about?", ["refund", "order"]),
        "angry": Predicate("Is the customer angry?"),
        "urgency": Score("How urgent is it?", ["can wait", "this week", "today"]),
    }
    decision = llm.decide("Where is my parcel?", questions)
    yield decision, [in_terminal(reports.decision_report(decision)), in_json(draw_answers(decision.items()).to_dict())]
    for name in decision:
        yield decision[name], [in_terminal(reports.decision_report(decision))]
    generation = llm.generate("The sky is", max_tokens=4, n=2, seed=1)
    yield generation, []
    yield generation[0], []
    beam = llm.beam_search("The sky is", Grammar.from_regex(" (blue|green|dark blue)"), n=2)
    yield beam, [in_terminal(reports.beam_report(beam, explain=True)), in_json(draw_beam(beam))]
    yield llm.sample("The sky is", Grammar.from_regex(" (blue|green)"), n=2, seed=1), []
    extraction = llm.extract("Where is my parcel?", Ticket)
    yield extraction, [in_terminal(reports.extraction_report(extraction))]
    yield llm.prompt_logprobs(["The sky is blue"])[0], []
    score = llm.score("The sky is", " blue")
    yield score, [in_terminal(reports.text_score_report(score, per_token=True))]
    page = llm.render(TEMPLATE)
    yield page, [in_terminal(reports.page_report(page, top=9))]
    for slot in page.slots:
        yield slot.record, [in_terminal(reports.page_report(page, top=9))]


def check(llm: Engine, has_digits: Callable[[str], bool]) -> None:
    """Every number has the digits, and each of a `repr` is written alike wherever else the result is shown."""
    kinds = set()
    for result, others in results(llm):
        shown = [repr(result), *([in_html(result)] if hasattr(result, "_repr_html_") else []), *others]
        read = [numbers(text) for text in shown]
        assert len(shown) > 1
        assert read[0] or isinstance(result, Page)
        for other in read[1:]:
            assert read[0] <= other, (type(result).__name__, sorted(read[0] - other), shown)
        assert [one for some in read for one in some if not has_digits(one)] == [], shown
        kinds.add(type(result))
    assert {Generation, JointSelection, SampledChoice} <= kinds
    assert len(kinds) == 16


def test_numbers_of_the_embedded_model(embedded):
    """Its f16 weights leave whole per cent, or tenths of it, and two decimals of a log-probability."""
    with load(embedded, n_threads=1) as llm:
        assert 0.0005 < llm.tolerance <= 0.05
        check(llm, lambda one: "≈" not in one and bool(re.search(r"%$|\.\d\d$", one)))


@pytest.mark.long
def test_numbers_of_a_quantised_model():
    """Its 4-bit weights leave one digit of a probability, and one decimal of a log-probability."""
    with load(real_model("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"), n_threads=1) as llm:
        assert llm.tolerance > 0.05
        check(llm, lambda one: bool(re.search(r"^[≈<>] .* %$|^\d+ %$|^-?\d+\.\d$", one)))
