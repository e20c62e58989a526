"""All that a model would say next, cut by whole texts and step by step, beside an enumeration of every text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie import BeamSearchParams, Engine, Grammar, SearchParams, Selection
from selectrie.core.notation import percent
from selectrie.engine.connect import PathRuntime
from selectrie.engine.precision_check import SelfCheck
from selectrie.errors import OptionError
from selectrie.results.drawing.choices import draw_choices, draw_selection_trie
from selectrie.results.drawing.pieces import Piece, Strip, choices_in, cut_strip
from selectrie.results.drawing.shapes import CELL, Drawing, Item, Shape, to_svg
from selectrie.results.drawing.strip import draw_strip
from selectrie.server.calls.drawings import find_examples
from selectrie.testing import HashModel, PathsOf, TableModel, make_vocabulary
from selectrie.testing.oracles import NestedTrie, _all_texts, probabilities
from tests.support.answers import answer
from tests.support.placed_shapes import boxes_in

EXACT = SelfCheck(batch_multiple=1, moved=0.0, tolerance=0.0)
LETTERS = make_vocabulary([b"a", b"b", b"c"])
EOS = 1
SETS = st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=6)
few = settings(max_examples=25)
TERMINATORS = st.sampled_from(["none", "eog", "unless-continued"])


def selected(seed: int, texts: Sequence[str], terminator: str, **options: object) -> tuple[HashModel, Selection]:
    """A model and the scores of texts after the prompt "a", every one of them."""
    model = HashModel(seed, vocabulary=LETTERS)
    with Engine(model, check=EXACT) as engine:
        return model, engine.select("a", texts, terminator=terminator, search=SearchParams(stop="all"), **options)


def is_path(text: tuple[int, ...], path: tuple[int, ...]) -> bool:
    return text[: len(path)] == path


def owners(text: tuple[int, ...], paths: Sequence[tuple[int, ...]], terminator: str) -> list[int]:
    """The choices that a whole text belongs to: several if they overlap."""
    begun = [at for at, path in enumerate(paths) if is_path(text, path)]
    if terminator == "none":
        return begun
    if terminator == "eog":
        return [at for at in begun if text[len(paths[at]) :][:1] == (EOS,)]
    return begun and [max(begun, key=lambda at: len(paths[at]))]


@few
@given(seed=st.integers(0, 5), texts=SETS, terminator=TERMINATORS)
def test_pieces_are_what_enumeration_counts(seed: int, texts: list[str], terminator: str):
    """Widths sum to 1, a choice has its probability, and each other piece what leaves the trie after its text."""
    model, selection = selected(seed, texts, terminator)
    strip = cut_strip(selection)
    assert strip is not None
    context = (0, 2)
    paths = [tuple(b"abc".index(one) + 2 for one in text.encode()) for text in texts]
    everything = _all_texts(model, context, max(map(len, paths)) + 1)
    assert math.fsum(one.width for one in strip.pieces) == pytest.approx(1.0, abs=1e-6)
    afters = [one.after.decode() for one in strip.pieces if one.kind == "elsewhere"]
    assert len(set(afters)) == len(afters)
    left = dict.fromkeys(afters, 0.0)
    p = [0.0] * len(paths)
    for text, share in everything:
        found = owners(text, paths, terminator)
        for at in found:
            p[at] += share
        if not found:
            shared = max((n for path in paths for n in range(len(path) + 1) if is_path(text, path[:n])), default=0)
            words = "".join("abc"[one - 2] for one in text[:shared])
            after = max((one for one in [*afters, ""] if words.startswith(one)), key=len)
            left[after] = left.get(after, 0.0) + share
    for one in strip.pieces:
        if one.kind == "elsewhere":
            assert one.width == pytest.approx(left.pop(one.after.decode()), abs=1e-6)
    assert sum(left.values()) == pytest.approx(0.0, abs=1e-6)
    drawn = {one.choice: one for one in choices_in(strip.pieces)}
    assert {texts[at] for at in drawn if at is not None} == set(texts)
    for at, one in drawn.items():
        assert at is not None
        assert one.low == one.high == one.width == pytest.approx(p[at], abs=1e-6)
        assert one.width == pytest.approx(math.exp(selection.choices.logp[at]))


@few
@given(seed=st.integers(0, 5), texts=SETS, terminator=TERMINATORS)
def test_steps_are_products_of_renormalised_steps(seed: int, texts: list[str], terminator: str):
    """At each step the allowed tokens, and stopping where a choice ends, are stretched to the whole."""
    model, selection = selected(seed, texts, terminator)
    strip = cut_strip(selection)
    assert strip is not None
    paths = [tuple(b"abc".index(one) + 2 for one in text.encode()) for text in texts]
    expected = dict(walk(model, (0, 2), (), NestedTrie.of(paths), terminator))
    assert {texts[at]: p for at, p in strip.steps} == {
        texts[paths.index(path)]: pytest.approx(p, abs=1e-6) for path, p in expected.items()
    }
    assert math.fsum(p for _, p in strip.steps) == pytest.approx(1.0, abs=1e-6)


def walk(
    model: HashModel, context: tuple[int, ...], path: tuple[int, ...], node: NestedTrie, terminator: str
) -> Iterator[tuple[tuple[int, ...], float]]:
    """The paths below a node with their step-by-step probabilities."""
    p = probabilities(model, (*context, *path))
    weights = {token: p[token] for token in node.children}
    if node.ends and not weights:
        yield path, 1.0
        return
    stop = 0.0
    if node.ends:
        stop = 1 - sum(weights.values()) if terminator == "unless-continued" else p[EOS]
        yield path, stop / (stop + sum(weights.values()))
    for token, child in node.children.items():
        share = weights[token] / (stop + sum(weights.values()))
        for end, below in walk(model, context, (*path, token), child, terminator):
            yield end, share * below


@few
@given(seed=st.integers(0, 5), texts=SETS)
def test_a_choice_that_continues_another_is_inside_it(seed: int, texts: list[str]):
    """Without a terminator the longer text is a part of the shorter one, so they are never side by side."""
    _, selection = selected(seed, texts, "none")
    strip = cut_strip(selection)
    assert strip is not None
    tops = [texts[one.choice] for one in strip.pieces if one.choice is not None]
    assert not any(one != other and one.startswith(other) for one in tops for other in tops)
    for piece in choices_in(strip.pieces):
        for inner in piece.inside:
            assert piece.choice is not None
            assert inner.choice is not None
            assert texts[inner.choice].startswith(texts[piece.choice])
            assert inner.width <= piece.width + 1e-9


@few
@given(seed=st.integers(0, 5), texts=SETS)
def test_rows_in_part_are_drawn_with_bounds(seed: int, texts: list[str]):
    """The true probability lies in each piece's bounds, all that may be a choice is kept free, and widths sum to 1."""
    _, exact = selected(seed, texts, "none")
    with Engine(PathRuntime(PathsOf(HashModel(seed, vocabulary=LETTERS), hides_rest=True))) as engine:
        found = engine.select("a", texts, terminator="none", search=SearchParams(stop="all"))
    strip = cut_strip(found)
    assert strip is not None
    assert math.fsum(one.width for one in strip.pieces) == pytest.approx(1.0, abs=1e-6)
    for piece in choices_in(strip.pieces):
        assert piece.choice is not None
        true = math.exp(exact.choices.logp[piece.choice])
        assert piece.low - 1e-6 <= true <= piece.high + 1e-6
        assert piece.low - 1e-9 <= piece.width <= piece.high + 1e-9


def bounded(*bounds: tuple[float, float]) -> Selection:
    """A selection whose choices " a", " b", … have these probabilities at least and at most."""
    found = answer(*((f" {letter}", math.sqrt(low * high)) for letter, (low, high) in zip("abc", bounds, strict=False)))
    return replace(found, choices=replace(found.choices, logp_upper=np.log([high for _, high in bounds])))


def test_bounds_that_fit_are_drawn_in_full():
    """A choice is as wide as its upper bound; what is left may be all that lower bounds leave."""
    strip = cut_strip(bounded((0.1, 0.4), (0.05, 0.2)))
    assert strip is not None
    assert strip.is_bounded
    expected = [("choice", 0.4, 0.1, 0.4), ("choice", 0.2, 0.05, 0.2), ("elsewhere", 0.4, 0.4, 0.85)]
    assert [(one.kind, one.width, one.low, one.high) for one in strip.pieces] == [
        (kind, *map(pytest.approx, bounds)) for kind, *bounds in expected
    ]


def test_bounds_that_do_not_fit_shrink_alike():
    """0.3 is certain, so 0.9 between the bounds have 0.7: each choice has 7/9 of the width between its own."""
    strip = cut_strip(bounded((0.2, 0.8), (0.1, 0.4)))
    assert strip is not None
    assert [one.width for one in strip.pieces] == [pytest.approx(2 / 3), pytest.approx(1 / 3)]
    assert [(one.low, one.high) for one in strip.pieces] == [
        (pytest.approx(0.2), pytest.approx(0.8)),
        (pytest.approx(0.1), pytest.approx(0.4)),
    ]


def test_what_a_search_left_open_is_one_piece():
    """A search for the best proves it without the rest, whose mass is bounded and grey in both rows."""
    texts = ["".join(one) for one in product("abc", repeat=4)]
    with Engine(HashModel(3, vocabulary=LETTERS, sharpness=3.0), check=EXACT) as engine:
        found = engine.select("a", texts, search=SearchParams(method="best_first", width=1))
    strip = cut_strip(found)
    assert strip is not None
    assert not found.choices.finished.all()
    [left] = [one for one in strip.pieces if one.kind == "open"]
    assert left.low == 0 < left.high <= 1
    assert left.n == int((~found.choices.finished).sum())
    assert math.fsum(one.width for one in strip.pieces) == pytest.approx(1.0, abs=1e-6)
    assert "not evaluated, at most" in "".join(texts_of(draw_strip(found, strip).shapes))


def test_healed_bytes_are_given():
    """Probabilities are those after the prompt's last bytes: all that begins with them is the whole."""
    with Engine(HashModel(2), check=EXACT) as engine:
        found = engine.select("a ", ["cat", "bat", "car"])
    assert found.healed == b" "
    strip = cut_strip(found)
    assert strip is not None
    assert math.fsum(one.width for one in strip.pieces) == pytest.approx(1.0)
    for one in choices_in(strip.pieces):
        assert one.choice is not None
        assert one.low == pytest.approx(math.exp(found.choices.logp_lower[one.choice]))
    assert not any(one.after.startswith(b" ") for one in strip.pieces)


def test_other_rules_and_sums_have_no_strip():
    """Their scores are no shares of what the model would say; a server looks for no examples, the error has the reason."""
    with Engine(HashModel(2), check=EXACT) as engine:
        for options, reason in (
            ({"rule": "token_mean"}, "'trie' or 'bars': scores of rule 'token_mean' are no shares"),
            ({"tokenizations": "all"}, "'trie' or 'bars': with tokenizations='all', a choice is a sum over many paths"),
        ):
            found = engine.select("a", ["cat", "bat"], **options)
            assert cut_strip(found) is None
            unused = Mock(spec=Engine)
            assert find_examples(unused, found, {"prompt": "a"}) is None
            assert not unused.method_calls
            with pytest.raises(OptionError, match=re.escape(reason)):
                found.plot("strip")


def city(choices: Sequence[str] = (" Chicago", " New Zealand"), delimiter: str = "") -> tuple[Selection, Strip]:
    """New York is likely and no choice: its first token makes New Zealand win step by step."""
    table = {
        (): {":": 1.0},
        (":",): {" New": 0.5, " C": 0.25},
        (":", " New"): {" York": 0.9, " Zealand": 0.02},
        (":", " C"): {"hicago": 0.8},
    }
    vocabulary = make_vocabulary([b":", b" New", b" C", b" York", b" Zealand", b"hicago"])
    with Engine(TableModel(table, vocabulary=vocabulary), check=EXACT) as engine:
        found = engine.select(":", list(choices), delimiter=delimiter)
        beam = BeamSearchParams(width=8, n=8, max_tokens=2, incomplete=True)
        examples = engine.beam_search(":", Grammar.from_regex("[A-Za-z ]{1,20}"), beam=beam)
    strip = cut_strip(found, examples)
    assert strip is not None
    return found, strip


def test_the_city_by_hand():
    """0.5 * 0.02 = 0.01 of New Zealand, 0.49 elsewhere after New, 0.2 of Chicago; step by step 0.5 to 0.25."""
    found, strip = city()
    pieces = [(one.kind, one.after, round(one.width, 6)) for one in strip.pieces]
    assert pieces == [
        ("choice", b"", 0.01),
        ("elsewhere", b" New", 0.49),
        ("choice", b"", 0.2),
        ("elsewhere", b" C", 0.05),
        ("elsewhere", b"", 0.25),
    ]
    assert [(at, round(p, 4)) for at, p in strip.steps] == [(1, 0.6667), (0, 0.3333)]
    assert strip.pieces[1].examples == ((" New York", pytest.approx(0.45)),)
    words = " ".join(texts_of(draw_strip(found, strip).shapes))
    assert "goes on differently after ‹␣New› 49 % e.g. ␣New York… 45 %" in words
    assert "masked greedy decoding picks ' New Zealand', which masked sampling draws 67 % of the time" in words


def lines_of(items: Sequence[Item], depth: int = 0) -> Iterator[str]:
    """An outline as lines, each below what it is a part of."""
    for one in items:
        yield " " * depth + one.words
        yield from lines_of(one.children, depth + 1)


def test_the_drawings_of_the_city_by_hand():
    """Strip, tree and bars of the same numbers: 0.2 and 0.01 are 95 % and 4.8 % of 0.21; other tokens have 0.25 / 6 each."""
    found, strip = city()
    drawn_strip, tree, bars = draw_strip(found, strip), draw_selection_trie(found), draw_choices(found)
    assert [*lines_of(drawn_strip.outline)] == [
        "Whole texts",
        " ‹␣New Zealand›, of everything 1.0 %",
        " goes on differently after ‹␣New›, of everything 49 %",
        "  for example ‹␣New York…›, of everything 45 %",
        " ‹␣Chicago›, of everything 20 %, winner",
        " goes on differently after ‹␣C›, of everything 5.0 %",
        " begins differently, of everything 25 %",
        "  for example ‹␣York…›, of everything 4.2 %",
        "  for example ‹␣Zealand…›, of everything 4.2 %",
        "Step by step",
        " ‹␣New Zealand›, step by step 67 %, masked greedy decoding picks it, masked sampling draws it most often",
        " ‹␣Chicago›, step by step 33 %",
        (
            "Step by step it comes out differently: masked greedy decoding picks ' New Zealand', "
            "which masked sampling draws 67 % of the time."
        ),
    ]
    words = " | ".join(texts_of(drawn_strip.shapes))
    for one in (
        "‹␣New› 50 % → 67 %",
        "␣New Zealand 1.0 %",
        "★ ␣Chicago | 20 %",
        "~ ◆ ␣New Zealand | 67 %",
        "␣Chicago | 33 %",
    ):
        assert one in words
    assert [*lines_of(tree.outline)] == [
        "after the prompt, on the winner's path, on the path of masked greedy decoding",
        (
            " ‹␣New›, probability of the step 50 %, probability of everything 50 %, log-probability -0.693, "
            "on the path of masked greedy decoding"
        ),
        (
            "  ‹␣New Zealand›, probability of the step 2.0 %, probability of everything 1.0 %, log-probability -4.605, "
            "share of the set 4.8 %, on the path of masked greedy decoding"
        ),
        " ‹␣C›, probability of the step 25 %, probability of everything 25 %, log-probability -1.386, on the winner's path",
        (
            "  ‹␣Chicago›, probability of the step 80 %, probability of everything 20 %, log-probability -1.609, "
            "share of the set 95 %, on the winner's path"
        ),
        *(f" ‹{one}›, probability 4.2 %, what the model would say instead" for one in ("<bos>", "<eos>", ":")),
    ]
    assert [*texts_of(tree.shapes)] == [
        "★ winner   ~ masked greedy   … what the model would say instead   %: probability of each step",
        *(
            "~",
            "4.8 %",
            "★",
            "95 %",
            "after the prompt",
            "␣New",
            "50 %",
            "␣Zealand",
            "2.0 %",
            "␣C",
            "25 %",
            "hicago",
            "80 %",
        ),
        *("… <bos>", "4.2 %", "… <eos>", "4.2 %", "… :", "4.2 %"),
    ]
    assert [*lines_of(bars.outline)] == [
        "␣Chicago, share of the set 95 %, share of everything 20 %, log-probability -1.609, winner",
        (
            "␣New Zealand, share of the set 4.8 %, share of everything 1.0 %, log-probability -4.605, "
            "what masked greedy decoding picks"
        ),
    ]
    heads = ["choice", "share of the set", "log-probability"]
    rows = ["★", "␣Chicago", "95 %", "-1.609", "~", "␣New Zealand", "4.8 %", "-4.605"]
    assert [*texts_of(bars.shapes)] == heads + rows


def test_a_tie_is_no_win_in_the_strip():
    """Both choices have the sign of a tie, and the outline says that they share the first place."""
    tied = answer((" a", 0.25), (" b", 0.25), (" c", 0.1), is_tie=True, margin=0.0)
    strip = cut_strip(tied)
    assert strip is not None
    drawing = draw_strip(tied, strip)
    assert [one for one in texts_of(drawing.shapes) if one.startswith(("=", "★"))] == ["= ␣a", "= ␣b"]
    marks = [one.marks for one in drawing.outline[0].children if one.label in ("‹␣a›", "‹␣b›", "‹␣c›")]
    assert marks == [("shares the first place",), ("shares the first place",), ()]


def test_a_delimiter_belongs_to_each_choice():
    """With it the pieces are those of the whole texts, and so are the examples, none of which is a choice."""
    _, plain = city()
    _, strip = city(["Chicago", "New Zealand"], delimiter=" ")
    assert strip == plain


def test_examples_are_the_likeliest_texts():
    """Four tokens at most, those that the model would write whatever the choices are; a strip names how the likeliest begins."""
    with Engine(HashModel(0, vocabulary=LETTERS, sharpness=3.0), check=EXACT) as engine:
        found = engine.select("a", ["cab", "b"])
        examples = find_examples(engine, found, {"prompt": "a"})
        beam = BeamSearchParams(width=32, n=1, max_tokens=4, incomplete=True)
        [likeliest] = engine.beam_search("a", Grammar.from_regex("[abc]{1,9}"), beam=beam).hypotheses
    assert examples is not None
    assert examples.hypotheses[0].text == likeliest.text
    strip = cut_strip(found, examples)
    assert strip is not None
    assert any(likeliest.text.startswith(text) for piece in strip.pieces for text, _ in piece.examples)


def texts_of(shapes: Sequence[Shape]) -> Iterator[str]:
    """The texts that are seen, in the order of drawing."""
    for one in shapes:
        if one.tag == "text":
            yield one.text
        yield from texts_of(one.children)


def boxes_of(shapes: Sequence[Shape], dx: float = 0.0, dy: float = 0.0) -> Iterator[tuple[float, float, str]]:
    """Each text with the left and the right end that its box or the drawing leaves it."""
    for one in shapes:
        if one.tag == "svg":
            inner = [shape for shape in one.children if shape.tag == "text"]
            for shape in inner:
                yield float(shape.attributes["x"]), float(one.attributes["width"]), shape.text
        elif one.tag == "g":
            yield from boxes_of(one.children)


def drawing_of(found: Selection) -> Drawing:
    strip = cut_strip(found)
    assert strip is not None
    return draw_strip(found, strip)


def test_every_shape_has_its_place():
    """Nothing leaves the drawing, an outline is that of its piece's ground, and labels are above and below the rows."""
    with Engine(PathRuntime(PathsOf(HashModel(0, vocabulary=LETTERS), hides_rest=True))) as engine:
        unread = engine.select("a", ["a", "ab", "b"], search=SearchParams(stop="all"))
    assert "not known" in " ".join(texts_of(drawing_of(unread).shapes))
    _, listed = selected(0, ["a", "ab", "abc", "ba", "caba", "cb"], "eog")
    bound = bounded((0.1, 0.4), (0.05, 0.2))
    for found in (unread, listed, city()[0], bound):
        drawing = drawing_of(found)
        placed = list(boxes_in(drawing.shapes))
        for _, box in placed:
            assert box.left >= 0
            assert box.top >= 0
            assert box.right <= drawing.width
            assert box.bottom <= drawing.height
        grounds = [box for names, box in placed if names & {"sel-plain", "sel-band", "sel-box"}]
        outlines = [box for names, box in placed if "sel-line" in names and box.left < box.right]
        assert all(box in grounds for box in outlines) or found is bound
        top, bottom = min(box.top for box in grounds), max(box.bottom for box in grounds)
        assert all(y <= top or y > bottom for y in heights_of_labels(drawing.shapes))


def heights_of_labels(shapes: Sequence[Shape], dy: float = 0.0) -> Iterator[float]:
    """The base lines of the labels that have a line to a piece."""
    has_lines = any(
        one.tag == "path" and re.fullmatch(r"M[-\d.]+ [-\d.]+V[-\d.]+", one.attributes["d"]) for one in shapes
    )
    for one in shapes:
        if "transform" in one.attributes:
            yield from heights_of_labels(one.children, dy + float(one.attributes["transform"].split()[1].rstrip(")")))
        small = {"sel-small", "sel-middle"} & set(one.attributes.get("class", "").split()) == {"sel-small"}
        if has_lines and one.tag == "text" and small and float(one.attributes["x"]) != 12:
            yield dy + float(one.attributes["y"])


@few
@given(seed=st.integers(0, 3), texts=st.lists(st.text("abc", min_size=1, max_size=8), min_size=1, max_size=9))
def test_no_text_crosses_its_box(seed: int, texts: list[str]):
    """A text in a box is cut at it, and labels beside the bars neither meet nor leave the drawing."""
    _, selection = selected(seed, texts, "none")
    strip = cut_strip(selection)
    assert strip is not None
    drawing = draw_strip(selection, strip)
    for left, width, words in boxes_of(drawing.shapes):
        assert left + len(words) * CELL * 0.8 <= width
    for line in lines_of_labels(drawing):
        for (_, right), (left, _) in pairwise(line):
            assert right < left
        assert all(left >= 0 and right <= drawing.width for left, right in line)


def lines_of_labels(drawing: Drawing) -> list[list[tuple[float, float]]]:
    """The ends of the labels beside the bars, by the line that they are on."""
    found: dict[tuple[int, float], list[tuple[float, float]]] = {}
    groups = [drawing.shapes, *(one.children for one in drawing.shapes if "transform" in one.attributes)]
    for at, group in enumerate(groups):
        for one in group:
            if one.tag == "text" and "sel-small" in one.attributes["class"] and float(one.attributes["x"]) != 12:
                left = float(one.attributes["x"])
                if "sel-middle" in one.attributes["class"]:
                    continue
                found.setdefault((at, float(one.attributes["y"])), []).append((left, left + len(one.text) * 6.2))
    return [sorted(line) for line in found.values()]


def test_two_hundred_choices_have_a_piece_each():
    """The others are one piece, with their number and their probability."""
    texts = ["".join(one) for one in product("abc", repeat=5)]
    _, selection = selected(1, texts, "eog")
    strip = cut_strip(selection)
    assert strip is not None
    assert len([*choices_in(strip.pieces)]) == 200
    [more] = [one for one in strip.pieces if one.kind == "more"]
    assert more.n == len(texts) - 200
    shown = {one.choice for one in choices_in(strip.pieces)}
    rest = sum(math.exp(one.logp or 0.0) for one in selection.choices if one.index not in shown)
    assert more.width == pytest.approx(rest)
    assert math.fsum(one.width for one in strip.pieces) == pytest.approx(1.0, abs=1e-6)
    drawing = draw_strip(selection, strip)
    assert to_svg(drawing).startswith("<svg")
    steps = 1 - math.fsum(p for _, p in strip.steps)
    assert drawing.outline[1].children[-1].label == f"43 more choices {percent(steps, 0.0)}"
    assert "not evaluated" not in " ".join(texts_of(drawing.shapes))


def test_bounds_are_solid_to_the_low_end_and_hatched_to_the_high():
    """The hatched part of a choice begins where the solid part ends, at half of the width."""
    selection = answer((" a", 0.5), (" b", 0.25))
    piece = Piece("choice", 0.5, 0.25, 0.5, 0, n=1)
    strip = Strip((), (piece, Piece("elsewhere", 0.5, 0.25, 0.5)), is_bounded=True)
    drawing = draw_strip(selection, strip)
    assert drawing.outline[0].children[0].numbers == (("of everything", None, "25 % to 50 %"),)
    shapes = drawing.shapes
    solid, hatched, outline = [
        one for at, one in boxes_in(shapes) if {"sel-box", "sel-hatch", "sel-line"} & at and "sel-win" in at
    ]
    assert (solid.left, solid.right) == pytest.approx((outline.left, outline.middle), abs=1)
    assert (hatched.left, hatched.right) == pytest.approx((outline.middle, outline.right), abs=5)
    classes = [one.attributes.get("class", "") for group in shapes for g in group.children for one in (g, *g.children)]
    assert "sel-hatch sel-win" in classes
    words = [*texts_of(shapes)]
    assert any("25 % to 50 %" in one for one in words)
