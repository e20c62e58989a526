"""Somebody who uses the page in a browser: what they do, what they see, and what went wrong meanwhile."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from tests.support.serving import PATIENCE_S

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
    const status = document.querySelector('[role=status]');
    new MutationObserver(() => said.push(status.textContent)).observe(status, {childList: true, characterData: true, subtree: true});
}"""
"""A function of JavaScript, after which `said` has what screen readers are told."""
_FAILED_LOAD = "Failed to load resource"
_MEDIA = {"color_scheme": "light", "reduced_motion": "no-preference", "forced_colors": "none"}
_EMPTY = "/health"
"""A path of the server without a script."""
_FORGET = """async () => {
    sessionStorage.clear();
    const databases = (await indexedDB.databases()).map(one => one.name);
    return [...Object.keys(localStorage), document.cookie, ...databases, ...await caches.keys()].filter(one => one);
}"""
"""A function of JavaScript that ends the session, and returns the names of what outlives it."""


class Visitor:
    """A page of the browser.

    Attributes:
        page: Playwright's page.
        problems: Errors of console and scripts, dialogs, and requests to other servers. A test that ends with one fails.
        requests: URLs of all requests.
        is_frozen: Whether the time of its window was stopped.
    """

    def __init__(self, page: Any, url: str) -> None:
        self.page, self._url = page, url
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.is_frozen = False
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
        """Stop the time of the window: from now on it passes by `page.clock.run_for` alone."""
        self.is_frozen = True
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
        self.page.locator("[role=status]").filter(has_text=word).wait_for(state="attached")

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


class Windows:
    """Windows of the browser, each in a context of its own, which tests use one after the other.

    To open one takes longer than most tests. Between two tests a window is emptied, so that each finds a browser without
    memory.
    """

    def __init__(self, browser: Any, url: str) -> None:
        self._browser, self._url = browser, url
        self._free: list[Visitor] = []
        self._used: list[Visitor] = []

    def open(self, path: str = "/", *, width: int = 1200, height: int = 900, **media: str) -> Visitor:
        """Open the page in an empty window; media: as for Playwright's `emulate_media`."""
        visitor = self._free.pop() if self._free else self._open_window()
        self._used.append(visitor)
        size = {"width": width, "height": height}
        if visitor.page.viewport_size != size:
            visitor.page.set_viewport_size(size)
        visitor.page.emulate_media(**{**_MEDIA, **media})
        visitor.page.goto(path)
        return visitor if path == _EMPTY else visitor.ready()

    def empty(self, *, are_kept: bool = True) -> list[str]:
        """Empty the windows that were used, or close them, and return their problems.

        What outlives a session is a problem. A window that has one, or whose time stands still, is not used again.
        """
        problems = []
        for visitor in self._used:
            if are_kept:
                visitor.page.unroute_all()
                visitor.page.goto(_EMPTY)
                visitor.problems += [f"it outlives the session: {one}" for one in visitor.page.evaluate(_FORGET)]
            problems += visitor.problems
            if are_kept and not visitor.problems and not visitor.is_frozen:
                visitor.requests.clear()
                self._free.append(visitor)
            else:
                visitor.page.context.close()
        self._used.clear()
        return problems

    def close(self) -> None:
        """Close the windows."""
        for visitor in self._free:
            visitor.page.context.close()

    def _open_window(self) -> Visitor:
        context = self._browser.new_context(base_url=self._url, permissions=["clipboard-read", "clipboard-write"])
        context.set_default_timeout(1000 * PATIENCE_S)
        context.add_init_script(INIT_SCRIPT)
        return Visitor(context.new_page(), self._url)
