"""Our own calls over HTTP: each is the method of `Engine`, to the last bit, as a whole or as a stream of events."""

from __future__ import annotations

import asyncio
import inspect
import re
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

import selectrie
from selectrie import BeamSearchParams, Grammar, Option, PromptParams, RenderParams, ScoringRule, SearchParams, Template
from selectrie.engine.engine import Engine
from selectrie.errors import OptionError
from selectrie.options.checks import options_of
from selectrie.results.drawing.beams import draw_beam
from selectrie.results.drawing.choices import draw_selection_trie
from selectrie.results.drawing.sentences import selection_sentences
from selectrie.server import ServerOptions, app
from selectrie.server.calls import page_templates
from selectrie.server.calls.call_bodies import (
    CALLS,
    BeamFields,
    CallBody,
    PromptingFields,
    RenderingFields,
    RuleFields,
    SearchFields,
    read_call,
)
from selectrie.server.calls.calls import _News
from selectrie.server.calls.drawings import find_examples
from selectrie.server.calls.page_templates import MAX_SEGMENTS
from tests.support.calling import FULL, LEAST
from tests.support.deciding import fake, nothing_is_held
from tests.support.serving import ask, asked, run_skipping, within_patience

GBNF = 'root ::= "b" root | "c"'
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {"type": "integer"}, "minItems": 30}},
    "required": ["a"],
}
USER = [{"role": "user", "content": "a"}]
PAGE = "Dear <<name>>, <<gen 'x' max_tokens=3>>: <<select 'y' options=options>>."
VALUES = {"name": "<<x>>", "options": ["b", "cd", 3]}

CASES: list[tuple[str, dict[str, Any], Any]] = [
    ("select", {"prompt": "a", "choices": ["b", "cd"]}, lambda e: e.select("a", ["b", "cd"])),
    (
        "select",
        {"user": "a", "system": "s", "choices": ["b", {"value": 7, "text": "cd"}], "prior": [1, 2], "k": 2},
        lambda e: e.select(user="a", system="s", choices=["b", Option(7, "cd")], prior=[1, 2], k=2),
    ),
    (
        "select",
        {"messages": USER, "regex": "[ab]{2,}", "max_tokens": 4, "search": {"k": 2, "width": 2}, "following": "."},
        lambda e: e.select(
            messages=USER, regex="[ab]{2,}", search=SearchParams(k=2, width=2, max_tokens=4), following="."
        ),
    ),
    ("select", {"prompt": "a", "grammar": 'root ::= "b" | "c"'}, lambda e: e.select("a", grammar=Grammar.from_gbnf('root ::= "b" | "c"'))),
    ("select", {"prompt": "a", "json_schema": SCHEMA}, lambda e: e.select("a", grammar=SCHEMA)),
    (
        "select",
        {"prompt": [5, 6], "choices": ["b", "cd"], "rule": {"name": "pmi", "premise": "x"}, "terminator": "eog"},
        lambda e: e.select([5, 6], ["b", "cd"], rule=ScoringRule("pmi", "x"), terminator="eog"),
    ),
    (
        "select",
        {"prompt": "a", "choices": ["b", "cd"], "tokenizations": "all"},
        lambda e: e.select("a", ["b", "cd"], tokenizations="all"),
    ),
    ("rank", {"prompt": "a", "choices": ["b", "cd", 3, True]}, lambda e: e.rank("a", ["b", "cd", 3, True])),
    (
        "rank",
        {"prompt": "a", "choices": ["b", "cd"], "k": 1, "rule": "char_mean", "delimiter": " "},
        lambda e: e.rank("a", ["b", "cd"], k=1, rule="char_mean", delimiter=" "),
    ),
    ("loglikelihood", {"prompt": "a", "text": "bc", "following": "d"}, lambda e: e.score("a", "bc", following="d")),
    (
        "loglikelihood",
        {"user": "a", "text": "bc", "tokenizations": "all", "budget_nodes": 40, "prompting": {"boundary": "split"}},
        lambda e: e.score(
            user="a", text="bc", tokenizations="all", budget_nodes=40, prompting=PromptParams(boundary="split")
        ),
    ),
    (
        "beam",
        {"prompt": "a", "grammar": GBNF, "width": 4, "n": 2, "max_tokens": 5, "beam": {"length_penalty": 0.5}},
        lambda e: e.beam_search(
            "a", Grammar.from_gbnf(GBNF), beam=BeamSearchParams(width=4, n=2, max_tokens=5, length_penalty=0.5)
        ),
    ),
    (
        "beam",
        {"prompt": "a", "regex": "[bc]{1,4}", "beam": {"exact": True}},
        lambda e: e.beam_search("a", regex="[bc]{1,4}", beam=BeamSearchParams(exact=True)),
    ),
    (
        "sample",
        {"prompt": "a", "grammar": GBNF, "n": 3, "seed": 7, "max_tokens": 6},
        lambda e: e.sample("a", Grammar.from_gbnf(GBNF), n=3, seed=7, max_tokens=6),
    ),
    (
        "sample",
        {"prompt": "a", "regex": "[bc]+d", "n": 2, "seed": 1, "exact": False, "search": {"max_tokens": 5}},
        lambda e: e.sample("a", regex="[bc]+d", n=2, seed=1, exact=False, search=SearchParams(max_tokens=5)),
    ),
    (
        "render",
        {"template": PAGE, "values": VALUES, "rendering": {"seed": 3}},
        lambda e: e.render(PAGE, VALUES, rendering=RenderParams(seed=3)),
    ),
    (
        "render",
        {"template": "{{x}} {{select 'y' options=z}}", "values": {"x": "b", "z": ["c", "d"]}, "dialect": "handlebars"},
        lambda e: e.render(
            Template("{{x}} {{select 'y' options=z}}", dialect="handlebars"), {"x": "b", "z": ["c", "d"]}
        ),
    ),
    (
        "render",
        {"template": "<<#user>>Hi<</user>><<#assistant>><<gen 'x' max_tokens=3>><</assistant>>", "rendering": {"seed": 1}},
        lambda e: e.render("<<#user>>Hi<</user>><<#assistant>><<gen 'x' max_tokens=3>><</assistant>>", rendering=RenderParams(seed=1)),
    ),
]  # fmt: skip
OWN = {"usage", "diagnostics", "model", "identity", "seed"}
"""Fields that a response has beside those of the result, and the seed of a page, which is drawn if it is not given."""


@pytest.fixture(scope="module")
def llm():
    """A fake with a chat template."""
    with fake() as engine:
        yield engine


def bits(value: Any) -> Any:
    """The value without its cost, which a cached prompt changes, and without ids that are drawn."""
    if isinstance(value, dict):
        unlike = {"cost"} | ({"id"} if value.get("kind") == "generation" else set())
        return {name: bits(one) for name, one in value.items() if name not in unlike}
    return [bits(one) for one in value] if isinstance(value, list) else value


def result_in(reply) -> dict[str, Any]:
    """The result in the last event of a stream."""
    assert reply.status == 200
    *_, last = reply.events
    assert last.pop("type") == "result"
    return last


@pytest.mark.parametrize(("name", "body", "call"), CASES, ids=lambda one: one if isinstance(one, str) else "")
def test_a_call_is_the_method_of_the_engine(llm, name, body, call):
    """To the last bit: JSON gives floats back as they were; a stream ends with the same object."""
    application = app(llm)
    whole = ask(application, "POST", f"/v1/{name}", body)
    assert whole.status == 200, whole.data
    streamed = result_in(ask(application, "POST", f"/v1/{name}", {**body, "stream": True}))
    wanted = call(llm).to_dict()
    for found in (whole.json, streamed):
        assert found["model"] == "hash-1"
        assert bits({key: one for key, one in found.items() if key not in OWN}) == bits(
            {key: one for key, one in wanted.items() if key not in OWN}
        )
        assert found["usage"]["total_tokens"] >= found["diagnostics"]["rows"] >= 0
    assert ("seed" in body.get("rendering", {})) <= (whole.json.get("seed") == wanted.get("seed"))
    assert whole.json.get("identity") == wanted.get("model")


@pytest.mark.parametrize("path", FULL)
def test_a_body_with_all_fields_is_answered(llm, path):
    """Each call takes its fields together."""
    assert ask(app(llm), "POST", path, FULL[path]).status == 200


def test_the_embedded_model_answers_as_in_python():
    """What is measured there is near ties and layouts; with an empty cache the bits are equal."""
    body = {"prompt": "The capital of France is", "choices": [" Paris", " London", " Rome"]}
    with selectrie.load(n_threads=1) as llm:
        wanted = bits(llm.select(body["prompt"], body["choices"]).to_dict())
        llm.trim()
        found = bits(ask(app(llm), "POST", "/v1/select", body).json)
        assert {name: found[name] for name in wanted} == wanted
        llm.trim()
        assert bits(result_in(ask(app(llm), "POST", "/v1/select", {**body, "stream": True}))).items() >= wanted.items()


def test_a_search_tells_what_it_finds(llm):
    """Texts that get better, the last of which wins, beside the nodes that were evaluated."""
    for path, body in (
        ("/v1/select", {"prompt": "a", "regex": "[bc]{1,3}d?e*", "max_tokens": 6, "search": {"width": 1}}),
        ("/v1/beam", {"prompt": "a", "regex": "[bc]{1,3}d?e*", "max_tokens": 6, "width": 3}),
    ):
        events = ask(app(llm), "POST", path, {**body, "stream": True}).events
        found = [event for event in events if event["type"] == "found"]
        done = [event["done"] for event in events if event["type"] == "progress"]
        result = events[-1]
        best = result["hypotheses"][0]["text"] if path == "/v1/beam" else result["text"]
        assert found[-1]["text"] == best
        assert [one["logp"] for one in found] == sorted(one["logp"] for one in found)
        assert not any(one["proved"] for one in found)
        assert done == sorted(done)
        assert done[-1] == result["certificate"]["nodes_evaluated"]


def test_choices_are_counted_as_they_are_scored(llm):
    """Rows that were read, of all of them."""
    body = {"prompt": "a", "choices": ["bcd", "bce", "x"], "stream": True}
    *_, last, _ = ask(app(llm), "POST", "/v1/rank", body).events
    assert last["type"] == "progress"
    assert last["done"] == last["total"] > 1


def test_the_parts_of_a_page_are_the_page(llm):
    """In their order, with the values of slots."""
    body = {"template": PAGE, "values": VALUES, "rendering": {"seed": 3}, "stream": True}
    events = ask(app(llm), "POST", "/v1/render", body).events
    *parts, page = events
    assert {part["type"] for part in parts} == {"text"}
    assert "".join(part["text"] for part in parts) == page["text"]
    assert page["text"].startswith("Dear <<x>>, ")
    assert {part["name"]: part["value"] for part in parts if "name" in part} == page["values"]
    assert all("record" not in part for part in parts)


SECRET = "SECRET" * 1_000


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *(("/v1/select", {"prompt": "a", "grammar": text}) for text in (f"root ::= {SECRET}", f"%import {SECRET}\nstart: X", f"%import a.{SECRET}\nstart: {SECRET}", f"start: {SECRET}")),
        *(("/v1/select", {"prompt": "a", "json_schema": schema}) for schema in ({"type": SECRET}, {"$ref": f"#/{SECRET}"}, {"pattern": f"({SECRET}"})),
        *(("/v1/render", {"template": text}) for text in (f"<<{SECRET}>>", f"<<#{SECRET}>>", f"<<include '{SECRET}'>>")),
    ],
)  # fmt: skip
def test_errors_quote_little_of_a_source(llm, path, body):
    """A name in a grammar, a schema or a template is cut, as values are."""
    message = ask(app(llm), "POST", path, body).error["message"]
    assert len(message) < 400
    assert "SECRET" * 14 not in message


def test_a_client_is_told_of_no_folder(llm):
    """A request can give none, so errors about imports and includes do not ask for one."""
    for path, body in (
        ("/v1/select", {"prompt": "a", "grammar": "%import .x.X\nstart: X"}),
        ("/v1/render", {"template": "<<include 'a'>>"}),
    ):
        message = ask(app(llm), "POST", path, body).error["message"]
        assert not re.search("give|search", message), message


@pytest.mark.parametrize("seed", [-2, -1, 0, 2**63, 2**64 - 1, 2**64])
def test_a_seed_is_taken_over_http_and_in_python_alike(llm, seed):
    """-1 is a random one; what one of the two refuses, the other refuses with the same words."""
    reply = ask(app(llm), "POST", "/v1/sample", {"prompt": "a", "regex": "[bc]", "seed": seed})
    page = ask(app(llm), "POST", "/v1/render", {"template": "a", "rendering": {"seed": seed}})
    if -1 <= seed < 2**64:
        assert (reply.status, page.status) == (200, 200)
        assert reply.json["seed"] == seed or seed == -1
        assert llm.sample("a", regex="[bc]", seed=seed).seed == reply.json["seed"] or seed == -1
    else:
        with pytest.raises(OptionError) as refused:
            llm.sample("a", regex="[bc]", seed=seed)
        assert (reply.status, reply.error["param"]) == (400, "seed")
        assert (page.status, page.error["param"]) == (400, "rendering.seed")
        assert reply.error["message"] == str(refused.value)


@pytest.mark.parametrize("path", ["/v1/sample", "/v1/completions"])
def test_each_text_can_be_drawn_alone(llm, path):
    """Text i is that of the seed plus i; a seed with too few others above it is refused."""
    body = {"prompt": "a", "max_tokens": 6, "regex": "[bc]{4}"}
    body |= {"structured_outputs": {"regex": body.pop("regex")}, "temperature": 1} if "completions" in path else {}

    def drawn(seed: int, n: int) -> Any:
        reply = ask(app(llm), "POST", path, {**body, "seed": seed, "n": n})
        texts = reply.json.get("texts", reply.json.get("choices")) if reply.status == 200 else None
        return [one["text"] for one in texts] if texts else reply.error["param"]

    assert drawn(2**64 - 2, 2) == [*drawn(2**64 - 2, 1), *drawn(2**64 - 1, 1)]
    assert drawn(2**64 - 1, 2) == "seed"


def test_a_slow_reader_gets_the_last_of_what_happened():
    """Progress and texts found replace those before them; parts of a page are all kept."""

    async def read() -> list[Any]:
        news, work = _News(), asyncio.get_running_loop().create_future()
        for index in range(1000):
            news.report("progress", {"done": index})
            news.report("found", {"logp": -index})
        for index in range(3):
            news.report("text", {"text": index})
        asyncio.get_running_loop().call_soon(work.set_result, None)
        return [events async for events in news.until_done(work)]

    last = [{"type": "progress", "done": 999}, {"type": "found", "logp": -999}]
    assert asyncio.run(read()) == [[*last, *({"type": "text", "text": index} for index in range(3))]]


def test_a_schema_of_a_call_is_taken_as_it_stands():
    """Its objects may have further properties, as in Python; those of a chat have none."""
    body = {"prompt": "a", "json_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
    request = read_call(CALLS["/v1/sample"], body, ServerOptions())
    assert request.arguments["grammar"].accepts('{"a": 1, "b": 2}')


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/v1/chat/completions",
            {
                "messages": [{"role": "user", "content": "a"}],
                "tools": [{"type": "function", "function": {"name": "f", "parameters": NUMBERS}}],
                "tool_choice": "required",
                "max_tokens": 90,
            },
        ),
        ("/v1/select", {"prompt": "a", "regex": "[bc]{60}", "max_tokens": 70, "search": {"budget_nodes": 100_000}}),
        ("/v1/beam", {"prompt": "a", "regex": "[bc]{60}", "max_tokens": 70}),
        ("/v1/sample", {"prompt": "a", "regex": "[bc]{60}", "max_tokens": 70, "exact": False, "n": 4}),
        ("/v1/render", {"template": "a<<gen 'x' max_tokens=9000>>"}),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_client_that_leaves_ends_the_work(path, body, stream):
    """Within one model call: then nothing of the request is left."""

    async def left(llm: Engine) -> None:
        leave, loop = asyncio.Event(), asyncio.get_running_loop()
        calls = iter(range(100))
        llm._model.on_decode = lambda: next(calls, 0) == 5 and loop.call_soon_threadsafe(leave.set)
        reply = await asked(app(llm), "POST", path, {**body, "stream": stream}, leave=leave)
        assert b"event: result" not in reply.data

    with fake() as llm:
        run_skipping(lambda _: within_patience(left(llm)))
        assert nothing_is_held(llm)


def test_an_error_after_the_first_event_is_an_event(llm):
    """In the one shape of errors; one that comes before any work has a status."""
    body = {"prompt": "a", "regex": "[bc]{30}", "max_tokens": 40, "search": {"budget_nodes": 3}, "stream": True}
    reply = ask(app(llm), "POST", "/v1/sample", body)
    assert (reply.status, reply.events[0]["type"], reply.events[-1]["error"]["code"]) == (
        200,
        "progress",
        "nothing_found",
    )
    early = ask(app(llm), "POST", "/v1/sample", {**body, "regex": "("})
    assert (early.status, early.error["param"]) == (400, "regex")


MISTAKES = [
    ("select", {"choices": None}, "choices"),
    ("select", {"choices": []}, "choices"),
    ("select", {"choices": ["b", 1.5]}, "choices[1]"),
    ("select", {"choices": ["b", "a\ud800"]}, "choices[1]"),
    ("select", {"choices": ["b", ""], "terminator": "none"}, "choices[1]"),
    ("select", {"choices": {"x": "b"}}, "choices"),
    ("select", {"choices": ["b", {"value": [], "text": "c"}]}, "choices[1].value"),
    ("select", {"regex": "b|c"}, "choices"),
    ("select", {"prior": [1]}, "prior"),
    ("select", {"prior": [1, "x"]}, "prior[1]"),
    ("select", {"prior": {"b": 1, "cd": -1}}, "prior.cd"),
    ("select", {"prompt": [3, 300]}, "prompt[1]"),
    ("select", {"user": "b"}, "prompt"),
    ("select", {"prompt": None}, "prompt"),
    ("select", {"prompt": [{"role": "user", "content": "a"}, 5]}, "prompt"),
    ("select", {"prompt": None, "messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
    ("select", {"choices": ["b" * 600_000, "c" * 600_000]}, "choices"),
    ("select", {"choices": ["b", "c"], "delimiter": " " * 600_000}, "choices"),
    ("loglikelihood", {"text": "b" * 1_100_000}, "text"),
    ("select", {"rule": "batch"}, "rule"),
    ("select", {"rule": {"name": "calibrated"}}, "rule.content_free"),
    ("select", {"rule": {"name": "joint", "premise": "x"}}, "rule.premise"),
    ("select", {"search": {"method": "x"}}, "search.method"),
    ("select", {"search": {"kk": 1}}, "search.kk"),
    ("select", {"search": {"width": 257}}, "search.width"),
    ("select", {"search": {"budget_nodes": 200_001}}, "search.budget_nodes"),
    ("select", {"search": {"k": 2}, "k": 2}, "k"),
    ("select", {"prompting": {"template_args": {"chat_template": "x"}}}, "prompting.template_args.chat_template"),
    ("select", {"choices": None, "regex": "(a"}, "regex"),
    ("select", {"choices": None, "grammar": "root ::= x"}, "grammar"),
    ("select", {"choices": None, "json_schema": {"type": "array", "uniqueItems": True}}, "json_schema.uniqueItems"),
    ("select", {"choices": None, "regex": "a", "grammar": GBNF}, "grammar"),
    ("select", {"choices": None, "regex": "[a-z]{3}"}, "regex"),
    ("rank", {"k": 0}, "k"),
    ("rank", {"stream": 1}, "stream"),
    ("loglikelihood", {"text": ""}, "text"),
    ("loglikelihood", {"text": None}, "text"),
    ("loglikelihood", {"event": "ends"}, "event"),
    ("beam", {"regex": None}, "grammar"),
    ("beam", {"width": 257}, "width"),
    ("beam", {"n": 129}, "n"),
    ("beam", {"beam": {"groups": 3}}, "beam.groups"),
    ("beam", {"beam": {"expand": "x"}}, "beam.expand"),
    ("sample", {"exact": "no"}, "exact"),
    ("sample", {"priority": 1}, "priority"),
    ("render", {"template": "<<x"}, "template"),
    ("render", {"template": "<<include 'a.tmpl'>>"}, "template"),
    ("render", {"template": "<<gen 'y' grammar='/etc/passwd'>>"}, "template"),
    ("render", {"template": "<<gen 'y' grammar='a.gbnf'>>"}, "template"),
    ("render", {"template": "<<gen 'y' regex=x>>"}, "template"),
    ("render", {"template": "<<gen 'y' n=x>>"}, "template"),
    ("render", {"template": "<<gen 'y' n=129>>"}, "template"),
    ("render", {"template": "<<beam 'y' regex='a' width=257>>"}, "template"),
    ("render", {"template": "<<beam 'y' regex='a' k=x>>"}, "template"),
    ("render", {"template": "<<#joint k=129>><<select 'y' options=x>><</joint>>"}, "template"),
    ("render", {"template": "".join(f"<<gen 'y{i}' regex='a'>>" for i in range(17))}, "template"),
    ("render", {"template": "a" * 100_001}, "template"),
    ("render", {"template": "<<z>>"}, "template"),
    ("render", {"dialect": "jinja"}, "dialect"),
    ("render", {"values": {"x": "a\ud800"}}, "values.x"),
    ("render", {"values": {"x": "a", "y": [{"z": [0] * 5_001}]}}, "values.y[0][0]"),
    ("render", {"rendering": {"max_segments": 5}}, "rendering.max_segments"),
]


@pytest.mark.parametrize(("name", "changes", "param"), MISTAKES, ids=lambda one: str(one)[:50])
def test_mistakes_name_the_field(name, changes, param):
    """One 400 with the path to the value, before any model call."""
    with fake() as llm:
        application = app(llm, ServerOptions(max_options_in_all=5_000))
        body = {key: one for key, one in {**LEAST[f"/v1/{name}"], **changes}.items() if one is not None}
        reply = ask(application, "POST", f"/v1/{name}", body)
        assert (reply.status, reply.error["param"]) == (400, param), reply.data
        assert b"selectrie_model_calls_total 0.0" in ask(application, "GET", "/metrics").data


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("select", {"choices": ["b" * 300, "c" * 300]}),
        ("rank", {"choices": ["b" * 150, "c" * 150], "rule": "pmi"}),
        ("select", {"choices": ["bbbbb", "ccccc"], "tokenizations": "all"}),
        ("loglikelihood", {"text": "b" * 600}),
        ("loglikelihood", {"text": "bbb", "tokenizations": "all", "budget_nodes": 499}),
        ("beam", {"width": 20, "max_tokens": 30}),
        ("sample", {"n": 6, "max_tokens": 100}),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_planned_rows_are_counted_before_the_first_call(name, changes):
    """As if nothing were cached; with a limit that is large enough the same request is answered."""
    body = {**LEAST[f"/v1/{name}"], **changes}
    with fake(nodes=400 if name != "loglikelihood" else 1 << 15) as llm:
        application = app(llm, ServerOptions(max_rows=500))
        reply = ask(application, "POST", f"/v1/{name}", body)
        assert (reply.status, reply.error["code"]) == (400, "too_many_rows"), reply.data
        assert b"selectrie_model_calls_total 0.0" in ask(application, "GET", "/metrics").data
    with fake() as llm:
        assert ask(app(llm), "POST", f"/v1/{name}", body).status == 200


def test_a_search_without_a_budget_gets_that_of_the_server():
    """A small limit ends it; with none of its own the engine's is larger."""
    body = {"prompt": "a", "regex": "[bc]{1,9}d?", "max_tokens": 12}
    with fake() as llm:
        few = ask(app(llm, ServerOptions(max_rows=40)), "POST", "/v1/select", body)
        assert few.json.get("certificate", {}).get("nodes_evaluated", 0) <= 40 + 12
        assert few.status == 400 or not few.json["certificate"]["proved"]
        beam = {**body, "beam": {"exact": True}}
        assert ask(app(llm, ServerOptions(max_rows=40)), "POST", "/v1/beam", beam).status in {200, 400}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_page_ends_beyond_the_rows_of_a_request(stream):
    """A template may loop, so its rows are counted while it is rendered."""
    body = {"template": "<<#each items>><<gen 'x' max_tokens=20>><</each>>", "values": {"items": [0] * 100}}
    with fake() as llm:
        reply = ask(app(llm, ServerOptions(max_rows=100)), "POST", "/v1/render", {**body, "stream": stream})
        error = reply.events[-1]["error"] if stream else reply.error
        assert (reply.status, error["code"]) == (200 if stream else 400, "too_many_rows")
        assert llm._model.calls < 200
        assert nothing_is_held(llm)


def test_a_page_passes_few_segments(llm):
    """So that text alone keeps no thread for long."""
    loop = "<<#each items>><<#each items>>a<</each>><</each>>"
    reply = ask(app(llm), "POST", "/v1/render", {"template": loop, "values": {"items": [0] * 150}})
    assert (reply.status, reply.error["param"]) == (400, "template")
    assert f"more than {MAX_SEGMENTS} segments" in reply.error["message"]


def test_rounds_that_no_page_may_have_are_refused_before_the_first(llm):
    """Their number stands in the template."""
    rounds = "<<#geneach 'x' num=10001>><<gen 'this' max_tokens=1>><</geneach>>"
    reply = ask(app(llm), "POST", "/v1/render", {"template": rounds, "values": {}})
    assert (reply.status, reply.error["param"]) == (400, "template")
    assert "10001 rounds" in reply.error["message"]


def test_slots_of_a_page_look_ahead_within_bounds(llm, monkeypatch):
    """Each looks for the text behind it, which may be far away and never come."""
    monkeypatch.setattr(page_templates, "MAX_SEGMENTS", 100)
    slots = "<<#geneach 'x' num=60>><<gen 'this' max_tokens=1 hidden=true>><</geneach>>"
    reply = ask(app(llm), "POST", "/v1/render", {"template": slots, "values": {}})
    assert (reply.status, reply.error["param"]) == (400, "template")
    assert "more than 1000 segments" in reply.error["message"]


def test_bodies_have_the_names_of_python():
    """Each field is a keyword of the method, or of a record that the method takes; each option of these has a field."""
    own = {*CallBody.model_fields, "prompt", "user", "messages"}
    aliases = {"template", "dialect", "grammar", "regex", "json_schema", "drawing", "fold"}
    for call in CALLS.values():
        keywords = inspect.signature(getattr(Engine, call.method)).parameters
        assert set(call.body.model_fields) - own - aliases <= set(keywords), call
    assert set(SearchFields.model_fields) == set(options_of(SearchParams))
    assert set(BeamFields.model_fields) == set(options_of(BeamSearchParams))
    texts = {"delimiter", "system", "assistant_prefix", "template_args"}
    assert set(PromptingFields.model_fields) == {*options_of(PromptParams), *texts}
    assert set(RenderingFields.model_fields) == {*options_of(RenderParams), "seed", "template_args"} - {"max_segments"}
    assert set(RuleFields.model_fields) == {"name", "premise", "content_free"}


def test_unknown_fields_are_named(llm):
    """In the body's warnings, and in the header before a stream."""
    body = {**LEAST["/v1/select"], "temprature": 1}
    assert "temprature" in ask(app(llm), "POST", "/v1/select", body).json["warnings"][0]["text"]
    streamed = ask(app(llm), "POST", "/v1/select", {**body, "stream": True})
    assert "temprature" in streamed.headers["x-selectrie-warning"]
    assert "temprature" in result_in(streamed)["warnings"][0]["text"]


def test_an_answer_with_drawings(llm):
    """The rest of the answer is as without; drawings and sentences are what the library makes of it."""
    body = {"prompt": "a", "choices": ["b", "cd", "ca"]}
    plain, drawn = (ask(app(llm), "POST", "/v1/select", {**body, **more}).json for more in ({}, {"drawing": True}))
    drawing = drawn.pop("drawing")
    assert {name: drawn[name] for name in ("winner", "choices", "signature")} == {
        name: plain[name] for name in ("winner", "choices", "signature")
    }
    found = llm.select("a", body["choices"])
    assert drawing["trie"] == draw_selection_trie(found).to_dict()
    said = selection_sentences(found)
    assert {**drawing["sentences"], "work": ""} == {**said, "work": ""}


def test_a_branch_is_folded_by_its_number(llm):
    """What is below it is counted in its place; a number of no node is a mistake of the field."""
    body = {"prompt": "a", "choices": ["ca", "cb", "d"], "drawing": True, "prompting": {"boundary": "split"}}
    trie = ask(app(llm), "POST", "/v1/select", body).json["drawing"]["trie"]
    [branch] = [one for one in trie["outline"][0]["children"] if one["node"] is not None]
    assert [one["label"] for one in branch["children"]] != ["2 more texts"]
    folded = ask(app(llm), "POST", "/v1/select", {**body, "fold": [branch["node"]]}).json["drawing"]["trie"]
    [branch] = [one for one in folded["outline"][0]["children"] if one["node"] is not None]
    assert [one["label"] for one in branch["children"]] == ["2 more texts"]
    reply = ask(app(llm), "POST", "/v1/select", {**body, "fold": [999]})
    assert (reply.status, reply.error["param"]) == (400, "fold")


def test_beams_and_slots_are_drawn(llm):
    """Texts of a beam as a trie; a page has drawings in the records of slots that decide among texts."""
    beam = ask(app(llm), "POST", "/v1/beam", {"prompt": "a", "regex": "[ab]{1,3}", "n": 3, "drawing": True}).json
    found = llm.beam_search("a", Grammar.from_regex("[ab]{1,3}"), n=3)
    wanted = draw_beam(found)
    assert beam["drawing"]["trie"] == wanted["trie"]
    assert {**beam["drawing"]["sentences"], "work": ""} == {**wanted["sentences"], "work": ""}
    body = {
        "template": PAGE,
        "values": {"name": "x", "options": ["b", "cd"]},
        "drawing": True,
        "rendering": {"seed": 1},
    }
    free, chosen = ask(app(llm), "POST", "/v1/render", body).json["slots"]
    assert "drawing" not in free["record"]
    assert set(chosen["record"]["drawing"]) == {"strip", "trie", "sentences"}


def test_examples_follow_the_prompt_as_the_choices_do(llm):
    """Its end is not healed for them alone, which would take rows that the answer does not need."""
    selection = llm.select("ab", [" b", " c"])
    found = find_examples(llm, selection, {"prompt": "ab"})
    assert (selection.healed, found.healed) == (b"", b"")
    beam = BeamSearchParams(max_tokens=4, incomplete=True)
    assert llm.beam_search("ab", Grammar.from_regex("[^\\n]+"), beam=beam).healed == b"b"


def test_a_drawing_does_not_widen_the_search_of_a_grammar(llm):
    """Only a list of choices is scored to its end for the strip; a grammar is searched as without a drawing."""
    body = {"prompt": "a", "regex": "[a-z]{1,9}"}
    plain, drawn = (ask(app(llm), "POST", "/v1/select", {**body, **more}).json for more in ({}, {"drawing": True}))
    assert drawn["certificate"] == plain["certificate"]
    assert len(drawn["choices"]) == len(plain["choices"]) < 100
