"""Make the pictures of the server's page in `docs/pictures`: each tab with the answer to its example, and one in the dark.

The server runs the embedded model. `python tools/page_screenshots.py [FOLDER] [--tab NAME …]`
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from page_browser import launched, served

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
WIDTH, HEIGHT = 1100, 760
MOST_HEIGHT = 1300
"""Pixels after which a picture is cut."""
ANSWERED = ".answer:is([data-state=done], [data-state=tie], [data-state=low-mass])"
IN_THE_DARK = "Select"


def take(page: Any, tab: str, path: Path, scheme: str) -> None:
    """Write the picture of one tab, after its example was run on this server."""
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.get_by_role("tab", name=tab, exact=True).click()
    panel = page.get_by_role("tabpanel")
    panel.get_by_role("button", name="Run", exact=True).click()
    panel.locator(ANSWERED).wait_for()
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur()")
    height = min(MOST_HEIGHT, page.evaluate("document.documentElement.scrollHeight"))
    page.screenshot(path=path, full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})


def main() -> int:
    """Make them; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--tab", action="append", help="only this one; repeatable")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with served() as url, launched() as browser:
        page = browser.new_page(base_url=url, viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=1)
        page.goto("/")
        tabs = page.get_by_role("tab").all_inner_texts()
        for tab in options.tab or tabs:
            for scheme in ("light", "dark") if tab == IN_THE_DARK else ("light",):
                path = options.folder / f"page-{tab.lower()}{'-dark' if scheme == 'dark' else ''}.png"
                take(page, tab, path, scheme)
                print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
