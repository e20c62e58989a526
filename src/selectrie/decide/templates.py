"""Writes the prompt of a question, without a model.

The pages that come with the package are written here; a caller's template is rendered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from string import ascii_uppercase
from typing import Any

from selectrie.decide.params import MAX_LETTERS, Ask, Order
from selectrie.decide.questions import Question
from selectrie.errors import OptionError
from selectrie.grammar import Grammar
from selectrie.options import PromptParams, SearchParams
from selectrie.template.analysis.static_checks import outside_error
from selectrie.template.analysis.template import Template
from selectrie.template.interpreter import Decide, Hide, Interpreter, Naming, TurnStep, Write, find_following
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


_APART = (",", ";", "\n", "\r")
"""Characters that would blur where an option of a list in one line ends."""
_DIGESTS = {"chat": "bcfe9dffae4b7f17", "base": "9334561f1b5df333"}
"""What signatures and calibrations know the words of our pages by.

Whoever changes a word gives its page another digest.
"""


def digest_of(template: Template | str) -> str:
    """Return the digest of what a template writes.

    That of a caller's is of its text and of the files that it includes.
    """
    if isinstance(template, str):
        return _DIGESTS[template]
    state = blake2b(template.source.encode("utf-8", "surrogatepass"), digest_size=8)
    for name, document in sorted(template.documents.items()):
        state.update(f"\0{name}\0{document.source}".encode("utf-8", "surrogatepass"))
    return state.hexdigest()


def values_of(ask: Ask, order: Order) -> dict[str, Any]:
    """Return the values for the prompts of a question, without those of a state.

    Args:
        ask: The question.
        order: The order in which the options are listed.
    """
    question, lettered = ask.question, ask.params.scoring == "letters"
    choices = ask.choices(order)
    shown_as = choices if lettered else [one.scored for one in ask.options]
    answers = {one.scored: text for one, text in zip(ask.options, shown_as, strict=True)}
    shown = [
        {
            "text": ask.options[index].scored,
            "description": ask.options[index].description or "",
            "letter": ascii_uppercase[at] if lettered and at < MAX_LETTERS else "",
        }
        for at, index in enumerate(order)
    ]
    described = any(one["description"] for one in shown)
    apart = any(mark in one["text"] for one in shown for mark in _APART)
    return {
        "state": "",
        "with_state": False,
        "state_first": ask.layout != "questions first",
        "options_first": ask.layout == "state first",
        "kind": question.kind,
        "instructions": question.instructions,
        "cue": (question.cue or "").rstrip(),
        "asked": question.cue is None and bool(question.instructions or not question.examples),
        "examples": [{"state": text, "answer": answers[answer]} for text, answer in question.examples],
        "options": shown if ask.listed else [],
        "listed": ask.listed and bool(shown),
        "lettered": lettered,
        "described": described,
        "in_one_line": not (described or apart or lettered),
        "answers": choices or ["?"],
    }


def is_example(question: Question, state: str) -> bool:
    """Return whether a state is an example, up to white space at the ends."""
    return any(text.strip() == state.strip() for text, _ in question.examples)


def page_of(template: Template | str, question: Question, values: Mapping[str, Any], state: str | None) -> Page:
    """Return the page about a state, or without any.

    An example about the state itself is left out.

    Args:
        template: A caller's template, or the name of one of our pages.
        question: The question.
        values: The values of the question (`values_of`).
        state: The text of the state, or None.
    """
    if state is not None:
        examples = [one for one in values["examples"] if one["state"].strip() != state.strip()]
        values = {**values, "state": state, "with_state": True, "examples": examples}
    if isinstance(template, Template):
        return render(template, values)
    return _chat(question.wording, values) if template == "chat" else _base(question.wording, values)


def _chat(wording: str, values: Mapping[str, Any]) -> Page:
    """Return what a model with a chat template reads.

    Each example is a turn with its answer, and the first one has the question. Parts
    that prompts share end at a line's end.
    """
    text, cue = f"Text: {values['state']}", values["cue"] and f"\n{values['cue']}"
    listed, letter = "", "the letter of " if values["lettered"] else ""
    if values["listed"]:
        listed = f"Answer with {letter}one of{_option_list(values)}{'.' if values['in_one_line'] else ''}"
    if values["state_first"]:
        parts = (listed, wording) if values["options_first"] else (wording, listed)
        asked = "\n".join(filter(None, parts))
        messages = [f"{text}\n\n{asked}" if values["with_state"] else asked]
    else:
        lead = "\n".join(filter(None, (wording if values["asked"] else "", listed)))
        messages = []
        for one in values["examples"]:
            messages += [f"Text: {one['state']}{cue}", one["answer"]]
        messages.append((text if values["with_state"] else "") + cue)
        messages[0] = f"{lead}\n\n{messages[0]}" if lead else messages[0]
    return Page("", tuple({"role": ("user", "assistant")[at % 2], "content": one} for at, one in enumerate(messages)))


def _base(wording: str, values: Mapping[str, Any]) -> Page:
    """Return what a model without a chat template reads.

    It is a plain page, on which the answer ends at the line's end. Parts that prompts
    share end at a line's end.
    """
    text, cue = f"Text: {values['state']}\n", values["cue"] or "Answer:"
    listed = f"Choose from{_option_list(values)}\n" if values["listed"] else ""
    asked = f"Question: {wording}\n" if values["asked"] else ""
    page = listed + asked if values["options_first"] else asked + listed
    if values["with_state"] and values["state_first"]:
        page = f"{text}\n{page}"
    if values["examples"] and (asked or listed):
        page += "\n"
    page += "".join(f"Text: {one['state']}\n{cue} {one['answer']}\n\n" for one in values["examples"])
    if values["with_state"] and not values["state_first"]:
        page += text
    return Page(f"{page}{cue} ", following="\n")


def _option_list(values: Mapping[str, Any]) -> str:
    """Return the options: short words in one line, else a line each."""
    if values["in_one_line"]:
        return ": " + ", ".join(one["text"] for one in values["options"])
    lines = ":"
    for one in values["options"]:
        described = one["description"] and f": {one['description']}"
        lines += f"\n{one['letter'] + '.' if values['lettered'] else '-'} {one['text']}{described}"
    return lines


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
                raise outside_error(step.document, step.span, is_literal=step.is_literal)
        elif isinstance(step, TurnStep):
            _turn(page, step)
        elif isinstance(step, Decide):
            return _answer(page, step, interpreter)
        elif not isinstance(step, Hide | Naming):
            document, span = _where(template)
            raise error_at(document, span, _ONE_SLOT)
    document, span = _where(template)
    raise error_at(document, span, f"the page has no <<select {SLOT!r} options=answers>>")


def _turn(page: _Turns, step: TurnStep) -> None:
    text = page.take()
    if step.begins:
        if not page.messages and text.strip():
            raise outside_error(step.document, step.span, is_literal=False)
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
    following = find_following(interpreter, SLOT)
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
