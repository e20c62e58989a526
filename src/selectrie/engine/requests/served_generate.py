"""Lets a remote server draw text, with the OpenAI API fields that the caller set.

Prompts are tokenized as for a model in this process, so that they have the same tokens.
An option that was set and that the OpenAI API lacks is refused before anything is sent.
Options that were not set are left to the server. Numbers that the server does not
report stay unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from selectrie.core.model import ModelDescription
from selectrie.core.path_model import Answer, Cancellation, ServedText, SupportsCompletion
from selectrie.core.rows import DenseRows, Reads, Rows
from selectrie.core.types import Capacity, Cost, IntArray
from selectrie.engine.requests import generate
from selectrie.engine.requests.generate import GenerateRequest, PreparedGenerate, Prompts
from selectrie.engine.requests.generation_params import DEFAULT_GENERATING
from selectrie.engine.requests.session import Session
from selectrie.errors import LOAD_HERE, MessageText, OptionRef, ServerOptionError, joined, of_request, remedies
from selectrie.options import DEFAULT_SAMPLING, DEFAULT_STOPPING, SamplingParams
from selectrie.results import Completion, Generation

_SENT = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "stop")
"""Options that the OpenAI API has, under the same names."""
_HERE = frozenset({"max_tokens", "priority", "deadline_s"})
"""Options that are always sent, or that take effect before a request is sent."""
_KEEP_BEST = {*SamplingParams.FILTERS} - {"typical_p"}
"""Options without effect at temperature 0."""
_REMEDIES = {
    "grammar": "use `select` or `beam_search` with the grammar",
    "choices": "use `select`",
    "when": "use `stop`",
    **dict.fromkeys(("n_alternatives", "named"), "use `prompt_logprobs` on the text"),
    "best_of": "draw `n` texts and compare them by `prompt_logprobs`",
}
_NO_ROWS = DenseRows(np.empty((1, 0), dtype=np.float32))


class ServedTask:
    """A task whose text a remote server draws.

    It satisfies `Task` but reads no rows: `start` sends the request instead. So
    priority, deadline and queue work as for other tasks.

    Args:
        model: The model that draws the text.
        prompt: int32[T], the tokens before the text.
        sent: The fields of the request.
    """

    def __init__(self, model: SupportsCompletion, prompt: IntArray, sent: Mapping[str, Any]) -> None:
        self._model, self.prompt, self._sent = model, prompt, sent
        self.floor = Capacity(rows=1, nodes=sent["max_tokens"] - 1, sequences=1)
        self._text: ServedText

    def start(
        self,
        paths: Sequence[IntArray],
        reads: Reads,
        done: Callable[[Answer | BaseException], None],
        cancellation: Cancellation,
        *,
        priority: int = 0,
    ) -> None:
        """Send the request to the server; see `RowStarter`."""
        del paths, reads, priority

        def take(text: ServedText | BaseException) -> None:
            if isinstance(text, ServedText):
                self._text = text
                done(Answer(_NO_ROWS, Cost(model_calls=1, decode_s=text.decode_s)))
            else:
                done(text)

        self._model.complete(self.prompt, self._sent, take, cancellation)

    def capacity(self, floor: Capacity) -> Capacity:
        """Return the floor: the task needs nothing beyond it."""
        return floor

    def ask(self, capacity: Capacity) -> None:
        """Ask for no rows: the server draws the text."""
        del capacity

    def reads(self) -> Reads:
        """Return that nothing of the one row is read."""
        return Reads(1)

    def tell(self, rows: Rows) -> None:
        """Ignore the empty row."""
        del rows

    def result(self) -> ServedText:
        """Return the text that the server drew."""
        return self._text


@dataclass(frozen=True, slots=True, eq=False)
class PreparedServedGenerate:
    """A request that a remote server answers, checked and tokenized.

    Attributes:
        model: The model that draws the texts.
        prepared: The request, prepared as for a model in this process.
        sent: The fields of every request, without the seed.
    """

    model: SupportsCompletion
    prepared: PreparedGenerate
    sent: Mapping[str, Any]

    def run(self, session: Session) -> Generation:
        """Send one request for each text, and return all texts."""
        seed, n_each = self.prepared.request.seed, self.prepared.request.n
        seeds = [None if seed is None else seed + i for i in range(n_each)] * len(self.prepared.prompt_tokens)
        tasks = [
            ServedTask(self.model, spec.prompt, self.sent if seed is None else {**self.sent, "seed": seed})
            for spec, seed in zip(self.prepared.specs, seeds, strict=True)
        ]
        with session.group.together():
            handles = [session.group.begin(task) for task in tasks]
        completions, n_drawn = list[Completion](), 0
        for number, (handle, seed) in enumerate(zip(handles, seeds, strict=True)):
            prompt_index, index = divmod(number, n_each)
            with of_request(prompt_index if len(handles) > n_each else None):
                drawn = handle.result()
            rows = len(tasks[number].prompt) + max(0, drawn.n_tokens - 1)
            completions.append(self._completion(prompt_index, index, drawn, seed, handle.cost.with_rows_naive(rows)))
            n_drawn += drawn.n_tokens
        generation = generate.generation(session, self.prepared, completions)
        names = ", ".join([*self.sent, *([] if seeds[0] is None else ["seed"])])
        return replace(
            generation, n_drawn=n_drawn, sampled_by=f"{self.model.sampler_name}, by its own options but {names}"
        )

    def _completion(self, prompt_index: int, index: int, drawn: ServedText, seed: int | None, cost: Cost) -> Completion:
        """Return the record of one text, without the unreported fields."""
        return Completion(
            prompt_index=prompt_index,
            index=index,
            text=drawn.text,
            data=drawn.text.encode(),
            tokens=(),
            alternatives=(),
            logp=None,
            healed=b"",
            log_heal=0.0,
            finish="eog" if drawn.finish == "stop" and "stop" not in self.sent else drawn.finish,
            stop=None,
            ended_by=None,
            seed=seed,
            close_steps=None,
            n_drafted=0,
            n_accepted=0,
            cost=cost,
        )


def prepare_served(
    model: SupportsCompletion, described: ModelDescription, prompts: Prompts, request: GenerateRequest
) -> PreparedServedGenerate:
    """Check and tokenize a request, without a call to the server.

    Args:
        model: The model that draws the texts.
        described: The description of the same model.
        prompts, request: The arguments of `Engine.generate`.

    Raises:
        ServerOptionError: For an option that was set and cannot be sent.
        RequestError: For any other invalid input.
    """
    request = replace(request, sampling=generate.with_biased_ids(described.vocabulary, request.sampling))
    sent = {"max_tokens": request.stopping.max_tokens, **_collect_fields(model, request)}
    return PreparedServedGenerate(model, generate.prepare_generate(described, prompts, request), sent)


def _collect_fields(model: SupportsCompletion, request: GenerateRequest) -> dict[str, Any]:
    """Return the options that differ from their defaults, in the form that is sent.

    Raises `ServerOptionError` for an option that cannot be sent.
    """
    found: dict[str, Any] = {} if request.draft is None else {"draft": type(request.draft).__name__}
    for given, default in (
        (request.sampling, DEFAULT_SAMPLING),
        (request.stopping, DEFAULT_STOPPING),
        (request.options, DEFAULT_GENERATING),
    ):
        values = {field.name: getattr(given, field.name) for field in fields(given)}
        found |= {name: value for name, value in values.items() if value != getattr(default, name)}
    unused = _HERE.union(_KEEP_BEST if request.sampling.temperature == 0 else ())
    sent = {name: value for name, value in found.items() if name not in unused}
    for name, value in sent.items():
        if name not in _SENT:
            raise _option_error(
                model,
                name,
                value,
                MessageText("is sent ", joined(map(OptionRef, ("max_tokens", "seed", *_SENT))), " alone"),
            )
    if "stop" in sent:
        sent["stop"] = list(sent["stop"])
    if "logit_bias" in sent:
        biases = sent["logit_bias"] = {str(token): bias for token, bias in sent["logit_bias"].items()}
        if not all(map(math.isfinite, biases.values())):
            raise _option_error(model, "logit_bias", biases, "takes no infinite biases", "give -100 to forbid a token")
    return sent


def _option_error(
    model: SupportsCompletion, name: str, value: object, reason: str, remedy: str | None = None
) -> ServerOptionError:
    """Return the error for an option that cannot be sent to the server."""
    remedy = remedy or remedies(_REMEDIES.get(name, "leave it out"), operator=LOAD_HERE)
    return ServerOptionError(name, value, server=model.sampler_name, reason=reason, remedy=remedy)
