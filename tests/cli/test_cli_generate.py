"""`selectrie generate`: what reaches the engine, what comes out, and how it ends. The engine runs on a fake model."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from selectrie import Chunk, GenerationParams, LookupDrafter, PromptParams, SamplingParams, StopParams
from selectrie.cli import app, inputs, requests
from selectrie.cli.report.terminal import GrowingTexts, watch
from selectrie.cli.show import tag_lines
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.errors import InputFileError, OptionError
from selectrie.testing import HashModel

ROOT = Path(__file__).resolve().parents[2]


class Remembering:
    """An engine that remembers what it was asked. chunks: what it streams instead of its own."""

    def __init__(self) -> None:
        self.engine = Engine(HashModel(3), check=SelfCheck(8, 0.0, 0.0))
        self.asked: list[tuple[str, Any, dict[str, Any]]] = []
        self.opened: list[Any] = []
        self.closed = 0
        self.chunks: Iterator[Chunk] | None = None

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.closed += 1

    def generate(self, prompts: Any, **options: Any) -> Any:
        self.asked.append(("generate", prompts, options))
        return self.engine.generate(prompts, **options)

    @contextmanager
    def stream(self, prompts: Any, **options: Any) -> Iterator[Iterator[Chunk]]:
        self.asked.append(("stream", prompts, options))
        if self.chunks is not None:
            yield self.chunks
            return
        with self.engine.stream(prompts, **options) as chunks:
            yield chunks


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Remembering]:
    """An engine that every command opens instead of a model."""
    made = Remembering()

    def open_engine(group: Any) -> Remembering:
        made.opened.append(group)
        return made

    monkeypatch.setattr(requests, "open_engine", open_engine)
    yield made
    made.engine.close()


def run(*args: str, stdin: str | bytes | None = None) -> Result:
    """One command in this process."""
    return CliRunner().invoke(app, ["generate", *args], input=stdin, prog_name="selectrie")


def test_defaults_are_those_of_the_library_but_fast(engine: Remembering):
    """The prompt as given, one sequence, and `fast` precision."""
    result = run("-m", "x.gguf", "-p", " a cat ")
    assert (result.exit_code, result.stderr) == (0, "")
    expected = {
        "n": 1,
        "seed": None,
        "sampling": SamplingParams(),
        "stopping": StopParams(),
        "draft": None,
        "prompting": PromptParams(),
        "options": GenerationParams(),
    }
    assert engine.asked == [("generate", " a cat ", expected)]
    assert (engine.opened[0].model, engine.opened[0].precision) == ("x.gguf", "fast")
    assert engine.closed == 1


def test_every_option_reaches_the_engine(engine: Remembering):
    """Sampling, stopping, sequences and prompting, each from its options."""
    words = "--temperature 0.5 --top-k 7 --top-p 0.9 --min-p 0.1 --typical-p 0.8 --repeat-penalty 1.1"
    words += " --presence-penalty 0.2 --frequency-penalty 0.3 --penalty-last-n 9 --logit-bias 3=-inf --logit-bias 4=1.5"
    words += r" --max-tokens 5 --stop \n\n --escapes --stop END --stop-token 6 --stop-token 7 --ignore-eog"
    words += " -n 2 --best-of 3 --seed 4 --draft lookup --deadline 60 --heal --truncate left -c a -c b --delimiter t --logprobs 2"
    result = run("-p", "a", *words.split(), "--json", "--precision", "exact")
    assert (result.exit_code, result.stderr) == (0, "")
    options = engine.asked[0][2]
    assert isinstance(options.pop("draft"), LookupDrafter)
    assert options == {
        "n": 2,
        "seed": 4,
        "sampling": SamplingParams(
            temperature=0.5,
            top_k=7,
            top_p=0.9,
            min_p=0.1,
            typical_p=0.8,
            repeat_penalty=1.1,
            presence_penalty=0.2,
            frequency_penalty=0.3,
            penalty_last_n=9,
            logit_bias={3: -float("inf"), 4: 1.5},
        ),
        "stopping": StopParams(max_tokens=5, stop=("\n\n", "END"), stop_tokens=(6, 7), ignore_eog=True),
        "prompting": PromptParams(truncate="left", delimiter="t"),
        "options": GenerationParams(best_of=3, choices=("a", "b"), heal=True, n_alternatives=2, deadline_s=60.0),
    }
    assert engine.opened[0].precision == "exact"
    answer = json.loads(result.stdout)
    assert [one["seed"] in (4, 5, 6) for one in answer["completions"]] == [True, True]
    assert all(len(place) <= 2 for one in answer["completions"] for place in one["alternatives"])


def test_a_draft_is_a_second_model(engine: Remembering):
    """It is opened as the model is, under its own name, and closed with it."""
    assert run("-m", "big.gguf", "--threads", "1", "-p", "a", "--draft", "small.gguf", "--seed", "1").exit_code in (
        0,
        2,
    )
    assert [(group.model, group.threads) for group in engine.opened] == [("big.gguf", 1), ("small.gguf", 1)]
    assert engine.closed == 2


def test_many_prompts_come_from_a_file(engine: Remembering, tmp_path: Path):
    """A JSON value a line: text, ids, messages; the answer is in the order of lines."""
    path = tmp_path / "p.jsonl"
    lines = [
        '"a cat\\n"',
        '{"prompt": "b"}\r',
        '{"prompt": [5, 6]}',
        '{"messages": [{"role": "user", "content": "é"}]}',
    ]
    path.write_bytes("\n".join(lines).encode() + b"\n")
    assert inputs.read_prompts(str(path)) == ["a cat\n", "b", [5, 6], [{"role": "user", "content": "é"}]]
    result = run("--prompts-file", "-", "-n", "2", "--max-tokens", "3", "--json", stdin='"a"\n"b"\n')
    assert engine.asked[-1][1] == ["a", "b"]
    assert [(c["prompt"], c["index"]) for c in json.loads(result.stdout)["completions"]] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    run("--prompts-file", "-", stdin='{"prompt": [1]}')
    assert engine.asked[-1][1] == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", ": holds no prompts"),
        ('"a"\n\n"b"\n', ":2: the line is empty"),
        ('"a"\nb\n', ":2: not JSON: Expecting value; write a text as"),
        ('"a"\n7\n', ":2: expected a text"),
        ('"a"\n["b"]\n', ":2: expected a text"),
        ('{"prompt": "a", "max_tokens": 3}', ":1: found 'prompt', 'max_tokens'; expected one key"),
        ('{"text": "a"}', ":1: found 'text'; expected one key, 'prompt' or 'messages'"),
        ("{}", ":1: found no key"),
        ('{"prompt": "a", "prompt": "b"}', ":1: not JSON: the key 'prompt' occurs twice"),
        ('{"prompt": null}', ":1: 'prompt' is missing or null"),
        ('{"prompt": [1, true]}', ":1: 'prompt' is an array"),
        ('{"prompt": [1, -1]}', ":1: 'prompt' is an array"),
        ('{"prompt": []}', ":1: 'prompt' is an array"),
        ('"a"\n{"messages": []}', ":2: expected a JSON array of messages"),
        ('"a"\n{"messages": [{"role": "user"}]}', ":2: message 0: 'content' is missing"),
        ('"a"\n{"messages": ["b"]}', ":2: message 0 is a text"),
        ("9" * 5000, ":1: not JSON: Exceeds the limit"),
        ("[" * 100_000, ":1: nested too deeply"),
    ],
    ids=lambda value: value[:24],
)
def test_a_bad_prompts_file_is_named_with_its_line(tmp_path: Path, content: str, message: str):
    """Nothing is skipped and nothing passed over."""
    path = tmp_path / "p.jsonl"
    path.write_text(content)
    with pytest.raises(InputFileError) as caught:
        inputs.read_prompts(str(path))
    assert str(caught.value).startswith(f"{path}{message}")


@pytest.mark.parametrize(
    ("given", "text"),
    [(r"\n\n", "\n\n"), (r"a\tb\r", "a\tb\r"), (r"\\n", r"\n"), (r"\\\n", "\\\n"), ("é\n", "é\n"), ("", "")],
    ids=repr,
)
def test_escapes_are_read(given: str, text: str):
    """What a shell does not write can be written; a backslash is written twice."""
    assert inputs.parse_escapes("stop", given) == text


@pytest.mark.parametrize("given", [r"\d", "a\\", "\\\n", r"\\\x"], ids=repr)
def test_other_backslashes_are_refused(given: str):
    """Whether they are meant as such cannot be known."""
    with pytest.raises(OptionError, match="backslashes begin"):
        inputs.parse_escapes("stop", given)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("", "error[prompt]: no prompt"),
        ("-p a --prompts-file x", "error[prompt]: prompts are given 2 times: --prompt, --prompts-file"),
        ("--prompts-file gone.jsonl", "error[input_file]: gone.jsonl: No such file"),
        ("-p a -n 0", "error[option]: -n 0: expected a whole number of at least 1"),
        ("-p a -n 3 --best-of 2", "--best-of 2: expected at least -n 3"),
        ("-p a --best-of 2 --stream", "--best-of cannot be combined with --stream; which"),
        ("-p a --json --stream", "--json cannot be combined with --stream; leave"),
        ("-p a --json --openai", "--openai cannot be combined with --json; leave"),
        ("-p a --logprobs 2", "--logprobs 2: expected --json or --openai too"),
        ("-p a --logprobs -1 --json", "--logprobs -1: expected a whole number"),
        ("-p a --temperature -1", "--temperature -1.0: expected a number of at least 0"),
        ("-p a --temperature nan", "--temperature nan: expected"),
        ("-p a --top-p 2", "--top-p 2.0: expected a number from 0 to 1"),
        ("-p a --logit-bias 3", "--logit-bias '3': expected ID=NUMBER"),
        ("-p a --logit-bias x=1", "--logit-bias 'x=1': expected ID=NUMBER"),
        ("-p a --logit-bias 3x=1", "--logit-bias '3x=1': expected ID=NUMBER"),
        ("-p a --logit-bias 3:1", "--logit-bias '3:1': expected ID=NUMBER"),
        ("-p a --logit-bias 3=nan", "--logit-bias '3=nan': expected ID=NUMBER"),
        ("-p a --logit-bias 3=inf", "--logit-bias 3=inf: expected a finite number"),
        ("-p a --logit-bias 3=1 --logit-bias 3=2", "each token once; 3 was given before"),
        (r"-p a --stop \d --escapes", r"--stop '\\d': expected a text whose backslashes begin"),
        ("-p a --max-tokens 0", "--max-tokens 0: expected a whole number of at least 1"),
        ("-p a --stop-token -1", "--stop-token -1: expected a whole number of at least 0"),
        ("-p a --deadline 0", "--deadline 0.0: expected seconds above 0"),
        ("-p a --seed -2", "--seed -2: expected a whole number from 0 to 2**64 - 1; leave it out, or give -1"),
        ("-p a --delimiter x", "--delimiter cannot be combined with free text; it"),
        ("-p a --choices gone.txt", "error[input_file]: gone.txt: No such file"),
    ],
)
def test_a_mistake_is_told_before_the_model_is_loaded(engine: Remembering, args: str, message: str):
    """Exit 2, nothing on stdout, one line that names the value and the remedy."""
    result = run(*args.split(), stdin="")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert message in result.stderr
    assert engine.opened == []


def test_a_prompt_that_is_refused_is_counted(engine: Remembering):
    """What only the model can refuse names the prompt's place in the file, from 0."""
    result = run("--prompts-file", "-", stdin='"a"\n{"prompt": [99999]}\n')
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error[token_range]: request 1: token 99999")


def texts(engine: Remembering, prompts: Any, **options: Any) -> list[str]:
    return list(engine.engine.generate(prompts, stopping=StopParams(max_tokens=12), **options).texts)


def test_one_text_is_printed_as_it_is(engine: Remembering):
    """The text and a line end, streamed or not; the same seed gives the same text."""
    (text,) = texts(engine, "a cat", seed=5)
    for more in ([], ["--stream"]):
        result = run("-p", "a cat", "--seed", "5", "--max-tokens", "12", *more)
        assert (result.exit_code, result.stdout) == (0, text.removesuffix("\n") + "\n")


def test_many_texts_are_tagged(engine: Remembering):
    """Each line behind prompt and sequence; streamed, each text stands whole, in the order in which they end."""
    expected = texts(engine, ["a", "b"], n=2, seed=5)
    lines = [tag_lines(i // 2, i % 2, text) for i, text in enumerate(expected)]
    args = ["--prompts-file", "-", "-n", "2", "--seed", "5", "--max-tokens", "12"]
    result = run(*args, stdin='"a"\n"b"')
    assert result.stdout == "".join(line + "\n" for line in lines)
    streamed = run(*args, "--stream", stdin='"a"\n"b"').stdout
    assert all(streamed.count(line + "\n") == 1 for line in lines)
    assert len(streamed) == len(result.stdout)
    assert tag_lines(3, 1, "a\n\nb\n") == "3.1\ta\n3.1\t\n3.1\tb"


def test_json_and_openai_are_one_object(engine: Remembering):
    """The record as it is, or a completion object; a chat becomes a chat completion."""
    plain = json.loads(run("-p", "a", "--seed", "1", "--json").stdout)
    assert (plain["kind"], plain["completions"][0]["seed"]) == ("generation", 1)
    public = json.loads(run("-p", "a", "-n", "2", "--seed", "1", "--openai", "--logprobs", "1").stdout)
    assert (public["object"], [c["index"] for c in public["choices"]]) == ("text_completion", [0, 1])
    assert public["choices"][0]["text"] == plain["completions"][0]["text"]
    assert all(len(place) in (1, 2) for place in public["choices"][0]["logprobs"]["top_logprobs"])


def test_choices_restrict_the_text(engine: Remembering):
    """Only what is listed comes out."""
    result = run("-p", "a", "-n", "5", "--seed", "1", "-c", "cat", "-c", "bat")
    assert {line.split("\t")[1] for line in result.stdout.splitlines()} <= {"cat", "bat"}


@pytest.mark.parametrize(("before", "after"), [("a b", "a b\n"), ("a\n", "a\n"), ("", "")], ids=repr)
def test_what_was_streamed_stays_when_interrupted(engine: Remembering, before: str, after: str):
    """Exit 130; the line under way is ended, and the engine closed."""

    def broken() -> Iterator[Chunk]:
        yield Chunk(0, 0, before, ())
        raise KeyboardInterrupt

    engine.chunks = broken()
    result = run("-p", "a", "--stream")
    assert (result.exit_code, result.stdout, result.stderr) == (130, after, "error[interrupted]: stopped\n")
    assert engine.closed == 1


def test_streamed_text_is_flushed_piece_by_piece(engine: Remembering, monkeypatch: pytest.MonkeyPatch):
    """A reader sees every chunk before the next one is drawn."""
    flushed: list[str] = []

    def chunks() -> Iterator[Chunk]:
        for text in ("a", "", "bc"):
            yield Chunk(0, 0, text, ())
            flushed.append(sys.stdout.buffer.getvalue().decode())

    engine.chunks = chunks()
    assert run("-p", "a", "--stream").stdout == "abc\n"
    assert flushed == ["a", "a", "abc"]


def console(height: int = 6) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=24, height=height, color_system=None)


def test_growing_texts_have_a_line_each():
    """Their ends, on as many lines as there are; control characters cannot move the cursor."""
    growing = GrowingTexts(console())
    growing.add(Chunk(0, 0, "once upon a time there was", ()))
    growing.add(Chunk(0, 1, "a\n b\x1b", ()))
    for index in range(2, 6):
        growing.add(Chunk(0, index, "漢字" * 9, ()))
    out = console()
    out.print(growing)
    lines = [line.rstrip() for line in out.file.getvalue().splitlines()]
    assert lines[:2] == ["0.0  … a time there was", "0.1  a b␛"]
    assert lines[4:] == ["… 2 more"]
    assert all(Console().measure(line).maximum <= 24 for line in lines)


def test_finished_texts_stand_above_those_that_grow(engine: Remembering):
    """At the end only the whole texts are left, in the order in which they ended."""
    chunks = list(engine.engine.stream("a", n=3, seed=1, stopping=StopParams(max_tokens=4)))
    ended = [chunk.completion for chunk in chunks if chunk.completion is not None]
    out = console(20)
    watch(chunks, lambda completion: f"<{completion.index}>", out)
    written = out.file.getvalue()
    places = [written.index(f"<{completion.index}>\n") for completion in ended]
    assert len(ended) == 3
    assert places == sorted(places)


SCRIPT = """
import sys
sys.path[:0] = [{src!r}]
from selectrie.cli import main, requests
from selectrie.engine.engine import Engine
from selectrie.testing import HashModel
requests.open_engine = lambda group: Engine(HashModel(3))
main()
"""


def test_a_closed_pipe_is_silent():
    """Where nobody reads any more there is nothing to say, in the middle of a stream too."""
    source = textwrap.dedent(SCRIPT).format(src=str(ROOT / "src"))
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", source, "generate", "-p", "a", "--stream", "--ignore-eog"]
    try:
        done = subprocess.run(command, check=False, stderr=subprocess.PIPE, stdout=write, stdin=subprocess.DEVNULL)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_generation_on_a_model(tiny_model):
    """From arguments to text through llama.cpp: with a draft the same text, and choices keep to the list."""
    model = ["-m", str(tiny_model()), "--threads", "1", "--n-ctx", "256", "-p", "Once upon a", "--max-tokens", "8"]
    plain = run(*model, "--temperature", "0", "--json", "--precision", "exact")
    assert (plain.exit_code, plain.stderr) == (0, "")
    drafted = run(*model, "--temperature", "0", "--json", "--precision", "exact", "--draft", "lookup")
    one, other = (json.loads(result.stdout)["completions"][0] for result in (plain, drafted))
    assert one["text"] == other["text"]
    assert one["close_steps"] is not None
    only = run(*model, "-c", " time", "-c", " horse", "-n", "3", "--seed", "1")
    assert {line.partition("\t")[2] for line in only.stdout.splitlines()} <= {" time", " horse"}
