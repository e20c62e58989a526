"""The models of bodies: each field refuses what its declaration does not allow, and OpenAPI's document is the same declaration."""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated, Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie.errors import OptionError
from selectrie.options import SamplingParams
from selectrie.server import ServerOptions, app
from selectrie.server.application import BODIES, statuses_of
from selectrie.server.calls.call_bodies import CALLS
from selectrie.server.fields.reading import flat_union_members, read, schemas_of
from selectrie.server.fields.wire import Body, NotOffered, with_options
from selectrie.server.transport.http_errors import HttpError
from selectrie.server.transport.middleware import OPEN
from tests.support import calling
from tests.support.deciding import fake
from tests.support.serving import ask

OPTIONS = ServerOptions()
QUESTION = {"type": "predicate", "instructions": "It rains."}
LEAST: dict[str, dict[str, Any]] = {
    "DecisionsBody": {"input": "x", "questions": [QUESTION]},
    "SystemoneBody": {"state": "x", "questions": {"q": {"type": "noul", "instructions": "It rains."}}},
    "ResponsesBody": {"input": "x"},
    "ChatBody": {"messages": [{"role": "user", "content": "a"}]},
    "CompletionBody": {"prompt": "a"},
    "TokenizeTextBody": {"prompt": "a"},
    "TokenizeChatBody": {"messages": [{"role": "user", "content": "a"}]},
    "DetokenizeBody": {"tokens": [3]},
    "EncodeBody": {"texts": ["YQ=="]},
    **{CALLS[path].body.__name__: body for path, body in calling.LEAST.items()},
    "ClassifyBody": {"text": "x", "labels": ["a", "b"]},
    "ExtractBody": {"input": "x", "schema": {"type": "boolean"}},
    "RerankBody": {"query": "x", "documents": ["a"]},
}
"""The least that each model takes."""
PATHS = {kind: path for path, kinds in BODIES.items() for kind in kinds}
FIELDS = [(kind, field.alias or name) for kind in PATHS for name, field in kind.model_fields.items()]
VALUES: dict[str, Any] = {
    "string": "Q" * 300,
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "array": [],
    "object": {},
}


def wrong_types(schema, schemas) -> list[Any]:
    """A value of each type of JSON that a schema does not allow."""
    members = list(flat_union_members(schema, schemas))
    if any("type" not in one and "enum" not in one for one in members):
        return []  # anything goes
    taken = {kind for one in members for kind in ([one["type"]] if "type" in one else types_of(one["enum"]))}
    taken |= {"integer"} if "number" in taken else set()
    return [value for kind, value in VALUES.items() if kind not in taken]


def types_of(values) -> set[str]:
    """The types of values."""
    names = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    return {names[type(value)] for value in values if value is not None}


def outside(schema, schemas) -> list[Any]:
    """Values of the right type on the wrong side of each bound."""
    found: list[Any] = []
    for one in flat_union_members(schema, schemas):
        found += [one["minimum"] - 1] if "minimum" in one else []
        found += [one["maximum"] + 1] if "maximum" in one else []
        found += [one["exclusiveMinimum"]] if "exclusiveMinimum" in one else []
        found += [one["exclusiveMaximum"]] if "exclusiveMaximum" in one else []
        found += [[]] if one.get("minItems") and one["type"] == "array" else []
        found += [{}] if one.get("minProperties") else []
        found += [[None] * (one["maxItems"] + 1)] if "maxItems" in one else []
        found += ["Q" * 300] if one.get("enum") and all(isinstance(value, str) for value in one["enum"]) else []
    return found


def refused(kind, name, value):
    """The error about a field of a body."""
    with pytest.raises((OptionError, HttpError)) as caught:
        read(kind, {**LEAST[kind.__name__], name: value}, OPTIONS)
    return caught.value


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=lambda one: one if isinstance(one, str) else one.__name__)
def test_each_field_refuses_what_it_does_not_declare(kind, name):
    """A wrong type and a value beyond a bound: under its path, with at most 80 characters of the value, and never in pydantic's words."""
    schemas = schemas_of([kind], OPTIONS)
    schema = schemas[kind.__name__]["properties"][name]
    values = wrong_types(schema, schemas) + outside(schema, schemas)
    ignored = schema.get("description", "").startswith("Taken")
    assert bool(values) != ignored
    for value in values:
        error = refused(kind, name, value)
        param = error.name if isinstance(error, OptionError) else error.param
        message = error.message if isinstance(error, HttpError) else str(error)
        assert param == name or param.startswith((f"{name}[", f"{name}.")), (value, message)
        assert message.startswith(param)
        assert "Q" * 81 not in message
        assert not any(said in message for said in ("Input should", "pydantic", "input_value", "https://"))


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=lambda one: one if isinstance(one, str) else one.__name__)
def test_each_field_says_what_it_means_and_takes_null(kind, name):
    """Every field has a description; null is as if an optional one were not given."""
    schemas = schemas_of([kind], OPTIONS)
    own = schemas[kind.__name__]
    assert own["properties"][name]["description"].endswith(".")
    if name not in own.get("required", ()):
        least = LEAST[kind.__name__]
        assert read(kind, {**least, name: None}, OPTIONS) == read(
            kind, {k: v for k, v in least.items() if k != name}, OPTIONS
        )


def test_an_option_of_the_engine_is_offered():
    """Also where the body lists its name among those that are not offered."""

    @with_options(SamplingParams, "top_p")
    class Listed(Body):
        top_p: Annotated[Any, NotOffered()] = None
        min_p: Annotated[Any, NotOffered()] = None

    assert read(Listed, {"top_p": 0.5}, OPTIONS).top_p == 0.5
    with pytest.raises(HttpError, match="min_p"):
        read(Listed, {"min_p": 0.5}, OPTIONS)


@pytest.mark.parametrize("kind", PATHS, ids=lambda kind: kind.__name__)
def test_required_fields_are_named(kind):
    """Where one is left out, and where it is null."""
    for name in schemas_of([kind], OPTIONS)[kind.__name__].get("required", ()):
        data = LEAST[kind.__name__]
        for body in ({key: value for key, value in data.items() if key != name}, {**data, name: None}):
            with pytest.raises(OptionError, match=f"^{name} is not given; give ") as caught:
                read(kind, body, OPTIONS)
            assert caught.value.name == name


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("ChatBody", {"n": 0}, "n=0: expected a whole number from 1 to 128"),
        ("ChatBody", {"temperature": "1"}, "temperature='1': expected a number of at least 0 (0 = the most probable token)"),
        ("ChatBody", {"stop": ["a", 7]}, "stop[1]=7: expected a text that is not empty"),
        ("ChatBody", {"stream": 1}, "stream=1: expected true or false"),
        ("ChatBody", {"structured_outputs": {"regex": 1}}, "structured_outputs.regex=1: expected a text"),
        ("CompletionBody", {"prompt": ["a", 7]}, "prompt[1]=7: expected a token id (a whole number of at least 0) or a text or a list of token ids"),
        ("DecisionsBody", {"scoring": "x"}, "scoring='x': expected one of 'text', 'letters'"),
        ("DecisionsBody", {"permutations": 65}, "permutations=65: expected a whole number from 1 to 64 or one of 'all', 'auto'"),
        ("SystemoneBody", {"questions": {"text": {"type": 1}}}, "questions.text.type=1: expected one of 'choice', "),
        ("SystemoneBody", {"questions": {"a": "x"}}, "questions.a='x': expected an object with a type"),
        ("SystemoneBody", {"questions": {"a": {"type": "noul", "criteria": 1}}}, "questions.a.criteria=1: expected an object"),
        ("DetokenizeBody", {"tokens": [1, True]}, "tokens[1]=True: expected a token id"),
    ],
)  # fmt: skip
def test_errors_say_what_the_document_says(kind, changes, message):
    """The path, the value, and what the schema of the field allows."""
    (found,) = [one for one in PATHS if one.__name__ == kind]
    with pytest.raises(OptionError) as caught:
        read(found, {**LEAST[kind], **changes}, OPTIONS)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("kind", "changes", "name"),
    [
        ("DetokenizeBody", {"tokens": ["x"] * 10_000}, "tokens[0]"),
        ("CompletionBody", {"prompt": [[None] * 10_000]}, "prompt[0][0]"),
        ("ChatBody", {"messages": [{"role": 7}] * 4_000}, "messages[0].role"),
        ("ChatBody", {"structured_outputs": {f"x{number}": 1 for number in range(10_000)}}, "structured_outputs.x0"),
        ("SystemoneBody", {"questions": {"q": {"type": "choice", "criteria": dict.fromkeys(map(str, range(10_000)), 1)}}}, "questions.q.criteria"),
    ],
    ids=["ids", "prompts", "messages", "unknown fields", "options"],
)  # fmt: skip
def test_the_first_of_many_wrong_items_is_named(kind, changes, name):
    """The others are not looked at, so a body of wrong items costs no more than a right one."""
    (found,) = [one for one in PATHS if one.__name__ == kind]
    with pytest.raises(OptionError) as caught:
        read(found, {**LEAST[kind], **changes}, OPTIONS)
    assert caught.value.name == name
    assert caught.value.__cause__.error_count() == 1


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (
            "DecisionsBody",
            {"questions": [{"type": "choice", "choices": {"dict": "a", "x": 5}}]},
            "questions[0].choices.x=5: expected a text, or an object or array of JSON",
        ),
        (
            "SystemoneBody",
            {"questions": {"q": {"type": "choice", "criteria": {"a" * 100: "b", "str": 5, "list": 5}}}},
            "questions.q.criteria.str=5: expected a text, or an object or array of JSON",
        ),
        (
            "SystemoneBody",
            {"questions": {"q": {"type": "choice", "criteria": {"a" * 100: 5}}}},
            "questions.q.criteria[0]=5: expected a text, or an object or array of JSON",
        ),
        (
            "DecisionsBody",
            {"questions": [{"type": "choice", "choices": [{"text": "a"}]}]},
            "questions[0].choices[0].value is not given; give a value",
        ),
        ("TokenizeChatBody", {"prompt": "a"}, "prompt='a': expected a prompt or messages, not both"),
    ],
)
def test_an_error_names_the_place_and_what_is_allowed(kind, changes, message):
    """Whatever the names of the client are; and pydantic makes no error of each wrong description."""
    (found,) = [one for one in PATHS if one.__name__ == kind]
    with pytest.raises(OptionError) as caught:
        read(found, {**LEAST[kind], **changes}, OPTIONS)
    assert str(caught.value) == message
    assert caught.value.__cause__.error_count() == 1


def test_the_document_has_statuses_errors_and_keys():
    """For each endpoint: the statuses that come, their schema, what a key is, and no other status."""
    for options in (OPTIONS, ServerOptions(key_digests=[sha256(b"k").digest()])):
        document = ask(app(None, options), "GET", "/openapi.json", headers={"x-api-key": "k"}).json
        for path, methods in document["paths"].items():
            for one in methods.values():
                assert set(one["responses"]) == {"200", *map(str, statuses_of(path))}
                for status, reply in one["responses"].items():
                    schema = next(iter(reply["content"].values()))["schema"]
                    error = "SystemoneError" if path == "/v1/systemone" else "Error"
                    assert status == "200" or schema == {"$ref": f"#/components/schemas/{error}"}
                    assert reply["description"]
                keys = [] if path in OPEN else [{"bearer": []}, {"key": []}]
                assert one["security"] == (keys if options.key_digests or not keys else [*keys, {}])
        assert document["components"]["securitySchemes"]["bearer"] == {"type": "http", "scheme": "bearer"}
        assert set(document["components"]["schemas"]["Error"]["properties"]) == {"error"}
        assert set(document["components"]["schemas"]["ErrorDetail"]["properties"]) == {
            "message",
            "type",
            "param",
            "code",
        }


def test_the_document_has_the_limits_of_its_server():
    """They are options, so two servers may have two documents."""
    document = ask(app(None, ServerOptions(max_n=3, max_stops=5)), "GET", "/openapi.json").json
    fields = document["components"]["schemas"]["ChatBody"]["properties"]
    assert fields["n"]["anyOf"][0] == {"type": "integer", "minimum": 1, "maximum": 3}
    assert "x-limit" not in str(document)
    assert any(one.get("maxItems") == 5 for one in flat_union_members(fields["stop"], {}))


def test_what_is_answered_is_in_the_document():
    """Errors of each kind that a test can cause have a status that the document names, and its shape."""
    with fake() as llm:
        application = app(
            llm, ServerOptions(max_body_bytes=1_000, strict_model=True, key_digests=[sha256(b"k").digest()])
        )
        paths = ask(application, "GET", "/openapi.json", headers={"x-api-key": "k"}).json["paths"]
        for path in BODIES:
            for headers, data in (
                ({}, b"{}"),
                ({"x-api-key": "k"}, b"{"),
                ({"x-api-key": "k"}, b"x" * 1_001),
                ({"x-api-key": "k", "content-type": "text/plain"}, b"{}"),
            ):
                reply = ask(application, "POST", path, data=data, headers=headers)
                assert str(reply.status) in paths[path]["post"]["responses"]
                assert set(reply.error) == {"message", "type", "param", "code"}
