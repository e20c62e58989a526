"""Documents in the order in which they fit a query: the scores are probabilities of `decide`."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie import Choice, DecisionParams
from selectrie.server import ServerOptions, app
from tests.support.deciding import fake
from tests.support.serving import ask

QUERY = "Where is my parcel?"
DOCUMENTS = ["Parcels arrive within a week.", "Cards are sent by post.", "Our office is closed."]


def rerank(llm, path="/v1/rerank", options=None, **fields):
    """The reply to a request for some documents."""
    body = {"model": "m", "query": QUERY, "documents": DOCUMENTS, **fields}
    return ask(app(llm, options or ServerOptions()), "POST", path, body)


def scores(reply) -> dict[int, float]:
    """The scores by the index of the document, in the order of the results."""
    return {one["index"]: one["relevance_score"] for one in reply.json["results"]}


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
def test_scores_are_probabilities_of_decide(path):
    """Of the query as an answer about the document, and without a document; the best comes first."""
    question, params = (
        Choice("Write a search query for which this text is relevant.", [QUERY]),
        DecisionParams(list_options=False),
    )
    params = replace(params, layout="state first")
    with fake() as llm:
        wanted = llm.decide_many(DOCUMENTS, question, params=params)
        gained = llm.decide_many(DOCUMENTS, question, params=replace(params, rule="pmi"))
        llm.trim()
        reply = rerank(llm, path)
    assert reply.status == 200
    found = scores(reply)
    for index, (plain, gain) in enumerate(zip(wanted, gained, strict=True)):
        n = len(plain.selection.choices[0].tokens)
        with_document = math.exp(plain.selection.logp / n)
        without = math.exp((plain.selection.logp - gain.selection.score) / n)
        assert found[index] == pytest.approx(with_document / (with_document + without), rel=1e-12)
    assert [*found.values()] == sorted(found.values(), reverse=True)
    assert reply.json["model"] == "hash-1"
    n_tokens = sum(one.usage.input_tokens for one in wanted)
    assert reply.json["usage"] == {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    assert reply.json["id"] == reply.headers["x-request-id"]


@settings(max_examples=10, deadline=None)
@given(st.permutations(range(5)))
def test_a_score_does_not_depend_on_the_other_documents(order):
    """Neither on their order nor on their number; of equal scores the first document comes first."""
    documents = [*DOCUMENTS, "Refunds take a month.", DOCUMENTS[0]]
    with fake() as llm:
        alone = {text: scores(rerank(llm, documents=[text]))[0] for text in documents}
        reply = rerank(llm, documents=[documents[index] for index in order])
    for place, score in scores(reply).items():
        assert score == alone[documents[order[place]]]
    first, second = sorted(place for place, index in enumerate(order) if documents[index] == DOCUMENTS[0])
    places = [*scores(reply)]
    assert places.index(second) == places.index(first) + 1


def test_what_is_returned():
    """The best of them, and their texts if the request says so, whatever their form."""
    with fake() as llm:
        plain = rerank(llm)
        few = rerank(llm, top_n=2, return_documents=True, documents=[{"text": one, "id": 7} for one in DOCUMENTS])
        many = rerank(llm, top_n=9)
    assert [*scores(few)] == [*scores(plain)][:2]
    assert [one["document"] for one in few.json["results"]] == [{"text": DOCUMENTS[at]} for at in scores(few)]
    assert "document" not in plain.json["results"][0]
    assert many.json["results"] == plain.json["results"]


def test_documents_are_evaluated_once_for_several_queries():
    """Prompts begin with the document, so its rows are in the cache."""
    documents = [f"{text} " * 9 for text in DOCUMENTS]
    with fake() as llm:
        rerank(llm, documents=documents)
        before = llm._model.rows
        again = rerank(llm, documents=documents, query="Why?")
        rows = llm._model.rows - before
        llm.trim()
        assert again.json["results"] == rerank(llm, documents=documents, query="Why?").json["results"]
    assert rows < again.json["usage"]["prompt_tokens"] - sum(map(len, documents)) / 2


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"query": " "}, "query", "expected a text that is not blank"),
        ({"query": None}, "query", "query is not given"),
        ({"documents": []}, "documents", "expected a list of documents"),
        ({"documents": ["a", 7]}, "documents[1]", "expected a text, or an object with a text"),
        ({"documents": ["a", {"text": 7}]}, "documents[1].text", "expected a text"),
        ({"documents": ["a", " "]}, "documents[1]", "expected a document that is not blank"),
        ({"documents": [{"image": "x", "text": "a"}]}, "documents[0].image", "images are not read"),
        ({"documents": ["a", "b " * 900]}, "documents[1]", "shorten"),
        ({"query": "b " * 900}, "query", "shorten"),
        ({"top_n": 0}, "top_n", "a whole number of at least 1"),
        ({"max_tokens_per_doc": 9}, "max_tokens_per_doc", "documents are not cut"),
        ({"rank_fields": ["title"]}, "rank_fields", "give documents as texts"),
        ({"documents": ["a"] * 1_025}, "documents", "at most 1024 documents in a request"),
    ],
)
def test_what_is_wrong_is_named(fields, param, message):
    """Before any call of the model."""
    with fake(nodes=600) as llm:
        reply = rerank(llm, **fields)
        assert llm._model.calls == 0
    assert (reply.status, reply.error["param"]) == (400, param)
    assert message in reply.error["message"]


def test_a_request_has_its_id_and_its_priority():
    """The id is in the answer; a priority needs the operator's leave."""
    with fake() as llm:
        assert rerank(llm, request_id="mine").json["id"] == "mine"
        assert rerank(llm, priority=-1).error["param"] == "priority"
        assert rerank(llm, options=ServerOptions(allow_priority=True), priority=-1).status == 200


def test_the_limit_of_rows_holds():
    """For all documents together."""
    with fake() as llm:
        reply = rerank(llm, options=ServerOptions(max_rows=100))
        assert (reply.status, reply.error["code"], llm._model.calls) == (400, "too_many_rows", 0)
