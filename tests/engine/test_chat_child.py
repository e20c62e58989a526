"""Chats of an untrusted model are rendered in a child process: the same texts, and an end to those that take too long."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import ModuleType

import pytest

import selectrie
from selectrie.backends.chat.template import JinjaTemplate
from selectrie.core.tracked_text import TrackedText, spans_of
from selectrie.engine import chat_child, trial
from selectrie.engine.chat_child import ChatChild
from selectrie.errors import PromptError

ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture(autouse=True)
def _own_marks(monkeypatch, tmp_path):
    """A home of its own, and a trial that every file passes."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(trial, "_opens_in_child", lambda *_: True)


@pytest.fixture
def children(monkeypatch):
    """The child processes that were started."""
    started, plain = [], chat_child.start_child
    monkeypatch.setattr(
        chat_child, "start_child", lambda *args, **pipes: started.append(plain(*args, **pipes)) or started[-1]
    )
    return started


def test_a_child_renders_the_same_text_with_its_origins(children):
    """Plain or tracked, with characters of every kind, and in one process."""
    template = JinjaTemplate(
        "{{ bos_token }}{% for m in messages %}{{ m.content | upper }}\n{{ n }}{% endfor %}", {"bos_token": "<s>"}
    )
    child = ChatChild(template)
    for said in ("é\ud800\n😀", ""):
        assert child([{"content": said}], n=[None, {"a": 1.5}]) == template([{"content": said}], n=[None, {"a": 1.5}])
    tracked = [{"content": TrackedText("hi")}]
    text = child(tracked)
    assert type(text) is TrackedText
    assert spans_of(text) == spans_of(template(tracked))
    assert len(children) == 1


def test_one_that_takes_too_long_ends_with_its_process(children, monkeypatch):
    """It is one error with a remedy; the next chat is rendered by another process."""
    monkeypatch.setattr(chat_child, "MAX_S", 0.2)
    child = ChatChild(JinjaTemplate("{% if endless %}" + ENDLESS + "{% endif %}{{ messages[0].content }}", {}))
    with pytest.raises(PromptError, match=r"not rendered: its process ended, or took more than .* s; render the chat"):
        child([{"content": "Hi"}], endless=True)
    assert children[0].poll() is not None
    monkeypatch.setattr(chat_child, "MAX_S", 10.0)
    assert child([{"content": "Hi"}]) == "Hi"
    assert len(children) == 2


def test_errors_of_a_template_and_of_arguments_are_prompt_errors(children):
    """Those of the template are the same as in this process, and the child goes on."""
    template = JinjaTemplate("{{ 1 / 0 if odd }}{{ messages[0].content }}", {})
    child, said = ChatChild(template), [{"content": "Hi"}]
    messages = []
    for render in (template, child):
        with pytest.raises(PromptError, match="cannot be rendered: ZeroDivisionError") as raised:
            render(said, odd=True)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    with pytest.raises(PromptError, match="cannot be sent to the chat template's process"):
        child(said, inner=lambda: "x")
    assert child(said) == "Hi"
    assert len(children) == 1


def test_a_process_that_says_anything_else_first_is_not_asked(children, monkeypatch):
    """Its lines would be taken for answers, and chats would get the texts of others."""
    start = chat_child.start_child
    code = "print('hello', flush=True); from selectrie.engine.chat_child import main; main()"

    def noisy(_module, **pipes):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, **pipes)
        children.append(process)
        return process

    child = ChatChild(JinjaTemplate("{{ messages[0].content }}", {}))
    monkeypatch.setattr(chat_child, "start_child", noisy)
    for text in ("one", "two"):
        with pytest.raises(PromptError, match="no child process can be started here"):
            child([{"content": text}])
    assert all(one.poll() is not None for one in children)
    monkeypatch.setattr(chat_child, "start_child", start)
    assert child([{"content": "three"}]) == "three"


def test_a_process_that_died_in_between_is_replaced(children):
    """Whatever ended it, the next chat is not to blame."""
    child = ChatChild(JinjaTemplate("{{ messages[0].content }}", {}))
    assert child([{"content": "one"}]) == "one"
    children[0].kill()
    children[0].wait()
    assert child([{"content": "two"}]) == "two"


def test_what_the_process_cannot_read_is_an_error_of_that_chat(children):
    """Such as an object of a module that it cannot import."""
    child, module = ChatChild(JinjaTemplate("{{ messages[0].content }}", {})), ModuleType("only_here")
    module.Inner = type("Inner", (), {"__module__": "only_here"})
    sys.modules["only_here"] = module
    try:
        with pytest.raises(PromptError, match=r"cannot be read in the chat template's process: .*only_here"):
            child([{"content": "one"}], inner=module.Inner())
    finally:
        del sys.modules["only_here"]
    assert child([{"content": "two"}]) == "two"
    assert len(children) == 1


def test_where_no_process_can_be_started_no_chat_is_rendered(monkeypatch):
    """A program packed into one executable is not started in place of an interpreter."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(PromptError, match="not rendered: no child process can be started here"):
        ChatChild(JinjaTemplate("Hi", {}))([{"content": "Hi"}])


def test_the_child_ends_with_its_template(children):
    """Nothing is left behind by a model that is dropped."""
    child = ChatChild(JinjaTemplate("{{ messages[0].content }}", {}))
    child([{"content": "Hi"}])
    del child
    assert children[0].poll() is not None


@pytest.mark.parametrize("untrusted", [False, True])
def test_only_untrusted_files_have_a_child(tiny_model, children, untrusted):
    """Their chats have the same tokens; of others no process is started."""
    chat = [{"role": "user", "content": "Hi"}]
    with selectrie.load(tiny_model("f32"), n_threads=1) as llm:
        expected = llm.tokens(chat, [" a", " b"])
    assert not children
    with selectrie.load(tiny_model("f32"), n_threads=1, untrusted=untrusted) as llm:
        assert llm.tokens(chat, [" a", " b"]) == expected
        assert type(llm.vocabulary.chat_template) is (ChatChild if untrusted else type(JinjaTemplate("", {})))
    assert len(children) == untrusted


def test_an_untrusted_model_is_called_as_others_are(tiny_model):
    """Only its vocabulary is another: near ties behind a long prompt, which copy paths, have the same bits."""
    prompt, found = "word " * 200, []
    for untrusted in (False, True):
        with selectrie.load(tiny_model("q8_0"), n_threads=1, n_ctx=1024, untrusted=untrusted) as llm:
            llm._runtime.check = replace(llm._runtime.check, tolerance=50.0)
            found.append(llm.select(prompt, [" ab", " cd"]))
    assert found[1].certificate.n_rescored == 2
    assert found[0].choices.logp.tobytes() == found[1].choices.logp.tobytes()
