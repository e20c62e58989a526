"""Options for rendering a template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from selectrie.errors import OptionError
from selectrie.options.argument_names import named_fields
from selectrie.options.checks import DEADLINE, Bounds, ReadOnlyDict, check_options, named, option, seed


@named_fields
@dataclass(frozen=True, slots=True)
class RenderParams:
    """Options for rendering a template.

    Attributes:
        seed: Seed of the page, from which the seed of each slot is derived. None takes
            one from the system for each page.
        max_tokens: Maximum number of tokens of a `gen` that does not set its own.
        template_args: Arguments passed by name to the model's chat template, for roles.
            The mapping is copied and is not part of the hash.
        parse_special: Recognise control tokens such as `<|im_end|>` in the template's
            own text; never in values.
        priority: Requests with a higher priority are served first.
        deadline_s: Seconds from now after which a page that is not finished raises
            `DeadlineError`.
    """

    seed: int | None = None
    max_tokens: int = option(128, Bounds(1))
    template_args: Mapping[str, Any] = field(default_factory=ReadOnlyDict, hash=False)
    parse_special: bool = False
    priority: int = 0
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", seed("seed", self.seed))
        check_options(self)
        object.__setattr__(self, "template_args", named("template_args", self.template_args))
        if type(self.priority) is not int:
            raise OptionError("priority", self.priority, "a whole number")
        if self.deadline_s is not None:
            DEADLINE.check("deadline_s", self.deadline_s)


DEFAULT_RENDERING = RenderParams()
