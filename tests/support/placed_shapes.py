"""Where the shapes of a drawing are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from selectrie.results.drawing.shapes import Shape


class Box(NamedTuple):
    """Where a shape is in the drawing."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def middle(self) -> float:
        return (self.left + self.right) / 2


def boxes_in(shapes: Sequence[Shape], dx: float = 0.0, dy: float = 0.0) -> Iterator[tuple[set[str], Box]]:
    """The classes and the place of every rectangle, path and cut text."""
    for one in shapes:
        x, y = map(float, re.findall(r"[-\d.]+", one.attributes.get("transform", "0 0")))
        yield from boxes_in(one.children if one.tag == "g" else (), dx + x, dy + y)
        if one.tag in ("rect", "svg"):
            left, top, width, height = (float(one.attributes[name]) for name in ("x", "y", "width", "height"))
            points = [(left, top), (left + width, top + height)]
        elif one.tag == "path" and one.attributes["d"]:
            pairs = re.findall(r"[ML]([-\d.]+) ([-\d.]+)", one.attributes["d"])
            points = [(float(across), float(down)) for across, down in pairs]
            points += [(points[0][0], float(down)) for down in re.findall(r"V([-\d.]+)", one.attributes["d"])]
        else:
            continue
        across, down = zip(*points, strict=True)
        box = Box(min(across) + dx, min(down) + dy, max(across) + dx, max(down) + dy)
        yield set(one.attributes.get("class", "").split()), box
