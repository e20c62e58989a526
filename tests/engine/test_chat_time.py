"""The time that a chat template writes is fixed once: for a request, for a trace, for a run over a table."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

import selectrie
from selectrie import Choice, DecisionParams, Grammar, PromptParams, Template
from selectrie.backends.chat.template import JinjaTemplate
from selectrie.errors import OptionError
from selectrie.tables.table_questions import TableQuestions
from selectrie.tables.table_run import decide_on_engine, plan_table, run_table
from tests.support.decided_tables import write_table
from tests.support.deciding import fake
from tests.support.traced import same_values

SOURCE = (
    "{{ strftime_now('%d %b %Y %H:%M:%S') }};{% for one in messages %}{{ one.role }}:{{ one.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
CHAT = [{"role": "user", "content": "hi"}]
START = datetime.fromisoformat("2026-01-31T23:59:59")
QUESTION = Choice("Which?", ["a", "b"])


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock that is a second later whenever it is looked at; its list has the times that were read."""
    read = []

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            read.append(START + timedelta(seconds=len(read)))
            return read[-1]

    for module in ("selectrie.engine.requests.session", "selectrie.backends.chat.template"):
        monkeypatch.setattr(f"{module}.datetime", Clock)
    return read


def engine(source=SOURCE):
    """An engine on a model whose template writes the time to the second."""
    return fake(chat_template=JinjaTemplate(source, {}), chat_source=source)


def asked(llm):
    """A result of each kind of request about chats, with what says when it was asked."""
    several = llm.select_many([(CHAT, ["a", "b"]), ([*CHAT, *CHAT], ["a", "b"])])
    decided = llm.decide_many(["x", "y"], {"p": QUESTION, "q": QUESTION})
    return {
        "select": [llm.select(CHAT, ["a", "b"]).signature.time],
        "system": [llm.select("hi", ["a", "b"], prompting=PromptParams(system="s")).signature.time],
        "many": [one.signature.time for one in several],
        "grammar": [llm.select(CHAT, grammar=Grammar.from_regex("a|b{1,9}")).signature.time],
        "logprobs": [one.signature.time for one in llm.prompt_logprobs([CHAT, CHAT])],
        "decide": [answer.signature.selection.time for one in decided for answer in one.values()],
        "page": [
            llm.render(
                Template("<<#role 'user'>>hi<</role>><<#role 'assistant'>><<select 'x' options=o>><</role>>"),
                o=["a", "b"],
            )
            .selections["x"]
            .signature.time
        ],
    }


def test_a_request_has_one_time_and_says_it():
    """All prompts of a request have the time in its signature, those of two requests their own."""
    with engine() as llm:
        found = asked(llm)
    assert all(len(set(times)) == 1 and times[0] >= START.isoformat() for times in found.values()), found
    assert len({times[0] for times in found.values()}) == len(found)


def test_what_is_no_chat_has_no_time():
    """Text that is not rendered by the template, and templates that read no time, leave the signature as it was."""
    with engine() as llm:
        selection = llm.select("hi", ["a", "b"])
    assert selection.signature.time == ""
    assert "time" not in json.dumps(selection.signature.to_dict())
    with fake() as llm:
        assert llm.select(CHAT, ["a", "b"]).signature.time == ""


def test_a_given_time_is_written(clock):
    """By the argument of the template, or by the option of decisions; the clock is not read."""
    time = "2020-02-29T01:02:03"
    with engine() as llm:
        prompting = PromptParams(template_args={"strftime_now": time})
        assert llm.decode(llm.encode(CHAT, prompting=prompting)).startswith("<bos>29 Feb 2020 01:02:03;user:hi")
        assert llm.select(CHAT, ["a", "b"], prompting=prompting).signature.time == time
        answer = llm.decide("x", QUESTION, params=DecisionParams(time=time))
        assert answer.signature.selection.time == time
    assert not clock
    with pytest.raises(OptionError, match="time='noon': expected a local time in ISO 8601"):
        DecisionParams(time="noon")


def test_a_trace_keeps_its_time(tmp_path, clock):
    """All requests of a recording have one time, and are replayed whenever that is."""
    with engine() as llm, selectrie.record(llm, tmp_path / "run.trace"):
        recorded = llm.select(CHAT, ["a", "b"]), llm.decide("x", QUESTION)
    assert recorded[0].signature.time == recorded[1].signature.selection.time == START.isoformat()
    n_read = len(clock)
    with selectrie.load(tmp_path / "run.trace") as llm:
        assert same_values((llm.select(CHAT, ["a", "b"]), llm.decide("x", QUESTION)), recorded)
    assert len(clock) == n_read


def run(table, out, clock, *, units=None, source=SOURCE):
    """A run over a table, which is stopped after so many units; with the times that its decisions have."""
    asked = TableQuestions(state="body", questions={"q": QUESTION}, unit_rows=4)
    with engine(source) as llm:
        plan = plan_table(table, asked, out)

        def work(plan, missing):
            for n, one in enumerate(decide_on_engine(llm)(plan, missing)):
                if n == units:
                    raise KeyboardInterrupt
                yield one

        try:
            run_table(llm, plan, work=work)
        except KeyboardInterrupt:
            clock.extend([START] * 86_400)  # a day
    return json.loads((plan.folder / "run.json").read_text())


def test_a_resumed_table_has_one_time(tmp_path, clock):
    """A run that goes on a day later has the bytes of one that was not stopped; its time is in `run.json`."""
    table = write_table(tmp_path / "t.csv", 12)
    described = run(table, tmp_path / "whole.csv", clock)
    assert described["signature"]["time"] == START.isoformat()
    clock.clear()
    run(table, tmp_path / "stopped.csv", clock, units=1)
    assert run(table, tmp_path / "stopped.csv", clock)["signature"]["time"] == START.isoformat()
    assert (tmp_path / "stopped.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    run(table, tmp_path / "later.csv", clock)
    assert (tmp_path / "later.csv").read_bytes() != (tmp_path / "whole.csv").read_bytes()


def test_a_run_that_kept_no_time_is_refused(tmp_path, clock):
    """A folder of before names no time, so it cannot go on with one; templates without a time have none."""
    table = write_table(tmp_path / "t.csv", 12)
    run(table, tmp_path / "a.csv", clock, units=1)
    path = tmp_path / "a.csv.run" / "run.json"
    described = json.loads(path.read_text())
    del described["signature"]["time"]
    path.write_text(json.dumps(described))
    with pytest.raises(OptionError, match="time was None, now '2026"):
        run(table, tmp_path / "a.csv", clock)
    assert "time" not in run(table, tmp_path / "b.csv", clock, source=SOURCE.partition(";")[2])["signature"]
