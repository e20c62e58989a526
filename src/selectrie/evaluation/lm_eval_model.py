"""A model class called `selectrie` for lm-evaluation-harness (extra `lm-eval`).

Importing this module registers it. `selectrie lm-eval …` is the harness's own command
with this model. In Python:

>>> import selectrie.evaluation.lm_eval_model  # doctest: +SKIP
>>> lm_eval.simple_evaluate(  # doctest: +SKIP
...     "selectrie", model_args="path=model.gguf", tasks=["hellaswag"]
... )

Requests are regrouped by context into tries, so that every distinct prefix is evaluated
once, whatever order they come in.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from selectrie.core.vocabulary import to_bytes
from selectrie.engine.load import load
from selectrie.engine.requests.loglikelihood import Sequences
from selectrie.engine.requests.session import time_args
from selectrie.errors import CapacityError, MissingExtraError, OptionError, SelectrieError, UnknownOptionError
from selectrie.evaluation.work_units import UNIT_ROWS, rolling_windows
from selectrie.options import PromptParams, SamplingParams, StopParams, at_least
from selectrie.options.checks import numbers_of

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
    from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs
    from tqdm import tqdm
except ModuleNotFoundError as error:
    raise MissingExtraError("lm-evaluation-harness", "lm-eval") from error

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

logger = logging.getLogger(__name__)

Tokens = list[int]
Request = tuple[Any, Tokens, Tokens]
"""Key in the harness's cache or None, and the tokens of context and continuation."""


@register_model("selectrie")
class SelectrieLM(TemplateLM):  # type: ignore[misc]  # an untyped base
    """A model class for lm-evaluation-harness that runs a model with selectrie.

    `model_args` are the arguments of `selectrie.load`, and the parameters below.
    """

    def __init__(
        self,
        path: str | None = None,
        *,
        max_length: int | None = None,
        max_gen_toks: int = 256,
        add_bos_token: bool | None = None,
        **options: Any,
    ) -> None:
        """Load a model.

        Args:
            path: A source that `load` takes, except an open model: a GGUF file, the
                folder of a checkpoint, an `hf:` source, or None for the embedded model.
            max_length: Maximum number of tokens of a sequence; at most the model's
                context.
            max_gen_toks: Maximum number of generated tokens if a task gives none.
            add_bos_token: Whether BOS comes before texts. The default is the model's
                own setting.
            options: Options of `load`: `backend`, `untrusted`, and those of the back
                end (`n_ctx`, `n_threads`, `precision` …). `batch_size` and
                `max_batch_size` are ignored, since requests are batched by what they
                share. So is a `device` that is None or the one that the harness's
                command gives if the caller names none.

        Raises `OptionError` for other names and for a `device` that the back end does
        not have, and the errors of `load`.
        """
        super().__init__()
        for name in ("batch_size", "max_batch_size"):
            options.pop(name, None)
        if options.get("device") in (None, None if _device_is_named.get() else _DEFAULT_DEVICE):
            options.pop("device", None)
        at_least("max_length", max_length, 1)
        at_least("max_gen_toks", max_gen_toks, 1, optional=False)
        try:
            self._engine = load(path, **options)
        except UnknownOptionError as error:
            if error.name == "device":
                raise  # the harness's own argument, not one of `model_args`
            raise OptionError("model_args", error.name, ", ".join((*_OWN_ARGUMENTS, *error.names))) from error
        self._path = path
        max_nodes = self._engine.limits.nodes
        if max_length is not None and max_length > max_nodes:
            self._engine.close()
            raise OptionError("max_length", max_length, f"from 1 to {max_nodes}, the tokens the model holds")
        self._max_length = max_length or max_nodes
        self._max_gen_toks = max_gen_toks
        self._adds_bos = (self.vocabulary.bos is not None) if add_bos_token is None else add_bos_token
        self._is_chat = False
        self._time_args = time_args(self.vocabulary)  # the same in all chats of a run

    @property
    def vocabulary(self) -> Any:
        """Return the model's vocabulary."""
        return self._engine.vocabulary

    @property
    def eot_token_id(self) -> int:
        """Return the token that ends a text; raise `OptionError` without one."""
        eos = self.vocabulary.eos
        if eos is None:
            raise OptionError("model", self._path, "a model that has an end-of-text token")
        return int(eos)

    @property
    def prefix_token_id(self) -> int:
        """Return the token that replaces an empty context (`Vocabulary.start`)."""
        start = self.vocabulary.start
        return self.eot_token_id if start is None else int(start)

    @property
    def max_length(self) -> int:
        """Return the maximum number of tokens of a sequence."""
        return self._max_length

    @property
    def tokenizer_name(self) -> str:
        """Return a name of the tokenizer and chat template for the harness's cache."""
        digest: str = self._engine.identity.tokenizer_digest
        return digest

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> Tokens:
        """Return the tokens of a text.

        BOS is put first if wanted, unless the text already begins with it. Control
        tokens are recognised only in chats that the chat template rendered.
        """
        vocabulary = self.vocabulary
        ids, rest = vocabulary.encode_spans([(to_bytes(string, "text"), self._is_chat)])
        tokens: Tokens = [*ids.tolist(), *vocabulary.encode_run(rest, after=int(ids[-1]) if len(ids) else None)]
        wants_bos = self._adds_bos if add_special_tokens is None else add_special_tokens
        if wants_bos and vocabulary.bos is not None and tokens[:1] != [vocabulary.bos]:
            tokens.insert(0, vocabulary.bos)
        return tokens

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Return a chat as text, rendered by the model's own template.

        After this call, control tokens are recognised in requests.
        """
        template = self.vocabulary.chat_template
        if template is None:
            raise OptionError("apply_chat_template", self._path, "a model that has a chat template")
        self._is_chat = True
        if add_generation_prompt or not chat_history:
            return str(template(chat_history, **self._time_args))
        # To be continued: what the template writes after it is cut off.
        last = chat_history[-1]["content"]
        written = str(template(chat_history, add_generation_prompt=False, **self._time_args))
        return written[: written.rindex(last) + len(last)]

    def chat_template(self, chat_template: bool | str = False) -> str:
        """Return a name of the chat template, for the harness's results."""
        return self.tokenizer_name if chat_template else ""

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Return the log-likelihood of each continuation, and whether it is greedy.

        Raises `OptionError` for a continuation that adds no token.
        """
        for request in requests:
            if not request.args[1]:
                raise _no_token_error(*request.args[:2])
        results: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm=disable_tqdm)
        return results

    def _loglikelihood_tokens(
        self, requests: Sequence[Request], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        """Return the log-likelihood of each continuation, and whether it is greedy.

        As in the harness's `hf` model, a sequence that is too long loses its first
        tokens, which is logged.
        """
        results: list[tuple[float, bool]] = [(0.0, True)] * len(requests)
        for texts, _context, rest in requests:
            if texts is not None and not rest:
                raise _no_token_error(*texts)
        pairs = [self._truncate(context, rest) for _, context, rest in requests]
        if not pairs:
            return results
        longest = max(len(context) + len(rest) for context, rest in pairs)
        with (
            self._engine.loglikelihood_scorer(longest) as scorer,
            tqdm(total=len(pairs), disable=disable_tqdm, desc="Running loglikelihood requests") as bar,
        ):
            for indices in _group_pairs(pairs):
                scores = scorer.loglikelihoods(Sequences.of([pairs[i] for i in indices]))
                for i, logp, is_greedy in zip(indices, scores.logp.tolist(), scores.is_greedy.tolist(), strict=True):
                    results[i] = logp, is_greedy
                    if requests[i][0] is not None:
                        self.cache_hook.add_partial("loglikelihood", requests[i][0], results[i])
                bar.update(len(indices))
        return results

    def _truncate(self, context: Tokens, rest: Tokens) -> tuple[Tokens, Tokens]:
        """Return the last tokens of the context that fit, and the continuation.

        At least one token of the context is kept.
        """
        if not rest:
            return context or [self.prefix_token_id], []
        if len(rest) > self._max_length:
            raise CapacityError("tokens of a continuation", required=len(rest), available=self._max_length)
        excess = len(context) + len(rest) - (self._max_length + 1)
        if excess > 0:
            logger.warning("a request of %d tokens loses its first %d", len(context) + len(rest), excess)
        return context[max(0, excess) :] or [self.prefix_token_id], rest

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """Return the log-likelihoods of whole texts, measured in windows.

        BOS is scored if the tokenizer adds it, as in the harness.
        """
        window_requests: list[Request] = []
        n_windows = []
        for request in requests:
            tokens = np.array(self.tok_encode(request.args[0]), dtype=np.int32)
            windows = rolling_windows(tokens, self.prefix_token_id, self._max_length)
            window_requests += [(None, context.tolist(), rest.tolist()) for context, rest in windows]
            n_windows.append(len(windows))
        loglikelihoods = iter(self._loglikelihood_tokens(window_requests, disable_tqdm=disable_tqdm))
        results = []
        for request, n in zip(requests, n_windows, strict=True):
            results.append(sum(next(loglikelihoods)[0] for _ in range(n)))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, results[-1])
        return results

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Return the texts generated after each request, up to its first stop string.

        Requests with the same options run side by side.
        """
        groups: dict[str, list[int]] = {}
        for i, request in enumerate(requests):
            groups.setdefault(json.dumps(request.args[1], sort_keys=True, default=str), []).append(i)
        results = [""] * len(requests)
        with tqdm(total=len(requests), disable=disable_tqdm, desc="Running generate_until requests") as bar:
            for indices in groups.values():
                contexts = [requests[i].args[0] for i in indices]
                for i, text in zip(indices, self._generate(contexts, requests[indices[0]].args[1]), strict=True):
                    results[i] = text
                    self.cache_hook.add_partial("generate_until", requests[i].args, text)
                bar.update(len(indices))
        return results

    def _generate(self, contexts: list[str], options: dict[str, Any]) -> list[str]:
        """Generate a text after each context, with the harness's options."""
        kwargs = normalize_gen_kwargs(options, self._max_gen_toks)
        stops = [stop for stop in handle_stop_sequences(kwargs.pop("until", None), eos=None) if stop]
        max_tokens = kwargs.pop("max_gen_toks")
        kwargs.pop("do_sample", None)
        names = {"repetition_penalty": "repeat_penalty"} | {name: name for name in numbers_of(SamplingParams)}
        sampling = {option: kwargs.pop(name) for name, option in names.items() if name in kwargs}
        if kwargs:
            raise OptionError("gen_kwargs", next(iter(kwargs)), ", ".join(("until, max_gen_toks, do_sample", *names)))
        room = self._max_length - max_tokens
        if room < 1:
            raise OptionError(
                "max_gen_toks", max_tokens, f"less than {self._max_length}, the tokens the model reads at once"
            )
        prompts = [(self.tok_encode(context) or [self.prefix_token_id])[-room:] for context in contexts]
        generation = self._engine.generate(
            prompts,
            seed=0,
            # The defaults of transformers.
            sampling=replace(SamplingParams.UNCHANGED, **{"temperature": 0.0, **sampling}),
            stopping=StopParams(max_tokens=max_tokens, stop=stops),
            prompting=PromptParams(add_bos=False),  # `tok_encode` has added it, if it is wanted
        )
        return [completion.text for completion in generation]


def _no_token_error(context: str, continuation: str) -> OptionError:
    """Return the error for a continuation that adds no token to its context."""
    return OptionError("continuation", continuation, f"a text that adds at least one token after {context[-40:]!r}")


_OWN_ARGUMENTS = ("path", "max_length", "max_gen_toks", "add_bos_token", "backend", "max_waiting", "untrusted")
"""Names of `model_args` besides the options of the back end."""


def _default_device() -> object:
    """Return the device that the harness's command gives if the caller names none."""
    try:
        from lm_eval.config.evaluate_config import EvaluatorConfig
    except ModuleNotFoundError:  # a harness without this record gives None
        return None
    return next((field.default for field in fields(EvaluatorConfig) if field.name == "device"), None)


_DEFAULT_DEVICE = _default_device()
_device_is_named: ContextVar[bool] = ContextVar("device_is_named", default=False)
"""Whether the command's arguments name a device, even if it is the default one."""


def _group_pairs(pairs: Sequence[tuple[Tokens, Tokens]]) -> Iterator[list[int]]:
    """Yield indices of pairs to evaluate together, in about `UNIT_ROWS` rows.

    Pairs with a common prefix are neighbours.
    """
    order = sorted(range(len(pairs)), key=lambda i: (pairs[i][0], pairs[i][1]))
    unit: list[int] = []
    rows, before = 0, Tokens()
    for i in order:
        whole = pairs[i][0] + pairs[i][1]
        own = len(whole) - _n_common(before, whole)
        if unit and rows + own > UNIT_ROWS and pairs[i][0] != pairs[unit[-1]][0]:
            yield unit
            unit, rows, own = [], 0, len(whole)
        unit.append(i)
        rows, before = rows + own, whole
    if unit:
        yield unit


def _n_common(one: Tokens, other: Tokens) -> int:
    """Return the length of the common prefix of two token lists."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def main(arguments: list[str]) -> None:
    """Run the harness's command with this model class, unless `--model` names another.

    Ends the process as the harness does.
    """
    from lm_eval.__main__ import cli_evaluate

    named = any(argument == "--model" or argument.startswith("--model=") for argument in arguments)
    _device_is_named.set(any(argument.startswith("--dev") for argument in arguments))  # argparse takes abbreviations
    verbs = ("ls", "validate")
    own = [] if named or arguments[:1] in ([verb] for verb in verbs) or not arguments else ["--model", "selectrie"]
    verb = arguments[:1] if arguments[:1] in (["run"], *([one] for one in verbs)) else ["run"]
    rest = arguments[1:] if arguments[:1] == verb else arguments
    sys.argv = ["selectrie lm-eval", *verb, *own, *rest]
    try:
        with suppress(BrokenPipeError):
            cli_evaluate()
    except SelectrieError:
        raise
    # What the harness says of its own arguments.
    except (ValueError, FileNotFoundError) as error:
        raise OptionError("lm-eval", " ".join(arguments), f"arguments that the harness takes: {error}") from error
