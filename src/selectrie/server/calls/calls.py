"""Our own calls over HTTP, each a method of `Engine`.

An answer is the `to_dict` of the method's result, with `model`, `usage` and
`diagnostics`. A stream has events about the work before it: `progress`, `found` and
`text`. The last event is `result`, the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from selectrie.core.types import Cost
from selectrie.engine.engine import Engine
from selectrie.errors import TooManyRowsError
from selectrie.options import (
    BASELINE_RULES,
    DEFAULT_PROMPTING,
    DEFAULT_SEARCH,
    SPELLING_ROWS,
    ScoringRule,
    SearchParams,
)
from selectrie.results import Event as PageEvent
from selectrie.results import Generation, Page, SlotEvent
from selectrie.results.plain import fields_of, jsonable
from selectrie.server.calls.call_bodies import CALLS, Call, CallRequest, fields_of_call, read_call
from selectrie.server.calls.drawings import Drawn, add_drawings, find_examples
from selectrie.server.calls.page_templates import template_errors
from selectrie.server.fields.reading import check_tokens
from selectrie.server.fields.structured import grammar_errors_at
from selectrie.server.generation.call_syntax import write_chat
from selectrie.server.transport.http_errors import HttpError
from selectrie.server.transport.request_context import (
    Event,
    EventStream,
    Exchange,
    encode_event,
    exchange_of,
    json_response,
    read_request,
)
from selectrie.server.transport.state import ServerState, state_of

Report = Callable[[str, Mapping[str, Any]], None]
"""Reports the type and the fields of an event. Any thread may call it."""
_METERED = frozenset({"beam_search", "render"})
"""Methods whose rows are counted while they work, because no number is planned."""


class _News:
    """What a call reports while it works, on its way to the event loop.

    Of progress and of texts found, only the last one is kept, so a slow reader gets
    fewer events. Parts of a page are all kept, and a page is bounded.
    """

    def __init__(self) -> None:
        self._loop, self._arrived = asyncio.get_running_loop(), asyncio.Event()
        self._last: dict[str, Event] = {}
        self._parts: list[Event] = []

    def report(self, name: str, fields: Mapping[str, Any]) -> None:
        """Report an event. Any thread may call it."""
        with suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(self._note, name, fields)

    def _note(self, name: str, fields: Mapping[str, Any]) -> None:
        """Keep an event for the next reader, on the event loop."""
        event = {"type": name, **fields}
        if name == "text":
            self._parts.append(event)
        else:
            self._last[name] = event
        self._arrived.set()

    async def until_done(self, work: asyncio.Future[Any]) -> AsyncGenerator[Sequence[Event], None]:
        """Yield the events that have arrived, until the work is done."""
        work.add_done_callback(lambda _: self._arrived.set())
        is_done = False
        while not is_done:
            await self._arrived.wait()
            self._arrived.clear()
            is_done = work.done()
            events = [*self._last.values(), *self._parts]
            self._last, self._parts = {}, []
            if events:
                yield events


def _stop_beyond(max_rows: int, exchange: Exchange, stop: Callable[[], object]) -> None:
    """Call `stop` on the event loop once an exchange has taken more than `max_rows`."""
    loop, meter = asyncio.get_running_loop(), exchange.meter

    def count(cost: Cost) -> None:
        meter(cost)
        if exchange.cost.rows > max_rows:
            with suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(stop)

    exchange.meter = count


def _call_engine(engine: Engine, request: CallRequest, max_rows: int, report: Report | None) -> Any:
    """Return the result of a call.

    Args:
        engine: The engine.
        request: The request.
        max_rows: Maximum number of rows that scoring listed texts may plan.
        report: Reports events, if the answer is a stream.
    """
    arguments = dict(request.arguments)
    if request.call.method == "render":
        with template_errors():
            page = _render(engine, arguments, report)
        return page if request.fold is None else Drawn(page)
    prompt = arguments["prompt"]
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], Mapping):
        arguments["prompt"], _ = write_chat(engine.vocabulary, prompt, DEFAULT_PROMPTING)
    elif isinstance(prompt, list):
        check_tokens(engine.vocabulary, prompt, "prompt")
    _check_rows(engine, request.texts, arguments, max_rows)
    if report is not None:
        _add_callbacks(request.call, arguments, report)
    path = None if request.constraint is None else request.constraint.path
    with nullcontext() if path is None else grammar_errors_at(path):
        result = getattr(engine, request.call.method)(**arguments)
    return result if request.fold is None else Drawn(result, find_examples(engine, result, arguments))


def _add_callbacks(call: Call, arguments: dict[str, Any], report: Report) -> None:
    """Let a call report its progress and the texts that it finds.

    Args:
        call: The call.
        arguments: The arguments of its method, which are changed.
        report: Reports events.
    """
    name = next((one for one in ("search", "beam") if one in call.records), None)
    if name is None:
        return
    # `rank` without options of a search puts all choices in order.
    default = SearchParams(stop="all") if call.method == "rank" else call.records[name]()
    arguments[name] = replace(
        arguments.get(name, default),
        on_progress=lambda done, total: report("progress", {"done": done, "total": total or None}),
        on_found=lambda text, logp: report("found", {"text": text, "logp": logp, "proved": False}),
    )


def _render(engine: Engine, arguments: Mapping[str, Any], report: Report | None) -> Page:
    """Return a rendered page; report its parts if the answer is a stream."""
    template, values, rendering = arguments["template"], arguments["values"], arguments["rendering"]
    if report is None:
        return engine.render(template, values, rendering=rendering)
    with engine.stream_render(template, values, rendering=rendering) as stream:
        for event in stream:
            report("text", _part_of_page(event))
        return stream.page


def _part_of_page(event: PageEvent) -> dict[str, object]:
    """Return a part of a page without the record of its slot, which the result has."""
    if not isinstance(event, SlotEvent):
        return event.to_dict()
    names = "kind name path text hidden position"
    return {**fields_of(event, names), "value": jsonable(event.value)}


def _check_rows(engine: Engine, texts: Sequence[str], arguments: Mapping[str, Any], max_rows: int) -> None:
    """Raise `TooManyRowsError` if scoring texts takes too many uncached rows.

    A token has at least a byte, so bytes are counted first, and tokens only if there
    are too many of them.
    """
    if not texts:
        return
    prompting, rule = arguments.get("prompting", DEFAULT_PROMPTING), arguments.get("rule", "joint")
    if isinstance(rule, str):
        rule = ScoringRule(rule) if rule != "calibrated" else ScoringRule()
    baselines = rule.content_free or (rule.premise or "",) * (rule.name in BASELINE_RULES)
    n_times, n_more = 1 + len(baselines), sum(len(one.encode()) for one in baselines)
    if arguments.get("tokenizations") == "all":
        budget = arguments.get("budget_nodes") or arguments.get("search", DEFAULT_SEARCH).budget_nodes
        n_times, n_more = n_times + SPELLING_ROWS * (budget is None), n_more + (budget or 0)
    following = arguments.get("following", "")
    n_around = len((prompting.delimiter + following).encode())
    n_bytes = sum(len(text.encode()) + n_around for text in texts)
    if engine.limits.nodes + n_more + n_times * n_bytes <= max_rows:
        return
    plan = engine.tokens(arguments["prompt"], texts, following=following, prompting=prompting)
    planned = plan.rows_prompt + n_more + n_times * plan.rows_inner
    if planned > max_rows:
        raise TooManyRowsError(planned, max_rows)


async def _events_of(
    state: ServerState, exchange: Exchange, request: CallRequest
) -> AsyncGenerator[Sequence[Any], None]:
    """Yield the events of a call, the last of which is its result.

    An answer that is no stream is yielded alone, without a type.
    """
    async with state.lease_model(exchange) as lease:
        news, max_rows = _News(), state.options.max_rows
        call = partial(_call_engine, lease.engine, request, max_rows, news.report if request.is_stream else None)
        work = asyncio.ensure_future(exchange.in_thread(call))
        if request.call.method in _METERED:
            _stop_beyond(max_rows, exchange, work.cancel)
        try:
            async with aclosing(news.until_done(work)) as arrived:
                async for events in arrived:
                    yield events
            if work.cancelled():
                message = f"the request has evaluated {exchange.cost.rows} rows of the model, of at most {max_rows}"
                raise HttpError(400, TooManyRowsError.code, message)
            result = work.result()
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await work
        answer = await exchange.in_thread(lambda: _answer(request, result, exchange))
        if request.is_stream:
            yield [await exchange.in_thread(lambda: encode_event({"type": "result", **answer}))]
        else:
            yield [answer]


def _answer(request: CallRequest, result: Any, exchange: Exchange) -> dict[str, Any]:
    """Return the body of a response, with drawings if they were asked for."""
    if not isinstance(result, Drawn):
        return _response_of(request, result, exchange)
    return add_drawings(_response_of(request, result.result, exchange), result, request.fold or ())


def _response_of(request: CallRequest, result: Any, exchange: Exchange) -> dict[str, Any]:
    """Return the body of a response: the result's fields, and what this server adds.

    A page names its model in the field `model`; here it is `identity`.
    """
    fields: dict[str, Any] = result.to_dict()
    if "model" in fields:
        fields["identity"] = fields["model"]
    ignored = [{"code": "ignored", "text": text} for text in (*request.warnings, *exchange.notices)]
    warnings = [*ignored, *fields.pop("warnings", ())]
    cost, certificate = result.cost, getattr(result, "certificate", None)
    slots = result.slots if isinstance(result, Page) else ()
    n_drawn = sum(one.record.n_drawn for one in slots if isinstance(one.record, Generation))
    n_cached = max(0, exchange.n_reused)
    n_read = max(n_cached, cost.rows + n_cached - n_drawn)
    exchange.n_prompt, exchange.n_drawn, exchange.rows_naive = n_read, n_drawn, cost.rows_naive
    tokens = {"input_tokens": n_read, "output_tokens": n_drawn, "total_tokens": n_read + n_drawn}
    return {
        **fields,
        "model": exchange.model,
        "usage": {**tokens, "input_tokens_details": {"cached_tokens": n_cached}},
        "diagnostics": {
            **({} if certificate is None else {"proved": certificate.proved}),
            "rows": cost.rows,
            "rows_one_by_one": cost.rows_naive,
            "model_calls": cost.model_calls,
        },
        **({"warnings": warnings} if warnings else {}),
    }


router = APIRouter()


def _make_endpoint(call: Call) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Return the function that answers the requests of a call."""

    async def answer(request: Request) -> Response:
        state, exchange = state_of(request), exchange_of(request)
        exchange.fields = fields_of_call(call, exchange.body)
        read = partial(read_call, call)
        call_request = await read_request(exchange, read, state.options, has_grammar=call.reads_grammar(exchange.body))
        events = _events_of(state, exchange, call_request)
        if call_request.is_stream:
            exchange.warnings += call_request.warnings
            return EventStream(events, state.options.ping_interval_s)
        async with aclosing(events):
            [[result]] = [item async for item in events]
        return await exchange.in_thread(lambda: json_response(result))

    return answer


for _path, _call in CALLS.items():
    router.add_api_route(_path, _make_endpoint(_call), methods=["POST"], name=_call.method, description=_call.meaning)
