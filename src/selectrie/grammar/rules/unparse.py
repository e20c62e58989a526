"""Converts rules back to GBNF, and to canonical lines for digests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from selectrie.errors import GrammarError, clipped
from selectrie.grammar.rules.expressions import (
    LAST_CODE_POINT,
    SURROGATES,
    Alternatives,
    Characters,
    Concatenation,
    Expression,
    LiteralText,
    Reference,
    Repeat,
    RuleSet,
    TokenTerminal,
)

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
