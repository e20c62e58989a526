"""Chat templates of a tokenizer of Transformers.

They are rendered as `apply_chat_template` does, but within bounds (`backends.chat`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selectrie.backends.chat.template import chat_template
from selectrie.core.tracked_text import TEMPLATE, TrackedText
from selectrie.core.vocabulary import ChatTemplate
from selectrie.errors import PromptError

_ABSENT = ("tools", "documents")
_DEFAULT, _TOOL_USE = "default", "tool_use"
_REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names under which a message may say its reasoning, in this order."""


def chat_template_of(tokenizer: Any) -> ChatTemplate | None:
    """Return the chat template of a tokenizer, or None if it has none.

    Of several named templates, "tool_use" renders chats with `tools`, and "default" the
    others. The argument `chat_template` names another one.
    """
    source, tokens = tokenizer.chat_template, dict(tokenizer.special_tokens_map)
    if not source:
        return None
    if isinstance(source, str):
        return _with_reasoning(chat_template(source, tokens, absent=_ABSENT))
    named = {name: _with_reasoning(chat_template(text, tokens, absent=_ABSENT)) for name, text in source.items()}

    def render(messages: Sequence[Mapping[str, object]], /, **template_args: object) -> str:
        args = dict(template_args)
        usual = _TOOL_USE if args.get("tools") is not None and _TOOL_USE in named else _DEFAULT
        name = args.pop("chat_template", usual)
        if name not in named:
            names = ", ".join(map(repr, sorted(named)))
            raise PromptError(
                f"the model has no chat template named {str(name)!r}; give template_args={{'chat_template': name}} "
                f"with one of {names}"
            )
        return named[str(name)](messages, **args)

    return render


def _with_reasoning(template: ChatTemplate) -> ChatTemplate:
    """Return the template, for which reasoning has each of its names in messages."""

    def render(messages: Sequence[Mapping[str, object]], /, **template_args: object) -> str:
        return template([_aliased(message) for message in messages], **template_args)

    return render


def _aliased(message: Mapping[str, object]) -> Mapping[str, object]:
    said = next((message[name] for name in _REASONING if message.get(name) is not None), None)
    if said is None:
        return message
    is_tracked = any(isinstance(name, TrackedText) for name in message)
    thinking, content = (TrackedText(name, TEMPLATE) if is_tracked else name for name in ("thinking", _REASONING[0]))
    return {thinking: said, **message, content: said}
