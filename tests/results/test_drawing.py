"""What drawings are made of: numbers in words, visible texts, shapes, their colours, and the trie's rows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any
from xml.etree.ElementTree import fromstring

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie import Engine, Grammar
from selectrie.cli.report.summaries import selection_facts
from selectrie.core.notation import (
    cells_of,
    cut,
    nats,
    percent,
    percent_at_least,
    percent_between,
    ratio_words,
    show_bytes,
    show_text,
    write_logp,
    written_tolerance,
)
from selectrie.core.token_trie import TokenTrie
from selectrie.results import TokenScore
from selectrie.results.drawing.bars import Bar, draw_bars, draw_texts
from selectrie.results.drawing.beams import draw_beam
from selectrie.results.drawing.choices import draw_choices, draw_selection, draw_selection_trie
from selectrie.results.drawing.sentences import notebook_lines, selection_sentences
from selectrie.results.drawing.shapes import Drawing, Item, Shape, hatch, style, text, to_html, to_svg
from selectrie.results.drawing.tokens import TokenText, draw_tokens
from selectrie.results.drawing.trie import End, draw_trie
from selectrie.results.trie_view import view_of
from selectrie.testing import HashModel
from tests.support.answers import SIGNATURE, answer, armour, unlikely

TOLERANCES = st.one_of(st.sampled_from([0.0, 0.005, 0.05, 0.3]), st.floats(0, 2))


@given(p=st.floats(0, 1), tolerance=TOLERANCES)
def test_percentages_are_near_and_never_round_to_certainty(p: float, tolerance: float):
    """Within half a digit of the number; 0 % and 100 % are exact, and only what is nearer to them than 0.1 % is a bound."""
    words = percent(p, tolerance)
    value = float(words.strip("<>≈% ")) / 100
    if words in ("0 %", "100 %"):
        assert (p, tolerance) == (value, 0.0)
    elif words[0] in "<>":
        assert words in ("< 0.1 %", "> 99.9 %")
        assert (p < 0.001) if words[0] == "<" else (p > 0.999)
    elif tolerance <= 0.05:
        assert abs(p - value) <= (0.0005 if "." in words else 0.005) + 1e-9
    else:
        assert words.startswith("≈ ")
        rest = min(value, 1 - value)
        digit = 10 ** math.floor(math.log10(rest) + 1e-9)
        assert rest / digit == pytest.approx(round(rest / digit))
        assert abs(p - value) <= digit / 2 + 1e-9


@given(p=st.floats(0, 1), q=st.floats(0, 1), tolerance=TOLERANCES)
def test_a_part_never_reads_larger_than_its_whole(p: float, q: float, tolerance: float):
    """At one tolerance, the numbers that are read are in the order of the probabilities."""
    part, whole = sorted((p, q))
    read = [
        (float(one.strip("<>≈% ")), one[0] == ">", one[0] != "<")
        for one in (percent(part, tolerance), percent(whole, tolerance))
    ]
    assert read[0][0] <= read[1][0]
    assert read[0] <= read[1]


def test_probabilities_of_a_selection_are_written_alike():
    """With a tolerance of 0.3 nats, sentences, strip, bars and tree have one digit of each probability."""
    chosen = answer((" New Zealand", 0.0021), (" Chicago", 0.0992))
    found = replace(chosen, signature=replace(chosen.signature, tolerance=0.3))
    said, words = selection_sentences(found), json.dumps(draw_selection(found), ensure_ascii=False)
    assert said["share_of_all"] == "≈ 10 %"
    assert said["share_of_set"] == "≈ 98 %"
    assert said["coverage"] == "≈ 10 % of the model's belief is in the set"
    assert set(re.findall(r"[^\s\"]* ?[\d.]+ %", words)) == {f"≈ {one} %" for one in ("0.2", "2", "10", "90", "98")}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (percent(0.12, 0.0), "12 %"),
        (percent(0.0004, 0.0), "< 0.1 %"),
        (percent(0.9996, 0.0), "> 99.9 %"),
        (percent(0.1951, 0.05), "20 %"),
        (percent(0.034, 0.0), "3.4 %"),
        (percent(0.09951, 0.0), "10 %"),
        (percent(0.9904, 0.0), "99 %"),
        (percent(0.9906, 0.0), "99.1 %"),
        (percent(0.0, 0.005), "< 0.1 %"),
        (percent(0.345, 0.3), "≈ 30 %"),
        (percent(0.0992, 0.3), "≈ 10 %"),
        (percent(0.034, 0.3), "≈ 3 %"),
        (percent(0.004, 0.3), "≈ 0.4 %"),
        (percent(0.966, 0.3), "≈ 97 %"),
        (percent_between(0.12, 0.26, 0.3), "≈ 10 % to 30 %"),
        (percent_between(0.0001, 0.26, 0.3), "< 0.1 % to ≈ 30 %"),
        (percent_between(0.12, 0.15, 0.0), "12 % to 15 %"),
        (percent_between(0.121, 0.122, 0.0), "12 %"),
        (percent_between(0.0, 0.15, 0.0), "at most 15 %"),
        (percent_between(0.12, 1.0, 0.0), "at least 12 %"),
        (percent_between(0.0, 1.0, 0.0), "not known"),
        (percent_between(0.36, 1.0, 0.3), "at least ≈ 30 %"),
        (percent_between(0.845, 1.0, 0.0), "at least 84 %"),
        (percent_between(0.0, 0.842, 0.0), "at most 85 %"),
        (percent_between(0.36, 0.84, 0.3), "≈ 30 % to 90 %"),
        (percent_between(math.nan, math.nan, 0.3), "not known"),
        (percent(math.nan, 0.3), "not known"),
        (ratio_words(27.3), "27 times as likely as"),
        (ratio_words(27.9), "27 times as likely as"),
        (ratio_words(638, 0.012), "630 times as likely as"),
        (ratio_words(2.7), "2.7 times as likely as"),
        (ratio_words(2.7, 0.3), "2 times as likely as"),
        (ratio_words(1.62), "1.6 times as likely as"),
        (ratio_words(1.42, 0.3), "about 1.4 times as likely as"),
        (ratio_words(1.3, 0.2), "about 1.3 times as likely as"),
        (ratio_words(1.1), "1.1 times as likely as"),
        (ratio_words(1.02), "barely more likely than"),
        (ratio_words(1.02, is_least=True), "more likely than"),
        (ratio_words(1.3, is_least=True), "at least 1.3 times as likely as"),
        (ratio_words(60, 2.2), "about 60 times as likely as"),
        (ratio_words(1e9), "over 10 000 times as likely as"),
        (ratio_words(12_000, 0.3), "10 000 times as likely as"),
        (nats(6.4523), "6.452 nats"),
        (nats(6.4523, 0.012), "6.45 nats"),
        (nats(2.53, 0.3), "2.5 nats"),
        (nats(2.53, 0.8), "2.5 nats"),
        (nats(math.inf), "inf nats"),
        (nats(0.66, 0.3, is_least=True), "at least 0.6 nats"),
        (nats(math.inf, is_least=True), "at least inf nats"),
        (write_logp(-1.23456, 0.0), "-1.235"),
        (write_logp(-1.23456, 0.0005), "-1.235"),
        (write_logp(-1.23456, 0.00051), "-1.23"),
        (write_logp(-1.23456, 0.05), "-1.23"),
        (write_logp(-1.23456, 0.051), "-1.2"),
        (write_logp(-123.456, 2.0), "-123.5"),
        (write_logp(-1e-9, 0.01), "0.00"),
        (write_logp(-4e-4, 0.3), "0.0"),
        (write_logp(math.nan, 0.0), "not known"),
        (write_logp(-math.inf, 0.0), "-inf"),
        (write_logp(-1.5, 0.0, -1.25), "-1.500 to -1.250"),
        (write_logp(-1.5, 0.3, -1.46), "-1.5"),
        (write_logp(-1.52, 0.3, -1.24), "-1.6 to -1.2"),
        (write_logp(-math.inf, 0.0, -1.25), "≤ -1.250"),
    ],
)
def test_numbers_in_words(words: str, expected: str):
    """Only digits that the tolerance or the error leaves."""
    assert words == expected


@given(p=st.floats(0.001, 0.999), tolerance=TOLERANCES)
def test_a_bound_is_never_overstated(p: float, tolerance: float):
    """A lower bound reads at most the number and an upper one at least, by less than a digit, never 0 or 100."""
    least, most = percent_between(p, 1.0, tolerance), percent_between(0.0, p, tolerance)
    low, high = (float(re.sub(r"[^\d.]", "", words)) / 100 for words in (least, most))
    digit = 10 ** math.floor(math.log10(min(p, 1 - p)))
    assert least.startswith("at least ")
    assert most.startswith("at most ")
    assert 0 < low <= p + 1e-9
    assert p - 1e-9 <= high < 1
    assert high - low <= max(digit, 0.001) + 0.01 * (tolerance <= 0.05) + 1e-9


@pytest.mark.parametrize("tolerance", [None, 0.0, 0.3])
def test_a_model_is_never_certain(tolerance: float | None):
    """A probability that rounds to 1 does not read 100 %, also where the tolerance is 0 or not known."""
    assert percent(1.0, written_tolerance(replace(SIGNATURE, tolerance=tolerance))) == "> 99.9 %"
    tokens = draw_tokens([TokenText([TokenScore(1, b"a", 0.0)])], tolerance=written_tolerance(SIGNATURE))
    assert tokens.outline[0].children[0].numbers[0] == ("probability", 1.0, "> 99.9 %")


@given(ratio=st.floats(1, 1e5), error=st.sampled_from([0.0, 0.012, 0.2, 2.2]))
def test_a_ratio_is_never_overstated(ratio: float, error: float):
    """The number is at most the ratio, by less than half of it, and below 1.1 there is none."""
    words = ratio_words(ratio, error)
    read = re.sub(r"[^\d.]", "", words)
    assert (not read) == (ratio < 1.1)
    if read and "over" not in words:
        assert float(read) <= ratio * (1 + 1e-8) < 2 * float(read)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (show_text(" New York"), "␣New York"),
        (show_text("a  b\n\tc "), "a␣␣b⏎⇥c␣"),
        (show_text("\u202eabc\x1b"), "‹U+202E›abc‹U+001B›"),
        (show_text("שלום é 👍🏽"), "שלום é 👍🏽"),
        (show_bytes(b"\xe2\x96"), "‹e2 96›"),
        (show_bytes(b" a\xffb"), "␣a‹ff›b"),
        (show_bytes("é".encode()), "é"),
        (cut("abcdef", 6), "abcdef"),
        (cut("abcdef", 4), "abc…"),
        (cut("日本語", 5), "日…"),
    ],
)
def test_nothing_is_invisible(words: str, expected: str):
    """Spaces at the ends, line ends, tabs, direction marks and bytes of no character are shown."""
    assert words == expected


@given(words=st.text(max_size=30), cells=st.integers(1, 30))
def test_a_cut_text_fits(words: str, cells: int):
    """It is a beginning of the text, and no wider than asked."""
    short = cut(words, cells)
    assert short == words or (words.startswith(short[:-1].rstrip("\u200c\u200d")) and short.endswith("…"))
    assert cells_of(short) <= cells or cells_of(words) <= cells
    assert cut(words, cells_of(words)) == words


@given(x=st.floats(0, 100), y=st.floats(0, 100), width=st.floats(0.5, 300), height=st.floats(2, 70))
def test_hatching_stays_in_its_box(x: float, y: float, width: float, height: float):
    """Every end of every line lies in the rectangle, up to rounding."""
    for a, b in re.findall(r"[ML]([\d.-]+) ([\d.-]+)", hatch(x, y, width, height).attributes["d"]):
        assert x - 0.01 <= float(a) <= x + width + 0.01
        assert y - 0.01 <= float(b) <= y + height + 0.01


def test_a_drawing_is_xml_and_json():
    """Texts are escaped; the JSON has the same elements; the list beside it has all that is drawn."""
    shapes = (text(1, 2, "<b>&", "data", title='"x"'), Shape("g", {"data-node": "1"}, "", (text(0, 0, "é"),)))
    drawing = Drawing(10.5, 20, "A title", shapes, (Item("‹a›", (("p", 0.5, "50 %"),), ("winner",), 3, (Item("b"),)),))
    root = fromstring(to_svg(drawing))  # noqa: S314 - our own
    assert (root.get("class"), root.get("aria-hidden"), root.get("viewBox")) == ("sel", "true", "0 0 10.5 20")
    assert [*root][1].text == "<b>&"
    data = json.loads(json.dumps(drawing.to_dict()))
    assert elements(data["shapes"]) == [(one.tag.rpartition("}")[2], (one.text or "")) for one in [*root.iter()][2:]]
    page = fromstring(to_html(drawing, before=["a < b"]))  # noqa: S314 - our own
    assert [one.text for one in page.iter("li")] == ["‹a›, p 50 %, winner", "b"]


def elements(shapes: list[dict[str, object]]) -> list[tuple[object, object]]:
    """Tags and texts of shapes, depth first."""
    found: list[tuple[object, object]] = []
    for one in shapes:
        children = one["children"]
        assert isinstance(children, list)
        found += [(one["tag"], one["text"]), *elements(children)]
    return found


def palettes() -> Iterator[dict[str, str]]:
    """The colours of the light and of the dark style."""
    blocks = re.findall(r"\.sel \{([^}]*--g: #[^}]*)\}", style())
    for block in blocks:
        yield dict(re.findall(r"--(\w+): (#\w+)", block))


def luminance(colour: str) -> float:
    """The relative luminance of WCAG 2."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * one for one in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    """The contrast of two colours, 1 to 21."""
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_colours_have_contrast():
    """Texts 4.5 on every ground that they lie on, shapes 3 on the drawing's, in light and in dark."""
    found = [*palettes()]
    assert len(found) == 2
    for colours in found:
        for ground in ("g", "still", "pale", "tint"):
            assert contrast(colours["ink"], colours[ground]) >= 4.5
        for name, ground in (
            ("soft", "g"),
            ("soft", "still"),
            ("win", "g"),
            ("win", "pale"),
            ("alt", "g"),
            ("alt", "tint"),
        ):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
        for name, ground in (("soft", "pale"), ("soft", "tint")):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
        for name in ("bar", "win", "alt"):
            assert contrast(colours[name], colours["g"]) >= 3


@given(
    texts=st.lists(st.text("ab", min_size=1, max_size=7), min_size=1, max_size=12, unique=True),
    limit=st.integers(1, 20),
    fold=st.sets(st.integers(0, 3), max_size=2),
)
def test_a_trie_shows_each_node_once_and_counts_the_rest(texts: list[str], limit: int, fold: set[int]):
    """Choices that are drawn and those counted as hidden are all; no two boxes meet; each folded node can be opened."""
    sequences = [[1 + "ab".index(one) for one in words] for words in texts]
    trie = TokenTrie.from_sequences(sequences)
    fold = {one for one in fold if one < len(trie)}
    p = np.full(len(texts), 1 / len(texts))
    view = view_of(trie, [b"", b"a", b"b"], limit=limit, winner=0, probability=p, fold=fold)
    drawing = draw_trie(view, title="x")
    boxes = [
        box
        for one in drawing.shapes
        for box in (one.children if one.tag == "g" else [one])
        if "sel-box" in box.attributes.get("class", "")
    ]
    places = sorted(
        (float(box.attributes["y"]), float(box.attributes["x"]), float(box.attributes["width"])) for box in boxes
    )
    assert len({(y, x) for y, x, _ in places}) == len(places)
    for (y, x, width), (other_y, other_x, _) in pairwise(places):
        assert y != other_y or x + width < other_x
    assert all(x + width <= drawing.width for _, x, width in places)
    rough = draw_trie(replace(view, tolerance=0.3), title="x", wanted=(("c", 0.3),))
    [legend] = [one for one in rough.shapes if one.tag == "text" and "each step" in one.text]
    assert float(legend.attributes["x"]) + 6 * len(legend.text) <= rough.width
    shown = [choice for choice in view.choice if choice is not None]
    assert len(shown) + sum(view.n_hidden) == len(texts)
    counted = [re.fullmatch(r"(\d+) more texts?", label) for label in labels_in(drawing.outline)]
    assert sum(int(one[1]) for one in counted if one) == sum(view.n_hidden)
    hidden = [one for one in view.p_hidden if one is not None]
    assert math.fsum(hidden) == pytest.approx(sum(view.n_hidden) / len(texts))
    numbers = {int(one.attributes["data-node"]) for one in drawing.shapes if "data-node" in one.attributes}
    folded = {node for node, n in zip(view.node, view.n_hidden, strict=True) if node in fold and n}
    assert folded - {0} <= numbers


def labels_in(items: tuple[Item, ...]) -> Iterator[str]:
    """The labels of an outline."""
    for one in items:
        yield one.label
        yield from labels_in(one.children)


def test_bars_are_relative_to_one():
    """Half of the set has half of the width; what is not known has no bar; heads hold the rows below them."""
    bars = [
        Bar("q", None, None, "", kind="head"),
        Bar("a", 0.5, 0.5, "50 %", kind="win"),
        Bar("b", 0.2, 0.4, "20 % to 40 %"),
        Bar("c", None, None, "pruned", kind="off"),
    ]
    drawing = draw_bars(bars, title="x", heads=("a", "b", "c"))
    widths = [
        float(one.attributes["width"])
        for one in drawing.shapes
        if one.tag == "rect" and "sel-bar" in one.attributes["class"]
    ]
    grounds = [
        float(one.attributes["width"])
        for one in drawing.shapes
        if one.tag == "rect" and "sel-band" in one.attributes["class"]
    ]
    assert widths == pytest.approx([grounds[0] / 2, grounds[0] / 5])
    assert sum(one.tag == "path" for one in drawing.shapes) == 1
    [head] = drawing.outline
    assert [one.label for one in head.children] == ["a", "b", "c"]


def test_ends_of_a_trie_have_their_name_and_their_bounds():
    """The bar is solid to the low end and hatched to the high one; an interval has no number that no answer has."""
    ends = [End("share of the set", 0.2, 0.4, "20 % to 40 %"), End("share of the set", 0.5, 0.5, "50 %")]
    view = view_of(TokenTrie.from_sequences([[1], [2]]), [b"", b"a", b"b"], limit=9)
    drawing = draw_trie(view, ends.__getitem__, title="x")
    assert [one.numbers for one in drawing.outline[0].children] == [
        (("share of the set", None, "20 % to 40 %"),),
        (("share of the set", 0.5, "50 %"),),
    ]
    bars = [float(one.attributes["width"]) for one in drawing.shapes if "sel-bar" in one.attributes.get("class", "")]
    assert bars == pytest.approx([24, 60])
    [hatched] = [one for one in drawing.shapes if "sel-hatch" in one.attributes.get("class", "")]
    x = [float(one) for one in re.findall(r"[ML]([\d.-]+)", hatched.attributes["d"])]
    assert max(x) - min(x) == pytest.approx(24, abs=0.5)


def test_ends_of_beams_are_no_shares_of_a_set():
    """Their probability is that of the text among everything."""
    with Engine(HashModel(2)) as engine:
        found = engine.beam_search("a", Grammar.from_regex("[ab]{1,2}"), n=2)
    drawn = draw_beam(found)
    ends = [one for one in numbers_in(drawn["trie"]["outline"]) if one["name"] == "probability of the text"]
    expected = sorted(math.exp(one.logp) for one in found.shown)
    assert sorted(one["value"] for one in ends) == pytest.approx(expected)
    assert all(one["text"] == percent(one["value"], written_tolerance(found.signature)) for one in ends)
    assert "share of the set" not in json.dumps(drawn)


def numbers_in(items: Any) -> Iterator[Any]:
    """The numbers of an outline."""
    for one in items:
        yield from one["numbers"]
        yield from numbers_in(one["children"])


@given(low=st.floats(0, 1), tolerance=TOLERANCES)
def test_lower_bounds_hold_and_are_never_lost(low: float, tolerance: float):
    """Small ones have a digit more than percentages, and no bound reads larger than it is."""
    words = percent_at_least(low, tolerance)
    value = float(words.removeprefix("at least").strip("<>≈% ")) / 100 if words != "not known" else 0.0
    assert (words == "not known") == (low == 0)
    assert value <= low * (1 + 1e-6) or words.startswith(">") or percent(low, tolerance) == percent(1.0, tolerance)
    assert [percent_at_least(p, 0.0) for p in (0.00029, 4.62e-4, 5e-8, 0.25)] == [
        *("at least 0.02 %", "at least 0.04 %", "at least 5e-06 %", "at least 25 %")
    ]


def test_texts_are_drawn_with_probabilities_and_what_is_left_out():
    """A beginning is marked, and the last row counts the texts that are not shown."""
    texts = [("a", math.log(0.5), True), ("b", math.log(0.25), False)]
    drawing = draw_texts(texts, title="x", tolerance=0.0, n=5)
    assert [one.words for one in drawing.outline] == [
        "a, probability 50 %, log-probability -0.693",
        "b, probability 25 %, log-probability -1.386, a beginning",
        "… 3 more texts",
    ]
    assert {"50 %", "-0.693", "25 %", "-1.386", "…", "… 3 more texts"} <= {one.text for one in drawing.shapes}


def test_sentences_of_a_selection():
    """The winner beside the next one, two shares that are told apart, and whether steps agree."""
    said = selection_sentences(armour())
    assert said["winner"] == "' leather' is 1.6 times as likely as the next, ' chain' (0.470 nats)"
    assert said["share_of_set"] == "47 %"
    assert said["share_of_all"] == "40 %"
    assert said["tie"] is None
    tied = answer((" a", 0.25), (" b", 0.25), is_tie=True, margin=0.0)
    assert selection_sentences(tied)["winner"] == "' a' shares the first place"
    assert selection_sentences(tied)["tie"] is not None
    alone = selection_sentences(answer((" a", 0.25), margin=math.inf))
    assert alone["winner"] == "' a', no other choice"


def test_an_impossible_choice_is_drawn():
    """Its log-probability is a text; JSON has no infinity."""
    with np.errstate(divide="ignore"):
        drawn = draw_selection(answer((" a", 0.5), (" b", 0.0)))
    words = json.dumps(drawn, allow_nan=False)
    assert '"name": "log-probability", "value": null, "text": "-inf"' in words


def test_other_rules_have_bars_and_no_odds():
    """The margin has its own unit, and there is no strip of what the model would say."""
    selection = armour(rule="token_mean", choices=armour().choices)
    drawn = draw_selection(selection)
    assert drawn["strip"] is None
    assert [one for one in draw_choices(selection).shapes if one.text == "score (token_mean)"]


def test_pruned_choices_are_marked():
    """They have a bound in place of a bar, in the list of choices and in the trie."""
    selection = answer((" a", 0.5), (" b|z", 0.5, None))
    words = to_svg(draw_choices(selection)) + to_svg(draw_selection_trie(selection))
    assert words.count("≤ -0.693") == 2
    assert "×" in words


@given(
    texts=st.lists(
        st.text(min_size=1, max_size=12).filter(lambda one: "|" not in one), min_size=1, max_size=5, unique=True
    )
)
def test_any_text_is_drawn_as_text(texts: list[str]):
    """Markup is escaped, and characters that XML or a terminal obeys are shown by their codes."""
    encodable = [one.encode("utf-8", "replace").decode() for one in texts]
    selection = answer(*((one, 0.5 / len(texts)) for one in dict.fromkeys(encodable)))
    for drawn in (draw_choices(selection), draw_selection_trie(selection)):
        for element in fromstring(to_html(drawn)).iter():  # noqa: S314 - our own
            assert (
                show_text(element.text or "").replace("␣", " ") == (element.text or "").replace("␣", " ")
                or "style" in element.tag
            )
    strip = draw_selection(selection)["strip"]
    assert json.dumps(strip, ensure_ascii=False).isprintable()


def test_notebook_and_terminal_say_the_same():
    """How far the winner is ahead, the coverage, masked greedy decoding and the advice are the same words."""
    tied = answer((" a", 0.25), (" b", 0.25), is_tie=True, margin=0.0)
    for selection in (armour(), unlikely(), tied, answer((" a", 0.5), (" b|z", 0.5, None))):
        told = dict(selection_facts(selection))
        first, *lines = notebook_lines(selection)
        assert selection.is_tie or told["winner"].endswith(first.rpartition(" is ")[2].rpartition("', ")[2])
        assert told["coverage"] in lines
        assert [one for one in lines if one.startswith("! ")] == [f"! {one}" for one in selection.warnings]
        assert ("greedy" in told) == any(one == f"greedy {told.get('greedy')}" for one in lines)


def test_a_tie_is_shown_as_a_tie():
    """Both choices have the mark of the first place, and steps that pick either come to the same."""
    tied = answer((" a", 0.25), (" b", 0.25), (" c", 0.1), is_tie=True, margin=0.0, greedy_index=1)
    marks = [one.marks for one in draw_choices(tied).outline]
    assert [("shares the first place" in "".join(one)) for one in marks] == [True, True, False]
    assert selection_sentences(tied)["agreement"] == "Step by step comes to the same tie."
