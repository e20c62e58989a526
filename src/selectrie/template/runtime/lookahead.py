"""What certainly follows a slot on the page, whatever the model decides there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from selectrie.errors import TemplateError
from selectrie.template.runtime.interpreter import Program
from selectrie.template.runtime.steps import Continue, Decide, Naming, Together, Turn, Write
from selectrie.template.values.scope import Undecided

MOST_FOLLOWING = 400
"""Characters of it that are looked at: a choice ends at the first token boundary behind it, a few characters on."""
_MOST_STEPS = 2_000


@dataclass(frozen=True, slots=True)
class Following:
    """text: at most `MOST_FOLLOWING` characters. ends_role: of the turn that ends right behind the text, None where none does.
    either: where nothing is certain but that it is one of two texts, the next item of a loop or what ends it, these. ends: a
    control token of the template's own text stands right behind the text: does it end generation? None: there is none.
    """

    text: str = ""
    ends_role: str | None = None
    either: tuple[str, ...] = ()
    ends: bool | None = None


Cut = Callable[[str], "tuple[str, bool] | None"]
"""Of literal text: what stands before its first control token, and whether that one ends generation; None: it has none."""


def no_cut(_literal: str) -> None:
    """Control tokens of literal text are none."""


def what_follows(program: Program, *names: str, cut: Cut = no_cut) -> Following:
    """What stands on the page behind the step that the program is at, up to what the model decides next, or a control token.

    names: what this step will name; nothing is known of their values.
    """
    ahead = program.ahead(_MOST_STEPS)
    ahead.suppose(*names)
    return _certain(ahead, cut, may_branch=True)


def what_comes(program: Program, *, more: bool, cut: Cut = no_cut) -> Following:
    """What comes where the loop that asks whether it goes on does, or does not."""
    ahead = program.ahead(_MOST_STEPS)
    ahead.go_on(more=more)
    return _certain(ahead, cut, may_branch=False)


def _certain(ahead: Program, cut: Cut, *, may_branch: bool) -> Following:
    """Text up to the next step that is no text. What cannot be told before a slot is decided is not certain."""
    written: list[str] = []
    run = ""  # of literals, which may spell a control token together
    end = Following()
    try:
        while sum(map(len, written)) < MOST_FOLLOWING:
            step = ahead.step()
            if isinstance(step, Write):
                before = "".join(written).removesuffix(run) if step.is_literal else ""
                run = run + step.text[: 2 * MOST_FOLLOWING] if step.is_literal else ""
                found = cut(run) if run else None
                if found is not None:
                    written, end = [before, found[0]], Following(ends=found[1])
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
        end = Following()  # an error is raised where the page gets there, if it does
    text = "".join(written) + end.text
    if len(text) > MOST_FOLLOWING:
        return Following(text[:MOST_FOLLOWING])
    return Following(text, end.ends_role, () if text else end.either, end.ends)


def _shared(one: Following, other: Following) -> Following:
    """What is the same, whichever of the two it is."""
    if one == other:
        return one
    pairs = enumerate(zip(one.text, other.text, strict=False))
    n_same = next((at for at, (a, b) in pairs if a != b), min(len(one.text), len(other.text)))
    return Following(one.text[:n_same], either=(one.text, other.text))
