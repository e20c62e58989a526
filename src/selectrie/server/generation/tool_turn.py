"""Answers that may call tools: the tool is decided, its arguments are drawn.

A decision compares the probabilities of whole texts (`Engine.select`). Arguments and
text are drawn token by token, as every answer is.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from selectrie.core.path_model import REMOTE
from selectrie.core.tracked_text import TEMPLATE, TrackedText, join_texts
from selectrie.engine.aio import Arrivals
from selectrie.engine.engine import Engine
from selectrie.engine.requests.session import fix_time
from selectrie.errors import TooManyRowsError
from selectrie.options import PromptParams, SearchParams, StopParams
from selectrie.options.checks import N_SEEDS
from selectrie.options.keywords import Terminator
from selectrie.results import Chunk, Completion, Selection
from selectrie.results.generation import finish_reason
from selectrie.results.records import TokenScore
from selectrie.server.fields.structured import StructuredText
from selectrie.server.fields.tools import ToolSet
from selectrie.server.generation.call_syntax import Messages, call_syntax
from selectrie.server.generation.generation import GenerationRequest, join_chunks, open_stream
from selectrie.server.transport.http_errors import HttpError, unsupported
from selectrie.server.transport.request_context import Exchange

_LINE, _LINES = ('{"name": "', '", "arguments": '), ('{\n  "name": "', '",\n  "arguments": ')
SPELLINGS = {f"{fence}{opening}": middle for fence in ("", "```json\n") for opening, middle in (_LINE, _LINES)}
"""Other openings with which models begin calls, and the text after the tool's name."""
_STAGE = 1 << 32
"""Difference of the seeds of two sequences that are drawn one after the other."""
_ALL = SearchParams(stop="all")


@dataclass(frozen=True, slots=True)
class ToolDecision:
    """Which tool is called, or none.

    Attributes:
        name: The name of the tool, or None if none is called.
        probabilities: The probability of each tool that may be called. With `no_call`
            they sum to 1.
        no_call: The probability that the answer begins otherwise; None if a call was
            demanded, so that the tools alone are compared.
        is_tie: Whether another tool is as probable, up to rounding.
    """

    name: str | None
    probabilities: Mapping[str, float]
    no_call: float | None
    is_tie: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as an object of the response."""
        fields = {"name": self.name, "probabilities": dict(self.probabilities)}
        return {**fields, "no_call": self.no_call, "is_tie": self.is_tie}


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A piece of an answer: some of its text, or of a call's arguments.

    The text of an answer comes before its calls. A call's first piece has its id and
    name and no arguments yet. The last piece of an answer has the reason for its end.

    Attributes:
        index: Index of the choice.
        text: Text for the client.
        call: Number of the call among those of the answer, from 0; None for text.
        id: Id of the call, on its first piece.
        name: Name of its tool, on its first piece.
        arguments: Text of arguments.
        tokens: The tokens drawn for the piece.
        alternatives: The most probable tokens at their positions, if requested.
        decision: A decision that was made before the piece.
        finish: "stop", "length" or "tool_calls" on the last piece, else None.
    """

    index: int
    text: str = ""
    call: int | None = None
    id: str = ""
    name: str = ""
    arguments: str = ""
    tokens: tuple[TokenScore, ...] = ()
    alternatives: tuple[tuple[TokenScore, ...], ...] = ()
    decision: ToolDecision | None = None
    finish: str | None = None


@dataclass(slots=True, eq=False)
class ToolAnswer:
    """A whole answer, which its pieces add up to.

    Attributes:
        text: The text before the calls.
        calls: Id, name and arguments of each call.
        tokens, alternatives: Those of all pieces.
        decisions: The decisions, in order.
        finish: As in `Piece`.
        pieces: The pieces.
    """

    text: str = ""
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    tokens: tuple[TokenScore, ...] = ()
    alternatives: tuple[tuple[TokenScore, ...], ...] = ()
    decisions: list[ToolDecision] = field(default_factory=list)
    finish: str = ""
    pieces: list[Piece] = field(default_factory=list)

    def add(self, piece: Piece) -> None:
        """Add the next piece."""
        self.pieces.append(piece)
        self.text += piece.text
        if piece.id:
            self.calls.append((piece.id, piece.name, ""))
        if piece.arguments:
            call_id, name, arguments = self.calls[-1]
            self.calls[-1] = (call_id, name, arguments + piece.arguments)
        self.tokens += piece.tokens
        self.alternatives += piece.alternatives
        self.decisions += [] if piece.decision is None else [piece.decision]
        self.finish = piece.finish or self.finish


class ToolChooser:
    """Decides which tool an answer calls.

    Args:
        exchange: The request.
        engine: The model.
        messages: The messages, as `call_syntax.write_chat` returns them.
        prompting: The options of the chat template, from there too.
        tools: The tools.
        max_rows: Maximum number of rows that all choices of an answer may evaluate.
    """

    def __init__(
        self,
        exchange: Exchange,
        engine: Engine,
        messages: Messages,
        prompting: PromptParams,
        tools: ToolSet,
        *,
        max_rows: int,
    ) -> None:
        self.exchange, self.engine, self.messages, self.tools = exchange, engine, messages, tools
        self.prompting = fix_time(engine.vocabulary, prompting, messages)
        self.syntax = call_syntax(engine.vocabulary)
        marker = self.syntax.marker()
        control = engine.vocabulary.controls_spelled(marker.encode())[:1]
        ids = [token for token in engine.vocabulary.control.tolist() if engine.vocabulary.texts[token] in control]
        self.marker = ((), ids) if ids else ((marker,) if marker else (), ())
        self._n_rows, self._max_rows = 0, max_rows

    def prompting_after(self, prefix: TrackedText) -> PromptParams:
        """Return the options of prompts in which `prefix` is the answer so far."""
        return replace(self.prompting, assistant_prefix=prefix)

    async def choose(self, prefix: TrackedText, opening: str) -> Selection:
        """Return the selection among the names of tools after an opening.

        Each name is followed by the text that the syntax has after it, so that no name
        counts for a longer one.
        """
        is_native = opening in {self.syntax.opening, self.syntax.again}
        following = self._plain_part(self.syntax.middle if is_native else SPELLINGS[opening])
        terminator: Terminator = "text" if following else "unless-continued"
        prompting = self.prompting_after(prefix + TrackedText(opening, TEMPLATE))
        return await self._select(self.tools.names, prompting, terminator, following)

    async def _select(
        self, texts: Sequence[str], prompting: PromptParams, terminator: Terminator, following: str = ""
    ) -> Selection:
        """Return the selection among texts after the messages.

        Raises `HttpError` if all selections have evaluated too many rows.
        """
        selected: Selection = await self.exchange.hold(
            lambda: self.engine.aselect(
                self.messages, texts, terminator=terminator, following=following, search=_ALL, prompting=prompting
            )
        )
        self.exchange.rows_naive += selected.cost.rows_naive
        self._n_rows += selected.cost.rows
        if self._n_rows > self._max_rows:
            message = f"the choice of tools has evaluated {self._n_rows} rows of the model, of at most {self._max_rows}"
            raise HttpError(400, TooManyRowsError.code, message, "tools")
        return selected

    async def demand(self, prefix: TrackedText, opening: str) -> ToolDecision:
        """Decide which tool is called after an opening, where one is called anyway."""
        found = await self.choose(prefix, opening)
        return ToolDecision(found.text, found.probabilities, None, found.is_tie)

    async def decide(self, prefix: TrackedText, opening: str, others: Iterable[str] = ()) -> ToolDecision:
        """Decide whether a tool is called after the answer so far, and which.

        One is called if it is more probable than not that the answer goes on with a
        call of a declared tool: with one of the openings, and then a name. The names
        are compared after the most probable opening for that, and after `opening`, the
        syntax of the model's template, to choose the tool.

        Args:
            prefix: The answer so far.
            opening: The opening of the template's syntax.
            others: Other openings that count as the beginning of a call.
        """
        begun = await self._begin_probabilities(prefix, [opening, *others])
        likeliest = max(begun, key=begun.__getitem__)
        found = await self.choose(prefix, likeliest)
        p_call = min(1.0, sum(begun.values())) * min(1.0, found.coverage)
        is_called = p_call > 1 - p_call
        if is_called and likeliest != opening:
            found = await self.choose(prefix, opening)
        probabilities = {name: p_call * p for name, p in found.probabilities.items()}
        return ToolDecision(found.text if is_called else None, probabilities, 1 - p_call, found.is_tie)

    async def _begin_probabilities(self, prefix: TrackedText, openings: Sequence[str]) -> dict[str, float]:
        """Return the probability that the answer goes on with each opening.

        An opening that begins with another one is left out, so that none counts twice.
        """
        apart = [one for one in dict.fromkeys(openings) if not any(one != o and one.startswith(o) for o in openings)]
        plain = [one for one in apart if self._plain_part(one) == one]
        found: dict[str, float] = {}
        if plain:
            selected = await self._select(plain, self.prompting_after(prefix), "none")
            found = {one.text: math.exp(one.logp) for one in selected.choices if one.logp is not None}
        return found | {one: await self._token_probability(prefix, one) for one in apart if one not in plain}

    async def _token_probability(self, prefix: TrackedText, opening: str) -> float:
        """Return the probability of the tokens of an opening with control tokens."""
        ids, n_before = await self.tokens_after(prefix, opening)
        (scored,) = await self.exchange.hold(lambda: self.engine.aprompt_logprobs([ids], first=max(1, n_before)))
        return math.exp(sum(logp for logp in scored.logp[n_before:] if logp is not None))

    async def tokens_after(self, prefix: TrackedText, opening: str) -> tuple[list[int], int]:
        """Return the prompt's tokens with an opening, and how many are before it."""

        def encode() -> tuple[list[int], int]:
            both = (prefix, prefix + TrackedText(opening, TEMPLATE))
            before, ids = (
                self.engine.encode(self.messages, prompting=self.prompting_after(one)).tolist() for one in both
            )
            n_common = next((i for i, pair in enumerate(zip(before, ids, strict=False)) if pair[0] != pair[1]), None)
            return ids, min(len(before), len(ids) - 1) if n_common is None else n_common

        return await self.exchange.in_thread(encode)

    def _plain_part(self, text: str) -> str:
        """Return the text before its first control token."""
        names = self.engine.vocabulary.controls_spelled(text.encode())
        return text[: min(map(text.index, names))] if names else text


@dataclass(slots=True, eq=False)
class ToolUsage:
    """Numbers of tokens of the answers to a request.

    Attributes:
        n_prompt: Number of tokens of the prompt.
        n_completion: Number of tokens of the answers, with those of the syntax of calls
            and of texts that were drawn again.
    """

    n_prompt: int = 0
    n_completion: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return the object `usage` of a response."""
        n_all = self.n_prompt + self.n_completion
        return {"prompt_tokens": self.n_prompt, "completion_tokens": self.n_completion, "total_tokens": n_all}


async def draw_answers(
    chooser: ToolChooser, generation: GenerationRequest, usage: ToolUsage
) -> AsyncGenerator[Piece, None]:
    """Yield the pieces of the answers to a chat with tools, one choice after the other.

    Close the generator (`contextlib.aclosing`) to stop the work.

    Args:
        chooser: Decides which tool is called.
        generation: The options of the answers.
        usage: Gets the numbers of tokens.
    """
    exchange, engine, prompting = chooser.exchange, chooser.engine, chooser.prompting
    if engine.identity.precision == REMOTE:
        raise unsupported("tools", "the model is on another server, which shows no whole rows")
    begun = TrackedText(prompting.assistant_prefix)
    prompt = await exchange.in_thread(lambda: engine.encode(chooser.messages, prompting=prompting))
    usage.n_prompt = exchange.n_prompt = len(prompt)
    opening = chooser.syntax.opening
    if chooser.tools.is_required:
        begun += TrackedText("" if prompting.assistant_prefix else chooser.syntax.thought, TEMPLATE)
        decision = await chooser.demand(begun, opening)
    else:
        decision = await chooser.decide(begun, opening, SPELLINGS)
    for index in range(generation.n):
        turn = _Turn(chooser, generation, usage, index, begun)
        async with aclosing(turn.pieces(decision)) as pieces:
            async for piece in pieces:
                yield piece


async def gather_answers(chooser: ToolChooser, generation: GenerationRequest) -> tuple[list[ToolAnswer], ToolUsage]:
    """Return the whole answers to a chat with tools, and their numbers of tokens."""
    usage, answers = ToolUsage(), [ToolAnswer() for _ in range(generation.n)]
    async with aclosing(draw_answers(chooser, generation, usage)) as pieces:
        async for piece in pieces:
            answers[piece.index].add(piece)
    return answers, usage


class _Turn:
    """Draws one choice of an answer.

    Args:
        chooser: Decides which tool is called.
        request: The options of the answer.
        usage: Gets the numbers of tokens.
        index: Index of the choice.
        prefix: The beginning of the answer that the request gives.
    """

    def __init__(
        self, chooser: ToolChooser, request: GenerationRequest, usage: ToolUsage, index: int, prefix: TrackedText
    ) -> None:
        self._chooser, self._request, self._usage, self._index, self._prefix = chooser, request, usage, index, prefix
        self._n_left, self._n_sequences, self._n_counted = request.stopping.max_tokens, 0, 0
        self._text, self._finish = "", "length"
        self._last: Completion | None = None

    async def pieces(self, decision: ToolDecision) -> AsyncGenerator[Piece, None]:
        """Yield the pieces of the choice, after its first decision."""
        chooser, tools, syntax = self._chooser, self._chooser.tools, self._chooser.syntax
        if decision.name is None:
            yield Piece(self._index, decision=decision)
            async with aclosing(self._draw_text()) as pieces:
                async for piece in pieces:
                    yield piece
            if not self._has_met_call():
                yield Piece(self._index, finish=self._finish)
                return
            self._prefix += TrackedText(self._text)
            decision = await chooser.demand(self._prefix, syntax.opening)
        opening: str | None = syntax.opening
        number = 0
        while decision.name is not None and opening is not None:
            yield Piece(self._index, call=number, id=uuid.uuid4().hex[:9], name=decision.name, decision=decision)
            around = (TrackedText(opening, TEMPLATE), TrackedText(decision.name), TrackedText(syntax.middle, TEMPLATE))
            self._prefix = join_texts([self._prefix, *around])
            async with aclosing(self._draw_arguments(number, tools.arguments[decision.name].text)) as pieces:
                async for piece in pieces:
                    yield piece
            self._prefix += TrackedText(self._text)
            number, opening = number + 1, syntax.again
            if self._finish == "length" or number == tools.max_calls or opening is None:
                break
            decision = await chooser.decide(self._prefix, opening)
        last = None if decision.name is not None else decision
        yield Piece(self._index, decision=last, finish="length" if self._finish == "length" else "tool_calls")

    async def _draw_arguments(self, number: int, structured: StructuredText) -> AsyncGenerator[Piece, None]:
        """Yield the pieces of a call's arguments, which their grammar ends."""
        options = replace(self._request.options, grammar=structured.grammar)
        request = replace(self._request, stopping=StopParams(), options=options, structured=structured)
        async with aclosing(self._draw(request)) as chunks:
            async for chunk in chunks:
                yield replace(self._piece_of(chunk), text="", call=number, arguments=chunk.text)

    async def _draw_text(self) -> AsyncGenerator[Piece, None]:
        """Yield the pieces of the text of an answer that does not begin with a call.

        A call that comes later ends the text. A text that begins with one, against the
        decision, is not sent: another is drawn without the first token of a call.
        """
        request = self._request
        held: list[Piece] = []
        async with aclosing(self._draw(request if request.structured else self._until_call(request))) as chunks:
            async for chunk in chunks:
                held.append(self._piece_of(chunk))
                if self._text.strip():
                    for piece in held:
                        yield piece
                    held = []
        if self._text.strip() or not self._has_met_call():
            for piece in held:
                yield piece
            return
        # The discarded text counts, and so does the next one from its beginning.
        ids, n_before = await self._chooser.tokens_after(self._prefix, self._chooser.syntax.opening)
        self._n_counted = 0
        sampling = replace(request.sampling, logit_bias={**request.sampling.logit_bias, ids[n_before]: -math.inf})
        async with aclosing(self._draw(replace(request, sampling=sampling))) as chunks:
            async for chunk in chunks:
                yield self._piece_of(chunk)

    def _piece_of(self, chunk: Chunk) -> Piece:
        """Return a chunk of text as a piece of the answer."""
        return Piece(self._index, text=chunk.text, tokens=chunk.tokens, alternatives=chunk.alternatives)

    def _until_call(self, request: GenerationRequest) -> GenerationRequest:
        """Return the request with the beginning of a call as one more end of a text."""
        stopping = request.stopping
        texts, tokens = self._chooser.marker
        stop, stop_tokens = (*stopping.stop, *texts), (*stopping.stop_tokens, *tokens)
        return replace(request, stopping=replace(stopping, stop=stop, stop_tokens=stop_tokens))

    def _has_met_call(self) -> bool:
        """Return whether the text drawn last ended at the beginning of a call."""
        texts, tokens = self._chooser.marker
        last = self._last
        return last is not None and (last.stop in texts or (last.stop is None and last.ended_by in tokens))

    async def _draw(self, request: GenerationRequest) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of one sequence after the answer so far.

        Sets `_text`, `_last` and `_finish`. If no token may be drawn any more, the
        sequence is empty, and ends with "length".
        """
        self._text, self._last, self._finish = "", None, "length"
        if self._n_left < 1:
            return
        chooser, seed = self._chooser, self._request.seed
        if seed is not None:
            seed = (seed + self._index + self._n_sequences * _STAGE) % N_SEEDS
        self._n_sequences += 1
        stopping = replace(request.stopping, max_tokens=self._n_left)
        one = replace(request, n=1, seed=seed, stopping=stopping)
        prompting, exchange = chooser.prompting_after(self._prefix), chooser.exchange
        async with open_stream(exchange, chooser.engine, chooser.messages, one, prompting) as stream:
            async for arrived in Arrivals(stream):
                exchange.n_drawn += sum(len(chunk.tokens) for chunk in arrived)
                for chunk in join_chunks(arrived):
                    self._text += chunk.text
                    self._last = chunk.completion
                    yield chunk
            drawn = stream.generation()
        self._finish = finish_reason(drawn[0].finish)
        self._n_left -= drawn.n_drawn
        exchange.rows_naive += drawn.cost.rows_naive
        self._usage.n_completion += drawn.prompt_tokens[0] - self._usage.n_prompt + drawn.n_drawn - self._n_counted
        self._n_counted = drawn.prompt_tokens[0] - self._usage.n_prompt + drawn.n_drawn
