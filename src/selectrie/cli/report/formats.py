"""The formats of results for programs: one JSON object, or tab-separated rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from selectrie.core.output import json_escaped
from selectrie.results import ChoiceScore

TSV_COLUMNS = ("rank", "index", "text", "probability", "logp", "score", "logp_upper")


def to_json(fields: Mapping[str, object]) -> str:
    r"""Return one JSON object on one line, in UTF-8.

    Control characters and direction marks are written `\uXXXX`. NaN and infinities
    raise `InternalError`, because JSON cannot hold them.
    """
    return json_escaped(json.dumps(fields, ensure_ascii=False, allow_nan=False))


def to_tsv(ranked: Iterable[ChoiceScore]) -> str:
    r"""Return a header line and a line for each choice, best first.

    Numbers are written in full. A pruned choice has empty cells except for its bound.
    In texts, backslash, tab, CR and LF are written `\\`, `\t`, `\r`, `\n`.
    """
    lines = ["\t".join(TSV_COLUMNS)]
    for rank, choice in enumerate(ranked, start=1):
        numbers = (choice.probability, choice.logp, choice.score, choice.logp_upper)
        cells = ("" if value is None else repr(value) for value in numbers)
        lines.append("\t".join((str(rank), str(choice.index), escaped(choice.text), *cells)))
    return "\n".join(lines)


def escaped(text: str) -> str:
    r"""Return the text on one line, with backslash, tab, CR and LF escaped.

    They are written `\\`, `\t`, `\r`, `\n`.
    """
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\r", "\\r").replace("\n", "\\n")
