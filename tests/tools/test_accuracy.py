"""`tools/accuracy.py`: what it counts by hand, how it deals items out, and its table on the model that comes with selectrie."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

import accuracy
import trained_classifier
from accuracy import Answered, Item


def answered(probabilities, gold):
    """An answer to one question with the options a, b, …, of which the most probable is given."""
    options = tuple("abcd"[: len(probabilities)])
    of = dict(zip(options, probabilities, strict=True))
    answer = SimpleNamespace(value=max(of, key=of.get), probabilities=of)
    return Answered(Item("text", options, gold), answer)


def test_figures_by_hand():
    """Two right of four, three of them `a`; the first way had one right; one pair of three is in the right order."""
    first = [answered((0.9, 0.1), gold) for gold in "abbb"]
    now = [answered((0.9, 0.1), "a"), answered((0.3, 0.7), "b"), answered((0.8, 0.2), "b"), answered((1.0, 0.0), "b")]
    found = accuracy.figures(now, first, n_rows=30)
    assert (found["n"], found["right"], found["diff"], found["first"], found["rows"]) == (4, 50, 25, 75, 7.5)
    assert found["±"] == pytest.approx(1.96 * 50 / 2)
    assert found["brier"] == pytest.approx((2 * 0.1**2 + 2 * 0.3**2 + 2 * 0.8**2 + 2) / 4)
    assert found["ece"] == pytest.approx((0.1 + 0.3 + 0.8 + 1.0 - 2 * 0.1) / 4)  # 0.9 and 1.0 are in one bin
    assert found["auc"] == pytest.approx(1 / 4)


@pytest.mark.parametrize(("mix", "share"), [("80", 0.8), ("95", 0.95)])
def test_a_mix_has_its_share_of_the_last_label(mix, share):
    """Whatever the set has, and no item twice."""
    items = [Item(f"{label}{i}", ("a", "b"), label) for label in "ab" for i in range(100)]
    found = accuracy.mixed(items, mix, 60)
    assert len(set(found)) == len(found) == 60
    assert sum(item.gold == "b" for item in found) == round(share * 60)
    assert accuracy.mixed(items, "even", 60) == items[:60]
    assert [item.gold for item in accuracy.mixed(items[::-1], "sorted", 200)] == ["a"] * 100 + ["b"] * 100


def test_draws_take_turns_and_halves_are_apart():
    """Each item's label is among its options; the items of one text, such as a ticket in six orders, are in one half."""
    pairs = [(f"text {i}", f"label {i % 20}") for i in range(200)]
    items = accuracy.drawn(pairs, "seed")
    assert len({item.options for item in items[: accuracy.N_DRAWS]}) == accuracy.N_DRAWS
    assert all(item.gold in item.options and len(item.options) == accuracy.N_DRAWN for item in items)
    halves = [
        {item.text for item in accuracy.tickets() if accuracy.half_of(item) == half} for half in ("dev", "held-out")
    ]
    assert not halves[0] & halves[1]
    assert len(halves[0] | halves[1]) == len(accuracy.TICKETS)


def test_a_trained_classifier_knows_the_words_of_its_labels():
    """Words decide, in pairs where a word alone has both labels, and only among the options of the item."""
    texts = {"lost": "card is lost", "stolen": "my card was stolen", "fee": "a fee for a card"}
    counts = {label: Counter(trained_classifier.features(text)) for label, text in texts.items()}
    assert trained_classifier.features("Is it?") == ["is", "it", "is it"]
    chosen = [
        trained_classifier.classify(text, options, counts, 20)
        for text, options in (("Stolen!", [*counts]), ("a fee", [*counts]), ("was a fee", ["lost", "stolen"]))
    ]
    assert chosen == ["stolen", "fee", "stolen"]


def test_a_table_of_the_embedded_model(capsys, monkeypatch, tmp_path):
    """A line for each way; a set whose file is not there is named."""
    monkeypatch.setenv("SELECTRIE_TEST_DATA", str(tmp_path))
    ways = ["--ways", "plain", "questions first"]
    accuracy.main(["embedded", "--sets", "tickets", "sst2", "--items", "3", "--threads", "1", *ways])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "embedded, dev, mix even, exact"
    assert [line.split()[:2] for line in lines[2:4]] == [["tickets", "plain"], ["tickets", "questions"]]
    assert [line.split()[-9] for line in lines[2:4]] == ["3", "3"]
    assert lines[4].startswith("sst2           skipped: there is no ")
