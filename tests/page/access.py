"""Rules of accessibility, tried in the page: axe's, and those that axe does not see (`checks.js`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_CHECKS = (Path(__file__).parent / "checks.js").read_text(encoding="utf-8")
_TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
MAX_STEPS = 400
"""Presses of Tab after which a page is taken for one without an end."""


def axe_faults(page: Any, *, with_contrast: bool = True) -> list[str]:
    """What axe finds wrong: rule, element, and why. Drawings are hidden from screen readers, and `contrast` looks at them.

    with_contrast: axe's own rule on contrast takes as long as all others, and `contrast` looks at the same texts.
    """
    from axe_playwright_python.base import AXE_SCRIPT

    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    rules = {} if with_contrast else {"color-contrast": {"enabled": False}}
    options = {"runOnly": list(_TAGS), "rules": rules, "resultTypes": ["violations"]}
    found = page.evaluate("options => axe.run({exclude: ['svg[aria-hidden=true]']}, options)", options)
    return [
        f"{rule['id']}: {' '.join(map(str, node['target']))}: {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


def faults(page: Any, check: str) -> list[str]:
    """What one of the checks finds wrong."""
    found: list[str] = page.evaluate(f"({_CHECKS}).{check}()")
    return found


def focus_faults(page: Any) -> list[str]:
    """What is wrong with the focus, while Tab goes once through the whole page."""
    page.evaluate(f"window.checks = {_CHECKS}; document.activeElement?.blur(); window.visited = new Set()")
    found: list[str] = []
    for _ in range(MAX_STEPS):
        page.keyboard.press("Tab")
        step = page.evaluate(
            """() => {
                const at = document.activeElement;
                if (at === document.body || visited.has(at)) return null;
                visited.add(at);
                return checks.focus();
            }"""
        )
        if step is None:
            return found
        found += step
    return [*found, f"Tab found no end after {MAX_STEPS} steps"]
