"""Writes the answered example with which the server's page opens.

    python tools/page_example.py          # writes src/selectrie/server/page/example.json
                                          # and the same as a picture, docs/strip.svg
    python tools/page_example.py --check  # compares the file with the model's answer

The embedded model answers a request over HTTP's own code. Times are left out, so that the
file changes only if the answer does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import httpx2

import selectrie
from selectrie.results.drawing.shapes import Drawing, Shape, to_svg
from selectrie.server import app

PATH = Path(selectrie.__file__).parent / "server" / "page" / "example.json"
PICTURE = Path(__file__).resolve().parent.parent / "docs" / "strip.svg"
ENDPOINT = "/v1/select"
_IGNORED = frozenset(
    {"attributes", "build", "processor", "version", "moved", "rows_compared", "rows_padded", "near_margin"}
)
_NUMBER = re.compile(r" ?[<>]? ?\d[\d.]*")
REQUEST = {
    "prompt": "Q: Which city in the United States comes to mind? A:",
    "choices": [" Chicago", " New Zealand"],
    "drawing": True,
}


def make_example() -> dict[str, Any]:
    """Return path, body and answer of the example, answered now."""
    return {"path": ENDPOINT, "body": REQUEST, "answer": asyncio.run(_ask())}


async def _ask() -> dict[str, Any]:
    with selectrie.load() as engine:
        transport = httpx2.ASGITransport(app=app(engine))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            reply = await client.post(ENDPOINT, json=REQUEST)
    reply.raise_for_status()
    answer: dict[str, Any] = reply.json()
    answer["cost"]["decode_s"] = 0.0
    answer["drawing"]["sentences"].pop("work")
    return answer


def shape_of(data: dict[str, Any]) -> Shape:
    """Return a shape of an answer."""
    return Shape(data["tag"], data["attributes"], data["text"], tuple(map(shape_of, data["children"])))


def differences(written: object, now: object, tolerance: float, where: str = "") -> list[str]:
    """Return where two values differ: numbers by more than `tolerance`, texts by their words.

    What depends on the machine and not on the model is ignored, and so are coordinates.
    """
    if where.rpartition(".")[2] in _IGNORED:
        return []
    if isinstance(written, dict) and isinstance(now, dict):
        pairs = [(written.get(name), now.get(name), f"{where}.{name}") for name in sorted({*written, *now})]
        return [one for a, b, name in pairs for one in differences(a, b, tolerance, name)]
    if isinstance(written, list) and isinstance(now, list) and len(written) == len(now):
        both = enumerate(zip(written, now, strict=True))
        return [one for at, (a, b) in both for one in differences(a, b, tolerance, f"{where}[{at}]")]
    if isinstance(written, int | float) and isinstance(now, int | float) and abs(written - now) <= tolerance:
        return []
    if isinstance(written, str) and isinstance(now, str):
        written, now = (_NUMBER.sub("#", one) for one in (written, now))
    return [] if written == now else [f"{where}: {written!r} is written, {now!r} is answered"]


def main() -> int:
    """Write or check the file; return 1 if it differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    example = make_example()
    if not parser.parse_args().check:
        PATH.parent.mkdir(exist_ok=True)
        strip = example["answer"]["drawing"]["strip"]
        drawing = Drawing(strip["width"], strip["height"], strip["title"], tuple(map(shape_of, strip["shapes"])))
        PICTURE.write_text(to_svg(drawing) + "\n", encoding="utf-8")
        PATH.write_text(json.dumps(example, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
        return 0
    found = differences(json.loads(PATH.read_text(encoding="utf-8")), example, 0.05)
    print("\n".join(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
