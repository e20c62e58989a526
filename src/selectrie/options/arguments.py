"""Arguments of calls: keywords in place of records, and advice for unknown names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from difflib import get_close_matches
from functools import cache, wraps
from importlib import import_module
from itertools import product
from typing import Any, ParamSpec, TypeVar

from selectrie.errors import ArgumentCountError, IncompatibleOptionsError, OptionError, OptionRef, UnknownArgumentError
from selectrie.options.checks import named, text
from selectrie.options.checks import record as check_record
from selectrie.options.keywords import KEYWORDS, Regex

P = ParamSpec("P")
R = TypeVar("R")
RecordT = TypeVar("RecordT", bound=type[Any])

SAME = {
    **dict.fromkeys(("max_new_tokens", "max_length", "n_predict"), "max_tokens"),
    "stop_sequences": "stop",
    "stop_token_ids": "stop_tokens",
    "repetition_penalty": "repeat_penalty",
    **dict.fromkeys(("logprobs", "top_logprobs"), "n_alternatives"),
    "ignore_eos": "ignore_eog",
    **dict.fromkeys(("num_beams", "beam_width"), "width"),
    "system_prompt": "system",
    "temp": "temperature",
    "timeout": "deadline_s",
    **dict.fromkeys(("labels", "options", "candidates", "classes"), "choices"),
    **dict.fromkeys(("text", "column"), "state"),
    "output": "out",
    "num_fewshot": "shots",
    "question": "questions",
    **dict.fromkeys(("threads", "num_threads"), "n_threads"),
    **dict.fromkeys(("gpu", "gpu_layers"), "n_gpu_layers"),
    **dict.fromkeys(("ctx_size", "num_ctx", "context_length", "max_model_len"), "n_ctx"),
    "batch_size": "n_batch",
}
"""Maps option names of other libraries to the names used here."""
_TYPE = "…, a JSON Schema or a class such as a pydantic model"
_ADVICE = {
    "regex": ("grammar", "Grammar.from_regex(…)"),
    "pattern": ("grammar", "Grammar.from_regex(…)"),
    **dict.fromkeys(("json_schema", "schema", "response_format", "response_model"), ("grammar", _TYPE)),
    "messages": ("prompt", "the messages of a chat"),
    "do_sample": ("sampling", "SamplingParams.GREEDY"),
    "choices": ("questions", "Choice(…)"),
    "accuracy": ("error", "1 - accuracy"),
}
"""Maps unknown arguments to the argument to give instead, and its value."""
_ALSO = {
    "device": ("n_gpu_layers",),
    **dict.fromkeys(("path", "file", "model_path"), ("model", "source")),
    "top": ("k",),
    "top_k": ("k",),
    "choices": ("options", "levels"),
    "options": ("levels",),
    "labels": ("options", "levels"),
    "values": ("options",),
    "text": ("context",),
    "threshold": ("min_confidence",),
    "prompt": ("instructions", "statement"),
    "question": ("instructions", "statement"),
    "min": ("low",),
    "max": ("high",),
    "yes_if": ("yes",),
    "no_if": ("no",),
    **dict.fromkeys(("json_schema", "schema", "response_format", "response_model"), ("kind",)),
}
"""Maps unknown arguments to what some calls have in their place."""
_CALLS = {
    ("generate", "stream"): "stream(…)",
    **{
        (f"{mode}{call}{many}", "column"): f'{mode}{call}_many(df["text"], …)'
        for mode, call, many in product(("", "a"), ("classify", "decide", "extract"), ("", "_many", "_iter"))
    },
}
"""Maps a call and an unknown argument of it to the call to write instead."""
_METHODS = {
    **dict.fromkeys(("chat", "create_chat_completion"), "generate(messages=…) or generate(user=…)"),
    **dict.fromkeys(("create_completion", "complete", "completion", "invoke", "predict"), "generate(…)"),
    **dict.fromkeys(("choose", "choice"), "select(…)"),
    **dict.fromkeys(("logprobs", "loglikelihood", "get_logprobs"), "score(…) or prompt_logprobs(…)"),
    "tokenize": "encode(…)",
    "detokenize": "decode(…)",
    "fill": "render(…)",
    **dict.fromkeys(("json", "dict", "model_dump", "to_json", "as_dict"), "to_dict()"),
    "label": "value",
    "labels": "classes, the labels to choose from, or values, the label of each text",
    "best": "text",
    **dict.fromkeys(("prob", "p", "score"), "probability"),
    **dict.fromkeys(("probs", "scores"), "probabilities"),
}
"""Maps names of other libraries, of calls and of parts of results, to ours."""
_LEAST_RATIO = 0.78
"""Similarity from which a name is taken as a mistake for another one.

"calibrate" and "calibration" have 0.8, "prompts" and "prompting" 0.75.
"""
_OWNERS = ("self", "cls")
_OF_CALLS = ("n", "prompt", "seed", "prompting", "rendering", "sampling", "search", "stopping")
"""Arguments that belong to no record of options."""


def named_arguments(call: Callable[P, R]) -> Callable[P, R]:
    """Return the function with keywords of its records, and with better errors.

    Where the last parameter is `**_keywords: Unpack[keywords.SelectKeywords]`, or of
    another class of `options.keywords`, the keywords of this class are merged into the
    records of the call (`merge_keywords`), and the signature lists them. `_keywords`
    has those of no record.

    The errors about arguments, `UnknownArgumentError` and `ArgumentCountError`, are
    `TypeError`s.
    """
    signature, keywords = _signature_of(call)
    name = call.__qualname__.removesuffix(".__init__")
    if "cls" not in signature.parameters:  # `Threshold.fit`, but `select`
        name = name.rpartition(".")[2]

    @wraps(call)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        given: tuple[Any, ...] = args
        named: dict[str, Any] = kwargs
        if keywords:
            unknown = [one for one in kwargs if one not in signature.parameters]
            if unknown:
                raise UnknownArgumentError(unknown[0], name, _advice(call, signature, unknown[0]))
            given, named = merge_keywords(call, args, kwargs, keywords)
        try:
            return call(*given, **named)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                raise  # from within the call
            unknown = [one for one in kwargs if one not in signature.parameters]
            if unknown:
                raise UnknownArgumentError(unknown[0], name, _advice(call, signature, unknown[0])) from None
            raise _count_error(signature, name, args, kwargs) or error from None

    if keywords:
        checked.__signature__ = signature  # type: ignore[attr-defined]
    return checked


def missing_attribute(owner: object, name: str) -> AttributeError:
    """Return the error for an attribute that an object lacks, with what to write."""
    kind = type(owner)
    text = f"{kind.__name__!r} object has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(text)
    names = [one for one in dir(kind) if not one.startswith("_")]
    meant = _METHODS.get(name, "")
    if re.split(r"\W", meant)[0] not in names:
        meant = _nearest(name, names) or ""
    return AttributeError(f"{text}; did you mean {meant}?" if meant else text)


def meant_name(name: str, names: Sequence[str]) -> str | None:
    """Return the one of `names` that is meant by another name; None if none is near."""
    for one in (SAME.get(name, name), *_ALSO.get(name, ())):
        if one in names:
            return one
    return _nearest(name, names)


def _nearest(name: str, names: Sequence[str]) -> str | None:
    """Return the one of `names` that `name` misspells, or None.

    Both begin with the same letter: a word that only has letters of another one would
    be misleading advice.
    """
    begun = [one for one in names if one[:1] == name[:1]]
    return next(iter(get_close_matches(name, begun, 1, _LEAST_RATIO)), None)


_records: list[type[Any]] = []


def named_fields(record: RecordT) -> RecordT:
    """Decorate a record of options so that unknown fields raise helpful errors.

    See `named_arguments`. The fields may be keywords of calls.
    """
    _records.append(record)
    return named_record(record)


def named_record(record: RecordT) -> RecordT:
    """Decorate a record so that unknown fields raise helpful errors.

    See `named_arguments`.
    """
    record.__init__ = named_arguments(record.__init__)
    return record


def merge_keywords(
    call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], keywords: Sequence[str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with its keywords merged into its records.

    A keyword that is None counts as not given. A record may be a mapping of its fields,
    or the name of one of its constants ("greedy").

    Args:
        call: The function.
        args: The arguments by position, `self` first.
        kwargs: The arguments by name.
        keywords: Names of the keywords.

    Raises `IncompatibleOptionsError` for a keyword whose field has another value in a
    record that was given, and `OptionError` for a call without a prompt.
    """
    if not kwargs and len(args) > 1 and args[1] is not None:
        return args, {}
    found = {name: value for name, value in kwargs.items() if name not in keywords}
    given = {name: kwargs[name] for name in keywords if kwargs.get(name) is not None}
    owners = _owners(call)
    for argument, record in owners.items():
        own = found.get(argument)
        if isinstance(own, Mapping):
            found[argument] = record(**named(argument, own))
        elif isinstance(own, str) and isinstance(constant := getattr(record, own.upper(), None), record):
            found[argument] = constant
    if "user" in keywords and (len(args) == 1 or args[1] is None or {"user", "messages", "regex"} & given.keys()):
        positional = _positional(call)
        by_name = dict(zip(positional[1:], args[1:], strict=False))
        if len(args) > len(positional) or by_name.keys() & found.keys():
            return args, found  # refused as Python does
        args, found = args[:1], {**by_name, **found}
        _use_prompt(positional[1], given, found)
        if "regex" in given:
            _use_regex(given, given if "grammar" in keywords else found)
    for argument, record in owners.items():
        own = found.get(argument)
        changes = {one.name: given.pop(one.name) for one in fields(record) if one.name in given}
        if changes:
            found[argument] = _changed(argument, record, own, changes)
    return args, {**found, **given}


def _changed(argument: str, record: type[Any], own: Any, changes: Mapping[str, Any]) -> Any:
    """Return the record of an argument with the values of keywords.

    `own` is the record that was given, or None.
    """
    if own is None:
        return record(**changes)
    check_record(argument, own, record)
    merged = replace(own, **changes)
    for name in changes:
        if getattr(own, name) not in (getattr(record(), name), getattr(merged, name)):
            other = f"{argument}={record.__name__}({OptionRef(name, getattr(own, name))})"
            raise IncompatibleOptionsError(name, other, "give one of the two")
    return merged


def _use_prompt(name: str, given: dict[str, Any], found: dict[str, Any]) -> None:
    """Put what is given as `user` or `messages` into the argument of the prompt."""
    prompt = found.pop(name, None)
    doors = [one for one in ("user", "messages") if one in given]
    if (prompt is not None) + len(doors) > 1:
        first, second = (*doors, name)[:2]
        others = "" if second != name else "; what follows the prompt is then given by name, such as `choices=`"
        raise IncompatibleOptionsError(first, f"`{second}`", f"give one of the two{others}")
    if prompt is None and not doors:
        raise OptionError(name, None, "a text, token ids or messages, or the message of a user as `user`")
    if doors == ["user"]:
        text("user", given["user"])
        prompt = [{"role": "user", "content": given.pop("user")}]
    elif doors:
        prompt = given.pop("messages")
        if isinstance(prompt, str | Mapping):
            raise OptionError("messages", prompt, "a list of messages, each with 'role' and 'content'")
    found[name] = prompt


def _use_regex(given: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Put what is given as `regex` into the argument of the grammar."""
    text("regex", given["regex"])
    if arguments.get("grammar") is not None:
        raise IncompatibleOptionsError("regex", "`grammar`", "give one of the two")
    arguments["grammar"] = Regex(given.pop("regex"))


@cache
def _positional(call: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the parameters that may be given by position."""
    parameters = inspect.signature(call).parameters.values()
    return tuple(one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD)


@cache
def _owners(call: Callable[..., Any]) -> dict[str, type[Any]]:
    """Return the class of each argument of a call that is a record of options.

    Records that are names of the package are imported here.
    """
    for hint in call.__annotations__.values():
        for name in re.findall(r"\w+Params", str(hint)):
            getattr(import_module("selectrie"), name, None)
    return dict(_arguments_of(call, _records))


def _signature_of(call: Callable[..., Any]) -> tuple[inspect.Signature, tuple[str, ...]]:
    """Return the signature of a call with its keywords, and the keywords' names.

    The default of a keyword is that of its field. It is None if the argument for the
    record has the default None: the call then chooses.
    """
    signature = inspect.signature(call)
    parameters = list(signature.parameters.values())
    class_name = str(parameters[-1].annotation).removeprefix("Unpack[keywords.").removesuffix("]") if parameters else ""
    if class_name not in KEYWORDS:
        return signature, ()
    hints = {name: hint.__forward_arg__ for name, hint in KEYWORDS[class_name].__annotations__.items()}
    defaults = {
        one.name: one.default
        for argument, record in reversed([*_arguments_of(call, _records)])
        for one in fields(record)
        if one.default is not MISSING and signature.parameters[argument].default is not None
    }
    listed = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=hint)
        for name, hint in hints.items()
    ]
    return signature.replace(parameters=[*parameters[:-1], *listed]), tuple(hints)


def _count_error(
    signature: inspect.Signature, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> ArgumentCountError | None:
    """Return the error of a call with too many or too few arguments."""
    parameters = list(signature.parameters.values())
    by_position = [one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.POSITIONAL_ONLY)]
    taken = ", ".join(one for one in by_position if one not in _OWNERS)
    if len(args) > len(by_position):
        texts = isinstance(args[-1], str) and "choices" in by_position
        advice = "give several choices as one list" if texts else "give other arguments by name"
        return ArgumentCountError(by_position[-1], name, f"takes {taken or 'nothing'} by position; {advice}")
    for one in by_position[: len(args)]:
        if one in kwargs:
            return ArgumentCountError(one, name, f"has got {one} twice, by position and by name")
    for missing in parameters[len(args) :]:
        is_needed = missing.default is missing.empty and missing.kind is not missing.VAR_KEYWORD
        if is_needed and missing.name not in kwargs:
            return ArgumentCountError(missing.name, name, f"lacks its argument {missing.name}")
    return None


def _advice(call: Callable[..., object], signature: inspect.Signature, name: str) -> str:
    """Return the advice for an unknown argument `name` of a call."""
    parameters = list(signature.parameters)
    own = SAME.get(name, name)
    known = [f"call {_CALLS[key]}"] if (key := (call.__name__, name)) in _CALLS else []
    known += [f"give it as {one}" for one in (own, *_ALSO.get(name, ())) if one in parameters]
    if known:
        return known[0]
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
    close = _nearest(own, parameters)
    return f"did you mean {close}?" if close else f"it has {', '.join(one for one in parameters if one not in _OWNERS)}"


def _arguments_of(call: Callable[..., object], records: Sequence[type[Any]]) -> Iterator[tuple[str, type[Any]]]:
    """Yield (name, class) of each argument of `call` that is one of the records."""
    for parameter, hint in call.__annotations__.items():
        names = set(re.findall(r"\w+", str(hint)))
        yield from ((parameter, one) for one in records if one.__name__ in names)
