"""Finds the tags of a template that read whole rows, which servers do not tell."""

from __future__ import annotations

from collections.abc import Callable

from selectrie.template.analysis.template import Template
from selectrie.template.syntax import ast
from selectrie.template.syntax.visitors import walk_through

_READ_ALL_SCORES = ("temperature", "logprobs")
"""Arguments of a select with which its exact scores are read, not only their order."""


def refuse_whole_rows(template: Template, refuse: Callable[[str], None]) -> None:
    """Call `refuse` with the first tag that may read whole rows or exact scores.

    Those are `gen`, which draws and heals the end of the page, `joint`, a `geneach`
    with `stop`, which compares a probability with 1/2, and a select with
    `temperature` or `logprobs`. Without these, a select compares its texts, and a beam
    searches them, as `Engine.select` and `Engine.beam_search` do.
    """
    for segment in walk_through(template.document.body, template.documents):
        if isinstance(segment, ast.Joint):
            refuse("a `joint` block")
        elif isinstance(segment, ast.GenEach) and "stop" in dict(segment.arguments):
            refuse(f"`geneach {segment.name!r}` with `stop`")
        elif isinstance(segment, ast.Slot) and segment.kind == "gen":
            refuse(f"`gen {segment.name!r}`")
        elif isinstance(segment, ast.Slot) and segment.kind == "select":
            for name, _ in segment.arguments:
                if name in _READ_ALL_SCORES:
                    refuse(f"`{name}` of `select {segment.name!r}`")
