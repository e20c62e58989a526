"""This project's server as a model: on a fake equal to the last bit, on real weights within the measured tolerance."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest

pytest.importorskip("httpx2", reason="needs the extra 'remote'")
pytest.importorskip("fastapi", reason="needs the extra 'server'")

import selectrie
from selectrie import ModelPool
from selectrie.backends.remote.vocabulary import read_tokenizer
from selectrie.core.path_model import Cancellation, RowQuery
from selectrie.core.vocabulary import Spacing
from selectrie.errors import ServerError, TextError, UnsupportedModelError
from selectrie.server import ServerOptions, app
from selectrie.testing import PathsOf, check_path_model, make_vocabulary
from tests.support.deciding import BYTES, fake
from tests.support.serving import running

TEXTS = ("Hello there", " a", "", "é🤗", "<|im_end|> plain", "two  spaces\n\n", "x" * 300)


def queries(vocabulary, rng: np.random.Generator, n: int, *, longest: int = 12) -> list[RowQuery]:
    """Random queries after BOS."""
    made = []
    for _ in range(n):
        path = [vocabulary.start, *rng.integers(vocabulary.n_tokens, size=int(rng.integers(longest)))]
        named = rng.choice(vocabulary.n_tokens, size=int(rng.integers(128)), replace=False)
        made.append(RowQuery(np.array(path, dtype=np.int32), named.astype(np.int32), int(rng.integers(21))))
    return made


def test_the_laws_of_the_port(opened):
    """`check_path_model` on the application of a fake, a call that waits included."""
    with fake(2) as llm:
        report = check_path_model(opened(app(llm), None), seed=5, steps=20)
    assert report.rows_compared > 20
    assert report.worst_nats == 0.0


def test_values_are_those_of_the_model_to_the_last_bit(opened):
    """Named and most probable tokens; every interval contains what the model itself says."""
    with fake(3) as llm, fake(3) as alone:
        model, local = opened(app(llm), None), PathsOf(alone._model)
        assert model.tolerance == 0.0
        asked = queries(model.vocabulary, np.random.default_rng(1), 30)
        for query, row, own in zip(
            asked, model.rows(asked, Cancellation()), local.rows(asked, Cancellation()), strict=True
        ):
            common = np.isin(row.ids, own.ids)
            assert np.array_equal(row.ids[common], own.ids)
            assert np.array_equal(row.logp[common], own.logp)
            (exact,) = local.rows([RowQuery(query.path, row.ids)], Cancellation())
            assert np.array_equal(row.logp, exact.logp)
            assert row.log_rest[0] <= exact.log_rest[0] <= row.log_rest[1]
            assert exact.rest_max <= row.rest_max


@pytest.fixture(scope="module")
def tiny(tiny_model):
    """A tiny model of random weights, which is loaded and checked once."""
    with selectrie.load(tiny_model("f32"), n_ctx=256, n_threads=1) as llm:
        yield llm


@pytest.mark.parametrize("kind", ["stories", "tiny"])
def test_values_of_real_weights_are_within_the_tolerance(opened, tiny, tiny_model, embedded, kind):
    """The root mean square over rows of a model that rounds; the tolerance, four times that of probable tokens, is no bound,
    and never less than the model's own."""
    path = embedded if kind == "stories" else tiny_model("f32")
    with ExitStack() as stack:
        llm = tiny if kind == "tiny" else stack.enter_context(selectrie.load(path, n_ctx=256, n_threads=1))
        alone = stack.enter_context(selectrie.load(path, n_ctx=256, n_threads=1))
        model, local = opened(app(llm), None), PathsOf(alone._model)
        limit = model.tolerance
        assert limit >= llm.tolerance
        assert limit < 0.1
        assert model.vocabulary.digest == alone.vocabulary.digest
        asked = queries(model.vocabulary, np.random.default_rng(2), 12)
        moves = []
        for query, row in zip(asked, model.rows(asked, Cancellation()), strict=True):
            (own,) = local.rows([RowQuery(query.path, row.ids)], Cancellation())
            moves.append(row.logp - own.logp)
        assert np.sqrt(np.mean(np.concatenate(moves) ** 2)) <= limit


def test_texts_have_the_tokens_of_the_engine(opened, tiny, tiny_model):
    """Asked of the server, or of the tokenizer that is given."""
    model = opened(app(tiny), None)
    n = model.transport.n_requests
    for text in TEXTS:
        assert np.array_equal(model.vocabulary.encode(text.encode()), tiny.vocabulary.encode(text.encode()))
    asked = model.transport.n_requests - n
    for text in TEXTS:
        model.vocabulary.encode(text.encode())
    assert model.transport.n_requests - n == asked > 0
    given = opened(app(tiny), read_tokenizer(tiny_model("f32")))
    n = given.transport.n_requests
    for text in TEXTS:
        assert np.array_equal(given.vocabulary.encode(text.encode()), tiny.vocabulary.encode(text.encode()))
    assert given.transport.n_requests == n


def test_texts_and_paths_that_the_server_cannot_take(opened):
    """With the server's reason. A path that does not fit the server's context is refused here."""
    ascii_alone = make_vocabulary(bytes([code]) for code in range(128)).tokenize
    with fake(tokenize=ascii_alone, nodes=64) as llm:
        model = opened(app(llm), None)
        assert model.limits.path_tokens == 63
        with pytest.raises(TextError, match="no token"):
            model.vocabulary.encode("é".encode())


def test_every_function_of_a_tokenizer_is_asked(opened):
    """Texts inside others, and normalised ones."""

    def begin(text: bytes) -> list[int]:
        return BYTES.tokenize(text.upper())

    inside = Spacing(lambda text: begin(text)[::-1], after_control=True, before_space=True)
    with fake(
        space_prefix=True, spacing=inside, normalize=lambda text: text.encode().upper().decode(), tokenize=begin
    ) as llm:
        found = opened(app(llm), None).vocabulary
        assert found.spacing.encode_inside(b"ab") == BYTES.tokenize(b"BA")
        assert found.normalized("éa".encode()) == "éA".encode()
        assert found.normalized(b"\xff") == b"\xff"


def test_another_tokenizer_is_refused(opened):
    """By its digest, before a text is encoded."""
    with fake() as llm, pytest.raises(UnsupportedModelError, match="digest"):
        opened(app(llm), replace(BYTES, eos=2))


def test_a_pool_serves_by_name(opened, tiny_model):
    """Each model has its own vocabulary."""
    with ModelPool({"a": str(tiny_model("f32")), "b": None}, n_ctx=256, n_threads=1) as pool:
        application = app(pool)
        found = {name: opened(application, None, model=name) for name in "ab"}
    assert found["a"].vocabulary.digest != found["b"].vocabulary.digest
    assert found["b"].identity.name == "b"


def test_over_sockets_with_a_key():
    """As it is used: uvicorn, a key, a call that is cancelled, which ends its work there."""
    from selectrie.backends.remote.opening import open_server
    from selectrie.backends.remote.transport import Server

    options = ServerOptions(key_digests=[sha256(b"k").digest()])
    with fake(4) as llm, running(app(llm, options)) as url:
        with pytest.raises(ServerError, match="401"):
            open_server(Server(url))
        model = open_server(Server(url, api_key="k", timeout_s=20.0))
        (row,) = model.rows([RowQuery(np.array([0, 5], dtype=np.int32), np.array([7], dtype=np.int32))], Cancellation())
        assert row.ids.tolist()[0] == 7
        model.close()


def test_many_threads_share_a_connection(opened):
    """Each gets its own rows."""
    with fake(6) as llm:
        model = opened(app(llm), None)
        asked = [queries(model.vocabulary, np.random.default_rng(seed), 5) for seed in range(4)]
        alone = [model.rows(part, Cancellation()) for part in asked]
        found: dict[int, list] = {}
        threads = [
            threading.Thread(target=lambda i=i, part=part: found.update({i: model.rows(part, Cancellation())}))
            for i, part in enumerate(asked)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        for i, part in enumerate(alone):
            assert all(np.array_equal(a.logp, b.logp) for a, b in zip(part, found[i], strict=True))
