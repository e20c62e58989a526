"""What does a page of 12 selects cost? Side by side in one run: `python benchmarks/templates.py`.

A page of about 600 tokens with 12 slots (`questionnaire`), on the embedded model and on random weights of the 0.5B shape
(24 layers, width 896, q8_0). Every way begins with an empty cache, in `fast` precision unless it says otherwise:

- page: `Engine.render` of the template; exact: the same in `exact` precision (not on random weights, where it would go on to
  settle ties that trained ones do not have)
- again: `Engine.select` at a slot on the text so far with nothing kept before: what re-evaluating the page costs. Of the 0.5B shape every
  third slot, times 3. It must choose what the page has. Its rows come in long batches, of which each costs less on a processor
- selects: a select at each slot, with a cache that keeps what it may
- guidance: the same text and options through guidance 0.3 (`guidance.models.LlamaCpp`, its `select`, greedy) on the same file,
  under an interpreter that has it; skipped by name where none does. It decides token by token, so it may choose something
  else: `agrees` says how many slots it chooses alike

`rows_over_bound`: rows of the page over the tokens of the page, the inner nodes of
losing branches and two a slot. Seconds are medians
over interleaved repeats. `--json` prints one object of figures as the last line. With a model of your own nothing is checked.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import importlib.util
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import selectrie
from benchmarks import questionnaire
from benchmarks._common import NO_TARGETS, Figures, Targets, arguments, refuse_under_load, report
from benchmarks.guided import Guided
from benchmarks.questionnaire import QUESTIONS
from benchmarks.workload import generated_model
from selectrie.engine.sources import embedded_file

N_CTX = 1024
TARGETS = Targets(
    at_most={
        "embedded_rows_over_bound": 1,
        "random_rows_over_bound": 1,
        "embedded_page_over_guidance": 1.2,
        "random_page_over_guidance": 1.5,
    },
    at_least={"embedded_again_rows_over_page": 5, "random_again_rows_over_page": 5, "random_again_over_page": 1.5},
)
ROOT = Path(__file__).resolve().parent.parent
OWN_PLACE = ROOT / "build" / "guidance" / "bin" / "python"
"""Where `make build/guidance` installs it."""


def page(llm: selectrie.Engine, template: selectrie.Template) -> tuple[float, selectrie.Page]:
    """Render the whole page on an empty cache; return its seconds."""
    llm.trim()
    start = time.perf_counter()
    made = llm.render(template, questionnaire.values())
    return time.perf_counter() - start, made


def again(llm: selectrie.Engine, made: selectrie.Page, step: int) -> tuple[float, int]:
    """Run a select on the text so far at every `step`-th slot, the cache empty each
    time; return seconds and rows, scaled to all slots.
    """
    text, seconds, n_rows = "", 0.0, 0
    for number, question in enumerate(QUESTIONS):
        text += question.text
        if number % step == step // 2:
            llm.trim()
            spent, chosen = select(llm, text, number)
            seconds, n_rows = seconds + spent, n_rows + chosen.cost.rows
            assert chosen.text == made[question.name], f"{chosen.text!r} is not on the page"
        text += made[question.name]
    return seconds * step, n_rows * step


def selects(llm: selectrie.Engine) -> tuple[float, int]:
    """Run a select at each slot, with what the cache keeps of those before; return
    seconds and rows.
    """
    llm.trim()
    text, seconds, n_rows = "", 0.0, 0
    for number, question in enumerate(QUESTIONS):
        spent, chosen = select(llm, text + question.text, number)
        text += question.text + chosen.text
        seconds, n_rows = seconds + spent, n_rows + chosen.cost.rows
    return seconds, n_rows


def select(llm: selectrie.Engine, text: str, number: int) -> tuple[float, selectrie.Selection]:
    """Run one slot as a separate select; return its seconds and what was chosen."""
    following = questionnaire.following(number)
    start = time.perf_counter()
    chosen = llm.select(text, QUESTIONS[number].options, terminator="text", following=following)
    return time.perf_counter() - start, chosen


def guidance_at(python: Path | None) -> Path | None:
    """Return an interpreter that has guidance: the one named, this one, or that of
    `build/guidance`.
    """
    if python is not None:
        return python
    if importlib.util.find_spec("guidance") is not None:
        return Path(sys.executable)
    return OWN_PLACE if OWN_PLACE.exists() else None


def rows_bound(made: selectrie.Page, n_tokens: int) -> int:
    """Return the rows that a page may take: its tokens, inner nodes of the branches
    that lost, and two a slot.
    """
    n_losing = 0
    for question in QUESTIONS:
        selection = made.selections[question.name]
        paths = [tuple(token.id for token in choice.tokens) for choice in selection.choices]
        winner = paths[selection.index]
        inner = {path[:depth] for path in paths for depth in range(1, len(path))}
        n_losing += len(inner - {winner[:depth] for depth in range(1, len(winner) + 1)})
    return n_tokens + n_losing + 2 * len(QUESTIONS)


@dataclass(slots=True)
class Bench:
    """One model, loaded by each side, and its figures."""

    llm: selectrie.Engine
    exact: selectrie.Engine | None
    theirs: Guided | None
    step: int
    figures: Figures = field(default_factory=Figures)
    counts: dict[str, int] = field(default_factory=dict)

    def run(self, template: selectrie.Template) -> None:
        """Run every way once; return what each cost."""
        seconds, made = page(self.llm, template)
        self._note("page", seconds, made.cost.rows)
        self.figures.add("page_outside_decode", seconds - made.cost.decode_s)
        n_tokens = len(self.llm.tokens(made.text, ["."]).prompt)
        self.counts |= {
            "page_tokens": n_tokens,
            "page_calls": made.cost.model_calls,
            "rows_bound": rows_bound(made, n_tokens),
        }
        if self.exact is not None:
            seconds, same = page(self.exact, template)
            self._note("exact", seconds, same.cost.rows)
            assert same.text == made.text, "the page depends on the precision"
        self._note("again", *again(self.llm, made, self.step))
        self._note("selects", *selects(self.llm))
        if self.theirs is not None:
            found = self.theirs.fill([(q.text, q.name, q.options) for q in QUESTIONS], questionnaire.END)
            self._note("guidance", found["seconds"], found["rows"])
            pairs = zip(QUESTIONS, found["chosen"], strict=True)
            self.counts |= {
                "guidance_calls": found["calls"],
                "guidance_agrees": sum(text == made[question.name] for question, text in pairs),
            }

    def _note(self, name: str, seconds: float, n_rows: int) -> None:
        self.figures.add(name, seconds)
        self.counts[f"{name}_rows"] = n_rows


def measure(path: Path, python: Path | None, repeats: int, threads: int, *, is_random: bool) -> dict[str, Any]:
    """Return all figures of one model."""
    template, facts = selectrie.Template(questionnaire.template()), dict[str, Any](model=path.name)
    with ExitStack() as stack:

        def loaded(precision: str) -> selectrie.Engine:
            return stack.enter_context(selectrie.load(path, n_ctx=N_CTX, n_threads=threads, precision=precision))

        theirs = None
        if python is not None:
            theirs = stack.enter_context(closing(Guided(python)))
            facts["guidance"] = theirs.load(path, n_ctx=N_CTX, n_threads=threads)
        bench = Bench(loaded("fast"), None if is_random else loaded("exact"), theirs, step=3 if is_random else 1)
        for llm in filter(None, (bench.llm, bench.exact)):  # the first call reads the weights and checks the model
            llm.select(QUESTIONS[0].text, QUESTIONS[0].options)
        if theirs is not None:
            theirs.fill([(QUESTIONS[0].text, "first", QUESTIONS[0].options)], "")
        for _ in range(repeats):
            bench.run(template)
    seconds = {f"{name}_s": bench.figures.median(name) for name in bench.figures.seconds}
    return facts | bench.counts | seconds | ratios(bench.figures, bench.counts)


def ratios(figures: Figures, counts: dict[str, int]) -> dict[str, float]:
    """Compare each way with the page, in the same run."""
    at = figures.median
    found = {
        "rows_over_bound": counts["page_rows"] / counts["rows_bound"],
        "again_rows_over_page": counts["again_rows"] / counts["page_rows"],
        "again_over_page": at("again") / at("page"),
        "selects_over_page": at("selects") / at("page"),
    }
    if "exact" in figures.seconds:
        found["exact_over_page"] = at("exact") / at("page")
    if "guidance" in figures.seconds:
        found["page_over_guidance"] = at("page") / at("guidance")
    return found


def main() -> int:
    """Run the script; return its exit code."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument(
        "--model", type=Path, help="a GGUF file (default: the embedded model, and random weights in build/)"
    )
    parser.add_argument(
        "--guidance", type=Path, help="an interpreter that has guidance (default: this, or build/guidance)"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    models = {"model": options.model}
    if options.model is None:
        models = {"embedded": embedded_file(), "random": generated_model("0.5b", "q8_0")}
    python = guidance_at(options.guidance)
    refuse_under_load(allowed=options.under_load)
    figures: dict[str, Any] = {"threads": options.threads, "repeats": options.repeats}
    for name, path in models.items():
        found = measure(path, python, options.repeats, options.threads, is_random=name == "random")
        figures |= {f"{name}_{figure}": value for figure, value in found.items()}
    targets = NO_TARGETS if options.model else TARGETS
    if python is None:
        figures["guidance"] = (
            f"skipped: it is not installed; `make {OWN_PLACE.parent.parent.relative_to(ROOT)}` installs it there"
        )
        targets = targets.without("guidance")
    return report("templates", figures, targets, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
