"""Servers that answer as vLLM, SGLang, llama-server and llama_cpp.server do by their sources, on a model of known rows.

Each is an ASGI application, asked in this process. `quirks` are what servers were seen to do wrong.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from selectrie.core.vocabulary import Vocabulary
from selectrie.testing import HashModel
from tests.support import fake_sampling
from tests.support.deciding import BYTES

STALL = "stall"
"""An answer that never comes."""
LOWEST = -3.4028234663852886e38
"""`std::numeric_limits<float>::lowest()`, which llama-server sends for a probability of 0."""


class HttpFault(Exception):
    """A refusal with a status and a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class FakeServer:
    """An ASGI application with routes, a log of what was asked, and answers that are planted.

    Attributes:
        planted: Answers that come before any route is asked, one for each request: STALL, or status, headers and body.
        asked: Path and body of every request.
        cancelled: How many requests were given up by the client.
        plans: Tokens that are drawn in place of random ones, one list for each sequence.
        change: Called with path and answer of each success, to spoil it.
        key: The key that is asked for, if there is one.
    """

    def __init__(
        self, seed: int = 1, vocabulary: Vocabulary = BYTES, *, quirks: Sequence[str] = (), **model: Any
    ) -> None:
        self.model = HashModel(seed, vocabulary=vocabulary, **{"sharpness": 0.5, **model})
        self.vocabulary, self.quirks = vocabulary, frozenset(quirks)
        self.planted: deque[Any] = deque()
        self.plans: deque[Sequence[int]] = deque()
        self.asked: list[tuple[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.cancelled = 0
        self.in_flight = self.most_in_flight = 0
        self.change: Callable[[str, Any], Any] = lambda _path, answer: answer
        self.key: str | None = None
        self.stalled, self.left = asyncio.Event(), asyncio.Event()

    def logp(self, path: Sequence[int]) -> np.ndarray:
        """The log-probabilities after a path, in float64, as vLLM clips them and rounded as float32."""
        if "bos" in self.quirks:
            path = [self.vocabulary.bos, *path]
        logits = self.model.row(path).astype(np.float64)
        logits -= logits.max()
        return (logits - math.log(np.exp(logits).sum())).astype(np.float32).astype(np.float64)

    def routes(self) -> dict[str, Callable[[Any], Any]]:
        """Answers by path."""
        raise NotImplementedError

    async def __call__(self, scope: Mapping[str, Any], receive: Callable, send: Callable) -> None:
        data = b""
        while True:
            message = await receive()
            data += message.get("body", b"")
            if not message.get("more_body"):
                break
        body = json.loads(data) if data else None
        self.asked.append((scope["path"], body))
        self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            status, headers, answer = await self._answer(scope["path"], body)
        except asyncio.CancelledError:
            self.cancelled += 1
            self.left.set()
            raise
        finally:
            self.in_flight -= 1
        sent = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        named = [
            (name.encode(), value.encode()) for name, value in {"content-type": "application/json", **headers}.items()
        ]
        await send({"type": "http.response.start", "status": status, "headers": named})
        await send({"type": "http.response.body", "body": sent})

    async def _answer(self, path: str, body: Any) -> tuple[int, Mapping[str, str], Any]:
        await asyncio.sleep(0)
        if self.planted:
            planted = self.planted.popleft()
            if planted == STALL:
                self.stalled.set()
                await asyncio.get_running_loop().create_future()
            if planted is not None:
                return planted
        if self.key is not None and self.headers[-1].get("authorization") != f"Bearer {self.key}":
            sent = self.headers[-1].get("authorization", "")
            return 401, {}, {"error": {"message": f"wrong key: {sent}"}}
        route = self.routes().get(path)
        if route is None:
            return 404, {}, {"detail": "Not Found"}
        try:
            return 200, {}, self.change(path, route(body))
        except HttpFault as fault:
            return fault.status, {}, {"error": {"message": fault.message, "code": fault.status}}

    def _tokens(self, text: str, *, parse: bool = True) -> list[int]:
        tokens, rest = self.vocabulary.encode_spans([(text.encode(), parse)])
        last = int(tokens[-1]) if len(tokens) else None
        return [*tokens.tolist(), *self.vocabulary.encode_run(rest, after=last)]

    def _spelled(self, token: int) -> str:
        return self.vocabulary.pieces[token].decode("utf-8", "replace") or self.vocabulary.texts[token]


class VllmServer(FakeServer):
    """vLLM 0.32: `/v1/completions`, `/tokenize`, `/version`."""

    max_model_len = 512
    owner = "vllm"

    def routes(self) -> dict[str, Callable[[Any], Any]]:
        return {
            "/v1/models": lambda _: {
                "object": "list",
                "data": [
                    {"id": name, "object": "model", "owned_by": self.owner, "max_model_len": self.max_model_len}
                    for name in (("a", "b") if "two models" in self.quirks else ("org/model",))
                ],
            },
            "/version": lambda _: {"version": "0.32.0"},
            "/tokenize": self.tokenize,
            "/v1/completions": self.completions,
        }

    def tokenize(self, body: Any) -> Any:
        """Control tokens are read; no BOS is asked for."""
        assert body["add_special_tokens"] is False
        tokens = self._tokens(body["prompt"])
        if "other tokenizer" in self.quirks and "é" in body["prompt"]:
            tokens = tokens[:-1]
        return {"count": len(tokens), "max_model_len": self.max_model_len, "tokens": tokens, "token_strs": None}

    def _entry(self, row: np.ndarray, token: int, named: Sequence[int], n_top: int, *, as_ids: bool) -> tuple[Any, ...]:
        best = np.argsort(-row, kind="stable")[:n_top].tolist() if not named else list(named)
        label = "token_id:{}".format if as_ids else self._spelled
        top: dict[str, float] = {}
        for one in [*best, token]:
            top[label(one)] = max(float(row[one]), -9999.0, top.get(label(one), -math.inf))
        return label(token), max(float(row[token]), -9999.0), top

    def completions(self, body: Any) -> Any:
        """One choice for a prompt of ids; named tokens stand in place of the most probable ones."""
        if "logprobs" not in body:
            return fake_sampling.completion(self, body["prompt"], body)
        ids, named = body["prompt"], body.get("logprob_token_ids") or []
        assert all(type(one) is int for one in ids)
        assert (body["temperature"], body["max_tokens"]) == (0, 1)
        if len(named) > 128 or body["logprobs"] > 20:
            raise HttpFault(400, "too many logprobs")
        if len(ids) + 1 > self.max_model_len:
            raise HttpFault(400, "too long")
        entries: list[tuple[Any, ...]] = []
        as_ids = body.get("return_tokens_as_token_ids", False) and "old" not in self.quirks
        if body.get("echo"):
            entries = [(f"token_id:{ids[0]}", None, None)]
            for n in range(1, len(ids)):
                before = (
                    ids[: n + 1]
                    if "echo after" in self.quirks
                    else ids[: n - 1]
                    if "echo before" in self.quirks
                    else ids[:n]
                )
                row = self.logp(before or ids[:1])
                if "noise" in self.quirks:
                    row = row - 0.01 * (1 + n % 2)
                if "wrong" in self.quirks:
                    row = row[::-1]
                entries.append(self._entry(row, ids[n], [], body["logprobs"], as_ids=as_ids))
        row = self.logp(ids)
        entries.append(self._entry(row, int(row.argmax()), named, body["logprobs"], as_ids=as_ids))
        names, values, tops = map(list, zip(*entries, strict=True))
        return {
            "id": "cmpl-1",
            "object": "text_completion",
            "model": body["model"],
            "choices": [
                {
                    "index": 0,
                    "text": "x",
                    "logprobs": {
                        "text_offset": [0] * len(names),
                        "token_logprobs": values,
                        "tokens": names,
                        "top_logprobs": tops,
                    },
                    "finish_reason": "length",
                    "stop_reason": None,
                    "prompt_logprobs": None,
                }
            ],
            "usage": {
                "prompt_tokens": len(ids) + ("counts bos" in self.quirks),
                "total_tokens": len(ids) + 1,
                "completion_tokens": 1,
            },
        }


class SglangServer(FakeServer):
    """SGLang: `/generate` with lists."""

    def routes(self) -> dict[str, Callable[[Any], Any]]:
        made = {
            "/v1/models": lambda _: {
                "object": "list",
                "data": [
                    {
                        "id": "org/model",
                        "object": "model",
                        "owned_by": "sglang",
                        "root": "org/model",
                        "max_model_len": 512,
                    }
                ],
            },
            "/get_server_info": lambda _: {
                "version": "0.6.1",
                "model_path": "org/model",
                "max_total_num_tokens": 4096,
            },
            "/tokenize": lambda body: {"tokens": self._tokens(body["prompt"]), "count": 0, "max_model_len": 512},
            "/generate": self.generate,
            "/v1/completions": lambda body: fake_sampling.completion(self, body["prompt"], body),
        }
        if "no tokenize" in self.quirks:
            del made["/tokenize"]
        return made

    def generate(self, body: Any) -> Any:
        """An item for each list of ids; values are triples of log-probability, id and null."""
        items = []
        for index, ids in enumerate(body["input_ids"]):
            row, start = self.logp(ids), body["logprob_start_len"][index]
            named, n_top = body["token_ids_logprob"][index], body["top_logprobs_num"][index]
            best = np.argsort(-row, kind="stable")[:n_top].tolist()
            token = int(row.argmax())
            meta: dict[str, Any] = {
                "id": "1",
                "finish_reason": {"type": "length", "length": 1},
                "prompt_tokens": len(ids) + ("counts bos" in self.quirks),
                "completion_tokens": 1,
                "cached_tokens": 0,
                "output_token_logprobs": [[float(row[token]), token, None]],
                "output_token_ids_logprobs": [[[float(row[one]), one, None] for one in named]],
                "output_top_logprobs": [[[float(row[one]), one, None] for one in best] if n_top else None],
            }
            if start >= 0:
                shift = "echo before" in self.quirks
                values = [None, *(float(self.logp(ids[: n - shift] or ids[:1])[ids[n]]) for n in range(1, len(ids)))]
                meta["input_token_logprobs"] = [[value, one, None] for value, one in zip(values, ids, strict=True)][
                    start:
                ]
            items.append({"text": "x", "output_ids": [token], "meta_info": meta})
        return items


class LlamaServer(FakeServer):
    """llama-server: `/completion`, `/tokenize`, `/props`."""

    def routes(self) -> dict[str, Callable[[Any], Any]]:
        n_vocab = len(self.vocabulary.pieces) + ("other size" in self.quirks)
        return {
            "/v1/models": lambda _: {
                "models": [{"name": "m.gguf"}],
                "object": "list",
                "data": [
                    {
                        "id": "m.gguf",
                        "object": "model",
                        "owned_by": "llamacpp",
                        "meta": {"n_vocab": n_vocab, "n_ctx": 256},
                    }
                ],
            },
            "/props": lambda _: {"total_slots": 2, "build_info": "b11434-0c1e57098", "model_path": "/m.gguf"},
            "/tokenize": lambda body: {"tokens": self._tokens(body["content"], parse=body["parse_special"])},
            "/completion": self.completion,
            "/v1/completions": lambda body: fake_sampling.completion(self, body["prompt"], body),
        }

    def completion(self, body: Any) -> Any:
        """The most probable tokens by the softmax of the logits before sampling; none of a token that ends within a character."""
        ids = body["prompt"]
        row = self.logp(ids)
        if "cache" in self.quirks and len(self.asked) > 1 and self.asked[-2][1].get("prompt") == ids[:-1]:
            row = row - 2.0 * (np.arange(len(row)) % 2)
            row -= math.log(np.exp(row).sum())
        biased = row.copy()
        for token, bias in body.get("logit_bias", []):
            biased[token] += bias
        drawn = int(biased.argmax())
        order = np.argsort(-row, kind="stable")[: body["n_probs"]].tolist()

        def entry(one: int) -> dict[str, Any]:
            return {
                "id": one,
                "token": self.vocabulary.pieces[one].decode("utf-8", "ignore"),
                "bytes": list(self.vocabulary.pieces[one]),
                "logprob": float(row[one]) if row[one] > -103 else LOWEST,
            }

        answer = {
            "index": 0,
            "content": self.vocabulary.pieces[drawn].decode("utf-8", "replace"),
            "tokens_predicted": 1,
            "tokens_evaluated": len(ids) + ("counts bos" in self.quirks),
            "tokens_cached": len(ids),
            "stop_type": "limit",
            "timings": {"prompt_n": 1},
        }
        if self.vocabulary.pieces[drawn] < b"\x80":
            answer["completion_probabilities"] = [{**entry(drawn), "top_logprobs": list(map(entry, order))}]
        return answer


class EchoServer(FakeServer):
    """llama_cpp.server: prompts are texts, BOS comes first where the vocabulary has one, and is left out of the lists.

    Its echo pairs entry i with row i, which without BOS is the row after the token.
    """

    def routes(self) -> dict[str, Callable[[Any], Any]]:
        return {
            "/v1/models": lambda _: {
                "object": "list",
                "data": [{"id": "m", "object": "model", "owned_by": "me", "permissions": []}],
            },
            "/v1/completions": self.completions,
            "/extras/tokenize": lambda body: {"tokens": self._read(body["input"])},
        }

    def _read(self, text: str) -> list[int]:
        bos = self.vocabulary.bos
        return [*([] if bos is None else [bos]), *self._tokens(text)]

    def completions(self, body: Any) -> Any:
        """As `Llama._create_completion` of 0.3.36 does it."""
        prompt, bos = body["prompt"], self.vocabulary.bos
        if not isinstance(prompt, str) and "takes ids" not in self.quirks:
            raise HttpFault(422, "Input should be a valid string")
        ids = self._read(prompt) if isinstance(prompt, str) else list(prompt)
        if "logprobs" not in body:
            return fake_sampling.completion(self, ids, body)
        scores = [self.logp(ids[: n + 1]) for n in range(len(ids))]
        drawn = int(scores[-1].argmax())
        completion = [] if drawn == self.vocabulary.eos else [drawn]
        logprobs = None
        if body.get("logprobs") is not None:
            n_skipped = int(ids[0] == bos)
            every = [*ids[n_skipped:], *completion] if body.get("echo") else completion
            rows = scores if body.get("echo") else scores[len(ids) - 1 :]
            if "takes ids" in self.quirks and body.get("echo"):  # a server that does it right
                every, rows = [*ids, *completion], [scores[0], *scores]
            texts = [self.vocabulary.pieces[one].decode("utf-8", "ignore") for one in every]
            pairs = list(zip(every, texts, rows, strict=False))
            values: list[float | None] = [float(row[token]) for token, _, row in pairs]
            tops: list[Any] = [
                {
                    **{
                        self.vocabulary.pieces[one].decode("utf-8", "ignore"): float(row[one])
                        for one in np.argsort(-row)[: body["logprobs"]].tolist()
                    },
                    text: float(row[token]),
                }
                for token, text, row in pairs
            ]
            if body.get("echo") and every:
                values[0] = tops[0] = None
            logprobs = {
                "tokens": texts[: len(pairs)],
                "token_logprobs": values,
                "top_logprobs": tops,
                "text_offset": [0] * len(pairs),
            }
        return {
            "id": "cmpl-1",
            "object": "text_completion",
            "choices": [{"index": 0, "text": "x", "logprobs": logprobs, "finish_reason": "length"}],
            "usage": {
                "prompt_tokens": len(ids),
                "completion_tokens": len(completion),
                "total_tokens": len(ids) + len(completion),
            },
        }
