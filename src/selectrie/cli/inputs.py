r"""Readers for the caller's files and arguments, such as choices, prompts and priors.

Text is taken unchanged, except that the line end of a line or file (`\n` or `\r\n`) is
removed, and a byte order mark at the beginning of a file, which editors add. Spaces at
either end are kept, because ` Paris` and `Paris` are different choices.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from operator import attrgetter
from pathlib import Path
from typing import Any
from weakref import WeakSet

from selectrie.core.files import DELIMITERS, JSON_SUFFIXES, TABLE_SUFFIXES
from selectrie.core.output import is_terminal, write
from selectrie.core.strict_json import object_of_unique_keys, refuse_constant
from selectrie.errors import InputFileError, MessageText, OptionError, of_value, words
from selectrie.options.checks import MAX_NUMBER, at_least

STDIN = "-"
"""The path that means standard input."""

_SAVED: set[str] = set()
"""Paths of the files of `save_stdin`."""
_READ: WeakSet[Any] = WeakSet()
"""Streams of standard input that were read."""
_KEPT: ContextVar[dict[str, bytes] | None] = ContextVar("selectrie_files_kept", default=None)
_GIVEN: ContextVar[Mapping[str, bytes] | None] = ContextVar("selectrie_files_given", default=None)
_BOM = b"\xef\xbb\xbf"


def read_choices(path: str, *, allow_empty: bool = False) -> list[str]:
    """Return the choices of a file: one a line, or a `.json` array of strings.

    Only a CR before the line end and the file's last line end are dropped. An empty
    file and bad UTF-8 are errors, and so is an empty line unless `allow_empty` is set.
    Errors name the line.
    """
    text = read_text(path)
    if path.lower().endswith(".json"):
        choices = _parse_json_choices(path, text)
        empty = "element {0} is empty"
    else:
        choices = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
        empty = "the line is empty"
    if not choices:
        raise InputFileError(path, "holds no choices")
    if not allow_empty and "" in choices:
        at = choices.index("")
        line = None if path.lower().endswith(".json") else at + 1
        raise InputFileError(path, empty.format(at) + "; remove it, or give --allow-empty", line=line)
    return choices


def read_listed(name: str, given: str, *, allow_empty: bool = False) -> list[str]:
    """Return the texts of an option: those between its commas, or those of a file.

    Spaces around a comma are dropped.

    Args:
        name: The option, for errors.
        given: The texts, or the file's name.
        allow_empty: As for `read_choices`.
    """
    if given == STDIN or is_file(given):
        return read_choices(given, allow_empty=allow_empty)
    if "," not in given:
        raise InputFileError(given, "No such file, and no texts with commas between them")
    texts = [one.strip() for one in given.split(",")]
    if not all(texts):
        raise OptionError(name, given, "a text between any two commas, and none at an end")
    return texts


def read_examples(path: str, state: str, labels: Sequence[str], n_each: int) -> list[tuple[str, str]]:
    """Return examples of each label, as pairs (state, label), from a labelled table.

    The table's column `label` has the labels.

    Args:
        path: The table.
        state: Name of a column, or a pattern of columns, with the text that is
            labelled.
        labels: The known labels; a row with another is an error.
        n_each: Maximum number of examples for each label.
    """
    at_least("shots", n_each, 1, optional=False)
    from selectrie.decide.questions import balanced
    from selectrie.decide.states import row_states, text_of_state
    from selectrie.runs.data_files import reading
    from selectrie.tables.formats import open_table, scan, text_of_cell

    with reading(Path(path)):
        table = open_table(Path(path))
        names = scan(table).names
        if "label" not in names:
            raise InputFileError(path, f"has no column 'label' with the answers; it has {', '.join(map(repr, names))}")
        states = row_states(state, names)
        rows = [row for rows in table.units(64) for row in rows.values([*states.columns, "label"])]
    examples = [(text_of_state(states.of(row[:-1])), text_of_cell(row[-1])) for row in rows]
    for number, (_, label) in enumerate(examples, start=1):
        if label not in labels:
            raise InputFileError(path, f"row {number} has the label {of_value(label)}, which is none of the labels")
    return balanced(examples, n_each)


def read_prompt(path: str) -> str:
    """Return a prompt file unchanged, except for one line end at its end.

    Editors and `echo` add that line end.
    """
    return read_text(path).removesuffix("\n").removesuffix("\r")


def read_text(path: str) -> str:
    """Return a file of UTF-8 text unchanged, except for a byte order mark."""
    data = _read_bytes(path).removeprefix(_BOM)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        reason = f"byte 0x{data[error.start]:02x} is not UTF-8 ({error.reason}); save the file as UTF-8"
        raise InputFileError(path, reason, line=line) from error


_FILE_NAME = re.compile(
    r"\S+\.(csv|tsv|jsonl|ndjson|parquet|feather|json|toml|txt|md|html|eml|xlsx?|ods|pkl|gz|zip)", re.IGNORECASE
)
_FILE_LIKE = re.compile(r"\S+\.[a-z]{2,5}|\S*[/\\]\S*", re.IGNORECASE)


def names_file(given: str) -> bool:
    """Return whether an argument names a file, which may be missing, and is no text.

    It does if there is such a file, or if it is one word with the ending of a file.
    """
    return is_file(given) or _FILE_NAME.fullmatch(given) is not None


def names_python(given: str) -> bool:
    """Return whether an argument is FILE.py or FILE.py:NAME, and is no text."""
    return re.fullmatch(r"\S+\.py(:\S*)?", given) is not None


def resembles_file(given: str) -> bool:
    """Return whether an argument may name a file: as `names_file`, or a word like it.

    Such a word has a suffix of two to five letters, or separates folders.
    """
    return names_file(given) or _FILE_LIKE.fullmatch(given) is not None


def read_text_argument(name: str, given: str, remedy: MessageText) -> str:
    """Return the text of an argument, or of standard input for "-".

    Args:
        name: The argument, for errors.
        given: The argument.
        remedy: What to give in place of the name of a file, for the `OptionError`.
    """
    if given == STDIN:
        return read_prompt(STDIN)
    if names_file(given):
        raise OptionError(name, given, words("a text, or - for standard input; {}", remedy))
    return given


def read_prompts(path: str) -> list[str | list[int] | list[dict[str, object]]]:
    """Return the prompts of a file with a JSON value on each line.

    A value is a text, `{"prompt": text or token ids}`, or `{"messages": [...]}`. Errors
    name the line. An empty line is an error, and so is any other key, since an option
    there would be ignored.
    """
    lines = _parse_json_lines(path, "prompts", remedy='; write a text as "…" or {"prompt": "…"}')
    return [_check_prompt(path, value, line) for line, value in lines]


def _parse_json_lines(path: str, what: str, *, remedy: str = "") -> Iterator[tuple[int, Any]]:
    """Yield the number and the JSON value of each line of a file.

    An empty file or line is an error.

    Args:
        path: The file.
        what: Noun for the lines, for the error about an empty file.
        remedy: Added to the error about a line that is not JSON.
    """
    text = read_text(path)
    if not text:
        raise InputFileError(path, f"holds no {what}")
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        if not line.strip():
            raise InputFileError(path, "the line is empty; remove it", line=number)
        yield number, _parse_json(path, line, line=number, remedy=remedy)


def _check_prompt(path: str, value: Any, line: int) -> str | list[int] | list[dict[str, object]]:
    """Return the prompt that a JSON value gives; raise `InputFileError` for others."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        raise InputFileError(
            path, f'expected a text, {{"prompt": …}} or {{"messages": …}}, not {_name_json_type(value)}', line=line
        )
    if len(value) != 1 or not value.keys() <= {"prompt", "messages"}:
        keys = ", ".join(map(repr, value)) or "no key"
        raise InputFileError(path, f"found {keys}; expected one key, 'prompt' or 'messages'", line=line)
    if "messages" in value:
        return _check_messages(path, value["messages"], line=line)
    prompt = value["prompt"]
    if isinstance(prompt, list) and prompt and all(type(token) is int and token >= 0 for token in prompt):
        return prompt
    if not isinstance(prompt, str):
        raise InputFileError(
            path, f"'prompt' is {_name_json_type(prompt)}, expected a text or an array of token ids", line=line
        )
    return prompt


def read_messages(path: str) -> list[dict[str, object]]:
    """Return chat messages from a JSON array of objects.

    Each has a text `role` and a text `content`; other keys go to the template.
    """
    return _check_messages(path, _parse_json(path, read_text(path)))


def _check_messages(path: str, messages: object, *, line: int | None = None) -> list[dict[str, object]]:
    """Return a JSON value if it is a list of chat messages; else raise an error."""
    if not isinstance(messages, list) or not messages:
        raise InputFileError(
            path, 'expected a JSON array of messages: [{"role": "user", "content": "…"}, …]', line=line
        )
    for at, message in enumerate(messages):
        if not isinstance(message, dict):
            reason = f"message {at} is {_name_json_type(message)}, expected an object with role and content"
            raise InputFileError(path, reason, line=line)
        for key in ("role", "content"):
            if not isinstance(message.get(key), str):
                reason = f"message {at}: {key!r} is {_name_json_type(message.get(key))}, expected text"
                raise InputFileError(path, reason, line=line)
    return messages


def read_prior(path: str, choices: Sequence[str]) -> dict[str, float]:
    """Return the prior probabilities in a JSON object from choice to number.

    No number may be negative. A key that is not a choice is an error, because it is
    likely a misspelt choice (often without its leading space).
    """
    prior = _parse_json(path, read_text(path))
    if not isinstance(prior, dict):
        raise InputFileError(path, f"expected a JSON object from choice to probability, not {_name_json_type(prior)}")
    known = set(choices)
    for choice, p in prior.items():
        if choice not in known:
            raise InputFileError(path, f"{choice!r} is not one of the choices")
        if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p <= MAX_NUMBER:
            raise InputFileError(path, f"{choice!r}: {p!r} is not a probability")
    return {choice: float(p) for choice, p in prior.items()}


def read_weights(path: str, texts: Sequence[str]) -> list[float]:
    """Return the weight of each text, from a JSON object as `read_prior` reads it."""
    weights = read_prior(path, texts)
    missing = next((text for text in texts if text not in weights), None)
    if missing is not None:
        raise InputFileError(path, f"{missing!r} has no weight; give every text one")
    return [weights[text] for text in texts]


def read_values(path: str) -> dict[str, Any]:
    """Return the values of a template, from a file with a JSON object by name."""
    return _check_object(path, _parse_json(path, read_text(path)))


def read_rows(path: str) -> list[dict[str, Any]]:
    """Return the values of many pages, from the rows of a table.

    A file that is no table, such as standard input, has a JSON object on each line too.
    Errors name the line. An empty line of JSON is an error.
    """
    if Path(path).suffix.lower() in set(TABLE_SUFFIXES) - set(JSON_SUFFIXES):
        from selectrie.runs.data_files import reading
        from selectrie.tables.formats import open_table, scan

        with reading(Path(path)):
            table = open_table(Path(path))
            names = scan(table).names
            return [dict(zip(names, row, strict=True)) for rows in table.units(64) for row in rows.values(names)]
    return [_check_object(path, value, line=line) for line, value in _parse_json_lines(path, "rows")]


def _check_object(path: str, value: object, *, line: int | None = None) -> dict[str, Any]:
    """Return a JSON value if it is an object; raise `InputFileError` if not."""
    if not isinstance(value, dict):
        raise InputFileError(
            path, f"expected a JSON object from name to value, not {_name_json_type(value)}", line=line
        )
    return value


_VALUE = re.compile(r"([^\W\d]\w*)(:?)=(.*)", re.DOTALL)


def read_type(text: str) -> Any:
    """Return the type that `module:Name` or `file.py:Name` names, or a JSON Schema.

    Modules are also looked for in the working folder. A JSON Schema is the name of a
    file that ends in `.json`, or the JSON text itself.
    """
    is_text = text.lstrip().startswith("{")
    if is_text or text.lower().endswith(".json"):
        return _parse_json_option("type", text, text, "a JSON Schema") if is_text else _read_schema(text)
    source, _, name = text.rpartition(":")
    if not source or not name:
        expected = "MODULE:CLASS or FILE.py:CLASS, such as models.py:Ticket, or a file .json with a JSON Schema"
        raise OptionError("type", text, expected)
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        if source.endswith(".py"):
            own = f"selectrie_type_{Path(source).stem}"
            spec = importlib.util.spec_from_file_location(own, source)
            module = sys.modules[own] = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]  # has a name
            spec.loader.exec_module(module)  # type: ignore[union-attr]  # a file of Python has a loader
        else:
            module = importlib.import_module(source)
        return attrgetter(name)(module)
    except Exception as error:  # the caller's module may raise anything
        raise InputFileError(source, f"cannot import {name}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(folder)


def _read_schema(path: str) -> dict[str, Any]:
    """Return the JSON Schema of a file."""
    schema = _parse_json(path, read_text(path))
    if not isinstance(schema, dict):
        raise InputFileError(path, "is not an object; a JSON Schema is one")
    return schema


def parse_values(items: Sequence[str]) -> dict[str, Any]:
    """Return the values of `name=text` and `name:=json` items.

    A later item replaces an earlier one with the same name. The text is taken exactly
    as given. Text after `:=` is JSON: `level:=3`, `tags:=["a", "b"]`.
    """
    result: dict[str, Any] = {}
    for item in items:
        match = _VALUE.fullmatch(item)
        if match is None:
            raise OptionError("var", item, "name=text or name:=json, the name of letters, digits and _")
        name, is_json, value = match.groups()
        expected = f"JSON after := (for a text, write {name}=text)"
        result[name] = _parse_json_option("var", item, value, expected) if is_json else value
    return result


def _parse_json_option(name: str, item: str, text: str, expected: str) -> Any:
    """Return the JSON value `text` in an item of the option `name`.

    Raises `OptionError` with `expected` if `text` is not JSON, is nested too deeply, or
    has NaN, an infinity, or a number of thousands of digits.
    """
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        raise OptionError(name, item, expected) from None


_TOKEN_DIGITS = 10
"""More digits than any vocabulary's ids have."""


def parse_token_ids(text: str) -> list[int]:
    """Return the token ids in a text, separated by commas or white space."""
    words = re.split(r"[,\s]+", text.strip().strip(","))
    if not all(word.isascii() and word.isdigit() and len(word) <= _TOKEN_DIGITS for word in words):
        raise OptionError("token_ids", text, "token ids such as 1,2,3")
    return [int(word) for word in words]


def parse_template_args(items: Sequence[str]) -> dict[str, Any]:
    """Return the arguments in `key=value` items, whose values are JSON.

    Thus `false` is not mistaken for a text, which would count as true.
    """
    result: dict[str, Any] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise OptionError("template_arg", item, "key=value")
        if key in result:
            raise OptionError("template_arg", item, f"each key once; {key} was given before")
        result[key] = _parse_json_option(
            "template_arg", item, value, f"a JSON value: {key}=true, {key}=3, {key}='\"text\"'"
        )
    return result


def parse_logit_bias(items: Sequence[str]) -> dict[int, float]:
    """Return biases by token id from `ID=NUMBER` items; `-inf` forbids a token."""
    result: dict[int, float] = {}
    for item in items:
        token, equals, value = item.partition("=")
        try:
            bias = float(value)
        except ValueError:
            bias = math.nan
        if not equals or not re.fullmatch("[0-9]{1,9}", token) or math.isnan(bias):
            raise OptionError("logit_bias", item, "ID=NUMBER, such as 13=-2.5 or 13=-inf")
        if int(token) in result:
            raise OptionError("logit_bias", item, f"each token once; {token} was given before")
        result[int(token)] = bias
    return result


_ESCAPES = {"\\n": "\n", "\\r": "\r", "\\t": "\t", "\\\\": "\\"}


def parse_escapes(name: str, text: str) -> str:
    r"""Return a text with the escapes `\n`, `\r`, `\t` and `\\` replaced.

    They mean LF, CR, tab and a backslash, which are hard to type in shells. A backslash
    before any other character, or at the end, raises `OptionError`.

    Args:
        name: The option, for the error.
    """
    parts = re.split(r"(\\.?)", text, flags=re.DOTALL)
    unknown = next((part for part in parts[1::2] if part not in _ESCAPES), None)
    if unknown is not None:
        raise OptionError(name, text, r"a text whose backslashes begin \n, \r, \t or \\")
    return "".join(_ESCAPES.get(part, part) for part in parts)


@contextmanager
def keep_files() -> Iterator[None]:
    """Keep the content of every file read in the `with` block, for `kept_files`."""
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


def kept_files() -> dict[str, bytes]:
    """Return the content of the files read so far in `keep_files`, by path."""
    return dict(_KEPT.get() or {})


@contextmanager
def replace_files(files: Mapping[str, bytes]) -> Iterator[None]:
    """Let the `with` block read these contents in place of files, and no other."""
    token = _GIVEN.set(files)
    try:
        yield
    finally:
        _GIVEN.reset(token)


def has_piped_text() -> bool:
    """Return whether standard input is a pipe or a file, not a terminal."""
    files = _GIVEN.get()
    if files is not None:
        return STDIN in files
    return sys.stdin is not None and not is_terminal(sys.stdin)


def save_stdin(folder: Path, suffix_of: Callable[[bytes], str]) -> Path:
    """Write standard input to a file `stdin` with the suffix of its content."""
    data = _read_bytes(STDIN)
    path = folder / f"stdin{suffix_of(data)}"
    path.write_bytes(data)
    _SAVED.add(str(path))
    return path


def save_lines(path: Path) -> Path:
    """Write the lines of a file as a table with the column `text`; return its path.

    Lines that are a table are reported on stderr, because its header is no text.

    Raises:
        InputFileError: For a file without lines, or whose first line names a column
            `text`.
    """
    text = read_text(str(path))
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
    if not lines:
        raise InputFileError(str(path), "holds no texts")
    if "text" in re.split("[,\t]", lines[0]):
        reason = "the first line names a column 'text'; give --state text for a table, or the lines without it"
        raise InputFileError(str(path), reason, line=1)
    for mark in DELIMITERS.values():
        if len(lines) > 1 and lines[0].count(mark) and len({line.count(mark) for line in lines}) == 1:
            write("! each line is one text; for a table, name its column: --state COLUMN", sys.stderr)
            break
    table = path.with_name("lines.csv")
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["text"], *([line] for line in lines)])
    _SAVED.add(str(table))
    return table


def is_stdin(path: str | Path) -> bool:
    """Return whether a path is `-`, or that of a file of `save_stdin`."""
    return str(path) in {STDIN, *_SAVED}


def _read_bytes(path: str) -> bytes:
    """Return a file's content, from `replace_files` if that is in effect."""
    files, kept_files = _GIVEN.get(), _KEPT.get()
    if files is not None:
        check_replayed(path)
    data = _read_file_or_stdin(path) if files is None else files[path]
    if kept_files is not None:
        kept_files[path] = data
    return data


def check_replayed(path: str) -> None:
    """Raise `InputFileError` if `replace_files` is in effect and lacks a file."""
    files = _GIVEN.get()
    if files is not None and path not in files:
        raise InputFileError(path, "is not in the trace; give the command again, with -m")


def is_file(path: str) -> bool:
    """Return whether there is such a file, or one of `replace_files`."""
    files = _GIVEN.get()
    return os.path.isfile(path) if files is None else path in files  # noqa: PTH113 - no error for any name


def _read_file_or_stdin(path: str) -> bytes:
    """Return the content of a file, or of standard input for "-"."""
    try:
        if path != STDIN:
            return Path(path).read_bytes()
        if sys.stdin is None:
            raise InputFileError(path, "standard input is closed")
        if sys.stdin in _READ:
            raise InputFileError(path, "standard input was read for another option; - can be given once")
        _READ.add(sys.stdin)
        return sys.stdin.buffer.read()
    except (OSError, ValueError) as error:  # ValueError: a null character in the path.
        raise InputFileError(path, getattr(error, "strerror", None) or str(error)) from error


def _parse_json(path: str, text: str, *, line: int | None = None, remedy: str = "") -> Any:
    """Return the value of a JSON text; repeated keys are errors.

    Args:
        path: The file, for errors.
        line: Number of the line that the text is; None if it is the whole file.
        remedy: Added to the error for a text that is not JSON.
    """
    try:
        return json.loads(text, object_pairs_hook=object_of_unique_keys)
    except json.JSONDecodeError as error:
        raise InputFileError(path, f"not JSON: {error.msg}{remedy}", line=line or error.lineno) from error
    except ValueError as error:  # a key that occurs twice, a number of thousands of digits
        raise InputFileError(path, f"not JSON: {error}", line=line) from error
    except RecursionError as error:
        raise InputFileError(path, "nested too deeply", line=line) from error


def _parse_json_choices(path: str, text: str) -> list[str]:
    """Return the choices in a JSON array; raise `InputFileError` for others."""
    choices = _parse_json(path, text)
    if not isinstance(choices, list):
        raise InputFileError(path, f"expected a JSON array of texts, not {_name_json_type(choices)}")
    for at, choice in enumerate(choices):
        if not isinstance(choice, str):
            raise InputFileError(path, f"element {at} is {_name_json_type(choice)}, expected a text")
    return choices


def _name_json_type(value: object) -> str:
    """Return the name of a value's JSON type."""
    names = {
        dict: "an object",
        list: "an array",
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), "missing or null")
