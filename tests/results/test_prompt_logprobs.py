"""The record of a prompt's log-probabilities: sums, JSON, what it shows."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import FrozenInstanceError, replace

import pytest

from selectrie.core.types import Cost
from selectrie.errors import OptionError
from selectrie.results import PromptLogprobs
from tests.support.answers import COST, text_score

READ = PromptLogprobs(
    tokens=(0, 5, 7, 5),
    labels=("<bos>", "a", "\n", "a"),
    logp=(None, None, -0.5, -2.0),
    is_greedy=(None, None, True, False),
    top=(None, None, ((7, -0.5), (5, -1.5)), ((7, -0.25), (5, -2.0))),
    named=(None, None, (-1.5,), (-math.inf,)),
    named_ids=(5,),
    cost=COST,
    signature=text_score().signature,
    notes=("a note",),
)


def test_sums_and_greediness_by_hand():
    """Of all tokens that have a value, or of a range of them."""
    assert (len(READ), READ.n_rows, READ.total_logp) == (4, 2, -2.5)
    assert READ.loglikelihood() == (-2.5, False)
    assert READ.loglikelihood(2, 3) == (-0.5, True)
    assert READ.loglikelihood(3) == (-2.0, False)
    assert READ.loglikelihood(4) == READ.loglikelihood(3, 3) == (0.0, True)
    assert READ.tolerance == READ.signature.tolerance


@pytest.mark.parametrize(("start", "stop", "name"), [(1, 3, "start"), (-1, None, "start"), (5, None, "start"), (3, 2, "stop"), (2, 5, "stop"), (2, -1, "stop"), (True, 3, "start"), (2, 2.5, "stop")])  # fmt: skip
def test_a_range_without_values_is_refused(start, stop, name):
    """Tokens before the first value, and those that do not exist."""
    with pytest.raises(OptionError) as caught:
        READ.loglikelihood(start, stop)
    assert caught.value.name == name


def test_it_is_json_and_frozen():
    """Every field and no infinity; copies and equality, which leaves the cost out."""
    made = json.loads(json.dumps(READ.to_dict(), allow_nan=False))
    assert (made["format"], made["kind"]) == (2, "prompt_logprobs")
    assert made["tokens"] == [0, 5, 7, 5]
    assert made["labels"] == ["<bos>", "a", "\n", "a"]
    assert made["logp"] == [None, None, -0.5, -2.0]
    assert made["is_greedy"] == [None, None, True, False]
    assert made["top"] == [None, None, [[7, -0.5], [5, -1.5]], [[7, -0.25], [5, -2.0]]]
    assert made["named"] == [None, None, [-1.5], [None]]
    assert (made["named_ids"], made["n_rows"], made["total_logp"]) == ([5], 2, -2.5)
    assert made["notes"] == ["a note"]
    assert "notes" not in replace(READ, notes=()).to_dict()
    assert made["cost"]["rows"] == COST.rows
    assert copy.deepcopy(READ) == READ == replace(READ, cost=Cost())
    assert replace(READ, logp=(None, None, -0.5, -2.5)) != READ
    with pytest.raises(FrozenInstanceError):
        READ.tokens = ()


def test_what_it_shows():
    """Each token with its value, and in notebooks a bar for those that have one."""
    shown = repr(READ)
    assert shown.splitlines()[0] == "PromptLogprobs(4 tokens, 2 rows, total logp -2.500)"
    assert shown.splitlines()[3] == "  '\\n'  logp -0.500"
    html = READ._repr_html_()
    assert html.count("<li>") == 2
    assert "logp -2.500" in html
    many = replace(READ, **{name: getattr(READ, name) * 9 for name in ("tokens", "labels", "logp")})
    assert repr(many).endswith("… 24 more")
