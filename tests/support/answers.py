"""Answers written by hand, for tests of records, reports and the command line.

`answer((" le|ather", 0.5, 0.8), (" plate", 0.1))` is a selection among " leather" and " plate": `|` stands between
tokens, the numbers are the probabilities of the edges. None for an edge that was never evaluated prunes the choice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import Cost
from selectrie.results import Certificate, ChoiceTable, Selection, Signature, TextScore, TokenPlan, TokenScore, view_of

SIGNATURE = Signature(
    model="tiny",
    model_digest="sha256:00",
    tokenizer_digest="sha256:11",
    backend="llama.cpp",
    build="b1",
    processor="cpu",
    precision="exact",
    tolerance=1e-4,
    moved=2.5e-5,
    rows_compared=80,
    rule="joint",
    premise="",
    terminator="none",
    following_bytes=0,
    boundary="heal",
    version="0.1.0",
)
PROVED = Certificate(
    proved=True,
    bound_gap=np.inf,
    open_mass=0.0,
    nodes_evaluated=3,
    nodes_inner=3,
    rescored=True,
    n_rescored=0,
    method="exhaustive",
)
COST = Cost(model_calls=2, rows=12, rows_repeated=0, rows_padded=4, rows_naive=60, decode_s=0.25)

ChoiceScores = tuple[Any, ...]


def paths_of(choices: list[str]) -> tuple[TokenTrie, list[bytes]]:
    """The trie of choices written with `|` between tokens, and the pieces: ids in order of first use, from 1."""
    pieces: dict[str, int] = {"": 0}
    paths = [[pieces.setdefault(piece, len(pieces)) for piece in choice.split("|") if piece] for choice in choices]
    tokens = np.array([token for path in paths for token in path], dtype=np.int32)
    offsets = np.cumsum([0, *map(len, paths)], dtype=np.int64)
    return TokenTrie.from_flat(tokens, offsets), [piece.encode("utf-8", "surrogateescape") for piece in pieces]


def table(*scored: ChoiceScores) -> ChoiceTable:
    """The table of choices with the probabilities of their edges."""
    trie, pieces = paths_of([choice for choice, *_ in scored])
    edge = np.zeros(len(trie.token))
    logp, upper = np.zeros(len(scored)), np.zeros(len(scored))
    for c, (_, *probabilities) in enumerate(scored):
        node = int(trie.path_node[trie.path_of[c]])
        for p in reversed(probabilities):
            edge[node] = np.nan if p is None else np.log(p)
            node = int(trie.parent[node])
        steps = np.log([p for p in probabilities if p is not None])
        logp[c], upper[c] = np.nan if None in probabilities else steps.sum(), steps.sum()
    first = np.unique(trie.path_of, return_index=True)[1]
    weights = np.exp(np.where(np.isnan(logp), -np.inf, logp))
    p = np.where(np.isnan(logp), np.nan, weights / weights[first].sum())
    return ChoiceTable(
        texts=tuple(choice.replace("|", "") for choice, *_ in scored),
        trie=trie,
        edge_logp=edge,
        pieces=pieces,
        logp=logp,
        logp_upper=upper,
        logp_terminator=np.where(np.isnan(logp), np.nan, 0.0),
        score=logp,
        probability=p,
        probability_low=np.nan_to_num(p),
        probability_high=np.nan_to_num(p),
        logp_local=logp,
        boundary_shift=np.zeros(len(scored), dtype=np.int32),
    )


def answer(*scored: ChoiceScores, **changes: Any) -> Selection:
    """A selection among the choices; by default what an exhaustive joint search would say about them."""
    choices = table(*scored)
    index = int(choices.order(1)[0])
    margin = choices.margin(index)
    known = np.exp(choices.logp[choices.distinct & choices.finished])
    fields: dict[str, Any] = {
        "index": index,
        "margin": margin,
        "is_tie": margin == 0,
        "coverage": float(known.sum()),
        "top_tokens": (),
        "greedy_index": index,
        "choices": choices,
        "rule": "joint",
        "terminator": "none",
        "healed": b"",
        "log_heal": 0.0,
        "heal_gap": 0.0,
        "certificate": PROVED,
        "cost": COST,
        "signature": SIGNATURE,
    }
    return Selection(**{**fields, **changes})


ARMOUR = ((" le|ather", 0.5, 0.8), (" chain|mail", 0.25, 0.4), (" plate", 0.1), (" chain", 0.25))
"""Four choices, three of them behind two shared tokens: joint 0.4, 0.1, 0.1, 0.25."""


def armour(**changes: Any) -> Selection:
    """A selection among ARMOUR: " leather", by log 0.4 - log 0.25."""
    return answer(*ARMOUR, **changes)


def unlikely(**changes: Any) -> Selection:
    """A selection among two choices of coverage 0.003 that begin as the model does not expect."""
    return answer((" le|ather", 0.003, 0.9), (" plate", 0.0003), **changes)


def text_score(**changes: Any) -> TextScore:
    """The score of " blue" in two tokens, 0.5 and 0.25."""
    tokens = (TokenScore(3, b" bl", float(np.log(0.5))), TokenScore(4, b"ue", float(np.log(0.25))))
    score = TextScore(" blue", float(np.log(0.125)), tokens, False, b"", 0.0, 0.0, COST, SIGNATURE)
    return replace(score, **changes)


def plan() -> TokenPlan:
    """The plan of ARMOUR after the prompt "He wears"."""
    trie, pieces = paths_of([choice for choice, *_ in ARMOUR])
    paths = tuple(
        tuple((token, pieces[token].decode()) for token in trie.path(int(trie.path_node[path])).tolist())
        for path in trie.path_of
    )
    return TokenPlan(
        bos=1,
        prompt=((1, "<s>"), (10, "He"), (11, " wears")),
        context=((1, "<s>"), (10, "He"), (11, " wears")),
        healed=b"",
        boundary="heal",
        terminator="unless-continued",
        choices=paths,
        boundary_shift=(0, 0, 0, 0),
        n_trie_nodes=6,
        rows_prompt=3,
        rows_inner=3,
        rows_naive=19,
        trie=view_of(trie, pieces, limit=60),
    )
