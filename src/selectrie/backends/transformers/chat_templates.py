"""Chat templates of a tokenizer of Transformers.

The result is that of `apply_chat_template`, but time and memory are limited
(`backends.chat`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selectrie.backends.chat.template import chat_template
from selectrie.core.vocabulary import ChatTemplate
from selectrie.errors import PromptError, words

_ABSENT = ("tools", "documents")
_DEFAULT, _TOOL_USE = "default", "tool_use"


def chat_template_of(tokenizer: Any) -> ChatTemplate | None:
    """Return the chat template of a tokenizer, or None if it has none.

    If a tokenizer has several named templates, the template argument `chat_template`
    chooses one. Without it, "tool_use" renders chats with `tools`, and "default" the
    others.
    """
    source, tokens = tokenizer.chat_template, dict(tokenizer.special_tokens_map)
    if not source:
        return None
    if isinstance(source, str):
        return chat_template(source, tokens, absent=_ABSENT, aliases_reasoning=True)
    named = {name: chat_template(text, tokens, absent=_ABSENT, aliases_reasoning=True) for name, text in source.items()}

    def render(messages: Sequence[Mapping[str, object]], /, **template_args: object) -> str:
        args = dict(template_args)
        usual = _TOOL_USE if args.get("tools") is not None and _TOOL_USE in named else _DEFAULT
        name = args.pop("chat_template", usual)
        if name not in named:
            names = ", ".join(map(repr, sorted(named)))
            raise PromptError(
                words(
                    "the model has no chat template named {}; give `template_args` 'chat_template' as one of {}",
                    repr(str(name)),
                    names,
                )
            )
        return named[str(name)](messages, **args)

    return render


def chat_source_of(tokenizer: Any) -> str:
    """Return the source of a tokenizer's chat template, the default one of several."""
    source = tokenizer.chat_template or ""
    return str(source if isinstance(source, str) else source.get(_DEFAULT, ""))
