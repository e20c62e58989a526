"""For each installed grammar somebody else's word on its texts: Python's own readers, SQLite, or rules written a second time.

`ORACLES[name](text)` is true where the text is one that the grammar may accept; `EXACT` names the grammars that must accept
every such text.
"""

from __future__ import annotations

import ast
import csv
import datetime as dt
import io
import itertools
import json
import re
import sqlite3
import uuid
import warnings
from collections.abc import Callable
from email.errors import HeaderParseError
from email.headerregistry import Address

from embedded_model.entities import ARMORS, CLASS, RACES, WEAPONS
from tests.support.c_oracle import CError, CParser


def is_json(text: str) -> bool:
    """One value that `json` reads, without NaN and Infinity, which are not JSON, and nothing around it."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    return text == text.strip()


def is_json_lines(text: str) -> bool:
    """Every line is JSON; the last may end."""
    return all(is_json(line) for line in text.removesuffix("\n").split("\n"))


def is_csv(text: str) -> bool:
    """What `csv` reads strictly as records that have fields, with quotes only where RFC 4180 has them."""
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error:
        return False
    bare = re.sub(r'(?:^|(?<=[,\n]))"(?:[^"]|"")*"(?=,|\r?\n|$)', "", text)
    return bool(rows) and all(rows) and not re.search(r'["\x00-\x09\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)', bare)


def is_arithmetic(text: str) -> bool:
    """Python reads it as the four operations on numbers."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError):
        return False
    kinds = (ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.UnaryOp, ast.USub, ast.Constant)
    return all(isinstance(node, kinds) for node in ast.walk(tree.body)) and not set(text) - set("0123456789.+-*/() ")


def is_chess(text: str) -> bool:
    """Numbered moves, word by word."""
    words = text.split(" ")
    ended = words[-1] in {"1-0", "0-1", "1/2-1/2", "*"} and len(words) > 2
    result = words.pop() if ended else ""
    if words[0] != "1.":
        return False
    moves = []
    for i, word in enumerate(words):
        if i % 3 == 0:
            if not re.fullmatch(r"[1-9][0-9]{0,2}\.", word, re.ASCII) or i == len(words) - 1:
                return False
        else:
            moves.append((word, i % 3 == 1))
    mates = [i for i, (word, _) in enumerate(moves) if word.endswith("#")]
    if mates and (mates != [len(moves) - 1] or result not in {"", "1-0" if moves[-1][1] else "0-1"}):
        return False
    return all(
        is_move(word.rstrip("+#") if not word.endswith(("++", "+#", "#+", "##")) else "", w) for word, w in moves
    )


def is_move(word: str, white: bool) -> bool:
    """A move without its check sign: of a piece, of a pawn in its direction, or castling."""
    if pawn := re.fullmatch(r"(?:([a-h])x)?([a-h])([1-8])(?:=([NBRQ]))?", word):
        taken, file, rank, promoted = pawn.groups()
        aside = taken is None or abs(ord(taken) - ord(file)) == 1
        last = "8" if white else "1"
        return aside and rank not in ("12" if white else "78") and (rank == last) == (promoted is not None)
    return re.fullmatch(r"O-O|O-O-O|Kx?[a-h][1-8]|[NBRQ][a-h]?[1-8]?x?[a-h][1-8]", word) is not None


def is_sql(text: str) -> bool:
    """SQLite parses it and only then misses the tables. Names are quoted for it: it may know some of them as keywords."""
    quoted = re.sub(r"""'(?:[^']|'')*'|\b[a-z_][a-z0-9_]*""", lambda m: m[0] if m[0][0] == "'" else f'"{m[0]}"', text)
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(f"EXPLAIN {quoted}")
    except sqlite3.Error as error:
        return str(error).startswith("no such table") and text.endswith(";")
    finally:
        connection.close()
    return False


def is_date(text: str) -> bool:
    """`datetime.date` has it, in this form."""
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return False
    return re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) is not None


def is_email(text: str) -> bool:
    """The standard library reads it as an address and writes it as it was; names of hosts as RFC 1123 has them."""
    try:
        address = Address(addr_spec=text)
    except (ValueError, HeaderParseError, IndexError):
        return False
    labels = address.domain.split(".")
    return (
        address.addr_spec == text
        and len(address.username.encode()) <= 64
        and len(address.domain) <= 255
        and len(labels) > 1
        and all(re.fullmatch(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)", label) for label in labels)
    )


def is_uuid(text: str) -> bool:
    """`uuid.UUID` writes it as it was, but for case."""
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def is_semver(text: str) -> bool:
    """Items 2, 9 and 10 of semver.org, cut apart and checked one by one."""
    version, plus, build = text.partition("+")
    core, minus, pre = version.partition("-")
    numbers, parts, builds = core.split("."), pre.split(".") if minus else [], build.split(".") if plus else []

    def word(part: str) -> bool:
        return part != "" and all(c.isascii() and (c.isalnum() or c == "-") for c in part)

    def number(part: str) -> bool:
        return part.isascii() and part.isdigit() and (part == "0" or part[0] != "0")

    pre_right = all(word(part) and (number(part) or not part.isdigit()) for part in parts)
    return len(numbers) == 3 and all(map(number, numbers)) and pre_right and all(map(word, builds))


def is_c(text: str) -> bool:
    """The parser beside this file reads it."""
    try:
        CParser(text).read()
    except CError:
        return False
    return True


def is_python(text: str) -> bool:
    """`ast.literal_eval` reads it without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, Warning):
            return False
    return True


def is_list(text: str) -> bool:
    """Lines with one bullet, or with numbers from 1; words as `str.split` and `str.isprintable` see them."""
    *lines, last = text.split("\n")
    marks = [line.partition(" ")[0] for line in lines]
    right = (["-"] * len(lines), ["*"] * len(lines), [f"{i}." for i in range(1, min(21, len(lines) + 1))])
    items = [line.partition(" ")[2] for line in lines]
    visible = all(
        item and item == " ".join(item.split()) and not re.search(r"[\x00-\x1f\x7f-\x9f]", item) for item in items
    )
    return bool(lines) and last == "" and marks in right and visible


def is_move_command(text: str) -> bool:
    """One of the 39."""
    steps = itertools.product(("north", "south", "east", "west"), "123456789")
    return text in {*map(" ".join, steps), "turn left", "turn right", "stop"}


def is_character(text: str) -> bool:
    """`json.dumps` of a record with these keys, in the words that the embedded model's training texts use."""
    try:
        record = json.loads(text)
    except ValueError:
        return False
    keys = ["name", "race", "class", "age", "level", "armor", "weapon", "items"]
    if not isinstance(record, dict) or list(record) != keys or json.dumps(record) != text:
        return False
    among = (
        record["race"] in RACES
        and record["class"] in CLASS
        and record["armor"] in ARMORS
        and record["weapon"] in WEAPONS
    )
    numbers = (
        type(record["age"]) is type(record["level"]) is int and 16 <= record["age"] <= 99 and 1 <= record["level"] <= 20
    )
    items = record["items"]
    plain = isinstance(items, list) and 1 <= len(items) <= 3
    return (
        among
        and numbers
        and plain
        and all(re.fullmatch(r"[a-z]{2,12}( [a-z]{2,12})?", item) for item in items)
        and re.fullmatch(r"[A-Z][a-z]{1,14}( [A-Z][a-z]{1,14})?", record["name"]) is not None
    )


ORACLES: dict[str, Callable[[str], bool]] = {
    "arithmetic": is_arithmetic,
    "c-expression": is_c,
    "chess": is_chess,
    "csv": is_csv,
    "email": is_email,
    "iso-date": is_date,
    "json": is_json,
    "json-lines": is_json_lines,
    "list": is_list,
    "move": is_move_command,
    "python-literal": is_python,
    "rpg-character": is_character,
    "semver": is_semver,
    "sql-select": is_sql,
    "uuid": is_uuid,
    "yes-no": lambda text: text in {"yes", "no", "Yes", "No"},
}
EXACT = frozenset({"chess", "csv", "iso-date", "list", "move", "rpg-character", "semver", "uuid", "yes-no"})
