"""Defines the questions about the rows of a table, and reads files of questions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from selectrie.decide.calibration import Calibration
from selectrie.decide.columns import AnswerColumns, columns_of
from selectrie.decide.params import DEFAULT_DECISION, DecisionParams
from selectrie.decide.question_data import data_of_questions, questions_of_data
from selectrie.decide.questions import Question
from selectrie.decide.states import UNIT_ROWS
from selectrie.decide.templates import digest_of
from selectrie.decide.thinking import Thinking
from selectrie.decide.threshold import Threshold
from selectrie.decide.typed import parse_questions
from selectrie.errors import InputFileError, OptionError, RequestError
from selectrie.options.checks import at_least, record
from selectrie.results.plain import fields_of, jsonable
from selectrie.runs.data_files import decode_text, parse_json, parse_toml
from selectrie.template.analysis.template import Template

MAX_FILE_BYTES = 16 << 20
"""Maximum size of a file of questions."""


def read_question_data(path: Path) -> Any:
    """Return the parsed data of a `.toml` or `.json` file.

    Raises `InputFileError`, with file and line, if the file cannot be read or parsed.
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
    text = decode_text(name, data, 1)
    return parse_toml(text.replace("\r\n", "\n"), name) if suffix == ".toml" else parse_json(path, text, None)


def questions_of_file(path: Path, data: Any) -> dict[str, Question]:
    """Return the questions of a file's parsed data by name.

    `path` is the file, for errors. Raises `InputFileError` for invalid questions, with
    the file and the path to the value in the data.
    """
    try:
        return questions_of_data(data, "questions" if isinstance(data, list) else "")
    except InputFileError:
        raise
    except RequestError as error:
        raise InputFileError(str(path), str(error)) from error


def read_questions(path: Path) -> dict[str, Question]:
    """Return the questions of a file by name.

    A TOML file has a table for each question. A JSON file has the body of a request, or
    only the value of its field `questions`.

    Raises:
        InputFileError: If the file cannot be read or has invalid questions. The error
            names the line, or the path to the value in the data.
    """
    return questions_of_file(path, read_question_data(path))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TableQuestions:
    """The questions about every row of a table, with all options.

    Attributes:
        state: The state of a row: the name of a column, or a pattern in which
            `{column}` is replaced by a value and `{{` and `}}` by single braces.
        questions: The questions by name.
        params: Template, layout, rule and other options of the decisions.
        probabilities: "none", "json" or "wide", as for `decide.columns.columns_of`.
        prefix: Text before the name of every new column.
        bare: Whether column names omit the name of the only question.
        by_model: Whether columns name the models of a cascade that gave the answers.
        unit_rows: Number of rows that are evaluated together. Another number may change
            the last bits of the results.
    """

    state: str
    questions: Mapping[str, Question]
    params: DecisionParams = DEFAULT_DECISION
    probabilities: str = "none"
    prefix: str = ""
    bare: bool = False
    by_model: bool = False
    unit_rows: int = UNIT_ROWS

    def __post_init__(self) -> None:
        record("params", self.params, DecisionParams)
        if self.params.think is not None and self.params.think.seed is None:
            raise OptionError("think.seed", None, "a number: a run over a table may go on in another process")
        at_least("unit_rows", self.unit_rows, 1, optional=False)
        object.__setattr__(self, "questions", parse_questions(self.questions))
        self.columns()

    def columns(self) -> AnswerColumns:
        """Return the columns that the answers add."""
        return columns_of(self.questions, **fields_of(self, "probabilities prefix bare by_model"))  # type: ignore[arg-type]

    def templates(self) -> str:
        """Return the digests of the templates of the prompts, joined by "-"."""
        template = self.params.template
        return "-".join(map(digest_of, ("chat", "base") if template == "auto" else (template,)))

    def to_dict(self) -> dict[str, object]:
        """Return the record as JSON data, which `table_questions_of_data` reads."""
        return {
            "state": self.state,
            "questions": data_of_questions(self.questions),
            "params": _write_params(self.params),
            **fields_of(self, "probabilities prefix bare by_model unit_rows"),
        }


def absolute(path: Path) -> str:
    """Return an absolute path, without resolving links."""
    return os.path.abspath(path)  # noqa: PTH100 - Path.absolute keeps `..`


def table_questions_of_data(data: Mapping[str, Any], where: str) -> TableQuestions:
    """Return the record of the data that `TableQuestions.to_dict` wrote.

    Args:
        data: The data. Other fields are ignored.
        where: The folder of the run, for errors.

    Raises:
        InputFileError: If the data has another form, if questions or template can be
            made only in Python, or if the file of the template has changed.
    """
    try:
        fields_by_name = {one.name: data[one.name] for one in fields(TableQuestions) if one.name != "by_model"}
        fields_by_name["by_model"] = data.get("by_model", False)  # older runs have none
        has_python = any("python" in one for one in fields_by_name["questions"].values())
        questions = {} if has_python else questions_of_data({"questions": fields_by_name["questions"]})
        params = _read_params(fields_by_name["params"], where)
    except InputFileError:
        raise
    except (RequestError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputFileError(where, f"not the configuration of a run: {error}") from error
    if has_python:
        raise InputFileError(where, "its questions were made in Python; go on with the call that began it")
    return TableQuestions(**{**fields_by_name, "questions": questions, "params": params})


def _write_params(params: DecisionParams) -> dict[str, object]:
    """Return the options as JSON data, which `_read_params` reads.

    A template is written as the path and the digest of its file.
    """
    data = {one.name: getattr(params, one.name) for one in fields(DecisionParams)}
    for name in ("time", "calibration", "threshold", "think", "template_args"):
        if data[name] == getattr(DEFAULT_DECISION, name):
            del data[name]
    if params.think is not None:
        data["think"] = params.think.to_dict()
    if isinstance(params.calibration, Calibration):
        data["calibration"] = params.calibration.to_dict()
    if isinstance(params.min_confidence, Threshold):
        data["min_confidence"] = params.min_confidence.to_dict()
    if isinstance(params.template, Template):
        path = Path(params.template.name)
        data["template"] = {"file": absolute(path) if _is_file(path) else None, "digest": digest_of(params.template)}
    if isinstance(params.prior, Mapping):
        data["prior"] = [[jsonable(value), weight] for value, weight in params.prior.items()]
    return data


def _is_file(path: Path) -> bool:
    """Return whether a path is a file; False if it cannot be a path."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long for a name, or a null character
        return False


def _read_params(data: Mapping[str, Any], where: str) -> DecisionParams:
    """Return the options of the data that `_write_params` wrote."""
    fields_by_name = dict(data)
    if isinstance(fields_by_name["template"], dict):
        if fields_by_name["template"]["file"] is None:
            raise InputFileError(where, "its template was made in Python; go on with the call that began it")
        template = Template.from_file(fields_by_name["template"]["file"])
        if digest_of(template) != fields_by_name["template"]["digest"]:
            raise InputFileError(template.name, f"the template has changed since {where} began; begin a new run")
        fields_by_name["template"] = template
    if "think" in fields_by_name:
        fields_by_name["think"] = Thinking.from_dict(fields_by_name["think"])
    if isinstance(fields_by_name.get("calibration"), dict):
        fields_by_name["calibration"] = Calibration.from_dict(fields_by_name["calibration"])
    if isinstance(fields_by_name["min_confidence"], dict):
        fields_by_name["min_confidence"] = Threshold.from_dict(fields_by_name["min_confidence"])
    prior = fields_by_name["prior"]
    if prior and isinstance(prior[0], list):
        fields_by_name["prior"] = dict(prior)
    return DecisionParams(**fields_by_name)
