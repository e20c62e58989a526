"""Says where an argument belongs that a call does not have.

People know the names of other libraries, or those of a record of options. Python's own
error says only that the name is unexpected.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from difflib import get_close_matches
from functools import wraps
from typing import ParamSpec, TypeVar

from selectrie.engine.requests.generation_params import GenerationParams
from selectrie.errors import UnknownArgumentError
from selectrie.options import BeamSearchParams, PromptParams, RenderParams, SamplingParams, SearchParams, StopParams

P = ParamSpec("P")
R = TypeVar("R")

_SAME = {
    "max_new_tokens": "max_tokens",
    "max_length": "max_tokens",
    "n_predict": "max_tokens",
    "stop_sequences": "stop",
    "stop_token_ids": "stop_tokens",
    "repetition_penalty": "repeat_penalty",
    "logprobs": "n_alternatives",
    "top_logprobs": "n_alternatives",
    "ignore_eos": "ignore_eog",
    "num_beams": "width",
    "beam_width": "width",
    "system_prompt": "system",
    "timeout": "deadline_s",
    "labels": "choices",
    "options": "choices",
    "candidates": "choices",
    "classes": "choices",
    "text": "state",
    "question": "questions",
}
"""Names of other libraries, by what is called otherwise here."""
_ADVICE = {
    "regex": ("grammar", "Grammar.from_regex(…)"),
    "pattern": ("grammar", "Grammar.from_regex(…)"),
    "json_schema": ("grammar", "Grammar.from_json_schema(…)"),
    "response_format": ("grammar", "Grammar.from_json_schema(…)"),
    "response_model": ("grammar", "Grammar.from_type(…)"),
    "messages": ("prompt", "the messages of a chat"),
    "do_sample": ("sampling", "SamplingParams.GREEDY"),
    "choices": ("questions", "Choice(…)"),
}
"""The argument, and its value, of what is no single option here."""


def named_arguments(call: Callable[P, R]) -> Callable[P, R]:
    """Return a function that names the right argument where an unknown one is given.

    `UnknownArgumentError` is a `TypeError`, as Python's own.
    """

    @wraps(call)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                raise  # from within the call
            unknown = [name for name in kwargs if name not in inspect.signature(call).parameters]
            if not unknown:
                raise
            raise UnknownArgumentError(unknown[0], call.__name__, _advice(call, unknown[0])) from None

    return checked


def _advice(call: Callable[..., object], name: str) -> str:
    """Return what to write in place of an unknown argument."""
    parameters = list(inspect.signature(call).parameters)
    own = _SAME.get(name, name)
    if own in parameters:
        return f"give it as {own}"
    argument, value = _ADVICE.get(own, (own, "…"))
    if argument in parameters:
        return f"give {argument}={value}"
    for parameter, record in _records(call):
        if argument in {field.name for field in fields(record)}:
            return f"give {parameter}={record.__name__}({argument}={value})"
    close = get_close_matches(own, parameters, n=1)
    return f"did you mean {close[0]}?" if close else f"it has {', '.join(one for one in parameters if one != 'self')}"


def _records(call: Callable[..., object]) -> Iterator[tuple[str, type]]:
    """Yield the arguments that are records of options, with their classes."""
    from selectrie.decide.params import DecisionParams  # an error is the only one to need it

    known = (StopParams, SamplingParams, SearchParams, BeamSearchParams, PromptParams, RenderParams)
    for parameter, hint in call.__annotations__.items():
        names = set(re.findall(r"\w+", str(hint)))
        yield from ((parameter, one) for one in (*known, GenerationParams, DecisionParams) if one.__name__ in names)
