"""Describes the bodies of requests for OpenAPI's page at `/docs`.

The schemas validate nothing. Bodies are checked where they are read, because errors
there name the value and what to do.
"""

from __future__ import annotations

from typing import Any

_TEXT: dict[str, Any] = {"type": "string"}
_NUMBER: dict[str, Any] = {"type": "number"}
_FLAG: dict[str, Any] = {"type": "boolean"}
_MODEL: dict[str, Any] = {"model": {"type": "string", "description": "Name of the model (`GET /v1/models`)."}}
_OPTIONS: dict[str, Any] = {
    "template": {"type": "string", "enum": ["auto", "chat", "base"]},
    "layout": {"type": "string", "enum": ["auto", "state first", "questions first", "options last"]},
    "scoring": {"type": "string", "enum": ["text", "letters"]},
    "rule": {"type": "string", "enum": ["joint", "token_mean", "char_mean", "byte_mean", "pmi", "calibrated"]},
    "calibration": {"oneOf": [{"type": "string", "enum": ["content_free"]}, {"type": "object"}]},
    "permutations": {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "string", "enum": ["all", "auto"]}]},
    "min_confidence": {"type": "number", "minimum": 0, "maximum": 1},
    "min_label_mass": {"type": "number", "minimum": 0, "maximum": 1},
    "list_options": _FLAG,
    "confidence": {"type": "string", "enum": ["top", "entropy", "label_mass"]},
    "request_id": _TEXT,
}
_IDS: dict[str, Any] = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}
_QUESTION: dict[str, Any] = {
    "type": "object",
    "required": ["type"],
    "properties": {
        "type": _TEXT,
        "name": _TEXT,
        "instructions": _TEXT,
        "cue": _TEXT,
        "examples": {"type": "array", "items": {"type": "object", "required": ["state", "answer"]}},
    },
}
_MESSAGE: dict[str, Any] = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": _TEXT,
        "content": {"oneOf": [_TEXT, {"type": "array", "items": {"type": "object"}}, {"type": "null"}]},
        "name": _TEXT,
    },
}
GENERATION: dict[str, Any] = {
    "max_tokens": {"type": "integer", "minimum": 0},
    "n": {"type": "integer", "minimum": 1},
    "best_of": {"type": "integer", "minimum": 1},
    "temperature": {"type": "number", "minimum": 0},
    "top_k": {"type": "integer", "minimum": -1},
    "top_p": {"type": "number", "minimum": 0, "maximum": 1},
    "min_p": {"type": "number", "minimum": 0, "maximum": 1},
    "typical_p": {"type": "number", "minimum": 0, "maximum": 1},
    "repetition_penalty": {"type": "number", "exclusiveMinimum": 0},
    "presence_penalty": _NUMBER,
    "frequency_penalty": _NUMBER,
    "penalty_last_n": {"type": "integer", "minimum": -1},
    "logit_bias": {"type": "object", "additionalProperties": _NUMBER},
    "seed": {"type": "integer"},
    "stop": {"oneOf": [_TEXT, {"type": "array", "items": _TEXT}]},
    "stop_token_ids": {"type": "array", "items": {"type": "integer", "minimum": 0}},
    "ignore_eos": {"type": "boolean"},
    "min_tokens": {"type": "integer", "minimum": 0},
    "stream": {"type": "boolean"},
    "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}}},
    "priority": {
        "type": "integer",
        "description": "A lower number goes first, where the server takes it.",
    },
    "request_id": _TEXT,
    "structured_outputs": {
        "type": "object",
        "description": "Exactly one of these.",
        "additionalProperties": False,
        "properties": {
            "choice": {"type": "array", "minItems": 1, "items": _TEXT},
            "regex": _TEXT,
            "json": {"oneOf": [{"type": "object"}, _TEXT]},
            "grammar": {"type": "string", "description": "GBNF, with the start rule `root`."},
            "json_object": {"type": "boolean"},
        },
    },
}
"""Fields of all endpoints that draw text."""
_BODIES: dict[str, dict[str, Any]] = {
    "chat": {
        "required": ["messages"],
        "properties": {
            **_MODEL,
            "messages": {"type": "array", "minItems": 1, "items": _MESSAGE},
            "max_completion_tokens": {"type": "integer", "minimum": 1},
            "logprobs": {"type": "boolean"},
            "top_logprobs": {"type": "integer", "minimum": 0},
            "chat_template_kwargs": {"type": "object"},
            **GENERATION,
        },
    },
    "completions": {
        "properties": {
            **_MODEL,
            "prompt": {
                "oneOf": [
                    _TEXT,
                    {"type": "array", "minItems": 1, "items": _TEXT},
                    _IDS,
                    {"type": "array", "minItems": 1, "items": _IDS},
                ]
            },
            "echo": _FLAG,
            "logprobs": {"type": "integer", "minimum": 0},
            "prompt_logprobs": {"type": "integer", "minimum": 0},
            "logprob_token_ids": _IDS,
            "return_tokens_as_token_ids": _FLAG,
            "return_token_ids": _FLAG,
            "add_special_tokens": _FLAG,
            "parse_special": _FLAG,
            "truncate_prompt_tokens": {"type": "integer", "minimum": -1},
            **GENERATION,
        },
    },
    "decisions": {
        "required": ["input", "questions"],
        "properties": {
            **_MODEL,
            "input": {"oneOf": [_TEXT, {"type": "array", "items": {"type": "object"}}]},
            "questions": {"type": "array", "minItems": 1, "items": _QUESTION},
            **_OPTIONS,
        },
    },
    "systemone": {
        "required": ["state", "questions"],
        "properties": {
            **_MODEL,
            "state": {"oneOf": [_TEXT, {"type": "object"}, {"type": "array"}]},
            "instructions": _TEXT,
            "questions": {"type": "object", "minProperties": 1, "additionalProperties": _QUESTION},
            **_OPTIONS,
        },
    },
    "tokenize": {
        "properties": {
            **_MODEL,
            "prompt": _TEXT,
            "messages": {"type": "array", "items": {"type": "object"}},
            "add_special_tokens": _FLAG,
            "return_token_strs": _FLAG,
            "add_generation_prompt": _FLAG,
            "continue_final_message": _FLAG,
            "chat_template_kwargs": {"type": "object"},
        },
    },
    "encode": {
        "required": ["texts"],
        "properties": {
            **_MODEL,
            "texts": {"type": "array", "minItems": 1, "items": {**_TEXT, "format": "byte"}},
            "form": {"type": "string", "enum": ["begin", "inside", "normalize"]},
        },
    },
    "detokenize": {
        "required": ["tokens"],
        "properties": {**_MODEL, "tokens": {"type": "array", "items": {"type": "integer", "minimum": 0}}},
    },
}


def model_query() -> dict[str, Any]:
    """Return what FastAPI adds to an endpoint that reads the model from the query."""
    return {"parameters": [{"name": "model", "in": "query", "required": False, "schema": _TEXT}]}


def body_of(name: str) -> dict[str, Any]:
    """Return what FastAPI adds to an endpoint that reads a body itself."""
    schema = {"type": "object", **_BODIES[name]}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
