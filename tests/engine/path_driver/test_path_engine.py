"""An engine on a model that is asked for its rows by their path: its values are those of the local engine, to the last
bit, unless they are intervals, which contain them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie import DecisionParams, EngineDrafter, Grammar, SamplingParams, Template
from selectrie.engine.connect import PathRuntime
from selectrie.engine.engine import Engine
from selectrie.engine.requests.loglikelihood import Sequences
from selectrie.engine.scheduler.task_group import task_group
from selectrie.errors import CapacityError, ClosedError, OptionError, PromptTooLongError, WholeRowsError
from selectrie.options import PromptParams, SearchParams
from selectrie.testing import HashModel, PathsOf, TableModel
from tests.support.deciding import BYTES, LIMITS, QUESTIONS, STATE, fake
from tests.support.gated_paths import LONG_S, GatedPaths, NotedPaths, limits
from tests.support.n_examples import n_examples

PROMPTS = ["a bat", "a ", "a c", "ca", "cat s"]
CHOICES = ["at", " cat", "s", "a", "art", " bat s", "a cat", "cat at"]
ALL = SearchParams(method="exhaustive", stop="all")


def path_engine(model, **options):
    return Engine(PathRuntime(model, **options))


def engines(seed, **options):
    """The engine whose rows are read by their path, and the local one."""
    return path_engine(PathsOf(HashModel(seed), **options)), Engine(HashModel(seed))


def same(one, other):
    """All numbers of two selections, bit for bit."""
    for name in ("logp", "logp_upper", "logp_terminator", "score", "probability", "logp_local"):
        np.testing.assert_array_equal(getattr(one.choices, name), getattr(other.choices, name), err_msg=name)
    for name in ("index", "margin", "coverage", "log_heal", "greedy_index", "top_tokens", "healed", "rule"):
        assert getattr(one, name) == getattr(other, name), name


choices = st.lists(st.sampled_from(CHOICES), min_size=1, max_size=6, unique=True)


@given(
    st.integers(0, 99),
    st.sampled_from(PROMPTS),
    choices,
    st.tuples(
        st.sampled_from(["none", "eog", "text"]),
        st.sampled_from(["joint", "token_mean", "pmi", "char_mean"]),
        st.sampled_from(["heal", "split", "harness"]),
    ),
)
@settings(max_examples=n_examples(24))
def test_a_selection_has_the_values_of_the_local_engine(seed, prompt, texts, options):
    """Every terminator that reads named tokens alone, rule and boundary; all rows, and the best found by bounds."""
    terminator, rule, boundary = options
    how = {
        "terminator": terminator,
        "following": "." if terminator == "text" else "",
        "rule": rule,
        "prompting": PromptParams(boundary=boundary),
    }
    remote, local = engines(seed, limits=limits(named_ids=26), hides_rest=True)
    with remote, local:
        same(remote.rank(prompt, texts, search=ALL, **how), local.rank(prompt, texts, search=ALL, **how))
        found = remote.select(prompt, texts, search=SearchParams(method="exhaustive"), **how)
        expected = local.select(prompt, texts, **how)
        assert (found.text, found.certificate.proved) == (expected.text, True)
        text = texts[0] + "s"
        assert remote.score(prompt, text).to_dict()["tokens"] == local.score(prompt, text).to_dict()["tokens"]
        assert remote.score(prompt, text).is_greedy == local.score(prompt, text).is_greedy


@given(st.integers(0, 99), st.sampled_from(PROMPTS))
@settings(max_examples=n_examples(12))
def test_a_search_finds_the_winner_of_the_local_engine(seed, prompt):
    """Best first, with as many rows at a time as are worth it: the same texts, and a proof."""
    remote, local = engines(seed, limits=limits(named_ids=26))
    with remote, local:
        how = SearchParams(method="best_first", k=2)
        one, other = (engine.select(prompt, CHOICES, search=how) for engine in (remote, local))
        assert [choice.text for choice in one.top(2)] == [choice.text for choice in other.top(2)]
        assert [choice.logp for choice in one.top(2)] == [choice.logp for choice in other.top(2)]
        assert one.certificate.proved


@given(
    st.integers(0, 99),
    st.sampled_from(PROMPTS),
    st.lists(st.sampled_from(CHOICES), min_size=2, max_size=6, unique=True),
    st.tuples(
        st.sampled_from(["none", "eog", "text", "unless-continued"]),
        st.sampled_from(["joint", "token_mean", "pmi"]),
        st.sampled_from(["heal", "split"]),
        st.sampled_from(["exhaustive", "auto"]),
    ),
    st.tuples(st.sampled_from([2, 5, 26]), st.sampled_from([1, 3, 26]), st.booleans()),
)
@settings(max_examples=n_examples(50))
def test_intervals_contain_the_values_of_the_local_engine(seed, prompt, texts, options, told):
    """Few tokens can be named and few are told: what is no interval has its bits, and what is proved is so."""
    terminator, rule, boundary, method = options
    how = {
        "terminator": terminator,
        "following": "." if terminator == "text" else "",
        "rule": rule,
        "prompting": PromptParams(boundary=boundary),
    }
    named_ids, top_ids, hides_rest = told
    remote, local = engines(seed, limits=limits(named_ids=named_ids, top_ids=top_ids), hides_rest=hides_rest)
    with remote, local:
        expected = local.rank(prompt, texts, search=ALL, **how)
        found = remote.select(prompt, texts, search=SearchParams(method=method), **how)
    for one, other in zip(found.choices, expected.choices, strict=True):
        if one.logp is not None and one.logp == one.logp_upper:
            assert one.logp == other.logp
        assert (-np.inf if one.logp is None else one.logp) <= other.logp <= one.logp_upper
        assert one.probability_low - 1e-12 <= other.probability <= one.probability_high + 1e-12
    if found.certificate.proved:
        assert found.text == expected.text


def test_many_selections_share_requests():
    """Sixteen prompts of six choices: each row is asked for once, and requests carry up to four."""
    model = GatedPaths(HashModel(1), limits=limits(queries_per_request=4, requests_in_flight=2))
    requests = [(prompt, CHOICES) for prompt in PROMPTS for _ in range(3)]
    with path_engine(model) as remote, Engine(HashModel(1)) as local, ThreadPoolExecutor(1) as thread:
        found = thread.submit(remote.select_many, requests)
        model.wait_for(1)
        model.let_go()
        model.wait_for(2)  # what the first rows lead to: a request is sent before another one is answered
        model.open()
        for one, other in zip(found.result(LONG_S), local.select_many(requests), strict=True):
            same(one, other)
    asked = [path for request in model.requests for path in request]
    assert len(asked) == len(set(asked))
    assert len(model.requests) < len(asked) / 2
    assert model.n_at_once == 2


def test_rows_are_kept_for_later_requests_until_they_are_dropped():
    """The same request again asks nothing; after `trim` it asks everything."""
    model = NotedPaths(HashModel(1))
    with path_engine(model) as engine:
        first = engine.rank("a bat", CHOICES)
        n = len(model.queries)
        again = engine.rank("a bat", CHOICES)
        same(first, again)
        assert (len(model.queries), again.cost.rows, again.cost.model_calls) == (n, 0, 0)
        assert first.cost.rows == n
        engine.trim()
        engine.rank("a bat", CHOICES)
        assert len(model.queries) == 2 * n


@pytest.fixture
def deciders():
    """The engine whose rows are read by their path, and the local one, on a model of bytes."""
    model = HashModel(1, vocabulary=BYTES, limits=LIMITS, sharpness=0.5)
    with path_engine(PathsOf(model, hides_rest=True, limits=limits(path_tokens=1 << 14))) as remote, fake() as local:
        yield remote, local


STATES = [STATE, {"text": "Where is it?", "n": 3}, "I want my money back"]


def numbers(decision):
    """What a decision says, without what it cost and what signs it."""
    answers = decision.to_dict()["answers"]
    return [
        {name: value for name, value in one.items() if name not in ("usage", "signature")} for one in answers.values()
    ]


def test_decisions_are_those_of_the_local_engine(deciders):
    """One question and several, one state and many, in either layout and with a baseline."""
    remote, local = deciders
    for params in (DecisionParams(), DecisionParams(layout="questions first"), DecisionParams(rule="calibrated")):
        one = remote.decide_many(STATES, QUESTIONS, params=params)
        other = local.decide_many(STATES, QUESTIONS, params=params)
        assert [numbers(decision) for decision in one] == [numbers(decision) for decision in other]
    assert remote.decide(STATE, QUESTIONS["intent"]).value == local.decide(STATE, QUESTIONS["intent"]).value
    assert [numbers(one) for one in remote.decide_iter(STATES, QUESTIONS)] == [
        numbers(one) for one in local.decide_iter(STATES, QUESTIONS)
    ]


def test_tables_are_those_of_the_local_engine(deciders):
    """Rows of a data frame, by units; one that cannot be asked keeps its error."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("narwhals")
    remote, local = deciders
    frame = pandas.DataFrame({"text": ["a parcel", "money", "", "late again"]})
    one, other = (
        llm.decide_table(frame, QUESTIONS, state="{text}", params=DecisionParams(rule="calibrated"), unit_rows=2)
        for llm in (remote, local)
    )
    assert repr(one.to_dict()) == repr(other.to_dict())  # NaN is not equal to itself
    with remote.decision_scorer(QUESTIONS) as scorer:
        assert len(scorer.decisions(STATES)) == 3
    with pytest.raises(ClosedError):
        scorer.decisions(STATES)


def test_loglikelihoods_are_those_of_the_local_engine():
    """Sequences with different first tokens, equal ones, one without tokens that count, and greedy ones."""
    plain = HashModel(3)
    best = int(np.argmax(plain.row([0, 5])))
    pairs = [
        ([0, 5], [best]),
        ([0, 5], [best, 7, 9]),
        ([4], [5, 6, 7]),
        ([0, 5, 9], [2]),
        ([0, 5], [best]),
        ([6, 7], []),
    ]
    sequences = Sequences.of(pairs)
    model = NotedPaths(HashModel(3))
    with path_engine(model) as remote, Engine(HashModel(3)) as local:
        with remote.loglikelihood_scorer(8) as scorer, local.loglikelihood_scorer(8) as expected:
            one, other = scorer.loglikelihoods(sequences), expected.loglikelihoods(sequences)
            assert one.logp.tolist() == other.logp.tolist()
            assert one.is_greedy.tolist() == other.is_greedy.tolist() == [True, False, False, False, True, True]
            assert one.n_scored.tolist() == other.n_scored.tolist()
            assert one.rows_naive == other.rows_naive
            assert one.rows_evaluated == len(model.queries) < other.rows_evaluated
            assert len(scorer.loglikelihoods(Sequences.of([])).logp) == 0
        with pytest.raises(ClosedError):
            scorer.loglikelihoods(sequences)
        with pytest.raises(CapacityError):
            remote.loglikelihood_scorer(10**6)


def test_prompt_logprobs_are_those_of_the_local_engine():
    """Values of every token, of named ones and of the most probable ones."""
    remote, local = engines(2)
    with remote, local:
        how = {"top": 3, "named": [4, 7]}
        for one, other in zip(
            remote.prompt_logprobs(PROMPTS, **how), local.prompt_logprobs(PROMPTS, **how), strict=True
        ):
            for name in ("tokens", "logp", "is_greedy", "top", "named"):
                assert getattr(one, name) == getattr(other, name)


def test_more_of_the_most_probable_tokens_than_a_model_tells_are_refused():
    """Before a query, and not by a shorter list: of k tokens, the last may equal one that is not told."""
    few, all_of_them = (NotedPaths(HashModel(2), limits=limits(top_ids=n)) for n in (5, 1000))
    with path_engine(few) as engine:
        with pytest.raises(OptionError, match=r"top=5: expected at most 4"):
            engine.prompt_logprobs(PROMPTS, top=5)
        assert not few.requests
        rows = engine.prompt_logprobs(PROMPTS, top=4)
        assert all(len(top) == 4 for row in rows for top in row.top if top is not None)
    with path_engine(all_of_them) as engine:
        assert engine.prompt_logprobs(PROMPTS, top=5)


GRAMMAR = Grammar.from_choices(["a", "at"])


@pytest.mark.parametrize(("ask", "what"), [
    (lambda llm: llm.sample("a", GRAMMAR), "`sample`"),
    (lambda llm: llm.sample("a", GRAMMAR, exact=False), "`sample`"),
    (lambda llm: llm.generate("a"), "`generate`"),
    (lambda llm: llm.stream("a"), "`stream`"),
    (lambda llm: llm.render(Template("a<<gen 'x'>>")), "`gen 'x'`"),
    (lambda llm: llm.render(Template("a<<select 'x' options=['a', 's'] temperature=1>>")), "`temperature` of .*"),
    (lambda llm: llm.render(Template("<<#if no>>a<<select 'x' options=['a', 's'] logprobs='p'>><</if>>"), no=False),
     "`logprobs` of .*"),
    (lambda llm: Engine(HashModel(1)).generate("a", draft=llm, sampling=SamplingParams(temperature=0)), "`draft`"),
    (lambda llm: Engine(HashModel(1)).generate("a", draft=EngineDrafter(llm)), "`draft`"),
])  # fmt: skip
def test_what_reads_whole_rows_is_refused_before_anything_is_asked(ask, what):
    """Each with what it is and what to do instead."""
    model = NotedPaths(HashModel(1))
    with path_engine(model) as llm:
        with pytest.raises(WholeRowsError, match=f"{what} reads .*; use `select`"):
            ask(llm)
        assert model.requests == []
        assert llm.select("a", ["at", "s"]).text in ("at", "s")


PAGE = Template(
    "a <<select 'x' options=['cat', 'bat', 'car']>> <<#if x == 'cat'>>s<</if>>"
    "<<select 'y' options=['s', 'sat', 'a'] rule='token_mean'>><<beam 'z' options=['a', 'at'] width=2>>."
    "<<#geneach 'w' num=2 join=' '>><<select 'this' options=['at', 'cat']>><</geneach>>"
)


@pytest.mark.short("True-2", "False-0")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("hides", [False, True])
def test_a_page_of_selects_is_that_of_the_local_engine(seed, hides):
    """Values and text; also where a row says only what a server says. A stream of it has the same text."""
    remote, local = engines(seed, hides_rest=hides)
    with remote, local:
        found, own = remote.render(PAGE), local.render(PAGE)
        assert (found.text, dict(found.values)) == (own.text, dict(own.values))
        if not hides:
            same(found.selections["x"], own.selections["x"])
        assert found.identity.precision == "remote"
        events = list(remote.stream_render(PAGE))
        assert "".join(event.text for event in events) == own.text


def test_tags_that_read_whole_rows_are_refused_wherever_they_are():
    """In loops and blocks too, before a slot before them is decided."""
    model = NotedPaths(HashModel(1))
    for tag in (
        "<<#joint>><<select 'p' options=['a', 's']>><</joint>>",
        "<<#geneach 'w' stop='.'>> <<select 'this' options=['a', 's']>><</geneach>>.",
    ):
        with path_engine(model) as llm, pytest.raises(WholeRowsError, match=r"`joint` block|`geneach 'w'` with"):
            llm.render(Template(f"a<<select 'x' options=['a', 's']>>{tag}"))
    assert model.requests == []


def test_the_engine_says_what_it_is():
    """Precision, tolerance and limits; the signature of a result states them too."""
    with path_engine(PathsOf(HashModel(1), tolerance=1e-3, limits=limits(path_tokens=40))) as llm:
        assert llm.identity.precision == "remote"
        assert llm.tolerance == 1e-3
        assert llm.limits.nodes == 40
        signature = llm.select("a", ["at", "s"]).signature
        assert (signature.precision, signature.tolerance) == ("remote", 1e-3)
        assert "remote" in repr(llm)
        with pytest.raises(PromptTooLongError, match="ask a server whose context is longer"):
            llm.select("a" * 60, ["at"])


@pytest.mark.parametrize(("per_request", "in_flight", "n"), [(1, 1, 1), (2, 3, 6), (64, 4, 8)])
def test_searches_ask_for_as_many_rows_as_are_worth_it(per_request, in_flight, n):
    """A model that answers one query at a time is asked for no row beyond those that are needed."""
    model = NotedPaths(HashModel(1), limits=limits(queries_per_request=per_request, requests_in_flight=in_flight))
    with path_engine(model) as llm, task_group(llm._model_thread) as group:
        assert llm._session(group).fill_rows == n


def test_near_ties_are_flagged_and_not_scored_again():
    """Within the tolerance of the model, the winner is not certain, and nothing more is asked."""
    with path_engine(PathsOf(HashModel(1), tolerance=100.0)) as llm:
        certificate = llm.select("a", ["at", "s"]).certificate
        assert (certificate.rescored, certificate.n_rescored) == (False, 0)
    with path_engine(PathsOf(HashModel(1))) as llm:
        assert llm.select("a", ["at", "s"]).certificate.rescored


@pytest.mark.parametrize(("top_ids", "is_greedy"), [(0, None), (1, None), (2, True)])
def test_a_server_that_tells_no_best_token_scores_texts_all_the_same(top_ids, is_greedy):
    """An echo gives the tokens that were sent, and nothing to compare them with: whether they are the best stays open."""
    model = TableModel({(): {"cat": 0.3}})
    with path_engine(PathsOf(model, limits=limits(top_ids=top_ids), hides_rest=True)) as remote, Engine(model) as local:
        found, expected = (one.score([0], "cat") for one in (remote, local))
    assert expected.is_greedy is True
    assert found.is_greedy is is_greedy
    assert (found.logp, found.tokens) == (expected.logp, expected.tokens)


@pytest.mark.parametrize("tokenizations", ["canonical", "all"])
@pytest.mark.parametrize("terminator", ["none", "eog"])
@pytest.mark.parametrize(("named_ids", "top_ids", "hides_rest"), [(1, 0, True), (3, 3, True), (26, 26, False)])
def test_no_number_of_a_finished_choice_is_nan(tokenizations, terminator, named_ids, top_ids, hides_rest):
    """However little a server tells at once: the tokens of a path and its ends are asked for by name."""
    with path_engine(
        PathsOf(HashModel(2), limits=limits(named_ids=named_ids, top_ids=top_ids), hides_rest=hides_rest)
    ) as remote:
        found = remote.select("a c", ["at", "ats", "ab"], terminator=terminator, tokenizations=tokenizations)
    table = found.choices
    assert table.finished.all()
    for name in (
        "logp",
        "logp_upper",
        "logp_terminator",
        "score",
        "probability",
        "probability_low",
        "probability_high",
    ):
        assert not np.isnan(getattr(table, name)).any(), name
    assert not np.isnan([found.margin, found.coverage, found.log_heal, found.heal_gap]).any()
