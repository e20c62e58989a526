from __future__ import annotations

import math
from collections import OrderedDict, UserString, defaultdict
from enum import Enum, IntEnum
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.errors import TemplateError
from selectrie.template.syntax.ast import Compare, Constant, Document, ListOf, Logical, Not, Path, Span
from selectrie.template.values.scope import (
    UNDECIDED,
    Scope,
    Undecided,
    evaluate,
    items_at,
    text_at,
    truth_at,
)
from selectrie.template.values.values import (
    SlotOption,
    are_equal,
    compare_order,
    contains,
    get_part,
    is_true,
    option_of,
    options_of,
    text_of,
)
from tests.support.n_examples import n_examples

DOCUMENT = Document("page.tmpl", "one\ntwo <<x>>\n", ())
HERE = Span(10, 11)


class Armor(Enum):
    PLATE = "plate"
    CLOTH = "cloth"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Odd(list, Enum):
    """Members that cannot be hashed."""

    ONE = ((1,),)


class Trap:
    """Whatever a template might ask of it fails."""

    secret = property(lambda _self: 1 / 0)

    def __str__(self):
        raise RuntimeError

    __repr__ = __bool__ = __len__ = __iter__ = __str__

    def __eq__(self, other):
        raise RuntimeError

    __hash__ = None


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(-2, 2).map(lambda number: round(number, 1)),
    st.text("abé", max_size=2),
    st.sampled_from([*Armor, *Level]),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a b\n", "a b\n"),
        ("", ""),
        (3, "3"),
        (-0.5, "-0.5"),
        (1e100, "1e+100"),
        (True, "true"),
        (False, "false"),
        (Armor.PLATE, "plate"),
        (Level.HIGH, "2"),
        (np.int64(7), "7"),
        (np.float64(0.1), "0.1"),
    ],
)
def test_what_has_a_text(value, text):
    """Texts as they are, numbers by repr, truth values in lower case, Enum members by their value."""
    assert text_of(value) == text
    assert type(text_of(value)) is str


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "none has no text"),
        ([1, 2], "a list of 2 has no text; use `each`"),
        ({"a": 1}, "a mapping of 1 has no text"),
        (math.nan, "the number nan has no text"),
        (-math.inf, "the number -inf has no text"),
        ("a\ud800", "lone surrogate"),
        (b"a", "of the type bytes"),
        (Trap(), "of the type Trap"),
        (Armor, "the Enum class Armor has no text"),
        (Fraction(1, 3), "of the type Fraction"),
        pytest.param(10**5000, "too many digits", id="huge"),
        (Odd.ONE, "a list of 1 has no text"),
    ],
)
def test_what_has_no_text(value, message):
    """None, lists, mappings, what is no number, and foreign objects are refused with what to do instead."""
    with pytest.raises(TemplateError, match=message):
        text_of(value)


@pytest.mark.parametrize("value", [None, False, 0, 0.0, "", [], {}, (), range(0), MappingProxyType({}), np.int64(0)])
def test_what_counts_as_false(value):
    """None, false, zero and what is empty."""
    assert is_true(value) is False


@pytest.mark.parametrize("value", [True, -1, 0.1, " ", [None], {"a": None}, range(1), Armor.PLATE, Level.LOW])
def test_what_counts_as_true(value):
    """Everything else that a template can hold."""
    assert is_true(value) is True


def test_foreign_objects_are_not_asked_for_their_truth():
    """An object of the caller's own class has none, and its methods are not called."""
    with pytest.raises(TemplateError, match="of the type Trap"):
        is_true(Trap())


def twin_same(one, other):
    """Equality by Python's own, kinds told apart first."""

    def tagged(value):
        if isinstance(value, Enum):
            value = value.value
        if isinstance(value, bool) or value is None:
            return ("constant", value)
        if isinstance(value, int | float):
            return ("number", value)
        if isinstance(value, dict):
            return ("mapping", {key: tagged(inner) for key, inner in value.items()})
        return ("list", [tagged(inner) for inner in value]) if isinstance(value, list) else ("text", value)

    return tagged(one) == tagged(other)


@given(values, values)
@settings(max_examples=n_examples(50))
def test_equality_tells_kinds_apart(one, other):
    """Two values are equal where Python says so of values of one kind, in lists and mappings too."""
    assert are_equal(one, other) == are_equal(other, one) == twin_same(one, other)
    assert are_equal(one, one)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (True, 1, False),
        (False, 0, False),
        ("1", 1, False),
        (1, 1.0, True),
        ((1, 2), [1, 2], True),
        ("ab", ["a", "b"], False),
        (Armor.PLATE, "plate", True),
        (Level.LOW, 1, True),
        (Level.LOW, True, False),
        (Armor.PLATE, Armor.CLOTH, False),
        (math.nan, math.nan, False),
        (None, False, False),
        ({"a": [1]}, OrderedDict(a=(1,)), True),
    ],
)
def test_equality_by_hand(one, other, expected):
    """True is no 1, a text no list of its characters, a tuple is a list, an Enum member is itself and its value."""
    assert are_equal(one, other) is expected


def test_members_of_two_enums_differ():
    """Also where their values are the same."""
    other = Enum("Other", {"PLATE": "plate"})
    assert not are_equal(Armor.PLATE, other.PLATE)


def test_comparing_ends():
    """Values that hold themselves, or the same list doubled sixty times over, are refused instead of followed."""
    circle: list[object] = []
    circle.append(circle)
    other: list[object] = []
    other.append(other)
    with pytest.raises(TemplateError, match="too large"):
        are_equal(circle, other)
    one: object = 1
    two: object = 1
    for _ in range(60):
        one, two = [one, one], [two, two]
    with pytest.raises(TemplateError, match="too large"):
        are_equal(one, two)


@given(st.integers() | st.floats(allow_nan=False), st.integers() | st.floats(allow_nan=False))
def test_numbers_have_pythons_order(one, other):
    """Whole or not."""
    assert compare_order(one, other) == (one > other) - (one < other) == -compare_order(other, one)


@pytest.mark.parametrize(
    ("one", "other"), [(1, "a"), (True, 0), (None, 1), ([1], [2]), (math.nan, 1), (Trap(), Trap())]
)
def test_what_has_no_order(one, other):
    """Only two numbers or two texts have one."""
    with pytest.raises(TemplateError):
        compare_order(one, other)


@pytest.mark.parametrize(
    ("container", "item", "expected"),
    [
        ([1, "a"], "a", True),
        ([1, "a"], True, False),
        ((Armor.PLATE,), "plate", True),
        ({"a": 1}, "a", True),
        ({"a": 1}, 1, False),
        ({Armor.PLATE: 1}, Armor.PLATE, True),
        ({"plate": 1}, Armor.PLATE, True),
        ({"a": 1}, ["a"], False),
        ({"a": 1}, Odd.ONE, False),
        ("banana", "nan", True),
        ("banana", "", True),
        (Armor, "cloth", True),
        (range(3), 2, True),
    ],
)
def test_what_is_in_what(container, item, expected):
    """An equal item of a list, a key of a mapping, a part of a text, a member of an Enum class."""
    assert contains(container, item) is expected


@pytest.mark.parametrize(("container", "item"), [("banana", 1), (3, 3), (None, None), ({1, 2}, 1)])
def test_what_holds_nothing(container, item):
    """Numbers, none and sets have nothing in them, and a text has only texts."""
    with pytest.raises(TemplateError):
        contains(container, item)


@pytest.mark.parametrize(
    ("value", "step", "expected"),
    [
        ([5, 6, 7], 0, 5),
        ([5, 6, 7], -1, 7),
        ((5, 6), Level.LOW, 6),
        (range(10, 20), 3, 13),
        ({"a": 1}, "a", 1),
        ({3: "x"}, 3, "x"),
        ({Armor.PLATE: 1}, Armor.PLATE, 1),
        ({"plate": 1}, Armor.PLATE, 1),
    ],
)
def test_parts(value, step, expected):
    """Places of lists, negative ones from the end, and keys of mappings, also by an Enum member's value."""
    assert get_part(value, step) == expected


@pytest.mark.parametrize(
    ("value", "step", "message"),
    [
        ([5], 1, "no index 1; its indices are 0 to 0"),
        ([5], -2, "no index -2"),
        ([], 0, "it is empty"),
        ([5], True, "the index of a list must be a whole number such as .0., not true"),
        ([5], "append", "the index of a list must be a whole number such as .0., not 'append'"),
        ([5], 0.0, "the index of a list must be"),
        ("text", 0, "'text' has no parts"),
        (UserString("text"), 0, "has no parts"),
        ({"armor": 1}, "armr", "no key 'armr'; did you mean 'armor'"),
        ({"a": 1}, "keys", "no key 'keys'; its keys: 'a'"),
        ({"a": 1}, [1], "no key a list of 1"),
        (Armor, "PLATE", "has no parts"),
        (Trap(), "secret", "of the type Trap has no parts"),
        (None, "a", "none has no parts"),
    ],
)
def test_parts_that_are_not_there(value, step, message):
    """Missing keys and places are told with those there are; a text is no list, and no attribute is ever read."""
    with pytest.raises(TemplateError, match=message):
        get_part(value, step)


def test_a_default_is_not_made():
    """A mapping that makes up missing values is not asked to."""
    mapping = defaultdict(list)
    with pytest.raises(TemplateError):
        get_part(mapping, "a")
    assert not mapping


@pytest.mark.parametrize(
    ("value", "options"),
    [
        (["a", 2, True, 0.5], [("a", "a"), ("2", 2), ("true", True), ("0.5", 0.5)]),
        ([("yes", True), ("no", None)], [("yes", True), ("no", None)]),
        ([["yes", 1], ["no", 2]], [("yes", 1), ("no", 2)]),
        ({"yes": True, "no": [1]}, [("yes", True), ("no", [1])]),
        (Armor, [("plate", Armor.PLATE), ("cloth", Armor.CLOTH)]),
        ([Armor.CLOTH, "wood"], [("cloth", Armor.CLOTH), ("wood", "wood")]),
        (range(2), [("0", 0), ("1", 1)]),
        ([""], [("", "")]),
    ],
)
def test_options(value, options):
    """The value of an option keeps its type; pairs, mappings and Enum classes say text and value apart."""
    assert options_of(value) == tuple(SlotOption(text, inner) for text, inner in options)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "the list of options is empty"),
        ({}, "the list of options is empty"),
        ("abc", "options must be a list or .* not 'abc'"),
        ({"b", "a"}, "a set has no order, so pass sorted"),
        ((one for one in "ab"), "pass list"),
        (np.array(["a", "b"]), "pass list"),
        (None, "not none"),
        (["a", None], "option 1: none has no text"),
        (["a", "b", "a"], "the text 'a': option 0 is 'a', option 2 is 'a'"),
        ([1, "1"], "the text '1': option 0 is 1, option 1 is '1'"),
        ([Level.LOW, 1.0, 1], "the text '1': option 0 is 1, option 2 is 1"),
        ([("a", 1, 2)], "option 0: a list of 3 is not an option"),
        ([(1, "a")], "option 0: a list of 2 is not an option"),
        ([math.inf], "option 0: the number inf"),
    ],
)
def test_what_is_no_list_of_options(value, message):
    """Nothing, one text, what has no order, and two options of one text are refused, both named."""
    with pytest.raises(TemplateError, match=message):
        options_of(value)


@given(st.lists(values, max_size=4))
@settings(max_examples=n_examples(50))
def test_options_are_refused_or_distinct(given_values):
    """A list of values that each make an option, with different texts, gives these options; any other list is refused."""
    try:
        expected = [option_of(value) for value in given_values]
    except TemplateError:
        expected = []
    if not expected or len({option.text for option in expected}) < len(expected):
        with pytest.raises(TemplateError):
            options_of(given_values)
    else:
        assert list(options_of(given_values)) == expected


def path(name, *steps):
    return Path(name, steps, span=HERE)


def test_scopes_are_chained():
    """Inner names hide outer ones, slots hide given values, and the given mapping stays as it is."""
    values = {"a": 1, "b": 2}
    page = Scope(values)
    page.set("b", 3)
    turn = page.child({"this": 4, "@index": 0})
    turn.set("a", 5)
    assert [turn.get(name) for name in ("a", "b", "this", "@index")] == [5, 3, 4, 0]
    assert (page.get("a"), page.get("b"), values) == (1, 3, {"a": 1, "b": 2})
    assert turn.names() == ("this", "@index", "a", "b")
    assert "this" in turn
    assert "this" not in page
    assert dict(page.own()) == {"b": 3}


def test_sets_in_a_loop_are_the_pages():
    """What `set` names outlives the turn of the loop it stands in."""
    page = Scope()
    page.child({"this": 1}).child().assign("last", 7)
    assert page.get("last") == 7


def test_fields_of_this():
    """`this.name` is a key of `this`; whoever holds the mapping before keeps it as it was."""
    turn = Scope().child()
    turn.set("this.name", "Aria")
    held = turn.get("this")
    turn.set("this.level", 3)
    assert turn.get("this") == {"name": "Aria", "level": 3}
    assert held == {"name": "Aria"}
    assert turn.get("this", "level") == 3


def test_a_snapshot_is_restored():
    """Names given since are gone, others have the values they had; what is not among the names asked for stays."""
    page = Scope({"a": 1})
    turn = page.child({"this": 1})
    page.set("kept", 1)
    names = ("this", "kept", "new")
    held = turn.snapshot(names)
    turn.set("this", 2)
    turn.assign("kept", 2)
    turn.assign("new", 3)
    turn.assign("other", 4)
    turn.restore(names, held)
    assert (turn.get("this"), turn.get("kept"), turn.names()) == (1, 1, ("this", "other", "kept", "a"))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (Constant("x"), "x"),
        (path("data", "items", -1), "c"),
        (path("data", path("key"), path("one")), "b"),
        (path("labels", path("data", "items", 0)), "first"),
        (ListOf((Constant(1), path("one"))), [1, 1]),
        (Compare("==", path("one"), Constant(1)), True),
        (Compare("!=", path("one"), Constant(True)), True),
        (Compare("not in", Constant("z"), path("data", "items")), True),
        (Compare(">=", Constant("b"), Constant("a")), True),
        (Not(path("one")), False),
        (Logical("and", (path("one"), Constant(0), path("missing"))), False),
        (Logical("or", (Constant(""), Constant("x"), path("missing"))), True),
    ],
)
def test_expressions_by_hand(expression, expected):
    """Paths with keys, places and names within; comparisons; `and` and `or` stop where they are decided."""
    scope = Scope({"data": {"items": ["a", "b", "c"]}, "key": "items", "one": 1, "labels": {"a": "first"}})
    result = evaluate(expression, scope, DOCUMENT)
    assert result == expected
    assert type(result) is type(expected)


def test_a_list_is_made_each_time():
    """Who changes the value of an expression changes no other."""
    expression = ListOf((Constant(1),))
    assert evaluate(expression, Scope(), DOCUMENT) is not evaluate(expression, Scope(), DOCUMENT)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda scope: evaluate(path("armos"), scope, DOCUMENT), "no value is called 'armos'; did you mean 'armors'?"),
        (lambda scope: evaluate(path("armors", 9), scope, DOCUMENT), "the list has no index 9; its indices are 0 to 0"),
        (
            lambda scope: evaluate(Compare("<", path("one"), path("armors"), span=HERE), scope, DOCUMENT),
            "1 and a list of 1 cannot be ordered",
        ),
        (lambda scope: text_at(path("armors"), scope, DOCUMENT), "a list of 1 has no text"),
        (lambda scope: items_at(path("one"), scope, DOCUMENT), "`each` loops over a list or a mapping"),
        (lambda scope: truth_at(path("odd"), scope, DOCUMENT), "neither true nor false"),
        (lambda scope: evaluate(Not(path("odd")), scope, DOCUMENT), "neither true nor false"),
        (lambda scope: evaluate(Logical("and", (path("odd"),)), scope, DOCUMENT), "neither true nor false"),
    ],
)
def test_errors_stand_at_their_expression(call, message):
    """File, line, column, the line and a caret, whatever goes wrong with a value."""
    scope = Scope({"armors": ["plate"], "one": 1, "odd": Trap()})
    with pytest.raises(TemplateError) as caught:
        call(scope)
    assert message in str(caught.value)
    assert str(caught.value).startswith("page.tmpl:2:7: ")
    assert str(caught.value).endswith("\n  two <<x>>\n        ^")


@pytest.mark.parametrize(
    "around",
    [
        lambda inner: Not(inner, span=HERE),
        lambda inner: Compare("==", inner, Constant(1), span=HERE),
        lambda inner: Compare("==", Constant(1), inner, span=HERE),
        lambda inner: ListOf((inner,), span=HERE),
        lambda inner: Logical("and", (inner,), span=HERE),
        lambda inner: Path("a", (inner,), span=HERE),
    ],
    ids=["not", "left", "right", "list", "and", "path"],
)
def test_deep_expressions_are_refused(around):
    """However deep expressions are nested, it is a `TemplateError` and no `RecursionError`."""
    expression: object = Constant(1)
    for _ in range(5000):
        expression = around(expression)
    with pytest.raises(TemplateError, match="expressions are nested more than"):
        evaluate(expression, Scope(), DOCUMENT)


def test_undecided_values_are_told_apart():
    """Who needs a value that only the model can give gets `Undecided`, unless the rest decides without it."""
    page = Scope({"one": 1})
    page.set("slot", UNDECIDED)
    for expression in (path("slot"), path("slot", 0), ListOf((path("slot"),)), path("data", path("slot"))):
        with pytest.raises(Undecided):
            evaluate(expression, page, DOCUMENT)
    assert evaluate(Logical("or", (path("one"), path("slot"))), page, DOCUMENT) is True
    assert "slot" in page


def test_items():
    """A list gives its places, a mapping its keys, an Enum class its members."""
    scope = Scope({"xs": ["a"], "map": {"k": "v"}, "Armor": Armor})
    assert items_at(path("xs"), scope, DOCUMENT) == [(0, "a")]
    assert items_at(path("map"), scope, DOCUMENT) == [("k", "v")]
    assert items_at(path("Armor"), scope, DOCUMENT) == [(0, Armor.PLATE), (1, Armor.CLOTH)]
