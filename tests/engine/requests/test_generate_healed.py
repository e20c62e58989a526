"""Healed generation: the prompt's last token is taken back, and what is drawn spells its bytes before anything else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import exp, fsum, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import selectrie
from selectrie import EngineDrafter, GenerationParams, Grammar, LookupDrafter, PromptParams, SamplingParams, StopParams
from selectrie.core.numerics import uniform
from selectrie.core.rows import DenseRows
from selectrie.core.types import Limits, ModelKind
from selectrie.decoding.sampling.sampler import Sampler
from selectrie.decoding.sampling.sequence import AllowedTokens
from selectrie.decoding.sampling.task import SampleSpec, SampleTask
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.errors import DeadEndError, OptionError, PromptTooLongError, ProtocolError
from selectrie.results import Completion
from selectrie.testing import HashModel, TableModel, make_vocabulary
from selectrie.testing.fakes import BOS, EOS, spell
from selectrie.testing.oracles import probabilities
from selectrie.tokenization.canonical import reopen
from selectrie.tokenization.encoding import PromptText
from selectrie.tokenization.healing import HealedBytes
from tests.support.n_examples import n_examples
from tests.support.vocabularies import start_of, vocabulary_of

VOCABULARY = make_vocabulary()
PIECES = VOCABULARY.pieces
HEAL = GenerationParams(heal=True)
SMALL = Limits(nodes=60, sequences=6, rows_per_call=5, kind=ModelKind.ATTENTION, max_idle_rows=4096)
FORKING = Limits(nodes=400, sequences=8, rows_per_call=16, kind=ModelKind.RECURRENT, max_idle_rows=4096)

prompts = st.text("a bcrstu.:\né", min_size=1, max_size=8)
seeds = st.integers(0, 2**31)
samplings = st.sampled_from(
    [
        SamplingParams(),
        SamplingParams.GREEDY,
        SamplingParams.UNCHANGED,
        SamplingParams(temperature=1.4, top_k=6, repeat_penalty=1.2, penalty_last_n=5, logit_bias={3: -2.0, 18: 1.0}),
    ]
)
stoppings = st.builds(
    StopParams,
    max_tokens=st.integers(1, 7),
    stop=st.lists(st.sampled_from(["at", " c", "é", "tt", " "]), max_size=2),
    stop_tokens=st.lists(st.integers(2, 25), max_size=3),
    ignore_eog=st.booleans(),
)


def engine_on(model) -> Engine:
    """An engine that measures nothing first."""
    return Engine(model, check=SelfCheck(8, 0.0, 0.0))


def agreeing(left: bytes) -> list[int]:
    """Tokens that begin what is left of the healed bytes, are it, or go beyond: by looking at every one."""
    return [t for t, piece in enumerate(PIECES) if piece and (piece.startswith(left) or left.startswith(piece))]


def n_kept(prompt: str) -> int:
    """How many of a prompt's own tokens stay: up to the last end of one that no piece spans whatever follows, by every piece."""
    text, tokens = prompt.encode(), VOCABULARY.tokenize(prompt.encode())

    def spans(piece: bytes, place: int) -> bool:
        cuts = [cut for cut in range(1, len(piece)) if text[:place].endswith(piece[:cut])]
        return any(text[place:].startswith(piece[cut:]) or piece[cut:].startswith(text[place:]) for cut in cuts)

    for n in range(len(tokens) - 1, 0, -1):
        place = len(VOCABULARY.decode(tokens[:n]))
        if text[place] & 0xC0 != 0x80 and not any(spans(piece, place) for piece in PIECES):
            return n
    return 0


def twin(model, prompt: str, seed: int, sampling: SamplingParams, stopping: StopParams) -> dict[str, object]:
    """The slow version: each step evaluates the whole path anew, looks at every token, and reads all bytes again."""
    own = VOCABULARY.tokenize(prompt.encode())
    context, healed = [BOS, *own[: n_kept(prompt)]], VOCABULARY.decode(own[n_kept(prompt) :])
    drawn: list[int] = []
    log_heal, ends, text_tokens, n_heal = 0.0, None, [], 0
    while ends is None:
        path = [*context, *drawn]
        before = b"".join(PIECES[t] for t in drawn)
        left = healed[len(before) :]
        allowed = agreeing(left) if left else [t for t in range(len(PIECES)) if t != EOS or not stopping.ignore_eog]
        row = DenseRows(model.row(path)[None])
        sampler = Sampler(sampling, np.array(path, dtype=np.int32))
        token = sampler.draw(row, 0, uniform(seed, len(drawn)), allowed=np.array(allowed, dtype=np.int32)).token
        if left:
            log_heal += log(fsum(probabilities(model, path)[t] for t in allowed))
        drawn.append(token)
        only_heals = 0 < len(PIECES[token]) <= len(left) and token != EOS
        n_heal += only_heals
        if not only_heals and (token == EOS or token in stopping.stop_tokens):
            ends = ("eog" if token == EOS else "stop", None)
            continue
        text_tokens = list(drawn)
        data = b"".join(PIECES[t] for t in drawn)[len(healed) :]
        found = [(data.find(s) + len(s), -len(s), s) for s in (t.encode() for t in stopping.stop) if s in data]
        if found:
            ends = ("stop", min(found)[2].decode())
        elif len(drawn) - n_heal == stopping.max_tokens:
            ends = ("length", None)
    data = b"".join(PIECES[t] for t in text_tokens)[len(healed) :]
    if ends[1] is not None:
        data = data[: data.find(ends[1].encode())] if len(stopping.stop) == 1 else data[: min(found)[0] + min(found)[1]]
    return {"tokens": drawn, "data": data, "ends": ends, "healed": healed, "log_heal": log_heal}


def facts(one: Completion) -> dict[str, object]:
    """What the twin tells of a sequence."""
    return {
        "tokens": [token.id for token in one.tokens],
        "data": one.data,
        "ends": (one.finish, one.stop),
        "healed": one.healed,
        "log_heal": pytest.approx(one.log_heal, abs=1e-5),
    }


# What is drawn


@given(prompt=prompts, seed=seeds, sampling=samplings, stopping=stoppings)
def test_a_healed_sequence_is_the_slow_one(prompt, seed, sampling, stopping):
    """Tokens, text, end and the cost of healing are those of looking at every token of every row."""
    model = HashModel(1)
    with engine_on(model) as engine:
        one = engine.generate(prompt, seed=seed, sampling=sampling, stopping=stopping, options=HEAL)[0]
    expected = twin(model, prompt, seed, sampling, stopping)
    assert facts(one) == expected
    assert one.logp == pytest.approx(sum(token.logp for token in one.tokens) - expected["log_heal"], abs=1e-5)
    # The other way round: what was kept and drawn spells the prompt, and then the text.
    kept = VOCABULARY.decode(VOCABULARY.tokenize(prompt.encode())[: n_kept(prompt)])
    spelt = kept + b"".join(token.piece for token in one.tokens)
    given_bytes = prompt.encode() + one.data
    assert spelt.startswith(given_bytes) or given_bytes.startswith(spelt)
    assert one.ended_by == (one.tokens[-1].id if one.stop is None and one.finish in ("eog", "stop") else None)


def test_the_comparison_with_the_slow_one_can_fail():
    """Another seed, or nothing healed, is another sequence."""
    model, stopping = HashModel(1), StopParams(max_tokens=9, ignore_eog=True)
    expected = twin(model, "a c", 5, SamplingParams.UNCHANGED, stopping)
    how = {"sampling": SamplingParams.UNCHANGED, "stopping": stopping}
    with engine_on(model) as engine:
        assert facts(engine.generate("a c", seed=5, options=HEAL, **how)[0]) == expected
        assert facts(engine.generate("a c", seed=6, options=HEAL, **how)[0]) != expected
        assert facts(engine.generate("a c", seed=5, **how)[0]) != expected


def test_a_walk_that_can_be_checked_by_hand():
    """After "a", " c" may go on as " cat" or " car"; " b" may not come, and the rest of the row is no probability of it."""
    table = {
        ("a",): {" cat": 0.3, " c": 0.1, " ": 0.1, " b": 0.5},
        ("a", " cat"): {"s": 1.0},
        ("a", " "): {"b": 0.75, "ca": 0.2, "c": 0.05},
        ("a", " ", "ca"): {"t": 1.0},
    }
    with engine_on(TableModel(table)) as engine:
        how = {"stopping": StopParams(max_tokens=2), "options": HEAL}
        most = engine.generate("a c", sampling=SamplingParams.GREEDY, **how)[0]
        one = {**how, "stopping": StopParams(max_tokens=1)}
        by_space = engine.generate("a c", sampling=SamplingParams(temperature=0, logit_bias={18: -50, 19: -50}), **one)[
            0
        ]
        less = SamplingParams(temperature=0, logit_bias=dict.fromkeys(spell(VOCABULARY, [" cat", " c", " car"]), -50.0))
        cut = engine.generate("a c", sampling=less, stopping=StopParams(max_tokens=1), options=HEAL)[0]
        through = engine.generate("a c", sampling=less, stopping=StopParams(max_tokens=2), options=HEAL)[0]
    assert (most.text, most.healed) == ("ats", b" c")
    assert most.log_heal == pytest.approx(log(0.5))  # " cat", " c", " "
    assert most.logp == pytest.approx(log(0.3 / 0.5))
    assert by_space.healed == b" c"
    assert (cut.text, cut.finish, len(cut.tokens)) == ("a", "length", 2)  # the space spells healed bytes alone
    assert through.text == "at"  # " ", "ca", "t"
    assert through.log_heal == pytest.approx(log(0.5) + log(0.25))  # "ca" and "c" agree with what is left of " c"
    assert through.logp == pytest.approx(log(0.1 / 0.5) + log(0.2 / 0.25))


def test_log_probabilities_are_those_of_being_drawn():
    """From the model's own distribution every healed sequence comes as often as its `logp` says: together they are one."""
    stopping, total, n_seen = StopParams(max_tokens=2), [], Counter()
    model = HashModel(2, sharpness=2)
    with engine_on(model) as engine:
        drawn = engine.generate(
            "a c", n=300, seed=1, sampling=SamplingParams.UNCHANGED, stopping=stopping, options=HEAL
        )
    p = {tuple(token.id for token in one.tokens): exp(one.logp) for one in drawn}
    n_seen.update(tuple(token.id for token in one.tokens) for one in drawn)
    context, healed = [BOS, 3], b" c"

    def walk(path, logp):
        """Every sequence of at most two tokens, and its log-probability by definition."""
        left = healed[len(b"".join(PIECES[t] for t in path)) :]
        if len(path) == 2 or EOS in path:
            total.append(exp(logp))
            if path in p:
                assert p[path] == pytest.approx(exp(logp), rel=1e-5)
            return
        row = probabilities(model, [*context, *path])
        tokens = agreeing(left) if left else range(len(PIECES))
        mass = fsum(row[t] for t in tokens)
        for token in tokens:
            if row[token] > 0:
                walk((*path, token), logp + log(row[token] / mass))

    walk((), 0.0)
    assert fsum(total) == pytest.approx(1)
    best = max(p, key=p.__getitem__)
    assert abs(n_seen[best] / 300 - p[best]) < 0.12


@given(prompt=prompts, seed=seeds)
def test_a_token_that_comes_again_changes_nothing(prompt, seed):
    """Where the prompt's own token is sure to be drawn again, what follows is what follows it unhealed."""
    tokens, n = (BOS, *VOCABULARY.tokenize(prompt.encode())), 1 + n_kept(prompt)
    rows = {tokens[:at]: np.full(len(PIECES), -np.inf) for at in range(n, len(tokens))}
    for at in range(n, len(tokens)):
        rows[tokens[:at]][tokens[at]] = 0.0
    model = HashModel(seed, planted=rows)
    how = {"sampling": SamplingParams.GREEDY}
    with engine_on(model) as engine:
        plain = engine.generate(prompt, stopping=StopParams(max_tokens=6, stop=["at"]), **how)[0]
        healed = engine.generate(prompt, stopping=StopParams(max_tokens=6, stop=["at"]), options=HEAL, **how)[0]
    assert (healed.text, healed.finish, healed.logp) == (plain.text, plain.finish, pytest.approx(plain.logp))
    assert healed.tokens[len(tokens) - n :] == plain.tokens
    assert healed.log_heal == pytest.approx(0)


def test_after_the_healed_bytes_nothing_is_masked():
    """The state that is left is the one without an automaton: no row of flags is made, the end may come."""
    for ignore in (False, True):
        free = AllowedTokens(len(PIECES), VOCABULARY.eog, None, ignore_eog=ignore)
        healed = AllowedTokens(len(PIECES), VOCABULARY.eog, HealedBytes(VOCABULARY, b" c"), ignore_eog=ignore)
        assert healed.allowed.tolist() == sorted(agreeing(b" c"))
        for token in spell(VOCABULARY, [" ", "ca", "b"]):
            healed.advance(token)
        assert (healed.allowed is None) == (free.allowed is None) == (not ignore)
        assert not healed.is_over


# What ends it


def test_stops_and_the_callback_see_the_text_alone():
    """A stop text in the healed bytes, a stop token that only heals, and a callback that would end at "" end nothing."""
    heard: list[str] = []

    def note(text: str) -> bool:
        heard.append(text)
        return len(heard) == 2

    table = {("a",): {" ": 1.0}, ("a", " "): {"c": 1.0}, ("a", " ", "c"): {"b": 1.0}, ("a", " ", "c", "b"): {"c": 1.0}}
    with engine_on(TableModel(table)) as engine:
        stopping = StopParams(max_tokens=9, stop=[" c"], stop_tokens=spell(VOCABULARY, [" ", "c"]), when=note)
        one = engine.generate("a c", sampling=SamplingParams.GREEDY, stopping=stopping, options=HEAL)[0]
        assert [token.piece for token in one.tokens] == [b" ", b"c", b"b", b"c"]
        assert (one.text, one.finish, one.stop, one.ended_by) == ("b", "stop", None, 5)
        assert heard == ["b"]
        heard.clear()
        called = engine.generate(
            "a c", sampling=SamplingParams.GREEDY, stopping=replace(stopping, stop_tokens=()), options=HEAL
        )
        assert (called[0].text, called[0].finish) == ("bc", "callback")


def test_a_stop_token_may_go_beyond_the_healed_bytes():
    """Its text is no part of the text, as without healing."""
    with engine_on(TableModel({("a",): {" cat": 1.0}})) as engine:
        stopping = StopParams(stop_tokens=spell(VOCABULARY, [" cat"]))
        one = engine.generate("a c", sampling=SamplingParams.GREEDY, stopping=stopping, options=HEAL)[0]
    assert (one.text, one.finish, one.ended_by) == ("", "stop", 19)


def test_a_deadline_inside_the_healed_bytes_leaves_no_text():
    """What was drawn until then is no text yet."""
    context = np.array([BOS, 3], dtype=np.int32)
    spec = SampleSpec(context, PIECES, VOCABULARY.eog, 0, healed=HealedBytes(VOCABULARY, b" c"))
    task = SampleTask(spec)
    task.tell(DenseRows(TableModel({("a",): {" ": 1.0}}).row(context)[None]))
    task.expire()
    assert (task.result().text, task.result().finish, task.n_tokens) == ("", "deadline", 1)


def test_a_bias_against_every_spelling_is_a_dead_end():
    """Nothing is drawn against the prompt's bytes."""
    bias = dict.fromkeys(agreeing(b" c"), -np.inf)
    with engine_on(HashModel(1)) as engine, pytest.raises(DeadEndError):
        engine.generate("a c", sampling=SamplingParams(logit_bias=bias), options=HEAL)


# Beside others


@given(given_prompts=st.lists(prompts, min_size=1, max_size=3), n=st.integers(1, 3), seed=seeds, sampling=samplings)
@settings(max_examples=n_examples(10))
def test_every_sequence_is_what_it_is_alone_on_any_model(given_prompts, n, seed, sampling):
    """Many prompts, short rooms and forking models: the records of one sequence at a time on a wide one."""
    how = {"sampling": sampling, "stopping": StopParams(max_tokens=6, stop=["tt"]), "options": HEAL}
    with engine_on(HashModel(1)) as engine:
        expected = [
            replace(engine.generate(prompt, seed=seed + i, **how)[0], prompt_index=place, index=i)
            for place, prompt in enumerate(given_prompts)
            for i in range(n)
        ]
    for limits in (SMALL, FORKING):
        with engine_on(HashModel(1, limits=limits)) as engine:
            assert list(engine.generate(given_prompts, n=n, seed=seed, **how)) == expected


@pytest.mark.parametrize("draft", ["itself", "another", "look-up"])
def test_a_draft_changes_nothing(draft):
    """Guesses within the healed bytes and beyond move no record."""
    how = {"n": 3, "seed": 9, "sampling": SamplingParams(temperature=0.5), "stopping": StopParams(max_tokens=12)}
    second = engine_on(HashModel(6 if draft == "itself" else 7, sharpness=3))
    with engine_on(HashModel(6, sharpness=3)) as engine, second:
        expected = engine.generate(["a c", "b bat b"], options=HEAL, **how)
        drafter = LookupDrafter(2) if draft == "look-up" else EngineDrafter(second, depth=3, branching=2)
        drafted = engine.generate(["a c", "b bat b"], draft=drafter, options=HEAL, **how)
    assert drafted == expected
    assert sum(c.n_drafted for c in drafted) > 0


@given(prompt=prompts, seed=seeds)
@settings(max_examples=n_examples(12))
def test_a_stream_brings_the_same(prompt, seed):
    """The texts of the chunks are the text, their tokens all that were drawn."""
    how = {"n": 2, "seed": seed, "stopping": StopParams(max_tokens=6, stop=["at"]), "options": HEAL}
    with engine_on(HashModel(3)) as engine:
        expected = engine.generate(prompt, **how)
        with engine.stream(prompt, **how) as chunks:
            seen = list(chunks)
            assert chunks.generation() == expected
    for one in expected:
        own = [chunk for chunk in seen if chunk.index == one.index]
        assert "".join(chunk.text for chunk in own) == one.text
        assert sum((chunk.tokens for chunk in own), ()) == one.tokens


# With a constraint


def test_choices_are_healed_as_they_are_for_select():
    """A choice that joins the prompt's last token is drawn by the joint encoding; every choice can come."""
    choices = ["at", "ar", "u", "bb"]
    with engine_on(HashModel(5)) as engine:
        options = GenerationParams(choices=choices, heal=True)
        drawn = engine.generate("a c", n=40, seed=1, sampling=SamplingParams.UNCHANGED, options=options)
        assert set(drawn.texts) == set(choices)
        greedy = engine.generate("a c", sampling=SamplingParams.GREEDY, options=options)[0]
        selection = engine.select("a c", choices, terminator="none")
        plan = engine.tokens("a c", choices)
        too_few = StopParams(max_tokens=1)
        with pytest.raises(OptionError, match="at least 2"):
            engine.generate("a c", stopping=too_few, options=options)
    assert greedy.text == choices[selection.greedy_index]
    assert {one.healed for one in drawn} == {plan.healed} == {b" c"}
    paths = {c.text: [token.id for token in c.tokens] for c in drawn}
    assert paths["at"] == list(spell(VOCABULARY, [" cat"]))
    assert paths["u"] == list(spell(VOCABULARY, [" c", "u"]))


def test_a_grammar_goes_on_within_the_token():
    """Texts of the grammar alone come, cut into tokens that may begin in the prompt; a delimiter stands between."""
    grammar = Grammar.from_regex("at|ar|bat")
    with engine_on(HashModel(5)) as engine:
        how = {"n": 60, "seed": 1, "sampling": SamplingParams.UNCHANGED}
        drawn = engine.generate("a c", options=GenerationParams(grammar=grammar, heal=True), **how)
        assert set(drawn.texts) == {"at", "ar", "bat"}
        assert {19, 22} <= {one.tokens[0].id for one in drawn}  # " cat", " car"
        assert {one.healed for one in drawn} == {b" c"}
        apart = engine.generate(
            "a", options=GenerationParams(grammar=grammar, heal=True), prompting=PromptParams(delimiter=" c"), **how
        )
        assert set(apart.texts) <= {" cat", " car", " cbat"}
    for one in drawn:
        model = HashModel(5)
        row = probabilities(model, [BOS, 3])
        if one.tokens[0].id in (19, 14):  # the healed bytes are spelt by the first token
            assert one.log_heal == pytest.approx(log(fsum(row[t] for t in agreeing(b" c"))), abs=1e-5)


# Prompts


def test_what_cannot_be_healed_is_left_alone():
    """A control token, a token that is all there is, and token bytes that are not the text's stay; the rest is the same."""
    how = {"seed": 4, "stopping": StopParams(max_tokens=5), "prompting": PromptParams(parse_special=True)}
    with engine_on(HashModel(1)) as engine:
        for prompt in ("a cat<eos>", [0], "<bos>"):
            plain, healed = (engine.generate(prompt, options=options, **how) for options in (GenerationParams(), HEAL))
            assert healed == plain
            assert healed[0].healed == b""
            assert healed[0].log_heal == 0
    no_bos = replace(VOCABULARY, bos=None)
    one = reopen(no_bos, PromptText(np.empty(0, dtype=np.int32), b" cat"))
    assert (one.context.tolist(), one.healed) == ([19], b"")
    lower = replace(VOCABULARY, tokenize=lambda text: VOCABULARY.tokenize(text.lower()))
    one = reopen(lower, PromptText(np.array([BOS], dtype=np.int32), b"A C"))
    assert (one.healed, one.context.tolist()) == (b"", one.prompt_tokens.tolist())
    assert reopen(VOCABULARY, PromptText(np.array([BOS], dtype=np.int32), b"a c"), heal=False).healed == b""


def test_an_end_of_generation_token_that_has_text_is_not_healed():
    """No token of the healed bytes may end the sequence, so one that spells them alone stays where it is."""
    ends = replace(VOCABULARY, eog=np.array([EOS, 12], dtype=np.int32))
    assert reopen(ends, PromptText(np.array([BOS], dtype=np.int32), b"a\n")).healed == b""
    assert 12 not in HealedBytes(ends, b"\n").allowed(0)


def test_a_space_before_the_text_is_healed_with_it():
    """Where the vocabulary puts one, the first token spells it, and it is no text."""
    spaced = replace(VOCABULARY, space_prefix=True, tokenize=lambda text: VOCABULARY.tokenize(b" " + text))
    one = reopen(spaced, PromptText(np.array([BOS], dtype=np.int32), b"c"))
    assert (one.context.tolist(), one.healed) == ([BOS], b" c")


def test_the_prompt_counts_its_own_tokens():
    """`prompt_tokens` are those of the prompt; what is too long is judged by those that are kept and the bytes spelt again."""
    with engine_on(HashModel(1, limits=SMALL)) as engine:
        how = {"stopping": StopParams(max_tokens=11)}
        plain, healed = (engine.generate("a cat b", options=options, **how) for options in (GenerationParams(), HEAL))
        assert plain.prompt_tokens == healed.prompt_tokens == (4,)
        exact = "a" * 49  # with <bos> 50 tokens, one of which is spelt again and does not count for the eleven
        assert engine.generate(exact, options=HEAL, **how).prompt_tokens == (50,)
        with pytest.raises(PromptTooLongError) as caught:
            engine.generate(exact + "a", options=HEAL, **how)
        assert caught.value.required_tokens == 61
        cut = engine.generate(exact + "a c", options=HEAL, prompting=PromptParams(truncate="left"), **how)
        assert cut.prompt_tokens == (49,)
        assert cut[0].healed == b" c"


def test_the_best_of_many_are_the_most_probable():
    """`best_of` goes by the log-probability given the healed bytes."""
    with engine_on(HashModel(4)) as engine:
        how = {"seed": 40, "stopping": StopParams(max_tokens=4)}
        every = engine.generate("a c", n=6, options=HEAL, **how)
        best = engine.generate("a c", n=2, options=replace(HEAL, best_of=6), **how)
    assert [c.logp for c in best] == sorted((c.logp for c in every), reverse=True)[:2]


@given(data=st.sampled_from([b" cat", b"at", b"\xc3\xa9", b"bat bat", b":"]))
def test_the_automaton_is_a_look_at_every_token(data):
    """Allowed sets and steps are those of comparing bytes, in every state."""
    healed = HealedBytes(VOCABULARY, data)
    for state in range(len(data)):
        expected = agreeing(data[state:])
        assert healed.allowed(state).tolist() == expected
        assert [healed.advance(state, t) for t in expected] == [
            min(len(data), state + len(PIECES[t])) for t in expected
        ]
        assert not healed.can_end(state)
        for token in set(range(len(PIECES))) - set(expected):
            with pytest.raises(ProtocolError):
                healed.advance(state, token)
    assert healed.can_end(len(data))


@pytest.mark.parametrize("text", ["The link is http:", " two  spaces ", "caf\u00e9 \u2603"])
def test_real_tokenizers_are_healed_by_their_own_bytes(real_vocabulary, text):
    """What is kept and the healed bytes spell the prompt; what may come agrees with them byte by byte, their own token too."""
    vocabulary = vocabulary_of(real_vocabulary)
    start = start_of(vocabulary)
    one = reopen(vocabulary, PromptText(start, text.encode()))
    own = one.prompt_tokens[len(start) :]
    assert vocabulary.decode(one.context) + one.healed == vocabulary.decode(own)
    assert vocabulary.decode(own) in (text.encode(), b" " + text.encode())
    allowed = HealedBytes(vocabulary, one.healed).allowed(0).tolist()
    assert one.prompt_tokens[len(one.context)] in allowed
    assert all(piece.startswith(one.healed) or one.healed.startswith(piece) for piece in map(vocabulary.piece, allowed))
    alike = [t for t, piece in enumerate(vocabulary.pieces) if piece and piece.startswith(one.healed)]
    assert set(alike) - set(vocabulary.eog.tolist()) <= set(allowed)


@pytest.mark.parametrize("value", [1, None, "yes"])
def test_heal_is_true_or_false(value):
    """Anything else is refused by its name."""
    with pytest.raises(OptionError) as caught:
        GenerationParams(heal=value)
    assert caught.value.name == "heal"


# Records


def test_the_records_tell_what_was_healed():
    """As JSON, and in OpenAI's format, whose offsets count the text's own characters."""
    with engine_on(TableModel({("a",): {" cat": 1.0}, ("a", " cat"): {"s": 1.0}})) as engine:
        made = engine.generate("a c", sampling=SamplingParams.GREEDY, stopping=StopParams(max_tokens=2), options=HEAL)
    told = made.to_dict()["completions"][0]
    assert (told["healed"], told["log_heal"], told["text"]) == (" c", pytest.approx(0), "ats")
    chosen = made.to_openai(model="table")["choices"][0]
    assert (chosen["text"], chosen["logprobs"]["tokens"]) == ("ats", [" cat", "s"])
    assert chosen["logprobs"]["text_offset"] == [0, 2]


# Trained weights


def test_a_space_at_the_end_of_a_prompt_no_longer_spoils_it(embedded):
    """The embedded model goes on after "A: " with its answer where the space may be part of the next token."""
    how = {"sampling": SamplingParams.GREEDY, "stopping": StopParams(max_tokens=4, stop="\n")}
    with selectrie.load(embedded, n_threads=1) as engine:
        plain, healed = (
            engine.generate("Q: What is 2+2? A: ", options=options, **how)[0] for options in (GenerationParams(), HEAL)
        )
        begun = engine.generate("Once upon a ti", options=HEAL, **how)[0]
    assert (healed.text, healed.healed) == ("4", b" ")
    assert healed.finish != "length"
    assert plain.text.strip() != "4"
    assert healed.tokens[0].piece == b" 4"
    assert healed.logp > plain.logp
    assert (
        begun.healed + begun.data == b"".join(token.piece for token in begun.tokens)[: len(begun.healed + begun.data)]
    )


def test_a_word_of_a_story_is_finished(weights):
    """A story model goes on within a word whose last letters were a token of their own."""
    how = {"sampling": SamplingParams.GREEDY, "stopping": StopParams(max_tokens=6)}
    with selectrie.load(weights("stories260K.gguf"), n_threads=1) as engine:
        plain, healed = (
            engine.generate("Once upon a time, there was a little ", options=options, **how)[0]
            for options in (GenerationParams(), HEAL)
        )
    assert healed.healed == b" "
    assert healed.logp > plain.logp
    assert healed.text.startswith("girl")
