"""Draws drawings with matplotlib (extra `plot`), to be saved as PNG or PDF.

The styles are those of `drawing.css`, in its light colours. Only what drawings use of
SVG and of CSS is understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from selectrie.errors import MissingExtraError, OptionError
from selectrie.options.checks import one_of
from selectrie.results.drawing.shapes import Drawing, Shape, style

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_DPI = 100
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_COMMAND = re.compile(r"([MLHVhvZ])|(-?\d+(?:\.\d+)?)")
_ALIGNMENTS: dict[str, Literal["left", "center", "right"]] = {"start": "left", "middle": "center", "end": "right"}
_SANS, _MONO = ["DejaVu Sans", "sans-serif"], ["DejaVu Sans Mono", "monospace"]


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule of the style sheet.

    Attributes:
        tag: The tag of the shapes that it is about; "" for any.
        classes: Classes that these have, all of them.
        sets: What it sets, by property.
    """

    tag: str
    classes: frozenset[str]
    sets: dict[str, str]

    def applies(self, tag: str, names: frozenset[str]) -> bool:
        return self.tag in ("", tag) and self.classes <= names


@lru_cache(1)
def _rules() -> list[_Rule]:
    """Return the rules of the light style sheet, the more specific ones last."""
    sheet = re.sub(r"/\*.*?\*/", "", style(), flags=re.DOTALL).partition("@media")[0]
    colours: dict[str, str] = {}
    rules = []
    for heads, body in _RULE.findall(sheet):
        sets = dict(part.strip().split(":", 1) for part in body.split(";") if part.strip())
        sets = {name: value.strip() for name, value in sets.items()}
        if heads.strip() == ".sel":
            colours = {f"var({name})": value for name, value in sets.items() if name.startswith("--")}
            continue
        for head in heads.split(","):
            resolved: dict[str, str] = {name: colours.get(one) or one for name, one in sets.items()}
            tag, *classes = head.strip().removeprefix(".sel ").split(".")
            rules.append(_Rule(tag, frozenset(classes), resolved))
    return sorted(rules, key=lambda rule: 10 * len(rule.classes) + bool(rule.tag))


def _style_of(shape: Shape) -> dict[str, str]:
    """Return what the style sheet and the shape's own attributes set."""
    names = frozenset(shape.attributes.get("class", "").split())
    found: dict[str, str] = {}
    for rule in _rules():
        if rule.applies(shape.tag, names):
            found |= rule.sets
    return found | {name: value for name, value in shape.attributes.items() if name.startswith("stroke")}


def plot(drawing: Drawing, ax: Axes | None = None) -> Axes:
    """Draw a drawing with matplotlib and return the axes; `ax.figure.savefig` saves it.

    Args:
        drawing: The drawing.
        ax: Axes to draw into, to which texts and lines are scaled. None makes a figure
            of the drawing's own size, which pyplot does not keep.

    Raises:
        OptionError: If `ax` is neither None nor axes of matplotlib.
        MissingExtraError: If the extra `plot` is not installed.
    """
    try:
        import matplotlib.axes
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtraError("a plot", "plot") from error
    if ax is None:
        figure = Figure(figsize=(drawing.width / _DPI, drawing.height / _DPI), dpi=_DPI)
        ax = figure.add_axes((0, 0, 1, 1))
    elif not isinstance(ax, matplotlib.axes.Axes):
        raise OptionError("ax", ax, "axes of matplotlib, or None")
    box = ax.get_window_extent()
    pixel = min(box.width / drawing.width, box.height / drawing.height) * 72 / ax.figure.dpi
    ax.set_xlim(0, drawing.width)
    ax.set_ylim(drawing.height, 0)
    ax.set_aspect("equal")
    ax.set_axis_off()
    painter = _Painter(ax, pixel)
    for shape in drawing.shapes:
        painter.add(shape)
    return ax


def plot_picture(
    picture: str, names: tuple[str, ...], draw: Callable[[str], Drawing | None], ax: Axes | None = None
) -> Axes:
    """Draw one of several pictures with matplotlib, by its name.

    Args:
        picture: The name.
        names: The names of all pictures.
        draw: Returns a picture, or None if there is nothing to draw.
        ax: As for `plot`.

    Raises:
        OptionError: For another picture, or one of which there is nothing to draw.
        MissingExtraError: As for `plot`.
    """
    one_of("picture", picture, names)
    drawing = draw(picture)
    if drawing is None:
        others = ", ".join(repr(name) for name in names if draw(name) is not None)
        allowed = f"one of {others} for this result" if others else "a result with choices or accuracies"
        raise OptionError("picture", picture, allowed)
    return plot(drawing, ax)


def _points_of(data: str) -> tuple[list[tuple[float, float]], list[Any]]:
    """Return the points and codes of matplotlib for the commands `M L H V h v Z`."""
    from matplotlib.path import Path

    points: list[tuple[float, float]] = []
    codes: list[Any] = []
    command, numbers = "", list[float]()
    for name, number in _COMMAND.findall(data):
        if name == "Z":
            points.append(points[-1])
            codes.append(Path.CLOSEPOLY)
        if name:
            command, numbers = name, []
            continue
        numbers.append(float(number))
        if len(numbers) < (2 if command in "ML" else 1):
            continue
        last = points[-1] if points else (0.0, 0.0)
        along = {"H": (numbers[0], last[1]), "V": (last[0], numbers[0])}
        along |= {"h": (last[0] + numbers[0], last[1]), "v": (last[0], last[1] + numbers[0])}
        points.append(along[command] if command in along else (numbers[0], numbers[1]))
        codes.append(Path.MOVETO if command == "M" else Path.LINETO)
        command, numbers = "L" if command == "M" else command, []
    return points, codes


class _Painter:
    """Adds shapes to axes.

    Args:
        ax: The axes, whose units are the pixels of a drawing.
        pixel: Size of such a pixel in points.
    """

    def __init__(self, ax: Axes, pixel: float) -> None:
        self._ax, self._pixel = ax, pixel
        self._makers = {"rect": self._rect, "circle": self._circle, "text": self._text, "path": self._path}

    def add(self, shape: Shape, x: float = 0.0, y: float = 0.0, box: Any = None) -> None:
        """Add a shape, moved by (x, y) and cut at a patch `box`, unless None."""
        from matplotlib.patches import Rectangle

        at = shape.attributes
        if shape.tag in self._makers:
            artist = self._ax.add_artist(self._makers[shape.tag](shape, x, y, _style_of(shape)))
            if box is not None:
                artist.set_clip_path(box)
                artist.set_clip_on(True)
            return
        if shape.tag == "svg":
            x, y = x + float(at["x"]), y + float(at["y"])
            box = Rectangle((x, y), float(at["width"]), float(at["height"]), transform=self._ax.transData)
        elif shape.tag == "g" and (moved := re.match(r"translate\((\S+) (\S+)\)", at.get("transform", ""))):
            x, y = x + float(moved[1]), y + float(moved[2])
        for child in shape.children:
            self.add(child, x, y, box)

    def _look(self, sets: dict[str, str]) -> dict[str, Any]:
        """Return the colours and lines of a style as arguments of a patch."""
        fill, stroke = sets.get("fill", "#000000"), sets.get("stroke", "none")
        dashes = [float(one) * self._pixel for one in sets.get("stroke-dasharray", "none").split() if one != "none"]
        return {
            "facecolor": "none" if fill == "none" or sets.get("fill-opacity") == "0" else fill,
            "edgecolor": stroke,
            "linewidth": float(sets.get("stroke-width", "1")) * self._pixel if stroke != "none" else 0,
            "linestyle": (0, tuple(dashes)) if dashes else "solid",
            "alpha": float(sets.get("fill-opacity", sets.get("opacity", "1"))) or 1.0,
        }

    def _rect(self, shape: Shape, x: float, y: float, sets: dict[str, str]) -> Artist:
        from matplotlib.patches import FancyBboxPatch, Rectangle

        left, top, width, height = (float(shape.attributes[name]) for name in ("x", "y", "width", "height"))
        radius = min(float(shape.attributes.get("rx", "0")), width / 2, height / 2)
        if not radius:
            return Rectangle((x + left, y + top), width, height, **self._look(sets))
        rounded = f"round,pad=0,rounding_size={radius}"
        return FancyBboxPatch((x + left, y + top), width, height, boxstyle=rounded, **self._look(sets))

    def _circle(self, shape: Shape, x: float, y: float, sets: dict[str, str]) -> Artist:
        from matplotlib.patches import Circle

        centre_x, centre_y, radius = (float(shape.attributes[name]) for name in ("cx", "cy", "r"))
        return Circle((x + centre_x, y + centre_y), radius, **self._look(sets))

    def _text(self, shape: Shape, x: float, y: float, sets: dict[str, str]) -> Artist:
        from matplotlib.text import Text

        words = shape.text + "".join(one.text for one in shape.children if one.tag == "tspan")
        size = re.search(r"([\d.]+)px", sets.get("font-size", sets.get("font", "13px")))
        return Text(
            x + float(shape.attributes["x"]),
            y + float(shape.attributes["y"]),
            words,
            color=sets.get("fill", "#000000"),
            fontsize=float(size[1] if size else 13) * self._pixel,
            fontfamily=_MONO if "mono" in sets.get("font", "") else _SANS,
            fontweight="bold" if sets.get("font-weight") == "700" else "normal",
            horizontalalignment=_ALIGNMENTS[sets.get("text-anchor", "start")],
            verticalalignment="baseline",
            parse_math=False,
        )

    def _path(self, shape: Shape, x: float, y: float, sets: dict[str, str]) -> Artist:
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        points, codes = _points_of(shape.attributes["d"])
        moved = [(x + a, y + b) for a, b in points]
        return PathPatch(Path(moved or [(x, y)], codes or [Path.MOVETO]), **self._look(sets))
