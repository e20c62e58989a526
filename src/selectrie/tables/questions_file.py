"""Reads questions from a file: TOML, or JSON in the shape of a client's request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from selectrie.decide.question_data import questions_of_data
from selectrie.decide.questions import Question
from selectrie.errors import InputFileError, RequestError
from selectrie.runs.data_lines import decoded, parsed_json
from selectrie.runs.toml_text import parsed_toml

MAX_FILE_BYTES = 16 << 20


def read_question_data(path: Path) -> Any:
    """Return the data of a `.toml` or `.json` file.

    Raises `InputFileError` with file and line if it cannot be read.
    """
    name, suffix = str(path), path.suffix.lower()
    if suffix not in (".toml", ".json"):
        raise InputFileError(name, "not a file of questions: its name must end in .toml or .json")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise InputFileError(repr(name), getattr(error, "strerror", None) or str(error)) from error
    if len(data) > MAX_FILE_BYTES:
        raise InputFileError(name, f"the file has more than {MAX_FILE_BYTES >> 20} MiB, so it holds no questions")
    text = decoded(name, data, 1)
    return parsed_toml(text.replace("\r\n", "\n"), name) if suffix == ".toml" else parsed_json(path, text, None)


def questions_of_file(path: Path, data: Any) -> dict[str, Question]:
    """Return the questions of a file's data by name.

    Raises `InputFileError` with the file and the path to the value in it.
    """
    try:
        return questions_of_data(data, "questions" if isinstance(data, list) else "")
    except InputFileError:
        raise
    except RequestError as error:
        raise InputFileError(str(path), str(error)) from error


def read_questions(path: Path) -> dict[str, Question]:
    """Return the questions of a file by name.

    A TOML file has a table for each question. A JSON file is the body of a request, or
    what such a body has under `questions`.

    Raises:
        InputFileError: With the file and the line, or the path to the value in it.
    """
    return questions_of_file(path, read_question_data(path))
