"""The turns of a chat, with the text that the model's template writes around each."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any

from selectrie.core.tracked_text import TEMPLATE, TrackedText, trimmed_to
from selectrie.core.vocabulary import ChatTemplate
from selectrie.errors import IncompatibleOptionsError, PromptError, words
from selectrie.tokenization.prompts import ROLE, tracked_args

_KEY = blake2b(b"selectrie turns", digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a chat.

    Attributes:
        role: The role.
        before: The text that the template writes before the content.
        after: The text that the template writes after the content.
        said: The content; None while the turn is open.
    """

    role: str
    before: TrackedText
    after: TrackedText
    said: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """The turns of a chat so far; the last one may be open.

    `opened` and `closed` return new records.

    Attributes:
        template: The model's own chat template, or None if it has none.
        args: Further arguments of the template.
        ends: Spellings of the tokens that end a generation.
        all: The turns.
    """

    template: ChatTemplate | None
    args: Mapping[str, Any]
    ends: tuple[str, ...] = ()
    all: tuple[Turn, ...] = ()

    @property
    def open(self) -> Turn | None:
        """Return the open turn, or None."""
        return self.all[-1] if self.all and self.all[-1].said is None else None

    def opened(self, role: str) -> Turns:
        """Return the turns with one more turn, which is open.

        An assistant's turn begins with the template's generation prompt if there is
        one, and with the white space that a finished turn has after it. The template,
        rendered with the new turn, must write earlier turns as before.

        Raises `PromptError` if a turn is open, if the model has no chat template, if
        the role is not a word, or if the template refuses these roles or rewrites
        earlier turns.
        """
        self._check(role)
        new = _mark(len(self.all))
        rendered = self._rendered_with(role, new)
        if not rendered.startswith(self._written):
            raise self._rewritten(role)
        before, after = rendered[len(self._written) :].split(new)
        if role == "assistant" and self.all:
            start = self._generation_start()
            if start and not (before.startswith(start) and not before[len(start) :].strip()):
                before = start
        self._check_said(role, rendered)
        return replace(self, all=(*self.all, Turn(role, before, self._between(role, after))))

    def closed(self, said: str) -> Turns:
        """Return the turns with the open turn closed; `said` is its content.

        Raises `PromptError` if none is open.
        """
        if self.open is None:
            raise PromptError("no turn is open, so none can be closed")
        return replace(self, all=(*self.all[:-1], replace(self.all[-1], said=said)))

    def _check(self, role: str) -> None:
        if self.template is None:
            raise PromptError(
                "this model has no chat template, so a page cannot have roles; write the turns as text, "
                "formatted as the model expects"
            )
        if self.open is not None:
            raise PromptError(f"a turn of {role!r} cannot begin inside a turn of {self.open.role!r}; close that first")
        if not ROLE.fullmatch(role):
            raise PromptError(f"role {role!r}: expected a word such as 'user', 'assistant' or 'system'")

    @property
    def _written(self) -> str:
        """Return the text of all turns so far, with a mark in place of each content."""
        return self._with([_mark(index) for index in range(len(self.all))])

    def _with(self, said: Sequence[str]) -> str:
        return "".join([turn.before + text + turn.after for turn, text in zip(self.all, said, strict=True)])

    def _render(self, role: str, messages: Sequence[Mapping[str, str]], *, generates: bool = False) -> TrackedText:
        """Render `messages`, and count their contents as text of the template.

        The contents are marks, which stand for the real ones.
        """
        if self.template is None:
            raise PromptError("this model has no chat template")
        render = partial(self.template, add_generation_prompt=generates)
        values = [{key: TrackedText(text, TEMPLATE) for key, text in message.items()} for message in messages]
        try:
            plain = render(messages, **self.args)
            rendered = render(values, **tracked_args(self.args)) if self.args else plain
        except PromptError as error:
            before = f" after {self._roles}" if self.all else " at the beginning"
            raise PromptError(f"a turn of {role!r} is not possible{before}: {error}") from error
        if rendered != plain:
            raise PromptError(
                words(
                    "the model's chat template changes what `template_args` say, so their text cannot be distinguished "
                    "from its own"
                )
            )
        return rendered if isinstance(rendered, TrackedText) else TrackedText(rendered, TEMPLATE)

    def _messages(self, *, marked: bool) -> list[Mapping[str, str]]:
        said = [_mark(index) if marked else turn.said or "" for index, turn in enumerate(self.all)]
        return [{"role": turn.role, "content": text} for turn, text in zip(self.all, said, strict=True)]

    def _rendered_with(self, role: str, content: str, *, marked: bool = True) -> TrackedText:
        """Return the rendering of the turns with one more message of `role`.

        Raises `PromptError` unless its content occurs in the rendering exactly once.
        Some templates write a system message only into the next message of the user, so
        that one is added if needed and cut off again.
        """
        messages = [*self._messages(marked=marked), {"role": role, "content": content}]
        refusal: PromptError | None = None
        try:
            rendered = self._render(role, messages)
        except PromptError as error:
            refusal, rendered = error, TrackedText("")
        if rendered.count(content) != 1 and role not in ("user", "assistant"):
            next_one = _mark(len(messages))
            try:
                rendered, _, _ = self._render(role, [*messages, {"role": "user", "content": next_one}]).partition(
                    next_one
                )
            except PromptError as error:
                refusal = refusal or error
        if rendered.count(content) != 1:
            raise refusal or PromptError(
                f"the model's chat template leaves out what a turn of {role!r} says{self._after}, or says it twice"
            )
        return rendered

    def _generation_start(self) -> TrackedText:
        """Return the template's generation prompt; "" if it has none.

        It is the text that the template writes for the assistant to continue.
        """
        rendered = self._render("assistant", self._messages(marked=True), generates=True)
        if not rendered.startswith(self._written):
            raise self._rewritten("assistant")
        return rendered[len(self._written) :]

    def _between(self, role: str, after: TrackedText) -> TrackedText:
        """Return the text that the template writes after a turn when others follow it.

        `after` is its text after the turn as the last one, where some templates write
        one more end token.
        """
        end = next((end for end in self.ends if end and after.endswith(end)), "")
        if not end:
            return after
        new = _mark(len(self.all))
        next_one = {"role": "assistant" if role == "user" else "user", "content": _mark(len(self.all) + 1)}
        try:
            _, _, followed = self._render(
                role, [*self._messages(marked=True), {"role": role, "content": new}, next_one]
            ).partition(new)
        except PromptError:
            return after
        ends_chat = followed.startswith(after.removesuffix(end)) and not followed.startswith(after)
        return after.removesuffix(end) if ends_chat else after

    def _check_said(self, role: str, rendered: str) -> None:
        """Raise `PromptError` if the template rewrites the contents of earlier turns.

        `rendered` is the rendering with marks in place of the contents.
        """
        if not self.all:
            return
        rest = rendered[len(self._written) :]
        actual = self._rendered_with(role, _mark(len(self.all)), marked=False)
        befores, afters = [turn.before for turn in self.all], [turn.after for turn in self.all]
        written = map(operator.add, ["", *afters], [*befores, rest])
        if trimmed_to(actual, list(written), [turn.said or "" for turn in self.all]) is None:
            raise self._rewritten(role)

    @property
    def _roles(self) -> str:
        return ", ".join(turn.role for turn in self.all)

    @property
    def _after(self) -> str:
        return f" after {self._roles}" if self.all else ""

    def _rewritten(self, role: str) -> PromptError:
        return PromptError(
            words(
                "with a turn of {} the model's chat template rewrites the turns before it ({}), "
                "which are on the page already (templates do that if they move the system message, "
                "or strip reasoning from earlier answers); "
                "render such a chat in pages of one answer each, or write the turns as text with `parse_special`",
                repr(role),
                self._roles,
            )
        )


def _mark(index: int) -> str:
    """Return the mark that replaces the content of a turn."""
    return f"m{_KEY}n{index}m"


def turns_of(template: ChatTemplate | None, args: Mapping[str, Any], ends: Sequence[str]) -> Turns:
    """Return a `Turns` without any turn.

    Raises `IncompatibleOptionsError` for the template argument `add_generation_prompt`,
    which a page sets itself.
    """
    if "add_generation_prompt" in args:
        remedy = "the page opens its turns itself, so leave it out"
        raise IncompatibleOptionsError("template_args['add_generation_prompt']", "a template", remedy)
    return Turns(template, dict(args), tuple(ends))
