"""Turns on a page as the model's own chat template writes them, and what a template does that no page can follow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.backends.chat.template import JinjaTemplate
from selectrie.errors import PromptError
from selectrie.options import PromptParams
from selectrie.testing.fakes import BOS, EOS, make_vocabulary
from selectrie.tokenization.encoding import encode_prompt
from selectrie.tokenization.growing_prompt import GrowingPrompt
from selectrie.tokenization.prompts import read_prompt
from tests.support.n_examples import n_examples
from tests.support.vocabularies import vocabulary_of

BYTES = make_vocabulary([bytes([byte]) for byte in range(256)])
CONTENT = st.text("ab <eos>\né", min_size=1, max_size=12)


def chat_ml(messages, *, add_generation_prompt=True, name="assistant"):
    """Every turn between `<bos>role` and `<eos>`; a default system turn where the chat begins with none."""
    start = "" if messages and messages[0]["role"] == "system" else "<bos>system\nBe brief.<eos>\n"
    turns = "".join(f"<bos>{m['role']}\n{m['content']}<eos>\n" for m in messages)
    return start + turns + (f"<bos>{name}\n" if add_generation_prompt else "")


def bracketed(messages, *, add_generation_prompt=True):
    """The system message stands in the first user turn, turns must alternate, contents are trimmed, and nothing is written for
    the assistant to go on from."""
    del add_generation_prompt
    system = f"<<{messages[0]['content'].strip()}>>\n" if messages[0]["role"] == "system" else ""
    turns, written = messages[1 if system else 0 :], ""
    for place, message in enumerate(turns):
        if message["role"] != ("assistant" if place % 2 else "user"):
            raise PromptError("the model's chat template refuses these messages: roles must alternate user/assistant")
        said = message["content"].strip()
        written += f" {said} <eos>" if place % 2 else f"<bos>[INST] {system if not place else ''}{said} [/INST]"
    return written


def reasoning(messages, *, add_generation_prompt=True, thinking=True):
    """Thoughts are shown in the last answer alone, and the assistant may be begun with empty ones."""
    written, last = "", len(messages) - 1
    for place, message in enumerate(messages):
        said = message["content"]
        if message["role"] == "assistant":
            said = said.split("</think>")[-1].lstrip("\n")
            said = f"<think>\n\n</think>\n\n{said}" if place == last else said
        written += f"<bos>{message['role']}\n{said}<eos>\n"
    start = "<bos>assistant\n" + ("" if thinking else "<think>\n\n</think>\n\n")
    return written + (start if add_generation_prompt else "")


def forced_thoughts(messages, *, add_generation_prompt=True):
    """The generation prompt opens thoughts that are gone from the turn once it is over."""
    turns = "".join(f"<bos>{m['role']}\n{m['content']}<eos>" for m in messages)
    return turns + ("<bos>assistant\n<think>\n" if add_generation_prompt else "")


def ended_chat(messages, *, add_generation_prompt=True):
    """A chat that nobody is to go on with has one more end after its last turn."""
    turns = "".join(f"<bos>{m['role']}\n{m['content']}<eos>\n" for m in messages)
    return turns + ("<bos>assistant\n" if add_generation_prompt else "<eos>")


def late_system(messages, *, add_generation_prompt=True):
    """The system message stands in the last user turn, wherever that is."""
    del add_generation_prompt
    system = messages[0]["content"] if messages[0]["role"] == "system" else ""
    turns = messages[1 if system else 0 :]
    last = max((place for place, m in enumerate(turns) if m["role"] == "user"), default=-1)
    return "<bos>" + "".join(
        f"[INST]{system + '/' if system and place == last else ''}{m['content']}[/INST]"
        if m["role"] == "user"
        else f"{m['content']}<eos>"
        for place, m in enumerate(turns)
    )


def silent_system(messages, *, add_generation_prompt=True):
    """A system message is dropped."""
    return chat_ml([m for m in messages if m["role"] != "system"], add_generation_prompt=add_generation_prompt)


def with_template(template, vocabulary=BYTES):
    """The vocabulary with another chat template."""
    return replace(vocabulary, chat_template=template)


def page_of(vocabulary, *turns, **options):
    """A page with these turns, (role, content) each, all closed but one whose content is None."""
    page = GrowingPrompt(vocabulary, **options)
    for role, said in turns:
        page.open_role(role)
        if said is not None:
            page.add(said)
            page.close_role()
    return page


def messages_of(turns):
    """The same as messages."""
    return [{"role": role, "content": said} for role, said in turns if said is not None]


def test_turns_are_written_as_the_template_writes_them():
    """What opens and ends each is given back and stands on the page; the first brings the default system turn."""
    page = GrowingPrompt(with_template(chat_ml))
    assert page.open_role("user") == "<bos>system\nBe brief.<eos>\n<bos>user\n"
    page.add("Hi")
    assert page.close_role() == "<eos>\n"
    assert page.open_role("assistant") == "<bos>assistant\n"
    page.add("Yes")
    assert page.close_role() == "<eos>\n"
    assert page.open_role("tool") == "<bos>tool\n"
    assert page.text == ("<bos>system\nBe brief.<eos>\n<bos>user\nHi<eos>\n<bos>assistant\nYes<eos>\n<bos>tool\n")
    tokens = encode_prompt(BYTES, page.prompt).tolist()
    assert [token for token in tokens if token < 2] == [BOS, EOS, BOS, EOS, BOS, EOS, BOS]


def test_bos_stands_once_before_a_template_that_writes_it():
    """Where the model adds it as well."""
    page = page_of(with_template(chat_ml), ("system", "a"), ("user", None))
    assert encode_prompt(BYTES, page.prompt).tolist()[:2] == [BOS, 2 + ord("s")]
    plain = with_template(lambda messages, **_: "".join(f"{m['role']}:{m['content']}<eos>" for m in messages))
    assert page_of(plain, ("user", None)).prompt.prefix.tolist() == [BOS]


@settings(max_examples=n_examples(40))
@given(
    contents=st.lists(CONTENT, min_size=1, max_size=5),
    system=st.none() | CONTENT,
    template=st.sampled_from([chat_ml, ended_chat, forced_thoughts]),
)
def test_a_page_of_turns_is_the_chat(contents, system, template):
    """Its tokens and its text are those of the messages, rendered at once for the assistant to go on from."""
    contents = contents[:1] if template is forced_thoughts else contents
    turns = [] if system is None else [("system", system)]
    turns += [("user" if place % 2 == 0 else "assistant", said) for place, said in enumerate(contents)]
    turns += [("user", "more")] if turns[-1][0] == "assistant" else []
    vocabulary = with_template(template)
    page = page_of(vocabulary, *turns, ("assistant", None))
    read = read_prompt(vocabulary, messages_of(turns), PromptParams())
    assert encode_prompt(BYTES, page.prompt).tolist() == encode_prompt(BYTES, read).tolist()
    assert page.text == template(messages_of(turns))


def test_the_chat_of_a_real_template(weights, embedded_vocabulary):
    """The same on the template and tokenizer of Qwen2 and on those of the embedded model."""
    turns = [("user", "Say <|im_end|> twice."), ("assistant", "<|im_end|>\n<|im_start|>"), ("user", "word " * 99)]
    for vocabulary in (vocabulary_of(weights("random_real_vocab/random-qwen2.gguf")), embedded_vocabulary):
        page = page_of(vocabulary, *turns, ("assistant", None))
        read = read_prompt(vocabulary, messages_of(turns), PromptParams())
        assert encode_prompt(vocabulary, page.prompt).tolist() == encode_prompt(vocabulary, read).tolist()
        assert page.text == vocabulary.chat_template(messages_of(turns))
        assert page.ends_turn
        controls = [vocabulary.texts[token] for token in page.prompt.prefix if token in vocabulary.control]
        assert controls.count("<|im_end|>") == page.text.count("<|im_end|>") - 2, "those that were said are text"


@pytest.mark.parametrize("name", ["stories260K.gguf", "random_real_vocab/random-llama-spm.gguf"])
def test_the_chat_of_a_sentencepiece_model(name, weights):
    """A space is put before what stands after a control token, and nowhere else: also where turns are long."""
    vocabulary = vocabulary_of(weights(name))
    bos, eos = (vocabulary.texts[token] for token in (vocabulary.bos, vocabulary.eos))

    def template(messages, *, add_generation_prompt=True):
        turns = "".join(f"{bos}{m['role']}: {m['content']}{eos}\n" for m in messages)
        return turns + (f"{bos}assistant: " if add_generation_prompt else "")

    spoken = with_template(template, vocabulary)
    turns = [("user", "Tell me of the cat. " * 20), ("assistant", "  It slept.\n"), ("user", " the end</s>")]
    page = page_of(spoken, *turns, ("assistant", None))
    page.add("Once upon a time " + "there was a cat and a dog. " * 20)
    prompt = PromptParams(assistant_prefix="Once upon a time " + "there was a cat and a dog. " * 20)
    read = read_prompt(spoken, messages_of(turns), prompt)
    assert encode_prompt(spoken, page.prompt).tolist() == encode_prompt(spoken, read).tolist()
    assert len(page.prompt.text) < 256 < len(read.text)


@pytest.fixture(scope="module")
def embedded_vocabulary():
    """That of the model that comes with selectrie."""
    from selectrie.engine.sources import embedded_file

    return vocabulary_of(embedded_file())


def test_what_a_turn_says_is_never_a_control_token():
    """Nor where it was drawn, nor in a literal without `parse_special`."""
    page = page_of(with_template(chat_ml), ("system", "<eos>"), ("user", None))
    page.add("<eos><bos>", literal=True)
    context = encode_prompt(BYTES, page.prompt)
    data = b"<eos>"
    page.add_drawn(context, np.array([2 + byte for byte in data], dtype=np.int32), data)
    tokens = encode_prompt(BYTES, page.prompt).tolist()
    assert [token for token in tokens if token < 2] == [BOS, EOS, BOS]
    page.close_role()
    assert page.open_role("assistant") == "<bos>assistant\n"


def test_a_template_that_puts_the_system_message_into_the_user_turn():
    """What stands between both is written when the system turn ends; then the user's begins at once."""
    page = GrowingPrompt(with_template(bracketed))
    assert page.open_role("system") == "<bos>[INST] <<"
    page.add("Be brief")
    assert page.close_role() == ">>\n"
    assert page.open_role("user") == ""
    page.add("Hi")
    assert page.close_role() == " [/INST]"
    assert page.open_role("assistant") == " "
    page.add("Yes")
    assert page.close_role() == " <eos>"
    assert page.open_role("user") == "<bos>[INST] "
    messages = messages_of([("system", "Be brief"), ("user", "Hi"), ("assistant", "Yes"), ("user", "x")])
    assert page.text + "x [/INST]" == bracketed(messages)


def test_white_space_that_parts_the_answer_from_its_prompt_is_written():
    """Where a finished chat has more of it than the generation prompt, as it has in the turns before."""
    spaced = with_template(
        lambda messages, *, add_generation_prompt=True: (
            "".join(f"<bos>{m['role']}: {m['content']}<eos>" for m in messages)
            + ("<bos>assistant:" if add_generation_prompt else "")
        )
    )
    page = page_of(spaced, ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", None))
    assert page.text == "<bos>user: a<eos><bos>assistant: b<eos><bos>user: c<eos><bos>assistant: "


def test_contents_stand_as_written_where_the_template_trims():
    """A page is not trimmed, since slots may stand at the ends of a turn; the turns after it are fine."""
    page = page_of(with_template(bracketed), ("user", " Hi\n"), ("assistant", "Yes "), ("user", "a"))
    assert page.text == "<bos>[INST]  Hi\n [/INST] Yes  <eos><bos>[INST] a [/INST]"


@pytest.mark.parametrize(
    ("template", "turns", "match"),
    [
        (bracketed, [("user", "a"), ("user", None)], r"a turn of 'user' is not possible after user: .*must alternate"),
        (bracketed, [("assistant", None)], r"a turn of 'assistant' is not possible at the beginning: .*must alternate"),
        (
            bracketed,
            [("system", "a"), ("assistant", None)],
            r"a turn of 'assistant' is not possible after system: .*must alternate",
        ),
        (bracketed, [("user", "a"), ("tool", None)], r"a turn of 'tool' is not possible after user"),
        (silent_system, [("system", None)], r"leaves out what a turn of 'system' says"),
        (
            late_system,
            [("system", "a"), ("user", "b"), ("assistant", "c"), ("user", None)],
            r"rewrites .*system, user, assistant",
        ),
        (
            forced_thoughts,
            [("user", "a"), ("assistant", "b"), ("user", None)],
            r"turn of 'user' .*rewrites .*\(user, assistant\)",
        ),
        (reasoning, [("user", "a"), ("assistant", "x</think>b"), ("user", None)], r"rewrites .*strip reasoning"),
        (chat_ml, [("<eos>", None)], r"role '<eos>': expected a word"),
        (lambda messages, **_: "".join(m["content"].upper() for m in messages), [("user", None)], "leaves out"),
        (None, [("user", None)], "this model has no chat template, so a page cannot have roles"),
    ],
)
def test_what_a_template_cannot_do_is_said(template, turns, match):
    """Which turn, after which roles, and why; the page stays as it was."""
    page = page_of(with_template(template), *turns[:-1])
    before = page.text
    with pytest.raises(PromptError, match=match):
        page.open_role(turns[-1][0])
    assert page.text == before


def test_reasoning_that_says_nothing_is_no_rewriting():
    """A template that shows the thoughts of the last answer alone: answers without any stand as they are."""
    page = page_of(with_template(reasoning), ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", None))
    turns = [("user", "a"), ("assistant", "b"), ("user", "c")]
    assert page.text == reasoning(messages_of(turns))


def test_template_arguments_reach_the_template():
    """An empty thought that the generation prompt begins the answer with, as the caller asked for."""
    page = page_of(with_template(reasoning), ("user", "a"), ("assistant", None), template_args={"thinking": False})
    assert page.text.endswith("<bos>assistant\n<think>\n\n</think>\n\n")
    named = page_of(with_template(chat_ml), ("user", "a"), template_args={"name": "model"})
    assert named.open_role("assistant") == "<bos>model\n"


def test_the_generation_prompt_opens_the_assistants_turn():
    """Also where it says more than the turn has once it is over: that is what the model goes on from."""
    page = page_of(with_template(forced_thoughts), ("user", "a"))
    assert page.open_role("assistant") == "<bos>assistant\n<think>\n"
    page.add("b")
    assert page.close_role() == "<eos>"


def test_a_template_without_a_generation_prompt_begins_the_answer_all_the_same():
    """Old templates write turns alone: the assistant's begins as it does in a finished chat."""
    turns_alone = with_template(lambda messages, **_: chat_ml(messages, add_generation_prompt=False))
    assert page_of(turns_alone, ("user", "a")).open_role("assistant") == "<bos>assistant\n"


def test_only_an_assistants_turn_ends_generation():
    """And only where what the template writes after it begins with a token that does."""
    page = page_of(with_template(chat_ml), ("user", None))
    assert not page.ends_turn
    page.close_role()
    assert not page.ends_turn
    page.open_role("assistant")
    assert page.ends_turn
    page.add("b")
    page.close_role()
    assert not page.ends_turn
    for template, ends in ((bracketed, False), (forced_thoughts, True)):
        assert page_of(with_template(template), ("user", "a"), ("assistant", None)).ends_turn is ends
    stripping = replace(with_template(bracketed), strips_left=np.array([EOS], dtype=np.int32))
    assert page_of(stripping, ("user", "a"), ("assistant", None)).ends_turn, "the space before it is swallowed"
    unending = replace(with_template(chat_ml), eog=np.array([BOS], dtype=np.int32))
    assert not page_of(unending, ("user", "a"), ("assistant", None)).ends_turn


def test_between_turns_only_white_space_stands():
    """It is no part of the page, before the first turn neither; anything else is refused, and so is a slot."""
    page = GrowingPrompt(with_template(chat_ml))
    assert page.add("\n  ") == "\n  ", "nobody knows of roles yet"
    page.open_role("user")
    page.add("Hi")
    page.close_role()
    before = page.text
    assert page.add(" \n") == ""
    assert page.text == before
    with pytest.raises(PromptError, match="'Answer:' is outside every role"):
        page.add(" Answer:")
    with pytest.raises(PromptError, match="on a page with roles, a slot must be inside one"):
        _ = page.prompt
    with pytest.raises(PromptError, match="must be inside one"):
        page.add_drawn(np.array([BOS], dtype=np.int32), np.array([2], dtype=np.int32), b"\0")
    assert page.text == before == page_of(with_template(chat_ml), ("user", "Hi")).text


def test_text_before_the_first_role_is_refused():
    """When the role begins."""
    page = GrowingPrompt(with_template(chat_ml))
    page.add("Hello " * 20)
    with pytest.raises(PromptError, match=r"'Hello Hello .*…' comes before the first role"):
        page.open_role("user")


def test_turns_do_not_nest():
    """One at a time, and what is closed was opened."""
    page = page_of(with_template(chat_ml), ("user", None))
    with pytest.raises(PromptError, match="a turn of 'assistant' cannot begin inside a turn of 'user'"):
        page.open_role("assistant")
    page.close_role()
    with pytest.raises(PromptError, match="no turn is open"):
        page.close_role()


def test_going_back_forgets_turns():
    """A hidden turn leaves nothing: the roles may alternate again."""
    page = page_of(with_template(bracketed), ("user", "a"))
    mark, text = page.mark(), page.text
    page.open_role("assistant")
    inside = page.mark()
    page.add("b")
    page.close_role()
    page.open_role("user")
    page.back_to(inside)
    assert page.ends_turn is False
    page.add("c")
    assert page.close_role() == " <eos>"
    page.back_to(mark)
    assert page.text == text
    assert page.open_role("assistant") == " "


def test_the_end_of_a_chat_is_not_the_end_of_a_turn():
    """What a template puts after the last turn of all stands after none on the page."""
    page = GrowingPrompt(with_template(ended_chat))
    page.open_role("user")
    assert page.close_role() == "<eos>\n"
    assert page.open_role("assistant") == "<bos>assistant\n"
    assert page.ends_turn
    assert page.close_role() == "<eos>\n"


def test_empty_turns_are_turns():
    """A turn that says nothing stands as the template writes it."""
    page = page_of(with_template(chat_ml), ("system", ""), ("user", " "), ("assistant", None))
    assert page.text == chat_ml(messages_of([("system", ""), ("user", " ")]))


def test_control_tokens_swallow_white_space_as_in_a_prompt():
    """What stands after one that strips, over several texts, is stripped as in the chat rendered at once."""
    stripping = replace(with_template(chat_ml), strips_right=np.array([EOS, BOS], dtype=np.int32))
    page = GrowingPrompt(stripping)
    page.open_role("system")
    page.add("a")
    page.close_role()
    page.open_role("user")
    page.add("b")
    page.close_role()
    page.open_role("assistant")
    read = read_prompt(stripping, messages_of([("system", "a"), ("user", "b")]), PromptParams())
    assert encode_prompt(stripping, page.prompt).tolist() == encode_prompt(stripping, read).tolist()
    plain = GrowingPrompt(stripping, parse_special=True)
    plain.add("a<eos>", literal=True)
    plain.add(" ")
    plain.add("\n b")
    whole = read_prompt(stripping, "a<eos> \n b", PromptParams(parse_special=True))
    assert encode_prompt(stripping, plain.prompt).tolist() == encode_prompt(stripping, whole).tolist()


def trims_users(messages, *, add_generation_prompt=True, note=""):
    """What users say is trimmed and nothing else is; a note stands before it all."""
    turns = "".join(
        "<bos>" + m["role"] + "\n" + (m["content"].strip() if m["role"] == "user" else m["content"]) + "<eos>\n"
        for m in messages
    )
    return "<bos>" + note + "<eos>" + turns + ("<bos>assistant\n" if add_generation_prompt else "")


def test_an_argument_before_a_control_token_may_spell_it():
    """The token is found where the template wrote it, not where an argument spells it first."""
    source = "{% for m in messages %}{{ note + '<eos>' + m.role + m.content }}{% endfor %}"
    vocabulary = with_template(JinjaTemplate(source, {"bos_token": "<bos>", "eos_token": "<eos>"}))
    page = page_of(vocabulary, ("user", "Hi"), ("user", None), template_args={"note": "a<eos>b"})
    tokens = encode_prompt(vocabulary, page.prompt).tolist()
    assert vocabulary.decode(tokens) == b"a<eos>buserHia<eos>buser"
    assert [token for token in tokens if token < 2] == [BOS, EOS, EOS]


def test_a_template_that_formats_what_is_said_writes_its_control_tokens_on_a_page():
    """Marks stand there in place of what is said, so that what it computes from them is its own, with arguments too."""
    source = "{% for m in messages %}{{ '<bos>%s:{}<eos>'.format(m.content) % m.role }}{% endfor %}{{ note }}"
    vocabulary = with_template(
        JinjaTemplate(source, {"bos_token": "<bos>", "eos_token": "<eos>"}), replace(BYTES, bos=None)
    )
    for args in ({}, {"note": ""}, {"unused": "<eos>"}):
        page = page_of(vocabulary, ("user", "Hi"), ("assistant", None), template_args=args)
        tokens = encode_prompt(vocabulary, page.prompt).tolist()
        assert [token for token in tokens if token < 2] == [BOS, EOS, BOS]
        assert vocabulary.decode(tokens) == b"user:Hiassistant:"


def test_a_template_may_trim_one_turn_and_not_another():
    """Each turn counts as it stands on the page where the template writes it whole or trimmed."""
    turns = [("system", "Be brief.\n"), ("user", " Hi\n"), ("assistant", " Yes\n"), ("user", "Why?\n")]
    page = page_of(with_template(trims_users), *turns, ("assistant", None))
    assert (
        page.text == "<bos><eos>" + "".join(f"<bos>{role}\n{said}<eos>\n" for role, said in turns) + "<bos>assistant\n"
    )


def test_control_tokens_in_template_arguments_are_text_on_a_page():
    """An argument cannot close the turn in which the template writes it."""
    source = (
        "{{ '<bos>' + note + '<eos>' }}{% for m in messages %}{{ '<bos>' + m.role + m.content + '<eos>' }}{% endfor %}"
    )
    vocabulary = with_template(
        JinjaTemplate(source, {"bos_token": "<bos>", "eos_token": "<eos>"}), replace(BYTES, bos=None)
    )
    for note in ("a<eos>b", "<bos>", "<eos><eos>"):
        page = page_of(vocabulary, ("user", "Hi"), ("assistant", None), template_args={"note": note})
        tokens = encode_prompt(vocabulary, page.prompt).tolist()
        assert [token for token in tokens if token < 2] == [BOS, EOS, BOS, EOS, BOS]
        assert vocabulary.decode(tokens).decode() == f"{note}userHiassistant"
