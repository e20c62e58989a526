"""Memories for near ties: what they keep between two uses changes no bit of a score."""

from __future__ import annotations

from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import selectrie
from selectrie import Choice, DecisionParams
from selectrie.backends.llama_cpp.model import open_model
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.core.types import ROOT, Cost, Limits, ModelKind
from selectrie.engine.requests import selection
from selectrie.engine.requests.canonical_memory import (
    CHUNK,
    CanonicalMemories,
    Claim,
    JointCache,
    _HeldContext,
    call_ends,
    evaluate_chunks,
)
from selectrie.engine.requests.near_ties import _CallsRemain, _canonical_joints
from selectrie.engine.requests.selection import SelectRequest
from selectrie.engine.requests.session import Session
from selectrie.engine.scheduler.job import charge_to
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import CapacityError, DecodeError, DecodeInterrupted, ModelError
from selectrie.testing import HashModel
from tests.support.deciding import fake
from tests.support.settling import forget_settled

WIDE = Limits(nodes=4096, sequences=64, rows_per_call=512, kind=ModelKind.ATTENTION, max_idle_rows=4096)
BEGINNING = "The same instructions come before every text of the table. " * 16
TEXTS = ["Where is it?", "I want my money back, now!", "ok", "a longer text " * 20]


def prepared_of(model, text, terminator="auto"):
    """A selection after the beginning and a text."""
    request = SelectRequest(terminator=terminator)
    return selection.prepare_selection(model, f"{BEGINNING}{text}\nAnswer:", [" yes", " no", " not yet"], request)


def joints(model, prepared, kept, *, remembers=False):
    """The canonical scores of all choices, and their cost."""
    if kept is not None and not remembers:
        kept.cached_joints = JointCache()
    session = Session(SimpleNamespace(observer=None), model, None, kept=kept)
    values, cost = _canonical_joints(session, prepared, prepared.encoded.context, np.arange(3, dtype=np.int32))
    return values.tobytes(), cost


def joints_in_turns(model, several, kept):
    """The canonical scores of several requests that take turns, each a call of its context at a time."""
    found: dict[int, bytes] = {}
    claims = [Claim() for _ in several]
    while len(found) < len(several):
        for at, one in enumerate(several):
            if at not in found:
                kept.cached_joints = JointCache()
                session = Session(SimpleNamespace(observer=None), model, None, kept=kept)
                choices = np.arange(3, dtype=np.int32)
                with suppress(_CallsRemain):
                    found[at] = _canonical_joints(session, one, one.encoded.context, choices, claims[at])[0].tobytes()
                    claims[at] = None
    return [found[at] for at in range(len(several))]


@pytest.mark.short("embedded-[13]", "tiny-rwkv*-1")
@pytest.mark.parametrize("n_memories", [1, 3])
@pytest.mark.parametrize("name", ["embedded", "stories260K.gguf", "tiny-rwkv-7v0-834K.gguf"])
def test_kept_memories_change_no_bit_on_real_weights(name, n_memories, embedded, weights):
    """In any order, after shorter and longer texts; a recurrent-state model holds nothing, and has the same bits too."""
    path = embedded if name == "embedded" else weights(name)
    with selectrie.load(path, n_threads=1, n_ctx=2048) as llm:
        model = llm._model
        texts = TEXTS if model.limits.kind is ModelKind.ATTENTION else TEXTS[:2]  # where nothing is held, two say it
        several = [
            prepared_of(model, text, terminator) for text in texts for terminator in ("auto", "unless-continued")
        ]
        common = several[0].encoded.context[: CHUNK + 5]
        assert all(np.array_equal(one.encoded.context[: len(common)], common) for one in several)
        kept = CanonicalMemories(n_memories)
        found = llm._model_thread.call(lambda: [joints(model, one, kept) for one in [*several, *several[::-1]]])
        alone = llm._model_thread.call(lambda: [joints(model, one, None) for one in several])
        if n_memories == 1:
            turns = llm._model_thread.call(lambda: joints_in_turns(model, several, kept))
            assert turns == [bits for bits, _ in alone]
        llm._model_thread.call(kept.close)
    assert [bits for bits, _ in found] == [bits for bits, _ in [*alone, *alone[::-1]]]
    if model.limits.kind is ModelKind.ATTENTION:
        assert found[0][1].rows == alone[0][1].rows
        saved = [one.rows - own.rows for (_, own), (_, one) in zip(found[1:], alone[1:], strict=False)]
        assert min(saved) >= CHUNK  # what all contexts have in common
        assert max(saved) > 4 * CHUNK  # the same context again


def test_a_context_is_evaluated_in_the_same_calls_whatever_is_there():
    """In chunks, then in whole multiples of 8; the last token is never among them, and nothing is evaluated again."""
    model = HashModel(1, limits=WIDE)
    context = np.array([i % 4 + 1 for i in range(3 * CHUNK)], dtype=np.int32)
    ends = {1: [], 8: [], 9: [8], 32: [24], 33: [32], 64: [32, 56], 65: [32, 64], 192: [32, 64, 128, 184]}
    assert {n: call_ends(context[:n]) for n in ends} == ends
    node, cost = evaluate_chunks(model, context[: CHUNK + 1])
    assert (cost.rows, model.contexts[node]) == (CHUNK, tuple(context[:CHUNK]))
    longer, cost = evaluate_chunks(model, context)
    assert (cost.rows, len(model.contexts[longer])) == (2 * CHUNK - 8, 3 * CHUNK - 8)
    model.release(np.array([node, longer], dtype=np.int32))
    assert evaluate_chunks(model, context[:0])[0] == ROOT


def test_requests_that_take_turns_have_the_scores_of_each_alone():
    """A long context is evaluated call by call; others meanwhile take other memories and leave its own."""
    model = HashModel(1, limits=WIDE, vocabulary=fake()._model.vocabulary)
    several = [prepared_of(model, text) for text in TEXTS]
    kept = CanonicalMemories()
    assert joints_in_turns(model, several, kept) == [joints(model, one, None)[0] for one in several]
    assert len(kept._kept) == 1
    claim = Claim()
    context = several[0].encoded.context
    steps = 0
    kept.close()
    while kept.advance(model, context, len(context) + 8, claim) is not None:
        steps += 1
        assert kept.advance(model, context, len(context) + 8, Claim()) is None  # one context at a time
    assert steps == len(call_ends(context)) - 2
    del claim
    assert kept._claimed_by_others(Claim()) is None
    kept.close()


def test_others_are_answered_while_a_long_context_is_settled(monkeypatch):
    """Between two calls of its context; before, they waited for all of them."""
    with fake() as llm:
        llm._runtime.check = selectrie.engine.precision_check.SelfCheck(batch_multiple=1, moved=0.0, tolerance=50.0)
        answered = []
        advance = Session.advance_memory

        def advanced(self, context, n_nodes, claim):
            cost = advance(self, context, n_nodes, claim)
            answered.append(cost is not None)
            return cost

        call = TaskGroup.call

        def called(self, function):
            found = call(self, function)
            if answered[-1:] == [True] and "small" not in answered:
                answered.append("small")
                assert llm.score("b", "c").logp < 0
            return found

        monkeypatch.setattr(Session, "advance_memory", advanced)
        monkeypatch.setattr(TaskGroup, "call", called)
        long = llm.select(BEGINNING, ["a", "b"])
        assert answered[:2] == [True, "small"]
        assert answered[-1] is False
        assert long.certificate.n_rescored == 2
        monkeypatch.undo()
        forget_settled(llm)
        monkeypatch.setattr(Session, "advance_memory", lambda *_: None)
        at_once = llm.select(BEGINNING, ["a", "b"])
    assert long.choices.logp.tobytes() == at_once.choices.logp.tobytes()


@pytest.fixture(scope="module")
def quantised(tiny_model):
    """A model with quantised weights all of whose choices are near ties."""
    with selectrie.load(tiny_model("q8_0"), n_threads=1, n_ctx=1024) as llm:
        llm._runtime.check = replace(llm._runtime.check, tolerance=50.0)
        yield llm


def test_a_near_tie_behind_a_long_prompt_takes_no_row_of_it(quantised, monkeypatch):
    """The prompt is evaluated once, where near ties are, and copied; also when another one had its place in between. The
    scores have the bits of a prompt that is evaluated again."""
    one, other = (f"{text} {BEGINNING[:500]}" for text in ("cold", "warm"))
    n_tokens = len(quantised.encode(one))
    asked = [(prompt, choices) for choices in ([" ab", " cd"], [" ef", " gh"]) for prompt in (one, other)]
    quantised.trim()
    forget_settled(quantised)
    found = [quantised.select(*request) for request in asked]
    assert [answer.certificate.n_rescored for answer in found] == [2] * 4
    assert n_tokens <= found[0].cost.rows < n_tokens + 40
    assert max(answer.cost.rows for answer in found[2:]) < 40
    quantised.trim()
    forget_settled(quantised)
    monkeypatch.setattr(Session, "copy_prompts", lambda *_: Cost())
    again = [quantised.select(*request) for request in asked]
    assert min(answer.cost.rows for answer in again) > n_tokens // 2
    assert [a.choices.logp.tobytes() for a in again] == [a.choices.logp.tobytes() for a in found]


def test_tokens_that_the_model_had_before_are_all_that_is_evaluated_again(quantised, monkeypatch):
    """A shorter prompt, which is not copied, may bring the first tokens of a long one, if only BOS. What was copied below
    them is taken back, and the scores have the bits of a prompt that is evaluated again."""
    one, other = (f"cold {text} {BEGINNING[:500]}" for text in ("rain", "snow"))
    near, far = [" ab", " cd"], [" ef", " gh"]
    quantised.trim()
    forget_settled(quantised)
    quantised.select("cold", far)
    for prompt in (one, other):
        assert quantised.select(prompt, far).certificate.n_rescored == 2
    found = quantised.select(one, near)
    assert found.cost.rows < 32 + 40
    quantised.trim()
    forget_settled(quantised)
    monkeypatch.setattr(Session, "copy_prompts", lambda *_: Cost())
    again = quantised.select(one, near)
    assert again.cost.rows > len(quantised.encode(one))
    assert again.choices.logp.tobytes() == found.choices.logp.tobytes()


def test_a_memory_that_was_emptied_for_another_prompt_holds_nothing_of_the_first(tiny_model):
    """Also if the other prompt's first call was interrupted."""
    first, other = np.arange(3, 203, dtype=np.int32), np.arange(203, 403, dtype=np.int32)
    kept = _HeldContext()
    with open_model(tiny_model("q8_0"), LlamaOptions(n_ctx=512, n_threads=1)) as model:
        kept.hold_prefix(model, first, 300)
        kept.advance(first)
        kept.advance(first)
        assert kept.reusable_length(first) == 64
        kept.hold_prefix(model, other, 300)
        assert kept.reusable_length(first) == 0
        kept.close()


def test_questions_about_one_text_share_the_prompt_that_is_copied(quantised):
    """What their prompts have in common is evaluated once; a near tie of a question takes no row of it."""
    questions = {name: Choice(f"Is it {name}?", ["good", "bad"]) for name in ("a", "b", "c")}
    params = DecisionParams(layout="state first")
    forget_settled(quantised)
    quantised.trim()
    text = "word " * 60
    first = quantised.decide(text, questions, params=params)
    quantised.trim()
    alone = []
    for name, question in questions.items():
        forget_settled(quantised)
        quantised.trim()
        alone.append(quantised.decide(text, {name: question}, params=params).usage.cost.rows)
    shared = len(quantised.encode(text))
    assert first.usage.cost.rows < sum(alone) - 3 * shared // 2


@pytest.mark.parametrize("error", [ModelError("no memory"), CapacityError("cells", required=9, available=1)])
def test_a_prompt_that_cannot_be_evaluated_apart_is_evaluated_as_others_are(quantised, monkeypatch, error):
    """As where there is no memory for a second context."""

    def refused(*_, **__):
        raise error

    expected = quantised.select(f"{BEGINNING[:300]}once", [" ab", " cd"])
    monkeypatch.setattr(CanonicalMemories, "copy_chunks", refused)
    quantised.trim()
    forget_settled(quantised)
    answer = quantised.select(f"{BEGINNING[:300]}once", [" ab", " cd"])
    assert answer.choices.logp.tobytes() == expected.choices.logp.tobytes()


def test_a_full_model_evaluates_no_prompt_apart(quantised, monkeypatch):
    """A prompt that could not be copied would be evaluated twice."""
    prompt = f"full {BEGINNING[:500]}"
    quantised.trim()
    forget_settled(quantised)
    room = quantised._model.capacity()
    monkeypatch.setattr(type(quantised._model), "capacity", lambda _: replace(room, nodes=100))
    done, cost = quantised._model_thread.call(
        lambda: quantised._runtime._kept.copy_chunks(quantised._model, quantised.encode(prompt), Claim())
    )
    assert (done, cost.rows) == (True, 0)


def test_what_was_evaluated_apart_is_not_reused(quantised):
    """An account is told of the rows of a new prompt, and of no reused token but those that were there."""
    told = SimpleNamespace(rows=0, reused=0, admitted=lambda: None)
    told.spent = lambda cost: setattr(told, "rows", told.rows + cost.rows)

    def reused(n_tokens):
        told.reused += n_tokens

    account = SimpleNamespace(note_admission=told.admitted, add_cost=told.spent, add_reused=reused)
    quantised.trim()
    forget_settled(quantised)

    def ask():
        charge_to(account)
        return quantised.select(f"new {BEGINNING[:500]}", [" ab", " cd"])

    answer = copy_context().run(ask)
    assert told.rows == answer.cost.rows
    assert told.reused == 0


def test_an_interrupted_prompt_goes_on_where_it_was():
    """What others interrupt is not evaluated from its beginning again."""
    model = HashModel(1, limits=WIDE, vocabulary=fake()._model.vocabulary)
    context = prepared_of(model, "x").encoded.context
    kept, claim = CanonicalMemories(), Claim()
    rows = kept.advance(model, context, len(context) + 8, claim).rows
    (memory,) = kept._kept
    memory.model.fail_next(DecodeInterrupted("by others", return_code=2))
    with pytest.raises(DecodeInterrupted):
        kept.advance(model, context, len(context) + 8, claim)
    while (cost := kept.advance(model, context, len(context) + 8, claim)) is not None:
        rows += cost.rows
    assert rows == call_ends(context)[-3]
    kept.close()


def test_a_failure_frees_the_memory_and_the_next_use_gets_a_new_one():
    """The scores are then those of before."""
    model = HashModel(1, limits=WIDE, vocabulary=fake()._model.vocabulary)
    one = prepared_of(model, "x")
    kept = CanonicalMemories()
    expected = joints(model, one, kept)[0]
    (memory,) = kept._kept
    memory.model.fail_next(DecodeError("no"))
    with pytest.raises(DecodeError):
        joints(model, one, kept)
    assert not kept._kept
    assert joints(model, one, kept)[0] == expected
    kept.close()
    assert joints(model, one, None)[0] == expected


def test_what_was_settled_is_not_evaluated_again():
    """The same near ties cost no row, whatever other choices stand beside them; another context and terminator do."""
    model = HashModel(1, limits=WIDE, vocabulary=fake()._model.vocabulary)
    kept = CanonicalMemories()
    first, cost = joints(model, prepared_of(model, "x"), kept, remembers=True)
    assert cost.rows > 0
    again, cost = joints(model, prepared_of(model, "x"), kept, remembers=True)
    assert (again, cost.rows) == (first, 0)
    for other in (prepared_of(model, "y"), prepared_of(model, "x", "eog")):
        assert joints(model, other, kept, remembers=True)[1].rows > 0
    kept.clear()
    forgotten, cost = joints(model, prepared_of(model, "x"), kept, remembers=True)
    assert forgotten == first
    assert cost.rows > 0


def test_the_scores_that_were_used_last_are_remembered(monkeypatch):
    """Beyond the limit, those that were not used for longest go."""
    monkeypatch.setattr("selectrie.engine.requests.canonical_memory._MAX_JOINTS", 2)
    settled = JointCache()
    settled.put(b"a", (1.0, 1.0))
    settled.put(b"b", (2.0, 2.0))
    assert settled.get(b"a") == (1.0, 1.0)
    settled.put(b"c", (3.0, 3.0))
    assert [key in settled for key in (b"a", b"b", b"c")] == [True, False, True]


def test_a_request_keeps_what_it_found_when_its_new_scores_need_the_room(monkeypatch):
    """One old score and new ones, with room for one: the answer has all of them."""
    monkeypatch.setattr("selectrie.engine.requests.canonical_memory._MAX_JOINTS", 1)
    model, kept = HashModel(1, limits=WIDE, vocabulary=fake()._model.vocabulary), CanonicalMemories()
    one = prepared_of(model, "x")
    session = Session(SimpleNamespace(observer=None), model, None, kept=kept)
    _canonical_joints(session, one, one.encoded.context, np.array([1], dtype=np.int32))
    values, cost = _canonical_joints(session, one, one.encoded.context, np.arange(3, dtype=np.int32))
    assert (values.tobytes(), cost.rows > 0) == (joints(model, one, None)[0], True)


def test_near_ties_of_a_table_evaluate_what_rows_share_once():
    """Two options of one path's bytes tie in every row; later rows cost less than the first one by the question."""
    question = {"q": Choice("word " * 60, ["a", "b"])}
    vocabulary = fake()._model.vocabulary
    params = DecisionParams(layout="questions first")
    with fake() as llm:
        llm._runtime.check = selectrie.engine.precision_check.SelfCheck(batch_multiple=1, moved=0.0, tolerance=50.0)
        assert vocabulary is not None
        with llm.decision_scorer(question, params=params) as scorer:
            first, second = (scorer.decisions([text])[0]["q"] for text in ("x", "y"))
        alone = llm.decide("y", question, params=params)["q"]
    assert first.selection.certificate.n_rescored == second.selection.certificate.n_rescored == 2
    assert second.selection.choices.logp.tobytes() == alone.selection.choices.logp.tobytes()
    assert second.usage.cost.rows < alone.usage.cost.rows - 2 * CHUNK
