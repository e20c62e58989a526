"""The command line: what reaches the engine, what comes out, and how it ends. The engine is a stand-in that remembers."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import cli_docs
from selectrie import errors
from selectrie.backends import table
from selectrie.cli import app, entry, requests
from selectrie.cli.show import progress
from selectrie.engine import load, sources
from selectrie.options import PromptParams, ScoringRule, SearchParams
from tests.support import toy_backend
from tests.support.answers import ARMOUR, PROVED, armour, plan, text_score

CHOICES = [choice.replace("|", "") for choice, *_ in ARMOUR]
ROOT = Path(__file__).resolve().parents[2]


class Engine:
    """Answers by hand, and remembers what it was asked."""

    def __init__(self) -> None:
        self.selection: Any = armour()
        self.asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.opened: list[Any] = []
        self.closed = 0

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.closed += 1

    def _answer(self, verb: str, answer: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        self.asked.append((verb, args, options))
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def select(self, *args: Any, **options: Any) -> Any:
        return self._answer("select", self.selection, args, options)

    def rank(self, *args: Any, **options: Any) -> Any:
        return self._answer("rank", self.selection, args, options)

    def score(self, *args: Any, **options: Any) -> Any:
        return self._answer("score", text_score(), args, options)

    def tokens(self, *args: Any, **options: Any) -> Any:
        return self._answer("tokens", plan(), args, options)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine that every command opens instead of a model."""
    made = Engine()

    def open_engine(group: Any) -> Engine:
        made.opened.append(group)
        return made

    monkeypatch.setattr(requests, "open_engine", open_engine)
    return made


def run(*args: str, stdin: str | bytes | None = None) -> Result:
    """One command in this process."""
    return CliRunner().invoke(app, list(args), input=stdin, prog_name="selectrie")


@pytest.mark.parametrize(
    ("bare", "flagged"),
    [
        ("select P x* \t-y", "select -p P -c x* -c \t-y"),
        ("select P --choices a,b", "select -p P --choices a,b"),
        ("rank --top 2 P a b --stop all", "rank --top 2 -p P -c a -c b --stop all"),
        ("rank --escapes P\\n a\\t b", "rank --escapes -p P\\n -c a\\t -c b"),
        ("score P t", "score -p P -t t"),
        ("tokens --json P a", "tokens --json -p P -c a"),
        ("tokens --json -- -P -a b", "tokens --json --prompt=-P -c=-a -c b"),
    ],
)
def test_prompt_and_choices_may_be_arguments(engine: Engine, bare: str, flagged: str):
    """They mean what the options mean."""
    results = [run(*one.replace("-c=-a", "--choice=-a").split(" ")) for one in (bare, flagged)]
    assert [one.exit_code for one in results] == [0, 0], results[0].output
    assert engine.asked[0] == engine.asked[1]
    assert results[0].stdout == results[1].stdout


def test_a_prompt_argument_of_a_dash_is_standard_input(engine: Engine):
    """One line end is dropped, as for any file."""
    assert run("select", "-", "a", "b", stdin="P\n").exit_code == 0
    assert engine.asked[0][1] == ("P", ["a", "b"])


def flags(choices: list[str]) -> list[str]:
    return [word for choice in choices for word in ("-c", choice)]


def test_select_hands_choices_and_prompt_on_as_given(engine: Engine):
    """No space is stripped, no escape read; defaults are the library's."""
    result = run("select", "-m", "x.gguf", "-p", " He wears ", *flags([*CHOICES, " ", "-x", "*", "a\\n"]))
    assert result.exit_code == 0, result.stderr
    assert engine.asked == [
        (
            "select",
            (" He wears ", [*CHOICES, " ", "-x", "*", "a\\n"]),
            {
                "rule": ScoringRule(),
                "terminator": "auto",
                "following": "",
                "prior": None,
                "search": SearchParams(),
                "prompting": PromptParams(template_args={}),
            },
        )
    ]
    assert engine.opened[0].model == "x.gguf"
    assert engine.closed == 1
    assert "\nwinner    ' leather' p 47 %" in result.stdout
    assert result.stderr == ""


def test_escapes_are_read_where_they_are_asked_for(engine: Engine):
    """In prompt, choices, delimiter, following and the text of `score`, and nowhere without the option."""
    texts = ["-p", r"a\nb", "--delimiter", r"\t", "--following", r"\\"]
    for args, n, t, slash in (([], r"\n", r"\t", r"\\"), (["--escapes"], "\n", "\t", "\\")):
        run("select", *texts, "-c", r"x\n", *args)
        _, given, options = engine.asked[-1]
        assert given == (f"a{n}b", [f"x{n}"])
        assert (options["prompting"].delimiter, options["following"]) == (t, slash)
        run("score", "-p", r"a\nb", "-t", r"x\n", "--following", r"\t", *args)
        _, given, options = engine.asked[-1]
        assert (given, options["following"]) == ((f"a{n}b", f"x{n}"), t)
    assert (
        "--following '\\\\': expected a text whose backslashes begin"
        in run("score", "-p", "a", "-t", "b", "--following", "\\", "--escapes").stderr
    )


def test_the_options_of_all_spellings_reach_the_engine(engine: Engine):
    """`selectrie score` sums over all token sequences only where it is asked to."""
    plain = {"tokenizations": "canonical", "event": "auto", "budget_nodes": None, "following": ""}
    every = {"tokenizations": "all", "event": "begins", "budget_nodes": 9, "following": ""}
    typed = ["--tokenizations", "all", "--event", "begins", "--budget", "9"]
    for args, expected in (([], plain), (typed, every)):
        assert run("score", "-p", "a", "-t", "b", *args).exit_code == 0
        options = engine.asked[-1][2]
        assert {name: options[name] for name in expected} == expected


def test_every_option_of_select_reaches_the_engine(engine: Engine, tmp_path: Path):
    """Rule, ending, search and prompting, each from its options."""
    prior = tmp_path / "prior.json"
    prior.write_text('{" leather": 0.25}')
    words = "--rule pmi --terminator eog --following . --method best_first --stop mass --mass 0.5 --budget 7 --width 3"
    words += " --boundary split --truncate left --delimiter = --system S --assistant-prefix A --template-arg t=false --parse-special"
    words += f" --prior {prior} --premise P"
    assert run("select", "-p", "p", *flags(CHOICES), *words.split()).exit_code == 0
    assert engine.asked[0][2] == {
        "rule": ScoringRule("pmi", premise="P"),
        "terminator": "eog",
        "following": ".",
        "prior": {" leather": 0.25},
        "search": SearchParams(method="best_first", stop="mass", mass=0.5, budget_nodes=7, width=3),
        "prompting": PromptParams(
            boundary="split",
            truncate="left",
            delimiter="=",
            system="S",
            assistant_prefix="A",
            template_args={"t": False},
            parse_special=True,
        ),
    }


def test_model_options_are_handed_to_load(monkeypatch: pytest.MonkeyPatch):
    """Each option of the model group is an argument of `load`."""
    from selectrie.cli.groups import ModelGroup

    seen: list[tuple[Any, Any]] = []
    monkeypatch.setattr(load, "load", lambda *args, **options: seen.append((args, options)))
    group = ModelGroup("m.gguf", "llama.cpp", "fast", 512, 64, 2, -1, "cuda", "float16", untrusted=True, verbose=True)
    assert None not in astuple(group)
    requests.open_engine(group)
    options = {"n_ctx": 512, "n_batch": 64, "n_threads": 2, "n_gpu_layers": -1, "precision": "fast", "verbose": True}
    options |= {"device": "cuda", "dtype": "float16"}
    assert seen == [(("m.gguf",), options | {"backend": "llama.cpp", "untrusted": True})]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("select -p x -p y -c a", "'-p'"),
        ("select -m one.gguf --model two.gguf -p x -c a", "'-m'"),
        ("rank -p x -c a -c b --rule joint --rule pmi", "'--rule'"),
        ("serve --model a=x --model b=y", "Give several as arguments: [NAME=]MODEL [NAME=]MODEL"),
        ("grammar check gbnf --text a --text b", None),
    ],
)
def test_an_option_of_one_value_is_given_once(arguments: str, named: str | None):
    """Nothing says which was meant, so neither is taken; options of many values are."""
    result = CliRunner().invoke(app, arguments.split())
    assert (named is not None and named in result.output and "is given twice" in result.output) == (named is not None)
    if named is not None:
        assert result.exit_code == 2


@pytest.mark.parametrize("flag", ["--root-path", "--reload", "--ssl-keyfile"])
def test_a_flag_that_resembles_nothing_has_no_advice(flag: str):
    """Flags of uvicorn, some letters of which are in a flag of another meaning."""
    assert run("serve", flag, "x").stderr.endswith(f"No such option: {flag}\n")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("compare", "eval compare"), ("report", "eval report"), ("check", "grammar check"), ("scor", "score")],
)
def test_a_command_of_a_group_is_named_with_its_group(name: str, meant: str):
    """As it is written; commands without a group are found by similar letters."""
    result = run(name, "a", "b")
    assert result.exit_code == 2
    assert f"No such command {name!r}. Did you mean {meant!r}?" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ("decide --column x", "--state"),
        ("select --n-threads 3", "--threads"),
        ("select --budget-nodes 3", "--budget"),
        ("generate --max-new-tokens 3", "--max-tokens"),
        ("generate --top-logprobs 3", "--logprobs"),
        ("select --temp 3", "--temperature of generate"),
        ("classify --table x", "TABLE|TEXT, without a flag"),
        ("select --labels a,b", "--choices"),
        ("eval report runs/a --format json", "--json"),
        ("select --zzz", None),
    ],
)
def test_an_unknown_option_is_answered_by_what_it_means(arguments: str, hint: str | None):
    """Names of Python, of other programs and of other commands; similar letters come last."""
    result = run(*arguments.split())
    assert result.exit_code == 2
    assert result.stderr.endswith(f"(Possible options: {hint})\n" if hint else "No such option: --zzz\n")


def test_the_environment_names_a_model_and_a_flag_wins(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    """A run that is resumed keeps its model, and a server is not given options that only the environment has."""
    from selectrie.cli.groups import ModelGroup

    for name, value in {"MODEL": "e.gguf", "THREADS": "3", "PRECISION": "fast"}.items():
        monkeypatch.setenv(f"SELECTRIE_{name}", value)
    run("select", "-p", "p", "-c", "a")
    run("select", "-p", "p", "-c", "a", "-m", "f.gguf", "--threads", "2", "--precision", "exact")
    named, typed = engine.opened
    assert (named.model, named.threads, named.precision) == ("e.gguf", 3, "fast")
    assert (typed.model, typed.threads, typed.precision) == ("f.gguf", 2, "exact")
    assert requests.resumed_model(named, {"model": "then.gguf"}, "run").model == "then.gguf"
    assert requests.resumed_model(typed, {"model": "then.gguf"}, "run") == typed
    assert requests.load_options(replace(named, model="http://host")) == {}
    assert requests.load_options(replace(named, model="http://host", threads=4)) == {"threads": 4}
    monkeypatch.setenv("SELECTRIE_MODEL", "")
    assert requests.default_model(ModelGroup).model is None


@pytest.mark.parametrize("asked", ["source_bash", "bash_source"])
def test_shells_complete(asked: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The variable has the words in the order of Typer or of Click."""
    monkeypatch.setattr(sys, "argv", ["selectrie"])
    monkeypatch.setenv("_SELECTRIE_COMPLETE", asked)
    with pytest.raises(SystemExit):
        entry._run_command()
    assert "complete -o default" in capsys.readouterr().out
    for words, found in (("selectrie cla", "classify"), ("selectrie select --pre", "--premise\n--precision")):
        monkeypatch.setenv("_SELECTRIE_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
        with pytest.raises(SystemExit):
            entry._run_command()
        assert sorted(capsys.readouterr().out.split()) == sorted(found.split())


def test_options_that_are_not_given_are_not_handed_to_load(monkeypatch: pytest.MonkeyPatch):
    """A back end that lacks them is not asked for them; the two that every back end has are always there."""
    from selectrie.cli.groups import FastModelGroup, ModelGroup

    assert requests.load_options(ModelGroup()) == {"precision": "exact", "verbose": False}
    assert requests.load_options(FastModelGroup(gpu_layers=0)) == {
        "precision": "fast",
        "verbose": False,
        "n_gpu_layers": 0,
    }


def test_an_option_that_the_back_end_lacks_is_named_as_it_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One line with the flag and the flags that there are, and exit 2; so for a back end that does not exist."""
    path = toy_backend.file(tmp_path)
    monkeypatch.setattr(table, "BACKENDS", toy_backend.TABLE)
    for typed in (["--threads", "2"], ["--gpu-layers=-1"], ["--n-ctx", "64"]):
        result = run("score", "-m", str(path), "-p", "p", "-t", "a", *typed)
        assert result.exit_code == 2
        flag = typed[0].split("=")[0]
        assert result.stderr == (
            f"error[unknown_option]: {flag} is not an option of the back end toy, which has --precision, --verbose, `seed`\n"
        )
    result = run("score", "-m", str(path), "-p", "p", "-t", "a", "--backend", "vllm")
    assert (result.exit_code, result.stderr) == (
        2,
        "error[option]: --backend 'vllm': expected one of 'llama.cpp', 'toy'\n",
    )


def test_options_of_a_checkpoint_are_none_of_a_gguf_file(tiny_model):
    """Named as they were typed, with the flags that llama.cpp has; what no device is called is refused for itself."""
    for typed in (["--device", "cpu"], ["--dtype=float16", "--precision", "fast"]):
        result = run("score", "-m", str(tiny_model("f32")), "-p", "p", "-t", "a", *typed)
        assert result.exit_code == 2
        flag = typed[0].split("=")[0]
        assert result.stderr.startswith(
            f"error[unknown_option]: {flag} is not an option of the back end llama.cpp, which has --n-ctx, --n-batch, --threads"
        )


def test_the_command_opens_a_checkpoint(tmp_path):
    """By its folder, with the options of its back end; those of llama.cpp, types and devices that are not are named."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tests.support import checkpoints

    folder = str(checkpoints.write(tmp_path / "m"))
    usual = ["-p", "the", "-t", " cat", "--n-ctx", "64", "--n-batch", "32", "--threads", "1", "--precision", "fast"]
    result = run("score", "-m", folder, *usual, "--device", "cpu", "--dtype", "float16", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["signature"]["backend"] == "transformers"
    for typed, message in (
        (["--gpu-layers", "1"], "--gpu-layers is not an option of the back end transformers, which has --n-ctx"),
        (["--device", "cuda:99"], "--device 'cuda:99': expected a device that is here: cpu"),
        (["--dtype", "int3"], "--dtype 'int3': expected one of 'float32', 'bfloat16', 'float16'"),
    ):
        result = run("score", "-m", folder, *usual, *typed)
        assert result.exit_code == 2
        assert message in result.stderr


def test_the_help_names_every_back_end():
    """`--backend` is written without importing the table."""
    from selectrie.cli.groups import ModelGroup, hints_of

    option = hints_of(ModelGroup)["backend"].__metadata__[0]
    assert [backend.name for backend in table.BACKENDS if backend.name not in option.help] == []


def test_rank_makes_the_places_shown_certain(engine: Engine):
    """`--top 2` asks for two certain places and shows two; more places than choices are as many as there are."""
    result = run("rank", "-p", "p", *flags(CHOICES), "--top", "2")
    assert "… 2 more choices" in result.stdout
    run("rank", "-p", "p", *flags(CHOICES))
    assert [(verb, options["search"].k) for verb, _, options in engine.asked] == [("rank", 2), ("rank", 4)]


@pytest.mark.parametrize(
    ("args", "stdin", "prompt"),
    [
        (["-p", ""], None, ""),
        ([], "Q\nA:\n", "Q\nA:"),
        ([], "é".encode(), "é"),
        (["--prompt-file", "-"], "A:\n", "A:"),
        (["--token-ids", "1,2"], None, [1, 2]),
        (["--user", "hi", "--system", "s"], "not read", [{"role": "user", "content": "hi"}]),
        (["-p", "p"], "not read", "p"),
    ],
    ids=str,
)
def test_the_prompt_comes_from_one_place(engine: Engine, args: list[str], stdin: str | None, prompt: object):
    """Text, ids, or what is piped in; piped text is not read where a prompt is given."""
    assert run("select", *args, *flags(CHOICES), stdin=stdin).exit_code == 0
    assert engine.asked[0][1][0] == prompt


def test_choices_have_commas_between_them(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Unless there is a file of this name; the flag's name of before reads the same."""
    for flag in ("--choices", "--choices-file"):
        run("select", "-p", "p", "-c", " x", flag, "Paris, New York,")
        assert engine.asked == []
        run("select", "-p", "p", "-c", " x", flag, "Paris, New York")
        assert engine.asked.pop()[1][1] == [" x", "Paris", "New York"]
    assert "--choices-file" not in run("select", "--help").stdout
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b").write_text("one\ntwo")
    run("select", "-p", "p", "--choices", "a,b")
    assert engine.asked.pop()[1][1] == ["one", "two"]


def test_tokens_of_a_prompt_need_no_choices(tiny_model):
    """As a report and as JSON; a chat is shown as its template writes it."""
    shown = run("tokens", "-m", str(tiny_model("f32")), "-p", "a cat").stdout
    assert re.match("tokens +\\d+\nBOS", shown)
    assert "trie" not in shown
    fields = json.loads(run("tokens", "-m", str(tiny_model("f32")), "-p", "a cat", "--json").stdout)
    assert fields["choices"] == []
    assert f"tokens  {len(fields['prompt'])}\n" in shown


def test_prompt_chat_and_choices_come_from_files(engine: Engine, tmp_path: Path):
    """Choices of the command line stand before those of the file."""
    (tmp_path / "p ö.txt").write_bytes(b"He wears\r\n")
    (tmp_path / "c.txt").write_bytes("' é'\n b \n".encode())
    (tmp_path / "m.json").write_text('[{"role": "user", "content": "Hi"}]')
    files = ["--choices", str(tmp_path / "c.txt"), "-c", " a"]
    assert run("select", "--prompt-file", str(tmp_path / "p ö.txt"), *files).exit_code == 0
    assert run("select", "--chat", str(tmp_path / "m.json"), *files).exit_code == 0
    assert [args for _, args, _ in engine.asked] == [
        ("He wears", [" a", "' é'", " b "]),
        ([{"role": "user", "content": "Hi"}], [" a", "' é'", " b "]),
    ]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("select -p p", "error[choice]: no choices: give -c TEXT"),
        ("select -c a", "error[prompt]: no prompt: give -p TEXT"),
        ("select -c a -p p --token-ids 1", "error[prompt]: the prompt is given 2 times: --prompt, --token-ids"),
        (
            "select",
            "or text on stdin (-p '' for an empty one); no choices: give -c TEXT for each, --choices A,B,… or",
        ),
        ("score", "(-p '' for an empty one); --text is not given; give the text to score"),
        ("select -p p --choices a,,b", "--choices 'a,,b': expected a text between any two commas"),
        ("select -c a -p p --user u", "error[prompt]: the prompt is given 2 times: --prompt, --user"),
        ("select -c a --token-ids 1 --system s", "--system goes with --user or a prompt as text, not with --token-ids"),
        ("select -c a --token-ids 1,x", "error[option]: --token-ids '1,x': expected token ids such as 1,2,3"),
        ("select -c a -p p --rule max", "error[option]: --rule 'max': expected one of 'joint'"),
        ("select -p p a b", "the prompt is given 2 times: the argument 'a', --prompt; give it once"),
        ("select p a -c b", "choices are given as arguments (from 'a') and by -c; give them one way"),
        ("rank p a --choices b,c", "choices are given as arguments (from 'a') and by --choices; give them one way"),
        ("select p a,b", "the argument 'a,b' is one choice; write several with spaces"),
        ("select p", "or texts after the prompt"),
        ("select p a --regex b", "--choice cannot be combined with a grammar; leave"),
        ("score p t -t u", "--text cannot be combined with TEXT; give the text once"),
        ("select -c a -p p --rule batch", "batch needs many (select_many in Python)"),
        ("select -c a -p p --rule calibrated", "at least one content-free prompt"),
        ("select -c a -p p --premise x", "--premise cannot be combined with --rule joint; only"),
        ("select -c a -p p --terminator eos", "--terminator 'eos': expected one of 'auto'"),
        ("tokens -c a -p p --terminator eos", "--terminator 'eos': expected one of 'auto'"),
        ("select -c a -p p --mass 2", "--mass 2.0: expected a probability"),
        ("select -c a -p p --boundary cut", "--boundary 'cut': expected one of 'heal'"),
        ("select -c a -p p --template-arg x=No", "--template-arg 'x=No': expected a JSON value"),
        ("select -c a -p p --json --tsv", "--json cannot be combined with --tsv; leave"),
        ("select -c a -p p --tsv --explain", "--tsv cannot be combined with --explain; leave"),
        ("select -c a --prompt-file gone.txt", "error[input_file]: gone.txt: No such file"),
        ("rank -p p --choices gone.txt", "error[input_file]: gone.txt: No such file"),
    ],
)
def test_a_mistake_is_one_line_and_told_before_the_model_is_loaded(engine: Engine, args: str, message: str):
    """Exit 2, nothing on stdout, one line that names the value and the remedy."""
    result = run(*args.split(), stdin="")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    if not args.startswith("tokens"):
        assert engine.opened == []


@pytest.mark.parametrize("args", ["select --no-such-option", "select -c", "choose", "select --width x"])
def test_wrong_usage_exits_2(engine: Engine, args: str):
    """What the parser refuses has the same exit code, and says what is wrong."""
    result = run(*args.split())
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error: " in result.stderr


def test_a_model_that_nobody_named_is_named_in_the_answer(engine: Engine):
    """Without -m the report has a line more, which says whose model answered; with -m it has none."""
    line = "model       embedded.gguf, which comes with selectrie; -m names another"
    for command in (
        ["select", *flags(CHOICES)],
        ["rank", *flags(CHOICES)],
        ["score", "-t", " blue"],
        ["tokens", *flags(CHOICES)],
    ):
        unnamed, named = (run(*command, "-p", "p", *model).stdout.splitlines() for model in ([], ["-m", "x.gguf"]))
        (said,) = [" ".join(text.split()) for text in unnamed if text.startswith("model ")]
        assert said == " ".join(line.split())
        assert [text for text in unnamed if not text.startswith("model ")] == named
    assert [group.model for group in engine.opened] == [None, "x.gguf"] * 4


def test_tokens_as_json_name_the_model_that_nobody_named(engine: Engine):
    """A plan has no signature that would."""
    unnamed, named = (
        json.loads(run("tokens", "-p", "p", "-c", "a", "--json", *model).stdout) for model in ([], ["-m", "x.gguf"])
    )
    assert unnamed == named | {"model": "embedded.gguf"}


def test_without_a_model_the_embedded_one_is_loaded(monkeypatch: pytest.MonkeyPatch):
    """No -m is no source."""
    from selectrie.cli.groups import ModelGroup
    from selectrie.engine import load

    seen: list[Any] = []
    monkeypatch.setattr(load, "load", lambda source, **_options: seen.append(source))
    requests.open_engine(ModelGroup())
    assert seen == [None]


def test_a_missing_embedded_model_exits_3(at_home: Path, monkeypatch: pytest.MonkeyPatch):
    """One line with the file and the remedy."""
    monkeypatch.setattr(sources, "PATH", at_home / "embedded.gguf")
    result = run("select", "-p", "p", "-c", "a")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (3, "", 1)
    assert result.stderr.startswith(f"error[model_file]: {at_home / 'embedded.gguf'}: the embedded model is missing")


def test_models_are_listed(at_home: Path, tiny_model, monkeypatch: pytest.MonkeyPatch):
    """The embedded one first, then the Hugging Face cache: a table and an object."""
    huggingface_hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(sources, "PATH", at_home / "embedded.gguf")
    monkeypatch.setattr(huggingface_hub, "scan_cache_dir", partial(huggingface_hub.scan_cache_dir, at_home / "hub"))
    revision = at_home / "hub" / "models--own--a" / "snapshots" / ("1" * 40)
    revision.mkdir(parents=True)
    long = "a long name of a model that goes on.gguf"
    for name in ("b.gguf", long):
        (revision / name).write_bytes(tiny_model().read_bytes())
    result = run("models", "--json")
    listed = json.loads(result.stdout)
    assert (listed["format"], result.stderr) == (2, "")
    assert [(m["name"], m["file"], m["embedded"]) for m in listed["models"]] == [
        ("embedded.gguf", "missing", True),
        (long, "present", False),
        ("b.gguf", "present", False),
    ]
    rows = [line for line in run("models").stdout.splitlines() if not line.startswith("  ")]
    assert [row.split()[0] for row in rows] == ["name", "embedded.gguf", "a", "b.gguf"]
    digest = listed["models"][1]["digest"].partition(":")[2][:8]
    assert rows[2].startswith(f"{long}  ")
    assert rows[2].endswith(f"  {digest}  present")
    assert any(line.endswith(listed["models"][1]["path"]) for line in run("models").stdout.splitlines())


def test_models_without_the_extra_names_it(at_home: Path, monkeypatch: pytest.MonkeyPatch):
    """The embedded model is listed; the note is no part of the object."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    result = run("models", "--json")
    assert [m["embedded"] for m in json.loads(result.stdout)["models"]] == [True]
    assert (result.exit_code, result.stderr.count("\n")) == (0, 1)
    assert "pip install 'selectrie[hf]" in result.stderr


def test_a_bad_line_is_named(engine: Engine, tmp_path: Path):
    """A choices file with an empty line or bad UTF-8 is refused with the number of the line."""
    path = tmp_path / "c.txt"
    path.write_bytes(b"a\n\nb\n")
    assert f"{path}:2: the line is empty" in run("select", "-p", "p", "--choices", str(path)).stderr
    assert run("select", "-p", "p", "--choices", str(path), "--allow-empty").exit_code == 0
    path.write_bytes(b"a\nb\xff\n")
    assert f"{path}:2: byte 0xff is not UTF-8" in run("select", "-p", "p", "--choices", str(path)).stderr


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (errors.ModelFileError("m.gguf", "no GGUF file"), 3, "error[model_file]: m.gguf: no GGUF file"),
        (
            errors.DecodeError("llama_decode failed", return_code=-3),
            3,
            "error[decode]: llama_decode failed (return code -3)",
        ),
        (
            errors.PromptTooLongError(required_tokens=9, available_tokens=8, remedy="cut it"),
            2,
            "error[prompt_too_long]: needs 9",
        ),
        (errors.NodeError(3, "is dead"), 70, "error[node]: node 3: is dead; this is a fault of selectrie"),
        (ZeroDivisionError("a\nb"), 70, "error[internal]: ZeroDivisionError: a b; this is a fault of selectrie"),
        (KeyboardInterrupt(), 130, "error[interrupted]: stopped"),
        (errors.CancelledError(), 130, "error[cancelled]: the task was cancelled"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_kind_of_error_has_its_exit_code(engine: Engine, error: BaseException, code: int, line: str):
    """One line on stderr, nothing on stdout, the engine closed; --verbose adds the traceback."""
    engine.selection = error
    result = run("select", "-p", "p", "-c", "a", "--json")
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith(line)
    assert result.stderr.count("\n") == 1
    assert engine.closed == 1
    verbose = run("select", "-p", "p", "-c", "a", "--verbose")
    assert verbose.exit_code == code
    assert ("Traceback" in verbose.stderr) == (code != 130 or isinstance(error, errors.SelectrieError))


def test_json_is_one_object_with_every_choice(engine: Engine):
    """`--top` shortens the report, not the object."""
    result = run("select", "-p", "p", *flags(CHOICES), "--json", "--top", "1")
    assert result.stdout.count("\n") == 1
    assert json.loads(result.stdout) == json.loads(json.dumps(armour().to_dict()))
    for command in (["score", "-p", "p", "-t", " blue"], ["tokens", "-p", "p", "-c", "a"]):
        assert json.loads(run(*command, "--json").stdout)["format"] == 2


def test_tsv_is_ranked_and_cut(engine: Engine):
    """A head line and the first places."""
    lines = run("select", "-p", "p", *flags(CHOICES), "--tsv", "--top", "2").stdout.splitlines()
    assert [line.split("\t")[:3] for line in lines] == [
        ["rank", "index", "text"],
        ["1", "0", " leather"],
        ["2", "3", " chain"],
    ]


def test_explain_shows_the_trie(engine: Engine):
    """The tree follows the ranking."""
    assert "*~ │  └─ 'ather' -0.223  = ' leather'" in run("select", "-p", "p", *flags(CHOICES), "--explain").stdout


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_tie": True}, "error[uncertain]: the first place is a tie (--strict)\n"),
        (
            {"certificate": replace(PROVED, proved=False)},
            "error[uncertain]: the first place is not proved (--strict)\n",
        ),
    ],
    ids=["tie", "not proved"],
)
def test_strict_refuses_an_uncertain_answer(engine: Engine, changes: dict[str, Any], message: str):
    """The answer is still printed; the exit code says that it is not certain. Without --strict it is 0."""
    engine.selection = armour(**changes)
    strict = run("select", "-p", "p", *flags(CHOICES), "--strict", "--json")
    assert (strict.exit_code, strict.stderr) == (2, message)
    assert json.loads(strict.stdout)["winner"] == 0
    assert run("select", "-p", "p", *flags(CHOICES)).exit_code == 0
    engine.selection = armour()
    assert run("select", "-p", "p", *flags(CHOICES), "--strict").exit_code == 0


def test_score_and_tokens_hand_on_what_they_are_given(engine: Engine):
    """The text and what follows it; the choices and how they end."""
    result = run("score", "-p", "The sky is", "-t", " blue", "--per-token", "--following", ".")
    assert (result.exit_code, "token  piece    logp" in result.stdout) == (0, True)
    result = run("tokens", "-p", "He wears", *flags(CHOICES), "--terminator", "eog", "--delimiter", "-")
    assert (result.exit_code, "   ├─ ' le'" in result.stdout) == (0, True)
    assert engine.asked == [
        (
            "score",
            ("The sky is", " blue"),
            {
                "following": ".",
                "tokenizations": "canonical",
                "event": "auto",
                "budget_nodes": None,
                "prompting": PromptParams(template_args={}),
            },
        ),
        (
            "tokens",
            ("He wears", CHOICES),
            {"terminator": "eog", "following": "", "prompting": PromptParams(delimiter="-", template_args={})},
        ),
    ]


def test_version_and_help():
    """Both exit 0; the bare command shows its help."""
    assert run("--version").stdout.startswith("selectrie 0.")
    assert run("--version").stdout == run("-V").stdout == run("version").stdout
    assert run("help").stdout == run("--help").stdout
    assert run("help", "select").stdout == run("select", "--help").stdout
    assert run("-h").stdout == run("--help").stdout
    assert "Usage: selectrie" in run().output


@pytest.mark.parametrize("command", ["select", "rank", "score", "tokens", "models"])
def test_every_command_has_an_example(command: str):
    """The help shows a line to copy, unbroken."""
    example = f"selectrie {command} {'--json' if command == 'models' else '-m model.gguf'}"
    assert example in run(command, "--help").stdout


def test_the_page_of_the_command_line_is_current():
    """`docs/cli.md` is what `tools/cli_docs.py` writes."""
    assert cli_docs.PAGE.read_text(encoding="utf-8") == cli_docs.page()


def test_the_page_of_the_command_line_needs_no_extra(monkeypatch: pytest.MonkeyPatch):
    """Where none is installed it is the same page."""
    for extra in ("huggingface_hub", "lm_eval", "tqdm", "ray", "pyarrow", "pandas"):
        monkeypatch.setitem(sys.modules, extra, None)
    assert cli_docs.PAGE.read_text(encoding="utf-8") == cli_docs.page()


class Tty(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_is_for_long_work_at_a_terminal(monkeypatch: pytest.MonkeyPatch):
    """Nothing in the first second, a bar after it, and no callback at all where stderr is no terminal."""
    monkeypatch.setenv("TERM", "xterm")
    seconds = iter([0.0, 0.5, 5.0])
    monkeypatch.setattr(sys, "stderr", Tty())
    with progress(clock=lambda: next(seconds)) as tell:
        assert tell is not None
        tell(1, 10)
        assert sys.stderr.getvalue() == ""
        tell(7, 10)
    assert "7/10" in sys.stderr.getvalue()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress() as tell:
        assert tell is None


SCRIPT = """
import sys
sys.path[:0] = [{src!r}, {tests!r}]
from selectrie.cli import main, requests
class Engine:
    __enter__ = lambda self: self
    __exit__ = lambda self, *_: None
    def select(self, *args, **options):
        from tests.support.answers import armour
        return armour()
requests.open_engine = lambda group: Engine()
main()
"""


def spawn(*args: str, script: str = SCRIPT, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own."""
    source = textwrap.dedent(script).format(src=str(ROOT / "src"), tests=str(ROOT))
    return subprocess.run([sys.executable, "-c", source, *args], check=False, stderr=subprocess.PIPE, **options)


def test_output_is_utf8_whatever_the_locale():
    """Under an ASCII locale without Python's own rescue the bars still come out."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "COLUMNS": "80"}
    environment.pop("PYTHONIOENCODING", None)
    done = spawn("select", "-p", "p", "-c", "a", env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "███████████▎" in done.stdout.decode("utf-8")


def test_a_closed_pipe_is_silent():
    """Where nobody reads any more there is nothing to say."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = spawn("select", "-p", "p", "-c", "a", stdout=write, stdin=subprocess.DEVNULL)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_help_imports_nothing_heavy():
    """`selectrie --help` needs neither a model nor numpy nor rich."""
    script = """
    import sys
    sys.path[:0] = [{src!r}]
    from selectrie.cli import main
    try:
        main()
    finally:
        heavy = dict.fromkeys(("llama_cpp", "numpy", "rich", "lark", "huggingface_hub"))
        print(*(name for name in heavy if name in sys.modules), file=sys.stderr, end="")
    """
    done = spawn("--help", script=script, stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Usage: selectrie" in done.stdout


@pytest.fixture
def at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home folder of its own, so that nothing of the user's is read or written."""
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    return tmp_path


def test_all_commands_work_on_a_model(tiny_model, at_home: Path):
    """From arguments to report through the engine: random weights, so only what must hold of any model is checked."""
    model = ["-m", str(tiny_model()), "--threads", "1"]
    (at_home / "labels.txt").write_text(" leather\n chainmail\n plate\n chain\n")
    (at_home / "m.json").write_text('[{"role": "user", "content": "Which armour?"}]')
    file = ["--choices", str(at_home / "labels.txt")]

    def answered(*args: str, stdin: str | None = None) -> dict[str, Any]:
        result = run(*args, *model, "--json", stdin=stdin)
        assert (result.exit_code, result.stderr) == (0, "")
        answer: dict[str, Any] = json.loads(result.stdout)
        return answer

    plain = answered("select", "-p", "He wears", *file)
    assert sum(c["probability"] for c in plain["choices"]) == pytest.approx(1)
    assert plain["terminator"] == "unless-continued"
    best = max(range(4), key=lambda c: plain["choices"][c]["score"])
    assert plain["winner"] == best
    again = answered("rank", *file, "--top", "2", stdin="He wears\n")
    assert [c["logp"] for c in again["choices"]] == pytest.approx(
        [c["logp"] for c in plain["choices"]], abs=16 * plain["signature"]["tolerance"]
    )
    pmi = answered("select", "-p", "He wears", *file, "--rule", "pmi", "--terminator", "none")
    assert (pmi["rule"], pmi["signature"]["rule"]) == ("pmi", "pmi")
    assert answered("select", "--chat", str(at_home / "m.json"), *file)["coverage"] < 1
    assert answered("select", "-p", "Which armour?", "--system", "Be brief.", *file)["signature"]["boundary"] == "heal"
    alone = answered("score", "-p", "He wears", "-t", " plate")
    assert alone["logp"] == pytest.approx(sum(token["logp"] for token in alone["tokens"]))
    cut = answered("tokens", "-p", "He wears", *file)
    assert len(cut["choices"]) == 4
    for command in (["select", *file], ["rank", *file], ["score", "-t", " plate", "--per-token"], ["tokens", *file]):
        explain = ["--explain"] if command[0] in ("select", "rank") else []
        result = run(*command, "-p", "He wears", *model, *explain)
        assert (result.exit_code, result.stderr) == (0, "")
        assert max(map(len, result.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("content", "code"), [(None, "model_file"), (b"GGUF", "model_file"), (b"no model at all", "model_file")], ids=repr
)
def test_a_model_that_cannot_be_loaded_exits_3(at_home: Path, content: bytes | None, code: str):
    """A missing, cut or foreign file is the model's error, in one line."""
    path = at_home / "m.gguf"
    if content is not None:
        path.write_bytes(content)
    result = run("select", "-m", str(path), "-p", "p", "-c", "a")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (3, "", 1)
    assert result.stderr.startswith(f"error[{code}]: {path}")


def test_winners_on_real_weights(weights, at_home: Path):
    """A model of small stories knows how they begin, and that a full stop follows a cat sooner than cats."""
    model = ["-m", str(weights("stories260K.gguf")), "--threads", "1", "--json"]
    begin = run("select", "-p", "Once upon a", "-c", " car", "-c", " time", "-c", " dog", *model)
    assert json.loads(begin.stdout)["winner"] == 1
    stop = run("select", "-p", "He bought a", "-c", " cats", "-c", " cat", "--following", ".", *model)
    assert json.loads(stop.stdout)["winner"] == 1


@pytest.mark.parametrize(
    "command",
    ["grammar list", "grammar check json", "grammar expand move --limit 1", "models", "eval tasks", "tokens -p a"],
)
def test_every_object_names_its_kind(command: str, at_home: Path):
    """And the format of its fields."""
    fields = json.loads(run(*command.split(), "--json").stdout)
    assert list(fields)[:2] == ["format", "kind"]


@pytest.mark.parametrize(
    "command",
    [
        "select -p p -c a --trace -",
        "eval data.jsonl --out -",
        "eval - --out folder",
        "classify --labels a,b t.csv --gold label --fit-calibration -",
        "classify --labels a,b t.csv --gold label --fit-threshold -",
        "classify --labels a,b t.csv --out - --json",
    ],
)
def test_what_stdout_does_not_take_is_refused(command: str, engine: Engine, tmp_path: Path, monkeypatch):
    """A folder, a trace, or a second result; no file is called `-`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("text,label\nx,a\n")
    (tmp_path / "data.jsonl").write_text('{"ctx": "a", "endings": ["b", "c"], "label": 0}\n')
    result = run(*command.split(), stdin='{"ctx": "a", "endings": ["b", "c"], "label": 0}\n')
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith("error[option]: --")
    assert engine.asked == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.jsonl", "t.csv"]
