"""From items to token sequences: the harness's pairs on awkward texts, units that the task alone decides, windows of long texts."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.core.types import Limits, ModelKind
from selectrie.engine.engine import Engine
from selectrie.engine.load import load
from selectrie.engine.requests.loglikelihood import LogLikelihoods
from selectrie.errors import OptionError, PromptError
from selectrie.evaluation.evaluator import evaluate_tasks, measure_units
from selectrie.evaluation.metrics import Item
from selectrie.evaluation.work_units import TaskItems, plan, rolling_windows
from selectrie.testing import HashModel
from selectrie.testing.fakes import make_vocabulary
from tests.support.vocabularies import vocabulary_of

ROOMY = Limits(nodes=4096, sequences=64, rows_per_call=256, kind=ModelKind.ATTENTION, max_idle_rows=64)

CONTEXTS = ("", " ", "\n", "\t", "x", "un", "A\n", "A\n\n", "Once upon a time", "Once upon a time ", "the 日本", "日", "é ", "  lead",
            " a  b ", "Tom's", "Q:\u00a0", " Th", "\U0001f600 ")  # fmt: skip
CONTINUATIONS = (" there", "able", "x", " ", "\n", "本語", " é", "\u0301", "'s", "  two spaces", "\ufffd", "\U0001f600", "\u00a0z", "ing",
                 "ey told")  # fmt: skip


def tokens_of(vocabulary, text, *, with_start=True):
    """A text as the harness's models encode it: BOS first where the model adds one."""
    tokens = vocabulary.tokenize(text.encode()) if text else []
    return [vocabulary.bos, *tokens] if with_start and vocabulary.bos is not None else tokens


def twin(vocabulary, context, continuation):
    """The harness's rule, written out (`TemplateLM.loglikelihood`, `_encode_pair`)."""
    start = vocabulary.eos if vocabulary.bos is None else vocabulary.bos
    stripped = context.rstrip()
    continuation = context[len(stripped) :] + continuation
    if not context or (not stripped and vocabulary.bos is None):
        return [start], tokens_of(vocabulary, continuation, with_start=False)
    own = tokens_of(vocabulary, stripped)
    return own, tokens_of(vocabulary, stripped + continuation)[len(own) :]


def sequences_of(units):
    """Every sequence of units as (context, what counts)."""
    found = []
    for unit in units:
        own = unit.sequences
        for c, first in enumerate(own.first_scored.tolist()):
            tokens = own.tokens[own.offsets[c] : own.offsets[c + 1]].tolist()
            found.append((tokens[:first], tokens[first:]))
    return found


def planned(vocabulary, item, *metrics, limits=ROOMY):
    """Sequences of one item."""
    return sequences_of(plan(vocabulary, limits, [TaskItems("t", (item,), metrics or ("acc",))]))


def differing(vocabulary, pairs):
    """Pairs of texts that are planned otherwise than the twin has them, and how many were refused because nothing counts."""
    wrong, refused = [], 0
    for context, continuation in pairs:
        expected = twin(vocabulary, context, continuation)
        item = Item(context, (continuation,), delimiter="")
        if not expected[1]:
            with pytest.raises(OptionError, match="adds at least one token"):
                planned(vocabulary, item)
            refused += 1
        elif planned(vocabulary, item) != [expected]:
            wrong.append((context, continuation))
    return wrong, refused


def cut_anywhere(text, n, seed):
    """So many pairs of neighbouring stretches of a text, cut inside of words too."""
    rng = random.Random(seed)
    for _ in range(n):
        start, length = rng.randrange(len(text) - 60), rng.randrange(30)
        yield text[start : start + length], text[start + length : start + length + rng.randrange(1, 12)]


AWKWARD = [(context, continuation) for context in CONTEXTS for continuation in CONTINUATIONS]


def test_pairs_are_the_harness_s_in_real_vocabularies(real_vocabulary):
    """SentencePiece and BPE, with BOS and without: awkward texts, white space at either end, characters cut in two."""
    vocabulary = vocabulary_of(real_vocabulary)
    assert differing(vocabulary, AWKWARD)[0] == []
    words = "Once upon a time, in a land far away: 12 345 naïve dragons didn't\n\n  say 'hello' — 東京です。 " * 4
    assert differing(vocabulary, cut_anywhere(words, 60, 2))[0] == []


def test_pairs_are_the_harness_s_where_choices_merge_with_contexts(weights, test_data):
    """Stories cut inside of words: the context keeps its own encoding; where nothing is left to count, it is refused."""
    vocabulary = vocabulary_of(weights("stories260K.gguf"))
    assert differing(vocabulary, AWKWARD)[0] == []
    text = test_data("text/tinystories_sample.txt").read_text()
    wrong, refused = differing(vocabulary, cut_anywhere(text, 300, 1))
    assert wrong == []
    assert refused


def test_the_twin_is_the_harness_itself(weights):
    """`TemplateLM.loglikelihood` over the same tokenizer, and `hf` over the Transformers folder, give the twin's pairs."""
    instance = pytest.importorskip("lm_eval.api.instance")
    models = pytest.importorskip("lm_eval.api.model")
    transformers = pytest.importorskip("transformers")
    vocabulary = vocabulary_of(weights("stories260K.gguf"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(weights("stories260K-hf"))

    class Encoding(models.TemplateLM):
        """Keeps the pairs that it is asked for."""

        eot_token_id = vocabulary.eos
        prefix_token_id = vocabulary.bos

        def __init__(self, encode):
            self.encode, self.pairs = encode, []

        def tok_encode(self, string, add_special_tokens=None, **_):
            return self.encode(string, add_special_tokens is not False)

        def _loglikelihood_tokens(self, requests, **_):
            self.pairs = [(context, rest) for _, context, rest in requests]
            return [(0.0, True)] * len(requests)

        def loglikelihood_rolling(self, requests, disable_tqdm=False):
            raise NotImplementedError

        def generate_until(self, requests, disable_tqdm=False):
            raise NotImplementedError

    expected = [twin(vocabulary, *pair) for pair in AWKWARD]
    asked = [instance.Instance("loglikelihood", {}, pair, 0) for pair in AWKWARD]
    for encode in (
        lambda text, start: tokens_of(vocabulary, text, with_start=start),
        lambda text, start: tokenizer.encode(text, add_special_tokens=start),
    ):
        model = Encoding(encode)
        model.loglikelihood(asked, disable_tqdm=True)
        assert model.pairs == expected


def test_without_bos_the_end_of_a_text_stands_before_nothing():
    """An empty context, and one of white space, which moves to the choice; without EOS either there is an error."""
    vocabulary = make_vocabulary()
    assert vocabulary.bos is not None
    endless = replace(vocabulary, bos=None)
    for context in ("", " "):
        expected = vocabulary.tokenize((context + "ab").encode())
        assert planned(endless, Item(context, ("ab",), delimiter="")) == [([vocabulary.eos], expected)]
    with pytest.raises(PromptError, match="neither BOS nor EOS"):
        planned(replace(endless, eos=None), Item("", ("ab",), delimiter=""))


@pytest.mark.parametrize("most", range(1, 10))
def test_windows_are_the_harness_s(most):
    """Of texts of 0 to 40 tokens; the empty one has one window in which nothing counts."""
    utils = pytest.importorskip("lm_eval.utils")
    for n in range(41):
        tokens = list(range(100, 100 + n))
        expected = list(map(utils.make_disjoint_window, utils.get_rolling_token_windows(tokens, 1, most, 1)))
        found = rolling_windows(np.array(tokens, dtype=np.int32), 1, most)
        assert [(context.tolist(), rest.tolist()) for context, rest in found] == (expected or [([1], [])])


texts = st.text("abc", max_size=6)
questions = st.builds(
    lambda context, choices, shared: Item(context, tuple(choices), (0,), shared=shared, delimiter=""),
    texts,
    st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=4),
    st.sampled_from(["", "cab", "ba"]),
).filter(lambda item: all(twin(make_vocabulary(), item.context_of(0), choice)[1] for choice in item.choices))


@given(st.lists(questions, min_size=1, max_size=9), st.integers(1, 60))
def test_any_cut_gives_the_same_records(items, unit_rows):
    """To the bit on a fake; each item once, those of one shared text in the order of the data."""
    with Engine(HashModel(2)) as llm:
        found = []
        for rows in (unit_rows, 4096):
            tasks = [TaskItems("t", tuple(items), ("acc", "acc_mutual_info"), unit_rows=rows)]
            units = plan(llm.vocabulary, llm.limits, tasks)
            places = [entry.index for unit in units for entry in unit.entries]
            assert sorted(places) == list(range(len(items)))
            for shared in {item.shared for item in items}:
                own = [place for place in places if items[place].shared == shared]
                assert own == sorted(own)
            records = [record for done in measure_units(llm, units) for record in done.records]
            found.append([replace(record, unit=0) for record in sorted(records, key=lambda record: record.index)])
    assert found[0] == found[1]


@pytest.mark.parametrize(("shared", "unit_rows", "times"), [("", 4096, 0), ("", 100, 0), ("cab " * 100, 4096, 4)])
def test_units_are_short_unless_what_they_share_is_long(shared, unit_rows, times):
    """They end at 512 rows, or at four times the shared rows; the task's own limit is never exceeded."""
    vocabulary = make_vocabulary()
    n_shared = len(tokens_of(vocabulary, shared))
    most = min(unit_rows, max(512, times * n_shared))
    items = [Item("ba" * 20, ("cab", "abc"), (0,), shared=shared, delimiter="") for _ in range(300)]
    pairs = [twin(vocabulary, shared + "ba" * 20, choice) for choice in ("cab", "abc")]
    rows = sum(len(rest) for _, rest in pairs) + len(pairs[0][0]) - n_shared
    units = plan(vocabulary, ROOMY, [TaskItems("t", tuple(items), ("acc",), unit_rows=unit_rows)])
    assert [len(unit.entries) for unit in units[:-1]] == [most // rows] * (len(units) - 1)
    assert most > 512 or len(units) > 1


def test_baselines_have_the_tokens_of_the_choice():
    """Behind the premise and what says nothing, shared text first; white space between is not doubled; nothing but a
    beginning stands before the unconditional ones, which are encoded by themselves."""
    vocabulary = make_vocabulary()
    item = Item("ab ", ("ba", "cab"), (0,), shared="c", delimiter="", premise="a ", content_free=("b ", "bb"))
    found = planned(vocabulary, item, "acc_mutual_info", "pmi_dc", "calibrated")
    own, free, premise, *content_free = (found[i : i + 2] for i in range(0, len(found), 2))
    assert own == [twin(vocabulary, "cab ", choice) for choice in item.choices]
    assert free == [twin(vocabulary, "", choice) for choice in item.choices]
    for context, pairs in (("a", premise), ("cb", content_free[0]), ("cbb", content_free[1])):
        assert [before for before, _ in pairs] == [tokens_of(vocabulary, context)] * 2
        assert [rest for _, rest in pairs] == [rest for _, rest in own]


def test_every_baseline_gets_its_own_measure():
    """Two choices with all baselines are ten sequences; sequence i measures -i."""
    item = Item("ab ", ("ba", "cab"), (0,), premise="a ", content_free=("b ", "bb"))
    for metrics, expected in (
        (("acc_mutual_info", "pmi_dc", "calibrated"), ([0, -1], [-2, -3], [-4, -5], [(-6, -8), (-7, -9)])),
        (("pmi_dc", "calibrated"), ([0, -1], [None, None], [-2, -3], [(-4, -6), (-5, -7)])),
        (("acc_mutual_info", "calibrated"), ([0, -1], [-2, -3], [None, None], [(-4, -6), (-5, -7)])),
    ):
        [unit] = plan(make_vocabulary(), ROOMY, [TaskItems("t", (item,), metrics)])
        n = len(unit.sequences)
        measures = LogLikelihoods(-np.arange(n, dtype=float), np.zeros(n, dtype=bool), unit.sequences.n_scored, 1, 1)
        [record] = unit.records(measures)
        names = ("logp", "logp_unconditional", "logp_premise", "logp_content_free")
        assert tuple([getattr(choice, name) for choice in record.choices] for name in names) == expected


def test_cuts_move_real_log_likelihoods_within_the_tolerance(any_model):
    """Units of any size, in a memory of their own."""
    items = [Item(f"Once upon a time {i}", (" there", " a cat"), (0,), shared="One day. ") for i in range(8)]
    with load(any_model, n_threads=1, n_ctx=256) as llm:
        tolerance, found = llm.tolerance, []
        for rows in (5, 4096):
            result = evaluate_tasks(llm, [TaskItems("t", tuple(items), ("acc",), unit_rows=rows)])
            found.append([choice.logp for record in result["t"].records for choice in record.choices])
    assert np.allclose(*found, rtol=0, atol=16 * tolerance)
