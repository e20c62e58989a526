"""Tokens over HTTP, as vLLM has them: asked for by hand, and by lm-evaluation-harness's own remote tokenizer."""

from __future__ import annotations

import base64
from hashlib import sha256

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

import selectrie
from selectrie import ModelPool, PromptParams
from selectrie.server import ServerOptions, app
from tests.support.deciding import fake
from tests.support.serving import ask, running

CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]}]


@pytest.fixture(scope="module")
def llm():
    """An engine on a fake: BOS is 0, EOS is 1, a byte is its number plus 2."""
    with fake() as made:
        yield made


def of(text: str) -> list[int]:
    """The tokens of a text without control tokens."""
    return [2 + byte for byte in text.encode()]


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"prompt": "ab"}, [0, *of("ab")]),
        ({"prompt": "ab", "add_special_tokens": False}, of("ab")),
        ({"prompt": "<bos>ab", "add_special_tokens": True}, [0, *of("ab")]),
        ({"prompt": "<bos>ab", "add_special_tokens": False}, [0, *of("ab")]),
        ({"prompt": "a<eos>b", "add_special_tokens": False, "model": None}, [*of("a"), 1, *of("b")]),
        ({"prompt": "", "add_special_tokens": False}, []),
        ({"prompt": ""}, [0]),
        ({"messages": CHAT[:1]}, [0, *of("u:Hi"), 1, *of("\na:")]),
        ({"messages": CHAT[:1], "add_special_tokens": True}, [0, *of("u:Hi"), 1, *of("\na:")]),
        ({"messages": CHAT[:1], "add_generation_prompt": False}, [0, *of("u:Hi"), 1, *of("\n")]),
        ({"messages": CHAT, "continue_final_message": True}, [0, *of("u:Hi"), 1, *of("\na:Yes")]),
        ({"messages": [{"role": "user", "content": "<eos>"}]}, [0, *of("u:<eos>"), 1, *of("\na:")]),
        ({"messages": PARTS}, [0, *of("u:H\ni"), 1, *of("\na:")]),
    ],
    ids=str,
)
def test_tokens_of_texts_and_chats(llm, body, tokens):
    """BOS comes once at most; control tokens are read in a text and in what a template writes, not in what a message says."""
    reply = ask(app(llm), "POST", "/tokenize", body)
    assert (reply.status, reply.json["tokens"], reply.json["count"]) == (200, tokens, len(tokens))
    assert reply.json["max_model_len"] == llm.limits.nodes
    assert set(reply.json) == {"tokens", "count", "max_model_len"}
    back = ask(app(llm), "POST", "/detokenize", {"tokens": tokens}).json["prompt"]
    if "prompt" in body:
        assert back.removeprefix("<bos>") == body["prompt"].removeprefix("<bos>")


def test_spellings_and_unknown_fields(llm):
    """The spelling of each token is given where it is asked for; an unknown field is ignored, and a warning says so."""
    found = ask(app(llm), "POST", "/tokenize", {"prompt": "a", "return_token_strs": True, "x": 1}).json
    assert found["token_strs"] == ["<bos>", "a"]
    assert found["warnings"] == ["the field 'x' is unknown and was ignored"]
    assert ask(app(llm), "POST", "/detokenize", {"tokens": [], "y": 1}).json["warnings"]


@pytest.mark.parametrize("body", [{"prompt": "a"}, {"messages": CHAT}], ids=["text", "chat"])
def test_fields_that_ask_for_nothing_are_taken(llm, body):
    """Known fields that are not offered are no unknown ones: null and their empty values change nothing."""
    plain = ask(app(llm), "POST", "/tokenize", body).json
    assert "warnings" not in plain
    for value in ({"tools": [], "mm_processor_kwargs": {}}, {"tools": None, "chat_template": None}):
        assert ask(app(llm), "POST", "/tokenize", {**body, **value}).json == plain


@pytest.mark.parametrize(
    ("path", "body", "code", "param"),
    [
        ("tokenize", {}, "option", "prompt"),
        ("tokenize", {"prompt": ["a"]}, "option", "prompt"),
        ("tokenize", {"prompt": "a\ud800"}, "text", None),
        ("tokenize", {"prompt": "a", "messages": CHAT}, "option", "prompt"),
        ("tokenize", {"prompt": "a", "add_special_tokens": "no"}, "option", "add_special_tokens"),
        ("tokenize", {"messages": []}, "option", "messages"),
        ("tokenize", {"messages": ["a"]}, "option", "messages[0]"),
        ("tokenize", {"messages": [{"role": "tool", "content": "a"}]}, "option", "messages[0].tool_call_id"),
        ("tokenize", {"messages": [{"role": "user", "content": 7}]}, "option", "messages[0].content"),
        ("tokenize", {"messages": [{"role": "<|x|>", "content": "a"}]}, "option", "messages[0].role"),
        ("tokenize", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "unsupported_input", None),
        ("tokenize", {"messages": CHAT, "chat_template": "{{ 1 }}"}, "unsupported", "chat_template"),
        ("tokenize", {"messages": CHAT, "chat_template_kwargs": {"chat_template": "x"}}, "unsupported", None),
        ("tokenize", {"messages": CHAT, "chat_template_kwargs": [1]}, "option", "chat_template_kwargs"),
        ("tokenize", {"messages": CHAT, "tools": [{}]}, "unsupported", "tools"),
        ("tokenize", {"messages": CHAT, "tools": {}}, "unsupported", "tools"),
        ("tokenize", {"prompt": "a", "chat_template": ""}, "unsupported", "chat_template"),
        ("tokenize", {"prompt": "a", "mm_processor_kwargs": {"x": 1}}, "unsupported", "mm_processor_kwargs"),
        ("tokenize", {"messages": CHAT[:1], "continue_final_message": True}, "option", "continue_final_message"),
        ("detokenize", {}, "option", "tokens"),
        ("detokenize", {"tokens": [1, True]}, "option", "tokens[1]"),
        ("detokenize", {"tokens": [1, 1.0]}, "option", "tokens[1]"),
        ("detokenize", {"tokens": [258]}, "token_range", "tokens[0]"),
        ("detokenize", {"tokens": [-1]}, "token_range", "tokens[0]"),
        ("detokenize", {"tokens": [10**300]}, "token_range", "tokens[0]"),
    ],
)
def test_what_is_wrong_is_named(llm, path, body, code, param):
    """400 with our code, and the field where it is known."""
    reply = ask(app(llm), "POST", f"/{path}", body)
    assert (reply.status, reply.error["code"]) == (400, code)
    assert param is None or reply.error["param"] == param


def test_the_special_tokens_and_the_template(llm):
    """Under the names that vLLM gives; a fake has no source of its template."""
    found = ask(app(llm), "GET", "/tokenizer_info").json
    assert (found["bos_token"], found["eos_token"], found["pad_token"]) == ("<bos>", "<eos>", None)
    assert (found["model_max_length"], found["chat_template"]) == (llm.limits.nodes, None)


def test_a_name_that_does_not_read_back_is_no_special_token():
    """A client would take the first token of it for the special one."""
    with fake(texts=("<bos>", "a", *map(str, range(256)))) as llm:
        assert ask(app(llm), "GET", "/tokenizer_info").json["eos_token"] == "a"
    with fake(eos=67) as llm:  # not a control token, and its text is `A`
        assert ask(app(llm), "GET", "/tokenizer_info").json["eos_token"] == "A"
    with fake(ambiguous=frozenset({b"<eos>"})) as llm:
        assert ask(app(llm), "GET", "/tokenizer_info").json["eos_token"] is None


def test_keys_and_a_drain(llm):
    """All three need a key where others do, and are work: none is taken while the server drains, or when it is full."""
    application = app(llm, ServerOptions(key_digests=[sha256(b"k").digest()]))
    for method, path, body in [
        ("GET", "/tokenizer_info", None),
        ("POST", "/tokenize", {"prompt": "a"}),
        ("POST", "/detokenize", {"tokens": [5]}),
    ]:
        assert ask(application, method, path, body).status == 401
        headers = {"x-api-key": "k"}
        application.state.is_draining = False
        assert ask(application, method, path, body, headers=headers).status == 200
        application.state.is_draining = True
        assert ask(application, method, path, body, headers=headers).error["code"] == "draining"
    assert application.state.n_open == 0


def test_a_pool_has_a_tokenizer_for_each_model(tiny_model):
    """`model` picks, in the body or the query; without it there is none."""
    path = str(tiny_model("f32"))
    with ModelPool({"a": path, "b": None}, n_ctx=256, n_threads=1) as pool:
        application = app(pool)
        counts = {}
        for name in "ab":
            body = {"model": name, "prompt": "Hello there", "add_special_tokens": False}
            counts[name] = ask(application, "POST", "/tokenize", body).json["count"]
            found = ask(application, "GET", "/tokenizer_info", query=f"model={name}").json
            assert found["eos_token"] == "<|endoftext|>"
            assert "<|im_start|>" in found["chat_template"]
        assert counts["a"] > counts["b"]
        for method, path in [("GET", "/tokenizer_info"), ("POST", "/detokenize")]:
            reply = ask(application, method, path, {"tokens": [1]} if method == "POST" else None)
            assert (reply.status, reply.error["code"]) == (404, "model_not_found")


def test_the_remote_tokenizer_of_the_harness():
    """lm-evaluation-harness finds the server able, and its tokens are the engine's, control tokens and a chat included."""
    pytest.importorskip("lm_eval", reason="needs the extra 'lm-eval'")
    pytest.importorskip("requests", reason="needs the extra 'test-clients'")
    pytest.importorskip("uvicorn", reason="needs the extra 'server'")
    from lm_eval.utils import RemoteTokenizer, check_remote_tokenizer_support

    options = ServerOptions(key_digests=[sha256(b"k").digest()])
    with selectrie.load(n_threads=1) as llm, running(app(llm, options)) as url:
        base = f"{url}/v1/completions"
        assert check_remote_tokenizer_support(base, auth_token="k")
        assert not check_remote_tokenizer_support(base, auth_token="wrong", max_retries=1)
        remote = RemoteTokenizer(base, auth_token="k", timeout=60)
        assert (remote.bos_token, remote.eos_token) == ("<|begin|>", "<|endoftext|>")
        assert (remote.bos_token_id, remote.eos_token_id) == (llm.vocabulary.bos, llm.vocabulary.eos)
        for text in (
            "The capital of France is",
            " Paris",
            "",
            "<|im_start|>user\nÄ 🤗<|im_end|>\n",
            "  two  spaces\n\n",
        ):
            own = llm.encode(text, prompting=PromptParams(parse_special=True)).tolist()[1:] if text else []
            assert remote.encode(text) == own
            assert remote.decode(own) == text
        assert remote.batch_decode([[5], [6, 7]]) == [llm.decode([5]), llm.decode([6, 7])]
        chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."}]
        rendered = remote.apply_chat_template(chat)
        assert rendered == llm.vocabulary.chat_template(chat)
        assert [llm.vocabulary.bos, *remote.encode(rendered)] == llm.encode(chat).tolist()


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {"prompt": "x" * (1 << 20) + "y"}, "prompt"),
        ("/tokenize", {"messages": [{"role": "user", "content": "x" * (1 << 20) + "y"}]}, "messages"),
        ("/tokenize", {"messages": [{"role": "user", "content": ""}] * 4_097}, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": ""}] * 4_097}, "messages"),
        ("/v1/vocabulary/encode", {"texts": [base64.b64encode(b"x" * (1 << 19)).decode()] * 3}, "texts"),
        ("/v1/completions", {"prompt": "x" * (1 << 20) + "y", "truncate_prompt_tokens": 4, "max_tokens": 1}, "prompt"),
    ],
)
def test_what_is_encoded_whole_is_bounded(path, body, param):
    """Encoding cannot be stopped when a client leaves, so it ends soon."""
    with fake() as llm:
        reply = ask(app(llm), "POST", path, body)
    assert (reply.status, reply.error["param"]) == (400, param)
