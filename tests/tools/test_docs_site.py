"""The documentation as a site: it builds without a warning, and opens without a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
for name in ("sphinx", "furo", "myst_parser", "sklearn", "fastapi"):
    pytest.importorskip(name, reason="needs the dependency group 'docs'")


class Loads(HTMLParser):
    """Collects the addresses that a browser loads when it opens a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.found += [values[name] for name in ("src", "srcset", "poster", "data") if values.get(name)]
        if tag == "link":
            self.found.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built by the commands of `make docs`."""
    folder = tmp_path_factory.mktemp("docs")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    options = re.search(r"^SPHINX = \S+ (.*)", makefile, re.MULTILINE)[1].replace("build/", f"{folder}/").split()
    for builder in ("html", "coverage"):
        command = [sys.executable, "-m", "sphinx", *options, "-b", builder, ".", folder / builder]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr[-4000:]
    return folder / "html"


def test_the_site_opens_at_its_front_page(site):
    """The folder's own page leads to the front page, which has the three doors."""
    assert "url=docs/index.html" in (site / "index.html").read_text(encoding="utf-8")
    front = (site / "docs" / "index.html").read_text(encoding="utf-8")
    assert all(f'href="{page}.html' in front for page in ("decide", "grammars", "evaluation"))


def test_no_page_asks_another_host(site):
    """What pages, style sheets and scripts load lies in the folder: the site works with the network blocked."""
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        loads = Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert [one for one in loads.found if re.match(r"(\w+:)?//", one)] == [], page
    for sheet in site.rglob("*.css"):
        asked = re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//\S*", sheet.read_text(encoding="utf-8"))
        assert asked == [], sheet
