"""The command `selectrie decide`, which answers questions about a text or table."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from selectrie.cli import inputs, requests
from selectrie.cli.groups import (
    STDIN_JSON,
    STDIN_QUESTIONS,
    STDIN_ROWS,
    CascadeGroup,
    Json,
    ThinkingGroup,
    TraceGroup,
    argument,
    setting,
    switch,
)
from selectrie.cli.show import show_json, show_report
from selectrie.cli.tables import (
    ColumnsGroup,
    LabelsGroup,
    TableRunGroup,
    check_labels,
    long_fields,
    resume_table,
    run_labelled,
    run_table,
)
from selectrie.core.files import SHOWN_SUFFIXES
from selectrie.core.output import is_terminal, visible, write
from selectrie.errors import (
    IncompatibleOptionsError,
    InputFileError,
    OptionError,
    OptionRef,
    PromptError,
    of_slot,
    words,
)
from selectrie.options.selection import RULES_OF_ONE_PROMPT

if TYPE_CHECKING:
    from selectrie.decide.params import DecisionParams
    from selectrie.decide.questions import Question
    from selectrie.decide.states import State
    from selectrie.decide.templates import DecisionPrompt
    from selectrie.decide.thinking import Thinking


@dataclass(frozen=True, slots=True)
class StateGroup:
    """State (one of these, or text on stdin).

    The options that give the state.
    """

    state: str | None = setting(
        "TEXT", "What the questions are about; with --table, a column, or a pattern: '{subject}: {body}'."
    )
    state_file: str | None = setting("FILE", "The same from a file (- for stdin); a .json file is JSON, or messages.")


@dataclass(frozen=True, slots=True)
class ArgumentsGroup:
    """Text and question, or a file of questions.

    The arguments of `selectrie decide`.
    """

    about: str | None = argument(
        "TEXT|QUESTIONS",
        "The text (- for stdin). Or a file of questions: .toml, a table for each, or .json as in HTTP.",
    )
    question: str | None = argument(
        "QUESTION", "Yes or no? With --choices A,B: which? With --score A,B: how much? Or a file of questions."
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the arguments ask: the questions of a file, or one question."""

    file: str | None = None
    question: str | None = None


@dataclass(frozen=True, slots=True)
class QuestionsGroup:
    """Questions.

    The options that give the questions.
    """

    type: str | None = setting("MODULE:CLASS", "A class, whose fields are questions: models.py:Ticket.")
    choice: list[str] | None = setting("NAME=TEXT", "Which option? The text is the question. Repeatable.")
    predicate: list[str] | None = setting("NAME=TEXT", "Is it true? The text is the statement. Repeatable.")
    score: list[str] | None = setting(
        "NAME=TEXT", "How much? The text is the question. Repeatable. For QUESTION: its levels A,B,…, lowest first."
    )
    option: list[str] | None = setting("NAME=TEXT", "An option of a choice, or a level, lowest first. Repeatable.")
    options: list[str] | None = setting(
        "NAME=A,B,…|FILE",
        "The same with commas between them, or from a file: one a line, or a .json array. Repeatable.",
        flags="--choices --options",
    )
    prior: str | None = setting("FILE", "JSON object from option to weight, if there is one question.")


@dataclass(frozen=True, slots=True)
class TableGroup(ColumnsGroup):
    """Table.

    The options that ask about every row of a table.
    """

    table: str | None = setting("FILE", f"Ask about every row ({SHOWN_SUFFIXES}; - for stdin).", mark=STDIN_ROWS)


@dataclass(frozen=True, slots=True)
class DecisionGroup(ThinkingGroup):
    """Decision.

    The options for how the questions are asked.
    """

    template: str = setting("NAME", "auto, chat, base, or the file of a template with the slot 'answer'.", "auto")
    layout: str = setting("LAYOUT", "auto, 'state first', 'questions first' or 'options last'.", "auto")
    scoring: str = setting("text|letters", "Score the options' texts, or letters.", "text")
    rule: str = setting("NAME", f"{', '.join(RULES_OF_ONE_PROMPT[:-1])} or {RULES_OF_ONE_PROMPT[-1]}.", "joint")
    calibrate: str | None = setting(
        "batch|content_free", "Compare with the means over the table's rows, or with empty texts."
    )
    calibration: str | None = setting(
        "FILE", "A calibration that was saved, or the run.json of a run.", mark=STDIN_JSON
    )
    permutations: str | None = setting("N|all|auto", "Average over N orders of the options. [default: as given]")
    top: int | None = setting("K", "Only the K best options, best first. [default: all]")
    min_confidence: str = setting("P|FILE", "Abstain below this confidence, or below a threshold that was fitted.", "0")
    min_label_mass: float = setting("P", "Abstain below this label mass.", 0.0)
    threshold: float = setting("P", "A predicate is true above this probability.", 0.5)
    unlisted: bool = switch("Do not list the options in the prompt.")


@dataclass(frozen=True, slots=True)
class DecideOutput(TraceGroup):
    """Output.

    The options of `selectrie decide` for its output.
    """

    json: Json = False
    show_prompt: bool = switch("Show what the model would read, with token counts; it is not run.")


def decide(
    model: CascadeGroup,
    arguments: ArgumentsGroup,
    state: StateGroup,
    questions: QuestionsGroup,
    decision: DecisionGroup,
    *,
    table: TableGroup,
    running: TableRunGroup,
    labels: LabelsGroup,
    output: DecideOutput,
) -> int:
    r"""Answer questions about a text, or about every row of a table.

    Which option, is it true, how much. Each question has its own prompt, so no answer
    depends on which others are asked. Options are scored as whole texts. With --table,
    the rows with new columns go to stdout, or to --out, where a run that was killed
    goes on.

    \b
    selectrie decide "It broke!" "Is the customer angry?"
    selectrie decide - "What is it about?" --choices refund,praise < mail.txt
    selectrie decide --state-file mail.txt --choice team="Who answers?" --choices team=billing,support
    selectrie decide --state "It broke!" --predicate angry="They are angry." --json
    selectrie decide --type models.py:Ticket --state-file mail.txt
    selectrie decide questions.toml --table tickets.csv --state body --out decided.jsonl
    selectrie decide questions.toml --table tickets.csv --state body --gold intent=label --fit-calibration cal.json
    selectrie decide --resume decided.jsonl.run
    """
    if output.trace is not None and (table.table is not None or running.resume is not None):
        raise IncompatibleOptionsError("trace", OptionRef("table"), "record the decision about one state")
    if running.resume is not None:
        given = (arguments, state, questions, decision, table, labels)
        plain = (ArgumentsGroup(), StateGroup(), QuestionsGroup(), DecisionGroup(), TableGroup(), LabelsGroup())
        if given != plain:
            allowed = "no question, --state, --table or option of the decision: the run's folder has them"
            raise OptionError("resume", running.resume, allowed)
        return resume_table(model, running, as_json=output.json)
    text, asked = _read_arguments(arguments, has_state=state != StateGroup() or table.table is not None)
    read_questions = partial(_asked, asked, questions, decision)
    if table.table is not None:
        return _table(model, state, read_questions, table=table, running=running, labels=labels, output=output)
    one_alone = (
        ("out", running.out is not None),
        ("ray", running.ray is not None),
        ("html", running.html is not None),
        ("gold", labels != LabelsGroup()),
    )
    for name, is_given in one_alone:
        if is_given:
            raise OptionError("table", None, f"a table, or no --{name}: one state has no run")
    if table != TableGroup():
        raise OptionError("table", None, "a table, or no --probabilities and --prefix, which are about its columns")
    (named, params), about = requests.read_all(read_questions, partial(read_state, state, text))
    if output.show_prompt:
        with requests.recorded_engine(model, output) as engine:
            return _show_prompts(engine.decision_prompts(about, named, params=params), as_json=output.json)
    with requests.recorded_decider(model, output) as decider:
        result = decider.decide(about, named, params=params)
    unnamed = requests.unnamed_model(model)
    if output.json:
        value = {"value": result[_QUESTION].to_dict()["value"]} if [*named] == [_QUESTION] and asked.question else {}
        return show_json({**result.to_dict(), **value, **({} if unnamed is None else {"model": unnamed})})
    from selectrie.cli.report.results import decision_report

    return show_report(decision_report(result, unnamed=unnamed))


def _table(
    model: CascadeGroup,
    state: StateGroup,
    read_questions: Callable[[], tuple[Mapping[str, Question], DecisionParams]],
    *,
    table: TableGroup,
    running: TableRunGroup,
    labels: LabelsGroup,
    output: DecideOutput,
) -> int:
    """Answer the questions for every row of a table; return the exit code."""
    from selectrie.tables.table_questions import TableQuestions

    if state.state_file is not None:
        raise IncompatibleOptionsError("state_file", OptionRef("table"), words("name a column with `state`"))
    if output.show_prompt:
        remedy = words("give the text of one row as `state`, without a table")
        raise IncompatibleOptionsError("show_prompt", OptionRef("table"), remedy)
    column, (named, params) = requests.read_all(partial(_read_column, state), read_questions)
    asked = TableQuestions(
        state=column, questions=named, params=params, probabilities=table.probabilities, prefix=table.prefix
    )
    source = Path(str(table.table))
    if labels != LabelsGroup():
        check_labels(labels, running)
        with long_fields():
            return run_labelled(model, source, asked, labels, html=running.html, as_json=output.json)
    return run_table(model, source, asked, running, as_json=output.json)


def _read_column(group: StateGroup) -> str:
    """Return the column, or the pattern of columns, that is asked about."""
    if group.state is None:
        raise OptionError("state", None, "the name of a column, or a pattern of columns in braces, for --table")
    return group.state


def _read_arguments(given: ArgumentsGroup, *, has_state: bool) -> tuple[str | None, _Asked]:
    """Return the argument that is the text, if one is, and what the arguments ask.

    Args:
        given: The arguments.
        has_state: Whether options give the text. A single argument is then a question.
    """
    first, second = given.about, given.question
    if first is not None and second is None and (has_state or _names_questions(first)):
        first, second = None, first
    if first is not None and has_state:
        raise OptionError("about", first, words("no TEXT beside `state`, `state_file` or `table`: give it once"))
    if second is None or not (second == inputs.STDIN or _names_questions(second)):
        _check_question(second or "")
        return first, _Asked(question=second)
    return first, _Asked(file=second)


def _names_questions(argument: str) -> bool:
    """Return whether an argument names a file of questions."""
    return inputs.names_file(argument) and argument.lower().endswith((".toml", ".json"))


def _check_question(argument: str) -> None:
    """Raise `OptionError` for a QUESTION that names a file of Python or is JSON."""
    if inputs.names_python(argument):
        remedy = words("a question, or a class as `type`, such as {}", OptionRef("type", "models.py:Ticket"))
    elif argument.lstrip().startswith("{"):
        remedy = words("a question, or a file .toml or .json of questions; a JSON text is not one")
    elif inputs.names_file(argument):
        remedy = words("a question, or a file .toml or .json of questions; a file of options is given as `options`")
    else:
        return
    raise OptionError("question", argument, remedy)


def read_state(group: StateGroup, argument: str | None = None) -> State:
    """Return the state from the argument or the option that gives it, else from stdin.

    Args:
        group: The options.
        argument: The text that an argument of the command gives, or "-"; None for none.
    """
    if argument is not None:
        return inputs.read_text_argument("about", argument, words("a file is given as `state_file`"))
    if group.state is not None and group.state_file is not None:
        raise IncompatibleOptionsError("state", OptionRef("state_file"), "give the state once")
    if group.state is not None:
        return group.state
    path = group.state_file
    if path is None:
        if sys.stdin is None or is_terminal(sys.stdin):
            raise PromptError(
                "no state: give --state TEXT, --state-file FILE, or text on stdin, or TEXT as an argument"
            )
        path = inputs.STDIN
    text = inputs.read_prompt(path)
    if not path.lower().endswith(".json"):
        return text
    from selectrie.decide.states import of_json

    try:
        return of_json(json.loads(text))
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputFileError(path, f"is not JSON: {error}", line=getattr(error, "lineno", None)) from error


_QUESTION = "answer"
"""Name of the question that an argument asks."""


_SENTENCE_ENDS = tuple("?.!…。？！")
_CLOSING = " \t\r\n\"')]”’»"
"""Characters that may follow the end of a sentence."""


def _asked(
    asked: _Asked, group: QuestionsGroup, decision: DecisionGroup
) -> tuple[Mapping[str, Question], DecisionParams]:
    """Return the questions by name, and the `DecisionParams` to ask them with.

    A layout beside the `questions` of a file applies unless `--layout` names one.
    """
    from selectrie.tables.table_questions import read_question_data

    with _question_file(asked.file) as path:
        data = None if path is None else read_question_data(path)
        if isinstance(data, dict) and "questions" in data and decision.layout == "auto":
            decision = replace(decision, layout=data.get("layout", "auto"))
        named = _questions(asked.question, group, path, data)
    return named, params_of(decision, _prior(group, named))


@contextmanager
def _question_file(given: str | None) -> Iterator[Path | None]:
    """Yield the file of questions; standard input is a file in the `with` block."""
    if given != inputs.STDIN:
        if given is not None:
            inputs.check_replayed(given)
        yield None if given is None else Path(given)
        return
    with TemporaryDirectory() as folder:
        yield inputs.save_stdin(Path(folder), STDIN_QUESTIONS.suffix)


def _questions(question: str | None, group: QuestionsGroup, path: Path | None, data: Any) -> Mapping[str, Question]:
    """Return the questions by name.

    Those of the argument, of the file and of the type come before those of options.
    """
    from selectrie.decide.questions import Choice, Predicate, Score

    options, scores = _options(group, has_question=question is not None), [*(group.score or ())]
    questions: dict[str, Question] = {}
    if question is not None:
        levels = [one for one in scores if "=" not in one]
        scores = [one for one in scores if "=" in one]
        questions[_QUESTION] = _argued(question, options.pop("", None), levels)
    questions |= {} if path is None else _of_file(path, data, options)
    questions |= {} if group.type is None else _of_type(group.type, questions)
    for flag, values in (("choice", group.choice), ("predicate", group.predicate), ("score", scores)):
        for name, text in (_pair(flag, one) for one in values or ()):
            if name in questions:
                raise OptionError(flag, name, "a name that no other question has")
            if flag == "predicate":
                questions[name] = Predicate(text)
            else:
                own = options.pop(name, None)
                if own is None:
                    raise OptionError("options", name, f"some for this question: --choices {name}=A,B")
                questions[name] = Choice(text, own) if flag == "choice" else Score(text, own)
    if not questions:
        allowed = (
            "at least one question: TEXT and QUESTION as arguments, a file, --type, --choice, --predicate or --score"
        )
        raise OptionError("choice", None, allowed)
    for name in options:
        raise OptionError(
            "options", name, "the name of a --choice or --score, or of one in the file that has no options there"
        )
    return questions


def _argued(text: str, choices: list[str] | None, levels: list[str]) -> Question:
    """Return the question of an argument; its kind goes by the options given for it."""
    from selectrie.decide.questions import Choice, Predicate, Score, asks_for_more

    if choices and levels:
        raise IncompatibleOptionsError("score", OptionRef("options"), "leave one of them out")
    if levels:
        return Score(text, [level for one in levels for level in inputs.read_listed("score", one)])
    if choices is None and "," in text and not text.rstrip(_CLOSING).endswith(_SENTENCE_ENDS):
        expected = "a question that ends in ?, or a statement that ends in a full stop; options follow it as {}"
        remedy = words(expected, OptionRef("options", text))
        raise OptionError("question", text, remedy)
    if choices is None and asks_for_more(text):
        remedy = words("a question that yes or no answers; else give its options as {}", OptionRef("options", "A,B"))
        raise OptionError("question", text, remedy)
    return Predicate(text) if choices is None else Choice(text, choices)


def _prior(group: QuestionsGroup, named: Mapping[str, Question]) -> list[float] | None:
    """Return the weights of the only question's options; None if none are given.

    The file goes by the options' texts, because values may have other types.
    """
    if group.prior is None:
        return None
    if len(named) > 1:
        raise OptionError("prior", group.prior, f"one question, whose options it weighs; there are {len(named)}")
    (question,) = named.values()
    return inputs.read_weights(group.prior, [option.scored for option in question.options])


def _of_file(path: Path, data: Any, options: dict[str, list[str]]) -> dict[str, Question]:
    """Return the questions of a file.

    Choices and scores without options take those of `--option` and `--choices`, which
    are then removed from `options`.
    """
    from selectrie.tables.table_questions import questions_of_file

    inner = data.get("questions", data) if isinstance(data, dict) else data
    listed = inner if isinstance(inner, list) else ()  # `questions_of_file` refuses other values
    named = inner.items() if isinstance(inner, dict) else [(_field(one, "name"), one) for one in listed]
    for name, one in named:
        field = {"choice": "choices", "score": "levels"}.get(_field(one, "type"))
        if field is not None and name in options and field not in one and "criteria" not in one:
            one[field] = options.pop(name)
    return questions_of_file(path, data)


def _field(data: Any, name: str) -> str:
    """Return a field of parsed JSON, "" if there is none or if it is no text."""
    found = data.get(name) if isinstance(data, dict) else None
    return found if isinstance(found, str) else ""


def _of_type(text: str, others: Mapping[str, Question]) -> dict[str, Question]:
    """Return the questions of the class that a text names, beside other questions."""
    from selectrie.decide.typed import parse_questions

    kind = inputs.read_type(text)
    if isinstance(kind, dict):
        raise OptionError("type", text, "a class, whose fields are questions; `selectrie extract` takes a JSON Schema")
    with of_slot(text):
        questions = parse_questions(kind)
    for name in questions.keys() & others.keys():
        raise OptionError("type", text, f"a class without the field {name}, which is a question of the file")
    return questions


def _options(group: QuestionsGroup, *, has_question: bool) -> dict[str, list[str]]:
    """Return the options by their question's name: single ones, then those of files.

    With `has_question`, those without a name are those of "".
    """

    def pair(flag: str, value: str) -> tuple[str, str]:
        return ("", value) if has_question and "=" not in value else _pair(flag, value)

    texts: dict[str, list[str]] = {}
    for name, text in (pair("option", one) for one in group.option or ()):
        texts.setdefault(name, []).append(text)
    for name, path in (pair("options", one) for one in group.options or ()):
        texts.setdefault(name, []).extend(inputs.read_listed("options", path))
    return texts


def _pair(flag: str, value: str) -> tuple[str, str]:
    """Return the question's name and the text of a value NAME=TEXT."""
    name, equals, text = value.partition("=")
    if not name.strip() or not equals:
        raise OptionError(flag, value, "NAME=… with the name of a question")
    return name, text


def params_of(group: DecisionGroup, prior: Mapping[str, float] | Sequence[float] | None = None) -> DecisionParams:
    """Return the `DecisionParams` of the options."""
    from selectrie.decide.calibration import Calibration
    from selectrie.decide.params import TEMPLATES, DecisionParams
    from selectrie.template.analysis.template import Template

    options: dict[str, Any] = asdict(group)
    options["think"] = _thinking(**{one.name: options.pop(one.name) for one in fields(ThinkingGroup)})
    options["min_confidence"] = requests.least_confidence(group.min_confidence)
    calibrate, is_unlisted = options.pop("calibrate"), options.pop("unlisted")
    if group.template not in TEMPLATES:
        options["template"] = Template.from_file(Path(group.template))
    if group.calibration is None:
        options["calibration"] = calibrate
    elif calibrate is not None:
        raise IncompatibleOptionsError("calibration", OptionRef("calibrate"), "give one of the two")
    else:
        options["calibration"] = Calibration.load(group.calibration)
    if group.permutations is not None and group.permutations.isdecimal():
        options["permutations"] = int(group.permutations)
    return DecisionParams(**options, prior=prior, list_options=False if is_unlisted else None)


def _thinking(think: int | None, **options: Any) -> Thinking | None:
    """Return the `Thinking` of the options; None without `--think`."""
    from selectrie.decide.thinking import Thinking

    given = {name.removeprefix("think_"): value for name, value in options.items()}
    if think is not None:
        try:
            return Thinking(think, given.pop("tokens"), **given)
        except OptionError as error:
            name = {"n": "think", "max_tokens": "think_tokens"}.get(error.name, f"think_{error.name}")
            raise OptionError(name, error.value, error.allowed) from None
    for one in fields(ThinkingGroup):
        if one.name in options and options[one.name] != one.default:
            raise OptionError(one.name, options[one.name], "--think N too, the number of rationales")
    return None


def _show_prompts(prompts: Mapping[str, tuple[DecisionPrompt, ...]], *, as_json: bool) -> int:
    """Write the prompts that the model would read for each question."""
    if as_json:
        shown = {name: [_prompt_fields(one) for one in own] for name, own in prompts.items()}
        return show_json({"prompts": shown}, "decision_prompts")
    for name, own in prompts.items():
        for at, one in enumerate(own):
            order = f", order {at + 1} of {len(own)}" if len(own) > 1 else ""
            ends = f"then {one.following!r}" if one.following else f"terminator {one.terminator}"
            head = f"{name}{order}: {one.n_tokens} tokens; options {one.n_choice_tokens} tokens, {ends}"
            write(visible(f"# {head}"), sys.stdout)
            write(visible(one.shown), sys.stdout)
            write("", sys.stdout)
    return 0


def _prompt_fields(one: DecisionPrompt) -> dict[str, object]:
    names = ("shown", "n_tokens", "n_choice_tokens", "terminator", "following")
    return {**{name: getattr(one, name) for name in names}, "choices": None if one.choices is None else [*one.choices]}
