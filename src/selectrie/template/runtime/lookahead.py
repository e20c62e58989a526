"""Finds the text that certainly follows a slot, whatever the model decides there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from selectrie.errors import TemplateError
from selectrie.template.runtime.interpreter import Interpreter
from selectrie.template.runtime.steps import Continue, Decide, Naming, Together, Turn, Write
from selectrie.template.values.scope import Undecided

MAX_FOLLOWING = 400
"""Maximum number of following characters to look at.

A choice ends at the first token boundary after it, which is a few characters later.
"""
_MAX_STEPS = 2_000


@dataclass(frozen=True, slots=True)
class Following:
    """The text that certainly follows a step on the page.

    Attributes:
        text: The text, at most `MAX_FOLLOWING` characters.
        ends_role: Role of the turn that ends directly after the text, or None.
        either: Two texts of which one follows, or (): the beginning of a loop's next
            item, and the text after the loop.
        ends: Whether the control token of the template's own text that directly follows
            the text ends generation; None if there is no such token.
    """

    text: str = ""
    ends_role: str | None = None
    either: tuple[str, ...] = ()
    ends: bool | None = None


ChunkedProduct = Callable[[str], "tuple[str, bool] | None"]
"""Splits literal text at its first control token.

Returns the text before the token and whether the token ends generation; None if there
is no control token.
"""


def no_cut(_literal: str) -> None:
    """Return None: the literal text has no control token."""


def what_follows(program: Interpreter, *names: str, cut: ChunkedProduct = no_cut) -> Following:
    """Return the text that follows the current step of the program on the page.

    It ends at the next decision of the model, or at a control token. `names` are the
    names that this step will set; their values count as unknown.
    """
    ahead = program.ahead(_MAX_STEPS)
    ahead.suppose(*names)
    return _certain(ahead, cut, may_branch=True)


def what_comes(program: Interpreter, *, more: bool, cut: ChunkedProduct = no_cut) -> Following:
    """Return the text that follows if a loop goes on (`more`), or if it ends.

    The loop is the one that the last `Continue` is about.
    """
    ahead = program.ahead(_MAX_STEPS)
    ahead.go_on(more=more)
    return _certain(ahead, cut, may_branch=False)


def _certain(ahead: Interpreter, cut: ChunkedProduct, *, may_branch: bool) -> Following:
    """Return the text up to the next step that is not a `Write`.

    It ends earlier where the page depends on an undecided slot.
    """
    written: list[str] = []
    run = ""  # literals, which together may spell a control token
    end = Following()
    try:
        while sum(map(len, written)) < MAX_FOLLOWING:
            step = ahead.step()
            if isinstance(step, Write):
                before = "".join(written).removesuffix(run) if step.is_literal else ""
                run = run + step.text[: 2 * MAX_FOLLOWING] if step.is_literal else ""
                control = cut(run) if run else None
                if control is not None:
                    written, end = [before, control[0]], Following(ends=control[1])
                    break
                written.append(step.text)
            elif isinstance(step, Naming):
                ahead.suppose(step.name)
            elif isinstance(step, Decide) and ahead.skip(step):
                continue
            elif isinstance(step, Continue) and may_branch:
                end = _shared(*(what_comes(ahead, more=more, cut=cut) for more in (True, False)))
                break
            elif isinstance(step, Together):
                written.append(ahead.leading_text(step))
                break
            else:
                end = Following("", step.role if isinstance(step, Turn) and not step.begins else None)
                break
    except (Undecided, TemplateError):
        end = Following()  # rendering raises the error if the page gets there
    text = "".join(written) + end.text
    if len(text) > MAX_FOLLOWING:
        return Following(text[:MAX_FOLLOWING])
    return Following(text, end.ends_role, () if text else end.either, end.ends)


def _shared(one: Following, other: Following) -> Following:
    """Return the longest common beginning of two possible continuations."""
    if one == other:
        return one
    pairs = enumerate(zip(one.text, other.text, strict=False))
    n_same = next((at for at, (a, b) in pairs if a != b), min(len(one.text), len(other.text)))
    return Following(one.text[:n_same], either=(one.text, other.text))
