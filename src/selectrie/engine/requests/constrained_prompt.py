"""Turns a prompt and a grammar into tokens and an automaton over the continuation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from selectrie.core.automaton import Automaton, ChoiceAutomaton
from selectrie.core.model import ModelDescription
from selectrie.core.path_model import REMOTE
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import Cost, IntArray, Limits
from selectrie.core.vocabulary import TokenizerKind, Vocabulary, to_bytes
from selectrie.decoding.automaton.automaton_task import AutomatonOutcome, AutomatonSpec, FinishedPath
from selectrie.engine.requests.reasons import reason_heal_unknown
from selectrie.engine.requests.session import Session, fix_time
from selectrie.errors import LOAD_HERE, GrammarError, NothingFoundError, TextError, WholeRowsError, remedies, words
from selectrie.grammar import Grammar
from selectrie.options import GRAMMAR_NODES, PromptParams, SearchParams, record
from selectrie.results import Hypothesis, Selection, Signature, TokenScore
from selectrie.tokenization.canonical import (
    CanonicalPaths,
    HealedPrompt,
    Listing,
    PromptBoundary,
    encode_inside,
    is_cut,
    open_prompt,
)
from selectrie.tokenization.encoding import PromptText
from selectrie.tokenization.healing import MAX_GAP, Healed
from selectrie.tokenization.prompts import (
    Prompt,
    check_length,
    is_chat,
    length_advice,
    prompt_notes,
    read_prompt,
    require_normalized,
    truncate_left,
)

MAX_ENDING = 32
"""Maximum number of characters of following text appended to a grammar's texts."""
_BEGINNING = re.compile(r"[^\n]*\n*")


def shorten_following(vocabulary: Vocabulary, following: str) -> str:
    """Return the part of the following text that is appended to a grammar's texts.

    It is evaluated after every text, so it is as short as possible: the fewest tokens
    that hold more than spaces and tabs. It has at most `MAX_ENDING` characters and ends
    at the latest after the first line and its line ends.
    """
    beginning = _BEGINNING.match(following)
    whole = (beginning[0][:MAX_ENDING] if beginning else "").encode()
    # Encoded as the inside of a text: "\n\n" is one token only at the end of a text.
    data, stop = following[: 2 * MAX_ENDING].encode(), 0
    for token in encode_inside(vocabulary, data):
        stop += int(vocabulary.lengths[token])
        if stop >= len(whole):
            break
        if data[stop] & 0xC0 != 0x80 and data[:stop].strip(b" \t"):
            return data[:stop].decode()
    return whole.decode()


def remove_following(selection: Selection, grammar: Grammar, text: str) -> Selection:
    """Return a selection whose texts do not end with `text` any more.

    Args:
        selection: A selection among the texts of `grammar.followed_by(text)`.
        grammar: The grammar without the ending.
        text: The ending.
    """
    if not text:
        return selection
    texts = tuple(one.removesuffix(text) for one in selection.choices.texts)
    facts = selection.grammar
    return replace(
        selection,
        choices=replace(selection.choices, texts=texts),
        terminator="text",
        signature=add_following(selection.signature, text),
        grammar=None if facts is None else replace(facts, name=grammar.name, digest=grammar.digest),
    )


def add_following(signature: Signature, text: str) -> Signature:
    """Return the signature of scores that include the following text `text`."""
    return replace(signature, terminator="text", following_bytes=len(text.encode()))


_SPACE = b" "
_MAX_ENCODED = 1_000
"""Maximum number of texts of a grammar that are encoded before a search."""


@dataclass(frozen=True, slots=True, eq=False)
class ConstrainedPrompt:
    """A prompt whose continuation a grammar restricts, as tokens.

    Attributes:
        vocabulary: The model's vocabulary.
        grammar: The grammar.
        prompt: int32[T], the context: the tokens of the prompt that are kept.
        automaton: Automaton that accepts `healed`, then `delimiter`, then a text of the
            grammar.
        healed: Bytes of the prompt after the kept context, which every path spells
            first.
        delimiter: Bytes before the text: the space that the tokenizer adds, then the
            delimiter of the options.
        boundary: The boundary that is used, "heal" or "split".
        terminator: "eog", "none" or "unless-continued".
        canonicity: Checks which paths after the prompt are canonical.
        doubt: Why texts may be missing (`PromptBoundary.doubt`), or "".
        notes: Notes of the answer.
        shares_space: Whether a text that begins with a space uses the space in
            `delimiter` as its first byte. A path then spells only the rest of such a
            text.
        time: The time that the chat template was given, in ISO 8601, or "".
        skips_template: As in `Selection`.
    """

    vocabulary: Vocabulary
    grammar: Grammar
    prompt: IntArray
    automaton: Automaton
    healed: bytes
    delimiter: bytes
    boundary: str
    terminator: str
    canonicity: CanonicalPaths
    doubt: str = ""
    notes: tuple[str, ...] = ()
    shares_space: bool = False
    time: str = ""
    skips_template: bool = False

    @property
    def ended_by(self) -> str:
        """Return the value of `Hypothesis.ended_by` for complete texts."""
        return "eog" if self.terminator == "eog" else "grammar"

    def spec(self, search: SearchParams, *, rule: str = "joint", budget: int = GRAMMAR_NODES) -> AutomatonSpec:
        """Return the specification of a search of the automaton, or of exact sampling.

        Each text is returned once, with its best path. `budget` is used as
        `budget_nodes` if `search` has none.
        """
        if search.budget_nodes is None:
            search = replace(search, budget_nodes=budget)
        own = self.canonicity if search.canonical_only else None
        return AutomatonSpec(
            self.vocabulary,
            max_tokens=search.max_tokens,
            terminator=self.terminator,
            rule=rule,
            search=search,
            healed=self.healed,
            space_prefix=self.delimiter,
            canonical=None if own is None else own.is_canonical,
            canonical_path=None if own is None else own.canonical_path,
            may_be_adjacent=None if own is None else self.may_join,
            last=int(self.prompt[-1]) if self.healed else None,
        )

    def search_automaton(self, *, canonical_only: bool) -> Automaton:
        """Return the automaton to search for canonical paths only, or for all paths."""
        return self.canonical_automaton() if canonical_only else self.automaton

    def canonical_automaton(self) -> Automaton:
        """Return an automaton that accepts the canonical path of every text.

        If the grammar has at most `_MAX_ENCODED` texts, no other path is accepted, and
        every allowed prefix leads to a text. Otherwise, or if the texts cannot be
        listed, the result is `automaton`, which accepts paths in any tokens.
        """
        texts = _list_few(self.grammar)
        if texts is None:
            return self.automaton
        before, vocabulary = self.healed + self.delimiter, self.vocabulary
        data = dict.fromkeys(text.encode() for text in texts)
        if self.shares_space:  # the empty text has no path
            wholes = [one if one[:1] == _SPACE else _SPACE + one for one in data if one]
        else:
            wholes = [before + one for one in data]
        paths: dict[tuple[int, ...], None] = {}
        for whole in wholes:
            with suppress(TextError):  # no tokens spell it
                paths[tuple(self.canonicity.encode(whole))] = None
        if b"" not in wholes:
            paths.pop((), None)  # of texts without a canonical path
        is_named_only = vocabulary.lengths == 0  # no text of a list is spelled by such tokens
        is_named_only[vocabulary.eog] = True
        kept = [path for path in paths if not is_named_only[list(path)].any()]
        return ChoiceAutomaton(TokenTrie.from_sequences(kept)) if kept else self.automaton

    @property
    def may_join(self) -> Callable[[int, int], bool]:
        """Return a function that tells whether a token may follow another one.

        The tokens belong to a canonical path after the prompt.
        """
        return self.canonicity.may_join_apart if self.doubt else self.canonicity.may_join

    @property
    def healing(self) -> Healed:
        """Return the rule by which tokens count as healed bytes or as text."""
        return Healed(len(self.healed), self.vocabulary.lengths)

    def text_of(self, tokens: IntArray) -> bytes:
        """Return the bytes of a path's text, without healed bytes and delimiter."""
        return self.read(self.data_of(tokens))

    def data_of(self, tokens: IntArray) -> bytes:
        """Return the bytes of a path after the healed bytes and the delimiter."""
        return self.vocabulary.decode(tokens)[len(self.healed) + len(self.delimiter) :]

    def read(self, data: bytes) -> bytes:
        """Return the text, or the prefix of a text, of a path with the bytes `data`.

        `data` is the result of `data_of`. If two texts differ only by a space at their
        beginning, the one without the space is returned.
        """
        if not self.shares_space:
            return data
        whole = _SPACE + data
        if data[:1] in (b"", _SPACE):
            return whole
        grammar = self.grammar.automaton(self.vocabulary)
        states = {text: grammar.walk(grammar.start(), text) for text in (data, whole)}
        complete = (text for text, state in states.items() if state >= 0 and grammar.can_end(state))
        return next(complete, data if states[data] >= 0 else whole)

    def reason(self, width: float) -> str:
        """Return why even a finished search proves nothing; "" if it proves its result.

        `width` is the width of the healed bytes' log-probability interval, in nats.
        """
        if self.doubt:
            return self.doubt
        if width > MAX_GAP:
            return reason_heal_unknown(width)
        return ""

    def hypothesis(self, path: FinishedPath) -> Hypothesis:
        """Return the record of a text that a search found or exact sampling drew.

        Its log-probability is that of its best token path, not the sum over all of its
        paths.
        """
        data = self.read(path.data)
        return Hypothesis(
            text=decode_text(data),
            data=data,
            tokens=TokenScore.along(self.vocabulary, path.tokens, path.token_logp),
            logp=path.logp_path,
            logp_path=path.logp_path,
            logp_end=path.logp_terminator,
            score=path.score,
            n_paths=path.n_paths,
            complete=True,
            ended_by=self.ended_by,
        )

    def signature(self, session: Session, rule: str) -> Signature:
        """Return the signature of scores by the rule named `rule`."""
        return Signature.of(
            session.model.identity,
            session.check,
            rule=rule,
            terminator=self.terminator,
            boundary=self.boundary,
            time=self.time,
        )

    def cost(self, cost: Cost, texts: Sequence[Hypothesis] | Sequence[FinishedPath]) -> Cost:
        """Return `cost` with `rows_naive` set: the rows for evaluating each text alone.

        The prompt counts once for every text.
        """
        return replace(cost, rows_naive=sum(len(self.prompt) + len(one.tokens) for one in texts))


UNREAD_REMEDY = remedies("use a grammar that allows fewer tokens at a time", operator=LOAD_HERE)


def nothing_found_error(
    constrained: ConstrainedPrompt, outcome: AutomatonOutcome, max_tokens: int
) -> NothingFoundError:
    """Return the error that says why a search found no text and what helps."""
    reasons: list[str] = []
    advice: list[str] = []
    if not outcome.proved and outcome.best_unread == outcome.best_open:
        reasons.append("the model does not tell enough tokens of a row")
        advice.append(UNREAD_REMEDY)
    elif not outcome.proved:
        reasons.append(f"the budget ended after {outcome.n_evaluated} rows")
        advice += ["raise `budget_nodes`", "search with a beam", "use a grammar of fewer and shorter texts"]
    elif outcome.cut_bound > -np.inf:
        reasons.append(f"none has at most {max_tokens} tokens")
        advice += ["raise `max_tokens`", "use a grammar of shorter texts"]
    else:
        reasons.append("no path of tokens leads to one")
    if outcome.n_dead_ends:
        reasons.append(f"{outcome.n_dead_ends} paths were dead ends")
    if outcome.n_other:
        reasons.append(f"{outcome.n_other} were in tokens that the tokenizer would not write")
        advice.append("allow any tokens (`canonical_only=False`)")
    reasons += [constrained.doubt] if constrained.doubt else []
    advice = advice or ["use a grammar whose texts this model has tokens for"]
    return NothingFoundError(constrained.grammar.name, ", ".join(reasons), remedies(*advice))


def result_subject(*, strings: bool) -> str:
    """Return the value of `about` in results: "strings" or "token paths".

    It says what certificates and masses refer to: texts in the tokenizer's own encoding
    (with `strings`), or any token paths.
    """
    return "strings" if strings else "token paths"


def decode_text(data: bytes) -> str:
    """Decode the bytes of a text for a result; invalid UTF-8 becomes U+FFFD."""
    return data.decode("utf-8", "replace")


def constrain(
    model: ModelDescription,
    prompt: Prompt,
    grammar: Grammar,
    *,
    max_tokens: int,
    terminator: str,
    prompting: PromptParams,
) -> ConstrainedPrompt:
    """Check and tokenize a prompt and a grammar.

    With boundary "heal", prompt tokens that the continuation may change are removed,
    and the continuation spells their bytes first. "split" keeps them. "harness" applies
    to choices only and raises an error.

    Args:
        max_tokens: Maximum number of tokens after the prompt.
        terminator: One of `BEAM_TERMINATORS`.

    Raises `RequestError` for everything that can be found invalid without a model call.
    """
    record("prompting", prompting, PromptParams)
    vocabulary = model.vocabulary
    prompting = fix_time(vocabulary, prompting, prompt)
    check = None if prompting.truncate == "left" else partial(check_length, vocabulary, model.limits)
    read = read_prompt(vocabulary, prompt, prompting, check_length=check)
    is_served = model.identity.precision == REMOTE
    if terminator == "auto":
        ends_turn = is_served or is_chat(prompt, prompting) or _has_control(vocabulary, read)
        terminator = _choose_terminator(vocabulary, grammar, ends_turn=ends_turn)
        if terminator == "unless-continued" and is_served:
            terminator = "none"  # it has no end of generation
    if terminator == "unless-continued" and is_served:
        raise WholeRowsError(words("`terminator='unless-continued'`"), "use 'eog' or 'none'")
    before = to_bytes(prompting.delimiter, "delimiter")
    opened = _fit_prompt(
        vocabulary, model.limits, read, prompting, max_tokens, listing=lambda: list_bytes_after(before, grammar)
    )
    takes_space = bool(opened.space_prefix) and vocabulary.with_added_space(_SPACE) == _SPACE
    shares_space = takes_space and not before
    delimiter = before if takes_space and before[:1] == _SPACE else opened.space_prefix + before
    return ConstrainedPrompt(
        vocabulary=vocabulary,
        grammar=grammar,
        prompt=opened.context,
        automaton=grammar.automaton(vocabulary, prefix=opened.healed + delimiter, shares_space=shares_space),
        healed=opened.healed,
        delimiter=delimiter,
        boundary="heal" if opened.healed else "split",
        terminator=terminator,
        canonicity=opened.paths,
        doubt=opened.doubt
        or _explain_unwritten(vocabulary, grammar, opened, before)
        or (_explain_alike(vocabulary, grammar) if shares_space else ""),
        notes=prompt_notes(read),
        shares_space=shares_space,
        time=read.time,
        skips_template=read.skips_template,
    )


def _explain_unwritten(vocabulary: Vocabulary, grammar: Grammar, opened: PromptBoundary, before: bytes) -> str:
    """Return why a text of the grammar may have no canonical path; "" if all have one.

    A text has none if the tokenizer does not write it unchanged. If there may be such
    texts and the grammar has few texts, each of them is encoded to find out. Raises
    `TextError` for a text that the tokenizer would normalise.
    """
    start, used = opened.healed + before, _bytes_used(vocabulary, grammar)
    at_prompt = ""
    if opened.is_changed:
        at_prompt = "the tokenizer does not write the prompt unchanged"
    elif is_cut(opened.healed) and vocabulary.kind is not TokenizerKind.LONGEST:
        at_prompt = "the tokenizer may not write a text unchanged after part of a character"
    reason = at_prompt or may_alter(vocabulary, start, used)
    if not reason:
        return ""
    texts = _list_few(grammar)
    if texts is not None:
        altered = vocabulary.tokenizing.altered
        # Any text may be altered then, not only those with some bytes.
        all_may = altered is None or bool(at_prompt)
        for text in texts:
            data = text.encode()
            require_normalized(vocabulary, before + data, f"text {text!r} of the grammar")
            may = all_may or any(one in start + data for one in altered or ())
            if may and not opened.paths.writes(before + data):
                return f"the tokenizer does not write {text!r} unchanged"
        return ""
    return reason


def _list_few(grammar: Grammar) -> list[str] | None:
    """Return the texts of a grammar; None if they are many or unlistable."""
    try:
        texts = grammar.listed(_MAX_ENCODED)
    except GrammarError:  # llguidance reads it
        return None
    return list(texts) if texts is not None and len(texts) <= _MAX_ENCODED else None


def list_bytes_after(before: bytes, grammar: Grammar) -> list[bytes] | None:
    """Return the texts of a grammar as bytes, each after the bytes `before`.

    Return None if there are many texts or they cannot be listed.
    """
    texts = _list_few(grammar)
    return None if texts is None else [before + text.encode() for text in texts]


def _explain_alike(vocabulary: Vocabulary, grammar: Grammar) -> str:
    """Return why two texts of the grammar may have the same tokens; "" if none have.

    This concerns tokenizers that add a space before a text unless it begins with one.
    """
    automaton = grammar.automaton(vocabulary)
    start = automaton.start()
    begins = {byte for byte in range(256) if automaton.walk(start, bytes([byte])) >= 0}
    if not automaton.can_end(start) and (_SPACE[0] not in begins or len(begins) == 1):
        return ""
    texts = _list_few(grammar)
    if texts is None:
        return "the tokenizer writes a text alike with and without a space before it"
    others = frozenset(texts)
    pair = next((text for text in texts if text[:1] == " " != text[1:2] and text[1:] in others), None)
    if pair is not None:
        return f"the tokenizer writes {pair!r} and {pair[1:]!r} alike"
    return "the tokenizer writes no token for the empty text" if "" in others else ""


def _bytes_used(vocabulary: Vocabulary, grammar: Grammar) -> frozenset[int]:
    """Return the bytes that occur in texts of the grammar, and possibly more.

    The bytes of tokens that the grammar names are included.
    """
    terminals = grammar.token_terminals
    if any(one.negated for one in terminals):
        return frozenset(range(256))
    named = {token for one in terminals for token in one.tokens}
    spelled = (
        piece
        for token, (text, piece) in enumerate(zip(vocabulary.texts, vocabulary.pieces, strict=True))
        if text in named or token in named
    )
    return grammar.bytes_used.union(*spelled) if named else grammar.bytes_used


def may_alter(vocabulary: Vocabulary, start: bytes, used: frozenset[int]) -> str:
    """Return why the tokenizer may change a text after `start`; "" if it does not.

    `used` holds all bytes that the text may consist of.
    """
    altered = vocabulary.tokenizing.altered
    written = "every text" if altered is None else _quote_altered(altered, start, used)
    return f"the tokenizer does not write {written} unchanged" if written else ""


def _quote_altered(altered: Iterable[bytes], start: bytes, used: frozenset[int]) -> str:
    """Return the first string that the tokenizer may alter, quoted; "" for none.

    Of the `altered` strings, the shortest one that may occur is returned; of equally
    short ones, the first in byte order. A string may occur if `start` contains it. It
    may also occur if `start` ends with a prefix of it and the rest consists of bytes in
    `used`.
    """

    def may_occur(one: bytes) -> bool:
        overlaps = (n for n in range(len(one)) if start.endswith(one[:n]))
        return one in start or any(used.issuperset(one[n:]) for n in overlaps)

    first = min(filter(may_occur, altered), key=lambda one: (len(one), one), default=None)
    return "" if first is None else repr(decode_text(first))


def _fit_prompt(
    vocabulary: Vocabulary,
    limits: Limits,
    read: PromptText,
    prompting: PromptParams,
    max_tokens: int,
    *,
    listing: Listing,
) -> PromptBoundary:
    """Return the prompt, opened for a continuation and truncated if needed.

    It is truncated on the left if the options allow it. Raises `PromptTooLongError` if
    a path of maximum length does not fit after it.
    """
    opened = open_prompt(vocabulary, read, prompting.boundary, listing)
    available = limits.nodes - max_tokens
    n_more = max_context_tokens(opened) - len(opened.prompt_tokens)
    if max_context_tokens(opened) > available > n_more and prompting.truncate == "left":
        read = truncate_left(vocabulary, read, available - n_more)
        opened = open_prompt(vocabulary, read, prompting.boundary, listing)
    if max_context_tokens(opened) > available:
        n_context = max_context_tokens(opened)
        remedy = length_advice(n_context, max_tokens, limits.nodes - 1, can_shorten=available > n_more)
        raise limits.too_long(n_context + max_tokens, remedy)
    return opened


def max_context_tokens(opened: PromptBoundary | HealedPrompt) -> int:
    """Return the maximum number of tokens of the context and the healed bytes.

    Each healed byte takes at most one token.
    """
    return len(opened.context) + len(opened.healed)


def _choose_terminator(vocabulary: Vocabulary, grammar: Grammar, *, ends_turn: bool) -> str:
    """Return the terminator that "auto" selects.

    It is "none" if no text of the grammar continues another one. Otherwise, or if that
    is unknown, it is "eog" if a turn ends after the text, and else "unless-continued".
    """
    if is_prefix_free(grammar):
        return "none"
    return "eog" if ends_turn and len(vocabulary.eog) else "unless-continued"


def _has_control(vocabulary: Vocabulary, read: PromptText) -> bool:
    """Return whether a prompt has a control token other than BOS."""
    is_control = np.isin(read.prefix, vocabulary.control)
    return bool(is_control[read.prefix != vocabulary.bos].any())


def is_prefix_free(grammar: Grammar) -> bool:
    """Return whether no text of the grammar is a prefix of another.

    The result is False if that is unknown.
    """
    try:
        return grammar.is_prefix_free
    except GrammarError:  # llguidance reads it
        return False
