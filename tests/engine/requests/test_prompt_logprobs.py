"""Log-probabilities of given prompts: those of each prefix alone, with every prefix evaluated once."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.core.rows import DenseRows
from selectrie.core.types import BatchSizes, ModelKind, SelfCheck
from selectrie.engine.engine import Engine
from selectrie.engine.requests.loglikelihood import Sequences
from selectrie.errors import (
    DeadlineError,
    DecodeError,
    IncompatibleOptionsError,
    NonFiniteLogitsError,
    OptionError,
    PromptError,
    PromptTooLongError,
    QueueFullError,
    TokenRangeError,
)
from selectrie.options import PromptParams, StopParams
from selectrie.testing import FakeModel, HashModel
from selectrie.testing.fakes import WIDE
from tests.support.n_examples import n_examples

CHECK = SelfCheck(1, 0.0, 0.0)
SIZE = len(HashModel(0).vocabulary.pieces)
NARROW = replace(WIDE, nodes=12, sequences=3, rows_per_call=3)
LIMITS = {
    "wide": WIDE,
    "narrow": NARROW,
    "one row": replace(NARROW, rows_per_call=1),
    "padded": replace(WIDE, rows_per_call=8, batch_sizes=BatchSizes(4)),
    "fixed": replace(WIDE, rows_per_call=8, batch_sizes=BatchSizes.fixed({1: 1.0, 4: 2.0, 8: 3.0})),
    "recurrent": replace(WIDE, kind=ModelKind.RECURRENT, sequences=6),
    "few states": replace(NARROW, kind=ModelKind.RECURRENT, sequences=3),
    "hybrid": replace(NARROW, kind=ModelKind.HYBRID, sequences=4),
}
one_prompt = st.lists(st.integers(0, 4), min_size=1, max_size=9)
some_prompts = st.lists(one_prompt, min_size=1, max_size=8)
named_ids = st.lists(st.integers(0, SIZE - 1), max_size=3)


def engine_of(model, **options):
    return Engine(model, check=CHECK, **options)


def values_of(row, token, top, named):
    """What one row says of a token: its own value, greediness, the top and the named tokens."""
    ids, logp = row.top(0, top)
    pairs = tuple(zip(ids.tolist(), np.minimum(logp, 0.0).tolist(), strict=True))
    of_named = tuple(min(0.0, float(row.logp(0, one))) for one in named)
    return [min(0.0, float(row.logp(0, token))), int(row.best()[0]) == token, pairs, of_named]


def alone(model, tokens, first, top, named):
    """What one row after another says, as four columns; None before `first`."""
    rows = [DenseRows(model.row(tokens[:i])[None]) for i in range(first, len(tokens))]
    read = [values_of(row, token, top, named) for row, token in zip(rows, tokens[first:], strict=True)]
    return [list(column) for column in zip(*[[None] * 4 for _ in tokens[:first]], *read, strict=True)]


def needed(prompts, first):
    """The prefixes that lead to a token whose row is read."""
    return {tuple(tokens[:i]) for tokens in prompts if len(tokens) > first for i in range(1, len(tokens))}


@pytest.mark.short("narrow", "hybrid")
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@settings(max_examples=n_examples(60))
@given(
    prompts=some_prompts,
    first=st.integers(1, 5),
    asked=st.tuples(st.sampled_from([0, 1, 3, SIZE]), named_ids),
    seed=st.integers(0, 9),
)
def test_every_value_is_that_of_its_prefix_alone(limits, prompts, first, asked, seed):
    """To the last bit, in any capacity and on every kind of model, in the order of the prompts."""
    model, (top, named) = HashModel(seed, limits=limits), asked
    with engine_of(model) as engine:
        results = engine.prompt_logprobs(prompts, top=top, named=named, first=first)
    assert len(results) == len(prompts)
    for tokens, result in zip(prompts, results, strict=True):
        logp, is_greedy, tops, of_named = alone(model, tokens, first, top, named)
        assert result.tokens == tuple(tokens)
        assert list(result.logp) == logp
        assert list(result.is_greedy) == is_greedy
        assert list(result.top) == tops
        assert list(result.named) == of_named
        assert result.named_ids == tuple(named)
        assert result.n_rows == max(0, len(tokens) - first)


@settings(max_examples=n_examples(100))
@given(prompts=some_prompts, first=st.integers(1, 5))
def test_every_needed_prefix_is_evaluated_once(prompts, first):
    """Those that lead to a row that is read, and no other; the results' costs add up to them."""
    model = HashModel(1)
    with engine_of(model) as engine:
        results = engine.prompt_logprobs(prompts, first=first)
    assert set(model.evaluations) == needed(prompts, first)
    assert set(model.evaluations.values()) <= {1}
    assert sum(result.cost.rows for result in results) == model.rows
    naive = [len(tokens) - 1 if len(tokens) > first else 0 for tokens in prompts]
    assert [result.cost.rows_naive for result in results] == naive


def test_a_row_counts_for_the_first_prompt_that_needs_it():
    """By hand: 2-3-4 takes rows 2, 23, 234; 2-3-9 none further; 2-7-8-9 the rows 27 and 278; 5-6 its own first."""
    with engine_of(HashModel(1)) as engine:
        results = engine.prompt_logprobs([[2, 3, 4, 5], [2, 3, 9], [2, 7, 8, 9], [5, 6], [3]])
    assert [result.cost.rows for result in results] == [3, 0, 2, 1, 0]


def test_what_was_read_is_not_evaluated_again():
    """By hand: a second call takes the rows that it reads anew, and no other; after `trim` nothing is known."""
    model = HashModel(1)
    with engine_of(model) as engine:

        def rows_of(prompt, **options):
            before = model.rows
            result = engine.prompt_logprobs([prompt], **options)[0]
            assert list(result.logp) == alone(model, prompt, options.get("first", 1), 0, [])[0]
            assert result.cost.rows == model.rows - before
            return model.rows - before

        assert rows_of([2, 3, 4, 5, 6]) == 4
        assert rows_of([2, 3, 4, 5, 6]) == rows_of([2, 3, 4, 5, 6], first=4) == 0
        assert rows_of([2, 3, 4, 5, 6, 7, 8]) == 2  # those behind 6 and 7
        assert rows_of([2, 3, 4, 9]) == 1  # that of 2-3-4 again, because 9 was not read of it
        assert rows_of([2, 3, 4, 9]) == 0
        assert rows_of([2, 3, 4, 5, 6], top=1) == 3  # nor were the most probable tokens; row 0 is kept whole
        assert rows_of([2, 3, 4, 5, 6], named=[7]) == 3
        assert rows_of([2, 3, 7, 8], first=3) == 1  # tokens on the way whose rows are not read stay cached
        engine.generate([2, 3, 7], stopping=StopParams(max_tokens=1), prompting=PromptParams(add_bos=False))
        assert rows_of([2, 3, 7, 8], first=3) == 0
        engine.trim()
        assert rows_of([2, 3, 7, 8], first=3) == 3


@pytest.mark.parametrize("kind", list(ModelKind))
def test_calls_at_the_same_time_share_their_rows(kind):
    """Eight prompts with 60 tokens in common, in a call each, while the model is busy: each row once, up to 2 %.

    A recurrent-state model keeps states, not rows, so it evaluates what others have read on the way.
    """
    model = HashModel(3, limits=replace(WIDE, kind=kind, rows_per_call=64, sequences=16))
    shared = [2 + i % 7 for i in range(60)]
    prompts = [shared + [2 + i] * (3 + i) for i in range(8)]
    is_running, may_go_on = threading.Event(), threading.Event()

    def hold():
        is_running.set()
        may_go_on.wait(10)

    with engine_of(model) as engine:
        model.on_decode = hold
        found = [None] * len(prompts)

        def ask(i):
            found[i] = engine.prompt_logprobs([prompts[i]], top=1)[0]

        threads = [threading.Thread(target=engine.prompt_logprobs, args=([[25, 24]],))]
        threads[0].start()
        is_running.wait(10)
        threads += [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
        for thread in threads[1:]:
            thread.start()
        while engine._model_thread._inbox.qsize() < len(prompts):
            threading.Event().wait(0.001)
        model.on_decode = None
        may_go_on.set()
        for thread in threads:
            thread.join()
    for tokens, result in zip(prompts, found, strict=True):
        assert list(result.logp) == alone(model, tokens, 1, 1, [])[0]
    if not kind.is_recurrent:
        assert model.rows <= 1.02 * (len(needed(prompts, 1)) + 1)


@settings(max_examples=n_examples(40))
@given(
    calls=st.lists(
        st.tuples(some_prompts, st.sampled_from([0, 1, 3]), st.lists(st.integers(0, 5), max_size=2)),
        min_size=2,
        max_size=5,
    )
)
def test_the_values_of_one_token_come_from_one_row(calls):
    """On a model whose rows are others in every call: what is known of one row is never put beside another's."""
    hashed = HashModel(0)

    def row_of(path):
        return hashed.row(path) * np.float32(1 + model.calls / 100)

    model = FakeModel(row_of, vocabulary=hashed.vocabulary, limits=WIDE, name="drifting")
    with engine_of(model) as engine:
        for prompts, top, named in calls:
            for tokens, result in zip(prompts, engine.prompt_logprobs(prompts, top=top, named=named), strict=True):
                for i in range(1, len(tokens)):
                    values = [column[i] for column in (result.logp, result.is_greedy, result.top, result.named)]
                    logits = hashed.row(tokens[:i])
                    rows = [DenseRows((logits * np.float32(1 + n / 100))[None]) for n in range(1, model.calls + 1)]
                    assert values in [values_of(row, tokens[i], top, named) for row in rows]


@settings(max_examples=n_examples(60))
@given(prompts=some_prompts, seed=st.integers(0, 9))
def test_sums_are_those_of_the_scorer_of_log_likelihoods(prompts, seed):
    """To the last bit, and so is whether all tokens are greedy."""
    with engine_of(HashModel(seed, sharpness=3)) as engine:
        results = engine.prompt_logprobs(prompts)
        with engine.loglikelihood_scorer(16) as scorer:
            known = scorer.loglikelihoods(Sequences.of([(tokens[:1], tokens[1:]) for tokens in prompts]))
    assert [result.loglikelihood() for result in results] == list(
        zip(known.logp.tolist(), known.is_greedy.tolist(), strict=True)
    )


@pytest.mark.parametrize("text", ["cat", "ca", " cat bat", "é", "\n"])
def test_values_are_those_of_score(text):
    """A text of the prompt's own tokens: the entries of `score` behind the same prompt, to the last bit."""
    with engine_of(HashModel(4)) as engine:
        score = engine.score("a.", text, prompting=PromptParams(boundary="split"))
        ids = [0, *engine.vocabulary.tokenize(b"a."), *(one.id for one in score.tokens)]
        result = engine.prompt_logprobs([ids], first=len(ids) - len(score.tokens))[0]
    assert [one.logp for one in score.tokens] == [one for one in result.logp if one is not None]
    assert score.is_greedy == all(result.is_greedy[-len(score.tokens) :])


def test_a_tokens_own_value_equals_its_entries():
    """In `top`, where every token is, and in `named`: as floats. It is greedy where it comes first."""
    with engine_of(HashModel(2)) as engine:
        result = engine.prompt_logprobs([[0, 5, 9, 13, 5]], top=SIZE, named=[5, 9, 5])[0]
    for token, logp, is_greedy, top, named in zip(
        result.tokens[1:], result.logp[1:], result.is_greedy[1:], result.top[1:], result.named[1:], strict=True
    ):
        assert dict(top)[token] == logp
        assert is_greedy == (top[0][0] == token)
        assert named == (dict(top)[5], dict(top)[9], dict(top)[5])
        assert [one for _, one in top] == sorted((one for _, one in top), reverse=True)


@pytest.mark.parametrize("kind", [ModelKind.RECURRENT, ModelKind.HYBRID])
def test_a_long_run_takes_one_state(kind):
    """300 tokens and three ends, on a model of five states: as many rows as prefixes, in six calls, not in hundreds."""
    model = HashModel(1, limits=replace(WIDE, kind=kind, sequences=5, rows_per_call=128))
    shared = [2 + i % 7 for i in range(300)]
    prompts = [[*shared, 3, 4, 5], [*shared, 4, 4], [*shared[:200], 9, 9, 9]]
    with engine_of(model) as engine:
        results = engine.prompt_logprobs(prompts)
    assert [list(result.logp) for result in results] == [alone(model, tokens, 1, 0, [])[0] for tokens in prompts]
    assert model.rows == len(needed(prompts, 1))
    assert model.calls <= 8


def test_ties_and_impossible_tokens():
    """Equal tokens come by id, the smaller is greedy; impossible ones are left out of `top`, -inf in `named`."""
    row = np.full(SIZE, -np.inf, dtype=np.float32)
    row[[4, 7]] = 0.0
    model = FakeModel(lambda _: row, vocabulary=HashModel(0).vocabulary, limits=WIDE, name="two")
    with engine_of(model) as engine:
        result = engine.prompt_logprobs([[2, 4, 7, 9]], top=5, named=[9, 7])[0]
    half = float(DenseRows(row[None]).logp(0, 4))
    assert result.logp == (None, half, half, -np.inf)
    assert result.is_greedy == (None, True, False, False)
    assert result.top == (None, *[((4, half), (7, half))] * 3)
    assert result.named == (None, *[(-np.inf, half)] * 3)
    assert result.total_logp == -np.inf
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["logp"][3] is None


def test_ids_are_taken_as_they_are_and_text_gets_bos():
    """Ids that no text has, with and without BOS; text with BOS, unless `add_bos` is False; chats alike."""
    chat = [{"role": "user", "content": "cat"}]
    with engine_of(HashModel(2)) as engine:
        texts = engine.prompt_logprobs(["cat", [18], [3, 5, 9], chat, [0, 18], np.array([18, 5])])
        bare = engine.prompt_logprobs(["cat", [18], chat], prompting=PromptParams(add_bos=False))
        system = engine.prompt_logprobs(["cat"], prompting=PromptParams(system="a"))
    assert [one.tokens for one in texts[:3]] == [(0, 18), (18,), (3, 5, 9)]
    assert texts[3].tokens[0] == 0
    assert [one.tokens for one in texts[4:]] == [(0, 18), (18, 5)]
    assert [one.tokens for one in bare] == [(18,), (18,), texts[3].tokens[1:]]
    assert system[0].labels[:4] == ("<bos>", "s", ":", "a")
    assert texts[4] == replace(texts[0], cost=texts[4].cost)


@pytest.mark.parametrize(
    ("options", "error", "name"),
    [
        ({"top": -1}, OptionError, "top"),
        ({"top": True}, OptionError, "top"),
        ({"top": SIZE + 1}, OptionError, "top"),
        ({"first": 0}, OptionError, "first"),
        ({"first": 1.5}, OptionError, "first"),
        ({"first": None}, OptionError, "first"),
        ({"named": 3}, OptionError, "named"),
        ({"named": [1, "a"]}, OptionError, "named[1]"),
        ({"named": [-1]}, OptionError, "named[0]"),
        ({"priority": "high"}, OptionError, "priority"),
        ({"deadline_s": 0}, OptionError, "deadline_s"),
        ({"deadline_s": float("nan")}, OptionError, "deadline_s"),
        ({"prompting": None}, OptionError, "prompting"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options, error, name):
    """Before any model call, the self-check included."""
    model = HashModel(1)
    with Engine(model) as engine, pytest.raises(error) as caught:
        engine.prompt_logprobs([[1, 2, 3]], **options)
    assert caught.value.name == name
    assert model.calls == 0


@pytest.mark.parametrize(
    ("prompts", "error", "index"),
    [
        ("cat", OptionError, None),
        ([1, 2, 3], OptionError, None),
        (np.array([1, 2, 3]), OptionError, None),
        ([{"role": "user", "content": "a"}], OptionError, None),
        (3, OptionError, None),
        (None, OptionError, None),
        ([[1, 2], []], PromptError, 1),
        ([[1, 2], [1, "a"]], PromptError, 1),
        ([[1, 2], [True]], PromptError, 1),
        ([[1, 2], [0.5]], PromptError, 1),
        ([[1, 2], [SIZE]], TokenRangeError, 1),
        ([[1, 2], [-1]], TokenRangeError, 1),
        ([[1, 2], None], PromptError, 1),
        ([[1, 2], 7], PromptError, 1),
        ([[]], PromptError, None),
        ([[2] * 3, [2] * 14], PromptTooLongError, 1),
        (["a", "b" * 13], PromptTooLongError, 1),
    ],
)
def test_a_wrong_prompt_is_refused(prompts, error, index):
    """Before any model call, the self-check included; the error says which of several it is."""
    model = HashModel(1, limits=NARROW)
    with Engine(model) as engine, pytest.raises(error) as caught:
        engine.prompt_logprobs(prompts)
    assert caught.value.request == index
    assert model.calls == 0


@pytest.mark.parametrize(
    ("prompting", "prompt", "error"),
    [
        (PromptParams(delimiter=" "), [1, 2], IncompatibleOptionsError),
        (PromptParams(truncate="left"), [1, 2], IncompatibleOptionsError),
        (PromptParams(system="a"), [1, 2], IncompatibleOptionsError),
        (PromptParams(assistant_prefix="a"), "cat", IncompatibleOptionsError),
        (PromptParams(add_bos=False), "", PromptError),
    ],
)
def test_options_that_have_no_meaning_here_are_refused(prompting, prompt, error):
    """Rather than ignored."""
    model = HashModel(1)
    with Engine(model) as engine, pytest.raises(error):
        engine.prompt_logprobs([prompt], prompting=prompting)
    assert model.calls == 0


def test_a_prompt_may_fill_the_context():
    """Its last token takes no room: 13 tokens on a model of 12 nodes, of which all but the first have a value."""
    model = HashModel(1, limits=NARROW)
    with engine_of(model) as engine:
        result = engine.prompt_logprobs([[2] * 13])[0]
        assert result.n_rows == 12
        assert engine.prompt_logprobs([[2] * 13], first=13)[0].n_rows == 0


def test_prompts_without_rows_take_no_model_call():
    """One token, or none from `first` on; and no prompts at all give no results."""
    model = HashModel(1)
    with engine_of(model) as engine:
        results = engine.prompt_logprobs([[5], "", [1, 2, 3]], first=3, top=2, named=[1])
        assert engine.prompt_logprobs([]) == []
        assert engine.prompt_logprobs(iter([[5]]), named=[1]) == results[:1]
    assert model.calls == 0
    assert [one.tokens for one in results] == [(5,), (0,), (1, 2, 3)]
    for one in results:
        nothing = (None,) * len(one)
        assert (one.logp, one.is_greedy, one.top, one.named) == (nothing,) * 4
        assert (one.n_rows, one.total_logp, one.loglikelihood()) == (0, 0.0, (0.0, True))


def test_calls_at_the_same_time_get_their_own_results():
    """24 threads with prompts that share beginnings, on a small memory, with preemption: each as if alone."""
    model = HashModel(3, limits=replace(NARROW, nodes=30, rows_per_call=4, sequences=6))
    prompts = [[[2 + i % 2, 3, 4 + i % 3, *range(5, 5 + i % 5)], [2, 3, i % 7]] for i in range(24)]
    found = [None] * len(prompts)
    with engine_of(model) as engine:

        def ask(i):
            found[i] = engine.prompt_logprobs(prompts[i], top=2, named=[4], priority=i % 2)

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for given_prompts, results in zip(prompts, found, strict=True):
        for tokens, result in zip(given_prompts, results, strict=True):
            values = [list(result.logp), list(result.is_greedy), list(result.top), list(result.named)]
            assert values == alone(model, tokens, 1, 2, [4])


def test_the_awaitable_form_is_cancelled_and_leaves_nothing():
    """Cancelling it ends the work at the next call, and every node is free again; another call goes on."""
    model = HashModel(3, limits=NARROW)
    is_running, may_go_on = threading.Event(), threading.Event()

    def hold():
        is_running.set()
        may_go_on.wait(10)

    async def main(engine):
        other = asyncio.create_task(engine.aprompt_logprobs([[3, 4, 5]]))
        model.on_decode = hold
        task = asyncio.create_task(engine.aprompt_logprobs([[2] * 13]))
        await asyncio.to_thread(is_running.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        model.on_decode = None
        may_go_on.set()
        return await other

    with engine_of(model) as engine:
        result = asyncio.run(main(engine))[0]
        assert list(result.logp) == alone(model, [3, 4, 5], 1, 0, [])[0]
        engine.prompt_logprobs([[5, 6]])  # behind what was cancelled
        assert model.capacity().nodes == NARROW.nodes
    assert model.rows < 12


def test_a_deadline_ends_it():
    """With `DeadlineError`, and nothing is held afterwards."""
    model = HashModel(3, limits=replace(NARROW, rows_per_call=1))
    late = threading.Event()
    model.on_decode = lambda: late.wait(0.02)
    with engine_of(model) as engine:
        with pytest.raises(DeadlineError):
            engine.prompt_logprobs([[2] * 13], deadline_s=0.03)
        model.on_decode = None
        assert engine.prompt_logprobs([[2, 3]])[0].n_rows == 1
        assert model.capacity().nodes == NARROW.nodes


def test_a_failing_call_ends_the_request_alone():
    """The error names the prompt where its first token is no other's; the engine goes on."""
    model = HashModel(3)
    with engine_of(model) as engine:
        for prompts, index in (([[2, 3], [2, 4]], None), ([[5], [2, 3]], 1), ([[2, 3]], None)):
            model.fail_next(DecodeError("broken"))
            with pytest.raises(DecodeError) as caught:
                engine.prompt_logprobs(prompts)
            assert caught.value.request == index
        assert engine.prompt_logprobs([[2, 3]])[0].n_rows == 1


def test_a_row_that_is_not_finite_is_an_error():
    """Wherever it is read; a row that only leads to others may be anything."""
    hashed = HashModel(1)

    def row_of(path):
        return np.full(SIZE, np.nan, dtype=np.float32) if path == (2, 3) else hashed.row(path)

    model = FakeModel(row_of, vocabulary=hashed.vocabulary, limits=WIDE, name="broken")
    with engine_of(model) as engine:
        with pytest.raises(NonFiniteLogitsError):
            engine.prompt_logprobs([[2, 3, 4, 5]])
        assert list(engine.prompt_logprobs([[2, 3, 4, 5]], first=3)[0].logp) == alone(hashed, [2, 3, 4, 5], 3, 0, [])[0]


def test_a_full_queue_refuses_the_call():
    """As every request; what it had begun is withdrawn."""
    model = HashModel(1)
    is_running, may_go_on = threading.Event(), threading.Event()

    def hold():
        is_running.set()
        may_go_on.wait(10)

    with engine_of(model, max_waiting=1) as engine:
        model.on_decode = hold
        busy = threading.Thread(target=engine.prompt_logprobs, args=([[2, 3]],))
        busy.start()
        is_running.wait(10)
        with pytest.raises(QueueFullError):
            engine.prompt_logprobs([[3, 4], [5, 6], [7, 8]])
        may_go_on.set()
        busy.join()


def test_a_self_check_states_the_tolerance():
    """In `exact` precision the signature has it, and `tolerance` is the same."""
    with Engine(HashModel(1)) as engine:
        result = engine.prompt_logprobs([[2, 3, 4]])[0]
        assert result.tolerance == result.signature.tolerance == engine.tolerance
        assert result.signature.precision == "exact"
