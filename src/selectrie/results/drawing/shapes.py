"""Defines drawings: shapes for the eye, and the same content as an outline of items.

A drawing has classes, and neither scripts nor styles, so that notebooks, reports
and the server's page show the same elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from html import escape
from pathlib import Path

from selectrie.core.notation import cells_of, cut
from selectrie.results.plain import number

CELL = 7.6
"""Upper estimate of the width in pixels of a character in the font of data texts."""
LABEL_CELL = 7.0
"""Upper estimate of the mean width in pixels of a character in the font of labels."""
_HATCH_STEP = 6.0
_LEAST_HATCHED = 1e-4
"""Least distance of bounds that have a hatched part between them."""


@dataclass(frozen=True, slots=True)
class Shape:
    """An element of SVG.

    Attributes:
        tag: Name of the element.
        attributes: Its attributes by name.
        text: Its text, before its children.
        children: Elements inside.
    """

    tag: str
    attributes: Mapping[str, str]
    text: str = ""
    children: tuple[Shape, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON."""
        children = [one.to_dict() for one in self.children]
        return {"tag": self.tag, "attributes": dict(self.attributes), "text": self.text, "children": children}


@dataclass(frozen=True, slots=True)
class Item:
    """A part of a drawing in words, for keyboards and screen readers.

    Attributes:
        label: What is shown.
        numbers: Triples of a name, the number with all digits (None if not known), and
            the number as text.
        marks: What marks in the drawing say, in words.
        node: Number of the node that may be folded, or None.
        children: Parts of this part.
    """

    label: str
    numbers: tuple[tuple[str, float | None, str], ...] = ()
    marks: tuple[str, ...] = ()
    node: int | None = None
    children: tuple[Item, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON."""
        return {
            "label": self.label,
            "numbers": [{"name": name, "value": number(value), "text": text} for name, value, text in self.numbers],
            "marks": list(self.marks),
            "node": self.node,
            "children": [one.to_dict() for one in self.children],
        }

    @property
    def words(self) -> str:
        """Return the item itself, without its children, as a line of text."""
        return ", ".join([self.label, *(f"{name} {text}" for name, _, text in self.numbers), *self.marks])


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing of a result.

    Attributes:
        width, height: Size in pixels.
        title: What is drawn, as a sentence.
        shapes: What is seen.
        outline: The same in words.
    """

    width: float
    height: float
    title: str
    shapes: tuple[Shape, ...]
    outline: tuple[Item, ...] = field(default=())

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON."""
        return {
            "width": self.width,
            "height": self.height,
            "title": self.title,
            "shapes": [one.to_dict() for one in self.shapes],
            "outline": [one.to_dict() for one in self.outline],
        }


@lru_cache(1)
def style() -> str:
    """Return the style sheet of all drawings."""
    return Path(__file__).with_name("drawing.css").read_text(encoding="utf-8")


def to_svg(drawing: Drawing, *, is_styled: bool = True) -> str:
    """Return a drawing as an SVG element, which brings its styles if `is_styled`."""
    size = f'width="{write(drawing.width)}" height="{write(drawing.height)}"'
    box = f'viewBox="0 0 {write(drawing.width)} {write(drawing.height)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="sel" {size} {box} aria-hidden="true">'
    sheet = f"<style>{style()}</style>" if is_styled else ""
    return f"{head}{sheet}{''.join(map(_to_element, drawing.shapes))}</svg>"


def to_file(drawing: Drawing) -> str:
    """Return a drawing as an SVG file, with its title and outline as a description."""
    described = "; ".join(one.words for one in drawing.outline)
    words = f"<title>{escape(drawing.title)}</title><desc>{escape(described)}</desc>"
    return to_svg(drawing).replace('aria-hidden="true">', f'role="img">{words}', 1) + "\n"


def _to_element(shape: Shape) -> str:
    """Return a shape as an element of SVG."""
    attributes = "".join(f' {name}="{escape(value)}"' for name, value in shape.attributes.items())
    inner = escape(shape.text, quote=False) + "".join(map(_to_element, shape.children))
    return f"<{shape.tag}{attributes}>{inner}</{shape.tag}>"


def to_html(drawing: Drawing, *, before: Iterable[str] = (), is_styled: bool = True) -> str:
    """Return a drawing for a page: sentences, the SVG, and its outline as a list.

    Args:
        drawing: The drawing.
        before: Sentences above the drawing.
        is_styled: Whether the SVG brings its styles; else the page has them.
    """
    lines = "".join(f"<div>{escape(one)}</div>" for one in before)
    outline = f"<details><summary>{escape(drawing.title)}</summary>{_to_list(drawing.outline)}</details>"
    return f"<div>{lines}{to_svg(drawing, is_styled=is_styled)}{outline if drawing.outline else ''}</div>"


def _to_list(items: Sequence[Item]) -> str:
    """Return items as a nested HTML list."""
    lines = (f"<li>{escape(one.words)}{_to_list(one.children) if one.children else ''}</li>" for one in items)
    return f"<ul>{''.join(lines)}</ul>"


def write(x: float) -> str:
    """Return a coordinate as text, with at most two decimals."""
    return f"{x:.2f}".rstrip("0").rstrip(".")


def classes(*names: str) -> str:
    """Return the class attribute for names without their prefix; "" is left out."""
    return " ".join(f"sel-{name}" for name in names if name)


def rect(x: float, y: float, width: float, height: float, *names: str, title: str = "", radius: float = 0) -> Shape:
    """Return a rectangle of classes `names`, with a title that shows on hover."""
    place = {"x": write(x), "y": write(y), "width": write(max(0.0, width)), "height": write(height)}
    rounded = {"rx": write(radius)} if radius else {}
    return Shape("rect", {**place, **rounded, "class": classes(*names)}, "", titles(title))


def titles(title: str) -> tuple[Shape, ...]:
    """Return the `title` element of a shape, which shows on hover; () for ""."""
    return (Shape("title", {}, title),) if title else ()


def text(x: float, y: float, words: str, *names: str, title: str = "") -> Shape:
    """Return a text whose base line begins at (x, y)."""
    place = {"x": write(x), "y": write(y), "class": classes(*names)}
    return Shape("text", place, words, titles(title))


def path(data: str, *names: str, **attributes: str) -> Shape:
    """Return a path of SVG's path commands."""
    return Shape("path", {"d": data, "class": classes(*names), **attributes})


def line(x1: float, y1: float, x2: float, y2: float, *names: str) -> Shape:
    """Return a line from (x1, y1) to (x2, y2)."""
    return path(f"M{write(x1)} {write(y1)}L{write(x2)} {write(y2)}", "line", *names)


def dot(x: float, y: float, radius: float, *names: str) -> Shape:
    """Return a dot around (x, y)."""
    place = {"cx": write(x), "cy": write(y), "r": write(radius)}
    return Shape("circle", {**place, "class": classes("dot", *names)})


def group(item: Item, *shapes: Shape) -> Shape:
    """Return shapes that show on hover what the outline says of them."""
    return Shape("g", {}, "", (*titles(item.words), *shapes))


def hatch(x: float, y: float, width: float, height: float, *names: str) -> Shape:
    """Return diagonal lines that fill a rectangle and do not leave it."""
    parts, start = [], x - height + _HATCH_STEP / 2
    while start < x + width:
        low, high = max(start, x), min(start + height, x + width)
        if high > low:  # a line that rises to the right
            foot, top = y + height + start - low, y + height + start - high
            parts.append(f"M{write(low)} {write(foot)}L{write(high)} {write(top)}")
        start += _HATCH_STEP
    return path("".join(parts), "hatch", *names)


def bounded_bar(low: float, high: float, box: tuple[float, float, float, float], *names: str) -> list[Shape]:
    """Return a bar that is solid up to its lower bound and hatched up to its upper one.

    Args:
        low, high: Bounds on a number between 0 and 1.
        box: Left, top, width and height of the ground, which stands for 1.
        names: Classes of the bar.
    """
    low, high = max(0.0, low), min(1.0, high)
    x, y, width, height = box
    solid = max(width * low, 1.0 if low > 0 else 0.0)
    shapes = [rect(x, y, width, height, "band"), rect(x, y, solid, height, "bar", *names)]
    if high - low > _LEAST_HATCHED:
        shapes.append(hatch(x + width * low, y, width * (high - low), height, *names))
    return shapes


def clipped(x: float, y: float, width: float, height: float, *shapes: Shape) -> Shape:
    """Return shapes that are cut at a box; their coordinates are relative to it."""
    place = {"x": write(x), "y": write(y), "width": write(max(0.0, width)), "height": write(height)}
    return Shape("svg", place, "", shapes)


def label_in(x: float, y: float, width: float, height: float, words: str, *names: str) -> tuple[Shape, ...]:
    """Return a text inside a box, cut to its width; () if not three characters fit.

    The whole text is its title if it was cut.
    """
    cell = CELL if "data" in names else LABEL_CELL
    shown = cut(words, (width - 10) / cell)
    if not shown or (shown != words and cells_of(shown) < 3):
        return ()
    line = text(6, height / 2 + 4.5, shown, *names, title=words if shown != words else "")
    return (clipped(x, y, width, height, line),)
