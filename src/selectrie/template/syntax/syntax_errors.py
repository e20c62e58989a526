"""Explains in words why the grammar refuses a tag.

A message says which token was found, what was expected, and how to correct the tag.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise

from lark import Token

from selectrie.errors import clip, clipped
from selectrie.template.syntax.ast import Refused
from selectrie.template.syntax.lexer import runaway_error
from selectrie.template.syntax.tags import MIDDLE, NO_CALLS, TAGS, TemplateDialect

_VALUES = frozenset({"STRING", "NUMBER", "NAME", "THIS", "AT_NAME", "LIST", "LPAR", "TRUE", "FALSE", "NONE"})
_OPERATORS = frozenset({"COMPARISON", "IN", "AND", "OR"})
_VALUE_ENDS = frozenset({"NAME", "THIS", "AT_NAME", "RSQB", "RPAR", "STRING", "NUMBER", "TRUE", "FALSE", "NONE"})
_ENDS = frozenset({"CLOSE", "RPAR", "RSQB"})
_WORDS = frozenset({"RESERVED", "AS", "IN", "AND", "OR", "NOT", "THIS", "TRUE", "FALSE", "NONE"})
_SIGNS = {"EQUALS": "=", "COMMA": "','", "RPAR": ")", "RSQB": "]", "AS": "as"}
_NO_ARITHMETIC = "templates have no arithmetic: pass the result as a value"
_BLANKS = "the parts of a tag are separated by blanks"
_STRAIGHT = "write straight quotes, ' or \""
_BEHIND_VALUES = {
    "&": "write and",
    "|": "write or; values have no filters",
    **dict.fromkeys("+-*/%", _NO_ARITHMETIC),
    ";": _BLANKS,
}
"""Advice about signs that other languages put after a value."""
_FOR_VALUES = {
    "!": "write not",
    "{": "mappings cannot be written here; pass one as a value",
    "$": "write the name without it",
    "\\": "put texts in quotes",
    ".": "a path begins with a name",
}
"""Advice about signs with which other languages begin a value."""
_SYNONYMS = {
    "for": "each",
    "foreach": "each",
    "while": "geneach",
    "repeat": "geneach",
    "let": "set",
    "assign": "set",
    "import": "include",
    "choose": "select",
    "choice": "select",
    "generate": "gen",
    "switch": "if",
    "bot": "assistant",
    "verbatim": "raw",
    "literal": "raw",
}
"""Names of tags in other languages."""
_NAMED = frozenset({"select", "gen", "beam", "geneach", "block", "role"})
_FILE = re.compile(r"[\w./~-]+")
_BLOCKS = tuple(kind for kind, tag in TAGS.items() if tag.block)
_INLINE = tuple(kind for kind, tag in TAGS.items() if not tag.block or kind == "select")


@dataclass(frozen=True, slots=True)
class BrokenTag:
    """A tag that cannot be parsed.

    Attributes:
        source: The whole source.
        dialect: Its dialect.
        symbols: The tokens of the tag before `token`, beginning with its opening
            delimiter.
        token: The token that the grammar refuses.
        accepted: The terminals that the grammar allows in its place.
    """

    source: str
    dialect: TemplateDialect
    symbols: list[Token]
    token: Token
    accepted: AbstractSet[str]

    @property
    def offset(self) -> int:
        """Return the offset of the refused token."""
        return self.token.start_pos or 0

    @property
    def opening(self) -> Token:
        return self.symbols[0]

    @property
    def head(self) -> Token | None:
        return self.symbols[1] if len(self.symbols) > 1 else None

    @property
    def word(self) -> str:
        """Return the word after the tag's opening delimiter, or ""."""
        return str(self.head) if self.head is not None else ""

    @property
    def is_named(self) -> bool:
        """Return whether the tag so far consists of its kind, and at most a name."""
        return self.word in TAGS and (
            len(self.symbols) == 2 or (len(self.symbols) == 3 and self.word not in {"each", "if", "unless"})
        )


def refusal(broken: BrokenTag) -> Refused:
    """Return the error, with advice, for a token that the grammar refuses."""
    return (
        _runaway(broken)
        or _unclosed(broken)
        or _command(broken)
        or _headless(broken)
        or _wrong_head(broken)
        or _bare(broken)
        or _at(broken)
    )


def _runaway(broken: BrokenTag) -> Refused | None:
    """Return an error if an earlier string contains the end of a tag."""
    closes = broken.dialect.closes
    strings = (symbol for symbol in (*broken.symbols, broken.token) if symbol.type == "STRING" and closes in symbol)
    first = next(strings, None)
    return None if first is None else runaway_error(first, closes)


def _unclosed(broken: BrokenTag) -> Refused | None:
    """Return an error if the tag has no end, or if another tag begins inside it."""
    opens, closes = broken.dialect.opens, broken.dialect.closes
    start = broken.opening.start_pos or 0
    behind = start + len(broken.opening)
    close, other = broken.source.find(closes, behind), broken.source.find(opens, behind)
    begins_anew = 0 <= other < close and (other <= broken.offset or "\n" in broken.source[start:other])
    if close >= 0 and not begins_anew:
        return None
    return Refused(start, f"this tag is not closed; end it with {closes}, or {broken.dialect.escaped}")


def _command(broken: BrokenTag) -> Refused | None:
    """Return an error for a command of foreign programs.

    Commands are recognised at the beginning of the tag or of parentheses.
    """
    commands = broken.dialect.commands
    for before, symbol in pairwise(broken.symbols):
        if symbol.type == "NAME" and before.type in {"OPEN", "LPAR"} and symbol in commands:
            return Refused(symbol.start_pos or 0, f"{symbol} has no meaning here: {commands[str(symbol)]}")
    return None


def _headless(broken: BrokenTag) -> Refused | None:
    """Return an error if the first word of a tag is wrong or missing."""
    if len(broken.symbols) > 1:
        return None
    kind = broken.opening.type
    if kind == "OPEN_BLOCK":
        return Refused(broken.offset, _no_block(broken))
    if kind == "OPEN_END":
        return Refused(
            broken.offset, f"expected the name of the block that ends here, as in {broken.dialect.tag('/if')}"
        )
    if broken.token in TAGS:
        block = broken.dialect.tag(f"#{broken.token} …")
        return Refused(broken.offset, f"{broken.token} is a block; write {block}, or rename the value")
    if broken.token.type == "CLOSE":
        return Refused(broken.offset, f"this tag is empty; expected a value or a tag, or {broken.dialect.escaped}")
    return None


def _no_block(broken: BrokenTag) -> str:
    """Return the reason why the token after `#` begins no block."""
    word = str(broken.token)
    if word in MIDDLE:
        return f"{word} does not begin a block; write {broken.dialect.tag(word)}"
    if word in TAGS:
        return f"{word} has no block form; write {broken.dialect.tag(word + ' …')}"
    known = f"the blocks are {', '.join(_BLOCKS)}"
    if broken.token.type == "UNKNOWN_TAG":
        return f"no block is called {clipped(word)}{_nearest(word, _BLOCKS, known)}"
    return f"expected the name of a block after {broken.dialect.opens}#; {known}"


def _wrong_head(broken: BrokenTag) -> Refused | None:
    """Return an error if a tag begins with a value but goes on like another tag."""
    head, token = broken.head, broken.token
    if head is None or broken.opening.type != "OPEN" or head.type != "NAME" or len(broken.symbols) > 2:
        return None
    word = str(head)
    if token.type == "EQUALS":
        return Refused(
            broken.offset, f"to name a value write {broken.dialect.tag(f'set {clip(word, 40)}=…')}, to compare write =="
        )
    if token.type not in _VALUES | {"RESERVED"} or token.type == "LPAR":
        return None
    return _misnamed(broken, head)


def _misnamed(broken: BrokenTag, head: Token) -> Refused | None:
    """Return an error if a tag has an unknown name or lacks its `#`."""
    word, offset = str(head), head.start_pos or 0
    block = near_tag(word, _BLOCKS)
    known = f"the tags are {', '.join(_INLINE)}; functions cannot be called"
    if broken.token.type == "STRING" or near_tag(word, _INLINE):
        return Refused(offset, f"no tag is called {clipped(word)}{_nearest(word, _INLINE, known)}")
    return (
        Refused(offset, f"no tag is called {clipped(word)}; did you mean {broken.dialect.tag(f'#{block} …')}?")
        if block
        else None
    )


def _bare(broken: BrokenTag) -> Refused | None:
    """Return an error for a name or a file name without quotes."""
    head, last = broken.word, broken.symbols[-1]
    if head == "include" and len(broken.symbols) == 2:
        match = _FILE.match(broken.source, broken.offset)
        path = match[0].rstrip(broken.dialect.closes[0] + "~") if match else ""
        if path:
            return Refused(broken.offset, f"expected a file name in quotes; write include {clipped(path, 80)}")
    if head not in _NAMED or len(broken.symbols) != 3:
        return None
    if last.type != "NAME" or broken.accepted != {"EQUALS"} or broken.token.type == "COMPARISON":
        return None
    return Refused(last.start_pos or 0, f"expected a name in quotes; write {head} {clipped(str(last))}")


def _at(broken: BrokenTag) -> Refused:
    """Return the error for any other token, with what was expected in its place."""
    return Refused(broken.offset, f"expected {_expected(broken)}, not {_description(broken)}{_advice(broken)}")


def _description(broken: BrokenTag) -> str:
    """Return how a message names the refused token."""
    token, word = broken.token, str(broken.token)
    if token.type == "CLOSE":
        return "the end of the tag"
    if token.type in _WORDS:
        return f"the reserved word {word!r}"
    return f"the text {clip(word, 40)}" if token.type == "STRING" else clipped(word)


def _expected(broken: BrokenTag) -> str:
    """Return a description of the terminals that the grammar allows."""
    accepted, head, last = broken.accepted, broken.word, broken.symbols[-1].type
    if len(broken.symbols) == 1:
        return "a value or a tag"
    parts = []
    if "STRING" in accepted and "NUMBER" not in accepted:
        parts.append("a file name in quotes" if head == "include" else "a name in quotes")
    if "STRING" in accepted and "NUMBER" in accepted:
        parts.append("a value")
    elif "NAME" in accepted:
        parts.append("a name" if last in {"DOT", "AS"} or head == "set" else "an argument (name=value)")
    goes_on = accepted & _ENDS and last in _VALUE_ENDS and not broken.is_named
    if accepted & _OPERATORS or (goes_on and broken.token.type != "CLOSE"):
        parts.append("an operator")
    parts += [word for kind, word in _SIGNS.items() if kind in accepted]
    if "CLOSE" in accepted:
        parts.append(broken.dialect.closes)
    return " or ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _advice(broken: BrokenTag) -> str:
    """Return advice on how to correct the refused token, as the end of a message.

    Returns "" if there is none.
    """
    advice = _about_names(broken) or _about_operators(broken) or _about_signs(broken)
    if advice:
        return f"; {advice}"
    last = broken.symbols[-1]
    is_prose = last.type in {"NAME", "NUMBER"} and broken.token.type in {"NAME", "NUMBER", "BROKEN", "COMMA"}
    if is_prose and broken.opening.type == "OPEN" and broken.word not in {*TAGS, *MIDDLE}:
        return f"; {broken.dialect.escaped}"
    return ""


def _about_signs(broken: BrokenTag) -> str:
    """Return advice about signs that have a meaning in other languages."""
    if broken.token.type not in {"BROKEN", "NUMBER", "DOT"}:
        return ""
    sign = str(broken.token)[:1]
    if sign in "“”‘’`" and "STRING" in broken.accepted:
        return _STRAIGHT
    if "NUMBER" in broken.accepted or len(broken.symbols) == 1:
        return _FOR_VALUES.get(sign, "")
    return _BEHIND_VALUES.get(sign, "") if broken.symbols[-1].type in _VALUE_ENDS else ""


def _about_names(broken: BrokenTag) -> str:
    """Return advice about words that cannot be names, and about unquoted names."""
    word, kind, head = str(broken.token), broken.token.type, broken.word
    last, accepted = broken.symbols[-1], broken.accepted
    bare, quoted = clip(str(last), 40), clipped(str(last))
    is_bare = head == "set" and last.type == "NAME" and accepted == {"EQUALS"}
    is_word = kind in _WORDS and "NAME" in accepted
    hints = (
        (head == "else" and word == "if", f"write {broken.dialect.tag('elif …')}"),
        (is_bare, f"write {broken.dialect.tag(f'set {bare}=value')} or {broken.dialect.tag(f'set {quoted} value')}"),
        (is_word and (last.type == "AS" or head == "set"), "choose another name"),
        (is_word and "NUMBER" in accepted, "it cannot name a value, but it can be a key: data.key"),
        (kind in {"CLOSE", "COMPARISON"} and "EQUALS" in accepted, "an argument is written name=value"),
    )
    return next((hint for applies, hint in hints if applies), "")


def _about_operators(broken: BrokenTag) -> str:
    """Return advice about operators of other languages."""
    word, kind, last = str(broken.token), broken.token.type, broken.symbols[-1].type
    is_behind = last in _VALUE_ENDS and "EQUALS" not in broken.accepted
    chained = kind == "COMPARISON" and any(symbol.type == "COMPARISON" for symbol in broken.symbols)
    hints = (
        (is_behind and (kind == "EQUALS" or word == "is"), "to compare write =="),
        (is_behind and chained, "comparisons cannot be chained: join two with and"),
        (kind == "LIST" and is_behind, "an index directly follows the name of a list: items[0]"),
        (kind == "NUMBER" and last == "DOT", "an index is written items[0]"),
        (kind == "LPAR" and last == "NAME", NO_CALLS),
        (kind in _VALUES and last == "NAME" and broken.symbols[-2].type == "LPAR", NO_CALLS),
        (
            kind in _VALUES and len(broken.symbols) == 2 and broken.dialect.partials,
            f"{NO_CALLS}, or {broken.dialect.escaped}",
        ),
        (word == ":" and "EQUALS" in broken.accepted, "an argument is written name=value"),
        (kind == "COMMA" and broken.word in TAGS, _BLANKS),
    )
    return next((hint for applies, hint in hints if applies), "")


def _nearest(word: str, known: tuple[str, ...], otherwise: str) -> str:
    """Return the end of a message with the nearest known word, or `otherwise`."""
    near = near_tag(word, known)
    return f"; did you mean {near!r}?" if near else f"; {otherwise}"


def near_tag(word: str, known: tuple[str, ...]) -> str:
    """Return the tag of `known` that a word was probably meant to be; "" if none.

    The word is a tag's name in another template language, or resembles a tag.
    """
    meant = _SYNONYMS.get(word.lower(), "")
    if meant in known or len(word) < 3:
        return meant if meant in known else ""
    return next(iter(get_close_matches(word.lower(), known, n=1, cutoff=0.75)), "")
