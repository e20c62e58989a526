"""Every answer is proved or says why it is not."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from selectrie import BeamSearchParams, Engine, Grammar, SearchParams
from selectrie.engine.precision_check import SelfCheck
from selectrie.engine.rendering.joint_block import JointRequest, JointSlot, decide_jointly
from selectrie.engine.rendering.slots import SlotContext
from selectrie.engine.scheduler.task_group import task_group
from selectrie.errors import NothingFoundError
from selectrie.options import DEFAULT_PROMPTING
from selectrie.results import BeamCertificate, Certificate
from selectrie.template.values.values import SlotOption
from selectrie.testing.fakes import HashModel
from selectrie.tokenization.prompts import read_prompt

LETTERS = "abctu"
GRAMMARS = [
    Grammar.from_regex(f"({texts}){{1,3}}|([abt]{{9}})*") for texts in ("a|ab|cat|b", "t|tu|at|bat|u", "cab|c|ca|but")
]
"""Of very many texts, some of which begin with others."""


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """A fake that measures nothing first."""
    with Engine(HashModel(3), check=SelfCheck(8, 0.0, 0.0)) as made:
        yield made


def some(rng: random.Random, most: int) -> list[str]:
    """Distinct texts, some of which begin with others."""
    return sorted({"".join(rng.choices(LETTERS, k=rng.randrange(1, 5))) for _ in range(rng.randrange(2, most))})


def of_list(engine: Engine, rng: random.Random) -> Certificate:
    """A list that is searched."""
    search = search_of(rng, method="best_first", width=1)
    terminator = rng.choice(("eog", "none", "unless-continued"))
    return engine.select(rng.choice(("a", "a c")), some(rng, 14), terminator=terminator, search=search).certificate


def search_of(rng: random.Random, **options: object) -> SearchParams:
    """How far to search, at random."""
    stop, budget = rng.choice(("best", "mass", "all")), rng.choice((1, 3, 10, 40))
    return SearchParams(k=rng.randrange(1, 4), stop=stop, mass=rng.choice((0.01, 0.9)), budget_nodes=budget, **options)


def of_grammar(engine: Engine, rng: random.Random) -> Certificate:
    """A grammar that is searched."""
    search = search_of(rng, max_tokens=rng.randrange(1, 4))
    return engine.select(
        rng.choice(("a", "a c")), grammar=rng.choice(GRAMMARS), terminator="eog", search=search
    ).certificate


def of_beam(engine: Engine, rng: random.Random) -> BeamCertificate:
    """A beam, or the exact search."""
    exact, budget, groups = rng.random() < 0.3, rng.choice((None, None, 2, 9, 30)), rng.choice((1, 1, 2))
    beam = BeamSearchParams(
        width=rng.choice((2, 8)),
        n=rng.randrange(1, 3),
        max_tokens=rng.randrange(1, 5),
        terminator="eog",
        budget_nodes=budget,
        canonical_only=rng.random() < 0.7,
        exact=exact,
        groups=1 if exact else groups,
        expand=(lambda path, tokens: [one.id for one in tokens[:2]]) if not exact and rng.random() < 0.3 else None,
    )
    return engine.beam_search(rng.choice(("a", "a c")), rng.choice(GRAMMARS), beam=beam).certificate


def of_block(engine: Engine, rng: random.Random) -> Certificate:
    """A joint block, listed or searched."""
    slots = [JointSlot(name, tuple(SlotOption(text, text) for text in some(rng, 5))) for name in "xyz"]
    budget, max_listed = rng.choice((4, 8, 20, 10_000)), rng.choice((1, 1_000))
    parts = (slots[0], " ", slots[1], " ", slots[2])
    request = JointRequest(parts, k=rng.randrange(1, 3), budget=budget, max_listed=max_listed)
    with task_group(engine._model_thread) as group:
        place = SlotContext(read_prompt(engine.vocabulary, "a c", DEFAULT_PROMPTING), rng.choice(("", " t")))
        return decide_jointly(engine._session(group), request, place).certificate


@pytest.mark.parametrize(
    ("ask", "reasons"),
    [
        (of_list, {"the budget ended", "the search ended when"}),
        (of_grammar, {"the budget ended", "the search ended when"}),
        (
            of_beam,
            {"the budget ended", "a text of more than", "a beginning that", "a search in groups", "a callback chose"},
        ),
        (of_block, {"the budget ended"}),
    ],
)
def test_proved_or_a_reason(ask, reasons, engine):
    """Of lists, grammars, beams and blocks with options at random: exactly what is not proved has a reason, and all occur."""
    rng = random.Random(1)
    found: Counter[str] = Counter()
    for _ in range(40):
        try:
            certificate = ask(engine, rng)
        except NothingFoundError:
            continue
        assert certificate.proved == (certificate.reason == ""), certificate
        found.update([next((one for one in reasons if certificate.reason.startswith(one)), certificate.reason)])
    assert found.keys() == reasons | {""}
