"""Reading and printing GBNF."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.errors import GrammarError
from selectrie.grammar import Grammar
from selectrie.grammar.readers.gbnf import MAX_DEPTH, read_gbnf
from selectrie.grammar.rules import (
    ANY,
    EMPTY,
    NOTHING,
    Alternatives,
    Characters,
    Concatenation,
    LiteralText,
    Reference,
    Repeat,
    RuleSet,
    TokenTerminal,
    canonical_rules,
    gbnf_expression,
    gbnf_names,
    gbnf_rules,
)
from selectrie.grammar.source_positions import MAX_SYMBOLS
from tests.support.n_examples import n_examples


def is_read(text: str) -> bool:
    """Read, or refused by our own error; anything else passes through."""
    try:
        read_gbnf(text)
    except GrammarError:
        return False
    return True


A, B = LiteralText(b"a"), LiteralText(b"b")


def body(text: str):
    """What the right side of a rule is read as."""
    return read_gbnf(f"root ::= {text}").rules["root"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"a"', A),
        ('""', EMPTY),
        ("", EMPTY),
        ('"a" "b"', Concatenation((A, B))),
        ('"a"|"b"', Alternatives((A, B))),
        ('| "a"', Alternatives((EMPTY, A))),
        ('"a" |', Alternatives((A, EMPTY))),
        ('"a" "b" | "b"', Alternatives((Concatenation((A, B)), B))),
        ('"a"*', Repeat(A, 0, None)),
        ('"a" +', Repeat(A, 1, None)),
        ('"a"?', Repeat(A, 0, 1)),
        ('"a"{3}', Repeat(A, 3, 3)),
        ('"a"{ 3 , }', Repeat(A, 3, None)),
        ('"a"{0,5000}', Repeat(A, 0, 5000)),
        ('"a"?*', Repeat(Repeat(A, 0, 1), 0, None)),
        ('"a" "b"*', Concatenation((A, Repeat(B, 0, None)))),
        ('("a" "b")*', Repeat(Concatenation((A, B)), 0, None)),
        ("()", EMPTY),
        (".", ANY),
        ("...", Concatenation((ANY, ANY, ANY))),
        ("root root", Concatenation((Reference("root"), Reference("root")))),
        (r'"\n\r\t\\\"\[\]\-"', LiteralText(b'\n\r\t\\"[]-')),
        (r'"\x41\u00e9\U0001F600"', LiteralText("Aé😀".encode())),
        ('"# no comment"', LiteralText(b"# no comment")),
        ('"two\nlines"', LiteralText(b"two\nlines")),
        ("[a]", Characters(((97, 97),))),
        ("[a-cx]", Characters(((97, 99), (120, 120)))),
        ("[a-]", Characters(((45, 45), (97, 97)))),
        ("[-a]", Characters(((45, 45), (97, 97)))),
        (r"[a\-c]", Characters(((45, 45), (97, 97), (99, 99)))),
        (r"[+--]", Characters(((43, 45),))),
        (r"[a-\x63]", Characters(((97, 99),))),
        (r"[\[-\]]", Characters(((91, 93),))),
        ("[(#|]", Characters(((35, 35), (40, 40), (124, 124)))),
        ("[^^]", Characters(((0, 93), (95, 0xD7FF), (0xE000, 0x10FFFF)))),
        (r"[^\x00-\U0010FFFF]", Characters(())),
        (r"[\uD7FF-\uE000]", Characters(((0xD7FF, 0xD7FF), (0xE000, 0xE000)))),
        ("<think>", TokenTerminal(("<think>",))),
        ("<|im_end|>", TokenTerminal(("<|im_end|>",))),
        ("<[1000]>", TokenTerminal((1000,))),
        ("!<[7]>*", Repeat(TokenTerminal((7,), negated=True), 0, None)),
        ("!<think>", TokenTerminal(("<think>",), negated=True)),
    ],
)
def test_every_sign_has_its_meaning(text, expected):
    """Each construct of the notation, read alone."""
    assert body(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        'root ::= "a" |\n "b"',
        'root ::=\n\n"a" | "b"',
        'root ::= ("a"\n|\r\n"b" # why\n)',
        '# head\n\n  root ::= "a" | "b" # tail',
        'root::="a"|"b"\r\n',
        '\n\troot\t::= "a" |\n\n# between\n"b"\n\n',
    ],
)
def test_a_rule_goes_on_behind_a_line_end_where_it_must(text):
    """In parentheses, after '|' and after '::='."""
    assert read_gbnf(text).rules["root"] == Alternatives((A, B))


def test_rules_keep_their_order_and_their_places():
    """Names stand where the source has them, in any order, with digits and dashes."""
    text = '-1 ::= "a"\nroot ::= -1 b2\n\nb2 ::= root?'
    rules = read_gbnf(text)
    assert list(rules.rules) == ["-1", "root", "b2"]
    assert {name: text[span.start : span.stop] for name, span in rules.spans.items()} == {n: n for n in rules.rules}
    reference = rules.rules["root"].items[1]
    assert text[reference.span.start : reference.span.stop] == "b2"


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("", 1, 1, "expected a rule's name, found the end"),
        ('"a"', 1, 1, "expected a rule's name, found '\"a\"'"),
        ("root", 1, 5, "expected '::=', found the end"),
        ('root\n::= "a"', 1, 5, "expected '::=', found a new line"),
        ('root ::= "a"\n | "b"', 2, 2, "put the '|' before the line end, or use parentheses"),
        ('root ::= ("a"', 1, 14, r"expected '\|' or '\)', found the end"),
        ('root ::= "a")', 1, 13, r"found '\)'"),
        ('root ::= * "a"', 1, 10, r"expected a symbol .*, found '\*'"),
        ('root ::= a ::= "b"', 1, 12, "found '::='"),
        ('root ::= "a', 1, 10, "this text in quotes is not closed"),
        ("root ::= [a", 1, 10, "this class of characters is not closed"),
        ("root ::= []", 1, 10, "this class is empty"),
        ("root ::= [z-a]", 1, 10, r"the range U\+007A to U\+0061 is reversed"),
        (r'root ::= "ab\q"', 1, 13, "this escape does not exist"),
        (r'root ::= "\x4"', 1, 11, "this escape does not exist"),
        (r'root ::= "\U00110000"', 1, 11, r"U\+110000 is not a character"),
        (r'root ::= "\ud800"', 1, 10, r"the surrogate U\+D800 is not a character"),
        (r"root ::= [\uD800-\uDFFF]", 1, 10, r"the surrogate U\+D800 is not a character"),
        (r"root ::= [a-c\uDFFF]", 1, 10, r"the surrogate U\+DFFF is not a character"),
        (r"root ::= [\x00-\uDFFF]", 1, 10, r"the surrogate U\+DFFF is not a character"),
        ('root ::= "a"{,3}', 1, 13, "not a repetition"),
        ('root ::= "a"{3,2}', 1, 13, "the lower count 3 exceeds the upper count 2"),
        ('root ::= "a"{\n2}', 1, 13, "only inside parentheses"),
        ('root ::= "a"{2001}', 1, 13, "the lower count 2001 exceeds the limit of 2000"),
        ('root ::= "a"{9999999999}', 1, 13, "the number 9999999999… is too large"),
        ("root ::= <[x]>", 1, 10, "not a token"),
        ("root ::= ! <a>", 1, 10, "'!' is only allowed before a token"),
        ("root ::= my_rule", 1, 12, "a rule's name consists of letters, digits and '-'"),
        ("root ::= 'a'", 1, 10, "double quotes"),
        ('root = "a"', 1, 6, "'=' is not allowed here"),
        ('root ::= "a\0"', 1, 12, "a NUL character"),
        ('root ::= "a"\n\nroot ::= "b"', 3, 1, "the rule 'root' is defined twice"),
        ('root ::= "a"\n  | b', 2, 3, "found"),
        ('root ::= "a" |\n  other', 2, 3, "the rule 'other' is not defined"),
        ("root ::= ((" + '"a"{900}' + "){900}){900}", 1, 1, "multiply to more than 1000000"),
    ],
)
def test_mistakes_are_told_with_their_place(text, line, column, reason):
    """Line, column, what was expected there, and the line with a caret below the place."""
    with pytest.raises(GrammarError, match=reason) as caught:
        read_gbnf(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    if caught.value.excerpt:
        assert str(caught.value).splitlines()[-1].endswith("^")


@pytest.mark.parametrize("text", ['{"type": "object"}', "\n {", '{"$schema": 1}\n'])
def test_json_is_recognised(text, tmp_path):
    """A schema that was pasted as a grammar is called JSON, with the constructor that reads it; in a file too."""
    with pytest.raises(GrammarError, match=r"this looks like JSON; Grammar\.from_json_schema reads a JSON Schema"):
        Grammar.from_gbnf(text)
    (tmp_path / "a.gbnf").write_text(text)
    with pytest.raises(GrammarError, match=r"a\.gbnf: this looks like JSON"):
        Grammar.from_file(tmp_path / "a.gbnf")


def test_counts_may_multiply_to_the_limit():
    """1000 times 1000 copies are a million, and not more."""
    assert read_gbnf('root ::= ("a"{1000}){1000}').rules["root"] == Repeat(
        Repeat(LiteralText(b"a"), 1000, 1000), 1000, 1000
    )
    with pytest.raises(GrammarError, match="multiply to more than 1000000"):
        read_gbnf('root ::= ("a"{1000}){1001}')


def test_a_root_that_is_not_there_is_told():
    """With the rules that there are."""
    with pytest.raises(GrammarError, match="no rule 'start'; name one of 'root', 'b'"):
        read_gbnf('root ::= b\nb ::= "a"', root="start")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(" * 1_000_000, f"nested more than {MAX_DEPTH} levels deep"),
        ('"a"' + "*" * 1_000, f"nested more than {MAX_DEPTH} levels deep"),
        ("root " * (MAX_SYMBOLS + 1), f"more than {MAX_SYMBOLS} symbols"),
        ('"' + "a" * 1_000_000, "not closed"),
        ("[" * 1_000_000, "not closed"),
        ('"a"' + "{ " * 500_000, "not a repetition"),
        ("<a" * 500_000, "not a token"),
    ],
)
def test_a_megabyte_of_anything_is_read_or_refused(text, reason):
    """No recursion over the input, and no search that goes over it again and again."""
    with pytest.raises(GrammarError, match=reason):
        read_gbnf("root ::= " + text)


@pytest.mark.parametrize(("depth", "fits"), [(MAX_DEPTH, True), (MAX_DEPTH + 1, False)])
def test_parentheses_nest_up_to_a_bound(depth, fits):
    """Redundant ones leave no trace."""
    text = "root ::= " + "(" * depth + '"a"' + ")" * depth
    if fits:
        assert read_gbnf(text).rules["root"] == A
    else:
        with pytest.raises(GrammarError, match="nested"):
            read_gbnf(text)


def test_texts_of_llama_cpp_parse_and_fail_as_there(test_data):
    """Its parser's own cases."""
    for case in json.loads(test_data("grammar/parser_cases.json").read_text()):
        assert is_read(case["grammar"]) is (case["kind"] == "parses"), case["grammar"]


def test_every_grammar_of_llama_cpp_parses(test_data):
    """The files it ships, and three of others."""
    files = sorted(test_data("grammar/gbnf").glob("*.gbnf"))
    assert len(files) >= 11
    for file in files:
        assert read_gbnf(file.read_text(encoding="utf-8")).root == "root"


def test_verdicts_on_texts_are_those_of_llama_cpp(test_data):
    """Every text that its tests accept or reject by GBNF."""
    cases = [case for case in json.loads(test_data("grammar/accept_reject.json").read_text()) if case["kind"] == "gbnf"]
    assert len(cases) >= 8
    for case in cases:
        grammar = Grammar.from_gbnf(case["grammar"])
        for verdict, texts in (("yes", case["accept"]), ("no or unfinished", case["reject"])):
            for text in texts:
                assert bool(grammar.accepts(text)) is (verdict == "yes"), (case["name"], text)


def test_a_negated_class_may_name_surrogates():
    """They are no characters, so the class is the same without them."""
    named, plain = (Grammar.from_gbnf(rf"root ::= [^{body}]") for body in (r"a\uD800-\uDFFF", "a"))
    for text in ("b", "\ud7ff", "\ue000", "a"):
        assert named.accepts(text).verdict == plain.accepts(text).verdict


SIGNS = st.sampled_from(
    [
        *'"[]()|*+?.{},<>!#\\-^_ \n\r',
        "root",
        "::=",
        "a ::= ",
        '"a"',
        "[a-z]",
        "{1,2}",
        r"\x",
        "<[1]>",
        "é",
        "\0",
        "\ud800",
    ]
)


@settings(max_examples=n_examples(60))
@given(st.lists(SIGNS, max_size=30).map("".join) | st.text(max_size=40))
def test_any_text_is_read_or_refused(text):
    """Nothing but our error leaves the reader, whatever is put in."""
    for whole in (text, "root ::= " + text):
        assert is_read(whole) in {True, False}


codes = st.integers(0, 0x10FFFF) | st.sampled_from(
    [*map(ord, '"[]^-\\ \n\r\t'), 0x7F, 0x80, 0x85, 0xD7FF, 0xE000, 0x10FFFF]
)
literals = st.text(st.characters(exclude_categories=["Cs"]), max_size=4).map(lambda text: LiteralText(text.encode()))
classes = st.builds(
    lambda pairs, negated: Characters.of([(min(p), max(p)) for p in pairs], negated=negated),
    st.lists(st.tuples(codes, codes), max_size=4),
    st.booleans(),
)
tokens = st.builds(TokenTerminal, st.sampled_from([("<a>",), (7,), ("<|x|>",)]), st.booleans()) | st.just(
    TokenTerminal(("<a>", 3))
)
leaves = literals | classes | tokens | st.sampled_from([Reference("root"), Reference("other_rule"), EMPTY])
counts = st.tuples(st.integers(0, 3), st.none() | st.integers(0, 3)).map(
    lambda pair: (pair[0], None if pair[1] is None else pair[0] + pair[1])
)
expressions = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: Concatenation(tuple(items)))
        | st.lists(inner, max_size=3).map(lambda items: Alternatives(tuple(items)))
        | st.builds(lambda item, pair: Repeat(item, *pair), inner, counts)
    ),
    max_leaves=8,
)


def plain(part):
    """The expression without what GBNF does not tell apart: groups of one, sets of tokens, ways to say nothing."""
    match part:
        case Concatenation((only,)) | Alternatives((only,)):
            part = plain(only)
        case Concatenation(items):
            part = Concatenation(tuple(map(plain, items))) if items else EMPTY
        case Alternatives(options):
            part = Alternatives(tuple(map(plain, options))) if options else Characters(())
        case Repeat(item, least, most):
            part = Repeat(plain(item), least, most)
        case TokenTerminal((_, _, *_) as names, False):
            part = Alternatives(tuple(TokenTerminal((name,)) for name in names))
        case Reference(name):
            part = Reference(name.replace("_", "-"))
    return part


@settings(max_examples=n_examples(60))
@given(expressions, expressions)
def test_what_is_printed_reads_back_to_itself(root, other):
    """The same rules, but for what GBNF does not tell apart."""
    rules = RuleSet({"root": root, "other_rule": other})
    again = read_gbnf("\n".join(f"{name} ::= {right}" for name, right in gbnf_rules(rules).items()))
    assert dict(again.rules) == {"root": plain(root), "other-rule": plain(other)}


def test_that_law_can_fail():
    """Printed without its parentheses a repeated sequence is another one."""
    part = Repeat(Concatenation((A, B)), 0, None)
    assert body(gbnf_expression(part, {})) == part
    assert body(gbnf_expression(part, {}).replace("(", "").replace(")", "")) != part


@given(classes)
def test_a_printed_class_holds_the_same_characters(characters):
    """Escapes, dashes and negations included."""
    assert body(gbnf_expression(characters, {})) == characters


@given(literals)
def test_a_printed_text_is_the_same_text(literal):
    """Whatever it has in it."""
    assert body(gbnf_expression(literal, {})) == literal


def test_the_empty_language_can_be_printed():
    """By a class that nothing is in; as part of a rule it takes its alternative with it."""
    rules = RuleSet({"root": Alternatives((Concatenation((Alternatives(()), A)), B))})
    assert gbnf_rules(rules) == {"root": f'{NOTHING} "a" | "b"'}
    assert [*Grammar.from_gbnf(f'root ::= {NOTHING} "a" | "b"').expand()] == ["b"]


def test_counts_beyond_the_limit_are_printed_in_two_steps():
    """5 003 to 5 010 times: twice 2 000, then 1 003 to 1 010."""
    text = gbnf_expression(Repeat(A, 5_003, 5_010), {})
    assert text == '("a"{2000}){2} "a"{1003,1010}'
    grammar = Grammar.from_gbnf("root ::= " + text)
    assert [grammar.accepts("a" * n).verdict for n in (5_002, 5_003, 5_010, 5_011)] == [
        "unfinished",
        "yes",
        "yes",
        "no",
    ]


def test_names_are_made_fit_and_stay_apart():
    """GBNF has letters, digits and dashes; what already fits stays as it is."""
    rules = RuleSet(dict.fromkeys(["root", "a_b", "a-b", "a.b", "é", ""], A))
    assert gbnf_names(rules) == {"root": "root", "a-b": "a-b", "a_b": "a-b-2", "a.b": "a-b-3", "é": "-", "": "rule"}


@pytest.mark.parametrize(
    "part",
    [
        TokenTerminal(("<a>", "<b>"), negated=True),
        TokenTerminal((), negated=True),
        TokenTerminal(("[INST]",)),
        LiteralText(b"\xff"),
    ],
)
def test_what_gbnf_has_no_words_for_is_refused(part):
    """And digests know it all the same, but for bytes that are no text."""
    with pytest.raises(GrammarError, match="GBNF"):
        gbnf_expression(part, {})
    if isinstance(part, TokenTerminal):
        assert len(set(canonical_rules(RuleSet({"root": part})))) == 2
