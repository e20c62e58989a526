"""Chats in the bounded renderer are what `apply_chat_template` makes of them."""

from __future__ import annotations

import json
import pickle
from itertools import product

import pytest

pytest.importorskip("transformers")

from selectrie.backends.transformers.vocabulary import open_tokenizer, read_vocabulary
from selectrie.errors import PromptError
from selectrie.options import PromptParams
from selectrie.tokenization.encoding import encode_prompt
from selectrie.tokenization.growing_prompt import GrowingPrompt
from selectrie.tokenization.prompts import read_prompt
from tests.support.chat_templates import CHAT_ML, LLAMA_31, TEMPLATES
from tests.support.fast_tokenizers import SPECS, added, tokenizer_of

SAID = (
    *("Hi", " Who are you? ", "naïve 日本\n\nlines", "{{ x }}", "a 'quote' \"too\" <b>&</b>", "tab\tend\n", "x" * 200),
    *("</think> so", "<tool_response>1</tool_response>", "1 2  3"),
)
ROLES = [[*("system",) * (seed % 2), *("user", "assistant") * (seed % 3), "user"] for seed in range(20)]
CHATS = [
    [{"role": role, "content": SAID[(seed + place) % len(SAID)]} for place, role in enumerate(roles)]
    for seed, roles in enumerate(ROLES)
]
TOOLS = [
    {"type": "function", "function": {"name": "f", "description": "é & <x>", "parameters": {"a": [1, None, True]}}}
]
MORE = {
    "generation tags": "{% for m in messages %}{% generation %}{% set x = m.content %}{{ x }}{% endgeneration %}{{ x }}{% endfor %}",
    "absent": "{{ tools is none }}{{ documents is none }}{{ functions is defined }}{{ unk_token }}{{ pad_token is defined }}",
    "json": "{{ messages | tojson }}{{ messages[0] | tojson(indent=2) }}{{ {'é': '<'} | tojson(ensure_ascii=True) }}",
    "loop controls": "{% for m in messages %}{% if loop.index0 == 1 %}{% continue %}{% endif %}{{ m.content }}{% endfor %}",
    "reasoning": "{{ messages[-1].keys() | list }}{{ messages[-1].reasoning_content }}",
    "white space": "  {% if true %}\n  x\n  {% endif %}\n{% set a = 1 %}\n{{ a }}\n",
    "special": "{{ bos_token }}{{ eos_token }}{% if additional_special_tokens is defined %}{{ additional_special_tokens }}{% endif %}",
}


def with_template(template, name="gpt-2", **ends):
    tokenizer = tokenizer_of(SPECS[name](), **{"bos_token": "<s>", "eos_token": "</s>", **ends})
    tokenizer.chat_template = template
    return tokenizer


def read(tokenizer):
    return read_vocabulary(tokenizer, n_tokens=len(tokenizer))


def applied(tokenizer, chat, **args):
    """What Transformers renders; None where the template refuses the messages."""
    import jinja2

    try:
        return tokenizer.apply_chat_template(chat, tokenize=False, **args)
    except jinja2.TemplateError:
        return None


@pytest.mark.parametrize("name", [*TEMPLATES, *MORE])
def test_chats_are_rendered_as_by_transformers(name):
    """Twenty conversations, with and without the generation prompt, a system message and tools."""
    tokenizer = with_template({**TEMPLATES, **MORE}[name])
    template = read(tokenizer).chat_template
    n_rendered = 0
    for chat, adds, tools in product(CHATS, (True, False), (None, TOOLS)):
        args = {"add_generation_prompt": adds, **({} if tools is None else {"tools": tools})}
        expected = applied(tokenizer, chat, **args)
        if expected is None:
            with pytest.raises(PromptError, match="the model's chat template"):
                template(chat, **args)
        else:
            assert template(chat, **args) == expected
            n_rendered += 1
    assert n_rendered >= 10
    assert len(CHATS) == 20


@pytest.mark.short("*-gpt-2", "chat-ml-*", "llama-2-prepend")
@pytest.mark.parametrize("spec", ["gpt-2", "prepend", "always", "first", "byte-prefix", "qwen-2"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_tokens_of_chats_are_those_of_transformers(name, spec):
    """No BOS but the template's, and spaces where the tokenizer adds them between control tokens."""
    tokenizer = with_template(TEMPLATES[name], spec)
    own = read(tokenizer)
    n_compared = 0
    for chat in CHATS[:8]:
        if applied(tokenizer, chat, add_generation_prompt=True) is None:
            continue
        expected = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        try:
            prompt = read_prompt(own, chat, PromptParams())
        except PromptError as error:
            assert "changes what messages say" in str(error)  # noqa: PT017 - a reasoning template may
            continue
        assert encode_prompt(own, prompt).tolist() == expected
        n_compared += 1
    assert n_compared >= 3


@pytest.mark.parametrize("spec", ["gpt-2", "first", "prepend"])
def test_turns_of_a_page_are_tokens_of_the_chat(spec):
    """A page whose turns are opened and closed has the tokens of the chat up to there."""
    tokenizer = with_template(CHAT_ML, spec)
    own = read(tokenizer)
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
    page = GrowingPrompt(own)
    for message in chat:
        page.open_role(message["role"])
        page.add(message["content"])
        page.close_role()
    page.open_role("assistant")
    expected = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert encode_prompt(own, page.prompt).tolist() == expected


def test_a_spelled_bos_begins_the_page_once():
    """A template that writes BOS itself has no second one."""
    tokenizer = with_template(LLAMA_31, "first")
    own = read(tokenizer)
    page = GrowingPrompt(own)
    page.open_role("user")
    page.add("Hi")
    page.close_role()
    page.open_role("assistant")
    expected = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, return_dict=False
    )
    assert encode_prompt(own, page.prompt).tolist() == expected


def test_named_templates():
    """Tools choose "tool_use", an argument any other; a name that does not exist is refused with those that do."""
    named = {
        "default": "plain {{ messages[0].content }}",
        "tool_use": "tools {{ tools | tojson }}",
        "rag": "rag {{ documents }}",
    }
    tokenizer = with_template(named)
    template, chat = read(tokenizer).chat_template, CHATS[0]
    for args in ({}, {"tools": TOOLS}, {"chat_template": "rag"}):
        assert template(chat, add_generation_prompt=False, **args) == applied(tokenizer, chat, **args)
    with pytest.raises(PromptError, match=r"no chat template named 'x'.* as one of 'default', 'rag', 'tool_use'"):
        template(chat, chat_template="x")
    del named["default"]
    with pytest.raises(PromptError, match="no chat template named 'default'"):
        read(with_template(named)).chat_template(chat)


def test_templates_of_files(tmp_path):
    """`chat_template.jinja` and further named ones beside it are read with the tokenizer."""
    tokenizer = with_template("of the file {{ messages[0].content }}")
    tokenizer.save_pretrained(tmp_path)
    assert (tmp_path / "chat_template.jinja").exists()
    assert read(open_tokenizer(tmp_path)).chat_template(CHATS[0]) == f"of the file {CHATS[0][0]['content']}"
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("with tools {{ tools | length }}")
    assert read(open_tokenizer(tmp_path)).chat_template(CHATS[0], tools=TOOLS) == "with tools 1"
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert "chat_template" not in config


def test_a_tokenizer_without_a_template_has_none():
    """Chats are then refused where a prompt is read."""
    assert read(with_template(None)).chat_template is None


def test_named_templates_can_be_sent_to_another_process():
    """As those of untrusted files are."""
    template = read(with_template({"default": "D {{ messages[0].content }}", "rag": "R {{ bos_token }}"})).chat_template
    sent = pickle.loads(pickle.dumps(template))  # noqa: S301 - our own bytes
    for args in ({}, {"chat_template": "rag"}):
        assert sent(CHATS[0], **args) == template(CHATS[0], **args)


def test_errors_of_templates_are_errors_about_the_prompt():
    """The template's own refusal, its syntax and its cost."""
    for source, said in (
        ("{{ raise_exception('no roles') }}", "refuses these messages: no roles"),
        ("{% for %}", "chat template is broken, in line 1"),
        ("{% for a in range(999999) %}{% endfor %}", "cannot be rendered: OverflowError: Range too big"),
    ):
        with pytest.raises(PromptError, match=said):
            read(with_template(source)).chat_template(CHATS[0])


def test_lists_of_special_tokens_are_the_templates_own():
    """Their spellings are control tokens where the template writes them, and text where a message does."""
    spec = SPECS["gpt-2"]()
    last = max(one["id"] for one in spec["added_tokens"])
    spec["added_tokens"].append(added(last + 1, "<|x|>"))
    tokenizer = tokenizer_of(spec, bos_token="<s>", eos_token="</s>", pad_token="<|x|>")
    tokenizer.chat_template = "{{ pad_token }}{{ messages[0].content }}{{ pad_token }}"
    own = read(tokenizer)
    tokens = encode_prompt(own, read_prompt(own, [{"role": "user", "content": "<|x|>"}], PromptParams())).tolist()
    assert [index for index, token in enumerate(tokens) if token == last + 1] == [0, len(tokens) - 1]
