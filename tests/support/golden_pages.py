"""Pages as readable files: the text, then a line for each slot and value. `python tests/support/golden_pages.py` writes them anew.

The templates lie in `tests/data/pages`: `NAME.tmpl` or `NAME.hbs`, `NAME.json` with its values, and what comes out of the
model that comes with selectrie in `NAME.golden`.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import selectrie
from selectrie import Engine, Page, Template
from selectrie.results import SlotEvent

FOLDER = Path(__file__).resolve().parent.parent / "data" / "pages"
RULE = "=" * 20
NUMBER = re.compile(r"-?\d+\.\d\d\b")
"""What processors may disagree on is written with two decimals."""
CLOSE, CLOSE_SHARE = 0.03, 0.01
"""Half a unit of the last place on either side and what kernels differ in; of sums over several tokens a share of the number."""


def names() -> list[str]:
    """The pages there are, without their endings; included files are none."""
    return sorted(path.stem for path in FOLDER.glob("*.golden"))


def template(name: str) -> Template:
    """A page's template."""
    (path,) = (path for ending in (".tmpl", ".hbs") if (path := FOLDER / (name + ending)).exists())
    return Template.from_file(path)


def values(name: str) -> dict[str, object]:
    """The values it is rendered with."""
    path = FOLDER / f"{name}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def rendered(llm: Engine, name: str) -> Page:
    """The page."""
    return llm.render(template(name), values(name), rendering=selectrie.RenderParams(seed=0))


def described(page: Page) -> str:
    """The page as a golden file has it."""
    slots = [_slot(slot) for slot in page.slots]
    named = [f"{name} = {_written(page[name])}" for name in page]
    return "\n".join([page.text.removesuffix("\n"), RULE, *slots, RULE, *named]) + "\n"


def _slot(slot: SlotEvent) -> str:
    words = [slot.kind]
    probability = getattr(slot.record, "probability", None)
    if probability is not None:
        words.append(f"p {probability:.2f}")
    terminator = getattr(slot.record, "terminator", None)
    if terminator is not None:
        words.append(f"ended by {terminator}")
    return f"{slot.path} <- {slot.text!r} ({', '.join(words)}{', hidden' if slot.hidden else ''})"


def _written(value: object) -> str:
    """A value as Python writes it; log-probabilities by text with two decimals."""
    if isinstance(value, dict) and value and all(isinstance(one, float) for one in value.values()):
        return "{" + ", ".join(f"{key!r}: {one:.2f}" for key, one in value.items()) + "}"
    return repr(value)


def alike(golden: str, got: str) -> bool:
    """The same text, slots and values; numbers of two decimals as far as processors agree."""
    (text, *facts), (got_text, *got_facts) = golden.split(RULE), got.split(RULE)
    numbers = [[float(x) for x in NUMBER.findall("".join(part))] for part in (facts, got_facts)]
    skeletons = [NUMBER.sub("#", "".join(part)) for part in (facts, got_facts)]
    return (
        text == got_text
        and skeletons[0] == skeletons[1]
        and all(math.isclose(x, y, abs_tol=CLOSE, rel_tol=CLOSE_SHARE) for x, y in zip(*numbers, strict=True))
    )


if __name__ == "__main__":
    with selectrie.load(n_threads=1) as llm:
        for path in sorted(FOLDER.iterdir()):
            if path.suffix in {".tmpl", ".hbs"} and path.stem != "footer":
                text = described(rendered(llm, path.stem))
                path.with_suffix(".golden").write_text(text, encoding="utf-8")
