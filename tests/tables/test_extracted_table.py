"""Values of a type from the rows of a table: columns, their types, and runs that go on."""

from __future__ import annotations

import json
from typing import Annotated, Literal, TypedDict

import pydantic
import pytest

from selectrie import BeamSearchParams
from selectrie.decide.extraction import extracted_type
from selectrie.errors import OptionError
from selectrie.tables import extracted_table as module
from selectrie.tables.extracted_table import ExtractedColumns, extracted_table
from tests.support.deciding import fake

STATES = [f"Text {number}." for number in range(5)]


class Customer(pydantic.BaseModel):
    plan: Literal["free", "paid"]
    years: Annotated[int, pydantic.Field(ge=0, le=2)]


class Ticket(pydantic.BaseModel):
    customer: Customer | None
    urgent: bool
    value: Literal[1, 2.5]


class Note(TypedDict):
    name: Annotated[str, pydantic.Field(pattern="^[A-C][a-c]{1,2}$")]
    urgent: bool


@pytest.fixture(autouse=True)
def units_of_two_rows(monkeypatch):
    """As little work as several units take."""
    monkeypatch.setattr(module, "UNIT_ROWS", 2)


def written(tmp_path, name="t.csv"):
    """A table of five rows, of which one is blank."""
    table = tmp_path / name
    table.write_text("".join(f"{line}\n" for line in ["body", *STATES[:-1], '" "']))
    return table


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_field_has_a_column_of_its_type_and_one_of_its_probability(tmp_path):
    """Names within names are dotted; a missing field is empty, as is null; a blank row has its error alone."""
    kinds = {one.name: one.kind for one in ExtractedColumns.of(extracted_type(Ticket)).columns.columns}
    numbers = {name: kinds.pop(name) for name in list(kinds) if "probability" in name}
    assert set(numbers.values()) == {"float"}
    assert kinds == {
        "value": "text",
        "is_tie": "bool",
        "customer.plan": "text",
        "customer.years": "int",
        "customer": "text",
        "urgent": "bool",
        "value.value": "float",
        "error": "text",
    }
    with fake(2, sharpness=3.0) as llm:
        done = extracted_table(llm, written(tmp_path), "body", Ticket, out=tmp_path / "o.jsonl")
        expected = llm.extract_many(STATES[:-1], Ticket)
    assert (done.rows, done.errors) == (5, 1)
    *rows, blank = rows_of(tmp_path / "o.jsonl")
    for row, found in zip(rows, expected, strict=True):
        customer = found.value.customer
        assert json.loads(row["value"]) == found.value.model_dump()
        assert (row["probability"], row["urgent"], row["value.value"]) == pytest.approx(
            (found.probability, found.value.urgent, found.value.value)
        )
        assert row["urgent_probability"] == pytest.approx(found.marginals["urgent"][found.value.urgent])
        assert row["customer.plan"] == (customer and customer.plan)
        assert (row["customer.years_probability"] is None) == (customer is None)
        assert row["error"] is None
    assert blank["error"].startswith("option: ")
    assert {value for name, value in blank.items() if name not in {"body", "error"}} == {None}


def test_no_two_columns_have_one_name():
    """A field that is called as another column gets "value." before its name, as often as that takes."""
    kind = TypedDict("Names", {"team": bool, "team_probability": bool, "error": bool, "value.error": bool})
    names = ExtractedColumns.of(extracted_type(kind), "x_").columns.names
    assert len(set(names)) == len(names)
    assert {"x_team", "x_value.team_probability", "x_value.error", "x_value.value.error"} < set(names)


def test_an_open_type_has_lower_bounds(tmp_path):
    """Columns of probabilities are called so, and hold those of the marginals."""
    beam = BeamSearchParams(width=2, n=2, max_tokens=64)
    with fake(3, sharpness=3.0) as llm:
        extracted_table(llm, written(tmp_path), "body", Note, out=tmp_path / "o.jsonl", beam=beam, prefix="x_")
        found = llm.extract(STATES[0], Note, beam=beam)
    row = rows_of(tmp_path / "o.jsonl")[0]
    assert row["x_probability"] is None
    assert (row["x_name"], row["x_urgent"]) == (found.value["name"], found.value["urgent"])
    assert row["x_name_probability_low"] == pytest.approx(found.marginals["name"].low[found.value["name"]])


class Killed(Exception):
    """What ends a run between two units."""


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_run_goes_on_and_writes_the_same(tmp_path, monkeypatch, suffix):
    """Units that are logged are not asked again; another type, or a file without a run, is refused."""
    table, whole, out = written(tmp_path), tmp_path / f"whole{suffix}", tmp_path / f"o{suffix}"
    with fake(2, sharpness=3.0) as llm:
        extracted_table(llm, table, "body", Ticket, out=whole)
        many, calls = llm.extract_many, []

        def asked(states, *more, **options):
            calls.append(len(states))
            if len(calls) == 2:
                raise Killed
            return many(states, *more, **options)

        monkeypatch.setattr(llm, "extract_many", asked)
        with pytest.raises(Killed):
            extracted_table(llm, table, "body", Ticket, out=out)
        assert not out.exists()
        done = extracted_table(llm, table, "body", Ticket, out=out)
        assert (calls, done.rows_logged) == ([2, 2, 2], 2)
        assert out.read_bytes() == whole.read_bytes()
        with pytest.raises(OptionError, match=r"folder of the same run: configuration\.type"):
            extracted_table(llm, table, "body", Note, out=out)
        (tmp_path / f"kept{suffix}").write_text("mine")
        with pytest.raises(OptionError, match="there is no run"):
            extracted_table(llm, table, "body", Ticket, out=tmp_path / f"kept{suffix}")


def test_a_column_that_exists_is_named(tmp_path):
    """The remedy is a prefix."""
    table = tmp_path / "t.csv"
    table.write_text("body,urgent\nx,1\n")
    with fake() as llm, pytest.raises(OptionError, match="prefix='urgent'"):
        extracted_table(llm, table, "body", Ticket, out=tmp_path / "o.csv")
