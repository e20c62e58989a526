"""`score(..., tokenizations="all")`: the probability of a text over all its spellings, on fakes and on real weights."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.backends.llama_cpp.model import open_model
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.core.numerics import Interval
from selectrie.core.types import Limits, ModelKind, SelfCheck
from selectrie.decoding.spelling import Bounds, SpellingOutcome
from selectrie.engine.connect import PathRuntime
from selectrie.engine.engine import Engine
from selectrie.engine.requests.spellings import conditional_bounds
from selectrie.engine.sources import embedded_file
from selectrie.errors import IncompatibleOptionsError, OptionError, TextError
from selectrie.options import SPELLING_ROWS, PromptParams
from selectrie.testing import HashModel, PathsOf, make_vocabulary, naive_spelled, score_paths_alone
from tests.support.gated_paths import limits
from tests.support.n_examples import n_examples
from tests.support.real_data import real_file

CHECK = SelfCheck(8, 0.0, 0.0)
PROMPTS = ("a", "a c", "a ", "cat s", "ba", "")
TEXTS = ("at", "cat", " cat", "s", "b a", "é")


def engine_of(seed=1, **options):
    model = HashModel(seed, **options)
    return Engine(model, check=CHECK), model


@settings(max_examples=n_examples(48))
@given(st.integers(0, 999), st.sampled_from(PROMPTS), st.sampled_from(TEXTS), st.data())
def test_bounds_contain_the_enumerated_conditional_probability(seed, prompt, text, data):
    """Healed or split, with BOS (the prompt that is empty is BOS alone), for both events; the canonical share too."""
    boundary, event = data.draw(st.sampled_from(["heal", "split"])), data.draw(st.sampled_from(["ends", "begins"]))
    engine, model = engine_of(seed, sharpness=data.draw(st.sampled_from([0.5, 2.0])))
    how = PromptParams(boundary=boundary)
    with engine:
        score = engine.score(prompt, text, tokenizations="all", event=event, prompting=how)
        plain = engine.score(prompt, text, prompting=how)
        plan = engine.tokens(prompt, [text], terminator="none", prompting=how)
    assert replace(score, spellings=None, cost=plain.cost) == plain
    context = [token for token, _ in plan.context]
    joint = naive_spelled(model, context, plan.healed + text.encode(), ends=event == "ends")
    given_bytes = naive_spelled(model, context, plan.healed, ends=False)
    found = score.spellings
    assert found.logp_low <= math.log(joint / given_bytes) <= found.logp_high
    assert found.log_heal_low <= math.log(given_bytes) <= found.log_heal_high
    canonical = sum(token.logp for token in score.tokens)
    if event == "begins":
        assert found.canonical_share[0] <= math.exp(canonical) / joint * (1 + 1e-5)
        assert math.exp(canonical) / joint <= found.canonical_share[1] * (1 + 1e-5)
    assert (found.proved, found.reason) == (True, "")
    assert found.logp_high - found.logp_low <= math.log(1.01)


@given(st.integers(0, 99), st.sampled_from(["ends", "begins"]), st.sampled_from(["heal", "split"]))
@settings(max_examples=n_examples(12))
def test_a_model_that_is_asked_for_its_rows_gives_bounds_too(seed, event, boundary):
    """What a server does not tell of a row widens them; they contain the enumerated value, and the winner is the same."""
    how = {"tokenizations": "all", "prompting": PromptParams(boundary=boundary)}
    terminator = "eog" if event == "ends" else "none"
    far = PathsOf(HashModel(seed), limits=limits(named_ids=8, top_ids=2), hides_rest=True)
    with Engine(HashModel(seed), check=CHECK) as local, Engine(PathRuntime(far)) as remote:
        one, other = (engine.score("a c", "at", event=event, **how).spellings for engine in (local, remote))
        plan = local.tokens("a c", ["at"], terminator="none", prompting=how["prompting"])
        winner = local.select("a c", ["at", " bat", "s"], terminator=terminator, **how)
        found = remote.select("a c", ["at", " bat", "s"], terminator=terminator, **how)
    context = [token for token, _ in plan.context]
    joint = naive_spelled(HashModel(seed), context, plan.healed + b"at", ends=event == "ends")
    truth = math.log(joint / naive_spelled(HashModel(seed), context, plan.healed, ends=False))
    assert other.logp_low <= truth <= other.logp_high
    assert other.logp_high >= one.logp_low
    assert one.logp_high >= other.logp_low
    assert not found.certificate.proved or found.index == winner.index


def test_quotients_of_bounds_divide_by_the_other_bound():
    """[-3, -2] given [-1.5, -1]: from -3 + 1 to -2 + 1.5; never above 0."""
    bounds = Interval(np.array([-3.0, -1.5, -1.2]), np.array([-2.0, -1.0, -1.1]))
    told = np.ones(3, dtype=np.bool_)
    outcome = SpellingOutcome(Bounds(bounds, bounds), bounds.low, told, bounds, True, 1, 0)
    for event, condition, expected in ((0, 1, (-2.0, -0.5)), (2, 1, (-0.2, 0.0)), (0, None, (-3.0, -2.0))):
        found = conditional_bounds(outcome, event, condition)
        assert (found.low, found.high) == pytest.approx(expected)


def test_the_event_is_the_end_where_the_model_has_one():
    """Without an end-of-generation token it is the beginning, and an end cannot be asked for."""
    vocabulary = replace(make_vocabulary(), eog=np.array([], dtype=np.int32))
    engine, model = engine_of(vocabulary=vocabulary)
    with engine:
        assert engine.score("a", " cat", tokenizations="all").spellings.event == "begins"
        calls = model.calls
        with pytest.raises(OptionError, match="no end-of-generation token"):
            engine.score("a", " cat", tokenizations="all", event="ends")
        assert model.calls == calls
    engine, _ = engine_of()
    with engine:
        assert engine.score("a", " cat", tokenizations="all").spellings.event == "ends"


BAD = {
    "following": (IncompatibleOptionsError, {"following": "."}),
    "boundary": (IncompatibleOptionsError, {"prompting": PromptParams(boundary="harness")}),
    "name": (OptionError, {"tokenizations": "every"}),
    "list": (OptionError, {"tokenizations": ["all"]}),
    "event": (OptionError, {"event": "eog"}),
    "budget": (OptionError, {"budget_nodes": 0}),
    "flag as budget": (OptionError, {"budget_nodes": True}),
    "event of canonical": (IncompatibleOptionsError, {"tokenizations": "canonical", "event": "ends"}),
    "budget of canonical": (IncompatibleOptionsError, {"tokenizations": "canonical", "budget_nodes": 9}),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_summed_is_refused_before_any_call(name):
    """The error names the option; the model, its self-check included, was not asked."""
    kind, options = BAD[name]
    model = HashModel(1)
    with Engine(model) as engine, pytest.raises(kind) as caught:
        engine.score("a", " cat", **{"tokenizations": "all", **options})
    assert model.calls == 0
    assert type(caught.value) is kind


def test_a_text_that_its_own_tokens_do_not_spell_is_refused():
    """A tokenizer that lowers case, and one whose token for the text ends a generation."""
    plain = make_vocabulary()
    lowering = replace(plain, tokenize=lambda text: plain.tokenize(text.lower()))
    ending = replace(plain, eog=np.array([1, plain.texts.index("cat")], dtype=np.int32))
    for vocabulary, text in ((lowering, "CAT"), (ending, "cat")):
        model = HashModel(1, vocabulary=vocabulary)
        with Engine(model) as engine, pytest.raises(TextError, match="tokenizations='canonical'"):
            engine.score("a", text, tokenizations="all", prompting=PromptParams(boundary="split"))
        assert model.calls == 0


def test_a_small_budget_leaves_bounds_apart():
    """`proved` is then False, with the reason; they contain those of a large budget."""
    engine, _ = engine_of(sharpness=0.5)
    with engine:
        one, same = (engine.score("a c", "at cats", tokenizations="all", budget_nodes=5).spellings for _ in range(2))
        full = engine.score("a c", "at cats", tokenizations="all", budget_nodes=10**6).spellings
    assert one == same
    assert not one.proved
    assert one.reason == "the budget ended after 5 nodes"
    assert one.n_rows == 5
    assert one.logp_low <= full.logp_low <= full.logp_high <= one.logp_high
    assert full.proved


def test_a_search_without_a_budget_reads_a_number_of_rows_for_each_canonical_one():
    """64 for each; a text of many equally likely spellings stops there."""
    vocabulary = make_vocabulary([b"a", b"aa", b"aaa", b"aaaa"])
    engine, _ = engine_of(vocabulary=vocabulary, sharpness=0.0)
    with engine:
        score = engine.score([0], "a" * 20, tokenizations="all")
    n_canonical = len(score.tokens) + 1
    assert score.spellings.n_rows == SPELLING_ROWS * n_canonical


def test_a_long_text_has_a_limit_without_a_budget(monkeypatch):
    """The rows for each canonical row add up to the maximum, here 99; a budget may exceed it."""
    monkeypatch.setattr("selectrie.engine.requests.spellings.MAX_SPELLING_ROWS", 99)
    engine, _ = engine_of(vocabulary=make_vocabulary([b"a", b"aa", b"aaa", b"aaaa"]), sharpness=0.0)
    with engine:
        rows = [
            engine.score([0], "a" * 20, tokenizations="all", budget_nodes=one).spellings.n_rows for one in (None, 120)
        ]
    assert rows == [99, 120]


def test_a_context_without_room_for_longer_spellings_leaves_them_open():
    """The canonical tokens fit, single letters do not: the bounds hold, and the reason says what is missing."""
    narrow = Limits(nodes=4, sequences=8, rows_per_call=8, kind=ModelKind.ATTENTION, max_idle_rows=None)
    engine, model = engine_of(limits=narrow)
    with engine:
        found = engine.score("a", " cat bat", tokenizations="all").spellings
    truth = math.log(naive_spelled(model, [0, 3], b" cat bat", ends=True))
    assert found.logp_low <= truth <= found.logp_high
    assert not found.proved
    assert found.reason == "the other spellings take more tokens than the context has room for"


def test_healed_bytes_of_no_probability_leave_everything_open():
    """Where the model excludes the prompt's own last bytes, nothing is known about what follows them."""
    n = len(make_vocabulary().pieces)
    only_bos = np.full(n, -np.inf, dtype=np.float32)
    only_bos[0] = 0.0
    engine, _ = engine_of()
    with engine:
        context = [token for token, _ in engine.tokens("a c", ["at"]).context]
    engine, _ = engine_of(planted={tuple(context): only_bos})
    with engine:
        score = engine.score("a c", "at", tokenizations="all")
    assert score.healed == b" c"
    assert (score.spellings.logp_low, score.spellings.log_heal_high) == (-np.inf, -np.inf)


def test_the_awaitable_form_gives_the_same():
    """`ascore` takes the same options."""

    async def both(engine):
        return await engine.ascore("a c", "at", tokenizations="all", event="begins")

    engine, _ = engine_of()
    with engine:
        assert (
            asyncio.run(both(engine)).spellings
            == engine.score("a c", "at", tokenizations="all", event="begins").spellings
        )


def all_spellings(vocabulary, text):
    """Every token sequence that spells a text."""
    if not text:
        return [()]
    starts = [(token, piece) for token, piece in enumerate(vocabulary.pieces) if piece and text.startswith(piece)]
    return [(token, *rest) for token, piece in starts for rest in all_spellings(vocabulary, text[len(piece) :])]


@pytest.fixture(scope="module", params=["embedded", "stories260K.gguf"])
def real(request):
    """A file with byte-level merges, and one with SentencePiece, byte tokens and an added space."""
    return embedded_file() if request.param == "embedded" else real_file(f"weights/{request.param}")


@pytest.mark.short("embedded-Once upon a ti-me", "stories260K*cat")
@pytest.mark.parametrize(
    ("prompt", "text"), [("Once upon a time there was a", " cat"), ("Once upon a ti", "me"), ("", "dog")]
)
def test_real_weights_give_the_sum_of_spellings_decoded_alone(real, prompt, text):
    """Each spelling, one by one in an empty context, with each end-of-generation token after it."""
    options = LlamaOptions(n_ctx=256, n_threads=1)
    with Engine(open_model(real, options), check=CHECK) as engine:
        score = engine.score(prompt, text, tokenizations="all", budget_nodes=10**4)
        plan = engine.tokens(prompt, [text], terminator="none")
        vocabulary = engine.vocabulary
    context = [token for token, _ in plan.context]
    spelled = vocabulary.decode(token for token, _ in plan.choices[0])
    paths = all_spellings(vocabulary, spelled)
    canonical = tuple(token for token, _ in plan.choices[0])
    assert canonical in paths
    with open_model(real, options) as model:
        ends = [(*path, eog) for path in paths for eog in vocabulary.eog.tolist()]
        alone = score_paths_alone(model, context, ends)
    joint = math.log(math.fsum(math.exp(sum(edges)) for edges in alone))
    given_low, given_high = score.spellings.log_heal_low, score.spellings.log_heal_high
    assert given_high - given_low < 0.01
    moves = 0.02 * (1 + len(spelled))  # by how much layouts move rows of the embedded model, at most
    assert score.spellings.logp_low + given_low - moves <= joint <= score.spellings.logp_high + given_high + moves
    assert score.spellings.proved
    assert 0.05 < score.spellings.canonical_share[0] <= score.spellings.canonical_share[1] <= 1.0
