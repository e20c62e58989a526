"""From records to items: what is right, examples before questions, and one error with the line for a record that cannot be read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.errors import InputFileError, OptionError
from selectrie.evaluation.dataset import Data, DataRecord, Shots, items_of, read_data
from selectrie.evaluation.tasks import STEPS, FieldError, Preparation, load_task, parse_task, value_at
from tests.support.n_examples import n_examples

GENERIC = load_task("generic")


def task_of(form, head=""):
    """A task with one format."""
    text = f'name = "own"\nversion = 1\nkind = "multiple_choice"\nsource = "here"\nmetrics = ["acc"]\n{head}\n[[format]]\n{form}'
    return parse_task(text, "own.toml")


def data_of(records, name="data.jsonl"):
    """Records as if they were read, the first one of line 11."""
    return Data(Path(name), tuple(DataRecord(i, one) for i, one in enumerate(records, start=11)), name)


def record(question="q", choices=("a", "b"), gold=0, **more):
    """One record of the generic shape."""
    return {"context": question, "choices": list(choices), "gold": gold, **more}


def gold_of(said, gold_as="place", choices=("x", "y", "z"), labels='["A", "B", "C"]'):
    """The places that are right by what a record says."""
    task = task_of(f'context = "<<context>>"\ngold_as = "{gold_as}"\nlabels = {labels}')
    return items_of(task, data_of([record(choices=choices, gold=said)])).items[0].gold


@pytest.mark.parametrize(
    ("said", "gold_as", "places"),
    [
        (2, "place", (2,)),
        ("2", "place", (2,)),
        (" 1 ", "place", (1,)),
        (1.0, "place", (1,)),
        ("0.0", "place", (0,)),
        ([0, 2], "place", (0, 2)),
        ([2, "2", 0], "place", (2, 0)),
        (3, "number", (2,)),
        ("1", "number", (0,)),
        ("B", "label", (1,)),
        (" C", "label", (2,)),
        (["C", "A"], "label", (2, 0)),
        ("y", "text", (1,)),
        (["z", "x", "z"], "text", (2, 0)),
        ([0, 1, 1], "flags", (1, 2)),
        ([True, False, False], "flags", (0,)),
    ],
)
def test_what_is_right(said, gold_as, places):
    """Places from 0, numbers from 1, labels, texts or flags; numbers as text (CSV) as well; each place once."""
    assert gold_of(said, gold_as) == places


def test_truth_is_a_place_among_two():
    """`true` is the second of two choices, as JSON and as tables write it; among more it is a mistake."""
    for said in (True, "true", "True", " TRUE"):
        assert gold_of(said, choices=("no", "yes")) == (1,)
    assert gold_of(False, choices=("no", "yes")) == (0,)


def test_labels_of_the_record_itself_and_texts_with_blanks():
    """Labels from a field; a choice that begins with a blank is found as it stands."""
    task = task_of('context = "<<context>>"\ngold_as = "label"\nlabels = "names"')
    assert items_of(task, data_of([record(gold="2", names=["1", "2"])])).items[0].gold == (1,)
    assert gold_of(" y", "text", choices=("y", " y")) == (1,)


@pytest.mark.parametrize(
    ("said", "gold_as", "reason"),
    [
        (3, "place", "gold is 3: expected an integer from 0 to 2"),
        (-1, "place", "gold is -1: expected an integer from 0 to 2"),
        (1.5, "place", "gold is 1.5: expected an integer"),
        (True, "place", "gold is True: expected an integer"),
        ("", "place", "gold is '': expected an integer"),
        (None, "place", "gold is None: expected an integer"),
        ("1_0", "place", "gold is '1_0': expected an integer"),
        ("\u0661", "place", "an integer from 0 to 2"),
        ("9" * 40, "place", "an integer from 0 to 2"),
        ([[0]], "place", "gold is [0]: expected an integer"),
        ({"a": 1}, "place", "expected an integer"),
        ([], "place", "gold is []: expected at least one right choice"),
        ([0, 7], "place", "gold is 7: expected an integer from 0 to 2"),
        (0, "number", "gold is 0: expected an integer from 1 to 3"),
        (4, "number", "gold is 4: expected an integer from 1 to 3"),
        (True, "number", "gold is True: expected an integer from 1 to 3"),
        ("D", "label", "gold is 'D': expected one of 'A', 'B', 'C'"),
        (1, "label", "gold is 1: expected one of 'A', 'B', 'C'"),
        ("w", "text", "gold is 'w': expected one of 'x', 'y', 'z'"),
        ([1, 0], "flags", "gold is [1, 0]: expected a list of 3 zeros and ones"),
        ([0, 0, 0], "flags", "expected at least one right choice"),
        ([0, 2, 0], "flags", "a list of 3 zeros and ones"),
        ("100", "flags", "a list of 3 zeros and ones"),
    ],
)
def test_a_wrong_gold_is_an_error_with_its_line(said, gold_as, reason):
    """Never counted as wrong, never taken for another choice."""
    with pytest.raises(InputFileError, match=r"data\.jsonl:11: ") as caught:
        gold_of(said, gold_as)
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (record(choices=()), "no choices"),
        (record(choices=("a", "")), "choice 1 is empty"),
        (record(choices=("a", 3)), "choices is ['a', 3]: expected a list of texts"),
        ({**record(), "choices": "ab"}, "choices is 'ab': expected a list of texts (as JSON"),
        ({**record(), "choices": "['a', 'b']"}, "expected a list of texts (as JSON"),
        ({**record(), "choices": '["\\ud800"]'}, "expected a list of texts (as JSON"),
        ({**record(), "choices": None}, "choices is None: expected a list of texts"),
        ({**record(), "context": None}, "none has no text"),
        ({**record(), "context": ["a"]}, "a list of 1 has no text"),
        ({"question": "q", "choices": ["a"], "gold": 0}, "needs the fields (context, choices, gold); the record has question, choices, gold"),
        ({"context": "q", "choices": ["a"]}, "needs the fields (context, choices, gold); the record has context, choices"),
        (record(id=["a"]), "a list of 1 has no text"),
    ],
)  # fmt: skip
def test_a_wrong_record_is_an_error_with_its_line(wrong, reason):
    """The file, the line, the field and its value; records before it do not hide it."""
    with pytest.raises(InputFileError, match=r"data\.jsonl:12: ") as caught:
        items_of(GENERIC, data_of([record(), wrong]))
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("name", "wrong", "reason"),
    [
        ("winogrande", {"sentence": "no gap", "option1": "a", "option2": "b", "answer": "1"}, "no '_' in 'no gap'"),
        ("winogrande", {"sentence": "a _", "option1": "a", "option2": "b", "answer": "1"}, "choice 0 is empty"),
        ("winogrande", {"sentence": 3, "option1": "a", "option2": "b", "answer": "1"}, "before is 3: expected a text"),
        ("copa", {"premise": "a.", "question": "reason", "choice1": "a", "choice2": "b", "label": 0}, "'reason': expected one of 'cause', 'effect'"),
        ("mmlu", {"question": "a", "choices": ["a", "b"], "answer": 0, "subject": "s"}, "has no index 2"),
        ("truthfulqa_mc2", {"context": "a", "choices": ["a"], "gold": 0, "correct_answers": "b"}, "correct_answers is 'b': expected a list of texts"),
        ("lambada_openai", {"context": "a", "continuation": ["a", "b"]}, "continuation is ['a', 'b']: expected a text"),
        ("text", {"text": 3}, "text is 3: expected a text"),
        ("lambada_openai", {"text": "ends in a blank "}, "choice 0 is empty"),
    ],
)  # fmt: skip
def test_records_a_shipped_task_cannot_read(name, wrong, reason):
    """What the steps of a task find wrong is told as any other mistake."""
    with pytest.raises(InputFileError, match=r"data\.jsonl:11: ") as caught:
        items_of(load_task(name), data_of([wrong]))
    assert reason in caught.value.reason


def test_a_table_holds_choices_as_json(tmp_path):
    """CSV has texts only: choices as a JSON list, gold as digits."""
    path = tmp_path / "a.csv"
    path.write_text('context,choices,gold,id\nQ,"[""no"", ""yes, so""]",1,\n', encoding="utf-8")
    item = items_of(GENERIC, read_data(path)).items[0]
    assert (item.context, item.choices, item.gold, item.id) == ("Q", ("no", "yes, so"), (1,), "generic-0")


def test_items_have_ids_and_subsets():
    """The record's own, numbers as text, else the task's name and the place."""
    task = task_of('context = "<<context>>"\nsubset = "<<group>>"')
    found = items_of(task, data_of([record(id=7, group="x"), record(id="é", group=3), record(id=None, group="")])).items
    assert [(one.id, one.subset) for one in found] == [("7", "x"), ("é", "3"), ("own-2", "")]


def test_a_limit_takes_the_first_ones_and_reads_no_more():
    """A mistake behind it is not met; 0 is no limit that can be given."""
    data = data_of([record("a"), record("b"), record(gold=9)])
    assert [one.context for one in items_of(GENERIC, data, limit=2).items] == ["a", "b"]
    for limit in (0, -1, True):
        with pytest.raises(OptionError, match="limit"):
            items_of(GENERIC, data, limit=limit)


def test_one_text_where_one_is_wanted():
    """A task of continuations has one text an item; a task of whole texts has no examples."""
    task = replace(GENERIC, kind="continuation", formats=(replace(GENERIC.formats[0], choices=("a", "b")),))
    with pytest.raises(InputFileError, match="2 choices: a task of kind 'continuation' has one text"):
        items_of(task, data_of([record()]))
    with pytest.raises(OptionError, match="shots"):
        items_of(load_task("text"), data_of([{"text": "a"}]), shots=Shots(1))
    contexts = task_of('contexts = ["a", "b", "c"]')
    with pytest.raises(InputFileError, match="3 contexts for 2 choices"):
        items_of(contexts, data_of([record()]))


# Examples before questions

POOL = [record(f"q{i}", ("no", "yes"), i % 2, group="xy"[i // 4]) for i in range(8)]
TASK = task_of('context = "<<context>>:"', 'description = "About <<group>>.\\n"\nshot_delimiter = ";"')
BY_GROUP = replace(TASK, shots_by="group")


def shown(task, data, shots, **more):
    """The text before each question."""
    return [item.shared for item in items_of(task, data, shots=shots, **more).items]


def test_the_first_examples_of_another_file_stand_before_every_question():
    """Description, examples with their answers, in order; the same text, held once."""
    found = shown(TASK, data_of(POOL[:2]), Shots(2, data_of(POOL[4:], "dev.jsonl")))
    assert found == ["About x.\nq4: no;q5: yes;"] * 2
    assert found[0] is found[1]


def test_a_question_is_never_its_own_example():
    """From the same file it is left out, and so is a copy of it; the same file named as source of examples is the same file."""
    same = [*POOL[:2], POOL[0], POOL[2]]
    expected = [
        "About x.\nq2: no;q1: yes;",
        "About x.\nq0: no;q2: no;",
        "About x.\nq2: no;q1: yes;",
        "About x.\nq0: no;q1: yes;",
    ]
    assert shown(TASK, data_of(same), Shots(2)) == expected
    assert shown(TASK, data_of(same), Shots(2, data_of(same))) == expected
    for seed in range(5):
        assert "q0" not in shown(TASK, data_of(same), Shots(2, seed=seed))[0]


def test_questions_that_are_examples_share_the_next_ones():
    """Out of one file there are two beginnings, and a file too short for that starts again."""
    found = shown(TASK, data_of([record(f"q{i}", group="x") for i in range(7)]), Shots(3))
    first, later = "".join(f"q{i}: a;" for i in (3, 4, 5)), "".join(f"q{i}: a;" for i in (0, 1, 2))
    assert found == [f"About x.\n{first}"] * 3 + [f"About x.\n{later}"] * 4
    short = shown(TASK, data_of([record(f"q{i}", group="x") for i in range(3)]), Shots(2))
    assert short[1] == "About x.\nq2: a;q0: a;"


def test_examples_of_the_same_subject():
    """`shots_by`: a question has those of its own group before it."""
    found = shown(BY_GROUP, data_of([POOL[0], POOL[7]]), Shots(1, data_of(POOL[2:6], "dev.jsonl")))
    assert found == ["About x.\nq2: no;", "About y.\nq4: no;"]
    own = shown(BY_GROUP, data_of(POOL), Shots(3))
    assert own[5] == "About y.\nq7: yes;q4: no;q6: no;"


@pytest.mark.parametrize("seed", [None, 3])
def test_too_few_examples_are_told(seed):
    """How many there are, of what group, in which file, for the question of which line."""
    told = r"shots=4: expected at most 3: data\.jsonl has no more examples of group 'x' for the question in line 11"
    with pytest.raises(OptionError, match=told):
        items_of(BY_GROUP, data_of(POOL), shots=Shots(4, seed=seed))
    with pytest.raises(OptionError, match=r"at most 0: dev\.jsonl"):
        items_of(BY_GROUP, data_of(POOL[:1]), shots=Shots(1, data_of(POOL[4:], "dev.jsonl"), seed))
    for n in (-1, True, 1.0):
        with pytest.raises(OptionError, match="shots"):
            Shots(n)


def test_a_group_that_is_not_there_is_told_with_its_line():
    """The field that examples share must be in every record."""
    lost = {name: value for name, value in POOL[1].items() if name != "group"}
    task = replace(BY_GROUP, description="")
    with pytest.raises(InputFileError, match=r"data\.jsonl:12: there is no field 'group'"):
        items_of(task, data_of([POOL[0], lost, *POOL[2:]]), shots=Shots(1))


def test_a_mistake_among_the_examples_is_told_with_their_file():
    """Line and file are those of the example, not of the question."""
    with pytest.raises(InputFileError, match=r"dev\.jsonl:12: gold is 5"):
        items_of(TASK, data_of(POOL), shots=Shots(1, data_of([POOL[0], record(gold=5)], "dev.jsonl")))


@settings(max_examples=n_examples(60))
@given(
    groups=st.lists(st.sampled_from("xyz"), min_size=2, max_size=9),
    n=st.integers(1, 3),
    seed=st.none() | st.integers(0, 9),
    limit=st.integers(1, 9),
    is_own=st.booleans(),
)
def test_examples_are_what_the_rules_say(groups, n, seed, limit, is_own):
    """By brute force: n different ones of the group, never the question; the first or next ones without a seed, at any limit."""
    records = [record(f"q{i}", gold=i % 2, group=group) for i, group in enumerate(groups)]
    source = records if is_own else [one | {"context": f"p{i}"} for i, one in enumerate(records)]
    shots = Shots(n, None if is_own else data_of(source, "dev.jsonl"), seed)
    pools = [
        [f"{one['context']}: {'ab'[one['gold']]}" for one in source if one["group"] == asked["group"] and one != asked]
        for asked in records
    ]
    if any(len(pool) < n for pool in pools):
        with pytest.raises(OptionError):
            items_of(BY_GROUP, data_of(records), shots=shots)
        return
    found = shown(BY_GROUP, data_of(records), shots)
    for asked, pool, text in zip(records, pools, found, strict=True):
        head, _, rest = text.partition(".\n")
        chosen = rest.split(";")[:-1]
        assert head == f"About {asked['group']}"
        assert len(set(chosen)) == len(chosen) == n
        assert set(chosen) <= set(pool)
        if seed is None:
            whole = [f"{one['context']}: {'ab'[one['gold']]}" for one in source if one["group"] == asked["group"]]
            is_shot = (
                is_own
                and records.index(asked) in [i for i, one in enumerate(records) if one["group"] == asked["group"]][:n]
            )
            assert chosen == [text for text in (whole[n:] + whole[:n] if is_shot else whole) if text in pool][:n]
    assert shown(BY_GROUP, data_of(records), shots, limit=limit) == found[:limit]


def test_a_seed_draws_for_each_question_anew():
    """Other seeds and other questions have other examples; the same ones draw the same."""
    records = [record(f"q{i}", group="x") for i in range(40)]
    shots = Shots(3, data_of(records, "dev.jsonl"), seed=1)
    asked = data_of([record("a", group="x"), record("b", group="x")])
    first, second = shown(TASK, asked, shots)
    assert first != second
    assert shown(TASK, asked, shots) == [first, second]
    assert shown(TASK, asked, replace(shots, seed=2))[0] != first


def test_the_right_context_stands_in_an_example():
    """With a context for each choice, an example shows that of the right one; of several right ones the first."""
    task = task_of('contexts = ["<<a>>", "<<b>>"]\nchoices = ["<<end>>", "<<end>>"]')
    example = {"a": "Al", "b": "Bo", "end": "ran.", "gold": 1}
    item = items_of(task, data_of([example | {"end": "sat."}]), shots=Shots(1, data_of([example], "dev.jsonl"))).items[
        0
    ]
    assert item.shared == "Bo ran.\n\n"
    assert (item.context_of(0), item.context_of(1)) == ("Bo ran.\n\nAl", "Bo ran.\n\nBo")
    many = items_of(TASK, data_of(POOL[:1]), shots=Shots(1, data_of([record(gold=[1, 0], group="x")], "d"))).items[0]
    assert many.shared == "About x.\nq: b;"


# Steps

DONE = {
    "strip": ((), " a \n", "a"),
    "lstrip": ((), " a ", "a "),
    "rstrip": ((), " a ", " a"),
    "lower": ((), "AÉ", "aé"),
    "capitalize": ((), "he WENT", "He went"),
    "lower_first": ((), "ÉA", "éA"),
    "cut": (("2",), "abc", "a"),
    "before": (("_",), "a_b_c", "a"),
    "after": (("_",), "a_b_c", "b_c"),
    "replace": (("a", "b"), "aa.", "bb."),
    "sub": ((r"\[.*?\]", r"\1"), "x[y]z", r"x\1z"),
    "map": (("a", "1", "b", "2"), "b", "2"),
    "last_word": ((), "a b  c\nd", "c\nd"),
    "all_but_last_word": ((), "a b  c", "a b "),
    "put_before": ((" ",), "a", " a"),
}


@pytest.mark.parametrize("step", STEPS)
def test_each_step_does_what_it_says(step):
    """One text by one step; a list part by part."""
    arguments, before, after = DONE[step]
    prepare = Preparation("f", steps=((step, arguments),))
    assert prepare.apply(before) == after
    assert prepare.apply([before, [before]]) == [after, [after]]


def test_steps_that_cannot_be_done_are_told():
    """A mark that is not there, a text no pair is for, what is no text; nothing passes for something else."""
    for step, value in (
        (("before", ("_",)), "a"),
        (("after", ("_",)), ""),
        (("map", ("a", "b")), "c"),
        (("strip", ()), 3),
    ):
        with pytest.raises(FieldError, match=r"expected|no '_'"):
            Preparation("f", steps=(step,)).apply(value)
    assert Preparation("f").apply(3) == 3
    assert Preparation("f", steps=(("cut", ("0",)),)).apply("ab") == "ab"


def test_fields_in_fields():
    """`a.b` is a field in a field, and of each part of a list."""
    values = {"a": {"b": [{"c": 1}, {"c": 2}]}}
    assert value_at(values, "a.b.c") == [1, 2]
    for path in ("b", "a.c", "a.b.d", "a.b.c.d", ""):
        with pytest.raises(FieldError, match="the fields are a"):
            value_at(values, path)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 4) | st.floats(allow_nan=False) | st.sampled_from(["", "a", "0", "1", "true", "[", '["a"]', "<<", "_"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "label", "stem", "choices", "labels", "0"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=n_examples(150))
@given(
    data=st.data(),
    name=st.sampled_from(
        ["generic", "arc_easy", "winogrande", "copa", "mmlu", "truthfulqa_mc2", "lambada_openai", "boolq", "text"]
    ),
)
def test_any_values_give_items_or_that_error(data, name):
    """Whatever stands in the fields a task reads: whole items, or `InputFileError` with the line."""
    task = load_task(name)
    form = data.draw(st.sampled_from(task.formats))
    fields = {path.split(".")[0]: data.draw(ANY) for path in form.needs}
    errors, items = [], ()
    try:
        items = items_of(task, data_of([json.loads(json.dumps(fields))])).items
    except InputFileError as error:
        errors.append(error)
    assert len(items) + len(errors) == 1
    for item in items:
        assert all(
            isinstance(text, str) for text in (item.context, item.id, item.subset, *item.choices, *item.content_free)
        )
        assert all(0 <= place < len(item.choices) for place in item.gold)
    assert all(error.line == 11 for error in errors)
