"""`Engine.stream`: chunks that make up the sequences of `generate`, a model that never waits, and leaving early."""

from __future__ import annotations

import gc
import signal
import threading
from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import selectrie
from selectrie import GenerationParams, SamplingParams, StopParams
from selectrie.core.types import Limits, ModelKind
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.errors import CancelledError, ClosedError, DeadEndError, OptionError
from selectrie.results import Chunk, Completion
from selectrie.testing import HashModel
from tests.support.n_examples import n_examples

NOTHING_IS_CLOSE = SelfCheck(8, 0.0, 0.0)
SMALL = Limits(nodes=60, sequences=6, rows_per_call=5, kind=ModelKind.ATTENTION, max_idle_rows=4096)
ENDLESS = StopParams(max_tokens=2000, ignore_eog=True)
"""Sequences that no test waits for."""
PATIENCE_S = 20
"""After which a test that hangs has failed."""

stoppings = st.builds(
    StopParams,
    max_tokens=st.integers(1, 9),
    stop=st.lists(st.sampled_from(["at", " c", "é", "tt"]), max_size=2),
    ignore_eog=st.booleans(),
)


def engine_on(model) -> Engine:
    """An engine that measures nothing first."""
    return Engine(model, check=NOTHING_IS_CLOSE)


def put_together(chunks: list[Chunk]) -> list[Completion]:
    """What the chunks of each sequence add up to; checked against the record on the last of them, which ends it."""
    text: defaultdict[tuple[int, int], str] = defaultdict(str)
    tokens, alternatives, named = defaultdict(tuple), defaultdict(tuple), defaultdict(tuple)
    whole: dict[tuple[int, int], Completion] = {}
    for chunk in chunks:
        key = chunk.prompt_index, chunk.index
        assert key not in whole, "a chunk after the last one"
        text[key] += chunk.text
        tokens[key] += chunk.tokens
        alternatives[key] += chunk.alternatives
        named[key] += chunk.named
        if chunk.completion is not None:
            whole[key] = chunk.completion
            assert (chunk.completion.prompt_index, chunk.completion.index) == key
    assert set(whole) == set(text), "a sequence without an end"
    for key, completion in whole.items():
        assert (text[key], tokens[key]) == (completion.text, completion.tokens)
        assert (alternatives[key], named[key]) == (completion.alternatives, completion.named)
    return [whole[key] for key in sorted(whole)]


def is_idle(engine: Engine) -> bool:
    """Has the model nothing more to do, after the few steps in which it notices what was cancelled?"""
    return any(engine._model_thread.call(lambda: engine._model_thread.scheduler.idle) for _ in range(5))


@given(
    prompts=st.lists(st.sampled_from(["a", "a cat", "cat : a bat.\n"]), min_size=1, max_size=3),
    n=st.integers(1, 3),
    seed=st.integers(0, 2**40),
    stopping=stoppings,
)
@settings(max_examples=n_examples(12))
def test_chunks_make_up_the_sequences(prompts, n, seed, stopping):
    """Texts and tokens of a sequence's chunks are those of its completion, which is that of `generate`."""
    how = {
        "n": n,
        "seed": seed,
        "stopping": stopping,
        "options": GenerationParams(n_alternatives=n - 1, named=range(n)),
    }
    with engine_on(HashModel(1, limits=SMALL)) as engine:
        expected = engine.generate(prompts, **how)
        stream = engine.stream(prompts, **how)
        assert put_together(list(stream)) == list(expected)
        assert stream.generation() == expected
        assert list(stream) == []


def test_the_comparison_can_fail():
    """A chunk that is lost, told twice or told after the end is noticed."""
    with engine_on(HashModel(1)) as engine:
        chunks = list(engine.stream("a", seed=1, stopping=StopParams(max_tokens=5, ignore_eog=True)))
    assert put_together(chunks)
    for wrong in (chunks[1:], chunks[:-1], [chunks[0], *chunks], [*chunks, chunks[0]]):
        with pytest.raises(AssertionError):
            put_together(wrong)


def test_text_is_whole_characters_that_no_stop_string_takes_back():
    """No chunk ends inside a character, none shows the beginning of what turns out to be a stop string."""
    how = {
        "stopping": StopParams(max_tokens=60, stop=["cat", "é"], ignore_eog=True),
        "sampling": SamplingParams.UNCHANGED,
    }
    with engine_on(HashModel(1)) as engine:
        chunks = list(engine.stream("a", n=12, seed=1, **how))
    found = put_together(chunks)
    assert {c.stop for c in found} >= {"cat", "é"}
    assert not any("cat" in c.text or "é" in c.text for c in found)


def test_chunks_come_while_others_run():
    """Sequences take turns: the first chunks of all come before the end of any."""
    model, all_are_queued = HashModel(1), threading.Event()
    model.on_decode = lambda: all_are_queued.wait(PATIENCE_S)
    with engine_on(model) as engine:
        stream = engine.stream(["a", "b"], n=2, seed=1, stopping=StopParams(max_tokens=4, ignore_eog=True))
        all_are_queued.set()
        chunks = list(stream)
    first_end = next(place for place, chunk in enumerate(chunks) if chunk.completion is not None)
    assert {(c.prompt_index, c.index) for c in chunks[:first_end]} == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_the_model_never_waits_for_a_reader():
    """A stream that nobody reads is drawn to its end, and is read later without another model call."""
    model = HashModel(1)
    with engine_on(model) as engine:
        stream = engine.stream("a", n=2, seed=1, stopping=StopParams(max_tokens=40, ignore_eog=True))
        other = engine.generate("b", seed=1, stopping=StopParams(max_tokens=80, ignore_eog=True))
        assert len(other[0].tokens) == 80
        n_calls = model.calls
        assert [len(c.tokens) for c in put_together(list(stream))] == [40, 40]
        assert model.calls == n_calls


@pytest.mark.parametrize("how", ["close", "with", "break", "forget"])
def test_leaving_early_cancels_the_rest(how):
    """However a reader leaves: the model stops, nothing is held, and a sequence beside it is the one that it is alone."""
    model = HashModel(1)
    with engine_on(model) as engine:
        beside = engine.stream("a cat", seed=7, stopping=StopParams(max_tokens=30, ignore_eog=True))
        if how == "break":
            for _ in engine.stream(["a", "b"], n=2, stopping=ENDLESS):
                break
        else:
            stream = engine.stream(["a", "b"], n=2, stopping=ENDLESS)
            next(stream)
            if how == "close":
                stream.close()
                stream.close()
                assert list(stream) == []
                with pytest.raises(CancelledError):
                    stream.generation()
            elif how == "with":
                with stream:
                    next(stream)
            else:
                del stream
                gc.collect()
        kept = beside.generation()
        assert is_idle(engine)
        engine.trim()
        assert model.contexts == {0: ()}
        assert engine.generate("a cat", seed=7, stopping=kept.stopping) == kept


def test_a_stream_that_has_ended_cancels_nothing():
    """Closing it, or forgetting it, does not stop a decode that others share."""
    with engine_on(HashModel(1)) as engine:
        stream = engine.stream("a", stopping=StopParams(max_tokens=2))
        list(stream)
        cancelled: list[object] = []
        engine._model_thread.cancel = cancelled.append
        stream.close()
        del stream
        gc.collect()
        assert cancelled == []
        engine.stream("a", stopping=ENDLESS).close()
        assert cancelled


def test_the_error_of_one_sequence_reaches_the_reader():
    """It is raised once, what was told before stands, and the other sequences are cancelled."""

    def fails(text: str) -> bool:
        if len(text) > 10:
            raise ZeroDivisionError(text)
        return False

    with engine_on(HashModel(1)) as engine:
        stream = engine.stream("a", n=3, seed=1, stopping=replace(ENDLESS, when=fails))
        chunks = []
        with pytest.raises(ZeroDivisionError):
            chunks.extend(chunk for chunk in stream)
        assert list(stream) == []
        assert is_idle(engine)
        impossible = SamplingParams(logit_bias=dict.fromkeys(range(26), float("-inf")))
        with pytest.raises(DeadEndError):
            next(engine.stream("a", sampling=impossible))
        assert engine.generate("a", stopping=StopParams(max_tokens=3))


def test_closing_the_engine_ends_its_streams():
    """A reader meets `ClosedError`, not silence."""
    engine = engine_on(HashModel(1))
    stream = engine.stream("a", stopping=ENDLESS)
    next(stream)
    engine.close()
    with pytest.raises(ClosedError):
        list(stream)
    with pytest.raises(ClosedError):
        engine.stream("a")


def test_a_stream_keeps_its_engine():
    """`for chunk in selectrie.load(…).stream(…)`: the engine lives as long as somebody reads."""
    stream = engine_on(HashModel(1)).stream("a", seed=1, stopping=StopParams(max_tokens=9, ignore_eog=True))
    gc.collect()
    assert len(put_together(list(stream))) == 1
    ended = stream._finalizer
    del stream
    gc.collect()
    assert not ended.alive


def test_the_best_of_many_cannot_be_streamed():
    """Which they are is known only at the end."""
    with engine_on(HashModel(1)) as engine, pytest.raises(OptionError):
        engine.stream("a", options=GenerationParams(best_of=3))


def test_ctrl_c_while_waiting_cancels_and_is_raised():
    """The reader is interrupted in the middle of a wait; the model stops."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals reach the main thread")
    model = HashModel(1)
    waits = threading.Event()

    def press() -> None:
        waits.wait(PATIENCE_S)
        if model.calls == 3:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    model.on_decode = press
    with engine_on(model) as engine:
        stream = engine.stream("a", stopping=ENDLESS)

        def read() -> None:
            with stream:
                waits.set()
                list(stream)

        with pytest.raises(KeyboardInterrupt):
            read()
        assert stream.is_finished
        assert is_idle(engine)


def test_real_chunks_make_up_the_sequences(weights):
    """On a trained model too."""
    with selectrie.load(weights("stories260K.gguf"), n_threads=1, precision="fast") as engine:
        stream = engine.stream(
            ["Once upon a time", "Tom"], n=2, seed=5, stopping=StopParams(max_tokens=16, stop=["\n", "was"])
        )
        found = put_together(list(stream))
        assert stream.generation().completions == tuple(found)
    assert [c.close_steps for c in found] == [None] * 4
