"""The Jinja sandbox in which chat templates run, with a meter that limits their cost.

On request, text also records which characters come from the template's own source and
which from values (`core.tracked_text`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from copy import copy
from functools import wraps
from types import CodeType
from typing import Any

from jinja2 import BaseLoader, Template, TemplateNotFound, nodes, pass_environment
from jinja2.compiler import CodeGenerator, Frame
from jinja2.environment import Environment
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.nodes import EvalContext
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from selectrie.backends.chat import rules
from selectrie.backends.chat.meter import MAX_BITS, LimitError, Meter
from selectrie.core.tracked_text import TEMPLATE, TrackedText, derived, joined

MAX_SOURCE_LENGTH = 1 << 17
"""Maximum length of a template in characters."""
MAX_NODES = 20_000
"""Maximum size of a template's syntax tree; compiling is quadratic in places."""
MAX_NESTING = 48
"""Maximum depth of nested statements, for the same reason.

Python itself nests 20 loops and 100 blocks.
"""
_BODIES = ("body", "else_")
"""Fields of statements that hold other statements."""


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
    """`{% generation %}`, which marks what an assistant says and writes nothing."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=lineno)


def usual_environment() -> Environment:
    """Return an environment with the settings of Transformers' chat templates."""
    environment = ImmutableSandboxedEnvironment(
        loader=BaseLoader(), trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTags, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    return environment


KNOWN_FILTERS = frozenset([*FILTERS.values(), tojson])
"""Filters whose text is a function of their arguments.

The text returned by any other filter or function has only the origins that it kept
itself.
"""


class _CodeGenerator(CodeGenerator):
    """A code generator whose code charges a meter and marks text of the source."""

    _owed = 0

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        """Write the code of statements, which charges the meter each time."""
        statements = list(nodes)
        cost = 1 + self._owed + sum(map(_n_parts, statements))
        self._owed = 0
        self.writeline(f"environment.meter.tick({cost})")
        super().blockvisit(statements, frame)

    def macro_body(self, node: Any, frame: Frame) -> Any:
        """Write the body of a macro, whose defaults charge the meter as well."""
        self._owed = sum(map(_n_parts, node.defaults))
        return super().macro_body(node, frame)

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802 - Jinja's name
        if node.test is not None:
            paid = object.__new__(nodes.InternalName)
            nodes.Node.__init__(paid, f"environment.meter.tick({_n_parts(node.test)})", lineno=node.test.lineno)
            node.test = nodes.And(paid, node.test, lineno=node.test.lineno)
        super().visit_For(node, frame)

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:  # noqa: N802
        if isinstance(node.value, str):
            self.write(f"environment.literal({node.value!r})")
        else:
            super().visit_Const(node, frame)

    def _output_const_repr(self, group: Iterable[str]) -> str:
        return f"environment.literal({''.join(group)!r})"

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        """Turn only the text between tags into constants.

        Everything else is computed while rendering.
        """
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        """Write `a ~ b`, for which Jinja calls a function outside the environment."""
        is_markup = "context.eval_ctx.autoescape" if frame.eval_ctx.volatile else repr(bool(frame.eval_ctx.autoescape))
        self.write(f"environment.tilde(markup_join if {is_markup} else str_join, (")
        for operand in node.nodes:
            self.visit(operand, frame)
            self.write(", ")
        self.write("))")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:  # noqa: N802
        _guard(node.expr, "compared")
        for operand in node.ops:
            _guard(operand.expr, "compared")
        super().visit_Compare(node, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        if isinstance(node.arg, nodes.Slice):  # Jinja takes slices without the environment
            _guard(node.node, "passed_over")
        super().visit_Getitem(node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        for item in node.items:
            _guard(item.key, "hashed")
        super().visit_Dict(node, frame)

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        """Write the code of a node.

        If `_guard` named a method of the environment for the node (`compared`,
        `passed_over` or `hashed`), the code passes the value of the node to that
        method, which charges the meter for it.
        """
        guard = vars(node).pop(_GUARD, None)
        if guard is None:
            return super().visit(node, *args, **kwargs)
        self.write(f"environment.{guard}(")
        result = super().visit(node, *args, **kwargs)
        self.write(")")
        return result


_GUARD = "selectrie_guard"


def _guard(node: nodes.Expr, method: str) -> None:
    vars(node)[_GUARD] = method


def _n_parts(node: nodes.Node) -> int:
    """Return the number of parts of a statement or expression.

    Statements inside it are not counted, because they are charged separately.
    """
    n, waiting = 0, [node]
    while waiting:
        n += 1
        waiting += waiting.pop().iter_child_nodes(exclude=_BODIES)
    return n


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """A Jinja environment whose templates charge a meter for their work.

    Args:
        other: The environment from which settings, filters and tests are copied.
        tracks: Whether text from the template's source is `TrackedText`, and whether
            text that is derived from it keeps its origins.
    """

    code_generator_class = _CodeGenerator
    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)
    meter = Meter()

    def __init__(self, other: Environment, *, tracks: bool) -> None:
        super().__init__(
            loader=BaseLoader(),
            trim_blocks=other.trim_blocks,
            lstrip_blocks=other.lstrip_blocks,
            extensions=[type(extension) for extension in other.extensions.values()],
            finalize=_put_out,
            optimized=False,
        )
        self.tracks = tracks
        known = {**other.filters, "join": _join} if tracks else other.filters
        self.filters = {name: _filter(name, function, function in KNOWN_FILTERS) for name, function in known.items()}
        tests: dict[str, Any] = other.tests
        self.tests = {name: _test(name, function) for name, function in tests.items()}
        # `lipsum` makes text of any length, and never the same text twice.
        del self.globals["lipsum"]

    def compiled(self, source: str) -> CodeType:
        """Return the code of the template with this source.

        Raises `LimitError` if it is too large, and the errors of Jinja's compiler.
        """
        if len(source) > MAX_SOURCE_LENGTH:
            raise LimitError(f"it is longer than {MAX_SOURCE_LENGTH} characters")
        _check_tree(self.parse(source))
        return self.compile(source)

    def template(self, code: CodeType, meter: Meter) -> Template:
        """Return the template of `code`, whose renderings charge `meter`.

        `code` is the result of `compiled`. The template has an environment that no
        other has, so one rendering after the other may have another meter.
        """
        environment = copy(self)
        environment.meter = meter
        return self.template_class.from_code(environment, code, dict(environment.globals))

    # Methods that the generated code calls

    def literal(self, text: str) -> str:
        """Charge the meter for text of the template's source, and return the text.

        It is a `TrackedText` if the environment tracks origins.
        """
        self.meter.spend(len(text))
        return TrackedText(text, TEMPLATE) if self.tracks else text

    def concat(self, pieces: Iterable[str]) -> str:
        pieces = list(pieces)
        self.meter.expect(sum(map(len, pieces)))
        whole: str = self._paid(joined(pieces) if self.tracks else "".join(pieces))
        return whole

    def tilde(self, join: Callable[[Iterable[Any]], str], values: Iterable[Any]) -> str:
        """Return `a ~ b`, whose operands are `values`.

        `join` is Jinja's function that concatenates them.
        """
        self.meter.weigh(values)
        whole: str = self._paid(joined(map(_written, values)) if self.tracks else join(values))
        return whole

    def compared(self, value: Any) -> Any:
        """Charge the meter for comparing `value`, and return `value`."""
        if not isinstance(value, bool | int | float | None):
            self.meter.weigh(value)
        return value

    def passed_over(self, value: Any) -> Any:
        """Charge the meter for slicing `value`, and return `value`."""
        self.meter.pass_over(value)
        return value

    def hashed(self, key: Any) -> Any:
        """Charge the meter for looking `key` up, and return `key`."""
        if not isinstance(key, str | int):
            self.meter.weigh(key)
        return key

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        rules.operate(self.meter, operator, left, right)
        return self._paid(super().call_binop(context, operator, left, right))

    def getitem(self, obj: Any, argument: Any) -> Any:
        return super().getitem(obj, self.hashed(argument))

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        own = {name: value for name, value in kwargs.items() if name not in ("_loop_vars", "_block_vars")}
        if not self.is_safe_callable(function):
            raise SecurityError(f"a {type(function).__name__} must not be called")
        args = rules.call(self.meter, function, args, own)
        return self._paid(context.call(function, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return a `str.format` that charges the meter, in place of the sandbox's own.

        None if `value` is not such a method.
        """
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        template = value.__self__

        def formatted(*args: Any, **kwargs: Any) -> str:
            rules.formats(self.meter, template, args, kwargs, braces=True)
            text = wrapped(*args, **kwargs)
            return derived(str.__str__(text), [template, *args, *kwargs.values()]) if self.tracks else text

        return formatted

    def get_template(self, *_: Any, **__: Any) -> Template:
        """Raise `TemplateNotFound`, so `include` and similar tags find nothing."""
        raise TemplateNotFound(None, "a chat template has no other files")

    select_template = get_or_select_template = get_template

    def _paid(self, value: Any) -> Any:
        """Charge the meter for `value`, which was just made, and return it."""
        if isinstance(value, str):
            self.meter.spend(len(value))
        elif isinstance(value, list | tuple | dict | set):
            self.meter.tick(len(value))
        elif isinstance(value, int):
            self.meter.number(value)
        return value


def _check_tree(tree: nodes.Template) -> None:
    """Raise `LimitError` if a syntax tree is too large or too deep to compile."""
    n = 0
    waiting: list[tuple[nodes.Node, int]] = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        n, depth = n + 1, depth + isinstance(node, nodes.Stmt)
        if n > MAX_NODES:
            raise LimitError(f"it has more than {MAX_NODES} parts")
        if depth > MAX_NESTING:
            raise LimitError(f"it puts more than {MAX_NESTING} statements inside each other")
        if isinstance(node, nodes.Const) and isinstance(node.value, int) and node.value.bit_length() > MAX_BITS:
            raise LimitError(f"it has a number of more than {MAX_BITS} bits")
        waiting += [(one, depth) for one in node.iter_child_nodes()]


def _filter(name: str, function: Callable[..., Any], derives: bool) -> Callable[..., Any]:  # noqa: FBT001
    """Return a filter that charges the meter and then calls `function`.

    `derives` says whether the text it returns is a function of its arguments alone.
    """
    passes = getattr(function, "jinja_pass_arg", None)

    @wraps(function)
    def paid(first: Environment | Context | EvalContext, /, *args: Any, **kwargs: Any) -> Any:
        environment: Any = first if isinstance(first, Environment) else first.environment
        args = rules.filters(environment.meter, name, args, kwargs)
        result = function(*args, **kwargs) if passes is None else function(first, *args, **kwargs)
        if environment.tracks and derives and isinstance(result, str):
            environment.meter.weigh(args, kwargs)
            result = derived(result, [*args, *kwargs.values()])
        if hasattr(type(result), "__next__"):
            return environment.meter.counted(result)
        return environment._paid(result)

    return paid if passes is not None else pass_environment(paid)


def _test(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a test that charges the meter and then calls `function`."""
    passes = getattr(function, "jinja_pass_arg", None)

    @wraps(function)
    def paid(first: Environment | Context | EvalContext, /, *args: Any, **kwargs: Any) -> Any:
        environment: Any = first if isinstance(first, Environment) else first.environment
        rules.tests(environment.meter, name, args, kwargs)
        return function(*args, **kwargs) if passes is None else function(first, *args, **kwargs)

    return paid if passes is not None else pass_environment(paid)


@pass_environment
def _join(environment: Environment, value: Any, d: Any = "", attribute: str | int | None = None) -> str:
    """Join the items of `value` as the filter `join` does, but in Python.

    Jinja's own function joins in C.
    """
    items = value if attribute is None else map(make_attrgetter(environment, attribute), value)
    return joined(map(_written, items), _written(d))


@pass_environment
def _put_out(environment: Any, value: Any) -> Any:
    """Return the text that the template outputs for `value`."""
    environment.meter.weigh(value)
    return _written(value) if environment.tracks else value


def _written(value: Any) -> str:
    """Return `value` as text."""
    return value if isinstance(value, str) else derived(str(value), [value])
