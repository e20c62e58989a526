"""A model's vocabulary over HTTP: it reads back as it was, and its texts have the tokens of the engine."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from hashlib import sha256

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

import numpy as np

import selectrie
from selectrie import ModelPool
from selectrie.backends.remote.transport import JsonValue
from selectrie.backends.remote.vocabulary import read_vocabulary, vocabulary_object
from selectrie.core.vocabulary import Spacing, TokenizerKind, Tokenizing
from selectrie.errors import ServerError
from selectrie.server import ServerOptions, app
from tests.support.deciding import BYTES, fake
from tests.support.serving import ask

URL = "http://127.0.0.1/v1/vocabulary"


def read(data, own=BYTES):
    """A vocabulary from what was sent; texts are encoded by the one it came from."""
    inside = own.tokenize if own.spacing is None else own.spacing.encode_inside
    answer = JsonValue.parse(data if isinstance(data, bytes) else json.dumps(data).encode(), URL)
    return read_vocabulary(answer, begin=own.tokenize, inside=inside, normalize=own.normalize or str)


def of(*texts: bytes) -> list[str]:
    """Texts as they are sent."""
    return [base64.b64encode(text).decode() for text in texts]


@pytest.fixture(scope="module")
def llm():
    """An engine on a fake: BOS is 0, EOS is 1, a byte is its number plus 2."""
    with fake() as made:
        yield made


RICH = replace(
    BYTES,
    texts=("<bos>", "<eos>\udc80", *BYTES.texts[2:]),
    bos=None,
    declared_bos=0,
    eog=np.array([1, 7], dtype=np.int32),
    space_prefix=True,
    spacing=Spacing(BYTES.tokenize, after_control=True, before_space=False),
    normalize=str.lower,
    bos_in_chats=False,
    strips_left=np.array([0], dtype=np.int32),
    strips_right=np.array([1], dtype=np.int32),
    white_space=" \u3000",
    user_defined=np.array([9], dtype=np.int32),
    ambiguous=frozenset({b"<eos>", b"\xff"}),
    examine=lambda _: Tokenizing(TokenizerKind.MERGES, frozenset({b"\x80", b"ab"}), splits_locally=False),
)
"""A vocabulary in which nothing has its usual value."""


def test_a_vocabulary_reads_back_as_it_was(tiny_model):
    """Every field, the digest and how the tokenizer works; of a fake, of one where nothing is usual, and of real ones with
    their chat templates."""
    fields = "pieces texts bos eos space_prefix declared_bos bos_in_chats white_space ambiguous tokenizing digest chat_source"
    with selectrie.load(n_threads=1) as embedded, selectrie.load(tiny_model("f32"), n_threads=1, n_ctx=64) as tiny:
        for own in (BYTES, RICH, embedded.vocabulary, tiny.vocabulary):
            found = read(json.loads(json.dumps(vocabulary_object(own))), own)
            for name in fields.split():
                assert getattr(found, name) == getattr(own, name), name
            for name in ("eog", "control", "strips_left", "strips_right", "user_defined"):
                assert np.array_equal(getattr(found, name), getattr(own, name)), name
            assert (found.normalize is None) == (own.normalize is None)
            assert (found.spacing is None) == (own.spacing is None)
            if own.chat_source:
                chat = [{"role": "user", "content": "Hello <|im_end|>"}]
                assert found.chat_template(chat) == own.chat_template(chat)


def test_what_is_sent_is_compressed_for_who_takes_it(llm):
    """The same bytes for one that takes gzip, with the digest of the engine's vocabulary."""
    plain = ask(app(llm), "GET", "/v1/vocabulary")
    packed = ask(app(llm), "GET", "/v1/vocabulary", headers={"accept-encoding": "br, gzip;q=0.5"})
    refusing = ask(app(llm), "GET", "/v1/vocabulary", headers={"accept-encoding": "gzip;q=0, identity"})
    assert (plain.status, packed.status) == (200, 200)
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in {**plain.headers, **refusing.headers}
    assert gzip.decompress(packed.data) == plain.data == refusing.data
    assert read(plain.data).digest == llm.vocabulary.digest
    assert len(packed.data) < len(plain.data)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "format is 2: expected 1"),
        ({"digest": "00"}, "digest is not the digest of what was sent"),
        ({"bos": 1}, "digest is not the digest"),
        ({"bos": 258}, "bos is token 258"),
        ({"bos": -1}, "expected a whole number"),
        ({"eog": [1, 258]}, "eog has token 258"),
        ({"control": [True]}, "expected a list of whole numbers"),
        ({"lengths": [1]}, "lengths add up to 1"),
        ({"lengths": []}, "lengths add up to 0"),
        ({"pieces": "é"}, "pieces is not base64"),
        ({"texts": ["a"]}, "texts has 1 items: expected 258"),
        ({"texts": None}, "has no 'texts'"),
        ({"space_prefix": 0}, "expected true or false"),
        ({"tokenizing": {"kind": "x", "splits_locally": True}}, "tokenizing.kind is 'x'"),
        ({"chat": []}, "chat is []: expected an object"),
        ({"spacing": {"after_control": True}}, "spacing has no 'before_space'"),
    ],
    ids=str,
)
def test_a_vocabulary_that_cannot_be_right_is_refused(change, said):
    """Nothing is made of an object with a wrong part; the error names the part."""
    with pytest.raises(ServerError, match="v1/vocabulary") as refused:
        read({**vocabulary_object(BYTES), **change})
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"format": 1, "format": 1}', b'{"format": NaN}', b"[" * 100_000, b"\xff"]
)
def test_what_is_no_object_of_json_is_refused(data):
    """Names that come twice, NaN, depth without end and other bytes are one error."""
    with pytest.raises(ServerError):
        read(data)


def test_texts_are_encoded_as_the_engine_does(llm):
    """Plain texts, control spellings and bytes that are no UTF-8 included; where a text has no tokens, the others have theirs."""
    texts = [b"ab", b"", b"<bos>a", b"\xff\xfe", "é🤗".encode()]
    found = ask(app(llm), "POST", "/v1/vocabulary/encode", {"texts": of(*texts)}).json
    assert found == {"tokens": [[2 + byte for byte in text] for text in texts], "reasons": [None] * 5}
    few = fake(tokenize=selectrie.testing.make_vocabulary([b"a"]).tokenize)
    with few:
        found = ask(app(few), "POST", "/v1/vocabulary/encode", {"texts": of(b"a", b"b")}).json
    assert found["tokens"] == [[2], None]
    assert found["reasons"][0] is None
    assert "no token" in found["reasons"][1]


def test_forms_of_a_text():
    """Inside another text the tokenizer for that is asked; a normalised text is what the tokenizer reads."""
    inside = Spacing(lambda text: [7] * len(text), after_control=True, before_space=True)
    with fake(space_prefix=True, spacing=inside, normalize=str.lower) as llm:
        asked = {"texts": of("AÉ".encode(), b"\xff")}
        assert ask(app(llm), "POST", "/v1/vocabulary/encode", {**asked, "form": "inside"}).json["tokens"] == [
            [7] * 3,
            [7],
        ]
        normal = ask(app(llm), "POST", "/v1/vocabulary/encode", {**asked, "form": "normalize", "x": 1}).json
    assert normal["texts"] == of("aé".encode(), b"\xff")
    assert normal["warnings"] == ["the field 'x' is unknown and was ignored"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "texts"),
        ({"texts": []}, "texts"),
        ({"texts": ["YQ=="] * 1_001}, "texts"),
        ({"texts": ["YQ==", "é"]}, "texts[1]"),
        ({"texts": ["a b"]}, "texts[0]"),
        ({"texts": [1]}, "texts[0]"),
        ({"texts": ["YQ=="], "form": "other"}, "form"),
    ],
    ids=lambda one: str(one)[:30],
)
def test_what_is_wrong_is_named(llm, body, param):
    """400 with the path to the value."""
    reply = ask(app(llm), "POST", "/v1/vocabulary/encode", body)
    assert (reply.status, reply.error["code"], reply.error["param"]) == (400, "option", param)


def test_keys_and_a_drain(llm):
    """Both need a key where others do, and are work: none is taken while the server drains."""
    application = app(llm, ServerOptions(key_digests=[sha256(b"k").digest()]))
    for method, path, body in [("GET", "/v1/vocabulary", None), ("POST", "/v1/vocabulary/encode", {"texts": of(b"a")})]:
        assert ask(application, method, path, body).status == 401
        headers = {"x-api-key": "k"}
        application.state.is_draining = False
        assert ask(application, method, path, body, headers=headers).status == 200
        application.state.is_draining = True
        assert ask(application, method, path, body, headers=headers).error["code"] == "draining"
    assert application.state.n_open == 0


def test_a_pool_has_a_vocabulary_for_each_model(tiny_model):
    """`model` picks, in the query or the body."""
    with ModelPool({"a": str(tiny_model("f32")), "b": None}, n_ctx=256, n_threads=1) as pool:
        application = app(pool)
        found = [ask(application, "GET", "/v1/vocabulary", query=f"model={name}").json for name in "ab"]
        assert found[0]["digest"] != found[1]["digest"]
        for name in "ab":
            body = {"model": name, "texts": of(b"Hello there")}
            with pool.use(name) as engine:
                own = [engine.vocabulary.encode(b"Hello there").tolist()]
            assert ask(application, "POST", "/v1/vocabulary/encode", body).json["tokens"] == own
        assert ask(application, "GET", "/v1/vocabulary").error["code"] == "model_not_found"
