"""The texts that a model's chat template writes around a tool call.

They are found by rendering a call with a known name and known arguments, and cutting
around both. A template that writes no tools, calls or results gets them as JSON in
plain messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from selectrie.core.vocabulary import Vocabulary
from selectrie.engine.requests.session import time_args
from selectrie.engine.thinking import OPEN_THOUGHT
from selectrie.errors import PromptError
from selectrie.options import PromptParams
from selectrie.tokenization.prompts import adapt_roles

Messages = Sequence[Mapping[str, Any]]

_SENTINEL = "selectrie0b7e"
_DECLARED, _RESULT = f"{_SENTINEL}d", f"{_SENTINEL}r"
_TIME = "2000-01-01T00:00:00"
_USER: Mapping[str, Any] = {"role": "user", "content": "x"}
_LATER: Messages = ({"role": "assistant", "content": "x"}, _USER)
"""Turns after a call, since some templates write the last turn of a chat otherwise."""
_TOOL = {
    "type": "function",
    "function": {
        "name": _DECLARED,
        "description": "x",
        "parameters": {"type": "object", "properties": {"x": {"type": "string", "description": "x"}}},
    },
}
_SYSTEM = """You can call these functions:
{tools}
To call one, answer with a line of JSON for each call and nothing else:
{{"name": "…", "arguments": {{…}}}}"""
"""The text in the system message for a template that writes no tools."""


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """How tools, their calls and their results are written for a model.

    Attributes:
        opening: The text from the beginning of an answer to the name of the tool.
        middle: The text between the name and the arguments, an object of JSON.
        again: The text between the arguments and the name of the next call; None if an
            answer can have only one call.
        is_native: Whether the chat template writes tools, calls and results.
        has_text_arguments: Whether the template expects arguments as text of JSON.
        thought: The text that ends a thought which the template opens before an answer,
            so that a call may follow at once; "" if it opens none.
    """

    opening: str
    middle: str
    again: str | None
    is_native: bool = True
    has_text_arguments: bool = False
    thought: str = ""

    def marker(self) -> str:
        """Return the beginning of a call that a text has for no other reason.

        It is the part before the JSON, such as `<tool_call>`, and "" without one.
        """
        head = self.opening.strip()
        for end in ("\n", "{", "["):
            head = head.partition(end)[0]
        return head if len(head) >= len("<c>") else ""

    def write_messages(self, messages: Messages) -> list[dict[str, Any]]:
        """Return messages in which calls and results have the form of the template."""
        names: dict[str, str] = {}
        written = []
        for message in messages:
            calls = message.get("tool_calls", ())
            names |= {call["id"]: call["function"]["name"] for call in calls}
            if self.is_native:
                written.append({**message, **({"tool_calls": [*map(self._write_call, calls)]} if calls else {})})
            elif message["role"] == "tool":
                result = {"name": names.get(message["tool_call_id"]), "result": message["content"]}
                written.append({"role": "user", "content": json.dumps(result, ensure_ascii=False)})
            else:
                lines = [_call_line(call["function"]) for call in calls]
                lines = [message["content"], *lines] if message["content"] else lines
                rest = {name: value for name, value in message.items() if name != "tool_calls"}
                written.append({**rest, "content": "\n".join(lines)})
        return written

    def _write_call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Return a call with its arguments in the form that the template expects."""
        if not self.has_text_arguments:
            return dict(call)
        function = call["function"]
        return {**call, "function": {**function, "arguments": json.dumps(function["arguments"], ensure_ascii=False)}}

    def offer(
        self, messages: list[dict[str, Any]], prompting: PromptParams, tools: Sequence[Mapping[str, Any]]
    ) -> tuple[list[dict[str, Any]], PromptParams]:
        """Return messages and options of the template with which the model sees tools.

        Args:
            messages: The messages, as `write_messages` returns them.
            prompting: The options of the template.
            tools: The tools as OpenAI's API has them; none is a chat without tools.
        """
        if not tools:
            return messages, prompting
        if self.is_native:
            args = {**prompting.template_args, "tools": [dict(tool) for tool in tools]}
            return messages, replace(prompting, template_args=args)
        listed = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
        text = _SYSTEM.format(tools=listed)
        first = messages[0] if messages else None
        if first is not None and first["role"] == "system":
            return [{**first, "content": f"{first['content']}\n\n{text}"}, *messages[1:]], prompting
        return [{"role": "system", "content": text}, *messages], prompting


PLAIN = CallSyntax('{"name": "', '", "arguments": ', '}\n{"name": "', is_native=False)
"""The syntax for a template that writes no tools."""


def _call_line(function: Mapping[str, Any]) -> str:
    """Return a call as a line of JSON."""
    call = {"name": function["name"], "arguments": function["arguments"]}
    return json.dumps(call, ensure_ascii=False)


def call_syntax(vocabulary: Vocabulary) -> CallSyntax:
    """Return the syntax of a model's chat template, `PLAIN` if it has none."""
    return vocabulary.derived(_find_syntax)


def write_chat(
    vocabulary: Vocabulary, messages: Messages, prompting: PromptParams, tools: Sequence[Mapping[str, Any]] = ()
) -> tuple[list[dict[str, Any]], PromptParams]:
    """Return messages and options of the template as the model's template reads them.

    Raises `OptionError` for a role whose messages the template leaves out.

    Args:
        vocabulary: The model's vocabulary.
        messages: The messages, with `tool_calls` whose arguments are objects.
        prompting: The options of the template.
        tools: The tools as OpenAI's API has them.
    """
    has_tools = bool(tools) or any("tool_calls" in one or one["role"] == "tool" for one in messages)
    syntax = call_syntax(vocabulary) if has_tools else PLAIN
    written = syntax.write_messages(messages) if has_tools else messages
    return syntax.offer(adapt_roles(vocabulary, written), prompting, tools)


def _find_syntax(vocabulary: Vocabulary) -> CallSyntax:
    """Return the syntax that a probe of the chat template shows."""
    chat = vocabulary.chat_template
    if chat is None:
        return PLAIN
    fixed = time_args(vocabulary, _TIME if vocabulary.chat_time is None else None)
    with_tools = partial(chat, tools=[_TOOL], **fixed)
    for later in (_LATER, ()):
        for has_text_arguments in (False, True):
            with suppress(PromptError):
                found = _probe(with_tools, later, has_text_arguments=has_text_arguments)
                if found is not None:
                    return found
    return PLAIN


def _probe(chat: Callable[..., str], later: Messages, *, has_text_arguments: bool) -> CallSyntax | None:
    """Return the texts around a call, or None if the template does not write them.

    Args:
        chat: The template, which is given a tool.
        later: The messages after the result of the call.
        has_text_arguments: Whether arguments are given as text.
    """
    names, arguments = zip(*((f"{_SENTINEL}n{i}", {f"{_SENTINEL}k": i}) for i in (1, 2)), strict=True)
    texts = [json.dumps(one) for one in arguments]

    def render(n_calls: int) -> str:
        values = texts if has_text_arguments else arguments
        ids = [f"{i:09}" for i in range(n_calls)]
        calls = [
            {"id": one, "type": "function", "function": {"name": name, "arguments": value}}
            for one, name, value in zip(ids, names, values, strict=False)
        ]
        results = [{"role": "tool", "tool_call_id": one, "name": names[0], "content": _RESULT} for one in ids]
        turn = {"role": "assistant", "content": "", "tool_calls": calls}
        return chat([_USER, turn, *results, *later], add_generation_prompt=False)

    begun, one = chat([_USER]), render(1)
    opened = OPEN_THOUGHT.search(begun)
    if opened is not None:  # in messages there is none, as thoughts are left out
        begun = begun[: opened.start()]
    if _DECLARED not in begun or _RESULT not in one or not one.startswith(begun):
        return None
    opening, _, rest = one[len(begun) :].partition(names[0])
    middle, found, _ = rest.partition(texts[0])
    if not found or _SENTINEL in opening + middle or "000000000" in opening + middle:
        return None
    try:
        again: str | None = render(2).partition(texts[0])[2].partition(names[1])[0]
    except PromptError:
        again = None
    if not again or _SENTINEL in again or "00000000" in again:
        again = None
    thought = "" if opened is None else f"\n</{opened[1]}>\n\n"
    return CallSyntax(opening, middle, again, has_text_arguments=has_text_arguments, thought=thought)


EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Values of `reasoning_effort`."""
VERBOSITIES = ("low", "medium", "high")
"""Values of `verbosity`."""
WISHES = {"reasoning_effort": "none", "verbosity": "medium"}
"""Fields that only a chat template can honour, and the values that ask for nothing."""
_THINKING = "enable_thinking"


def grant_wishes(
    vocabulary: Vocabulary, wishes: Mapping[str, str], template_args: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return arguments of the chat template with wishes that it reads, and warnings.

    A template that reads `enable_thinking` alone thinks with every `reasoning_effort`
    but "none". A wish that the template does not read has a warning. Arguments that
    are given already stay.

    Args:
        vocabulary: The model's vocabulary.
        wishes: Values by the fields of `WISHES`.
        template_args: The arguments that the request gives.
    """
    args, warnings = dict(template_args), []
    for name, wish in wishes.items():
        if name in vocabulary.chat_source:
            args.setdefault(name, wish)
        elif name == "reasoning_effort" and _THINKING in vocabulary.chat_source:
            args.setdefault(_THINKING, wish != "none")
        elif wish != WISHES[name]:
            warnings.append(f"{name}={wish!r} has no effect: the model's chat template does not read it")
    return args, warnings
