"""A page that grows: its tokens are those of its text, what was drawn stays as drawn, and any state can be gone back to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie import Engine
from selectrie.core.types import Limits, ModelKind
from selectrie.errors import OptionError, PromptError, PromptTooLongError, ProtocolError, TextError
from selectrie.options import PromptParams
from selectrie.testing import HashModel
from selectrie.testing.fakes import BOS, DEFAULT_PIECES, EOS, make_vocabulary, spell
from selectrie.tokenization.encoding import encode_choices, encode_prompt
from selectrie.tokenization.growing_prompt import GrowingPrompt
from selectrie.tokenization.prompts import read_prompt
from tests.support.n_examples import n_examples
from tests.support.vocabularies import vocabulary_of
from tests.tokenization.test_boundary import PARTS

TINY = make_vocabulary([*DEFAULT_PIECES, b"\xef", b"\xbf", b"\xbd", b"\xa9."])
"""The vocabulary drawn by hand, bytes that spell U+FFFD, and the end of a character with what comes after it."""
SPECIAL = PromptParams(parse_special=True)
LETTERS = st.text("abcrstu .:\né", max_size=40)
REAL = ("random_real_vocab/random-qwen2.gguf", "stories260K.gguf", "tiny-rwkv-7v0-834K.gguf")


def page_of(vocabulary, *texts, **options):
    """A page with these texts on it."""
    page = GrowingPrompt(vocabulary, **options)
    for text in texts:
        page.add(text)
    return page


def tokens_of(page, vocabulary=TINY):
    """Every token of a page as the tokenizer leaves it now."""
    return encode_prompt(vocabulary, page.prompt).tolist()


def state_of(page):
    """All that can be seen of a page."""
    prompt = page.prompt
    return page.text, prompt.prefix.tolist(), prompt.text, page.ends_turn


def ids(*pieces):
    """Tokens of the tiny vocabulary by their spelling."""
    return np.array(spell(TINY, pieces), dtype=np.int32)


def drawn(page, context, tokens, data):
    """`add_drawn` by spelling."""
    return page.add_drawn(ids(*context), ids(*tokens), data)


def test_a_page_is_bos_and_its_text():
    """BOS once where the model adds one, then the text; also where the first literal writes it."""
    assert tokens_of(page_of(TINY)) == [BOS]
    assert tokens_of(page_of(TINY, "a c", "at")) == [BOS, *TINY.tokenize(b"a cat")]
    page = GrowingPrompt(TINY, parse_special=True)
    page.add("<bos>a cat", literal=True)
    page.add("<bos>", literal=True)
    assert tokens_of(page) == [BOS, *TINY.tokenize(b"a cat"), BOS]


def test_nothing_predicts_the_first_token_without_bos():
    """A model that adds no BOS needs text before the first slot, and the error says so."""
    page = GrowingPrompt(replace(TINY, bos=None))
    with pytest.raises(PromptError, match="the page is empty before this slot"):
        _ = page.prompt
    page.add("a")
    assert tokens_of(page) == TINY.tokenize(b"a")


def test_text_is_never_read_as_control_tokens():
    """Not what values say, nor literals without `parse_special`; with it literals alone are."""
    angles = make_vocabulary([*(bytes([byte]) for byte in range(256))])
    for options, literal, n_controls in (
        ({}, True, 0),
        ({"parse_special": True}, True, 1),
        ({"parse_special": True}, False, 0),
    ):
        page = GrowingPrompt(angles, **options)
        page.add("a")
        page.add("<eos>", literal=literal)
        page.add("b")
        assert tokens_of(page, angles)[1:].count(EOS) == n_controls
        assert page.text == "a<eos>b"


@settings(max_examples=n_examples(25))
@given(
    parts=st.lists(
        st.sampled_from(["<bos>", "<eos>", " ", "\n", "Once upon a time ", "the park. " * 9, "é"]), max_size=40
    ),
    strips=st.booleans(),
)
@pytest.mark.parametrize("name", REAL[:2])
def test_literals_with_control_tokens_are_the_prompt_with_them(name, parts, strips, weights):
    """However far apart they stand, and whether or not they swallow white space: the tokens are those of the text at once."""
    vocabulary = vocabulary_of(weights(name))
    eos = vocabulary.eos
    spellings = {"<bos>": vocabulary.texts[vocabulary.control[0]], "<eos>": vocabulary.texts[eos]}
    if strips:
        swallowing = np.array([eos], dtype=np.int32)
        vocabulary = replace(vocabulary, strips_left=swallowing, strips_right=swallowing)
    written = ["a", *(spellings.get(part, part) for part in parts)]
    page = GrowingPrompt(vocabulary, parse_special=True)
    for part in written:
        page.add(part, literal=True)
    read = read_prompt(vocabulary, "".join(written), SPECIAL)
    assert tokens_of(page, vocabulary) == encode_prompt(vocabulary, read).tolist()


def test_a_literal_is_cut_before_its_first_control_token():
    """White space goes with a token that swallows it, and only with that; none is found without `parse_special`."""
    for swallowing, text in (([EOS], "a"), ([BOS], "a "), ([], "a ")):
        vocabulary = replace(TINY, strips_left=np.array(swallowing, dtype=np.int32))
        page = GrowingPrompt(vocabulary, parse_special=True)
        assert page.before_control("a <eos>b<bos>") == (text, True)
        assert page.before_control("ab") is None
        assert page.before_control("") is None
        assert GrowingPrompt(vocabulary).before_control("a <eos>b") is None
    assert GrowingPrompt(TINY, parse_special=True).before_control("a <bos>b<eos>") == ("a ", False)


def test_long_text_is_cut_in_an_error():
    """At most 40 characters of it are shown."""
    for n, shown in ((39, "a" * 39), (40, "a" * 40), (41, "a" * 39 + "…")):
        page = page_of(TINY, "a" * n)
        with pytest.raises(PromptError, match=f"^'{shown}' comes before the first role"):
            page.open_role("user")


def test_a_lone_surrogate_is_refused():
    """As everywhere, and the page stays as it was."""
    page = page_of(TINY, "a")
    with pytest.raises(TextError, match=r"U\+D800"):
        page.add("b\ud800")
    assert page.text == "a"


@given(texts=st.lists(LETTERS, max_size=12))
def test_a_page_in_pieces_is_the_page_at_once(texts):
    """However the text is cut, tokens and text are those of one prompt: white space at the cuts, and long pages."""
    page = page_of(TINY, *(text * 8 for text in texts))
    whole = "".join(text * 8 for text in texts)
    assert page.text == whole
    assert tokens_of(page) == encode_prompt(TINY, read_prompt(TINY, whole, PromptParams())).tolist()


@settings(max_examples=n_examples(15))
@given(parts=st.lists(st.sampled_from([*PARTS, " ", ". ", "'s"]), min_size=30, max_size=90), data=st.data())
@pytest.mark.parametrize("name", REAL)
def test_choices_after_a_page_are_cut_as_after_its_text(name, parts, data, weights):
    """On real vocabularies: a select behind the page has the tokens of one behind the whole text."""
    vocabulary = vocabulary_of(weights(name))
    text = "It is " + " ".join(parts)
    page, at = GrowingPrompt(vocabulary), 0
    while at < len(text):
        stop = at + data.draw(st.integers(1, 150))
        page.add(text[at:stop])
        at = stop
    choices = [data.draw(st.sampled_from((*PARTS, "the park", "park.", "s"))).encode() for _ in range(3)]
    prompts = (page.prompt, read_prompt(vocabulary, text, PromptParams()))
    one, other = (encode_choices(vocabulary, prompt, choices, b" and") for prompt in prompts)
    assert one.context.tolist() == other.context.tolist()
    assert (one.tokens.tolist(), one.offsets.tolist()) == (other.tokens.tolist(), other.offsets.tolist())
    assert one.healed == other.healed


@pytest.mark.short("stories260K.gguf", "tiny-rwkv*")
@pytest.mark.parametrize("name", REAL)
def test_a_slot_costs_its_own_tail(name, weights):
    """Of a page of 2 000 tokens and 100 slots no more than a few hundred bytes a slot go through the tokenizer."""
    vocabulary, read = vocabulary_of(weights(name)), []

    def tokenize(text):
        read.append(len(text))
        return vocabulary.tokenize(text)

    counting = replace(vocabulary, tokenize=tokenize)
    page = page_of(counting, "The story of the cat and the dog. " * 120)
    counts = []
    for _ in range(100):
        read.clear()
        page.add(" Then the cat said: it is")
        encode_choices(counting, page.prompt, [b" good", b" bad", b" good and bad"], b".")
        page.add(" good.")
        counts.append(sum(read))
    assert (
        tokens_of(page, vocabulary)
        == encode_prompt(vocabulary, read_prompt(vocabulary, page.text, PromptParams())).tolist()
    )
    assert max(counts) < 1_500
    assert sum(counts) / len(counts) < 500


def test_text_that_cannot_be_cut_is_not_searched_each_time():
    """A text without any place is looked at when it has doubled: in all, a few times its length is read."""
    read = []
    words = make_vocabulary([b"a" * n for n in (1, 2, 3)])
    page = GrowingPrompt(replace(words, tokenize=lambda text: (read.append(len(text)), words.tokenize(text))[1]))
    for _ in range(400):
        page.add("aaaaa")
    assert sum(read) < 8 * 2_000
    assert tokens_of(page, words) == [BOS, *words.tokenize(b"a" * 2_000)]


def test_a_page_of_many_pieces_is_no_recursion():
    """Thirty thousand texts, gone back over and forgotten."""
    page = GrowingPrompt(TINY)
    start = page.mark()
    for _ in range(30_000):
        page.add(" a")
    assert page.text == " a" * 30_000
    page.back_to(start)
    assert page.text == ""


def test_going_back_restores_the_page_exactly():
    """Text, tokens, what was kept, and turns; forwards and backwards, as often as wanted."""
    page = page_of(TINY, "a cat. " * 60)
    first, seen = page.mark(), state_of(page)
    page.add("a bat. " * 60)
    second, later = page.mark(), state_of(page)
    page.back_to(first)
    assert state_of(page) == seen
    page.add("at")
    page.back_to(second)
    assert state_of(page) == later
    page.back_to(first)
    page.add("a bat. " * 60)
    assert state_of(page) == later


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), LETTERS.map(lambda text: text * 5)),
        st.tuples(st.just("draw"), st.lists(st.integers(1, 28), max_size=8), st.integers(0, 3)),
        st.tuples(st.just("mark")),
        st.tuples(st.just("back"), st.integers(0, 9)),
    ),
    max_size=14,
)


def do(page, operation):
    """One step of a page; what was drawn is drawn behind all of it."""
    if operation[0] == "add":
        page.add(operation[1])
    else:
        tokens = np.array(operation[1], dtype=np.int32)
        data = TINY.decode(tokens[: len(tokens) - operation[2] if operation[2] < len(tokens) else 0])
        page.add_drawn(encode_prompt(TINY, page.prompt), tokens, data)


@settings(max_examples=n_examples(60))
@given(operations=OPERATIONS)
def test_a_page_gone_back_is_the_page_that_never_went_on(operations):
    """Its twin is made anew of the steps that count."""
    page, steps, marks = GrowingPrompt(TINY), [], []
    for operation in operations:
        if operation[0] == "mark":
            marks.append((page.mark(), list(steps)))
        elif operation[0] == "back" and marks:
            mark, before = marks[operation[1] % len(marks)]
            page.back_to(mark)
            steps = list(before)
        elif operation[0] != "back":
            do(page, operation)
            steps.append(operation)
    twin = GrowingPrompt(TINY)
    for operation in steps:
        do(twin, operation)
    assert state_of(page) == state_of(twin)


def test_drawn_tokens_that_are_the_tokenizers_own_become_text():
    """The page is then what it would be had the text been given."""
    page = page_of(TINY, "a")
    assert drawn(page, ["<bos>", "a"], [" cat", "s"], b" cats") == " cats"
    assert state_of(page) == state_of(page_of(TINY, "a", " cats"))


def test_other_drawn_tokens_stay():
    """`‧c‧at` where the tokenizer writes ` cat`: what the model drew is what stands before the next slot."""
    page = page_of(TINY, "a")
    drawn(page, ["<bos>", "a"], [" c", "at", "."], b" cat.")
    assert page.text == "a cat."
    page.add(" a")
    assert tokens_of(page) == ids("<bos>", "a", " c", "at", ".", " a").tolist()
    assert page.prompt.text == b". a", "what is the tokenizer's own is encoded with what follows"


def test_a_stop_text_inside_a_token_leaves_the_rest_as_text():
    """Of ` cat` before the stop text `at`, ` c` is no token that was drawn: it is text, encoded with what comes."""
    page = page_of(TINY, "a")
    drawn(page, ["<bos>", "a"], [" b", "at", " cat"], b" bat c")
    assert page.text == "a bat c"
    assert tokens_of(page) == ids("<bos>", "a", " b", "at", " c").tolist()
    page.add("at")
    assert tokens_of(page) == ids("<bos>", "a", " b", "at", " cat").tolist()


def test_an_end_token_is_no_part_of_the_page():
    """It ends what was drawn, and nothing after it counts."""
    page = page_of(TINY, "a")
    drawn(page, ["<bos>", "a"], [" c", "at", "<eos>"], b" cat")
    assert tokens_of(page) == ids("<bos>", "a", " c", "at").tolist()
    empty = page_of(TINY, "a")
    drawn(empty, ["<bos>", "a"], ["<eos>"], b"")
    assert state_of(empty) == state_of(page_of(TINY, "a", ""))


def test_the_healed_rest_of_the_page_is_spelled_first():
    """Behind `a c` less its last token, ` ca‧t`: the first bytes drawn are the page's own."""
    page = page_of(TINY, "a c")
    drawn(page, ["<bos>", "a"], [" c", "a", "ts"[:1], "s"], b"ats")
    assert page.text == "a cats"
    assert tokens_of(page) == ids("<bos>", "a", " c", "a", "t", "s").tolist()
    joined = page_of(TINY, "a c")
    drawn(joined, ["<bos>", "a"], [" cat", "."], b"at.")
    assert state_of(joined)[:3] == ("a cat.", [BOS], b"a cat.")


def test_a_token_over_the_healed_rest_and_the_stop_leaves_the_page():
    """Nothing was drawn that is wholly on the page: it stays as it was, with the data as text."""
    page = page_of(TINY, "a c")
    drawn(page, ["<bos>", "a"], [" cat"], b"")
    assert state_of(page) == state_of(page_of(TINY, "a c"))
    drawn(page, ["<bos>", "a"], [" cat"], b"a")
    assert state_of(page) == state_of(page_of(TINY, "a ca"))


def test_half_a_character_is_no_text():
    """A token that splits a character is kept with the token that ends it, and not without."""
    page = page_of(TINY, "a")
    drawn(page, ["<bos>", "a"], ["c", "\\xc3", "\\xa9", "a"], "céa".encode())
    assert page.text == "acéa"
    assert tokens_of(page) == ids("<bos>", "a", "c", "\\xc3", "\\xa9", "a").tolist()
    cut = page_of(TINY, "a")
    drawn(cut, ["<bos>", "a"], ["c", "\\xc3", "\\xa9."], "cé".encode())
    assert tokens_of(cut) == ids("<bos>", "a", "c", "é").tolist()


@pytest.mark.parametrize(
    ("drawn_pieces", "tokens", "text"),
    [
        ([b"\xe2", b"\x82", b"\xac"], [b"a", b"\xe2", b"\x82", b"\xac"], b""),
        ([b"\xe2", b"\x82", b"\xac."], [b"a", b"\xe2\x82", b"\xac"], "a€".encode()),
        ([b"\xe2\x82", b"\xac."], [b"a", b"\xe2\x82", b"\xac"], "a€".encode()),
    ],
)
def test_no_text_begins_inside_a_character(drawn_pieces, tokens, text):
    """Of three tokens the last may be the tokenizer's own: what begins with it is no text; nor is the rest of a token."""
    pieces = [b"a", b"\xe2", b"\x82", b"\xac", b"\xe2\x82", b"\xac."]
    vocabulary = make_vocabulary(pieces)
    number = {piece: 2 + place for place, piece in enumerate(pieces)}
    page = page_of(vocabulary, "a")
    path = np.array([number[piece] for piece in drawn_pieces], dtype=np.int32)
    page.add_drawn(np.array([BOS, number[b"a"]], dtype=np.int32), path, "€".encode())
    assert tokens_of(page, vocabulary) == [BOS, *(number[piece] for piece in tokens)]
    assert page.prompt.text == text


def test_broken_bytes_become_replacement_characters():
    """A page is text: where what was drawn is none, U+FFFD stands, as text."""
    bytewise = make_vocabulary([bytes([byte]) for byte in range(256)])
    page = page_of(bytewise, "a")
    n = 2 + ord("x")
    context, lead = np.array([BOS, 2 + ord("a")], dtype=np.int32), 2 + 0xE2
    assert page.add_drawn(context, np.array([n, lead], dtype=np.int32), b"x\xe2") == "x\ufffd"
    assert page.text == "ax\ufffd"
    assert bytewise.decode(tokens_of(page, bytewise)[1:]) == "ax\ufffd".encode()


@pytest.mark.parametrize("context", [["<bos>", "c"], ["a"], ["<bos>", "a", " c", "a"], ["<bos>", "a", " ca"[:2], "c"]])
def test_what_was_drawn_elsewhere_is_refused(context):
    """The context must be tokens of this page from its beginning."""
    page = page_of(TINY, "a c")
    before = state_of(page)
    with pytest.raises(ProtocolError, match="not drawn after this page"):
        drawn(page, context, ["a"], b"a")
    assert state_of(page) == before


@settings(max_examples=n_examples(60))
@given(
    text=st.text("ab cat", max_size=12),
    tokens=st.lists(st.integers(2, 28), max_size=12),
    n_healed=st.integers(0, 1),
    n_cut=st.integers(0, 4),
)
def test_drawn_tokens_are_the_tokens_of_the_page(text, tokens, n_healed, n_cut):
    """Whatever is drawn: the bytes of the page's tokens are its text, and whole tokens stay as they were drawn."""
    page = page_of(TINY, text)
    own = encode_prompt(TINY, page.prompt)
    context = own[: len(own) - n_healed] if len(own) > 1 else own
    healed = TINY.decode(own[len(context) :])
    spelled = healed + TINY.decode(tokens)
    path = np.concatenate([own[len(context) :], np.array(tokens, dtype=np.int32)])
    data = spelled[len(healed) : max(len(healed), len(spelled) - n_cut)]
    page.add_drawn(context, path, data)
    assert TINY.decode(tokens_of(page)[1:]) == page.text.encode()
    assert page.text == text + data.decode("utf-8", "replace")
    if data.decode("utf-8", "ignore").encode() == data and n_cut == 0:
        assert tokens_of(page) == [*context.tolist(), *path.tolist()]


@settings(max_examples=n_examples(30))
@given(text=st.sampled_from(("Once upon", "a", "She said: ", "one\n")), seed=st.integers(0, 999), n=st.integers(0, 30))
@pytest.mark.parametrize("name", REAL)
def test_random_tokens_of_real_vocabularies_stay(name, text, seed, n, weights):
    """Byte tokens, prefix spaces and broken characters: the page spells its text, and valid text keeps its tokens."""
    vocabulary = vocabulary_of(weights(name))
    rng = np.random.default_rng(seed)
    page = page_of(vocabulary, text)
    context = encode_prompt(vocabulary, page.prompt)
    usable = np.flatnonzero(vocabulary.lengths > 0)
    tokens = rng.choice(usable, size=n).astype(np.int32)
    data = vocabulary.decode(tokens)
    page.add_drawn(context, tokens, data)
    start = len(vocabulary.decode(context)) - len(text.encode())
    found = vocabulary.decode(tokens_of(page, vocabulary))[start:]
    assert page.text == text + data.decode("utf-8", "replace")
    if data.decode("utf-8", "ignore").encode() == data:
        assert found == page.text.encode()
        assert tokens_of(page, vocabulary) == [*context.tolist(), *tokens.tolist()]


def test_a_text_drawn_at_the_beginning_of_a_sentencepiece_page(weights):
    """The space that such vocabularies put before a text is theirs, not the page's."""
    vocabulary = vocabulary_of(weights("stories260K.gguf"))
    once = np.asarray(vocabulary.tokenize(b"Once upon a"), dtype=np.int32)
    page = GrowingPrompt(vocabulary)
    page.add_drawn(np.array([vocabulary.bos], dtype=np.int32), once, b"Once upon a")
    assert state_of(page) == state_of(page_of(vocabulary, "Once upon a"))
    page.add(" time")
    assert tokens_of(page, vocabulary) == [vocabulary.bos, *vocabulary.tokenize(b"Once upon a time")]
    begun = page_of(vocabulary, "Once")
    begun.add_drawn(np.array([vocabulary.bos], dtype=np.int32), np.array([vocabulary.eos], dtype=np.int32), b"")
    assert state_of(begun) == state_of(page_of(vocabulary, "Once"))


def test_template_arguments_open_no_turns():
    """Whether a generation prompt is written is the page's to decide."""
    with pytest.raises(OptionError, match="add_generation_prompt"):
        GrowingPrompt(TINY, template_args={"add_generation_prompt": True})


def test_prompts_that_are_read_already_stay_as_they_are():
    """`read_prompt` gives a `PromptText` back; chat options with it are refused, as with text, and so is an empty one."""
    prompt = page_of(TINY, "a cat").prompt
    assert read_prompt(TINY, prompt, SPECIAL) is prompt
    for prompting in (
        PromptParams(assistant_prefix="a"),
        PromptParams(system="a"),
        PromptParams(template_args={"x": 1}),
    ):
        with pytest.raises(OptionError, match="chat messages"):
            read_prompt(TINY, prompt, prompting)
    with pytest.raises(PromptError, match="the prompt is empty"):
        read_prompt(TINY, replace(prompt, prefix=prompt.prefix[:0], text=b""), PromptParams())


def test_a_page_can_be_cut_from_the_left():
    """`truncate="left"` on a page that holds fixed tokens: the newest ones stay, as of the same text."""
    page = page_of(TINY, "a cat at a bat. " * 30)
    assert len(page.prompt.prefix) > 1
    limits = Limits(nodes=40, sequences=8, rows_per_call=16, kind=ModelKind.ATTENTION, max_idle_rows=64)
    cut = PromptParams(truncate="left")
    with Engine(HashModel(1, vocabulary=TINY, limits=limits)) as engine:
        one, other = (engine.select(prompt, ["a cat", "s"], prompting=cut) for prompt in (page.prompt, page.text))
        with pytest.raises(PromptTooLongError):
            engine.select(page.prompt, ["a cat", "s"])
    assert one.text == other.text
    assert one.choices.logp.tolist() == other.choices.logp.tolist()
