"""Where the boxes and the texts of a drawn trie are, and which of them are marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from selectrie.results.drawing.choices import draw_choices, draw_selection_trie
from selectrie.results.drawing.shapes import CELL, LABEL_CELL, Shape, label_in
from tests.support.answers import answer
from tests.support.placed_shapes import boxes_in


def texts_in(shapes: Sequence[Shape]) -> Iterator[tuple[float, float, Shape]]:
    """Where each text begins, or ends if it is right-aligned."""
    for one in shapes:
        if one.tag == "text":
            yield float(one.attributes["x"]), float(one.attributes["y"]), one
        yield from texts_in(one.children)


def test_each_box_holds_its_label():
    """Label and probability fit the box; texts that go on behind a choice are below it, so that its bar has the row."""
    found = answer((" le", 0.5), (" le|ather", 0.5, 0.8), (" le|mon", 0.5, 0.1), (" plate", 0.1))
    drawing = draw_selection_trie(found)
    boxes = [box for names, box in boxes_in(drawing.shapes) if "sel-box" in names]
    assert all(box.right <= drawing.width and box.bottom <= drawing.height for box in boxes)
    place, written = {}, list(texts_in(drawing.shapes))
    for box in boxes:
        inside = [one for one in written if box.left <= one[0] <= box.right and box.top <= one[1] <= box.bottom]
        (x, _, label), *numbers = inside
        place[label.text] = box
        cell = CELL if "sel-data" in label.attributes["class"] else LABEL_CELL
        right = min([end - len(one.text) * LABEL_CELL for end, _, one in numbers], default=box.right)
        assert x + len(label.text) * cell <= right + 1
        assert ("sel-win" in label.attributes["class"]) == (label.text == "␣le")
    assert list(place) == ["after the prompt", "␣le", "ather", "mon", "␣plate"]
    rows = {name: box.top for name, box in place.items()}
    assert rows["after the prompt"] == rows["␣le"] < rows["ather"] < rows["mon"] < rows["␣plate"]
    [title] = [one.text for group in drawing.shapes for one in group.children if one.text.startswith("‹␣leather›")]
    assert "40 % of everything" in title
    assert "after the tokens before it 80 %" in title


def test_less_than_three_characters_of_a_cut_text_are_not_drawn():
    """A text that fits is drawn, however short."""
    width = 10 + 3 * LABEL_CELL
    assert [label_in(0, 0, width, 20, words)[0].children[0].text for words in ("a", "abc", "abcd")] == [
        "a",
        "abc",
        "ab…",
    ]
    assert label_in(0, 0, width - 1, 20, "abcd") == ()


def test_a_tree_marks_all_tied_choices():
    """Ends, paths, legend and title say what the bars say; a shorter choice on the way has no first place."""
    found = answer((" a", 0.5), (" a| b", 0.5, 0.5), (" a| c", 0.5, 0.5))
    choices = replace(found.choices, score=np.array([-2.0, -1.0, -1.0]))
    tied = replace(found, choices=choices, rule="token_mean", index=1, greedy_index=None, is_tie=True, margin=0.0)
    tree, bars = draw_selection_trie(tied), draw_choices(tied)
    words = [shape.text for shape in tree.shapes]
    assert words.count("=") == 2
    assert "★" not in words
    assert any(word.startswith("= shares the first place") for word in words)
    item = tree.outline[0].children[0]
    assert (item.label, item.marks[0]) == ("‹␣a›", "on the path of a tied choice")
    assert [one.marks[0] for one in item.children] == ["shares the first place"] * 2
    assert tree.title.endswith("' a b' shares the first place")
    assert bars.title.endswith("' a b' shares the first place")
