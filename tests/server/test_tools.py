"""Tools in chats: which is called is a select, its arguments are drawn by their schema, and streams add up to the same."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie import PromptParams, SamplingParams
from selectrie.backends.chat.template import JinjaTemplate
from selectrie.engine.engine import Engine
from selectrie.engine.scheduler.scheduler import Scheduler
from selectrie.server import ServerOptions, app
from selectrie.server.fields import tools
from selectrie.server.generation.call_syntax import PLAIN, call_syntax, write_chat
from selectrie.server.generation.tool_turn import SPELLINGS
from tests.support.chat_templates import TEMPLATES
from tests.support.chatting import PATH
from tests.support.deciding import BYTES, fake
from tests.support.serving import ask

MARKED = """{% for tool in tools or [] %}T:{{ tool | tojson }}<eos>{% endfor %}
{%- for m in messages %}{{ m.role[0] }}:{{ m.content }}
{%- for c in m.tool_calls or [] %}{{ '<c>{"name": "' + c.function.name + '", "arguments": ' }}
{{- c.function.arguments | tojson }}{{ '}</c>' }}{% endfor %}<eos>{% endfor %}{% if add_generation_prompt %}a:{% endif %}"""
"""Calls between texts that are no control tokens, as Qwen's models have them."""
CONTROL = MARKED.replace("<c>", "<bos>").replace("</c>", "<bos>")
"""Calls between control tokens, as Mistral's models have them."""
LISTED = """{% for tool in tools or [] %}T:{{ tool | tojson }}<eos>{% endfor %}
{%- for m in messages %}{{ m.role[0] }}:{{ m.content }}{% if m.tool_calls %}<bos>[{% endif %}
{%- for c in m.tool_calls or [] %}{{ '{"name": "' + c.function.name + '", "arguments": ' + c.function.arguments + '}' }}
{{- '' if loop.last else ', ' }}{% endfor %}{{ ']' if m.tool_calls }}<eos>{% endfor %}
{%- if add_generation_prompt %}a:{% endif %}"""
"""All calls in one list, and arguments as text."""
ONE = MARKED.replace(
    "{%- for c in", "{%- if m.tool_calls | length > 1 %}{{ raise_exception('one') }}{% endif %}{% for c in"
)
ALTERNATING = """{%- for m in messages if m.role != 'tool' and not m.tool_calls %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns alternate') }}{% endif %}{% endfor %}""" + MARKED.replace(
    "{{ '}</c>' }}", """{{ ', "id": "' + c.id + '"}</c>' }}"""
)
"""Turns that alternate, and the ids of calls behind their arguments."""
MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
ASKED = {"messages": MESSAGES, "seed": 3, "max_tokens": 60}
INTEGER = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def function(name: str, parameters: Mapping[str, Any] = INTEGER) -> dict[str, Any]:
    """A tool as the API and chat templates have it."""
    return {"type": "function", "function": {"name": name, "parameters": dict(parameters)}}


TOOLS = [function("get"), function("get_all"), function("set")]


def engine(template: str, **changes: Any) -> Engine:
    """An engine on a fake with a chat template."""
    return fake(chat_template=JinjaTemplate(template, {}), chat_source=template, **changes)


def row(**weights: float) -> list[float]:
    """A row of logits in which these bytes, given as characters or `eos` and `bos`, have these probabilities."""
    logits = [0.0] * len(BYTES.pieces)
    for name, weight in weights.items():
        token = {"bos": 0, "eos": 1}.get(name, ord(name) + 2 if len(name) == 1 else -1)
        logits[token] = 40 + math.log(weight)
    return logits


def tokens_of(text: str) -> list[int]:
    """The tokens of a text, in which `<bos>` is the control token."""
    return [token for part in text.split("<bos>") for token in (0, *(byte + 2 for byte in part.encode()))][1:]


def scripted(template: str, *texts: str, tools: Sequence[Any] = TOOLS, planted: Any = ()) -> Engine:
    """An engine that answers `MESSAGES` with the first text, and goes on with each where it begins as that one does."""
    with engine(template) as llm:
        prompt = llm.encode(MESSAGES, prompting=PromptParams(template_args={"tools": list(tools)})).tolist()
    rows = {}
    for text in reversed(texts):
        tokens = [*prompt, *tokens_of(text), 1]
        for end in range(len(prompt), len(tokens)):
            logits = [0.0] * len(BYTES.pieces)
            logits[tokens[end]] = 40.0
            rows[tuple(tokens[:end])] = logits
    rows |= {(*prompt, *tokens_of(text)): logits for text, logits in dict(planted).items()}
    return engine(template, planted=rows)


def called(reply: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name and arguments of each call of the only choice of an answer."""
    (choice,) = reply["choices"]
    return [(one["function"]["name"], one["function"]["arguments"]) for one in choice["message"].get("tool_calls", ())]


# The syntax of a chat template


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        (MARKED, ('<c>{"name": "', '", "arguments": ', '}</c><c>{"name": "', False, "<c>")),
        (CONTROL, ('<bos>{"name": "', '", "arguments": ', '}<bos><bos>{"name": "', False, "<bos>")),
        (LISTED, ('<bos>[{"name": "', '", "arguments": ', '}, {"name": "', True, "<bos>")),
        (ONE, ('<c>{"name": "', '", "arguments": ', None, False, "<c>")),
        (ALTERNATING, ('<c>{"name": "', '", "arguments": ', None, False, "<c>")),
    ],
    ids=["marked", "control", "listed", "one", "alternating"],
)
def test_the_syntax_is_cut_out_of_a_probe(template, wanted):
    """The texts around name and arguments; there is none between two calls if they are refused, or if ids are in it."""
    with engine(template) as llm:
        found = call_syntax(llm.vocabulary)
        assert found.is_native
        assert (found.opening, found.middle, found.again, found.has_text_arguments, found.marker()) == wanted


@pytest.mark.parametrize(
    "template",
    [
        *TEMPLATES.values(),
        MARKED.replace("{{ tool | tojson }}", ""),  # tools are not written
        MARKED.replace('"arguments": \'', "\"arguments\": ' + c.id"),  # ids are part of a call
        MARKED.replace("| tojson }}{{ '}</c>'", "| string | upper }}{{ '}</c>'"),  # arguments are no JSON
        MARKED.replace("}a:{%", "}b:{%"),  # an answer does not begin as a call's message does
    ],
    ids=str,
)  # fmt: skip
def test_other_templates_have_the_plain_syntax(template):
    """What does not write tools, calls and results, or writes them otherwise, is not guessed at."""
    with engine(template) as llm:
        assert call_syntax(llm.vocabulary) == PLAIN
    with fake(chat=False) as llm:
        assert call_syntax(llm.vocabulary) == PLAIN


HISTORY = [
    {"role": "user", "content": "Go."},
    {"role": "assistant", "content": "", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "get", "arguments": {"a": 1, "é": "x"}}},
        {"id": "2", "type": "function", "function": {"name": "set", "arguments": {}}},
    ]},
    {"role": "tool", "tool_call_id": "2", "content": "done"},
]  # fmt: skip


def test_the_plain_syntax_is_json_in_messages():
    """Tools are in the system message, calls are lines, and a result names its tool."""
    with fake() as llm:
        found, prompting = write_chat(llm.vocabulary, HISTORY, PromptParams(), TOOLS[:1])
        assert prompting == PromptParams()
        system, user, calls, result = found
        head, *tools, tail, form = system["content"].split("\n")
        assert (head, tail) == (
            "You can call these functions:",
            "To call one, answer with a line of JSON for each call and nothing else:",
        )
        assert [json.loads(one) for one in tools] == [TOOLS[0]["function"]]
        assert form == '{"name": "…", "arguments": {…}}'
        assert user == HISTORY[0]
        lines = '{"name": "get", "arguments": {"a": 1, "é": "x"}}\n{"name": "set", "arguments": {}}'
        assert calls == {"role": "assistant", "content": lines}
        assert result == {"role": "user", "content": '{"name": "set", "result": "done"}'}
        own = [{"role": "system", "content": "Be brief."}, HISTORY[0]]
        found, _ = write_chat(llm.vocabulary, own, PromptParams(), TOOLS[:1])
        assert found == [{"role": "system", "content": f"Be brief.\n\n{system['content']}"}, HISTORY[0]]


@pytest.mark.parametrize("template", [MARKED, CONTROL, LISTED])
def test_a_template_gets_calls_as_it_expects_them(template):
    """Arguments as an object or as its text; the whole is what the template writes of it."""
    with engine(template) as llm:
        messages, prompting = write_chat(llm.vocabulary, HISTORY, PromptParams(), TOOLS)
        text = llm.decode(llm.encode(messages, prompting=prompting))
        opening, middle = ("<c>" if template == MARKED else "<bos>"), '", "arguments": '
        opening += '[{"name": "' if template == LISTED else '{"name": "'
        assert f'{opening}get{middle}{{"a": 1, "é": "x"}}' in text
        assert text.count("T:") == len(TOOLS)


SPELLED = "<eos>a:<bos>"


@pytest.mark.parametrize("template", [MARKED, CONTROL, LISTED, None], ids=["marked", "control", "listed", "plain"])
def test_control_tokens_of_tools_calls_and_results_are_text(template):
    """Wherever a client can write them: names, descriptions, schemas, arguments, ids, contents."""
    with engine(template) if template else fake() as llm:

        def controls(text: str) -> int:
            schema = {"type": "object", "properties": {text: {"enum": [text], "description": text}}}
            tool = {"type": "function", "function": {"name": "f", "description": text, "parameters": schema}}
            call = {"id": text, "type": "function", "function": {"name": text, "arguments": json.dumps({text: [text]})}}
            messages = [
                {"role": "user", "content": text, "name": text},
                {"role": "assistant", "content": text, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": text, "content": text},
            ]
            body = {"messages": messages, "tools": [tool], "max_tokens": 1}
            reply = ask(app(llm), "POST", PATH, body)
            assert reply.status == 200, reply.data
            data = [{**call, "function": {"name": text, "arguments": {text: [text]}}}]
            written = [messages[0], {**messages[1], "tool_calls": data}, messages[2]]
            made, prompting = write_chat(llm.vocabulary, written, PromptParams(), [tool])
            tokens = llm.encode(made, prompting=prompting).tolist()
            assert reply.json["usage"]["prompt_tokens"] == len(tokens)
            return sum(token < 2 for token in tokens)

        assert controls(SPELLED) == controls("x" * len(SPELLED))


# The decision


@given(
    names=st.lists(st.from_regex("[a-z_]{1,6}", fullmatch=True), min_size=1, max_size=5, unique=True),
    template=st.sampled_from([MARKED, CONTROL, LISTED]),
    seed=st.integers(1, 3),
)
@settings(max_examples=20, deadline=None)
def test_the_tool_is_the_engines_select_behind_the_opening(names, template, seed):
    """To the bit: the names follow the opening of the template, and its text follows each name."""
    tools = [function(name) for name in names]
    with engine(template, seed=seed) as llm:
        body = {**ASKED, "max_tokens": 8, "tools": tools, "tool_choice": "required"}
        found = ask(app(llm), "POST", PATH, body).json["choices"][0]
        decision = found["tool_choice"]
        prefix = call_syntax(llm.vocabulary).opening
        if "<bos>" in prefix:  # which is a control token for templates alone
            ids = llm.encode(MESSAGES, prompting=PromptParams(template_args={"tools": tools})).tolist()
            wanted = llm.rank([*ids, *tokens_of(prefix)], names, following='", "arguments": ')
        else:
            prompting = PromptParams(template_args={"tools": tools}, assistant_prefix=prefix)
            wanted = llm.rank(MESSAGES, names, following='", "arguments": ', prompting=prompting)
        assert decision["name"] == wanted.text == found["message"]["tool_calls"][0]["function"]["name"]
        assert decision["probabilities"] == dict(wanted.probabilities)
        assert decision["no_call"] is None


@pytest.mark.parametrize("template", [MARKED, CONTROL])
@pytest.mark.parametrize(
    ("p_call", "p_name", "name"), [(0.9, 0.9, "set"), (0.9, 0.5, None), (0.4, 1.0, None), (0.6, 0.9, "set")]
)
def test_no_tool_is_called_unless_a_call_is_more_probable_than_not(template, p_call, p_name, name):
    """P(an opening) times P(a declared name after it) against the rest, which is the probability of no call."""
    mark = "<" if template == MARKED else "bos"
    opening = '<c>{"name": "' if template == MARKED else '<bos>{"name": "'
    call = f'{opening}set", "arguments": {{"a": 1}}}}'
    planted = {
        "": row(**{mark: p_call, "x": 1 - p_call}),
        opening: row(s=p_name, z=1 - p_name) if p_name < 1 else row(s=1),
    }
    with scripted(template, call, "xy", planted=planted) as llm:
        found = ask(app(llm), "POST", PATH, {**ASKED, "tools": TOOLS}).json
        decision = found["choices"][0]["tool_choice"]
        assert decision["name"] == name
        assert decision["no_call"] == pytest.approx(1 - p_call * p_name, abs=1e-6)
        assert decision["probabilities"]["set"] == pytest.approx(p_call * p_name, abs=1e-6)
        assert sum(decision["probabilities"].values()) + decision["no_call"] == pytest.approx(1)
        assert called(found) == ([("set", '{"a": 1}')] if name else [])
        if not name:
            assert found["choices"][0]["message"]["content"] == "xy"


@pytest.mark.parametrize("opening", SPELLINGS, ids=ascii)
def test_other_spellings_of_a_call_count(opening):
    """A model that does not keep to its template means a call too; it is written in the template's syntax."""
    with scripted(MARKED, f"{opening}get{SPELLINGS[opening]}") as llm:
        found = ask(app(llm), "POST", PATH, {**ASKED, "tools": TOOLS}).json
        assert found["choices"][0]["tool_choice"]["no_call"] < 0.01
        assert len(called(found)) == 1
    with scripted(MARKED, f"{opening}Bob{SPELLINGS[opening]}") as llm:
        found = ask(app(llm), "POST", PATH, {**ASKED, "tools": TOOLS}).json
        assert found["choices"][0]["tool_choice"]["no_call"] > 0.99, "Bob is no tool"


def test_text_drawn_against_the_decision_does_not_begin_with_a_call():
    """Where the draw would begin with a call that was decided against, another text is drawn, and both are counted."""
    call = '<c>{"name": "set", "arguments": {"a": 1}}</c>'
    with scripted(MARKED, call, "xy", planted={"": row(**{"<": 0.45, "x": 0.55})}) as llm:
        n_tokens = set()
        for seed in range(8):
            found = ask(app(llm), "POST", PATH, {**ASKED, "seed": seed, "tools": TOOLS}).json
            assert found["choices"][0]["message"]["content"] == "xy"
            assert found["choices"][0]["finish_reason"] == "stop"
            n_tokens.add(found["usage"]["completion_tokens"])
        assert n_tokens == {len("xy") + 1, len("xy") + 1 + len("<c>")}


# Answers

CALL = '<c>{"name": "set", "arguments": {"a": 1}}</c>'
TWO = CALL + '<c>{"name": "get", "arguments": {"a": 22}}</c>'
SAID = [
    (MARKED, CALL, None, [("set", '{"a": 1}')]),
    (MARKED, TWO, None, [("set", '{"a": 1}'), ("get", '{"a": 22}')]),
    (MARKED, f"Wait.\n{TWO}", "Wait.\n", [("set", '{"a": 1}'), ("get", '{"a": 22}')]),
    (CONTROL, TWO.replace("</c>", "<bos>").replace("<c>", "<bos>"), None, [("set", '{"a": 1}'), ("get", '{"a": 22}')]),
    (CONTROL, "Wait." + CALL.replace("</c>", "<bos>").replace("<c>", "<bos>"), "Wait.", [("set", '{"a": 1}')]),
    (MARKED, "No call.", "No call.", []),
]


def streamed(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The only choice that the chunks of a stream add up to, in the shape of a whole answer."""
    made: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": None, "tool_choice": None}
    message: dict[str, Any] = {}
    calls: list[dict[str, Any]] = []
    for event in events:
        for choice in event["choices"]:
            assert made["finish_reason"] is None, "a chunk after the last one"
            delta = choice["delta"]
            if not message:
                message = {"role": delta["role"], "content": None, "refusal": delta["refusal"]}
                assert choice["tool_choice"], "the decision comes first"
            if delta.get("content"):
                assert not calls, "text comes before calls"
                message["content"] = (message["content"] or "") + delta["content"]
            for one in delta.get("tool_calls", ()):
                if "id" in one:
                    assert one["index"] == len(calls)
                    calls.append({name: value for name, value in one.items() if name != "index"})
                else:
                    assert one["index"] == len(calls) - 1
                    calls[-1]["function"]["arguments"] += one["function"]["arguments"]
            if choice["logprobs"]:
                before = made["logprobs"]["content"] if made["logprobs"] else []
                made["logprobs"] = {"content": before + choice["logprobs"]["content"], "refusal": None}
            decision = choice.get("tool_choice")
            if decision and made["tool_choice"] is None:
                made["tool_choice"] = decision
            elif decision:
                made["tool_choice"].setdefault("then", []).append(decision)
            made["finish_reason"] = choice["finish_reason"]
    return {**made, "message": {**message, **({"tool_calls": calls} if calls else {})}}


@pytest.mark.parametrize(("template", "text", "content", "calls"), SAID)
def test_an_answer_and_its_stream(template, text, content, calls):
    """What the model writes becomes text and calls, whole and as a stream, with the same numbers."""
    with scripted(template, text) as llm:
        body = {**ASKED, "tools": TOOLS, "logprobs": True, "top_logprobs": 1}
        reply = ask(app(llm), "POST", PATH, body)
        assert reply.status == 200, reply.data
        (choice,) = reply.json["choices"]
        assert (called(reply.json), choice["message"]["content"]) == (calls, content)
        assert choice["finish_reason"] == ("tool_calls" if calls else "stop")
        assert len({one["id"] for one in choice["message"].get("tool_calls", ())}) == len(calls)
        assert reply.json["usage"]["completion_tokens"] >= len(choice["logprobs"]["content"])
        options = {"stream": True, "stream_options": {"include_usage": True}}
        events = ask(app(llm), "POST", PATH, {**body, **options}).events
        again = streamed(events)
        for one, other in zip(
            choice["message"].get("tool_calls", ()), again["message"].get("tool_calls", ()), strict=True
        ):
            one["id"] = other["id"]
        assert again == choice
        assert events[-1]["usage"] == reply.json["usage"]


@pytest.mark.parametrize("stream", [False, True])
def test_all_work_for_a_call_is_counted_at_its_priority(stream, monkeypatch):
    """The choice of each tool too, also in a stream, each of whose events is awaited in another task."""
    jobs = []
    submit = Scheduler.submit
    monkeypatch.setattr(Scheduler, "submit", lambda self, job: (jobs.append(job), submit(self, job))[1])
    with scripted(MARKED, TWO) as llm:
        application = app(llm, ServerOptions(allow_priority=True))
        jobs.clear()
        reply = ask(application, "POST", PATH, {**ASKED, "tools": TOOLS, "stream": stream, "priority": -2})
        counted = ask(application, "GET", "/metrics").data.decode()
    assert reply.status == 200
    n_new = re.search(r'selectrie_rows_total\{kind="new"\} (\S+)', counted)
    assert n_new
    assert float(n_new[1]) == sum(job.cost.rows - job.cost.rows_repeated for job in jobs)
    assert {job.priority for job in jobs} == {2}


def test_json_within_a_text_is_no_call():
    """A syntax that is JSON alone has no mark of a call, so only the beginning of an answer is one."""
    template, text = MARKED.replace("<c>", "").replace("</c>", ""), 'See {"name": "set", "age": 1}.'
    with scripted(template, text) as llm:
        assert (call_syntax(llm.vocabulary).is_native, call_syntax(llm.vocabulary).marker()) == (True, "")
        found = ask(app(llm), "POST", PATH, {**ASKED, "tools": TOOLS}).json
        assert (called(found), found["choices"][0]["message"]["content"]) == ([], text)


def test_a_thought_that_the_template_opens():
    """Is closed before a call that is demanded; with `auto`, a call follows the thought that is drawn."""
    template = MARKED.replace("}a:{%", "}a:<think>\n{%")
    with engine(template) as llm:
        syntax = call_syntax(llm.vocabulary)
        assert (syntax.opening, syntax.thought) == ('<c>{"name": "', "\n</think>\n\n")
    with scripted(template, f"\n</think>\n\n{CALL}", f"Hm.\n</think>\n\n{CALL}", planted={"": row(H=1)}) as llm:
        for choice, content in (("required", None), ("auto", "Hm.\n</think>\n\n")):
            body = {**ASKED, "tools": TOOLS, "tool_choice": choice}
            found = ask(app(llm), "POST", PATH, body).json
            assert (called(found), found["choices"][0]["message"]["content"]) == ([("set", '{"a": 1}')], content)


def test_one_call_where_only_one_is_wanted():
    """`parallel_tool_calls` false, a named tool, and a template that writes no second call."""
    one = [("set", '{"a": 1}')]
    named = {"type": "function", "function": {"name": "set"}}
    for template, changes in ((MARKED, {"parallel_tool_calls": False}), (MARKED, {"tool_choice": named}), (ONE, {})):
        with scripted(template, TWO) as llm:
            assert called(ask(app(llm), "POST", PATH, {**ASKED, "tools": TOOLS, **changes}).json) == one


def test_a_choice_among_some_of_the_tools():
    """All are in the prompt, and the allowed ones alone are compared."""
    with scripted(MARKED, CALL) as llm:
        allowed = {
            "mode": "required",
            "tools": [{"type": "function", "function": {"name": name}} for name in ("get", "get_all")],
        }
        body = {**ASKED, "tools": TOOLS, "tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}}
        found = ask(app(llm), "POST", PATH, body).json
        assert list(found["choices"][0]["tool_choice"]["probabilities"]) == ["get", "get_all"]
        allowed["mode"] = "auto"
        found = ask(app(llm), "POST", PATH, body).json
        assert found["choices"][0]["tool_choice"]["no_call"] > 0.99, "the call that it writes is of another tool"


def test_no_tools_where_none_is_chosen():
    """The answer is that of the same chat without tools."""
    with engine(MARKED) as llm:
        wanted = ask(app(llm), "POST", PATH, ASKED).json["choices"]
        for changes in ({"tool_choice": "none", "tools": TOOLS}, {"tools": []}, {"tools": None, "tool_choice": "auto"}):
            assert ask(app(llm), "POST", PATH, {**ASKED, **changes}).json["choices"] == wanted


@pytest.mark.parametrize("template", [MARKED, CONTROL, None], ids=["marked", "control", "plain"])
def test_a_text_is_the_one_that_the_engine_draws(template):
    """Where no tool is called, with the seed of the request, as if its tools could not be called."""
    with engine(template) if template else fake() as llm:
        messages, prompting = write_chat(llm.vocabulary, MESSAGES, PromptParams(), TOOLS)
        for seed in range(3):
            wanted = llm.generate(
                messages, seed=seed, max_tokens=20, sampling=SamplingParams.UNCHANGED, prompting=prompting
            )
            found = ask(app(llm), "POST", PATH, {**ASKED, "seed": seed, "max_tokens": 20, "tools": TOOLS}).json
            assert found["choices"][0]["message"]["content"] == wanted.text
            assert found["usage"] == wanted.to_openai(chat=True)["usage"]


@pytest.mark.parametrize("stream", [False, True])
def test_several_choices_have_their_own_seeds(stream):
    """Choice i is the only choice with the seed + i; all share the decision."""
    with engine(MARKED) as llm:
        body = {**ASKED, "tools": TOOLS, "tool_choice": "required", "temperature": 2, "parallel_tool_calls": False}

        def calls(**changes: Any) -> list[list[str]]:
            reply = ask(app(llm), "POST", PATH, {**body, **changes, "stream": stream})
            if not stream:
                messages = [choice["message"] for choice in reply.json["choices"]]
                return [[one["function"]["arguments"] for one in message["tool_calls"]] for message in messages]
            texts: dict[int, list[str]] = {}
            for event in reply.events:
                for choice in event["choices"]:
                    for one in choice["delta"].get("tool_calls", ()):
                        texts.setdefault(choice["index"], [""])[0] += one["function"]["arguments"]
            return list(texts.values())

        together = calls(n=3)
        assert together == [calls(seed=3 + i)[0] for i in range(3)]
        assert len({one for (one,) in together}) > 1


def test_a_limit_cuts_arguments_short():
    """The reason is then "length", and the call has what there is of its arguments; stops do not count in them."""
    with scripted(MARKED, TWO) as llm:
        for n_tokens in (1, 5):
            found = ask(app(llm), "POST", PATH, {**ASKED, "tools": TOOLS, "max_tokens": n_tokens}).json
            assert called(found) == [("set", '{"a": 1}'[:n_tokens])]
            assert found["choices"][0]["finish_reason"] == "length"
        found = ask(app(llm), "POST", PATH, {**ASKED, "tools": TOOLS, "stop": ['"a', "}"]}).json
        assert called(found)[0] == ("set", '{"a": 1}')
    with scripted(MARKED, f"Wait.{CALL}") as llm:
        found = ask(app(llm), "POST", PATH, {**ASKED, "tools": TOOLS, "stop": "t."}).json
        assert (called(found), found["choices"][0]["message"]["content"]) == ([], "Wai")


def test_a_format_is_that_of_the_text():
    """A constraint holds for a text, and arguments keep to their schema."""
    for text, calls, content in ((CALL, [("set", '{"a": 1}')], None), ('"no"', [], '"no"')):
        with scripted(MARKED, text) as llm:
            schema = {"enum": ["no", "yes"]}
            body = {
                **ASKED,
                "tools": TOOLS,
                "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
            }
            found = ask(app(llm), "POST", PATH, {**body, "parallel_tool_calls": False}).json
            assert (called(found), found["choices"][0]["message"]["content"]) == (calls, content)


def test_arguments_keep_to_their_schema():
    """Of what the schema allows; a function without one has none, and no property that is not declared is drawn."""
    schemas = {
        "none": (None, ["{}"]),
        "empty": ({"type": "object", "properties": {}}, ["{}"]),
        "closed": ({"properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}, ['{"a": 1}', '{"a": 2}']),
    }
    for name, (schema, allowed) in schemas.items():
        tool = {"type": "function", "function": {"name": name, **({} if schema is None else {"parameters": schema})}}
        with engine(MARKED) as llm:
            for seed in range(3):
                body = {**ASKED, "seed": seed, "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
                ((found, arguments),) = called(ask(app(llm), "POST", PATH, body).json)
                assert found == name
                assert arguments in allowed


def test_a_keyword_that_no_grammar_can_express_is_left_out():
    """With a warning, and the rest of the schema holds; a strict function with it is refused."""
    with engine(MARKED) as llm:
        body = {**ASKED, "tools": [function("f", UNIQUE)], "tool_choice": "required", "parallel_tool_calls": False}
        found = ask(app(llm), "POST", PATH, body).json
        (warning,) = found["warnings"]
        assert warning.startswith("tools[0].function.parameters.properties.a.uniqueItems: ")
        assert warning.endswith("; the keyword was left out")
        ((_, arguments),) = called(found)
        assert set(json.loads(arguments)["a"]) <= {1, 2}


def test_long_schemas_lose_fewer_keywords(monkeypatch):
    """Each keyword that is left out is one more compilation, and all of them together are bounded."""
    lists = {name: {"type": "array", "uniqueItems": True} for name in "abc"}
    tool = function("f", {"type": "object", "properties": lists, "required": [*lists]})
    with engine(MARKED) as llm:
        for factor, status in ((2, 200), (1, 400)):
            monkeypatch.setattr(tools, "MAX_CHARACTERS", factor * len(json.dumps(tool["function"]["parameters"])))
            reply = ask(app(llm), "POST", PATH, {**ASKED, "tools": [tool]})
            assert reply.status == status, reply.data
    assert reply.error["param"] == "tools[0].function.parameters.properties.c.uniqueItems"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_the_rows_of_choices_are_limited(stream):
    """They are counted while tools are chosen, since the number of calls is not known before."""
    with engine(MARKED) as llm:
        reply = ask(app(llm, ServerOptions(max_rows=60)), "POST", PATH, {**ASKED, "tools": TOOLS, "stream": stream})
    assert (reply.status, reply.error["code"], reply.error["param"]) == (400, "too_many_rows", "tools")


# What is refused

UNIQUE = {
    "type": "object",
    "properties": {
        "a": {
            "type": "array",
            "items": {"type": "integer", "minimum": 1, "maximum": 2},
            "maxItems": 3,
            "uniqueItems": True,
        }
    },
    "required": ["a"],
}


def wrong(**changes: Any) -> dict[str, Any]:
    """A request with tools."""
    return {**ASKED, "tools": TOOLS, **changes}


NAMED = {"type": "function", "function": {"name": "put"}}
SEQUENCE = [MESSAGES[0], {"role": "assistant", "content": None, "tool_calls": [
    {"id": "1", "type": "function", "function": {"name": "get", "arguments": "{}"}}]}]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (wrong(tools=[{"type": "custom", "custom": {"name": "f"}}]), "unsupported", "tools[0].type"),
        (wrong(tools=[{"type": "function"}]), "option", "tools[0].function"),
        (wrong(tools=[function("a b")]), "option", "tools[0].function.name"),
        (wrong(tools=[function("a"), function("a")]), "option", "tools[1].function.name"),
        (wrong(tools=[function(f"f{i}") for i in range(129)]), "option", "tools"),
        (wrong(tools=[function("f", {"type": "array"})]), "option", "tools[0].function.parameters.type"),
        (
            wrong(tools=[{"type": "function", "function": {"name": "f", "parameters": UNIQUE, "strict": True}}]),
            "grammar",
            "tools[0].function.parameters.properties.a.uniqueItems",
        ),
        (wrong(tool_choice="maybe"), "option", "tool_choice"),
        (wrong(tool_choice=NAMED), "option", "tool_choice.function.name"),
        (wrong(tool_choice={"type": "custom", "custom": {"name": "f"}}), "unsupported", "tool_choice.type"),
        (
            wrong(tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED]}}),
            "option",
            "tool_choice.allowed_tools.tools[0].function.name",
        ),
        ({**ASKED, "tool_choice": "required"}, "option", "tool_choice"),
        ({**ASKED, "tool_choice": NAMED}, "option", "tool_choice.function.name"),
        (wrong(min_tokens=3), "option", "min_tokens"),
        (wrong(best_of=3), "option", "best_of"),
        (wrong(add_generation_prompt=False), "option", "add_generation_prompt"),
        (wrong(chat_template_kwargs={"tools": []}), "option", "chat_template_kwargs.tools"),
        (wrong(functions=[{"name": "f"}]), "unsupported", "functions"),
        ({**ASKED, "messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, "option", "messages[0].tool_call_id"),
        ({**ASKED, "messages": [*SEQUENCE, {"role": "tool", "content": "x"}]}, "option", "messages[2].tool_call_id"),
        (
            {**ASKED, "messages": [{"role": "assistant", "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "[1]"}}]}]},
            "option",
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            {**ASKED, "messages": [{"role": "assistant", "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "[" * 100_000}}]}]},
            "option",
            "messages[0].tool_calls[0].function.arguments",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(body, code, param):
    """400 with our code and the path to the value, before any call of the model."""
    with engine(MARKED) as llm:
        reply = ask(app(llm), "POST", PATH, body)
        assert (reply.status, reply.error["code"], reply.error["param"]) == (400, code, param)
        assert len(reply.error["message"]) < 400
        assert llm._model.calls == 0


def test_a_call_that_does_not_fit_is_an_error():
    """The prompt with the call in it is checked as every prompt is."""
    with engine(MARKED) as llm:
        n_prompt = ask(app(llm), "POST", PATH, {**ASKED, "tools": TOOLS, "max_tokens": 1}).json["usage"][
            "prompt_tokens"
        ]
    with engine(MARKED, nodes=n_prompt + 20) as llm:
        reply = ask(app(llm, ServerOptions()), "POST", PATH, {**ASKED, "tools": TOOLS, "tool_choice": "required"})
        assert (reply.status, reply.error["code"]) == (400, "prompt_too_long")
