"""The chat template of a model, rendered so that the template's own text can be told from what it was given.

Jinja runs the template on `TrackedText`. What Jinja does with text in C, where origins are lost (joining, formatting, filters), is
caught here: such text is a value, or mixed, but never the template's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper, wraps
from typing import Any

from jinja2 import BaseLoader, TemplateError, Undefined, nodes, pass_environment
from jinja2.compiler import CodeGenerator, Frame
from jinja2.environment import Environment
from jinja2.exceptions import SecurityError
from jinja2.filters import make_attrgetter
from jinja2.nodes import EvalContext
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from llama_cpp.llama_chat_format import Jinja2ChatFormatter

from selectrie.errors import PromptError
from selectrie.tracked_text import MIXED, TEMPLATE, TrackedText, derived, joined, texts_in
from selectrie.vocabulary import ChatTemplate


def chat_template(source: str, *, bos: str, eos: str) -> ChatTemplate:
    """Return the template, compiled on first use.

    It renders as llama-cpp-python's `Jinja2ChatFormatter` does. Where messages or arguments hold `TrackedText`, the result is
    `TrackedText` too.
    """
    compiled: dict[tuple[bool, bool], Any] = {}

    def formatter(*, generates: bool, tracks: bool) -> Any:
        if (generates, tracks) not in compiled:
            made = Jinja2ChatFormatter(source, eos_token=eos, bos_token=bos, add_generation_prompt=generates)
            if tracks:
                made._environment = _TrackingEnvironment(made._environment.environment).from_string(source)
            compiled[generates, tracks] = made
        return compiled[generates, tracks]

    def render(messages: Sequence[Mapping[str, object]], /, **template_args: object) -> str:
        generates = bool(template_args.pop("add_generation_prompt", True))
        values = [dict(message) for message in messages]
        tracks = any(isinstance(text, TrackedText) for text in texts_in([values, template_args]))
        try:
            rendered: str = formatter(generates=generates, tracks=tracks)(messages=values, **template_args).prompt
        except (TemplateError, ValueError, TypeError) as error:
            # ValueError is what the template's own `raise_exception` becomes; TypeError, an unfit template argument.
            raise PromptError(f"the model's chat template refuses these messages: {error}") from error
        return rendered

    return render


class _CodeGenerator(CodeGenerator):
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 - Jinja's name
        """`a ~ b`, for which Jinja's own code calls a function that is no part of the environment."""
        self.write("environment.concat(map(environment.finalize, (")
        for operand in node.nodes:
            self.visit(operand, frame)
            self.write(", ")
        self.write(")))")

    def visit_EvalContextModifier(self, node: nodes.EvalContextModifier, frame: Frame) -> None:  # noqa: ARG002, N802
        """`{% autoescape %}`, under which text becomes markup, whose characters have no origin."""
        raise SecurityError("a chat template may not escape by itself; name the filter `e` where it is to escape")

    visit_ScopedEvalContextModifier = visit_EvalContextModifier  # noqa: N815


class _TrackingEnvironment(ImmutableSandboxedEnvironment):
    """An environment like another one, in which text keeps its origins."""

    code_generator_class = _CodeGenerator
    concat = staticmethod(joined)
    intercepted_binops = frozenset(["%"])

    def __init__(self, other: Environment) -> None:
        super().__init__(
            loader=BaseLoader(),
            trim_blocks=other.trim_blocks,
            lstrip_blocks=other.lstrip_blocks,
            extensions=[type(extension) for extension in other.extensions.values()],
            finalize=_written,
        )
        self.filters = {name: _tracking(function, name in _EXACT) for name, function in other.filters.items()}
        self.filters["join"] = _join

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """`text % values`."""
        return _tracked_result(super().call_binop(context, operator, left, right), [left, right])

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`text.format(values)`; the sandbox's own function for it."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        call = wrapped

        def tracking(*args: Any, **kwargs: Any) -> str:
            return derived(str.__str__(call(*args, **kwargs)), [value.__self__, args, [*kwargs.values()]])

        return update_wrapper(tracking, value)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Methods and functions. Those of lists and mappings hand out what these hold; others may make text."""
        owner = getattr(function, "__self__", None)
        if type(owner) is str and not hasattr(function, "__wrapped__"):
            function = getattr(TrackedText(owner, TEMPLATE), function.__name__)
        result = super().call(context, function, *args, **kwargs)
        if isinstance(result, bytes | bytearray):
            raise SecurityError("a chat template may not turn text into bytes, for their origin would be lost")
        if isinstance(owner, Mapping | list | tuple):
            return result
        return _tracked_result(result, [*([owner] if isinstance(owner, str) else []), args, [*kwargs.values()]])


_EXACT = frozenset(
    ["attr", "d", "default", "first", "last", "max", "min", "random", "replace", "reverse", "string", "trim"]
)
"""Filters that hand out what they are given or call one method of text. What others write in Python may lose origins on its way."""


def _tracking(function: Callable[..., Any], is_exact: bool) -> Callable[..., Any]:  # noqa: FBT001 - of this module alone
    """A filter whose text has origins: of each character where it is exact, else of all of it."""

    @wraps(function)
    def tracking(*args: Any, **kwargs: Any) -> Any:
        own = [_ready(value) for value in args]
        named = {name: _ready(value) for name, value in kwargs.items()}
        value, *rest = [one for one in own if not isinstance(one, Context | EvalContext | Environment)]
        rest += named.values()
        result = function(*own, **named)
        if isinstance(result, TrackedText) and not (
            is_exact and all(isinstance(one, str | int | None) for one in rest)
        ):
            result = str.__str__(result)
        return _tracked_result(result, [value, *rest])

    return tracking


@pass_environment
def _join(environment: Environment, value: Any, d: Any = "", attribute: str | int | None = None) -> str:
    """The filter `join`, whose own function joins in C."""
    items = value if attribute is None else map(make_attrgetter(environment, attribute), value)
    return joined(map(_written, items), _written(d))


def _ready(value: Any) -> Any:
    """A filter's argument: the template's text with its origin."""
    return TrackedText(value, TEMPLATE) if type(value) is str else value


def _tracked_result(result: Any, sources: Sequence[object]) -> Any:
    """A result that is text, with its origin. Markup, which would escape what it meets, becomes plain text."""
    if not isinstance(result, str) or isinstance(result, TrackedText):
        return result
    return derived(str.__str__(result), sources)


def _written(value: Any) -> str:
    """What is put out for a value."""
    if isinstance(value, str):
        return value
    text = str(value)
    if value is None or isinstance(value, int | float | Undefined):
        return text
    return TrackedText(text, MIXED)
