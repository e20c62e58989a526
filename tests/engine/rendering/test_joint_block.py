"""Joint blocks: the assignment whose whole text is most probable, whatever the order of options and the way of searching."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import chain, product

import numpy as np
import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st

import selectrie
from selectrie.core.automaton import ProductAutomaton
from selectrie.core.types import Limits, ModelKind
from selectrie.decoding.automaton.automaton_search import AutomatonSearch
from selectrie.decoding.automaton.automaton_task import AutomatonSpec
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.engine.rendering import product_search
from selectrie.engine.rendering.joint_block import JointRequest, JointSlot, decide_jointly
from selectrie.engine.rendering.slots import SlotContext
from selectrie.engine.scheduler.task_group import task_group
from selectrie.errors import ChoiceError, OptionError, PromptTooLongError, ProtocolError, TextError
from selectrie.options import DEFAULT_PROMPTING, SearchParams
from selectrie.template.values.values import SlotOption
from selectrie.testing import HashModel, naive_joint
from selectrie.testing.fakes import make_vocabulary, spell
from selectrie.testing.oracles import run
from selectrie.tokenization import products
from selectrie.tokenization.encoding import encode_choices
from selectrie.tokenization.prompts import read_prompt
from tests.support.hidden_rows import HiddenRows, HidingModel
from tests.support.n_examples import n_examples
from tests.support.vocabularies import start_of, vocabulary_of

EXACT = SelfCheck(batch_multiple=1, moved=0.0, tolerance=0.0)
"""A fake's rows are the same bits in every layout."""
HEAL = 2e-4
"""Nats: an end counts as finished when its bounds are within 1e-4, and so may each of two."""


def slot(name, *options):
    """A slot of texts, or of (text, value) pairs."""
    pairs = [(option, option) if isinstance(option, str) else option for option in options]
    return JointSlot(name, tuple(SlotOption(*pair) for pair in pairs))


def decide(model, request, prompt, *, following="", ends_turn=False):
    """The answer of a fresh engine over a fake."""
    with closing(Engine(model, check=EXACT)) as engine, task_group(engine._model_thread) as group:
        read = read_prompt(model.vocabulary, prompt, DEFAULT_PROMPTING)
        return decide_jointly(engine._session(group), request, SlotContext(read, following, ends_turn))


def decide_on(engine, request, prompt, following=""):
    """The answer of an engine that is there."""
    with task_group(engine._model_thread) as group:
        place = SlotContext(read_prompt(engine.vocabulary, prompt, DEFAULT_PROMPTING), following)
        return decide_jointly(engine._session(group), request, place)


def spelled(request):
    """The text of every assignment, by the texts of its options."""
    texts = {}
    for options in product(*(one.options for one in request.slots)):
        rest = iter(options)
        text = "".join(part if isinstance(part, str) else next(rest).text for part in request.parts)
        texts[tuple(option.text for option in options)] = text
    return texts


def brute_force(model, request, prompt, *, following="", terminator="auto"):
    """Assignments with their log-probabilities, best first: every text scored as a choice; ties by bytes."""
    texts = spelled(request)
    with closing(Engine(model, check=EXACT)) as engine:
        choices = sorted(set(texts.values()))
        found = engine.select(
            prompt, choices, following=following, terminator=terminator, search=SearchParams(method="exhaustive")
        )
    logp = {choice.text: choice.logp for choice in found.choices}
    ranked = sorted(texts, key=lambda options: (-logp[texts[options]], texts[options].encode(), options))
    return [(options, logp[texts[options]]) for options in ranked]


def check_is_brute_force(found, expected, k):
    """Raise unless the first k, and at least two, are proved to be the expected ones with their log-probabilities.

    Searches may know less of the healed bytes than a listing does: by no more than they say, and for all alike.
    """
    assert found.certificate.proved
    assert len(found.assignments) >= min(max(2, k), len(expected))
    expected = expected[: len(found.assignments)]
    assert [one.texts for one in found.assignments] == [options for options, _ in expected]
    off = [one.logp - logp for one, (_, logp) in zip(found.assignments, expected, strict=True)]
    assert abs(off[0]) <= found.heal_gap + HEAL
    assert max(off) - min(off) <= HEAL


OPTIONS = st.lists(st.text("abct .", min_size=0, max_size=3), min_size=1, max_size=4, unique=True)


@st.composite
def blocks(draw):
    """Up to three slots over a few letters: options that continue each other, slots side by side."""
    parts = [draw(st.sampled_from(["", "a", " c", "b: "]))]
    for name in "xyz"[: draw(st.integers(1, 3))]:
        parts += [slot(name, *draw(OPTIONS)), draw(st.sampled_from(["", "", "t", " a", ". "]))]
    return tuple(part for part in parts if part != "")


prompts = st.text("abct ", min_size=1, max_size=5)
places = st.sampled_from([(".", False), ("t", False), (" ca", False), ("a. b", False), ("", True), ("", False)])


@settings(max_examples=n_examples(25))
@given(
    request=st.builds(
        JointRequest,
        blocks(),
        k=st.integers(1, 3),
        budget=st.sampled_from([None, 10_000]),  # with one, the best are searched for
        width=st.integers(1, 9),
    ),
    seed=st.integers(0, 2**20),
    prompt=prompts,
    place=places,
)
def test_a_block_is_brute_force_over_the_product(request, seed, prompt, place):
    """The ranked assignments are those of scoring every text of the product as a choice."""
    following, ends_turn = place
    if not any(spelled(request).values()):
        reject()  # nothing but the empty text
    found = decide(HashModel(seed), request, prompt, following=following, ends_turn=ends_turn)
    terminator = "eog" if ends_turn else "auto"
    expected = brute_force(HashModel(seed), request, prompt, following=following, terminator=terminator)
    check_is_brute_force(found, expected, request.k)


SEARCHED = st.builds(JointRequest, blocks(), k=st.integers(1, 3), width=st.integers(1, 9), max_listed=st.just(1))


def searched(request, seed, prompt, place):
    """The law on a block that is not listed; those that are refused, and those of one assignment, say nothing."""
    following, ends_turn = place
    if request.n_assignments == 1:
        reject()
    try:
        found = decide(HashModel(seed), request, prompt, following=following, ends_turn=ends_turn)
    except ChoiceError:
        reject()  # it may be empty
    terminator = "eog" if ends_turn else "auto"
    expected = brute_force(HashModel(seed), request, prompt, following=following, terminator=terminator)
    assert found.certificate.nodes_inner is None
    check_is_brute_force(found, expected, request.k)


REFUSED_BELOW = JointRequest(  # texts below the k-th were forgotten, and those that were not took their places
    (
        slot("x", "t", ".t", "ac."),
        slot("y", "ca", "t", " at", "bc. "),
        "t",
        slot("z", "b", " ", "  a", "bb"),
    ),
    width=3,
    max_listed=1,
)


@settings(max_examples=n_examples(25))
@example(request=REFUSED_BELOW, seed=240131, prompt="bt", place=("", True))
@given(request=SEARCHED, seed=st.integers(0, 2**20), prompt=prompts, place=places)
def test_a_searched_block_is_brute_force_over_the_product(request, seed, prompt, place):
    """What is said of a product that is not listed is what scoring each of its texts says."""
    searched(request, seed, prompt, place)


@settings(max_examples=8)
@given(
    request=SEARCHED,
    seed=st.integers(0, 2**20),
    prompt=prompts,
    place=st.sampled_from([(".", False), ("t", False), ("", True), ("", False)]),
)
def test_a_block_that_cannot_be_cut_is_brute_force_too(monkeypatch, request, seed, prompt, place):
    """Where the product has no places that tokenizers never look across, every token path that spells it is searched."""
    with monkeypatch.context() as patch:
        patch.setattr(products, "MAX_TEXTS_IN_CHUNK", 0)
        searched(request, seed, prompt, place)


def test_chunks_that_depend_on_one_another_are_given_up(monkeypatch):
    """A text that was found by other tokens than its own is noticed, and the product is searched without chunks."""
    own_cut, own_context = product_search.cut_product, product_search.open_context
    cat, letters = spell(HashModel(0).vocabulary, ("cat",)), spell(HashModel(0).vocabulary, ("c", "a", "t"))
    calls = []

    def wrong(*given):
        calls.append("cut")
        cut = own_cut(*given)
        first = [(*letters, *path[1:]) if path[:1] == cat else path for path in cut.paths[0]]
        assert first != list(cut.paths[0])
        return replace(cut, paths=(tuple(first), *cut.paths[1:]))

    def noted(*given):
        calls.append("ground")
        return own_context(*given)

    request = JointRequest((slot("x", "bat", "cat"), " a. ", slot("y", "b", "s")), k=4, max_listed=1)
    expected = brute_force(HashModel(4), request, "a", following=".")
    with monkeypatch.context() as patch:
        patch.setattr(product_search, "cut_product", wrong)
        patch.setattr(product_search, "open_context", noted)
        found = decide(HashModel(4), request, "a", following=".")
    assert calls == ["cut", "ground"]
    check_is_brute_force(found, expected, 4)


def test_the_comparison_can_fail():
    """Two assignments in the other order, or one log-probability that is off, are noticed."""
    request = JointRequest((slot("x", "a", "b"), " ", slot("y", "cat", "c")))
    found = decide(HashModel(1), request, "a", following=".")
    expected = brute_force(HashModel(1), request, "a", following=".")
    check_is_brute_force(found, expected, 1)
    first, second, *rest = found.assignments
    moved = replace(first, logp=first.logp - 0.01)
    for wrong in ((second, first, *rest), (moved, second, *rest)):
        with pytest.raises(AssertionError):
            check_is_brute_force(replace(found, assignments=wrong), expected, 1)


@settings(max_examples=n_examples(12))
@given(
    parts=blocks(),
    order=st.randoms(use_true_random=False),
    seed=st.integers(0, 2**20),
    width=st.integers(1, 40),
    max_listed=st.sampled_from([1, 20_000]),
)
def test_the_order_of_options_moves_nothing(parts, order, seed, width, max_listed):
    """Any permutation gives the same assignments to the bit, and any width and method the same winner."""
    shuffled = tuple(
        part if isinstance(part, str) else JointSlot(part.name, order.sample(part.options, len(part.options)))
        for part in parts
    )
    request = JointRequest(parts, max_listed=max_listed)
    found = decide(HashModel(seed), request, "a b", following="t")
    again = decide(HashModel(seed), replace(request, parts=shuffled), "a b", following="t")
    assert again.assignments == found.assignments
    assert again.to_dict()["certificate"] == found.to_dict()["certificate"]
    for budget in (None, 10_000):  # with one, the best are searched for
        other = JointRequest(shuffled, budget=budget, width=width)
        assert decide(HashModel(seed), other, "a b", following="t").best.texts == found.best.texts


LARGE = Limits(nodes=8192, sequences=256, rows_per_call=512, kind=ModelKind.ATTENTION, max_idle_rows=8192)
WORDS = tuple(a + b + c for a in "abcrs" for b in "atu" for c in ("b", "t", "ca", "st"))[:50]


def planted(request, best, prompt, following):
    """A model in which one assignment is the best by construction, and that assignment's log-probability at least.

    Each of its tokens has probability 0.8 after the ones before; whoever leaves it has 0.2 at most there.
    """
    vocabulary = HashModel(0).vocabulary
    read = read_prompt(vocabulary, prompt, DEFAULT_PROMPTING)
    encoded = encode_choices(vocabulary, read, [request.text_of(best).encode()], following.encode())
    whole = [*encoded.context.tolist(), *encoded.tokens.tolist()]
    rows = {}
    for place in range(len(encoded.context), len(whole)):
        row = np.full(vocabulary.n_tokens, np.log(0.2 / (vocabulary.n_tokens - 1)))
        row[whole[place]] = np.log(0.8)
        rows[tuple(whole[:place])] = row
    return HashModel(3, planted=rows, limits=LARGE), len(encoded.tokens) * np.log(0.8)


@pytest.mark.parametrize("k", [1, 2])
def test_the_best_of_ten_billion_is_proved(k):
    """Six slots of 50 options: the planted assignment is found and proved, from a few hundred rows."""
    parts = []
    for number in range(6):
        parts += [". a:" if number else "", " b: ", slot(f"s{number}", *WORDS)]
    request = JointRequest(tuple(part for part in parts if part), k=k)
    best = (7, 49, 0, 23, 31, 8)
    model, least = planted(request, best, "cat", ".\n")
    found = decide(model, request, "cat", following=".\n")
    assert found.n_assignments == 50**6
    assert found.best.texts == tuple(WORDS[index] for index in best)
    assert found.certificate.proved
    assert found.logp >= least - 1e-6
    assert found.certificate.nodes_evaluated < 2_000
    assert found.runner_up.logp < found.logp - 1
    assert found.marginals is None
    with pytest.raises(OptionError, match="whose assignments were all scored"):
        found.marginal("s0")


def test_a_budget_ends_a_search_with_the_best_so_far():
    """Two nodes prove nothing; there is an answer nevertheless, and it says so."""
    request = JointRequest((slot("x", *WORDS), " ", slot("y", *WORDS), " ", slot("z", *WORDS)), budget=2)
    found = decide(HashModel(5, limits=LARGE), request, "cat", following=".")
    assert not found.certificate.proved
    assert not found.certificate.rescored
    assert found.best.logp >= found.runner_up.logp
    better = decide(HashModel(5, limits=LARGE), replace(request, budget=3_000), "cat", following=".")
    assert better.logp >= found.logp


class EndsToldRows(HiddenRows):
    """Hidden rows that tell the probability of a single token, as a server does that is asked for it by name."""

    def _bounds(self, i, ids, exact):
        return (exact, exact) if len(ids) == 1 else super()._bounds(i, ids, exact)

    def _of(self, dense):
        return EndsToldRows(dense, self._seed, self._shares)


class OnlyTheProduct(HidingModel):
    """After the healed space, all probability is that of the letters `a` and `b`, in shares hashed from the context."""

    def __init__(self, seed, shares):
        pieces = [b"a", b"b", b" a", b" b", b" ", b"."]
        super().__init__(seed, shares=shares, vocabulary=make_vocabulary(pieces), sharpness=0.7)
        own, dot = self._row_of, 7

        def row_of(path):
            row = own(path).copy()
            if len(path) > 2:
                row[[0, 1, 4, 5, 6, dot] if len(path) < 6 else [i for i in range(8) if i != dot]] = -30.0
            return row

        self._row_of = row_of

    def extend(self, parents, tokens, wanted, keep):
        extension = HashModel.extend(self, parents, tokens, wanted, keep)
        return replace(extension, rows=EndsToldRows(extension.rows, self._seed, self._shares))


@settings(max_examples=n_examples(40))
@given(
    seed=st.integers(0, 2**20), shares=st.sampled_from([(0.0,), (0.0, 0.5), (0.9,), (1.0,)]), budget=st.integers(1, 40)
)
def test_what_was_not_found_weighs_no_more_than_the_certificate_says(seed, shares, budget):
    """Given the healed bytes, whose probability is known within bounds or not at all; listed, every text is scored."""
    request = JointRequest(tuple(slot(name, "a", "b") for name in "wxyz"), budget=budget, max_listed=1)
    texts = sorted(set(spelled(request).values()))
    with closing(Engine(OnlyTheProduct(seed, (0.0,)), check=EXACT)) as engine:
        exact = engine.select("a ", texts, following=".", search=SearchParams(method="exhaustive"))
    found = decide(OnlyTheProduct(seed, shares), request, "a ", following=".")
    assert found.healed == b" "
    known = {one.text for one in found.assignments}
    left = np.array([one.logp for one in exact.choices if one.text not in known])
    left = np.exp(left - exact.heal_gap).sum()  # the healed bytes may be more probable
    assert left <= found.certificate.open_mass * (1 + 1e-6)
    assert found.certificate.open_mass <= 1
    assert not np.isnan(found.margin)


@given(seed=st.integers(0, 2**20))
@settings(max_examples=n_examples(20))
def test_what_was_not_found_counts_against_every_probability(seed):
    """Also where the rows do not tell how probable the healed bytes are: the share is among all texts."""
    request = JointRequest(tuple(slot(name, "a", "b") for name in "wxyz"), budget=3, max_listed=1)
    exact, found = (decide(OnlyTheProduct(seed, (share,)), request, "a ", following=".") for share in (0.0, 1.0))
    assert found.heal_gap > exact.heal_gap == 0.0
    if exact.certificate.open_mass and exact.best.text == found.best.text:
        assert found.best.probability <= exact.best.probability + 1e-9


def test_what_layout_cannot_change_is_ahead_of_all_that_is_open():
    """The difference of two texts of eight rows moves by the root of sixteen rows, so the first is ahead by as much."""
    parts = (slot("w", *"brsu"), ".", slot("x", *"brsu"), ".", slot("y", *"brsu"), ".", slot("z", *"brsu"))
    tolerance = 0.05
    with closing(Engine(HashModel(2), check=SelfCheck(1, 0.0, tolerance))) as engine:
        found = decide_on(engine, JointRequest(parts, max_listed=1), "a", ".")
    assert found.certificate.rescored
    assert found.certificate.bound_gap > (2 * 8) ** 0.5 * tolerance


def test_equal_texts_are_ties_in_the_order_of_their_options():
    """Assignments that spell one text are both given, the smaller options first, and the margin is 0."""
    request = JointRequest((slot("x", "ca", "c"), slot("y", "t", "at")))
    for max_listed in (1, 20_000):
        found = decide(HashModel(1), replace(request, max_listed=max_listed), "a", following=".")
        texts = [one.texts for one in found.assignments if one.text == "cat"]
        assert texts == [("c", "at"), ("ca", "t")]
        if found.text == "cat":
            assert (found.is_tie, found.margin) == (True, 0.0)


def test_marginals_are_sums_over_the_product():
    """Of each option, over what the other slots may be; a text of two readings counts half for each."""
    request = JointRequest((slot("x", "ca", "c"), slot("y", "t", "at")))
    found = decide(HashModel(2), request, "a", following=".")
    p = {one.texts: one.probability for one in found.assignments}
    own = p["ca", "at"] + p["ca", "t"] / 2
    assert found.marginal("x") == pytest.approx({"ca": own, "c": 1 - own})
    assert sum(found.marginal("y").values()) == pytest.approx(1)


def test_values_keep_their_type():
    """What a slot stores is the option's value, not its text."""
    request = JointRequest((slot("x", ("a", 1), ("b", None)), " ", slot("y", ("cat", (2, 3)))))
    found = decide(HashModel(1), request, "a")
    assert found.value("x") == {"a": 1, "b": None}[found.option("x")]
    assert found.value("y") == (2, 3)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: slot("x"), OptionError, "at least one option"),
        (lambda: slot("x", "a", "b", "a"), OptionError, "options 0 and 2 are equal"),
        (lambda: slot("x", "\ud800"), TextError, "option 0 of 'x'"),
        (lambda: JointRequest(("a",)), OptionError, "at least one slot"),
        (lambda: JointRequest((slot("x", "a"),), budget=0), OptionError, "budget"),
        (lambda: JointRequest((slot("x", "a"),), k=0), OptionError, "k=0"),
        (lambda: JointRequest((slot("x", "a"), slot("x", "b"))), OptionError, "each name once"),
    ],
)
def test_wrong_requests_are_refused(make, error, message):
    """Each with the value and what was expected."""
    with pytest.raises(error, match=message):
        make()


def test_what_a_search_cannot_decide_is_refused_before_any_model_call():
    """A block that may be empty with nothing after it, and one that does not fit."""
    empty = JointRequest((slot("x", "", "a"), slot("y", "", "b")), max_listed=1)
    model = HashModel(1)
    with pytest.raises(ChoiceError, match="may be empty"):
        decide(model, empty, "a")
    small = HashModel(1, limits=replace(LARGE, nodes=12))
    long = JointRequest((slot("x", *WORDS), ". " * 9, slot("y", *WORDS)), max_listed=1)
    with pytest.raises(PromptTooLongError):
        decide(small, long, "a", following=".")
    assert (model.calls, small.calls) == (0, 0)


LITERALS = ("", "", " ", " and ", ", ", "\nArmor: ", '" and "', "-", "' + '", '"}, {"a": "', " l'")
AWKWARD = (
    *(
        "knight",
        "l'\u00e9t\u00e9",
        "don't",
        "42",
        "1999",
        "3.14",
        "Z\u00fcrich",
        "\u6771\u4eac",
        "a",
        "b",
        " x",
        "x ",
        "",
        "\n",
    ),
    *(
        "\u2014",
        "'s",
        "'re",
        "ing",
        "12",
        "Stra\u00dfe",
        "!!",
        "...",
        '"quoted"',
        "foo_bar",
        "  ",
        "\U0001f642",
        "\u00a0",
        "HTML",
    ),
)


@st.composite
def awkward_products(draw):
    """Literals and alternatives that tokenizers cut in surprising ways, and what follows them."""
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        parts.append(draw(st.sampled_from(LITERALS)).encode())
        options = draw(st.lists(st.sampled_from(AWKWARD), min_size=1, max_size=4, unique=True))
        parts.append(tuple(option.encode() for option in options))
    parts.append(draw(st.sampled_from(LITERALS)).encode())
    following = draw(st.sampled_from(["", "\n", ".", '" he said', " and so on", "s are"]))
    return tuple(part for part in parts if part), following.encode()


@settings(max_examples=n_examples(10))
@given(given=awkward_products(), prompt=st.sampled_from(["Name: Aria", "The ", "x = '", "Hello\n", "A  "]))
def test_chunks_have_the_tokens_of_the_whole(real_vocabulary, given, prompt):
    """Cut into chunks, a product has exactly the paths, the context and the following bytes of all of its texts encoded."""
    vocabulary, (parts, following) = vocabulary_of(real_vocabulary), given
    before = products.PromptText(start_of(vocabulary), prompt.encode())
    cut = products.cut_product(vocabulary, before, parts, following)
    listed = product(*([part] if isinstance(part, bytes) else part for part in parts))
    texts = list(dict.fromkeys(b"".join(picked) for picked in listed))
    encoded = encode_choices(vocabulary, before, texts, following)
    paths = {tuple(path.tolist()) for path in np.split(encoded.tokens, encoded.offsets[1:-1])}
    assert {tuple(chain(*pieces)) for pieces in product(*cut.paths)} == paths
    np.testing.assert_array_equal(cut.context.tokens, encoded.context)
    assert (cut.context.healed, len(cut.context.tail)) == (encoded.healed, encoded.following_bytes)


def test_places_between_words_are_cut():
    """One chunk a slot where literals have spaces; letters side by side stay together."""
    vocabulary = HashModel(0).vocabulary
    before = products.PromptText(np.array([0], dtype=np.int32), b"a")
    apart = products.cut_product(vocabulary, before, (b" a: ", (b"cat", b"b"), b". b: ", (b"rat", b"s"), b"."), b"\n")
    assert [len(paths) for paths in apart.paths] == [2, 2]
    joined = products.cut_product(vocabulary, before, ((b"ca", b"b"), (b"t", b"s")), b".")
    assert [len(paths) for paths in joined.paths] == [4]


def test_what_comes_before_an_empty_alternative_counts():
    """Two spaces and `b` are one token, so the last slot depends on the one before it, which may be a space or nothing."""
    vocabulary = make_vocabulary([b" ", b"a", b"b", b"c", b" a", b" b", b"  b"])
    before = products.PromptText(np.array([0], dtype=np.int32), b"a")
    parts = (b"c", (b"c", b" ", b""), (b" a", b" b"))
    paths = products.cut_product(vocabulary, before, parts, b"").paths
    texts = {b"c" + one + other for one, other in product(*parts[1:])}
    assert {tuple(chain(*pieces)) for pieces in product(*paths)} == {tuple(vocabulary.tokenize(text)) for text in texts}


@given(sets=st.lists(st.lists(st.lists(st.integers(0, 2), max_size=3), min_size=1, max_size=4), min_size=1, max_size=3))
def test_the_automaton_accepts_the_concatenations(sets):
    """And nothing else, however the paths of a set begin with one another."""
    automaton = ProductAutomaton(sets)
    expected = {tuple(chain(*picked)) for picked in product(*sets)}
    found, waiting = set(), [((), automaton.start())]
    while waiting:
        path, state = waiting.pop()
        if automaton.can_end(state):
            found.add(path)
        waiting += [((*path, token), automaton.advance(state, token)) for token in automaton.allowed(state).tolist()]
    assert found == expected
    assert automaton.longest == max(map(len, expected))
    with pytest.raises(ProtocolError):
        automaton.advance(automaton.start(), 3)


@settings(max_examples=n_examples(25))
@given(
    sets=st.lists(
        st.lists(st.lists(st.integers(2, 6), min_size=1, max_size=3), min_size=1, max_size=4), min_size=1, max_size=3
    ),
    seed=st.integers(0, 2**20),
    least=st.floats(-25, -5),
    tolerance=st.floats(0, 5),
)
def test_a_search_with_a_floor_finds_all_above_it(sets, seed, least, tolerance):
    """Every path that is at least as probable as the floor less the tolerance, and nothing else is looked at for it."""
    model = HashModel(seed)
    spec = AutomatonSpec(
        model.vocabulary,
        max_tokens=9,
        terminator="none",
        search=SearchParams(k=200),
        merge_equal_text=False,
        tolerance=tolerance,
        min_score=least,
    )
    outcome = run(AutomatonSearch(np.array([0], dtype=np.int32), ProductAutomaton(sets), spec), model)
    paths = sorted({tuple(chain(*picked)) for picked in product(*sets)})
    expected = dict(zip(paths, naive_joint(model, (0,), paths), strict=True))
    found = {tuple(path.tokens.tolist()): path.score for path in outcome.paths}
    assert {path for path, logp in expected.items() if logp >= least - tolerance} <= set(found)
    assert found == pytest.approx({path: expected[path] for path in found}, abs=1e-5)
    assert outcome.best_open < least - tolerance
    prefixes = {path[:n] for path in paths for n in range(len(path))}
    worth = [path for path in prefixes if sum(naive_joint(model, (0,), [path])) >= least - tolerance - 1e-5]
    assert outcome.n_evaluated <= len(worth) + 1


CITIES = ("Madrid", "Rome", "Paris", "Berlin", "London", "Lisbon", "Vienna", "Athens")
COUNTRIES = ("Spain", "Italy", "France", "Germany", "England", "Portugal", "Austria", "Greece")
LANGUAGES = ("Spanish", "Italian", "French", "German", "English", "Portuguese", "Greek")
PROFILE = "The following is the profile of a person in text format.\nName: Ada Baker"


@pytest.fixture(scope="module")
def engine():
    """The embedded model."""
    with selectrie.load(n_threads=1) as loaded:
        yield loaded


@pytest.mark.short("64-5")
@pytest.mark.parametrize(("width", "turn"), [(1, 0), (16, 3), (64, 5)])
def test_the_embedded_model_decides_alike_listed_and_searched(engine, width, turn):
    """A city, its country and its language belong together: in any order of options, of any width, listed or not."""
    turned = [(*options[turn:], *options[:turn]) for options in (CITIES, COUNTRIES, LANGUAGES)]
    parts = ["\nCity: ", slot("city", *turned[0]), "\nCountry: ", slot("country", *turned[1])]
    parts += ["\nLanguage: ", slot("language", *turned[2])]
    request = JointRequest(tuple(parts), width=width)
    listed = decide_on(engine, request, PROFILE, "\n")
    searched = decide_on(engine, replace(request, max_listed=1), PROFILE, "\n")
    assert listed.certificate.proved
    assert searched.certificate.proved
    assert searched.best.texts == listed.best.texts == ("London", "England", "English")
    assert searched.logp == pytest.approx(listed.logp, abs=32 * engine.tolerance)
