"""Everybody can use the page: keyboards, screen readers, narrow windows, other colours, and those whom motion disturbs."""

from __future__ import annotations

import pytest

from tests.page.access import axe_faults, faults, focus_faults
from tests.page.tabs import ALL, CASES, SELECT

SCHEMES = ("light", "dark")


@pytest.fixture
def answered(visit):
    """`answered(tab)`: a page on which a tab shows the answer to its example, with all that folds opened."""

    def of(tab, **options):
        visitor = visit(**options).choose(tab.name)
        visitor.run()
        visitor.panel.evaluate("panel => panel.querySelectorAll('details').forEach(one => { one.open = true; })")
        return visitor

    return of


@pytest.mark.parametrize("tab", CASES)
def test_a_tab_is_accessible_in_light_and_dark(answered, tab):
    """Neither axe nor the checks of contrast, targets and motion find a fault, in either scheme."""
    visitor = answered(tab, reduced_motion="reduce")
    assert axe_faults(visitor.page, with_contrast=False) == []
    for scheme in SCHEMES:
        visitor.page.emulate_media(color_scheme=scheme)
        assert faults(visitor.page, "contrast") == [], scheme
    assert faults(visitor.page, "targets") == []
    assert faults(visitor.page, "motion") == []


@pytest.mark.long
@pytest.mark.parametrize("tab", ALL, ids=str)
def test_axe_finds_no_contrast_too_low(answered, tab):
    """The same by axe's own rule, which takes longer."""
    visitor = answered(tab)
    for scheme in SCHEMES:
        visitor.page.emulate_media(color_scheme=scheme)
        assert axe_faults(visitor.page) == [], scheme


@pytest.mark.parametrize("tab", CASES)
def test_a_tab_fits_into_a_narrow_window(answered, tab):
    """At 320 pixels, which is also 1280 pixels at 400 %, nothing sticks out, and the focus is always seen."""
    visitor = answered(tab, width=320, height=256)
    assert faults(visitor.page, "reflow") == []
    assert faults(visitor.page, "targets") == []
    assert focus_faults(visitor.page) == []


@pytest.mark.parametrize("tab", CASES)
def test_a_tab_needs_no_colours_of_its_own(answered, tab):
    """Where the system forces its colours, texts, shapes and the chosen tab are seen."""
    visitor = answered(tab, forced_colors="active")
    for scheme in SCHEMES:
        visitor.page.emulate_media(color_scheme=scheme)
        assert faults(visitor.page, "contrast") == [], scheme
        assert faults(visitor.page, "forced") == [], scheme


@pytest.mark.parametrize("state", ["running", "error", "refused", "locked", "gone"])
def test_states_are_accessible_too(visit, double, state):
    """What is shown in place of an answer has no fault in either scheme."""
    visitor = visit().choose(SELECT.name)
    call = double.expect(SELECT.path)
    if state == "running":
        call.stream().event({"type": "progress", "done": 3, "total": 9})
        visitor.press_run()
        visitor.answer.get_by_text("3 of 9").wait_for()
    else:
        if state == "gone":
            call.drop()
        elif state == "locked":
            call.fail(401, "api_key", "the API key is missing or wrong")
        elif state == "refused":
            call.fail(429, "queue_full", "8 requests wait", headers={"retry-after": "30"})
        else:
            call.fail(400, "choice", "a choice is wrong", "choices[1]")
        visitor.run()
    assert axe_faults(visitor.page, with_contrast=False) == []
    for scheme in SCHEMES:
        visitor.page.emulate_media(color_scheme=scheme)
        assert faults(visitor.page, "contrast") == [], scheme
    assert faults(visitor.page, "targets") == []
    visitor.problems = [one for one in visitor.problems if "net::ERR_" not in one]


@pytest.mark.long
def test_the_focus_is_seen_in_forced_colours_and_in_the_dark(answered):
    """The ring is seen on every control, whatever the colours."""
    for options in ({"forced_colors": "active"}, {"color_scheme": "dark"}):
        assert focus_faults(answered(SELECT, **options).page) == [], options


def test_motion_is_reduced(visit, double):
    """A request that runs moves nothing where motion is to be reduced."""
    visitor = visit(reduced_motion="reduce").choose(SELECT.name)
    double.expect(SELECT.path)
    visitor.press_run()
    visitor.wait_for("running")
    assert faults(visitor.page, "motion") == []
