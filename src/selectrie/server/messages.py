"""Messages of OpenAI's clients, which become texts for a chat template."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Discriminator, Field

from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import OptionError, PromptError
from selectrie.options import PromptParams
from selectrie.server.http_errors import unsupported
from selectrie.server.wire import BY_TYPE, Ignored, Items, JsonTexts, NotOffered, Text, UnsupportedError, WireModel
from selectrie.tokenization.prompts import ROLE

_TEXTS = ("name", "reasoning", "reasoning_content")
"""Fields of a message that a template may read beside role and content."""
_TOOL_ROLES = ("tool", "function")
_USUAL_ROLES = ("system", "user", "assistant")
MAX_MESSAGES = 4_096
"""Maximum number of messages of a chat, each of which a template renders."""
MAX_ARGUMENTS = 256
"""Maximum number of arguments of the chat template in a request."""
_MAX_ROLES = 16
"""Maximum number of other roles; the template is rendered once for each."""
_MEDIA = ("input_image", "image_url", "image", "input_audio", "audio", "input_file", "file", "video", "video_url")
"""Types of parts that are not text."""
_DEVELOPER = re.compile(r"""(["'])developer\1""")
_MARK = "selectrie-0b7e"
_EMPTY: tuple[object, ...] = ("", [], {})


class TextPart(WireModel):
    """A part of a content that is text."""

    type: Literal["text", "input_text", "output_text"]
    """What the part is."""
    text: Text
    """The text."""


class RefusalPart(WireModel):
    """A part of a content that says why there is none."""

    type: Literal["refusal"]
    """What the part is."""
    refusal: Text
    """The text."""


def _no_media(part: object) -> object:
    if isinstance(part, Mapping) and part.get("type") in _MEDIA:
        raise UnsupportedError(f"{part['type']} is not read; give text", "unsupported_input")
    return part


def _checked_role(role: str) -> str:
    if role in _TOOL_ROLES:
        raise UnsupportedError(f"messages of a {role} are not read")
    if not ROLE.fullmatch(role):
        raise ValueError
    return role


Part = Annotated[
    TextPart | RefusalPart,
    Discriminator("type"),
    BeforeValidator(_no_media),
    Field(title="a part {'type': 'text', 'text': …}"),
]


class Message(WireModel):
    """A message of a chat."""

    model_config = ConfigDict(title="an object with `role` and `content`")

    role: Annotated[str, AfterValidator(_checked_role)] = Field(
        title="a word such as 'user', 'assistant' or 'system'",
        json_schema_extra={"pattern": f"^{ROLE.pattern}$", "not": {"enum": [*_TOOL_ROLES]}},
    )
    """Who says it: a role that the model's chat template writes, or `developer`."""
    content: Annotated[Text | Items[Part], BY_TYPE] | None = Field(None, title="a text, null, or a list of parts")
    """What is said; parts are joined by line ends."""
    name: Text | None = None
    """A name that a template may write."""
    reasoning: Text | None = None
    """What the assistant thought, which a template may write."""
    reasoning_content: Text | None = None
    """The same, as other servers call it."""
    refusal: Annotated[Any, JsonTexts] = None
    """What is said where `content` is null, if it is a text."""
    annotations: Ignored = None
    tool_calls: Annotated[Any, NotOffered(_EMPTY)] = None
    function_call: Annotated[Any, NotOffered(_EMPTY)] = None
    tool_call_id: Annotated[Any, NotOffered(_EMPTY)] = None
    audio: Annotated[Any, NotOffered(_EMPTY)] = None

    def texts(self) -> dict[str, str]:
        """Return role and content, and what a template may read beside them.

        Content that is null is empty. Fields without content are left out: clients send
        back what an answer had.
        """
        content = self.content
        if content is None:
            content = self.refusal if isinstance(self.refusal, str) else ""
        elif not isinstance(content, str):
            content = "\n".join(part.text if isinstance(part, TextPart) else part.refusal for part in content)
        extras = {name: getattr(self, name) for name in _TEXTS}
        return {"role": self.role, "content": content, **{name: text for name, text in extras.items() if text}}


def _no_template(args: dict[str, Any]) -> dict[str, Any]:
    if "chat_template" in args:
        raise UnsupportedError("a request cannot bring a template; the model's own is used", below=".chat_template")
    return args


class Conversation(WireModel):
    """The fields that say what a chat's prompt is."""

    messages: Items[Message] = Field(
        title=f"a list of 1 to {MAX_MESSAGES} messages, each with `role` and `content`",
        min_length=1,
        max_length=MAX_MESSAGES,
    )
    """The messages."""
    chat_template_kwargs: Annotated[dict[str, Any], AfterValidator(_no_template), JsonTexts] | None = Field(
        None,
        title=f"an object of at most {MAX_ARGUMENTS} arguments of the chat template",
        max_length=MAX_ARGUMENTS,
        json_schema_extra={"not": {"required": ["chat_template"]}},
    )
    """Arguments of the chat template."""
    add_generation_prompt: bool | None = None
    """Whether a turn of the assistant begins; it does."""
    continue_final_message: bool | None = None
    """Whether the answer continues the last message."""

    def conversation(self) -> tuple[list[dict[str, str]], PromptParams]:
        """Return the messages as texts, and how the chat template renders them.

        With `continue_final_message` the last message is the beginning of the answer.
        Raises `OptionError` if it cannot be.
        """
        messages = [message.texts() for message in self.messages]
        args, prefix = self.chat_template_kwargs or {}, ""
        if self.continue_final_message:
            if self.add_generation_prompt or messages[-1]["role"] != "assistant" or len(messages) == 1:
                allowed = "a last message of the assistant after others, and no add_generation_prompt"
                raise OptionError("continue_final_message", self.continue_final_message, allowed)
            prefix = messages.pop()["content"]
        elif self.add_generation_prompt is False:
            args = {**args, "add_generation_prompt": False}
        return messages, PromptParams(assistant_prefix=prefix, template_args=args)


def refuse_media(value: object, path: str) -> None:
    """Raise `HttpError` for a part that is not text, anywhere in messages."""
    if not isinstance(value, list):
        return
    for index, item in enumerate(value):
        if not isinstance(item, Mapping):
            continue
        where = f"{path}[{index}]"
        if item.get("type") in _MEDIA:
            raise unsupported(where, f"{item['type']} is not read; give text", code="unsupported_input")
        for name in ("content", "output"):
            refuse_media(item.get(name), f"{where}.{name}")


def with_roles_of(vocabulary: Vocabulary, messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return the messages with roles that the model's chat template knows.

    OpenAI's role `developer` becomes `system` unless the template names it. Any other
    role stays as it is, if the template writes what it says.

    Raises:
        OptionError: For a role whose messages the template leaves out.
    """
    template = vocabulary.chat_template
    is_known = bool(_DEVELOPER.search(vocabulary.chat_source))
    read = [
        {**message, "role": "system"} if message["role"] == "developer" and not is_known else dict(message)
        for message in messages
    ]
    others = {message["role"]: index for index, message in enumerate(read) if message["role"] not in _USUAL_ROLES}
    if len(others) > _MAX_ROLES:
        raise OptionError("messages", len(others), f"at most {_MAX_ROLES} roles beside system, user and assistant")
    if template is None:
        return read
    for role, index in others.items():
        try:
            is_written = _MARK in template([{"role": role, "content": _MARK}, {"role": "user", "content": "x"}])
        except PromptError:
            is_written = True  # it may be written in another order; if it is refused, then with its reason
        if not is_written:
            allowed = "a role that the model's chat template writes, such as 'user'"
            raise OptionError(f"messages[{index}].role", role, allowed)
    return read
