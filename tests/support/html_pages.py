"""What the tests of HTML pages share: a reader, and what holds for each page."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

EVIL = "<script>alert(1)</script>\"'&\x1b[2J\u202e\ud800"
VOID = {"meta"}


class Reader(HTMLParser):
    """The elements of a page, their attributes, and its words; fails where tags do not match."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.words += data


def assert_fetches_nothing(page: str) -> None:
    """No script, no style sheet, no picture, no font, no address of anything."""
    elements = Reader(page).elements
    assert not {name for name, _ in elements} & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "base",
        "a",
        "use",
        "image",
    }
    attributes = {name for _, own in elements for name in own}
    assert not {name for name in attributes if name.startswith("on") or name in ("src", "href", "xlink:href")}
    assert not re.search(r"https?:|url\(|@import|javascript:", page.replace('xmlns="http://www.w3.org/2000/svg"', ""))


def assert_pictures_have_words(page: str) -> None:
    """Each drawing is well formed and hidden from screen readers, and beside it is the same as a list; what scrolls is reached by keys."""
    assert not re.search(r'<(?:figure|div class="wide")>', page)
    assert '<th scope="col"></th>' not in page
    pictures = re.findall(r"<svg (?!x=).*?</svg><details>.*?</details>", page, re.DOTALL)
    assert len(pictures) == page.count('class="sel"') > 0
    for picture in pictures:
        drawing, outline = ET.fromstring(f"<div>{picture}</div>")  # noqa: S314 - our own page
        assert drawing.get("aria-hidden") == "true"
        assert outline[0].text
        said = {one.text for one in outline.iter("li")}
        assert said
        assert {one.text for one in drawing.iterfind("{*}g/{*}title")} <= said
    assert '<html lang="en">' in page
    assert len(re.findall(r"<title>", page.split("<style>", maxsplit=1)[0])) == 1
