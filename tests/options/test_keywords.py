"""Keywords of calls in place of fields of records: the same request, the same checks, and what people write first."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from enum import Enum
from typing import Any, Literal, get_args

import numpy as np
import pytest

from selectrie import (
    BeamSearchParams,
    Choice,
    DecisionParams,
    GenerationParams,
    Grammar,
    PromptParams,
    SamplingParams,
    Score,
    SearchParams,
    StopParams,
    Template,
    cascade,
    options,
)
from selectrie.engine.engine import Engine
from selectrie.errors import (
    ArgumentCountError,
    ChoiceError,
    IncompatibleOptionsError,
    OptionError,
    PromptError,
    SelectrieError,
    UnknownArgumentError,
)
from selectrie.options import keywords
from selectrie.options.arguments import _owners
from selectrie.options.checks import options_of
from selectrie.options.keywords import KEYWORDS
from tests.support.deciding import fake

CHAT = [{"role": "user", "content": "a"}]
LETTERS = Grammar.from_regex("[ab]")
WITH_KEYWORDS = {
    name: method
    for name, method in inspect.getmembers(Engine)
    if "_keywords" in getattr(method, "__annotations__", {}) and not name.startswith("a")
}
ANY = ("grammar", "choices", "template", "calibration", "min_confidence", "think")
"""Keywords with classes of higher layers."""
DOORS = {
    **dict.fromkeys(("user", "regex", "none", "instructions", "cue"), "str | None"),
    "messages": "Sequence[Mapping[str, object]] | None",
    "rescore": "bool | None",
    "examples": "Any",
}
"""Keywords that are no field: in place of the prompt or of the grammar, or passed on."""


class Team(Enum):
    """Two teams."""

    SALES = "sales"
    POST = "post"


@pytest.fixture(scope="module")
def llm() -> Iterator[Engine]:
    """An engine on a fake with a chat template."""
    with closing(fake()) as made:
        yield made


@pytest.fixture(scope="module")
def plain() -> Iterator[Engine]:
    """An engine on a fake without a chat template."""
    with closing(fake(chat=False)) as made:
        yield made


def fresh(llm: Any, method: str, *arguments: Any, **keywords: Any) -> Any:
    """The result of a call with nothing cached, which costs the same each time."""
    for one in getattr(llm, "engines", (llm,)):
        one.trim()
    return getattr(llm, method)(*arguments, **keywords)


@pytest.mark.parametrize("name", WITH_KEYWORDS)
def test_every_keyword_is_a_field_of_a_record(name):
    """The signature has its name, the type of the field or None, and the field's default; help shows it."""
    method = WITH_KEYWORDS[name]
    signature = inspect.signature(method)
    assert "_keywords" not in signature.parameters
    owned = {one.name: (owner, one) for owner, record in reversed(_owners(method).items()) for one in fields(record)}
    class_name = method.__wrapped__.__annotations__["_keywords"].removeprefix("Unpack[keywords.").removesuffix("]")
    for keyword in KEYWORDS[class_name].__annotations__:
        parameter = signature.parameters[keyword]
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        if keyword in DOORS:
            assert (parameter.annotation, parameter.default) == (DOORS[keyword], None)
            continue
        owner, field = owned[keyword]
        is_chosen = signature.parameters[owner].default is None  # by the call
        assert parameter.default == (None if is_chosen else field.default)
        hint = field.type.removesuffix(" | None")
        if keyword in ANY:
            hint = "Any"
        if keyword == "stop":
            hint = "str | Sequence[str]"
        assert parameter.annotation == (hint if hint == "Any" else f"{hint} | None")


@pytest.mark.parametrize(
    ("method", "arguments", "keywords", "records"),
    [
        ("select", ("a", ["b", "c"]), {"delimiter": " "}, {"prompting": PromptParams(delimiter=" ")}),
        ("select", ("a", ["b", "c"]), {"system": "s"}, {"prompting": PromptParams(system="s")}),
        ("select", ("a", ["b", "c"]), {"k": 2}, {"search": SearchParams(k=2)}),
        ("rank", ("a", ["b", "c"]), {"k": 1}, {"search": SearchParams(k=1)}),
        ("rank", ("a", ["b", "c"]), {"k": None}, {}),
        ("select_many", ([("a", ["b", "c"])],), {"delimiter": "-"}, {"prompting": PromptParams(delimiter="-")}),
        ("tokens", ("a", ["b"]), {"delimiter": "-"}, {"prompting": PromptParams(delimiter="-")}),
        ("score", ("a", "b"), {"system": "s"}, {"prompting": PromptParams(system="s")}),
        ("sample", ("a", LETTERS), {"max_tokens": 3, "seed": 1}, {"search": SearchParams(max_tokens=3), "seed": 1}),
        ("beam_search", ("a", LETTERS), {"width": 3, "n": 2}, {"beam": BeamSearchParams(width=3, n=2)}),
    ],
)
def test_a_keyword_is_the_field_of_the_record(llm, method, arguments, keywords, records):
    """The result is the same, whichever way it is written."""
    assert fresh(llm, method, *arguments, **keywords) == fresh(llm, method, *arguments, **records)


ASKED = Choice("q", ["yes", "no"])
CALLS: dict[str, tuple[Any, ...]] = {
    "decide": ("a", ASKED),
    "decide_many": (["a", "b"], ASKED),
    "decide_iter": (["a", "b"], ASKED),
    "classify": ("a", ["yes", "no"]),
    "classify_many": (["a", "b"], ["yes", "no"]),
    "classify_iter": (["a", "b"], ["yes", "no"]),
    "decision_prompts": ("a", ASKED),
    "fit_calibration": (["a", "b"], ASKED),
}


def result_of(llm: Any, method: str, **options: Any) -> Any:
    """What a call of `CALLS` gives, with iterators as lists."""
    found = fresh(llm, method, *CALLS[method], **options)
    if method.startswith("a"):
        found = asyncio.run(_listed(found) if method.endswith("iter") else found)
    return list(found) if method.endswith(("many", "iter")) else found


async def _listed(stream: Any) -> list[Any]:
    return [one async for one in stream]


@pytest.mark.parametrize("method", CALLS)
def test_options_of_decisions_are_keywords(llm, method):
    """The result is that of the record; so is that of the same call of a cascade, and of the awaitable form."""
    options = {
        "template": "base",
        "layout": "questions first",
        "rule": "token_mean",
        "permutations": 2,
        "prior": [1, 2],
    }
    expected = result_of(llm, method, params=DecisionParams(**options))
    assert result_of(llm, method, **options) == expected != result_of(llm, method)
    assert result_of(llm, method, params=DecisionParams(rule="token_mean"), **options) == expected
    assert result_of(llm, method, params={"rule": "token_mean", "prior": [1, 2]}, **options) == expected
    if f"a{method}" in dir(llm):
        CALLS[f"a{method}"] = CALLS[method]
        assert result_of(llm, f"a{method}", **options) == expected
    models = cascade([llm])
    if hasattr(models, method):
        assert result_of(models, method, **options) == result_of(models, method, params=DecisionParams(**options))


@pytest.mark.parametrize("params", [DecisionParams(rule="joint"), {"rule": "joint"}])
def test_a_field_of_a_record_that_equals_its_default_counts_as_not_set(llm, params):
    """A keyword takes its place, as the documentation says."""
    assert DecisionParams().rule == "joint"
    expected = result_of(llm, "decide", rule="token_mean")
    assert result_of(llm, "decide", rule="token_mean", params=params) == expected != result_of(llm, "decide")


def test_every_option_of_decisions_is_a_keyword():
    """None is left out."""
    assert set(keywords.DecisionKeywords.__annotations__) == {one.name for one in fields(DecisionParams)}


def test_generate_takes_the_words_of_every_other_library(llm):
    """Records that were given keep their other fields; `stream` and the awaitable form do the same."""
    words = {"max_tokens": 4, "temperature": 0.5, "top_k": 7, "top_p": 0.9, "min_p": 0.0, "stop": "zz"}
    sampling = SamplingParams(temperature=0.5, top_k=7, top_p=0.9, min_p=0.0, typical_p=0.9)
    expected = llm.generate("a", seed=3, sampling=sampling, stopping=StopParams(max_tokens=4, stop=["zz"]))
    base = SamplingParams(typical_p=0.9)
    assert llm.generate("a", seed=3, sampling=base, **words) == expected
    assert llm.stream("a", seed=3, sampling=base, **words).generation() == expected
    assert asyncio.run(llm.agenerate("a", seed=3, sampling=base, **words)) == expected
    assert llm.generate("a", seed=3, sampling={"typical_p": 0.9}, **words) == expected
    assert llm.generate("a", seed=3, sampling="greedy", max_tokens=2).sampling is SamplingParams.GREEDY
    assert llm.generate("a", seed=3, choices=Team).texts[0] in ("sales", "post")
    options = GenerationParams(grammar=Grammar.from_regex("x+"))
    by_regex = llm.generate("a", seed=3, regex="x+", max_tokens=4)
    assert by_regex == llm.generate("a", seed=3, options=options, stopping=StopParams(max_tokens=4))


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("select", {"choices": ["b", "c"]}),
        ("rank", {"choices": ["b", "c"]}),
        ("tokens", {"choices": ["b", "c"]}),
        ("score", {"text": "b"}),
        ("generate", {"max_tokens": 2, "seed": 1}),
        ("sample", {"regex": "[ab]", "seed": 1}),
        ("beam_search", {"grammar": LETTERS}),
        ("encode", {}),
    ],
)
@pytest.mark.parametrize("system", [None, "be brief"])
def test_the_message_of_a_user_asks_a_chat(llm, plain, method, arguments, system):
    """`user` is the chat of one message, with `system` before it; a model without a template says that it has none."""
    chat = [*([] if system is None else [{"role": "system", "content": system}]), *CHAT]
    expected = fresh(llm, method, chat, **arguments)
    for door in ({"user": "a"}, {"messages": CHAT}):
        found = fresh(llm, method, **door, system=system, **arguments)
        if isinstance(expected, np.ndarray):
            assert found.tolist() == expected.tolist()
        else:
            assert found == expected
    with pytest.raises(PromptError, match="has no chat template"):
        getattr(plain, method)(user="a", **arguments)


@pytest.mark.parametrize(
    ("choices", "value"),
    [
        ((one for one in ["b", "c"]), "b"),
        (np.array(["b", "c"]), "b"),
        (dict.fromkeys("bc"), None),
        (dict.fromkeys("bc").keys(), "b"),
        (Team, Team.SALES),
        (Literal["b", "c"], "b"),
        (bool, True),
        ([7, 8], 7),
        (np.array([7, 8]), 7),
        (range(2), 0),
        ([Team.SALES, "b", 7, False], Team.SALES),
    ],
)
def test_any_iterable_of_texts_or_values_is_a_set_of_choices(llm, choices, value):
    """The winner's value is what was given, in the type of Python; the texts are those of `decide`."""
    if isinstance(choices, dict):  # its values might be texts to score or descriptions
        with pytest.raises(ChoiceError, match="not a mapping from texts"):
            llm.select("a", choices)
        return
    ranked = llm.rank("a", choices)
    values = [ranked.choices.texts[0]] if ranked.values is None else list(ranked.values)
    assert (values[0], type(values[0])) == (value, type(value))
    assert ranked.value == (ranked.text if ranked.values is None else ranked.values[ranked.index])


def test_columns_of_data_frames_are_choices_in_every_door(llm):
    """A Series, an Index and a Categorical of pandas; the frame itself is refused."""
    pandas = pytest.importorskip("pandas")
    column = pandas.Series(["b", "c"], index=[5, 6])
    expected = llm.select("a", ["b", "c"])
    for given in (column, pandas.Index(column), pandas.Categorical(column), column.astype("category").cat.categories):
        assert llm.select("a", given) == expected
        assert llm.rank("a", given) == llm.rank("a", ["b", "c"])
        assert llm.tokens("a", given).choices == llm.tokens("a", ["b", "c"]).choices
        assert Choice("q", given) == Choice("q", ["b", "c"])
        assert Score("q", given) == Score("q", ["b", "c"])
        assert llm.select_many(pandas.Series(["a", "b"]), given)[0] == expected
    for call in (
        lambda frame: llm.select("a", frame),
        lambda frame: Choice("q", frame),
        lambda frame: llm.extract_many(frame, bool),
        lambda frame: llm.classify_many(frame, ["b", "c"]),
    ):
        with pytest.raises((ChoiceError, OptionError), match="one column of the data frame"):
            call(pandas.DataFrame({"x": column}))


def test_one_set_of_choices_serves_all_prompts(llm):
    """A generator is read once; the pairs are the same request."""
    pairs = fresh(llm, "select_many", [("a", [7, 8]), ("b", [7, 8]), (CHAT, [7, 8])])
    assert fresh(llm, "select_many", ["a", "b", CHAT], choices=(one for one in (7, 8))) == pairs
    assert fresh(llm, "select_many", iter(["a", "b", CHAT]), range(7, 9)) == pairs


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"regex": "b|c"}, Grammar.from_regex("b|c")),
        ({"grammar": Team}, Grammar.from_type(Team)),
        ({"grammar": Literal["b", "c"]}, Grammar.from_type(Literal["b", "c"])),
        ({"grammar": {"type": "boolean"}}, Grammar.from_json_schema({"type": "boolean"})),
        ({"grammar": '  root ::= "b" | c\nc ::= "c"'}, Grammar.from_gbnf('root ::= "b" | c\nc ::= "c"')),
    ],
)
@pytest.mark.parametrize("method", ["select", "sample", "beam_search", "generate"])
def test_a_grammar_is_read_from_a_type_a_schema_or_a_regex(llm, method, given, expected):
    """Every call that takes a grammar takes these, and searches the same texts."""
    seed = {"seed": 1} if method in ("sample", "generate") else {}
    assert fresh(llm, method, "a", **given, **seed) == fresh(llm, method, "a", grammar=expected, **seed)


REFUSED: dict[str, tuple[Any, type[SelectrieError], str]] = {
    "a keyword and a record": (
        lambda llm: llm.generate("a", max_tokens=5, stopping=StopParams(max_tokens=7)),
        IncompatibleOptionsError,
        r"`max_tokens` cannot be combined with stopping=StopParams\(max_tokens=7\)",
    ),
    "an option and a record": (
        lambda llm: llm.decide("a", ASKED, rule="pmi", params=DecisionParams(rule="char_mean")),
        IncompatibleOptionsError,
        r"`rule` cannot be combined with params=DecisionParams\(rule='char_mean'\)",
    ),
    "a name that is near": (lambda llm: llm.decide("a", ASKED, temprate="base"), UnknownArgumentError, "template"),
    "a wrong option": (lambda llm: llm.classify("a", ["b", "c"], rule="pmy"), OptionError, "did you mean 'pmi'"),
    "a wrong value": (lambda llm: llm.generate("a", max_tokens="5"), OptionError, "max_tokens='5': expected a whole"),
    "a wrong record": (lambda llm: llm.generate("a", sampling="hot", top_k=1), OptionError, "SamplingParams record"),
    "a wrong field": (lambda llm: llm.generate("a", stopping={"maxtokens": 5}), OptionError, "did you mean max_tokens"),
    "a prompt and a user": (lambda llm: llm.generate("a", user="a"), IncompatibleOptionsError, "`user` cannot be"),
    "a user and messages": (
        lambda llm: llm.select(user="a", messages=CHAT, choices=["b"]),
        IncompatibleOptionsError,
        "`user` cannot be combined with `messages`",
    ),
    "choices first": (lambda llm: llm.select(["b", "c"], user="a"), IncompatibleOptionsError, "such as `choices=`"),
    "no prompt": (lambda llm: llm.select(choices=["b"]), OptionError, "prompt is not given; give a text"),
    "nothing": (lambda llm: llm.generate(), OptionError, "prompts is not given"),
    "a list of users": (lambda llm: llm.generate(user=["a"]), OptionError, r"user=\['a'\]: expected a str"),
    "one message": (lambda llm: llm.generate(messages=CHAT[0]), OptionError, "a list of messages"),
    "no choices": (lambda llm: llm.rank("a"), ChoiceError, "no choices are given"),
    "choices one by one": (
        lambda llm: llm.select("a", "b", "c"),
        ArgumentCountError,
        "give several choices as one list",
    ),
    "a set": (lambda llm: llm.select("a", {"b", "c"}), ChoiceError, r"such as `sorted\(…\)` of the set"),
    "a frozenset": (lambda llm: Choice("q", frozenset("bc")), OptionError, r"such as `sorted\(…\)` of the set"),
    "one text": (lambda llm: llm.select("a", "bc"), ChoiceError, "must be several texts, such as a list"),
    "floats": (lambda llm: llm.select("a", [1.5]), ChoiceError, "choice 0: must be a str, an int"),
    "two prompts": (lambda llm: llm.select(["a", "b"], ["b"]), PromptError, "for several prompts use `select_many`"),
    "prompts alone": (lambda llm: llm.select_many(["ab", "cd"]), OptionError, "one set for all prompts is given as"),
    "one prompt of many": (lambda llm: llm.select_many("ab", ["b"]), OptionError, "prompts beside `choices`"),
    "a grammar as text": (lambda llm: llm.select("a", grammar="b+"), OptionError, r"Grammar.from_regex\(…\)"),
    "text to generate by": (lambda llm: llm.generate("a", grammar="b+"), OptionError, "`regex=` takes a regular"),
    "regex and grammar": (lambda llm: llm.sample("a", LETTERS, regex="b"), IncompatibleOptionsError, "`regex` cannot"),
    "no grammar": (lambda llm: llm.sample("a"), OptionError, "grammar is not given; give Grammar"),
    "texts to score": (lambda llm: llm.score("a", ["b"]), OptionError, "expected one text to score"),
    "a missing name": (
        lambda llm: llm.decide_table([], {}),
        ArgumentCountError,
        "decide_table lacks its argument state",
    ),
    "the same twice": (lambda llm: llm.select("a", ["b"], choices=["b"]), ArgumentCountError, "has got choices twice"),
    "texts to classify": (
        lambda llm: llm.classify(np.array(["a", "b"]), ["b"]),
        OptionError,
        "`decide_many`, `classify_many` and `extract_many` take several",
    ),
    "right answers of a calibration": (
        lambda llm: llm.fit_calibration(["a", "b", "c"], ["b", "c", "b"]),
        OptionError,
        "right answers are not needed here, and `Calibration.fit",
    ),
    "distinct right answers of a calibration": (
        lambda llm: llm.fit_calibration(["a", "b"], ["b", "c"]),
        OptionError,
        "right answers are not needed here",
    ),
    "choices of a question": (lambda llm: Choice("q", choices=["b"]), OptionError, "give it as options"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused_with_a_remedy(llm, name):
    """An error of our tree, before any model call."""
    call, error, message = REFUSED[name]
    calls = llm._model.calls
    with pytest.raises(error, match=message):
        call(llm)
    assert llm._model.calls == calls


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("chat", r"generate\(messages=…\)"),
        ("tokenize", "encode"),
        ("create_completion", "generate"),
        ("selct", "select"),
    ],
)
def test_methods_of_other_libraries_are_answered_with_ours(llm, name, meant):
    """An `AttributeError` that says what to write; what is near nothing has no advice."""
    with pytest.raises(AttributeError, match=f"'Engine' object has no attribute '{name}'; did you mean {meant}"):
        getattr(llm, name)
    assert not hasattr(llm, "qqqq")


@pytest.mark.parametrize(
    ("options", "meant"), [({"rule": "pmi_dc"}, "pmi"), ({"terminator": "eos"}, "eog"), ({"rule": "jiont"}, "joint")]
)
def test_a_wrong_name_is_answered_with_the_nearest(llm, options, meant):
    """All names are listed too."""
    with pytest.raises(OptionError, match=f"expected one of .*; did you mean '{meant}'"):
        llm.select("a", ["b"], **options)


def test_the_text_of_a_template_is_rendered_as_one(llm):
    """In each of the calls."""
    text = "Hi <<name>>"
    assert llm.render(text, name="a").text == llm.render(Template(text), name="a").text == "Hi a"
    assert [page.text for page in llm.render_many(text, [{"name": "a"}, {"name": "b"}])] == ["Hi a", "Hi b"]
    assert [page.text for page in llm.render_iter(text, [{"name": "a"}])] == ["Hi a"]
    with llm.stream_render(text, name="a") as events:
        assert "".join(event.text for event in events) == "Hi a"


def test_options_alone_are_a_question():
    """A list in place of instructions has the options."""
    assert Choice(["b", "c"]) == Choice("", ["b", "c"])
    assert Choice(Team) == Choice("", Team)


def test_values_of_llama_cpp_and_of_openai_mean_the_same(llm):
    """-1 is a random seed, a `top_k` of -1 is off, and a message may have parts; a text names the token that it is."""
    assert SamplingParams(top_k=-1) == SamplingParams(top_k=0)
    assert llm.generate("a", seed=-1, max_tokens=1)[0].seed >= 0
    assert llm.sample("a", LETTERS, seed=-1)[0].text in ("a", "b")
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    assert llm.encode(parts).tolist() == llm.encode([{"role": "user", "content": "a\nb"}]).tolist()
    by_text = SamplingParams(logit_bias={"q": 1000.0, 7: -1.0})
    found = llm.generate("a", sampling=by_text, max_tokens=3, seed=1)
    assert found.text == "qqq"
    assert found.sampling.logit_bias == {ord("q") + 2: 1000.0, 7: -1.0}  # two control tokens come first


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda llm: llm.generate("a", seed=-2), "or give -1, for a random one"),
        (lambda llm: llm.generate("a", top_k=-2), "top_k=-2: expected a whole number of at least -1"),
        (lambda llm: llm.generate("a", max_tokens=0), "max_tokens=0: expected .* `prompt_logprobs`"),
        (lambda llm: llm.generate("a", max_tokens=-1), "max_tokens=-1: expected a whole number of at least 1"),
        (lambda llm: llm.generate("a", sampling={"logit_bias": {"ab": 1.0}}), "is 2: 99 'a', 100 'b'"),
        (lambda llm: llm.generate("a", sampling={"logit_bias": {"": 1.0}}), "a text that is one token"),
        (lambda llm: llm.generate("a", sampling={"logit_bias": {"7": 1.0}}), "may be meant as an id or as a text"),
        (lambda llm: llm.generate("a", sampling={"logit_bias": {"a": 1.0, 99: 2.0}}), "token 99 has another bias"),
        (lambda llm: llm.encode([{"role": "user", "content": [{"type": "image_url"}]}]), "or a list of parts"),
    ],
)
def test_values_with_two_meanings_are_refused(llm, call, message):
    """The error says which ones there are."""
    with pytest.raises((OptionError, PromptError), match=message):
        call(llm)


@pytest.mark.parametrize(
    ("literal", "names"),
    [
        (keywords.RuleName, options.RULES),
        (keywords.Terminator, options.TERMINATORS),
        (keywords.GrammarTerminator, options.BEAM_TERMINATORS),
        (keywords.Tokenizations, options.TOKENIZATIONS),
        (keywords.SpellingEvent, options.SPELLING_EVENTS),
        (keywords.SearchMethod, options_of(SearchParams)["method"].allowed.names),
        (keywords.SearchStop, options_of(SearchParams)["stop"].allowed.names),
    ],
)
def test_types_of_names_have_the_names(literal, names):
    """A type checker knows what the check allows."""
    parts = get_args(literal)
    assert {one for part in parts for one in (get_args(part) or (part,))} == set(names)
