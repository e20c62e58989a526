"""Grammars as data: the expressions that readers produce and other modules work on.

Rules convert back to GBNF, and to canonical lines for digests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeAlias, final

from selectrie.core.vocabulary import to_bytes
from selectrie.errors import GrammarError, clipped

LAST_CODE_POINT = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
"""Code points that UTF-8 cannot encode (RFC 3629, section 3)."""


@dataclass(frozen=True, slots=True)
class Span:
    """A range of a grammar's text: characters `start` to `stop` (exclusive)."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class LiteralText:
    """Matches a literal text, given as UTF-8 bytes; b"" is the empty string."""

    value: bytes


@dataclass(frozen=True, slots=True)
class Characters:
    """Matches one character of a set.

    Attributes:
        ranges: (first, last) code points, both inclusive, in ascending order, neither
            overlapping nor adjacent, without surrogates.
    """

    ranges: tuple[tuple[int, int], ...]

    @staticmethod
    def of(ranges: Iterator[tuple[int, int]] | list[tuple[int, int]], *, negated: bool = False) -> Characters:
        """Return the characters of ranges in any order or, if `negated`, all others.

        Surrogates are removed in both cases.
        """
        return Characters(
            _complement_ranges(_merge_ranges(ranges)) if negated else _remove_surrogates(_merge_ranges(ranges))
        )


@dataclass(frozen=True, slots=True)
class TokenTerminal:
    """Matches one token of the vocabulary, whatever its bytes.

    Attributes:
        tokens: Spellings of control tokens (`<think>`) or ids.
        negated: Whether to match every token except these. End-of-generation tokens
            never match a negated set.
    """

    tokens: tuple[str | int, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """Matches a text of the rule of this name.

    Attributes:
        span: Position of the name in the source text.
    """

    name: str
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Concatenation:
    """Matches the items one after the other; no items match the empty string."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Matches any one of the options; without options it matches no text."""

    options: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Repeats an item `min_count` to `max_count` times; None means no maximum."""

    item: Expression
    min_count: int
    max_count: int | None


Expression: TypeAlias = LiteralText | Characters | TokenTerminal | Reference | Concatenation | Alternatives | Repeat

EMPTY = LiteralText(b"")


@dataclass(frozen=True, slots=True, eq=False)
class RuleSet:
    """Rules by name, in order of definition.

    Attributes:
        root: The start rule.
        text: The source that the rules were read from, "" if there is none.
        spans: Position in the source of each rule's definition.
    """

    rules: Mapping[str, Expression]
    root: str = "root"
    text: str = ""
    spans: Mapping[str, Span] = field(default_factory=lambda: MappingProxyType({}))


def _merge_ranges(ranges: Iterator[tuple[int, int]] | list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort ranges, and join those that overlap or touch."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return merged


def _complement_ranges(merged: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the code points outside of merged ranges, without surrogates."""
    gaps, start = [], 0
    for first, last in merged:
        if first > start:
            gaps.append((start, first - 1))
        start = last + 1
    if start <= LAST_CODE_POINT:
        gaps.append((start, LAST_CODE_POINT))
    return _remove_surrogates(gaps)


def _remove_surrogates(merged: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Cut the surrogates out of merged ranges."""
    kept: list[tuple[int, int]] = []
    low, high = SURROGATES
    for first, last in merged:
        kept += [
            (start, stop)
            for start, stop in ((first, min(last, low - 1)), (max(first, high + 1), last))
            if start <= stop
        ]
    return tuple(kept)


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """Return the expressions directly inside an expression."""
    if isinstance(expression, Concatenation):
        return expression.items
    if isinstance(expression, Alternatives):
        return expression.options
    return (expression.item,) if isinstance(expression, Repeat) else ()


def append_to_root(rules: RuleSet, following: bytes) -> RuleSet:
    """Return rules whose root is the old root followed by the bytes `following`.

    Positions in the source are unchanged.
    """
    root = f"{rules.root}-followed"
    while root in rules.rules:
        root += "-"
    whole = Concatenation((Reference(rules.root), LiteralText(following)))
    return RuleSet(MappingProxyType({root: whole, **rules.rules}), root, rules.text, rules.spans)


@final
class TextList:
    """A grammar of a list of distinct texts, of which there is at least one.

    The texts are numbered as choices in this order. Other forms of the list are
    computed on first use and kept. The caller makes sure that no text contains a lone
    surrogate.
    """

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.texts = texts

    def __reduce__(self) -> tuple[Any, ...]:
        return TextList, (self.texts,)

    @cached_property
    def encoded(self) -> tuple[bytes, ...]:
        """Return the texts in UTF-8, in ascending order."""
        return tuple(sorted(to_bytes(text, "text") for text in self.texts))

    @cached_property
    def expanded(self) -> tuple[str, ...]:
        """Return the texts, shortest first, texts of equal length by code points."""
        return tuple(sorted(self.texts, key=lambda text: (len(text), text)))

    @cached_property
    def is_prefix_free(self) -> bool:
        """Return whether no text is a prefix of another.

        In the sorted list, a text that is a prefix of another comes right before such a
        text.
        """
        return not any(after.startswith(before) for before, after in pairwise(self.encoded))

    @cached_property
    def rules(self) -> RuleSet:
        """Return the list as a `RuleSet` with the single rule `root`."""
        options = tuple(LiteralText(to_bytes(text, "text")) for text in self.texts)
        whole = options[0] if len(options) == 1 else Alternatives(options)
        return RuleSet(MappingProxyType({"root": whole}))

    def followed_by(self, text: str) -> TextList:
        """Return the list with `text` appended to each of its texts."""
        return TextList(tuple(one + text for one in self.texts))


MAX_REPEATED = 2_000
"""Maximum lower bound of `{m}` and `{m,n}`; llama.cpp has the same limit."""

ANY = Characters(((0, SURROGATES[0] - 1), (SURROGATES[1] + 1, LAST_CODE_POINT)))

NOTHING = rf"[^\x00-\U{LAST_CODE_POINT:08X}]"
"""A class without characters: GBNF has no other way to write "no text at all"."""

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9-]")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\\": r"\\"}
_SPELLING = re.compile(r"<[^\[>\r\n][^>\r\n]*>")
_TIMES = {(0, None): "*", (1, None): "+", (0, 1): "?"}


def gbnf_rules(rules: RuleSet) -> dict[str, str]:
    """Map each rule's GBNF name to its right-hand side in GBNF, the root first.

    Raises `GrammarError` for a set of tokens that GBNF cannot express.
    """
    names = gbnf_names(rules)
    first = {rules.root: rules.rules[rules.root]}
    return {names[name]: gbnf_expression(expression, names) for name, expression in {**first, **rules.rules}.items()}


def gbnf_names(rules: RuleSet) -> dict[str, str]:
    """Assign each rule a distinct GBNF name of letters, digits and '-'.

    A name that GBNF allows stays as it is.
    """
    names: dict[str, str] = {}
    next_number: dict[str, int] = {}
    taken: set[str] = set()
    for name in sorted(rules.rules, key=lambda name: not name or _NOT_IN_NAMES.search(name) is not None):
        own = plain = _NOT_IN_NAMES.sub("-", name) or "rule"
        number = next_number.get(plain, 2)
        while own in taken:
            own, number = f"{plain}-{number}", number + 1
        next_number[plain] = number
        names[name] = own
        taken.add(own)
    return names


def canonical_rules(rules: RuleSet) -> Iterator[str]:
    """Yield the root's name and then each rule as one line.

    Two rule sets yield the same lines if they have the same rules in the same order.
    """
    yield rules.root
    names = {name: name for name in rules.rules}
    for name, expression in rules.rules.items():
        yield f"{name!r}::={gbnf_expression(expression, names, total=True)}"


def gbnf_expression(expression: Expression, names: Mapping[str, str], *, total: bool = False) -> str:
    """Return an expression in GBNF.

    The work is kept on an explicit stack of strings and of pairs (expression,
    precedence level that is allowed there).

    Args:
        names: The printed name of each rule.
        total: Whether to write even sets of tokens that GBNF cannot express.
    """
    pieces: list[str] = []
    work: list[str | tuple[Expression, int]] = [(expression, _ALTERNATIVES)]
    while work:
        top = work.pop()
        if isinstance(top, str):
            pieces.append(top)
            continue
        part, level = top
        if isinstance(part, Repeat) and part.min_count > MAX_REPEATED:
            part = _split_repeat(part)
        if _level_of(part) > level:
            work += [")", (part, _ALTERNATIVES), "("]
        elif isinstance(part, Alternatives) and part.options:
            work += _interleave(part.options, _SEQUENCE, " | ")
        elif isinstance(part, Concatenation) and part.items:
            work += _interleave(part.items, _ITEM, " ")
        elif isinstance(part, Repeat):
            work += [_quantifier(part), (part.item, _REPEATED)]
        else:
            pieces.append(_gbnf_symbol(part, names, total=total))
    return "".join(pieces)


_REPEATED, _ITEM, _SEQUENCE, _ALTERNATIVES = range(4)


def _level_of(part: Expression) -> int:
    """Return the tightest precedence level at which a part needs no parentheses."""
    if isinstance(part, Alternatives) and part.options:
        return _ALTERNATIVES
    if isinstance(part, TokenTerminal) and len(part.tokens) > 1 and not part.negated:
        return _ALTERNATIVES
    if isinstance(part, Concatenation) and part.items:
        return _SEQUENCE
    return _ITEM if isinstance(part, Repeat) else _REPEATED


def _interleave(parts: tuple[Expression, ...], level: int, between: str) -> list[str | tuple[Expression, int]]:
    """Return stack entries for the parts, last one first, with `between` inserted."""
    work: list[str | tuple[Expression, int]] = []
    for part in reversed(parts):
        work += [(part, level), between]
    return work[:-1]


def _split_repeat(part: Repeat) -> Concatenation:
    """Split a repetition into nested counts that GBNF allows.

    The first item repeats the maximum count as often as it fits; the second is the
    rest.
    """
    n_full, rest = divmod(part.min_count, MAX_REPEATED)
    full = Repeat(Repeat(part.item, MAX_REPEATED, MAX_REPEATED), n_full, n_full)
    max_count = None if part.max_count is None else part.max_count - n_full * MAX_REPEATED
    return Concatenation((full, Repeat(part.item, rest, max_count)))


def _quantifier(part: Repeat) -> str:
    """Return the suffix that repeats an item: *, +, ?, {m} or {m,n}."""
    if part.min_count == part.max_count:
        return f"{{{part.min_count}}}"
    max_count = "" if part.max_count is None else part.max_count
    return _TIMES.get((part.min_count, part.max_count)) or f"{{{part.min_count},{max_count}}}"


def _gbnf_symbol(part: Expression, names: Mapping[str, str], *, total: bool) -> str:
    """Return a literal, class, reference or token set in GBNF."""
    if isinstance(part, LiteralText):
        return '"' + "".join(map(_escape_in_text, _decode_literal(part.value))) + '"'
    if isinstance(part, Characters):
        return _gbnf_class(part)
    if isinstance(part, Reference):
        return names.get(part.name, part.name)
    if isinstance(part, TokenTerminal):
        return _gbnf_tokens(part, total=total)
    return NOTHING if isinstance(part, Alternatives) else '""'


def _decode_literal(value: bytes) -> str:
    """Decode a literal; raise `GrammarError` if it is not UTF-8."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise GrammarError(f"the literal {clipped(repr(value))} is not UTF-8, so GBNF cannot express it") from None


def _gbnf_class(part: Characters) -> str:
    """Return a character set as a class, negated if that has fewer ranges."""
    if part == ANY:
        return "."
    others = Characters.of(list(part.ranges), negated=True)
    if not part.ranges:
        return NOTHING
    negated = len(others.ranges) < len(part.ranges) and part.ranges[-1][1] == LAST_CODE_POINT
    body = "".join(
        _escape_in_class(first) + ("" if first == last else ("-" if last > first + 1 else "") + _escape_in_class(last))
        for first, last in (others if negated else part).ranges
    )
    return f"[{'^' if negated else ''}{body}]"


def _escape_in_text(character: str) -> str:
    return '\\"' if character == '"' else _escape(character)


def _escape_in_class(code: int) -> str:
    """Return a code point as it is written inside a class."""
    character = chr(code)
    if character in "[]":
        return "\\" + character
    return f"\\x{code:02X}" if character in "-^" else _escape(character)


def _escape(character: str) -> str:
    """Return a printable character as it is and escape any other."""
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if character.isprintable():
        return character
    return f"\\x{code:02X}" if code < 0x100 else f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


def _gbnf_tokens(part: TokenTerminal, *, total: bool) -> str:
    """Return a token set in GBNF: one token, a negated one, or alternatives."""
    spelled = [f"<[{token}]>" if isinstance(token, int) else token for token in part.tokens]
    if not part.negated:
        if total or all(isinstance(token, int) or _SPELLING.fullmatch(token) for token in part.tokens):
            return " | ".join(spelled) or NOTHING
    elif total or (len(spelled) == 1 and (isinstance(part.tokens[0], int) or _SPELLING.fullmatch(part.tokens[0]))):
        return "!" + " !".join(spelled)
    shown = ("any token but " if part.negated else "one of ") + (", ".join(spelled) or "none")
    raise GrammarError(f"GBNF cannot express {clipped(shown, 120)}, only <spelling>, <[id]> and ! before one of them")
