"""A model file's chat template is somebody else's program: whatever it does ends soon, in a text or in one error."""

from __future__ import annotations

import tracemalloc

import pytest

from selectrie.backends.chat import environment as chat_environment
from selectrie.backends.chat import meter as chat_meter
from selectrie.backends.chat.meter import LimitError, Meter
from selectrie.backends.chat.template import chat_template
from selectrie.core.tracked_text import TrackedText
from selectrie.errors import PromptError
from tests.support.chat_bombs import BOMBS
from tests.support.chat_templates import TEMPLATES

STEPS, CHARACTERS, PEAK_BYTES = 10_000, 1 << 20, 96 << 20

TRACKED_TOO = ("doubling", "squaring", "shared", "deep")
"""What costs more where text is tracked."""


@pytest.fixture
def small(monkeypatch):
    """Limits that are reached at once."""
    monkeypatch.setattr(chat_meter, "MAX_STEPS", STEPS)
    monkeypatch.setattr(chat_meter, "STEPS_A_VALUE", 100)
    monkeypatch.setattr(chat_meter, "MAX_CHARACTERS", CHARACTERS)


@pytest.fixture
def meters(monkeypatch):
    """The meters of all renderings."""
    made = []
    of = Meter.of

    def kept(given):
        made.append(of(given))
        return made[-1]

    monkeypatch.setattr(Meter, "of", staticmethod(kept))
    return made


def rendered(source, said="Hi"):
    """What a template makes of one message."""
    return chat_template(source, {"bos_token": "<s>", "eos_token": "</s>"})([{"role": "user", "content": said}])


@pytest.mark.short(
    "*-str", "doubling plus-*", "squaring replace-*", "shared tilde-*", "deep list-*", "!elifs-*", "!sums in source-*"
)
@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in BOMBS for kind in (str, TrackedText) if kind is str or name.startswith(TRACKED_TOO)],
)
def test_whatever_a_template_does_ends_in_one_error(name, kind, small, meters):
    """Within the steps and characters of the limits and a few MiB, tracked or not: no endless loop, no other exception."""
    tracemalloc.start()
    try:
        with pytest.raises(PromptError, match="the model's chat template"):
            rendered(BOMBS[name], kind("Hi"))
        assert tracemalloc.get_traced_memory()[1] < PEAK_BYTES
    finally:
        tracemalloc.stop()
    for meter in meters:
        assert meter.n_steps <= 12 * (STEPS + 8_000)  # the last thing that was to be paid for may be a large one
        assert meter.n_characters <= 100 * (CHARACTERS + 8_192) or "squaring" in name or name in ("rfind", "strip")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "takes more than .* steps"),
        ("{{ ('a' * 10**5) * 200 }}", "would make more than .* characters of text"),
        ("{{ 10 ** (10 ** 10) }}", "makes a number of more than 4096 bits"),
        ("{{ '%*d' % (5, 1) }}", "formats with a width that is computed"),
        ("{{ (5).to_bytes(10 ** 10, 'big') }}", r"calls to_bytes\(\) of a int, whose cost is not known"),
        ("{{ a }}" * 100_000, "is longer than 131072 characters"),
        ("{{a}}" * 20_100, "has more than 20000 parts"),
        ("{% if a %}" * 60 + "{% endif %}" * 60, "puts more than 48 statements inside each other"),
    ],
)
def test_the_error_says_what_is_too_much_and_what_to_do(source, reason, small):
    """Which limit, and that the chat can be rendered by the caller."""
    with pytest.raises(PromptError, match=f"chat template is not rendered: it {reason}.*; render the chat yourself"):
        rendered(source)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ 1 / 0 }}", "ZeroDivisionError: division by zero"),
        ("{{ range(10 ** 30) }}", "OverflowError"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError"),
        ("{{ " + "(" * 3_000 + "1" + ")" * 3_000 + " }}", "RecursionError"),
        ("{% break %}", "SyntaxError: 'break' outside loop"),
    ],
)
def test_exceptions_that_are_not_jinjas_become_our_error(source, reason):
    """Their class is named, and they are the cause."""
    with pytest.raises(PromptError, match=f"chat template cannot be rendered: {reason}") as raised:
        rendered(source)
    assert type(raised.value.__cause__).__name__ in reason


def test_what_a_template_says_itself_is_shown_in_part():
    """An error is not as long as the text that a template raises."""
    with pytest.raises(PromptError, match="refuses these messages: aaa") as raised:
        rendered("{{ raise_exception('a' * 10 ** 6) }}")
    assert len(str(raised.value)) < 500


def test_a_template_that_cannot_be_read_is_broken():
    """It refuses no messages; the error has the line."""
    with pytest.raises(PromptError, match="chat template is broken, in line 2: unexpected '}'"):
        rendered("Hi\n{{ }")


def test_a_time_format_is_short():
    """Each of its characters may become many."""
    assert rendered("{{ strftime_now('%%') }}") == "%"
    with pytest.raises(PromptError, match="formats the time with more than 1000 characters"):
        rendered("{{ strftime_now('%c' * 501) }}")


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_of_the_field_stay_far_below_the_limits(name, meters):
    """A chat of 201 messages takes a tenth of what it may at most: steps and characters, tracked or not."""
    for kind in (str, TrackedText):
        said = kind("What is it?\n" * 8)
        messages = [{"role": "assistant" if turn % 2 else "user", "content": said} for turn in range(201)]
        assert (
            chat_template(TEMPLATES[name], {"bos_token": "<s>", "eos_token": "</s>"})(messages).count("What") >= 201 * 8
        )
    for meter in meters:
        assert 10 * meter.n_steps < meter._max_steps or not meter.n_characters
        assert 10 * meter.n_characters < meter._max_characters


def test_limits_grow_with_what_is_given():
    """What a template may do is bounded by what it is given, not fixed: long chats are rendered."""
    source = "{% for a in messages %}{% for b in messages %}{{ b.content[:1] }}{% endfor %}{% endfor %}"
    render = chat_template(source, {"bos_token": "", "eos_token": ""})
    messages = [{"role": "user", "content": "Hi " * 50}] * 300
    assert render(messages) == "H" * 300**2


def test_two_renderings_share_no_meter(small):
    """A template that takes most of what it may can be rendered again."""
    render = chat_template(
        "{% for a in range(9000) %}{% endfor %}{{ messages[0].content }}", {"bos_token": "", "eos_token": ""}
    )
    for _ in range(5):
        assert render([{"role": "user", "content": "Hi"}]) == "Hi"


def test_one_rendering_after_the_other_pays_for_itself_alone(small):
    """Twenty renderings, some between others that fail, and one inside another."""
    source = "{% for message in messages %}{{ message.content * 9 }}{{ inner() if inner }}{% endfor %}"
    template = chat_template(source, {})
    said = "x" * (CHARACTERS // 16)
    expected = said * 9
    assert [template([{"content": said}]) for _ in range(20)] == [expected] * 20
    for _ in range(3):
        with pytest.raises(PromptError):
            template([{"content": said}, {"content": 1 << 5_000}])
        assert template([{"content": said}]) == expected
    assert template([{"content": said}], inner=lambda: template([{"content": said}])[:3]) == expected + "xxx"


def test_values_are_weighed_as_often_as_they_stand_there():
    """A key, a value, a list and each of their characters count; so does a list that stands in two places."""
    inner = ["abc", 1]
    weight = Meter().weigh({"k": [inner, inner]})
    assert (weight.nodes, weight.characters, weight.longest, weight.depth) == (9, 7, 3, 3)
    assert Meter().weigh(range(5)).nodes == 6
    with pytest.raises(LimitError, match="more than 3 steps"):
        Meter(3).weigh([inner])


def test_a_meter_refuses_what_is_expected_before_it_is_made():
    """What is expected and fits is not spent; what is spent beyond the limit raises every time."""
    meter = Meter(10, 10)
    meter.expect(10)
    meter.expect_items(10)
    assert (meter.n_steps, meter.n_characters) == (0, 0)
    for refused in (
        lambda: meter.expect(11),
        lambda: meter.expect_items(11),
        lambda: meter.spend(11),
        lambda: meter.tick(11),
    ):
        with pytest.raises(LimitError):
            refused()
    with pytest.raises(LimitError):
        meter.tick()


def test_a_part_pays_when_it_is_run():
    """The statements of a loop's body are paid for at each pass, those around it once."""
    assert chat_environment.MAX_NODES > 3_000  # llama.cpp's largest templates have as many
    source = "{% for a in range(@) %}{{ a + a }}{% endfor %}"
    steps = []
    for n in (10, 20, 30):
        meter, environment = Meter(), chat_environment.ChatEnvironment(chat_environment.Environment(), tracks=False)
        environment.template(environment.compiled(source.replace("@", str(n))), meter).render()
        steps.append(meter.n_steps)
    assert steps[2] - steps[1] == steps[1] - steps[0] > 10
