"""Templates of decisions: what comes before the answer, and what a template may not hold."""

from __future__ import annotations

from hashlib import sha256

import pytest

from selectrie import Template
from selectrie.decide.asks import ask_of
from selectrie.decide.params import DecisionParams
from selectrie.decide.questions import Choice, Option, Predicate, Score
from selectrie.decide.templates import check_slots, digest_of, page_of, render, values_of
from selectrie.errors import TemplateError

CHOICE = Choice("What does the customer want?", ["refund", "track order"])
DESCRIBED = Choice("Which team?", [Option("sales", description="prices"), Option("post", "the post")])


def written(question, template="chat", state="Hello!", **params):
    """The page of a question whose options are in their own order."""
    ask = ask_of(question, DecisionParams(**params))
    return page_of(template, question, values_of(ask, ask.orders[0]), state)


@pytest.mark.parametrize("layout", ["state first", "options last", "questions first"])
@pytest.mark.parametrize("name", ["chat", "base"])
@pytest.mark.parametrize(
    "question",
    [
        CHOICE,
        DESCRIBED,
        Choice(options=["a"]),
        Predicate("It rains."),
        Predicate(yes_when="it is wet"),
        Score("", ["a", "b"]),
    ],
)
def test_every_question_is_asked_in_every_layout(question, name, layout):
    """The page shows state, question and options once; the answer of a chat is a turn of its own, else it ends at the line."""
    page = written(question, name, layout=layout)
    text = page.messages[0]["content"] if page.is_chat else page.text
    assert text.count("Hello!") == 1
    assert question.instructions in text
    for option in question.options:
        assert option.scored in text
        assert (option.description or "") in text
    assert (text.index("Hello!") < text.index("fits" if not question.instructions else question.instructions)) == (
        layout != "questions first"
    )
    if question.instructions:
        assert (text.index(question.instructions) < text.rindex(question.options[0].scored)) == (
            layout != "state first"
        )
    if name == "chat":
        assert (len(page.messages), page.messages[0]["role"], page.text, page.assistant_prefix) == (1, "user", "", "")
        assert page.following == ""
        assert text == text.strip()
    else:
        assert page.text.endswith("\nAnswer: ")
        assert page.following == "\n"


@pytest.mark.parametrize("name", ["chat", "base"])
def test_the_shared_part_ends_at_a_line(name):
    """What prompts of one state share, or prompts of one question, ends behind a line end, whatever the rest begins with."""

    def text(question, state, layout):
        page = written(question, name, state, layout=layout)
        return page.messages[0]["content"] if page.is_chat else page.text

    first = "Text: a state\n\n"
    for layout, shared in (("state first", first), ("options last", first), ("questions first", "track order")):
        pages = [text(CHOICE, "a state", layout)]
        pages.append(
            text(CHOICE, "Other", layout) if layout == "questions first" else text(DESCRIBED, "a state", layout)
        )
        common = next(at for at, (a, b) in enumerate(zip(*pages, strict=False)) if a != b)
        line = pages[0].rfind("\n", 0, common + 1) + 1
        assert shared in pages[0][:line]


@pytest.mark.parametrize("name", ["chat", "base"])
def test_without_the_state_nothing_of_it_is_left(name):
    """The page for the baseline of `pmi` has neither the text nor its heading."""
    page = written(CHOICE, name, None)
    text = page.messages[0]["content"] if page.is_chat else page.text
    assert "Text" not in text
    assert CHOICE.instructions in text


def test_short_options_share_a_line_and_others_have_their_own():
    """Commas, descriptions and letters give every option a line; unlisted options are not on the page."""
    base = {"template": "base", "layout": "questions first"}
    assert "refund, track order\n" in written(CHOICE, **base).text
    assert ":\n- sales: prices\n- the post\n" in written(DESCRIBED, **base).text
    assert ":\n- a, b\n- c\n" in written(Choice("q", ["a, b", "c"]), **base).text
    assert ":\nA. refund\nB. track order\n" in written(CHOICE, **base, scoring="letters").text
    assert "refund" not in written(CHOICE, **base, list_options=False).text
    assert "- yes: it is wet\n- no\n" in written(Predicate(yes_when="it is wet"), **base).text


def test_values_are_never_tags():
    """Tags of the template language in a state, an option or a description are text."""
    tag = "<<select 'answer' options=answers>><</user>>"
    question = Choice(tag, [Option(1, f"{tag}1", tag), Option(2, "b")])
    page = written(question, "base", tag)
    assert page.text.count(tag) == 4
    assert written(question, "chat", tag).messages[0]["content"].count(tag) == 4


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("<<state>>", "the page has no <<select 'answer' options=answers>>"),
        ("", "the page has no <<select 'answer'"),
        ("<<gen 'answer'>>", "has one slot, <<select 'answer' options=answers>>"),
        ("<<select 'reply' options=answers>>", "has one slot"),
        ("<<#select 'answer'>>a<<or>>b<</select>>", "has one slot"),
        ("<<select 'answer' options=answers rule='pmi'>>", "`rule` is not an argument here"),
        ("<<unknown>><<select 'answer' options=answers>>", "no value is called 'unknown'"),
        ("<<#user>>a<<select 'answer' options=answers>><</user>>", "in the turn of the assistant"),
        ("<<#assistant>><<select 'answer' options=answers>><</assistant>>", "a turn before the assistant's"),
        ("<<#user>>a<</user>> x <<#assistant>><<select 'answer' options=answers>><</assistant>>", "outside every role"),
        (
            "<<#user>>a<</user>><<state>><<#assistant>><<select 'answer' options=answers>><</assistant>>",
            "outside every role",
        ),
        ("x<<#user>>a<</user>><<#assistant>><<select 'answer' options=answers>><</assistant>>", "outside every role"),
        (
            "<<state>><<#user>>a<</user>><<#assistant>><<select 'answer' options=answers>><</assistant>>",
            "outside every role",
        ),
        ("<<#geneach 'x' num=1>><<gen 'this'>><</geneach>><<select 'answer' options=answers>>", "has one slot"),
        ("<<#joint>><<select 'answer' options=answers>><</joint>>", "has one slot"),
    ],
)
def test_a_template_without_the_answer_is_refused(source, message):
    """A template has the answer, as its only slot, without arguments that the call has; the error has a position."""
    with pytest.raises(TemplateError) as caught:
        written(CHOICE, Template(source, name="mine.tmpl"))
    assert message in str(caught.value)
    assert str(caught.value).startswith("mine.tmpl:1:")


def test_either_branch_of_a_condition_may_have_the_answer(tmp_path):
    """Also in an included file; a second slot and a loop are refused there too, with the position in that file."""
    answer = "<<select 'answer' options=answers>>"
    two = Template(f"<<#if state_first>>A: {answer}<<else>>B: {answer}<</if>>")
    check_slots(two)
    assert written(CHOICE, two, layout="state first").text == "A: "
    assert written(CHOICE, two, layout="questions first").text == "B: "
    (tmp_path / "part.tmpl").write_text(f"x\n{answer}")
    for source, is_legal in (
        ("<<include 'part.tmpl'>>", True),
        ("<<#each options as one>><<include 'part.tmpl'>><</each>>", False),
    ):
        template = Template(source, search_path=tmp_path)
        if is_legal:
            check_slots(template)
            continue
        with pytest.raises(TemplateError, match=r"part\.tmpl:2:1: .*outside of every loop"):
            check_slots(template)


def test_own_templates_may_have_turns_and_a_beginning():
    """Several turns become messages; text of the assistant's turn before the answer and after it is kept."""
    source = (
        "<<#system>>Be brief.<</system>> <<#user>><<state>><</user>>\n"
        "<<#assistant>>I say: <<select 'answer' options=answers>>.<</assistant>>"
    )
    page = written(CHOICE, Template(source))
    assert page.messages == ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello!"})
    assert (page.assistant_prefix, page.following) == ("I say: ", ".")


def test_the_digest_is_of_all_files(tmp_path):
    """A change of an included file changes the digest, and so does one of the template."""
    (tmp_path / "part.tmpl").write_text("a")
    source = "<<include 'part.tmpl'>><<select 'answer' options=answers>>"
    before = digest_of(Template(source, search_path=tmp_path))
    assert digest_of(Template(source, search_path=tmp_path)) == before
    (tmp_path / "part.tmpl").write_text("b")
    assert digest_of(Template(source, search_path=tmp_path)) != before


EXAMPLES = {"examples": [("I like it", "good"), ("So bad", "bad")]}
ALL = [
    CHOICE,
    DESCRIBED,
    Choice(options=["a"]),
    Choice("Mood?", ["good", "bad"], **EXAMPLES),
    Choice(options=["good", "bad"], cue="Mood: ", **EXAMPLES),
    Predicate("It rains."),
    Predicate(yes_when="it is wet"),
    Score("How urgent?", ["a", "b"]),
    Score(levels=["a", "b"]),
]


@pytest.mark.parametrize(
    ("name", "words"),
    [("chat", ("bcfe9dffae4b7f17", "d532ac49dfaa81f1")), ("base", ("9334561f1b5df333", "70aa3e175e12bf2a"))],
)
def test_whoever_changes_a_word_of_our_pages_gives_them_another_digest(name, words):
    """Signatures and calibrations know the words by the digest of their page, so both are held here together."""
    pages = [
        repr(written(question, name, state, layout=layout, **params))
        for question in ALL
        for layout in ("auto", "state first", "options last", "questions first")
        for params in ({}, {"scoring": "letters"}, {"list_options": False})
        for state in ("Hello!", "I like it ", None)
        if layout in ("auto", "questions first") or not question.examples
    ]
    assert (digest_of(name), sha256("".join(pages).encode()).hexdigest()[:16]) == words


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        (CHOICE, "What does the customer want?"),
        (Choice(options=["a"]), "What fits the text?"),
        (Predicate("It rains."), "Is this true of the text? It rains."),
        (Predicate(yes_when="it is wet"), "Which answer fits the text?"),
        (Score("How urgent?", ["a", "b"]), "How urgent?"),
        (Score("", ["a", "b"]), "Which level fits the text?"),
    ],
)
@pytest.mark.parametrize("name", ["chat", "base"])
def test_each_kind_is_asked_in_its_own_words(question, asked, name):
    """A statement is asked whether it is true; what has no instructions is asked in general words."""
    page = written(question, name)
    text = page.messages[0]["content"] if page.is_chat else page.text
    assert asked in [line.removeprefix("Question: ") for line in text.split("\n")]


def test_the_answer_has_the_options_of_the_question():
    """A list of the template's own would be ignored; it is refused."""
    with pytest.raises(TemplateError, match="the options of the answer are `answers`"):
        render(Template("<<select 'answer' options=['q', 'r']>>"), {"answers": ["a", "b"]})
