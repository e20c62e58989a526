"""The records of an answer: arrays inside, records outside, JSON at the end."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.errors import InternalError
from selectrie.results import ChoiceTable, Spellings, TokenScore, view_of
from selectrie.results.table import _COLUMNS
from tests.support.answers import ARMOUR, COST, answer, armour, paths_of, plan, table, text_score


def arrays(choices: ChoiceTable) -> dict[str, object]:
    """What a table was built from."""
    return {field.name: getattr(choices, field.name) for field in fields(choices) if field.init}


@st.composite
def tables(draw: st.DrawFn) -> ChoiceTable:
    """Tables with shared prefixes, duplicates, equal scores, -inf and pruned choices."""
    spelled = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("|".join)
    choices = draw(st.lists(spelled, min_size=1, max_size=24))
    trie, pieces = paths_of(choices)
    values = st.sampled_from([0.0, -0.5, -1.0, -2.0, -math.inf, math.nan])
    on_path = draw(st.lists(values, min_size=len(trie.path_node), max_size=len(trie.path_node)))
    edges = draw(st.lists(values, min_size=len(trie.token), max_size=len(trie.token)))
    score = np.array(on_path)[trie.path_of]
    upper = np.where(np.isnan(score), -0.25, score)
    columns = dict.fromkeys(_COLUMNS, score) | {"logp_upper": upper}
    texts = tuple(choice.replace("|", "") for choice in choices)
    shift = np.zeros(len(choices), dtype=np.int32)
    return ChoiceTable(
        texts=texts, trie=trie, edge_logp=np.array(edges), pieces=pieces, boundary_shift=shift, **columns
    )


@given(choices=tables(), k=st.integers(1, 30))
def test_order_is_by_score_then_index_with_pruned_choices_last(choices: ChoiceTable, k: int):
    """Sorting arrays says what sorting records would, for the first k as for all."""
    records = list(choices)
    slow = sorted(
        records,
        key=lambda c: (c.pruned, -(c.logp_upper if c.score is None else c.score), c.index),
    )
    assert choices.order().tolist() == [c.index for c in slow]
    assert choices.order(k).tolist() == [c.index for c in slow][:k]


@given(choices=tables())
def test_dictionaries_say_what_the_records_say(choices: ChoiceTable):
    """`to_dicts` converts whole arrays; record by record gives the same."""

    def known(x: float | None) -> float | None:
        return None if x is None or not math.isfinite(x) else x

    for record, fast in zip(choices, choices.to_dicts(), strict=True):
        assert fast == {
            "text": record.text,
            "logp": known(record.logp),
            "score": known(record.score),
            "probability": known(record.probability),
            "probability_low": known(record.probability_low),
            "probability_high": known(record.probability_high),
            "logp_upper": known(record.logp_upper),
            "logp_terminator": known(record.logp_terminator),
            "logp_local": known(record.logp_local),
            "duplicate_of": record.duplicate_of,
            "boundary_shift": 0,
            "tokens": [{"id": t.id, "logp": known(t.logp), "piece": t.piece.decode()} for t in record.tokens],
        }
        assert "".join(t.piece.decode() for t in record.tokens) == ("" if record.pruned else record.text)


@given(choices=tables(), limit=st.integers(1, 40), winner=st.integers(0, 23), greedy=st.integers(0, 23))
def test_a_trie_view_accounts_for_every_choice(choices: ChoiceTable, limit: int, winner: int, greedy: int):
    """Parents come first, both marked paths are whole, and shown and hidden choices add up at every node."""
    winner, greedy = winner % len(choices), greedy % len(choices)
    view = view_of(
        choices.trie,
        choices.pieces,
        limit=limit,
        edge_logp=choices.edge_logp,
        winner=winner,
        greedy=greedy,
        probability=choices.probability,
    )
    texts = [""]
    for node in range(1, len(view)):
        assert 0 <= view.parent[node] < node
        texts.append(texts[view.parent[node]] + view.piece[node].decode())
    assert len(set(texts)) == len(view) >= min(limit, len(choices.trie.token))
    for node, text in enumerate(texts):
        below = [c for c in choices if c.text.startswith(text)]
        shown = sum(view.n_choices[child] for child in range(1, len(view)) if view.parent[child] == node)
        ends = [c.index for c in below if c.text == text]
        assert view.n_choices[node] == len(below) == len(ends) + shown + view.n_hidden[node]
        assert view.choice[node] == (ends[0] if ends else None)
        assert view.pruned[node] == all(c.pruned for c in below)
        assert view.on_winner[node] == choices.texts[winner].startswith(text)
        assert view.on_greedy[node] == choices.texts[greedy].startswith(text)
    assert {choices.texts[winner], choices.texts[greedy]} <= set(texts)
    marked = sum(view.on_winner[node] or view.on_greedy[node] for node in range(len(view)))
    assert limit > marked or len(view) == marked


def test_a_trie_view_shows_the_heaviest_nodes():
    """With room for three nodes below the prompt the two heaviest edges and the heavier leaf are shown."""
    view = armour().trie(4)
    assert view.piece == (b"", b" le", b"ather", b" chain")
    assert view.logp_prefix == pytest.approx((0.0, math.log(0.5), math.log(0.4), math.log(0.25)))
    assert view.n_hidden == (1, 0, 0, 1)


def test_selection_names_the_winner_and_its_numbers():
    """0.5 * 0.8 = 0.4 of 0.85 in the set, ahead of 0.25 by log 1.6."""
    selection = armour()
    assert (selection.index, selection.text) == (0, " leather")
    assert selection.logp == selection.score == pytest.approx(math.log(0.4))
    assert selection.probability == pytest.approx(0.4 / 0.85)
    assert selection.margin == pytest.approx(math.log(1.6))
    assert selection.agrees_with_greedy
    assert [c.text for c in selection.ranked] == [" leather", " chain", " chainmail", " plate"]
    assert selection.top(2) == selection.ranked[:2]


def test_duplicates_are_named_and_do_not_count_as_runner_up():
    """Equal texts hold equal values; the margin is to the next text, and greedy agrees with either index."""
    selection = answer((" a", 0.5), (" b", 0.25), (" a", 0.5), greedy_index=2)
    assert [c.duplicate_of for c in selection.choices] == [None, None, 0]
    assert selection.choices.duplicates(2) == (0, 2)
    assert selection.margin == pytest.approx(math.log(2))
    assert selection.agrees_with_greedy
    assert [c.index for c in selection.top(5)] == [0, 2, 1]
    assert [c.index for c in selection.top(5, distinct=True)] == [0, 1]


def test_a_single_choice_has_nothing_behind_it():
    """The margin of one choice is infinite, and None in JSON."""
    selection = answer((" a", 0.5))
    assert selection.margin == math.inf
    assert selection.to_dict()["margin"] is None


def test_two_impossible_choices_are_a_tie_and_not_nan():
    """-inf minus -inf is a margin of zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        choices = table((" a", 0.0), (" b", 0.0))
    assert choices.margin(0) == 0.0


def test_a_pruned_choice_has_a_bound_and_no_values():
    """Where the last edge was never evaluated the prefix bounds the log-probability."""
    choices = answer((" a", 0.5), (" b|c", 0.25, None)).choices
    choice = choices[1]
    assert choice.pruned
    assert choice == choices[1]
    assert (choice.logp, choice.score, choice.probability, choice.logp_terminator) == (None, None, None, None)
    assert choice.tokens == ()
    assert choice.logp_upper == pytest.approx(math.log(0.25))


def test_choices_are_a_sequence():
    """Indices from both ends, slices, and an error past the end."""
    choices = armour().choices
    assert len(choices) == 4
    assert choices[-1] == choices[3]
    assert choices[1:3] == (choices[1], choices[2])
    assert [c.index for c in choices] == [0, 1, 2, 3]
    for index in (4, -5):
        with pytest.raises(IndexError, match="of 4"):
            choices[index]


def test_answers_are_equal_but_for_timing():
    """Seconds in the model are no part of an answer."""
    assert armour() == armour(cost=replace(COST, decode_s=9.0))
    assert hash(armour()) == hash(armour(cost=replace(COST, decode_s=9.0)))
    assert text_score() == text_score(cost=replace(COST, decode_s=9.0))


@pytest.mark.parametrize("name", [*_COLUMNS, "edge_logp", "boundary_shift"])
def test_equality_sees_every_array(name: str):
    """One changed element anywhere makes two answers differ."""
    choices = armour().choices
    changed = getattr(choices, name).copy()
    changed[-1] += 1
    other = ChoiceTable(**{**arrays(choices), name: changed})
    assert armour(choices=other) != armour()
    assert ChoiceTable(**arrays(choices)) == choices


@pytest.mark.parametrize(
    "change",
    [{"margin": 0.0}, {"coverage": 0.1}, {"greedy_index": 1}, {"healed": b" "}, {"cost": replace(COST, rows=13)}],
    ids=str,
)
def test_equality_sees_every_field(change: dict[str, object]):
    """An answer that says something else is another answer."""
    assert armour(**change) != armour()


def test_answers_are_frozen():
    """Neither fields nor arrays can be written, and the engine's own arrays stay writable."""
    selection, mine = armour(), np.zeros(4)
    with pytest.raises(FrozenInstanceError):
        selection.index = 1  # type: ignore[misc]
    choices = ChoiceTable(**{**arrays(selection.choices), "logp_local": mine})
    with pytest.raises(ValueError, match="read-only"):
        choices.logp_local[0] = 1.0
    mine[0] = 1.0


def test_a_table_of_unequal_lengths_is_refused():
    """A column that belongs to other choices would shift every number."""
    with pytest.raises(InternalError, match=r"4 choices.*score\[3\]"):
        ChoiceTable(**{**arrays(armour().choices), "score": np.zeros(3)})


def test_to_dict_is_strict_json_with_what_is_promised():
    """Every promised field is there, choices in the caller's order, nothing JSON cannot hold."""
    selection = answer(*ARMOUR, (" z|zz", 0.01, None), top_tokens=(TokenScore(9, b"", -1.0, "<|im_end|>"),))
    fields = json.loads(json.dumps(selection.to_dict(), allow_nan=False))
    assert (fields["format"], fields["kind"], fields["winner"]) == (2, "selection", 0)
    assert (fields["rule"], fields["terminator"], fields["coverage"]) == ("joint", "none", pytest.approx(0.85))
    assert [c["text"] for c in fields["choices"]] == [" leather", " chainmail", " plate", " chain", " zzz"]
    assert fields["choices"][0]["tokens"] == [
        {"id": 1, "logp": pytest.approx(math.log(0.5)), "piece": " le"},
        {"id": 2, "logp": pytest.approx(math.log(0.8)), "piece": "ather"},
    ]
    assert fields["choices"][4]["logp"] is None
    assert fields["top_tokens"] == [{"id": 9, "logp": -1.0, "piece": "", "spelling": "<|im_end|>"}]
    assert fields["certificate"]["bound_gap"] is None
    assert fields["cost"]["rows_naive"] == 60
    assert fields["signature"]["model_digest"] == "sha256:00"


def test_a_piece_that_is_no_text_is_listed_as_bytes():
    """An emoji over two tokens: each half is replaced in the text and exact in the list."""
    tokens = (TokenScore(1, b"\xf0\x9f", -1.0), TokenScore(2, b"\xa4\x97", -1.0), TokenScore(3, b"!", -1.0))
    first, second, third = text_score(tokens=tokens, healed=b"\xa4").to_dict()["tokens"]
    assert (first["piece"], first["bytes"]) == ("\ufffd", [240, 159])
    assert second["bytes"] == [164, 151]
    assert third == {"id": 3, "logp": -1.0, "piece": "!"}
    assert text_score(healed=b"\xa4").to_dict()["healed_bytes"] == [164]


def test_all_spellings_are_json_too():
    """Beside the canonical score, and only where they were summed; a bound that is infinite becomes null."""
    score = text_score(spellings=Spellings("ends", -math.inf, -1.0, (0.0, 1.0), False, "the budget ended", 0.0, 0.0, 9))
    fields = json.loads(json.dumps(score.to_dict(), allow_nan=False))["spellings"]
    assert (fields["event"], fields["logp_low"], fields["logp_high"]) == ("ends", None, -1.0)
    assert fields["canonical_share"] == [0.0, 1.0]
    assert (fields["proved"], fields["n_rows"]) == (False, 9)
    assert "spellings" not in text_score().to_dict()
    assert "all spellings: logp ≤ -1.000 (ends)" in repr(score)


def test_the_plan_of_a_request_is_json_too():
    """Tokens with their spelling, rows beside the naive count."""
    fields = json.loads(json.dumps(plan().to_dict(), allow_nan=False))
    assert fields["kind"] == "token_plan"
    assert fields["choices"][1] == {
        "tokens": [{"id": 3, "text": " chain"}, {"id": 4, "text": "mail"}],
        "boundary_shift": 0,
    }
    assert (fields["rows_prompt"], fields["rows_inner"], fields["rows_naive"]) == (3, 3, 19)


def test_repr_fits_a_screen():
    """The winner with its numbers, the first five, and how many more."""
    many = answer(*((f" c{i}", 0.1 / (i + 1)) for i in range(9)), (" b|z", 0.5, None))
    assert repr(many).splitlines() == [
        "Selection(' c0', p 35 %, margin 0.693 nats, coverage 28 %, rule='joint', terminator='none')",
        "  1. ' c0'  p 35 %  logp -2.303",
        "  2. ' c1'  p 18 %  logp -2.996",
        "  3. ' c2'  p 12 %  logp -3.401",
        "  4. ' c3'  p 8.8 %  logp -3.689",
        "  5. ' c4'  p 7.1 %  logp -3.912",
        "  … 5 more",
    ]
    assert "pruned, logp ≤ -0.693" in repr(answer((" a", 0.5), (" b|z", 0.5, None)))


def test_the_notebook_picture_escapes_texts():
    """Choices come from anywhere; none of them becomes markup."""
    html = answer(("<script>alert(1)</script>", 0.5), (" b|z", 0.5, None))._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "≤ -0.693" in html
