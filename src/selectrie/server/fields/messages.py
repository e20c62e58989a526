"""Messages of chats in bodies of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Discriminator, Field

from selectrie.errors import OptionError
from selectrie.options import PromptParams
from selectrie.server.fields.reading import MEDIA
from selectrie.server.fields.tools import MAX_TOOLS, ToolCall, check_calls, reject_other_types
from selectrie.server.fields.wire import (
    BY_TYPE,
    EncodableText,
    Ignored,
    Items,
    JsonTexts,
    NotOffered,
    TemplateArgs,
    UnsupportedError,
    WireModel,
)
from selectrie.tokenization.prompts import ROLE

_TEXTS = ("name", "reasoning", "reasoning_content", "tool_call_id")
"""Fields of a message, besides role and content, that a template may read."""
MAX_MESSAGES = 4_096
"""Maximum number of messages of a chat, each of which a template renders."""
_EMPTY: tuple[object, ...] = ("", [], {})


class TextPart(WireModel):
    """A text part of a message's content."""

    type: Literal["text", "input_text", "output_text"]
    """What the part is."""
    text: EncodableText
    """The text."""


class RefusalPart(WireModel):
    """A part of a message's content with the text of a refusal."""

    type: Literal["refusal"]
    """What the part is."""
    refusal: EncodableText
    """The text."""


def _reject_media(part: object) -> object:
    """Return a part of a message; raise an error for an image, audio or file."""
    if isinstance(part, Mapping) and part.get("type") in MEDIA:
        raise UnsupportedError(f"{part['type']} is not read; give text", "unsupported_input")
    return part


def _check_role(role: str) -> str:
    """Return a role; raise an error for a role of older tools and for other words."""
    if role == "function":
        raise UnsupportedError("messages of a function are not read; use those of a tool")
    if not ROLE.fullmatch(role):
        raise ValueError
    return role


Part = Annotated[
    TextPart | RefusalPart,
    Discriminator("type"),
    BeforeValidator(_reject_media),
    Field(title="a part {'type': 'text', 'text': …}"),
]


def text_of(content: str | Sequence[TextPart | RefusalPart]) -> str:
    """Return the text of a content; parts are joined by line ends."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text if isinstance(part, TextPart) else part.refusal for part in content)


class Message(WireModel):
    """A message of a chat."""

    model_config = ConfigDict(title="an object with `role` and `content`")

    role: Annotated[str, AfterValidator(_check_role)] = Field(
        title="a word such as 'user', 'assistant' or 'system'",
        json_schema_extra={"pattern": f"^{ROLE.pattern}$", "not": {"enum": ["function"]}},
    )
    """The speaker: a role that the model's chat template writes, or `developer`."""
    content: Annotated[EncodableText | Items[Part], BY_TYPE] | None = Field(
        None, title="a text, null, or a list of parts"
    )
    """The message's text; parts are joined by line ends."""
    name: EncodableText | None = None
    """A name that a template may write."""
    reasoning: EncodableText | None = None
    """The assistant's reasoning, which a template may write."""
    reasoning_content: EncodableText | None = None
    """The assistant's reasoning, under the name that other servers use."""
    refusal: Annotated[Any, JsonTexts] = None
    """The message's text if `content` is null; ignored if it is no text."""
    annotations: Ignored = None
    tool_calls: Items[Annotated[ToolCall, BeforeValidator(reject_other_types)]] | None = Field(
        None, max_length=MAX_TOOLS, title=f"a list of at most {MAX_TOOLS} calls"
    )
    """The calls of an earlier answer of the assistant."""
    tool_call_id: EncodableText | None = None
    """The id of the call of which a message of a tool has the result."""
    function_call: Annotated[Any, NotOffered(_EMPTY, "use `tool_calls`")] = None
    audio: Annotated[Any, NotOffered(_EMPTY)] = None

    def data(self, path: str) -> dict[str, Any]:
        """Return role, content and the extra fields that a template may read.

        Content that is null is empty. Empty extra fields are left out: clients send
        back the fields that an answer had. The arguments of calls are objects; raises
        `OptionError` if they are not. `path` is the message's in the request.
        """
        content = self.content
        if content is None:
            content = self.refusal if isinstance(self.refusal, str) else ""
        extras = {name: getattr(self, name) for name in _TEXTS}
        extras["tool_calls"] = [one.data(f"{path}.tool_calls[{i}]") for i, one in enumerate(self.tool_calls or ())]
        given = {name: value for name, value in extras.items() if value}
        return {"role": self.role, "content": text_of(content), **given}


class Conversation(WireModel):
    """The fields from which a chat's prompt is made."""

    messages: Items[Message] = Field(
        title=f"a list of 1 to {MAX_MESSAGES} messages, each with `role` and `content`",
        min_length=1,
        max_length=MAX_MESSAGES,
    )
    """The messages."""
    chat_template_kwargs: TemplateArgs | None = None
    """Arguments of the chat template."""
    add_generation_prompt: bool | None = None
    """Whether a turn of the assistant begins after the messages; by default it does."""
    continue_final_message: bool | None = None
    """Whether the answer continues the last message."""

    def conversation(self) -> tuple[list[dict[str, Any]], PromptParams]:
        """Return the messages as mappings, and the options of the chat template.

        With `continue_final_message` the last message becomes the beginning of the
        answer. Raises `OptionError` if it cannot, and for a result of no call.
        """
        messages = [message.data(f"messages[{i}]") for i, message in enumerate(self.messages)]
        check_calls(messages, "messages")
        args, prefix = self.chat_template_kwargs or {}, ""
        if self.continue_final_message:
            if self.add_generation_prompt or messages[-1]["role"] != "assistant" or len(messages) == 1:
                allowed = "a last message of the assistant after others, and no add_generation_prompt"
                raise OptionError("continue_final_message", self.continue_final_message, allowed)
            prefix = messages.pop()["content"]
        elif self.add_generation_prompt is False:
            args = {**args, "add_generation_prompt": False}
        return messages, PromptParams(assistant_prefix=prefix, template_args=args)
