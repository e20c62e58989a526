"""Results as text for programs: one JSON object, or tab-separated rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from selectrie.core.output import json_escaped
from selectrie.results import ChoiceScore

TSV_COLUMNS = ("rank", "index", "text", "probability", "logp", "score", "logp_upper")


def to_json(fields: Mapping[str, object]) -> str:
    r"""One object on one line, UTF-8 as it stands, but for controls and direction marks, which are `\uXXXX`.

    Strict: a number JSON cannot hold is an error of ours, not `NaN`.
    """
    return json_escaped(json.dumps(fields, ensure_ascii=False, allow_nan=False))


def to_tsv(ranked: Iterable[ChoiceScore]) -> str:
    r"""A head line and a line per choice, best first; numbers in full; cells of pruned choices are empty but for the bound.

    In texts backslash, tab, CR and LF are written `\\`, `\t`, `\r`, `\n`.
    """
    lines = ["\t".join(TSV_COLUMNS)]
    for rank, choice in enumerate(ranked, start=1):
        numbers = (choice.probability, choice.logp, choice.score, choice.logp_upper)
        cells = ("" if value is None else repr(value) for value in numbers)
        lines.append("\t".join((str(rank), str(choice.index), escaped(choice.text), *cells)))
    return "\n".join(lines)


def escaped(text: str) -> str:
    r"""The text on one line: backslash, tab, CR and LF as `\\`, `\t`, `\r`, `\n`."""
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\r", "\\r").replace("\n", "\\n")
