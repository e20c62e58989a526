"""The arguments of a slot as values, and where each stands, so that what is wrong with one is told there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from selectrie.errors import OptionError, RequestError, TemplateError
from selectrie.grammar import Grammar
from selectrie.options import flag, one_of, seed, text
from selectrie.template import segments
from selectrie.template.places import error_at, told_at
from selectrie.template.scope import Option, Scope, evaluate, option_of, options_at, text_at
from selectrie.template.values import plain


class Grammars(Protocol):
    """Who knows the grammars that arguments name: a `Template`. `TemplateError` without a place, or another error, for what it does not know."""

    def read_grammar(self, name: str) -> Grammar: ...
    def read_regex(self, pattern: str) -> Grammar: ...


def slot_options(slot: segments.Slot, scope: Scope, document: segments.Document) -> tuple[Option, ...] | None:
    """The options of a select or beam, in order, each text once; None where it has no list of them.

    Raises `TemplateError` at what is no option, or has a text that another one has.
    """
    if slot.choices is None:
        expression = dict(slot.arguments).get("options")
        return None if expression is None else options_at(expression, scope, document)
    found: dict[str, Option] = {}
    for body in slot.choices:
        option = _choice(body, scope, document)
        if option.text in found:
            span = body[0].span if body else slot.span
            raise error_at(document, span, f"the choice {option.text!r} stands there twice; leave one out")
        found[option.text] = option
    return tuple(found.values())


class SlotArguments:
    """The arguments of one slot: what each is, and where it stands."""

    def __init__(self, slot: segments.Slot, scope: Scope, template: Grammars, document: segments.Document) -> None:
        self.slot, self.template, self.document = slot, template, document
        self.options = slot_options(slot, scope, document)
        expressions = {name: one for name, one in slot.arguments if name not in ("options", "name")}
        self._spans = {name: one.span for name, one in slot.arguments}
        self._values = {name: plain(evaluate(one, scope, document)) for name, one in expressions.items()}

    def get(self, name: str, default: Any = None) -> Any:
        """The value given, an Enum member as its value; the default where none is, or None is."""
        value = self._values.get(name)
        return default if value is None else value

    def given(self, *names: str) -> dict[str, Any]:
        """Those of these arguments that are given, None left out."""
        return {name: value for name in names if (value := self._values.get(name)) is not None}

    @contextmanager
    def telling(self, *names: str) -> Iterator[None]:
        """What is wrong with a value in the block is told at its argument: the one an `OptionError` names, else the first of `names` given."""
        try:
            yield
        except TemplateError as error:
            if error.line is not None:
                raise
            raise self.error(error.reason, *names) from error
        except RequestError as error:
            named = error.name.partition("[")[0] if isinstance(error, OptionError) else ""
            known = [name for name in (named, *names) if name in self._spans]
            raise self.error(str(error), *known) from error

    def error(self, reason: str, *names: str) -> TemplateError:
        """An error at the first of these arguments that is given, or at the slot."""
        spans = [self._spans[name] for name in names if name in self._spans]
        return error_at(self.document, spans[0] if spans else self.slot.span, reason)

    def hidden(self) -> bool:
        """Is it no part of the page?"""
        value = self.get("hidden", False)
        with self.telling("hidden"):
            flag("hidden", value)
        return bool(value)

    def seed(self) -> int | None:
        """The seed given."""
        with self.telling("seed"):
            return seed("seed", self.get("seed"))

    def grammar(self) -> Grammar | None:
        """The grammar of `grammar=` or `regex=`."""
        both = self.given("grammar", "regex")
        if len(both) > 1:
            raise self.error("grammar= and regex= both say what may stand here; give one of the two", "regex")
        if "regex" in both:
            with self.telling("regex"):
                text("regex", both["regex"])
                return self.template.read_regex(both["regex"])
        if "grammar" not in both:
            return None
        value = both["grammar"]
        if isinstance(value, Grammar):
            return value
        with self.telling("grammar"):
            if not isinstance(value, str):
                raise OptionError("grammar", value, "a Grammar, or the name of a file or of an installed one")
            return self.template.read_grammar(value)

    def space(self) -> tuple[tuple[Option, ...] | None, Grammar | None]:
        """What may stand there: options or a grammar, never both, never neither."""
        grammar = self.grammar()
        if self.options is not None and grammar is not None:
            raise self.error(
                "the options say what may stand here already; leave grammar= and regex= out", "grammar", "regex"
            )
        if self.options is None and grammar is None:
            raise self.error("nothing says what may stand here; give options=, grammar= or regex=")
        return self.options, grammar

    def terminator(self, allowed: tuple[str, ...]) -> str | None:
        """The terminator given."""
        value = self.get("terminator")
        if value is not None:
            with self.telling("terminator"):
                one_of("terminator", value, allowed)
        return None if value is None else str(value)


def _choice(body: segments.Body, scope: Scope, document: segments.Document) -> Option:
    """A choice of the block form. An output alone is an option as it is, so that its value keeps its type."""
    parts = [part for part in body if not isinstance(part, segments.Comment)]
    if len(parts) == 1 and isinstance(parts[0], segments.Output):
        value = evaluate(parts[0].value, scope, document)
        with told_at(document, parts[0].value.span):
            return option_of(value)
    written: list[str] = []
    for part in parts:
        if isinstance(part, segments.Literal):
            written.append(part.text)
        elif isinstance(part, segments.Output):
            written.append(text_at(part.value, scope, document))
        else:
            raise error_at(document, part.span, "a choice is text and <<name>>s; nothing else may stand in it")
    whole = "".join(written)
    return Option(whole, whole)
