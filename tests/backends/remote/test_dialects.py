"""Servers of every kind, as their sources answer: rows, limits, what is asked for them, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("httpx2", reason="needs the extra 'remote'")

from selectrie.backends.remote.transport import JsonValue
from selectrie.core import numerics
from selectrie.core.path_model import Cancellation, RowQuery
from selectrie.errors import OptionError, ServerError, UnsupportedModelError
from selectrie.testing import check_path_model
from tests.support.deciding import BYTES
from tests.support.fake_servers import EchoServer, LlamaServer, SglangServer, VllmServer

NO_BOS = replace(BYTES, bos=None)
KINDS = {"vllm": VllmServer, "sglang": SglangServer, "llama-server": LlamaServer, "echo": EchoServer}


def ids(*tokens: int) -> np.ndarray:
    """Tokens as a query has them."""
    return np.array(tokens, dtype=np.int32)


def text(data: str, *more: int) -> np.ndarray:
    """The path of BOS and a text: a byte is its number plus 2."""
    return ids(0, *(2 + byte for byte in data.encode()), *more)


def asked(model, *queries: RowQuery):
    """The rows of queries."""
    return model.rows(queries, Cancellation())


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_the_model(opened, kind):
    """Named and most probable tokens have the values that the server has; the rest lies within its bounds, and no token
    beyond is more probable than the bound says."""
    server = KINDS[kind](3)
    model = opened(server)
    top = min(5, model.limits.top_ids)
    queries = [
        RowQuery(text("Hello"), ids(70, 80, 90)),
        RowQuery(text("He"), ids(7), top),
        RowQuery(text("a"), ids(), top),
    ]
    for query, row in zip(queries, asked(model, *queries), strict=True):
        logp = server.logp(query.path.tolist())
        assert np.array_equal(row.logp, logp[row.ids])
        assert set(query.named.tolist()) | set(np.argsort(-logp)[: query.top].tolist()) <= set(row.ids.tolist())
        others = np.delete(logp, row.ids)
        assert row.log_rest[0] <= numerics.logsumexp(others) <= row.log_rest[1]
        assert others.max(initial=-np.inf) <= row.rest_max
    assert model.tolerance == 0.0


def test_a_token_that_was_drawn_is_not_among_the_most_probable(opened):
    """It is one more value; the bound on others is that of the last of those that were asked for."""

    class Drawing(VllmServer):
        is_odd = False

        def _entry(self, row, token, named, n_top, *, as_ids):
            return super()._entry(row, int(row.argmin()) if self.is_odd else token, named, n_top, as_ids=as_ids)

    server = Drawing()
    model = opened(server)
    server.is_odd = True
    (row,) = asked(model, RowQuery(text("ab"), ids(), 4))
    logp = server.logp(text("ab").tolist())
    assert row.rest_max == np.sort(logp)[-4]
    assert set(row.ids.tolist()) == {*np.argsort(-logp)[:4].tolist(), int(logp.argmin())}


def test_no_other_token_is_more_probable_than_all_others_together(opened):
    """Where no most probable ones were asked for."""
    (row,) = asked(opened(VllmServer()), RowQuery(text("ab"), ids(7, 8)))
    assert row.rest_max == row.log_rest[1] < 0


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llama-server", "echo"])
@pytest.mark.parametrize(("n", "said"), [(1, "such as BOS, first"), (-1, "2 tokens were read, 3 were sent")])
def test_another_number_of_tokens_was_read(opened, kind, n, said):
    """A path that a server cut, or put something before, is no path that was asked about."""
    server = KINDS[kind](3)
    model = opened(server)

    def change(_path, answer):
        if kind == "sglang":
            answer[0]["meta_info"]["prompt_tokens"] += n
        elif kind == "llama-server":
            answer["tokens_evaluated"] += n
        else:
            answer["usage"]["prompt_tokens"] += n
        return answer

    server.change = change
    query = RowQuery(text("ab"), ids(2 + 97)) if kind != "echo" else RowQuery(text("a"), ids(2 + 97))
    with pytest.raises(ServerError, match=said):
        asked(model, query)


@pytest.mark.parametrize(
    ("value", "logp"), [(0, 0.0), (5e-4, 0.0), (-2.5, -2.5), (-9999.0, -math.inf), (-3.4028234663852886e38, -math.inf)]
)
def test_numbers_that_are_log_probabilities(value, logp):
    """Rounding may lift one above 0, and some stand for -inf."""
    assert JsonValue(value, "http://fake").logp() == logp


@pytest.mark.parametrize("value", [0.01, 1, math.inf, math.nan, 10**400, True, "0", None])
def test_numbers_that_are_none(value):
    """They are refused."""
    with pytest.raises(ServerError):
        JsonValue(value, "http://fake").logp()


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llama-server"])
def test_the_laws_of_the_port(opened, kind):
    """`check_path_model` on every kind of server that takes any token."""
    server = KINDS[kind](5)
    report = check_path_model(opened(server), seed=1, steps=40, n_asked=lambda: len(server.asked))
    assert report.rows_compared > 20
    assert report.refusals > 5
    assert report.worst_nats == 0.0


def test_what_servers_say_of_themselves(opened):
    """Names, versions, limits; a name that there is not is refused with those that there are."""
    found = {kind: opened(made()) for kind, made in KINDS.items()}
    assert found["vllm"].identity.build == "vLLM 0.32.0"
    assert found["sglang"].identity.build == "SGLang 0.6.1"
    assert found["llama-server"].identity.build == "llama-server b11434-0c1e57098"
    assert found["echo"].identity.build == "a server with echo"
    assert {one.identity.precision for one in found.values()} == {"remote"}
    assert found["vllm"].identity.name == "org/model"
    assert (found["vllm"].limits.named_ids, found["vllm"].limits.top_ids, found["vllm"].limits.path_tokens) == (
        128,
        20,
        511,
    )
    assert (found["sglang"].limits.queries_per_request, found["sglang"].limits.path_tokens) == (256, 511)
    assert (found["llama-server"].limits.top_ids, found["llama-server"].limits.requests_in_flight) == (258, 2)
    assert found["echo"].limits.top_ids == 0
    two = VllmServer(quirks=["two models"])
    with pytest.raises(OptionError, match="'a', 'b'"):
        opened(two)
    with pytest.raises(OptionError, match="'a', 'b'"):
        opened(two, model="c")
    assert opened(two, model="b").identity.name == "b"


def test_a_level_is_one_request_to_sglang(opened):
    """As many rows as a level has, each with its own named tokens."""
    server = SglangServer()
    model = opened(server)
    before = len(server.asked)
    asked(model, *(RowQuery(text("a", 2 + n), ids(n, n + 1)) for n in range(100)))
    assert [path for path, _ in server.asked[before:]] == ["/generate"]
    assert server.asked[-1][1]["token_ids_logprob"][7] == [7, 8]


def test_llama_server_is_asked_for_more_only_where_a_token_is_missing(opened):
    """A named token is drawn beside the 64 most probable ones, others alone; of tokens that cannot be drawn, or too many, all
    of the row are asked for."""
    server = LlamaServer()
    model = opened(server)
    logp = server.logp(text("ab").tolist())
    whole = [token for token in np.argsort(-logp).tolist() if BYTES.pieces[token] < b"\x80"]
    broken = next(token for token in np.argsort(-logp).tolist()[64:] if BYTES.pieces[token] >= b"\x80")
    for named, sizes, n_known in (
        (whole[:2], [64], 64),
        (whole[-1:], [64], 65),
        (whole[-3:], [64, 1, 1], 67),
        ([broken], [64, 258], 258),
        (whole[-40:], [64, 258], 258),
    ):
        before = len(server.asked)
        (row,) = asked(model, RowQuery(text("ab"), ids(*sorted(named))))
        assert [body["n_probs"] for _, body in server.asked[before:]] == sizes
        assert len(row.ids) == n_known
        assert np.array_equal(row.logp, logp[row.ids])
        others = np.delete(logp, row.ids)
        assert others.max(initial=-np.inf) <= row.rest_max
    assert row.log_rest == (-math.inf, -math.inf)


def test_llama_server_is_walked_depth_first(opened):
    """One path at a time, so that a slot has all but the last token of it."""
    server = LlamaServer()
    model = opened(server)
    before, server.most_in_flight = len(server.asked), 0
    paths = [text("b"), text("ab"), text("a"), text("abc"), text("aa")]
    asked(model, *(RowQuery(path, ids(9)) for path in paths))
    walked = [bytes(one - 2 for one in body["prompt"][1:]).decode() for _, body in server.asked[before:]]
    assert walked == ["a", "aa", "ab", "abc", "b"]
    assert server.most_in_flight == 1


def test_llama_server_draws_a_letter(opened):
    """It gives no probabilities of a token that ends within a character, so another one is drawn; a probability of 0 is none."""
    planted = np.full(258, -1000.0)
    planted[2 + 0xC3] = 0.0
    server = LlamaServer(planted={tuple(text("zz").tolist()): planted.tolist()})
    (row,) = asked(opened(server), RowQuery(text("zz"), ids(2 + 0xC3, 5)))
    assert row.logp[row.ids == 2 + 0xC3] == [0.0]
    assert row.logp[row.ids == 5] == [-math.inf]


def test_an_echo_costs_a_request_for_each_path_that_no_other_goes_on(opened):
    """Rows of one call share requests: three leaves of a trie, whatever its inner nodes are."""
    server = EchoServer()
    model = opened(server)
    a, b, c = (2 + byte for byte in b"abc")
    before = len(server.asked)
    rows = asked(
        model,
        RowQuery(text("x"), ids(a, b)),
        RowQuery(text("xa"), ids(a, b)),
        RowQuery(text("xab"), ids(c)),
        RowQuery(text("y"), ids()),
    )
    sent = [body["prompt"] for _, body in server.asked[before:]]
    assert sorted(sent) == ["xaa", "xabc", "xb"]
    for path, row in zip(("x", "xa", "xab"), rows[:3], strict=True):
        assert np.array_equal(row.logp, server.logp(text(path).tolist())[row.ids])
    assert len(rows[3].ids) == 0


def test_an_echo_of_token_ids(opened):
    """A server that takes ids gets ids, control tokens included."""
    server = EchoServer(vocabulary=NO_BOS, quirks=["takes ids"])
    model = opened(server, NO_BOS)
    (row,) = asked(model, RowQuery(ids(5, 1, 7), ids(0, 9)))
    assert np.array_equal(row.logp, server.logp([5, 1, 7])[[0, 9]])


def test_a_path_that_no_text_has_is_refused(opened):
    """A server of texts cannot be sent what reads as other tokens, or a part of a character."""
    model = opened(EchoServer())
    with pytest.raises(OptionError, match="takes texts alone"):
        asked(model, RowQuery(text("a"), ids(2 + 0xC3)))
    with pytest.raises(OptionError, match="takes texts alone"):
        asked(model, RowQuery(ids(5), ids(7)))


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (VllmServer(quirks=["echo before"]), "its values are off by one token"),
        (VllmServer(quirks=["echo after"]), "its values are off by one token"),
        (SglangServer(quirks=["echo before"]), "its values are off by one token"),
        (VllmServer(quirks=["wrong"]), "more than 1: its values cannot be relied on"),
        (LlamaServer(quirks=["cache"]), "more than 1: its values cannot be relied on"),
        (VllmServer(quirks=["other tokenizer"]), "give the tokenizer of the model that is served"),
        (SglangServer(quirks=["no tokenize"]), "does not say how it encodes texts"),
        (LlamaServer(quirks=["other size"]), "the model has 259 tokens, the given tokenizer 258"),
    ],
    ids=lambda one: str(one)[:20] if isinstance(one, str) else f"{type(one).__name__} {set(one.quirks)}",
)
def test_what_verification_refuses(opened, server, said):
    """Values that are off by one are named so; others, and other tokenizers, are refused."""
    with pytest.raises(UnsupportedModelError, match="http://fake") as refused:
        opened(server)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("server", "vocabulary", "said"),
    [
        (VllmServer(quirks=["counts bos"]), BYTES, "the server puts one, such as BOS, first"),
        (SglangServer(quirks=["counts bos"]), BYTES, "the server puts one, such as BOS, first"),
        (LlamaServer(quirks=["counts bos"]), BYTES, "the server puts one, such as BOS, first"),
        (VllmServer(quirks=["old"]), BYTES, "is not named by a token id"),
        (EchoServer(vocabulary=NO_BOS), NO_BOS, "the server's echo is off by one"),
    ],
    ids=str,
)
def test_counts_and_names_that_are_wrong(opened, server, vocabulary, said):
    """A BOS before ids, tokens by their texts, and llama_cpp.server on a model without BOS."""
    with pytest.raises(ServerError) as refused:
        opened(server, vocabulary)
    assert said in str(refused.value)


def test_a_bos_that_one_way_adds_is_named(opened):
    """It shows in the other reading, where the counts do not tell."""

    class Half(VllmServer):
        def logp(self, path):
            return super().logp([0, *path] if self.adds else path)

        def completions(self, body):
            self.adds = bool(body.get("echo"))
            return super().completions(body)

    with pytest.raises(UnsupportedModelError, match="it puts BOS before the token ids"):
        opened(Half(vocabulary=NO_BOS), replace(NO_BOS, declared_bos=0))


def test_the_tolerance_is_four_times_what_was_seen(opened):
    """Two readings that differ by 0.02 nats."""
    assert opened(VllmServer(quirks=["noise"])).tolerance == pytest.approx(0.08)


def test_a_tokenizer_must_be_given_where_it_is_not_handed_over(opened):
    """The error says what to give."""
    with pytest.raises(OptionError, match="tokenizer is not given; give the tokenizer of 'org/model'"):
        opened(VllmServer(), None)


def test_a_server_without_a_list_of_models_is_no_server(opened):
    """Any other HTTP server."""

    class Other(VllmServer):
        def routes(self):
            return {}

    with pytest.raises(UnsupportedModelError, match="has no /v1/models"):
        opened(Other())
