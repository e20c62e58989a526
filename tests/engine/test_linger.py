"""What one slot of a page has evaluated is there for the next: rows are counted, and cached nodes never are in anybody's way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from selectrie import Engine, Template
from selectrie.core.types import Limits, ModelKind
from selectrie.engine.load import load
from selectrie.engine.requests import generate, select
from selectrie.engine.requests.generate import GenerateRequest
from selectrie.engine.requests.selection import SelectRequest
from selectrie.engine.requests.session import Session
from selectrie.engine.scheduler.model_thread import ModelThread
from selectrie.engine.scheduler.task_group import task_group
from selectrie.errors import CancelledError
from selectrie.options import PromptParams, RenderParams, SamplingParams, StopParams
from selectrie.testing import HashModel, TableModel
from selectrie.testing.fakes import DEFAULT_PIECES, make_vocabulary
from selectrie.tokenization.encoding import encode_prompt
from selectrie.tokenization.growing_prompt import GrowingPrompt
from selectrie.tokenization.prompts import read_prompt

CATS = ["a cat at. a cat", " cat. a cat. a cat", " car as a bat", "s at a bat. a cat", "t"]
LONG = [" cat at a bat", " car as a bat", ". a cat at a", " cats at a bat"]
WALKS = [" She was happy and sad", " She was happy", " He liked the park and the big dog", " They went to the park"]
TEXTS = (" a", "cat", " bat", ".", " car", "s", "t")
ASCII = make_vocabulary(piece for piece in DEFAULT_PIECES if piece.isascii())
"""What is drawn from it is text, whatever it is."""


@dataclass(slots=True)
class Pick:
    """A slot: one of these, before `following`."""

    choices: Sequence[str]
    following: str = ""


@dataclass(slots=True)
class Draw:
    """A slot: so many tokens, drawn."""

    n_tokens: int


@dataclass(slots=True)
class Run:
    """What a page came to. rows: evaluated for each slot. contexts: tokens before each. inner: paths of the trie's inner
    nodes of each, behind the context."""

    page: GrowingPrompt
    rows: list[int] = field(default_factory=list)
    contexts: list[list[int]] = field(default_factory=list)
    inner: list[list[tuple[int, ...]]] = field(default_factory=list)
    chosen: list[str] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        """Every token of the page."""
        return encode_prompt(self.page._vocabulary, self.page.prompt).tolist()

    @property
    def bound(self) -> int:
        """Tokens of the page, inner nodes that are not on it, and two a slot."""
        whole = self.tokens
        lost = sum(
            1
            for context, paths in zip(self.contexts, self.inner, strict=True)
            for path in paths
            if whole[: len(context) + len(path)] != [*context, *path]
        )
        return len(whole) + lost + 2 * len(self.rows)


def render(model_thread, parts, *, keep_cached=True):
    """A page of texts and slots, each decided on what stands there."""
    model = model_thread.scheduler.model
    run = Run(GrowingPrompt(model.vocabulary))
    with task_group(model_thread, keep_cached=keep_cached) as group:
        session = Session(group, model, None)
        for part in parts:
            if isinstance(part, str):
                run.page.add(part)
            elif isinstance(part, Pick):
                pick(run, session, part)
            else:
                draw(run, session, part)
    return run


def pick(run, session, part):
    """Select, and write what was selected."""
    request = SelectRequest(following=part.following)
    batch = select.prepare_selections(session.model, [(run.page.prompt, part.choices)], request)
    [question], [selection] = batch.requests, batch.run(session)
    trie = question.trie
    run.rows.append(selection.cost.rows)
    run.contexts.append(question.encoded.context.tolist())
    run.inner.append([tuple(trie.path(node)) for node in np.flatnonzero(question.needs.row)[1:].tolist()])
    run.chosen.append(selection.text)
    run.logp.append(float(selection.choices.logp.max()))
    run.page.add(selection.text)


def draw(run, session, part):
    """Generate, and write what was drawn."""
    bos = session.model.vocabulary.bos
    never = () if bos is None else (bos,)  # in the middle of a text it is none
    sampling = SamplingParams(logit_bias=dict.fromkeys(never, -1e9))
    request = GenerateRequest(seed=0, sampling=sampling, stopping=StopParams(max_tokens=part.n_tokens, ignore_eog=True))
    prepared = generate.prepare_generate(session.model, run.page.prompt, request)
    [done] = prepared.run(session)
    context = prepared.specs[0].prompt
    run.rows.append(done.cost.rows)
    run.contexts.append(context.tolist())
    run.inner.append([])
    run.chosen.append(done.text)
    run.logp.append(done.logp)
    run.page.add_drawn(context, np.array([token.id for token in done.tokens], dtype=np.int32), done.data)


@pytest.fixture
def owned():
    """Owners that are closed at the end."""
    made = []

    def make(model):
        made.append(ModelThread(model))
        return made[-1]

    yield make
    for model_thread in made:
        model_thread.close()


@pytest.fixture
def opened():
    """Owners of real models that are closed at the end."""
    made = []

    def make(path):
        made.append(load(str(path), n_threads=1, precision="fast"))
        return made[-1]._model_thread

    yield make
    for engine in made:
        engine.close()


def cats(n_slots):
    """A page of slots between short literals."""
    parts = ["a cat at a bat"]
    for place in range(n_slots):
        parts += [Pick(CATS, ". a"), ". a" + " cat" * (place % 3)]
    return parts


def walks(n_slots, literal=" Then they said to him that it was."):
    """The same in words that a small model has read."""
    parts = ["Once upon a time there was a girl."]
    for _ in range(n_slots):
        parts += [Pick(WALKS, " Then"), literal]
    return parts


@pytest.mark.short("0")
@pytest.mark.parametrize("seed", range(3))
def test_a_page_of_slots_costs_its_tokens_and_the_losing_branches(owned, seed):
    """Rows <= tokens of the page + inner nodes of losing branches + 2 a slot; and the same page as without lingering."""
    run = render(owned(HashModel(seed)), cats(12))
    assert sum(run.rows) <= run.bound
    alone = render(owned(HashModel(seed)), cats(12), keep_cached=False)
    assert (alone.page.text, alone.chosen) == (run.page.text, run.chosen)
    assert alone.logp == pytest.approx(run.logp, abs=1e-9)
    assert sum(alone.rows) > sum(run.rows)


def test_the_bound_is_broken_without_lingering(owned):
    """Where the winner is long, its rows are evaluated again: the count above can fail."""
    parts = ["a"]
    for _ in range(8):
        parts += [Pick([" cat at a bat. a cat at a bat", " c"], ". a"), "."]
    always = TableModel({})  # uniform: of two, the one of fewer tokens wins
    short = render(owned(always), parts)
    assert sum(short.rows) <= short.bound
    long_wins = [Pick([" cat at a bat. a cat at a bat"], ". a") if isinstance(p, Pick) else p for p in parts]
    run, alone = (render(owned(TableModel({})), long_wins, keep_cached=keep_cached) for keep_cached in (True, False))
    assert sum(run.rows) <= run.bound < sum(alone.rows)


def test_no_path_of_the_page_is_evaluated_twice(owned):
    """Of all prefixes of the page only ends of prompts are, once more each."""
    model = HashModel(3)
    run = render(owned(model), cats(12))
    whole = tuple(run.tokens)
    again = [n for n in range(1, len(whole) + 1) if model.evaluations[whole[:n]] > 1]
    assert set(again) <= {len(context) for context in run.contexts}
    assert max(model.evaluations.values()) <= 2


def test_what_was_generated_is_not_evaluated_again(owned):
    """A slot after 20 drawn tokens costs those of its literal and its branches."""
    model = HashModel(5, vocabulary=ASCII)
    run = render(owned(model), ["a cat", Draw(20), " a", Pick(CATS, "."), ".", Draw(5), Pick(["a", "b"])])
    assert run.rows[0] <= 3 + 19
    assert run.rows[1] <= 1 + 2 + len(run.inner[1]) + 2
    whole = tuple(run.tokens)
    assert sum(model.evaluations[whole[:n]] > 1 for n in range(1, len(whole))) <= 4


def test_rows_of_a_trained_model(opened, weights):
    """The count on a real model, and the same page as when nothing lingers."""
    model_thread = opened(weights("stories260K.gguf"))
    run = render(model_thread, walks(5))
    assert sum(run.rows) <= run.bound
    alone = render(opened(weights("stories260K.gguf")), walks(5), keep_cached=False)
    assert alone.chosen == run.chosen
    assert alone.logp == pytest.approx(run.logp, abs=1e-2)
    assert sum(alone.rows) > sum(run.rows)


def check_forks(model_thread, parts):
    """Each slot evaluates the stretch since the one before, and its branches; nothing of what stands before that."""
    run = render(model_thread, parts)
    before = 0
    for rows, context, inner in zip(run.rows, run.contexts, run.inner, strict=True):
        assert rows <= len(context) - before + len(inner) + 1
        before = len(context)
    return run


@pytest.mark.short("4")
@pytest.mark.parametrize("branches", [4, 6, 64])
def test_a_forking_model_keeps_a_state_before_each_slot(owned, branches):
    """However few states it can hold: a slot evaluates its own stretch, and answers are those of a model that need not fork."""
    limits = Limits(nodes=4096, sequences=branches, rows_per_call=512, kind=ModelKind.RECURRENT, max_idle_rows=4096)
    parts = [*cats(10), Pick(["a", "b"]), Pick(["a", "b"])]
    model = HashModel(2, limits=limits)
    run = render(owned(model), parts)
    whole = render(owned(HashModel(2)), parts)
    assert (run.page.text, run.chosen) == (whole.page.text, whole.chosen)
    assert run.logp == pytest.approx(whole.logp, abs=1e-9)
    tokens = tuple(run.tokens)
    seen = [sum(model.evaluations[tokens[:n]] for n in range(1, end + 1)) for end in map(len, run.contexts)]
    assert seen[-1] <= len(tokens) + sum(map(len, run.inner))
    if branches == 64:
        check_forks(owned(HashModel(2, limits=limits)), parts)


@pytest.mark.parametrize("shape", ["recurrent", "hybrid"])
def test_real_forking_models_evaluate_their_own_stretch(opened, tiny_model, shape):
    """Mamba and a hybrid: the count, and the answers of an engine that keeps nothing."""
    path = tiny_model("f32", shape=shape)
    parts = walks(3)
    run = check_forks(opened(path), parts)
    alone = render(opened(path), parts, keep_cached=False)
    assert alone.chosen == run.chosen
    assert alone.logp == pytest.approx(run.logp, abs=1e-2)


@pytest.mark.parametrize("name", ["tiny-rwkv-7v0-834K.gguf", "random-hybrid-qwen35.gguf"])
def test_stored_forking_models_evaluate_their_own_stretch(opened, weights, name):
    """The same on RWKV and on a hybrid with a SentencePiece vocabulary."""
    parts = walks(3, literal=" Then it was.")
    run = check_forks(opened(weights(name)), parts)
    alone = render(opened(weights(name)), parts, keep_cached=False)
    assert alone.chosen == run.chosen


def test_a_forking_model_goes_on_from_what_it_generated(owned):
    """The state of the last token drawn stays: the next slot evaluates that token's successor and its literal."""
    limits = Limits(nodes=4096, sequences=8, rows_per_call=512, kind=ModelKind.RECURRENT, max_idle_rows=4096)
    run = render(owned(HashModel(5, vocabulary=ASCII, limits=limits)), ["a cat", Draw(20), " a", Pick(CATS, ".")])
    assert run.rows[1] <= 1 + 2 + len(run.inner[1]) + 2


def check_memory(model_thread, n_slots):
    """Slots on ever new pages: what lingers is cache, which goes as room is needed, and after a while without use."""
    model, most = model_thread.scheduler.model, 0
    page = GrowingPrompt(model.vocabulary)
    page.add("a cat at a bat")
    with task_group(model_thread, keep_cached=True) as group:
        for place in range(n_slots):
            mark = page.mark()
            page.add(TEXTS[place % 7] + TEXTS[place // 7 % 7] + TEXTS[place // 49 % 7])
            select.prepare_selections(model, [(page.prompt, CATS)], SelectRequest()).run(Session(group, model, None))
            page.back_to(mark)
            most = max(most, len(model.contexts))
    model_thread.call(lambda: None)
    room, limits = model.capacity(), model.limits
    assert most <= limits.nodes + 1
    assert (room.nodes, room.sequences) == (limits.nodes, limits.sequences), "nobody holds anything"
    assert model_thread.call(lambda: model.trim(limits.max_idle_rows)) == 0, "what was idle for long is gone already"
    assert 0 < model_thread.call(lambda: model.trim(0)) <= limits.nodes
    assert len(model.contexts) == 1


KINDS = pytest.mark.parametrize("kind", [ModelKind.ATTENTION, ModelKind.RECURRENT])
TIGHT = {"nodes": 120, "sequences": 12, "rows_per_call": 64, "max_idle_rows": 40}


@KINDS
def test_many_slots_stay_within_the_models_limits(owned, kind):
    """Forty of them on a model that holds three at a time."""
    check_memory(owned(HashModel(7, limits=Limits(kind=kind, **TIGHT))), 40)


@pytest.mark.long
@KINDS
def test_a_thousand_slots_stay_within_the_models_limits(owned, kind):
    """The same over a thousand."""
    check_memory(owned(HashModel(7, limits=Limits(kind=kind, **TIGHT))), 1_000)


def test_a_crowded_model_answers_the_same(owned):
    """Where the nodes of one slot hardly fit, lingering ones give way in the middle of a task."""
    tight = Limits(nodes=60, sequences=3, rows_per_call=4, kind=ModelKind.ATTENTION, max_idle_rows=1_000)
    run = render(owned(HashModel(4, limits=tight)), cats(4))
    whole = render(owned(HashModel(4)), cats(4), keep_cached=False)
    assert (run.chosen, run.page.text) == (whole.chosen, whole.page.text)


def test_branches_go_where_nothing_lingers(owned):
    """Without it the prompt alone stays as cache, as ever; with it the branches too, held by nobody."""
    for keep_cached, stays in ((False, False), (True, True)):
        model = HashModel(1)
        model_thread = owned(model)
        run = render(model_thread, ["a cat", Pick(CATS)], keep_cached=keep_cached)
        model_thread.call(lambda: None)
        branches = set(model.contexts.values()) - {tuple(run.contexts[0][:n]) for n in range(len(run.contexts[0]) + 1)}
        assert bool(branches) is stays
        assert model.capacity().nodes == model.limits.nodes


def test_a_task_that_is_cancelled_holds_nothing(owned):
    """What it had evaluated is cache, or gone."""
    model = HashModel(1)
    model_thread = owned(model)
    page = GrowingPrompt(model.vocabulary)
    page.add("a cat")
    batch = select.prepare_selections(model, [(page.prompt, CATS)], SelectRequest())
    with task_group(model_thread, keep_cached=True) as group:
        model.on_decode = group.cancel
        with pytest.raises(CancelledError):
            batch.run(Session(group, model, None))
    model.on_decode = None
    model_thread.call(lambda: None)
    assert model.capacity().nodes == model.limits.nodes


@pytest.mark.parametrize("kind", [ModelKind.ATTENTION, ModelKind.RECURRENT])
def test_a_rendered_page_evaluates_its_tokens_once(kind):
    """Through `Engine.render`: of the tokens of a page with selects, a gen and a hidden slot, one a slot is evaluated again at
    most; a forking model evaluates what its slots chose once more each."""
    limits = Limits(nodes=4096, sequences=64, rows_per_call=512, kind=kind, max_idle_rows=4096)
    model = HashModel(11, vocabulary=ASCII, limits=limits)
    slots = "".join(f"<<select 's{place}' options=options>>. a{' cat' * (place % 3)}" for place in range(8))
    text = f"a cat at a bat<<select 'no' options=options hidden=true>>{slots}<<gen 'g' max_tokens=9 stop='never'>>. <<select 'z' options=options>>"
    with Engine(model) as engine:
        page = engine.render(Template(text), {"options": LONG}, rendering=RenderParams(seed=1))
    tokens = tuple(encode_prompt(ASCII, read_prompt(ASCII, page.text, PromptParams())).tolist())
    seen = [model.evaluations[tokens[:n]] for n in range(1, len(tokens) + 1)]
    again = sum(max(0, count - 1) for count in seen)
    chosen = sum(len(ASCII.tokenize(str(page[name]).encode())) + 2 for name in page.selections)
    assert again <= (11 if kind is ModelKind.ATTENTION else chosen)
    assert sum(count > 0 for count in seen) > len(tokens) // 2, "hardly any of the page was evaluated as it stands"
