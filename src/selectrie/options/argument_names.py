"""Says where an argument belongs that a call does not have.

People know the names of other libraries, or those of a record of options. Python's own
error says only that the name is unexpected.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from selectrie.errors import UnknownArgumentError

P = ParamSpec("P")
R = TypeVar("R")
RecordT = TypeVar("RecordT", bound=type[Any])

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
    "temp": "temperature",
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
_OF_CALLS = ("n", "prompt", "seed", "prompting", "rendering", "sampling", "search", "stopping")
"""Arguments that belong to no record of options."""


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
            name = call.__qualname__.removesuffix(".__init__").rpartition(".")[2]
            raise UnknownArgumentError(unknown[0], name, _advice(call, unknown[0])) from None

    return checked


_records: list[type[Any]] = []


def named_fields(record: RecordT) -> RecordT:
    """Decorate a record of options, as `named_arguments` does a function."""
    record.__init__ = named_arguments(record.__init__)
    _records.append(record)
    return record


def _advice(call: Callable[..., object], name: str) -> str:
    """Return what to write in place of an unknown argument."""
    parameters = list(inspect.signature(call).parameters)
    own = _SAME.get(name, name)
    if own in parameters:
        return f"give it as {own}"
    argument, value = _ADVICE.get(own, (own, "…"))
    if argument in parameters:
        return f"give {argument}={value}"
    owners = [record for record in _records if argument in {field.name for field in fields(record)}]
    for parameter, record in _arguments_of(call, owners):
        return f"give {parameter}={record.__name__}({argument}={value})"
    if call.__name__ == "__init__" and argument in _OF_CALLS:
        return "it is an argument of the call itself"
    if call.__name__ == "__init__" and owners:
        return f"{argument} is a field of {' or '.join(sorted(record.__name__ for record in owners))}"
    close = get_close_matches(own, parameters, n=1)
    return f"did you mean {close[0]}?" if close else f"it has {', '.join(one for one in parameters if one != 'self')}"


def _arguments_of(call: Callable[..., object], records: Sequence[type[Any]]) -> Iterator[tuple[str, type[Any]]]:
    """Yield the arguments that are one of some records, with their classes."""
    for parameter, hint in call.__annotations__.items():
        names = set(re.findall(r"\w+", str(hint)))
        yield from ((parameter, one) for one in records if one.__name__ in names)
