"""The class that users hold: verdicts, texts, finiteness, sharing; against all short texts tried one by one."""

from __future__ import annotations

import threading
from itertools import islice, product
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import selectrie
from selectrie.errors import GrammarError, InputFileError, OptionError, TextError
from selectrie.grammar import Grammar, enumeration, installed_names
from selectrie.grammar import grammar as grammars
from selectrie.grammar.enumeration import NEVER, Texts, TooManyError, UnknownError, list_texts, min_lengths
from selectrie.grammar.machine.compiling import compile_rules
from selectrie.grammar.readers.gbnf import read_gbnf
from selectrie.grammar.rules import Alternatives, Characters, Concatenation, LiteralText, Reference, Repeat, RuleSet
from selectrie.testing import make_vocabulary
from tests.support.n_examples import n_examples
from tests.support.slow_language import accepts as slowly_accepts
from tests.support.word_lists import made_words

ALPHABET = "ab€"
LONGEST = 4
SHORT = [text for n in range(LONGEST + 1) for text in map("".join, product(sorted(ALPHABET), repeat=n))]
"""Every text of up to four of three characters: 121, the shortest first, then by code points."""

literals = st.sampled_from(["", "a", "b", "ab", "€", "a€"]).map(lambda text: LiteralText(text.encode()))
sets = st.sampled_from([[(97, 97)], [(97, 98)], [(98, 98), (0x20AC, 0x20AC)], []]).map(Characters.of)
leaves = st.one_of(literals, sets, st.sampled_from([Reference("root"), Reference("x"), Reference("x")]))
counts = st.sampled_from([(0, 1), (0, None), (1, None), (2, 2), (1, 3)])
expressions = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(lambda items: Concatenation(tuple(items)))
        | st.lists(inner, min_size=1, max_size=3).map(lambda options: Alternatives(tuple(options)))
        | st.builds(lambda item, pair: Repeat(item, *pair), inner, counts)
    ),
    max_leaves=6,
)
rule_sets = st.builds(lambda root, x: RuleSet({"root": root, "x": x}), expressions, expressions)


def made(rules: RuleSet) -> Grammar:
    """The grammar, or a discarded example where no text matches."""
    grammar = Grammar(rules)
    try:
        assert grammar.is_finite in {True, False}
    except GrammarError as error:
        assume("no text matches" not in str(error))
        raise
    return grammar


@settings(max_examples=n_examples(60))
@given(rule_sets)
@example(
    RuleSet(
        {
            "root": Alternatives((Concatenation((Reference("root"), LiteralText(b"a"))), LiteralText(b"b"))),
            "x": LiteralText(b""),
        }
    )
)
@example(RuleSet({"root": Repeat(Repeat(Characters.of([(97, 98)]), 0, 1), 0, None), "x": LiteralText(b"")}))
def test_texts_are_listed_shortest_first_and_only_they_are_accepted(rules):
    """Of all texts of up to four characters, those that the slow reader accepts, in order, each once; verdicts agree."""
    grammar = made(rules)
    expected = [text for text in SHORT if slowly_accepts(rules, text)]
    listed = []
    for text in islice(grammar.expand(10_000 if grammar.is_finite else 400), 400):
        if len(text) > LONGEST:
            break
        listed.append(text)
    assert listed == expected
    for text in SHORT[:40]:
        verdict = grammar.accepts(text)
        assert bool(verdict) is (text in expected)
        assert grammar.accepts(text.encode()).verdict == verdict.verdict
        begun = any(longer.startswith(text) for longer in expected)
        assert verdict.verdict != "no" or not begun
        if verdict.verdict == "no":
            assert grammar.accepts(text[: verdict.at]).verdict != "no"
            assert grammar.accepts(text[: verdict.at + 1]).verdict == "no"


def test_that_law_can_fail():
    """The slow reader tells a grammar from one with another repetition."""
    one, other = (RuleSet({"root": Repeat(LiteralText(b"a"), least, None)}) for least in (0, 1))
    assert [text for text in SHORT if slowly_accepts(one, text)] != [
        text for text in SHORT if slowly_accepts(other, text)
    ]


@settings(max_examples=n_examples(60))
@given(rule_sets)
def test_finite_grammars_are_counted_exactly(rules):
    """All texts are listed where there are finitely many; where not, there is one that no finite automaton of this size ends."""
    grammar = made(rules)
    if grammar.is_finite:
        texts = list(islice(grammar.expand(), 5_000))
        assert len(texts) == len(set(texts)) == min(grammar.count(), 5_000)
        assert texts == sorted(texts, key=lambda text: (len(text), text))
        assert all(map(grammar.accepts, texts[:50]))
    else:
        assert grammar.count() is None
        assert len(list(grammar.expand(300))) == 300


@settings(max_examples=n_examples(150))
@given(rule_sets, st.sampled_from([1, 3, 30, 2_000]))
def test_a_grammar_is_listed_up_to_the_number_of_texts_that_is_promised(rules, most):
    """All its texts in order where there are at most so many, else None; put together from its parts or, where rules lead to
    themselves, by the machine, which is the slow twin."""
    grammar = made(rules)
    few = grammar.is_finite and len(list(islice(grammar.expand(), most + 1))) <= most
    expected = tuple(grammar.expand()) if few else None
    assert grammar.listed(most) == expected
    assert grammar.listed(most) is grammar.listed(most)
    try:
        assert list_texts(rules, most) == expected
    except TooManyError:
        assert expected is None
    except UnknownError:
        pass


@pytest.mark.parametrize(
    ("source", "most", "n_texts"),
    [
        ('root ::= "a" [0-9]{2} | "b"', 101, 101),
        ('root ::= "a" [0-9]{2} | "b"', 100, None),
        ('root ::= digit{0,3} | ""\ndigit ::= [0-9é]', 2_000, 1 + 11 + 121 + 1331),
        ('root ::= "a"? "a"? "a"? ("" "")*', 4, 4),
        ('root ::= "a"*', 4, None),
    ],
)
def test_texts_are_put_together_without_compiling(source, most, n_texts):
    """Exactly as many as are promised and one more; parts that may be empty; parts without end."""
    rules = read_gbnf(source)
    if n_texts is None:
        with pytest.raises(TooManyError):
            list_texts(rules, most)
    else:
        assert len(list_texts(rules, most)) == n_texts


@pytest.mark.parametrize(
    "source",
    [
        'root ::= "a" | root',
        'root ::= "a" | <[5]>',
        'root ::= "a" | "b" dead\ndead ::= dead "x"',
        'root ::= "a"{0,20000}',
        'root ::= "a" | "\\U0001F600"{0,1000} "b"{0,1000}',
    ],
)
def test_what_only_a_machine_can_tell_is_left_to_it(source):
    """Rules that lead to themselves, tokens, parts without texts, and what takes too much memory or too many steps."""
    with pytest.raises(UnknownError):
        list_texts(read_gbnf(source), 10_000_000)


@pytest.mark.parametrize("most", ["x", None, -1, 1.5, True])
@pytest.mark.parametrize("grammar", [Grammar.from_regex("[a-c]"), Grammar.from_choices(["a"])], ids=["rules", "list"])
def test_a_limit_of_a_list_is_a_count(grammar, most):
    """Any other value is an `OptionError` that names it, whatever the grammar was made of."""
    with pytest.raises(OptionError, match="max_texts"):
        grammar.listed(most)


@given(rule_sets, st.lists(st.integers(0, 40), min_size=2, max_size=5))
@settings(max_examples=n_examples(40))
def test_what_was_listed_before_changes_no_list(rules, limits):
    """A grammar that was listed up to other numbers answers as a new one does."""
    assert made(rules)
    used = Grammar(rules)
    assert [used.listed(most) for most in limits] == [Grammar(rules).listed(most) for most in limits]


@pytest.mark.parametrize("source", ['root ::= [a-z]{1,3} x\nx ::= "" | "b"', 'root ::= x | "a" root | "a"\nx ::= "b"?'])
def test_what_was_counted_and_listed_is_kept(source, monkeypatch):
    """However many callers ask, with whatever limit, the work is done once; an error is kept as well."""
    n_counted, n_listed = [], []
    count, listed = Texts.count, enumeration.list_texts
    monkeypatch.setattr(Texts, "count", lambda texts: n_counted.append(texts) or count(texts))
    monkeypatch.setattr(enumeration, "list_texts", lambda rules, most: n_listed.append(most) or listed(rules, most))
    grammar = Grammar(read_gbnf(source))
    answers = [(grammar.count(), grammar.is_finite, grammar.listed(100), grammar.listed(30)) for _ in range(3)]
    assert answers == answers[:1] * 3
    assert len(n_counted) <= 1
    assert n_listed == [100]

    def fail(_):
        n_counted.append(None)
        raise GrammarError("too long")

    monkeypatch.setattr(Texts, "count", fail)
    n_counted.clear()
    failing = Grammar.from_regex("[a-c]")
    for _ in range(3):
        with pytest.raises(GrammarError, match="too long"):
            failing.count()
    assert len(n_counted) == 1


@pytest.mark.parametrize(
    "root", [Reference("x"), Alternatives(()), Characters(())], ids=["missing", "none", "no character"]
)
def test_what_cannot_be_compiled_is_not_listed(root):
    """Rules that are not there and rules without texts, beside a text: None, and the error comes from what compiles it."""
    grammar = Grammar(RuleSet({"root": root}))
    assert grammar.listed(10) is None
    with pytest.raises(GrammarError):
        grammar.count()
    beside = Grammar(RuleSet({"root": Alternatives((root, LiteralText(b"a")))}))
    assert beside.listed(10) == (None if isinstance(root, Reference) else ("a",))


def test_long_rules_are_listed_as_promised():
    """45 000 pairs of words, which cannot be compiled, and as many in two rules."""
    words = made_words(45_000, n_each=2)
    alternatives = " | ".join(f'"{word}"' for word in words)
    assert Grammar.from_gbnf(f"root ::= {alternatives}").listed(100_000) == tuple(
        sorted(words, key=lambda text: (len(text), text))
    )


@settings(max_examples=n_examples(60))
@given(rule_sets)
def test_the_shortest_way_out_is_exact(rules):
    """From the start it is the length of the first text; every state has one, but for a start without texts."""
    grammar = made(rules)
    n_lost = sum(least == NEVER for least in min_lengths(compile_rules(rules)))
    assert n_lost <= (1 if grammar.accepts("") else 0)
    texts = grammar._texts("test")
    assert texts.min_length == len(next(grammar.expand(1)))


@settings(max_examples=n_examples(60))
@given(rule_sets)
def test_printed_rules_have_the_same_language(rules):
    """A grammar, its GBNF, and what that reads back to: the same texts in the same order."""
    grammar = made(rules)
    again = Grammar.from_gbnf(grammar.to_gbnf())
    assert list(again.expand(100)) == list(grammar.expand(100))
    assert again.to_gbnf() == Grammar.from_gbnf(again.to_gbnf()).to_gbnf()


CASES = [
    ('root ::= "yes" | "no"', "ye", "unfinished", 2, ("'s'",)),
    ('root ::= "yes" | "no"', "yes", "yes", 3, ("the end",)),
    ('root ::= "yes" | "no"', "yesx", "no", 3, ("the end",)),
    ('root ::= "yes" | "no"', "mo", "no", 0, ("'n'", "'y'")),
    ("root ::= [0-9]+", "12a", "no", 2, ("'0'…'9'", "the end")),
    ('root ::= "é€" [^\\x00-\\x1f]', "é€", "unfinished", 2, ("' '…U+10FFFF",)),
    ('root ::= "é€"', "éa", "no", 1, ("'€'",)),
    ('root ::= "é€"', "ü", "no", 0, ("'é'",)),
    ('root ::= "a" | <think> | !<[7]>', "", "unfinished", 0, ("'a'", "any token but token 7", "<think>")),
    ('root ::= "é€"', "é".encode()[:1], "unfinished", 1, ("byte 0xA9",)),
    ('root ::= "é€"', b"\xc3\xff", "no", 1, ("byte 0xA9",)),
    ("root ::= .", b"\xc0\xaf", "no", 0, ("U+0000…U+10FFFF",)),
    ("root ::= .", b"\xed\xa0\x80", "no", 1, ("byte 0x80…byte 0x9F",)),
]


@pytest.mark.parametrize(("text", "tried", "verdict", "at", "expected"), CASES)
def test_a_verdict_names_the_place_and_what_could_stand_there(text, tried, verdict, at, expected):
    """Characters of a text, bytes of bytes; inside a character the bytes that go on."""
    found = Grammar.from_gbnf(text).accepts(tried)
    assert (found.verdict, found.at, found.expected) == (verdict, at, expected)
    assert bool(found) is (verdict == "yes")


def test_many_things_expected_are_cut():
    """63 of them, how many more, and the end."""
    points = "".join(chr(0x100 + 2 * i) for i in range(100))
    found = Grammar.from_gbnf(f"root ::= [{points}]*").accepts("")
    assert len(found.expected) == 64
    assert found.expected[-2:] == ("38 more", "the end")


def test_a_lone_surrogate_is_no_text():
    """It is refused before it is read."""
    with pytest.raises(TextError, match="lone surrogate"):
        Grammar.from_gbnf("root ::= .*").accepts("a\ud800")


def test_wide_classes_cost_no_more_than_their_range():
    """The first of a million million texts, and their number: two characters of 1 112 064 each."""
    grammar = Grammar.from_gbnf("root ::= .{2}")
    assert list(grammar.expand(3)) == ["\0\0", "\0\1", "\0\2"]
    assert grammar.count() == 1_112_064**2


def test_dead_lengths_cost_nothing():
    """The shortest text has 80 characters, among exponentially many beginnings that could be shorter."""
    grammar = Grammar.from_gbnf('root ::= (s "x"){20}\ns ::= "(" s ")" | "[" s "]" | "ab" | "cde"')
    assert next(grammar.expand(1)) == "abx" * 20


@pytest.mark.parametrize("limit", [None, -1])
def test_infinitely_many_texts_need_a_limit(limit):
    """And a limit is no negative number."""
    with pytest.raises(OptionError, match="limit"):
        Grammar.from_gbnf('root ::= "a"*').expand(limit)


@pytest.mark.parametrize("ask", [lambda grammar: grammar.expand(3), lambda grammar: grammar.count()])
def test_tokens_are_no_text(ask):
    """What names tokens has no texts to list."""
    with pytest.raises(GrammarError, match="names tokens"):
        ask(Grammar.from_gbnf("root ::= <think>"))


def test_counting_ends():
    """More situations than may be looked at are an error that says so."""
    texts = Grammar.from_gbnf('root ::= ("a" | "b" "c"?){0,50}')._texts("count")
    assert texts.count() > 1_000_000
    with pytest.raises(GrammarError, match="cannot be counted"):
        texts.count(work=20)


def test_equal_rules_have_equal_digests():
    """Blanks and comments are no part of it; order, root and rules are."""
    one, same, other, order = map(
        Grammar.from_gbnf,
        (
            'root ::= a "b"\na ::= [ab]',
            '# x\nroot ::=\n a   "b" # y\na ::= [ba]\n',
            'root ::= a "b"\na ::= [ac]',
            'a ::= [ab]\nroot ::= a "b"',
        ),
    )
    assert one.digest == same.digest
    assert len({one.digest, other.digest, order.digest}) == 3
    assert len({Grammar.from_gbnf('root ::= a\na ::= "b"', root=root).digest for root in ("root", "a")}) == 2


def test_files_are_read_by_their_ending(tmp_path: Path):
    """GBNF by .gbnf, with a byte order mark or without; mistakes name the file and the place."""
    path = tmp_path / "one.GBNF"
    path.write_text('\ufeffroot ::= "a"', encoding="utf-8")
    assert (Grammar.from_file(path).name, [*Grammar.from_file(path).expand()]) == ("one.GBNF", ["a"])
    path.write_text("root ::= \n\n oops", encoding="utf-8")
    with pytest.raises(
        GrammarError, match=r"line 3, column 2: .*one.GBNF: the rule 'oops' is not defined; .*\n   oops\n   \^"
    ):
        Grammar.from_file(path)
    with pytest.raises(InputFileError, match=r"ends in one of .gbnf, .lark, .json"):
        Grammar.from_file(Path(__file__))
    with pytest.raises(InputFileError, match="No such file"):
        Grammar.from_file(tmp_path / "none.gbnf")
    path.write_bytes(b"root ::= \xff")
    with pytest.raises(InputFileError, match=r":1: byte 0xff is not UTF-8 .*; save the file as UTF-8"):
        Grammar.from_file(path)


def test_installed_grammars_are_loaded_by_name():
    """The package brings them; a name that is none is told the others."""
    assert "move" in installed_names()
    assert Grammar.load("move").accepts("north 3")
    with pytest.raises(OptionError, match="chess, csv"):
        Grammar.load("no such")


def test_the_name_is_promised():
    """`selectrie.Grammar` is this class."""
    assert selectrie.Grammar is Grammar
    assert repr(Grammar.load("move")) == "<Grammar move>"


@pytest.mark.parametrize(
    ("text", "verdict", "at", "expected"),
    [
        ("[1,2]", "yes", 5, ("the end",)),
        ("[1,2", "unfinished", 4, ("','", "'0'…'9'", "']'")),
        ("[1;", "no", 2, ("','", "'0'…'9'", "']'")),
        ("é", "no", 0, ("'['",)),
    ],
)
def test_grammars_of_llguidance_have_verdicts_too(text, verdict, at, expected):
    """Read byte by byte, with the same places."""
    grammar = Grammar.from_llguidance(r'start: "[" NUMBER ("," NUMBER)* "]"' + "\nNUMBER: /[0-9]+/")
    found = grammar.accepts(text)
    assert (found.verdict, found.at, set(found.expected)) == (verdict, at, set(expected))


def texts_by_tokens(grammar: Grammar, vocabulary) -> set[bytes]:
    """Every text of a finite grammar by walking its automaton."""
    automaton, found = grammar.automaton(vocabulary), set()
    work = [(automaton.start(), b"")]
    while work:
        state, text = work.pop()
        if automaton.can_end(state):
            found.add(text)
        allowed = automaton.allowed(state)
        ids = allowed.nonzero()[0] if allowed.dtype == bool else allowed
        work += [(automaton.advance(state, int(token)), text + vocabulary.pieces[token]) for token in ids]
    return found


def test_an_automaton_walks_exactly_the_texts():
    """By every way to cut them into tokens."""
    grammar = Grammar.from_gbnf('root ::= ("a" " "?)? ("cat" | "bat") "s"?')
    assert texts_by_tokens(grammar, make_vocabulary()) == {text.encode() for text in grammar.expand()}


def test_automata_of_one_vocabulary_share_what_they_learned():
    """Two vocabularies with equal tokens have one automaton, another one its own; all have one machine."""
    grammar = Grammar.from_gbnf('root ::= "cat"')
    first, second = (grammar.automaton(make_vocabulary()) for _ in range(2))
    other = grammar.automaton(make_vocabulary([b"c", b"a", b"t"]))
    assert first._inner is second._inner
    assert other._inner is not first._inner
    assert other._inner._machine is first._inner._machine


def test_a_prefix_is_spelled_first():
    """The bytes of a token that was opened again; what goes beyond it is the grammar's."""
    vocabulary = make_vocabulary()
    automaton = Grammar.from_gbnf('root ::= "cat"').automaton(vocabulary, prefix=b" ")
    allowed = automaton.allowed(automaton.start())
    ids = allowed.nonzero()[0] if allowed.dtype == bool else allowed
    assert sorted(vocabulary.pieces[token] for token in ids) == [b" ", b" c", b" cat"]
    assert automaton.can_end(automaton.walk(automaton.start(), b" cat"))


def test_a_full_machine_is_left_to_those_who_have_it(monkeypatch: pytest.MonkeyPatch):
    """The next caller gets a new one; states of the old automaton stay valid."""
    monkeypatch.setattr("selectrie.grammar.grammar.FULL_CONFIGURATIONS", 5)
    vocabulary, grammar = make_vocabulary(), Grammar.from_gbnf('root ::= "abcabcabc"')
    old = grammar.automaton(vocabulary)
    state = old.walk(old.start(), b"abcabcabc")
    new = grammar.automaton(vocabulary)
    assert new._inner._machine is not old._inner._machine
    assert old.can_end(state)
    assert new.can_end(new.walk(new.start(), b"abcabcabc"))


def test_the_least_used_vocabularies_are_forgotten(monkeypatch):
    """Four are kept, the fifth takes the place of the one not asked for the longest; full ones are made again."""
    made_of = []

    def make(vocabulary):
        made_of.append(vocabulary.pieces[2])
        return SimpleNamespace(n_bytes=10)

    monkeypatch.setattr(grammars, "MAX_AUTOMATA", 2)
    monkeypatch.setattr(grammars, "GUIDED_BYTES", 10)
    guided = Grammar(SimpleNamespace(automaton=make))
    a, b, c = (make_vocabulary([piece]) for piece in (b"a", b"b", b"c"))
    for vocabulary in (a, b, a, c, a, b):
        guided._automaton_of(vocabulary)
    assert made_of == [b"a", b"b", b"c", b"b"]
    guided._automaton_of(b).n_bytes = 11
    assert guided._automaton_of(b).n_bytes == 10
    assert made_of[4:] == [b"b"]


def test_threads_share_a_grammar():
    """Eight of them walk one grammar at once, from its first use on; each finds what one alone finds."""
    text = 'root ::= "[" (item ("," item)*)? "]"\nitem ::= root | [abc]+ | "cat" "s"?'
    vocabulary = make_vocabulary([*map(bytes, zip(b"abcst[],")), b"ca", b"at", b"],", b"[[", b"cats"])
    expected = walked(Grammar.from_gbnf(text), vocabulary, 0)
    shared, found, start = Grammar.from_gbnf(text), {}, threading.Barrier(8)

    def work(seed: int) -> None:
        start.wait()
        found[seed] = walked(shared, vocabulary, seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == expected
    assert all(found[seed] == walked(Grammar.from_gbnf(text), vocabulary, seed) for seed in range(8))


def walked(grammar: Grammar, vocabulary, seed: int) -> list[tuple[int, ...]]:
    """Allowed tokens along a path of 60, the choice at each place by seed and place."""
    automaton = grammar.automaton(vocabulary)
    state, found = automaton.start(), []
    for i in range(60):
        allowed = automaton.allowed(state)
        ids = tuple((allowed.nonzero()[0] if allowed.dtype == bool else allowed).tolist())
        found.append(ids)
        if not ids:
            break
        state = automaton.advance(state, ids[(7 * i + 3 * seed) % len(ids)])
    return found


@pytest.mark.parametrize(("source", "reader"), [('root ::= "a"', "from_gbnf"), (int, "from_type")])
def test_a_source_that_a_reader_takes_is_no_grammar_yet(source, reader):
    """A text or a type in place of rules is refused before it is compiled, and the reader is named."""
    with pytest.raises(OptionError, match=f"Grammar.{reader}"):
        Grammar(source)
