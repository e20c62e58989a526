"""Turns prompts of `/v1/completions` into tokens, and reads their log-probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from selectrie.engine.engine import Engine
from selectrie.engine.scheduler.task_group import check_cancelled
from selectrie.errors import PromptTooLongError
from selectrie.options import PromptParams
from selectrie.server.completion_response import PromptTokens
from selectrie.server.completion_wire import FIELDS, CompletionRequest, PromptInput
from selectrie.server.exchange import Exchange
from selectrie.server.http_errors import HttpError, error_of, errors_at
from selectrie.server.options import ServerOptions
from selectrie.server.token_texts import spelling_of
from selectrie.server.wire import check_tokenized
from selectrie.tokenization.encoding import PromptText, least_tokens
from selectrie.tokenization.prompts import SHORTEN_PROMPT, spelled_note

MAX_SCORES = 500_000
"""Maximum number of log-probabilities of all prompts of a request.

Each takes 200 bytes until the answer is sent, and those of `prompt_logprobs` take, and
count, twice that.
"""


async def score_prompts(
    exchange: Exchange, engine: Engine, request: CompletionRequest, options: ServerOptions
) -> tuple[CompletionRequest, list[PromptTokens]]:
    """Return a request and its prompts, with their log-probabilities if it needs them.

    The request gets a warning about control tokens in its text, if any.

    Raises:
        HttpError: 400 for a prompt that cannot be evaluated, or for too many tokens.
        SelectrieError: If the model fails.
    """
    request, prompts = await exchange.in_thread(lambda: _all_read(engine, request, options.max_rows))
    in_all = _n_copies(request) * sum(len(one.ids) for one in prompts)
    if in_all > options.max_rows:
        raise _too_many(in_all, options.max_rows)
    if not request.scores_prompts:
        return request, prompts
    n_top, prompt_top = request.body.logprobs or 0 if request.scores_echo else 0, request.body.prompt_logprobs
    n_echo = 1 + max(n_top, len(request.named)) if request.scores_echo else 0
    n_scores = in_all * (n_echo + (0 if prompt_top is None else 2 * (1 + prompt_top)))
    if n_scores > MAX_SCORES:
        counted = "logprobs" if prompt_top is None else "prompt_logprobs"
        message = f"the prompts have {n_scores} log-probabilities: expected at most {MAX_SCORES} in all; ask for fewer"
        raise HttpError(400, "too_many_rows", message, counted)
    with prompt_errors(request):
        scored = await exchange.hold(
            lambda: engine.aprompt_logprobs(
                [one.ids for one in prompts],
                top=max(n_top, prompt_top or 0),
                named=request.named if request.scores_echo else (),
                priority=request.generation.options.priority,
            )
        )
    return request, [replace(one, scored=scores) for one, scores in zip(prompts, scored, strict=True)]


def _with_warning(engine: Engine, request: CompletionRequest) -> CompletionRequest:
    """Return the request with a warning about control tokens in its text, if any.

    A request that says how they are read has none.
    """
    texts = (
        [prompt for prompt in request.prompts if isinstance(prompt, str)] if request.body.parse_special is None else []
    )
    spelled = dict.fromkeys(name for text in texts for name in engine.vocabulary.controls_spelled(text.encode()))
    if not spelled:
        return request
    warning = f"{spelled_note(list(spelled))} control tokens; parse_special=false reads them as text"
    generation = request.generation
    return replace(request, generation=replace(generation, warnings=[*generation.warnings, warning]))


@contextmanager
def prompt_errors(request: CompletionRequest, index: int = 0) -> Iterator[None]:
    """Name the prompt in the error about one too long: by default a single one.

    Where the tokens to be drawn are too many, the error names their limit.
    """
    try:
        yield
    except PromptTooLongError as error:
        found = error_of(error, FIELDS)
        if found.param != "max_tokens":
            found.param = request.name_of(error.request or index)
        raise found from error


def exact_prompts(prompts: Sequence[PromptTokens]) -> list[PromptText]:
    """Return the prompts as the engine draws after them: exactly these tokens."""
    return [PromptText(np.asarray(one.ids, dtype=np.int32), b"") for one in prompts]


def _too_many(n_tokens: int, max_rows: int, *, is_least: bool = False) -> HttpError:
    has = "has at least" if is_least else "has"
    message = f"the request {has} {n_tokens} tokens of prompts: expected at most {max_rows} in all"
    return HttpError(400, "too_many_rows", message, "prompt")


def _n_copies(request: CompletionRequest) -> int:
    """Return how often the answer has the scores of each prompt; 1 for none."""
    return request.generation.n if request.scores_prompts else 1


def _check_lengths(engine: Engine, request: CompletionRequest, max_rows: int) -> None:
    """Raise `HttpError` for prompts that cannot fit, before any of them is encoded.

    A text is taken to have as many tokens as its bytes need at least.
    """
    in_all, n_copies, n_kept = 0, _n_copies(request), _n_kept(engine, request)
    if n_kept is not None:
        check_tokenized("prompt", sum(len(one.encode()) for one in request.prompts if isinstance(one, str)))
    for index, prompt in enumerate(request.prompts):
        least = least_tokens(engine.vocabulary, prompt.encode()) if isinstance(prompt, str) else len(prompt)
        if n_kept is None and least - 1 > engine.limits.nodes:  # the last token takes no room
            with prompt_errors(request, index):
                raise engine.limits.too_long(least - 1, SHORTEN_PROMPT, is_least=True)
        in_all += n_copies * (least if n_kept is None else min(least, n_kept))
        if in_all > max_rows:
            raise _too_many(in_all, max_rows, is_least=True)


def _all_read(
    engine: Engine, request: CompletionRequest, max_rows: int
) -> tuple[CompletionRequest, list[PromptTokens]]:
    with errors_at("logprob_token_ids"):
        engine.vocabulary.check_tokens(request.named)
    _check_lengths(engine, request, max_rows)
    prompts = [_read(engine, request, index) for index in range(len(request.prompts))]
    return _with_warning(engine, request), prompts


def _read(engine: Engine, request: CompletionRequest, index: int) -> PromptTokens:
    check_cancelled()
    prompt, vocabulary = request.prompts[index], engine.vocabulary
    with errors_at(request.name_of(index)):
        ids = _tokens(engine, prompt, request)
    hides_first = isinstance(prompt, str) and request.adds_bos and _is_added(engine, ids, prompt, request)
    n_kept = _n_kept(engine, request)
    if n_kept is not None and len(ids) > n_kept:
        ids = [*ids[:1], *ids[len(ids) - n_kept + 1 :]] if hides_first else ids[len(ids) - n_kept :]
    return PromptTokens(ids, spelling_of(vocabulary, ids, hides_first=hides_first))


def _tokens(engine: Engine, prompt: PromptInput, request: CompletionRequest) -> list[int]:
    if isinstance(prompt, str):
        prompting = PromptParams(parse_special=request.body.parse_special is not False, add_bos=request.adds_bos)
        encoded: list[int] = engine.encode(prompt, prompting=prompting).tolist()
        return encoded
    tokens: list[int] = engine.vocabulary.check_tokens(prompt).tolist()
    return tokens


def _is_added(engine: Engine, ids: Sequence[int], text: str, request: CompletionRequest) -> bool:
    """Return whether the first token is a BOS that the text does not spell."""
    vocabulary = engine.vocabulary
    if vocabulary.bos is None or ids[0] != vocabulary.bos:
        return False
    if request.body.parse_special is False or not text or not text.startswith(vocabulary.texts[vocabulary.bos]):
        return True
    return len(engine.encode(text, prompting=PromptParams(parse_special=True, add_bos=False))) < len(ids)


def _n_kept(engine: Engine, request: CompletionRequest) -> int | None:
    """Return how many tokens of a prompt are kept, None for all."""
    if request.body.truncate_prompt_tokens != -1:
        return request.body.truncate_prompt_tokens
    return max(1, engine.limits.nodes - max(0, request.max_tokens - 1))
