"""A product of alternatives too large to be listed: searched for its most probable texts, which are then scored as choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from selectrie import scoring, selecting
from selectrie.automaton import Automaton
from selectrie.boundary import EncodedChoices, PromptText, heal_plan
from selectrie.boundary.products import Ground, Part, cut_product, one_varied, open_ground
from selectrie.errand import Errand
from selectrie.errors import ChoiceError, InternalError, OptionError, PromptTooLongError
from selectrie.model import Model
from selectrie.options import DEFAULT_SEARCH, Beam, Rule, Search
from selectrie.results import Certificate, Selection
from selectrie.selecting import Finding, Question
from selectrie.settle import Found, settle_near_ties
from selectrie.tasks.automaton_records import AutomatonOutcome, AutomatonSpec
from selectrie.tasks.beam import BeamTask
from selectrie.tasks.beam_records import BeamSpec
from selectrie.tasks.frontier import ROUNDING
from selectrie.tasks.grammar_search import AutomatonSearch
from selectrie.tasks.product_automaton import ProductAutomaton
from selectrie.tasks.score import ScoreTask
from selectrie.trie import TokenTrie
from selectrie.types import Cost, FloatArray, Limits
from selectrie.vocabulary import Vocabulary

MOST_NODES = 4_000
"""Nodes that a search evaluates where no budget is given."""
MOST_SCORED = 64
"""Texts found that are scored as choices."""
MOST_CONTINUING = 2_000
"""Texts that continue those found, and are looked at to know how probable it is that one does."""
_BEAM_PART = 5
"""One part in so many of the budget goes to a beam where the search has proved nothing with the rest."""
_WIDEST = 64
"""Paths of that beam."""


@dataclass(frozen=True, slots=True, eq=False)
class Hunt:
    """What is searched for. parts: literals and sorted alternatives. k: how many of the best are looked for.

    terminator: "auto", "eog" or "text". budget: nodes; None: `MOST_NODES`. width: nodes a call. cuts: whether chunks are looked for.
    """

    prompt: PromptText
    parts: tuple[Part, ...]
    following: bytes
    terminator: str
    k: int
    budget: int | None
    width: int
    cuts: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class _Field:
    """Token paths of the product. automaton: over what follows the ground's context. longest: tokens of a path, at most.

    canonical, own, viable: of paths that the tokenizer would not make (`AutomatonSpec`); None where the automaton has none.
    """

    ground: Ground
    automaton: Automaton
    longest: int
    canonical: Callable[[Sequence[int]], bool] | None = None
    own: Callable[[Sequence[int]], Sequence[int]] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Catch:
    """What a search found, best first.

    tokens: of each text; logp: its log-probability as searched. best_open: bound on the log-probability of all others; open_mass: on that of them together. Both are of
    the path from the ground's context: healed bytes are not taken off. proved: no other is among the first k, as searched.
    """

    tokens: dict[bytes, tuple[int, ...]]
    logp: dict[bytes, float]
    best_open: float
    open_mass: float
    n_evaluated: int
    cost: Cost


def search_product(begun: Errand, model: Model, tau: float | None, hunt: Hunt) -> Selection:
    """Find the k best texts of a product.

    The answer's choices are the texts that were found, in the order of their bytes. tau: nats a row that layout may move,
    None = not measured. Raises `ChoiceError` where an empty text is among those without anything after it, and
    `PromptTooLongError`.
    """
    letters = _letters(hunt.parts)
    terminator = hunt.terminator
    if terminator == "auto":
        if letters.can_end(letters.start()):
            reason = "may be empty, and what an empty text is worth shows in what follows it"
            raise ChoiceError(f"the block {reason}: give text after it, or at most as many options as are listed")
        terminator = "unless-continued" if _continue_one_another(letters) else "none"
    field = _field(model.vocabulary, hunt)
    _check_fits(field, model.limits)
    spent, most = Cost(), hunt.k
    while True:
        catch = _catch(begun, field, replace(hunt, k=most), "eog" if terminator == "eog" else "none", tau)
        spent += catch.cost
        texts = _scored_texts(hunt.parts, catch, letters if terminator == "unless-continued" else None)
        paths = field.ground.paths_of(model.vocabulary, texts)
        if paths is None or any(catch.tokens.get(text, path) != path for text, path in zip(texts, paths, strict=True)):
            if not hunt.cuts:
                raise InternalError("a text of a joint block changes tokens that it was to leave alone")
            hunt = replace(hunt, cuts=False)  # the chunks depend on one another after all
            field = _field(model.vocabulary, hunt)
            _check_fits(field, model.limits)
            continue
        ground = _scoring_ground(field, model.vocabulary, hunt.parts, paths)
        n_moved = len(ground.context) - len(field.ground.context)
        question = _question(model.vocabulary, ground, [path[n_moved:] for path in paths], texts, terminator)
        selection = _selection(begun, question, (hunt, replace(catch, cost=spent)), field.longest, tau)
        is_spent = catch.n_evaluated >= (hunt.budget or MOST_NODES)
        if terminator != "unless-continued" or selection.certificate.proved or is_spent or most >= MOST_SCORED:
            return selection
        most = min(4 * most, MOST_SCORED)


def _letters(parts: tuple[Part, ...]) -> ProductAutomaton:
    """The texts of the product, byte by byte."""
    return ProductAutomaton([[*map(list, [part] if isinstance(part, bytes) else part)] for part in parts])


_MOST_STATES = 100_000
"""Looked at to know whether one text continues another; beyond, it is taken for granted, which moves no score."""


def _continue_one_another(letters: ProductAutomaton) -> bool:
    """Is some text the beginning of another?"""
    waiting = [letters.start()]
    seen = set(waiting)
    while waiting and len(seen) < _MOST_STATES:
        state = waiting.pop()
        allowed = letters.allowed(state).tolist()
        if allowed and letters.can_end(state):
            return True
        for letter in allowed:
            after = letters.advance(state, letter)
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    return bool(waiting)


def _continuing(letters: ProductAutomaton, text: bytes, most: int) -> list[bytes]:
    """Texts that begin with this one, itself left out, as many as are wanted at most."""
    state = letters.start()
    for letter in text:
        state = letters.advance(state, letter)
    found: list[bytes] = []
    waiting = [(letters.advance(state, letter), text + bytes([letter])) for letter in letters.allowed(state).tolist()]
    while waiting and len(found) < most:
        state, longer = waiting.pop()
        if letters.can_end(state):
            found.append(longer)
        waiting += [
            (letters.advance(state, letter), longer + bytes([letter])) for letter in letters.allowed(state).tolist()
        ]
    return found


def _field(vocabulary: Vocabulary, hunt: Hunt) -> _Field:
    """The token paths of the product: of its chunks where it can be cut, else of a grammar, whose paths are checked."""
    cut = cut_product(vocabulary, hunt.prompt, hunt.parts, hunt.following) if hunt.cuts else None
    if cut is not None:
        automaton = ProductAutomaton(cut.paths)
        return _Field(cut.ground, automaton, automaton.longest)
    ground = open_ground(vocabulary, hunt.prompt, hunt.parts, hunt.following)
    if ground is None:
        raise OptionError(
            "options",
            "of the block",
            "fewer: this model's tokens do not spell them byte by byte, so they have to be listed",
        )
    return _of_grammar(vocabulary, hunt.parts, ground)


def _of_grammar(vocabulary: Vocabulary, parts: tuple[Part, ...], ground: Ground) -> _Field:
    """Every token path that spells a text of the product; those count that the tokenizer makes."""
    from selectrie.grammar import Grammar
    from selectrie.grammar.expressions import Alternatives, RuleSet, Text
    from selectrie.grammar.expressions import Sequence as InOrder

    items = [
        Text(part) if isinstance(part, bytes) else Alternatives(tuple(Text(option) for option in part))
        for part in parts
    ]
    grammar = Grammar(RuleSet({"root": InOrder((*items, Text(ground.tail)))}), name="joint")

    def own(tokens: Sequence[int]) -> Sequence[int]:
        paths = ground.paths_of(vocabulary, [ground.text_of(vocabulary.decode(tokens))])
        return () if paths is None else paths[0]

    longest = sum(len(part) if isinstance(part, bytes) else max(map(len, part)) for part in parts)
    longest += len(ground.healed) + len(ground.put) + len(ground.tail)
    return _Field(
        ground,
        grammar.automaton(vocabulary, prefix=ground.healed + ground.put),
        longest,
        canonical=lambda tokens: tuple(own(tokens)) == tuple(tokens),
        own=own,
    )


def _check_fits(field: _Field, limits: Limits) -> None:
    needed = len(field.ground.context) + field.longest + 1
    if needed > limits.nodes:
        raise PromptTooLongError(
            needed_tokens=needed,
            available_tokens=limits.nodes,
            remedy="shorten the page before the block, or load with a larger n_ctx",
        )


def _catch(begun: Errand, field: _Field, hunt: Hunt, terminator: str, tau: float | None) -> _Catch:
    """Search best first; where a part of the budget is not enough to prove the first k, a beam looks for better ones."""
    budget = hunt.budget or MOST_NODES
    ground, vocabulary = field.ground, begun.owner.scheduler.model.vocabulary
    search = Search(k=hunt.k, budget_nodes=max(1, budget - budget // _BEAM_PART), width=hunt.width)
    spec = AutomatonSpec(
        vocabulary,
        max_tokens=field.longest,
        terminator=terminator,
        search=search,
        canonical=field.canonical,
        own=field.own,
        tolerance=2 * (tau or 0.0) * (field.longest + 1),
    )
    handle = begun.begin(AutomatonSearch(ground.context, field.automaton, spec))
    outcome: AutomatonOutcome = handle.result()
    found = {ground.text_of(path.data): (path.score, tuple(path.tokens.tolist())) for path in outcome.found}
    caught = _Catch({}, {}, outcome.best_open, outcome.open_mass, outcome.n_evaluated, handle.cost)
    if not outcome.proved:
        width = max(hunt.k, min(_WIDEST, (budget - outcome.n_evaluated) // field.longest))
        is_checked = field.canonical is not None
        beam = Beam(width=width, n=hunt.k, max_tokens=field.longest, canonical_only=is_checked)
        looser = BeamSpec(vocabulary, beam, terminator, canonical=field.canonical)
        more = begun.begin(BeamTask(ground.context, field.automaton, looser))
        result = more.result()
        for path in result.finished:
            found.setdefault(ground.text_of(path.data), (path.logp, tuple(path.tokens.tolist())))
        n_evaluated = caught.n_evaluated + result.n_evaluated
        caught = replace(caught, n_evaluated=n_evaluated, cost=caught.cost + more.cost)
    return _best_of(caught, found)


def _best_of(caught: _Catch, found: dict[bytes, tuple[float, tuple[int, ...]]]) -> _Catch:
    """With the best of what was found; the others count as open."""
    ranked = sorted(found.items(), key=lambda entry: (-entry[1][0], entry[0]))
    left = [logp for _, (logp, _) in ranked[MOST_SCORED:]]
    return replace(
        caught,
        tokens={text: tokens for text, (_, tokens) in ranked[:MOST_SCORED]},
        logp={text: logp for text, (logp, _) in ranked[:MOST_SCORED]},
        best_open=max([caught.best_open, *left]),
        open_mass=caught.open_mass + float(np.exp(left).sum()),
    )


def _scored_texts(parts: tuple[Part, ...], catch: _Catch, letters: ProductAutomaton | None) -> list[bytes]:
    """What is scored, sorted: texts found (the first of all where nothing was), and with `letters` all that continue one."""
    texts = dict.fromkeys(catch.tokens)
    if not texts:
        texts[b"".join(part if isinstance(part, bytes) else part[0] for part in parts)] = None
    if letters is not None:
        for text in list(texts):
            texts.update(dict.fromkeys(_continuing(letters, text, MOST_CONTINUING + 1)))
            if len(texts) > MOST_CONTINUING:
                raise ChoiceError(
                    f"more than {MOST_CONTINUING} texts of the block go on where another one ends; "
                    "give text after the block, so that each has an end"
                )
    return sorted(texts)


def _scoring_ground(
    field: _Field, vocabulary: Vocabulary, parts: tuple[Part, ...], paths: list[tuple[int, ...]]
) -> Ground:
    """The ground that the texts have as choices: no more of the prompt is opened again than one of them changes."""
    if field.canonical is None:
        return field.ground
    others = field.ground.paths_of(vocabulary, one_varied(parts))
    return field.ground if others is None else field.ground.narrowed(vocabulary, [*paths, *others])


def _question(
    vocabulary: Vocabulary, ground: Ground, paths: list[tuple[int, ...]], written: list[bytes], terminator: str
) -> Question:
    """The texts as choices, on the ground of all of them. paths: of each, after the ground's context."""
    own, context = ground.prompt_tokens, ground.context
    encoded = EncodedChoices(
        context=context,
        tokens=np.array([token for path in paths for token in path], dtype=np.int32),
        offsets=np.cumsum([0, *map(len, paths)], dtype=np.int64),
        first_scored=np.zeros(len(paths), dtype=np.int32),
        prompt_tokens=own,
        healed=ground.healed,
        boundary_shift=np.array([_shift(own[len(context) :].tolist(), path) for path in paths], dtype=np.int32),
        following_bytes=len(ground.tail),
        boundary=ground.boundary,
    )
    texts = tuple(text.decode() for text in written)
    trie = TokenTrie.from_flat(encoded.tokens, encoded.offsets)
    healing = heal_plan(vocabulary, trie, encoded.healed)
    return Question(
        texts=texts,
        vocabulary=vocabulary,
        encoded=encoded,
        trie=trie,
        needs=scoring.row_needs(trie, terminator, healing.observations, vocabulary.eog),
        healing=healing,
        rule=Rule(),
        custom=None,
        terminator=terminator,
        log_prior=None,
        lengths=scoring.Lengths.of(texts, trie),
        search=DEFAULT_SEARCH,
        method="exhaustive",
        premises=(),
    )


def _shift(own: Sequence[int], path: Sequence[int]) -> int:
    """Tokens of the prompt after the context that are not the path's."""
    same = next((i for i, (a, b) in enumerate(zip(own, path, strict=False)) if a != b), min(len(own), len(path)))
    return len(own) - same


def _selection(
    begun: Errand, question: Question, searched: tuple[Hunt, _Catch], longest: int, tau: float | None
) -> Selection:
    """Score the texts found, settle near ties among them, and say what the search proves of all others."""
    hunt, catch = searched
    question = replace(question, search=Search(k=hunt.k))
    handle = begun.begin(ScoreTask(question.encoded.context, question.trie, question.needs))
    evaluation = handle.result()
    scored = selecting.score(question, evaluation, None)
    certificate = _certificate(question, scored, catch, hunt.k)
    cost = replace(catch.cost + handle.cost, rows_naive=question.rows_naive)
    with np.errstate(divide="ignore"):
        log_open = float(np.log(certificate.open_mass))
    if question.terminator in ("none", "text"):
        log_open += float(np.log(longest))  # of those that begin with one another each is as probable as the first
    finding = Finding(certificate, cost, log_open)
    scored, finding = settle_near_ties(begun, Found(question, evaluation, None, finding), scored, tau)
    if certificate.bound_gap <= 2 * (tau or 0.0) * (longest + 1):  # what is open may be as near
        finding = replace(finding, certificate=replace(finding.certificate, settled=False))
    signature = selecting.signature(question, begun.owner.scheduler.model.identity, tau)
    selection = selecting.selection(question, evaluation, scored, finding, signature)
    margin = min(selection.margin, selection.score - _kth(scored.scores, hunt.k) + certificate.bound_gap)
    return replace(selection, margin=margin)


def _kth(scores: FloatArray, k: int) -> float:
    """The k-th best; -inf where there are fewer."""
    return float(np.sort(scores)[len(scores) - k]) if len(scores) >= k else -np.inf


def _certificate(question: Question, scored: selecting.Scored, catch: _Catch, k: int) -> Certificate:
    """What the search proves. Its bounds are of paths from the ground's context; what is between that and the context of
    the scores is told by a text that both know."""
    offset, known = 0.0, next((i for i, text in enumerate(question.texts) if text.encode() in catch.logp), None)
    if known is not None:
        own = float(scored.logp[known]) + scored.log_heal
        own -= float(scored.terminator[known]) if question.terminator == "unless-continued" else 0.0
        offset = catch.logp[question.texts[known].encode()] - own + scored.log_heal
    gap = np.inf if catch.best_open == -np.inf else _kth(scored.scores, k) - (catch.best_open - offset)
    return Certificate(
        proved=gap > ROUNDING,
        bound_gap=gap,
        open_mass=min(1.0, catch.open_mass * float(np.exp(-offset))),
        nodes_evaluated=catch.n_evaluated,
        nodes_inner=None,
        settled=False,
        n_settled=0,
        method="best_first",
    )
