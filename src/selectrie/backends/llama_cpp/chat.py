"""The chat template of a model, rendered so that the template's own text can be told from what it was given.

Jinja runs the template on `TrackedText`. Text of the template's source, BOS and EOS are the template's; all other text is a value
or, where its origin was lost, mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any

from jinja2 import BaseLoader, TemplateError, nodes, pass_environment
from jinja2.compiler import CodeGenerator, Frame
from jinja2.environment import Environment
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.nodes import EvalContext
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from llama_cpp.llama_chat_format import Jinja2ChatFormatter

from selectrie.errors import PromptError
from selectrie.tracked_text import TEMPLATE, TrackedText, derived, joined, texts_in
from selectrie.vocabulary import ChatTemplate


def chat_template(source: str, *, bos: str, eos: str) -> ChatTemplate:
    """Return the template, compiled on first use.

    It renders as llama-cpp-python's `Jinja2ChatFormatter` does. Where messages or arguments hold `TrackedText`, the result is
    `TrackedText` too, and text in them that is not tracked is mixed.
    """
    compiled: dict[tuple[bool, bool], Any] = {}

    def formatter(*, generates: bool, tracks: bool) -> Any:
        if (generates, tracks) not in compiled:
            made = Jinja2ChatFormatter(source, eos_token=eos, bos_token=bos, add_generation_prompt=generates)
            if tracks:
                made._environment = _TrackingEnvironment(made._environment.environment).from_string(source)
                made.bos_token, made.eos_token = TrackedText(bos, TEMPLATE), TrackedText(eos, TEMPLATE)
                made.strftime_now = _derived(made.strftime_now)
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
    """Writes code in which the template's own text is tracked as such, and nothing else is."""

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:  # noqa: N802 - Jinja's name
        if isinstance(node.value, str):
            self.write(self._output_const_repr([node.value]))
        else:
            super().visit_Const(node, frame)

    def _output_const_repr(self, group: Iterable[str]) -> str:
        return f"environment.literal({''.join(group)!r})"

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        """Only the text between tags: what is computed is computed while rendering."""
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        """`a ~ b`, for which Jinja's own code calls a function that is no part of the environment."""
        self.write("environment.concat(map(environment.finalize, (")
        for operand in node.nodes:
            self.visit(operand, frame)
            self.write(", ")
        self.write(")))")


class _TrackingEnvironment(ImmutableSandboxedEnvironment):
    """An environment like another one, in which text keeps its origins."""

    code_generator_class = _CodeGenerator
    concat = staticmethod(joined)

    def __init__(self, other: Environment) -> None:
        super().__init__(
            loader=BaseLoader(),
            trim_blocks=other.trim_blocks,
            lstrip_blocks=other.lstrip_blocks,
            extensions=[type(extension) for extension in other.extensions.values()],
            finalize=_written,
            optimized=False,
        )
        known = {name: _derived(function) for name, function in other.filters.items() if function in _FUNCTIONS}
        self.filters = {**other.filters, **known, "join": _join}

    @staticmethod
    def literal(text: str) -> TrackedText:
        """Text of the template's source."""
        return TrackedText(text, TEMPLATE)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`text.format(values)`; the sandbox's own function for it."""
        wrapped = super().wrap_str_format(value)
        return wrapped and _derived(lambda *args, **kwargs: str.__str__(wrapped(*args, **kwargs)), value.__self__)


_FUNCTIONS = frozenset([*FILTERS.values(), Jinja2ChatFormatter.tojson])
"""Filters whose text is a function of their arguments. Text of any other filter or function has the origins that it has kept."""


def _derived(function: Callable[..., Any], *sources: object) -> Callable[..., Any]:
    """The function, where its text comes from its arguments and these sources alone. Markup becomes plain text."""

    @wraps(function)
    def tracking(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if not isinstance(result, str):
            return result
        given = [one for one in args if not isinstance(one, Context | EvalContext | Environment)]
        return derived(result, [*sources, *given, *kwargs.values()])

    return tracking


@pass_environment
def _join(environment: Environment, value: Any, d: Any = "", attribute: str | int | None = None) -> str:
    """The filter `join`, whose own function joins in C."""
    items = value if attribute is None else map(make_attrgetter(environment, attribute), value)
    return joined(map(_written, items), _written(d))


def _written(value: Any) -> str:
    """What is put out for a value."""
    return value if isinstance(value, str) else derived(str(value), [value])
