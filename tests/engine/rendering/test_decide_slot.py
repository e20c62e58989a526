"""A slot filled at a place on a page is what the engine's own methods say there."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from math import exp, nextafter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie import load
from selectrie.core.types import Cost, Limits, ModelKind
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.engine.rendering import slots as slot_module
from selectrie.engine.rendering.slot_ends import Ending, default_stop, ending_of
from selectrie.engine.rendering.slots import BeamSlot, GenSlot, SelectSlot, SlotContext, decide_slot
from selectrie.engine.requests.constrained_prompt import shorten_following
from selectrie.engine.requests.generate import GenerationParams
from selectrie.engine.requests.session import Session
from selectrie.engine.scheduler.task_group import task_group
from selectrie.errors import ChoiceError, NonFiniteLogitsError, NothingFoundError, OptionError, PromptTooLongError
from selectrie.grammar import Grammar
from selectrie.options import DEFAULT_PROMPTING, BeamSearchParams, SamplingParams, ScoringRule, SearchParams, StopParams
from selectrie.template.values.values import SlotOption
from selectrie.testing import HashModel, TableModel, make_vocabulary
from selectrie.tokenization.growing_prompt import GrowingPrompt
from selectrie.tokenization.prompts import read_prompt
from tests.support.n_examples import n_examples

EXACT = SelfCheck(batch_multiple=1, moved=0.0, tolerance=0.0)
TINY = make_vocabulary()
CLOSE = 1e-5
"""Nats: rows are float32, paths add up a few of them."""
CHOICES = ("cat", "cats", "bat", "car", "c", "at", "ca.")
FOLLOWING = ("", ".", "s.", "\n", " cat", "at", "\n\nb")
MANY = Grammar.from_regex("(cat|bat)( cat| bat)*", name="many")


@pytest.fixture(scope="module")
def model(embedded):
    """An engine on the embedded model."""
    with load(embedded, precision="fast") as engine:
        yield engine


@contextmanager
def engine_of(model, check=EXACT):
    """An engine whose check is made, as it is before a page is begun."""
    with Engine(model, check=check) as engine:
        yield engine


def place_of(text, following="", **more):
    return SlotContext(read_prompt(TINY, text, DEFAULT_PROMPTING), following, before=text, **more)


def filled(model, slot, place, on_text=None):
    """What a fresh engine fills in."""
    with engine_of(model) as engine, task_group(engine._model_thread, keep_cached=True) as group:
        return decide_slot(engine._session(group), slot, place, on_text)


def asked(model, method, *args, **options):
    """What a method of a fresh engine says."""
    with engine_of(model) as engine:
        return getattr(engine, method)(*args, **options)


def select_of(texts, **more):
    return SelectSlot("x", tuple(SlotOption(text, text) for text in texts), None, **more)


def costless(record):
    return replace(record, cost=Cost())


choices = st.lists(st.sampled_from(CHOICES), min_size=1, max_size=4, unique=True)


@settings(max_examples=n_examples(15))
@given(
    st.integers(0, 99),
    choices,
    st.sampled_from(FOLLOWING),
    st.sampled_from(["joint", "token_mean", "pmi"]),
    st.booleans(),
)
def test_a_select_is_that_of_the_engine(seed, texts, following, rule, ends_turn):
    """The very selection, to the bit: with the text that follows, else ended by the end of the turn, else by "auto"."""
    found = filled(
        HashModel(seed), select_of(texts, rule=ScoringRule(rule)), place_of("a ", following, ends_turn=ends_turn)
    )
    terminator = "eog" if ends_turn and not following else "auto"
    expected = asked(HashModel(seed), "select", "a ", texts, following=following, rule=rule, terminator=terminator)
    assert found.record == expected
    assert (found.text, found.value, found.logprobs, found.drawn) == (expected.text, expected.text, None, None)


@pytest.mark.parametrize(
    ("terminator", "following", "used"),
    [("none", ".", ""), ("eog", ".", ""), ("unless-continued", ".", ""), ("auto", ".", ""), ("text", ".", ".")],
)
def test_a_terminator_that_is_named_comes_before_the_place(terminator, following, used):
    """The text that follows is looked at by "text" alone."""
    slot = select_of(["cat", "cats"], terminator=terminator)
    found = filled(HashModel(1), slot, place_of("a", following, ends_turn=True))
    assert found.record == asked(HashModel(1), "select", "a", ["cat", "cats"], terminator=terminator, following=used)


def test_a_terminator_that_needs_what_is_not_there():
    """The errors are those of `select`, before any model call."""
    models = [HashModel(1) for _ in range(3)]
    slots = (select_of(["cat"], terminator="text"), SelectSlot("x", None, MANY, terminator="text"))
    for model, slot in zip(models, slots, strict=False):
        with pytest.raises(OptionError, match="no text is known to follow"):
            filled(model, slot, place_of("a"))
    with pytest.raises(ChoiceError):
        filled(models[2], select_of([""]), place_of("a"))
    assert [model.calls for model in models] == [0, 0, 0]


def test_the_value_is_the_option_itself():
    """The page has the text; the value keeps its type, none included."""
    options = (SlotOption("cat", 4), SlotOption("bat", None), SlotOption("car", ("pair",)))
    table = {("a",): {"cat": 0.2, "bat": 0.7}}
    found = filled(TableModel(table), SelectSlot("x", options, None, terminator="none"), place_of("a"))
    assert (found.text, found.value) == ("bat", None)


def test_priors_and_k_go_to_the_search():
    """A weight for each option in order, and as many proved as asked for."""
    slot = select_of(["cat", "bat", "car"], prior=(1.0, 2.0, 0.0), search=SearchParams(k=2))
    expected = asked(HashModel(3), "select", "a", ["cat", "bat", "car"], prior=[1, 2, 0], search=SearchParams(k=2))
    assert filled(HashModel(3), slot, place_of("a")).record == expected


def test_log_probabilities_by_text():
    """The joint of every option, as the record has it."""
    slot = select_of(["cat", "bat"], logprobs="lp", search=SearchParams(stop="all"))
    found = filled(HashModel(3), slot, place_of("a", "."))
    assert found.logprobs == {one.text: one.logp for one in found.record.choices}
    assert set(found.logprobs) == {"cat", "bat"}


# Draws


ANIMALS = {("a",): {"cat": 0.5, "bat": 0.3, "u": 0.2}}
"""Three choices of one token each."""


def drawn(seed=0, temperature=1.0, texts=("cat", "bat", "u"), table=ANIMALS):
    slot = select_of(texts, temperature=temperature, terminator="none", search=SearchParams(stop="all"))
    return filled(TableModel(table), slot, place_of("a", seed=seed))


def frequencies(monkeypatch, n, **options):
    """How often each text is drawn when the uniform number takes each of n values once."""
    counts = Counter()
    with engine_of(TableModel(ANIMALS)) as engine, task_group(engine._model_thread) as group:
        slot = select_of(["cat", "bat", "u"], terminator="none", search=SearchParams(stop="all"), **options)
        for step in range(n):
            monkeypatch.setattr(slot_module, "uniform", lambda *_, u=(step + 0.5) / n: u)
            counts[decide_slot(engine._session(group), slot, place_of("a")).text] += 1
    return counts


@pytest.mark.short("options0-*", "options4-*")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"temperature": 1.0}, {"cat": 50, "bat": 30, "u": 20}),
        ({"temperature": 0.5}, {"cat": 66, "bat": 24, "u": 10}),  # 0.25 : 0.09 : 0.04 of 0.38
        ({"temperature": 1.0, "prior": (1.0, 1.0, 0.0)}, {"cat": 62, "bat": 38}),  # 5 : 3
        ({"temperature": 1.0, "prior": (0.6, 1.0, 2.0)}, {"cat": 30, "bat": 30, "u": 40}),
        ({"temperature": 0.0}, {"cat": 100}),
    ],
)
def test_a_draw_is_by_the_score_divided_by_the_temperature(monkeypatch, options, expected):
    """Fifty uniform numbers evenly spaced: each text as often as its share, priors included."""
    counts = frequencies(monkeypatch, 50, **options)
    assert {text: 2 * n for text, n in counts.items()} == pytest.approx(expected, abs=2)


@given(
    st.lists(st.floats(-30, 0) | st.just(-np.inf), min_size=1, max_size=6).filter(lambda s: max(s) > -np.inf),
    st.floats(0.05, 20),
)
def test_every_uniform_number_draws_by_shares_side_by_side(scores, temperature):
    """The shares of [0, 1) are as long as the probabilities, and whatever has none is never drawn."""
    chances = slot_module.probabilities_of(np.array(scores), temperature)
    weights = [exp((score - max(scores)) / temperature) for score in scores]
    assert chances == pytest.approx([weight / sum(weights) for weight in weights], abs=1e-12)
    ends = np.cumsum(chances)
    for place, (start, end) in enumerate(zip([0.0, *ends[:-1]], ends, strict=True)):
        if end - start > 1e-9:
            inside = [start + (end - start) * share for share in (1e-6, 0.5, 1 - 1e-6)]
            assert {slot_module.index_at(chances, u / ends[-1]) for u in inside} == {place}
    for u in (0.0, 0.5, nextafter(1.0, 0.0)):
        assert chances[slot_module.index_at(chances, u)] > 0


@settings(max_examples=n_examples(20))
@given(st.integers(0, 2**64), st.permutations(["cat", "bat", "u"]), st.sampled_from([0.3, 1.0, 4.0]))
def test_the_order_of_the_options_draws_nothing_else(seed, texts, temperature):
    """One seed, one text; the record says by which probability, and has every score."""
    found, other = drawn(seed, temperature), drawn(seed, temperature, tuple(texts))
    assert found.text == other.text
    assert found.record.probability == pytest.approx(other.record.probability)
    logp = found.record.selection.choices.logp / temperature
    chance = exp(found.record.logp / temperature) / np.exp(logp).sum()
    assert found.record.probability == pytest.approx(chance)
    assert found.record.selection == asked(TableModel(ANIMALS), "rank", "a", ["cat", "bat", "u"], terminator="none")


@pytest.mark.parametrize("temperature", [0.0, 1e-320, 1e-3])
def test_a_draw_of_no_temperature_is_the_winner(temperature):
    """Down to the smallest number there is."""
    for seed in range(20):
        found = drawn(seed, temperature)
        assert (found.text, found.record.probability) == ("cat", pytest.approx(1.0))


def test_the_seed_of_the_slot_comes_before_that_of_the_place():
    """And the record names the one that was used."""
    slot = select_of(["cat", "bat", "u"], temperature=1.0, seed=5, terminator="none", search=SearchParams(stop="all"))
    found = [filled(TableModel(ANIMALS), slot, place_of("a", seed=seed)) for seed in (1, 2)]
    assert found[0].text == found[1].text == drawn(5).text
    assert found[0].record.seed == 5
    assert drawn(1).record.seed == 1


@pytest.mark.parametrize(
    ("tolerance", "u", "close"),
    [
        (0.01, 0.301, True),
        (0.01, 0.299, True),
        (0.01, 0.31, False),
        (0.01, 0.55, False),
        (0.1, 0.31, True),
        (None, 0.3, None),
    ],
)
def test_a_draw_near_an_edge_is_close(monkeypatch, tolerance, u, close):
    """Shares .3, .5 and .2 side by side: scores moved by .01 move the first edge by .004, and no draw beyond that."""
    monkeypatch.setattr(slot_module, "uniform", lambda *_: u)
    slot = select_of(["cat", "bat", "u"], terminator="none", search=SearchParams(stop="all"), temperature=1.0)
    check = None if tolerance is None else SelfCheck(1, tolerance / 4, tolerance)
    with engine_of(TableModel(ANIMALS), check) as engine, task_group(engine._model_thread) as group:
        record = decide_slot(Session(group, engine._model, check), slot, place_of("a")).record
    assert record.close is close
    assert record.to_dict()["drawn"]["close"] is close


def test_a_rule_with_contexts_can_be_drawn_by():
    """Whether the draw is close is said without the content-free prompts."""
    rule = ScoringRule("calibrated", content_free=("b",))
    slot = select_of(["cat", "bat"], rule=rule, terminator="none", search=SearchParams(stop="all"), temperature=1.0)
    with engine_of(HashModel(1)) as engine, task_group(engine._model_thread) as group:
        record = decide_slot(engine._session(group), slot, place_of("a")).record
    assert (record.selection.rule, record.close) == ("calibrated", False)


def test_where_nothing_has_any_probability_the_winner_is_drawn():
    """As `select` decides a tie of impossible choices."""
    found = drawn(table={("a",): {"cat": 0.0, "bat": 0.0, "u": 0.0}})
    assert (found.text, found.record.probability) == ("cat", 1.0)


def test_the_record_of_a_draw_is_ready_for_json():
    """The whole selection, and what was drawn of it."""
    record = drawn(3, 0.5).record
    told = record.to_dict()
    assert (told["kind"], told["text"], told["drawn"]["text"]) == ("sampled_choice", "cat", record.text)
    assert told["drawn"]["probability"] == record.probability
    assert repr(record).startswith("SampledChoice('u' p 11 % at temperature 0.5)\nSelection('cat', p 50 %, ")


# Grammars


WORDS = ("cat", "bat", "cats", "ca", "a", "at", "at.", "cat.", "b\n", "s")


@settings(max_examples=n_examples(30))
@given(
    st.integers(0, 99),
    st.lists(st.sampled_from(WORDS), min_size=2, max_size=5, unique=True),
    st.sampled_from([".", "s.", "\n", " cat", "at", "\n\nb"]),
    st.sampled_from([1, 3]),
)
def test_a_grammar_and_what_follows_are_their_texts_and_what_follows(seed, texts, following, k):
    """Searched, not listed: the ranking and the log-probabilities are those of every text with the following behind it."""
    grammar = Grammar.from_choices(texts)
    slot = SelectSlot("x", None, grammar, search=SearchParams(k=k), logprobs="lp")
    found = filled(HashModel(seed, sharpness=2.0), slot, place_of("a ", following))
    ending = shorten_following(TINY, following)
    whole = asked(HashModel(seed, sharpness=2.0), "select", "a ", [text + ending for text in texts], terminator="none")
    expected = dict(zip(texts, whole.choices.logp.tolist(), strict=True))
    best = sorted(expected.values(), reverse=True)
    assert [expected[one.text] for one in found.record.top(k)] == pytest.approx(best[:k], abs=CLOSE)
    assert found.logprobs == {text: pytest.approx(expected[text], abs=CLOSE) for text in found.logprobs}
    assert found.text in texts
    assert found.record.certificate.proved
    assert (found.record.terminator, found.record.grammar.digest) == ("text", grammar.digest)


@settings(max_examples=n_examples(20))
@given(st.integers(0, 99), st.sampled_from([".", "\n", " cat"]))
def test_a_searched_grammar_decides_as_its_list_does(seed, following):
    """Where the text that follows begins with a token of its own, paths of both end behind that token."""
    texts = ["b", "bb", "s", "u:"]
    listed = filled(HashModel(seed), select_of(texts, logprobs="lp"), place_of("a:", following))
    searched = filled(HashModel(seed), SelectSlot("x", None, Grammar.from_choices(texts)), place_of("a:", following))
    assert searched.text == listed.text
    assert searched.record.logp == pytest.approx(listed.record.logp, abs=CLOSE)


@pytest.mark.parametrize("following", ["\nArmor:", ", and", "\n\nNext", '" he said', " (big)"])
def test_on_a_real_tokenizer_a_grammar_decides_as_its_list_does(model, following):
    """The same ranking; log-probabilities are apart by what the end of the page is healed by, the same for every text."""
    texts = [" sword", " swords", " long sword", "x", " ab.", "bow"]
    page = GrowingPrompt(model.vocabulary)
    page.add("Weapon:")
    place = SlotContext(page.prompt, following, before="Weapon:")
    grammar = SelectSlot("x", None, Grammar.from_choices(texts), search=SearchParams(k=len(texts)), logprobs="lp")
    with task_group(model._model_thread, keep_cached=True) as group:
        session = model._session(group)
        listed = decide_slot(session, select_of(texts, search=SearchParams(stop="all"), logprobs="lp"), place)
        searched = decide_slot(session, grammar, place)
    assert [one.text for one in searched.record.ranked] == [one.text for one in listed.record.ranked]
    apart = [searched.logprobs[text] - listed.logprobs[text] for text in texts]
    assert apart == pytest.approx([apart[0]] * len(texts), abs=0.01)  # rows in fast precision, weights in f16


def test_texts_that_may_end_in_what_follows():
    """Behind "cat" comes "." anyway: "cat" and "cat." are told apart by one more."""
    grammar = Grammar.from_regex("cat[.]*", name="dots")
    one = {(): {"a": 1.0}, ("a",): {"cat": 1.0}, ("a", "cat"): {".": 1.0}, ("a", "cat", "."): {".": 0.1, "u": 0.9}}
    found = filled(TableModel(one), SelectSlot("x", None, grammar), place_of("a", ".u"))
    assert (found.text, found.record.logp) == ("cat", pytest.approx(0.0, abs=CLOSE))


def test_without_following_a_grammar_ends_as_the_engine_says():
    """The end of a turn is the end of generation; else "auto"; named, as named."""
    for ends_turn, terminator, used in [
        (True, None, "eog"),
        (False, None, "auto"),
        (True, "none", "none"),
        (False, "eog", "eog"),
        (True, "auto", "auto"),
    ]:
        slot = SelectSlot("x", None, MANY, terminator=terminator, search=SearchParams(k=2))
        found = filled(HashModel(4, sharpness=2.0), slot, place_of("a", ends_turn=ends_turn))
        expected = asked(
            HashModel(4, sharpness=2.0), "select", "a", grammar=MANY, terminator=used, search=SearchParams(k=2)
        )
        assert costless(found.record) == costless(expected)
    alone = Grammar.from_regex("(cat|bat)*u")
    assert ending_of(TINY, alone, None, "", ends_turn=False).terminator == "auto"


def test_a_grammar_that_llguidance_reads_is_followed_by_nothing():
    """Its rules are not known, so its texts end as without the text that follows; named, "text" is refused."""
    grammar = Grammar.from_llguidance('start: "cat" | "bat"')
    ending = ending_of(TINY, grammar, None, ".", ends_turn=False)
    assert (ending.grammar, ending.text, ending.terminator) == (grammar, "", "auto")
    with pytest.raises(OptionError, match="terminator='text': expected another: followed_by"):
        ending_of(TINY, grammar, "text", ".", ends_turn=False)
    found = filled(HashModel(4, sharpness=3.0), SelectSlot("x", None, grammar), place_of("a", "."))
    expected = asked(HashModel(4, sharpness=3.0), "select", "a", grammar=grammar)
    assert costless(found.record) == costless(expected)


def test_texts_of_a_grammar_may_be_as_long_as_fits():
    """A select has no argument that says it; a page that fills the context is refused."""
    limits = Limits(nodes=8, sequences=64, rows_per_call=64, kind=ModelKind.ATTENTION, max_idle_rows=64)
    for prompt, most in [("aa", 5), ("a" * 5, 2)]:
        found = filled(HashModel(1, limits=limits), SelectSlot("x", None, MANY), place_of(prompt))
        assert found.record.grammar.max_tokens == most
    with pytest.raises(PromptTooLongError):
        filled(HashModel(1, limits=limits), SelectSlot("x", None, MANY), place_of("a" * 8))


def test_a_draw_from_a_grammar_is_the_engines_sample():
    """Of the grammar with what follows behind its texts, which the record then does not show."""
    slot = SelectSlot("x", None, MANY, temperature=1, logprobs="lp")
    for seed in range(5):
        found = filled(HashModel(2, sharpness=2.0), slot, place_of("a", ".", seed=seed))
        expected = asked(
            HashModel(2, sharpness=2.0), "sample", "a", MANY.followed_by("."), seed=seed, terminator="none"
        )
        assert found.text == found.value == expected[0].text.removesuffix(".")
        assert found.record[0].logp == expected[0].logp
        assert found.logprobs == {found.text: expected[0].logp}
        assert (found.record.grammar, found.record.grammar_digest) == ("many", MANY.digest)


def test_a_beam_is_that_of_the_engine():
    """Without a text that follows."""
    beam = BeamSearchParams(width=3, n=2, max_tokens=6)
    found = filled(HashModel(2, sharpness=2.0), BeamSlot("x", MANY, beam), place_of("a"))
    assert found.record.beam.max_tokens == 6
    expected = asked(HashModel(2, sharpness=2.0), "beam_search", "a", MANY, beam=found.record.beam)
    assert costless(found.record) == costless(expected)
    assert found.text == found.value == expected.text


def test_a_beam_over_options_gives_their_values():
    """The best text's option; what follows is part of the search and of no text."""
    options = (SlotOption("cat", 1), SlotOption("bat", 2), SlotOption("car", 3))
    grammar = Grammar.from_choices(["cat", "bat", "car"])
    slot = BeamSlot("x", grammar, BeamSearchParams(width=8, n=3), options)
    found = filled(HashModel(7), slot, place_of("a", "."))
    texts = ["cat", "bat", "car"]
    whole = asked(HashModel(7), "select", "a", [text + "." for text in texts], terminator="none")
    assert found.record.texts == tuple(one.text.removesuffix(".") for one in whole.ranked)
    assert found.value == texts.index(found.text) + 1
    assert [one.data for one in found.record.hypotheses] == [one.encode() for one in found.record.texts]


def test_a_beam_that_finishes_no_option_is_refused():
    """The beginning of an option is none."""
    options = (SlotOption("cabu", 1), SlotOption("cabs", 2))
    slot = BeamSlot("x", Grammar.from_choices(["cabu", "cabs"]), BeamSearchParams(max_tokens=1), options)
    with pytest.raises(NothingFoundError, match="none was finished within 1 tokens; give more `max_tokens`"):
        filled(HashModel(7), slot, place_of("a"))


# Gens


def gen_of(**more):
    sampling = more.pop("sampling", SamplingParams(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0))
    return GenSlot("x", sampling, **{"max_tokens": 8, **more})


def generated(model, prompt, *, max_tokens, stop, **options):
    stopping, healed = StopParams(max_tokens=max_tokens, stop=stop), GenerationParams(heal=True)
    return asked(model, "generate", prompt, sampling=gen_of().sampling, stopping=stopping, options=healed, **options)


@settings(max_examples=n_examples(15))
@given(
    st.integers(0, 99),
    st.sampled_from(["a", "a ", "cat c", "u\n"]),
    st.sampled_from(["", ".", "\nb", "ab\n"]),
    st.integers(1, 3),
)
def test_a_gen_is_that_of_the_engine(seed, prompt, following, n):
    """Healed, stopped by what follows, seeded by the place; the page goes on with the first of several."""
    pieces = []
    found = filled(HashModel(seed), gen_of(n=n), place_of(prompt, following, seed=seed), pieces.append)
    stop = default_stop(following, prompt)
    expected = generated(HashModel(seed), prompt, max_tokens=8, stop=(stop,) if stop else (), n=n, seed=seed)
    texts = [one.text for one in expected.completions]
    assert [one.text for one in found.record.completions] == texts
    assert [one.logp for one in found.record.completions] == [one.logp for one in expected.completions]
    assert (found.text, found.value) == (texts[0], texts if n > 1 else texts[0])
    assert "".join(pieces) == found.text
    assert found.record.stopping == StopParams(max_tokens=8, stop=(stop,) if stop else ())


@settings(max_examples=n_examples(15))
@given(st.integers(0, 99), st.sampled_from(["a", "a ", "cat c"]), st.sampled_from(["", ".", "\nb"]))
def test_the_tokens_drawn_spell_the_page_on(seed, prompt, following):
    """After their context, which the page begins with: the rest of the page, the text, and then maybe a stop text."""
    found = filled(HashModel(seed), gen_of(), place_of(prompt, following, seed=seed))
    context, tokens = found.drawn
    spelled = TINY.decode(context) + TINY.decode(tokens)
    assert (context.dtype, tokens.dtype) == (np.int32, np.int32)
    assert prompt.encode().startswith(TINY.decode(context))
    [one] = found.record.completions
    assert spelled.startswith(prompt.encode() + one.data)
    rest = spelled[len(prompt.encode() + one.data) :]
    assert not rest or rest.startswith(default_stop(following, prompt).encode())
    assert one.data.decode("utf-8", "replace").startswith(found.text)


def test_a_stop_text_of_the_slot_comes_before_what_follows():
    """None at all, too."""
    for stop in ((), ("b",)):
        found = filled(HashModel(5), gen_of(stop=stop, max_tokens=30), place_of("a", "."))
        expected = generated(HashModel(5), "a", max_tokens=30, stop=stop, seed=0)
        assert found.text == expected.completions[0].text


def test_one_token_is_one_token_of_text():
    """The token that spells the end of the page again is not counted."""
    greedy = SamplingParams.GREEDY
    table = {(): {"a": 1.0}, ("a",): {"cat": 1.0}, ("a", "cat"): {"s": 1.0}}
    found = filled(TableModel(table), gen_of(max_tokens=1, sampling=greedy), place_of("a"))
    assert found.text == "cat"


@settings(max_examples=n_examples(15))
@given(st.integers(0, 99), st.sampled_from([".", " cat", "at"]), st.integers(1, 10))
def test_a_gen_of_a_grammar_may_end_by_what_follows(seed, following, most):
    """Ended, it is a text of the grammar; broken off, the beginning of one. It is told piece by piece without what follows."""
    grammar = Grammar.from_regex("[cbat ]*")
    pieces = []
    slot = gen_of(grammar=grammar, max_tokens=most)
    found = filled(HashModel(seed), slot, place_of("a:", following, seed=seed), pieces.append)
    [one] = found.record.completions
    assert grammar.accepts(found.text).verdict != "no"
    assert "".join(pieces) == found.text == one.text == one.data.decode()
    assert one.finish in {"stop", "length"}
    if one.finish == "stop":
        assert grammar.accepts(found.text)
        context, tokens = found.drawn
        whole = TINY.decode(context) + TINY.decode(tokens)
        assert whole.decode() == "a:" + found.text + shorten_following(TINY, following)
        assert one.stop == shorten_following(TINY, following)
    assert found.record.stopping == StopParams(max_tokens=most)


def test_a_gen_ends_where_what_follows_has_come():
    """Not at the last place where it may: "cat" before ", " and not "cat, bat" though the grammar has that too."""
    grammar = Grammar.from_regex("[a-z.]+")
    table = {(): {"a": 1.0}, ("a",): {"cat": 1.0}, ("a", "cat"): {".": 1.0}, ("a", "cat", "."): {"bat": 1.0}}
    found = filled(TableModel(table), gen_of(grammar=grammar, sampling=SamplingParams.GREEDY), place_of("a", ".u"))
    assert found.text == "cat"
    assert len(found.drawn[1]) == 3


def test_what_was_held_back_is_told_where_it_is_text_after_all():
    """Broken off behind what could have been the following text, and is not: "b" is no text of the grammar."""
    pieces = []
    slot = gen_of(grammar=Grammar.from_regex("b(at)+"), max_tokens=1, sampling=SamplingParams.GREEDY)
    found = filled(TableModel({(): {"a": 1.0}, ("a",): {"bat": 1.0}}), slot, place_of("a", "at."), pieces.append)
    assert (pieces, found.text) == (["b", "at"], "bat")


def test_bytes_of_a_text_that_was_broken_off_within_what_follows_are_its_own():
    """Half an é of the following text is no text, and does not stand for a byte that is."""
    table = {(): {"a": 1.0}, ("a",): {"cat": 1.0}, ("a", "cat"): {" ": 1.0}, ("a", "cat", " "): {"\\xc3": 1.0}}
    slot = gen_of(grammar=Grammar.from_regex("[a-z]+"), max_tokens=3, sampling=SamplingParams.GREEDY)
    [one] = filled(TableModel(table), slot, place_of("a", " é")).record.completions
    assert (one.text, one.data, one.finish) == ("cat", b"cat", "length")


def test_a_gen_of_a_grammar_that_llguidance_reads_is_not_cut():
    """The text that follows might be part of its texts, so it ends nothing."""
    grammar = Grammar.from_llguidance('start: "cat.bat"')
    found = filled(HashModel(1), gen_of(grammar=grammar), place_of("a", "."))
    assert found.text == "cat.bat"


def test_who_listens_may_end_it():
    """What `on_text` raises comes out of `decide_slot`, and the engine goes on working."""

    def refuse(_text):
        raise KeyError("enough")

    with engine_of(HashModel(1)) as engine:
        with pytest.raises(KeyError), task_group(engine._model_thread) as group:
            decide_slot(engine._session(group), gen_of(max_tokens=200), place_of("a"), refuse)
        assert engine.select("a", ["cat", "bat"]).text in {"cat", "bat"}


def test_a_model_that_fails_ends_a_gen_that_is_told():
    """Nothing waits for text that will not come."""
    model = HashModel(1, planted={(0, 3): [np.nan] * 26, (0,): [np.nan] * 26})
    with pytest.raises(NonFiniteLogitsError):
        filled(model, gen_of(), place_of("a"), lambda _: None)


# Endings


@pytest.mark.parametrize(
    ("before", "following", "stop"),
    [
        ("", "", ""),
        ('name: "', '",\nage', '"'),
        ("name: '", "', age", "'"),
        ("run `", "` now", "`"),
        ("\N{LEFT DOUBLE QUOTATION MARK}", "\N{RIGHT DOUBLE QUOTATION MARK}.", "\N{RIGHT DOUBLE QUOTATION MARK}"),
        ("name: ", '" said', '" said'),
        ("", '"', '"'),
        ("Name:", "\nAge:", "\n"),
        ("Name:", "\n\nAge:", "\n"),
        ("Name:", "\r\nAge:", "\r\n"),
        ("Name:", "  \nAge:", "\n"),
        ("Once", " and then.\nThe end", " and then."),
        ("Once", ", and", ", and"),
        ("Once", " ", " "),
    ],
)
def test_the_stop_text_of_a_gen_that_names_none(before, following, stop):
    """A quote that is open, a line end, or the text up to it."""
    assert default_stop(following, before) == stop


@pytest.mark.parametrize(
    ("following", "ending"),
    [
        ("", ""),
        (".", "."),
        (" cat\n", " cat"),
        ("\n\nb", "\n"),
        ("  cat", "  cat"),
        ("  ", "  "),
        (" \nb", " \n"),
        ("é.", "é"),
        ("cats", "cat"),
    ],
)
def test_what_of_the_following_text_ends_a_text(following, ending):
    """The fewest tokens that hold more than spaces."""
    assert shorten_following(TINY, following) == ending


def test_the_tokens_are_those_of_what_follows_as_it_goes_on():
    """A line end that is one token with the next only at the end of a text is one of its own before a word."""

    def tokenize(text):
        words = [word for word in re.split(r"(\n\n$|\n|b)", text.decode()) if word]
        return [["", "", "\n", "\n\n", "b"].index(word) for word in words]

    vocabulary = replace(make_vocabulary([b"\n", b"\n\n", b"b"]), tokenize=tokenize)
    assert shorten_following(vocabulary, "\n\nb") == "\n"
    assert shorten_following(vocabulary, "\n\n") == "\n\n"


def test_not_more_than_the_first_line_ends_and_some_characters():
    """Whatever the tokens are."""
    whole = make_vocabulary([b"a", b"b", b"\n", b" ", b"b" * 32, b"\n\nb"])
    assert shorten_following(whole, "b" * 40) == "b" * 32
    assert shorten_following(whole, " \n\nb") == " \n\n"
    assert shorten_following(whole, " " * 40) == " " * 32


@pytest.mark.parametrize(
    ("following", "text", "complete", "left"),
    [
        (".a", "cat.a", True, "cat"),
        (".a", "cat.a.a", True, "cat.a"),
        (".a", "cat.", False, "cat"),
        (".a", "cat", False, "cat"),
        (".a", "cat.a.", False, "cat.a"),
        (".a", "cat..", False, "cat."),
        ("..u", "cat..", False, "cat"),
        ("at", "cat", False, "cat"),
        ("", "cat.", False, "cat."),
    ],
)
def test_a_text_without_what_follows(following, text, complete, left):
    """Whole, the following text is taken off once; broken off, as much of it as stands behind a text of the grammar."""
    own = Grammar.from_regex("cat.*")
    ending = Ending(own.followed_by(following), own, following, "none")
    assert ending.strip(text, complete=complete) == left


def test_this_comparison_can_fail():
    """Two places that differ in what follows fill a slot differently."""
    place, other = place_of("a ", "."), place_of("a ", "s.")
    slot = select_of(["cat", "bat"])
    assert filled(HashModel(1), slot, place).record != filled(HashModel(1), slot, other).record
    assert slot_module.SlotContext is SlotContext
