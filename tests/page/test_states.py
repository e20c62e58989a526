"""The states of each tab, as a scripted server brings them about."""

from __future__ import annotations

import pytest

from tests.page.tabs import CASES, GENERATE, SELECT
from tests.page.visitor import LISTEN

KEY = "a-key-that-is-asked-for"


@pytest.fixture
def opened(visit):
    """`opened(tab)`: a page with a tab, whose fields are filled."""

    def of(tab, **options):
        visitor = visit(**options).choose(tab.name)
        return visitor.fill(**tab.fields)

    return of


def typed(visitor):
    """What the fields of the chosen tab have, by their names."""
    return visitor.panel.evaluate(
        "panel => [...panel.querySelectorAll('[name]')].map(one => [one.name, one.type === 'checkbox' ? one.checked : one.value])"
    )


@pytest.mark.parametrize("tab", CASES)
def test_empty_shows_an_example_that_can_be_run(visit, double, tab):
    """A tab opens with its fields filled, and Run answers them."""
    visitor = visit().choose(tab.name)
    assert double.asked == []
    assert visitor.run() in ("done", "tie", "low-mass")
    assert double.asked[0][0] == tab.path


@pytest.mark.parametrize("tab", CASES)
def test_running_keeps_the_old_answer_greyed_and_stops(opened, double, tab):
    """While a request runs there is a button Stop, and the answer before stays; Stop ends the request on the server."""
    visitor = opened(tab)
    assert visitor.run() in ("done", "tie", "low-mass")
    before = visitor.answer.locator(".result").inner_text()
    call = double.expect(tab.path)
    visitor.press_run()
    call.wait()
    visitor.wait_for("running")
    assert visitor.answer.get_attribute("aria-busy") == "true"
    assert visitor.answer.locator(".result.stale").inner_text() == before
    visitor.panel.get_by_role("button", name="Stop", exact=True).click()
    call.wait_left()
    visitor.wait_for("stopped")
    assert visitor.answer.locator(".result").inner_text() == before
    assert visitor.run() in ("done", "tie", "low-mass")


@pytest.mark.parametrize("tab", CASES)
def test_an_error_names_its_code_and_focuses_the_field(opened, double, tab):
    """Code and message stand in the answer, the field has the focus and is marked until the next run."""
    visitor = opened(tab)
    param, name = tab.at_fault
    message = "it is <b>wrong</b>: expected another one"
    double.expect(tab.path).fail(400, "option_value", message, param)
    assert visitor.run() == "error"
    assert visitor.answer.locator("code", has_text="option_value").is_visible()
    assert message in visitor.answer.inner_text()
    visitor.announced(message)
    focused = visitor.page.evaluate(
        "[document.activeElement.name, document.activeElement.getAttribute('aria-invalid')]"
    )
    assert focused == [name, "true"]
    assert visitor.run() in ("done", "tie", "low-mass")
    assert visitor.panel.locator("[aria-invalid]").count() == 0


@pytest.mark.parametrize("tab", CASES)
def test_an_error_of_no_field_is_shown(opened, double, tab):
    """A failure of the server is an error with its code, and everything typed is kept."""
    visitor = opened(tab)
    kept = typed(visitor)
    double.expect(tab.path).fail(500, "internal", "the model failed")
    assert visitor.run() == "error"
    assert "internal" in visitor.answer.inner_text()
    assert typed(visitor) == kept


@pytest.mark.parametrize("tab", CASES)
def test_a_full_server_is_counted_down(opened, double, tab):
    """The seconds of `retry-after` pass before the button to try again can be pressed."""
    visitor = opened(tab)
    visitor.freeze()
    double.expect(tab.path).fail(429, "queue_full", "8 requests wait", headers={"retry-after": "3"})
    assert visitor.run() == "refused"
    again = visitor.answer.get_by_role("button", name="Try again")
    assert "3 s" in visitor.answer.inner_text()
    assert again.is_disabled()
    visitor.page.clock.run_for(2_100)
    assert "1 s" in visitor.answer.inner_text()
    visitor.page.clock.run_for(1_000)
    assert again.is_enabled()
    before = visitor.page.evaluate("n_settled")
    again.click()
    assert visitor.settled(before) in ("done", "tie", "low-mass")
    assert len(double.asked) == 2


@pytest.mark.parametrize("tab", CASES)
def test_a_missing_key_is_asked_for_and_kept_for_the_session(opened, double, tab):
    """The key goes with the next request, and lies neither in the address nor in what outlives the session."""
    visitor = opened(tab)
    double.expect(tab.path).fail(401, "api_key", "the API key is missing or wrong")
    assert visitor.run() == "refused"
    visitor.answer.get_by_label("API key").fill(KEY)
    call = double.expect(tab.path)
    before = visitor.page.evaluate("n_settled")
    visitor.page.keyboard.press("Enter")
    assert call.wait().headers["authorization"] == f"Bearer {KEY}"
    call.pass_on()
    assert visitor.settled(before) in ("done", "tie", "low-mass")
    kept = visitor.page.evaluate(
        "[JSON.stringify({...sessionStorage}), JSON.stringify({...localStorage}), document.cookie, location.href]"
    )
    assert [KEY in one for one in kept] == [True, False, False, False]
    assert KEY not in visitor.page.content()


@pytest.mark.parametrize("tab", CASES)
def test_a_server_that_is_gone_keeps_what_was_typed(opened, double, tab):
    """A connection that is lost, or refused, leaves the inputs; trying again answers."""
    visitor = opened(tab)
    kept = typed(visitor)
    double.expect(tab.path).drop()
    assert visitor.run() == "gone"
    assert typed(visitor) == kept
    visitor.page.context.set_offline(True)
    assert visitor.run() == "gone"
    assert typed(visitor) == kept
    visitor.page.context.set_offline(False)
    before = visitor.page.evaluate("n_settled")
    visitor.answer.get_by_role("button", name="Try again").click()
    assert visitor.settled(before) in ("done", "tie", "low-mass")
    visitor.problems = [one for one in visitor.problems if "net::ERR_" not in one]


def test_progress_is_shown_and_rarely_said(opened, double):
    """Nodes done of all stand in the answer at once; a screen reader hears of them at most every five seconds."""
    visitor = opened(SELECT)
    visitor.freeze()
    call = double.expect(SELECT.path).stream()
    visitor.press_run()
    call.wait().event({"type": "progress", "done": 7, "total": 20})
    visitor.answer.get_by_text("7 of 20").wait_for()
    visitor.page.evaluate(LISTEN)
    for number, pause_ms in ((8, 1_000), (9, 3_000), (10, 2_000), (11, 1_000), (12, 5_000)):
        visitor.page.clock.run_for(pause_ms)
        call.event({"type": "progress", "done": number, "total": 20})
        visitor.answer.get_by_text(f"{number} of 20").wait_for()
    said = visitor.page.evaluate("said")
    assert [text.split()[0] for text in said] == ["10", "12"]
    visitor.page.keyboard.press("Escape")
    call.wait_left()


def test_a_stream_may_come_in_any_pieces(opened, double):
    """An event that arrives byte by byte, with a comment between, is the event; an error in the stream is an error."""
    visitor = opened(SELECT)
    call = double.expect(SELECT.path).stream()
    visitor.press_run()
    for (
        byte
    ) in 'event: progress\ndata: {"type": "progress", "done": 3, "total": null, "é": "🙂"}\n\n: ping\n\n'.encode():
        call.send(bytes([byte]))
    visitor.answer.get_by_text("3 nodes").wait_for()
    before = visitor.page.evaluate("n_settled")
    call.event({"error": {"message": "memory is used", "type": "server_error", "param": None, "code": "memory"}}).end()
    assert visitor.settled(before) == "error"
    assert "memory is used" in visitor.answer.inner_text()


@pytest.mark.short("*-select")
@pytest.mark.parametrize("tab", [SELECT, GENERATE], ids=str)
@pytest.mark.parametrize("is_dropped", [True, False], ids=["dropped", "cut"])
def test_a_stream_that_ends_early_is_a_server_that_is_gone(opened, double, tab, is_dropped):
    """A connection that is lost after some of an answer, or closed before its end was said, gives no answer."""
    visitor = opened(tab)
    part = {"model": "embedded", "choices": [{"index": 0, "text": "It was"}]}
    call = (
        double.expect(tab.path).stream().event(part if tab is GENERATE else {"type": "progress", "done": 3, "total": 4})
    )
    before = visitor.page.evaluate("n_settled")
    visitor.press_run()
    call.wait()
    visitor.answer.get_by_text("It was" if tab is GENERATE else "3 of 4").wait_for()
    call.drop() if is_dropped else call.end(is_whole=False)
    assert visitor.settled(before) == "gone"
    visitor.problems = [one for one in visitor.problems if "net::ERR_" not in one]


def test_a_model_is_chosen_among_several(visit, double):
    """Where there are several, each request names the chosen one, and a link chooses it again."""

    def opened():
        visitor = visit("/health")
        visitor.page.route("**/v1/models", lambda route: route.fulfill(json={"data": [{"id": "one"}, {"id": "two"}]}))
        return visitor

    def sent(visitor):
        call = double.expect(SELECT.path)
        visitor.press_run()
        call.wait().fail(404, "model_not_found", "it is not here")
        visitor.wait_for("error")
        return call.body["model"]

    visitor = opened()
    visitor.page.goto("/")
    menu = visitor.ready().page.get_by_label("Model", exact=True)
    assert menu.locator("option").all_inner_texts() == ["one", "two"]
    assert sent(visitor) == "one"
    menu.select_option("two")
    assert sent(visitor) == "two"
    visitor.panel.locator("details.share").evaluate("one => { one.open = true; }")
    visitor.panel.get_by_role("button", name="Copy link").click()
    visitor.announced("copied")
    other = opened()
    other.page.goto(visitor.page.evaluate("navigator.clipboard.readText()"))
    other.ready().page.get_by_label("Model", exact=True).wait_for()
    assert other.page.get_by_label("Model", exact=True).input_value() == "two"
    assert sent(other) == "two"


def test_a_key_that_the_list_of_models_wants_is_asked_for(visit):
    """It is asked for in the head of the page, and goes with the next request for the list."""
    visitor = visit("/health")
    data = {"data": [{"id": "behind a key"}]}

    def answer(route):
        has_key = route.request.headers.get("authorization") == f"Bearer {KEY}"
        route.fulfill(json=data) if has_key else route.fulfill(status=401, json={"error": {"code": "api_key"}})

    visitor.page.route("**/v1/models", answer)
    visitor.page.goto("/")
    visitor.ready().page.locator("header").get_by_label("API key").fill(KEY)
    visitor.page.keyboard.press("Enter")
    visitor.page.locator("header").get_by_text("behind a key").wait_for()


def test_a_tab_that_cannot_be_loaded_says_so(visit):
    """The other tabs still work, and a button loads the page again."""
    visitor = visit()
    visitor.page.route("**/page/grammar.js", lambda route: route.abort())
    visitor.page.get_by_role("tab", name="Grammar").click()
    visitor.panel.get_by_text("could not be loaded").wait_for()
    assert visitor.panel.get_by_role("button").inner_text() == "Load the page again"
    assert visitor.choose(SELECT.name).run() in ("done", "tie", "low-mass")
    visitor.problems = [one for one in visitor.problems if "net::ERR_" not in one]
