"""Tools in a request: declarations, which may be called, and calls in messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field

from selectrie.errors import GrammarError, IncompatibleOptionsError, OptionError, clip
from selectrie.server.fields.structured import MAX_CHARACTERS, Constraint, StructuredText
from selectrie.server.fields.wire import (
    BY_TYPE,
    EncodableText,
    Items,
    JsonTexts,
    NotOffered,
    UnsupportedError,
    WireModel,
    one_of,
)
from selectrie.server.transport.body import parse_object
from selectrie.server.transport.http_errors import HttpError

MAX_TOOLS = 128
"""Maximum number of tools of a request."""
MAX_DEPTH = 64
"""Maximum depth of the JSON of a call's arguments in a message."""
NAME = r"[A-Za-z0-9_.-]{1,64}"
"""Pattern of a tool's name, which JSON and chat templates write as it is."""
MAX_CALLS = 16
"""Maximum number of calls in an answer."""
MODES = ("none", "auto", "required")
_MAX_LEFT_OUT = 16
"""Maximum number of keywords of a schema that are left out, each by compiling again."""
_MAX_WARNINGS, _MAX_WARNING = 8, 200
"""Maximum number of warnings about schemas, and of characters of each."""
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}

ToolName = Annotated[str, Field(pattern=f"^{NAME}$", title="1 to 64 letters, digits, dots, dashes and underscores")]


def reject_other_types(value: object) -> object:
    """Return a tool, a call or a choice; raise an error for a tool of another type."""
    kind = value.get("type") if isinstance(value, Mapping) else None
    if isinstance(kind, str) and kind not in {"function", "allowed_tools"}:
        raise UnsupportedError("tools are functions here; the type 'function' is offered", below=".type")
    return value


class FunctionDefinition(WireModel):
    """A function that the model may call."""

    model_config = ConfigDict(title="an object with a `name`")

    name: ToolName
    """Its name."""
    description: EncodableText | None = None
    """What it does, for the model."""
    parameters: Annotated[dict[str, Any], JsonTexts] | None = Field(None, title="a JSON Schema of an object")
    """The JSON Schema of its arguments; a function without it has none."""
    strict: bool | None = None
    """Whether a keyword of the schema that a grammar cannot express is an error."""


class Tool(WireModel):
    """A tool that the model may call."""

    model_config = ConfigDict(title="an object with the type 'function' and a `function`")

    type: Literal["function"]
    """What the tool is."""
    function: FunctionDefinition
    """The function."""


class FunctionName(WireModel):
    """The name of a function."""

    model_config = ConfigDict(title="an object with a `name`")

    name: ToolName
    """The name."""


class NamedTool(WireModel):
    """A tool by its name."""

    type: Literal["function"]
    """What the tool is."""
    function: FunctionName
    """The function."""


class AllowedTools(WireModel):
    """The tools that may be called, of those that are declared."""

    mode: Literal["auto", "required"]
    """Whether one of them must be called."""
    tools: Items[Annotated[NamedTool, BeforeValidator(reject_other_types)]] = Field(
        min_length=1, title="a list of tools, each {'type': 'function', 'function': {'name': …}}"
    )
    """The tools."""


class AllowedChoice(WireModel):
    """A choice among some of the tools."""

    type: Literal["allowed_tools"]
    """What the choice is."""
    allowed_tools: AllowedTools
    """The tools."""


_ChosenTool = Annotated[
    NamedTool | AllowedChoice, Discriminator("type"), BeforeValidator(reject_other_types), Field(title="a tool")
]


def parse_arguments(text: str, path: str) -> dict[str, Any]:
    """Return a call's arguments; raise `OptionError` with the path for no object."""
    try:
        return parse_object(text.encode(), MAX_DEPTH)
    except HttpError as error:
        raise OptionError(path, text, "the text of an object of JSON") from error


class FunctionCall(WireModel):
    """A function with arguments, as an earlier answer called it."""

    model_config = ConfigDict(title="an object with `name` and `arguments`")

    name: EncodableText
    """The name of the function."""
    arguments: EncodableText = Field(json_schema_extra={"contentMediaType": "application/json"})
    """The arguments: the text of an object of JSON."""


class ToolCall(WireModel):
    """A call of a tool in a message of the assistant."""

    model_config = ConfigDict(title="an object with `id`, the type 'function' and a `function`")

    id: EncodableText
    """The id, which the message with the result names."""
    type: Literal["function"]
    """What the tool is."""
    function: FunctionCall
    """The function and its arguments."""

    def data(self, path: str) -> dict[str, Any]:
        """Return the call as chat templates read it: its arguments are an object.

        Raises `OptionError` if they are not; `path` is the call's in the request.
        """
        arguments = parse_arguments(self.function.arguments, f"{path}.function.arguments")
        return {"id": self.id, "type": self.type, "function": {"name": self.function.name, "arguments": arguments}}


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function that a request declares, whatever the API.

    Attributes:
        path: Path to it in the request.
        name: Its name.
        description: What it does, or None.
        parameters: The JSON Schema of its arguments, or None if it has none.
        is_strict: Whether every keyword of the schema must hold.
    """

    path: str
    name: str
    description: str | None
    parameters: Mapping[str, Any] | None
    is_strict: bool = False

    @classmethod
    def of(cls, path: str, declared: FunctionDefinition) -> Function:
        """Return a function as it is declared at a path in the request."""
        return cls(path, declared.name, declared.description, declared.parameters, bool(declared.strict))

    def definition(self) -> dict[str, Any]:
        """Return the tool as chat templates expect it: in the form of OpenAI's API."""
        described = {} if self.description is None else {"description": self.description}
        parameters = {"type": "object", "properties": {}} if self.parameters is None else dict(self.parameters)
        return {"type": "function", "function": {"name": self.name, **described, "parameters": parameters}}

    def arguments(self, max_left_out: int = _MAX_LEFT_OUT) -> Arguments:
        """Compile the grammar of the arguments, which are an object of JSON.

        The object has the properties of the schema alone, unless it says what others
        it may have. If the function is not strict, keywords that a grammar cannot
        express are left out.

        Args:
            max_left_out: Maximum number of keywords that are left out.

        Raises:
            HttpError: If a grammar cannot express the schema, with the keyword.
        """
        path = f"{self.path}.parameters"
        schema = dict(_NO_PARAMETERS if self.parameters is None else self.parameters)
        if schema.setdefault("type", "object") != "object":
            raise OptionError(f"{path}.type", schema["type"], "'object', since arguments have names")
        return self._compile(path, schema, 0 if self.is_strict else max_left_out, [])

    def _compile(self, path: str, schema: Mapping[str, Any], max_more: int, left_out: Sequence[str]) -> Arguments:
        """Compile a schema, and leave out keywords that are errors if that is allowed.

        Args:
            path: Path to the schema in the request.
            schema: The schema.
            max_more: Maximum number of keywords that are still left out.
            left_out: Warnings about the keywords that were left out.
        """
        try:
            text = Constraint.of(path, "json", dict(schema)).compile()
        except HttpError as error:
            keys = _keys_of(error)
            if not keys or not max_more:
                raise
            warning = f"{clip(error.message, _MAX_WARNING)}; the keyword was left out"
        else:
            return Arguments(text, [*text.warnings(), *left_out])
        return self._compile(path, _without(schema, keys), max_more - 1, [*left_out, warning])


def _keys_of(error: BaseException) -> tuple[str, ...]:
    """Return the keys to the keyword that an error is about; () if it is about none."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, GrammarError) and cause.pointer:
            keys = tuple(key.replace("~1", "/").replace("~0", "~") for key in cause.pointer.split("/")[1:])
            return keys if keys and cause.reason.startswith(f"{keys[-1]} at ") else ()
        cause = cause.__cause__
    return ()


def _without(schema: Any, keys: Sequence[str]) -> Any:
    """Return a schema without the keyword to which keys lead."""
    first, *rest = keys
    if isinstance(schema, list):
        return [_without(one, rest) if str(i) == first else one for i, one in enumerate(schema)]
    if not rest:
        return {key: value for key, value in schema.items() if key != first}
    return {key: _without(value, rest) if key == first else value for key, value in schema.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Arguments:
    """The arguments that a function can be called with.

    Attributes:
        text: The grammar of their text.
        warnings: Warnings about parts of the schema that have no effect.
    """

    text: StructuredText
    warnings: Sequence[str]


@dataclass(frozen=True, slots=True, eq=False)
class ToolSet:
    """The tools of a request, and how one is chosen.

    Attributes:
        functions: All functions, as the model sees them.
        arguments: The arguments of each function that may be called, by its name.
        is_required: Whether one must be called.
        max_calls: Maximum number of calls in an answer.
    """

    functions: Sequence[Function]
    arguments: Mapping[str, Arguments]
    is_required: bool
    max_calls: int

    @classmethod
    def of(
        cls,
        functions: Sequence[Function],
        *,
        mode: str = "auto",
        allowed: Iterable[tuple[str, str]] | None = None,
        max_calls: int,
    ) -> ToolSet | None:
        """Return the tools of a request, or None if none may be called.

        Args:
            functions: The declared functions.
            mode: One of `MODES`.
            allowed: Pairs of path and name of those that may be called; None for all.
            max_calls: Maximum number of calls in an answer.

        Raises:
            RequestError, HttpError: For a wrong declaration, with its path.
        """
        by_name: dict[str, Function] = {}
        for one in functions:
            if by_name.setdefault(one.name, one) is not one:
                raise OptionError(f"{one.path}.name", one.name, "each name once")
        named = [("", name) for name in by_name] if allowed is None else list(allowed)
        for path, name in named:
            if name not in by_name:
                raise OptionError(path, name, f"one of the declared tools, {', '.join([*by_name][:8]) or 'none'}")
        if mode == "required" and not functions:
            raise OptionError("tool_choice", mode, "'none' or 'auto' without `tools`")
        if mode == "none" or not functions:
            return None
        n_characters = sum(len(json.dumps(one.parameters)) for one in functions)
        if n_characters > MAX_CHARACTERS:  # each takes time to compile
            raise OptionError("tools", n_characters, f"at most {MAX_CHARACTERS} characters of parameters together")
        max_left_out = min(_MAX_LEFT_OUT, 2 * MAX_CHARACTERS // max(1, n_characters))
        grammars = {name: by_name[name].arguments(max_left_out) for _, name in named}
        return cls(functions, grammars, mode == "required", max_calls)

    @property
    def names(self) -> list[str]:
        """Return the names of the functions that may be called."""
        return list(self.arguments)

    def definitions(self) -> list[dict[str, Any]]:
        """Return all tools in the form of OpenAI's API."""
        return [one.definition() for one in self.functions]

    def warnings(self) -> list[str]:
        """Return warnings about parts of schemas that have no effect."""
        found = [warning for one in self.arguments.values() for warning in one.warnings]
        more = len(found) - _MAX_WARNINGS
        return [*found[:_MAX_WARNINGS], f"{more} more parts of schemas have no effect"] if more > 0 else found


class ToolFields(WireModel):
    """The fields of a chat that declare tools."""

    tools: (
        Annotated[Items[Annotated[Tool, BeforeValidator(reject_other_types)]], Field(max_length=MAX_TOOLS)] | None
    ) = Field(None, title=f"a list of at most {MAX_TOOLS} tools, each with the type 'function' and a `function`")
    """The functions that the model may call."""
    tool_choice: Annotated[Annotated[str, one_of(MODES)] | _ChosenTool, BY_TYPE] | None = Field(
        None, title="'none', 'auto', 'required', a tool of type 'function', or 'allowed_tools'"
    )
    """Whether a tool is called, and which."""
    parallel_tool_calls: bool | None = None
    """Whether an answer may have more than one call; by default it may."""
    functions: Annotated[Any, NotOffered(([],), "use `tools`")] = None
    function_call: Annotated[Any, NotOffered(("none",), "use `tool_choice`")] = None

    def tool_set(self) -> ToolSet | None:
        """Return the tools that may be called, or None.

        Raises:
            RequestError, HttpError: For a wrong declaration or choice, with its path.
        """
        functions = [Function.of(f"tools[{i}].function", one.function) for i, one in enumerate(self.tools or ())]
        choice, max_calls = self.tool_choice, 1 if self.parallel_tool_calls is False else MAX_CALLS
        if isinstance(choice, NamedTool):
            named = [("tool_choice.function.name", choice.function.name)]
            return ToolSet.of(functions, mode="required", allowed=named, max_calls=1)
        if isinstance(choice, AllowedChoice):
            named = [
                (f"tool_choice.allowed_tools.tools[{i}].function.name", one.function.name)
                for i, one in enumerate(choice.allowed_tools.tools)
            ]
            return ToolSet.of(functions, mode=choice.allowed_tools.mode, allowed=named, max_calls=max_calls)
        return ToolSet.of(functions, mode=choice or "auto", max_calls=max_calls)


def check_calls(messages: Sequence[Mapping[str, Any]], path: str) -> None:
    """Raise `OptionError` for a message with the result of no call before it.

    Args:
        messages: The messages.
        path: Path to them in the request.
    """
    ids: set[str] = set()
    for index, message in enumerate(messages):
        ids |= {call["id"] for call in message.get("tool_calls", ())}
        call_id = message.get("tool_call_id")
        if message["role"] == "tool" and call_id not in ids:
            allowed = "the id of a call in an earlier message's `tool_calls`"
            raise OptionError(f"{path}[{index}].tool_call_id", call_id, allowed)


def check_with_tools(data: Mapping[str, Any]) -> None:
    """Raise an error for a field that an answer with tools cannot honour.

    Args:
        data: The body.
    """
    if data.get("min_tokens"):
        raise IncompatibleOptionsError("min_tokens", "`tools`", "the grammar of arguments says where they end")
    if (data.get("best_of") or 1) > (data.get("n") or 1):
        raise IncompatibleOptionsError("best_of", "`tools`", "each of `n` answers is drawn once")
    if data.get("add_generation_prompt") is False:
        raise IncompatibleOptionsError("add_generation_prompt", "`tools`", "a call begins a turn of the assistant")
    if "tools" in (data.get("chat_template_kwargs") or ()):
        raise IncompatibleOptionsError("chat_template_kwargs.tools", "`tools`", "give one of the two")
