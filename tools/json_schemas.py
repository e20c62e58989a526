"""How much of JSON Schema becomes a grammar, and is every text of such a grammar valid?

    python tools/json_schemas.py --suite FOLDER --schemas FILE.jsonl
    python tools/json_schemas.py --verdicts [FOLDER]

FOLDER holds the files of JSON-Schema-Test-Suite for draft 2020-12, and FILE has one
`{"id": ..., "schema": ...}` a line. The script prints the share of schemas that become
a grammar and the reasons for the rest. It draws texts by random walks and by twisting
valid ones, and prints how many of them `jsonschema` calls invalid (0, or the exit
status is 1) and how many valid instances the grammar refuses.

--verdicts compares verdicts on instances with those that the FOLDER gives in
`wild_schemas.jsonl` and `json_schema_test_suite` (without FOLDER, those of
SELECTRIE_TEST_DATA), also for llguidance alone. A verdict is about
`json.dumps(instance, ensure_ascii=False)` with the keys in the schema's order. The exit
status is 1 if an invalid instance is accepted, or if a valid one is refused that
llguidance alone accepts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np

from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import GrammarError
from selectrie.grammar.llguidance import check_guidance
from selectrie.grammar.schema.schema import read_schema

CLOSING = (b'"', b"}", b"]")
MOST_TOKENS = 300
ODD = (b"\\", b"-", b"0", b".", b"e", b"u", b"\xc2", b"\xf0", b",", b"{", b"[")


def piece_vocabulary(pieces: Iterable[bytes] = ()) -> Vocabulary:
    """Return a vocabulary of the 256 bytes, these pieces, and one token that ends a
    text.
    """
    own = sorted(set(pieces) - {b""} - {bytes([byte]) for byte in range(256)})
    every = (*(bytes([byte]) for byte in range(256)), *own, b"")
    return Vocabulary(
        pieces=every,
        texts=(*(piece.decode("utf-8", "backslashreplace") for piece in every[:-1]), "<end>"),
        bos=None,
        eos=len(every) - 1,
        eog=np.array([len(every) - 1], dtype=np.int32),
        control=np.array([len(every) - 1], dtype=np.int32),
        space_prefix=False,
        tokenize=list,
    )


def strings_of(value: object) -> Iterator[str]:
    """Yield every string in a JSON value, names included."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += [*one, *one.values()]
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, str):
            yield one


def pieces_for(schema: object) -> set[bytes]:
    """List beginnings of what a walk should meet: names and strings of the schema,
    plain, as members and with escapes.
    """
    found: set[bytes] = set()
    for text in strings_of(schema):
        if len(text) <= 24 and not any("\ud800" <= c <= "\udfff" for c in text):
            spelled = json.dumps(text, ensure_ascii=False)
            escaped = '"' + "".join(f"\\u{ord(c):04x}" for c in text if c <= "\uffff") + '"'
            found |= {one.encode() for one in (spelled, spelled + ":", spelled[:-1], escaped, escaped + ": ")}
    return found


def automaton_of(schema: Any, vocabulary: Vocabulary) -> Any:
    """Return the automaton of a schema, in both layouts of `json.dumps` and any
    between them.

    Raises `GrammarError` if the schema does not become a grammar.
    """
    return read_schema(schema, route="llguidance", spacing="optional").automaton(vocabulary)


def allowed_ids(automaton: Any, state: int) -> list[int]:
    """Return the tokens that may come next."""
    allowed = automaton.allowed(state)
    return (np.flatnonzero(allowed) if allowed.dtype == np.bool_ else allowed).tolist()


def walk(automaton: Any, vocabulary: Vocabulary, rng: random.Random, most: int = MOST_TOKENS) -> bytes | None:
    """Return a text of random allowed tokens, drawn by one of several tempers, or None
    if it did not end within `most` tokens.
    """
    state, text = automaton.start(), b""
    temper = rng.choice(("any", "any", "plain", "odd", "short"))
    patience = rng.choice((4, 15, 60))
    for step in range(most):
        if automaton.can_end(state) and (step > patience or rng.random() < 0.5):
            return text
        ids = allowed_ids(automaton, state)
        if not ids:
            return text if automaton.can_end(state) else None
        token = _chosen(ids, vocabulary, rng, "short" if step > patience else temper)
        text += vocabulary.pieces[token]
        state = automaton.advance(state, token)
    return text if automaton.can_end(state) else None


def _chosen(ids: list[int], vocabulary: Vocabulary, rng: random.Random, temper: str) -> int:
    pieces = vocabulary.pieces
    if temper == "short" and rng.random() < 0.9:
        ids = [i for i in ids if pieces[i].startswith(CLOSING)] or ids
    elif temper == "plain":
        ids = [i for i in ids if pieces[i].isascii()] or ids
    elif temper == "odd" and rng.random() < 0.5:
        ids = [i for i in ids if pieces[i][:1] in ODD or len(pieces[i]) > 1] or ids
    return rng.choice(ids)


def accepts(automaton: Any, text: bytes) -> bool:
    """Tell whether the grammar accepts the text."""
    state = automaton.walk(automaton.start(), text)
    return state >= 0 and bool(automaton.can_end(state))


def _multiple_of(_validator: Any, step: Any, number: Any, _schema: Any) -> Iterator[jsonschema.ValidationError]:
    """Divide by decimals, as they are written: in doubles, 0.07 is not a multiple of
    0.01.
    """
    if isinstance(number, int | float) and not isinstance(number, bool):
        exact = Fraction(Decimal(repr(number))) / Fraction(Decimal(repr(step)))
        if exact.denominator != 1:
            yield jsonschema.ValidationError(f"{number!r} is not a multiple of {step!r}")


def validator_of(schema: Any) -> Any:
    """Return the validator of the schema's own draft, or of 2020-12 if it names none;
    formats are checked, multiples by decimals.
    """
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return jsonschema.validators.extend(kind, {"multipleOf": _multiple_of})(schema, format_checker=kind.FORMAT_CHECKER)


def is_valid(validator: Any, text: bytes) -> bool:
    """Tell whether the text is JSON and valid. Raises what the oracle raises if it
    cannot decide.
    """
    try:
        value = json.loads(text.decode())
    except ValueError:
        return False
    return bool(validator.is_valid(value))


def twisted(text: bytes, strings: list[str], rng: random.Random) -> Iterator[bytes]:
    """Yield texts close to one: a member renamed, repeated or left out; a value
    changed; a name or number spelled differently.
    """
    plain = text.decode()
    tokens = re.findall(r'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|[{}\[\],:]|true|false|null|\s+', plain)
    places = [i for i, token in enumerate(tokens) if token[0] not in "{}[],: \n\r\t"]
    values = [
        "0",
        "1",
        "-1",
        "1.0",
        "1e0",
        "2",
        "null",
        "true",
        '""',
        '"x"',
        "[]",
        "{}",
        "0.5",
        "99999999999999999999",
        "[1,1]",
    ]
    values += [json.dumps(s, ensure_ascii=False) for s in strings]
    for place in rng.sample(places, min(8, len(places))):
        token = tokens[place]
        others = rng.sample(values, min(6, len(values)))
        if token[0] == '"':
            inner = json.loads(token)
            others.append('"' + "".join(f"\\u{ord(c):04x}" for c in inner if c <= "\uffff") + '"')
            others += [json.dumps(inner + c, ensure_ascii=False) for c in ("\n", "x", "é")]
        elif token[0] in "-0123456789":
            others += [token + "0", token + ".0", token + "e0", token + "1", "-" + token.lstrip("-")]
        for other in others:
            yield "".join([*tokens[:place], other, *tokens[place + 1 :]]).encode()
    for opening, member in (("{", '"x":1'), ("[", "1"), ("{", '"x":"x"'), ("[", "null")):
        for place in [i for i, token in enumerate(tokens) if token == opening][:3]:
            comma = "" if tokens[place + 1 : place + 2] in (["}"], ["]"]) else ","
            yield "".join([*tokens[: place + 1], member, comma, *tokens[place + 1 :]]).encode()


@dataclass(slots=True)
class Tally:
    """Counts what was found. invalid: (schema's name, text) of each text that is not
    valid. reasons: of schemas without a grammar.
    """

    schemas: int = 0
    carried: int = 0
    walks: int = 0
    produced: int = 0
    twists: int = 0
    valid_instances: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    invalid: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Case:
    """A schema and what to try on it: instances, and which of them are valid."""

    name: str
    schema: Any
    instances: tuple[tuple[Any, bool], ...] = ()


def suite_cases(folder: Path) -> list[Case]:
    """Return the groups of JSON-Schema-Test-Suite."""
    return [
        Case(
            f"{path.stem}: {group['description']}",
            group["schema"],
            tuple((test["data"], test["valid"]) for test in group["tests"]),
        )
        for path in sorted(folder.glob("*.json"))
        for group in json.loads(path.read_text())
    ]


def real_cases(path: Path) -> list[Case]:
    """Return the schemas of a file that has one a line."""
    return [Case(one["id"], one["schema"]) for one in map(json.loads, path.read_text().splitlines())]


def examine(case: Case, tally: Tally, *, walks: int, seed: int = 0) -> None:
    """Add what one schema shows to the tally."""
    tally.schemas += 1
    vocabulary = piece_vocabulary(pieces_for(case.schema))
    try:
        automaton = automaton_of(case.schema, vocabulary)
    except GrammarError as error:
        tally.reasons[reason_of(error)] += 1
        return
    tally.carried += 1
    validator = validator_of(case.schema)
    rng = random.Random(f"{seed} {case.name}")
    texts = {text for text in (walk(automaton, vocabulary, rng) for _ in range(walks)) if text is not None}
    tally.walks += walks
    strings = sorted(set(strings_of(case.schema)))[:12]
    tried = set(texts)
    for text in sorted(texts)[:10]:
        tried.update(twisted(text, strings, rng))
    for value, valid in case.instances:
        spellings = [
            json.dumps(value, ensure_ascii=False, separators=pair).encode("utf-8", "surrogatepass")
            for pair in ((",", ":"), None)
        ]
        tried.update(spellings)
        if valid:
            tally.valid_instances += 1
            if not all(accepts(automaton, text) for text in spellings):
                tally.refused[case.name.partition(":")[0]] += 1
        for text in spellings:
            tried.update(twisted(text, strings, rng))
    found = texts | {text for text in tried - texts if accepts(automaton, text)}
    tally.produced += len(texts)
    tally.twists += len(found) - len(texts)
    tally.invalid += [
        (case.name, text.decode("utf-8", "replace")) for text in sorted(found) if not is_valid(validator, text)
    ]


def reason_of(error: GrammarError) -> str:
    """Return the keyword that the message names, or its beginning."""
    keyword = re.match(r"([$\w]+(?: or \w+)?) at #", error.reason)
    return keyword[1] if keyword else error.reason.split(":")[0][:60]


def report(title: str, tally: Tally) -> Iterator[str]:
    """Yield lines about a tally."""
    yield f"{title}: {tally.carried} of {tally.schemas} schemas carried over ({tally.carried / tally.schemas:.0%})"
    yield f"  {tally.produced} texts from {tally.walks} walks, {tally.twists} more by twisting; invalid: {len(tally.invalid)}"
    if tally.valid_instances:
        n = sum(tally.refused.values())
        yield f"  {n} of {tally.valid_instances} valid instances refused: " + _counts(tally.refused)
    yield "  not carried over: " + _counts(tally.reasons)
    yield from (f"  INVALID {name}: {text}" for name, text in tally.invalid)


@dataclass(slots=True)
class Verdicts:
    """Counts what was found on instances.

    reasons: of schemas refused. wide: names of schemas with instances that are accepted
    though invalid; narrow: with instances that are refused though valid. lost: valid
    instances that llguidance alone accepts where it refuses the invalid ones.
    """

    schemas: int = 0
    refused: int = 0
    instances: int = 0
    decided: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    wide: list[tuple[str, str]] = field(default_factory=list)
    narrow: list[tuple[str, str]] = field(default_factory=list)
    lost: list[tuple[str, str]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def ordered(value: Any, names: dict[str, int]) -> Any:
    """Return a value with the keys of its objects in an order; keys outside the order
    come last.
    """
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: names.get(key, len(names)))
        return {key: ordered(value[key], names) for key in keys}
    return [ordered(one, names) for one in value] if isinstance(value, list) else value


def names_in_order(schema: Any) -> dict[str, int]:
    """Return the names of properties of a schema in the order in which they are first
    named, references followed in place.
    """
    return {name: i for i, name in enumerate(dict.fromkeys(names_of(schema, schema, set())))}


def names_of(part: Any, root: Any, followed: set[str]) -> Iterator[str]:
    """Yield the names of properties that a part of a schema names."""
    for one in part if isinstance(part, list) else ():
        yield from names_of(one, root, followed)
    for key, one in part.items() if isinstance(part, dict) else ():
        if key == "properties" and isinstance(one, dict):
            yield from one
        elif key == "required" and isinstance(one, list) and "properties" not in part:
            yield from (name for name in one if isinstance(name, str))
        elif key in ("const", "enum"):
            yield from (name for value in objects_in(one) for name in value)
        elif key == "$ref" and isinstance(one, str) and one not in followed:
            followed.add(one)
            yield from names_of(target_of(one, root), root, followed)
        if key not in ("const", "enum", "$defs", "definitions", "default", "examples"):
            yield from names_of(one, root, followed)


def target_of(reference: str, root: Any) -> Any:
    """Return what a reference to a place of the schema points to, or None."""
    for step in reference.split("/")[1:]:
        root = root.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(root, dict) else None
    return root if reference.startswith("#") else None


def objects_in(value: object) -> Iterator[dict[str, Any]]:
    """Yield every object in a JSON value."""
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects_in(one)


def spellings(schema: Any, value: Any) -> list[bytes]:
    """Return the instance unchanged, and with its keys in the schema's order."""
    texts = [json.dumps(one, ensure_ascii=False) for one in (value, ordered(value, names_in_order(schema)))]
    return [text.encode("utf-8", "surrogatepass") for text in dict.fromkeys(texts)]


def examine_verdicts(case: Case, found: Verdicts) -> None:
    """Add what one schema says about its instances."""
    found.schemas += 1
    found.instances += len(case.instances)
    vocabulary = piece_vocabulary()
    try:
        automaton = automaton_of(case.schema, vocabulary)
    except GrammarError as error:
        found.refused += 1
        found.reasons[reason_of(error)] += 1
        found.left.append(f"{case.name}: {error.reason[:200]}")
        return
    alone: Any = None
    for value, valid in case.instances:
        texts = spellings(case.schema, value)
        taken = any(accepts(automaton, text) for text in texts)
        found.decided += taken == valid
        shown = texts[-1].decode("utf-8", "replace")[:200]
        if taken and not valid:
            found.wide.append((case.name, shown))
        elif valid and not taken:
            found.narrow.append((case.name, shown))
            alone = alone or alone_on(case, vocabulary)
            if any(alone(text) for text in texts):
                found.lost.append((case.name, shown))


def alone_on(case: Case, vocabulary: Vocabulary) -> Any:
    """Return a function that tells whether llguidance alone accepts a text.

    It returns False for every text if llguidance does not read the schema.
    """
    options = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
    try:
        schema = case.schema if isinstance(case.schema, dict) else {"allOf": [case.schema]}
        grammar = check_guidance([{"json_schema": {**schema, "x-guidance": options}}], "alone")
        automaton = grammar.automaton(vocabulary)
    except GrammarError:
        return lambda _text: False
    return lambda text: accepts(automaton, text)


def verdicts_on(folder: Path) -> int:
    """Print what the schemas of a folder say about their instances; return 1 if that
    is wrong.
    """
    wrong = 0
    wild = [json.loads(line) for line in (folder / "wild_schemas.jsonl").read_text().splitlines()]
    cases = {
        "wild_schemas": [
            Case(one["id"], one["schema"], (*((v, True) for v in one["valid"]), *((v, False) for v in one["invalid"])))
            for one in wild
        ],
        "json_schema_test_suite": suite_cases(folder / "json_schema_test_suite"),
    }
    for name, some in cases.items():
        found = Verdicts()
        for case in some:
            examine_verdicts(case, found)
        print(f"{name}: {found.refused} of {found.schemas} schemas refused ({found.refused / found.schemas:.1%})")
        print(
            f"  {found.decided} of {found.instances} verdicts right; too wide {len(found.wide)}, too narrow {len(found.narrow)}, of these {len(found.lost)} that llguidance alone accepts"
        )
        print("  refused: " + _counts(found.reasons))
        for kind in ("wide", "narrow"):
            for schema, text in getattr(found, kind):
                lost = " (llguidance alone accepts it)" if (schema, text) in found.lost else ""
                print(f"  too {kind} {schema}: {text}{lost}")
        if os.environ.get("LEFT"):
            print(*found.left, sep="\n")
        wrong += len(found.wide) + len(found.lost)
    return int(wrong > 0)


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counter.most_common())


def main() -> int:
    """Run what was asked for; return 1 if a text was invalid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=Path, help="folder of JSON-Schema-Test-Suite's files")
    parser.add_argument("--schemas", type=Path, help="schemas, one a line")
    parser.add_argument("--verdicts", nargs="?", const=None, default=False, help="folder of schemas with instances")
    parser.add_argument("--walks", type=int, default=20, help="texts to draw for each schema")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.verdicts is not False:
        return verdicts_on(Path(given.verdicts or os.environ["SELECTRIE_TEST_DATA"]) / "grammar")
    cases = {
        "suite": suite_cases(given.suite) if given.suite else [],
        "schemas": real_cases(given.schemas) if given.schemas else [],
    }
    invalid = 0
    for name, some in cases.items():
        if not some:
            continue
        tally = Tally()
        for case in some:
            examine(case, tally, walks=given.walks, seed=given.seed)
        print(*report(name, tally), sep="\n", flush=True)
        invalid += len(tally.invalid)
    return int(invalid > 0)


if __name__ == "__main__":
    sys.exit(main())
