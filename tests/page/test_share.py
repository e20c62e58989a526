"""Links, files and copies of a request: they hold everything typed, no key, and mean exactly this request."""

from __future__ import annotations

import base64
import json
import re
import shlex
import subprocess
import sys
import zlib
from xml.etree import ElementTree as ET

import pytest

from tests.page.double import LAYOUT_ERROR
from tests.page.tabs import DECIDE, GENERATE, GRAMMAR, RANK, SELECT, TEMPLATE
from tests.support.serving import PATIENCE_S

KEY = "a-key-of-this-session"
TEXT = "Q: ü 👍 'quoted' \"twice\" $HOME `x` \\ back & <b> #? A:"
CHOICES = ' yes\n it\'s\n "no"\n $(touch x)\n a\\nb'


def packed(saved):
    """What follows the number sign in a link that holds this."""
    return base64.urlsafe_b64encode(zlib.compress(json.dumps(saved).encode(), wbits=-15)).decode().rstrip("=")


def unpacked(link):
    """What a link holds."""
    text = link.partition("#")[2]
    return json.loads(zlib.decompress(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), wbits=-15))


BROKEN = {
    "empty": "",
    "cut": "x",
    "zeros": "AAAA",
    "long": "A" * 9_000,
    "large": "large",
    "other": packed(["of", "others"]),
    "no-tab": packed({"v": 1, "tab": "nowhere", "state": {}}),
    "no-state": packed({"v": 1, "tab": "rank"}),
    "later": packed({"v": 2, "tab": "rank", "state": {}}),
}
"""What follows the number sign in links that this page has not made."""


@pytest.fixture
def answered(visit):
    """`answered(tab, **fields)`: a page with an answer, whose menu for sharing is open; `mode` is how a prompt is read."""

    def of(tab, mode=None, **fields):
        visitor = visit().choose(tab.name)
        if mode:
            visitor.field("mode").select_option(mode)
        visitor.fill(**(fields or tab.fields))
        assert visitor.run() in ("done", "tie", "low-mass")
        visitor.panel.locator("details.share").evaluate("one => { one.open = true; }")
        return visitor

    return of


def press(visitor, name):
    """Press a button of the menu."""
    visitor.panel.locator("details.share").get_by_role("button", name=name, exact=True).click()


def copied(visitor, name):
    """What a button of the menu copies."""
    visitor.page.evaluate("document.querySelector('[role=status]').textContent = ''")
    press(visitor, name)
    visitor.announced("copied")
    return visitor.page.evaluate("navigator.clipboard.readText()")


def saved(visitor, name):
    """The bytes of the file that a button of the menu saves."""
    with visitor.page.expect_download() as download:
        press(visitor, name)
    return download.value.path().read_bytes()


def test_a_link_fills_the_page_and_waits(answered, visit, double):
    """Another browser shows the inputs and the numbers of the link as such, asks nothing, and compares after Run."""
    visitor = answered(RANK, prompt=TEXT, choices=CHOICES)
    link = copied(visitor, "Copy link")
    answer = double.answers[-1]
    double.reset()
    other = visit(link)
    other.panel.locator(".from-link").wait_for()
    assert other.page.get_by_role("tab", selected=True).inner_text() == RANK.name
    assert [other.field(name).input_value() for name in RANK.fields] == [TEXT, CHOICES]
    assert "From the link" in other.answer.inner_text()
    shown = {float(value) for value in other.answer.locator("data").evaluate_all("all => all.map(one => one.value)")}
    assert shown == {one["logp"] for one in answer["choices"]}
    assert double.asked == []
    other.run()
    assert "are those of the link" in other.answer.inner_text()
    assert double.asked[-1][1]["choices"] == [" yes", " it's", ' "no"', " $(touch x)", " a\nb"]


def test_what_differs_from_a_link_is_named(answered, visit, double):
    """A number that moved by more than the tolerance is named, and one within it is not."""
    visitor = answered(SELECT)
    link = copied(visitor, "Copy link")
    changed = json.loads(json.dumps(double.answers[-1]))
    changed["choices"][0]["logp"] -= 0.5
    changed["choices"][1]["logp"] -= 0.001
    other = visit(link)
    other.panel.locator(".from-link").wait_for()
    double.expect(SELECT.path).stream().event({**changed, "type": "result"}).end()
    other.run()
    said = other.answer.locator(".note", has_text="Differs from the link").inner_text()
    assert "Paris" in said
    assert "Rome" not in said


def test_only_an_answer_to_the_inputs_of_a_link_is_compared(answered, visit):
    """After an edit nothing is said about the link, and after it is undone the answer is compared again."""
    visitor = answered(SELECT)
    other = visit(copied(visitor, "Copy link"))
    for choices, is_compared in ((" Oslo\n Bern", False), (SELECT.fields["choices"], True)):
        other.fill(choices=choices)
        other.run()
        assert ("of the link" in other.answer.inner_text()) is is_compared


def test_a_text_may_move_by_more_than_a_row(answered, visit, double):
    """A number of a whole text is told beyond the tolerance times the root of its rows, and no earlier."""
    visitor = answered(SELECT)
    link = copied(visitor, "Copy link")
    changed = json.loads(json.dumps(double.answers[-1]))
    for one, factor in zip(changed["choices"], (0.9, 1.1), strict=True):
        one["logp"] -= factor * changed["signature"]["tolerance"] * (len(one["tokens"]) + 1) ** 0.5
    double.expect(SELECT.path).stream().event({**changed, "type": "result"}).end()
    other = visit(link)
    other.run()
    said = other.answer.locator(".note", has_text="Differs from the link").inner_text()
    assert [one["text"].strip() in said for one in changed["choices"]] == [False, True]


def test_a_link_without_a_number_in_common_is_not_agreed_with(answered, visit, double):
    """Where the answer has none of the numbers of the link, that is said."""
    visitor = answered(SELECT)
    link = copied(visitor, "Copy link")
    changed = json.loads(json.dumps(double.answers[-1]))
    for one in changed["choices"]:
        one["text"] += " or so"
    double.expect(SELECT.path).stream().event({**changed, "type": "result"}).end()
    other = visit(link)
    other.run()
    text = other.answer.inner_text()
    assert "None of the numbers of the link is in this answer" in text
    assert "are those of the link" not in text


@pytest.mark.long
@pytest.mark.parametrize("tab", [DECIDE, GRAMMAR, TEMPLATE, GENERATE], ids=str)
def test_the_link_of_each_tab_agrees_with_its_own_server(answered, visit, tab):
    """The same server has the same numbers within the tolerance."""
    greedy = {"temperature": "0"} if tab is GENERATE else {}  # a draw may flip within the tolerance
    visitor = answered(tab, **tab.fields, **greedy)
    other = visit(copied(visitor, "Copy link"))
    other.run()
    assert "the numbers are those of the link" in other.answer.inner_text()


def test_a_link_asks_no_server_for_what_is_in_it(answered, double):
    """Everything typed stands behind the number sign, which is not sent; a key is nowhere in it."""
    visitor = answered(SELECT, prompt="a secret prompt", choices=" a\n b")
    visitor.page.evaluate("key => sessionStorage.setItem('selectrie.key', key)", KEY)
    link = copied(visitor, "Copy link")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#[\w-]+", link)
    assert unpacked(link)["state"] == {"prompt": "a secret prompt", "choices": " a\n b"}
    assert all("secret" not in url.partition("#")[0] for url in visitor.requests)
    texts = [copied(visitor, one) for one in ("Copy curl", "Copy Python", "Copy command")]
    files = [saved(visitor, one).decode() for one in ("Save inputs", "Save answer")]
    assert [KEY in one for one in [json.dumps(unpacked(link)), *texts, *files]] == [False] * 6
    assert '"Authorization: Bearer $SELECTRIE_API_KEY"' in texts[0]


@pytest.mark.short("cut", "no-tab", "later")
@pytest.mark.parametrize("link", list(BROKEN))
def test_a_broken_link_opens_the_page(visit, double, link):
    """What is no link of this page is not filled in, which is said: the example is there, and nothing is asked."""
    visitor = visit(f"/#{BROKEN[link]}")
    assert visitor.page.locator(".note", has_text="This link could not be read").count() == (link != "empty")
    assert visitor.page.get_by_role("tab", selected=True).inner_text() == SELECT.name
    assert visitor.run() in ("done", "tie", "low-mass")
    assert [path for path, _ in double.asked] == [SELECT.path]


def test_what_is_too_long_for_a_link_is_a_file(answered, visit, tmp_path):
    """Above 8 kB the menu says so; the inputs survive a reload, and another browser opens the file."""
    prompt = "".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(9_000))
    visitor = answered(SELECT)
    visitor.paste("prompt", prompt)
    press(visitor, "Copy link")
    visitor.panel.get_by_text("too long for a link").wait_for()
    data = saved(visitor, "Save inputs")
    visitor.page.reload()
    visitor.ready()
    assert visitor.field("prompt").input_value() == prompt
    (tmp_path / "saved.json").write_bytes(data)
    other = visit()
    other.panel.locator("details.share").evaluate("one => { one.open = true; }")
    other.panel.get_by_label("Open a saved file").set_input_files(tmp_path / "saved.json")
    other.page.wait_for_function(
        "text => document.querySelector('[role=tabpanel]:not([hidden]) [name=prompt]').value === text", arg=prompt
    )


def test_files_are_the_answer_and_its_pictures(answered, double):
    """The answer as JSON has all digits; the SVG brings its styles and needs nothing else; the PNG is one."""
    visitor = answered(SELECT)
    answer = json.loads(saved(visitor, "Save answer"))
    assert answer["choices"] == double.answers[-1]["choices"]
    svg = saved(visitor, "Save SVG").decode()
    root = ET.fromstring(svg)  # noqa: S314 - our own
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert ".sel" in root.find("{http://www.w3.org/2000/svg}style").text
    assert not re.search(r"(?:href|src)=|url\(|@import|<script", svg)
    png = saved(visitor, "Save PNG")
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(png) > 5_000


def logps(answer):
    """The log-probability of each choice."""
    return [one["logp"] for one in answer["choices"]]


def test_what_cannot_be_copied_is_selected(answered):
    """Where the browser does not let the page copy, the text stands below the buttons and is selected, which is said."""
    visitor = answered(SELECT)
    visitor.page.evaluate("() => { navigator.clipboard.writeText = async () => { throw Error('denied'); }; }")
    press(visitor, "Copy curl")
    visitor.announced("does not let this page copy")
    assert visitor.page.evaluate("getSelection().toString()").startswith("curl -sS http://127.0.0.1:")


def test_there_is_nothing_to_save_before_an_answer(visit):
    """The menu says so, and saves nothing."""
    visitor = visit().choose(RANK.name)
    visitor.panel.locator("details.share").evaluate("one => { one.open = true; }")
    for name, word in (
        ("Save answer", "no answer yet"),
        ("Save SVG", "no picture yet"),
        ("Save PNG", "no picture yet"),
    ):
        visitor.page.evaluate("document.querySelector('[role=status]').textContent = ''")
        press(visitor, name)
        visitor.announced(word)


def test_curl_is_exactly_this_request(answered, double):
    """A shell reads the copied command as the request of the page, without the drawing, and it has the same answer."""
    visitor = answered(RANK, prompt=TEXT, choices=CHOICES)
    words = shlex.split(copied(visitor, "Copy curl").replace("\\\n", " "))
    _, body = double.asked[-1]
    assert words[0] == "curl"
    assert (
        next(word for word in words if word.startswith("http")) == f"{visitor.page.evaluate('location.origin')}/v1/rank"
    )
    sent = json.loads(words[words.index("--data-binary") + 1])
    assert sent == {name: one for name, one in body.items() if name not in ("drawing", "fold", "stream")}
    found = visitor.page.request.post("/v1/rank", data=sent).json()
    assert logps(found) == pytest.approx(logps(double.answers[-1]), abs=LAYOUT_ERROR)


def test_a_copied_select_scores_what_the_page_shows(answered, double):
    """A drawing lets every choice of a short list be scored, so the copies say so; a set option stays."""
    visitor = answered(SELECT, prompt=TEXT, choices=CHOICES)
    words = shlex.split(copied(visitor, "Copy curl").replace("\\\n", " "))
    sent = json.loads(words[words.index("--data-binary") + 1])
    assert sent["search"] == {"stop": "all"}
    found = visitor.page.request.post(SELECT.path, data=sent).json()
    assert logps(found) == pytest.approx(logps(double.answers[-1]), abs=LAYOUT_ERROR)
    assert 'search=selectrie.SearchParams(stop="all")' in copied(visitor, "Copy Python")
    assert "--stop all" in copied(visitor, "Copy command")


AWKWARD = "selectrie.load(1)"
"""A text that is code of Python."""
COPIES = {
    "select": (SELECT, {"prompt": TEXT, "choices": CHOICES}),
    "rank": (RANK, {"prompt": TEXT, "choices": CHOICES}),
    "decide": (DECIDE, {"state": 'It is broken, says the "customer" — it\'s late.'}),
    "grammar": (GRAMMAR, {"prompt": TEXT}),
    "template": (TEMPLATE, {}),
    "generate": (GENERATE, {"prompt": TEXT, "max_tokens": "8", "temperature": "0.1"}),
    "user": (SELECT, {"mode": "user", "prompt": AWKWARD, "choices": f"{AWKWARD}\n yes"}),
    "chat": (GENERATE, {"mode": "user", "prompt": AWKWARD, "max_tokens": "8", "temperature": "0.1"}),
    "ends": (
        TEMPLATE,
        {
            "template": f"{AWKWARD}\nEND_OF_FILE\ntouch planted\n'$(touch planted)'\nQ: <<select 'a' options=texts>>",
            "values": json.dumps({"texts": ["selectrie.load(1)", "END_OF_FILE\ntouch planted"]}),
        },
    ),
}


def essence(answer):
    """The texts of an answer and its numbers, as the page and Python both have them."""
    if "answers" in answer:
        return [], [p for one in answer["answers"].values() for p in probabilities(one)]
    if "columns" in answer:  # the page shows a token that ends a text by its name
        texts = ["".join(token["text"] for token in one["tokens"]) for one in answer["columns"]]
        logps = [sum(token["logp"] for token in one["tokens"]) for one in answer["columns"]]
        return [re.sub(r"<\|\w+\|>$", "", text) for text in texts], logps
    if "completions" in answer:
        return [one["text"] for one in answer["completions"]], [one["logp"] for one in answer["completions"]]
    if "slots" in answer:
        logps = [one["record"]["logp"] for one in answer["slots"] if "logp" in (one["record"] or {})]
        return [answer["text"], *(one["text"] for one in answer["slots"])], logps
    choices = sorted(answer["choices"], key=lambda one: one["text"])
    return [answer["text"], *(one["text"] for one in choices)], [one["logp"] for one in choices]


def probabilities(answer):
    """The probabilities of a question's options, sorted, or that of yes."""
    found = answer.get("probabilities", answer.get("noul", answer.get("probability")))
    values = found.values() if isinstance(found, dict) else found if isinstance(found, list) else [found]
    return sorted(one["probability"] if isinstance(one, dict) else one for one in values)


@pytest.mark.short("ends")
@pytest.mark.parametrize("name", COPIES)
def test_python_and_the_command_answer_the_same(answered, tmp_path, name):
    """What is copied runs as it is, has the page's answer, and runs nothing that was typed."""
    tab, fields = COPIES[name]
    visitor = answered(tab, **fields)
    texts, numbers = essence(json.loads(saved(visitor, "Save answer")))
    script = tmp_path / "copied.py"
    script.write_text(
        f"{copied(visitor, 'Copy Python')}\nimport json\nprint('\\n' + json.dumps(result.to_dict()))", encoding="utf-8"
    )
    command = tmp_path / "copied.sh"
    text = copied(visitor, "Copy command").rstrip("\n")
    command.write_text(f'selectrie() {{ "{sys.executable}" -m selectrie "$@"; }}\n{text} --json\n', encoding="utf-8")
    commands = ([sys.executable, str(script)], ["bash", str(command)])
    pipe = subprocess.PIPE
    for run in [subprocess.Popen(one, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path) for one in commands]:
        shown, errors = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 0, errors
        found = essence(json.loads(shown.splitlines()[-1]))
        assert found[0] == texts
        assert found[1] == pytest.approx(numbers, abs=LAYOUT_ERROR)
    assert not (tmp_path / "planted").exists()
