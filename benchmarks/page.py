"""The server's page in a real browser: how soon an answer is on screen, and how long a key takes.

All figures come from one run of one browser on this machine. An answer is on screen when
it was painted. The first one is that of the example, which comes with the page; after Run
the time is compared with that of the same request sent by a plain `fetch` of the same
browser. A key takes the time from its event to the end of the frame that shows it, beside
the same key in a text area with the same text on an empty page.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
sys.path.append(os.path.join(sys.path[0], "tools"))  # noqa: PTH118

from statistics import median, quantiles
from typing import Any

from benchmarks._common import Targets, arguments, refuse_under_load, report
from page_browser import launched, served

CONTENTS = {
    "short": ("prompt", "The capital of France is"),
    "megabyte": ("prompt", "word " * 200_000),
    "choices": ("choices", "\n".join(f" choice {number}" for number in range(10_000))),
}
"""What a field has while keys are pressed in it: the field, and its text."""
TARGETS = Targets(
    at_most={
        "first_answer_ms": 1000.0,
        "run_over_fetch": 2.0,
        "key_short_p95_ms": 50.0,
        **{f"key_{name}_over_bare": 2.0 for name in ("megabyte", "choices")},
    }
)
"""Bounds: below a second a page seems to open at once, below 50 ms a key to be shown at
once; and what the page may add to the browser's own work."""
PAINTED = "new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
KEYS = """n => {
    window.keys = [];
    addEventListener('keydown', () => {
        const began = performance.now();
        requestAnimationFrame(() => setTimeout(() => keys.push(performance.now() - began)));
    }, {capture: true});
}"""
PASTE = "(field, text) => { field.value = text; field.dispatchEvent(new Event('input', {bubbles: true})); }"
ANSWERED = ".answer:is([data-state=done], [data-state=tie], [data-state=low-mass])"


def first_answer_ms(browser: Any, url: str) -> float:
    """Return the milliseconds from the navigation to the example's answer, in a browser that has nothing of the page."""
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script(
        f"""addEventListener('DOMContentLoaded', () => {{
            const look = () => {{
                if (!document.querySelector('.answer data[value]')) return;
                watch.disconnect();
                {PAINTED}.then(() => {{ window.shown_ms = performance.now(); }});
            }};
            const watch = new MutationObserver(look);
            watch.observe(document, {{subtree: true, childList: true}});
            look();
        }})"""
    )
    page.goto(url)
    page.wait_for_function("() => window.shown_ms")
    found: float = page.evaluate("shown_ms")
    context.close()
    return found


def run_and_fetch_ms(page: Any) -> tuple[float, float]:
    """Return the milliseconds from Run to the painted answer, and those of the same request without the page."""
    page.evaluate(
        f"""() => {{
            const kept = window.kept ??= window.fetch.bind(window);
            window.fetch = (...words) => {{ window.sent = words; return kept(...words); }};
            const panel = document.querySelector('[role=tabpanel]:not([hidden])');
            const run = [...panel.querySelectorAll('button')].find(one => one.textContent.trim() === 'Run');
            const began = performance.now();
            window.whole = new Promise(done => {{
                new MutationObserver((_, watch) => {{
                    if (!panel.querySelector('{ANSWERED}')) return;
                    watch.disconnect();
                    {PAINTED}.then(() => done(performance.now() - began));
                }}).observe(panel, {{subtree: true, childList: true, attributes: true}});
            }});
            run.click();
        }}"""
    )
    whole = page.evaluate("window.whole")
    plain = page.evaluate(
        """async () => {
            const [url, {signal, ...words}] = window.sent, began = performance.now();
            await (await kept(url, words)).text();
            return performance.now() - began;
        }"""
    )
    return whole, plain


def key_ms(page: Any, field: Any, n_keys: int) -> list[float]:
    """Return the milliseconds of each of some keys that are pressed in a field."""
    field.focus()
    page.keyboard.press("Control+End")
    page.evaluate("window.keys = []")
    for number in range(n_keys):
        page.keyboard.press("abcdefgh "[number % 9])
        page.wait_for_function("n => window.keys.length > n", arg=number)
    found: list[float] = page.evaluate("window.keys")
    return found


def main() -> int:
    """Run and report; return the exit code."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--keys", type=int, default=60)
    options = parser.parse_args()
    refuse_under_load(allowed=options.under_load)
    with served() as url, launched() as browser:
        first = [first_answer_ms(browser, url) for _ in range(1 + options.repeats)][1:]
        bare_page = browser.new_page()
        bare_page.goto(f"{url}/health")
        bare_page.evaluate("document.body.replaceChildren(document.createElement('textarea'))")
        bare_page.evaluate(KEYS)
        page = browser.new_page()
        page.goto(url)
        page.evaluate(KEYS)
        page.get_by_role("tab", name="Select", exact=True).click()
        panel = page.get_by_role("tabpanel")
        pairs = [run_and_fetch_ms(page) for _ in range(1 + options.repeats)][1:]
        keys = {}
        for name, (field, text) in CONTENTS.items():
            for place, control in ((bare_page, "textarea"), (panel, f"[name={field}]")):
                place.locator(control).evaluate(PASTE, text)
                on = bare_page if place is bare_page else page
                on.bring_to_front()
                keys[name, place is panel] = key_ms(on, place.locator(control), options.keys)
    figures = {
        "first_answer_ms": median(first),
        "run_ms": median(whole for whole, _ in pairs),
        "fetch_ms": median(plain for _, plain in pairs),
        "run_over_fetch": median(whole / plain for whole, plain in pairs),
    }
    for name in CONTENTS:
        own, bare = keys[name, True], keys[name, False]
        figures |= {f"key_{name}_ms": median(own), f"key_{name}_p95_ms": quantiles(own, n=20)[-1]}
        figures[f"key_{name}_over_bare"] = median(own) / median(bare)
    return report("page", figures, TARGETS, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
