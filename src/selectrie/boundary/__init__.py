"""Where the prompt ends and the choices begin, on tokens: healing, splitting, lm-eval's rule."""

from __future__ import annotations

from selectrie.boundary.canonical import OpenPrompt, OwnPaths, Reopened, open_prompt, reopen
from selectrie.boundary.choices import encode_choices
from selectrie.boundary.collisions import Collision, collisions
from selectrie.boundary.healing import HealPlan, heal_plan
from selectrie.boundary.records import EncodedChoices, PromptText
from selectrie.boundary.reopened import HealedBytes
from selectrie.boundary.tail import encode_after, encode_prompt

__all__ = [
    "Collision",
    "EncodedChoices",
    "HealPlan",
    "HealedBytes",
    "OpenPrompt",
    "OwnPaths",
    "PromptText",
    "Reopened",
    "collisions",
    "encode_after",
    "encode_choices",
    "encode_prompt",
    "heal_plan",
    "open_prompt",
    "reopen",
]
