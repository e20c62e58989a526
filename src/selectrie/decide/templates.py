"""Writes the prompt of a question, without a model.

The built-in templates "chat" and "base" are functions here. A `Template` of the caller
is rendered by the template interpreter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from string import ascii_uppercase
from typing import Any

from selectrie.decide.asks import MAX_LETTERS, Ask, Order
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
    """A prompt of a question, as the arguments of the `select` that answers it.

    `llm.select(p.prompt, p.choices, …)`, with `terminator`, `following`, `prior`,
    `search` and `prompting` as keywords, returns the selection from which the answer is
    computed. If `grammar` is set, give `grammar=p.grammar.followed_by(p.following)` in
    place of choices and `following`. The last three fields are for information.

    Attributes:
        prompt: The text of a page, or the messages of a chat.
        choices: The texts that are scored; None with a grammar.
        grammar: The grammar whose texts are the options, or None.
        terminator: The event that ends the answer.
        following: The text after the answer, or "".
        prior: Weights of the choices, or None.
        search: How the choices are evaluated.
        prompting: Options of the chat template.
        shown: The prompt as text, in which control tokens have their names.
        n_tokens: Number of tokens of the prompt.
        n_choice_tokens: Total number of tokens of the choices; 0 with a grammar.
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
"""Name of the slot in a template for decisions."""
_ONE_SLOT_RULE = f"a template of decisions has one slot, <<select {SLOT!r} options=answers>>"


@dataclass(frozen=True, slots=True)
class Page:
    """The text or messages before the answer, and the text after the answer.

    Attributes:
        text: The text before the answer; "" for a chat.
        messages: The turns of a chat before the answer's turn; () for plain text.
        assistant_prefix: Text before the answer within the assistant's turn.
        following: Text after the answer; "" if the turn ends with the answer.
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

    def with_inserted(self, text: str, *, ends: bool = False) -> Page:
        """Return the page with a text before the answer.

        In a chat, the text begins the assistant's turn. With `ends`, the page ends
        there.
        """
        if not self.is_chat:
            return replace(self, text=self.text + text)
        return replace(self, assistant_prefix=text if ends else text + self.assistant_prefix)

    @property
    def kind(self) -> tuple[object, ...]:
        """Return a hashable key of the parts that decide the options of a selection.

        Pages with equal keys begin and end the answer in the same way.
        """
        return self.is_chat, self.assistant_prefix, self.following


@dataclass(slots=True)
class _PageWriter:
    """Collects the text and the turns of a page while a template is rendered.

    Attributes:
        written: Pieces of text since the last call of `take`.
        messages: The complete turns.
        role: Role of the current turn; None outside of a turn.
    """

    written: list[str] = field(default_factory=list)
    messages: list[Mapping[str, str]] = field(default_factory=list)
    role: str | None = None

    def take(self) -> str:
        """Return the text since the last call, and forget it."""
        text = "".join(self.written)
        self.written.clear()
        return text


_SEPARATORS = (",", ";", "\n", "\r")
"""Characters that make a list in one line ambiguous if an option has them."""
_DIGESTS = {"chat": "bcfe9dffae4b7f17", "base": "9334561f1b5df333"}
"""Digests that identify the words of the built-in templates in results.

A change of a template's words needs a new digest for that template.
"""


def digest_of(template: Template | str) -> str:
    """Return the digest of a template, 16 hexadecimal digits.

    For a `Template`, it covers the template's text and the files that it includes.
    """
    if isinstance(template, str):
        return _DIGESTS[template]
    state = blake2b(template.source.encode("utf-8", "surrogatepass"), digest_size=8)
    for name, document in sorted(template.documents.items()):
        state.update(f"\0{name}\0{document.source}".encode("utf-8", "surrogatepass"))
    return state.hexdigest()


def values_of(ask: Ask, order: Order) -> dict[str, Any]:
    """Return the values that a template needs for a question, with an empty state.

    `docs/decide.md` has a table of the values.

    Args:
        ask: The question with its settings.
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
    has_separators = any(mark in one["text"] for one in shown for mark in _SEPARATORS)
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
        "in_one_line": not (described or has_separators or lettered),
        "answers": choices or ["?"],
    }


def is_example(question: Question, state: str) -> bool:
    """Return whether the text of a state equals an example's, ignoring outer spaces."""
    return any(text.strip() == state.strip() for text, _ in question.examples)


def page_of(template: Template | str, question: Question, values: Mapping[str, Any], state: str | None) -> Page:
    """Return the page of a question about a state.

    An example with the text of the state is left out.

    Args:
        template: A template of the caller, or "chat" or "base".
        question: The question.
        values: The values of the question (`values_of`).
        state: The text of the state, or None for a page without a state.
    """
    if state is not None:
        examples = [one for one in values["examples"] if one["state"].strip() != state.strip()]
        values = {**values, "state": state, "with_state": True, "examples": examples}
    if isinstance(template, Template):
        return render(template, values)
    return _write_chat(question.wording, values) if template == "chat" else _write_base_page(question.wording, values)


def _write_chat(wording: str, values: Mapping[str, Any]) -> Page:
    """Return the page of the built-in template "chat".

    Each example is a turn of the user and a turn of the assistant. The first message
    has the question. Parts that several prompts share end at a line break.
    """
    text, cue = f"Text: {values['state']}", values["cue"] and f"\n{values['cue']}"
    listed, letter = "", "the letter of " if values["lettered"] else ""
    if values["listed"]:
        listed = f"Answer with {letter}one of{_write_option_list(values)}{'.' if values['in_one_line'] else ''}"
    if values["state_first"]:
        parts = (listed, wording) if values["options_first"] else (wording, listed)
        question_text = "\n".join(filter(None, parts))
        messages = [f"{text}\n\n{question_text}" if values["with_state"] else question_text]
    else:
        lead = "\n".join(filter(None, (wording if values["asked"] else "", listed)))
        messages = []
        for one in values["examples"]:
            messages += [f"Text: {one['state']}{cue}", one["answer"]]
        messages.append((text if values["with_state"] else "") + cue)
        messages[0] = f"{lead}\n\n{messages[0]}" if lead else messages[0]
    return Page("", tuple({"role": ("user", "assistant")[at % 2], "content": one} for at, one in enumerate(messages)))


def _write_base_page(wording: str, values: Mapping[str, Any]) -> Page:
    """Return the page of the built-in template "base".

    It is plain text, in which a line break ends the answer. Parts that several prompts
    share end at a line break.
    """
    text, cue = f"Text: {values['state']}\n", values["cue"] or "Answer:"
    listed = f"Choose from{_write_option_list(values)}\n" if values["listed"] else ""
    question_text = f"Question: {wording}\n" if values["asked"] else ""
    page = listed + question_text if values["options_first"] else question_text + listed
    if values["with_state"] and values["state_first"]:
        page = f"{text}\n{page}"
    if values["examples"] and (question_text or listed):
        page += "\n"
    page += "".join(f"Text: {one['state']}\n{cue} {one['answer']}\n\n" for one in values["examples"])
    if values["with_state"] and not values["state_first"]:
        page += text
    return Page(f"{page}{cue} ", following="\n")


def list_questions(asks: Iterable[Ask]) -> str:
    """Return several questions with their options, for one prompt about all of them."""
    parts = []
    for ask in asks:
        options = f"\nOptions{_write_option_list(values_of(ask, ask.orders[0]))}" if ask.listed else ""
        parts.append(f"{ask.question.wording}{options}")
    return "\n\n".join(parts)


def _write_option_list(values: Mapping[str, Any]) -> str:
    """Return the list of options, in one line if possible, else a line for each."""
    if values["in_one_line"]:
        return ": " + ", ".join(one["text"] for one in values["options"])
    lines = ":"
    for one in values["options"]:
        described = one["description"] and f": {one['description']}"
        lines += f"\n{one['letter'] + '.' if values['lettered'] else '-'} {one['text']}{described}"
    return lines


def check_slots(template: Template) -> None:
    """Raise `TemplateError` for a slot that is not the answer, or is in a loop.

    Both branches of an `if` may have the slot of the answer.
    """
    pending = [(segment, template.document, False) for segment in reversed(template.document.body)]
    while pending:
        segment, document, is_repeated = pending.pop()
        if isinstance(segment, GenEach) or (isinstance(segment, Slot) and segment.name != SLOT):
            raise error_at(document, segment.span, _ONE_SLOT_RULE)
        if isinstance(segment, Slot) and is_repeated:
            raise error_at(document, segment.span, f"{_ONE_SLOT_RULE}, outside of every loop")
        inner, bodies = document, bodies_of(segment)
        if isinstance(segment, Include):
            inner = template.documents[segment.path]
            bodies = (inner.body,)
        repeats = is_repeated or isinstance(segment, Each)
        pending += [(one, inner, repeats) for body in reversed(bodies) for one in reversed(body)]


def check_shown(question: Question, template: Template | str) -> None:
    """Raise `OptionError` for examples or a cue that a template does not mention."""
    if not isinstance(template, Template):
        return
    source = template.source + "".join(document.source for document in template.documents.values())
    for name, value in (("examples", question.examples), ("cue", question.cue)):
        if value and not re.search(rf"\b{name}\b", source):
            raise OptionError(name, value, f"a template that writes `{name}`; {template.name} does not")


def render(template: Template, values: Mapping[str, object]) -> Page:
    """Render a template of the caller up to the slot of its answer.

    Raises `TemplateError` for a template that needs an unknown value, has a slot that
    is not the answer, or has no slot.
    """
    interpreter = Interpreter(template, values)
    page = _PageWriter()
    while (step := interpreter.step()) is not None:
        if isinstance(step, Write):
            page.written.append(step.text)
            if page.messages and page.role is None and step.text.strip():
                raise outside_error(step.document, step.span, is_literal=step.is_literal)
        elif isinstance(step, TurnStep):
            _write_turn(page, step)
        elif isinstance(step, Decide):
            return _finish_page(page, step, interpreter)
        elif not isinstance(step, Hide | Naming):
            document, span = _find_end_of_template(template)
            raise error_at(document, span, _ONE_SLOT_RULE)
    document, span = _find_end_of_template(template)
    raise error_at(document, span, f"the page has no <<select {SLOT!r} options=answers>>")


def _write_turn(page: _PageWriter, step: TurnStep) -> None:
    """Begin or end a turn; raise `TemplateError` for text outside of all turns."""
    text = page.take()
    if step.begins:
        if not page.messages and text.strip():
            raise outside_error(step.document, step.span, is_literal=False)
        page.role = step.role
    else:
        page.messages.append({"role": str(page.role), "content": text})
        page.role = None


def _finish_page(page: _PageWriter, step: Decide, interpreter: Interpreter) -> Page:
    """Return the page before the slot; raise `TemplateError` if it is no answer."""
    slot = step.slot
    if slot.kind != "select" or slot.name != SLOT or slot.choices is not None:
        raise error_at(step.document, slot.span, _ONE_SLOT_RULE)
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


def _find_end_of_template(template: Template) -> tuple[Document, Span]:
    """Return the location of the end of a template, for errors about all of it."""
    document = template.document
    return document, document.body[-1].span if document.body else Span(0, 0)
