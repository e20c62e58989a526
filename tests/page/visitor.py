"""Somebody who uses the page in a browser: what they do, what they see, and what went wrong meanwhile."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

INIT_SCRIPT = """
addEventListener('securitypolicyviolation', event => console.error(
    `CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber} ${event.sample}`));
window.n_settled = 0;
new MutationObserver(changes => {
    n_settled += changes.filter(one => !['running', 'streaming'].includes(one.target.dataset.state)).length;
}).observe(document, {subtree: true, attributeFilter: ['data-state']});
"""
"""Runs before every page: a violation of the page's policy becomes an error of the
console, and the times are counted that an answer came to a state that lasts."""
LISTEN = """() => {
    window.said = [];
    const status = document.getElementById('status');
    new MutationObserver(() => said.push(status.textContent)).observe(status, {childList: true, characterData: true, subtree: true});
}"""
"""A function of JavaScript, after which `said` has what screen readers are told."""
_FAILED_LOAD = "Failed to load resource"


class Visitor:
    """A page of the browser.

    Attributes:
        page: Playwright's page.
        problems: Errors of console and scripts, dialogs, and requests to other servers. A test that ends with one fails.
        requests: URLs of all requests.
    """

    def __init__(self, page: Any, url: str) -> None:
        self.page, self._url = page, url
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", self._note)
        page.on("dialog", self._refuse)

    @property
    def panel(self) -> Any:
        """The panel of the chosen tab."""
        return self.page.locator("[role=tabpanel]:not([hidden])")

    @property
    def answer(self) -> Any:
        """The answer of the chosen tab, below what is said about the request."""
        return self.panel.locator(".answer")

    def ready(self) -> Visitor:
        """Wait until the page is put together, with its example or what a link has."""
        self.page.evaluate("import('/page/main.js').then(main => main.page).then(() => null)")
        return self

    def freeze(self) -> None:
        """Stop the time of the page: from now on it passes by `page.clock.run_for` alone."""
        self.page.clock.install(time=0)
        self.page.clock.pause_at(1_000)

    def choose(self, tab: str) -> Visitor:
        """Choose a tab, and wait until it can be run."""
        self.page.get_by_role("tab", name=tab, exact=True).click()
        self.panel.get_by_role("button", name="Run", exact=True).wait_for()
        return self

    def field(self, name: str) -> Any:
        """A field of the chosen tab, by the path of what it is in the body."""
        return self.panel.locator(f"[name='{name}']")

    def fill(self, **fields: str) -> Visitor:
        """Fill fields of the chosen tab."""
        for name, text in fields.items():
            self.field(name).fill(text)
        return self

    def paste(self, name: str, text: str) -> Visitor:
        """Put a large text into a field at once: typing it takes the browser long, whatever the page does."""
        self.field(name).evaluate(
            "(field, text) => { field.value = text; field.dispatchEvent(new Event('input', {bubbles: true})); }", text
        )
        return self

    def press_run(self) -> None:
        """Press Run by the keyboard, and look no further. Under a mouse the button may move, as choices are shown below their field."""
        self.panel.get_by_role("button", name="Run", exact=True).press("Enter")

    def run(self) -> str:
        """Press Run, wait for the end, and return the state to which it came."""
        before = self.page.evaluate("n_settled")
        self.press_run()
        return self.settled(before)

    def settled(self, before: int) -> str:
        """The state to which an answer came, after it came to so many."""
        self.page.wait_for_function("n => n_settled > n", arg=before)
        return self.state

    @property
    def state(self) -> str:
        """The state of the chosen tab's answer."""
        found: str = self.answer.get_attribute("data-state")
        return found

    def wait_for(self, *states: str) -> None:
        """Wait until the answer of the chosen tab is in one of these states."""
        self.panel.locator(", ".join(f".answer[data-state={one}]" for one in states)).wait_for()

    def announced(self, word: str) -> None:
        """Wait until the page has let a screen reader say something with a word."""
        self.page.locator("#status").filter(has_text=word).wait_for(state="attached")

    def _hear(self, message: Any) -> None:
        if message.type not in ("error", "warning"):
            return
        # What the API refuses is part of the tests; a file of the page that is not there is a fault.
        if message.text.startswith(_FAILED_LOAD) and urlsplit(message.location["url"]).path.startswith("/v1/"):
            return
        self.problems.append(f"{message.type}: {message.text} ({message.location['url']})")

    def _note(self, request: Any) -> None:
        self.requests.append(request.url)
        if not request.url.startswith((f"{self._url}/", f"blob:{self._url}/")):
            self.problems.append(f"a request to {request.url}")

    def _refuse(self, dialog: Any) -> None:
        self.problems.append(f"a dialog: {dialog.message}")
        dialog.dismiss()
