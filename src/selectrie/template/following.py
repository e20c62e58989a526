"""What certainly follows a slot on the page, whatever the model decides there."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.errors import TemplateError
from selectrie.template.program import Program
from selectrie.template.scope import Undecided
from selectrie.template.steps import Continue, Decide, Naming, Together, Turn, Write

MOST_FOLLOWING = 400
"""Characters of it that are looked at: a choice ends at the first token boundary behind it, a few characters on."""
_MOST_STEPS = 2_000


@dataclass(frozen=True, slots=True)
class Following:
    """text: at most `MOST_FOLLOWING` characters. ends_role: of the turn that ends right behind the text, None where none does."""

    text: str = ""
    ends_role: str | None = None


def what_follows(program: Program, *names: str) -> Following:
    """What stands on the page behind the step that the program is at, up to what the model decides next.

    names: what this step will name; nothing is known of their values.
    """
    ahead = program.ahead(_MOST_STEPS)
    ahead.suppose(*names)
    return _certain(ahead, may_branch=True)


def what_comes(program: Program, *, more: bool) -> Following:
    """What comes where the loop that asks whether it goes on does, or does not."""
    ahead = program.ahead(_MOST_STEPS)
    ahead.go_on(more=more)
    return _certain(ahead, may_branch=False)


def _certain(ahead: Program, *, may_branch: bool) -> Following:
    """Text up to the next step that is no text. What cannot be told before a slot is decided is not certain."""
    written: list[str] = []
    end = Following()
    try:
        while sum(map(len, written)) < MOST_FOLLOWING:
            step = ahead.step()
            if isinstance(step, Write):
                written.append(step.text)
            elif isinstance(step, Naming) or (isinstance(step, Decide) and ahead.skip(step)):
                continue
            elif isinstance(step, Continue) and may_branch:
                end = _shared(*(what_comes(ahead, more=more) for more in (True, False)))
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
    return Following(text, end.ends_role) if len(text) <= MOST_FOLLOWING else Following(text[:MOST_FOLLOWING])


def _shared(one: Following, other: Following) -> Following:
    """What is the same, whichever of the two it is."""
    if one == other:
        return one
    pairs = enumerate(zip(one.text, other.text, strict=False))
    n_same = next((at for at, (a, b) in pairs if a != b), min(len(one.text), len(other.text)))
    return Following(one.text[:n_same])
