"""Templates in requests: what bounds the work of a page before it is rendered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from selectrie.engine.rendering.renderer import MAX_SLOTS
from selectrie.errors import MAX_QUOTED, Amount, OptionError, TemplateError, clip
from selectrie.server.options import ServerOptions
from selectrie.server.transport.http_errors import errors_at
from selectrie.template.analysis.template import Template
from selectrie.template.syntax import ast
from selectrie.template.syntax.ast import error_at, walk_through

MAX_TEMPLATE = 100_000
"""Maximum number of characters of a template, which takes a second to read."""
MAX_PATTERNS = 16
"""Maximum number of regular expressions and grammars that a template names."""
MAX_SEGMENTS = 20_000
"""Maximum number of segments of a page, which take seconds without a model."""
MAX_WIDTH = 256
"""Maximum width of a beam or a search, whose steps cannot be cancelled."""


@contextmanager
def template_errors() -> Iterator[None]:
    """Turn a template's errors in the `with` block into an `HttpError` about it.

    The message shows line and column without the source's line.
    """
    try:
        yield
    except TemplateError as error:
        with errors_at("template"):
            raise TemplateError(error.reason, line=error.line, column=error.column) from error


def check_values(values: Mapping[str, Any], options: ServerOptions) -> None:
    """Raise `OptionError` for a list or an object with too many items."""
    rest: list[tuple[str, Any]] = [(f"values.{clip(name, MAX_QUOTED)}", value) for name, value in values.items()]
    while rest:
        path, value = rest.pop()
        if not isinstance(value, list | dict):
            continue
        if len(value) > options.max_options_in_all:
            raise OptionError(path, Amount(f"{len(value)} items"), f"at most {options.max_options_in_all} items")
        items = value.values() if isinstance(value, dict) else value
        rest += [(f"{path}[{at}]", one) for at, one in enumerate(items)]


def read_template(text: str, dialect: str, options: ServerOptions) -> Template:
    """Return a template whose patterns and widths are written in its own text.

    Values could bring any number of them, so the work would have no bound.

    Raises:
        HttpError: If the template is wrong, or needs more than a request may.
    """
    with template_errors():
        template = Template(text, dialect=dialect)
        n_patterns = 0
        for segment in walk_through(template.document.body, template.documents):
            if not isinstance(segment, ast.Slot | ast.Joint | ast.GenEach):
                continue
            given = dict(segment.arguments)
            n_patterns += len({"regex", "grammar"} & given.keys())
            if isinstance(segment, ast.GenEach):
                reason = _excess_of_rounds(given)
            else:
                reason = _find_excess(segment, given, options)
            if n_patterns > MAX_PATTERNS:
                reason = f"more than {MAX_PATTERNS} slots have a grammar or a regular expression"
            if reason:
                raise error_at(template.document, segment.span, reason)
    return template


def _excess_of_rounds(given: Mapping[str, ast.Expression]) -> str:
    """Return why a loop would generate more than a page may have; "" if not."""
    numbers = [one.value for name, one in given.items() if name in ("num", "min") and isinstance(one, ast.Constant)]
    n_rounds = max((number for number in numbers if isinstance(number, int)), default=0)
    return f"{n_rounds} rounds: expected at most {MAX_SLOTS}" if n_rounds > MAX_SLOTS else ""


def _find_excess(segment: ast.Slot | ast.Joint, given: Mapping[str, ast.Expression], options: ServerOptions) -> str:
    """Return why the arguments of a tag need too much or unknown work; "" if not."""
    if not isinstance(given.get("regex", ast.Constant("")), ast.Constant):
        return "over HTTP, a regular expression is written in the template itself"
    limits = {"n": options.max_n, "width": MAX_WIDTH}
    if isinstance(segment, ast.Joint) or segment.kind == "beam":
        limits["k"] = options.max_n
    for name, most in limits.items():
        number = given.get(name, ast.Constant(None))
        if not isinstance(number, ast.Constant) or (isinstance(number.value, int) and number.value > most):
            return f"over HTTP, `{name}` is a number from 1 to {most} in the template itself"
    return ""
