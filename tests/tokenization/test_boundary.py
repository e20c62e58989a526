"""Where the prompt ends and the choices begin: laws on real tokenizers, cases on a vocabulary checked by hand."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.core.numerics import Interval
from selectrie.core.token_trie import TokenTrie
from selectrie.errors import OptionError, PromptError, ProtocolError
from selectrie.options import PromptParams
from selectrie.testing.fakes import BOS, make_vocabulary, spell
from selectrie.tokenization.encoding import (
    PromptText,
    encode_after,
    encode_choices,
    encode_prompt,
    encode_rests,
    find_tail,
    least_tokens,
    shorten_following,
)
from selectrie.tokenization.healing import heal_plan
from selectrie.tokenization.prompts import exact_tokens
from tests.support.vocabularies import start_of, vocabulary_of

TINY = make_vocabulary()
NOTHING = np.empty(0, dtype=np.int32)

PROMPTS = (
    "Answer:",
    "Answer: ",
    "The year 19",
    "Once upon a time there was a lit",
    "say “",
    "é\n\n",
    "x = foo(",
    "日本",
    "🤗 a",
)
CHOICES = (
    *(" Paris", "Paris", "  two", "", " ", "84", "tle dog", "\n", ".", "'t", "🤗", "👩‍👩‍👧", "本語", "é", "e\u0301"),
    *("\0", "a\0b", ")", "<|im_end|>", "</s>", "…"),
)
PARTS = (
    *(
        "日本語",
        "東京都",
        "的",
        "。",
        "🤗",
        "👩‍👩‍👧",
        "é",
        "e\u0301",
        "  ",
        "   ",
        "\n",
        "\n\n",
        "\t",
        "123",
        "4567",
        "3.14",
    ),
    *("don't", "I'll", "x_y", "==", "-" * 20, "foo(bar)", "</s>", "<|im_end|>", "[PAD151646]", "…", "שלום", "हिन्दी"),
    *("\u00a0", "\r\n", "a" * 40, "http://a.b/c?d=e", "CamelCase", "$", "١٢٣", "\0", "\u3000", "the", "of", "park"),
)


def random_text(rng: random.Random, size: int) -> str:
    """At least `size` characters of words, scripts, digits, blanks and odd code points."""
    text = ""
    while len(text) < size:
        kinds = (rng.randrange(32, 127), rng.randrange(0xA0, 0x2FF), rng.randrange(0x4E00, 0x9FFF))
        text += rng.choice(PARTS) if rng.random() < 0.9 else chr(rng.choice(kinds))
        text += " " if rng.random() < 0.5 else ""
    return text


def paths(encoded):
    """The path of each choice as a list."""
    return [encoded.tokens[a:b].tolist() for a, b in pairwise(encoded.offsets)]


def spelled(vocabulary, encoded):
    """Context and paths by their spelling: what a reader would check."""
    return ["‧".join(map(vocabulary.show, part)) for part in (encoded.context.tolist(), *paths(encoded))]


def pairs_that_differ(vocabulary, rng, n_pairs):
    """Of random (prompt, rest) pairs behind long prompts, those whose tail encoding is not the whole encoding."""
    different = []
    n_short = 0
    for _ in range(n_pairs // 20):
        text = random_text(rng, rng.choice((80, 150, 300))).encode()
        blank = rng.choice(("", " "))
        rests = [(blank + random_text(rng, rng.choice((1, 5, 20)))).encode() for _ in range(18)] + [b" ", b" a"]
        prompt = PromptText(start_of(vocabulary), text)
        tail, tokens, offsets = encode_rests(vocabulary, prompt, find_tail(vocabulary, prompt, rests), rests)
        n_short += len(tail.lead) < len(text)
        for (a, b), rest in zip(pairwise(offsets), rests, strict=True):
            whole = [*prompt.prefix.tolist(), *vocabulary.tokenize(text + rest)]
            if tail.before.tolist() + tokens[a:b].tolist() != whole:
                different.append((text, rest))
    return different, n_short


def test_a_tail_is_encoded_as_the_whole(real_vocabulary):
    """Behind long prompts the tokens are those of prompt and choice encoded whole."""
    different, n_short = pairs_that_differ(vocabulary_of(real_vocabulary), random.Random(1), 300)
    assert different == []
    assert n_short >= 12, "hardly any tail was shorter than its prompt: the law was not tried"


@pytest.mark.long
def test_ten_thousand_tails_are_encoded_as_the_whole(real_vocabulary):
    """The same over ten thousand pairs a vocabulary."""
    assert pairs_that_differ(vocabulary_of(real_vocabulary), random.Random(2), 10_000)[0] == []


def test_the_comparison_of_tails_can_fail(weights, monkeypatch):
    """A tail cut where a token spans the place, and believed unseen, is found by the law above."""
    vocabulary = vocabulary_of(weights("stories260K.gguf"))
    monkeypatch.setattr("selectrie.tokenization.encoding._positions", lambda _v, text, _r: iter([len(text)]))
    rests = [b" park", b"."]
    for text in (b"the big dog and the ca", b"she went to the sto"):
        prompt = PromptText(start_of(vocabulary), text)
        tail = find_tail(vocabulary, prompt, rests)
        assert tail.lead == b""
        path = tail.before.tolist() + (tail.encode(vocabulary, [b" park"])[0] or [])
        assert path == [*prompt.prefix.tolist(), *vocabulary.tokenize(text + b" park")]
        wrong = tail.before.tolist() + (tail.encode(vocabulary, [b"t."])[0] or [])
        assert wrong != [*prompt.prefix.tolist(), *vocabulary.tokenize(text + b"t.")]


def test_stories_tails_are_encoded_as_the_whole(weights):
    """The law of tails on the SentencePiece vocabulary of 512."""
    different, n_short = pairs_that_differ(vocabulary_of(weights("stories260K.gguf")), random.Random(3), 300)
    assert (different, n_short > 12) == ([], True)


@pytest.mark.parametrize(
    "text", ["東京都は日本の首都です。" * 30, "a" * 400, "0123456789" * 40, "-" * 300, "\n" * 200, " " * 200]
)
def test_texts_without_words_are_encoded_as_the_whole(real_vocabulary, text):
    """Where no space ends a word, tokens still are those of the whole."""
    vocabulary = vocabulary_of(real_vocabulary)
    rests = [choice.encode() for choice in (*CHOICES, "a", "0", "-", " a")]
    prompt = PromptText(start_of(vocabulary), text.encode())
    tail, tokens, offsets = encode_rests(vocabulary, prompt, find_tail(vocabulary, prompt, rests), rests)
    for (a, b), rest in zip(pairwise(offsets), rests, strict=True):
        whole = vocabulary.tokenize(text.encode() + rest)
        assert tail.before.tolist()[1:] + tokens[a:b].tolist() == whole, rest


@pytest.mark.parametrize("prompt", PROMPTS)
def test_every_joint_encoding_is_context_and_path(real_vocabulary, prompt):
    """Healing: context + path is the joint encoding for every choice, and the healed bytes are the prompt's after it."""
    vocabulary = vocabulary_of(real_vocabulary)
    start = start_of(vocabulary)
    choices = [choice.encode() for choice in CHOICES]
    encoded = encode_choices(vocabulary, PromptText(start, prompt.encode()), choices)
    own = vocabulary.tokenize(prompt.encode())
    shown = (b" " if vocabulary.space_prefix else b"") + prompt.encode()
    assert encoded.boundary == "heal"
    assert encoded.prompt_tokens.tolist() == start.tolist() + own
    assert vocabulary.decode(encoded.context[1:]) + encoded.healed == shown
    for choice, path, shift in zip(choices, paths(encoded), encoded.boundary_shift, strict=True):
        joint = vocabulary.tokenize(prompt.encode() + choice)
        assert encoded.context.tolist() + path == start.tolist() + joint
        assert vocabulary.decode(path) == encoded.healed + choice
        kept = next((i for i, (x, y) in enumerate(zip(own, joint, strict=False)) if x != y), min(len(own), len(joint)))
        assert shift == len(own) - kept
    n_shared = len(encoded.context) - 1
    assert n_shared == len(own) - encoded.boundary_shift.max(), (
        "the context is no longer than all share, and no shorter"
    )


@pytest.mark.parametrize("following", [".", " and so", '"}', "ing on", "\n" * 3 + "A" * 200])
def test_paths_with_following_text_end_at_one_byte(real_vocabulary, following):
    """All paths run to the same, fewest possible, byte of the following text; each is a prefix of its joint encoding."""
    vocabulary = vocabulary_of(real_vocabulary)
    choices = [b" walk", b" cat", b" cats", b" ", b" 12", b" walk"]
    prompt = PromptText(start_of(vocabulary), b"He likes to")
    encoded = encode_choices(vocabulary, prompt, choices, following.encode())
    ends = []
    for choice, path in zip(choices, paths(encoded), strict=True):
        joint = encode_after(vocabulary, prompt.prefix, prompt.text + choice + following.encode())
        assert (encoded.context.tolist() + path)[1:] == joint[: len(encoded.context) + len(path) - 1]
        assert vocabulary.decode(path) == encoded.healed + choice + following.encode()[: encoded.following_bytes]
        left = np.cumsum([len(vocabulary.piece(t)) for t in reversed(joint)])[::-1] - [
            len(vocabulary.piece(t)) for t in joint
        ]
        ends.append({len(following.encode()) - int(n) for n in left if n < len(following.encode())})
    assert encoded.following_bytes == min(set.intersection(*ends))
    assert encoded.following_bytes >= 1


@pytest.mark.parametrize(
    ("prompt", "choices", "expected", "healed"),
    [
        ("a c", [" at", "."], ["<bos>‧a‧ c", " a‧t", "."], b""),
        ("a c", ["at", "."], ["<bos>‧a", " cat", " c‧."], b" c"),
        ("a ", ["cat", "bat"], ["<bos>‧a", " cat", " bat"], b" "),
        ("a ", ["cat", "u"], ["<bos>‧a", " cat", " ‧u"], b" "),
        ("a", [""], ["<bos>‧a", ""], b""),
        ("", [" a", "at"], ["<bos>", " a", "at"], b""),
        ("\xe9", ["a"], ["<bos>‧é", "a"], b""),
    ],
)
def test_healing_by_hand(prompt, choices, expected, healed):
    """The context ends where all encodings part, whatever the prompt's own tokens were."""
    encoded = encode_choices(
        TINY, PromptText(np.array([BOS], dtype=np.int32), prompt.encode()), [c.encode() for c in choices]
    )
    assert spelled(TINY, encoded) == expected
    assert encoded.healed == healed
    assert encoded.first_scored.tolist() == [0] * len(choices)


def test_split_keeps_the_prompts_tokens(real_vocabulary):
    """Encoded apart, the context is the prompt's own encoding and each path spells its choice, no space added."""
    vocabulary = vocabulary_of(real_vocabulary)
    prompt = PromptText(start_of(vocabulary), b"Answer: ")
    encoded = encode_choices(vocabulary, prompt, [b"Paris", b" Paris", b" ", b""], boundary="split")
    assert encoded.context.tolist() == encode_prompt(vocabulary, prompt).tolist()
    assert [vocabulary.decode(path) for path in paths(encoded)] == [b"Paris", b" Paris", b" ", b""]
    assert (encoded.healed, encoded.boundary_shift.tolist(), encoded.boundary) == (b"", [0] * 4, "split")


@pytest.mark.parametrize("context", ["Question: 2+2?\nAnswer:", "Answer: ", "The year 19", "a \n ", "say “"])
def test_harness_is_lm_evals_rule_to_the_letter(real_vocabulary, context):
    """Scored tokens are whole[len(context's own):], trailing white space moved to the continuation first."""
    vocabulary = vocabulary_of(real_vocabulary)
    continuations = [" Paris", "84", "", "tle dog", ".", "\n"]
    prompt = PromptText(start_of(vocabulary), context.encode())
    encoded = encode_choices(vocabulary, prompt, [c.encode() for c in continuations], boundary="harness")
    for continuation, path, first in zip(continuations, paths(encoded), encoded.first_scored, strict=True):
        n_spaces = len(context) - len(context.rstrip())
        moved = context[len(context) - n_spaces :] + continuation
        whole = [*prompt.prefix.tolist(), *vocabulary.tokenize((context.rstrip() + moved).encode())]
        own = [*prompt.prefix.tolist(), *vocabulary.tokenize(context.rstrip().encode())]
        assert path[first:] == whole[len(own) :]
        assert encoded.context.tolist() + path == whole
    assert encoded.healed == b""


def test_equal_choices_are_encoded_once():
    """Duplicates cost nothing and come out as they went in."""
    calls = []

    def counted(text):
        calls.append(text)
        return TINY.tokenize(text)

    vocabulary = make_vocabulary()
    object.__setattr__(vocabulary, "tokenize", counted)
    prompt = PromptText(np.array([BOS], dtype=np.int32), b"a")
    encoded = encode_choices(vocabulary, prompt, [b" cat", b" bat", b" cat"] * 40)
    assert len(encoded.offsets) == 121
    assert paths(encoded)[:3] == paths(encoded)[3:6] == [[19], [21], [19]]
    assert len(calls) < 10


def test_a_choice_that_changes_the_whole_prompt_moves_all_of_it():
    """A rest that merges back past the tail is encoded whole, and everything else gets the tokens it moved."""
    pieces = [bytes([c]) for c in range(32, 127)] + [b" x" * n for n in (1, 2, 4, 8, 16)] + [b"x" + b" x" * 31 + b"!"]
    vocabulary = make_vocabulary(pieces)
    prompt = PromptText(np.array([BOS], dtype=np.int32), b"x" + b" x" * 31)
    encoded = encode_choices(vocabulary, prompt, [b"?", b"!"])
    assert encoded.context.tolist() == [BOS]
    assert encoded.healed == prompt.text
    assert [vocabulary.decode(path) for path in paths(encoded)] == [prompt.text + b"?", prompt.text + b"!"]
    assert len(paths(encoded)[1]) == 1


def test_nothing_left_as_context_is_split():
    """Without BOS, a choice that changes the first token leaves nothing to predict from, so the prompt's tokens stay."""
    prompt = PromptText(NOTHING, b"ca")
    healed, split = (encode_choices(TINY, prompt, [b"t"], boundary=one) for one in ("heal", "split"))
    assert (healed.boundary, healed.healed, len(healed.context)) == ("split", b"", 1)
    assert paths(healed) == paths(split)


def test_lm_evals_rule_with_nothing_left_as_context_is_refused():
    """Its boundary is fixed; the message says what to do."""
    with pytest.raises(PromptError, match="boundary='split'"):
        encode_choices(TINY, PromptText(NOTHING, b"ca"), [b"t"], boundary="harness")


def test_an_unknown_boundary_is_refused():
    """The allowed names stand in the message."""
    with pytest.raises(OptionError, match="'heal', 'split', 'harness'"):
        encode_choices(TINY, PromptText(NOTHING, b"a"), [b"t"], boundary="weld")


def test_no_choices_are_no_paths():
    """An empty set encodes to an empty set; who refuses it stands higher up."""
    encoded = encode_choices(TINY, PromptText(np.array([BOS], dtype=np.int32), b"a"), [], following=b".")
    assert (len(encoded.tokens), encoded.offsets.tolist()) == (0, [0])


def test_bytes_that_are_not_the_texts_turn_healing_into_splitting():
    """A tokenizer that lowers case cannot say which bytes were healed: the boundary used is "split", and whole following text."""
    plain = make_vocabulary()
    object.__setattr__(plain, "tokenize", lambda text: TINY.tokenize(text.lower()))
    prompt = PromptText(np.array([BOS], dtype=np.int32), b"A c")
    assert encode_choices(plain, prompt, [b"AT", b"."]).boundary == "split"
    kept = encode_choices(plain, prompt, [b".", b":"], following=b" CAT")
    assert (kept.boundary, kept.following_bytes) == ("heal", 4)
    long = b" CAT" * 500
    assert len(shorten_following(plain, long)) < len(long)
    whole = encode_choices(plain, prompt, [b".", b":"], following=long)
    assert (whole.boundary, whole.following_bytes, np.diff(whole.offsets).tolist()) == ("heal", 2000, [501, 501])


def chain_probability(trie, edge_p, tables, vocabulary, healed):
    """P(text begins with `healed`) on a model that looks at the trie node and, outside the trie, at nothing but `healed`'s rest."""
    children = {(int(p), int(t)): n for n, (p, t) in enumerate(zip(trie.parent, trie.token, strict=True)) if n}

    def walk(node, left, steps):
        total = 0.0
        for token, piece in enumerate(vocabulary.pieces):
            p = tables[node if node is not None else -1][token]
            if piece.startswith(left):
                total += p
            elif piece and left.startswith(piece) and steps:
                total += p * walk(
                    children.get((node, token)) if node is not None else None, left[len(piece) :], steps - 1
                )
        return total

    return walk(0, healed, 12)


@given(
    prompt=st.sampled_from(["a c", "a ca", "at c", "a b", "ca", "c c", "a"]),
    choices=st.lists(st.sampled_from(["at", "ar", ".", " a", "cat", "t", "", "a"]), min_size=1, max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_probability_of_healed_bytes_lies_in_its_bounds(prompt, choices, seed):
    """N <= P(text begins with the healed bytes) <= N + open, by brute force over every tokenisation; equal when gap is 0."""
    encoded = encode_choices(
        TINY, PromptText(np.array([BOS], dtype=np.int32), prompt.encode()), [c.encode() for c in choices]
    )
    trie = TokenTrie.from_flat(encoded.tokens, encoded.offsets)
    rng = np.random.default_rng(seed)
    tables = rng.dirichlet(np.full(TINY.n_tokens, 0.3), size=len(trie.token) + 1)
    edge_p = np.array([1.0] + [tables[p][t] for p, t in zip(trie.parent[1:], trie.token[1:], strict=True)])
    plan = heal_plan(TINY, trie, encoded.healed)
    with np.errstate(divide="ignore"):
        observed = np.log(np.array([tables[n][ids].sum() for n, ids in plan.observations]))
        found = plan.log_heal(np.log(edge_p), Interval.point(observed))
    if not encoded.healed:
        assert (found.low, found.high, plan.observations) == (0.0, 0.0, ())
        return
    truth = chain_probability(trie, edge_p, tables, TINY, encoded.healed)
    low, high = math.exp(found.low), math.exp(found.high)
    assert low <= truth + 1e-12
    assert truth <= high + 1e-12
    if found.is_known:
        assert truth == pytest.approx(low, abs=1e-12)


def test_open_tokens_are_what_the_gap_counts():
    """Healed " c" at `a`: " c", " ca…" cover it; a lone space may go on with c or not; p by hand."""
    encoded = encode_choices(TINY, PromptText(np.array([BOS], dtype=np.int32), b"a c"), [b"at", b"."])
    plan = heal_plan(TINY, TokenTrie.from_flat(encoded.tokens, encoded.offsets), encoded.healed)
    (root, cover), (_, opened) = plan.observations
    assert (root, cover.tolist(), opened.tolist()) == (
        0,
        list(spell(TINY, [" c", " cat", " car"])),
        list(spell(TINY, [" "])),
    )
    found = plan.log_heal(np.zeros(3), Interval.point(np.log([0.4, 0.2])))
    assert (found.low, found.high) == (pytest.approx(math.log(0.4)), pytest.approx(math.log(0.6)))
    with pytest.raises(ProtocolError, match="expected 2"):
        plan.log_heal(np.zeros(3), Interval.point(np.zeros(3)))
    none, some = (plan.log_heal(np.zeros(3), Interval.point(np.array([-np.inf, one]))) for one in (-np.inf, -1.0))
    assert (none.low, none.high, none.width, none.is_known) == (-np.inf, -np.inf, 0.0, True)
    assert (some.low, some.high, some.width, some.is_known) == (-np.inf, -1.0, np.inf, False)


def test_a_healed_path_in_the_trie_is_followed():
    """Where a choice spells the healed bytes with two tokens, the second one's row takes the place of the open token."""
    trie = TokenTrie.from_flat(
        np.array(spell(TINY, [" ", "c", " c"]), dtype=np.int32), np.array([0, 2, 3], dtype=np.int64)
    )
    plan = heal_plan(TINY, trie, b" c")
    assert [(n, [TINY.show(t) for t in ids]) for n, ids in plan.observations] == [
        (0, [" c", " cat", " car"]),
        (0, []),
        (1, ["c", "ca", "cat"]),
        (1, []),
    ]
    observed = Interval.point(np.array([math.log(0.2), -np.inf, math.log(0.5), -np.inf]))
    found = plan.log_heal(np.log([1.0, 0.5, 0.9, 0.1]), observed)
    assert (found.low, found.is_known) == (pytest.approx(math.log(0.2 + 0.5 * 0.5)), True)


def test_the_space_before_a_text_is_healed_with_it(weights):
    """Healing back to BOS on a SentencePiece vocabulary: the first token carries the space, and so do the healed bytes."""
    vocabulary = vocabulary_of(weights("stories260K.gguf"))
    encoded = encode_choices(vocabulary, PromptText(start_of(vocabulary), b"T"), [b"he", b"im"])
    assert encoded.context.tolist() == [vocabulary.bos]
    assert encoded.healed == b" T"
    plan = heal_plan(vocabulary, TokenTrie.from_flat(encoded.tokens, encoded.offsets), encoded.healed)
    covering = [vocabulary.decode([t]) for t in plan.observations[0][1]]
    assert covering
    assert all(piece.startswith(b" T") for piece in covering)


def texts_of_few_tokens(vocabulary):
    """Texts that take as few tokens as their bytes allow: the longest ones, names of control tokens, both many times."""
    longest = np.argsort(vocabulary.lengths)[-20:].tolist()
    names = [vocabulary.texts[token] for token in vocabulary.control[:20]]
    pieces = [vocabulary.pieces[token].decode("utf-8", "ignore") for token in longest] + names
    return [piece * n for piece in pieces for n in (1, 7, 40)]


def test_no_text_takes_fewer_tokens_than_its_bytes_say(real_vocabulary):
    """So a text is refused before it is encoded only if it would be refused afterwards."""
    vocabulary, rng = vocabulary_of(real_vocabulary), random.Random(5)
    texts = texts_of_few_tokens(vocabulary) + [random_text(rng, rng.randrange(1, 60)) for _ in range(300)]
    for text in filter(None, texts):
        tokens, _ = exact_tokens(vocabulary, text, PromptParams(parse_special=True))
        assert least_tokens(vocabulary, text.encode()) <= len(tokens), text
    bounded = [text for text in texts if least_tokens(vocabulary, text.encode()) > 1]
    assert bounded or vocabulary.tokenizing.altered is None


def test_names_of_control_tokens_count_as_the_longest_tokens():
    """`<eos>` has five bytes and one token, and no other token of this vocabulary has more than four."""
    tokens, _ = exact_tokens(make_vocabulary(), "<eos>" * 20, PromptParams(parse_special=True))
    assert (least_tokens(make_vocabulary(), b"<eos>" * 20), len(tokens)) == (20, 21)
