"""The whole engine on real weights: scores against each choice decoded alone, and what must not move them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import log
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie import Engine, SearchParams, Selection, load
from selectrie.backends.llama_cpp.model import open_model
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.core.rows import DenseRows
from selectrie.core.types import FloatArray, SelfCheck
from selectrie.testing import HashModel, make_vocabulary
from tests.support.engine_twin import PlainEngine
from tests.support.measured import assert_same_logp, measured, score_nats
from tests.support.n_examples import n_examples

PROMPT = "Once upon a time there was a little girl who came from"
COUNTRIES = (
    " Norway", " Peru", " China", " Guinea", " Guinea-Bissau", " Niger", " Nigeria", " the Netherlands", " the Niger",
    " Bosnia and Herzegovina", " Côte d'Ivoire", " a big castle", " her house", " her", " a", " a big", " a big box",
)  # fmt: skip
BARE = tuple(country[1:] for country in COUNTRIES)
KINDS = {
    "attention": "stories260K.gguf",
    "sliding-window": "random-swa-gemma3.gguf",
    "recurrent": "tiny-rwkv-7v0-834K.gguf",
    "hybrid": "random-hybrid-qwen35.gguf",
}
"""A real file of each kind."""
EXHAUSTIVE = SearchParams(method="exhaustive")
BEST_FIRST = SearchParams(method="best_first", k=3)
FAST_NATS = 0.6
"""How far `fast` precision (f16 cache, unpadded calls) moves whole scores of tiny models."""


@dataclass(frozen=True)
class Case:
    """A request; healed: prompt bytes that its choices take back on the 512-token SentencePiece vocabulary."""

    terminator: str = "none"
    following: str = ""
    rule: str = "joint"
    prompt: str = PROMPT
    choices: tuple[str, ...] = COUNTRIES
    healed: bytes = b""

    def ask(self, engine: Engine, search: SearchParams = EXHAUSTIVE) -> Selection:
        return engine.select(
            self.prompt,
            self.choices,
            rule=self.rule,
            terminator=self.terminator,
            following=self.following,
            search=search,
        )

    def twin(self, plain: PlainEngine) -> tuple[FloatArray, FloatArray]:
        return plain.scores(plain.cut(self.prompt, self.choices, self.following), self.terminator, self.rule)


WORDS = {
    "a trailing space": Case(prompt=PROMPT + " ", choices=BARE, healed=b" "),
    "a word of one token": Case(
        "unless-continued", prompt="Once there was a lit", choices=("tle", "tles", "er"), healed=b" lit"
    ),
    "a word of several": Case(
        "unless-continued", prompt="There was a big an", choices=("imal", "d", "gry", "other"), healed=b" an"
    ),
    "the end of a word": Case("eog", prompt="He went to the str", choices=("eet", "ange", "eam"), healed=b"r"),
}
CASES = {
    "none": Case(),
    "eog": Case("eog"),
    "text": Case("text", " and"),
    "text of one byte": Case("text", "."),
    "unless-continued": Case("unless-continued"),
    "token_mean": Case(rule="token_mean"),
    "pmi": Case(rule="pmi"),
    "pmi, unless-continued": Case("unless-continued", rule="pmi"),
    **WORDS,
}


@dataclass(frozen=True)
class Pair:
    """An engine and its slow twin on the same weights."""

    engine: Engine
    plain: PlainEngine


@pytest.fixture(scope="module", params=sorted(KINDS))
def pair(request: pytest.FixtureRequest, weights: Callable[[str], Path]) -> Iterator[Pair]:
    path = weights(KINDS[request.param])
    plain = PlainEngine(path)
    with Engine(open_model(path, LlamaOptions(n_threads=1, n_ctx=512)), check=measured(path)) as engine:
        yield Pair(engine, plain)
    plain.close()


@pytest.fixture(scope="module")
def stories(weights: Callable[[str], Path]) -> Iterator[Pair]:
    path = weights(KINDS["attention"])
    plain = PlainEngine(path)
    with load(path, n_threads=1, n_ctx=512) as engine:
        yield Pair(engine, plain)
    plain.close()


def raw_joints(selection: Selection) -> FloatArray:
    """Sum of the edges as evaluated with the set: settling replaces `logp`, not these."""
    table = selection.choices
    return table.trie.accumulate(table.edge_logp)[table.trie.path_node][table.trie.path_of]


def n_tokens(selection: Selection) -> FloatArray:
    table = selection.choices
    return table.trie.depth[table.trie.path_node][table.trie.path_of].astype(np.float64)


# Parity


@pytest.mark.short("attention-*", "recurrent-none", "recurrent-unless-continued", "hybrid-pmi")
@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_each_choice_decoded_alone(pair, name):
    """Every terminator and rule, exhaustive and best-first, on four kinds of model."""
    case = CASES[name]
    joint, score = case.twin(pair.plain)
    exhaustive = case.ask(pair.engine)
    assert_same_logp(exhaustive, joint)
    nats = 2 * score_nats(exhaustive)
    assert (np.abs(exhaustive.choices.score - score) <= nats).all()
    searched = case.ask(pair.engine, BEST_FIRST)
    done = searched.choices.finished
    assert searched.certificate.proved
    assert done.sum() >= 3
    assert_same_logp(searched, joint, done)
    assert (np.abs(searched.choices.score - score)[done] <= nats[done]).all()
    best = np.sort(score)[::-1][:3]
    np.testing.assert_allclose([choice.score for choice in searched.top(3)], best, rtol=0, atol=nats.max())


def test_the_parity_test_can_fail(stories):
    """A prompt that differs in its last word, or another terminator, is far outside the tolerance."""
    joint, _ = CASES["none"].twin(stories.plain)
    for case in (replace(CASES["none"], prompt=PROMPT + " of"), CASES["unless-continued"]):
        found = case.ask(stories.engine)
        assert (np.abs(found.choices.logp - joint) / score_nats(found)).max() > 100


@pytest.mark.parametrize("name", WORDS)
def test_healed_bytes_have_the_probability_of_every_way_to_spell_them(stories, name):
    """`log_heal` is that of the spellings the trie reads; the true value lies within `heal_gap` above it."""
    case = WORDS[name]
    cut = stories.plain.cut(case.prompt, case.choices)
    selection = case.ask(stories.engine)
    assert selection.healed == cut.healed == case.healed
    everything = log(stories.plain.healed(cut.context, cut.healed, None))
    nats = len(cut.healed) * stories.engine.tolerance
    assert selection.log_heal - nats <= everything <= selection.log_heal + selection.heal_gap + nats


@pytest.mark.short("40")
@pytest.mark.parametrize("n", [40, 244])
def test_all_countries_of_the_world(n, stories, test_data):
    """Names with a terminator each: exhaustive, best-first and the twin agree, and so do coverage and winner."""
    names = [" " + line for line in test_data("labels/countries.txt").read_text().splitlines() if line][:n]
    case = Case("unless-continued", choices=tuple(names))
    joint, _ = case.twin(stories.plain)
    exhaustive = case.ask(stories.engine)
    assert_same_logp(exhaustive, joint)
    assert exhaustive.coverage == pytest.approx(np.exp(np.unique(joint)).sum(), rel=1e-3)
    assert exhaustive.index == int(np.argmax(joint))
    searched = case.ask(stories.engine, SearchParams(method="best_first"))
    assert searched.index == exhaustive.index
    assert searched.certificate.proved


def test_scoring_a_text_equals_choosing_it(stories):
    """`score` gives the joint of a set of one, token by token."""
    text = stories.engine.score(PROMPT, " a big castle")
    joint, _ = Case(choices=(" a big castle",)).twin(stories.plain)
    assert text.logp == pytest.approx(joint[0], abs=len(text.tokens) * stories.engine.tolerance)
    assert sum(token.logp for token in text.tokens) == pytest.approx(text.logp, abs=1e-9)


@pytest.mark.short("attention-*", "hybrid-unless-continued")
@pytest.mark.parametrize("name", ["unless-continued", "a trailing space", "pmi"])
def test_the_same_request_on_a_fresh_engine_has_the_same_bits(pair, name):
    """Three engines: one that assumes its self-check, one that is given it, one that was busy and trimmed."""
    case = CASES[name]
    path = pair.plain.path
    with Engine(open_model(path, LlamaOptions(n_ctx=256, n_threads=1))) as checks:
        first = case.ask(checks, BEST_FIRST)
        tolerance, check = checks.tolerance, checks._runtime.check
    with Engine(open_model(path, LlamaOptions(n_ctx=256, n_threads=1)), check=check) as knows:
        second = case.ask(knows, BEST_FIRST)
        CASES["eog"].ask(knows)
        knows.trim()
        third = case.ask(knows, BEST_FIRST)
    assert tolerance == first.signature.tolerance
    assert first == second
    assert replace(third, cost=second.cost) == second


def test_fast_precision_is_close(tiny_model, weights):
    """No promise about bits, within 0.6 nats, no tolerance, nothing settled."""
    for path in (weights("stories260K.gguf"), tiny_model("q4_k_m")):
        with load(path, n_threads=1, n_ctx=256) as exact, load(path, n_threads=1, n_ctx=256, precision="fast") as fast:
            assert fast.tolerance is None
            there, here = CASES["eog"].ask(exact), CASES["eog"].ask(fast)
        np.testing.assert_allclose(here.choices.logp, there.choices.logp, rtol=0, atol=FAST_NATS)
        assert not here.certificate.rescored
        assert here.signature.precision == "fast"


# What must not move a score further than the tolerance

QUANTISED = ("f32", "q8_0", "f16", "q4_0", "q4_k_m")
WORD_POOL = tuple(
    f" {first}{second}"
    for first in ("the", "a", "my", "red", "new", "bank", "lost", "big", "dog", "card")
    for second in ("", " card", " dog", "s", " account", " of the", " and", "ly", " transfer", " was big", ".", "?")
)


@dataclass(frozen=True)
class Sized:
    """The same weights with room for everything, and with so little that work goes in waves."""

    roomy: Engine
    narrow: Engine


@pytest.fixture(scope="module", params=QUANTISED)
def sized(request: pytest.FixtureRequest, tiny_model: Callable[..., Path], any_model: Path) -> Iterator[Sized]:
    path = any_model if request.param == "f32" else tiny_model(request.param)
    with (
        load(path, n_threads=1, n_ctx=512) as roomy,
        load(path, n_threads=1, n_ctx=64, n_batch=16) as narrow,
    ):
        yield Sized(roomy, narrow)


WORDS_OF_SETS = st.lists(st.sampled_from(WORD_POOL), min_size=1, max_size=40, unique=True)
PROMPTS = st.sampled_from([PROMPT, "My card was", "The", "I was charged an extra fee on my account"])


@pytest.mark.short("f32", "q4_k_m")
@settings(max_examples=n_examples(12))
@given(st.data())
def test_no_set_order_waves_or_cache_moves_a_joint_beyond_the_tolerance(sized, data):
    """Some choices alone on an empty cache, and among others on a full one: tolerance times rows bounds the difference."""
    prompt = data.draw(PROMPTS)
    few = data.draw(st.lists(st.sampled_from(WORD_POOL), min_size=1, max_size=3, unique=True))
    many = data.draw(st.permutations([*few, *(word for word in data.draw(WORDS_OF_SETS) if word not in few)]))
    engine = data.draw(st.sampled_from([sized.roomy, sized.narrow]))
    sized.roomy.trim()
    alone = sized.roomy.select(prompt, few, terminator="none", search=EXHAUSTIVE)
    for before in data.draw(st.lists(PROMPTS, max_size=2)):
        engine.select(before, data.draw(WORDS_OF_SETS), terminator="eog", search=EXHAUSTIVE)
        if data.draw(st.booleans()):
            engine.trim()
    crowd = engine.select(prompt, many, terminator="none", search=EXHAUSTIVE)
    place = [many.index(word) for word in few]
    moved = np.abs(raw_joints(crowd)[place] - raw_joints(alone))
    assert (moved <= engine.tolerance * n_tokens(alone) + 1e-12).all(), (moved, engine.tolerance)


@pytest.mark.short("f32")
def test_the_tolerance_test_can_fail(sized):
    """Another prompt moves joints by more than the tolerance: some of a hundred, even where a small quantised model has a wide one."""
    one, *others = (
        sized.roomy.select(prompt, WORD_POOL, terminator="none", search=EXHAUSTIVE)
        for prompt in (PROMPT, "The", "9 8 7 6", PROMPT + " the", "?!")
    )
    moved = np.stack([np.abs(raw_joints(one) - raw_joints(other)) for other in others])
    assert (moved > sized.roomy.tolerance * n_tokens(one)).any()


# Decisions that do not depend on the rest of the set


SEED_THAT_MOVES = 3
"""Of random weights whose rows move with layout in q8_0 too: in a tiny model that takes an activation at a bucket's edge."""


@dataclass(frozen=True)
class Planted:
    """Choices that priors bring within a hair of each other, and the requests in which they must rank the same.

    No exact ties: those go to the lowest index, so to the order of the set.
    """

    prompt: str
    finalists: list[str]
    weight: dict[str, float]

    @classmethod
    def after(cls, engine: Engine, prompt: str, terminator: str, rng: np.random.Generator) -> Planted:
        """Five random choices; each one's prior is the inverse of its probability when scored alone, but for 1e-9."""
        words = [str(word) for word in rng.permutation(WORD_POOL)]
        alone = engine.select(prompt, words[:5], terminator=terminator, search=EXHAUSTIVE).choices.logp
        return cls._tied(prompt, words[:5], alone)

    @classmethod
    def adjacent(cls, engine: Engine, prompt: str, terminator: str, rng: np.random.Generator) -> Planted:
        """Three to five choices of adjacent ranks, brought to the lowest of them."""
        words = [str(word) for word in rng.permutation(WORD_POOL)]
        ranked = engine.select(prompt, words, terminator=terminator, search=EXHAUSTIVE).choices
        n = int(rng.integers(3, 6))
        first = int(rng.integers(len(words) - n))
        which = np.argsort(-ranked.logp)[first : first + n]
        return cls._tied(prompt, [words[i] for i in which], ranked.logp[which])

    @classmethod
    def _tied(cls, prompt: str, finalists: list[str], logp: FloatArray) -> Planted:
        gaps = logp.min() - logp + np.arange(len(logp)) * 1e-9
        weight = dict.fromkeys(WORD_POOL, 1e-60) | dict(zip(finalists, np.exp(gaps).tolist(), strict=True))
        return cls(prompt, finalists, weight)

    def requests(self, rng: np.random.Generator, n: int) -> Iterator[list[str]]:
        """The finalists in random order among more and more others."""
        others = [word for word in self.weight if word not in self.finalists]
        for _ in range(n):
            yield [str(w) for w in rng.permutation(self.finalists + others[: rng.integers(0, len(others))])]


def decisions(engine: Engine, planted: Planted, terminator: str, rng: np.random.Generator, n: int) -> list[Selection]:
    """The same finalists in n sets, exhaustive or best-first, on caches that hold other things."""
    answers = []
    for words in planted.requests(rng, n):
        prior = [planted.weight[word] for word in words]
        if rng.random() < 0.5:
            engine.trim()
        if rng.random() < 0.5:
            engine.select("The " + words[0], words[:20], terminator="eog")
        search = SearchParams(method=str(rng.choice(["exhaustive", "best_first"])), k=3)
        answers.append(engine.select(planted.prompt, words, terminator=terminator, prior=prior, search=search))
    return answers


def decisions_together(
    engine: Engine, planted: Planted, terminator: str, rng: np.random.Generator, n: int
) -> list[Selection]:
    """The same set n times in one `select_many`, beside the same choices after other prompts."""
    words = next(planted.requests(rng, 1))
    prior = [planted.weight[word] for word in words]
    prompts = [planted.prompt, "There was", planted.prompt + " the", *[planted.prompt] * (n - 1)]
    order = rng.permutation(len(prompts))
    requests = [(prompts[i], words) for i in order]
    found = engine.select_many(requests, terminator=terminator, prior=prior, search=SearchParams(k=3))
    return [answer for (prompt, _), answer in zip(requests, found, strict=True) if prompt == planted.prompt]


def raw_order(selection: Selection, texts: list[str]) -> list[str]:
    """Texts by score as their own set evaluated them, before settling."""
    table = selection.choices
    raw = raw_joints(selection) + table.score - table.logp
    place = {text: i for i, text in enumerate(table.texts)}
    return sorted(texts, key=lambda text: -raw[place[text]])


@pytest.mark.short("q4_k_m-none")
@pytest.mark.parametrize("terminator", ["none", "eog"])
@pytest.mark.parametrize("quantisation", ["q8_0", "f16", "q4_k_m"])
def test_near_ties_rank_the_same_in_every_set(tiny_model, quantisation, terminator):
    """Winner and first three, with five choices tied to within what layout moves: any set, order, search and cache."""
    rng = np.random.default_rng(7)
    path = tiny_model(quantisation, seed=SEED_THAT_MOVES)
    with load(path, n_threads=1, n_ctx=512) as engine, load(path, n_threads=1, n_ctx=64, n_batch=16) as narrow:
        planted = Planted.after(engine, PROMPT, terminator, rng)
        answers = decisions(engine, planted, terminator, rng, 6) + decisions(narrow, planted, terminator, rng, 3)
    assert all(answer.certificate.rescored for answer in answers)
    assert all(answer.certificate.n_rescored == 5 for answer in answers)
    first = [[choice.text for choice in answer.top(3)] for answer in answers]
    assert all(texts == first[0] for texts in first)
    scores = [{c.text: c.score for c in answer.top(5)} for answer in answers]
    assert all({text: each[text] for text in first[0]} == {t: scores[0][t] for t in first[0]} for each in scores)


NEAR_TIES_PARTS = 12
PLANTED_EACH, ANSWERS_EACH = 20, 14
"""A part settles 280 near ties, the 36 parts 10 080: a third on each quantisation."""
OPENINGS = (PROMPT, "My card was", "The dog", "I was charged an extra fee on my account", "She said that")


@pytest.mark.long
@pytest.mark.parametrize("part", range(NEAR_TIES_PARTS))
@pytest.mark.parametrize("quantisation", ["q8_0", "q4_k_m", "f16"])
def test_near_ties_of_adjacent_ranks_never_flip(tiny_model, record_property, quantisation, part):
    """Settled winners, ranks and scores are the same in every set and history.

    With other choices beside, in any order, after other work, trimmed or together.
    """
    rng = np.random.default_rng([part, 14])
    path = tiny_model(quantisation, seed=SEED_THAT_MOVES + part)
    flipped, n_rescored, n_moved = [], 0, 0
    with load(path, n_threads=1, n_ctx=512) as roomy, load(path, n_threads=1, n_ctx=64, n_batch=16) as narrow:
        for _ in range(PLANTED_EACH):
            terminator, prompt = str(rng.choice(["none", "eog"])), str(rng.choice(OPENINGS))
            planted = Planted.adjacent(roomy, prompt, terminator, rng)
            answers = decisions(roomy, planted, terminator, rng, ANSWERS_EACH - 7)
            for _ in range(2):
                answers += decisions_together(roomy, planted, terminator, rng, 2)
            answers += decisions(narrow, planted, terminator, rng, 3)
            n_tied = len(planted.finalists)
            found = {(each.certificate.rescored, each.certificate.n_rescored) for each in answers}
            assert found == {(True, n_tied)}, planted
            n_rescored += len(answers)
            tops = [[(choice.text, choice.score) for choice in each.top(3)] for each in answers]
            flipped += [(planted, each, tops[0]) for each in tops if each != tops[0]]
            orders = [raw_order(each, planted.finalists) for each in answers]
            n_moved += sum(order != orders[0] for order in orders)
    assert flipped == []
    assert n_rescored == PLANTED_EACH * ANSWERS_EACH
    record_property("near ties", n_rescored)
    record_property("ranked differently before settling", n_moved)


class Rounding(HashModel):
    """Every row is rounded, by how many rows its call has: up to 0.01 nats, which layout decides and nothing else."""

    def extend(self, *args):
        extension = super().extend(*args)
        if not len(extension.rows):
            return extension
        step = np.float32(0.001 * (1 + len(args[0]) % 10))
        rows = np.stack([extension.rows.logits(i) for i in range(len(extension.rows))])
        return replace(extension, rows=DenseRows(np.round(rows / step) * step))

    def new_context(self, nodes, *args, **how):
        model = Rounding(1, vocabulary=self.vocabulary)
        model.set_batch_multiple(self.limits.batch_sizes.multiple)
        return model


def test_without_settling_near_ties_would_rank_differently():
    """Where layout moves rows, planted ties of the same sets disagree unsettled, and agree settled."""
    rng = np.random.default_rng(7)
    letters = make_vocabulary([bytes([code]) for code in range(32, 127)])
    with Engine(Rounding(1, vocabulary=letters), check=SelfCheck(8, 0.01, 0.04)) as engine:
        planted = Planted.after(engine, PROMPT, "none", rng)
        answers = decisions(engine, planted, "none", rng, 6)
    orders = [raw_order(answer, planted.finalists) for answer in answers]
    assert any(order != orders[0] for order in orders)
    settled = [[choice.text for choice in answer.top(5)] for answer in answers]
    assert all(order == settled[0] for order in settled)
    assert all(answer.certificate.n_rescored == 5 for answer in answers)


# Waves, branches, rows


def test_more_branches_than_sequences_and_more_nodes_than_cells(any_model):
    """600 choices, with a leaf each on 254 ids; on 256 cells, in calls of 32; and in one go: one winner, one set of scores."""
    letters = "bcdfghjklmnpqrstvwxz"
    choices = [f" {a}{b}{c}" for a in letters for b in "aeiou" for c in "bdfgjk"]
    with (
        load(any_model, n_threads=1, n_ctx=1024) as roomy,
        load(any_model, n_threads=1, n_ctx=256, n_batch=32) as narrow,
    ):
        answers = [
            engine.select(PROMPT, choices, terminator=terminator, search=EXHAUSTIVE)
            for engine in (roomy, narrow)
            for terminator in ("none", "eog")
        ]
    for here, there in zip(answers[:2], answers[2:], strict=True):
        assert here.index == there.index
        assert_same_logp(here, there.choices.logp)
        assert there.cost.rows == here.cost.rows
        assert there.cost.rows_repeated == here.cost.rows_repeated == 0
        assert there.cost.model_calls > here.cost.model_calls
    assert answers[1].cost.rows > 256
    assert len(answers[1].choices.trie.path_node) > 254


@pytest.mark.parametrize("shape", ["tiny", "sliding-window", "recurrent", "hybrid"])
def test_rows_are_the_distinct_proper_prefixes_and_a_prompt_is_evaluated_once(tiny_model, shape):
    """Context and inner nodes, and leaves for `eog` alone; asked again, what is below the prompt."""
    choices = [" the dog", " the dogs", " a card", " my bank account", " my bank"]
    with load(tiny_model("f32", shape=shape), n_threads=1, n_ctx=256) as engine:
        plan = engine.tokens(PROMPT, choices, terminator="none")
        paths = {tuple(token for token, _ in path) for path in plan.choices}
        proper = {path[:i] for path in paths for i in range(1, len(path))}
        first = engine.select(PROMPT, choices, terminator="none", search=EXHAUSTIVE).cost
        again = engine.select(PROMPT, choices, terminator="none", search=EXHAUSTIVE).cost
        ended = engine.select(PROMPT, choices, terminator="eog", search=EXHAUSTIVE).cost
    assert (first.rows, first.rows_repeated) == (len(plan.context) + len(proper), 0)
    assert (again.rows, again.rows_repeated) == (len(proper), 0)
    assert (ended.rows, ended.rows_repeated) == (len(proper | paths), 0)
