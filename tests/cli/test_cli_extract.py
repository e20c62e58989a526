"""`selectrie extract`: what reaches the engine, and what comes out. The engine runs on a fake model."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal

import pytest
from typer.testing import CliRunner

from selectrie import BeamSearchParams, DecisionParams, SearchParams
from selectrie.cli import app
from tests.support.deciding import STATE


@dataclass
class Ticket:
    team: Literal["post", "shop"]
    urgent: bool


SCHEMA = {
    "type": "object",
    "properties": {"size": {"enum": ["S", "L"]}, "code": {"type": "string", "pattern": "^[ab]{1,2}$"}},
    "required": ["size", "code"],
    "additionalProperties": False,
}
TYPE = f"{__name__}:Ticket"


def run(*arguments, code=0, text=None):
    """The result of the command, which ends with this exit code."""
    result = CliRunner().invoke(app, ["extract", *map(str, arguments)], input=text)
    assert result.exit_code == code, result.output
    return result


def told(found, **changes):
    """An extraction as the command writes it, without what varies."""
    return {**found, "cost": None, "signature": None, "model": None, "top": None, **changes}


def test_text_and_schema_under_other_names(llm, tmp_path):
    """The text may be an argument or standard input; a class may be that of a file."""
    wanted = run("--type", TYPE, "--state", STATE).stdout.split("\n\n")[0]
    assert run(STATE, "--schema", TYPE).stdout.split("\n\n")[0] == wanted
    assert run("-", "--schema", TYPE, text=f"{STATE}\n").stdout.split("\n\n")[0] == wanted
    made = json.loads(run(STATE, "--schema", f"{__file__}:Ticket", "--json").stdout)
    assert set(made["value"]) == {"team", "urgent"}
    assert "'mail.txt': expected a text, or - for" in run("mail.txt", "--schema", TYPE, code=2).stderr


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ([], {}),
        (["--value-only"], {"marginals": False}),
        (["--exact", "--rescore"], {"search": SearchParams(stop="all"), "rescore": True}),
        (
            ["--instructions", "Who?", "--layout", "state first"],
            {"instructions": "Who?", "params": DecisionParams(layout="state first")},
        ),
    ],
)
def test_a_class_and_its_options_reach_the_engine(llm, flags, options):
    """The JSON is that of the extraction in Python with the same options."""
    made = json.loads(run("--type", TYPE, "--state", STATE, "--json", *flags).stdout)
    assert told(made) == told(llm.extract(STATE, Ticket, **options).to_dict())
    assert (
        run("--type", TYPE, "--json", *flags, text=STATE).stdout
        == run("--type", TYPE, "--state-file", "-", "--json", *flags, text=STATE).stdout
    )


def test_a_schema_is_read_from_a_file(llm, tmp_path):
    """An open schema is searched with the width given, and a report has its lower bounds."""
    path = tmp_path / "case.json"
    path.write_text(json.dumps(SCHEMA))
    made = json.loads(
        run("--type", path, "--state", STATE, "--width", 2, "--max-tokens", 64, "--top", 2, "--json").stdout
    )
    found = llm.extract(STATE, SCHEMA, beam=BeamSearchParams(width=2, n=2, max_tokens=64))
    assert told(made) == told(found.to_dict())
    assert made["top"] == [one.to_dict() for one in found.top(2)]
    assert run("--type", json.dumps(SCHEMA), "--state", STATE).stdout == (
        shown := run("--type", path, "--state", STATE).stdout
    )
    assert "at least" in shown
    assert "other values may be more probable" in shown


def test_a_report_has_values_and_fields(llm):
    """A terminal gets the best values, the probabilities of the fields, and how far they are known."""
    shown = run("--type", TYPE, "--state", STATE, "--top", 3, "--exact").stdout
    values = re.findall(r'^(\{"team": .*\}) +([\d.]+ %)$', shown, re.MULTILINE)
    assert values[0] == ('{"team": "shop", "urgent": true}', "83 %")
    assert values[2] == ('{"team": "shop", "urgent": false}', "0.3 %")
    assert llm.extract(STATE, Ticket, search=SearchParams(stop="all")).text == values[0][0]
    assert "no other value is more probable" in shown
    assert {"team", "urgent"} <= set(shown.split())


def test_every_row_of_a_table_has_a_value_or_an_error(llm, tmp_path):
    """Rows are kept and get three columns; a blank one has an error, and the others their numbers."""
    table, out = tmp_path / "mails.csv", tmp_path / "made.jsonl"
    table.write_text("id,body\n1,It is late.\n2,\n3,Thanks!\n")
    run("--type", TYPE, "--table", table, "--state", "body", "--out", out)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    expected = llm.extract_many(["It is late.", "Thanks!"], Ticket)
    assert [rows[at]["value"] for at in (0, 2)] == [one.text for one in expected]
    assert [rows[at]["probability"] for at in (0, 2)] == [one.probability for one in expected]
    assert rows[1]["value"] is None
    assert rows[1]["error"].startswith("option: ")
    summary = json.loads(
        run("--type", TYPE, "--table", table, "--state", "body", "--out", tmp_path / "b.csv", "--json").stdout
    )
    assert (summary["rows"], summary["errors"]) == (3, 1)
    run("--type", TYPE, "--table", table, "--state", "none", "--out", tmp_path / "c.csv", code=2)


def test_a_run_over_a_table_goes_on_from_its_folder(llm, tmp_path):
    """The folder alone has type, table, state and options; nothing is asked again, and the file is the same."""
    table, out = tmp_path / "mails.csv", tmp_path / "made.csv"
    table.write_text("id,team\n1,It is late.\n2,Thanks!\n")
    flags = ("--type", TYPE, "--table", table, "--state", "team", "-o", out)
    assert "prefix" in run(*flags, code=2).stderr
    run(*flags, "--prefix", "new_", "--value-only")
    before = out.read_text()
    assert before.startswith("id,team,new_value,new_probability,new_probability_low,new_is_tie,new_team,")
    out.unlink()
    assert json.loads(run("--resume", f"{out}.run", "--json").stdout)["rows"] == 2
    assert out.read_text() == before
    assert "--resume" in run("--resume", f"{out}.run", "--exact", code=2).stderr
    assert "was" in run(*flags, "--prefix", "new_", code=2).stderr, "other options are another run"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--type"),
        (["x", "--type", TYPE], "TEXT 'x': expected no TEXT beside --state"),
        (["--type", "Ticket"], "MODULE:CLASS"),
        (["--type", "no_such_module_here:Ticket"], "no_such_module_here"),
        (["--type", f"{__name__}:Missing"], "Missing"),
        (["--type", "missing.json"], "missing.json"),
        (["--type", '{"type": '], "JSON Schema"),
        (["--type", '{"name": "string"}'], '--type \'{"name": "string"}\': expected a JSON Schema'),
        (["--type", TYPE, "--exact", "--value-only"], "--value-only"),
        (["--type", TYPE, "--out", "x.csv"], "--table"),
        (["--type", TYPE, "--table", "x.csv"], "--out"),
    ],
)
def test_mistakes_are_named(llm, arguments, message):
    """Each ends with code 2 and one line that names the flag or the value."""
    result = run(*arguments, "--state", STATE, code=2)
    assert message in result.stderr
