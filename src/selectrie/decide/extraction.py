"""What is asked to extract a value of a type from a text, and what the texts mean.

A type becomes a JSON Schema. Its texts are the candidates. Nothing here calls a model.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from difflib import get_close_matches
from functools import cached_property, lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any

import numpy as np

from selectrie.core.types import ROOT, FloatArray, IntArray
from selectrie.decide.params import DEFAULT_DECISION, DecisionParams
from selectrie.errors import GrammarError, IncompatibleOptionsError, OptionError, OptionRef, clipped
from selectrie.grammar import Grammar
from selectrie.grammar.readers.model_schemas import PATTERNS, REFERENCE, open_sets
from selectrie.grammar.readers.type_parts import (
    check_size,
    fields_of,
    find_words,
    is_hashable,
    is_named_tuple,
    metadata_of,
    type_name,
)
from selectrie.grammar.readers.types import object_maker, schema_of_type
from selectrie.options import BeamSearchParams, SearchParams
from selectrie.options.checks import flag, record
from selectrie.options.checks import text as require_text
from selectrie.results import ChoiceTable, Marginal

MAX_VALUES = 20_000
"""Maximum number of values of a type that are listed; a larger type is searched."""
MAX_ALTERNATIVES = 16
"""Maximum number of values of a field in an open type of which each is searched for."""
MAX_SEARCHED = 64
"""Maximum number of alternatives of an open type, of all fields together."""
MASS = 0.5
"""Share of the probability of all values that marginals are made of at least."""
BEAM = 4
"""Width of the beam that looks for several values of an open type."""
WIDTH = 2
"""Number of nodes of a call, beside those that follow them for certain."""
MAX_SHOWN = 200
"""Maximum number of values of a field that a prompt shows."""
_ASKED = "Extract from the text:"
_WRITTEN = {
    f"^(?:{pattern})$": f'"{shown}"'
    for pattern, shown in zip(
        PATTERNS.values(), ("YYYY-MM-DD", "HH:MM:SS", "YYYY-MM-DDTHH:MM:SS", "P1DT2H", "UUID"), strict=True
    )
}
"""How a prompt shows texts of a pattern: date, time, datetime, timedelta, UUID."""

_ASSERTIONS = frozenset(
    """
    $ref $dynamicRef type enum const allOf anyOf oneOf not if then else properties patternProperties
    additionalProperties unevaluatedProperties propertyNames required dependentRequired dependentSchemas dependencies
    minProperties maxProperties items prefixItems additionalItems unevaluatedItems contains minContains maxContains
    minItems maxItems uniqueItems minimum maximum exclusiveMinimum exclusiveMaximum multipleOf pattern minLength
    maxLength format
    """.split()  # noqa: SIM905 - as many names are read more easily
)
"""Keywords of JSON Schema that say which values a schema allows."""
_ANNOTATIONS = frozenset(
    """
    $schema $id $anchor $dynamicAnchor $vocabulary $comment $defs definitions id title description default deprecated
    readOnly writeOnly example examples contentEncoding contentMediaType contentSchema discriminator externalDocs xml
    """.split()  # noqa: SIM905 - as many names are read more easily
)
"""Keywords of JSON Schema and OpenAPI that allow any value."""

ABSENT = -1
"""The code of a field that a value does not have."""


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A value of a field. Two are equal if their keys are equal and of the same types.

    Attributes:
        key: The value as the object has it, or its JSON text if it cannot be a key of a
            dictionary.
        text: Its JSON text.
        identity: The key with its types: 1 and True are two values.
    """

    key: Hashable = field(compare=False)
    text: str = field(compare=False)
    identity: Hashable


@dataclass(frozen=True, slots=True, eq=False)
class FieldColumn:
    """A field of C listed values.

    Attributes:
        keys: The distinct values of the field, in the order of the listed values.
        codes: int32[C], the index into `keys` for each listed value, or `ABSENT`.
    """

    keys: tuple[Hashable, ...]
    codes: IntArray


@dataclass(frozen=True, eq=False)
class Alternative:
    """A type with one of its fields restricted.

    Attributes:
        name: The name of the type in errors.
        schema: The JSON Schema of the restricted type.
    """

    name: str
    schema: Mapping[str, Any]

    @cached_property
    def grammar(self) -> Grammar:
        """Return the grammar of the texts; it is made when it is first read."""
        return Grammar.from_json_schema(self.schema, name=self.name)


@dataclass(frozen=True, eq=False)
class ExtractedType:
    """A type whose values are extracted.

    Attributes:
        name: The name of the type in errors.
        grammar: The JSON texts of its values.
        values: The values that are listed, in the order of the texts; () if they are
            too many, and the grammar is searched.
        texts: The texts of the listed values; () as well.
        layout: What a prompt shows of it: one line of JSON with types for values.
        described: The descriptions of its fields, by their names; the name of the type
            itself is "".
        make: Makes the value of a text's JSON; raises `ValueError` or `TypeError`.
        schema: Its JSON Schema.
    """

    name: str
    grammar: Grammar
    values: tuple[Any, ...]
    texts: tuple[str, ...]
    layout: str
    described: Mapping[str, str]
    make: Callable[[Any], Any]
    schema: Mapping[str, Any]

    def instructions(self, asked: str) -> str:
        """Return what a prompt says beside the text.

        `asked` comes first, or a default if it is blank.
        """
        about = [f"- {name}: {text}" if name else f"- {text}" for name, text in self.described.items()]
        lines = [asked.strip() or _ASKED, *about]
        return "\n".join([*lines, f"Answer with the JSON alone, in one line: {self.layout}"])

    def value(self, text: str) -> Any:
        """Return the value of a text; raise `ValueError` or `TypeError` if refused."""
        return self.make(json.loads(text))

    @cached_property
    def columns(self) -> Mapping[str, FieldColumn]:
        """Return the values of each field of the listed values, by its name."""
        by_name: dict[str, dict[FieldValue, int]] = {}
        codes: dict[str, IntArray] = {}
        for at, text in enumerate(self.texts):
            for name, value in self.field_values(text).items():
                known = by_name.setdefault(name, {})
                column = codes.setdefault(name, np.full(len(self.texts), ABSENT, dtype=np.int32))
                column[at] = known.setdefault(value, len(known))
        return {name: FieldColumn(distinct_keys(known), codes[name]) for name, known in by_name.items()}

    @cached_property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Return the first `MAX_SEARCHED` alternatives of fields of an open type.

        Each has the texts in which a field with few values has one of them, or in which
        the type or a field that is a union is one of its parts.
        """
        schemas = () if self.texts else islice(_restricted(self.schema), MAX_SEARCHED)
        return tuple(Alternative(self.name, one) for one in schemas)

    def fields(self, text: str) -> dict[str, Hashable]:
        """Return the keys of the fields of a text by name, such as "customer.plan"."""
        return {name: value.key for name, value in self.field_values(text).items()}

    def field_values(self, text: str) -> dict[str, FieldValue]:
        """Return the values of the fields of a text by name.

        An array that is the text of a `NamedTuple` has the fields of this class.
        """
        value = json.loads(text)
        return {name: _field_value(one, made) for name, one, made in _leaves(value, self.make(value))}

    def identity(self, text: str) -> Hashable:
        """Return a key that texts of the same value share, such as 1.5 and 1.50."""
        value = json.loads(text)
        return frozenset(self.field_values(text).items()) or _field_value(value, self.make(value))


@dataclass(frozen=True, slots=True)
class ExtractionOptions:
    """How values are extracted.

    Attributes:
        instructions: What prompts say before the fields; "" for a default.
        params: Template, layout and time of the prompts.
        search: How listed values are searched.
        beam: How the grammar of an open type is searched.
        rescore: Whether near ties of listed values are scored again.
        alternatives: Whether alternatives of fields of an open type are searched for.
    """

    instructions: str
    params: DecisionParams
    search: SearchParams
    beam: BeamSearchParams
    rescore: bool
    alternatives: bool

    @classmethod
    def of(
        cls,
        instructions: str = "",
        *,
        marginals: bool = True,
        params: DecisionParams | None = None,
        search: SearchParams | None = None,
        beam: BeamSearchParams | None = None,
        rescore: bool = False,
    ) -> ExtractionOptions:
        """Return the options of a call, with defaults for None.

        Without `search`, the best value is searched for and, with `marginals`, then
        the share `MASS` of the probability of all values.

        Raises `RequestError` for other options of decisions than those above, and for
        `marginals=False` beside `search`.
        """
        require_text("instructions", instructions)
        flag("marginals", marginals)
        flag("rescore", rescore)
        params = DEFAULT_DECISION if params is None else params
        record("params", params, DecisionParams)
        plain = replace(DEFAULT_DECISION, template=params.template, layout=params.layout, time=params.time)
        for one in dataclass_fields(params):
            if getattr(params, one.name) != getattr(plain, one.name):
                raise IncompatibleOptionsError(one.name, "an extraction", "it takes template, layout and time")
        if search is not None and not marginals:
            remedy = "`search.stop` says how far the search goes"
            raise IncompatibleOptionsError(OptionRef("marginals", value=False), OptionRef("search"), remedy)
        if search is None:
            search = SearchParams(stop="mass", mass=MASS, width=WIDTH) if marginals else SearchParams(width=WIDTH)
        if beam is None:
            beam = BeamSearchParams(width=BEAM, n=BEAM) if marginals else BeamSearchParams(width=1)
        record("search", search, SearchParams)
        record("beam", beam, BeamSearchParams)
        return cls(instructions, params, search, beam, rescore, marginals)


def extracted_type(kind: object) -> ExtractedType:
    """Return what is extracted for a type, or for a JSON Schema as a mapping.

    What was returned before is returned as it is.

    Values that the type's own code refuses, such as those that a validator of pydantic
    rejects, are no candidates.

    Raises:
        OptionError: For anything that is neither a type nor a mapping, and for a
            mapping that is no JSON Schema.
        GrammarError: For a type or schema that is not supported, by name, and for one
            that refuses all its values.
    """
    if isinstance(kind, ExtractedType):
        return kind
    if isinstance(kind, Mapping):
        _check_schema(kind)
        about = kind.get("description")
        about = about if isinstance(about, str) else ""
        return _of_schema(kind, lambda value: value, str(kind.get("title", "the schema")), about)
    if isinstance(kind, str | bytes | int | float | list | tuple | set) or kind is None:
        raise OptionError("kind", kind, "a type, such as a data class or a model, or a JSON Schema as a mapping")
    check_size(kind)
    return _of_type(kind) if is_hashable(kind) else _read_type(kind)


def _check_schema(schema: Mapping[str, Any]) -> None:
    """Raise `OptionError` for unknown keywords, and if none restricts the values.

    By the rules of JSON Schema, an unknown keyword such as "propertys" means nothing,
    so that any JSON would be a value.
    """
    known = _ASSERTIONS | _ANNOTATIONS
    unknown = [name for name in schema if name not in known and not str(name).startswith("x-")]
    if not unknown and not _ASSERTIONS.isdisjoint(schema):
        return
    remedy = 'a JSON Schema: write {"type": "object", "properties": {…}}'
    if unknown:
        near = get_close_matches(str(unknown[0]), sorted(known), n=1)
        remedy += f"; {unknown[0]!r} is no keyword of it" + "".join(f", did you mean {one!r}?" for one in near)
    raise OptionError("kind", dict(schema), remedy)


def _read_type(kind: Any) -> ExtractedType:
    schema = open_sets(schema_of_type(kind, is_whole=True))
    return _of_schema(schema, object_maker(kind), type_name(kind), find_words(metadata_of(kind)))


_of_type = lru_cache(maxsize=32)(_read_type)


def _of_schema(schema: Mapping[str, Any], make: Callable[[Any], Any], name: str, about: str) -> ExtractedType:
    """Return what is extracted for a schema; `about` is the description of the type."""
    grammar = Grammar.from_json_schema(schema, name=name)
    texts, values = grammar.listed(MAX_VALUES) or (), ()
    if len(texts) <= MAX_VALUES:
        texts, values = _taken(texts, make, name)
        grammar = Grammar.from_choices(texts, name=name) if texts else grammar
    else:
        texts = ()
    shown = _Shown(schema.get("$defs", {}))
    of_type = [("", " ".join(about.split()))] if about.strip() else []
    described = MappingProxyType(dict([*of_type, *shown.descriptions(schema)]))
    return ExtractedType(name, grammar, values, texts, shown.layout(schema), described, make, schema)


def _restricted(schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Iterate over copies of a schema in which a field has a single alternative.

    The first ones are alternatives of the schema itself, if it is a union.
    """
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    yield from ({**part, **definitions} for part in _parts(schema, definitions))
    properties = schema.get("properties", {})
    for name, one in properties.items():
        for part in _parts(one, definitions):
            yield {**schema, "properties": {**properties, name: part}}
    items = schema.get("prefixItems", [])
    for at, one in enumerate(items):  # the fields of a `NamedTuple`
        for part in _parts(one, definitions):
            yield {**schema, "prefixItems": [*items[:at], part, *items[at + 1 :]]}


def _parts(schema: Any, definitions: Mapping[str, Any]) -> list[Any]:
    """Return the schemas of single values, if they are few, or of a union's parts."""
    if not isinstance(schema, dict):
        return []
    texts = Grammar.from_json_schema({**schema, **definitions}).listed(MAX_ALTERNATIVES) or ()
    if 0 < len(texts) <= MAX_ALTERNATIVES:
        return [{"const": json.loads(text)} for text in texts] if len(texts) > 1 else []
    return [*schema.get("anyOf", ()), *schema.get("oneOf", ())]


def _taken(texts: tuple[str, ...], make: Callable[[Any], Any], name: str) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Return the texts whose values the type takes, and these values."""
    taken: dict[str, Any] = {}
    refused: Exception | None = None
    for text in texts:
        try:
            taken[text] = make(json.loads(text))
        except (ValueError, TypeError) as error:  # noqa: PERF203 - each value may be refused
            refused = error
    if texts and not taken:
        raise GrammarError(f"{name} refuses all its values: {clipped(str(refused))}") from refused
    return tuple(taken), tuple(taken.values())


def _leaves(value: Any, made: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Iterate over the names of fields, their JSON values, and what the object has.

    Fields of objects within the object `made` follow in its place. An array that became
    a `NamedTuple` has fields as well.
    """
    kind: Any = type(made)
    if isinstance(value, list) and is_named_tuple(kind):
        value = dict(zip(made._fields, value, strict=False))
    if not isinstance(value, dict) or not value:
        if path:
            yield path, value, made
        return
    for name, one in value.items():
        part = made.get(name, one) if isinstance(made, Mapping) else getattr(made, _attribute(kind, name), one)
        yield from _leaves(one, part, f"{path}.{name}" if path else name)


@lru_cache(maxsize=1024)
def _attribute(kind: type, argument: str) -> str:
    """Return the attribute that has the value of an argument of a class."""
    return next((one.name for one in fields_of(kind) or () if one.argument == argument), argument)


def _field_value(value: Any, made: Any) -> FieldValue:
    """Return the value of a field by its JSON value and what the object has."""
    text = json.dumps(value, ensure_ascii=False)
    made = tuple(made) if isinstance(made, list) else frozenset(made) if isinstance(made, set) else made
    key = made if is_hashable(made) else text
    return FieldValue(key, text, _identity(key))


def _identity(key: Any) -> Hashable:
    """Return a key with its type, and those of its parts."""
    if isinstance(key, tuple | frozenset):
        return type(key), (tuple if isinstance(key, tuple) else frozenset)(map(_identity, key))
    return type(key), key


def distinct_keys(values: Iterable[FieldValue]) -> tuple[Hashable, ...]:
    """Return the keys of different values: JSON texts in place of equal keys.

    1 and true have the keys "1" and "true". If another value has such a key already, as
    the text "1" has, the keys of all values are JSON texts.
    """
    values = tuple(values)
    count = Counter(one.key for one in values)
    keys = tuple(one.text if count[one.key] > 1 else one.key for one in values)
    return keys if len(set(keys)) == len(keys) else tuple(one.text for one in values)


@dataclass(frozen=True, slots=True)
class _Shown:
    """Writes what a prompt shows of a schema.

    Attributes:
        definitions: The schemas under `$defs`.
    """

    definitions: Mapping[str, Any]

    def layout(self, schema: Any, within: tuple[str, ...] = ()) -> str:
        """Return a schema as one line of JSON with types in place of values.

        Alternatives are separated by "|". `within` are the definitions around it.
        """
        if not isinstance(schema, dict):
            return "…"
        name = str(schema.get("$ref", "")).removeprefix(REFERENCE)
        if name in self.definitions:
            return "…" if name in within else self.layout(self.definitions[name], (*within, name))
        for parts in ("anyOf", "oneOf"):
            if parts in schema:
                return " | ".join(dict.fromkeys(self.layout(one, within) for one in schema[parts]))
        kind = None if "const" in schema or "enum" in schema else schema.get("type")
        if kind == "object":
            items = [
                f"{json.dumps(key, ensure_ascii=False)}: {self.layout(one, within)}"
                for key, one in schema.get("properties", {}).items()
            ]
            return "{" + ", ".join(items or ["…"]) + "}"
        if kind == "array":
            items = [self.layout(one, within) for one in schema.get("prefixItems", [])]
            return "[" + ", ".join(items or [self.layout(schema.get("items"), within), "…"]) + "]"
        return _plain(kind, schema)

    def descriptions(self, schema: Any, path: str = "", within: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
        """Iterate over the names of fields and their descriptions."""
        if not isinstance(schema, dict):
            return
        name = str(schema.get("$ref", "")).removeprefix(REFERENCE)
        if name in self.definitions and name not in within:
            yield from self.descriptions(self.definitions[name], path, (*within, name))
        for one in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
            yield from self.descriptions(one, path, within)
        for key, one in schema.get("properties", {}).items():
            field = f"{path}.{key}" if path else key
            said = one.get("description") if isinstance(one, dict) else None
            if isinstance(said, str) and said.strip():
                yield field, " ".join(said.split())
            yield from self.descriptions(one, field, within)


def _alternatives(values: list[Any]) -> str:
    shown = [json.dumps(value, ensure_ascii=False) for value in values[:MAX_SHOWN]]
    return " | ".join([*shown, *(["…"] if len(values) > MAX_SHOWN else [])])


def _plain(kind: Any, schema: Mapping[str, Any]) -> str:
    """Return what stands for a value without parts."""
    if "const" in schema or "enum" in schema:
        return _alternatives([schema["const"]] if "const" in schema else schema["enum"])
    if isinstance(kind, list):
        return " | ".join(_plain(one, schema) for one in kind)
    if kind == "string":
        return _WRITTEN.get(schema.get("pattern", ""), '"…"')
    if kind == "integer" and "minimum" in schema and "maximum" in schema:
        return f"integer from {schema['minimum']} to {schema['maximum']}"
    return {"boolean": "true | false", "null": "null", "integer": "integer", "number": "number"}.get(kind, "…")


def marginals_of(table: ChoiceTable, columns: Mapping[str, FieldColumn], log_heal: float) -> dict[str, Marginal]:
    """Return the marginal of each field over listed values.

    A search may have left values open. A node of the trie that was not evaluated holds
    at most the probability of its prefix, which is shared by the values below it. So
    each marginal has bounds, and the estimate between them gives equal parts of an open
    node to the values of the field below it. With nothing open, all three are the exact
    sum, divided by the coverage.

    Args:
        table: The scored texts of the values.
        columns: The fields of the values.
        log_heal: Log-probability of the healed bytes (`Selection.log_heal`).
    """
    finished = table.finished
    top = float(np.max(table.logp[finished], initial=-np.inf))
    top = 0.0 if top == -np.inf else top
    low, high = (np.where(finished, np.exp(one - top), 0.0) for one in (table.logp, table.logp_upper))
    left = _open_below(table, log_heal + top)
    return {name: _marginal(column, low, high, left) for name, column in columns.items()}


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    """What a search left open: U values below M nodes of the trie.

    Attributes:
        values: int32[U], the values that are not finished.
        owner: int32[U], the index into `mass` of the open node above each value.
        mass: float64[M], the largest weight of all values below each open node.
    """

    values: IntArray
    owner: IntArray
    mass: FloatArray


def _open_below(table: ChoiceTable, log_unit: float) -> _Open:
    """Return what is open: below the last node of a path whose prefix is known.

    Masses are divided by exp(log_unit).
    """
    edges = table.edge_logp.copy()
    edges[ROOT] = 0.0
    prefix = table.trie.accumulate(edges)
    values = np.flatnonzero(~table.finished).astype(np.int32)
    node = table.trie.path_node[table.trie.path_of[values]]
    while (unknown := np.isnan(prefix[node])).any():
        node = np.where(unknown, table.trie.parent[node], node)
    nodes, owner = np.unique(node, return_inverse=True)
    return _Open(values, owner.reshape(-1).astype(np.int32), np.exp(prefix[nodes] - log_unit))


def _marginal(column: FieldColumn, low: FloatArray, high: FloatArray, left: _Open) -> Marginal:
    """Return the marginal of one field.

    Args:
        column: The field.
        low, high: float64[C], bounds on the weight of each finished value, else 0.
        left: What is open.
    """
    n, mass = len(column.keys) + 1, left.mass  # the last one is absence
    codes = np.where(column.codes == ABSENT, n - 1, column.codes)
    least, most = np.bincount(codes, low, n), np.bincount(codes, high, n)
    owner, code = np.unique(np.stack([left.owner, codes[left.values]]), axis=1)  # the field's values below each node
    n_values = np.bincount(owner, minlength=len(mass))
    possible = np.bincount(code, mass[owner], n)
    alone = np.bincount(code, np.where(n_values[owner] == 1, mass[owner], 0.0), n)
    estimate = np.bincount(code, mass[owner] / n_values[owner], n)
    others_least, others_most = least.sum() - least, most.sum() - most + mass.sum() - alone
    with np.errstate(invalid="ignore"):  # 0 / 0, where all weights are 0
        lower = np.nan_to_num(least / (least + others_most), nan=0.0)
        upper = np.nan_to_num((most + possible) / (most + possible + others_least), nan=1.0)
        weight = (least + most) / 2 + estimate
        share = np.nan_to_num(weight / weight.sum(), nan=0.0)
    share = np.clip(share, lower, np.maximum(lower, upper))
    return Marginal(*(dict(zip(column.keys, one.tolist(), strict=False)) for one in (share, lower, upper)))


def searched_marginals(found: Sequence[tuple[Mapping[str, FieldValue], float]]) -> dict[str, Marginal]:
    """Return the marginal of each field over values that a search found.

    A value of a field has at least the probability of the values found that have it,
    and at most what those with another one leave.

    Args:
        found: The fields of each value, and a lower bound on its probability.
    """
    total = math.fsum(low for _, low in found)
    sums: dict[str, dict[FieldValue, float]] = {}
    for fields, low in found:
        for name, value in fields.items():
            of_field = sums.setdefault(name, {})
            of_field[value] = of_field.get(value, 0.0) + low
    marginals = {}
    for name, of_field in sums.items():
        lows = dict(zip(distinct_keys(of_field), of_field.values(), strict=True))
        highs = {key: min(1.0, max(low, 1.0 - total + low)) for key, low in lows.items()}
        marginals[name] = Marginal(dict.fromkeys(lows), lows, highs)
    return marginals
