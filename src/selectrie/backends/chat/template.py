"""Chat templates of models, whose rendered text knows its origins.

Jinja runs the template on `TrackedText`. Text from the template's source and of the
model's special tokens belongs to the template. All other text is a value or, if its
origin was lost, mixed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial

from jinja2 import Template, TemplateError, TemplateSyntaxError

from selectrie.core.tracked_text import TEMPLATE, TrackedText, derive_origins, texts_in
from selectrie.core.vocabulary import TIME_ARGUMENT
from selectrie.errors import PromptError

_REASONING = ("reasoning_content", "thinking", "reasoning")
"""Keys under which a message may have its reasoning. The first one present counts."""
_DIRECTIVE = re.compile(r"%([-_0^#]*[0-9]*)[EO]?(.)", re.DOTALL)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_C_LOCALE: Mapping[str, Callable[[datetime], str]] = {
    "a": lambda time: _DAYS[time.weekday()][:3],
    "A": lambda time: _DAYS[time.weekday()],
    "b": lambda time: _MONTHS[time.month - 1][:3],
    "B": lambda time: _MONTHS[time.month - 1],
    "c": lambda time: f"{_C_LOCALE['a'](time)} {_C_LOCALE['b'](time)} {time.day:2} {time:%H:%M:%S} {time.year:04}",
    "h": lambda time: _MONTHS[time.month - 1][:3],
    "p": lambda time: "AM" if time.hour < 12 else "PM",
    "P": lambda time: "am" if time.hour < 12 else "pm",
    "r": lambda time: f"{time:%I:%M:%S} {_C_LOCALE['p'](time)}",
    "x": lambda time: f"{time:%m/%d/%y}",
    "X": lambda time: f"{time:%H:%M:%S}",
}
"""Functions that write the locale's directives of `strftime` as in the C locale."""
MAX_SHOWN_LENGTH = 300
"""Maximum number of characters of a template's own error that a message shows."""


@dataclass(frozen=True, slots=True)
class JinjaTemplate:
    """A chat template in Jinja; it satisfies `ChatTemplate`.

    It renders as Transformers does. If messages or arguments contain `TrackedText`, the
    result is `TrackedText` too, and untracked text in them counts as mixed. Every
    error of the template becomes a `PromptError`. It is compiled on first use.

    Attributes:
        source: The source of the template.
        special_tokens: Texts of special tokens, or lists of them, by the names that
            the template uses for them, such as "bos_token".
        absent: Names of arguments that are None unless they are given.
        aliases_reasoning: Whether the template finds the reasoning of a message under
            both keys, `thinking` and `reasoning_content`, whichever one has it.
    """

    source: str
    special_tokens: Mapping[str, object]
    absent: tuple[str, ...] = ()
    aliases_reasoning: bool = False
    _renderers: tuple[_Renderer, _Renderer] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        made = (_Renderer(self.source, self.special_tokens, self.absent, tracks=tracks) for tracks in (False, True))
        object.__setattr__(self, "_renderers", tuple(made))

    def __reduce__(self) -> tuple[object, ...]:
        return JinjaTemplate, (self.source, self.special_tokens, self.absent, self.aliases_reasoning)

    def __call__(self, messages: Sequence[Mapping[str, object]], /, **template_args: object) -> str:
        """Render a chat, and return its text. Raises `PromptError`."""
        plain, tracking = self._renderers
        values = [dict(_alias_reasoning(message) if self.aliases_reasoning else message) for message in messages]
        try:
            is_plain = all(map(_is_plain, values)) and _is_plain(template_args)
            tracks = not is_plain and any(isinstance(text, TrackedText) for text in texts_in([values, template_args]))
            return (tracking if tracks else plain).render(values, template_args)
        except PromptError:
            raise
        except TemplateSyntaxError as error:
            raise PromptError(
                f"the model's chat template is broken, in line {error.lineno}: {_shorten(error)}; give another one, or "
                "render the chat yourself"
            ) from error
        except (TemplateError, ValueError, TypeError) as error:
            # ValueError comes from the template's own `raise_exception`; TypeError,
            # from an unsuitable template argument.
            raise PromptError(f"the model's chat template refuses these messages: {_shorten(error)}") from error
        except Exception as error:
            reason = f"{type(error).__name__}: {_shorten(error)}".removesuffix(": ")
            raise PromptError(f"the model's chat template cannot be rendered: {reason}") from error


@dataclass
class _Renderer:
    """A chat template in one Jinja environment.

    `tracks` says whether the rendered text knows which parts come from the template
    (`TrackedText`).
    """

    source: str
    special_tokens: Mapping[str, object]
    absent: tuple[str, ...]
    tracks: bool

    def render(self, messages: list[dict[str, object]], template_args: Mapping[str, object]) -> str:
        """Render a chat; raise `TypeError` if an argument is one of the template's."""
        args = dict(template_args)
        adds_prompt = bool(args.pop("add_generation_prompt", True))
        time = args.pop(TIME_ARGUMENT, None)
        own = {
            **self._own_tokens,
            "messages": messages,
            "add_generation_prompt": adds_prompt,
            "raise_exception": _raise_exception,
            TIME_ARGUMENT: partial(self._strftime_now, _time_of(time)),
        }
        taken = next((name for name in args if name in own), None)
        if taken is not None:
            raise TypeError(f"the argument {taken!r} is the template's own")
        return self._compiled.render({**dict.fromkeys(self.absent), **own, **args})

    @cached_property
    def _own_tokens(self) -> dict[str, object]:
        """Return the special tokens; their text counts as the template's."""
        return {name: _as_template(value) if self.tracks else value for name, value in self.special_tokens.items()}

    def _strftime_now(self, time: datetime, form: str) -> str:
        """Return a time as text; it is the template's own if `form` is."""
        text = time.strftime(_in_c_locale(form, time))
        return derive_origins(text, [form]) if self.tracks else text

    @cached_property
    def _compiled(self) -> Template:
        """Return the compiled template."""
        from selectrie.backends.chat import environment  # imported on first use

        made = environment.TrackingEnvironment() if self.tracks else environment.ChatEnvironment()
        return made.from_string(self.source)


def _time_of(given: object) -> datetime:
    """Return the local time given in ISO 8601, or the present time for None."""
    if given is None:
        return datetime.now()  # noqa: DTZ005 - the user's own time is meant
    try:
        return datetime.fromisoformat(str.__str__(given))
    except (ValueError, TypeError):
        raise ValueError(f"{TIME_ARGUMENT}={given!r}: expected a local time in ISO 8601") from None


def _in_c_locale(form: str, time: datetime) -> str:
    """Return a format of `strftime` with the directives of `_C_LOCALE` filled in."""

    def plain(match: re.Match[str]) -> str:
        flags, letter = match.groups()
        if letter not in _C_LOCALE:
            return f"%{flags}{letter}"
        text = _C_LOCALE[letter](time)
        return text.upper() if "^" in flags else text

    return _DIRECTIVE.sub(plain, form)


def _alias_reasoning(message: Mapping[str, object]) -> Mapping[str, object]:
    """Return a message with its reasoning, if any, under both keys of templates."""
    reasoning = next((message[name] for name in _REASONING if message.get(name) is not None), None)
    if reasoning is None:
        return message
    is_tracked = any(isinstance(name, TrackedText) for name in message)
    thinking, content = (TrackedText(name, TEMPLATE) if is_tracked else name for name in ("thinking", _REASONING[0]))
    return {thinking: reasoning, **message, content: reasoning}


def _is_plain(values: Mapping[str, object]) -> bool:
    """Return whether a mapping has only texts without origins, numbers and None."""
    return _PLAIN.issuperset(map(type, values)) and _PLAIN.issuperset(map(type, values.values()))


_PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types of most values. Other values are looked into."""


def _as_template(value: object) -> object:
    """Return a special token, or a list of them, marked as the template's own text."""
    if isinstance(value, list):
        return [_as_template(item) for item in value]
    return TrackedText(value, TEMPLATE) if isinstance(value, str) else value


def _raise_exception(message: str) -> None:
    raise ValueError(message)


def _shorten(error: Exception) -> str:
    """Return the message of an error, cut to `MAX_SHOWN_LENGTH`."""
    text = str(error)
    return text if len(text) <= MAX_SHOWN_LENGTH else text[: MAX_SHOWN_LENGTH - 1] + "…"
