"""Are values of a type extracted as fast, and as well, as by constrained greedy decoding? `python benchmarks/extract.py`.

40 messages of customers and a ticket of four fields (90 values), on a real file of Qwen2.5-Coder-0.5B-Instruct in the folder
that SELECTRIE_REAL_MODELS names. The texts and the right answers are `benchmarks/data/tickets.jsonl`; they were written
before anything was measured, and the prompt was chosen on five others. Each side has one thread and the same prompt, whose
instructions are evaluated before the clock starts:

- greedy: `Llama.create_chat_completion` of llama-cpp-python, one text after another, under the schema of the ticket
  (`response_format`), at temperature 0
- value: `Engine.extract_many` of all texts, the best value alone; and `Engine.extract` of each (`one by one`)
- marginals: `Engine.extract_many` of all texts, with the probabilities of all fields

The rows that any proof by the probabilities of prefixes needs are those of the nodes that are at least as probable as the
best value. `floor_over_greedy` is the time of as many rows, and those of the prompts, in bare calls of 64 rows.

Open fields: 40 invented texts with the name, amount and date of a payment (`benchmarks/data/payments.jsonl`), also under one
schema for both sides. Nothing is listed, so `extract` searches with a beam of width 1. `open_default_over_greedy` is the
time of one text after another with the default options: a beam of 4 and the other values of fields.

Right texts have all fields right. Brier scores are means over texts and fields of the squared distance to the right
answer: of the marginals, and of greedy's answer taken as certain.

With `--under-load` processor time is measured in place of wall time.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from llama_cpp import Llama

import selectrie
from benchmarks._common import Targets, arguments, refuse_under_load, report
from selectrie.decide.extraction import ExtractedType, extracted_type

MODEL = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
DATA = Path(__file__).with_name("data") / "tickets.jsonl"
PAYMENTS = DATA.with_name("payments.jsonl")
PAYMENT = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "the customer"},
        "amount": {"type": "number", "description": "euros"},
        "date": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$", "description": "YYYY-MM-DD"},
    },
    "required": ["name", "amount", "date"],
    "additionalProperties": False,
}
N_CONTEXT = 2048
TARGETS = Targets(
    at_most={
        "value_over_greedy": 0.5,
        "one_by_one_over_greedy": 1.0,
        "marginals_over_value": 2.0,
        "brier_over_greedy": 1.0,
    },
    at_least={"valid": 40, "right_texts_minus_greedy": -2, "open_valid": 40, "open_right_texts_minus_greedy": -2},
)


def described(text: str) -> Any:
    """Return a field of a data class with a description."""
    return field(metadata={"description": text})


@dataclass
class Ticket:
    """What a message of a customer is about."""

    team: Literal["delivery", "returns", "billing", "account", "technical"] = described(
        "who should answer: delivery (parcels), returns (sending things back), billing (charges, invoices), "
        "account (login, personal data) or technical (faults)"
    )
    urgency: Literal["low", "medium", "high"] = described(
        "low if there is no hurry, medium within days, high if it must be now"
    )
    sentiment: Literal["positive", "neutral", "negative"] = described("how the customer feels")
    refund: bool = described("whether the customer asks for money back")


def spent(work: Callable[[], Any], clock: Callable[[], float]) -> tuple[float, Any]:
    """Return the seconds that some work takes, and its result."""
    start = clock()
    result = work()
    return clock() - start, result


def right(answers: list[dict[str, Any]], gold: list[dict[str, Any]]) -> tuple[int, int]:
    """Return the number of texts with all fields right, and of fields."""
    fields = [[answer[name] == value for name, value in one.items()] for answer, one in zip(answers, gold, strict=True)]
    return sum(map(all, fields)), sum(map(sum, fields))


def brier(shares: list[dict[str, dict[Any, float]]], gold: list[dict[str, Any]]) -> float:
    """Return the mean over texts and fields of the squared distance to the right answer."""
    terms = [
        sum((share - (value == one[name])) ** 2 for value, share in of_field.items())
        for marginals, one in zip(shares, gold, strict=True)
        for name, of_field in marginals.items()
    ]
    return sum(terms) / len(terms)


def read(path: Path, n: int) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the first n texts of a file, and their right answers."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()][:n]
    return [row["text"] for row in rows], [row["gold"] for row in rows]


def by_llama(
    llama: Llama, kind: ExtractedType, texts: list[str], clock: Callable[[], float]
) -> tuple[float, list[dict[str, Any]]]:
    """Return the seconds of constrained greedy decoding, and its answers."""
    form = {"type": "json_object", "schema": dict(kind.schema)}

    def greedy(text: str) -> dict[str, Any]:
        messages = [{"role": "user", "content": f"{kind.instructions('')}\n\nText: {text}"}]
        made: Any = llama.create_chat_completion(messages, response_format=form, temperature=0.0, max_tokens=64)  # type: ignore[arg-type]
        answer: dict[str, Any] = json.loads(made["choices"][0]["message"]["content"])
        return answer

    greedy("Hello.")
    return spent(lambda: [greedy(text) for text in texts], clock)


def bare_row_s(path: Path, clock: Callable[[], float]) -> float:
    """Return the seconds of a row with logits in bare calls of 64 rows, after 128 others."""
    llama = Llama(str(path), n_ctx=512, n_batch=64, logits_all=True, n_threads=1, n_threads_batch=1, verbose=False)
    tokens = list(range(1000, 1064))
    llama.eval(tokens * 2)
    seconds, _ = spent(lambda: llama.eval(tokens * 4), clock)
    llama.close()
    return float(seconds) / 256


def n_needed(found: selectrie.Extraction[Any]) -> int:
    """Return the number of nodes that are at least as probable as the best value."""
    table: Any = found.selection.choices  # type: ignore[union-attr]  # a listed type
    prefix = table.trie.accumulate(np.append(0.0, table.edge_logp[1:]))
    return int(np.count_nonzero(prefix[1:] >= table.logp[found.selection.index] - 1e-9))  # type: ignore[union-attr]


def measured_open(llm: selectrie.Engine, llama: Llama, clock: Callable[[], float], n: int) -> dict[str, Any]:
    """Return the figures of open fields for the first n texts."""
    texts, gold = read(PAYMENTS, n)
    kind = extracted_type(PAYMENT)
    greedy_s, by_greedy = by_llama(llama, kind, texts, clock)
    llm.trim()
    llm.extract("Hello.", kind, marginals=False)
    open_s, found = spent(lambda: llm.extract_many(texts, kind, marginals=False), clock)
    llm.trim()
    llm.extract("Hello.", kind, marginals=False)
    default_s, _ = spent(lambda: [llm.extract(text, kind) for text in texts], clock)
    (ours, our_fields), (theirs, their_fields) = right([one.value for one in found], gold), right(by_greedy, gold)
    return {
        "open_texts": len(texts),
        "open_valid": sum(kind.grammar.accepts(one.text).verdict == "yes" for one in found),
        "open_greedy_s_per_text": greedy_s / len(texts),
        "open_over_greedy": open_s / greedy_s,
        "open_default_over_greedy": default_s / greedy_s,
        "open_rows": sum(one.cost.rows for one in found) / len(texts),
        "open_right_texts": ours,
        "open_right_texts_greedy": theirs,
        "open_right_texts_minus_greedy": ours - theirs,
        "open_right_fields": our_fields,
        "open_right_fields_greedy": their_fields,
    }


def measured(path: Path, clock: Callable[[], float], n: int) -> dict[str, Any]:
    """Return the figures of all ways for the first n texts."""
    texts, gold = read(DATA, n)
    kind = extracted_type(Ticket)
    llama = Llama(str(path), n_ctx=N_CONTEXT, n_threads=1, n_threads_batch=1, verbose=False)
    greedy_s, by_greedy = by_llama(llama, kind, texts, clock)
    with selectrie.load(path, n_threads=1) as llm:

        def begin() -> None:
            llm.trim()
            llm.extract("Hello.", Ticket, marginals=False)

        begin()
        value_s, found = spent(lambda: llm.extract_many(texts, Ticket, marginals=False), clock)
        begin()
        single_s, alone = spent(lambda: [llm.extract(text, Ticket, marginals=False) for text in texts], clock)
        begin()
        marginals_s, whole = spent(lambda: llm.extract_many(texts, Ticket), clock)
        of_open = measured_open(llm, llama, clock, n)
    llama.close()
    n_nodes = [one.selection.certificate.nodes_evaluated - 1 for one in found if one.selection is not None]
    n_least = sum(one.cost.rows - nodes + n_needed(one) for one, nodes in zip(found, n_nodes, strict=True))
    answers = [asdict(one.value) for one in found]
    texts_right, fields_right = right(answers, gold)
    greedy_texts, greedy_fields = right(by_greedy, gold)
    values = {name: column.keys for name, column in kind.columns.items()}
    certain = [{name: {v: float(v == one[name]) for v in of} for name, of in values.items()} for one in by_greedy]
    own, other = brier([{k: dict(m) for k, m in one.marginals.items()} for one in whole], gold), brier(certain, gold)
    return {
        "texts": len(texts),
        "valid": sum(asdict(one.value) == json.loads(one.text) for one in found),
        "greedy_s": greedy_s,
        "value_s": value_s,
        "one_by_one_s": single_s,
        "marginals_s": marginals_s,
        "value_over_greedy": value_s / greedy_s,
        "one_by_one_over_greedy": single_s / greedy_s,
        "marginals_over_value": marginals_s / value_s,
        "rows_value": sum(one.cost.rows for one in found) / len(texts),
        "rows_needed": n_least / len(texts),
        "floor_over_greedy": n_least * bare_row_s(path, clock) / greedy_s,
        "rows_marginals": sum(one.cost.rows for one in whole) / len(texts),
        "proved": sum(one.is_proved for one in found),
        "same_one_by_one": sum(one.text == other.text for one, other in zip(found, alone, strict=True)),
        "coverage": sum(one.coverage for one in whole) / len(texts),
        "right_texts": texts_right,
        "right_texts_greedy": greedy_texts,
        "right_texts_minus_greedy": texts_right - greedy_texts,
        "right_fields": fields_right,
        "right_fields_greedy": greedy_fields,
        "brier": own,
        "brier_greedy": other,
        "brier_over_greedy": own / other,
        **of_open,
    }


def main() -> int:
    """Measure, and print the report."""
    parser = arguments(__doc__.partition("\n")[0])
    parser.add_argument("--texts", type=int, default=40, help="number of texts")
    options = parser.parse_args()
    folder = os.environ.get("SELECTRIE_REAL_MODELS", "")
    path = Path(folder) / MODEL
    if not folder or not path.is_file():
        sys.stderr.write(f"no figures: SELECTRIE_REAL_MODELS names no folder with {MODEL}\n")
        return 1
    refuse_under_load(allowed=options.under_load)
    clock = time.process_time if options.under_load else time.perf_counter
    figures = measured(path, clock, options.texts)
    figures["clock"] = "processor time" if options.under_load else "wall time"
    return report("extract", figures, TARGETS, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
