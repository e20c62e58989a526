"""Reads messages of OpenAI's clients as texts for a chat template."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import OptionError, PromptError
from selectrie.options import PromptParams
from selectrie.server.body import flag_of
from selectrie.server.http_errors import unsupported
from selectrie.tokenization.prompts import ROLE

FIELDS_OF_CHATS = ("messages", "chat_template_kwargs", "add_generation_prompt", "continue_final_message")
"""Fields of a request that say what a chat's prompt is."""
_UNSUPPORTED = ("tool_calls", "function_call", "tool_call_id", "audio")
"""Fields of a message that are not read, and refused unless they are empty."""
_TEXTS = ("name", "reasoning", "reasoning_content")
"""Fields that a template may read beside role and content."""
_IGNORED = ("refusal", "annotations")
FIELDS = frozenset({"role", "content", *_UNSUPPORTED, *_TEXTS, *_IGNORED})
"""Fields of a message that are known."""
_TOOL_ROLES = ("tool", "function")
_USUAL_ROLES = ("system", "user", "assistant")
MAX_MESSAGES = 4_096
"""Maximum number of messages of a chat, each of which a template renders."""
_MAX_ROLES = 16
"""Maximum number of other roles; the template is rendered once for each."""
_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""The field of each kind of part that holds its text."""
_MEDIA = ("input_image", "image_url", "image", "input_audio", "audio", "input_file", "file", "video", "video_url")
"""Types of parts that are not text."""
_DEVELOPER = re.compile(r"""(["'])developer\1""")
_MARK = "selectrie-0b7e"


def read_messages(messages: object) -> list[dict[str, str]]:
    """Return messages with texts alone: role, content, and what a template may read.

    The parts of a content are joined by line ends, and content that is null is empty.
    Fields without content are left out: clients send back what an answer had. Unknown
    fields are left out too (`FIELDS`).

    Raises:
        OptionError: For anything that is not a list of messages.
        HttpError: For messages of tools, and for images, audio and files.
    """
    if not isinstance(messages, list) or not messages:
        raise OptionError("messages", messages, "a list of messages, each with `role` and `content`")
    if len(messages) > MAX_MESSAGES:
        raise OptionError("messages", len(messages), f"at most {MAX_MESSAGES} messages")
    refuse_media(messages, "messages")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


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


def read_conversation(body: Mapping[str, Any]) -> tuple[list[dict[str, str]], PromptParams]:
    """Return the messages of a request and how the chat template renders them.

    With `continue_final_message` the last message is the beginning of the answer.

    Raises:
        HttpError, RequestError: If `messages` or a field of `FIELDS_OF_CHATS` is wrong.
    """
    messages = read_messages(body.get("messages"))
    args = body.get("chat_template_kwargs")
    args = {} if args is None else args
    if not isinstance(args, Mapping):
        raise OptionError("chat_template_kwargs", args, "an object of arguments of the chat template")
    if "chat_template" in args:
        why = "a request cannot bring a template; the model's own is used"
        raise unsupported("chat_template_kwargs.chat_template", why)
    prefix, generates = "", flag_of(body, "add_generation_prompt", default=True)
    if flag_of(body, "continue_final_message"):
        if body.get("add_generation_prompt") or messages[-1]["role"] != "assistant" or len(messages) == 1:
            allowed = "a last message of the assistant after others, and no add_generation_prompt"
            raise OptionError("continue_final_message", body["continue_final_message"], allowed)
        prefix = messages.pop()["content"]
    elif not generates:
        args = {**args, "add_generation_prompt": False}
    return messages, PromptParams(assistant_prefix=prefix, template_args=args)


def _message(message: object, where: str) -> dict[str, str]:
    if not isinstance(message, Mapping):
        raise OptionError(where, message, "an object with `role` and `content`")
    role = message.get("role")
    if not isinstance(role, str) or not ROLE.fullmatch(role):
        raise OptionError(f"{where}.role", role, "a word such as 'user', 'assistant' or 'system'")
    if role in _TOOL_ROLES:
        raise unsupported(f"{where}.role", f"messages of a {role} are not read")
    for name in _UNSUPPORTED:
        if message.get(name) not in (None, "", [], {}):
            raise unsupported(f"{where}.{name}", "it is not read; leave it out")
    read = {"role": role, "content": _content(message, where)}
    for name in _TEXTS:
        value = message.get(name)
        if value is not None and not isinstance(value, str):
            raise OptionError(f"{where}.{name}", value, "a text")
        if value:
            read[name] = value
    return read


def _content(message: Mapping[str, Any], where: str) -> str:
    content = message.get("content")
    if content is None:
        refusal = message.get("refusal")
        return refusal if isinstance(refusal, str) else ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise OptionError(f"{where}.content", content, "a text, null, or a list of parts")
    return "\n".join(_part(part, f"{where}.content[{index}]") for index, part in enumerate(content))


def _part(part: object, where: str) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    field = _PARTS.get(kind) if isinstance(kind, str) else None
    text = part.get(field) if isinstance(part, Mapping) and field else None
    if not isinstance(text, str):
        raise OptionError(where, part, "a part {'type': 'text', 'text': …}")
    return text


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
