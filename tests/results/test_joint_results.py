"""The record of a joint decision: what users read off it, and its forms as text, JSON and HTML."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from enum import Enum

import pytest

from selectrie.core.types import Cost
from selectrie.errors import OptionError
from selectrie.results import Certificate, Signature
from selectrie.results.page import Assignment, JointSelection


class Metal(Enum):
    """A value that JSON has no form for."""

    GOLD = "gold"


def selection(n=2, *, proved=True, marginals=None):
    """A decision over an armor and a weapon, of `n` assignments that are given, of six."""
    pairs = [("plate", "sword"), ("plate", "<bow>"), ("robe", "staff")]
    assignments = tuple(
        Assignment((armor, weapon), (Metal.GOLD, place), f"{armor} and {weapon}", -1.5 - place, 0.6 / (place + 1))
        for place, (armor, weapon) in enumerate(pairs[:n])
    )
    return JointSelection(
        names=("armor", "weapon"),
        assignments=assignments,
        n_assignments=6 if n > 1 else 1,
        margin=1.0 if n > 1 else float("inf"),
        is_tie=False,
        coverage=0.25,
        marginals=marginals,
        terminator="text",
        healed=b" a",
        log_heal=-0.25,
        heal_gap=0.0,
        certificate=Certificate(proved, 0.5, 0.01, 40, None, True, 0, "best_first"),
        cost=Cost(model_calls=3, rows=40),
        signature=Signature("m", "d", "t", "b", "1", "p", "exact", 0.0, 0.0, 80, "joint", "", "text", 1, "heal", "0"),
    )


def test_the_decision_is_read_off_by_name():
    """Values in the type they were given in, texts as they stand on the page."""
    found = selection()
    assert (found.value("armor"), found.option("weapon")) == (Metal.GOLD, "sword")
    assert (found.text, found.logp, found.probability) == ("plate and sword", -1.5, 0.6)
    assert found.runner_up == found.top(5)[1]
    assert found.top(0) == ()
    assert selection(1).runner_up is None


def test_another_name_is_an_error_that_names_the_slots():
    """For values, options and marginals."""
    for read in (selection().value, selection().option, selection().marginal):
        with pytest.raises(OptionError, match="one of \\('armor', 'weapon'\\)"):
            read("armour")


def test_marginals_are_given_where_everything_was_scored():
    """By option; else the error says why there are none."""
    sums = ((("plate", 0.9), ("robe", 0.1)), (("sword", 0.6), ("<bow>", 0.3), ("staff", 0.1)))
    assert selection(marginals=sums).marginal("armor") == {"plate": 0.9, "robe": 0.1}
    with pytest.raises(OptionError, match="left some open"):
        selection().marginal("armor")


def test_the_dictionary_is_json():
    """With format and kind; values without a JSON form as what they stand for; infinities as null."""
    sums = ((("plate", 1.0),), (("sword", 1.0),))
    read = json.loads(json.dumps(selection(1, marginals=sums).to_dict(), allow_nan=False))
    assert (read["format"], read["kind"], read["names"]) == (2, "joint", ["armor", "weapon"])
    assert read["margin"] is None
    assert read["assignments"][0]["values"] == ["gold", 0]
    assert read["marginals"] == {"armor": {"plate": 1.0}, "weapon": {"sword": 1.0}}
    assert read["certificate"]["proved"] is True
    assert json.loads(json.dumps(selection().to_dict()))["marginals"] is None


def test_values_of_all_kinds_have_a_form():
    """Lists and mappings of values; what is none of JSON's kinds as text."""
    odd = Assignment(("a",), ([Metal.GOLD, float("nan")], {1: True}, b"x"), "a", float("-inf"), 0.0)
    assert odd.to_dict()["values"] == [["gold", None], {"1": True}, "b'x'"]
    assert odd.to_dict()["logp"] is None


def test_the_text_shows_the_first_and_counts_the_rest():
    """What was decided, how sure that is, and the next ones."""
    shown = repr(selection(3, proved=False)).splitlines()
    assert shown[0].startswith(
        "JointSelection(armor='plate', weapon='sword', p 60 %, margin at least 1.000 nats, coverage 25 % to 26 %"
    )
    assert "proved=False" in shown[0]
    assert shown[1] == "  1. 'plate and sword'  p 60 %  logp -1.500"
    assert shown[-1] == "  … 3 more"


def test_a_margin_has_the_digits_that_its_two_texts_leave():
    """It is the difference of two sums of rows, which may move by more than one row."""
    found = selection(2)
    for near_margin, words in ((0.0, "1.000 nats"), (0.007, "1.00 nats"), (0.4, "1.0 nats")):
        certificate = replace(found.certificate, near_margin=near_margin, open_mass=0.0)
        assert replace(found, certificate=certificate).margin_words() == words


def test_the_picture_is_escaped_and_has_the_text_of_each_slot():
    """What options and names say is no markup."""
    table = selection(3)._repr_html_()
    assert table.count("<li>") == 3 + 1
    assert "&lt;bow&gt;" in table
    assert "<bow>" not in table
    assert "armor · weapon</text>" in table
    assert "… 3 more texts" in table


def test_records_are_frozen_and_equal_by_value():
    """Two of the same decision are equal; nothing can be changed."""
    assert selection() == selection() != selection(3)
    assert hash(selection().best) == hash(selection().best)
    with pytest.raises(FrozenInstanceError):
        selection().margin = 0.0
