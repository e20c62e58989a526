"""The engine on fakes and small weights: settling, the self-check, requests that share calls."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from selectrie import Grammar, Option
from selectrie.cli.report.summaries import selection_facts
from selectrie.core.types import Limits, ModelKind
from selectrie.engine import load
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.engine.requests.selection import SPLIT_NOTE
from selectrie.errors import CapacityError, ChoiceError, OptionError, PromptTooLongError
from selectrie.options import PromptParams, SearchParams, StopParams
from selectrie.testing import HashModel, make_vocabulary
from tests.support.weighed import Weighed

EVERYTHING_IS_CLOSE = SelfCheck(8, 10.0, 40.0)
NOTHING_IS_CLOSE = SelfCheck(8, 0.0, 0.0)
CHOICES = ["at", " cat", "s", "a", "art", " bat s"]


@pytest.mark.short("0-none-heal", "0-eog-split", "0-unless-continued-harness", "0-text-*")
@pytest.mark.parametrize("boundary", ["heal", "split", "harness"])
@pytest.mark.parametrize("terminator", ["none", "eog", "unless-continued", "text"])
@pytest.mark.parametrize("seed", range(4))
def test_settling_moves_no_score_of_an_exact_model(boundary, terminator, seed):
    """Where layout moves nothing, what is scored again alone has the score it had: every boundary, terminator and rule."""
    how = {
        "terminator": terminator,
        "following": "." if terminator == "text" else "",
        "prompting": PromptParams(boundary=boundary),
        "search": SearchParams(method="exhaustive", stop="all"),
    }
    for prompt, rule in (("a bat", "joint"), ("a ", "pmi"), ("a c", "char_mean"), ("ca", "byte_mean")):
        with Engine(HashModel(seed), check=NOTHING_IS_CLOSE) as engine:
            plain = engine.select(prompt, CHOICES, rule=rule, **how)
        with Engine(HashModel(seed), check=EVERYTHING_IS_CLOSE) as engine:
            settled = engine.select(prompt, CHOICES, rule=rule, **how)
        assert plain.certificate.n_rescored == 0
        assert settled.certificate.n_rescored == len(CHOICES)
        np.testing.assert_allclose(settled.choices.score, plain.choices.score, rtol=0, atol=1e-6)
        assert settled.index == plain.index


def test_an_answer_stands_where_settling_finds_no_room(monkeypatch):
    """A second context that cannot be made leaves the answer as it was, and says that it is not settled."""

    def no_room(self, nodes, **_):
        raise CapacityError("nodes", required=nodes, available=0)

    with Engine(HashModel(1), check=EVERYTHING_IS_CLOSE) as engine:
        monkeypatch.setattr(HashModel, "new_context", no_room)
        result = engine.select("a bat", CHOICES)
    assert not result.certificate.rescored
    assert result.certificate.n_rescored == 0


def test_a_batch_of_different_choices_is_refused_before_any_call():
    """The request is named, and the model was not asked."""
    model = HashModel(1)
    with Engine(model, check=NOTHING_IS_CLOSE) as engine, pytest.raises(OptionError) as caught:
        engine.select_many([("a bat", CHOICES), ("a cat", CHOICES[1:])], rule="batch")
    assert caught.value.request == 1
    assert model.calls == 0


@pytest.mark.parametrize("boundary", ["heal", "split", "harness"])
@pytest.mark.parametrize("terminator", ["none", "eog", "unless-continued"])
def test_a_batch_subtracts_the_mean_of_the_log_probabilities_it_reports(boundary, terminator):
    """The score is logp less the mean logp of the choice over the batch, also where bytes of the prompts were healed."""
    prompts = ["a bat", "a ", "a c", "ca", "cat s"]
    with Engine(HashModel(2), check=NOTHING_IS_CLOSE) as engine:
        many = engine.select_many(
            [(prompt, CHOICES) for prompt in prompts],
            rule="batch",
            terminator=terminator,
            prompting=PromptParams(boundary=boundary),
        )
    assert (boundary == "heal") == any(one.log_heal < -0.1 for one in many)
    logp = np.array([one.choices.logp for one in many])
    np.testing.assert_allclose([one.choices.score for one in many], logp - logp.mean(axis=0), rtol=0, atol=1e-9)


def test_an_answer_says_where_healing_became_splitting():
    """A tokenizer that lowers case cannot heal where a choice joins the prompt: a note says so, and only there."""
    plain = make_vocabulary()
    lowering = replace(plain, tokenize=lambda text: plain.tokenize(text.lower()))
    with Engine(HashModel(1, vocabulary=lowering), check=NOTHING_IS_CLOSE) as engine:
        joined, apart = engine.select("A c", ["AT", "."]), engine.select("a", ["b", "."])
        asked_for = engine.select("A c", ["AT", "."], prompting=PromptParams(boundary="split"))
        score = engine.score("A c", "AT")
    assert joined.signature.boundary == score.signature.boundary == "split"
    assert joined.notes == score.notes == (SPLIT_NOTE,)
    assert joined.to_dict()["notes"] == score.to_dict()["notes"] == [SPLIT_NOTE]
    assert ("! note", SPLIT_NOTE) in selection_facts(joined)
    assert apart.notes == asked_for.notes == ()
    assert "notes" not in apart.to_dict()


def test_requests_at_once_share_calls_and_prefixes():
    """Eight requests behind one prompt take no more calls than one of them, and its rows once."""
    requests = [("a bat", [choice, "b", " c"]) for choice in (*CHOICES, "u", "r")]
    alone, together = HashModel(1), HashModel(1)
    with Engine(alone, check=NOTHING_IS_CLOSE) as engine:
        singles = [engine.select(prompt, choices) for prompt, choices in requests]
        engine.trim()
    with Engine(together, check=NOTHING_IS_CLOSE) as engine:
        many = engine.select_many(requests)
    assert [m.index for m in many] == [s.index for s in singles]
    for m, s in zip(many, singles, strict=True):
        np.testing.assert_array_equal(m.choices.score, s.choices.score)
    assert together.calls <= 3
    assert together.rows <= alone.rows


def test_scores_of_a_text_leave_out_what_does_not_count():
    """With lm-eval's boundary only tokens behind the cut are listed, summed and compared with the greedy ones."""
    with Engine(HashModel(3), check=NOTHING_IS_CLOSE) as engine:
        score = engine.score("a c", "at", prompting=PromptParams(boundary="harness"))
    assert score.logp == pytest.approx(sum(token.logp for token in score.tokens), abs=1e-9)


def test_checks_are_kept_by_model_offload_rows_and_version(tmp_path):
    """A check is found again under its own key alone; a broken file counts as empty."""
    kept = load.SelfCheckFile(tmp_path / "selectrie" / "selfcheck.json")
    one, other = (SelfCheck(8, moved, 4 * moved, n_rows=8) for moved in (0.5, 0.25))
    model = Weighed(1)
    assert kept.get("a", model) is None
    kept.put("a", one)
    kept.put("b", other)
    assert kept.get("a", model) == one
    assert kept.get("b", model) == other
    (tmp_path / "selectrie" / "selfcheck.json").write_text("{")
    assert kept.get("a", model) is None


def test_healed_bytes_of_no_probability_leave_none_to_any_choice():
    """Where the model excludes the prompt's own last bytes, every logp is -inf, and the first choice wins a tie."""
    n = len(HashModel(1).vocabulary.pieces)
    only_bos = np.full(n, -np.inf, dtype=np.float32)
    only_bos[0] = 0.0
    with Engine(HashModel(1), check=NOTHING_IS_CLOSE) as engine:
        context = [token for token, _ in engine.tokens("a c", ["at", "a"]).context]
    with Engine(HashModel(1, planted={tuple(context): only_bos}), check=NOTHING_IS_CLOSE) as engine:
        result = engine.select("a c", ["at", "a"])
    assert result.healed == b" c"
    assert [choice.logp for choice in result.choices] == [-np.inf, -np.inf]
    assert (result.index, result.is_tie) == (0, True)


LETTERS = make_vocabulary([bytes([code]) for code in range(32, 127)])
"""Each character is a token."""


@pytest.mark.parametrize(
    ("stem", "n", "n_rescored"),
    [("", 16, 16), ("", 17, 17), ("", 80, 80), ("stem", 16, 16), ("stem", 17, 0), ("stem", 80, 0)],
)
def test_near_ties_are_settled_where_that_takes_no_more_rows_than_the_request(stem, n, n_rescored):
    """Apart, each takes the row by itself that it takes in the request; behind a stem of 4 tokens it takes 5 of them."""
    choices = [stem + chr(33 + i) for i in range(n)]
    with Engine(HashModel(1, vocabulary=LETTERS), check=EVERYTHING_IS_CLOSE) as engine:
        first = engine.select("p" * 64, choices, terminator="eog")
        again = engine.select("p" * 64, choices, terminator="eog")
    request = len(first.choices.trie.token) - 1 + 65
    for selection in (first, again):
        assert (selection.certificate.rescored, selection.certificate.n_rescored) == (n_rescored > 0, n_rescored)
    assert n <= 16 or first.cost.rows <= 2 * request


def test_a_signature_states_what_the_tolerance_rests_on():
    """The move of a row, and the number of rows on which it was measured."""
    with Engine(HashModel(1), check=SelfCheck(8, 0.01, 0.04, 70)) as engine:
        signature = engine.select("a", ["b", "c"]).signature
        told = engine.score("a", "b").to_dict()["signature"]
    assert (signature.tolerance, signature.moved, signature.rows_compared) == (0.04, 0.01, 70)
    assert [told[name] for name in ("tolerance", "moved", "rows_compared")] == [0.04, 0.01, 70]


def test_a_prompt_that_is_too_long_is_told_how_the_model_gets_a_larger_context():
    """In the words of the model's limits, whatever the request is."""
    limits = Limits(
        nodes=20,
        sequences=8,
        rows_per_call=8,
        kind=ModelKind.ATTENTION,
        max_idle_rows=99,
        larger_context="open a larger fake",
    )
    prompt = "a b c s " * 20
    with Engine(HashModel(1, limits=limits), check=SelfCheck(1, 0.0, 0.0)) as engine:
        for request in (
            lambda: engine.select(prompt, ["at", "s"]),
            lambda: engine.sample(prompt, Grammar.from_regex("[abc]{1,3}"), n=1, seed=1),
            lambda: engine.generate(prompt, stopping=StopParams(max_tokens=3)),
        ):
            with pytest.raises(PromptTooLongError, match=r", or open a larger fake$") as caught:
                request()
            assert caught.value.larger_context == "open a larger fake"


def test_a_selection_has_places():
    """Those of its iteration: the first is the best; of `rank(k=…)` there are no more than k."""
    with Engine(HashModel(1), check=NOTHING_IS_CLOSE) as engine:
        found = engine.rank("a bat", ["at", " cat", "s"], search=SearchParams(k=2))
        assert [found[0], found[-1]] == [*found] == [*found[:5]]
        with pytest.raises(IndexError):
            _ = found[2]
        for given in ("at", 5, [1.5], ["a"]):
            with pytest.raises(OptionError, match="expected a list of token ids, as `encode` returns them"):
                engine.decode(given)


def test_choices_of_other_values_are_options():
    """As in the list of options of a question; a mapping from texts may mean two things, so it is refused."""
    with Engine(HashModel(1), check=NOTHING_IS_CLOSE) as engine:
        found = engine.select("a bat", [Option((1, 2), "at"), " cat", Option("s")])
        assert found.choices == engine.select("a bat", ["at", " cat", "s"]).choices
        assert found.value == [(1, 2), " cat", "s"][found.index]
        for given, message in (
            ({"at": " cat"}, r"a list, of texts or of Option\(value, text\), not a mapping from texts"),
            ([Option("a", description="b")], "choice 0: has `description`, which `decide` takes"),
            ([Option("a", texts=["a", "at"])], "choice 0: has `texts`, which `decide` takes"),
            (Grammar.from_regex("a|b"), "not a Grammar; give it as `grammar=`"),
            (re.compile("a|b"), "not a Pattern; give its text as `regex=`"),
            ([(1, 2)], "choice 0: must be a str, an int, a bool, an Enum member of these or an Option, not tuple"),
        ):
            for call in (engine.select, engine.rank, engine.tokens):
                with pytest.raises(ChoiceError, match=message):
                    call("a bat", given)


def test_choices_may_be_a_mapping_from_values_to_texts():
    """A mapping scores its texts in order; the winner's value comes back, and without a mapping it is the text."""
    values = {3: "at", None: " cat", "s": "s"}
    with Engine(HashModel(1), check=NOTHING_IS_CLOSE) as engine:
        plain = engine.select("a bat", list(values.values()))
        for mapped in (
            engine.select("a bat", values),
            engine.rank("a bat", values, search=SearchParams()),
            engine.select_many([("a bat", values), ("a", ["s"])])[0],
        ):
            assert mapped.choices == plain.choices
            assert mapped.value == list(values)[mapped.index]
            assert mapped.to_dict()["value"] == mapped.value
        assert plain.value == plain.text
        assert "value" not in plain.to_dict()
        assert engine.tokens("a bat", values).choices == engine.tokens("a bat", list(values.values())).choices
        with pytest.raises(ChoiceError, match="choice 1: must be a str, not int"):
            engine.select("a bat", {1: "at", 2: 7})
        with pytest.raises(ChoiceError, match="no choices given"):
            engine.select("a bat", {})
