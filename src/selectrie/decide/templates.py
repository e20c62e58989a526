"""Renders the prompt of a question from a template, without a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from importlib import resources
from itertools import count
from pathlib import Path

from selectrie.decide.questions import Question
from selectrie.errors import OptionError
from selectrie.grammar import Grammar
from selectrie.options import PromptParams, SearchParams
from selectrie.template.analysis.static_checks import outside
from selectrie.template.analysis.template import Template
from selectrie.template.interpreter import Decide, Hide, Interpreter, Naming, TurnStep, Write, what_follows
from selectrie.template.syntax.ast import Document, Each, GenEach, Include, Slot, Span, bodies_of, error_at
from selectrie.template.syntax.ast import Path as NamePath


@dataclass(frozen=True, slots=True)
class DecisionPrompt:
    """One prompt of a question: the arguments of the `select` that answers it.

    `llm.select(p.prompt, p.choices, …)` with the other fields under their names gives
    the selection behind the answer; with a grammar, its texts are followed by
    `following` there.

    Attributes:
        prompt: The page, or the messages of a chat.
        choices: The texts that are scored; None with a grammar.
        grammar: The grammar that was given in place of options, or None.
        terminator: The event that ends the answer.
        following: The text after the answer, or "".
        prior: Weights of the choices, or None.
        search: How the choices are evaluated.
        prompting: Options of the chat template.
        shown: What the model reads, with control tokens by their spelling.
        n_tokens: Number of tokens of the prompt.
        n_choice_tokens: Number of tokens of all choices together; 0 with a grammar.
    """

    prompt: str | tuple[Mapping[str, str], ...]
    choices: tuple[str, ...] | None
    grammar: Grammar | None
    terminator: str
    following: str
    prior: tuple[float, ...] | None
    search: SearchParams
    prompting: PromptParams
    shown: str
    n_tokens: int
    n_choice_tokens: int


SLOT = "answer"
"""Name of the slot of a template of decisions."""
_ONE_SLOT = f"a template of decisions has one slot, <<select {SLOT!r} options=answers>>"


@dataclass(frozen=True, slots=True)
class Page:
    """The text before the answer, and what ends the answer.

    Attributes:
        text: The page of a template without roles; "" for a chat.
        messages: The turns before the answer; () for a page without roles.
        assistant_prefix: Text of the assistant's turn before the answer.
        following: Text after the answer; "" if the turn ends there.
    """

    text: str
    messages: tuple[Mapping[str, str], ...] = ()
    assistant_prefix: str = ""
    following: str = ""

    @property
    def is_chat(self) -> bool:
        """Return whether the page is a chat."""
        return bool(self.messages)

    @property
    def prompt(self) -> str | tuple[Mapping[str, str], ...]:
        """Return the text, or the messages of a chat."""
        return self.messages or self.text

    @property
    def kind(self) -> tuple[object, ...]:
        """Return how the answer begins and ends: options of a request depend on it."""
        return self.is_chat, self.assistant_prefix, self.following


@dataclass(slots=True)
class _Turns:
    """The turns of a page while it is written."""

    written: list[str] = field(default_factory=list)
    messages: list[Mapping[str, str]] = field(default_factory=list)
    role: str | None = None

    def take(self) -> str:
        """Return what was written since the last call."""
        text = "".join(self.written)
        self.written.clear()
        return text


@cache
def shipped(name: str) -> Template:
    """Return a template that comes with the package: "chat" or "base"."""
    with resources.as_file(resources.files("selectrie.decide") / "templates" / f"{name}.tmpl") as path:
        source = Path(path).read_text(encoding="utf-8")
        return Template(source, name=f"{name}.tmpl", search_path=Path(path).parent)


def digest_of(template: Template) -> str:
    """Return the digest of a template's text and of the files that it includes."""
    state = blake2b(template.source.encode("utf-8", "surrogatepass"), digest_size=8)
    for name, document in sorted(template.documents.items()):
        state.update(f"\0{name}\0{document.source}".encode("utf-8", "surrogatepass"))
    return state.hexdigest()


def check_slots(template: Template) -> None:
    """Raise `TemplateError` for another slot than the answer, or for one in a loop.

    Both branches of an `if` may have the answer.
    """
    pending = [(segment, template.document, False) for segment in reversed(template.document.body)]
    while pending:
        segment, document, is_repeated = pending.pop()
        if isinstance(segment, GenEach) or (isinstance(segment, Slot) and segment.name != SLOT):
            raise error_at(document, segment.span, _ONE_SLOT)
        if isinstance(segment, Slot) and is_repeated:
            raise error_at(document, segment.span, f"{_ONE_SLOT}, outside of every loop")
        inner, bodies = document, bodies_of(segment)
        if isinstance(segment, Include):
            inner = template.documents[segment.path]
            bodies = (inner.body,)
        repeats = is_repeated or isinstance(segment, Each)
        pending += [(one, inner, repeats) for body in reversed(bodies) for one in reversed(body)]


def check_shown(question: Question, template: Template | str) -> None:
    """Raise `OptionError` for examples or a cue that a template does not write."""
    if not isinstance(template, Template):
        return
    source = template.source + "".join(document.source for document in template.documents.values())
    for name, value in (("examples", question.examples), ("cue", question.cue)):
        if value and not re.search(rf"\b{name}\b", source):
            raise OptionError(name, value, f"a template that writes `{name}`; {template.name} does not")


def render(template: Template, values: Mapping[str, object]) -> Page:
    """Return the page of a template up to its answer.

    Raises `TemplateError` for a template that needs a value that decisions do not give,
    has another slot than the answer, or no answer.
    """
    interpreter = Interpreter(template, values)
    page = _Turns()
    while (step := interpreter.step()) is not None:
        if isinstance(step, Write):
            page.written.append(step.text)
            if page.messages and page.role is None and step.text.strip():
                raise outside(step.document, step.span, is_literal=step.is_literal)
        elif isinstance(step, TurnStep):
            _turn(page, step)
        elif isinstance(step, Decide):
            return _answer(page, step, interpreter)
        elif not isinstance(step, Hide | Naming):
            document, span = _where(template)
            raise error_at(document, span, _ONE_SLOT)
    document, span = _where(template)
    raise error_at(document, span, f"the page has no <<select {SLOT!r} options=answers>>")


class StateFrame:
    """The pages of a template that writes its state and asks nothing about it.

    The templates that come with the package are such. The page is rendered once, with a
    mark that occurs nowhere else in the place of the state.

    Args:
        rendered: Returns the page about a state.

    Attributes:
        mark: The mark.
        around: The text of the page around the state, one part more than the state
            occurs; [""] for a chat.
    """

    def __init__(self, rendered: Callable[[str], Page]) -> None:
        empty = repr(rendered(""))
        self.mark = next(mark for n in count() if (mark := f"[st4te {n}]") not in empty)  # no end is its beginning
        page = rendered(self.mark)
        self.around = page.text.split(self.mark)
        self._messages = [(one["role"], one["content"].split(self.mark)) for one in page.messages]
        self._prefix, self._following = page.assistant_prefix, page.following

    def messages(self, state: str) -> tuple[Mapping[str, str], ...]:
        """Return the turns about a state; () for a page without roles."""
        return tuple({"role": role, "content": state.join(parts)} for role, parts in self._messages)

    def page(self, state: str) -> Page:
        """Return the page about a state."""
        return Page(state.join(self.around), self.messages(state), self._prefix, self._following)


def _turn(page: _Turns, step: TurnStep) -> None:
    text = page.take()
    if step.begins:
        if not page.messages and text.strip():
            raise outside(step.document, step.span, is_literal=False)
        page.role = step.role
    else:
        page.messages.append({"role": str(page.role), "content": text})
        page.role = None


def _answer(page: _Turns, step: Decide, interpreter: Interpreter) -> Page:
    """Return the page before the slot; raise unless the slot is the answer."""
    slot = step.slot
    if slot.kind != "select" or slot.name != SLOT or slot.choices is not None:
        raise error_at(step.document, slot.span, _ONE_SLOT)
    for name, value in slot.arguments:
        if name == "options" and value != NamePath("answers"):
            raise error_at(step.document, slot.span, "the options of the answer are `answers`, those of the question")
        if name != "options":
            reason = f"`{name}` is not an argument here; `DecisionParams` has rule, prior and top"
            raise error_at(step.document, slot.span, reason)
    following = what_follows(interpreter, SLOT)
    text = page.take()
    if page.role is None and not page.messages:
        return Page(text, following=following.text)
    if page.role != "assistant":
        raise error_at(step.document, slot.span, "the answer of a chat is in the turn of the assistant")
    if not page.messages:
        raise error_at(step.document, slot.span, "a chat has a turn before the assistant's")
    return Page("", tuple(page.messages), text, following.text)


def _where(template: Template) -> tuple[Document, Span]:
    """Return the end of the template, for an error about the whole."""
    document = template.document
    return document, document.body[-1].span if document.body else Span(0, 0)
