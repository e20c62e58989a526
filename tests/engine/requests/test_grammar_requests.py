"""Selecting and sampling among the texts of a grammar, from the engine's methods to what they give."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import exp, inf
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import selectrie
from selectrie.core.types import Cost
from selectrie.engine.engine import Engine
from selectrie.engine.load import load
from selectrie.engine.precision_check import SelfCheck
from selectrie.engine.requests import select_grammar
from selectrie.engine.requests.generate import GenerationParams
from selectrie.errors import NothingFoundError, OptionError
from selectrie.grammar import Grammar
from selectrie.options import BeamSearchParams, PromptParams, SearchParams, StopParams
from selectrie.testing import HashModel, TableModel
from tests.support.n_examples import n_examples
from tests.support.small_automata import TINY, accepted, joint, mass
from tests.support.word_lists import made_words

MOVES = Grammar.from_gbnf('root ::= " " ("cat" | "bat" | "car" | "cats")')
MANY = Grammar.from_gbnf('root ::= " cat" ("s" | " bat")*')
SPLIT = PromptParams(boundary="split")


@pytest.fixture
def engine():
    with Engine(HashModel(4, sharpness=2.0)) as made:
        yield made


def costless(selection):
    """Without what it took, which the cache decides."""
    return replace(selection, cost=Cost())


def test_a_finite_grammar_is_its_list(engine):
    """The texts of a finite grammar are the choices: the very selection that listing them gives."""
    texts = list(MOVES.expand())
    assert costless(engine.select("a", grammar=MOVES)) == costless(engine.select("a", texts))


SMALL = sorted({f" {a}{b}{c}" for a in "bcrt" for b in ("a", "u") for c in ("b", "t", "ts", "bat")})


@pytest.mark.parametrize(
    ("texts", "options"),
    [
        (["cats", "bat", "cat"], {}),
        (SMALL[::-1], {}),
        (SMALL, {"terminator": "text", "following": " "}),
        (SMALL, {"rule": "char_mean", "prior": [1.0 + i for i in range(32)]}),
        (["b", "a"], {"search": SearchParams(method="exhaustive", k=2)}),
    ],
    ids=["few", "many", "following", "prior", "exhaustive"],
)
def test_a_grammar_of_a_list_is_that_list(engine, texts, options):
    """In the order given, to the last bit, whatever is asked: the very selection of the list."""
    assert costless(engine.select("a", grammar=Grammar.from_choices(texts), **options)) == costless(
        engine.select("a", texts, **options)
    )


@pytest.mark.short("20000-1")
@pytest.mark.parametrize(("n", "n_each"), [(20_000, 1), (40_000, 2)])
def test_a_long_list_is_decided_as_a_list(n, n_each, embedded):
    """Texts and pairs, more than rules can hold: the same winner, terminator, proof and bits; all of the list at hand."""
    texts = made_words(n, n_each=n_each)
    with load(embedded, n_threads=1) as llm:
        listed = llm.select("Once upon a time there was", texts)
        found = llm.select("Once upon a time there was", grammar=Grammar.from_choices(texts))
        assert (found.text, found.terminator, found.grammar) == (listed.text, listed.terminator, None)
        assert found.logp.hex() == listed.logp.hex()
        assert found.certificate == listed.certificate
        assert found.certificate.proved
        assert len(found.choices) == len(texts)


def test_what_reads_tokens_reads_long_lists(embedded):
    """Beams, draws and generation on 40 000 pairs of words, which no compiled grammar could hold."""
    grammar = Grammar.from_choices(made_words(40_000, n_each=2))
    with load(embedded, n_threads=1) as llm:
        texts = [
            llm.beam_search("Once", grammar, beam=BeamSearchParams(width=3, max_tokens=20)).text,
            llm.generate("Once", options=GenerationParams(grammar=grammar), stopping=StopParams(max_tokens=20))[0].text,
            *(draw.text for draw in llm.sample("Once", grammar, n=2, seed=1, exact=False)),
        ]
        assert all(map(grammar.accepts, texts))


@dataclass
class Ticket:
    team: Literal["delivery", "returns", "account"]
    urgent: bool


def test_a_type_of_six_values_is_its_list():
    """Its texts are those of `json.dumps`; the embedded model decides among them as among a list of them, with proof."""
    texts = [
        json.dumps({"team": team, "urgent": urgent})
        for team in ("delivery", "returns", "account")
        for urgent in (True, False)
    ]
    prompt = "Message: I forgot my password, please help.\nJSON: "
    with selectrie.load(n_threads=1) as llm:
        found = llm.select(prompt, grammar=Grammar.from_type(Ticket))
        listed = llm.select(prompt, texts)
    assert found.text == listed.text
    assert {one.text: one.logp.hex() for one in found.ranked} == {one.text: one.logp.hex() for one in listed.ranked}
    assert found.certificate == listed.certificate
    assert found.certificate.proved
    assert found.certificate.nodes_evaluated < 100


def test_a_search_finds_what_the_list_has(engine, monkeypatch):
    """Searched instead of listed: the same ranking and log-probabilities, every one proved."""
    listed = engine.select("a", list(MOVES.expand()), terminator="eog", prompting=SPLIT)
    monkeypatch.setattr(select_grammar, "MAX_LISTED", 0)
    found = engine.select("a", grammar=MOVES, terminator="eog", prompting=SPLIT, search=SearchParams(k=4))
    assert [one.text for one in found.ranked] == [one.text for one in listed.ranked]
    assert [one.logp for one in found.ranked] == pytest.approx([one.logp for one in listed.ranked], abs=1e-5)
    assert found.certificate.proved
    assert found.certificate.open_mass < 1e-6
    assert found.coverage == pytest.approx(listed.coverage, abs=1e-6)
    assert found.agrees_with_greedy == listed.agrees_with_greedy
    assert (found.grammar.about, found.grammar.digest) == ("strings", MOVES.digest)


@pytest.mark.parametrize(
    ("rule", "tolerance", "rescored"), [("b", 0.03, True), ("b | c", 0.02, True), ("b | c", 0.03, False)]
)
def test_a_search_says_whether_layout_could_change_the_first(monkeypatch, rule, tolerance, rescored):
    """`b` is .049 nats ahead of `c`; of two rows each, a tolerance of .02 may bring them .04 closer, one of .03 .06."""
    monkeypatch.setattr(select_grammar, "MAX_LISTED", 0)
    grammar = Grammar.from_gbnf("root ::= " + rule.replace("b", '"b"').replace("c", '"c"'))
    with Engine(TableModel({("a",): {"b": 0.42, "c": 0.4}}), check=SelfCheck(1, 0.0, tolerance)) as engine:
        found = engine.select("a", grammar=grammar, terminator="none", prompting=SPLIT)
    assert (found.text, found.certificate.rescored) == ("b", rescored)


def test_the_best_of_infinitely_many(engine):
    """A winner with its proof; told as it is found; ready for JSON."""
    told = []
    search = SearchParams(k=2, max_tokens=5, on_found=lambda text, logp: told.append((text, logp)))
    selection = engine.select("a", grammar=MANY, search=search)
    assert MANY.accepts(selection.text)
    assert selection.certificate.proved
    assert selection.certificate.nodes_inner is None
    assert told[-1] == (selection.text, pytest.approx(selection.logp))
    fields = selection.to_dict()
    assert fields["grammar"]["max_tokens"] == 5
    assert fields["text"] == selection.text
    assert selection.trie().parent


@pytest.mark.parametrize("rule", ["joint", "token_mean"])
def test_with_any_path_a_text_has_the_log_probability_of_its_best_one(engine, monkeypatch, rule):
    """Order, proof and log-probability are about one path a text; the coverage is about all that were found."""
    monkeypatch.setattr(select_grammar, "MAX_LISTED", 0)
    search = SearchParams(k=4, canonical_only=False, max_tokens=6, stop="all")
    found = engine.select("a", grammar=MOVES, rule=rule, terminator="eog", prompting=SPLIT, search=search)
    for one in found.choices:
        assert one.logp == pytest.approx(sum(token.logp for token in one.tokens) + one.logp_terminator)
        assert one.score == pytest.approx(one.logp / (len(one.tokens) if rule == "token_mean" else 1))
    assert len({one.text for one in found.choices}) == len(found.choices) == 4
    assert found.coverage > sum(exp(one.logp) for one in found.choices) * (1 + 1e-6)


SPELLINGS = [Grammar.from_regex(one) for one in ("(cat|c|ca|bat|b)(s|at)?", "(at|cat|b|s|a|c){1,2}", " (cat|bat)s?")]
"""Grammars with texts that several token paths spell."""


@settings(max_examples=n_examples(60))
@given(
    grammar=st.sampled_from(SPELLINGS),
    seed=st.integers(0, 10**6),
    how=st.tuples(st.sampled_from(["joint", "token_mean"]), st.sampled_from(["eog", "none"])),
    most=st.integers(2, 4),
    options=st.fixed_dictionaries(
        {
            "k": st.integers(1, 4),
            "budget_nodes": st.sampled_from([None, 5, 9]),
            "stop": st.sampled_from(["best", "all"]),
            "width": st.sampled_from([1, 16]),
        }
    ),
)
def test_with_any_path_each_text_comes_once(grammar, seed, how, most, options):
    """By enumeration: the first k and their log-probabilities are those of the best paths, if proved; and proved or not, every
    probability lies between its bounds, the margin is no larger than the true one, and what was not found is open."""
    model, (rule, terminator) = HashModel(seed, sharpness=2.0), how
    search = SearchParams(canonical_only=False, max_tokens=most, **options)
    with pytest.MonkeyPatch.context() as patch, Engine(model, check=SelfCheck(1, 0.0, 0.0)) as engine:
        patch.setattr(select_grammar, "MAX_LISTED", 0)
        try:
            found = engine.select(
                "a", grammar=grammar, rule=rule, terminator=terminator, prompting=SPLIT, search=search
            )
        except NothingFoundError:
            return
    logp_of: dict[str, list[tuple[float, float]]] = {}
    for path in accepted(grammar.automaton(TINY), most):
        logp = joint(model, path, eog=terminator == "eog")
        score = logp / (len(path) if rule == "token_mean" else 1)
        logp_of.setdefault(TINY.decode(path).decode(), []).append((score, logp))
    best = {text: max(paths) for text, paths in logp_of.items()}
    total = mass(score for score, _ in best.values())
    assert len({one.text for one in found.choices}) == len(found.choices)
    if found.certificate.proved:
        first = sorted(best.values(), reverse=True)[: search.k]
        assert [one.score for one in found.top(search.k)] == pytest.approx([score for score, _ in first], abs=1e-5)
        for one in found.top(search.k):
            assert (one.score, one.logp) == pytest.approx(best[one.text], abs=1e-5)
    for one in found.choices:
        assert one.probability_low - 1e-6 <= exp(best[one.text][0]) / total <= one.probability_high + 1e-6
        assert one.probability_low <= one.probability <= one.probability_high
    runner_up = max((score for text, (score, _) in best.items() if text != found.text), default=-inf)
    assert found.margin <= best[found.text][0] - runner_up + 1e-5
    missing = mass(logp for paths in logp_of.values() for _, logp in paths) - found.coverage
    n_lengths = most if terminator == "none" else 1  # a text may begin with another
    assert missing <= found.certificate.open_mass * n_lengths * (1 + 1e-5) + 1e-6


@pytest.mark.parametrize("rule", ["joint", "token_mean"])
def test_what_greedy_picks_is_found_in_other_tokens(monkeypatch, rule):
    """Greedy writes `c`+`at`, with .12 in all and .35 a token; the best path of that text is `cat`, with .38."""
    monkeypatch.setattr(select_grammar, "MAX_LISTED", 0)
    table = {("a",): {"c": 0.4, "cat": 0.38, "b": 0.2}, ("a", "c"): {"at": 0.3}}
    search = SearchParams(canonical_only=False, stop="all")
    with Engine(TableModel(table), check=SelfCheck(1, 0.0, 0.0)) as engine:
        grammar = Grammar.from_gbnf('root ::= "cat" | "b"')
        found = engine.select("a", grammar=grammar, rule=rule, terminator="none", prompting=SPLIT, search=search)
    assert [(one.text, len(one.tokens)) for one in found.ranked] == [("cat", 1), ("b", 1)]
    assert found.choices[found.greedy_index].text == "cat"
    assert found.agrees_with_greedy


def test_what_on_found_raises_is_raised_here(engine):
    """An error of the caller's own ends the search, and the engine goes on working."""

    def fail(_text, _logp):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        engine.select("a", grammar=MANY, search=SearchParams(max_tokens=4, on_found=fail))
    assert engine.select("a", grammar=MANY, search=SearchParams(max_tokens=4)).text


def test_fewer_than_asked_for_prove_no_length(engine):
    """There are not fifty texts of so few tokens, so the fiftieth is longer: nothing is proved for any length."""
    few = engine.select("a", grammar=MANY, search=SearchParams(k=50, max_tokens=3))
    assert len(few.choices.texts) < 50
    assert few.certificate.proved
    assert not few.grammar.any_length


def test_draws_of_a_grammar(engine):
    """Every text is one, the same seed gives the same, and drawn one by one they are as exact as side by side."""
    search = SearchParams(max_tokens=4)
    draws = engine.sample("a", MANY, n=3, seed=7, search=search)
    assert draws == engine.sample("a", MANY, n=3, seed=7, search=search)
    assert all(MANY.accepts(one.text) for one in draws)
    assert all(one.logp <= 1e-6 for one in draws)
    assert 0 < draws.mass_low <= draws.mass <= draws.mass_high
    assert draws.mass_low >= max(exp(one.logp) for one in draws) - 1e-9
    assert draws.to_dict()["kind"] == "samples"
    local = engine.sample("a", MANY, n=3, seed=7, exact=False, search=search)
    assert (local.exact, local.mass) == (False, None)
    assert all(MANY.accepts(one.text).verdict in ("yes", "unfinished") for one in local)


def test_the_end_of_a_draw_is_none_of_its_tokens():
    """After `b` the text ends with .7; the log-probability of that is `logp_end`, and the token is `b` alone."""
    model = TableModel({("a",): {"b": 0.9}, ("a", "b"): {"<eos>": 0.7, "s": 0.3}})
    with Engine(model, check=SelfCheck(8, 0.0, 0.0)) as engine:
        draws = engine.sample("a", Grammar.from_gbnf('root ::= "b" "s"*'), n=4, seed=1, exact=False, prompting=SPLIT)
    ended = [one for one in draws if one.text == "b"]
    assert ended
    for one in ended:
        assert ([token.piece for token in one.tokens], one.ended_by) == ([b"b"], "eog")
        assert exp(one.logp_end) == pytest.approx(0.7)
        assert exp(one.logp) == pytest.approx(0.9 * 0.7)


@pytest.mark.parametrize(("texts", "exact"), [(("aab", "b"), True), (("aa", "aab"), False)])
def test_draws_without_an_end_are_exact_where_no_text_goes_on_after_another(engine, texts, exact):
    """The longer text is never drawn, so the certain mass is not that of the grammar."""
    draws = engine.sample("a", Grammar.from_choices(texts), n=2, seed=7, terminator="none")
    assert (draws.exact, "continues another" in draws.reason) == (exact, not exact)
    assert (draws.mass_low is None) == (not exact)


@pytest.mark.parametrize("exact", [True, False])
def test_a_text_is_the_one_that_its_seed_draws_alone(engine, exact):
    """Text i of n is the only text of seed + i, tokens, log-probabilities and close draws."""
    grammar, search = Grammar.from_regex("(at|cat|b|s|a|c){1,3}"), SearchParams(max_tokens=5)
    together = engine.sample("a", grammar, n=8, seed=11, exact=exact, search=search)
    alone = [engine.sample("a", grammar, seed=11 + i, exact=exact, search=search) for i in range(8)]
    assert together.texts == tuple(one[0] for one in alone)
    assert together.close_steps == tuple(one.close_steps[0] for one in alone)
    assert len(set(together)) > 2


def test_close_draws_of_the_embedded_model_are_reported():
    """Drawn together, alone and beside other work: texts differ only where a draw is reported as close."""
    dates = Grammar.from_regex(" [0-9]{2}-[0-9]{2}")
    prompt = "On the day of Australia:"
    with selectrie.load(n_threads=1, n_ctx=512) as llm:
        together = llm.sample(prompt, dates, n=10, seed=3)
        assert together.signature.tolerance > 0
        with ThreadPoolExecutor(2) as pool:
            pool.submit(llm.select, "Once upon a time", [" there", " in", " a"])
            beside = pool.submit(llm.sample, prompt, dates, n=2, seed=3).result()
        alone = [llm.sample(prompt, dates, seed=3 + i) for i in range(5)]
    for one, other, close in zip(together, [draw[0] for draw in alone], together.close_steps, strict=False):
        assert one.text == other.text or close
    for one, other, close in zip(together, beside, together.close_steps, strict=False):
        assert one.text == other.text or close


def test_few_draws_are_close_where_the_grammar_holds_most_of_the_mass(embedded):
    """Texts that take one walk each are mostly those that their seeds give alone, whatever the layout."""
    capitals = Grammar.from_regex(" (Paris|London|Rome|Berlin)")
    with load(embedded, n_threads=1) as llm:
        draws = llm.sample("Q: What is the capital of France?\nA:", capitals, n=24, seed=3)
    assert draws.mass_low > 0.5
    assert draws.n_attempts < 48
    assert sum(map(bool, draws.close_steps)) < 12


def test_they_can_be_awaited(engine):
    """`aselect` and `asample` give what the others do."""

    async def both():
        return await engine.aselect("a", grammar=MOVES), await engine.asample(
            "a", MANY, seed=1, search=SearchParams(max_tokens=4)
        )

    selection, draws = asyncio.run(both())
    assert costless(selection) == costless(engine.select("a", grammar=MOVES))
    assert draws == engine.sample("a", MANY, seed=1, search=SearchParams(max_tokens=4))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"choices": [" cat"]}, "grammar"),
        ({"rule": "pmi"}, "rule"),
        ({"rule": lambda choice: choice.logp}, "rule"),
        ({"prior": {" cat": 1.0}}, "prior"),
        ({"following": " ", "terminator": "eog"}, "following"),
        ({"terminator": "text"}, "following"),
        ({"terminator": "soon"}, "terminator"),
        ({"search": SearchParams(method="exhaustive")}, "method"),
        ({"prompting": PromptParams(boundary="harness")}, "boundary"),
    ],
)
def test_what_cannot_be_searched_is_refused(engine, given, named):
    """What needs a list of texts is refused by name where there is none."""
    with pytest.raises(OptionError) as error:
        engine.select("a", grammar=MANY, **given)
    assert named in str(error.value)


@pytest.mark.parametrize("prompt", ["a", "a ", "a c"])
def test_searches_beams_and_draws_end_alike(engine, prompt):
    """Unless a token follows that the grammar allows: one text has one log-probability however it is found."""
    best = engine.select(prompt, grammar=MANY, search=SearchParams(max_tokens=4, k=3, stop="all"))
    assert best.terminator == best.signature.terminator == "unless-continued"
    assert best.certificate.proved
    logp = {choice.text: choice.logp for choice in best.choices}
    beam = engine.beam_search(prompt, MANY, beam=BeamSearchParams(width=64, n=3, max_tokens=4))
    drawn = engine.sample(prompt, MANY, n=8, seed=2, search=SearchParams(max_tokens=4))
    assert beam.terminator == "unless-continued"
    assert beam[0].text == best.text
    for one in [*beam, *drawn]:
        assert one.logp == pytest.approx(logp[one.text], abs=1e-4)
        assert one.ended_by == "grammar"
    assert drawn.mass_low <= sum(map(exp, logp.values())) + 1e-6


def test_a_search_takes_the_text_that_follows(engine):
    """Texts are compared with the beginning of what follows them, which no result has."""
    found: list[str] = []
    search = SearchParams(max_tokens=6, on_found=lambda text, _: found.append(text))
    one = engine.select("a", grammar=MANY, following=" a", search=search)
    assert (one.terminator, one.signature.following_bytes) == ("text", 2)
    assert one.grammar.digest == MANY.digest
    assert one.text in found
    plain = engine.select("a", grammar=MANY.followed_by(" a"), terminator="none", search=SearchParams(max_tokens=6))
    assert (plain.text, plain.logp) == (one.text + " a", one.logp)


def test_neither_or_no_grammar_is_refused(engine):
    """Choices or a grammar, and a grammar that is one."""
    with pytest.raises(OptionError, match="choices"):
        engine.select("a")
    with pytest.raises(OptionError, match="Grammar"):
        engine.select("a", grammar="root")


def test_nothing_found_says_why_and_what_helps(engine):
    """Each way to end without a text has its reason and its remedy, and none blames an option that was not given."""
    long = Grammar.from_regex(" catcatcat+", name="long")
    rats = Grammar.from_regex("(xyz)+", name="rats")
    for ask, told in (
        (
            lambda: engine.select("a", grammar=long, search=SearchParams(max_tokens=2)),
            "none has at most 2 tokens; raise `max_tokens`",
        ),
        (lambda: engine.select("a", grammar=rats), "no path of tokens leads to one"),
        (
            lambda: engine.select("a", grammar=long, search=SearchParams(budget_nodes=1), prompting=SPLIT),
            "the budget ended after 1 rows; raise `budget_nodes`, search with a beam, or use a grammar",
        ),
        (
            lambda: engine.sample("a", long, search=SearchParams(max_tokens=2), seed=1),
            "none of at most 2 tokens is possible",
        ),
        (
            lambda: engine.sample("a", long, n=3, search=SearchParams(budget_nodes=2), seed=1),
            r"the budget ended after 2 rows and \d+ walks, when 0 of 3 texts were drawn",
        ),
    ):
        with pytest.raises(NothingFoundError, match=told) as error:
            ask()
        assert str(error.value).startswith(f"no text of {error.value.grammar} was found: {error.value.reason}; ")
        assert error.value.grammar in {"long", "rats"}
        assert error.value.code == "nothing_found"


NUMBER = Grammar.from_regex(r'\{"a": -?(0|[1-9][0-9]*)\}')


def test_a_budget_that_ended_gives_the_best_so_far(embedded):
    """Every text that the search of an object with a number came to was in tokens that do not count: the most probable one is
    scored in its own, not proved, and as the list of it alone scores it."""
    with load(embedded, n_threads=1) as llm:
        found = llm.select("Number: ", grammar=NUMBER)
        assert NUMBER.accepts(found.text)
        assert found.grammar.n_refused > 0
        assert not found.certificate.proved
        assert found.certificate.nodes_evaluated <= 2_000 + found.grammar.max_tokens
        beam = llm.beam_search("Number: ", NUMBER, beam=BeamSearchParams(exact=True, budget_nodes=800))
        assert (beam.text, beam.stopped, beam.certificate.proved) == (found.text, "budget", False)
        alone = llm.select("Number: ", [found.text], terminator=found.terminator)
        assert found.logp == pytest.approx(alone.logp, abs=2 * llm.tolerance * len(found.choices[0].tokens))
