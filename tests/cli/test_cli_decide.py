"""`selectrie decide`: what reaches the engine, and what comes out. The engine runs on a fake model."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from selectrie import Choice, DecisionParams, Predicate, Score, Thinking, cascade
from selectrie.cli import app, requests
from tests.support.deciding import STATE, fake

TEAMS = "sales\nrepairs\npost\n"


@pytest.fixture
def labels(tmp_path):
    """A file of three labels."""
    path = tmp_path / "teams.txt"
    path.write_text(TEAMS)
    return path


def run(*arguments, code=0, text=None):
    """The result of the command, which ends with this exit code."""
    result = CliRunner().invoke(app, ["decide", *map(str, arguments)], input=text)
    assert result.exit_code == code, result.output
    return result


def decided(*arguments, text=None):
    """The answers of the command, from its JSON."""
    return json.loads(run(*arguments, "--json", text=text).stdout)["answers"]


def plain(decision):
    """The answers of a decision as the command writes them, without what varies."""
    return {name: {**one.to_dict(), "usage": None} for name, one in decision.items()}


def test_questions_reach_the_engine(llm, labels):
    """Choices, predicates and scores with their options, alone and from files, are asked as in Python."""
    flags = ["--choice", "team=Which team?", "--options", f"team={labels}", "--predicate", "angry=They shout."]
    flags += ["--score", "mood=How good?", "--option", "mood=bad", "--option", "mood=good"]
    answers = decided("--state", STATE, *flags)
    questions = {
        "team": Choice("Which team?", TEAMS.split()),
        "angry": Predicate("They shout."),
        "mood": Score("How good?", ["bad", "good"]),
    }
    expected = plain(llm.decide(STATE, questions))
    assert {name: {**one, "usage": None} for name, one in answers.items()} == json.loads(json.dumps(expected))


@pytest.mark.parametrize(
    ("options", "question"),
    [
        ([], Predicate("Is it good?")),
        (["--choices", "good, bad"], Choice("Is it good?", ["good", "bad"])),
        (["--option", "good", "--option", "bad"], Choice("Is it good?", ["good", "bad"])),
        (["--score", "bad,good"], Score("Is it good?", ["bad", "good"])),
    ],
)
def test_text_and_question_may_be_arguments(llm, tmp_path, options, question):
    """The options of the question decide its kind; `value` is the answer's. Lines of a text are one state."""
    state = f"{STATE}\nAt once."
    made = json.loads(run(state, "Is it good?", *options, "--json").stdout)
    answer = llm.decide(state, {"answer": question})["answer"]
    assert made["value"] == answer.value
    assert {**made["answers"]["answer"], "usage": None} == json.loads(json.dumps({**answer.to_dict(), "usage": None}))
    (tmp_path / "mail.eml").write_text(state)
    shown = run(state, "Is it good?", *options).stdout.split("\n\n")[0]
    assert run("-", "Is it good?", *options, text=f"{state}\n").stdout.split("\n\n")[0] == shown
    given = run("Is it good?", "--state-file", tmp_path / "mail.eml", *options).stdout
    assert given.split("\n\n")[0] == shown


def test_a_question_argument_has_named_ones_beside_it(llm):
    """Options with a name are those of the named ones; a value without one is the argument's."""
    named = ["--choice", "team=Which team?", "--choices", "team=sales,post", "--score", "mood=How?"]
    answers = decided(STATE, "Late?", *named, "--choices", "mood=bad,good", "--choices", "now,then")
    asked = {
        "answer": Choice("Late?", ["now", "then"]),
        "team": Choice("Which team?", ["sales", "post"]),
        "mood": Score("How?", ["bad", "good"]),
    }
    assert {name: {**one, "usage": None} for name, one in answers.items()} == plain(llm.decide(STATE, asked))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["mail.txt", "Late?"],
            "'mail.txt': expected a text, or - for standard input; a file is given as --state-file",
        ),
        (["x", "Late?", "--state", "y"], "expected no TEXT beside --state"),
        (["x", "What is wanted?"], "a question that yes or no answers; else give its options as --choices"),
        (["x", "how bad is it?"], "a question that yes or no answers"),
        (["x", "Late?", "--choices", "a=b,c"], "--choices 'a': expected the name of a --choice"),
        (["x", "Late?", "--choices", "a,b", "--score", "a,b"], "--score cannot be combined with --choices; leave"),
        (["It is late."], "TEXT and QUESTION as arguments"),
        (["x", "Late?", "--type", "schema.json"], "`selectrie extract` takes a JSON Schema"),
        (["gone.toml", "--state", "x"], "gone.toml': No such file"),
        (["x", "models.py:T"], "'models.py:T': expected a question, or a class as --type"),
        (["x", "models.py"], "a class as --type"),
        (["models.py:T", "--state", "x"], "a class as --type"),
        (["x", "labels"], "a file .toml or .json of questions; a file of options is given as --choices"),
        (["x", "gone.txt"], "a file of options is given as --choices"),
        (["x", '{"q": 1}'], "a JSON text is not one"),
        (["x", "good,bad"], "'good,bad': expected a question that ends in ?"),
        (["x", "track order, refund"], "a statement that ends in a full stop; options follow it as --choices"),
    ],
)
def test_arguments_are_never_taken_for_something_else(llm, tmp_path, monkeypatch, arguments, message):
    """What could be a file, or is given twice, is an error."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.json").write_text("{}")
    (tmp_path / "labels").write_text("good\nbad\n")
    assert message in run(*arguments, code=2).stderr


@pytest.mark.parametrize(
    "question", ["Good, or bad?", "It is late, and cold.", "He says 'no, never!'", "It is .py code"]
)
def test_a_statement_may_have_commas(llm, question):
    """One that ends as a sentence does is a predicate, as is one without commas."""
    assert decided(STATE, question)["answer"]["value"] == llm.decide(STATE, Predicate(question)).value


def test_options_of_the_decision_reach_the_engine(llm, labels, tmp_path):
    """Every option stands in the parameters; a template may be a file."""
    flags = ["--choice", "team=Which team?", "--options", f"team={labels}"]
    question = {"team": Choice("Which team?", TEAMS.split())}
    fitted = llm.fit_calibration([f"{STATE} {n}" for n in range(3)], question)
    fitted.save(tmp_path / "c.json")
    for given, params in (
        (["--layout", "questions first", "--permutations", "auto", "--min-confidence", "1"],
         DecisionParams(layout="questions first", permutations="auto", min_confidence=1)),
        (["--scoring", "letters", "--permutations", "all", "--template", "base"],
         DecisionParams(scoring="letters", permutations="all", template="base")),
        (["--rule", "pmi", "--unlisted", "--min-label-mass", "0.5"],
         DecisionParams(rule="pmi", list_options=False, min_label_mass=0.5)),
        (["--top", "1"], DecisionParams(top=1)),
        (["--calibrate", "content_free"], DecisionParams(calibration="content_free")),
        (["--calibration", "c.json"], DecisionParams(calibration=fitted)),
    ):  # fmt: skip
        flags_now = [tmp_path / one if one == "c.json" else one for one in given]
        answers = decided("--state", STATE, *flags, *flags_now)
        expected = plain(llm.decide(STATE, question, params=params))
        assert {**answers["team"], "usage": None} == json.loads(json.dumps(expected))["team"]
    template = tmp_path / "mine.tmpl"
    template.write_text("<<state>>\n<<instructions>> <<select 'answer' options=answers>>.\n")
    shown = run("--state", STATE, *flags, "--template", template, "--show-prompt").stdout
    assert f"<bos>{STATE}\nWhich team? \n" in shown


def test_a_file_of_questions_may_name_the_layout(llm, tmp_path):
    """Beside its `questions`, in TOML as in JSON; the option goes before it, and a layout that there is not is an error."""
    text = 'layout = "options last"\n[questions.team]\ntype = "choice"\nchoices = ["sales", "post"]\n'
    question = {"team": {"type": "choice", "choices": ["sales", "post"]}}
    (tmp_path / "q.toml").write_text(text)
    (tmp_path / "q.json").write_text(json.dumps({"layout": "options last", "questions": question}))
    (tmp_path / "bad.toml").write_text(text.replace("options last", "sideways"))
    for name in ("q.toml", "q.json"):
        for given, layout in (([], "options last"), (["--layout", "state first"], "state first")):
            answers = decided(tmp_path / name, "--state", STATE, *given)
            assert answers["team"]["signature"]["layout"] == layout
    assert "'sideways': expected one of" in run(tmp_path / "bad.toml", "--state", STATE, code=2).stderr


def test_a_state_comes_from_an_option_a_file_or_stdin(llm, tmp_path):
    """Text from a file loses its last line end; a .json file is JSON; without an option, stdin is read."""
    path, data = tmp_path / "mail.txt", tmp_path / "mail.json"
    path.write_text(f"{STATE}\n")
    data.write_text('{"text": "é"}')
    flags = ["--predicate", "angry=They shout."]
    question = {"angry": Predicate("They shout.")}
    by_text = llm.decide(STATE, question)["angry"].probability
    for given, text in (
        (["--state", STATE], None),
        (["--state-file", path], None),
        ([], STATE),
        (["--state-file", "-"], STATE),
    ):
        assert decided(*given, *flags, text=text)["angry"]["probability"] == by_text
    by_json = llm.decide({"text": "é"}, question)["angry"].probability
    assert decided("--state-file", data, *flags)["angry"]["probability"] == by_json


def test_the_report_has_an_answer_a_line(llm, labels):
    """The table names each question, its answer and what says how far to trust it, then the options."""
    flags = ["--choice", "team=Which team?", "--options", f"team={labels}", "--predicate", "angry=They shout."]
    out = run("--state", STATE, *flags, "--min-label-mass", "0.9").stdout
    params = DecisionParams(layout="options last")
    answer = llm.decide(STATE, Choice("Which team?", TEAMS.split()), params=params)
    assert f"team      '{answer.value}'" in out
    assert "label mass" in out
    assert "is below 0.9" in " ".join(out.split())
    for option in TEAMS.split():
        assert f"'{option}'" in out
    assert re.search(r"template +chat.tmpl, options last and state first, joint", out)


def test_prompts_are_shown_without_the_model(llm, labels, monkeypatch):
    """`--show-prompt` writes what the model reads and its tokens, also as JSON."""
    opened = fake()
    monkeypatch.setattr(requests, "open_engine", lambda _group: opened)
    flags = ["--state", STATE, "--choice", "team=Which team?", "--options", f"team={labels}", "--show-prompt"]
    out = run(*flags, "--permutations", "3").stdout
    assert out.count("Which team?") == 3
    assert "# team, order 2 of 3: " in out
    assert opened._model.calls == 0
    opened = fake()
    [prompt] = json.loads(run(*flags, "--json").stdout)["prompts"]["team"]
    assert prompt["choices"] == TEAMS.split()
    assert prompt["n_tokens"] == len(prompt["shown"]) - len("<bos>") + 1 - len("<eos>") + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--state", "x"], "at least one question"),
        (["--predicate", "angry=x", "--state", "x", "--state-file", "y"], "give the state once"),
        (["--predicate", "angry", "--state", "x"], "expected NAME=…"),
        (["--predicate", "=x", "--state", "x"], "expected NAME=…"),
        (["--choice", "a=x", "--state", "x"], "--choices a=A,B"),
        (["--choice", "a=x", "--option", "a=1", "--score", "a=y", "--state", "x"], "a name that no other question has"),
        (["--predicate", "a=x", "--option", "b=1", "--state", "x"], "the name of a --choice or --score"),
        (["--predicate", "a=x", "--state", " "], "a state that is not blank"),
        (["--predicate", "a=x", "--state", "x", "--permutations", "some"], "a number of orders, 'all' or 'auto'"),
        (["--predicate", "a=x", "--state", "x", "--template", "missing.tmpl"], "missing.tmpl: no such file"),
        (["--predicate", "a=x", "--state-file", "missing.json"], "missing.json"),
    ],
)
def test_mistakes_are_told(llm, arguments, message):
    """One line on what is wrong and what to do, and exit status 2."""
    assert message in run(*arguments, code=2).output


def test_json_that_cannot_be_read_names_its_line(llm, tmp_path):
    """A broken .json file is an error of that file."""
    path = tmp_path / "state.json"
    path.write_text('{"a":\n]')
    assert "state.json:2: is not JSON" in run("--predicate", "a=x", "--state-file", path, code=2).output


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('["x"]', "questions[0]='x': expected an object with a type"),
        ("5", "questions=5: expected a list of questions"),
        ("null", "questions is not given; give a list of questions"),
        ('{"q": 5}', "q=5: expected an object with a type"),
        ('{"q": {"type": []}}', "q.type=[]: expected one of"),
        ('{"questions": 5}', "questions=5: expected an object with a type"),
        ('[{"name": ["q"], "type": "choice"}]', "questions[0].name"),
        ('[{"name": "q"}]', "questions[0].type"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--choices", "q=a,b")])
def test_data_that_is_no_question_is_an_error_of_the_file(llm, tmp_path, data, message, options):
    """Also where options are given for a question of the file."""
    path = tmp_path / "q.json"
    path.write_text(data)
    output = " ".join(run("it broke", path, *options, code=2).output.split())
    assert f"{path}" in output
    assert message in output


def test_a_prior_weighs_the_options_of_one_question(llm, labels, tmp_path):
    """The weights go by the texts of the options; a file that does not fit is refused before the model is asked."""
    prior = tmp_path / "prior.json"
    flags = ["--state", STATE, "--choice", "team=Which team?", "--options", f"team={labels}", "--prior", prior]
    weights = {"post": 4.0, "sales": 1.0, "repairs": 2}
    prior.write_text(json.dumps(weights))
    question = {"team": Choice("Which team?", TEAMS.split())}
    expected = plain(llm.decide(STATE, question, params=DecisionParams(prior=weights)))
    assert {name: {**one, "usage": None} for name, one in decided(*flags).items()} == json.loads(json.dumps(expected))
    words = ["--state", STATE, "--predicate", "angry=They shout.", "--prior", prior]
    prior.write_text(json.dumps({"yes": 1, "no": 1e-300}))
    assert decided(*words)["angry"]["probability"] > 0.99
    assert "one question" in run(*flags, "--predicate", "angry=They shout.", code=2).stderr
    prior.write_text(json.dumps({"post": 1.0, "sales": 1.0}))
    assert "'repairs' has no weight" in run(*flags, code=2).stderr
    prior.write_text(json.dumps({"Post": 1.0}))
    assert "not one of the choices" in run(*flags, code=2).stderr


MODELS = '''
from __future__ import annotations
from dataclasses import dataclass
from enum import Enum
class Team(Enum):
    """Which team?"""
    SALES = "sales"
    POST = "post"
@dataclass
class Ticket:
    team: Team
    angry: bool
number = 5
'''


@pytest.mark.parametrize("source", ["ticket_models", "ticket_models.py"])
def test_a_class_gives_the_questions(llm, tmp_path, monkeypatch, source):
    """`--type` asks the fields of a class in a module or file, beside other questions, as Python does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ticket_models.py").write_text(MODELS)
    questions = {"team": Choice("Which team?", ["sales", "post"]), "angry": Predicate("Angry.")}
    answers = decided("--type", f"{source}:Ticket", "--state", STATE)
    found = {name: [x["probability"] for x in one.get("probabilities", [one])] for name, one in answers.items()}
    plain = llm.decide(STATE, questions)
    assert found == {"team": [*plain["team"].probabilities.values()], "angry": [plain["angry"].probability]}
    asked = ["--type", f"{source}:Ticket", "--predicate", "late=It is late.", "--state", STATE]
    assert list(decided(*asked)) == ["team", "angry", "late"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("Ticket", "expected MODULE:CLASS or FILE.py:CLASS"),
        ("missing.py:Ticket", "missing.py: cannot import Ticket: FileNotFoundError"),
        ("no_such_module:Ticket", "no_such_module: cannot import Ticket: ModuleNotFoundError"),
        ("ticket_models.py:Other", "cannot import Other: AttributeError"),
        ("ticket_models.py:number", "questions=5: expected a Choice"),
        ("ticket_models.py:Ticket", "expected a class without the field angry, which is a question of the file"),
        ("ticket_models.py:Team", "expected a mapping from names to questions, or a class with fields"),
    ],
)
def test_what_is_no_class_is_named(tmp_path, monkeypatch, given, message):
    """One error that says what cannot be imported or asked."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ticket_models.py").write_text(MODELS)
    (tmp_path / "q.toml").write_text('[angry]\ntype = "predicate"\ninstructions = "They shout."\n')
    assert message in " ".join(run("q.toml", "--type", given, "--state", "x", code=2).stderr.split())


def test_rationales_come_first(llm):
    """The flags are the options of `Thinking`, with a fixed seed; the report says how many were cut."""
    flags = ["--think", 2, "--think-tokens", 6, "--think-stop", "|", "--think-seed", 5]
    think = Thinking(n=2, max_tokens=6, stop="|", seed=5)
    answer = llm.decide(STATE, {"answer": Predicate("Late?")}, think=think)["answer"]
    assert decided(STATE, "Late?", *flags)["answer"]["rationales"]["texts"] == list(answer.rationales.texts)
    assert f"{answer.rationales.n_cut} of 2 rationales cut" in " ".join(run(STATE, "Late?", *flags).stdout.split())
    assert "--think N too" in run(STATE, "Late?", "--think-seed", 5, code=2).stderr
    assert "--think-tokens 0: expected" in run(STATE, "Late?", "--think", 1, "--think-tokens", 0, code=2).stderr


def test_a_cascade_is_that_of_python(monkeypatch):
    """The models are asked in the order of the flags; a confidence needs them."""
    monkeypatch.setattr(requests, "open_engine", lambda group: fake({None: 1, "big": 2}[group.model], sharpness=0.1))
    with fake(1, sharpness=0.1) as small, fake(2, sharpness=0.1) as big:
        for least in (0.0, 1.0):
            expected = cascade([small, big], min_confidence=least).decide(STATE, {"answer": Predicate("Late?")})
            flags = ["--cascade", "big", "--cascade-confidence", least]
            answer = decided(STATE, "Late?", *flags)["answer"]
            assert answer["probability"] == expected["answer"].probability
            assert answer["decided_by"]["index"] == int(least)
        shown = " ".join(run(STATE, "Late?", *flags).stdout.split())
    assert f"of {expected.usage.rows_alone} of the last model alone" in shown
    for flags, message in (
        (["--cascade-confidence", "0.5"], "the larger models of --cascade-confidence"),
        (["--cascade", "big", "--cascade-confidence", "3"], "--cascade-confidence 3.0: expected a number from 0 to 1"),
        (["--cascade", "big", "--trace", "x"], "--trace cannot be combined with --cascade"),
    ):
        assert message in run(STATE, "Late?", *flags, code=2).stderr
