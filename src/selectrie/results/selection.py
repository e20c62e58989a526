"""Defines the result of a selection, a sampled choice and the plan of its tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, overload

import numpy as np

from selectrie.core.notation import nats, percent, quoted, written_tolerance
from selectrie.core.types import ROOT, Cost
from selectrie.errors import OptionError
from selectrie.options.selection import MEAN_RULES
from selectrie.results.advice import LOW_COVERAGE, Advice, Remedy, expected_tokens, notes_advice
from selectrie.results.drawing.choices import draw_choices, draw_selection_trie
from selectrie.results.drawing.pieces import cut_strip, why_no_strip
from selectrie.results.drawing.plot import plot_picture
from selectrie.results.drawing.sentences import (
    coverage_words,
    is_tied,
    logp_words,
    margin_words,
    notebook_lines,
    set_words,
    share_words,
)
from selectrie.results.drawing.shapes import Drawing, to_html
from selectrie.results.drawing.strip import draw_strip
from selectrie.results.drawing.trie import TrieView
from selectrie.results.plain import (
    REPR_CELLS,
    JsonRecord,
    cell,
    fields_of,
    frame,
    jsonable,
    label,
    listing,
    row,
    table,
    truth_error,
)
from selectrie.results.records import (
    Certificate,
    ChoiceScore,
    ChoiceSpellings,
    GrammarFacts,
    Signature,
    TokenScore,
    result_fields,
)
from selectrie.results.table import ChoiceTable
from selectrie.results.trie_view import view_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_REPR_ROWS = 5
_HTML_ROWS = 20
_HTML_NODES = 60
_REPR_TOKENS = 12
_KNOWN = 1e-4
"""Maximum distance of the bounds on a probability that is returned as a number."""
_LARGE_SHARE = 0.5
"""Probability of tokens with (without) a leading space that shows what is expected."""
_SPACE_CAUSE = "The choices begin without the space that the model puts there."
_GLUED_CAUSE = "The choices follow the prompt's last character without a space."
_WORD_END = re.compile(rb"[\w.,:;!?]\Z")
"""The end of a prompt after which a new word begins with a space."""
_TEMPLATE_CAUSE = "The prompt is a plain text, and this model was trained on chats."
_EXTRA_SPACE_CAUSE = "The choices begin with a space, and the model puts none there."
_OTHER_CAUSES = "Usual causes: a prompt that asks for something else; a model that thinks before it answers."
_PAGE_CAUSE = "Look at the text before the slot and after it: it may not be what the model has seen there."


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Selection(JsonRecord):
    """The scores of a set of choices after a prompt, and the best choice.

    It iterates over its choices, best first: `for choice in selection`. One of
    `rank(…, k=2)` has two items, the choices whose places are certain. Equality ignores
    timing, `skips_template` and `n_ranked`. A row is partial if only its most probable
    tokens are known, as from a served model.

    Attributes:
        index: Index of the winner, the choice with the best score. Exact ties go to the
            lowest index. The properties `text`, `logp`, `score` and `probability` are
            the winner's.
        margin: Score of the winner minus the best score on another path; inf with one
            choice. It is a lower bound, maybe negative, if a search left choices open,
            rows are partial, or means depend on `heal_gap`.
        is_tie: Whether another choice has the winner's score up to rounding (1e-12 of
            the size of the summed terms). With a served model, partial rows, or means
            that depend on `heal_gap`: whether tolerance and bounds do not show which
            choice is better. With `spellings`: whether the difference to another
            choice is within rounding and tolerance.
        coverage: Total probability of the set under the model. It is a lower bound if a
            search left choices open, rows are partial, or `heal_gap` is not 0.
        top_tokens: The most probable tokens after the shared context with their
            log-probabilities, whether or not a choice begins with them.
        greedy_index: Index of the choice that masked greedy decoding picks. None if a
            grammar was searched and the pick was not found, or if partial rows do not
            show the pick.
        choices: `Sequence[ChoiceScore]` in the caller's order, made on demand.
        rule: The rule used.
        terminator: The terminator used, never "auto".
        healed: Bytes of the prompt that were encoded again together with the choices.
        log_heal: Log-probability of the healed bytes, already subtracted from every
            logp.
        heal_gap: Maximum error of `log_heal` in nats, 0 if exact; inf if `log_heal` is
            -inf although the bytes may be written. The true `log_heal` may be higher by
            this, and every logp lower (`ChoiceScore.logp_lower`). If rows are partial,
            logp already subtracts `log_heal + heal_gap`, and logp_upper subtracts
            `log_heal`.
        certificate: Whether the first k choices are proved to be the best.
        cost: The model work done for the selection.
        signature: Model, software and options that determine the scores.
        grammar: Facts about the search of a grammar, whose texts are the choices; None
            for listed choices.
        notes: One sentence for each deviation from the request, with the reason.
        values: The values of the choices, if they were given as a mapping from values
            to texts, else None.
        spellings: The probabilities over all spellings, with `tokenizations="all"`,
            else None. Each score is then the lower bound, prior included; each logp is
            that of the canonical encoding.
        coverage_high: Upper bound on coverage if rows are partial or `heal_gap` is not
            0, else None.
        skips_template: Whether the prompt is plain text although the model has a chat
            template.
        n_ranked: Number of best choices that were asked for by `rank(…, k=…)`; None for
            all.
    """

    index: int
    margin: float
    is_tie: bool
    coverage: float
    top_tokens: tuple[TokenScore, ...]
    greedy_index: int | None
    choices: ChoiceTable
    rule: str
    terminator: str
    healed: bytes
    log_heal: float
    heal_gap: float
    certificate: Certificate
    cost: Cost
    signature: Signature
    grammar: GrammarFacts | None = None
    notes: tuple[str, ...] = ()
    values: tuple[object, ...] | None = None
    spellings: ChoiceSpellings | None = None
    coverage_high: float | None = None
    skips_template: bool = field(default=False, compare=False)
    n_ranked: int | None = field(default=None, compare=False)

    def __bool__(self) -> bool:
        """Raise `TypeError`: a selection is neither true nor false."""
        raise truth_error(self, "its `.value`, or `.text`")

    def __len__(self) -> int:
        """Return the number of choices that iteration yields."""
        return len(self.choices) if self.n_ranked is None else min(self.n_ranked, len(self.choices))

    def __iter__(self) -> Iterator[ChoiceScore]:
        """Iterate over the choices, best first, or over the first `n_ranked`."""
        return iter(self.top(len(self)))

    @overload
    def __getitem__(self, at: int) -> ChoiceScore: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[ChoiceScore, ...]: ...
    def __getitem__(self, at: int | slice) -> ChoiceScore | tuple[ChoiceScore, ...]:
        """Return a choice by its place among those that iteration yields."""
        return self.top(len(self))[at]

    def __contains__(self, choice: object) -> bool:
        """Return whether iteration yields this choice, or one with this text."""
        return any(choice in (found, found.text) for found in self)

    @property
    def value(self) -> object:
        """Return the value of the winner; its text if no values were given."""
        return self.text if self.values is None else self.values[self.index]

    @property
    def is_bounded(self) -> bool:
        """Return whether scores are compared by bounds.

        That is true if rows are partial, or if the scores are means that depend on
        `heal_gap`.
        """
        return self.choices.has_unread or (self.heal_gap > 0 and self.rule in MEAN_RULES)

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return the advice on this result."""
        return self.advice()

    def advice(self, *, on_page: bool = False) -> tuple[Advice, ...]:
        """Return the advice on ties, missing proof, notes and low coverage.

        Args:
            on_page: Whether the choices belong to a template, whose slots are healed.
        """
        found, certificate, tolerance = [], self.certificate, written_tolerance(self.signature)
        if self.is_tie and not certificate.proved and not certificate.rescored:
            found.append(
                Advice("tie", "the first place may be another's; the one with the higher lower bound was taken")
            )
        elif self.is_tie:
            found.append(Advice("tie", "the first place is shared exactly; the lowest index was taken"))
        if not certificate.proved:
            ahead = ""
            if certificate.bound_gap <= 0:
                gap = f" by {nats(-certificate.bound_gap, tolerance)}" if math.isfinite(certificate.bound_gap) else ""
                ahead = f"; a choice not scored to its end may be ahead{gap}"
            found.append(Advice("not_proved", certificate.reason + ahead))
        found += notes_advice(self.notes)
        if self._has_unexpected_choices():
            behind = " with the text after them" if on_page and self.terminator == "text" else ""
            tokens = expected_tokens(self._next_tokens(), tolerance)
            text = f"the model expects something else than these choices{behind}.{tokens}"
            if on_page:
                found.append(Advice("coverage", f"{text} {_PAGE_CAUSE}"))
            elif cause := self._missing_space():
                found.append(Advice("coverage", f"{text} {cause}", Remedy("delimiter", " ")))
            elif self.skips_template:
                found.append(Advice("coverage", f"{text} {_TEMPLATE_CAUSE}", Remedy("user")))
            else:
                cause = _EXTRA_SPACE_CAUSE if self._has_extra_space() else _OTHER_CAUSES
                found.append(Advice("coverage", f"{text} {cause}"))
        return tuple(found)

    def _has_unexpected_choices(self) -> bool:
        """Return whether the model expects other texts than the choices.

        Low coverage alone is no sign, because every long text has a low probability.
        The model must also expect another first token, or another text after the
        winner.
        """
        highest = self.coverage if self.coverage_high is None else self.coverage_high
        if highest >= LOW_COVERAGE or self.certificate.open_mass >= LOW_COVERAGE:
            return False
        trie, edge_logp = self.choices.trie, self.choices.edge_logp
        begins = float(np.nansum(np.exp([logp for _, logp in self._beginnings()])))
        end = trie.path_node[trie.path_of[self.index]]
        ends = self.choices.logp_terminator[self.index] + (edge_logp[end] if self.terminator == "text" else 0.0)
        return min(begins, math.exp(ends)) < LOW_COVERAGE

    def _beginnings(self) -> list[tuple[bytes, float]]:
        """Return the first bytes of the paths after the healed bytes, and their logp.

        These are the remaining bytes of the token that ends after the healed ones. The
        log-probability is conditional on the healed bytes.
        """
        trie, edge_logp, pieces = self.choices.trie, self.choices.edge_logp, self.choices.pieces
        found, pending = [], [(ROOT, -self.log_heal, len(self.healed))]
        while pending:
            node, logp, n_healed = pending.pop()
            for child in trie.children(node):
                piece, logp_child = pieces[trie.token[child]], logp + float(edge_logp[child])
                if len(piece) > n_healed or not n_healed:
                    found.append((piece[n_healed:], logp_child))
                else:
                    pending.append((child, logp_child, n_healed - len(piece)))
        return found

    def _next_tokens(self) -> tuple[TokenScore, ...]:
        """Return the top tokens that say what the model expects after the prompt.

        Where bytes were healed, these are the ones that begin with the healed bytes and
        go on. There are none if they hold less than half of what follows.
        """
        if not self.healed:
            return self.top_tokens
        n = len(self.healed)
        found = tuple(t for t in self.top_tokens if t.piece.startswith(self.healed) and len(t.piece) > n)
        return found if sum(math.exp(token.logp - self.log_heal) for token in found) > _LARGE_SHARE else ()

    def _missing_space(self) -> str:
        """Return the sentence on the space that the choices seem to lack, or ""."""
        if any(piece[:1].isspace() for piece, _ in self._beginnings()):
            return ""
        tokens = self._next_tokens()
        if not tokens:
            return _GLUED_CAUSE if _WORD_END.search(self.healed) else ""
        return _SPACE_CAUSE if self._share(tokens, lambda piece: piece.startswith(b" ")) > _LARGE_SHARE else ""

    def _has_extra_space(self) -> bool:
        """Return whether all choices begin with a space where a word is expected."""
        share = self._share(self._next_tokens(), lambda piece: bool(piece[:1].strip()))
        return share > _LARGE_SHARE and all(piece[:1] == b" " for piece, _ in self._beginnings())

    def _share(self, tokens: Iterable[TokenScore], is_such: Callable[[bytes], bool]) -> float:
        """Return the probability of those tokens whose unhealed bytes are such."""
        logps = (token.logp for token in tokens if is_such(token.piece[len(self.healed) :]))
        return sum(math.exp(logp - self.log_heal) for logp in logps)

    @property
    def text(self) -> str:
        """Return the text of the winner, as given."""
        return self.choices.texts[self.index]

    @property
    def logp(self) -> float:
        """Return the raw joint log-probability of the winner."""
        return float(self.choices.logp[self.index])

    @property
    def logprobs(self) -> tuple[float, ...]:
        """Return the raw joint log-probability of each choice, in the caller's order.

        It is NaN for a choice that a search left open.
        """
        return tuple(self.choices.logp.tolist())

    @property
    def score(self) -> float:
        """Return the score of the winner by the rule, prior included."""
        return float(self.choices.score[self.index])

    @property
    def probability(self) -> float:
        """Return the probability of the winner in the set."""
        return float(self.choices.probability[self.index])

    @property
    def probabilities(self) -> Mapping[str, float]:
        """Return the probability of each choice by its text, in the caller's order.

        A probability is NaN if its bounds are more than 1e-4 apart
        (`ChoiceScore.probability_low` and `probability_high`), after a search or with
        partial rows. Equal choices have one entry.
        """
        return dict(zip(self.choices.texts, self._mask_probabilities(), strict=True))

    def _mask_probabilities(self) -> list[float]:
        """Return the probability of each choice; NaN if its bounds are far apart."""
        low, high = self.choices.probability_low, self.choices.probability_high
        known: list[float] = np.where(high - low <= _KNOWN, self.choices.probability, np.nan).tolist()
        return known

    @property
    def proved(self) -> bool:
        """Return whether the best choices are proved to be best (`Certificate`)."""
        return self.certificate.proved

    @property
    def agrees_with_greedy(self) -> bool:
        """Return whether masked greedy decoding picks the winner or its tokens."""
        path_of = self.choices.trie.path_of
        return self.greedy_index is not None and bool(path_of[self.greedy_index] == path_of[self.index])

    @property
    def ranked(self) -> tuple[ChoiceScore, ...]:
        """Return every choice, best first.

        Pruned choices come last, ordered by the upper bounds on their scores.
        """
        return self.choices.pick(self.choices.order())

    def top(self, k: int, *, distinct: bool = False) -> tuple[ChoiceScore, ...]:
        """Return the first k of `ranked` without building the rest.

        With `distinct`, only the first choice of each token path is returned.
        """
        if not distinct or bool(self.choices.distinct.all()):
            return self.choices.pick(self.choices.order(k))
        order = self.choices.order()
        return self.choices.pick(order[self.choices.distinct[order]][:k])

    def trie(self, limit: int = 60, *, fold: Collection[int] = ()) -> TrieView:
        """Return the `limit` most probable nodes of the evaluated trie.

        All nodes of the winner's path and of the path of masked greedy decoding are
        included, except below the nodes of the trie whose numbers are in `fold`.
        """
        view = view_of(
            self.choices.trie,
            self.choices.pieces,
            limit=limit,
            edge_logp=self.choices.edge_logp,
            winner=self.index,
            greedy=self.greedy_index,
            probability=self.choices.probability,
            fold=fold,
        )
        view = replace(view, tolerance=written_tolerance(self.signature))
        if not self.is_tie:
            return view
        tied = frozenset(choice for choice in range(len(self.choices)) if is_tied(self, choice))
        on_winner = list(view.on_winner)
        for node in range(len(view) - 1, 0, -1):
            on_winner[node] |= view.choice[node] in tied
            on_winner[view.parent[node]] |= on_winner[node]
        return replace(view, on_winner=tuple(on_winner), tied=tied)

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, with `format` and kind "selection".

        It has winner (index), choices [{text, logp, score, probability, tokens: [{id,
        logp, piece}], ...}] in the caller's order, rule, terminator, coverage, cost,
        certificate and signature. -inf, inf and NaN become None. In pieces that are not
        UTF-8, bytes are replaced; "bytes" lists the originals.
        """
        names = (
            "text logp score probability margin is_tie coverage top_tokens greedy=greedy_index agrees_with_greedy"
            " rule terminator healed log_heal heal_gap certificate cost signature coverage_high? grammar?"
            " spellings? notes? warnings?"
        )
        return {
            **result_fields(self, "selection", "winner=index"),
            **({} if self.values is None else {"value": jsonable(self.value)}),
            **fields_of(self, names),
            "choices": self.choices.to_dicts(),
        }

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas data frame with a row for each choice (extra `pandas`).

        The columns are text, value, logp, score, probability, probability_low and
        probability_high. Rows are in the caller's order. A probability is NaN as in
        `probabilities`.
        """
        table, values = self.choices, self.choices.texts if self.values is None else self.values
        columns = (table.logp, table.score, self._mask_probabilities(), table.probability_low, table.probability_high)
        names = "text value logp score probability probability_low probability_high"
        return frame(zip(table.texts, values, *columns, strict=True), names)

    def __repr__(self) -> str:
        tie = " (tie)" if self.is_tie else ""
        head = f"Selection({quoted(self.text, REPR_CELLS)}, p {set_words(self, self.index)}, "
        proved = "" if self.certificate.proved else ", proved=False"
        head += f"margin {margin_words(self)}{tie}, coverage {coverage_words(self)}, "
        head += f"rule={self.rule!r}, terminator={self.terminator!r}{proved})"
        lines = [f"  {rank}. {self._describe(choice)}" for rank, choice in enumerate(self.top(_REPR_ROWS), start=1)]
        return listing(head, lines, len(self.choices))

    def _repr_html_(self) -> str:
        """Return the trie with its choices as a picture, for notebooks.

        The winner and masked greedy decoding are marked. The sentences above it are
        those of a terminal.
        """
        return to_html(draw_selection_trie(self, limit=_HTML_NODES), before=notebook_lines(self))

    def plot(self, picture: str = "trie", *, ax: Axes | None = None) -> Axes:
        """Draw the selection with matplotlib (extra `plot`), as a notebook shows it.

        `result.plot().figure.savefig("trie.png")` saves it.

        Args:
            picture: "trie", the texts as one tree; "bars", the choices best first; or
                "strip", everything the model would say next, cut by whole texts and
                step by step, for rule "joint" and the choices' own tokens.
            ax: Axes to draw into; None makes a figure of the picture's size.

        Raises:
            OptionError: For another picture, or a strip of other scores.
            MissingExtraError: If matplotlib is not installed.
        """
        return plot_picture(picture, ("trie", "bars", "strip"), self._draw, ax)

    def _draw(self, picture: str) -> Drawing:
        """Return a picture as `plot` names it."""
        if picture != "strip":
            return draw_selection_trie(self) if picture == "trie" else draw_choices(self)
        strip = cut_strip(self, None)
        if strip is None:
            raise OptionError("picture", picture, f"'trie' or 'bars': {why_no_strip(self)}")
        return draw_strip(self, strip)

    def _describe(self, choice: ChoiceScore) -> str:
        """Return the line of a choice in a `repr`."""
        logp = "" if choice.pruned else f"  logp {logp_words(self, choice)}"
        return f"{quoted(choice.text, REPR_CELLS)}  {share_words(self, choice)}{logp}"


@dataclass(frozen=True, slots=True, repr=False)
class TokenPlan(JsonRecord):
    """The tokens of a request, and the number of rows that it will evaluate.

    A plan is made without a model call. Tokens are pairs of id and text; the text of a
    control token is its name.

    Attributes:
        bos: The BOS token with which the prompt begins, or None.
        prompt: Tokens of the prompt alone.
        context: Tokens of the shared context.
        healed: Bytes of the prompt that are encoded again with the choices.
        boundary: The boundary that will be used.
        terminator: The terminator that will be used.
        choices: The path of each choice after the context.
        boundary_shift: Number of prompt tokens that each choice's encoding changes.
        n_trie_nodes: Number of nodes of the trie.
        rows_prompt: Rows to evaluate for the context.
        rows_inner: Rows to evaluate for the trie.
        rows_naive: Rows if prompt and choice were evaluated for one choice at a time.
        trie: The paths as a tree without log-probabilities.
    """

    bos: int | None
    prompt: tuple[tuple[int, str], ...]
    context: tuple[tuple[int, str], ...]
    healed: bytes
    boundary: str
    terminator: str
    choices: tuple[tuple[tuple[int, str], ...], ...]
    boundary_shift: tuple[int, ...]
    n_trie_nodes: int
    rows_prompt: int
    rows_inner: int
    rows_naive: int
    trie: TrieView

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, with `format` and kind "token_plan".

        The trie is omitted, because `choices` has all of its paths.
        """
        return {
            **result_fields(self, "token_plan", "bos"),
            "prompt": _make_token_dicts(self.prompt),
            "context": _make_token_dicts(self.context),
            **fields_of(self, "healed boundary terminator"),
            "choices": [
                {"tokens": _make_token_dicts(path), "boundary_shift": shift}
                for path, shift in zip(self.choices, self.boundary_shift, strict=True)
            ],
            **fields_of(self, "n_trie_nodes rows_prompt rows_inner rows_naive"),
        }

    def __repr__(self) -> str:
        head = f"TokenPlan({len(self.choices)} choices, boundary={self.boundary!r}, terminator={self.terminator!r}, "
        head += f"rows {self.rows_prompt} + {self.rows_inner}, one by one {self.rows_naive})"
        lines = [f"  context  {self._format_context()}"]
        lines += [f"  {rank}. {_join_texts(path)}" for rank, path in enumerate(self.choices[:_HTML_ROWS], start=1)]
        return listing(head, lines, len(self.choices) + 1)

    def _repr_html_(self) -> str:
        """Return a small table for notebooks: end of the context, then each choice."""
        paths = [("context", self._format_context(), len(self.context))]
        paths += [
            (str(rank), _join_texts(path), len(path)) for rank, path in enumerate(self.choices[:_HTML_ROWS], start=1)
        ]
        rows = [row(cell(name), label(path, wide=True), cell(str(n))) for name, path, n in paths]
        caption = (
            f"{self.boundary} · {self.terminator} · rows {self.rows_prompt} + {self.rows_inner}, "
            f"one by one {self.rows_naive}"
        )
        return table(("", "tokens", "n"), rows, caption, hidden=len(self.choices) - _HTML_ROWS)

    def _format_context(self) -> str:
        """Return the last tokens of the context as text."""
        before = "… " if len(self.context) > _REPR_TOKENS else ""
        return before + _join_texts(self.context[-_REPR_TOKENS:])


def _join_texts(path: tuple[tuple[int, str], ...]) -> str:
    """Return the quoted texts of the tokens of a path, separated by dots."""
    return " · ".join(repr(text) for _, text in path)


def _make_token_dicts(path: tuple[tuple[int, str], ...]) -> list[dict[str, object]]:
    """Return the tokens of a path as dictionaries ready for JSON."""
    return [{"id": token, "text": text} for token, text in path]


@dataclass(frozen=True, slots=True, repr=False)
class SampledChoice(JsonRecord):
    """A choice drawn from softmax(score / temperature) over a fully scored set.

    Attributes:
        selection: The scored set. `selection.index` is the best choice, which may
            differ from the drawn one.
        index: Index of the drawn choice.
        probability: Probability with which the choice was drawn.
        temperature: The temperature; 0 draws the best choice.
        seed: Seed that draws the same choice again.
        close: Whether the batching of calls could have changed which choice is drawn;
            None if the tolerance is not measured.
    """

    selection: Selection
    index: int
    probability: float
    temperature: float
    seed: int
    close: bool | None = None

    def __bool__(self) -> bool:
        """Raise `TypeError`: a selection is neither true nor false."""
        raise truth_error(self, "its `.text`")

    @property
    def text(self) -> str:
        """Return the text of the drawn choice, as given."""
        return self.selection.choices.texts[self.index]

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return the advice on the selection."""
        return self.selection.warnings

    @property
    def logp(self) -> float:
        """Return the raw joint log-probability of the drawn choice."""
        return float(self.selection.choices.logp[self.index])

    @property
    def cost(self) -> Cost:
        """Return the cost of scoring the set; the draw itself takes no model call."""
        return self.selection.cost

    def to_dict(self) -> dict[str, object]:
        """Return the selection's dictionary with kind "sampled_choice", ready for JSON.

        The field `drawn` has index, text, probability, temperature, seed and `close`.
        """
        drawn = fields_of(self, "index text probability temperature seed close")
        return {**self.selection.to_dict(), "kind": "sampled_choice", "drawn": drawn}

    def _repr_html_(self) -> str:
        """Return the picture of the scored set, for notebooks."""
        drawing = draw_selection_trie(self.selection, limit=_HTML_NODES)
        return to_html(drawing, before=[f"drawn {self.in_words()}", *notebook_lines(self.selection)])

    def in_words(self) -> str:
        """Return the drawn choice with its probability and the temperature, as text."""
        tolerance = 0.0 if self.temperature == 0 else written_tolerance(self.selection.signature)
        return f"{quoted(self.text)} p {percent(self.probability, tolerance)} at temperature {self.temperature:g}"

    def __repr__(self) -> str:
        return f"SampledChoice({self.in_words()})\n{self.selection!r}"
