"""The page `/docs`: it shows what OpenAPI's description has, and neither it nor any other answer names another host."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie.server import app
from selectrie.server.application import api_page
from selectrie.server.calls.tokenizer import TokenizeChatBody, TokenizeTextBody
from tests.support.calling import LEAST
from tests.support.deciding import fake
from tests.support.serving import ask

QUESTIONS = [{"type": "predicate", "instructions": "It rains."}]
BODIES = {
    "/v1/decisions": {"input": "x", "questions": QUESTIONS},
    "/v1/systemone": {"state": "x", "questions": {"q": {"type": "noul", "instructions": "It rains."}}},
    "/v1/classify": {"text": "x", "labels": ["a", "b"]},
    "/classify": {"text": "x", "labels": ["a", "b"]},
    "/v1/extract": {"input": "x", "schema": {"type": "boolean"}},
    **{path: {"query": "x", "documents": ["a"]} for path in ("/v1/rerank", "/rerank", "/v2/rerank")},
    **LEAST,
    "/v1/completions": {"prompt": "a", "max_tokens": 1, "seed": 1},
    "/v1/responses": {"input": "a", "max_output_tokens": 2},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "seed": 1},
    "/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [3]},
    "/v1/vocabulary/encode": {"texts": ["YQ=="]},
}
_HOST = re.compile(r"//[\w\[]")


class Page(HTMLParser):
    """The texts of a page, and the tags and links in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Keep a tag, and where it leads."""
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name in {"href", "src", "action"}]

    def handle_data(self, data):
        """Keep a text."""
        self.texts.append(data.strip())


def test_the_page_shows_every_endpoint_and_field():
    """Without scripts, forms, pictures or links but to the description itself; a browser is to load nothing else."""
    application = app(None)
    reply = ask(application, "GET", "/docs")
    page, paths = Page(reply.data.decode()), ask(application, "GET", "/openapi.json").json["paths"]
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert reply.headers["content-security-policy"].startswith("default-src 'none';")
    assert not page.tags & {"script", "img", "link", "iframe", "form", "object"}
    assert page.links == ["openapi.json"]
    for path, methods in paths.items():
        assert all(f"{method.upper()} {path}" in page.texts for method in methods)
    assert {*TokenizeTextBody.model_fields, *TokenizeChatBody.model_fields} <= set(page.texts)
    assert "string or array of integer or array of string or array of array of integer" in page.texts
    assert "required; The text, in which control tokens are read." in page.texts
    assert "required; The ids of the tokens." in page.texts


def test_names_are_escaped():
    """Whatever a description says is text."""
    made = api_page({"info": {"title": "<b>&", "version": "1"}, "paths": {}})
    assert "<title>&lt;b&gt;&amp; 1</title>" in made


def test_nothing_names_another_host():
    """No answer and no header of any endpoint has an address, so a browser never calls a third party."""
    with fake() as llm:
        application = app(llm)
        paths = ask(application, "GET", "/openapi.json").json["paths"]
        asked = [(method, path) for path, methods in paths.items() for method in methods]
        replies = [ask(application, method.upper(), path, BODIES.get(path)) for method, path in asked]
        assert [reply.status for reply in replies].count(200) == len(asked) - 1  # there is no model {name}
        replies += [ask(application, "GET", path) for path in ("/docs", "/openapi.json", "/nothing", "/v1/decisions")]
        replies += [ask(application, "POST", path, {}) for path in ("/v1/embeddings", *BODIES)]
    assert {path for method, path in asked if method == "post"} == set(BODIES)
    for reply in replies:
        assert not _HOST.search(reply.data.decode())
        assert not any(_HOST.search(value) or name == "location" for name, value in reply.headers.items())


def test_streams_are_described():
    """Of each endpoint that has them."""
    paths = ask(app(None), "GET", "/openapi.json").json["paths"]
    kinds = {path: one["post"]["responses"]["200"]["content"] for path, one in paths.items() if "post" in one}
    streamed = {path for path, content in kinds.items() if "text/event-stream" in content}
    assert {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/render"} <= streamed
    assert not {"/v1/decisions", "/tokenize"} & streamed
