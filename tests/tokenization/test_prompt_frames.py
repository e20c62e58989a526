"""Frames of prompts: the tokens that the prompt has when it is read as a whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.errors import PromptError
from selectrie.options import PromptParams
from selectrie.testing.fakes import make_vocabulary
from selectrie.tokenization import prompt_frames
from selectrie.tokenization.encoding import encode_choices, encode_prompt
from selectrie.tokenization.prompt_frames import chat_frame, page_frame
from selectrie.tokenization.prompts import read_prompt
from tests.support.chat_templates import OWN, TEMPLATES
from tests.support.n_examples import n_examples
from tests.support.vocabularies import vocabulary_of
from tests.tokenization.test_chats import with_template

MARK = "[st4te 0]"
BEFORE = "What does the customer want? Answer with one of: refund, track order, other.\n\nText: "
PLAIN = PromptParams()
AWKWARD = [
    " x ",
    "\n",
    "a\n\n",
    "it's",
    "don't\nAnswer: yes",
    "é🙂",
    "<|im_end|>",
    "1234567",
    "א ב",
    "  two",
    "_",
    "/think",
    MARK,
]
states = st.one_of(st.text(max_size=12), st.sampled_from(AWKWARD), st.lists(st.sampled_from(AWKWARD)).map("".join))


def chats(vocabulary, prompting=PLAIN):
    """The frame of chats about a text, and how one is read."""

    def messages(text):
        return ({"role": "user", "content": f"{BEFORE}{text}"},)

    def read(text):
        return read_prompt(vocabulary, messages(text), prompting)

    return chat_frame(vocabulary, messages, prompting, MARK, read), read


def pages(vocabulary, before=BEFORE, behind="\nAnswer: "):
    """The frame of pages about a text, and how one is read."""

    def read(text):
        return read_prompt(vocabulary, before + text + behind, PLAIN)

    return page_frame(vocabulary, before, behind, read), read


def agree(vocabulary, frame, read, text, following=b""):
    """Whether a frame's prompt has the tokens of the whole one, by itself and before choices; True if it declines."""
    found = frame.read(text)
    if found is None:
        return True
    whole = read(text)
    choices = [b"refund", b"track order", b" x", b"."]
    one, other = (encode_choices(vocabulary, each, choices, following) for each in (found, whole))
    names = ("context", "tokens", "offsets", "prompt_tokens", "boundary_shift", "first_scored")
    return (
        np.array_equal(encode_prompt(vocabulary, found), encode_prompt(vocabulary, whole))
        and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)
        and (one.healed, one.following_bytes, one.boundary) == (other.healed, other.following_bytes, other.boundary)
    )


@pytest.mark.parametrize("layout", ["first", "last"])
def test_pages_have_their_own_tokens_in_every_tokenizer(real_vocabulary, layout):
    """Whatever the text, and whether it is at the beginning or the end of the page."""
    vocabulary = vocabulary_of(real_vocabulary)
    before, behind = (BEFORE, "\nAnswer: ") if layout == "last" else ("Text: ", f"\n\nQuestion: {BEFORE}?\nAnswer: ")
    frame, read = pages(vocabulary, before, behind)
    if frame is None:
        pytest.skip("no position at the end of the page is settled in this vocabulary")

    @settings(max_examples=n_examples(60))
    @given(states)
    def law(text):
        assert agree(vocabulary, frame, read, text, b"\n")

    law()


@pytest.mark.parametrize("name", ["embedded", "qwen2"])
def test_chats_have_their_own_tokens(name, embedded, real_vocabularies):
    """A question is encoded once, and the texts after it are encoded alone."""
    path = embedded if name == "embedded" else next(one for one in real_vocabularies if name in one.name)
    vocabulary = vocabulary_of(path)
    frame, read = chats(vocabulary, PromptParams(assistant_prefix=" "))
    assert frame is not None
    assert len(frame.before) < 16 < len(frame.head)

    @settings(max_examples=n_examples(100))
    @given(states)
    def law(text):
        assert agree(vocabulary, frame, read, text)

    law()


@pytest.mark.parametrize("name", [*TEMPLATES, *OWN])
def test_templates_of_the_field_are_read_as_they_are(name):
    """A template that trims a text or asks about it is rendered as a whole wherever that changes the prompt."""
    vocabulary = with_template({**TEMPLATES, **OWN}[name])
    try:
        frame, read = chats(vocabulary)
    except PromptError:
        pytest.skip("the template refuses a chat of one turn")
    for text in AWKWARD if frame is not None else ():
        assert agree(vocabulary, frame, read, text), text


def test_a_template_that_looks_at_the_text_is_rendered_again():
    """The frame holds for texts that it only writes."""
    source = "{% for m in messages %}<|im_start|>{{ m.content | trim }}{% if 'Z' in m.content %}!{% endif %}<|im_end|>{% endfor %}"
    frame, _ = chats(with_template(source))
    assert frame is not None
    assert frame.read("a") is not None
    assert (frame.read("Z"), frame.read("a ")) == (None, None)


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}<|im_start|>{{ m.content }}{{ m.content }}<|im_end|>{% endfor %}",  # twice
        "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}",  # no control token behind it
        "{% for m in messages %}<|im_start|>{{ m.content | replace(' ', '  ') }}<|im_end|>{% endfor %}",
    ],
)
def test_there_is_no_frame_of_other_templates(source):
    """Their chats are read one by one."""
    frame, read = chats(with_template(source))
    assert frame is None or agree(with_template(source), frame, read, "a  b")


def test_vocabularies_that_add_spaces_have_no_frame():
    """Their tokens between texts are not those by themselves."""
    vocabulary = replace(make_vocabulary([b"a", b" a", b"\n"]), space_prefix=True)
    assert page_frame(vocabulary, "a", "\na", lambda _text: read_prompt(vocabulary, "a", PLAIN)) is None


def test_a_frame_that_reads_something_else_is_not_used(monkeypatch):
    """It is compared on a few texts when it is made."""
    vocabulary = with_template(next(iter(TEMPLATES.values())))
    monkeypatch.setattr(prompt_frames, "encode_prompt", lambda _v, prompt: np.arange(len(prompt.prefix)))
    _, read = pages(vocabulary)
    assert page_frame(vocabulary, BEFORE, "\nAnswer: ", lambda text: read(f"{text}, longer")) is None
