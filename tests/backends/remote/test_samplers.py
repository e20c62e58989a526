"""`generate` by the samplers of servers: what they are sent, what they answer, and what is refused before that."""

from __future__ import annotations

import asyncio
import math
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("httpx2", reason="needs the extra 'remote'")
pytest.importorskip("fastapi", reason="needs the extra 'server'")

import selectrie
from selectrie import Engine, GenerationParams, Grammar, SamplingParams, StopParams
from selectrie.backends.remote.sampling import filters_after_temperature
from selectrie.engine.path_runtime import PathRuntime
from selectrie.errors import (
    ClosedError,
    DeadlineError,
    IncompatibleOptionsError,
    PromptTooLongError,
    SelectrieError,
    ServerError,
    ServerOptionError,
    WholeRowsError,
)
from selectrie.options import PromptParams
from selectrie.server import app
from tests.support.deciding import BYTES, fake
from tests.support.fake_servers import STALL, EchoServer, LlamaServer, SglangServer, VllmServer

KINDS = {"vllm": VllmServer, "sglang": SglangServer, "llama-server": LlamaServer, "echo": EchoServer}
PLAIN = SamplingParams.UNCHANGED
GREEDY = SamplingParams.GREEDY
WORDS = Grammar.from_regex("[a-z]+")
BIASED = SamplingParams(1.0, 0, 1.0, 0.0, logit_bias={70: 2.5})


def changed(**changes):
    """`UNCHANGED` but for these."""
    return SamplingParams(**{"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, **changes})


def opened_on(application, vocabulary, **options):
    """The model of an ASGI application, asked in this process."""
    import httpx2

    from selectrie.backends.remote.opening import open_server
    from selectrie.backends.remote.transport import Server

    return open_server(
        Server("http://fake", **{"timeout_s": 20.0, **options}),
        read_tokenizer=None if vocabulary is None else lambda _: vocabulary,
        http_transport=httpx2.ASGITransport(application),
    )


@pytest.fixture(scope="module")
def engines():
    """Engines on fakes by kind and options, each opened once, since opening compares 200 texts."""
    made = {}
    yield made
    for llm, _ in made.values():
        llm.close()


@pytest.fixture
def serving(engines):
    """Give an engine on a fake of a kind, and the fake, whose log begins after `connect`."""

    @contextmanager
    def serve(kind, *quirks, **options):
        key = (kind, quirks, *options.items())
        if key not in engines or engines[key][0].closed:
            server = KINDS[kind](3, quirks=quirks)
            engines[key] = Engine(PathRuntime(opened_on(server, BYTES, **options))), server
        llm, server = engines[key]
        server.asked.clear()
        server.plans.clear()
        server.planted.clear()
        server.stalled.clear()
        server.left.clear()
        server.change = lambda _path, answer: answer
        yield llm, server

    return serve


@pytest.fixture(scope="module")
def own():
    """An engine on our own server of a fake model, and an engine on that model here."""
    with fake(3) as served, fake(3) as local, Engine(PathRuntime(opened_on(app(served), None))) as llm:
        yield llm, local


def ids(text: str) -> list[int]:
    """The tokens of a text after which nothing is."""
    return [2 + byte for byte in text.encode()]


FIELDS = ("prompt_index", "index", "text", "data", "tokens", "alternatives", "logp", "healed", "log_heal")
ENDS = ("finish", "stop", "ended_by", "seed", "named")


@pytest.mark.parametrize("options", [
    {"n": 3},
    {"sampling": GREEDY},
    {"sampling": SamplingParams(1.3, 20, 0.9, 0.02, 0.8, 1.2, 0.1, 0.2, 8, {70: 3.0})},
    {"stopping": StopParams(max_tokens=60, stop=["a", "qz"])},
    {"stopping": StopParams(max_tokens=60, min_tokens=5, stop_tokens=[*range(2, 40)])},
    {"stopping": StopParams(max_tokens=30, ignore_eog=True), "sampling": changed(logit_bias={1: 9.0})},
    {"sampling": changed(logit_bias={1: 9.0})},
    {"options": GenerationParams(n_alternatives=3)},
    {"options": GenerationParams(best_of=5), "n": 2},
    {"n": 40, "stopping": StopParams(max_tokens=2)},
    {"options": GenerationParams(grammar=WORDS, n_alternatives=2), "n": 3},
    {"options": GenerationParams(grammar=Grammar.from_choices(["left", "left-hand", "é"]), best_of=4), "n": 2},
    {"options": GenerationParams(grammar=Grammar.from_gbnf('s ::= [a-f]{2,4} ("!" | s)', root="s")), "sampling": PLAIN},
])  # fmt: skip
def test_our_own_server_draws_what_an_engine_here_draws(own, options):
    """The same records to the last bit, but for what only the engine that draws knows."""
    llm, local = own
    prompts = ["Hello", [0, *ids("ab")]]
    options = {"stopping": StopParams(max_tokens=12), **options}
    found = llm.generate(prompts, seed=5, **options)
    here = local.generate(prompts, seed=5, **options)
    assert found.sampled_by == f"selectrie {selectrie.__version__}"
    assert (here.sampled_by, found.identity.precision) == (None, "remote")
    assert (found.n_drawn, found.prompt_tokens, found.n) == (here.n_drawn, here.prompt_tokens, here.n)
    for one, other in zip(found, here, strict=True):
        for name in (*FIELDS, *ENDS):
            assert getattr(one, name) == getattr(other, name), name
        assert one.close_steps is None
    assert (found.cost.model_calls, found.cost.rows) == (4 if len(here) == 80 else 2, 0)


SENT = {
    "vllm": (
        {
            "n": 2,
            "seed": 7,
            "sampling": SamplingParams(0.5, 9, 1.0, 0.25, repeat_penalty=1.5, penalty_last_n=-1, logit_bias={70: 2.5}),
            "stopping": StopParams(max_tokens=9, stop=["q"], stop_tokens=[5], min_tokens=1),
            "options": GenerationParams(n_alternatives=2),
        },
        [
            {
                "model": "org/model",
                "prompt": [0, *ids("ab")],
                "n": 2,
                "seed": 7,
                "max_tokens": 9,
                "stop": ["q"],
                "stop_token_ids": [5],
                "min_tokens": 1,
                "logit_bias": {"70": 2.5},
                "temperature": 0.5,
                "top_k": 9,
                "top_p": 1.0,
                "min_p": 0.0625,
                "repetition_penalty": 1.5,
                "presence_penalty": 0,
                "frequency_penalty": 0,
                "logprobs": 2,
                "return_tokens_as_token_ids": True,
                "add_special_tokens": False,
            }
        ],
    ),
    "sglang": (
        {
            "n": 2,
            "seed": 7,
            "sampling": SamplingParams(1.0, 0, 0.5, 0.25, logit_bias={70: 2.5}),
            "stopping": StopParams(max_tokens=9, stop_tokens=[5], min_tokens=1),
        },
        [
            {
                "input_ids": [[0, *ids("ab")]] * 2,
                "sampling_params": [
                    {
                        "temperature": 1.0,
                        "top_k": -1,
                        "top_p": 0.5,
                        "min_p": 0.25,
                        "max_new_tokens": 9,
                        "repetition_penalty": 1,
                        "presence_penalty": 0,
                        "frequency_penalty": 0,
                        "sampling_seed": seed,
                        "stop_token_ids": [5],
                        "min_new_tokens": 1,
                        "logit_bias": {"70": 2.5},
                    }
                    for seed in (7, 8)
                ],
                "return_logprob": True,
                "logprob_start_len": [-1, -1],
            }
        ],
    ),
    "llama-server": (
        {
            "n": 2,
            "seed": 7,
            "sampling": SamplingParams(0.5, 9, 0.9, 0.2, 0.8, 1.5, 0.1, 0.2, -1, {70: 2.5, 71: -math.inf}),
            "stopping": StopParams(max_tokens=9, stop=["q"], ignore_eog=True),
        },
        [
            {
                "prompt": [0, *ids("ab")],
                "seed": seed,
                "n_predict": 9,
                "samplers": ["penalties", "top_k", "typ_p", "top_p", "min_p", "temperature"],
                "temperature": 0.5,
                "top_k": 9,
                "top_p": 0.9,
                "min_p": 0.2,
                "typical_p": 0.8,
                "repeat_penalty": 1.5,
                "presence_penalty": 0.1,
                "frequency_penalty": 0.2,
                "repeat_last_n": 12,
                "dynatemp_range": 0,
                "mirostat": 0,
                "min_keep": 0,
                "backend_sampling": False,
                "logit_bias": [[70, 2.5], [71, False]],
                "ignore_eos": True,
                "stop": ["q"],
                "n_probs": 1,
                "post_sampling_probs": False,
                "return_tokens": True,
                "cache_prompt": True,
            }
            for seed in (7, 8)
        ],
    ),
    "echo": (
        {"n": 2, "seed": 7, "sampling": SamplingParams(), "stopping": StopParams(max_tokens=9, stop=["q"])},
        [
            {
                "model": "m",
                "prompt": "ab",
                "max_tokens": 9,
                "temperature": 0.8,
                "top_p": 0.95,
                "top_k": 40,
                "min_p": 0.05,
                "seed": seed,
                "stop": ["q"],
            }
            for seed in (7, 8)
        ],
    ),
}


@pytest.mark.parametrize("kind", SENT)
def test_every_option_arrives_under_the_name_of_the_server(serving, kind):
    """Whole bodies, so that nothing else is sent either; the result says who drew it."""
    options, bodies = SENT[kind]
    with serving(kind, "deterministic") as (llm, server):
        found = llm.generate("ab", **options)
        assert sorted((body for _, body in server.asked), key=str) == sorted(bodies, key=str)
        assert found.sampled_by == llm.identity.build
        assert found.to_dict()["sampled_by"] == llm.identity.build
        assert [one.seed for one in found] == [7, 8]
        assert found.cost.model_calls == len(bodies)


@pytest.mark.parametrize(("kind", "field"), [
    ("vllm", lambda body: body["structured_outputs"]["grammar"]),
    ("sglang", lambda body: body["sampling_params"][0]["ebnf"]),
    ("llama-server", lambda body: body["grammar"]),
])  # fmt: skip
def test_a_grammar_is_sent_as_gbnf_and_its_texts_are_checked(serving, kind, field):
    """The start rule is named root; a text that a server drew all the same is an error."""
    grammar = Grammar.from_gbnf('start ::= word "."\nword ::= [a-z]+', root="start")
    how = {"sampling": PLAIN, "options": GenerationParams(grammar=grammar), "stopping": StopParams(max_tokens=4)}
    with serving(kind) as (llm, server):
        for text, tokens in (("ab.", [*ids("ab."), 1]), ("abcd", ids("abcd"))):
            server.plans.append(tokens)
            assert llm.generate("x", **how)[0].text == text
        sent = field(server.asked[0][1])
        assert sent.startswith("root ::= start\n")
        assert Grammar.from_gbnf(sent).digest == Grammar.from_gbnf("root ::= start\n" + grammar.to_gbnf()).digest
        for tokens in ([*ids("ab"), 1], ids("ab.c"), ids("AB"), [*ids("ab"), 1]):
            server.plans.append((tokens + ids("xxxx"))[: 4 if 1 not in tokens else len(tokens)])
            with pytest.raises(ServerError, match="no text of the grammar"):
                llm.generate("x", **how)


HERE = "load the model here"
REFUSED = [
    ("", {"options": GenerationParams(choices=["a"])}, "choices", "use `select`"),
    ("", {"options": GenerationParams(heal=True)}, "heal", "set heal=False"),
    ("", {"options": GenerationParams(named=[5])}, "named", "`prompt_logprobs`"),
    ("", {"stopping": StopParams(when=lambda _: True)}, "when", "use `stop`"),
    ("", {"draft": lambda: None}, "draft", HERE),
    ("", {"options": GenerationParams(grammar=WORDS), "prompting": PromptParams(delimiter=" ")}, "delimiter", "prompt"),
    ("vllm", {"sampling": PLAIN, "seed": 1 << 63}, "seed", "smaller"),
    ("echo", {"sampling": PLAIN, "seed": 1 << 32}, "seed", "smaller"),
    ("own", {"sampling": changed(logit_bias={5: -math.inf})}, "logit_bias", HERE),
    ("own", {"options": GenerationParams(n_alternatives=21)}, "n_alternatives", "fewer"),
    ("vllm", {"sampling": SamplingParams()}, "top_p", "set top_p=1 and filter by `min_p`"),
    ("vllm", {"sampling": changed(top_p=0.9, min_p=0.1)}, "min_p", "min_p=0"),
    ("vllm", {"sampling": changed(top_p=0.0)}, "top_p", "set top_k=1"),
    ("vllm", {"sampling": changed(typical_p=0.9)}, "typical_p", HERE),
    ("vllm", {"sampling": changed(presence_penalty=0.1)}, "presence_penalty", HERE),
    ("vllm", {"sampling": changed(frequency_penalty=0.1)}, "frequency_penalty", HERE),
    ("vllm", {"sampling": changed(repeat_penalty=1.1)}, "penalty_last_n", "penalty_last_n=-1"),
    ("vllm", {"sampling": changed(temperature=0.001)}, "temperature", "set temperature=0"),
    ("vllm", {"sampling": changed(logit_bias={5: 101.0})}, "logit_bias", "smaller"),
    ("vllm", {"sampling": changed(logit_bias={5: -math.inf})}, "logit_bias", HERE),
    ("vllm", {"stopping": StopParams(ignore_eog=True)}, "ignore_eog", HERE),
    ("sglang", {"sampling": SamplingParams()}, "top_p", "set top_p=1"),
    ("sglang", {"sampling": changed(top_p=0.9, top_k=5)}, "top_k", "top_k=0"),
    ("sglang", {"sampling": changed(repeat_penalty=1.1)}, "repeat_penalty", HERE),
    ("sglang", {"sampling": changed(temperature=1e-7)}, "temperature", "set temperature=0"),
    ("sglang", {"sampling": PLAIN, "seed": 3}, "seed", "--enable-deterministic-inference"),
    ("sglang", {"sampling": PLAIN, "stopping": StopParams(min_tokens=2, stop=["a"])}, "min_tokens", "`stop`"),
    ("sglang", {"sampling": changed(temperature=0.5), "options": GenerationParams(best_of=2)}, "best_of", "=1"),
    ("sglang", {"sampling": PLAIN, "options": GenerationParams(n_alternatives=1)}, "n_alternatives", HERE),
    ("sglang", {"sampling": PLAIN, "stopping": StopParams(ignore_eog=True)}, "ignore_eog", HERE),
    ("llama-server", {"stopping": StopParams(min_tokens=2)}, "min_tokens", HERE),
    ("llama-server", {"stopping": StopParams(stop_tokens=[5])}, "stop_tokens", HERE),
    ("llama-server", {"options": GenerationParams(n_alternatives=1)}, "n_alternatives", HERE),
    ("llama-server", {"options": GenerationParams(best_of=2)}, "best_of", "leave out"),
    ("llama-server", {"options": GenerationParams(grammar=WORDS)}, "top_k", "switch the filters off"),
    ("llama-server", {"seed": (1 << 32) - 2, "n": 2}, "seed", "smaller"),
    ("echo", {"stopping": StopParams(stop_tokens=[5])}, "stop_tokens", HERE),
    ("echo", {"sampling": BIASED}, "logit_bias", HERE),
    ("echo", {"sampling": changed(repeat_penalty=1.1)}, "repeat_penalty", HERE),
    ("echo", {"options": GenerationParams(best_of=2)}, "best_of", "leave out"),
    ("echo", {"options": GenerationParams(grammar=WORDS)}, "grammar", HERE),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case[0]}-{case[2]}")
def test_what_a_sampler_cannot_apply_is_refused_before_anything_is_sent(serving, own, case):
    """One error with the option, the server and the remedy; the engine goes on."""
    kind, options, name, remedy = case
    if kind == "own":
        check_refused(own[0], options, name, remedy)
        return
    for one in [kind] if kind else KINDS:
        with serving(one) as (llm, server):
            check_refused(llm, {"sampling": PLAIN, **options} if not kind else options, name, remedy)
            assert server.asked == []


def check_refused(llm, options, name, remedy):
    """The refusal names all that it must, and no request was sent."""
    transport = llm._runtime._completer.transport
    n = transport.n_requests
    with pytest.raises(ServerOptionError) as refused:
        llm.generate([0, *ids("ab")] if name != "heal" else "ab", **options)
    assert (refused.value.name, refused.value.server) == (name, llm.identity.build)
    assert remedy in refused.value.allowed
    assert all(part in str(refused.value) for part in (name, llm.identity.build, refused.value.allowed))
    if name != "heal":  # the tokens of the text are asked of our own server
        assert transport.n_requests == n


def test_other_servers_of_openais_api_get_what_is_standard(serving):
    """Without the filters that llama_cpp.server has, whose names others would ignore."""
    with serving("echo", "takes ids") as (llm, server):
        llm._runtime._completer.dialect.is_llama_cpp = False
        for sampling, name in ((SamplingParams(), "top_k"), (changed(temperature=0.8, top_p=0.9), "top_p")):
            with pytest.raises(ServerOptionError) as refused:
                llm.generate("ab", sampling=sampling)
            assert refused.value.name == name
        assert server.asked == []
        found = llm.generate("ab", sampling=changed(temperature=0.5), stopping=StopParams(max_tokens=3))
        assert server.asked[0][1] == {
            "model": "m",
            "prompt": [0, *ids("ab")],
            "max_tokens": 3,
            "temperature": 0.5,
            "top_p": 1.0,
        }
        assert found[0].seed is None


def test_a_prompt_whose_end_is_certain_needs_no_healing(serving):
    """`heal` changes nothing there, so it is no reason to refuse."""
    with serving("vllm") as (llm, _):
        how = {"sampling": PLAIN, "stopping": StopParams(max_tokens=2), "options": GenerationParams(heal=True)}
        assert len(llm.generate([0, *ids("ab"), 1], **how)[0].tokens) == 2


ENDED = [
    ([*ids("abc"), 1], "abc", "eog", None, 1),
    (ids("abcq!"), "abc", "stop", "q!", None),
    (ids("abcdef"), "abcdef", "length", None, None),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ended", ENDED, ids=["eog", "stop", "length"])
def test_ends_are_those_of_a_sequence_that_is_drawn_here(serving, kind, ended):
    """End of generation, stop strings and the maximum; what a server does not tell is None."""
    tokens, text, finish, stop, ended_by = ended
    with serving(kind) as (llm, server):
        server.plans.append(tokens)
        how = StopParams(max_tokens=6, stop=["q!"])
        (found,) = llm.generate("x", sampling=PLAIN, stopping=how)
        told = kind != "echo"
        assert (found.text, found.data) == (text, text.encode())
        assert found.finish == (finish if told or finish != "eog" else "stop")
        assert (found.stop, found.ended_by) == ((stop, ended_by) if told else (None, None))
        assert [one.id for one in found.tokens] == (tokens if told else [])
        row = [float(server.logp([0, *ids("x"), *tokens[:n]])[token]) for n, token in enumerate(tokens)]
        if kind in {"vllm", "sglang"} or (kind == "llama-server" and finish != "stop"):
            assert [one.logp for one in found.tokens] == pytest.approx(row, abs=1e-6)
            assert found.logp == pytest.approx(sum(row), abs=1e-5)
        else:
            assert found.logp is None


def test_without_stop_strings_the_end_of_a_text_is_certain(serving):
    """OpenAI's API says "stop" for both."""
    with serving("echo") as (llm, server):
        server.plans.append([*ids("abc"), 1])
        found = llm.generate("x", sampling=PLAIN)
        assert (found[0].finish, found.n_drawn) == ("eog", 4)
        assert found.to_openai()["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_a_stop_token_ends_a_sequence(serving, kind):
    """It is named, and is no text."""
    with serving(kind) as (llm, server):
        server.plans.append(ids("abq"))
        (found,) = llm.generate("x", sampling=PLAIN, stopping=StopParams(stop_tokens=ids("q")))
        assert (found.text, found.finish, found.stop, found.ended_by) == ("ab", "stop", None, ids("q")[0])


def test_what_llama_server_does_not_tell_is_not_guessed(serving):
    """Values of tokens that end within a character, and those of a stop word, are unknown."""
    with serving("llama-server") as (llm, server):
        server.plans.append([*ids("aé"), 1])
        (found,) = llm.generate("x", sampling=PLAIN)
        assert found.text == "aé"
        assert [math.isnan(one.logp) for one in found.tokens] == [False, True, True, True]
        assert found.logp is None
        assert found.to_dict()["tokens"][1]["logp"] is None


def test_sglang_tells_values_at_the_temperature(serving):
    """They are not those of the model, so they are unknown."""
    with serving("sglang") as (llm, _):
        how = StopParams(max_tokens=3)
        for sampling in (changed(temperature=0.5), BIASED):
            (found,) = llm.generate("x", sampling=sampling, stopping=how)
            assert (len(found.tokens), found.logp, found.seed) == (3, None, None)
        assert llm.generate("x", sampling=GREEDY, stopping=how)[0].logp is not None


def spoil(path, value):
    """A change of an answer: `value` in place of what is at the path."""

    def change(_, answer):
        one = answer
        for step in path[:-1]:
            one = one[step]
        one[path[-1]] = value
        return answer

    return change


@pytest.mark.parametrize(("kind", "path", "value"), [
    ("vllm", ["choices"], []),
    ("vllm", ["choices", 0, "index"], 1),
    ("vllm", ["choices", 0, "finish_reason"], "abort"),
    ("vllm", ["choices", 0, "finish_reason"], None),
    ("vllm", ["choices", 0, "logprobs"], None),
    ("vllm", ["choices", 0, "logprobs", "tokens"], ["a", "b", "c"]),
    ("vllm", ["choices", 0, "logprobs", "tokens"], ["token_id:1", "token_id:2", "token_id:999"]),
    ("vllm", ["choices", 0, "logprobs", "tokens"], ["token_id:5"] * 4),
    ("vllm", ["choices", 0, "logprobs", "token_logprobs"], [0.0, 0.0]),
    ("vllm", ["choices", 0, "logprobs", "token_logprobs"], [1.0, 0.0, 0.0]),
    ("vllm", ["usage", "prompt_tokens"], 3),
    ("sglang", [0, "meta_info", "finish_reason", "type"], "abort"),
    ("sglang", [0, "meta_info", "output_token_logprobs"], [[0.0, 5, None]]),
    ("sglang", [0, "meta_info", "output_token_logprobs"], [[0.0, 5, None]] * 4),
    ("sglang", [0, "meta_info", "output_token_logprobs"], [[0.0]] * 3),
    ("sglang", [0, "meta_info", "output_token_logprobs"], [[0.0, 999, None]] * 3),
    ("sglang", [0, "meta_info", "prompt_tokens"], 1),
    ("llama-server", ["stop_type"], "none"),
    ("llama-server", ["tokens"], [5]),
    ("llama-server", ["tokens"], [5, 5, 999]),
    ("llama-server", ["tokens_evaluated"], 3),
    ("llama-server", ["completion_probabilities", 0, "id"], 5),
    ("echo", ["choices", 0, "text"], None),
    ("echo", ["choices", 0, "finish_reason"], "content_filter"),
    ("echo", ["usage", "completion_tokens"], 4),
    ("echo", ["usage", "prompt_tokens"], 7),
])  # fmt: skip
def test_an_answer_that_cannot_be_right(serving, kind, path, value):
    """It is one `ServerError`, never a text."""
    with serving(kind) as (llm, server):
        server.plans.append(ids("abc"))
        server.change = spoil(path, value)
        with pytest.raises(ServerError):
            llm.generate("x", sampling=PLAIN, stopping=StopParams(max_tokens=3))


def test_a_stop_string_that_the_tokens_do_not_spell(serving):
    """What a server says of an end is compared with its tokens."""
    with serving("vllm") as (llm, server):
        server.plans.append(ids("abc"))
        server.change = lambda _, answer: spoil(["choices", 0, "stop_reason"], "q")(
            _, spoil(["choices", 0, "finish_reason"], "stop")(_, answer)
        )
        with pytest.raises(ServerError, match="do not spell"):
            llm.generate("x", sampling=PLAIN, stopping=StopParams(max_tokens=3, stop=["q"]))


FEW = {"sampling": PLAIN, "stopping": StopParams(max_tokens=1)}


def test_requests_are_repeated_and_limited(serving):
    """As those of rows: again after 503, at most as many at once as may be, each counted once."""
    with serving("vllm", concurrency=2) as (llm, server):
        server.most_in_flight = 0
        server.planted += [(503, {"retry-after-ms": "1"}, {}), None, None]
        found = llm.generate(["a"] * 9, **FEW)
        assert (len(found), len(server.asked), found.cost.model_calls) == (9, 10, 9)
        assert server.most_in_flight <= 2


def test_an_error_names_its_prompt(serving):
    """The request fails as a whole, and the engine goes on."""
    with serving("vllm", concurrency=1) as (llm, server):
        server.planted += [None, (400, {}, {"error": {"message": "no such thing"}})]
        with pytest.raises(ServerError, match="no such thing") as failed:
            llm.generate(["a", "b", "c"], **FEW)
        assert failed.value.request == 1
        server.planted.clear()
        assert len(llm.generate("a", **FEW)) == 1
        assert llm.select("a", ["b", "c"]).text in "bc"


@pytest.mark.parametrize("how", ["deadline", "close"])
def test_what_ends_a_call_closes_its_connection(serving, how):
    """So the server sees that its client has left."""
    with serving("vllm") as (llm, server):
        transport = llm._runtime._completer.transport
        server.planted.append(STALL)
        server.cancelled = 0
        if how == "deadline":
            with pytest.raises(DeadlineError):
                llm.generate("a", **FEW, options=GenerationParams(deadline_s=0.02))
            transport.run(lambda: asyncio.wait_for(server.left.wait(), 10))
        else:
            errors = []

            def ask():
                try:
                    llm.generate("a", **FEW)
                except SelectrieError as error:
                    errors.append(type(error))

            thread = threading.Thread(target=ask)
            thread.start()
            transport.run(server.stalled.wait)
            llm.close()
            thread.join(20)
            assert errors == [ClosedError]
        assert server.cancelled == 1


def test_a_recording_has_no_text_of_a_server(serving, tmp_path):
    """No rows are read, so nothing could be replayed; it is refused before anything is sent."""
    with serving("vllm") as (llm, server):
        with selectrie.record(llm, tmp_path / "t"), pytest.raises(IncompatibleOptionsError, match="outside the block"):
            llm.generate("a", **FEW)
        assert server.asked == []
        assert len(llm.generate("a", **FEW)) == 1


def test_streams_are_refused_with_what_to_do_instead(serving):
    """And so is what reads rows."""
    with serving("vllm") as (llm, server):
        with pytest.raises(WholeRowsError, match=r"`stream` .*use `generate`, or"):
            llm.stream("a", **FEW)
        with pytest.raises(WholeRowsError, match=r"`sample` .*use `select`"):
            llm.sample("a", WORDS)
        assert server.asked == []


def test_a_prompt_that_does_not_fit(serving):
    """With as many tokens as may be drawn, as here."""
    with serving("llama-server") as (llm, server):
        with pytest.raises(PromptTooLongError, match="lower max_tokens"):
            llm.generate("a" * 250, sampling=PLAIN, stopping=StopParams(max_tokens=20))
        assert server.asked == []


@given(
    st.lists(st.floats(-8, 8, width=32), min_size=2, max_size=9, unique=True),
    st.floats(0.1, 4.0),
    st.integers(0, 9),
    st.floats(0, 1),
)
def test_filters_keep_the_same_tokens_after_the_temperature(logits, temperature, top_k, min_p):
    """What is sent to a server that divides first: the same distribution as our chain, by its slow twin."""
    row = np.array(logits, dtype=np.float64)
    sampling = changed(temperature=temperature, top_k=top_k, min_p=min_p)

    def softmax(values):
        p = np.exp(values - values.max())
        return p / p.sum()

    def filtered(values, k, least):
        p = softmax(values)
        order = np.argsort(-p, kind="stable")
        kept = [one for rank, one in enumerate(order) if (rank < k or not k) and p[one] >= least * p.max()]
        return p, kept

    sent = filters_after_temperature(sampling)
    p, ours = filtered(row, top_k, min_p)
    _, theirs = filtered(row / temperature, sent["top_k"], sent["min_p"])
    edge = np.abs(np.log(p / p.max()) - (np.log(min_p) if min_p else -np.inf))
    assert ours == theirs or edge.min() < 1e-9
