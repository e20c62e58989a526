"""Arguments of a slot become records; what is wrong with one is told where it stands in the template."""

from __future__ import annotations

from enum import Enum

import pytest

from selectrie.engine.rendering.slots import BeamSlot, GenSlot, SelectSlot, SlotArguments, slot_of
from selectrie.errors import GrammarError, TemplateError
from selectrie.grammar import Grammar
from selectrie.options import BeamSearchParams, SamplingParams, ScoringRule
from selectrie.template.syntax.ast import Slot
from selectrie.template.syntax.parser import parse
from selectrie.template.values.scope import Scope


class Armor(Enum):
    PLATE = "plate"
    LEATHER = "leather"


class Grammars:
    """Two grammars by name, and regular expressions."""

    def read_grammar(self, name):
        if name not in ("word", "sides"):
            raise TemplateError(f"no grammar is called {name!r}")
        return Grammar.from_regex("[a-z]+" if name == "word" else "left|right", name=name)

    def read_regex(self, pattern):
        return Grammar.from_regex(pattern)


VALUES = {
    "armors": ["leather", "plate", "chain"],
    "mixed": ["one", 2, 2.5, True, Armor.PLATE, ("yes", None)],
    "empty": [],
    "twice": ["a", "b", "a"],
    "number": 3,
    "word": Grammar.from_regex("[a-z]+"),
    "pmi": ScoringRule("pmi", premise="A:"),
    "weights": {Armor.PLATE: 1, "leather": 3.0, "chain": 0},
    "nothing": None,
}


def read(source, **values):
    """The first slot of a template, evaluated."""
    document = parse(source, name="page.tmpl")
    slot = next(segment for segment in document.body if isinstance(segment, Slot))
    return slot_of(slot, Scope({**VALUES, **values}), Grammars(), document)


def texts(slot):
    return [option.text for option in slot.options]


def test_a_select_that_says_no_more_than_its_options():
    """The best one, by the joint, ended by what its place says."""
    slot = read("<<select 'armor' options=armors>>")
    assert isinstance(slot, SelectSlot)
    assert (slot.name, texts(slot), slot.grammar) == ("armor", ["leather", "plate", "chain"], None)
    assert (slot.rule, slot.terminator, slot.prior, slot.temperature) == (ScoringRule("joint"), None, None, None)
    assert (slot.search.k, slot.search.stop, slot.logprobs, slot.hidden) == (1, "best", None, False)


def test_options_keep_their_values():
    """Texts, numbers, booleans, Enum members and pairs: the text is for the page, the value for whoever asks."""
    slot = read("<<select 'x' options=mixed>>")
    assert [(option.text, option.value) for option in slot.options] == [
        ("one", "one"),
        ("2", 2),
        ("2.5", 2.5),
        ("true", True),
        ("plate", Armor.PLATE),
        ("yes", None),
    ]


def test_options_written_in_the_tag():
    """A list of constants and names."""
    assert texts(read("<<select 'x' options=['a', 2, armors[0]]>>")) == ["a", "2", "leather"]


def test_the_block_form_has_text_and_outputs():
    """A choice is what stands there; one that is an output alone keeps the type of its value."""
    slot = read("<<#select 'x'>>a<<or>>no <<number>>!<<or>><<number>><<or>><</select>>")
    found = [(option.text, option.value) for option in slot.options]
    assert found == [("a", "a"), ("no 3!", "no 3!"), ("3", 3), ("", "")]


def test_a_grammar_of_few_texts_is_a_list_of_options():
    """Its texts are the options, in the order of `Grammar.expand`; one of infinitely many stays a grammar."""
    assert texts(read("<<select 'x' grammar='sides'>>")) == ["left", "right"]
    assert texts(read("<<select 'x' regex='[ab]c?'>>")) == ["a", "b", "ac", "bc"]
    slot = read("<<select 'x' grammar='word'>>")
    assert (slot.options, slot.grammar.name) == (None, "word")
    assert read("<<select 'x' grammar=word>>").grammar is VALUES["word"]


def test_everything_a_select_may_be_told():
    """Each argument goes to the record it belongs to."""
    slot = read(
        "<<select 'x' options=armors rule='token_mean' terminator='eog' prior=[1, 2, 0.5] k=2 temperature=0.5"
        " seed=7 logprobs='lp' hidden=true>>"
    )
    assert (slot.rule.name, slot.terminator, slot.prior, slot.search.k) == ("token_mean", "eog", (1.0, 2.0, 0.5), 2)
    assert (slot.temperature, slot.seed, slot.logprobs, slot.hidden) == (0.5, 7, "lp", True)
    assert slot.search.stop == "all"


def test_what_needs_every_score_has_every_choice_scored():
    """Log-probabilities by text, and a draw; at temperature 0 nothing is drawn."""
    assert read("<<select 'x' options=armors logprobs='lp'>>").search.stop == "all"
    assert read("<<select 'x' options=armors temperature=1>>").search.stop == "all"
    assert read("<<select 'x' options=armors temperature=0>>").search.stop == "best"


def test_weights_by_text_are_put_in_the_order_of_the_options():
    """Whatever stands for an option's text, an Enum member too, names its weight."""
    assert read("<<select 'x' options=armors prior=weights>>").prior == (3.0, 1.0, 0.0)


def test_a_rule_among_the_values():
    """A `ScoringRule` says what a name cannot."""
    assert read("<<select 'x' options=armors rule=pmi>>").rule == ScoringRule("pmi", premise="A:")


def test_none_leaves_an_argument_out():
    """A value that may be none is as if it were not written."""
    plain, given = read("<<gen 'x'>>"), read("<<gen 'x' temperature=nothing stop=nothing seed=nothing regex=nothing>>")
    assert (given.sampling, given.stop, given.seed, given.grammar) == (plain.sampling, None, None, None)


def test_a_gen_takes_the_most_probable_token():
    """Temperature 0, 128 tokens, and a stop text by its place, unless the tag says otherwise."""
    slot = read("<<gen 'x'>>")
    assert isinstance(slot, GenSlot)
    assert (slot.sampling, slot.max_tokens, slot.stop, slot.n) == (SamplingParams.GREEDY, 128, None, 1)


def test_everything_a_gen_may_be_told():
    """Each argument goes to the record it belongs to."""
    slot = read(
        "<<gen 'x' max_tokens=5 stop=['.', '!'] temperature=0.7 top_k=3 top_p=0.9 min_p=0 seed=2 n=3 hidden=true>>"
    )
    assert slot.sampling == SamplingParams(temperature=0.7, top_k=3, top_p=0.9, min_p=0)
    assert (slot.max_tokens, slot.stop, slot.seed, slot.n, slot.hidden) == (5, (".", "!"), 2, 3, True)
    assert read("<<gen 'x' stop='.'>>").stop == (".",)
    assert read("<<gen 'x' stop=[]>>").stop == ()
    assert read("<<gen 'x' regex='[0-9]+'>>").grammar.accepts("12")


def test_a_beam():
    """Its grammar, or that of its options; k texts are kept."""
    slot = read("<<beam 'x' grammar='word' width=4 k=2 max_tokens=9 length_penalty=0.5 terminator='none' hidden=true>>")
    assert isinstance(slot, BeamSlot)
    assert slot.beam == BeamSearchParams(width=4, n=2, max_tokens=9, length_penalty=0.5)
    assert (slot.grammar.name, slot.options, slot.terminator, slot.hidden) == ("word", None, "none", True)
    listed = read("<<beam 'x' options=mixed>>")
    assert [bool(listed.grammar.accepts(text)) for text in ("2.5", "yes", "no")] == [True, True, False]
    assert listed.grammar is read("<<beam 'x' options=mixed>>").grammar


def test_most_tokens_come_from_the_page_where_the_tag_says_nothing():
    """The default of a whole page is told to `slot_of`."""
    document = parse("<<gen 'x'>>")
    assert slot_of(document.body[0], Scope(), Grammars(), document, max_tokens=3).max_tokens == 3


def test_no_list_of_options():
    """A slot whose texts a grammar says has none."""
    document = parse("<<select 'x' grammar='word'>>")
    assert SlotArguments(document.body[0], Scope(), Grammars(), document).options is None


WRONG = [
    ("<<select 'x' options=empty>>", "empty>>", "the list of options is empty"),
    ("<<select 'x' options=twice>>", "twice>>", "two options have the text 'a'"),
    ("<<select 'x' options=number>>", "number>>", "options must be a list"),
    ("<<select 'x' options=armours>>", "armours", "did you mean 'armors'?"),
    ("<<#select 'x'>>a<<or>>b<<or>>a<</select>>", "a<</sel", "the choice 'a' occurs twice"),
    ("<<select 'x' options=armors rule='best'>>", "'best'", "rule='best': expected one of 'joint'"),
    ("<<select 'x' options=armors rule='batch'>>", "'batch'", "a slot has only one"),
    ("<<select 'x' options=armors rule='calibrated'>>", "'calibrated'", "content_free"),
    ("<<select 'x' options=armors rule=3>>", "3>>", "rule=3"),
    ("<<select 'x' options=armors terminator='.'>>", "'.'", "terminator='.': expected one of 'auto'"),
    ("<<select 'x' grammar='word' terminator='longest'>>", "'longest'", "terminator='longest'"),
    ("<<select 'x' options=armors prior=[1, 2]>>", "[1", "the prior has 2 weights for 3 options"),
    ("<<select 'x' options=armors prior=[1, 2, -1]>>", "[1", "prior[2]=-1: expected finite weights"),
    ("<<select 'x' options=armors prior='abc'>>", "'abc'", "prior='abc'"),
    ("<<select 'x' options=armors k=0>>", "0>>", "k=0: expected a whole number of at least 1"),
    ("<<select 'x' options=armors k='2'>>", "'2'", "k='2'"),
    ("<<select 'x' options=armors temperature=-1>>", "-1", "temperature=-1"),
    ("<<select 'x' options=armors temperature=true>>", "true", "temperature=true"),
    ("<<select 'x' options=armors seed=-2>>", "-2", "seed=-2"),
    ("<<select 'x' options=armors hidden=1>>", "1>>", "hidden=1: expected True or False"),
    ("<<select 'x' options=armors logprobs=3>>", "3>>", "logprobs=3"),
    ("<<select 'x' grammar='words'>>", "'words'", "no grammar is called 'words'"),
    ("<<select 'x' grammar=3>>", "3>>", "grammar=3: expected a Grammar"),
    ("<<select 'x' regex=3>>", "3>>", "regex=3: expected a text"),
    ("<<select 'x' regex='[a'>>", "'[a'", "line 1"),
    ("<<select 'x' regex='[a-z]+' temperature=0.5>>", "0.5", "temperature=0.5: expected 1"),
    ("<<select 'x' regex='[a-z]+' prior=[1]>>", "[1]", "prior= needs options"),
    ("<<select 'x' regex='[a-z]+' rule='byte_mean'>>", "'byte_mean'", "expected 'joint' or 'token_mean'"),
    ("<<select 'x' regex='[a-z]+' rule='token_mean' temperature=1>>", "'token_mean'", "expected 'joint', as"),
    ("<<gen 'x' temperature=-0.1>>", "-0.1", "temperature=-0.1"),
    ("<<gen 'x' temperature=0.5 top_p=2>>", "2>>", "top_p=2"),
    ("<<gen 'x' top_k='all'>>", "'all'", "top_k='all'"),
    ("<<gen 'x' stop=['.', '']>>", "['.'", "stop[1]=''"),
    ("<<gen 'x' stop=3>>", "3>>", "stop=3"),
    ("<<gen 'x' max_tokens=0>>", "0>>", "max_tokens=0"),
    ("<<gen 'x' n=0>>", "0>>", "n=0"),
    ("<<gen 'x' seed='a'>>", "'a'", "seed='a'"),
    ("<<beam 'x' grammar='word' width=0>>", "0>>", "width=0"),
    ("<<beam 'x' grammar='word' k=0>>", "0>>", "k=0"),
    ("<<beam 'x' grammar='word' length_penalty=-1>>", "-1", "length_penalty=-1"),
    ("<<beam 'x' grammar='word' terminator='longest'>>", "'longest'", "terminator='longest'"),
]


@pytest.mark.parametrize(("source", "at", "reason"), WRONG)
def test_what_is_wrong_is_told_where_it_stands(source, at, reason):
    """One error, at the argument's value, that names the value and what was expected."""
    with pytest.raises(TemplateError) as caught:
        read("Hello\n" + source)
    error = caught.value
    assert reason in str(error)
    assert (error.name, error.line, error.excerpt) == ("page.tmpl", 2, source)
    assert error.column == source.index(at) + 1


def test_the_error_of_a_regular_expression_is_kept():
    """What the reader of the pattern found is the error's cause."""
    with pytest.raises(TemplateError) as caught:
        read("<<select 'x' regex='[a'>>")
    assert isinstance(caught.value.__cause__, GrammarError)


@pytest.mark.parametrize(
    ("source", "at", "reason"),
    [
        ("<<select 'x'>>", "<<select", "nothing defines what is allowed"),
        ("<<select 'x' options=armors regex='a'>>", "'a'", "both define what is allowed"),
        ("<<select 'x' grammar='word' regex='a'>>", "'a'", "grammar= and regex= both define"),
        ("<<beam 'x' options=armors grammar='word'>>", "'word'", "both define what is allowed"),
    ],
)
def test_one_argument_says_what_may_stand_there(source, at, reason):
    """None, or two, is an error (the parser may have found it before)."""
    with pytest.raises(TemplateError) as caught:
        read(source)
    assert caught.value.line == 1
    assert reason in str(caught.value) or source[caught.value.column - 1 :].startswith((at, source))
