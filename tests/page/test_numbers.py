"""What the page shows is what the server answered, to the last digit."""

from __future__ import annotations

import json
import math
from random import Random
from types import SimpleNamespace

import pytest

from selectrie.core.notation import percent, percent_between, show_text, write_logp, written_tolerance
from tests.page.tabs import DECIDE, LATER, RANK, SELECT

GENERATE = LATER[-1]

WORDS = (
    " Paris",
    " Rome",
    " Parma",
    " Oslo",
    " New York",
    " New Zealand",
    " Chicago",
    " the",
    " a",
    " 12",
    "",
    " Paris and Rome",
)
PROMPTS = (
    "The capital of France is",
    "Q: Which city comes to mind? A:",
    "Once upon a time there was",
    "2 + 2 =",
    "He said:",
)
OPTIONS = (
    {}, {}, {"rule.name": "token_mean"}, {"rule.name": "char_mean"}, {"terminator": "eog"}, {"terminator": "unless-continued"},
)  # fmt: skip
SHARED = {"milliseconds"}
"""Names of numbers that the page measures itself."""
N_REQUESTS = 50


def shown_numbers(visitor):
    """Name, value and text of every number in the answer."""
    return visitor.answer.locator("data").evaluate_all(
        "all => all.map(one => [one.dataset.name ?? '', one.value, one.textContent])"
    )


def numbers_of(value):
    """All numbers of an object of JSON."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from numbers_of(one)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def strangers(shown, answer):
    """Shown numbers that the answer does not have, neither as they are, nor as the probability of a logarithm in it, nor as the rest to 1."""
    known = set(numbers_of(answer))
    derived = {math.exp(one) for one in known if one <= 0} | {1 - one for one in known if 0 <= one <= 1}
    found = []
    for name, value, text in shown:
        number = float(value)
        is_known = number in known or any(math.isclose(number, one, rel_tol=1e-15, abs_tol=0) for one in derived)
        if name not in SHARED and not is_known:
            found.append((name, value, text))
    return found


ROWS = """rows => rows.map(row => ({
    text: row.querySelector('bdi').textContent,
    bar: parseFloat(row.querySelector('.solid').style.inlineSize).toFixed(1),
    numbers: [...row.querySelectorAll('.share, .number')].map(one => [one.querySelector('data')?.value ?? null, one.textContent]),
    marks: [...row.querySelectorAll('.tag')].map(one => one.textContent),
    wins: row.classList.contains('wins'),
}))"""
"""A function of JavaScript: what the rows of the table of choices show; bars in tenths of a percent."""


def rows_of(answer):
    """The rows of the table of choices, in the form of `ROWS`: best first, the pruned ones last."""
    choices, is_joint = answer["choices"], answer["rule"] == "joint"
    tolerance = written_tolerance(SimpleNamespace(**answer["signature"]))
    shares = tolerance if len(choices) > 1 else 0.0

    def row(at):
        one = choices[at]
        is_pruned = one["score"] is None
        p = one["probability_high"] if is_pruned else one["probability"]
        measured = (one["logp_upper"] if is_pruned else one["logp"]) if is_joint else one["score"]
        numbers = [(p, percent_between(one["probability_low"], one["probability_high"], shares))]
        bound = (-math.inf, tolerance, measured) if is_pruned else (measured, tolerance)
        numbers.append((measured, "–" if measured is None else score(*bound)))
        local = None if one["logp_local"] is None else math.exp(one["logp_local"])
        numbers.append((local, "–" if local is None else percent(local, shares)))
        marks = {
            "★ winner": at == answer["winner"],
            "~ masked greedy": at == answer["greedy"],
            "× pruned": is_pruned,
            f"≡ same as choice {1 + (one['duplicate_of'] or 0)}": one["duplicate_of"] is not None,
        }
        return {
            "text": show_text(one["text"]),
            "bar": f"{100 * one['probability_low']:.1f}",
            "numbers": [[None if value is None else as_javascript(value), text] for value, text in numbers],
            "marks": [mark for mark, is_set in marks.items() if is_set],
            "wins": at == answer["winner"],
        }

    def rank(at):
        one = choices[at]
        return one["score"] is None, -(one["logp_upper"] if one["score"] is None else one["score"]), at

    return [row(at) for at in sorted(range(len(choices)), key=rank)]


def score(*value):
    """A log-probability or another score, as the page writes it; arguments are those of `write_logp`."""
    return write_logp(*value).replace("-", "−")


ANSWERS = """parts => parts.map(part => ({
    name: part.querySelector('h2 > bdi').textContent,
    decision: part.querySelector('.decision').textContent,
    facts: Object.fromEntries([...part.querySelectorAll('.facts data')].map(one => [one.dataset.name, one.value])),
}))"""
"""A function of JavaScript: what each question's part shows."""


def answers_of(answer):
    """The parts of the questions, in the form of `ANSWERS`."""
    return [{"name": name, **decided(one)} for name, one in answer["answers"].items()]


def decided(one):
    """What the part of a question shows."""
    told = one["diagnostics"]
    facts = {"label mass": told["label_mass"], "rows": told["rows"], "rows one by one": told["rows_one_by_one"]}
    facts |= {name: one[name] for name in ("confidence", "score") if name in one}
    best = max(options_of(one), key=lambda option: option[1])
    decision = one["legend"][best[0].split()[0]] if one["type"] == "score" else best[0].strip("'")
    return {"decision": decision, "facts": {name: as_javascript(value) for name, value in facts.items()}}


def options_of(one):
    """The options of a question as the picture has them: label, probability, and the mark of the answer."""
    if one["type"] == "noul":
        pairs = [("true", one["noul"]), ("false", 1 - one["noul"])]
    elif one["type"] == "score":
        pairs = [(f"{key} '{one['legend'][key]}'", p) for key, p in one["probabilities"].items()]
    else:
        pairs = [(f"'{text}'", p) for text, p in one["probabilities"].items()]
    best = max(p for _, p in pairs)
    return [(label, p, ["the answer"] * (p == best)) for label, p in pairs]


def outline_shown(figure):
    """The list beside a drawing, as the page shows it."""
    return figure.locator("details").evaluate(
        """details => {
            const items = list => [...(list?.children ?? [])].map(item => {
                const head = item.querySelector(':scope > button, :scope > .leaf');
                return {
                    label: head.querySelector('bdi').textContent,
                    numbers: [...head.querySelectorAll('data')].map(one => [one.value, one.textContent]),
                    marks: head.querySelector('.marks')?.textContent ?? '',
                    children: items(item.querySelector(':scope > ul')),
                };
            });
            return items(details.querySelector(':scope > ul'));
        }"""
    )


def outline_of(items, shown):
    """The outline of a drawing as the server sent it, in the same form; texts as the page shows invisible characters."""
    return [
        {
            "label": shown(item["label"]),
            "numbers": [
                [as_javascript(one["value"]), one["text"]] for one in item["numbers"] if one["value"] is not None
            ],
            "marks": ", ".join(item["marks"]),
            "children": outline_of(item["children"], shown),
        }
        for item in items
    ]


def as_javascript(number):
    """A number as JavaScript writes it: the shortest digits that give it back, as Python's, with other exponents."""
    if number == int(number) and abs(number) < 1e21:
        return str(int(number))
    digits = repr(float(number))
    mantissa, _, exponent = digits.partition("e")
    if exponent and -7 < int(exponent) < 0:
        return f"{number:.{-int(exponent) + len(mantissa.lstrip('-').replace('.', '')) - 1}f}"
    return f"{mantissa}e{int(exponent):+d}" if exponent else digits


def random_request(random):
    """Fields of a random request, with options at times."""
    choices = random.sample([one for one in WORDS if one], random.randint(2, 6))
    return {"prompt": random.choice(PROMPTS), "choices": "\n".join(choices)}, random.choice(OPTIONS)


@pytest.mark.parametrize("n_requests", [3, pytest.param(N_REQUESTS // 2, marks=pytest.mark.long)])
@pytest.mark.parametrize("tab", [SELECT, RANK], ids=str)
def test_what_is_shown_equals_the_answer(visit, double, tab, n_requests):
    """On random requests, every number has all its digits, is one of the answer, and each choice has its own."""
    random, visitor = Random(tab.name), visit().choose(tab.name)
    visitor.panel.evaluate("panel => panel.querySelectorAll('details').forEach(one => { one.open = true; })")
    n_numbers = 0
    for _ in range(n_requests):
        fields, options = random_request(random)
        visitor.fill(**fields)
        for name, value in options.items():
            visitor.field(name).select_option(value)
        assert visitor.run() in ("done", "tie", "low-mass"), (fields, options)
        answer = double.answers[-1]
        shown = shown_numbers(visitor)
        assert strangers(shown, answer) == [], (fields, options)
        assert all(value == as_javascript(float(value)) for _, value, _ in shown)
        assert visitor.answer.locator("table.choices tbody tr").evaluate_all(ROWS) == rows_of(answer)
        winner = answer["choices"][answer["winner"]]
        shares = [value for name, value, _ in shown if name.startswith("share of")][:2]
        assert shares == [as_javascript(one) for one in (winner["probability"], math.exp(answer["logp"]))]
        for name, drawing in (answer.get("drawing") or {}).items():
            figure = visitor.answer.locator(f"figure.{name}")
            if name != "sentences" and figure.count():
                assert outline_shown(figure) == outline_of(drawing["outline"], str), (name, fields)
        n_numbers += len(shown)
        for name in options:
            visitor.field(name).select_option("")
    assert n_numbers > 10 * n_requests


@pytest.mark.long
def test_lines_of_options_are_texts(visit, double):
    """A line end at the end is no text of its own, and escapes stand for what cannot be typed in a line."""
    visitor = visit().choose(GENERATE.name)
    visitor.panel.evaluate("panel => panel.querySelectorAll('details').forEach(one => { one.open = true; })")
    visitor.fill(stop="\\n\nEnd\n\n")
    assert visitor.run() == "done"
    assert double.asked[-1][1]["stop"] == ["\n", "End"]


def test_instructions_that_are_json_stay_so(visit, double):
    """A form shows them as a text, and sends what it was given until the text is changed."""
    visitor = visit().choose(DECIDE.name)
    given = {"ask": "Is it late?", "of": ["parcel"]}
    visitor.panel.get_by_role("button", name="Edit as JSON").click()
    visitor.field("q.json").fill(json.dumps({"late": {"type": "predicate", "instructions": given}}))
    visitor.panel.get_by_role("button", name="Edit as forms").click()
    visitor.run()
    assert double.asked[-1][1]["questions"]["late"]["instructions"] == given
    visitor.field("q.instructions").fill("It is late.")
    visitor.run()
    assert double.asked[-1][1]["questions"]["late"]["instructions"] == "It is late."


def test_questions_are_added_removed_and_named_once(visit, double):
    """A question that is added has the focus and is asked; of one that is removed nothing is left; two names are an error."""
    visitor = visit().choose(DECIDE.name)
    forms = visitor.panel.locator("fieldset.question")
    n_before = forms.count()
    visitor.panel.get_by_role("button", name="Add a question").click()
    assert visitor.page.evaluate("document.activeElement.name") == "q.instructions"
    visitor.page.keyboard.type("The text is about {label}.")
    last = forms.last
    last.locator("[name='q.options']").fill("parcels\nmoney")
    last.get_by_label("any number of them may fit").check()
    assert visitor.run() in ("done", "tie", "low-mass")
    names = list(double.asked[-1][1]["questions"])
    assert len(names) == n_before + 1
    answer = double.answers[-1]["answers"][names[-1]]
    assert answer["type"] == "multi_label"
    decision = visitor.answer.get_by_label(f"Answer to {names[-1]}").locator(".decision")
    assert decision.inner_text() == (", ".join(answer["choices"]) or "none of them")
    forms.first.get_by_role("button", name="Remove").click()
    assert visitor.page.evaluate("document.activeElement.closest('fieldset')") is not None
    assert visitor.run() in ("done", "tie", "low-mass")
    assert list(double.asked[-1][1]["questions"]) == names[1:]
    last.locator("[name='q.name']").fill(names[1])
    assert visitor.run() == "error"
    assert f"two questions have the name {names[1]}" in visitor.answer.inner_text()
    assert len(double.asked) == 2


def test_a_state_of_json_is_sent_as_data(visit, double):
    """What is no JSON is an error at its field, before anything is asked."""
    visitor = visit().choose(DECIDE.name).fill(state='{"parcel": "late"')
    visitor.field("mode").select_option("json")
    assert visitor.run() == "error"
    assert visitor.page.evaluate("document.activeElement.name") == "state"
    assert double.asked == []
    visitor.fill(state='{"parcel": "late"}')
    visitor.run()
    assert double.asked[-1][1]["state"] == {"parcel": "late"}


def test_other_orders_of_the_options_are_asked(visit, double):
    """A button asks the same questions in all orders of few options, and shows how far the orders are apart."""
    visitor = visit().choose(DECIDE.name)
    visitor.run()
    before = visitor.page.evaluate("n_settled")
    visitor.answer.get_by_role("button", name="other orders").click()
    visitor.settled(before)
    (_, first), (_, second) = double.asked
    assert second == {**first, "permutations": "all"}
    assert "averages over orders" in visitor.answer.inner_text()
    spreads = visitor.answer.locator("[data-name='spread']").evaluate_all("all => all.map(one => Number(one.value))")
    told = [one["diagnostics"]["spread"] for one in double.answers[-1]["answers"].values()]
    assert spreads == told


STATES = ("My parcel has not come!", "Thank you, all is well.", "", "12 items are missing 📦", "Bitte um Rückruf")


def test_what_decide_shows_equals_the_answer(visit, double):
    """Every number of every question is one of the answer, with all its digits, and stands where it belongs."""
    visitor = visit().choose(DECIDE.name)
    for state in STATES:
        visitor.fill(state=state)
        assert visitor.run() in ("done", "tie", "low-mass")
        answer = double.answers[-1]
        assert strangers(shown_numbers(visitor), answer) == []
        assert visitor.answer.locator(".decided").evaluate_all(ANSWERS) == answers_of(answer)
        outline = answer["drawing"]["bars"]["outline"]
        assert outline_shown(visitor.answer.locator("figure.answer-bars")) == outline_of(outline, str)
        for head, one in zip(outline, answer["answers"].values(), strict=True):
            drawn = [(option["label"], option["numbers"][0]["value"], option["marks"]) for option in head["children"]]
            assert sorted(drawn) == sorted(options_of(one))


def test_a_near_tie_of_an_answer_has_the_digits_of_its_tolerance(visit, double):
    """The margin is written by it as everywhere, and it has two digits."""
    visitor = visit().choose(DECIDE.name)
    visitor.run()
    told = double.answers[-1]["answers"]["intent"]["diagnostics"]
    told |= {"margin": 0.0132, "tolerance": 0.801320759448959, "is_tie": False}
    double.expect(DECIDE.path).answer(double.answers[-1])
    assert visitor.run() == "tie"
    words = "The first two are 0.0 nats apart, less than what may move a row of this model (0.8 nats)."
    assert words in visitor.answer.locator(".note.tie").inner_text()


def test_percentages_are_those_of_python(visit):
    """On 200 numbers, some at the edges of the digits, Python and the page write the same."""
    random, edges = Random("percent"), (0.0, 0.001, 0.0095, 0.095, 0.0995, 0.5, 0.55, 0.9005, 0.9905, 0.999, 1.0)
    numbers = [(p, tolerance) for p in edges for tolerance in (0.0, 0.005, 0.3)]
    while len(numbers) < 200:
        p = math.exp(-random.uniform(0, 8))
        numbers.append((random.choice((p, 1 - p, round(p, 3))), random.choice((0.0, 0.005, 0.05, 0.3, 1.0))))
    written = visit("/health").page.evaluate(
        "async numbers => { const { percent } = await import('/page/format.js'); return numbers.map(one => percent(...one)); }",
        numbers,
    )
    assert written == [percent(*one) for one in numbers]


def test_bounds_are_those_of_python(visit):
    """Ends that look alike are one number, and a bound that says nothing is not known."""
    random = Random("bounds")
    bounds = [(0.0, 1.0, 0.0), (0.0, 0.9995, 0.0), (0.0, 0.0004, 0.0), (0.9995, 1.0, 0.0), (-0.1, 1.2, 0.3)]
    while len(bounds) < 200:
        low, high = sorted(random.choice((0.0, 1.0, random.random(), math.exp(-random.uniform(0, 8)))) for _ in "ab")
        bounds.append((low, high, random.choice((0.0, 0.005, 0.05, 0.3))))
    script = "async all => { const { percentBetween } = await import('/page/format.js'); return all.map(one => percentBetween(...one)); }"
    written = visit().page.evaluate(script, [*bounds, (0.37, 0.47, 0.005), (0, 0.9996, 0.005), (0, 0.115, 0.005)])
    assert written[200:] == ["37 % to 47 %", "not known", "at most 12 %"]
    assert written[:200] == [percent_between(*one) for one in bounds]


def test_log_probabilities_are_those_of_python(visit):
    """With the same decimals, by the tolerance; the page has a true minus."""
    random = Random("log-probabilities")
    numbers = [(-random.uniform(0, 20), random.choice((0.0, 0.0005, 0.005, 0.05, 0.3, 2.0))) for _ in range(200)]
    written = visit("/health").page.evaluate(
        "async numbers => { const { score } = await import('/page/format.js'); return numbers.map(one => score(...one)); }",
        [*numbers, (-1e-9, 0.005)],
    )
    assert written.pop() == "0.00"
    assert written == [write_logp(*one).replace("-", "−") for one in numbers]


def test_changes_of_a_probability_are_points(visit):
    """They are no percentages, and have the digits that the tolerance leaves."""
    cases = {
        (0.0, 0.0): "0 points",
        (0.0004, 0.0): "under 0.1 points",
        (0.0321, 0.001): "± 3.2 points",
        (0.0999, 0.0): "± 10 points",
        (0.004, 0.1): "under 1 point",
        (0.013, 0.1): "± 1 point",
    }
    written = visit("/health").page.evaluate(
        "async cases => { const { points } = await import('/page/format.js'); return cases.map(one => points(...one)); }",
        list(cases),
    )
    assert written == list(cases.values())


def test_strangers_are_found():
    """A number with a digit less, or one that the answer has not, is noticed."""
    answer = {"p": [0.1234567890123], "logp": -0.5, "n": 3}
    shown = [
        ["p", "0.1234567890123", "12 %"],
        ["q", repr(math.exp(-0.5)), "61 %"],
        ["n", "3", "3"],
        ["milliseconds", "7.5", "8 ms"],
    ]
    assert strangers(shown, answer) == []
    assert strangers([["p", "0.123456789012", ""], ["x", "4", ""]], answer) == [
        ("p", "0.123456789012", ""),
        ("x", "4", ""),
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [(1.0, "1"), (0.5, "0.5"), (1e-05, "0.00001"), (1.25e-06, "0.00000125"), (1.5e-07, "1.5e-7"), (-2e-10, "-2e-10"), (1e21, "1e+21"), (123456.75, "123456.75"), (1e20, "100000000000000000000")],
)  # fmt: skip
def test_numbers_are_written_as_javascript_does(number, text):
    """By hand, around the exponents at which the forms change."""
    assert as_javascript(number) == text
