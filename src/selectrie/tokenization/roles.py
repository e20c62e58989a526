"""Checks the roles of chat messages against the model's chat template."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import OptionError, PromptError

ROLE = re.compile(r"\w[\w .-]*")
"""Pattern of a role.

Templates write a role between control tokens, so it must not be able to spell one.
"""
_USUAL_ROLES = ("system", "user", "assistant")
_ROLES = (*_USUAL_ROLES, "developer", "tool")
_LEAST_RATIO = 0.8
"""Similarity from which a role is taken as a mistake: "usr" and "user" have 0.86."""
_MAX_ROLES = 16
"""Maximum number of unusual roles; the template is rendered twice for each."""
_DEVELOPER = re.compile(r"""(["'])developer\1""")
_MARKS = ("selectrie", "0b7e")
"""Contents that a template which writes a message writes differently."""


def adapt_roles(vocabulary: Vocabulary, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with roles that the model's chat template knows.

    OpenAI's role `developer` becomes `system` unless the template names it. Any other
    role stays if the template writes its messages.

    Raises:
        OptionError: For a role whose messages the template leaves out, or which differs
            from a usual one by a letter or two and is not named by the template.
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
        near = [] if role in _ROLES else get_close_matches(role.lower(), _ROLES, 1, _LEAST_RATIO)
        if near and not re.search(rf"""(["']){re.escape(role)}\1""", vocabulary.chat_source):
            allowed = f"a role that the model's chat template names; did you mean {near[0]!r}?"
            raise OptionError(f"messages[{index}].role", role, allowed)
        try:
            written = {template([{"role": role, "content": mark}, {"role": "user", "content": "x"}]) for mark in _MARKS}
        except PromptError:
            continue  # it may be written in another order; if it is refused, then with its reason
        if len(written) == 1:
            allowed = "a role that the model's chat template writes, such as 'user'"
            raise OptionError(f"messages[{index}].role", role, allowed)
    return read
