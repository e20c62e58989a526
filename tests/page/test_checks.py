"""The checks can fail: each finds what is planted, and nothing on a page without faults."""

from __future__ import annotations

import pytest

from tests.page.access import axe_faults, faults, focus_faults

GOOD = """<!doctype html><html lang="en"><title>Good</title>
<style>
:root { color-scheme: light dark; } [role=tab][aria-selected=true] { border-bottom: 4px solid; }
button, input, a { min-height: 24px; min-width: 24px; } :focus-visible { outline: 2px solid CanvasText; }
input { border: 1px solid CanvasText; }
@media (forced-colors: active) { rect { fill: CanvasText; } }
</style>
<main><h1>Good</h1>
<div role="tablist"><button role="tab" aria-selected="true">One</button><button role="tab" aria-selected="false">Two</button></div>
<label>Field <input></label> <button>Run</button>
<svg aria-hidden="true" width="100" height="40"><rect width="100" height="40" fill="#004"/><text y="20" fill="#fff">seen</text></svg>
</main></html>"""

PLANTED = {
    "contrast": [
        ("<h1>Good", "<h1 style='color: #999; font-size: 1rem'>Good", "h1"),
        ("<h1>Good", "<h1><span style='opacity: .3'>Good</span>", "span"),
        ('fill="#fff"', 'fill="#113"', 'text "seen"'),
        ("<input>", "<input style='border-color: #eee'>", "edge"),
        ("<h1>Good", "<h1 style='color: oklch(0.75 0.1 200); font-size: 1rem'>Good", "h1"),
    ],
    "targets": [
        ("<button>Run", "<button style='min-width: 0; width: 20px'>Run", "Run"),
        ("Field <input>", "<a href='#' style='display:block; min-height: 0; height: 20px'>x</a>", 'a "x"'),
    ],
    "reflow": [
        ("<h1>Good", "<h1 style='width: 400px'>Good", "h1"),
        ("<h1>Good", "<h1 style='margin-left: -50px'>Good", "h1"),
        ("<svg", "<div class='box' style='overflow: auto'><p style='width: 400px'>wide</p></div><svg", "box"),
        ("<svg", "<select style='width: 90px'><option>an option that is cut</select><svg", "longest option"),
    ],
    "motion": [
        ("<h1>", "<h1 style='transition: color 1s'>", "h1"),
        (
            "</style>",
            "h1::after { content: 'x'; animation: turn 2s infinite } @keyframes turn { to { opacity: 0 } }</style>",
            "turn",
        ),
    ],
    "forced": [
        ("rect { fill: CanvasText; }", "rect { fill: Canvas; }", "rect"),
        ("border-bottom: 4px solid", "background: #eef", "One"),
    ],
}


@pytest.fixture(scope="module")
def narrow(browser):
    """A narrow window in which a test writes its own page; colours are forced and motion is reduced only for what asks for it."""
    context = browser.new_context(viewport={"width": 320, "height": 300})
    yield context.new_page()
    context.close()


def shown(page, text, check):
    """What a check finds on a page."""
    page.emulate_media(forced_colors="active" if check == "forced" else "none")
    page.set_content(text)
    return faults(page, check)


@pytest.mark.parametrize("check", list(PLANTED))
def test_a_check_finds_what_is_planted(narrow, check):
    """Each change of the good page is found under its name, and the good page has no fault."""
    assert shown(narrow, GOOD, check) == []
    for old, new, named in PLANTED[check]:
        assert old in GOOD
        found = shown(narrow, GOOD.replace(old, new), check)
        assert any(named in one for one in found), (new, found)


def test_contrast_is_that_of_the_scheme(narrow):
    """A colour that is good on white is a fault on black, and a shape below a text is its ground."""
    narrow.emulate_media(color_scheme="dark", forced_colors="none")
    narrow.set_content(GOOD.replace("<h1>", "<h1 style='color: #004'>"))
    assert len(faults(narrow, "contrast")) == 1
    narrow.emulate_media(color_scheme="light")
    assert faults(narrow, "contrast") == []


def test_focus_is_looked_at_on_every_control(narrow):
    """A control without a ring, with a faint one, or below something that stays in place, is a fault."""
    narrow.emulate_media(forced_colors="none")
    narrow.set_content(GOOD)
    assert focus_faults(narrow) == []
    cover = "<div style='position: fixed; inset: 0 0 50% 0; background: Canvas'></div></main>"
    for old, new, named in [
        (":focus-visible {", "button:focus-visible { outline: none } input:focus-visible {", "no ring"),
        ("outline: 2px solid CanvasText", "outline: 2px solid #eee", "less than 3:1"),
        ("</main>", cover, "hidden below div"),
    ]:
        narrow.set_content(GOOD.replace(old, new))
        assert any(named in one for one in focus_faults(narrow)), new


def test_axe_is_asked(narrow):
    """A field without a name, and a page without a language, are faults."""
    narrow.emulate_media(forced_colors="none")
    narrow.set_content(GOOD)
    assert axe_faults(narrow) == []
    narrow.set_content(GOOD.replace("<label>Field", "<label>").replace(' lang="en"', ""))
    assert {one.split(":")[0] for one in axe_faults(narrow)} == {"label", "html-has-lang"}
