"""Draws all that a model would say next as one bar, cut by whole texts and by steps.

The upper row has each choice at its true width and hatches what is no choice. The lower
row has the choices as masking draws them: at each step the allowed tokens are stretched
to full width.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from selectrie.core.notation import (
    cells_of,
    count,
    cut,
    percent,
    percent_between,
    show_bytes,
    show_text,
    written_tolerance,
)
from selectrie.results.drawing.inputs import SelectionLike
from selectrie.results.drawing.pieces import Piece, Strip
from selectrie.results.drawing.sentences import (
    agreement_sentence,
    is_tied,
    likeliest_sampled,
    step_words,
)
from selectrie.results.drawing.shapes import (
    CELL,
    LABEL_CELL,
    Drawing,
    Item,
    Shape,
    classes,
    hatch,
    label_in,
    path,
    rect,
    text,
    titles,
    write,
)

WIDTH = 760.0
_LEFT, _BAR = 112.0, 636.0
_UPPER, _RIBBON, _LOWER, _LANE = 66.0, 48.0, 44.0, 18.0
_MAX_LANES = 4
_LEAST_NAMED = 0.02
"""Least width of a piece that is no choice and has a label beside the bar."""
_CUT_LABEL = 110.0
"""Width in pixels from which a box shows the beginning of a label that is longer."""
_NARROW = 4.0
"""Width in pixels below which a piece has no outline, which would widen it."""


@dataclass(frozen=True, slots=True)
class _Callout:
    """A label beside a bar, with a line to the middle of its piece."""

    x: float
    words: str
    name: str
    weight: float


def draw_strip(selection: SelectionLike, strip: Strip) -> Drawing:
    """Return the drawing of a strip.

    Args:
        selection: The selection that was cut.
        strip: Its pieces.
    """
    return _Painter(selection, strip).draw()


class _Painter:
    """Draws one strip."""

    def __init__(self, selection: SelectionLike, strip: Strip) -> None:
        self._selection, self._strip = selection, strip
        self._sampled = likeliest_sampled(selection)
        self._tolerance = written_tolerance(selection.signature)
        self._path_of = selection.choices.trie.path_of
        self._callouts: list[_Callout] = []

    def draw(self) -> Drawing:
        """Return the drawing, laid out from top to bottom."""
        placed = self._place(self._strip.pieces)
        upper = [shape for piece, x, width in placed for shape in self._draw_piece(piece, x, 0.0, width, _UPPER)]
        above, n_above = _place_callouts(self._callouts)
        top = 14 + n_above * _LANE
        shapes = [*_moved(above, top, turn=True), *_moved(upper, top)]
        shapes += _heading(top + 26, "Whole texts", "what the model", "would say next")
        bottom = top + _UPPER + _RIBBON
        is_known = not any(math.isnan(p) for _, p in self._strip.steps) and bool(self._strip.steps)
        ribbons = self._draw_ribbons(placed, top + _UPPER) if is_known else []
        self._callouts = []
        lower = self._draw_steps() if is_known else self._draw_unknown()
        below, n_below = _place_callouts(self._callouts)
        shapes = [*ribbons, *shapes, *_moved(lower, bottom), *_moved(below, bottom + _LOWER)]
        shapes += _heading(bottom + 18, "Step by step", "masked to", "the choices")
        y = bottom + _LOWER + n_below * _LANE + 20
        for line in _wrap(agreement_sentence(self._selection) or "", (WIDTH - 24) / LABEL_CELL):
            shapes.append(text(12, y, line))
            y += 18
        ground = rect(0, 0, WIDTH, y - 6, "ground")
        title = "All that the model would say next, cut by whole texts and step by step"
        return Drawing(WIDTH, y - 6, title, (ground, *shapes), self._describe())

    def _place(self, pieces: Sequence[Piece]) -> list[tuple[Piece, float, float]]:
        """Return each piece with its left end and its width in pixels."""
        placed, x = [], _LEFT
        for piece in pieces:
            placed.append((piece, x, piece.width * _BAR))
            x += piece.width * _BAR
        return placed

    def _name(self, choice: int) -> str:
        """Return the class of a choice: that of the winner, of masked greedy, or ""."""
        if self._path_of[choice] == self._path_of[self._selection.index]:
            return "win"
        greedy = self._selection.greedy_index
        return "alt" if greedy is not None and self._path_of[choice] == self._path_of[greedy] else ""

    def _draw_piece(self, piece: Piece, x: float, y: float, width: float, height: float) -> list[Shape]:
        """Return a piece of the upper row, with what is inside it."""
        item = self._describe_piece(piece)
        if piece.kind == "choice" and piece.choice is not None:
            return self._draw_choice(piece, item, (x, y, width, height))
        hatched = piece.kind == "elsewhere"
        back = rect(x, y, width, height, "plain" if hatched else "band")
        shapes = [back, *([hatch(x, y, width, height, "faint")] if hatched else [])]
        shapes += [rect(x, y, width, height, "line")] if width >= _NARROW else []
        lines = next((one for one in _lines_of(piece, width, self._tolerance) if _fits(one, width)), [])
        for at, (words, is_data) in enumerate(lines):
            cells = CELL if is_data else LABEL_CELL
            wide = min(width - 10, cells_of(words) * cells + 10)
            shapes += _plate(x + 5, y + 5 + 19 * at, wide, words, is_data=is_data)
        if not lines and piece.width >= _LEAST_NAMED:
            self._callouts.append(_Callout(x + width / 2, _brief(piece, self._percent(piece)), "soft", piece.width))
        return [Shape("g", {}, "", (*titles(item.words), *shapes))]

    def _draw_choice(self, piece: Piece, item: Item, box: tuple[float, float, float, float]) -> list[Shape]:
        """Return a choice of the upper row; what continues it lies inside."""
        x, y, width, height = box
        choice = piece.choice or 0
        name, words = self._name(choice), self._percent(piece)
        mark = "= " if is_tied(self._selection, choice) else "★ " if name == "win" else ""
        label = mark + show_text(self._selection.choices.texts[choice])
        solid = width * (piece.low / piece.width) if piece.width else 0.0
        shapes = _box(x, y, min(solid, width), height, name)
        if width - solid > 0.5:
            shapes += [hatch(x + solid, y, width - solid, height, name), rect(x, y, width, height, "line", name)]
        line = f"{label} {words}"
        if piece.inside and width > 60:
            shapes += label_in(x, y, width, 22, line, "data", name)
        elif width > _label_width(label, words):
            shapes += label_in(
                x, y + height / 2 - 20, width, 20, label, "data", name, "strong" if name == "win" else ""
            )
            shapes += label_in(x, y + height / 2, width, 20, words, name)
        else:
            weight = piece.width + {"win": 3, "alt": 2}.get(name, 0)
            self._callouts.append(_Callout(x + width / 2, f"{cut(label, 40)} {words}", name, weight))
        at = x + 4
        for one in piece.inside:
            inner = min(one.width * _BAR, max(0.0, x + width - at))
            shapes += self._draw_piece(one, at, y + 24, inner, height - 24 - 5)
            at += inner
        return [Shape("g", {}, "", (*titles(item.words), *shapes))]

    def _draw_ribbons(self, placed: list[tuple[Piece, float, float]], y: float) -> list[Shape]:
        """Return bands from the slices of the upper row to those of the lower row."""
        shapes, left, low, at = [], _LEFT, _LEFT, 0
        for one in self._strip.slices:
            width = sum(wide for _, _, wide in placed[at : at + len(one.pieces)])
            wide = sum(p for _, p in one.steps) * _BAR
            names = {self._name(choice) for choice, _ in one.steps}
            name = "win" if "win" in names else "alt" if "alt" in names else ""
            points = ((left, y), (left + width, y), (low + wide, y + _RIBBON), (low, y + _RIBBON))
            data = "M" + "L".join(f"{write(a)} {write(b)}" for a, b in points) + "Z"
            shares = [percent(min(1.0, p), self._tolerance) for p in (one.whole, wide / _BAR)]
            words = f"‹{show_bytes(one.text)}› {' → '.join(shares)}"
            band = Shape("path", {"d": data, "class": classes("band", name)}, "", titles(words))
            shapes.append(band)
            inner = max(left, low), min(left + width, low + wide)
            length = cells_of(words) * LABEL_CELL
            if inner[1] - inner[0] > length + 8:
                shapes.append(text((inner[0] + inner[1]) / 2, y + _RIBBON / 2 + 4, words, "small", "soft", "middle"))
            left, low, at = left + width, low + wide, at + len(one.pieces)
        return shapes

    def _draw_steps(self) -> list[Shape]:
        """Return the lower row, which begins at height 0."""
        shapes, x = [], _LEFT
        for choice, p in self._strip.steps:
            width, name = p * _BAR, self._name(choice)
            label, words = show_text(self._selection.choices.texts[choice]), step_words(self._selection, choice)
            marks = self._step_marks(choice)
            line = "".join(f"{mark} " for mark, _ in marks) + label
            inner = _box(x, 0, width, _LOWER, name)
            if width > _label_width(line, words):
                inner += label_in(x, 2, width, 20, line, "data", name)
                inner += label_in(x, 22, width, 20, words, name)
                words = ""
            if marks or words:
                told = " and ".join(meaning for _, meaning in marks)
                named = f"{cut(line, 40)} {words}" if words else "".join(mark for mark, _ in marks)
                callout = f"{named}{': ' if told else ''}{told}"
                self._callouts.append(_Callout(x + width / 2, callout, name, p + 2 * bool(marks)))
            title = f"‹{label}›, step by step {step_words(self._selection, choice)}"
            shapes.append(Shape("g", {}, "", (*titles(title), *inner)))
            x += width
        if words := self._rest_words():
            left = _LEFT + _BAR - x
            shapes += [rect(x, 0, left, _LOWER, "band"), *label_in(x, 10, left, 22, words, "soft")]
        return shapes

    def _rest_words(self) -> str:
        """Return what is right of the choices in the lower row; "" if nothing is."""
        p = 1 - math.fsum(p for _, p in self._strip.steps)
        if not p * _BAR > 0.5:
            return ""
        kinds = {piece.kind: piece for piece in self._strip.rest}
        others = [count(kinds["more"].n, "more choice")] if "more" in kinds else []
        if "more" in kinds and "open" not in kinds:
            return f"{others[0]} {percent(p, self._tolerance)}"
        at_most = percent(p, self._tolerance).removeprefix("< ")
        return f"{' and '.join([*others, 'others not evaluated' if others else 'not evaluated'])}, at most {at_most}"

    def _draw_unknown(self) -> list[Shape]:
        """Return the lower row if its widths are not known."""
        why = "rows that it depends on were not read in full"
        why = why if self._selection.grammar is None else "the texts of a grammar were searched, not listed"
        return [rect(_LEFT, 0, _BAR, _LOWER, "band"), *label_in(_LEFT, 10, _BAR, 22, f"not known: {why}", "soft")]

    def _step_marks(self, choice: int) -> list[tuple[str, str]]:
        """Return the marks of a choice in the lower row, and what they mean."""
        greedy = self._selection.greedy_index
        is_greedy = greedy is not None and self._path_of[choice] == self._path_of[greedy]
        is_sampled = self._sampled is not None and self._path_of[choice] == self._path_of[self._sampled]
        marks = [("~", "masked greedy decoding picks it")] if is_greedy else []
        return marks + ([("◆", "masked sampling draws it most often")] if is_sampled else [])

    def _percent(self, piece: Piece) -> str:
        """Return the probability of a piece as text."""
        return _percent(piece, self._tolerance)

    def _describe(self) -> tuple[Item, ...]:
        """Return the outline: both rows."""
        whole = tuple(map(self._describe_piece, self._strip.pieces))
        steps = tuple(
            Item(
                f"‹{show_text(self._selection.choices.texts[choice])}›",
                (
                    (
                        "step by step",
                        None if math.isnan(p) else p,
                        "not known" if math.isnan(p) else step_words(self._selection, choice),
                    ),
                ),
                tuple(meaning for _, meaning in self._step_marks(choice)),
            )
            for choice, p in self._strip.steps
        )
        rest = tuple(Item(words) for words in (self._rest_words(),) if words and steps)
        rows = (Item("Whole texts", children=whole), Item("Step by step", children=steps + rest))
        agreement = agreement_sentence(self._selection)
        return (*rows, Item(agreement)) if agreement else rows

    def _describe_piece(self, piece: Piece) -> Item:
        """Return the outline of a piece."""
        inside = tuple(map(self._describe_piece, piece.inside))
        value = piece.low if piece.low == piece.high else None
        numbers = (("of everything", value, self._percent(piece)),)
        if piece.kind == "choice" and piece.choice is not None:
            marks = ("winner",) if self._name(piece.choice) == "win" else ()
            marks = ("shares the first place",) if is_tied(self._selection, piece.choice) else marks
            return Item(f"‹{show_text(self._selection.choices.texts[piece.choice])}›", numbers, marks, None, inside)
        if piece.kind == "more":
            return Item(count(piece.n, "more choice"), numbers)
        if piece.kind == "open":
            return Item("not evaluated", numbers)
        examples = tuple(
            Item(f"for example ‹{show_text(words)}…›", (("of everything", p, percent(p, self._tolerance)),))
            for words, p in piece.examples
        )
        label = "begins differently" if piece.low == piece.high else "anything else"
        label = f"goes on differently after ‹{show_bytes(piece.after)}›" if piece.after else label
        return Item(label, numbers, (), None, examples)


def _brief(piece: Piece, words: str) -> str:
    """Return the label beside the bar of a piece that is no choice."""
    after = f" after ‹{show_bytes(piece.after)}›" if piece.after else ""
    names = {"open": "not evaluated,", "more": count(piece.n, "more choice")}
    return f"{names.get(piece.kind, f'different{after}')} {words}"


def _label_width(label: str, words: str) -> float:
    """Return the least width of a box for a label, which may be cut, and a number."""
    return max(min(cells_of(label) * CELL, _CUT_LABEL), cells_of(words) * LABEL_CELL) + 12


def _percent(piece: Piece, tolerance: float) -> str:
    """Return the probability of a piece as text."""
    if piece.kind == "open":
        return f"at most {percent(piece.high, tolerance).removeprefix('< ')}"
    return percent_between(piece.low, piece.high, tolerance)


def _lines_of(piece: Piece, width: float, tolerance: float) -> list[list[tuple[str, bool]]]:
    """Return what may be written in a piece that is no choice, the longest first.

    Each is a list of lines; True marks the text of a model, which may be cut. Of two
    examples, the second one is left out if it does not fit.
    """
    words = _percent(piece, tolerance)
    if piece.kind == "open":
        return [[("not evaluated,", False), (words, False)]]
    if piece.kind == "more":
        return [[(count(piece.n, "more choice"), False), (words, False)]]
    examples = [f"{show_text(one)}… {percent(p, tolerance)}" for one, p in piece.examples]
    example = [(f"e.g. {', '.join(examples)}", True)] if examples else []
    if len(examples) > 1 and cells_of(example[0][0]) * CELL > width - 20:
        example = [(f"e.g. {examples[0]}", True)]
    if piece.low < piece.high:
        return [[("anything else", False), (words, False), *example]]
    if not piece.after:
        return [[("begins differently", False), (words, False), *example], [("different", False), (words, False)]]
    after = f"after ‹{show_bytes(piece.after)}›"
    return [
        [("goes on differently", False), (f"{after} {words}", False), *example],
        [("different", False), (after, False), (words, False)],
    ]


def _fits(lines: Sequence[tuple[str, bool]], width: float) -> bool:
    """Return whether lines fit a width; of a model's text a part is enough."""
    return all(width > min(cells_of(words), 11 if is_data else 1e9) * LABEL_CELL + 14 for words, is_data in lines)


def _box(x: float, y: float, width: float, height: float, name: str) -> list[Shape]:
    """Return the box of a choice; a narrow one is solid and has no outline."""
    if width < _NARROW:
        return [rect(x, y, max(width, 0.6), height, "bar", name)]
    return [rect(x + 0.5, y + 0.5, width - 1, height - 1, "box", name and f"{name} sel-solid")]


def _plate(x: float, y: float, width: float, words: str, *, is_data: bool) -> list[Shape]:
    """Return a text on a plain ground, so that hatching does not cross it."""
    return [
        rect(x, y, width, 18, "plate", radius=3),
        *label_in(x, y, width + 4, 18, words, *(["data"] if is_data else [])),
    ]


def _heading(y: float, head: str, *lines: str) -> list[Shape]:
    """Return the name of a row, left of it."""
    rest = [text(12, y + 16 * (at + 1), line, "small", "soft") for at, line in enumerate(lines)]
    return [text(12, y, head, "strong"), *rest]


def _place_callouts(callouts: Sequence[_Callout]) -> tuple[list[Shape], int]:
    """Return labels below a bar at height 0, without collisions, and their lanes.

    They are placed from right to left, so that no line crosses a label. The ones with
    the least weight are left out if there is no room.
    """
    kept = sorted(callouts, key=lambda one: -one.weight)[:8]
    while True:
        lanes = _find_lanes(sorted(kept, key=lambda one: -one.x))
        if lanes is not None:
            break
        kept.pop()
    shapes: list[Shape] = []
    for one, lane, left in lanes:
        y = (lane + 1) * _LANE
        foot = y - 5 if left > one.x else y - 13  # above a text that was moved to the left
        shapes.append(path(f"M{write(one.x)} 0V{write(foot)}", "line", one.name if one.name != "soft" else ""))
        shapes.append(text(left, y, one.words, "small", one.name))
    return shapes, max((lane + 1 for _, lane, _ in lanes), default=0)


def _find_lanes(callouts: Sequence[_Callout]) -> list[tuple[_Callout, int, float]] | None:
    """Return each callout with its lane and its left end; None if one does not fit."""
    taken: list[list[tuple[float, float]]] = [[] for _ in range(_MAX_LANES)]
    placed = []
    for one in callouts:
        length = cells_of(one.words) * LABEL_CELL
        left = max(4.0, min(one.x + 4, WIDTH - 8 - length))
        for lane in range(_MAX_LANES):
            is_free = all(right < left - 8 or start > left + length + 8 for start, right in taken[lane])
            crosses = any(start - 3 < one.x < right + 3 for row in taken[:lane] for start, right in row)
            if is_free and not crosses:
                taken[lane].append((min(left, one.x), left + length))
                placed.append((one, lane, left))
                break
        else:
            return None
    return placed


def _moved(shapes: Sequence[Shape], y: float, *, turn: bool = False) -> list[Shape]:
    """Return shapes moved down by `y`; with `turn`, what was below 0 is above."""
    if not shapes:
        return []
    if not turn:
        return [Shape("g", {"transform": f"translate(0 {write(y)})"}, "", tuple(shapes))]
    turned = []
    for one in shapes:
        if one.tag == "text":
            turned.append(
                Shape(
                    "text", {**one.attributes, "y": write(y - float(one.attributes["y"]) + 8)}, one.text, one.children
                )
            )
        else:
            x, _, down = one.attributes["d"].removeprefix("M").replace("V", " ").split(" ")
            turned.append(Shape("path", {**one.attributes, "d": f"M{x} {write(y)}V{write(y - float(down))}"}, one.text))
    return turned


def _wrap(sentence: str, cells: float) -> list[str]:
    """Return a sentence as lines of at most `cells` characters."""
    lines: list[str] = []
    for word in re.split(r" (?!%)", sentence) if sentence else []:
        if lines and cells_of(lines[-1]) + 1 + cells_of(word) <= cells:
            lines[-1] += f" {word}"
        else:
            lines.append(cut(word, cells))
    return lines
