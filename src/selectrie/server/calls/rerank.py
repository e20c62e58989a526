"""`POST /v1/rerank`: documents in the order in which they fit a query.

The shapes are those of Jina's, Cohere's and vLLM's endpoints of this name. The model is
not asked whether a document fits: the answers of small models tell less. It is asked
for a query that the document fits, and the query is scored as its answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from selectrie.decide.answers import ChoiceAnswer
from selectrie.decide.params import DecisionParams
from selectrie.decide.questions import Choice
from selectrie.engine.scheduler.task_group import set_priority
from selectrie.errors import THE_STATE, OptionError, PromptTooLongError
from selectrie.server.fields.reading import read, unknown_fields
from selectrie.server.fields.wire import (
    BY_TYPE,
    Body,
    EncodableText,
    Items,
    NotOffered,
    Priority,
    UpTo,
    WireModel,
    fields_of,
)
from selectrie.server.options import ServerOptions
from selectrie.server.transport.http_errors import HttpError, message_of
from selectrie.server.transport.request_context import exchange_of, json_response, read_request
from selectrie.server.transport.state import state_of

INSTRUCTIONS = "Write a search query for which this text is relevant."
"""The instructions of the question about each document."""
PARAMS = DecisionParams(rule="pmi", layout="state first", list_options=False)
"""Its options: the score is the gain over the same prompt without a document."""
_MAX_GAIN = 700.0
"""Gain in nats below whose negative `math.exp` would overflow."""


class RerankDocument(WireModel):
    """A document as an object."""

    model_config = ConfigDict(title="an object with a text")

    text: EncodableText
    """The text of the document."""
    image: Annotated[Any, NotOffered((), "images are not read", "unsupported_input")] = None


class RerankBody(Body):
    """A query, and documents to order by how well they fit it."""

    query: EncodableText = Field(title="a text that is not blank", pattern=r"\S")
    """The text that documents should fit."""
    documents: Annotated[
        Items[Annotated[EncodableText | RerankDocument, BY_TYPE, Field(title="a text, or an object with a text")]],
        UpTo("max_prompts", "documents in a request"),
    ] = Field(title="a list of documents", min_length=1)
    """The documents."""
    top_n: int | None = Field(None, ge=1)
    """Number of results, the best; all by default."""
    return_documents: bool | None = None
    """Whether results have their documents; by default they have not."""
    priority: Priority | None = None
    """A lower number goes first, where the server takes it."""
    request_id: str | None = None
    """Id of the answer, and name of the request in headers and log."""
    rank_fields: Annotated[Any, NotOffered((["text"],), "give documents as texts")] = None
    max_tokens_per_doc: Annotated[Any, NotOffered((), "documents are not cut; give shorter ones")] = None
    max_chunks_per_doc: Annotated[Any, NotOffered((), "documents are not cut; give shorter ones")] = None
    truncate_prompt_tokens: Annotated[Any, NotOffered((), "documents are not cut; give shorter ones")] = None


FIELDS = fields_of(RerankBody, state="documents") | {THE_STATE.name: "documents"}


@dataclass(frozen=True, slots=True, eq=False)
class RerankRequest:
    """A checked request.

    Attributes:
        body: The body.
        documents: The texts of the documents.
        warnings: Warnings about ignored fields.
    """

    body: RerankBody
    documents: Sequence[str]
    warnings: Sequence[str]


def read_rerank(data: Mapping[str, Any], options: ServerOptions) -> RerankRequest:
    """Check the body of a request, and return the request.

    Raises:
        HttpError, RequestError: For any error that can be found without a model.
    """
    body = read(RerankBody, data, options)
    documents = [one if isinstance(one, str) else one.text for one in body.documents]
    for index, text in enumerate(documents):
        if not text.strip():
            raise OptionError(f"documents[{index}]", text, "a document that is not blank")
    return RerankRequest(body, documents, unknown_fields(data, RerankBody.model_fields))


def relevance_of(answer: ChoiceAnswer[str]) -> float:
    """Return the relevance of a document, between 0 and 1.

    With p the geometric mean of the probabilities of the query's tokens after the
    document, and q without one, it is p / (p + q): 0.5 if the document does not make
    the query more probable.

    Args:
        answer: The answer about the document, whose only option is the query.
    """
    found = answer.selection.choices[0]
    gain = float(found.score or 0.0) / max(1, len(found.tokens))
    return 1 / (1 + math.exp(-gain)) if gain > -_MAX_GAIN else 0.0


def rerank_response(
    request: RerankRequest, answers: Sequence[ChoiceAnswer[str]], model: str, name: str
) -> dict[str, Any]:
    """Return the response, ready for JSON; documents of equal scores keep their order.

    Args:
        request: The request.
        answers: The answer about each document.
        model: Name of the model.
        name: Id of the response.
    """
    scores = [relevance_of(one) for one in answers]
    best = sorted(range(len(answers)), key=lambda index: -scores[index])[: request.body.top_n]
    results = [
        {
            "index": index,
            "relevance_score": scores[index],
            **({"document": {"text": request.documents[index]}} if request.body.return_documents else {}),
        }
        for index in best
    ]
    n_tokens = sum(one.usage.input_tokens for one in answers)
    return {
        "id": name,
        "model": model,
        "results": results,
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
        **({"warnings": [*request.warnings]} if request.warnings else {}),
    }


def _name_long_text(error: PromptTooLongError, request: RerankRequest) -> HttpError:
    """Return the error for a query or a document that does not fit the context."""
    index = error.request or 0
    is_query = len(request.body.query) > len(request.documents[index])
    path, what = ("query", "query") if is_query else (f"documents[{index}]", "document")
    return HttpError(400, error.code, f"{path}: {message_of(error.with_remedy(f'shorten the {what}'))}", path)


router = APIRouter()


@router.post("/v2/rerank")
@router.post("/rerank")
@router.post("/v1/rerank")
async def rerank(request: Request) -> Response:
    """Order documents by how much more probable they make a query."""
    state, exchange = state_of(request), exchange_of(request)
    exchange.fields = FIELDS
    rerank_request = await read_request(exchange, read_rerank, state.options)
    set_priority(-(rerank_request.body.priority or 0))
    async with state.lease_model(exchange) as lease:
        question, max_rows = Choice(INSTRUCTIONS, [rerank_request.body.query]), state.options.max_rows
        try:
            answers = await exchange.hold(
                lambda: lease.engine.adecide_many(rerank_request.documents, question, params=PARAMS, max_rows=max_rows)
            )
        except PromptTooLongError as error:
            raise _name_long_text(error, rerank_request) from error
    exchange.n_prompt = sum(one.usage.input_tokens for one in answers)
    exchange.rows_naive = sum(one.usage.cost.rows_naive for one in answers)
    return await exchange.run(lambda: json_response(rerank_response(rerank_request, answers, lease.name, exchange.id)))
