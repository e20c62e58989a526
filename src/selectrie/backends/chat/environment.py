"""The Jinja sandbox in which chat templates run.

A chat template comes with the model file, so it is a foreign program. The sandbox keeps
it from the system, and the length of ranges, products and the rendered text is limited.
Time is not (`engine.chat_child` does that for untrusted files).

On request, text also records which characters come from the template's own source and
which from values (`core.tracked_text`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

from jinja2 import Template, TemplateNotFound, nodes, pass_environment
from jinja2.compiler import CodeGenerator, Frame
from jinja2.environment import Environment
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from selectrie.core.tracked_text import TEMPLATE, TrackedText, derive_origins, join_texts
from selectrie.errors import PromptError, remedies, words

MAX_CHARACTERS = 1 << 26
"""Maximum number of characters of a rendered chat, and of items of a product."""
MAX_BITS = 1 << 16
"""Maximum size of a power in bits."""


def tojson(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - templates may give it by position
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """Return a value as JSON without Jinja's escapes for HTML, as Transformers does."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class GenerationTags(Extension):
    """Parses `{% generation %}`, which marks an assistant's text and writes nothing."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=lineno)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox with the settings of Transformers' chat templates, and with limits."""

    intercepted_binops = frozenset(("*", "**"))

    def __init__(self, **settings: Any) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTags, loopcontrols], **settings)
        self.filters["tojson"] = tojson
        # `lipsum` makes text of any length, and never the same text twice.
        del self.globals["lipsum"]

    def concat(self, pieces: Iterable[str]) -> str:
        return "".join(_limit_length(pieces))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Return a product or power; raise `PromptError` if it would be too large."""
        for value, times in ((left, right), (right, left)):
            if isinstance(times, int) and hasattr(value, "__len__") and len(value) * times > MAX_CHARACTERS:
                raise _template_error(f"makes a product of more than {MAX_CHARACTERS} characters or items")
        is_whole = isinstance(left, int) and isinstance(right, int)
        if operator == "**" and is_whole and left.bit_length() * right > MAX_BITS:
            raise _template_error(f"makes a number of more than {MAX_BITS} bits")
        return super().call_binop(context, operator, left, right)

    def get_template(self, *_: Any, **__: Any) -> Template:
        """Raise `TemplateNotFound`, so `include` and similar tags find nothing."""
        raise TemplateNotFound(None, "a chat template has no other files")

    select_template = get_or_select_template = get_template


def _limit_length(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the pieces of a text; raise `PromptError` beyond `MAX_CHARACTERS`."""
    n_characters = 0
    for piece in pieces:
        n_characters += len(piece)
        if n_characters > MAX_CHARACTERS:
            raise _template_error(f"writes more than {MAX_CHARACTERS} characters")
        yield piece


def _template_error(reason: str) -> PromptError:
    """Return the error for a chat template that exceeds a limit."""
    way = remedies("render the chat yourself and give it as text with `parse_special`, or as token ids")
    return PromptError(words("the model's chat template is not rendered: it {}; {}", reason, way))


class _CodeGenerator(CodeGenerator):
    """A code generator whose code marks the template's own text (`literal`)."""

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:  # noqa: N802 - Jinja's name
        if isinstance(node.value, str):
            self.write(f"environment.literal({node.value!r})")
        else:
            super().visit_Const(node, frame)

    def _output_const_repr(self, group: Iterable[str]) -> str:
        return f"environment.literal({''.join(group)!r})"

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        """Return the text between tags as a constant.

        For anything else raises `Impossible`, so that it is computed while rendering.
        """
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        """Write a call of `tilde` for `a ~ b`; Jinja's own function loses origins."""
        self.write("environment.tilde((")
        for operand in node.nodes:
            self.visit(operand, frame)
            self.write(", ")
        self.write("))")


class TrackingEnvironment(ChatEnvironment):
    """A sandbox in which text of the template's source is `TrackedText`.

    Text that is derived from it keeps its origins.
    """

    code_generator_class = _CodeGenerator

    def __init__(self) -> None:
        super().__init__(finalize=_to_text, optimized=False)
        known = {**self.filters, "join": _join}
        self.filters = {
            name: _keep_origins(function) if function in KNOWN_FILTERS else function for name, function in known.items()
        }

    def literal(self, text: str) -> str:
        """Return text of the template's source, marked as such, for generated code."""
        return TrackedText(text, TEMPLATE)

    def tilde(self, values: Iterable[Any]) -> str:
        """Return the concatenated operands of `a ~ b`, for generated code."""
        return join_texts(map(_to_text, values))

    def concat(self, pieces: Iterable[str]) -> str:
        return join_texts(_limit_length(pieces))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return the sandbox's `str.format`, whose text keeps its origins.

        None if `value` is not such a method.
        """
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        template = value.__self__

        def format_with_origins(*args: Any, **kwargs: Any) -> str:
            return derive_origins(str.__str__(wrapped(*args, **kwargs)), [template, *args, *kwargs.values()])

        return format_with_origins


KNOWN_FILTERS = frozenset([*FILTERS.values(), tojson])
"""Filters whose text is a function of their arguments.

The text returned by any other filter or function has only the origins that it kept
itself.
"""


def _keep_origins(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter whose result, if it is text, has the arguments' origins."""
    n_own = 0 if getattr(function, "jinja_pass_arg", None) is None else 1

    @wraps(function)
    def call_with_origins(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return derive_origins(result, [*args[n_own:], *kwargs.values()]) if isinstance(result, str) else result

    return call_with_origins


@pass_environment
def _join(environment: Environment, value: Any, d: Any = "", attribute: str | int | None = None) -> str:
    """Join the items of `value` as the filter `join` does, but in Python.

    Jinja's own function joins in C.
    """
    items = value if attribute is None else map(make_attrgetter(environment, attribute), value)
    return join_texts(map(_to_text, items), _to_text(d))


def _to_text(value: Any) -> str:
    """Return `value` as text that keeps its origins."""
    return value if isinstance(value, str) else derive_origins(str(value), [value])
