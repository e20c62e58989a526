"""Which names a stretch of a template gives values to."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.template.expressions import Constant
from selectrie.template.segments import Block, Body, Each, GenEach, If, Include, Joint, Role, Segment, Set, Slot
from selectrie.template.template import Template


@dataclass(frozen=True, slots=True)
class Names:
    """slots: of slots and `geneach` lists. texts: of named blocks and of `logprobs=`. sets: of `set` tags. Each name once, in the
    order of the page; what `this` names belongs to a loop and is not among them."""

    slots: tuple[str, ...]
    texts: tuple[str, ...]
    sets: tuple[str, ...]

    @property
    def decided(self) -> tuple[str, ...]:
        """Those that a loop collects."""
        return tuple(dict.fromkeys((*self.slots, *self.texts)))


def names_in(body: Body, template: Template) -> Names:
    """The names of a body, of blocks and included files in it too."""
    slots: dict[str, None] = {}
    texts: dict[str, None] = {}
    sets: dict[str, None] = {}
    pending: list[Segment] = [*reversed(body)]
    while pending:
        segment = pending.pop()
        pending.extend(reversed(_within(segment, template)))
        if isinstance(segment, Slot | GenEach):
            slots[segment.name] = None
        if isinstance(segment, Slot):
            logprobs = dict(segment.arguments).get("logprobs")
            if isinstance(logprobs, Constant) and isinstance(logprobs.value, str):
                texts[logprobs.value] = None
        elif isinstance(segment, Block) and segment.name is not None:
            texts[segment.name] = None
        elif isinstance(segment, Set):
            sets[segment.name] = None
    return Names(_of_page(slots), _of_page(texts), tuple(sets))


def has_roles(template: Template) -> bool:
    """May the page have turns of a chat?"""
    pending: list[Segment] = [*template.document.body]
    while pending:
        segment = pending.pop()
        if isinstance(segment, Role):
            return True
        pending.extend(_within(segment, template))
    return False


def _within(segment: Segment, template: Template) -> Body:
    if isinstance(segment, If):
        return (*(one for _, body in segment.branches for one in body), *segment.otherwise)
    if isinstance(segment, Each | GenEach | Block | Joint | Role):
        return segment.body
    return template.included(segment).body if isinstance(segment, Include) else ()


def _of_page(names: dict[str, None]) -> tuple[str, ...]:
    return tuple(name for name in names if name.partition(".")[0] != "this")
