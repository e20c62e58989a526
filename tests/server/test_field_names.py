"""Unknown fields of a request: what stands for a known one is refused, anything else is ignored."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie.server import app
from selectrie.server.decisions.decisions import DecisionsBody
from selectrie.server.fields.reading import advice_on_names
from selectrie.server.generation.chat import ChatBody
from tests.support.deciding import fake
from tests.support.serving import ask

OF_CLIENTS = """
adapter_id api_base api_key background betas bootstrap_host cache_control container conversation custom_params details
dimensions documents dry_penalty_last_n extra_headers format id_slot image_data include keep_alive kv_transfer_params
lora_path mcp_servers models modalities num_ctx options parse_tool_calls plugins provider raw reasoning_format
response_fields return_full_text return_tokens rid route session_params stop_token stream_reasoning thinking timeout
transforms typical_p usage watermark
"""


@pytest.mark.parametrize(
    ("path", "field", "meant"),
    [
        ("/v1/chat/completions", {"temprature": 0}, "did you mean temperature?"),
        ("/v1/chat/completions", {"maxTokens": 5}, "did you mean max_tokens?"),
        ("/v1/chat/completions", {"max_new_tokens": 5}, "did you mean max_tokens?"),
        ("/v1/chat/completions", {"choices": ["a", "b"]}, "give structured_outputs in its place"),
        ("/v1/completions", {"regex": "a|b"}, "give structured_outputs in its place"),
        ("/v1/completions", {"min_confidence": 0.9}, "argument of the Python API that this endpoint does not have"),
        ("/v1/decisions", {"min_confidance": 0.9}, "did you mean min_confidence?"),
        ("/v1/decisions", {"choices": ["a", "b"]}, "give questions in its place"),
        ("/v1/decisions", {"threshold": 0.9}, "argument of the Python API that this endpoint does not have"),
        ("/v1/systemone", {"lay-out": "auto"}, "did you mean layout?"),
        ("/v1/extract", {"json_schema": {}}, "give schema in its place"),
        ("/v1/select", {"budget_nodes": 1}, "give `search.budget_nodes`"),
        ("/v1/beam", {"budget_nodes": 1}, "give `beam.budget_nodes`"),
        ("/v1/render", {"seed": 1}, "give `rendering.seed`"),
        ("/v1/select", {"seed": 1}, "it is a field of other calls; leave it out"),
        ("/v1/rank", {"regex": "a"}, "it is a field of other calls; leave it out"),
    ],
)
def test_a_name_that_stands_for_a_field_is_refused(path, field, meant):
    """Nothing is asked with another meaning than the client had; the error names the field to give."""
    asked = {"type": "predicate", "instructions": "It rains."}
    body = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
        "/v1/completions": {"prompt": "x"},
        "/v1/decisions": {"input": "x", "questions": [asked]},
        "/v1/systemone": {"state": "x", "questions": {"q": asked}},
        "/v1/extract": {"input": "x", "schema": {"type": "boolean"}},
        "/v1/select": {"prompt": "x", "choices": ["a", "b"]},
        "/v1/rank": {"prompt": "x", "choices": ["a", "b"]},
        "/v1/beam": {"prompt": "x", "regex": "[ab]"},
        "/v1/render": {"template": "x"},
    }[path]
    with fake() as llm:
        reply = ask(app(llm), "POST", path, body | field)
    status = 422 if path == "/v1/systemone" else 400  # TypeSafe's own
    assert (reply.status, reply.error["code"], reply.error["param"]) == (status, "unknown_argument", next(iter(field)))
    assert meant in reply.error["message"]


@pytest.mark.parametrize("body", [ChatBody, DecisionsBody])
def test_fields_of_other_servers_are_no_mistakes(body):
    """Clients send many, and they must go on being answered."""
    assert advice_on_names([*{*OF_CLIENTS.split()} - body.model_fields.keys()], body.model_fields) is None


def test_many_unknown_names_are_read_in_time():
    """Only the first hundred are compared with every field; names of other libraries are found anywhere."""
    many = [f"x{number}" for number in range(5_000)]
    assert advice_on_names([*many, "temprature"], ["temperature"]) is None
    assert advice_on_names(["temprature", *many], ["temperature"]) == ("temprature", "did you mean temperature?")
    assert advice_on_names([*many, "Max-Tokens"], ["max_tokens"]) == ("Max-Tokens", "did you mean max_tokens?")
