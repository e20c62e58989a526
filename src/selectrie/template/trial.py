"""Rendering without a model: everything is evaluated that no slot has a say in."""

from __future__ import annotations

from collections.abc import Mapping

from selectrie.template.segments import Document
from selectrie.template.sources import Sources


def try_values(
    document: Document, documents: Mapping[str, Document], sources: Sources, values: Mapping[str, object]
) -> None:
    """Raise the first `TemplateError` that rendering with these values is certain to end in, or may by what a slot decides."""
