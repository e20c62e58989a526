"""Chat templates of models, whose rendered text knows its origins.

Jinja runs the template on `TrackedText`. Text from the template's source, BOS and EOS
belong to the template. All other text is a value or, if its origin was lost, mixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jinja2 import TemplateError
from llama_cpp.llama_chat_format import Jinja2ChatFormatter

from selectrie.backends.llama_cpp.chat_environment import ChatEnvironment
from selectrie.backends.llama_cpp.chat_meter import LimitError, Meter
from selectrie.core.tracked_text import TEMPLATE, TrackedText, derived, texts_in
from selectrie.core.vocabulary import ChatTemplate
from selectrie.errors import PromptError

MAX_TIME_FORMAT = 1_000
"""Maximum length of the format given to `strftime_now`.

Each of its characters may become 256.
"""
MAX_SHOWN_LENGTH = 300
"""Maximum number of characters of a template's own error that a message shows."""


def chat_template(source: str, *, bos: str, eos: str) -> ChatTemplate:
    """Return the `ChatTemplate` with this source, compiled on first use.

    It renders as llama-cpp-python's `Jinja2ChatFormatter` does. If messages or
    arguments contain `TrackedText`, the result is `TrackedText` too, and untracked text
    in them counts as mixed. Whatever the template does, rendering stays within the
    limits of `chat_meter` and ends in a text or a `PromptError`.
    """
    plain, tracking = (_Formatter(source, bos, eos, tracks=tracks) for tracks in (False, True))

    def render(messages: Sequence[Mapping[str, object]], /, **template_args: object) -> str:
        values = [dict(message) for message in messages]
        try:
            tracks = any(isinstance(text, TrackedText) for text in texts_in([values, template_args]))
            return (tracking if tracks else plain).rendered(values, template_args)
        except LimitError as error:
            raise PromptError(
                f"the model's chat template is not rendered: {error}; render the chat yourself and give it as text "
                "with parse_special, or as token ids"
            ) from error
        except (TemplateError, ValueError, TypeError) as error:
            # ValueError comes from the template's own `raise_exception`; TypeError,
            # from an unsuitable template argument.
            raise PromptError(f"the model's chat template refuses these messages: {_shown(error)}") from error
        except Exception as error:
            reason = f"{type(error).__name__}: {_shown(error)}".removesuffix(": ")
            raise PromptError(f"the model's chat template cannot be rendered: {reason}") from error

    return render


@dataclass
class _Formatter:
    """A chat template in one environment, which tracks origins or does not."""

    source: str
    bos: str
    eos: str
    tracks: bool

    def rendered(self, messages: list[dict[str, object]], template_args: Mapping[str, object]) -> str:
        args = dict(template_args)
        formatter = copy(self._formatter)
        formatter.add_generation_prompt = bool(args.pop("add_generation_prompt", True))
        environment, code = self._compiled
        formatter._environment = environment.template(code, Meter.of([messages, args]))
        prompt: str = formatter(messages=messages, **args).prompt
        return prompt

    @cached_property
    def _formatter(self) -> Any:
        """Return llama-cpp-python's formatter, which defines a template's inputs.

        Its own environment is not used, because it has no limits.
        """
        made: Any = Jinja2ChatFormatter("", eos_token=self.eos, bos_token=self.bos)
        if self.tracks:
            made.bos_token, made.eos_token = TrackedText(self.bos, TEMPLATE), TrackedText(self.eos, TEMPLATE)
        now, tracks = made.strftime_now, self.tracks

        def strftime_now(form: str) -> str:
            if len(form) > MAX_TIME_FORMAT:
                raise LimitError(f"it formats the time with more than {MAX_TIME_FORMAT} characters")
            return derived(now(form), [form]) if tracks else now(form)

        made.strftime_now = strftime_now
        return made

    @cached_property
    def _compiled(self) -> Any:
        environment = ChatEnvironment(self._formatter._environment.environment, tracks=self.tracks)
        environment.meter = Meter.of([])
        return environment, environment.compiled(self.source)


def _shown(error: Exception) -> str:
    """Return the message of an error, shortened."""
    text = str(error)
    return text if len(text) <= MAX_SHOWN_LENGTH else text[: MAX_SHOWN_LENGTH - 1] + "…"
