"""The arguments of a slot as values, and where each stands, so that what is wrong with one is told there."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from selectrie.errors import TemplateError
from selectrie.grammar import Grammar
from selectrie.template import segments
from selectrie.template.arguments import Grammars
from selectrie.template.forms import check_form
from selectrie.template.places import error_at, told_at
from selectrie.template.scope import Scope
from selectrie.template.tag_values import choices_at, values_at
from selectrie.template.values import Option, options_of, plain


class SlotArguments:
    """The arguments of one slot: what each is, and where it stands. options: of a list of them, each text once; else None."""

    def __init__(self, slot: segments.Slot, scope: Scope, template: Grammars, document: segments.Document) -> None:
        """Raises `TemplateError` at the argument that cannot be what it is."""
        self.slot, self.template, self.document = slot, template, document
        check_form(slot, document)
        values = values_at(slot, scope, document, template)
        self._spans = {name: one.span for name, one in slot.arguments}
        self.options: tuple[Option, ...] | None = None
        if slot.choices is not None:
            self.options = choices_at(slot, scope, document)
        elif "options" in values:
            with self.telling("options"):
                self.options = options_of(values["options"])
        self._values = {name: plain(value) for name, value in values.items()}

    def get(self, name: str, default: Any = None) -> Any:
        """The value given, an Enum member as its value; the default where none is, or None is."""
        value = self._values.get(name)
        return default if value is None else value

    def given(self, *names: str) -> dict[str, Any]:
        """Those of these arguments that are given, None left out."""
        return {name: value for name in names if (value := self._values.get(name)) is not None}

    def telling(self, name: str) -> AbstractContextManager[None]:
        """What is wrong with a value in the block is told at this argument."""
        return told_at(self.document, self._spans[name])

    def error(self, reason: str, name: str | None = None) -> TemplateError:
        """An error at an argument, or at the slot."""
        return error_at(self.document, self.slot.span if name is None else self._spans[name], reason)

    def grammar(self) -> Grammar | None:
        """The grammar of `grammar=` or `regex=`."""
        if self.given("regex"):
            with self.telling("regex"):
                return self.template.read_regex(self.get("regex"))
        value = self.get("grammar")
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]  # a Grammar, or None
        with self.telling("grammar"):
            return self.template.read_grammar(value)

    def space(self) -> tuple[tuple[Option, ...] | None, Grammar | None]:
        """What may stand there: options or a grammar, never both, never neither."""
        grammar = self.grammar()
        if self.options is None and grammar is None:
            raise self.error("nothing says what may stand here; give options=, grammar= or regex=")
        return self.options, grammar
