"""Drawings on matplotlib: the same shapes at the same places, with the styles of the style sheet."""

from __future__ import annotations

from itertools import chain

import pytest

import selectrie
from selectrie.results.drawing import plot as plotting
from selectrie.results.drawing.beams import draw_beam
from selectrie.results.drawing.choices import draw_selection_trie
from selectrie.results.drawing.shapes import Drawing, clipped, dot, path, rect, text

pytest.importorskip("matplotlib")
PROMPT, CHOICES = "Q: Which city in the United States comes to mind? A:", [" Chicago", " New Zealand", " New York"]


@pytest.fixture(scope="module")
def llm():
    with selectrie.load(n_threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def selection(llm):
    return llm.select(PROMPT, CHOICES)


def shapes_of(shapes):
    """All shapes that are seen."""
    return chain.from_iterable([one, *shapes_of(one.children)] for one in shapes)


def test_every_shape_is_drawn_once(selection):
    """Texts word by word; rectangles and paths as patches."""
    drawing = draw_selection_trie(selection)
    axes = plotting.plot(drawing)
    seen = list(shapes_of(drawing.shapes))
    assert [one.get_text() for one in axes.texts] == [one.text for one in seen if one.tag == "text"]
    assert len(axes.patches) == sum(one.tag in ("rect", "path") for one in seen) > 5
    assert tuple(axes.figure.get_size_inches() * axes.figure.dpi) == pytest.approx((drawing.width, drawing.height))


def test_places_and_styles_by_hand():
    """What is inside a box is moved with it and cut at it; classes together give the colour."""
    inner = text(2, 3, "a $b$ c", "strong", "win")
    drawing = Drawing(
        90, 40, "t", (rect(5, 6, 20, 10, "bar", "win"), path("M1 2V8H4", "line"), clipped(30, 10, 50, 20, inner))
    )
    axes = plotting.plot(drawing)
    bar, line = axes.patches
    assert bar.get_bbox().bounds == (5, 6, 20, 10)
    assert [tuple(point) for point in line.get_path().vertices] == [(1, 2), (1, 8), (4, 8)]
    [words] = axes.texts
    assert (words.get_position(), words.get_text(), words.get_weight()) == ((32, 13), "a $b$ c", "bold")
    assert (
        words.get_color()
        == "#0a58ca"
        == next(one.sets["fill"] for one in plotting._rules() if one.classes == {"sel-bar", "sel-win"})
    )
    assert words.get_clip_on()
    corners = axes.transData.inverted().transform(words.get_clip_box().get_points())
    assert sorted(corners[:, 0]) == pytest.approx([30, 80])
    assert sorted(corners[:, 1]) == pytest.approx([10, 30])
    assert axes.yaxis_inverted()


def test_a_drawing_fits_the_axes_that_are_given():
    """Texts and lines shrink with it, and what was in the axes stays as it was."""
    from matplotlib.figure import Figure

    drawing = Drawing(90, 40, "t", (rect(5, 6, 20, 10, "box"), dot(30, 20, 5), text(2, 3, "words")))
    alone = plotting.plot(drawing)
    axes = Figure(figsize=(1, 1), dpi=45).add_axes((0, 0, 1, 1))
    before = axes.text(0, 0, "before", fontsize=9)
    plotting.plot(drawing, axes)
    assert before.get_fontsize() == 9
    assert axes.texts[1].get_fontsize() == pytest.approx(alone.texts[0].get_fontsize() * 72 / 90 / 0.72)
    widths = [[one.get_linewidth() for one in each.patches] for each in (alone, axes)]
    assert widths[1] == pytest.approx([one * 72 / 90 / 0.72 for one in widths[0]])
    assert [one.center for one in axes.patches if hasattr(one, "radius")] == [(30, 20)]


def test_pictures_of_results(selection, llm, tmp_path):
    """They are written as PNG, into axes that are given too."""
    import matplotlib.figure

    own = matplotlib.figure.Figure().add_subplot()
    assert selection.plot("bars", ax=own) is own
    answer = llm.decide("My parcel has not come.", selectrie.Choice("What is it about?", ["delivery", "refund"]))
    generation = llm.generate("Once", max_tokens=3, seed=1)
    for at, axes in enumerate(
        [selection.plot(), selection.plot("strip"), answer.plot(), generation.plot(), generation[0].plot()]
    ):
        axes.figure.savefig(tmp_path / f"{at}.png")
        assert (tmp_path / f"{at}.png").read_bytes().startswith(b"\x89PNG")


def test_a_beam_is_drawn_as_bars_or_as_a_trie(llm):
    """What the server draws of it; other pictures are refused."""
    found = llm.beam_search("Once upon", selectrie.Grammar.from_regex(" (a|the) (time|day)"), n=3)
    for picture in ("bars", "trie"):
        texts = [one.text for one in shapes_of(found.draw(picture).shapes) if one.tag == "text"]
        assert [one.get_text() for one in found.plot(picture).texts] == texts
    assert draw_beam(found)["trie"] == found.draw("trie").to_dict()
    assert found.text in [one.get_text().replace("␣", " ") for one in found.plot().texts]
    with pytest.raises(selectrie.errors.OptionError, match="picture='strip': expected one of 'bars', 'trie'"):
        found.plot("strip")


def test_what_cannot_be_drawn_is_refused(selection, llm, monkeypatch):
    """Each error says what is expected."""
    with pytest.raises(selectrie.errors.OptionError, match="picture='tree': expected one of 'trie', 'bars', 'strip'"):
        selection.plot("tree")
    with pytest.raises(
        selectrie.errors.OptionError, match="'trie' or 'bars': scores of rule 'token_mean' are no shares"
    ):
        llm.select(PROMPT, CHOICES, rule="token_mean").plot("strip")
    with pytest.raises(selectrie.errors.OptionError, match="axes of matplotlib"):
        selection.plot(ax=3)
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(selectrie.errors.MissingExtraError, match="needs the extra 'plot'"):
        selection.plot()
