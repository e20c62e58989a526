"""Extracts a value of a type from every row of a table, as a run on disk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from selectrie.decide.answers import Cell, Column
from selectrie.decide.columns import ERROR, AnswerColumns
from selectrie.decide.extraction import ABSENT, ExtractedType, ExtractionOptions, extracted_type
from selectrie.decide.params import DEFAULT_DECISION
from selectrie.decide.states import State, row_states
from selectrie.engine.engine import Engine
from selectrie.errors import RequestError
from selectrie.grammar.readers.model_schemas import REFERENCE
from selectrie.results import Extraction
from selectrie.runs.folder import FolderFormat, signature_of
from selectrie.tables.formats import TableUnit
from selectrie.tables.table_questions import absolute
from selectrie.tables.table_run import (
    DEFAULT_TABLE_RUN,
    LoggedCells,
    RowResults,
    TableProgress,
    TableRun,
    TableRunOptions,
    open_run_table,
    run_logged,
    run_time,
)

UNIT_ROWS = 64
"""Number of rows that are extracted together."""
FOLDER = FolderFormat("extract")
_TYPES = {"boolean": bool, "integer": int, "number": float, "string": str, "null": type(None)}
_KINDS = {frozenset({bool}): "bool", frozenset({int}): "int", frozenset({float}): "float"}
_MOST_INT = 1 << 63


@dataclass(frozen=True, slots=True, eq=False)
class ExtractedColumns:
    """The columns that values of a type add to a table.

    Attributes:
        kind: The type.
        fields: The column of each field, by the name of the field.
        columns: All columns, the one of errors last.
    """

    kind: ExtractedType
    fields: Mapping[str, Column]
    columns: AnswerColumns

    @classmethod
    def of(cls, kind: ExtractedType, prefix: str = "") -> ExtractedColumns:
        """Return the columns of a type; `prefix` comes before every name.

        A field whose name another column has gets "value." before its name. The
        probability of a field of an open type is a lower bound, and says so.
        """
        numbers = [Column(prefix + name, "float") for name in ("probability", "probability_low")]
        own = [Column(f"{prefix}value", "text"), *numbers, Column(f"{prefix}is_tie", "bool")]
        taken = {column.name for column in own} | {prefix + ERROR}
        fields, suffix = {}, "probability" if kind.texts else "probability_low"
        for name, of_field in _field_kinds(kind).items():
            label = prefix + name
            while not taken.isdisjoint({label, f"{label}_{suffix}"}):
                label = f"{prefix}value.{label.removeprefix(prefix)}"
            fields[name] = Column(label, of_field)
            own += [fields[name], Column(f"{label}_{suffix}", "float")]
            taken |= {label, f"{label}_{suffix}"}
        return cls(kind, fields, AnswerColumns((*own, Column(prefix + ERROR, "text")), ()))

    def row(self, found: Extraction[Any]) -> LoggedCells:
        """Return the cells of an extraction, or its error, as a log has them."""
        if found.error is not None:
            return str(self.columns.error_row(found.error)[-1])
        cells: list[Cell] = [found.text, found.probability, found.probability_low, bool(found.is_tie)]
        values = self.kind.field_values(found.text)
        for name, column in self.fields.items():
            if name not in values:
                cells += [None, None]
                continue
            marginal, key = found.marginals[name], self._key(found, name)
            known = marginal[key]
            cells += [_cell(column.kind, values[name].text), marginal.low[key] if known is None else known]
        return tuple(cells)

    def _key(self, found: Extraction[Any], name: str) -> Any:
        """Return the key that a field of the best value has in its marginal."""
        if found.selection is None:
            return next(iter(found.marginals[name]))  # the best value was added first
        column = self.kind.columns[name]
        return column.keys[int(column.codes[found.selection.index])]


def _field_kinds(kind: ExtractedType) -> dict[str, str]:
    """Return the kind of column for each field, by its name."""
    types: dict[str, set[type]] = {}
    if kind.texts:
        for name, column in kind.columns.items():
            firsts = {int(code): at for at, code in enumerate(column.codes) if code != ABSENT}
            texts = [kind.field_values(kind.texts[at])[name].text for at in firsts.values()]
            types[name] = {type(json.loads(text)) for text in texts}
    else:
        for name, one in _typed_leaves(kind.schema, kind.schema.get("$defs", {})):
            types.setdefault(name, set()).add(one)
    kinds = {}
    for name, found in types.items():
        plain = frozenset(found - {type(None)})
        kinds[name] = _KINDS.get(plain, "float" if plain == {int, float} else "text")
    return kinds


def _typed_leaves(
    schema: Any, definitions: Mapping[str, Any], path: str = "", within: tuple[str, ...] = ()
) -> Iterator[tuple[str, type]]:
    """Iterate over the fields of a schema and the types of their JSON values.

    A field of a class that contains itself, and any array, is a `list`. Fields of a
    `NamedTuple` have no names here.
    """
    schema = schema if isinstance(schema, Mapping) else {}
    name = str(schema.get("$ref", "")).removeprefix(REFERENCE)
    parts = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if name in definitions and name not in within:
        yield from _typed_leaves(definitions[name], definitions, path, (*within, name))
    elif parts:
        for part in parts:
            yield from _typed_leaves(part, definitions, path, within)
    elif schema.get("properties"):
        for key, one in schema["properties"].items():
            yield from _typed_leaves(one, definitions, f"{path}.{key}" if path else key, within)
    elif path and ("const" in schema or "enum" in schema):
        yield from ((path, type(one)) for one in schema.get("enum", [schema.get("const")]))
    elif path:
        named = schema.get("type")
        yield from ((path, _TYPES.get(one, list)) for one in (named if isinstance(named, list) else [named]))


def _cell(kind: str, text: str) -> Cell:
    """Return the cell for the JSON text of a field.

    Texts are without quotes, null is None, and so is a whole number beyond 64 bits.
    """
    value = json.loads(text)
    if value is None or (kind == "int" and not -_MOST_INT <= value < _MOST_INT):
        return None
    if kind == "text":
        return value if isinstance(value, str) else text
    return float(text) if kind == "float" else value  # infinite beyond the range of floats


def extracted_table(
    llm: Engine,
    table: Path,
    state: str,
    kind: Any,
    *,
    out: Path,
    run: TableRunOptions = DEFAULT_TABLE_RUN,
    prefix: str = "",
    **options: Any,
) -> TableProgress:
    """Extract from all rows that are not yet in the log, and write the results.

    The rows get the columns `value` (the JSON text), `probability`, `probability_low`
    and `is_tie`, two for each field such as `customer.plan`, and `error`, which says
    why a row has no value. The run is in a folder beside `out`; after Ctrl-C or an
    error of the model, the same call resumes it.

    Args:
        llm: The engine.
        table: The file that is read.
        state: The name of a column, or a pattern in which `{column}` is a value.
        kind: The type, as for `Engine.extract`.
        out: The file that is written; its suffix is the format.
        run: Options of the run.
        prefix: Text before the name of every new column.
        options: Further options of `Engine.extract_many`.

    Raises:
        InputFileError: If the table cannot be read, or changed meanwhile.
        OptionError: If a column is missing or exists already, or `out` cannot be
            written or has the folder of another run.
    """
    asked = extracted_type(kind)
    chosen = ExtractionOptions.of(**{"instructions": "", **options})
    source, scanned = open_run_table(table, out, FOLDER, UNIT_ROWS)
    made = ExtractedColumns.of(asked, prefix)
    made.columns.check(scanned.names)
    states = row_states(state, scanned.names)
    time = run_time([llm], out, FOLDER, chosen.params.time)
    plan = TableRun(source, scanned, states, out, made.columns, UNIT_ROWS)
    configuration = {
        "table": absolute(table),
        "format": out.suffix.lower(),
        "state": state,
        "prefix": prefix,
        "type": {"name": asked.name, "schema": asked.schema},
        "options": json.loads(json.dumps(asdict(replace(chosen, params=DEFAULT_DECISION)), default=repr)),
        "prompt": {"template": str(chosen.params.template), "layout": chosen.params.layout},
    }
    signature = {**signature_of(llm), **({} if time is None else {"time": time})}
    arguments = {**options, "params": replace(chosen.params, time=time)}

    def work(units: Iterator[TableUnit]) -> Iterator[tuple[TableUnit, RowResults]]:
        for unit in units:
            yield unit, RowResults(unit.rows.digest, _rows(llm, made, plan.states_of(unit), arguments))

    backend = llm.identity.backend
    return run_logged(
        plan, FOLDER, configuration=configuration, signature=signature, work=work, options=run, backend=backend
    )


def _rows(
    llm: Engine, columns: ExtractedColumns, states: Sequence[State | RequestError], options: Mapping[str, Any]
) -> tuple[LoggedCells, ...]:
    """Return the results to log for some rows, given their states or errors."""
    valid = [one for one in states if not isinstance(one, RequestError)]
    llm.trim()  # the numbers of a unit do not depend on what was evaluated before
    made: Iterator[Extraction[Any]] = iter(
        llm.extract_many(valid, columns.kind, on_error="keep", **options) if valid else ()
    )
    return tuple(
        str(columns.columns.error_row(one)[-1]) if isinstance(one, RequestError) else columns.row(next(made))
        for one in states
    )
