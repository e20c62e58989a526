"""The page at `/`: who gets it, with which headers, and how large it is."""

from __future__ import annotations

import gzip
import json
import re
from hashlib import sha256

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie.results.advice import LOW_COVERAGE
from selectrie.results.drawing.pieces import MAX_CHOICES
from selectrie.server import ServerOptions, app
from selectrie.server.browser_page import FOLDER
from tests.support.calling import LEAST
from tests.support.deciding import fake
from tests.support.serving import ask

HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
    "vary": "accept, accept-encoding",
}
"""What each file is sent with."""
MAX_SOURCE, MAX_SENT, MAX_IMAGE = 280 << 10, 80 << 10, 8 << 10
KEYS = ServerOptions(key_digests=(sha256(b"secret").digest(),))


@pytest.fixture(scope="module")
def llm():
    """An engine on a fake."""
    with fake() as made:
        yield made


def files() -> list[str]:
    """Paths of everything that the page may ask for."""
    names = {one.name for one in FOLDER.iterdir()} - {"index.html", "jsconfig.json"} | {"drawing.css", "options.json"}
    return ["/", *sorted(f"/page/{name}" for name in names)]


def test_a_browser_gets_the_page_and_its_policy(llm):
    """It is HTML, with a policy that lets nothing else load."""
    reply = ask(app(llm), "GET", "/", headers=HTML)
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = dict(part.strip().split(" ", 1) for part in reply.headers["content-security-policy"].split(";"))
    assert policy == {
        **dict.fromkeys(("default-src", "base-uri", "form-action", "frame-ancestors"), "'none'"),
        **dict.fromkeys(("script-src", "style-src", "connect-src"), "'self'"),
        "img-src": "'self' blob:",
        "require-trusted-types-for": "'script'",
    }


def test_other_clients_get_at_the_root_what_they_got(llm):
    """The page is for those who accept HTML."""
    for options in (ServerOptions(), ServerOptions(page=False)):
        reply = ask(app(llm, options), "GET", "/", headers={"accept": "*/*"})
        assert (reply.status, reply.error["code"]) == (404, "not_found")
    assert ask(app(llm, KEYS), "GET", "/", headers={"accept": "*/*"}).error["code"] == "api_key"


@pytest.mark.parametrize("path", files())
def test_files_need_no_key_and_answer_by_their_tags(llm, path):
    """They hold no data; what asks the server still needs the key."""
    served = app(llm, KEYS)
    reply = ask(served, "GET", path, headers=HTML)
    assert reply.status == 200
    assert HEADERS.items() <= reply.headers.items()
    assert "content-security-policy" in reply.headers
    again = ask(served, "GET", path, headers={**HTML, "if-none-match": reply.headers["etag"]})
    assert (again.status, again.data) == (304, b"")
    packed = ask(served, "GET", path, headers={**HTML, "accept-encoding": "gzip, br"})
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.data) == reply.data
    assert ask(served, "POST", "/v1/select", {}, headers=HTML).error["code"] == "api_key"
    assert ask(served, "POST", path, {}, headers=HTML).error["code"] == "api_key"


def test_a_host_of_others_gets_no_page(llm):
    """The rule about names of hosts holds for it too."""
    assert ask(app(llm, ServerOptions(hosts=("localhost",))), "GET", "/", headers=HTML).error["code"] == "host"


def test_a_server_without_the_page(llm):
    """None of its files is there."""
    for path in files():
        reply = ask(app(llm, ServerOptions(page=False)), "GET", path, headers=HTML)
        assert (reply.status, reply.error["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    "path", ["/page/", "/page/nothing.js", "/page/..%2Foptions.py", "/page/../serve.py", "/page/jsconfig.json"]
)
def test_only_files_of_the_page_are_sent(llm, path):
    """Names with dots, and files that a browser does not need, are not found."""
    assert ask(app(llm), "GET", path, headers=HTML).error["code"] == "not_found"


def test_the_page_is_small_and_names_no_other_host(llm):
    """Its sources, its bytes on the wire, and its images are bounded."""
    replies = {path: ask(app(llm), "GET", path, headers={**HTML, "accept-encoding": "gzip"}) for path in files()}
    sources = {path: gzip.decompress(reply.data) for path, reply in replies.items()}
    assert sum(map(len, sources.values())) <= MAX_SOURCE
    assert sum(len(reply.data) for reply in replies.values()) <= MAX_SENT
    assert all(len(data) <= MAX_IMAGE for path, data in sources.items() if path.endswith(".svg"))
    for path, data in sources.items():
        found = re.findall(rb"https?://[\w.-]+", data)
        assert set(found) <= {b"http://www.w3.org"}, path


def test_scripts_write_no_html_and_no_style_attributes():
    """The policy would stop them; the page should not try."""
    for path in FOLDER.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|style: |cssText", text
        )
        assert text.startswith("// @ts-check")


@pytest.mark.parametrize("path", ["/v1/select", "/v1/rank", "/v1/loglikelihood", "/v1/beam", "/v1/sample"])
def test_what_a_form_shows_as_the_default_changes_nothing(llm, path):
    """Each option of the page is one that the server takes, and its default is the server's."""
    served = app(llm)
    described = ask(served, "GET", "/page/options.json").json[path]
    body = json.loads(json.dumps(LEAST[path]))
    for one in described:
        assert one["help"], one["path"]
        if "default" in one:
            *above, last = one["path"].split(".")
            place = body
            for name in above:
                place = place.setdefault(name, {})
            place[last] = one["default"]
    plain, full = (ask(served, "POST", path, one).json for one in (LEAST[path], body))
    changing = ("cost", "usage", "diagnostics")
    assert {**full, **dict.fromkeys(changing)} == {**plain, **dict.fromkeys(changing)}


NO_FLAG_OF = {
    "/v1/select": "select",
    "/v1/rank": "rank",
    "/v1/beam": "beam",
    "/v1/decisions": "decide",
    "/v1/render": "render",
    "/v1/completions": "generate",
}


def names_in(text, name):
    """The strings of a set or an object's keys in the source of a module."""
    body = re.search(rf"const {name} = .*?[\[{{]\n?(.*?)\n?[\]}}]\)", text, re.DOTALL)[1]
    return dict(re.findall(r'"?([\w.]+)"?: "([^"]*)"', body)) or set(re.findall(r'"([\w.]+)"', body))


def test_copies_name_every_option_as_the_command_does(llm, monkeypatch):
    """An option of the page is a flag of the command, or is known to have none."""
    from typer.testing import CliRunner

    from selectrie.cli.commands import app as commands

    monkeypatch.setenv("COLUMNS", "300")
    source = (FOLDER / "copies.js").read_text(encoding="utf-8")
    named, none = names_in(source, "FLAGS"), names_in(source, "NO_FLAG")
    options = json.loads(ask(app(llm), "GET", "/page/options.json", headers=HTML).data)
    for path, command in NO_FLAG_OF.items():
        shown = CliRunner().invoke(commands, [command, "--help"]).output
        for option in options[path]:
            last = option["path"].rpartition(".")[2].replace("repetition_penalty", "repeat_penalty")
            flag = named.get(last, "--" + last.replace("_", "-"))
            assert option["path"] in none or re.search(rf"(?<![\w-]){flag}\b", shown), (command, option["path"])


@pytest.mark.parametrize(
    ("module", "name", "value"), [("copies", "SCORED_ALL", MAX_CHOICES), ("decide", "LOW_MASS", LOW_COVERAGE)]
)
def test_constants_of_the_page_are_those_of_the_library(module, name, value):
    """The scripts repeat two numbers, since nothing sends them."""
    source = (FOLDER / f"{module}.js").read_text(encoding="utf-8")
    assert float(re.search(rf"^const {name} = ([\d.]+);", source, re.MULTILINE)[1]) == value
