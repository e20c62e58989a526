"""Templates of decisions: what comes before the answer, and what a template may not hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie import Template
from selectrie.decide.asks import ask_of, values_of
from selectrie.decide.params import DecisionParams
from selectrie.decide.questions import Choice, Option, Predicate, Score
from selectrie.decide.templates import StateFrame, check_slots, digest_of, render, shipped
from selectrie.errors import TemplateError
from tests.support.n_examples import n_examples

CHOICE = Choice("What does the customer want?", ["refund", "track order"])
DESCRIBED = Choice("Which team?", [Option("sales", description="prices"), Option("post", "the post")])


def page_of(question, name="chat", state="Hello!", **params):
    """The page of a question whose options are in their own order."""
    options = DecisionParams(**params)
    ask = ask_of(question, options)
    template = shipped(name) if isinstance(name, str) else name
    return render(template, values_of(ask, ask.orders[0], options, state))


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
    page = page_of(question, name, layout=layout)
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
        page = page_of(question, name, state, layout=layout)
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
    page = page_of(CHOICE, name, None)
    text = page.messages[0]["content"] if page.is_chat else page.text
    assert "Text" not in text
    assert CHOICE.instructions in text


def test_short_options_share_a_line_and_others_have_their_own():
    """Commas, descriptions and letters give every option a line; unlisted options are not on the page."""
    base = {"name": "base", "layout": "questions first"}
    assert "refund, track order\n" in page_of(CHOICE, **base).text
    assert ":\n- sales: prices\n- the post\n" in page_of(DESCRIBED, **base).text
    assert ":\n- a, b\n- c\n" in page_of(Choice("q", ["a, b", "c"]), **base).text
    assert ":\nA. refund\nB. track order\n" in page_of(CHOICE, **base, scoring="letters").text
    assert "refund" not in page_of(CHOICE, **base, list_options=False).text
    assert "- yes: it is wet\n- no\n" in page_of(Predicate(yes_when="it is wet"), **base).text


def test_values_are_never_tags():
    """Tags of the template language in a state, an option or a description are text."""
    tag = "<<select 'answer' options=answers>><</user>>"
    question = Choice(tag, [Option(1, f"{tag}1", tag), Option(2, "b")])
    page = page_of(question, "base", tag)
    assert page.text.count(tag) == 4
    assert page_of(question, "chat", tag).messages[0]["content"].count(tag) == 4


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
        page_of(CHOICE, Template(source, name="mine.tmpl"))
    assert message in str(caught.value)
    assert str(caught.value).startswith("mine.tmpl:1:")


@pytest.mark.parametrize("name", ["chat", "base"])
@pytest.mark.parametrize("layout", ["state first", "options last", "questions first"])
@settings(max_examples=n_examples(30))
@given(
    state=st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
    | st.sampled_from(["[st4te 0]", "<<x>>", "[st4te 1][st4te"]),
    question=st.sampled_from([CHOICE, DESCRIBED, Predicate("[st4te 0]"), Choice("", ["[st4te 0]", "a [st4te 1"])]),
)
def test_a_frame_is_the_page_about_any_state(name, layout, state, question):
    """What is rendered once, with a mark for the state, is what rendering each state gives."""
    frame = StateFrame(lambda one: page_of(question, name, one, layout=layout))
    assert frame.page(state) == page_of(question, name, state, layout=layout)


def test_either_branch_of_a_condition_may_have_the_answer(tmp_path):
    """Also in an included file; a second slot and a loop are refused there too, with the position in that file."""
    answer = "<<select 'answer' options=answers>>"
    two = Template(f"<<#if state_first>>A: {answer}<<else>>B: {answer}<</if>>")
    check_slots(two)
    assert page_of(CHOICE, two, layout="state first").text == "A: "
    assert page_of(CHOICE, two, layout="questions first").text == "B: "
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
    page = page_of(CHOICE, Template(source))
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
    assert digest_of(shipped("chat")) != digest_of(shipped("base"))


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
    page = page_of(question, name)
    text = page.messages[0]["content"] if page.is_chat else page.text
    assert asked in [line.removeprefix("Question: ") for line in text.split("\n")]


def test_the_answer_has_the_options_of_the_question():
    """A list of the template's own would be ignored; it is refused."""
    with pytest.raises(TemplateError, match="the options of the answer are `answers`"):
        render(Template("<<select 'answer' options=['q', 'r']>>"), {"answers": ["a", "b"]})
