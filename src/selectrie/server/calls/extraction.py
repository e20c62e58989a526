"""`POST /v1/extract`: the most probable value of a JSON Schema for an input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from selectrie.decide.extraction import ExtractedType, ExtractionOptions, extracted_type
from selectrie.decide.params import LAYOUTS, DecisionParams
from selectrie.decide.states import of_json, text_of_state
from selectrie.errors import THE_STATE, Amount, GrammarError, NothingFoundError, OptionError, remedies
from selectrie.results import Extraction
from selectrie.server.fields.reading import read, refuse_media, unknown_fields
from selectrie.server.fields.wire import Body, TextOrJson, fields_of, one_of
from selectrie.server.options import ServerOptions
from selectrie.server.transport.request_context import exchange_of, json_response, read_request
from selectrie.server.transport.state import state_of

MAX_TOKENS = 1_024
"""Maximum number of tokens of a text that is searched."""


class ExtractBody(Body):
    """A text, and the schema of what is extracted from it."""

    input: TextOrJson = Field(title="a text, an object or an array")
    """The text, data or messages from which a value is extracted."""
    schema_: dict[str, Any] = Field(alias="schema", title="a JSON Schema")
    """The JSON Schema of the value."""
    instructions: str | None = None
    """What to extract, before the fields."""
    marginals: bool | None = None
    """Whether to go on after the best value, for the probabilities of all fields."""
    layout: Annotated[str, one_of(LAYOUTS)] | None = None
    """The order of input and instructions in the prompt."""
    max_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS)
    """Tokens of a text at most, if the schema has too many values to list."""
    request_id: str | None = None
    """Name of the request in headers and log."""


EXTRACT_FIELDS = fields_of(ExtractBody, state="input", grammar="schema") | {THE_STATE.name: "input", "kind": "schema"}


@dataclass(frozen=True, slots=True, eq=False)
class ExtractRequest:
    """A request of the endpoint.

    Attributes:
        state: The text of the input.
        kind: What is extracted.
        options: Further arguments of `Engine.extract`.
        warnings: What was ignored.
    """

    state: str
    kind: ExtractedType
    options: Mapping[str, Any]
    warnings: Sequence[str]


def read_extract(data: Mapping[str, Any], options: ServerOptions) -> ExtractRequest:
    """Return a request of `/v1/extract`.

    Raises:
        HttpError, RequestError: For whatever can be found wrong without a model.
    """
    body = read(ExtractBody, data, options)
    refuse_media(body.input, "input")
    try:
        kind = extracted_type(body.schema_)
    except GrammarError as error:
        raise OptionError("schema", "…", f"a JSON Schema that a grammar can express: {error}") from error
    if len(kind.texts) > options.max_options_in_all:
        raise OptionError("schema", Amount(f"{len(kind.texts)} values"), f"at most {options.max_options_in_all}")
    wants = body.marginals is not False
    defaults = ExtractionOptions.of(body.instructions or "", marginals=wants)
    arguments = {
        "instructions": defaults.instructions,
        "params": DecisionParams(layout=body.layout or "auto"),
        "search": replace(defaults.search, budget_nodes=options.max_rows),
        "beam": replace(
            defaults.beam, max_tokens=body.max_tokens or defaults.beam.max_tokens, budget_nodes=options.max_rows
        ),
    }
    state = text_of_state(of_json(data["input"]), "input")
    return ExtractRequest(state, kind, arguments, unknown_fields(data, {"schema", *ExtractBody.model_fields}))


def extract_response(request: ExtractRequest, found: Extraction[Any], model: str) -> dict[str, Any]:
    """Return the response of `/v1/extract`, ready for JSON."""
    warnings = [*request.warnings, *map(str, found.warnings)]
    left_out = ("format", "kind", "warnings", "signature", "cost")
    shown = {name: value for name, value in found.to_dict().items() if name not in left_out}
    return {"model": model, **shown, "rows": found.cost.rows, **({"warnings": warnings} if warnings else {})}


def _with_own_remedy(error: NothingFoundError) -> NothingFoundError:
    """Return an error whose remedy is the operator's, if it is about the budget."""
    if "budget_nodes" not in error.remedy:
        return error
    return NothingFoundError(error.grammar, error.reason, remedies(operator="raise `max_rows`"))


router = APIRouter()


@router.post("/v1/extract")
async def extract(request: Request) -> Response:
    """Extract the most probable value of a JSON Schema from an input."""
    state, exchange = state_of(request), exchange_of(request)
    exchange.fields = EXTRACT_FIELDS
    extract_request = await read_request(exchange, read_extract, state.options, has_grammar=True)
    async with state.lease_model(exchange) as lease:
        try:
            found: Extraction[Any] = await exchange.hold(
                lambda: lease.engine.aextract(extract_request.state, extract_request.kind, **extract_request.options)
            )
        except NothingFoundError as error:
            raise _with_own_remedy(error) from error
    exchange.n_prompt = found.cost.rows + max(0, exchange.n_reused)
    exchange.rows_naive = found.cost.rows_naive
    return await exchange.run(lambda: json_response(extract_response(extract_request, found, lease.name)))
