"""Detects a template that is read in the wrong dialect.

Its tags would appear on the page as text.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator

from selectrie.errors import clip
from selectrie.template.syntax.ast import Document, Span
from selectrie.template.syntax.dialects import SELECTRIE, Dialect
from selectrie.template.syntax.handlebars import HANDLEBARS
from selectrie.template.syntax.source_positions import error_at
from selectrie.template.syntax.tags import TAGS

_REMEDY = {
    "selectrie": "use dialect='handlebars': --handlebars, or a file name that ends in .hbs",
    "handlebars": "use dialect='selectrie': no --handlebars, and no file name that ends in .hbs or .handlebars",
}
_MARKUP = {
    "Jinja": re.compile(r"\{\{[^{}]{1,200}\}\}|\{%[^{}]{1,200}%\}"),
    "an f-string": re.compile(r"(?<![\w{$)\\])\{[a-z_]\w{0,60}\}(?!\})"),
    "LMQL": re.compile(r"\[[A-Z][A-Z_]{0,60}\](?=[\"']?\s{0,200}where\b)"),
}
"""What markup of other languages looks like, in templates of this one."""
_BLOCKS = "|".join(kind for kind, tag in TAGS.items() if tag.block)


def refuse_foreign(document: Document, names: Container[str] | None = None) -> None:
    """Raise `TemplateError` if a template only has tags of the other dialect.

    A slot or a block of that dialect counts as a tag. The output of a value counts only
    if its name is in `names`.
    """
    own, other = (SELECTRIE, HANDLEBARS) if document.dialect == "selectrie" else (HANDLEBARS, SELECTRIE)
    if own.opens in document.source:
        return
    for match in _tags(document.source, other):
        name = match["name"]
        if name is None or (names is not None and name in names):
            shown, tag = clip(match[0], 40), own.tag(" ")
            reason = f"{shown} is text here: tags are written {tag}, and the template has none"
            raise error_at(document, Span(*match.span()), f"{reason}; {_REMEDY[document.dialect]}")


def foreign_notes(document: Document) -> tuple[str, ...]:
    """Return a sentence on each other language whose markup seems to be in a template.

    It is text on the page, and may be meant as such.
    """
    if document.dialect != "selectrie":
        return ()
    found = {name: pattern.search(document.source) for name, pattern in _MARKUP.items()}
    return tuple(
        f"{clip(match[0], 40)!r} in {document.name} is text on the page, and looks like {name}; tags here are <<…>>"
        for name, match in found.items()
        if match
    )


def _tags(source: str, dialect: Dialect) -> Iterator[re.Match[str]]:
    """Yield matches of text that looks like a tag of a dialect.

    That is a slot, the beginning of a block, or the output of a value (group `name`).
    """
    opens, closes = re.escape(dialect.opens), re.escape(dialect.closes)
    inside = f"[^{re.escape(dialect.opens[0] + dialect.closes[0])}]{{0,400}}"
    slot, block = rf"(?:select|gen|beam)[ \t]+['\"]{inside}", rf"#(?:{_BLOCKS})\b{inside}"
    value = r"(?P<name>[^\W\d]\w{0,100})(?:[ \t.\[][\w.\[\] \t]{0,400})?"
    return re.finditer(rf"{opens}~?[ \t]*(?:{slot}|{block}|{value})~?{closes}", source)
