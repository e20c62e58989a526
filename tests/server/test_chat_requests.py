"""Requests of chats: what each field becomes, what is refused by name, and how messages are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie import PromptParams, SamplingParams, StopParams
from selectrie.engine.engine import Engine
from selectrie.errors import DecodeError
from selectrie.server import ServerOptions, app
from tests.support.chatting import BODY, MESSAGES, NEUTRAL, PATH, generated
from tests.support.deciding import fake
from tests.support.serving import ask


@pytest.fixture(scope="module")
def llm():
    """An engine on a fake."""
    with fake() as made:
        yield made


# Fields


@pytest.mark.parametrize(
    ("fields", "option", "value"),
    [
        ({"temperature": 0}, "temperature", 0),
        ({"top_p": 0.5}, "top_p", 0.5),
        ({"top_k": 3}, "top_k", 3),
        ({"top_k": -1}, "top_k", 0),
        ({"min_p": 0.1}, "min_p", 0.1),
        ({"typical_p": 0.9}, "typical_p", 0.9),
        ({"repetition_penalty": 1.2}, "repeat_penalty", 1.2),
        ({"repeat_penalty": 1.2, "repetition_penalty": 1.2}, "repeat_penalty", 1.2),
        ({"presence_penalty": 1}, "presence_penalty", 1),
        ({"frequency_penalty": -2}, "frequency_penalty", -2),
        ({"repeat_last_n": 5}, "penalty_last_n", 5),
        ({"logit_bias": {"5": -100}}, "logit_bias", {5: -100}),
        ({"temperature": None, "top_k": None, "logit_bias": None}, "temperature", 1.0),
        ({"stop": "x"}, "stop", ("x",)),
        ({"stop": ["x", "y"]}, "stop", ("x", "y")),
        ({"stop": []}, "stop", ()),
        ({"stop_token_ids": [3]}, "stop_tokens", (3,)),
        ({"ignore_eos": True}, "ignore_eog", True),
        ({"min_tokens": 3}, "min_tokens", 3),
        ({"min_tokens": 2_000}, "max_tokens", 2_000),
        ({"max_completion_tokens": 5}, "max_tokens", 5),
        ({"max_tokens": 5}, "max_tokens", 5),
        ({"max_completion_tokens": 5, "max_tokens": 5}, "max_tokens", 5),
        ({}, "max_tokens", 1_024),
        ({"best_of": 3, "n": 2}, "best_of", 3),
        ({"best_of": 2, "n": 2}, "best_of", None),
        ({"priority": 4}, "priority", -4),
        ({"logprobs": True, "top_logprobs": 20}, "n_alternatives", 20),
        ({"seed": -1}, "seed", None),
        ({"seed": -2}, "seed", 2**63 - 2),
        ({"seed": -(2**63)}, "seed", 0),
        ({"chat_template_kwargs": {"x": [1]}}, "template_args", {"x": [1]}),
        ({"chat_template_kwargs": None}, "template_args", {}),
        ({"add_generation_prompt": False}, "template_args", {"add_generation_prompt": False}),
    ],
    ids=str,
)
def test_what_each_field_becomes(llm, monkeypatch, fields, option, value):
    """An option of the engine, alike for the answer as a whole and as a stream."""
    taken = []

    def kept(self, prompts, **named):
        records = [named.pop(name) for name in ("sampling", "stopping", "prompting", "options")]
        taken.append(named | {name: getattr(record, name) for record in records for name in record.__slots__})
        raise DecodeError("no answer")

    async def awaited(self, prompts, **named):
        kept(self, prompts, **named)

    monkeypatch.setattr(Engine, "agenerate", awaited)
    monkeypatch.setattr(Engine, "stream", kept)
    application = app(llm, ServerOptions(allow_priority=True))
    for stream in (False, True) if "best_of" not in fields else (False,):
        assert ask(application, "POST", PATH, {"messages": MESSAGES, "stream": stream, **fields}).status == 500
    for options in taken:
        assert options[option] == value
        changed = {name for name in NEUTRAL if options[name] != NEUTRAL[name]}
        assert changed <= {option}


REFUSED: list[dict[str, Any]] = [
    {"functions": [{"name": "f"}]},
    {"function_call": "auto"},
    {"modalities": ["text", "audio"]},
    {"audio": {"voice": "a"}},
    {"prediction": {"type": "content", "content": "a"}},
    {"web_search_options": {}},
    {"moderation": {"model": "a"}},
    {"chat_template": "{{ 1 }}"},
    {"priority": 1},
    {"documents": [{}]},
    {"echo": True},
    {"prompt_logprobs": 0},
    {"use_beam_search": True},
    {"length_penalty": 0.5},
    {"bad_words": ["a"]},
    {"allowed_token_ids": [1]},
    {"include_stop_str_in_output": True},
    {"skip_special_tokens": False},
    {"truncate_prompt_tokens": 5},
    {"mirostat": 2},
    {"samplers": ["top_k"]},
    {"truncation_side": "right"},
    {"stream_interval": 8},
    {"thinking_token_budget": 9},
    {"vllm_xargs": {"a": 1}},
]


@pytest.mark.parametrize("field", REFUSED, ids=lambda field: next(iter(field)))
def test_a_known_field_that_is_not_offered(field):
    """400 under its name, before any call of the model: what cannot be honoured is never ignored."""
    with fake() as llm:
        reply = ask(app(llm), "POST", PATH, {**BODY, **field})
        assert (reply.status, reply.error["code"]) == (400, "unsupported")
        assert reply.error["param"] == next(iter(field))
        assert llm._model.calls == 0


def test_values_that_ask_for_nothing(llm):
    """What clients send as a matter of course: nulls, the only format there is, fields about storing and billing."""
    nulls = dict.fromkeys(next(iter(field)) for field in REFUSED)
    nothing = {
        "response_format": {"type": "text"},
        "modalities": ["text"],
        "tool_choice": "none",
        "tools": [],
        "functions": [],
        "function_call": "none",
        "min_tokens": 0,
        "use_beam_search": False,
        "skip_special_tokens": True,
        "length_penalty": 1.0,
        "parallel_tool_calls": True,
        "user": "me",
        "metadata": {"a": "b"},
        "store": True,
        "service_tier": "auto",
        "safety_identifier": "x",
        "prompt_cache_key": "x",
        "stream_options": None,
        "stream_interval": 1,
        "session_id": "x",
    }
    wanted = ask(app(llm), "POST", PATH, BODY).json["choices"]
    for fields in (nulls, nothing):
        reply = ask(app(llm), "POST", PATH, {**BODY, **fields})
        assert reply.status == 200, reply.data
        assert reply.json["choices"] == wanted
        assert "warnings" not in reply.json
        assert "x-selectrie-warning" not in reply.headers


def test_unknown_fields_are_ignored_with_a_warning(llm):
    """In the answer, and of a stream in the header and the first chunk; of many only the first are named."""
    message = {"role": "user", "content": "x", "colour": "red"}
    body = {**BODY, "messages": [message], "tints": 0, "model": "other"}
    found = ask(app(llm), "POST", PATH, body).json
    wanted = [
        "the field 'tints' is unknown and was ignored",
        "the field 'colour' of messages is unknown and was ignored",
    ]
    assert found["warnings"] == wanted
    reply = ask(app(llm), "POST", PATH, {**body, "stream": True})
    assert reply.headers["x-selectrie-warning"] == "; ".join(["unknown model; hash-1 answers", *wanted])
    first, *rest = reply.events
    assert first["warnings"] == wanted
    assert not any("warnings" in one for one in rest)
    many = {f"x{number}\r\n": 1 for number in range(5_000)}
    reply = ask(app(llm), "POST", PATH, {**BODY, **many, "stream": True})
    assert len(reply.headers["x-selectrie-warning"]) < 1_000
    assert reply.events[0]["warnings"][-1] == "4992 more fields are unknown and were ignored"


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"messages": None}, "option", "messages"),
        ({"messages": []}, "option", "messages"),
        ({"messages": "x"}, "option", "messages"),
        ({"messages": ["x"]}, "option", "messages[0]"),
        ({"messages": [{"content": "x"}]}, "option", "messages[0].role"),
        ({"messages": [{"role": 7, "content": "x"}]}, "option", "messages[0].role"),
        ({"messages": [{"role": "a<eos>", "content": "x"}]}, "option", "messages[0].role"),
        ({"messages": [{"role": "user", "content": 7}]}, "option", "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "option", "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "option", "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": []}]}]}, "option", "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": "a\ud800"}]}, "text", "messages[0].content"),
        ({"messages": [{"role": "user", "content": "x", "name": 7}]}, "option", "messages[0].name"),
        ({"messages": [{"role": f"r{n}", "content": "x"} for n in range(17)]}, "option", "messages"),
        ({"model": 7}, "option", "model"),
        ({"n": 0}, "option", "n"),
        ({"n": "2"}, "option", "n"),
        ({"n": True}, "option", "n"),
        ({"best_of": 1, "n": 2}, "option", "best_of"),
        ({"best_of": 3, "stream": True}, "option", "best_of"),
        ({"max_tokens": 0}, "option", "max_tokens"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "option", "max_tokens"),
        ({"max_tokens": 40_000}, "prompt_too_long", "max_tokens"),
        ({"max_tokens": None, "max_completion_tokens": 40_000}, "prompt_too_long", "max_completion_tokens"),
        ({"max_tokens": None, "max_completion_tokens": 400_000}, "too_many_rows", "max_completion_tokens"),
        ({"messages": [{"role": "user", "content": "x" * 200_000}]}, "prompt_too_long", "messages"),
        ({"messages": [{"role": "user", "content": "x" * 200_000}], "stream": True}, "prompt_too_long", "messages"),
        ({"temperature": -1}, "option", "temperature"),
        ({"temperature": 10**400}, "bad_json", None),
        ({"top_p": 2}, "option", "top_p"),
        ({"top_k": -2}, "option", "top_k"),
        ({"repetition_penalty": 0}, "option", "repetition_penalty"),
        ({"repetition_penalty": 1.1, "repeat_penalty": 1.2}, "option", "repeat_penalty"),
        ({"repeat_last_n": -2}, "option", "repeat_last_n"),
        ({"frequency_penalty": "x"}, "option", "frequency_penalty"),
        ({"logit_bias": [1]}, "option", "logit_bias"),
        ({"logit_bias": {"a": 1}}, "option", "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "option", "logit_bias"),
        ({"logit_bias": {"9" * 5_000: 1}}, "option", "logit_bias"),
        ({"logit_bias": {"5": "x"}}, "option", "logit_bias[5]"),
        ({"logit_bias": {"9999": 1}}, "token_range", "logit_bias.9999"),
        ({"stop": ""}, "option", "stop"),
        ({"stop": ["a", ""]}, "option", "stop[1]"),
        ({"stop": 7}, "option", "stop"),
        ({"stop": ["a", 7]}, "option", "stop[1]"),
        ({"stop_token_ids": ["a"]}, "option", "stop_token_ids[0]"),
        ({"stop_token_ids": [1, 9999]}, "token_range", "stop_token_ids[1]"),
        ({"ignore_eos": 1}, "option", "ignore_eos"),
        ({"min_tokens": -1}, "option", "min_tokens"),
        ({"min_tokens": 13}, "option", "min_tokens"),
        ({"min_tokens": "x"}, "option", "min_tokens"),
        ({"seed": 1.5}, "option", "seed"),
        ({"seed": 2**64}, "option", "seed"),
        ({"seed": 2**64 - 1, "n": 2}, "option", "seed"),
        ({"seed": -(2**63) - 1}, "option", "seed"),
        ({"priority": "high"}, "option", "priority"),
        ({"request_id": 7}, "option", "request_id"),
        ({"logprobs": 3}, "option", "logprobs"),
        ({"top_logprobs": 3}, "option", "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "option", "top_logprobs"),
        ({"logprobs": True, "top_logprobs": True}, "option", "top_logprobs"),
        ({"stream": "yes"}, "option", "stream"),
        ({"stream_options": {}}, "option", "stream_options"),
        ({"stream": True, "stream_options": 7}, "option", "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "option", "stream_options.include_usage"),
        ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, "unsupported", "stream_options"),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, "unsupported", "stream_options"),
        ({"chat_template_kwargs": 7}, "option", "chat_template_kwargs"),
        ({"chat_template_kwargs": False}, "option", "chat_template_kwargs"),
        (
            {"chat_template_kwargs": {"chat_template": "x"}},
            "unsupported",
            "chat_template_kwargs.chat_template",
        ),
        ({"continue_final_message": True}, "option", "continue_final_message"),
    ],
    ids=str,
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_what_is_wrong_is_named(changes, code, param, stream):
    """400 with our code and the client's own name of the field, also for a stream, and no call of the model."""
    with fake() as llm:
        reply = ask(app(llm), "POST", PATH, {**BODY, **({"stream": True} if stream else {}), **changes})
        if reply.status == 200:
            assert changes == {"stream_options": {}}, "which is right for a stream"
            return
        assert (reply.status, reply.error["code"], reply.error["param"]) == (400, code, param)
        assert reply.error["type"] == "invalid_request_error"
        assert llm._model.calls == 0


def test_errors_quote_little_of_a_request(llm):
    """At most 80 characters of a value, whatever it is and however long."""
    for changes in (
        {"temperature": "x" * 5_000},
        {"n": ["x" * 5_000]},
        {"tools": ["x" * 5_000]},
        {"chat_template_kwargs": ["x" * 5_000]},
        {"messages": [{"role": "x<" * 5_000, "content": "x"}]},
        {"messages": [{"role": "user", "content": {"x": "x" * 5_000}}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "txt": "x" * 5_000}]}]},
        {"messages": [{"role": "user", "content": [{"type": "x" * 5_000}]}]},
        {"logit_bias": {"x" * 5_000: 1}},
        {"model": ["x" * 5_000]},
    ):
        message = ask(app(llm), "POST", PATH, {**BODY, **changes}).error["message"]
        assert len(message) < 250, changes.keys()


@pytest.mark.parametrize(
    ("options", "changes", "message"),
    [
        ({"max_n": 2}, {"n": 3}, "n=3: expected a whole number from 1 to 2"),
        ({"max_n": 2}, {"best_of": 3}, "best_of=3: expected a whole number from 1 to 2"),
        ({"max_stops": 2}, {"stop": ["a"] * 3}, "stop=3 items: expected at most 2"),
        ({"max_stops": 2}, {"stop_token_ids": [1] * 3}, "stop_token_ids=3 items: expected at most 2"),
        ({"max_logprobs": 2}, {"logprobs": True, "top_logprobs": 3}, "top_logprobs=3"),
        ({"max_rows": 23}, {"n": 2}, "2 x 12 tokens: expected at most 23"),
        ({"max_rows": 99, "default_max_tokens": 100}, {"max_tokens": None}, "1 x 100 tokens"),
    ],
)
def test_limits_are_checked_before_the_model(options, changes, message):
    """All of them are options of the server."""
    with fake() as llm:
        reply = ask(app(llm, ServerOptions(**options)), "POST", PATH, {**BODY, **changes})
        assert reply.status == 400
        assert message in reply.error["message"]
        assert llm._model.calls == 0
        assert ask(app(llm), "POST", PATH, {**BODY, **changes}).status == 200


@pytest.mark.parametrize("stop", ["a" * 80_000, ["a" * 40_000, "b" * 40_000]])
def test_stop_texts_are_limited_together(stop):
    """By their characters, whatever their number; up to that they are taken."""
    with fake() as llm:
        reply = ask(app(llm), "POST", PATH, {**BODY, "stop": stop})
        assert (reply.status, llm._model.calls) == (400, 0)
        assert "stop=80000: expected texts of at most 65536 characters" in reply.error["message"]
        assert ask(app(llm), "POST", PATH, {**BODY, "stop": "a" * 65_536}).status == 200


def test_a_request_without_a_limit_gets_what_room_there_is():
    """At most `default_max_tokens`, and fewer in a small context; a limit of its own that does not fit is an error."""
    body = {"messages": MESSAGES, "ignore_eos": True}
    with fake(nodes=64) as llm:
        found = [
            ask(app(llm, ServerOptions(default_max_tokens=limit)), "POST", PATH, body).json for limit in (5, 1_000)
        ]
        streamed = ask(app(llm), "POST", PATH, {**body, "stream": True, "stream_options": {"include_usage": True}})
        assert [one["usage"]["completion_tokens"] for one in found] == [5, 65 - found[0]["usage"]["prompt_tokens"]]
        assert streamed.events[-1]["usage"] == found[1]["usage"]
        assert found[1]["choices"][0]["finish_reason"] == "length"
        reply = ask(app(llm), "POST", PATH, {**body, "max_tokens": 1_000})
        assert (reply.status, reply.error["code"]) == (400, "prompt_too_long")
        reply = ask(app(llm), "POST", PATH, {"messages": [{"role": "user", "content": "x" * 100}]})
        assert (reply.status, reply.error["code"]) == (400, "prompt_too_long")


@pytest.mark.parametrize("given", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(("n_characters", "n_tokens"), [(10, 200), (10, 95), (80, 60)])
def test_a_remedy_names_fields_of_the_request(given, n_characters, n_tokens):
    """Those that it has: a limit under the name that was sent, and no `truncate`."""
    body = {"messages": [{"role": "user", "content": "x" * n_characters}], given: n_tokens}
    with fake(nodes=100) as llm:
        found = ask(app(llm), "POST", PATH, body).error
    lower = f"lower `{given}` ({n_tokens})"
    remedies = {200: lower, 95: f"{lower}, shorten `messages`", 60: f"shorten `messages`, {lower}"}[n_tokens]
    assert found["message"].endswith(f"; {remedies}, or use a model with a larger context")
    assert found["param"] == (given if n_tokens > n_characters else "messages")


@pytest.mark.parametrize("stream", [False, True])
def test_a_limit_that_was_not_sent_is_not_to_be_lowered(stream):
    """The server's own gives way to the prompt, so the prompt alone is too long."""
    body = {"messages": [{"role": "user", "content": "x" * 95}], "stream": stream}
    with fake(nodes=100) as llm:
        found = ask(app(llm), "POST", PATH, body).error
    assert found["message"].endswith("; shorten `messages`, or use a model with a larger context")
    assert found["param"] == "messages"


@pytest.mark.parametrize(("stop", "path"), [("", "stop"), (["a", ""], "stop[1]")])
def test_an_empty_stop_text_is_said_to_be_empty(llm, stop, path):
    """The message says what is allowed, not what it is already."""
    error = ask(app(llm), "POST", PATH, {**BODY, "stop": stop}).error
    assert error["param"] == path
    assert error["message"].startswith(f"{path}='': expected a text that is not empty")


SURROGATE = "a\ud800"


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"messages": [{"role": "user", "content": "x", "name": SURROGATE}]}, "messages[0].name"),
        ({"messages": [{"role": "user", "content": "x", "reasoning": SURROGATE}]}, "messages[0].reasoning"),
        (
            {"messages": [{"role": "user", "content": "x", "reasoning_content": SURROGATE}]},
            "messages[0].reasoning_content",
        ),
        ({"messages": [{"role": "user", "content": None, "refusal": SURROGATE}]}, "messages[0].refusal"),
        ({"chat_template_kwargs": {"k": SURROGATE}}, "chat_template_kwargs.k"),
        ({"chat_template_kwargs": {"k": [1, {"x": SURROGATE}]}}, "chat_template_kwargs.k[1].x"),
    ],
)
@pytest.mark.parametrize("path", [PATH, "/tokenize"])
def test_a_lone_surrogate_is_named_by_its_path(llm, path, changes, param):
    """Wherever a chat has texts."""
    error = ask(app(llm), "POST", path, BODY | changes).error
    assert (error["code"], error["param"]) == ("text", param)
    assert error["message"] == f"{param}: character 1 is the lone surrogate U+D800, which is not text; repair it"


def test_the_id_of_a_request(llm):
    """The field `request_id` names the answer, cut to what a header can hold; else the header of the client does."""
    for stream in (False, True):
        reply = ask(app(llm), "POST", PATH, {**BODY, "stream": stream, "request_id": "my id\r\n7"})
        found = reply.events[0] if stream else reply.json
        assert (reply.headers["x-request-id"], found["id"]) == ("myid7", "chatcmpl-myid7")
    reply = ask(app(llm), "POST", PATH, BODY, headers={"x-request-id": "theirs"})
    assert reply.json["id"] == "chatcmpl-theirs"


# Messages


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"role": "assistant", "content": None, "tool_calls": None, "refusal": "no"}, "no"),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, "no"),
        ({"role": "assistant", "content": None}, ""),
        ({"role": "assistant", "content": "a", "annotations": [], "audio": None, "function_call": None}, "a"),
        ({"role": "user", "content": []}, ""),
    ],
    ids=str,
)
def test_messages_are_read_as_texts(llm, given, read):
    """Parts are joined by line ends; what an answer had beside its text may be sent back."""
    wanted = generated(llm, {}, [{"role": given["role"], "content": read}, MESSAGES[1]])
    found = ask(app(llm), "POST", PATH, {**BODY, "messages": [given, MESSAGES[1]]}).json
    assert found["choices"][0]["message"]["content"] == wanted.texts[0]
    assert found["usage"]["prompt_tokens"] == wanted.prompt_tokens[0]
    assert "warnings" not in found


@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        ({"role": "tool", "content": "x", "tool_call_id": "1"}, "option", "messages[0].tool_call_id"),
        ({"role": "function", "content": "x", "name": "f"}, "unsupported", "messages[0].role"),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, "option", "messages[0].tool_calls[0].type"),
        ({"role": "assistant", "content": "x", "audio": {"id": "1"}}, "unsupported", "messages[0].audio"),
        *(
            ({"role": "user", "content": [{"type": kind}]}, "unsupported_input", "messages[0].content[0]")
            for kind in ("image_url", "input_audio", "file", "video_url")
        ),
    ],
    ids=str,
)
def test_messages_that_are_not_text(llm, message, code, param):
    """A result needs its call; messages of functions, images, audio and files are not read at all."""
    reply = ask(app(llm), "POST", PATH, {**BODY, "messages": [message]})
    assert (reply.status, reply.error["code"], reply.error["param"]) == (400, code, param)


def _writes(messages: Sequence[Mapping[str, Any]], /, **args: Any) -> str:
    """A template that names the role `developer`, leaves out `cook`, and reads an argument."""
    turns = "".join(f"{m['role']}:{m['content']}<eos>" for m in messages if m["role"] != "cook")
    return f"{turns}{args.get('language', '')}"


def test_roles_that_the_template_does_not_know():
    """`developer` is `system` unless the template names it; a message that would be lost is an error."""
    developer = [{"role": "developer", "content": "Be brief."}, MESSAGES[1]]
    for source, role in (("{% if role == 'developer' %}", "developer"), ("{{ role }}", "system")):
        with fake(chat_template=_writes, chat_source=source) as llm:
            wanted = generated(llm, {}, [{"role": role, "content": "Be brief."}, MESSAGES[1]])
            found = ask(app(llm), "POST", PATH, {**BODY, "messages": developer}).json
            assert found["usage"]["prompt_tokens"] == wanted.prompt_tokens[0]
            assert found["choices"][0]["message"]["content"] == wanted.texts[0]
            other = [{"role": "narrator", "content": "x"}]
            assert ask(app(llm), "POST", PATH, {**BODY, "messages": other}).status == 200
            reply = ask(app(llm), "POST", PATH, {**BODY, "messages": [MESSAGES[1], {"role": "cook", "content": "x"}]})
            assert (reply.status, reply.error["param"]) == (400, "messages[1].role")


def test_arguments_of_the_chat_template():
    """They reach the template; `continue_final_message` lets the answer begin as the last message does."""
    begun = [MESSAGES[1], {"role": "assistant", "content": "Well, "}]
    with fake(chat_template=_writes) as llm:
        for fields, messages, prompting in (
            ({"chat_template_kwargs": {"language": "de"}}, MESSAGES, PromptParams(template_args={"language": "de"})),
            ({"continue_final_message": True}, begun, PromptParams(assistant_prefix="Well, ")),
        ):
            given = messages[:-1] if prompting.assistant_prefix else messages
            options = {"sampling": SamplingParams.UNCHANGED, "stopping": StopParams(max_tokens=12)}
            wanted = llm.generate(given, seed=7, prompting=prompting, **options)
            found = ask(app(llm), "POST", PATH, {**BODY, "messages": messages, **fields}).json
            assert found["choices"][0]["message"]["content"] == wanted.texts[0]
            assert found["usage"]["prompt_tokens"] == wanted.prompt_tokens[0]


@pytest.mark.parametrize(
    ("source", "fields", "args", "warned"),
    [
        ("{{ reasoning_effort }}", {"reasoning_effort": "low"}, {"reasoning_effort": "low"}, []),
        ("{{ reasoning_effort }}", {"reasoning_effort": "none"}, {"reasoning_effort": "none"}, []),
        ("{% if enable_thinking %}", {"reasoning_effort": "none"}, {"enable_thinking": False}, []),
        ("{% if enable_thinking %}", {"reasoning_effort": "high"}, {"enable_thinking": True}, []),
        (
            "{{ verbosity }}",
            {"verbosity": "low", "reasoning_effort": "low"},
            {"verbosity": "low"},
            ["reasoning_effort"],
        ),
        ("{{ verbosity }}", {"verbosity": "low", "chat_template_kwargs": {"verbosity": "x"}}, {"verbosity": "x"}, []),
        ("", {"reasoning_effort": "none", "verbosity": "medium"}, {}, []),
        ("", {"reasoning_effort": "high", "verbosity": "high"}, {}, ["reasoning_effort", "verbosity"]),
    ],
)
def test_effort_and_verbosity_go_to_templates_that_read_them(source, fields, args, warned):
    """As arguments, after those that the request names itself; others are named in warnings, of streams too."""
    moved = {}
    if "chat_template_kwargs" not in fields:
        moved = {
            "reasoning": {"effort": fields.get("reasoning_effort")},
            "text": {"verbosity": fields.get("verbosity")},
        }
    with fake(chat_template=_writes, chat_source=source) as llm:
        wanted = llm.generate(
            MESSAGES,
            seed=7,
            prompting=PromptParams(template_args=args),
            sampling=SamplingParams.UNCHANGED,
            stopping=StopParams(max_tokens=12),
        )
        found = ask(app(llm), "POST", PATH, {**BODY, **fields}).json
        assert found["choices"][0]["message"]["content"] == wanted.texts[0]
        assert [one.partition("=")[0] for one in found.get("warnings", [])] == warned
        streamed = ask(app(llm), "POST", PATH, {**BODY, **fields, "stream": True})
        assert streamed.events[0].get("warnings", []) == found.get("warnings", [])
        assert streamed.headers.get("x-selectrie-warning", "") == "; ".join(found.get("warnings", []))
        if moved:
            body = {"input": MESSAGES, "seed": 7, "max_output_tokens": 12, **moved}
            other = ask(app(llm), "POST", "/v1/responses", body).json
            assert other["output"][0]["content"][0]["text"] == wanted.texts[0]
            assert len(other.get("warnings", [])) == len(warned)


def test_a_model_without_a_chat_template():
    """400 that says so, before the stream begins too."""
    with fake(chat=False) as llm:
        for stream in (False, True):
            reply = ask(app(llm), "POST", PATH, {**BODY, "stream": stream})
            assert (reply.status, reply.error["code"]) == (400, "prompt")
            assert "no chat template" in reply.error["message"]
