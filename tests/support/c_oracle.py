"""An operator-precedence parser of C's expressions, over tokens by maximal munch: the oracle of the grammar `c-expression`."""

from __future__ import annotations

import re

TOKEN = re.compile(
    r"""\ *(?:
        (?P<number>\.?[0-9](?:[eEpP][+-]|[\w.])*)                    # a preprocessing number: takes all it can
      | (?P<name>[A-Za-z_]\w*)
      | (?P<character>'(?:[^'\\\n]|\\['"?\\abfnrtv]|\\[0-7]{1,3})')
      | (?P<string>"(?:[^"\\\n]|\\['"?\\abfnrtv]|\\[0-7]{1,3})*")
      | (?P<sign>\.\.\.|<<=|>>=|->|\+\+|--|<<|>>|[<>=!]=|&&|\|\||[-*/%+&^|]=|[-+*/%&^|~!<>=?:.,()\[\]])
    )""",
    re.VERBOSE | re.ASCII,
)
INTEGER = re.compile(r"(?:0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)[uU]?(?:ll?|LL?)?")
REAL = re.compile(r"(?:[0-9]*\.[0-9]+|[0-9]+\.)(?:[eE][-+]?[0-9]+)?[fFlL]?|[0-9]+[eE][-+]?[0-9]+[fFlL]?")
LEVELS = ("||", "&&", "|", "^", "&", "== !=", "< > <= >=", "<< >>", "+ -", "* / %")
BINDING = {sign: level for level, signs in enumerate(LEVELS, 1) for sign in signs.split()}
ASSIGNMENTS = frozenset(["=", "+=", "-=", "*=", "/=", "%=", "&=", "^=", "|=", "<<=", ">>="])
TYPES = frozenset(["void", "unsigned", "char", "short", "int", "long", "float", "double"])


class CError(ValueError):
    """The text is no expression."""


def tokens_of(text: str) -> list[tuple[str, str]]:
    """(kind, spelling) of every token; kind of a sign is its spelling."""
    found, place = [], 0
    while place < len(text):
        if not (match := TOKEN.match(text, place)):
            raise CError(f"no token at {place}: {text[place : place + 10]!r}")
        kind, spelling, place = match.lastgroup or "", match[match.lastgroup or ""], match.end()
        if kind == "number" and not (INTEGER.fullmatch(spelling) or REAL.fullmatch(spelling)):
            raise CError(f"no number: {spelling}")
        found.append((spelling if kind == "sign" else kind, spelling))
    return [*found, ("end", "")]


class CParser:
    """Reads one expression as C17 6.5 nests them; a name is any identifier, a type one of the basic ones."""

    def __init__(self, text: str) -> None:
        self._tokens, self._place = tokens_of(text), 0

    def read(self) -> str:
        """The expression with every operation in parentheses; `CError` where there is none, or more than one."""
        whole = self._assignment()
        self._take("end")
        return whole

    def _next(self, ahead: int = 0) -> str:
        return self._tokens[min(self._place + ahead, len(self._tokens) - 1)][0]

    def _take(self, kind: str) -> str:
        if self._next() != kind:
            raise CError(f"{kind} expected, found {self._tokens[self._place]}")
        self._place += 1
        return self._tokens[self._place - 1][1]

    def _assignment(self) -> str:
        left = self._binary(1)
        if self._next() in ASSIGNMENTS:
            if left.startswith("<"):  # an operation of two operands, or a cast
                raise CError(f"{left} is assigned to")
            return f"<{left}{self._take(self._next())}{self._assignment()}>"
        if self._next() == "?":
            self._take("?")
            middle = self._assignment()
            self._take(":")
            last = self._assignment()
            return f"<{left}?{middle}:{last}>"
        return left

    def _binary(self, least: int) -> str:
        left = self._cast()
        while BINDING.get(self._next(), 0) >= least:
            sign = self._take(self._next())
            left = f"<{left}{sign}{self._binary(BINDING[sign] + 1)}>"
        return left

    def _type_follows(self) -> bool:
        return self._next() == "(" and self._tokens[self._place + 1][1] in TYPES

    def _type(self) -> str:
        self._take("(")
        words = []
        while self._next() in {"name", "*"}:
            words.append(self._take(self._next()))
        self._take(")")
        return " ".join(words)

    def _cast(self) -> str:
        if self._type_follows():
            return f"<({self._type()}){self._cast()}>"
        return self._unary()

    def _unary(self) -> str:
        sign = self._next()
        if sign in {"++", "--"}:
            return f"{{{self._take(sign)}{self._unary()}}}"
        if sign in set("&*+-~!"):
            return f"{{{self._take(sign)}{self._cast()}}}"
        if self._tokens[self._place][1] == "sizeof":
            self._take("name")
            return f"{{sizeof {self._type() if self._type_follows() else self._unary()}}}"
        return self._postfix()

    def _postfix(self) -> str:
        if self._next() == "(":
            self._take("(")
            left = f"{{{self._assignment()}}}"
            self._take(")")
        elif self._next() in {"name", "number", "character", "string"}:
            left = self._take(self._next())
        else:
            raise CError(f"operand expected, found {self._tokens[self._place]}")
        while (sign := self._next()) in {"[", "(", ".", "->", "++", "--"}:
            self._take(sign)
            left += sign
            if sign == "[":
                left += self._assignment() + self._take("]")
            elif sign == "(":
                left += self._arguments()
            elif sign in {".", "->"}:
                left += self._take("name")
        return left

    def _arguments(self) -> str:
        found = []
        while self._next() != ")":
            found.append(self._assignment())
            if self._next() != ",":
                break
            self._take(",")
            if self._next() == ")":
                raise CError("an argument is missing")
        return ",".join(found) + self._take(")")
