"""Bodies of our own calls: the keywords of `Engine`'s methods as fields.

`/v1/select`, `/v1/rank`, `/v1/loglikelihood`, `/v1/beam`, `/v1/sample` and `/v1/render`
take what the methods take. Options come from the records that declare them, as fields
of `search`, `prompting`, `beam` and `rendering`, and the words that people type are
fields of the body too. A body becomes a `CallRequest`, whose arguments are Python's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

from pydantic import BaseModel, Field

from selectrie.decide.questions import Option
from selectrie.engine.requests.select_grammar import list_texts
from selectrie.errors import (
    THE_PROMPT,
    Amount,
    IncompatibleOptionsError,
    OptionError,
    TooManyRowsError,
    UnknownArgumentError,
)
from selectrie.options import (
    BEAM_TERMINATORS,
    DEFAULT_BEAM,
    DEFAULT_PROMPTING,
    DEFAULT_RENDERING,
    DEFAULT_SEARCH,
    GRAMMAR_NODES,
    TERMINATORS,
    TOKENIZATIONS,
    BeamSearchParams,
    PromptParams,
    RenderParams,
    ScoringRule,
    SearchParams,
    SpellingParams,
)
from selectrie.options.checks import options_of, text_of
from selectrie.options.selection import RULES_OF_ONE_PROMPT
from selectrie.server.calls import page_templates
from selectrie.server.calls.drawings import MAX_FOLDED, score_all
from selectrie.server.calls.page_templates import MAX_TEMPLATE, MAX_WIDTH, check_values, read_template
from selectrie.server.fields.messages import MAX_MESSAGES, Message
from selectrie.server.fields.reading import check_tokenized, read, unknown_fields
from selectrie.server.fields.structured import Constraint, Schema, Source, StructuredText
from selectrie.server.fields.tools import check_calls
from selectrie.server.fields.wire import (
    BY_TYPE,
    Body,
    ClosedModel,
    EncodableText,
    Items,
    JsonTexts,
    NotOffered,
    Seed,
    TemplateArgs,
    TokenId,
    UpTo,
    one_of,
    with_options,
)
from selectrie.server.options import ServerOptions
from selectrie.server.transport.http_errors import HttpError
from selectrie.template.syntax.tags import DIALECTS

MAX_SCORED_BYTES = 1 << 19
"""Maximum size in bytes of the texts that are scored, each of whose tokens is shown."""
_LIMITS = {"budget_nodes": "max_rows", "n": "max_n"}
"""Options of the server that bound options of a call."""
_GRAMMARS = {"grammar": "grammar", "regex": "regex", "json_schema": "json"}
"""Kinds of constraints by the fields that hold them."""


@with_options(SearchParams, *options_of(SearchParams), limits=_LIMITS)
class SearchFields(ClosedModel):
    """Options of a search (`SearchParams`)."""


@with_options(PromptParams, *options_of(PromptParams))
class PromptingFields(ClosedModel):
    """Options for turning a prompt into tokens (`PromptParams`)."""

    delimiter: EncodableText | None = None
    """Text added before every choice."""
    system: EncodableText | None = None
    """A system message before the prompt."""
    assistant_prefix: EncodableText | None = None
    """Text with which the assistant turn begins."""
    template_args: TemplateArgs | None = None
    """Arguments of the chat template."""


@with_options(BeamSearchParams, *options_of(BeamSearchParams), limits=_LIMITS)
class BeamFields(ClosedModel):
    """Options of a beam search (`BeamSearchParams`)."""


@with_options(RenderParams, "max_tokens", "parse_special")
class RenderingFields(ClosedModel):
    """Options for rendering a template (`RenderParams`)."""

    seed: Seed | None = None
    """Seed of the page; drawn if it is left out."""
    template_args: TemplateArgs | None = None
    """Arguments of the chat template."""


class RuleFields(ClosedModel):
    """A scoring rule (`ScoringRule`)."""

    name: Annotated[str, one_of(RULES_OF_ONE_PROMPT)]
    """The name of the rule."""
    premise: EncodableText | None = None
    """For pmi: the text whose continuation is the baseline."""
    content_free: Annotated[Items[EncodableText], UpTo("max_prompts", "texts")] | None = None
    """For calibrated: prompts whose continuations are the baseline."""


class CallBody(Body):
    """The fields of every call."""

    stream: bool | None = None
    """Whether the answer is a stream of events."""
    request_id: str | None = None
    """Name of the request in headers and log."""
    priority: Annotated[Any, NotOffered((0,))] = None


_Item = Annotated[TokenId | Message, BY_TYPE]


class DrawnBody(CallBody):
    """The fields of a call whose result can be drawn."""

    drawing: bool | None = None
    """Whether the answer has drawings of the result, and sentences about it."""
    fold: Annotated[Items[Annotated[int, Field(ge=0)]], Field(max_length=MAX_FOLDED)] | None = None
    """Numbers of the trie's nodes below which nothing is drawn."""


class PromptBody(CallBody):
    """The fields of a call about a prompt."""

    prompt: Annotated[EncodableText | Items[_Item], BY_TYPE] | None = Field(
        None, title="a text, a list of token ids, or a list of messages"
    )
    """What is continued: a text, token ids, or messages."""
    user: EncodableText | None = None
    """The message of a user, in place of the prompt."""
    messages: Items[Message] | None = Field(
        None,
        title=f"a list of 1 to {MAX_MESSAGES} messages, each with `role` and `content`",
        min_length=1,
        max_length=MAX_MESSAGES,
    )
    """A chat, in place of the prompt."""
    system: EncodableText | None = None
    """A system message before the prompt."""
    delimiter: EncodableText | None = None
    """Text added before every choice."""
    prompting: PromptingFields | None = None
    """Options for turning the prompt into tokens."""


_VALUE = "a text, a whole number or a truth value"
_Value = Annotated[EncodableText | int | bool, BY_TYPE, Field(title=_VALUE)]
_COUNT = UpTo("max_options", "choices")


class ChoiceFields(ClosedModel):
    """A choice that stands for a value (`Option`)."""

    value: _Value
    """The value, which `value` of the answer is if the choice wins."""
    text: EncodableText
    """The text that is scored."""


_Choice = Annotated[
    EncodableText | int | bool | ChoiceFields, BY_TYPE, Field(title=f"{_VALUE}, or an object with a value and a text")
]
_Choices = Annotated[Items[_Choice], Field(min_length=1), _COUNT]
_Weight = Annotated[float, Field(ge=0)]
_Weights = Annotated[Annotated[Items[_Weight], _COUNT] | Annotated[dict[str, _Weight], _COUNT], BY_TYPE]


class ChoicesBody(PromptBody, DrawnBody):
    """The fields of a call that compares choices."""

    choices: _Choices | None = Field(None, title="a list of texts that is not empty")
    """The texts to compare, or objects with a `value` and a `text`."""
    rule: Annotated[Annotated[str, one_of(RULES_OF_ONE_PROMPT)] | RuleFields, BY_TYPE] | None = Field(
        None, title="the name of a rule, or an object with `name`"
    )
    """The rule that turns log-probabilities into scores."""
    terminator: Annotated[str, one_of(TERMINATORS)] | None = None
    """The event that ends a choice."""
    following: EncodableText | None = None
    """The text after the choice."""
    prior: _Weights | None = Field(None, title="a list of weights, or weights by text")
    """The weight of each choice."""
    k: int | None = Field(None, ge=1)
    """Number of first places that must be certain."""
    search: SearchFields | None = None
    """Options of the search."""


class GrammarBody(PromptBody):
    """The fields of a call about the texts of a grammar."""

    grammar: Source | None = None
    """The texts of this GBNF, with the start rule `root`."""
    regex: Source | None = None
    """The texts that this regular expression matches as a whole."""
    json_schema: Schema | None = None
    """The texts of JSON that this JSON Schema allows."""
    max_tokens: int | None = Field(None, ge=1)
    """Maximum number of tokens of a text."""


class SelectBody(ChoicesBody, GrammarBody):
    """A prompt, and choices or a grammar whose texts may continue it."""

    tokenizations: Annotated[str, one_of(TOKENIZATIONS)] | None = None
    """Whether choices are compared by their own encoding, or over all spellings."""


class RankBody(ChoicesBody):
    """A prompt, and choices to put in an order."""


@with_options(SpellingParams, *options_of(SpellingParams), limits=_LIMITS)
class LoglikelihoodBody(PromptBody):
    """A prompt, and a text whose log-probability after it is computed."""

    text: EncodableText
    """The text."""
    following: EncodableText | None = None
    """The text after it, of which the first tokens are scored too."""


class BeamBody(GrammarBody, DrawnBody):
    """A prompt, and a grammar whose most probable texts are searched."""

    width: int | None = Field(None, ge=1)
    """Number of unfinished texts kept at every step."""
    n: Annotated[int, Field(ge=1), UpTo("max_n")] | None = None
    """Maximum number of texts returned, best first."""
    beam: BeamFields | None = None
    """Options of the search."""


class SampleBody(GrammarBody):
    """A prompt, and a grammar from which texts are drawn."""

    n: Annotated[int, Field(ge=1), UpTo("max_n")] | None = None
    """Number of texts."""
    seed: Seed | None = None
    """Seed of the first text; drawn if it is left out."""
    exact: bool | None = None
    """Whether texts are drawn by their probability among all texts."""
    terminator: Annotated[str, one_of(BEAM_TERMINATORS)] | None = None
    """The event that ends a text."""
    search: SearchFields | None = None
    """Options of the search."""


class RenderBody(DrawnBody):
    """A template, and the values that it reads."""

    template: EncodableText = Field(max_length=MAX_TEMPLATE, title=f"a text of at most {MAX_TEMPLATE} characters")
    """The text of the template, which includes no file."""
    values: Annotated[dict[str, Any], JsonTexts] | None = Field(None, title="an object of values by name")
    """Values by name. They are data: no tag in them is read."""
    dialect: Annotated[str, one_of(tuple(DIALECTS))] | None = None
    """How tags are spelled."""
    rendering: RenderingFields | None = None
    """Options for rendering."""


@dataclass(frozen=True, slots=True)
class Call:
    """A method of `Engine` over HTTP.

    Attributes:
        method: Name of the method.
        body: The model of its body.
        meaning: What the endpoint does, for OpenAI's document.
        records: Arguments that are records of options, with their classes. The body's
            fields that have names of options are merged into them.
    """

    method: str
    body: type[CallBody]
    meaning: str
    records: Mapping[str, type[Any]]

    def reads_grammar(self, body: Mapping[str, Any]) -> bool:
        """Return whether a body may have a grammar, which takes seconds to compile."""
        return self.method == "render" or any(body.get(name) is not None for name in _GRAMMARS)


_PROMPTING = {"prompting": PromptParams}
_SEARCHING = {**_PROMPTING, "search": SearchParams}
CALLS: Mapping[str, Call] = {
    "/v1/select": Call("select", SelectBody, "Decide which text continues a prompt.", _SEARCHING),
    "/v1/rank": Call("rank", RankBody, "Put choices in the order of their scores after a prompt.", _SEARCHING),
    "/v1/loglikelihood": Call(
        "score", LoglikelihoodBody, "Return the log-probability of a text after a prompt.", _PROMPTING
    ),
    "/v1/beam": Call(
        "beam_search",
        BeamBody,
        "Search the most probable texts of a grammar after a prompt.",
        {**_PROMPTING, "beam": BeamSearchParams},
    ),
    "/v1/sample": Call("sample", SampleBody, "Draw texts of a grammar by their probability.", _SEARCHING),
    "/v1/render": Call("render", RenderBody, "Render a template.", {"rendering": RenderParams}),
}
"""The calls by their paths."""
_OWN = frozenset({*DrawnBody.model_fields, "prompt", "user", "messages", *_GRAMMARS, "template", "values", "dialect"})
"""Fields that are no keyword of a method, or that are read apart."""


@dataclass(frozen=True, slots=True, eq=False)
class CallRequest:
    """A request of a call.

    Attributes:
        call: The call.
        arguments: Keyword arguments of the method.
        constraint: The grammar in `arguments` with its path in the request, or None.
        texts: The texts that are scored, () if they are not listed.
        is_stream: Whether the answer is a stream.
        warnings: What was ignored.
        fold: Nodes that are folded in drawings; None if nothing is drawn.
    """

    call: Call
    arguments: Mapping[str, Any]
    constraint: StructuredText | None
    texts: Sequence[str]
    is_stream: bool
    warnings: Sequence[str]
    fold: Sequence[int] | None


def fields_of_call(call: Call, body: Mapping[str, Any]) -> dict[str, str]:
    """Return the paths of fields by the options that they set, for errors.

    Args:
        call: The call.
        body: The body as it was sent.
    """
    paths: dict[str, str] = {}
    for argument, record in call.records.items():
        paths |= {one.name: f"{argument}.{one.name}" for one in fields(record)}
    paths |= {"premise": "rule.premise", "content_free": "rule.content_free"}
    own = {name: name for name in call.body.model_fields}
    if body.get("choices") is None and any(body.get(name) is not None for name in _GRAMMARS):
        own["choices"] = next(name for name in _GRAMMARS if body.get(name) is not None)
    prompt = next((name for name in ("prompt", "messages", "user") if body.get(name) is not None), "prompt")
    constraint = next((name for name in _GRAMMARS if body.get(name) is not None), "grammar")
    return {**paths, **own, "prompt": prompt, THE_PROMPT.name: prompt, "grammar": constraint}


def read_call(call: Call, data: Mapping[str, Any], options: ServerOptions) -> CallRequest:
    """Return the request of a call.

    Raises:
        HttpError, RequestError: For whatever can be found wrong without a model.
    """
    body = read(call.body, data, options)
    _refuse_misplaced(call, data)
    arguments = {name: _to_python(value) for name, value in body if name not in _OWN and value is not None}
    for argument, record in call.records.items():
        _merge_fields(argument, record, arguments)
    warnings = unknown_fields(data, call.body.model_fields)
    constraint: StructuredText | None = None
    texts: tuple[str, ...] = ()
    if isinstance(body, RenderBody):
        values, rendering = body.values or {}, arguments.get("rendering", DEFAULT_RENDERING)
        check_values(values, options)
        template = read_template(body.template, body.dialect or "selectrie", options)
        rendering = replace(rendering, max_segments=page_templates.MAX_SEGMENTS)
        arguments |= {"template": template, "values": values, "rendering": rendering}
    elif isinstance(body, PromptBody):
        if isinstance(arguments.get("rule"), dict):
            arguments["rule"] = ScoringRule(**arguments["rule"])
        arguments["prompt"] = _read_prompt(body, arguments.get("prompting", DEFAULT_PROMPTING))
        constraint = _read_constraint(body) if isinstance(body, GrammarBody) else None
        if constraint is not None:
            arguments["grammar"] = constraint.grammar
            warnings += constraint.warnings()
        texts = _list_texts(body, constraint, options)
        _check_prior(arguments.get("prior"), texts)
        field = "text" if isinstance(body, LoglikelihoodBody) else "choices"
        _check_size(field if constraint is None else constraint.path, texts, arguments)
        _limit_search(call.method, arguments, options.max_rows, is_listed=bool(texts))
    fold = (body.fold or ()) if isinstance(body, DrawnBody) and body.drawing else None
    if fold is not None and isinstance(body, ChoicesBody):
        score_all(arguments, texts)
    return CallRequest(call, arguments, constraint, texts, bool(body.stream), warnings, fold)


def _refuse_misplaced(call: Call, names: Iterable[str]) -> None:
    """Raise `HttpError` for the first field that has another place.

    Args:
        call: The call.
        names: The names in the body.
    """
    for name in names:
        if name in call.body.model_fields:
            continue
        places = (argument for argument, kind in call.records.items() if name in {one.name for one in fields(kind)})
        place = next(places, None)
        if place is not None or any(name in other.body.model_fields for other in CALLS.values()):
            remedy = "it is a field of other calls; leave it out" if place is None else f"give `{place}.{name}`"
            raise HttpError(400, UnknownArgumentError.code, f"the field {name!r} is unknown; {remedy}", name)


def _to_python(value: Any) -> Any:
    """Return the value of a field as an argument of a method of `Engine`."""
    if isinstance(value, list):
        return [_to_python(one) for one in value]
    if isinstance(value, ChoiceFields):
        return Option(value.value, value.text)
    if isinstance(value, BaseModel):
        return {name: _to_python(one) for name, one in value if one is not None}
    return value


def _merge_fields(argument: str, record: type[Any], arguments: dict[str, Any]) -> None:
    """Replace the fields of a record, and the body's own fields for it, by the record.

    Raises `IncompatibleOptionsError` for an option that is given in both places.

    Args:
        argument: Name of the argument that is the record.
        record: Its class.
        arguments: The arguments, which are changed.
    """
    nested = arguments.pop(argument, None)
    flat = {one.name: arguments.pop(one.name) for one in fields(record) if one.name in arguments}
    for name in flat:
        if nested and name in nested:
            raise IncompatibleOptionsError(name, f"`{argument}.{name}`", "give one of the two")
    if nested is not None or flat:
        arguments[argument] = record(**(nested or {}), **flat)


def _read_prompt(body: PromptBody, prompting: PromptParams) -> Any:
    """Return the prompt as the engine takes it: a text, token ids or messages."""
    given = [name for name in ("prompt", "user", "messages") if getattr(body, name) is not None]
    if len(given) > 1:
        raise IncompatibleOptionsError(given[0], f"`{given[1]}`", "give one of the two")
    if not given:
        allowed = "a text, token ids or messages, or the message of a user as `user`"
        raise OptionError("prompt", None, allowed)
    (name,) = given
    value = getattr(body, name)
    if name == "user":
        value = [{"role": "user", "content": value}]
    elif not isinstance(value, str):
        value = [one.data(f"{name}[{i}]") if isinstance(one, Message) else one for i, one in enumerate(value)]
    n_messages = sum(isinstance(one, dict) for one in value)
    if n_messages > MAX_MESSAGES:
        raise OptionError(name, n_messages, f"at most {MAX_MESSAGES} messages")
    if 0 < n_messages < len(value):
        raise OptionError(name, "…", "token ids alone, or messages alone")
    if n_messages:
        check_calls(value, name)
    if prompting.truncate == "left":
        texts = [value] if isinstance(value, str) else [one["content"] for one in value if isinstance(one, dict)]
        check_tokenized(name, sum(len(text.encode()) for text in texts))
    return value


def _read_constraint(body: GrammarBody) -> StructuredText | None:
    """Compile the grammar of a body; None if it has none."""
    given = [name for name in _GRAMMARS if getattr(body, name) is not None]
    if len(given) > 1:
        raise IncompatibleOptionsError(given[0], f"`{given[1]}`", "give one of the two")
    if given:
        return Constraint.of(given[0], _GRAMMARS[given[0]], getattr(body, given[0]), closes=False).compile()
    if not isinstance(body, SelectBody):
        raise OptionError("grammar", None, "a grammar, or a `regex` or `json_schema` in its place")
    return None


def _list_texts(body: PromptBody, constraint: StructuredText | None, options: ServerOptions) -> tuple[str, ...]:
    """Return the texts that a call scores; () if it searches or draws them."""
    if isinstance(body, LoglikelihoodBody):
        return (body.text,)
    if not isinstance(body, ChoicesBody):
        return ()
    if body.choices is not None:
        if constraint is not None:
            raise IncompatibleOptionsError("choices", f"`{constraint.path}`", "give one of the two")
        return tuple(one.text if isinstance(one, ChoiceFields) else text_of(one) or "" for one in body.choices)
    if constraint is None:
        raise OptionError("choices", None, "a list of texts" + ", or a grammar" * isinstance(body, SelectBody))
    texts = list_texts(constraint.grammar) or ()
    if len(texts) > options.max_options_in_all:
        raise OptionError(
            constraint.path, Amount(f"{len(texts)} texts"), f"at most {options.max_options_in_all}, or far more"
        )
    return texts


def _check_prior(prior: list[float] | dict[str, float] | None, texts: Sequence[str]) -> None:
    """Raise `OptionError` for weights that are not those of the texts."""
    if isinstance(prior, dict):
        known = set(texts)
        unknown = next((name for name in prior if name not in known), None)
        if unknown is not None:
            raise OptionError("prior", unknown, "the texts of the choices as keys")
    elif prior is not None and len(prior) != len(texts):
        raise OptionError("prior", Amount(f"{len(prior)} weights"), f"{len(texts)}, one for each choice")


def _check_size(name: str, texts: Sequence[str], arguments: Mapping[str, Any]) -> None:
    """Raise `OptionError` if the texts are too long in all, with what is around each.

    Args:
        name: The field with the texts.
        texts: The texts that are scored.
        arguments: The arguments of the call.
    """
    around = arguments.get("prompting", DEFAULT_PROMPTING).delimiter + arguments.get("following", "")
    n_bytes = sum(len(text.encode()) for text in texts) + len(texts) * len(around.encode())
    if n_bytes > MAX_SCORED_BYTES:
        raise OptionError(
            name, Amount(f"{n_bytes} bytes"), f"at most {MAX_SCORED_BYTES} bytes of text, with what is around each"
        )


def _limit_search(method: str, arguments: dict[str, Any], max_rows: int, *, is_listed: bool) -> None:
    """Bound the rows of a search or of draws; raise an error if more are planned.

    A call whose options set no budget gets one where the engine's own is larger.

    Args:
        method: Name of the engine's method.
        arguments: Its arguments, which are changed.
        max_rows: Maximum number of rows.
        is_listed: Whether the texts are listed, so that they are counted later.
    """
    name = "beam" if method == "beam_search" else "search"
    params = arguments.get(name, DEFAULT_BEAM if name == "beam" else DEFAULT_SEARCH)
    if params.width > MAX_WIDTH:
        raise OptionError("width", params.width, f"a whole number from 1 to {MAX_WIDTH}")
    planned = 0
    if method == "sample":
        planned = arguments.get("n", 1) * params.max_tokens
    elif method == "beam_search" and not params.exact and params.budget_nodes is None:
        planned = params.width * params.max_tokens
    if planned > max_rows:
        raise TooManyRowsError(planned, max_rows)
    has_budget = params.exact if method == "beam_search" else not is_listed
    if has_budget and params.budget_nodes is None and GRAMMAR_NODES + planned > max_rows:
        arguments[name] = replace(params, budget_nodes=max_rows)
