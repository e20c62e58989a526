"""Defines the results of a beam search and of sampling from a grammar."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, overload

import numpy as np

from selectrie.core.notation import count, percent, quoted, write_logp, written_tolerance
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import Cost
from selectrie.options import BeamSearchParams
from selectrie.results.advice import Advice, Remedy, notes_advice
from selectrie.results.drawing.bars import draw_texts
from selectrie.results.drawing.plot import plot_picture
from selectrie.results.drawing.shapes import Drawing, to_html
from selectrie.results.drawing.trie import MAX_NODES, End, TrieView, draw_trie
from selectrie.results.plain import REPR_CELLS, JsonRecord, fields_of, listing, plain, text_fields
from selectrie.results.records import Signature, TokenScore, result_fields
from selectrie.results.trie_view import view_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_REPR_ROWS = 8
_REASONS = {
    "length": ("the longest allowed path was reached", Remedy("max_tokens")),
    "budget": ("the budget was used up", Remedy("budget_nodes")),
    "deadline": ("time ran out", Remedy("deadline_s")),
}


@dataclass(frozen=True, slots=True)
class Hypothesis(JsonRecord):
    """A text of a grammar, or a prefix of one.

    Attributes:
        text: The text; invalid UTF-8 is replaced.
        data: Bytes of the text, without healed bytes.
        tokens: The most probable token path, including tokens that spell healed bytes.
        logp: Joint log-probability of the text, terminator included, given the healed
            bytes. A beam search adds up all `n_paths` token paths; an exact search and
            samples count `tokens` alone.
        logp_path: Joint log-probability of `tokens` alone.
        logp_end: The terminator's part of `logp_path`.
        score: logp / n_tokens ** length_penalty.
        n_paths: Number of token paths found that spell the text.
        complete: Whether the text is complete; if not, it is a prefix of a text.
        ended_by: "eog", "grammar" (the grammar allows no further token, or ending adds
            nothing to the score), "length" (`max_tokens`), "budget" or "deadline".
        group: Index of the group of beams that found the text.
    """

    text: str
    data: bytes = field(repr=False)
    tokens: tuple[TokenScore, ...] = field(repr=False)
    logp: float
    logp_path: float
    logp_end: float
    score: float
    n_paths: int
    complete: bool
    ended_by: str
    group: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON; -inf becomes None."""
        names = "logp logp_path logp_end score n_paths complete ended_by group tokens"
        return {**text_fields(self.text, self.data), **fields_of(self, names)}


@dataclass(frozen=True, slots=True)
class BeamCertificate:
    """States whether the texts returned by a beam search are proved to be the best.

    Attributes:
        proved: Whether no other text can have a higher score than the last one
            returned.
        about: "strings" if only the tokenizer's own encoding of each text counts. With
            "token paths", the proof compares single paths, not sums over the paths of a
            text.
        bound_gap: Score of the last returned path minus the best score that a dropped
            or unfinished path could reach. inf without such a path; -inf if fewer texts
            were found than requested.
        nodes_evaluated: Number of rows read.
        method: "beam" or "best_first".
        reason: Why the result is not proved: the event that ended the search, or a
            doubt that even a longer search could not remove. "" if it is proved.
    """

    proved: bool
    about: str
    bound_gap: float
    nodes_evaluated: int
    method: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BeamResult(JsonRecord, Sequence[Hypothesis]):
    """The best texts of a grammar after a prompt, best first.

    Equality ignores `cost`.

    Attributes:
        hypotheses: Complete texts, at most `beam.n`.
        incomplete: Unfinished paths, if no text was finished or `beam.incomplete` is
            set.
        greedy: The text of masked greedy decoding; None if it does not end. It uses
            only canonical paths if only those count. It does not depend on the width.
        agrees_with_greedy: Whether greedy decoding gives the best text; None if the
            search did not follow it far enough.
        certificate: Whether these texts are proved to be the best.
        stopped: "done", "length", "budget" or "deadline".
        n_dead_ends: Number of paths that can neither end nor continue.
        n_merged: Number of paths that spell the text of another path.
        n_refused: Number of finished paths that are not the tokenizer's encoding of
            their text.
        n_steps: Number of tokens of the longest path.
        close_steps: Steps at which other paths could have been kept, because of the
            batching of calls (`signature.tolerance`) or of a token whose probability a
            server did not return.
        coverage: Total probability of the paths that were found of the returned texts.
        healed: Bytes of the prompt that every path spells first.
        log_heal: As in `Selection`; already subtracted from every logp.
        heal_gap: As in `Selection`.
        grammar: Name of the grammar.
        grammar_digest: Digest of the grammar; equal for equal rules.
        beam: The options of the search.
        cost: The model work done for the search.
        signature: Model, software and options that determine the scores.
        notes: As in `Selection`.
    """

    hypotheses: tuple[Hypothesis, ...]
    incomplete: tuple[Hypothesis, ...]
    greedy: Hypothesis | None
    agrees_with_greedy: bool | None
    certificate: BeamCertificate
    stopped: str
    n_dead_ends: int
    n_merged: int
    n_refused: int
    n_steps: int
    close_steps: tuple[int, ...]
    coverage: float
    healed: bytes
    log_heal: float
    heal_gap: float
    grammar: str
    grammar_digest: str
    beam: BeamSearchParams
    cost: Cost = field(compare=False)
    signature: Signature
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.hypotheses)

    @overload
    def __getitem__(self, index: int) -> Hypothesis: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hypothesis, ...]: ...
    def __getitem__(self, index: int | slice) -> Hypothesis | tuple[Hypothesis, ...]:
        return self.hypotheses[index]

    @property
    def best(self) -> Hypothesis:
        """Return the best complete hypothesis, or the best incomplete one.

        The latter if none is complete; `Hypothesis.complete` says which it is.
        """
        return (self.hypotheses or self.incomplete)[0]

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return the advice on this result."""
        ended, code, more = self.stopped, "stopped", "a better text may be longer"
        if not self.best.complete:
            ended, code, more = self.best.ended_by, "incomplete", "it is the beginning of a text"
        notes = notes_advice(self.notes)
        if ended not in _REASONS:
            return notes
        reason, remedy = _REASONS[ended]
        return Advice(code, f"{reason}; {more}.", remedy), *notes

    @property
    def text(self) -> str:
        """Return the text of the best hypothesis."""
        return self.best.text

    @property
    def logp(self) -> float:
        """Return the joint log-probability of the best hypothesis."""
        return self.best.logp

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the complete texts, best first."""
        return tuple(hypothesis.text for hypothesis in self.hypotheses)

    @property
    def terminator(self) -> str:
        """Return the terminator of the texts, "eog" or "none"."""
        return self.signature.terminator

    @property
    def shown(self) -> tuple[Hypothesis, ...]:
        """Return complete and incomplete hypotheses, and the greedy one if missing."""
        listed = (*self.hypotheses, *self.incomplete)
        return listed if self.greedy is None or self._greedy_index is not None else (*listed, self.greedy)

    @property
    def _greedy_index(self) -> int | None:
        """Return the index of the hypothesis with the greedy path, or None."""
        if self.greedy is None:
            return None
        path = [token.id for token in self.greedy.tokens]
        listed = (*self.hypotheses, *self.incomplete)
        return next((at for at, text in enumerate(listed) if [token.id for token in text.tokens] == path), None)

    def trie(self, limit: int = 60, *, fold: Collection[int] = ()) -> TrieView:
        """Return the `limit` most probable nodes of the trie of the paths in `shown`.

        The choices of the view are indices into `shown`. Below the nodes whose numbers
        are in `fold`, nothing is shown.
        """
        paths = [hypothesis.tokens for hypothesis in self.shown]
        ids = [np.array([token.id for token in path], dtype=np.int32) for path in paths]
        trie = TokenTrie.from_flat(np.concatenate(ids), np.cumsum([0, *map(len, ids)]))
        pieces = [b""] * (int(trie.token.max(initial=0)) + 1)
        edge_logp = np.full(len(trie.token), np.nan)
        for at, path in enumerate(paths):
            node = int(trie.path_node[trie.path_of[at]])
            for token in reversed(path):
                pieces[token.id] = token.piece or token.spelling.encode()
                edge_logp[node] = token.logp
                node = int(trie.parent[node])
        greedy = None if self.greedy is None else self._greedy_index
        greedy = len(paths) - 1 if greedy is None and self.greedy is not None else greedy
        view = view_of(trie, pieces, limit=limit, edge_logp=edge_logp, winner=0, greedy=greedy, fold=fold)
        return replace(view, tolerance=written_tolerance(self.signature))

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, with `format` and kind "beam".

        -inf, inf and NaN become None.
        """
        names = (
            "terminator stopped hypotheses incomplete greedy agrees_with_greedy certificate n_dead_ends n_merged"
            " n_refused n_steps close_steps coverage healed log_heal heal_gap cost signature notes? warnings?"
        )
        beam = {name: value for name, value in plain(self.beam).items() if name not in ("on_progress", "on_found")}
        return {
            **result_fields(self, "beam", "grammar grammar_digest"),
            "beam": {**beam, "expand": self.beam.expand is not None},
            **fields_of(self, names),
        }

    def draw(self, picture: str, *, fold: Collection[int] = ()) -> Drawing:
        """Return a picture as `plot` names it; `fold` is as for `trie`."""
        tolerance = written_tolerance(self.signature)
        if picture == "bars":
            texts = [(one.text, one.logp, one.complete) for one in (*self.hypotheses, *self.incomplete)]
            return draw_texts(texts, title="The texts that were found, best first", tolerance=tolerance)

        def end(choice: int) -> End:
            p = math.exp(min(0.0, self.shown[choice].logp))
            return End("probability of the text", p, p, percent(p, tolerance))

        title = f"The tokens of {count(len(self.shown), 'text')} as a tree: {quoted(self.text)} is the best"
        return draw_trie(self.trie(MAX_NODES, fold=fold), end, title=title)

    def plot(self, picture: str = "bars", *, ax: Axes | None = None) -> Axes:
        """Draw the texts that were found with matplotlib (extra `plot`).

        Args:
            picture: "bars", the texts best first, or "trie", the texts as one tree.
            ax: Axes to draw into; None makes a figure of the picture's size.

        Raises:
            OptionError: For another picture.
            MissingExtraError: If matplotlib is not installed.
        """
        return plot_picture(picture, ("bars", "trie"), self.draw, ax)

    def _repr_html_(self) -> str:
        """Return the texts with bars, for notebooks."""
        shown = [(h.text, h.logp, h.complete) for h in (*self.hypotheses, *self.incomplete)[:_REPR_ROWS]]
        proof = "proved" if self.certificate.proved else "not proved"
        caption = f"{self.grammar} · {proof}, of {self.certificate.about}"
        drawing = draw_texts(
            shown,
            title=caption,
            n=len(self.hypotheses) + len(self.incomplete),
            tolerance=written_tolerance(self.signature),
        )
        return to_html(drawing, before=[caption, *(f"! {advice}" for advice in self.warnings)])

    def __repr__(self) -> str:
        tolerance = written_tolerance(self.signature)
        shown = _describe(self.hypotheses, tolerance)
        shown += [f"{line} (incomplete)" for line in _describe(self.incomplete, tolerance)]
        head = f"BeamResult(grammar={self.grammar!r}, width={self.beam.width}, n={self.beam.n})"
        return listing(head, shown, len(self.hypotheses) + len(self.incomplete))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Samples(JsonRecord, Sequence[Hypothesis]):
    """Texts of a grammar after a prompt, in the order of their seeds.

    Equality ignores `cost`.

    Attributes:
        texts: The texts.
        exact: Whether texts were drawn by their probability among all texts of the
            grammar. If not, each token was drawn among the allowed tokens, which gives
            another distribution.
        about: "strings" if only the tokenizer's own encoding of a text counts, else
            "token paths".
        seed: Seed of the first text.
        max_tokens: Maximum number of tokens of a text; longer texts are excluded.
        mass: Estimate of the total probability of the grammar's texts; None if draws
            are not exact.
        mass_low: Exact lower bound of `mass`; None if draws are not exact.
        mass_high: Exact upper bound of `mass`; None if draws are not exact.
        n_attempts: Number of draws that were tried, including rejected ones.
        close_steps: For each text, the draws (counted from 0) whose outcome the
            batching of calls could have changed. A text without such draws depends only
            on its seed. None if the tolerance is not measured.
        healed: As in `Selection`.
        log_heal: As in `Selection`, and subtracted from every `logp`. It is 0.0 if
            texts were drawn token by token. Their `logp` then includes the healed
            bytes, which each text spells in its own steps.
        heal_gap: As in `Selection`.
        grammar: Name of the grammar.
        grammar_digest: Digest of the grammar.
        cost: The model work done for the draws.
        signature: Model, software and options that determine the scores.
        reason: Why draws that were requested as exact are not, or "". If it is set,
            texts may be missing.
        notes: As in `Selection`.
    """

    texts: tuple[Hypothesis, ...]
    exact: bool
    about: str
    seed: int
    max_tokens: int
    mass: float | None
    mass_low: float | None
    mass_high: float | None
    n_attempts: int
    close_steps: tuple[tuple[int, ...], ...] | None
    healed: bytes
    log_heal: float
    heal_gap: float
    grammar: str
    grammar_digest: str
    cost: Cost = field(compare=False)
    signature: Signature
    reason: str = ""
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, index: int) -> Hypothesis: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hypothesis, ...]: ...
    def __getitem__(self, index: int | slice) -> Hypothesis | tuple[Hypothesis, ...]:
        return self.texts[index]

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return the advice on this result."""
        return notes_advice(self.notes)

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, with `format` and kind "samples".

        -inf becomes None.
        """
        names = (
            "texts exact reason about seed max_tokens mass mass_low mass_high n_attempts close_steps healed"
            " log_heal heal_gap grammar grammar_digest cost signature notes? warnings?"
        )
        return result_fields(self, "samples", names)

    def _repr_html_(self) -> str:
        """Return the texts with bars, for notebooks."""
        shown = [(h.text, h.logp, h.complete) for h in self.texts[:_REPR_ROWS]]
        caption = f"{self.grammar} · {len(self)} {'exact' if self.exact else 'local'} draws"
        drawing = draw_texts(shown, title=caption, n=len(self), tolerance=written_tolerance(self.signature))
        return to_html(drawing, before=[caption, *(f"! {advice}" for advice in self.warnings)])

    def __repr__(self) -> str:
        head = f"Samples({self.grammar!r}, n={len(self)}, {'exact' if self.exact else 'local'})"
        return listing(head, _describe(self.texts, written_tolerance(self.signature)), len(self))


def _describe(texts: Sequence[Hypothesis], tolerance: float) -> list[str]:
    """Return the lines of the first texts in a `repr`."""
    return [
        f"  {quoted(text.text, REPR_CELLS)}  logp {write_logp(text.logp, tolerance)}" for text in texts[:_REPR_ROWS]
    ]
