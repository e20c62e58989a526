"""Prepares a selection: checks and tokenizes a request."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from typing import Any, TypeVar

import numpy as np

from selectrie.core.model import ModelDescription
from selectrie.core.numerics import Interval, common_length
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import FloatArray, IntArray, Limits, OffsetArray
from selectrie.core.vocabulary import Vocabulary, to_bytes
from selectrie.decoding.scoring.evaluation import RowNeeds, TrieEvaluation, auto_terminator, check_choices, row_needs
from selectrie.decoding.scoring.rules import Lengths, Objective, log_priors, objective_of
from selectrie.decoding.scoring.tolerance import tolerance_of
from selectrie.decoding.trie.exhaustive import ScorePlan
from selectrie.engine.requests.session import fix_time
from selectrie.errors import ChoiceError, IncompatibleOptionsError, OptionError, OptionRef
from selectrie.options import (
    DEFAULT_PROMPTING,
    DEFAULT_SEARCH,
    TERMINATORS,
    PromptParams,
    ScoringRule,
    SearchParams,
    one_of,
    record,
)
from selectrie.options.checks import is_table, listed, text_of
from selectrie.results import ChoiceScore
from selectrie.tokenization.encoding import EncodedChoices, PromptText, encode_choices, encode_prompt
from selectrie.tokenization.healing import HealPlan, heal_plan
from selectrie.tokenization.prompts import (
    SHORTEN_PROMPT,
    Prompt,
    check_length,
    is_chat,
    prompt_notes,
    read_prompt,
    require_normalized,
    truncate_left,
)

CustomRule = Callable[[ChoiceScore], float]
JOINT = ScoringRule()

SPLIT_NOTE = (
    "boundary 'split' was used instead of 'heal': the tokenizer's encoding of a choice changes tokens of the prompt "
    "whose bytes are not those of the text, or before which there is no other token"
)
LISTED_NOTE = "there is one choice, and it holds commas; if it is a list, give its texts one by one"


@dataclass(frozen=True, slots=True)
class SelectRequest:
    """The options of a selection, as the caller passed them to `Engine.select`."""

    rule: str | ScoringRule | CustomRule = "joint"
    terminator: str = "auto"
    following: str = ""
    prior: Mapping[str, float] | Sequence[float] | None = None
    search: SearchParams = DEFAULT_SEARCH
    prompting: PromptParams = DEFAULT_PROMPTING

    def __post_init__(self) -> None:
        if not isinstance(self.rule, str | ScoringRule) and not callable(self.rule):
            raise OptionError("rule", self.rule, "a name, a ScoringRule, or a callable")
        record("search", self.search, SearchParams)
        record("prompting", self.prompting, PromptParams)
        for name in ("terminator", "following"):
            if not isinstance(getattr(self, name), str):
                raise OptionError(name, getattr(self, name), "a str")

    def named_rule(self) -> ScoringRule:
        """Return the rule as a `ScoringRule`; "joint" if a callable computes scores."""
        if isinstance(self.rule, ScoringRule):
            return self.rule
        return JOINT if callable(self.rule) or self.rule == JOINT.name else ScoringRule(self.rule)

    @property
    def custom(self) -> CustomRule | None:
        """Return the rule if it is a callable, else None."""
        return self.rule if callable(self.rule) else None


@dataclass(frozen=True, slots=True, eq=False)
class PreparedSelect:
    """A selection whose options are checked and whose prompt and choices are tokenized.

    Attributes:
        texts: The choices as given.
        vocabulary: The model's vocabulary.
        encoded: The tokens of prompt and choices.
        trie: The trie of the choices' tokens.
        needs: The rows to evaluate.
        healing: How the probability of the healed bytes is computed.
        terminator: The terminator of the choices.
        lengths: The lengths that rules divide by.
        search: Options of the search.
        plan: Data that all tasks which score the trie share.
        rule: The named rule.
        custom: The caller's callable rule, or None.
        log_prior: float64[C], the log of each choice's prior, or None.
        method: "exhaustive" or "best_first".
        premises: Contexts of the baseline. The same paths are evaluated after each.
        notes: Notes for the user in the result.
        values: The values of the choices if they were a mapping, else None.
        time: The time that the chat template was given, or "".
        skips_template: As in `Selection`.
        groups: int32[C], ascending group numbers. The probabilities of the choices of a
            group are added, and the sums are compared. None compares choices.
    """

    texts: tuple[str, ...]
    vocabulary: Vocabulary
    encoded: EncodedChoices
    trie: TokenTrie
    needs: RowNeeds
    healing: HealPlan
    terminator: str
    lengths: Lengths
    search: SearchParams
    plan: ScorePlan
    rule: ScoringRule = JOINT
    custom: CustomRule | None = None
    log_prior: FloatArray | None = None
    method: str = "exhaustive"
    premises: tuple[IntArray, ...] = ()
    notes: tuple[str, ...] = ()
    values: tuple[object, ...] | None = None
    time: str = ""
    skips_template: bool = False
    groups: IntArray | None = None

    @property
    def plain_needs(self) -> RowNeeds:
        """Return the rows that a baseline needs, which leaves out those for healing."""
        return replace(self.needs, observe=())

    @property
    def rows_naive(self) -> int:
        """Return the rows needed to evaluate each choice alone in each context."""
        n_contexts = 1 + len(self.premises)
        n_tokens = len(self.encoded.context) + sum(map(len, self.premises))
        return n_tokens * len(self.texts) + n_contexts * len(self.encoded.tokens)

    def baseline_key(self, premise: IntArray) -> tuple[bytes, ...]:
        """Return the cache key of a baseline; equal keys mean equal results."""
        encoded = self.encoded
        parts = (premise, encoded.tokens, encoded.offsets, encoded.first_scored)
        return (*(part.tobytes() for part in parts), self.terminator.encode())

    @property
    def n_first(self) -> int:
        """Return the number of leading choices whose order must be proven."""
        return len(self.texts) if self.search.stop == "all" else self.search.k

    def items_to_compare(
        self, scores: Interval[FloatArray], tolerances: FloatArray
    ) -> tuple[Interval[FloatArray], FloatArray, IntArray]:
        """Return the scores to compare, their tolerances and the path index of each.

        Without `groups`, these are the choices, float64[…, C]. With `groups`, they are
        the groups: a score is the log of the summed exp(score) of its choices, its
        tolerance the largest among them, and each group counts as one path.
        """
        if self.groups is None:
            return scores, tolerances, self.trie.path_of
        starts = group_starts(self.groups)
        own: IntArray = np.arange(len(starts), dtype=np.int32)
        sums = scores.map(lambda one: np.logaddexp.reduceat(one, starts, axis=-1))
        return sums, np.maximum.reduceat(tolerances, starts, axis=-1), own

    def tolerances(
        self, tolerance: float, evaluation: TrieEvaluation | None = None, *, adds_up: bool = False
    ) -> FloatArray:
        """Return the tolerance of each score, float64[C]; see `tolerance_of`.

        `tolerance` is the tolerance of a single row.
        """
        return tolerance_of(
            self.rule.name,
            tolerance,
            self.trie,
            self.terminator,
            lengths=self.lengths,
            first_scored=self.encoded.first_scored,
            evaluation=evaluation,
            adds_up=adds_up,
        )

    def objective(self, baseline: FloatArray | None, tolerance: float) -> Objective | None:
        """Return the score that a best-first search maximises, or None.

        None means that the rule gives no bound on unseen paths, so all must be scored.

        Args:
            baseline: float64[C], the baseline of each choice, or None.
            tolerance: Nats by which the batch layout may change the log-probability of
                a row.
        """
        if self.custom is not None:
            return None
        return objective_of(
            self.rule,
            self.trie,
            self.lengths,
            log_prior=self.log_prior,
            baseline=baseline,
            tolerances=self.tolerances(tolerance),
            first_scored=self.encoded.first_scored,
        )


def prepare_selection(
    model: ModelDescription, prompt: Prompt, choices: Choices, request: SelectRequest
) -> PreparedSelect:
    """Check and tokenize a request for a selection.

    Args:
        model: The model.
        prompt: The prompt.
        choices: The texts, or a mapping from values to texts.
        request: The options.

    Raises `RequestError` for everything that can be found invalid without a model call.
    """
    prompting = fix_time(model.vocabulary, request.prompting, prompt)
    if prompting is not request.prompting:
        request = replace(request, prompting=prompting)
    request = resolve_turn_terminator(model.vocabulary, request, prompt)
    return SelectPlan(model, choices, request).prepare(prompt)


def resolve_turn_terminator(vocabulary: Vocabulary, request: SelectRequest, prompt: Prompt) -> SelectRequest:
    """Return the request, with terminator "auto" replaced by "eog" for a chat turn.

    That is done for a chat prompt, unless text follows the choice or the model has no
    end-of-generation token.
    """
    is_open = request.terminator == "auto" and not request.following and len(vocabulary.eog)
    return replace(request, terminator="eog") if is_open and is_chat(prompt, request.prompting) else request


class SelectPlan:
    """Prepares requests that differ in their prompts alone.

    Work that does not depend on the prompt is done once. Choices are encoded, and their
    trie is built, once for each distinct end of a prompt. The end is the text after the
    last control token, and must be short. Chat prompts whose template ends in the same
    text therefore share both.

    Args:
        model: The model.
        choices: The texts, or a mapping from values to texts.
        request: The options.
        premises: Prompts of the baseline for the rules "pmi" and "calibrated", instead
            of the rule's own. They are tokenized with the options of `prompt`.
        groups: As in `PreparedSelect`.

    Raises `RequestError` for choices and options that are invalid for every prompt.
    """

    def __init__(
        self,
        model: ModelDescription,
        choices: Choices,
        request: SelectRequest,
        *,
        premises: Sequence[Prompt] | None = None,
        groups: Sequence[int] | None = None,
    ) -> None:
        self._groups = None if groups is None else np.array(groups, dtype=np.int32)
        self._vocabulary, self._limits, self._request = model.vocabulary, model.limits, request
        read = read_choices(choices)
        self._texts, self._values, self._rule = read.texts, read.values, request.named_rule()
        self._written = _encode_texts(self._vocabulary, self._texts, request.prompting.delimiter)
        self._terminator = _resolve_terminator(request, self._written, self._vocabulary)
        self._premises = premises
        self._prepared: dict[tuple[object, ...], tuple[PreparedSelect, int]] = {}

    def prepare(self, prompt: Prompt, read: PromptText | None = None) -> PreparedSelect:
        """Return the request for this prompt, checked and tokenized.

        `read` is the result of `read_prompt` for the prompt; None computes it here.

        Raises `RequestError` for everything that can be found invalid without a model
        call.
        """
        prompting = self._request.prompting
        if read is None:
            check = None if prompting.truncate == "left" else partial(check_length, self._vocabulary, self._limits)
            read = read_prompt(self._vocabulary, prompt, prompting, check_length=check)
        key = None if prompting.truncate == "left" else _end_key(read)
        if key is None:
            return self._prepare_new(read)
        if key in self._prepared:
            return _replace_prompt(*self._prepared[key], read, self._limits)
        prepared = self._prepare_new(read)
        if len(self._prepared) < _ENDS_KEPT:
            self._prepared[key] = prepared, len(read.prefix)
        return prepared

    def _prepare_new(self, read: PromptText) -> PreparedSelect:
        """Encode the choices after a prompt, build their trie and choose the method."""
        vocabulary, request, rule = self._vocabulary, self._request, self._rule
        longest = max(self._written, key=len, default=b"")
        check_length(self._vocabulary, self._limits, longest, "shorten the longest choice")
        encoded = encode(vocabulary, self._limits, read, self._written, request)
        trie = TokenTrie.from_flat(encoded.tokens, encoded.offsets)
        healing = heal_plan(vocabulary, trie, encoded.healed)
        lengths = Lengths.of(self._texts, trie, encoded.first_scored)
        lengths.for_rule(rule.name)
        needs = row_needs(trie, self._terminator, healing.observations, vocabulary.eog)
        prepared = PreparedSelect(
            texts=self._texts,
            vocabulary=vocabulary,
            encoded=encoded,
            trie=trie,
            needs=needs,
            healing=healing,
            rule=rule,
            custom=request.custom,
            terminator=self._terminator,
            log_prior=log_priors(request.prior, self._texts),
            lengths=lengths,
            search=request.search,
            premises=_premise_contexts(vocabulary, rule, request.prompting)
            if self._premises is None
            else tuple(_baseline_context(vocabulary, one, self._written, request, encoded) for one in self._premises),
            plan=ScorePlan(trie, needs),
            notes=_collect_notes(read, encoded, request.prompting.boundary, self._texts),
            values=self._values,
            time=read.time,
            skips_template=read.skips_template,
            groups=self._groups,
        )
        _check_fits(prepared, self._limits)
        return replace(prepared, method=_choose_method(prepared, self._limits))


_ENDS_KEPT = 16
"""Maximum number of prompt ends for which the prepared request is cached."""
_END_BYTES = 256
"""Maximum length of a prompt end that is cached, in bytes."""


def _end_key(read: PromptText) -> tuple[object, ...] | None:
    """Return the cache key of a prompt's end, or None if the end is too long to cache.

    After prompts with equal keys, the choices have equal tokens. Of the fixed tokens
    before the end, encoding looks only at the last one and at whether there are none,
    one or more (`encoding.is_at_start`).
    """
    if len(read.text) > _END_BYTES:
        return None
    notes = read.is_normalized, read.spelled
    return read.text, read.continues, *notes, min(len(read.prefix), 2), *read.prefix[-1:].tolist()


def _replace_prompt(one: PreparedSelect, n_prefix: int, read: PromptText, limits: Limits) -> PreparedSelect:
    """Return a prepared request, changed to another prompt with the same end.

    `n_prefix` is the number of fixed tokens in the prompt of the prepared request.
    """
    encoded = one.encoded
    context = np.concatenate([read.prefix, encoded.context[n_prefix:]])
    tokens = np.concatenate([read.prefix, encoded.prompt_tokens[n_prefix:]])
    moved_encoded = _replace_fields(encoded, context=context, prompt_tokens=tokens)
    moved = _replace_fields(one, encoded=moved_encoded, skips_template=read.skips_template)
    _check_fits(moved, limits)
    return moved


RecordT = TypeVar("RecordT", PreparedSelect, EncodedChoices)


def _replace_fields(record: RecordT, **fields: object) -> RecordT:
    """Return a copy of a slotted record with some fields changed.

    It takes half the time of `dataclasses.replace`, because `__init__` is not called.
    The records of this module check and compute nothing in `__init__`.
    """
    copy = object.__new__(type(record))
    for name in record.__slots__:
        object.__setattr__(copy, name, fields[name] if name in fields else getattr(record, name))
    return copy


@dataclass(frozen=True, slots=True)
class ReadChoices:
    """Choices that were read.

    Attributes:
        texts: The texts.
        values: The value of each; None if these are the texts.
    """

    texts: tuple[str, ...]
    values: tuple[object, ...] | None = None


Choices = Iterable[Any] | Mapping[Any, str] | type[Any] | ReadChoices
"""The texts to choose from, values that have a text, or a mapping from values to texts.

A type is an Enum class, a `Literal` or `bool`. Other values are given as `Option`s.
"""
_TWO_MEANINGS = (
    "choices must be a list, of texts or of Option(value, text), not a mapping from texts, whose values might be"
    " texts to score or descriptions, which only `decide` shows"
)


def read_choices(choices: Choices) -> ReadChoices:
    """Return the texts and values of choices; raise `ChoiceError` for others."""
    if isinstance(choices, ReadChoices):
        return choices
    if isinstance(choices, Mapping):
        if choices and all(type(one) is str for one in choices):
            raise ChoiceError(_TWO_MEANINGS)
        for index, text in enumerate(choices.values()):
            if not isinstance(text, str):
                raise ChoiceError(f"must be a str, not {type(text).__name__}", index=index)
        return ReadChoices(tuple(choices.values()), tuple(choices))
    given = listed(choices, partial(_not_choices, choices))
    if {*map(type, given)} <= {str}:
        return ReadChoices(given)
    texts, values = zip(*starmap(_text_and_value, enumerate(given)), strict=True)
    return ReadChoices(texts, values)


def _text_and_value(index: int, given: Any) -> tuple[str, object]:
    """Return the text that is scored for a choice, and the value that comes back."""
    text = text_of(given)
    if text is not None:
        return text, given
    from selectrie.decide.questions import Option

    if not isinstance(given, Option):
        allowed = "a str, an int, a bool, an Enum member of these or an Option"
        raise ChoiceError(f"must be {allowed}, not {type(given).__name__}", index=index)
    if given.texts is not None or given.description is not None:
        name = "description" if given.texts is None else "texts"
        raise ChoiceError(f"has `{name}`, which `decide` takes; here an option has one text", index=index)
    return given.scored, given.value


def pairs_of(requests: object, choices: Choices | None) -> Iterator[tuple[Prompt, Choices]]:
    """Iterate over the requests of `Engine.select_many`, pairs of prompt and choices.

    Raises `OptionError` at once if they are not an iterable, and `ChoiceError` for
    choices of all prompts that are invalid.
    """
    if not isinstance(requests, Iterable) or isinstance(requests, str | bytes | Mapping):
        raise OptionError("requests", requests, "pairs of prompt and choices, or prompts beside `choices`")
    if is_table(requests):
        raise OptionError("requests", type(requests).__name__, "one column of prompts beside `choices`")
    if choices is None:
        return iter(requests)
    read = read_choices(choices)
    return ((prompt, read) for prompt in requests)


def _not_choices(choices: object, allowed: str) -> ChoiceError:
    """Return the error for an argument that is not an iterable of choices."""
    if choices is None:
        return ChoiceError("no choices are given; give several texts, such as a list")
    name = type(choices).__name__
    remedy = {"Grammar": "; give it as `grammar=`", "Pattern": "; give its text as `regex=`"}.get(name, "")
    return ChoiceError(f"choices must be {allowed}, not a {name}{remedy}")


def check_terminator(request: SelectRequest) -> str:
    """Return the terminator of a request; raise `OptionError` if it is invalid."""
    one_of("terminator", request.terminator, TERMINATORS)
    if request.terminator == "text" and not request.following:
        raise OptionError("following", request.following, "the text after the choice, for terminator 'text'")
    if request.following and request.terminator not in ("auto", "text"):
        remedy = "leave one of them out"
        raise IncompatibleOptionsError("following", OptionRef("terminator", request.terminator), remedy)
    return request.terminator


def _resolve_terminator(request: SelectRequest, written: list[bytes], vocabulary: Vocabulary) -> str:
    """Return the terminator, with "auto" resolved; raise if it is invalid."""
    terminator = check_terminator(request)
    following = to_bytes(request.following, "following")
    if terminator == "auto":
        terminator = auto_terminator(written, following)
    check_choices(written, terminator)
    if terminator == "eog" and not len(vocabulary.eog):
        raise OptionError("terminator", "eog", "another: this model has no end-of-generation token")
    return terminator


def _collect_notes(read: PromptText, encoded: EncodedChoices, boundary: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the notes of the result about prompt, boundary and choices."""
    split = (SPLIT_NOTE,) if (boundary, encoded.boundary) == ("heal", "split") else ()
    listed = (LISTED_NOTE,) if len(texts) == 1 and "," in texts[0] else ()
    return (*prompt_notes(read), *split, *listed)


def group_starts(groups: IntArray) -> OffsetArray:
    """Return the index of the first choice of each group (`PreparedSelect.groups`)."""
    return np.flatnonzero(np.diff(groups, prepend=-1))


def _encode_texts(vocabulary: Vocabulary, texts: Sequence[str], delimiter: str) -> list[bytes]:
    """Return the UTF-8 bytes that each choice adds to the prompt, delimiter first.

    Raises `TextError` for a choice that the tokenizer would change.
    """
    start = to_bytes(delimiter, "delimiter")
    written = [start + to_bytes(text, f"choice {index}") for index, text in enumerate(texts)]
    if vocabulary.normalize is not None:
        for index, data in enumerate(written):
            require_normalized(vocabulary, data, f"choice {index}")
    return written


def encode(
    vocabulary: Vocabulary, limits: Limits, read: PromptText, written: list[bytes], request: SelectRequest
) -> EncodedChoices:
    """Return the tokens of the prompt and the choices.

    `written` holds the bytes of each choice. A prompt that is too long is truncated on
    the left if the options allow it.
    """
    prompting, following = request.prompting, to_bytes(request.following, "following")
    require_normalized(vocabulary, following, "following")
    encoded = encode_choices(vocabulary, read, written, following, prompting.boundary)
    excess = _excess(encoded, limits)
    while prompting.truncate == "left" and excess > 0 and len(encoded.prompt_tokens) > excess:
        read = truncate_left(vocabulary, read, len(encoded.prompt_tokens) - excess)
        shorter = encode_choices(vocabulary, read, written, following, prompting.boundary)
        if len(shorter.prompt_tokens) >= len(encoded.prompt_tokens):
            break
        encoded, excess = shorter, _excess(shorter, limits)
    return encoded


def _excess(encoded: EncodedChoices, limits: Limits) -> int:
    """Return by how many tokens context and longest path exceed the capacity."""
    return len(encoded.context) + int(np.diff(encoded.offsets).max(initial=0)) - limits.nodes


def _check_fits(prepared: PreparedSelect, limits: Limits) -> None:
    """Raise `PromptTooLongError` if context and longest path exceed the capacity."""
    longest = prepared.plan.depth
    for context in (prepared.encoded.context, *prepared.premises):
        n_nodes = len(context) + longest
        if n_nodes > limits.nodes:
            is_long_choice = longest > len(context)
            raise limits.too_long(n_nodes, "shorten the longest choice" if is_long_choice else SHORTEN_PROMPT)


def _premise_contexts(vocabulary: Vocabulary, rule: ScoringRule, prompting: PromptParams) -> tuple[IntArray, ...]:
    """Return the contexts of the rule's baseline: the premise, or content-free prompts.

    The system prompt and other chat options of the request do not apply to them.
    """
    if rule.name not in ("pmi", "calibrated"):
        return ()
    plain = replace(prompting, system=None, assistant_prefix="", template_args={})
    if rule.name == "calibrated":
        return tuple(encode_prompt(vocabulary, read_prompt(vocabulary, text, plain)) for text in rule.content_free)
    if rule.premise is not None:
        return (encode_prompt(vocabulary, read_prompt(vocabulary, rule.premise, plain)),)
    start = vocabulary.start
    if start is None:
        raise OptionError("premise", None, "a premise text for rule 'pmi': this model has neither BOS nor EOS")
    return (np.array([start], dtype=np.int32),)


def _baseline_context(
    vocabulary: Vocabulary, premise: Prompt, written: list[bytes], request: SelectRequest, encoded: EncodedChoices
) -> IntArray:
    """Return the context of a baseline given as a prompt, int32[].

    Where the paths begin with healed bytes, the context ends before these bytes, as it
    does for the prompt.
    """
    read = read_prompt(vocabulary, premise, request.prompting)
    following = to_bytes(request.following, "following")
    own = encode_choices(vocabulary, read, written, following, request.prompting.boundary)
    return own.context if np.array_equal(own.tokens, encoded.tokens) else own.prompt_tokens


def _choose_method(prepared: PreparedSelect, limits: Limits) -> str:
    """Choose the method of evaluation, "exhaustive" or "best_first".

    "auto" selects "best_first" if exhaustive scoring takes more than one call or there
    is a budget, and if the rule gives bounds.
    """
    search = prepared.search
    large = prepared.needs.n_rows > limits.rows_per_call or search.budget_nodes is not None
    searchable = large and search.stop != "all" and not prepared.premises
    if search.method == "exhaustive" or (search.method == "auto" and not searchable):
        return "exhaustive"
    zeros = np.zeros(len(prepared.texts))
    bounded = prepared.objective(zeros if prepared.premises or prepared.rule.name == "batch" else None, 0.0) is not None
    if search.method == "best_first" and not bounded:
        raise OptionError("method", search.method, "'exhaustive' or 'auto': this rule has no bound to search by")
    return "best_first" if bounded else "exhaustive"


def planned_rows(selects: Iterable[PreparedSelect]) -> list[int]:
    """Return the number of rows that each exhaustive selection adds to an empty cache.

    A prefix that several contexts share counts for the first of them, and so do equal
    baselines. Rows of a second scoring of near ties do not count.
    """
    contexts: list[bytes] = []
    baselines: set[tuple[bytes, ...]] = set()
    planned = []
    for select in selects:
        # The root's row is that of the context's end.
        n = _add_path(contexts, select.encoded.context) + select.needs.n_rows - 1
        for premise in select.premises:
            key = select.baseline_key(premise)
            if key not in baselines:
                baselines.add(key)
                n += _add_path(contexts, premise) + select.plain_needs.n_rows - 1
        planned.append(n)
    return planned


def _add_path(paths: list[bytes], path: IntArray) -> int:
    """Add a path to the sorted ones; return the number of nodes that their tree gains.

    Big-endian bytes sort as the ids do, so a neighbour shares most with the path.
    """
    data = path.astype(">i4").tobytes()
    at = bisect_left(paths, data)
    n_shared = 0
    for other in paths[max(0, at - 1) : at + 1]:
        n_shared = max(n_shared, common_length(path, np.frombuffer(other, dtype=">i4")))
    if n_shared < len(path):
        paths.insert(at, data)
    return len(path) - n_shared
