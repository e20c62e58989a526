"""The time that a chat template is told, fixed once for a request or a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from selectrie.core.vocabulary import TIME_ARGUMENT, Vocabulary
from selectrie.options import PromptParams


def time_args(vocabulary: Vocabulary, time: str | None = None) -> dict[str, str]:
    """Return the argument that fixes the time, {} for a template that reads none.

    It is `time`, that of the vocabulary's trace, or the present local time, in ISO 8601
    to the second.
    """
    if vocabulary.chat_template is None or TIME_ARGUMENT not in vocabulary.chat_source:
        return {}
    if time is None:
        time = vocabulary.chat_time
    if time is None:
        time = datetime.now().isoformat(timespec="seconds")  # noqa: DTZ005 - the user's own time is meant
    return {TIME_ARGUMENT: time} if time else {}


def at_one_time(vocabulary: Vocabulary, prompting: PromptParams, *prompts: object) -> PromptParams:
    """Return the options with the time, if a prompt is a chat and no time is given."""
    if TIME_ARGUMENT in prompting.template_args or (prompting.system is None and not any(map(_is_chat, prompts))):
        return prompting
    args = time_args(vocabulary)
    return replace(prompting, template_args={**prompting.template_args, **args}) if args else prompting


def _is_chat(prompt: object) -> bool:
    if not isinstance(prompt, Sequence) or isinstance(prompt, str | bytes | bytearray):
        return False
    return len(prompt) > 0 and isinstance(prompt[0], Mapping)
