"""What the tests of our own calls over HTTP share: a small body of each, and one with most of its fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LEAST: Mapping[str, dict[str, Any]] = {
    "/v1/select": {"prompt": "a", "choices": ["b", "cd"]},
    "/v1/rank": {"prompt": "a", "choices": ["b", "cd"]},
    "/v1/loglikelihood": {"prompt": "a", "text": "b"},
    "/v1/beam": {"prompt": "a", "regex": "[ab]{1,3}"},
    "/v1/sample": {"prompt": "a", "regex": "[ab]{1,3}", "seed": 1},
    "/v1/render": {"template": "a <<x>>", "values": {"x": "b"}, "rendering": {"seed": 1}},
}
"""The least that each call takes, with a seed where one is drawn otherwise."""
FULL: Mapping[str, dict[str, Any]] = {
    "/v1/select": {
        "messages": [{"role": "user", "content": "a"}],
        "system": "s",
        "choices": [{"value": 1, "text": "b"}, {"value": "two", "text": "cd"}],
        "rule": {"name": "calibrated", "content_free": ["x", "y"]},
        "terminator": "none",
        "prior": {"b": 1, "cd": 2.5},
        "k": 2,
        "search": {"method": "exhaustive", "width": 3},
        "prompting": {"boundary": "split", "assistant_prefix": "p", "template_args": {"t": "u"}},
    },
    "/v1/rank": {
        "prompt": [5, 6],
        "choices": ["b", 3, True],
        "rule": "token_mean",
        "following": ".",
        "delimiter": " ",
        "drawing": True,
        "fold": [0],
    },
    "/v1/loglikelihood": {"user": "a", "text": "bc", "tokenizations": "all", "event": "begins", "budget_nodes": 50},
    "/v1/beam": {
        "prompt": "a",
        "grammar": 'root ::= "b" root | "c"',
        "max_tokens": 4,
        "width": 4,
        "n": 2,
        "beam": {"groups": 2, "diversity": 0.5, "incomplete": True},
        "stream": True,
    },
    "/v1/sample": {"prompt": "a", "json_schema": {"enum": ["b", 1]}, "n": 2, "seed": 3, "exact": False},
    "/v1/render": {
        "template": "<<#each items as one>><<one.name>>: <<gen 'x' regex='[ab]{2}' max_tokens=3>> <</each>>",
        "values": {"items": [{"name": "n"}, {"name": "m"}]},
        "dialect": "selectrie",
        "rendering": {"seed": 1, "max_tokens": 3, "parse_special": False},
    },
}
"""A body of each call with most of its fields."""
