"""For each installed grammar a hypothesis strategy of texts that it must accept, made without it: by writers of the standard
library where there is one, else put together by the rules of the format."""

from __future__ import annotations

import ast
import csv
import io
import json
import random
import string
from itertools import pairwise

from hypothesis import strategies as st

from embedded_model.entities import character

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PRINTED = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
DIGITS = st.integers(0, 10**6).map(str)
NAMES = st.text(string.ascii_lowercase + "_", min_size=1, max_size=5)


@st.composite
def json_texts(draw: st.DrawFn, *, lines: bool = False) -> str:
    """What `json.dumps` makes of any value, in any of its layouts (lines: on one line)."""
    plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT
    values = st.recursive(
        plain, lambda v: st.lists(v, max_size=3) | st.dictionaries(ANY_TEXT, v, max_size=3), max_leaves=8
    )
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")]))
    indent = None if lines else draw(st.sampled_from([None, 0, 1, 2, 4, "\t"]))
    separators = separators if indent is None else (",", separators[1])
    text = json.dumps(draw(values), ensure_ascii=draw(st.booleans()), indent=indent, separators=separators)
    return text if lines or draw(st.booleans()) else text.replace("\n", "\r\n")


@st.composite
def json_lines_texts(draw: st.DrawFn) -> str:
    """Values one below the other, the last line ended or not."""
    return "\n".join(draw(st.lists(json_texts(lines=True), min_size=1, max_size=4))) + draw(st.sampled_from(["", "\n"]))


@st.composite
def csv_texts(draw: st.DrawFn) -> str:
    """What `csv.writer` makes of rows of fields; not a row of one empty field without quotes, which would be an empty line."""
    fields = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters='\r\n",'), max_size=6)
    rows = draw(st.lists(st.lists(fields, min_size=1, max_size=4), min_size=1, max_size=4))
    end, quoting = draw(st.sampled_from([("\r\n", csv.QUOTE_MINIMAL), ("\r\n", csv.QUOTE_ALL), ("\n", csv.QUOTE_ALL)]))
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator=end, quoting=quoting).writerows(rows)
    return file.getvalue() if draw(st.booleans()) else file.getvalue().removesuffix(end)


def arithmetic_texts() -> st.SearchStrategy[str]:
    """`ast.unparse` of trees of the four operations."""
    numbers = st.integers(0, 10**9) | st.decimals(0, 10**6, places=2).map(float).filter(lambda x: "e" not in repr(x))
    signs = st.sampled_from([ast.Add(), ast.Sub(), ast.Mult(), ast.Div()])

    def wider(inner: st.SearchStrategy[ast.expr]) -> st.SearchStrategy[ast.expr]:
        binary = st.builds(ast.BinOp, inner, signs, inner)
        return binary | binary.map(lambda tree: ast.UnaryOp(ast.USub(), tree))

    trees = st.recursive(numbers.map(ast.Constant), wider, max_leaves=8).map(ast.unparse)
    return trees | trees.map(lambda text: text.replace(" ", ""))


@st.composite
def chess_texts(draw: st.DrawFn) -> str:
    """Turns of moves from two lists, white's and black's, with a result or none."""
    files = "abcdefgh"
    pieces = [f"{p}{f}{r}{x}e4" for p in "NBRQ" for f in ["", "c"] for r in ["", "2"] for x in ["", "x"]] + [
        "Kxe1",
        "Kd2",
    ]
    pawns = [f"{a}x{b}" for a, b in [*pairwise(files), *pairwise(files[::-1])]]
    white = [f"{p}{r}" for p in [*files, *pawns] for r in ["3", "7", "8=Q", "8=N"]] + [*pieces, "O-O", "O-O-O"]
    black = [f"{p}{r}" for p in [*files, *pawns] for r in ["2", "6", "1=R", "1=B"]] + [*pieces, "O-O", "O-O-O"]
    moves = [
        draw(st.sampled_from(black if i % 2 else white)) + draw(st.sampled_from(["", "", "+"]))
        for i in range(draw(st.integers(1, 12)))
    ]
    end = draw(st.sampled_from(["", " 1-0", " 0-1", " 1/2-1/2", " *"]))
    if draw(st.booleans()):
        moves[-1] = moves[-1].removesuffix("+") + "#"
        end = draw(st.sampled_from(["", " 1-0" if len(moves) % 2 else " 0-1"]))
    return " ".join(f"{i // 2 + 1}. {move}" if i % 2 == 0 else move for i, move in enumerate(moves)) + end


@st.composite
def sql_texts(draw: st.DrawFn) -> str:
    """A statement with some of its clauses, and one more in it."""

    def inner(depth: int) -> str:
        names = draw(st.lists(NAMES, min_size=6, max_size=6))
        number = draw(DIGITS)
        quoted = "'" + draw(PRINTED).replace("'", "''").replace("\x7f", "") + "'"
        values = [
            names[0],
            f"{names[0]}.{names[1]}",
            f"COUNT(*) * {number}",
            f"(MIN({names[2]}) - -{number}.5) / 2",
            quoted,
        ]
        column = ", ".join(
            draw(st.lists(st.sampled_from([*values, f"{names[3]} AS {names[4]}"]), min_size=1, max_size=3))
        )
        value = st.sampled_from(values)
        nested = inner(depth - 1) if depth else f"SELECT DISTINCT * FROM {names[5]}"  # noqa: S608 - parsed, never run
        tests = [
            f"{draw(value)} <= {draw(value)}",
            f"NOT {names[0]} IN ({nested})",
            f"({draw(value)} IS NOT NULL OR EXISTS ({nested}))",
            f"{names[1]} NOT LIKE {quoted}",
            f"{draw(value)} BETWEEN {draw(value)} AND {draw(value)}",
            f"{names[1]} IN (1, {quoted})",
        ]
        condition = " AND ".join(draw(st.lists(st.sampled_from(tests), min_size=1, max_size=3)))
        source = draw(st.sampled_from([names[0], f"{names[0]} AS {names[1]}, {names[2]}", f"({nested}) AS {names[3]}"]))
        clauses = [
            f" LEFT JOIN {names[1]} ON {condition}",
            f" WHERE {condition}",
            f" GROUP BY {names[0]}, {names[1]}.{names[2]} HAVING {condition}",
            f" ORDER BY {draw(value)} DESC, {names[1]}",
            f" LIMIT {number}" + draw(st.sampled_from(["", " OFFSET 5"])),
        ]
        chosen = "".join(clause for clause in clauses if draw(st.booleans()))
        return f"SELECT {column} FROM {source}{chosen}"  # noqa: S608 - parsed, never run

    return inner(draw(st.integers(0, 1))) + ";"


@st.composite
def email_texts(draw: st.DrawFn) -> str:
    """Atoms with dots between, labels with inner hyphens, letters at the end: as long as the grammar's header says."""
    letters = string.ascii_letters + string.digits
    local = draw(st.text(letters + "!#$%&'*+-/=?^_`{|}~", min_size=1, max_size=32))
    dots = draw(st.sets(st.integers(1, max(1, len(local) - 1)), max_size=4)) if len(local) > 1 else set()
    local = "".join(f".{c}" if i in dots else c for i, c in enumerate(local))
    label = st.text(letters + "-", min_size=1, max_size=30).filter(lambda s: s[0] != "-" != s[-1])
    labels = draw(st.lists(label, min_size=1, max_size=4))
    return f"{local}@{'.'.join(labels)}.{draw(st.text(string.ascii_letters, min_size=2, max_size=24))}"


@st.composite
def semver_texts(draw: st.DrawFn) -> str:
    """Numbers, identifiers and build words of the right alphabets."""
    words = st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=4)
    identifiers = words.map(lambda w: str(int(w)) if w.isdigit() else w)
    text = ".".join(str(draw(st.integers(0, 10**9))) for _ in range(3))
    if pre := draw(st.lists(identifiers, max_size=3)):
        text += "-" + ".".join(pre)
    if build := draw(st.lists(words, max_size=3)):
        text += "+" + ".".join(build)
    return text


def c_texts() -> st.SearchStrategy[str]:
    """Trees of operations, printed with parentheses around every operand that has operators."""
    constants = st.sampled_from(
        ["0", "42", "0x1Fu", "017L", "1.5e-3f", ".5", "7.", "2e9", r"'\n'", "'a'", '"text\\t"', '""']
    )
    binary = [
        "+",
        "-",
        "*",
        "/",
        "%",
        "<<",
        ">>",
        "<",
        ">",
        "<=",
        ">=",
        "==",
        "!=",
        "&",
        "^",
        "|",
        "&&",
        "||",
        "=",
        "+=",
        "<<=",
        "|=",
        "%=",
    ]

    def wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        closed = inner.map(lambda text: text if text.isidentifier() else f"({text})")
        return (
            st.builds("{} {} {}".format, closed, st.sampled_from(binary), closed)
            | st.builds("{} ? {} : {}".format, closed, inner, closed)
            | st.builds("{}{}".format, st.sampled_from(["-", "+", "!", "~", "*", "&", "++", "--", "!-", "*&"]), closed)
            | st.builds(
                "{}{}".format, closed, st.sampled_from(["++", "--", ".x", "->y", "[0]", "()", ".x[i](1, j)->z++"])
            )
            | st.builds("({}) {}".format, st.sampled_from(["int", "unsigned char *", "void **", "double"]), closed)
            | st.builds("f({}, {})[{}]".format, inner, inner, inner)
        )

    return st.recursive(st.text(string.ascii_letters + "_", min_size=1, max_size=4) | constants, wider, max_leaves=8)


def python_texts() -> st.SearchStrategy[str]:
    """`repr` of values, and of those values with a line break behind each comma outside of strings."""
    numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    atoms = st.none() | st.booleans() | numbers | ANY_TEXT | st.binary(max_size=6)
    keys = st.recursive(atoms, lambda k: st.lists(k, max_size=3).map(tuple), max_leaves=4)
    values = st.recursive(
        keys | st.sets(keys, max_size=3),
        lambda v: st.lists(v, max_size=3) | st.lists(v, max_size=3).map(tuple) | st.dictionaries(keys, v, max_size=3),
        max_leaves=8,
    )
    plain = st.recursive(numbers, lambda v: st.lists(v, max_size=3) | st.lists(v, max_size=3).map(tuple), max_leaves=8)
    return values.map(repr) | plain.map(repr).map(
        lambda text: text.replace(", ", ",\n    ").replace("]", ",\n]", 1).replace("[,", "[")
    )


@st.composite
def list_texts(draw: st.DrawFn) -> str:
    """Lines of words behind one kind of bullet or numbers."""
    item = PRINTED.map(lambda text: " ".join(text.split())).filter(bool)
    items = draw(st.lists(item, min_size=1, max_size=20))
    mark = draw(st.sampled_from(["-", "*", "{}."]))
    return "".join(f"{mark.format(i)} {item}\n" for i, item in enumerate(items, 1))


@st.composite
def character_texts(draw: st.DrawFn) -> str:
    """A character as the training texts of the embedded model draw one."""
    values = character(random.Random(draw(st.integers(0, 10**6)))).values
    keys = ("name", "race", "class", "age", "level", "armor", "weapon", "items")
    return json.dumps({key: values[key] for key in keys})


VALID: dict[str, st.SearchStrategy[str]] = {
    "arithmetic": arithmetic_texts(),
    "c-expression": c_texts(),
    "chess": chess_texts(),
    "csv": csv_texts(),
    "email": email_texts(),
    "iso-date": st.dates().map(str),
    "json": json_texts(),
    "json-lines": json_lines_texts(),
    "list": list_texts(),
    "move": st.builds("{} {}".format, st.sampled_from(["north", "south", "east", "west"]), st.integers(1, 9)),
    "python-literal": python_texts(),
    "rpg-character": character_texts(),
    "semver": semver_texts(),
    "sql-select": sql_texts(),
    "uuid": st.uuids().map(str) | st.uuids().map(lambda u: str(u).upper()),
    "yes-no": st.sampled_from(["yes", "no", "Yes", "No"]),
}
