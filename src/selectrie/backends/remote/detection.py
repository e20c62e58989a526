"""Finds out which kind of server answers, and what it says of its model."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, unique
from urllib.parse import quote

from selectrie.backends.remote.answers import Answer
from selectrie.backends.remote.transport import Transport
from selectrie.errors import OptionError, UnsupportedModelError, clip

_MAX_NAMES = 20
"""Maximum number of models that an error lists."""


@unique
class Kind(Enum):
    """The kinds of servers, by what they call themselves as owners of their models."""

    OWN = "selectrie"
    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMA_SERVER = "llamacpp"
    ECHO = ""


_NAMES = {Kind.OWN: "selectrie", Kind.VLLM: "vLLM", Kind.SGLANG: "SGLang", Kind.LLAMA_SERVER: "llama-server"}


class Found:
    """What a server says of itself.

    Attributes:
        kind: Its kind.
        name: Name of the model.
        server: What it calls itself, with its version.
        n_context: Number of tokens of the context, or None.
        n_tokens: Number of tokens of the vocabulary, or None.
        n_slots: Number of requests that it works on at once, or None.
        tolerance: Nats by which the server itself says that its values may move.
    """

    def __init__(self, kind: Kind, name: str, entry: Answer) -> None:
        self.kind, self.name = kind, name
        self.server = _NAMES.get(kind, "a server with echo")
        meta = entry.get("meta")
        self.n_context = _count(entry, "max_model_len")
        self.n_tokens = None if meta is None or kind is not Kind.LLAMA_SERVER else _count(meta, "n_vocab")
        if self.n_context is None and meta is not None and kind is Kind.LLAMA_SERVER:
            self.n_context = _count(meta, "n_ctx")
        self.n_slots: int | None = None
        self.tolerance = 0.0


async def find_out(transport: Transport, model: str | None) -> Found:
    """Return what answers.

    Raises:
        OptionError: If there is no model of the name, or several without one.
        ServerError: If the server does not answer.
        UnsupportedModelError: If it has no list of models.
    """
    models = await transport.get("/v1/models", may_lack=True)
    if models is None:
        raise UnsupportedModelError(
            transport.server.url,
            "has no /v1/models, so it is no server that is known here: selectrie, vLLM, SGLang, llama-server, or one "
            "with OpenAI's /v1/completions",
        )
    entries = models["data"].sequence()
    entry = _entry(entries, model)
    owner = entry.get("owned_by")
    kind = next((kind for kind in Kind if owner is not None and owner.value == kind.value), Kind.ECHO)
    found = Found(kind, entry["id"].text(), entry)
    await _complete(transport, found)
    return found


def _entry(entries: Sequence[Answer], model: str | None) -> Answer:
    names = [entry["id"].text() for entry in entries]
    listed = ", ".join(repr(clip(name, 80)) for name in names[:_MAX_NAMES]) + (" …" if len(names) > _MAX_NAMES else "")
    if model is None and len(names) != 1:
        raise OptionError("model", model, f"one of the models that the server has: {listed or 'none'}")
    if model is not None and model not in names:
        raise OptionError("model", model, f"one of the models that the server has: {listed or 'none'}")
    return entries[0 if model is None else names.index(model)]


async def _complete(transport: Transport, found: Found) -> None:
    """Ask for what the list of models does not say."""
    version: Answer | None = None
    if found.kind is Kind.OWN:
        info = await transport.get(f"/tokenizer_info?model={quote(found.name, safe='')}", max_bytes=8 << 20)
        assert info is not None  # noqa: S101 - it may not lack
        found.n_context = _count(info, "model_max_length")
        stated = info.get("tolerance")
        found.tolerance = 0.0 if stated is None else stated.nats()
        health = await transport.get("/health", may_lack=True)
        version = None if health is None else health.get("version")
    elif found.kind is Kind.VLLM:
        answer = await transport.get("/version", may_lack=True)
        version = None if answer is None else answer.get("version")
    elif found.kind is Kind.SGLANG:
        answer = await transport.get("/get_server_info", max_bytes=8 << 20, may_lack=True)
        version = None if answer is None else answer.get("version")
    elif found.kind is Kind.LLAMA_SERVER:
        props = await transport.get("/props", max_bytes=8 << 20, may_lack=True)
        if props is not None:
            version = props.get("build_info")
            found.n_slots = _count(props, "total_slots")
    if version is not None:
        found.server = f"{found.server} {clip(version.text(), 80)}"


def _count(answer: Answer, name: str) -> int | None:
    value = answer.get(name)
    return None if value is None else value.whole() or None
