"""The server and the visitor of these tests can fail: what they are to notice is planted."""

from __future__ import annotations

import pytest

BODY = {"prompt": "The capital of France is", "choices": [" Paris", " Rome"]}
ASK = """body => fetch('/v1/select', {method: 'POST', headers: {'content-type': 'application/json'},
                                      body: JSON.stringify(body)})"""


@pytest.fixture
def visitor(visit):
    """A visitor of a page without any script."""
    return visit("/health")


def test_a_call_nobody_expects_is_answered_by_the_model(visitor, double):
    """Numbers come from the real application, and the call is noted."""
    found = visitor.page.evaluate(f"body => ({ASK})(body).then(answer => answer.json())", BODY)
    assert found["text"] == " Paris"
    assert double.asked == [("/v1/select", BODY)]


def test_an_expected_call_waits_for_its_answer(visitor, double):
    """It arrives, the test looks at it, and then says the answer."""
    call = double.expect("/v1/select")
    visitor.page.evaluate(f"body => {{ window.found = ({ASK})(body).then(answer => answer.json()) }}", BODY)
    assert call.wait().body == BODY
    call.fail(429, "queue_full", "later", headers={"retry-after": "3"})
    assert visitor.page.evaluate("window.found")["error"]["code"] == "queue_full"


def test_a_stream_comes_in_pieces(visitor, double):
    """The page gets what was sent, before the next piece is written; a cut falls where the test says."""
    call = double.expect("/v1/select").stream()
    visitor.page.evaluate(
        f"""async body => {{
            const reader = (await ({ASK})(body)).body.getReader(), decoder = new TextDecoder();
            window.next = async () => {{
                const {{done, value}} = await reader.read();
                return done ? null : decoder.decode(value, {{stream: true}});
            }} }}""",
        BODY,
    )
    call.event({"type": "found", "text": "é"})
    assert visitor.page.evaluate("window.next()") == 'event: found\ndata: {"type": "found", "text": "é"}\n\n'
    call.event({"a": 1}, cut=3)
    seen = ""
    while "}" not in seen:
        seen += visitor.page.evaluate("window.next()")
    assert seen == 'data: {"a": 1}\n\n'
    call.end()
    assert visitor.page.evaluate("window.next()") == "data: [DONE]\n\n"
    assert visitor.page.evaluate("window.next()") is None


@pytest.mark.parametrize("streams", [False, True])
def test_a_connection_is_lost(visitor, double, streams):
    """What has no end is an error of the network for the page, whatever came before."""
    call = double.expect("/v1/select")
    call.stream().event({"a": 1}) if streams else None
    call.drop()
    text = "answer => answer.text().then(() => 'whole', error => error.name)"
    assert visitor.page.evaluate(f"body => ({ASK})(body).then({text})", BODY) == "TypeError"
    visitor.problems.clear()


def test_a_page_that_leaves_is_noticed(visitor, double):
    """A request that is given up sets `left`, before and in the middle of a stream."""
    for call in (double.expect("/v1/select"), double.expect("/v1/select").stream()):
        visitor.page.evaluate(
            f"""body => {{
                window.control = new AbortController();
                ({ASK.replace("{method", "{signal: control.signal, method")})(body).catch(() => null) }}""",
            BODY,
        )
        call.wait()
        visitor.page.evaluate("control.abort()")
        call.wait_left()


def test_problems_are_noticed(visitor, url):
    """Errors of scripts and of the console, dialogs, missing files and other servers are problems."""
    visitor.page.evaluate("setTimeout(() => { throw Error('thrown') })")
    visitor.page.evaluate("console.error('said')")
    visitor.page.evaluate("alert('shown')")
    visitor.page.evaluate("fetch('/page/none.js').catch(() => null)")
    visitor.page.evaluate("fetch('http://selectrie.example/').catch(() => null)")
    visitor.page.evaluate("fetch('http://192.0.2.1/').catch(() => null)")
    visitor.page.wait_for_function("true")
    found = "\n".join(visitor.problems)
    for one in ("thrown", "said", "shown", "/page/none.js", "selectrie.example", "192.0.2.1"):
        assert one in found
    visitor.problems.clear()


def test_a_window_is_emptied(visit, windows, double):
    """The next test finds the same window without what was typed, kept, asked for or answered by a route."""
    visitor = visit("/health")
    visitor.page.evaluate("sessionStorage.setItem('typed', 'x')")
    visitor.page.route("**/v1/models", lambda route: route.fulfill(body="routed"))
    call = double.expect("/v1/select")
    visitor.page.evaluate(f"body => {{ ({ASK})(body).catch(() => null) }}", BODY)
    call.wait()
    assert windows.empty() == []
    call.wait_left()
    again = visit("/health")
    assert again.page is visitor.page
    assert again.page.evaluate("[...Object.keys(sessionStorage), location.hash].join('')") == ""
    assert "routed" not in again.page.evaluate("fetch('/v1/models').then(answer => answer.text())")
    assert len(again.requests) == 2


@pytest.mark.parametrize(
    "keep",
    [
        "localStorage.setItem('kept', 'x')",
        "document.cookie = 'kept=x'",
        "new Promise(done => { indexedDB.open('kept').onsuccess = done; })",
        "caches.open('kept')",
    ],
)
def test_what_outlives_the_session_is_a_problem(visitor, windows, keep):
    """A window in which something is kept is closed, and the next one has nothing of it."""
    visitor.page.evaluate(f"async () => {{ await ({keep}); }}")
    [problem] = windows.empty()
    assert "it outlives the session: kept" in problem
    again = windows.open("/health")
    assert again.page is not visitor.page
    assert windows.empty() == []
