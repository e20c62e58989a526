"""Decides a joint block: several selects and the literal texts between them.

The result is the assignment (one option for each slot) whose whole text is most
probable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TypeAlias

import numpy as np

from selectrie.core.path_model import REMOTE
from selectrie.core.vocabulary import to_bytes
from selectrie.decoding.scoring.paths import RESOLVED
from selectrie.engine.rendering.product_search import ProductSearchRequest, search_product
from selectrie.engine.rendering.slots import SlotContext
from selectrie.engine.requests import select
from selectrie.engine.requests import selection as selections
from selectrie.engine.requests.selection import SelectRequest
from selectrie.engine.requests.session import Session
from selectrie.errors import OptionError
from selectrie.options import SearchParams, at_least
from selectrie.results import Certificate, Selection
from selectrie.results.page import Assignment, JointSelection
from selectrie.template.values.values import SlotOption
from selectrie.tokenization.products import TextAlternatives, spellings

MAX_LISTED = 20_000
"""Maximum number of assignments scored as listed choices; more are searched."""
MAX_ASSIGNMENTS = 50
"""Maximum number of assignments in an answer, unless `k` is larger."""
_MAX_ROUNDING = 1e-9
"""Maximum distance of a probability's bounds that counts as rounding."""

OptionIndices: TypeAlias = tuple[int, ...]
"""An assignment: the index of an option for each slot."""
Marginals: TypeAlias = tuple[tuple[tuple[str, float], ...], ...]
"""For each slot, the probability of each option."""


@dataclass(frozen=True, slots=True)
class JointSlot:
    """A slot of a joint block.

    Attributes:
        name: Name of the value.
        options: The options, at least one; no two have the same text.
    """

    name: str
    options: Sequence[SlotOption]

    def __post_init__(self) -> None:
        if not len(self.options):
            raise OptionError(f"options of {self.name!r}", list(self.options), "at least one option")
        texts: dict[str, int] = {}
        for index, option in enumerate(self.options):
            to_bytes(option.text, f"option {index} of {self.name!r}")
            if option.text in texts:
                first = texts[option.text]
                raise OptionError(
                    f"options of {self.name!r}", option.text, f"each text once: options {first} and {index} are equal"
                )
            texts[option.text] = index
        object.__setattr__(self, "options", tuple(self.options))


@dataclass(frozen=True, slots=True)
class JointRequest:
    """A joint block to decide. An assignment gives each of its slots one option.

    Attributes:
        parts: The literal texts and slots of the block, in page order.
        k: Number of best assignments whose order must be certain.
        budget: Maximum number of nodes to evaluate. None means no limit if assignments
            are listed, and `product_search.MAX_NODES` if they are searched.
        width: Number of nodes in a model call of a search.
        max_listed: Maximum number of assignments that are listed.
    """

    parts: tuple[str | JointSlot, ...]
    k: int = 1
    budget: int | None = None
    width: int = 16
    max_listed: int = MAX_LISTED

    def __post_init__(self) -> None:
        at_least("k", self.k, 1, optional=False)
        at_least("budget", self.budget, 1)
        at_least("width", self.width, 1, optional=False)
        at_least("max_listed", self.max_listed, 1, optional=False)
        if not self.slots:
            raise OptionError("parts", self.parts, "at least one slot")
        names = self.names
        for index, name in enumerate(names):
            if name in names[:index]:
                raise OptionError("parts", name, f"each name once: slots {names.index(name)} and {index} have it")
        for index, part in enumerate(self.parts):
            if isinstance(part, str):
                to_bytes(part, f"part {index}")

    @property
    def slots(self) -> tuple[JointSlot, ...]:
        """Return the slots, in page order."""
        return tuple(part for part in self.parts if isinstance(part, JointSlot))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the slots."""
        return tuple(slot.name for slot in self.slots)

    @property
    def n_assignments(self) -> int:
        """Return the number of assignments: the product of the numbers of options."""
        return prod(len(slot.options) for slot in self.slots)

    def text_of(self, picked: Sequence[int]) -> str:
        """Return the block's text with option `picked[i]` in slot i."""
        which = iter(picked)
        return "".join(part if isinstance(part, str) else part.options[next(which)].text for part in self.parts)


def decide_jointly(session: Session, request: JointRequest, context: SlotContext) -> JointSelection:
    """Find the assignments whose texts are most probable on the page.

    Assignments are compared by the joint log-probability of the whole block, tokenized
    together with the page before it and the following text.

    Args:
        session: The model and the task group of the request.
        request: The block.
        context: The position of the block on the page.

    Raises:
        RequestError: If the block is invalid, before any model call.
        ModelError: If the model fails.
    """
    if request.n_assignments > request.max_listed:
        return _decide_by_search(session, request, context)
    readings = _list_assignments(request)
    select_request = _select_request(request, context)
    prepared = selections.prepare_selection(session.model, context.prompt, list(readings), select_request)
    if prepared.method == "exhaustive":  # the second place is known anyway, and need not be settled
        prepared = replace(prepared, search=replace(prepared.search, k=request.k))
    [selection] = select.SelectBatch([prepared]).run(session)
    marginals = _marginals(request, list(readings.values()), selection)
    return _make_joint_selection(request, readings.__getitem__, selection, marginals)


def _decide_by_search(session: Session, request: JointRequest, context: SlotContext) -> JointSelection:
    """Decide a block that has too many assignments to list."""
    search_request = ProductSearchRequest(
        prompt=context.prompt,
        parts=_parts_as_bytes(request),
        following=context.following.encode(),
        terminator=_terminator(context),
        k=request.k,
        budget=request.budget,
        width=request.width,
    )
    selection = search_product(session, search_request)
    return _make_joint_selection(request, _assignment_finder(request), selection, None)


def _terminator(context: SlotContext) -> str:
    return "text" if context.following else "eog" if context.ends_turn else "auto"


def _select_request(request: JointRequest, context: SlotContext) -> SelectRequest:
    """Return the request to select among the texts of all assignments.

    At least the two best texts are asked for.
    """
    search = SearchParams(k=_n_best(request), budget_nodes=request.budget, width=request.width)
    return SelectRequest(terminator=_terminator(context), following=context.following, search=search)


def _list_assignments(request: JointRequest) -> dict[str, list[OptionIndices]]:
    """Return all assignments of a block by the text that they spell.

    The texts are sorted by bytes, and the assignments of one text by the bytes of their
    options.
    """
    readings: dict[str, list[OptionIndices]] = {}
    for picked in product(*map(_sort_options, request.slots)):
        readings.setdefault(request.text_of(picked), []).append(picked)
    return {text: readings[text] for text in sorted(readings)}


def _sort_options(slot: JointSlot) -> list[int]:
    """Return the indices of a slot's options, sorted by their texts.

    Sorting code points gives the order of the UTF-8 bytes.
    """
    return sorted(range(len(slot.options)), key=lambda index: slot.options[index].text)


def _assignment_finder(request: JointRequest) -> Callable[[str], list[OptionIndices]]:
    """Return a function from a text to the assignments that spell it.

    It returns at most `MAX_ASSIGNMENTS`, sorted by the bytes of their options.
    """
    orders, parts = [_sort_options(slot) for slot in request.slots], _parts_as_bytes(request)

    def readings(text: str) -> list[OptionIndices]:
        spelled = spellings(parts, text.encode(), MAX_ASSIGNMENTS)
        return [tuple(order[rank] for order, rank in zip(orders, ranks, strict=True)) for ranks in spelled]

    return readings


def _parts_as_bytes(request: JointRequest) -> tuple[TextAlternatives, ...]:
    """Return the block's parts: bytes for a text, a slot's sorted options as bytes."""
    return tuple(
        part.encode() if isinstance(part, str) else tuple(sorted(option.text.encode() for option in part.options))
        for part in request.parts
    )


def _make_joint_selection(
    request: JointRequest,
    readings: Callable[[str], list[OptionIndices]],
    selection: Selection,
    marginals: Marginals | None,
) -> JointSelection:
    """Return the decision on a block, from a selection among its texts.

    Args:
        request: The block.
        readings: Returns the assignments that spell a text.
        selection: The selection.
        marginals: The probability of each option, or None.
    """
    certificate, best_open = selection.certificate, np.inf
    if certificate.nodes_inner is not None:  # a search keeps nothing below the first k
        certificate, best_open = _certificate(request, selection)
    assignments = tuple(_best_assignments(request, readings, selection, best_open))
    second = assignments[1] if len(assignments) > 1 else None
    same = second is not None and second.text == assignments[0].text
    return JointSelection(
        names=request.names,
        assignments=assignments,
        n_assignments=request.n_assignments,
        margin=0.0 if same else selection.margin,
        is_tie=same or selection.is_tie,
        coverage=selection.coverage,
        marginals=marginals,
        terminator=selection.terminator,
        healed=selection.healed,
        log_heal=selection.log_heal,
        heal_gap=selection.heal_gap,
        certificate=certificate,
        cost=selection.cost,
        signature=selection.signature,
        notes=selection.notes,
        coverage_high=selection.coverage_high,
    )


def _best_assignments(
    request: JointRequest, readings: Callable[[str], list[OptionIndices]], selection: Selection, best_open: float
) -> Iterator[Assignment]:
    """Yield the best scored assignments, best first.

    After `_n_best` of them, only those follow whose log-probability is at least
    `best_open`, the bound on all texts that were not scored.
    """
    min_count, max_count = _n_best(request), max(request.k, MAX_ASSIGNMENTS)
    n = 0
    for choice in selection.top(max_count):
        for picked in readings(choice.text):
            if n == max_count or choice.logp is None or choice.probability is None:
                return
            if n >= min_count and choice.logp < best_open:
                return
            n += 1
            options = [slot.options[index] for slot, index in zip(request.slots, picked, strict=True)]
            yield Assignment(
                texts=tuple(option.text for option in options),
                values=tuple(option.value for option in options),
                text=choice.text,
                logp=choice.logp,
                probability=choice.probability,
                logp_upper=None if choice.logp == choice.logp_upper else choice.logp_upper,
            )


def _n_best(request: JointRequest) -> int:
    """Return how many of the best texts are searched for: k, at least two."""
    return max(2, request.k)


def _certificate(request: JointRequest, selection: Selection) -> tuple[Certificate, float]:
    """Return the certificate for the first k, and a bound on scores not computed.

    The selection's own certificate may be for one text more than k.
    """
    certificate, n_best = selection.certificate, _n_best(request)
    scores = selection.choices.score[selection.choices.order(n_best)]
    if certificate.bound_gap == np.inf:
        return certificate, -np.inf
    if len(scores) < n_best or np.isnan(scores).any():
        return certificate, np.inf
    best_open = float(scores[n_best - 1] - certificate.bound_gap)
    gap = float(scores[request.k - 1] - best_open)
    # Bounds and tolerance are those of the selection; a gap to open texts says less.
    doubts = selection.choices.has_unread or selection.signature.precision == REMOTE
    proved = certificate.proved or (gap > 2 * RESOLVED and not doubts)
    return replace(certificate, proved=proved, bound_gap=gap, reason="" if proved else certificate.reason), best_open


def _marginals(request: JointRequest, readings: list[list[OptionIndices]], selection: Selection) -> Marginals | None:
    """Return the probability of each option of each slot, as (text, probability) pairs.

    None if a text has no score, or if its probability is not known.

    Args:
        request: The block.
        readings: The assignments that spell each choice of the selection.
    """
    table = selection.choices
    probability = table.probability
    is_vague = table.has_unread and (table.probability_high - table.probability_low > _MAX_ROUNDING).any()
    if np.isnan(probability).any() or is_vague:
        return None
    sums = [np.zeros(len(slot.options)) for slot in request.slots]
    for p, of_text in zip(probability.tolist(), readings, strict=True):
        for picked in of_text:
            for of_slot, index in zip(sums, picked, strict=True):
                # Several assignments of one text share its probability.
                of_slot[index] += p / len(of_text)
    return tuple(
        tuple((option.text, float(p)) for option, p in zip(slot.options, of_slot, strict=True))
        for slot, of_slot in zip(request.slots, sums, strict=True)
    )
