"""Tasks as data: the shipped ones give the harness's own strings, and a file that is wrong gives one error with its place."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.errors import InputFileError
from selectrie.evaluation.dataset import Data, DataRecord, Shots, items_of, read_data, task_for
from selectrie.evaluation.tasks import load_task, parse_task, render_text, shipped
from selectrie.evaluation.work_units import plan
from selectrie.testing import make_vocabulary
from selectrie.testing.fakes import WIDE
from tests.support.n_examples import n_examples
from tests.support.real_data import real_file

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")

ARC = [
    {
        "id": "a1",
        "question": "What is wet?",
        "choices": {"text": ["stone", "water"], "label": ["A", "B"]},
        "answerKey": "B",
    },
    {
        "id": "a2",
        "question": "Where do  fish live? ",
        "choices": {"text": ["sea", "sky", "sand"], "label": ["1", "2", "3"]},
        "answerKey": "1",
    },
    {
        "id": "a3",
        "question": "<<q>> {{q}}?",
        "choices": {"text": ["it's", 'a "b"', "c\\d", "é"], "label": list("ABCD")},
        "answerKey": "D",
    },
]
HELLASWAG = [
    {
        "ind": 4,
        "activity_label": "Cooking",
        "ctx_a": "A man stands.",
        "ctx_b": "he",
        "endings": ["sits.", " runs  off.", "[step] eats.", "x [title] y"],
        "label": "2",
    },
    {
        "ind": 9,
        "activity_label": "How to  knit",
        "ctx_a": "[header] Yarn [title] Buy it.",
        "ctx_b": "THEN Go",
        "endings": ["a", "b", "c", "d "],
        "label": "0",
    },
    {
        "ind": 12,
        "activity_label": "Tango",
        "ctx_a": "They dance.",
        "ctx_b": "",
        "endings": ["One.", "Two.", "Three.", "Four."],
        "label": "3",
    },
]
MMLU = [
    {"question": " What is 2 + 2?\n", "subject": "abstract_algebra", "choices": ["1", "2", "3", "4"], "answer": 3},
    {"question": "Is Z a ring?", "subject": "abstract_algebra", "choices": ["Yes", "No", "Maybe", "Both"], "answer": 0},
    {"question": "A\nB?", "subject": "abstract_algebra", "choices": ["w", " x", "y ", "z"], "answer": 1},
]
COMMONSENSE = [
    {
        "id": "c1",
        "question": " Where is a door? ",
        "choices": {"label": list("ABCDE"), "text": ["bank", "sea", "sky", "tree", "cup"]},
        "answerKey": "A",
    },
    {
        "id": "c2",
        "question": "What is red?",
        "choices": {"label": list("ABCDE"), "text": ["a", "b", "c", "d", "e"]},
        "answerKey": "E",
    },
    {
        "id": "c3",
        "question": "Who?",
        "choices": {"label": list("ABCDE"), "text": ["a b", "'", "c", "d", "e"]},
        "answerKey": "C",
    },
]
OPENBOOK = [
    {"id": "7-1", "question_stem": record["question"], "choices": record["choices"], "answerKey": record["answerKey"]}
    for record in ARC
]
TRUTHFUL = [
    {
        "question": question,
        "mc1_targets": {"choices": ["Nothing", "You grow", "You die"], "labels": [1, 0, 0]},
        "mc2_targets": {"choices": ["Nothing", "Little", "You grow"], "labels": [1, 1, 0]},
    }
    for question in ("What if you eat seeds?", "Is it 'so'?", "Why?")
]
BOOLQ = [
    {"passage": "All biomass -- grows.", "question": "does it grow", "idx": 0, "label": 1},
    {"passage": "It's\nnot so. ", "question": "is it so", "idx": 1, "label": 0},
    {"passage": "P", "question": "Q ", "idx": 2, "label": 1},
]
COPA = [
    {
        "premise": "The man turned on the faucet.",
        "choice1": "The toilet filled.",
        "choice2": "Water flowed.",
        "question": "effect",
        "idx": 0,
        "label": 1,
    },
    {
        "premise": " My body cast a shadow. ",
        "choice1": "I rose.",
        "choice2": "It was cut.",
        "question": "cause",
        "idx": 1,
        "label": 0,
    },
    {"premise": "Élan!", "choice1": "Éa.", "choice2": "b", "question": "cause", "idx": 2, "label": 1},
]
WINOGRANDE = [
    {
        "qID": "q-1",
        "sentence": "Sarah was better than Maria so _ always won.",
        "option1": "Sarah",
        "option2": "Maria",
        "answer": "1",
    },
    {
        "qID": "q-2",
        "sentence": "The cup did not fit the _ as it was  too wide .",
        "option1": "box",
        "option2": "bag",
        "answer": "2",
    },
    {"qID": "q-3", "sentence": "_ ran, not _.", "option1": "Al", "option2": "Bo", "answer": "1"},
]
PIQA = [
    {"goal": "dresser", "sol1": "replace drawer with pin", "sol2": "finish, woodgrain with  pin", "label": 1},
    {"goal": "How do I sit?", "sol1": "On a chair.", "sol2": "It's\ndone", "label": 0},
    {"goal": " boil ", "sol1": "a", "sol2": "b", "label": 1},
]
SIQA = [
    {
        "context": "Tracy left.",
        "question": "Why?",
        "answerA": "to go",
        "answerB": "to stay",
        "answerC": "none",
        "label": "2",
    },
    {"context": "Kai's in. ", "question": "What next?", "answerA": "a", "answerB": "b", "answerC": "c", "label": "1"},
    {"context": "S", "question": "Q", "answerA": "x y", "answerB": '"z"', "answerC": "'", "label": "3"},
]
SCIQ = [
    {
        "support": support,
        "question": "What is it?",
        "distractor1": "a",
        "distractor2": "b c",
        "distractor3": "it's",
        "correct_answer": right,
    }
    for support, right in (("\n Water is wet.", "wet"), ("", "dry"), ("Salt.\n", "Na"))
]
SST2 = [
    {"sentence": "it 's charming . ", "label": 1, "idx": 0},
    {"sentence": "bleak", "label": 0, "idx": 1},
    {"sentence": 'so "so" ', "label": 0, "idx": 2},
]
LAMBADA = [{"text": text} for text in ('In my palm is a clear stone.\n\n"I know\nsigns', "a  b", "word")]
BLIMP = [
    {"sentence_good": "Susan sees herself.", "sentence_bad": "Susan sees itself.", "UID": "anaphor", "pairID": "0"},
    {"sentence_good": "It's so.", "sentence_bad": 'Its "so".', "UID": "anaphor", "pairID": "1"},
    {"sentence_good": "a", "sentence_bad": "b", "UID": "anaphor", "pairID": "2"},
]
TEXTS = [{"text": "Once upon a time.\n\n There was. "}, {"text": "b"}, {"text": "c d"}]

HARNESS = {
    "arc_challenge": ("arc/arc_challenge", ARC),
    "arc_easy": ("arc/arc_easy", ARC),
    "blimp": ("blimp/causative", BLIMP),
    "boolq": ("super_glue/boolq/default", BOOLQ),
    "commonsense_qa": ("commonsense_qa/default", COMMONSENSE),
    "copa": ("super_glue/copa/default", COPA),
    "hellaswag": ("hellaswag/hellaswag", HELLASWAG),
    "lambada_openai": ("lambada/lambada_openai", LAMBADA),
    "mmlu": ("mmlu/default/mmlu_abstract_algebra", MMLU),
    "openbookqa": ("openbookqa/openbookqa", OPENBOOK),
    "piqa": ("piqa/piqa", PIQA),
    "sciq": ("sciq/sciq", SCIQ),
    "social_iqa": ("siqa/siqa", SIQA),
    "sst2": ("glue/sst2/default", SST2),
    "truthfulqa_mc1": ("truthfulqa/truthfulqa_mc1", TRUTHFUL),
    "truthfulqa_mc2": ("truthfulqa/truthfulqa_mc2", TRUTHFUL),
    "winogrande": ("winogrande/default", WINOGRANDE),
}
"""Task -> its file in the harness, and records in the published format."""
WITHOUT_SHOTS = ("truthfulqa_mc1", "truthfulqa_mc2")
"""The harness refuses other numbers of examples than none, and the six of its own stand before each question."""


def data_of(records, name="data.jsonl"):
    """Records as if they were read."""
    return Data(Path(name), tuple(DataRecord(i, one) for i, one in enumerate(records, start=1)), name)


@cache
def harness_task(name):
    """The harness's own task on the records of a task, without a network."""
    path, records = HARNESS[name]
    pytest.importorskip("lm_eval")
    import lm_eval
    from lm_eval.api.task import ConfigurableTask, datasets
    from lm_eval.tasks._yaml_loader import load_yaml

    class Local(ConfigurableTask):
        def download(self, *_, **__):
            docs = datasets.Dataset.from_list(records)
            self.dataset = dict.fromkeys(("train", "validation", "test", "dev"), docs)

    config = load_yaml(Path(lm_eval.__file__).parent / "tasks" / f"{path}.yaml", resolve_func="truthfulqa" not in path)
    if "truthfulqa" in path:
        config.pop("process_results", None)  # its functions need packages that the questions do not
    config |= {"fewshot_split": "train", "fewshot_config": {"sampler": "first_n"}}
    config.pop("class", None)
    return Local(config=config)


def asked_by_harness(task, doc, n_shots):
    """(context, continuation) of each request, and the right places."""
    context = task.fewshot_context(doc, n_shots)
    made = task.construct_requests(doc, context)
    requests = [one.args for one in (made if isinstance(made, list) else [made])]
    if task.OUTPUT_TYPE != "multiple_choice":
        return requests, (0,)
    gold = task.doc_to_text(doc) if task.multiple_input else task.doc_to_target(doc)
    if isinstance(gold, str):
        gold = task.doc_to_choice(doc).index(gold)
    return requests, (gold,)


def asked_by_us(item):
    """The same of an item."""
    n = range(len(item.choices))
    return [(item.context_of(c), item.continuation(c)) for c in n], item.gold


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", HARNESS)
def test_a_shipped_task_asks_what_the_harness_asks(name):
    """Context, continuation and gold of every choice, without examples and with two, to the letter."""
    records, theirs, ours = HARNESS[name][1], harness_task(name), load_task(name)
    for n_shots in (0,) if name in WITHOUT_SHOTS else (0, 2):
        asked = records if not n_shots else records[2:]
        shots = Shots(n_shots, data_of(records, "shots.jsonl") if n_shots else None)
        items = items_of(ours, data_of(asked), shots=shots).items
        docs = list(theirs.eval_docs)[len(records) - len(asked) :]
        for doc, item in zip(docs, items, strict=True):
            requests, gold = asked_by_harness(theirs, doc, n_shots)
            mine, right = asked_by_us(item)
            assert mine == requests
            assert right == (gold if name != "truthfulqa_mc2" else (0, 1))


BITS = [" ", "  ", "\n", "a", "B", "é", "ß", "İ", "ǆ", "_", ".", "<<x>>", "{{q}}", "{% if %}", "\\", "'", '"', "[x]", " [title]", "?", "12", "\t", "\u00a0", "😀", "\r\n"]  # fmt: skip
AWKWARD = st.lists(st.sampled_from(BITS), min_size=1, max_size=6).map("".join)
AS_THEY_ARE = {"label", "answer", "answerKey", "labels", "UID", "subject", "pairID", "qID", "id", "idx", "ind"}


def awkward(data, key, value):
    """A record with other texts in its fields, those left as they are that say what is right."""
    if key in AS_THEY_ARE or value in ("cause", "effect") or not isinstance(value, str | list | dict):
        return value
    if isinstance(value, dict):
        return {name: awkward(data, name, one) for name, one in value.items()}
    if isinstance(value, list):
        return [awkward(data, key, one) for one in value]
    return data.draw(AWKWARD) + {"sentence": "_.", "premise": "."}.get(key, "x" if key in ("endings", "text") else "")


def law_of_awkward_texts(name, data):
    """Whatever stands in the fields, the harness's requests and ours are equal."""
    theirs, records = harness_task(name), HARNESS[name][1]
    record = {key: awkward(data, key, one) for key, one in data.draw(st.sampled_from(records)).items()}
    doc = record
    if name == "hellaswag":
        from lm_eval.tasks.hellaswag.utils import preprocess

        asked = f"{record['activity_label']}: {record['ctx_a']} {record['ctx_b'].capitalize()}"
        doc = record | {"query": preprocess(asked), "choices": [preprocess(one) for one in record["endings"]]}
    requests, gold = asked_by_harness(theirs, doc, 0)
    mine, right = asked_by_us(items_of(load_task(name), data_of([record])).items[0])
    assert mine == requests
    golds = gold if name != "truthfulqa_mc2" else (0, 1)
    assert [mine[place] for place in right] == [
        requests[place] for place in golds
    ]  # equal choices: the harness takes the first


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", HARNESS)
@settings(max_examples=5)
@given(data=st.data())
def test_awkward_texts_are_asked_as_the_harness_asks_them(name, data):
    """Quotes, templates, brackets, blanks at both ends, letters whose case has another length."""
    law_of_awkward_texts(name, data)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", HARNESS)
@settings(max_examples=n_examples(300), deadline=None)
@given(data=st.data())
def test_many_awkward_texts_are_asked_as_the_harness_asks_them(name, data):
    """The same, often."""
    law_of_awkward_texts(name, data)


@pytest.mark.filterwarnings("ignore")
def test_the_comparison_can_fail():
    """A task with another delimiter, cue or order of choices is told apart from the harness's."""
    theirs = harness_task("piqa")
    text = load_task("piqa").text
    for old, new in (
        ("Answer:", "Answer: "),
        ("Question: <<", "Q: <<"),
        ('["<<sol1>>", "<<sol2>>"]', '["<<sol2>>", "<<sol1>>"]'),
    ):
        wrong = parse_task(text.replace(old, new), "wrong.toml")
        doc = theirs.eval_docs[0]
        assert asked_by_us(items_of(wrong, data_of(PIQA)).items[0]) != asked_by_harness(theirs, doc, 0)


def test_every_shipped_task_is_compared():
    """But for the two that are ours: records of context, choices and gold, and plain texts."""
    assert set(shipped()) - set(HARNESS) == {"generic", "text"}
    assert all(load_task(name).name == name for name in shipped())


def test_a_text_is_one_item_as_it_stands():
    """`loglikelihood_rolling` is asked for the text of the field, white space and all."""
    found = items_of(load_task("text"), data_of([*TEXTS, {"text": ""}]))
    assert found.is_rolling
    assert [(one.context, one.shared, one.choices) for one in found.items] == [
        ("", "", (record["text"],)) for record in [*TEXTS, {"text": ""}]
    ]


OTHER_SHAPES = {
    "arc_easy": (ARC, [
        {"question": {"stem": one["question"], "choices": [{"text": t, "label": label} for t, label in zip(one["choices"]["text"], one["choices"]["label"], strict=False)]}, "answerKey": one["answerKey"]}
        for one in ARC[:2]
    ]),
    "boolq": (BOOLQ, [
        {"passage": BOOLQ[0]["passage"], "question": "does it grow", "answer": True, "title": "x"},
        {"context": "Passage: It's\nnot so. \nQuestion: is it so?", "choices": ["no", "yes"], "gold": 0},
        {"passage": "P", "question": "Q ", "answer": "True"},
    ]),
    "commonsense_qa": (COMMONSENSE, [
        {"context": "Question: Where is a door?\nAnswer:", "choices": ["bank", "sea", "sky", "tree", "cup"], "gold": 0},
        {"context": "Question: What is red?\nAnswer:", "choices": list("abcde"), "gold": "4"},
    ]),
    "copa": (COPA, [
        {"context": one["premise"], "relation": one["question"], "choices": [one["choice1"], one["choice2"]], "gold": one["label"]}
        for one in COPA
    ]),
    "hellaswag": (HELLASWAG, [
        {"context": "Cooking: A man stands. He", "choices": ["sits.", "runs off.", " eats.", "x. y"], "gold": 2},
    ]),
    "lambada_openai": (LAMBADA, [
        {"context": 'In my palm is a clear stone.\n\n"I', "continuation": "know\nsigns"}, {"context": "a ", "continuation": "b"},
    ]),
    "mmlu": (MMLU, [
        {"context": one["question"], "choices": one["choices"], "gold": one["answer"], "subject": one["subject"]} for one in MMLU
    ]),
    "piqa": (PIQA, [
        {"context": "Question: dresser\n", "choices": [PIQA[0]["sol1"], PIQA[0]["sol2"]], "gold": 1},
        {"goal": "How do I sit?", "sol1": "On a chair.", "sol2": "It's\ndone", "label": "0"},
    ]),
    "sst2": (SST2, [
        {"context": one["sentence"], "choices": ["negative", "positive"], "gold": one["label"]} for one in SST2
    ]),
    "truthfulqa_mc1": (TRUTHFUL, [
        {"context": "What if you eat seeds?", "choices": ["Nothing", "You grow", "You die"], "gold": 0, "correct_answers": ["Little", "Nothing"]},
    ]),
    "truthfulqa_mc2": (TRUTHFUL, [
        {"context": "What if you eat seeds?", "choices": ["Nothing", "You grow"], "gold": 0, "correct_answers": ["Nothing", "Little", "Nothing"]},
    ]),
    "winogrande": (WINOGRANDE, [
        {"context_options": ["Sarah was better than Maria so Sarah", "Sarah was better than Maria so Maria"], "continuation": "always won.", "gold_option": 0},
        {**WINOGRANDE[1], "answer": 2},
    ]),
}  # fmt: skip
"""Task -> records as published, and the same ones in the other shapes it reads."""


@pytest.mark.parametrize("name", OTHER_SHAPES)
def test_the_same_questions_in_another_shape_are_the_same(name):
    """Texts, gold and what a metric may need besides; only what a shape does not hold (an id) differs."""
    published, others = OTHER_SHAPES[name]
    task = load_task(name)
    first = items_of(task, data_of(published)).items
    again = items_of(task, data_of(others)).items
    for one, same in zip(first, again, strict=False):
        assert (*asked_by_us(one), one.premise, one.subset) == (*asked_by_us(same), same.premise, same.subset)
        if one.content_free and same.content_free:
            assert one.content_free == same.content_free


BYTES = make_vocabulary(bytes([one]) for one in range(256))
"""Tokens that are bytes, two behind the control tokens: what is asked can be read off."""


def spelled(sequences):
    """Text before what counts, the first token left out, and the text that counts, of each sequence."""
    found = []
    for start, end, first in zip(sequences.offsets, sequences.offsets[1:], sequences.first_scored, strict=False):
        tokens = sequences.tokens[start:end] - 2
        found.append((bytes(tokens[1:first].tolist()).decode(), bytes(tokens[first:].tolist()).decode()))
    return found


@pytest.mark.parametrize("name", HARNESS)
def test_what_is_measured_is_what_is_asked(name):
    """Every choice after its context, white space at whose end counts, after nothing, after the premise, after what asks nothing."""
    task, records = load_task(name), HARNESS[name][1]
    found = items_of(task, data_of(records))
    has = {"acc_mutual_info": True, "pmi_dc": task.premise, "calibrated": found.items[0].content_free}
    found = replace(found, metrics=(*task.metrics, *(metric for metric, is_there in has.items() if is_there)))
    expected = []
    for item in found.items:
        for c in range(len(item.choices)):
            before, rest = item.context_of(c).rstrip(), item.continuation(c)
            counted = item.context_of(c)[len(before) :] + rest
            others = [*([item.premise] if task.premise else []), *(item.shared + text for text in item.content_free)]
            expected += [(before, counted), ("", rest), *((other, counted) for other in others)]
    asked = [pair for unit in plan(BYTES, WIDE, [found]) for pair in spelled(unit.sequences)]
    assert sorted(asked) == sorted(expected)


def test_what_says_nothing_is_in_the_form_of_the_question():
    """Each set of content-free texts replaces all the fields that ask, in the context's own words."""
    item = items_of(load_task("boolq"), data_of(BOOLQ)).items[0]
    assert item.content_free == (
        "N/A\nQuestion: N/A?\nAnswer:",
        "[MASK]\nQuestion: [MASK]?\nAnswer:",
        "\nQuestion: ?\nAnswer:",
    )
    assert item.premise == "Answer:"


FILES = {
    "arc_challenge_val": "arc_challenge",
    "arc_easy_val": "arc_easy",
    "blimp": "blimp",
    "boolq": "boolq",
    "commonsense_qa_val": "commonsense_qa",
    "copa_val": "copa",
    "hellaswag_val_1000": "hellaswag",
    "lambada_openai": "lambada_openai",
    "mmlu_dev": "mmlu",
    "mmlu_validation": "mmlu",
    "openbook_qa": "openbookqa",
    "original/blimp_anaphor_number_agreement": "blimp",
    "original/blimp_animate_subject_trans": "blimp",
    "original/blimp_causative": "blimp",
    "piqa": "piqa",
    "sst2_val": "sst2",
    "truthfulqa_from_csv": "truthfulqa_mc1",
    "winogrande": "winogrande",
}


@pytest.mark.parametrize("name", FILES)
def test_real_files_find_their_task(name):
    """By the beginning of the name and the fields; their records are items."""
    path = real_file(f"mc/{name}.jsonl")
    assert {one.stem for one in path.parent.glob("*.jsonl")} <= {Path(one).name for one in FILES}
    data = read_data(path)
    task = task_for(data)
    assert task.name == FILES[name]
    items = items_of(task, data, limit=200).items
    assert len(items) == min(200, len(data.records))
    assert all(item.gold and all(item.choices) for item in items)


PLAIN = {"context": "c", "choices": ["a", "b"], "gold": 0}


@pytest.mark.parametrize(
    ("file", "record", "name"),
    [
        ("hellaswag.jsonl", PLAIN, "hellaswag"),
        ("HellaSwag-val.csv", PLAIN, "hellaswag"),
        ("hellaswag2.jsonl", PLAIN, "hellaswag"),
        ("hellaswagging.jsonl", PLAIN, "generic"),
        ("questions.jsonl", PLAIN, "generic"),
        ("arc_questions.jsonl", PLAIN, "generic"),
        ("siqa.train.jsonl", SIQA[0], "social_iqa"),
        ("truthfulqa_mc2-val.jsonl", TRUTHFUL[0], "truthfulqa_mc2"),
        ("TruthfulQA.json", TRUTHFUL[0], "truthfulqa_mc1"),
        ("lambada_test.jsonl", LAMBADA[0], "lambada_openai"),
        ("text-8.jsonl", TEXTS[0], "text"),
        ("mmlu.jsonl", PLAIN, "generic"),
    ],
)
def test_a_task_is_found_by_file_name_and_fields(file, record, name):
    """The longest name the file's begins with, if its fields fit; a name that goes on in letters is another one."""
    assert task_for(data_of([record], file)).name == name


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (PIQA[0], "are read by piqa"),
        (ARC[0], "are read by arc_challenge, arc_easy"),
        (LAMBADA[0], "are read by lambada_openai, text"),
        ({"q": "x"}, f"no shipped task ({', '.join(shipped())}) reads records of q; name their columns"),
    ],
)
def test_a_file_that_names_no_task_is_never_guessed(record, told):
    """Fields alone are no proof: the error says which tasks would read them."""
    with pytest.raises(InputFileError, match=r"val\.jsonl:1: ") as caught:
        task_for(data_of([record], "val.jsonl"))
    assert told in caught.value.reason
    assert "--task" in caught.value.reason


TASK = """name = "own"
version = 1
kind = "multiple_choice"
source = "here"
metrics = ["acc"]

[[format]]
needs = ["q"]
context = "<<q>>"
prepare = [{ field = "q", steps = [["strip"]] }]

[[format]]
needs = ["r"]
context = "<<r>>"
"""

WRONG_TASKS = [
    ('kind = "multiple_choice"', 'kind = "multiple"', 3, "kind = 'multiple'; expected one of multiple_choice"),
    ("version = 1", "version = 0", 2, "version = 0; expected at least 1"),
    ("version = 1", "version = true", 2, "version = True; expected an integer"),
    ("version = 1", 'version = "1"', 2, "version = '1'; expected an integer"),
    ("version = 1", "unit_rows = 0\nversion = 1", 2, "unit_rows = 0; expected at least 1"),
    ("version = 1\n", "", None, "'version' is missing"),
    ('name = "own"', 'name = ""', 1, "name is empty"),
    ('metrics = ["acc"]', 'metrics = "acc"', 5, "metrics = 'acc'; expected a list of texts"),
    ('metrics = ["acc"]', "metrics = []", 5, "metrics is empty"),
    ('metrics = ["acc"]', 'metrics = ["acc", "akk"]', 5, "metrics: metric='akk': expected one of acc, acc_norm"),
    ('metrics = ["acc"]', 'metrics = ["acc", 1]', 5, "expected a list of texts"),
    ('source = "here"', 'sauce = "here"', 4, "'sauce' is unknown; known are name, version, kind"),
    ('source = "here"', 'source = "here"\ndescription = "<<gen \'x\'>>"', 5, "description: "),
    ('source = "here"', 'source = "here"\npremise = "<<q"', 5, "premise: "),
    ('context = "<<r>>"', 'kontext = "<<r>>"', 14, "format[1]: 'kontext' is unknown; known are needs"),
    ('context = "<<r>>"', 'context = ["<<r>>"]', 14, "context = ['<<r>>']; expected a text"),
    ('context = "<<r>>"', 'context = "<<r>>"\ncontexts = ["a"]', 15, "expected `contexts` or `context`"),
    ('context = "<<r>>"', "choices = []", 14, "choices is empty"),
    ('context = "<<r>>"', "choices = 3", 14, "choices = 3; expected a text or a list of texts"),
    ('context = "<<r>>"', "choices = [\"<<select x a='b'>>\"]", 14, "choices: "),
    ('context = "<<r>>"', 'context = "<<#if>>"', 14, "context: "),
    ('context = "<<r>>"', 'gold_as = "letter"', 14, "gold_as = 'letter'; expected one of place, number"),
    ('context = "<<r>>"', 'gold_as = "label"', 14, "needs `labels`"),
    ('context = "<<r>>"', 'content_free = "N/A"', 14, "content_free = 'N/A'; expected fields"),
    ('context = "<<r>>"', 'content_free = { q = "N/A" }', 14, "the same number of texts"),
    ('context = "<<r>>"', 'content_free = { q = ["N/A"], r = ["", "x"] }', 14, "the same number of texts"),
    (
        'context = "<<r>>"',
        'contexts = ["a", "b"]\ncontent_free = { q = [""] }',
        14,
        "expected `contexts` or `content_free`",
    ),
    ('context = "<<r>>"', 'context = "<<r>>"\ncontent_free = { q = ["N/A"] }', 15, "the context has no field 'q'"),
    ('context = "<<r>>"', "prepare = 3", 14, "prepare = 3; expected a list of tables"),
    ('context = "<<r>>"', "prepare = [3]", 14, "prepare[0]: expected a table with a `field`"),
    ('context = "<<r>>"', 'prepare = [{ of = "r" }]', 14, "a table with a `field`"),
    (
        '"q", steps = [["strip"]]',
        '"q", step = []',
        10,
        "prepare[0]: 'step' is unknown; known are field, of, text, join, steps",
    ),
    ('"q", steps = [["strip"]]', '"q", of = 3', 10, "of = 3; expected a text"),
    ('"q", steps = [["strip"]]', '"q", join = [1]', 10, "join = [1]; expected a list of fields"),
    ('"q", steps = [["strip"]]', '"q", of = "a", text = "b"', 10, "only one of of, text, join"),
    ('"q", steps = [["strip"]]', '"q", text = "<<q"', 10, "prepare: "),
    ('[["strip"]]', '"strip"', 10, "steps = 'strip'; expected a list"),
    ('[["strip"]]', '["strip"]', 10, "'strip': expected a list of texts that begins with the name of a step"),
    ('[["strip"]]', "[[]]", 10, "[]: expected a list of texts"),
    ('[["strip"]]', '[["cut", 1]]', 10, "['cut', 1]: expected a list of texts"),
    ('[["strip"]]', '[["trim"]]', 10, "no step is called 'trim'; there are strip"),
    ('[["strip"]]', '[["replace", "a"]]', 10, "replace takes 2 arguments, not 1"),
    ('[["strip"]]', '[["cut", "x"]]', 10, "cut takes a number"),
    ('[["strip"]]', '[["sub", "(", ""]]', 10, "not a regular expression"),
    ('[["strip"]]', '[["map", "a", "b", "c"]]', 10, "map takes pairs"),
    ('[["strip"]]', '[["before", ""]]', 10, "before takes a mark"),
    ("[[format]]", "[format]", None, "not TOML"),
    ('name = "own"', 'name = "own', None, "not TOML"),
    ('name = "own"', 'name = "own"\nname = "x"', None, "not TOML"),
    (TASK[TASK.index("[[format]]") :], "", None, "at least one [[format]]"),
    (TASK[TASK.index("[[format]]") :], "format = [1]", None, "format[0]: expected a table"),
    (TASK[TASK.index("[[format]]") :], "format = 1", None, "at least one [[format]]"),
]


@pytest.mark.parametrize(("old", "new", "line", "reason"), WRONG_TASKS)
def test_a_wrong_task_file_is_one_error_with_its_place(old, new, line, reason, tmp_path):
    """`InputFileError` with the file, the line of the key, and what is wrong."""
    assert old in TASK
    path = tmp_path / "own.toml"
    path.write_text(TASK.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(InputFileError) as caught:
        load_task(str(path))
    assert (caught.value.path, caught.value.line) == (str(path), line)
    assert reason in caught.value.reason


def test_files_that_are_no_tasks_are_told(tmp_path):
    """Missing, a folder, no text, endless, of another kind, no task at all."""
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "latin.toml").write_bytes(b'name = "a"\nsource = "\xe9"\n')
    (tmp_path / "large.toml").touch()
    os.truncate(tmp_path / "large.toml", 1 << 30)
    bad = {"none.toml": "No such file", "folder.toml": "directory", "latin.toml": r":2: not UTF-8", "large.toml": "more than 1 MiB",
           "task.json": "no task of this name", "\0.toml": "no task of this name"}  # fmt: skip
    for name, reason in bad.items():
        with pytest.raises(InputFileError, match=reason):
            load_task(str(tmp_path / name))
    with pytest.raises(InputFileError, match=r"no task of this name.*hellaswag"):
        load_task("helaswag")


def test_a_task_of_ones_own_is_read(tmp_path):
    """With Windows' line ends too; its text and digest are kept, for runs to compare."""
    (tmp_path / "own.toml").write_bytes(TASK.replace("\n", "\r\n").encode())
    task = load_task(str(tmp_path / "own.toml"))
    assert task == parse_task(TASK, "own.toml")
    assert task.text == TASK
    assert task.digest != parse_task(f"{TASK}#", "own.toml").digest
    assert [one.needs for one in task.formats] == [("q",), ("r",)]


ANYTHING = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(["<<q>>", "{{q}}", "\\<<", "\n", " ", "<<#if q>>"])  # fmt: skip


@settings(max_examples=n_examples(60))
@given(
    before=st.sampled_from(["", " ", "\n", "Q: ", "a\n\n"]),
    value=ANYTHING,
    after=st.sampled_from(["", "\n", " ?\nA:", "\n\n"]),
)
def test_texts_take_values_as_they_are(before, value, after):
    """Nothing in a value is read as a template, and no white space around it is lost."""
    assert (
        render_text(f"{before}<<q>>{after}<<r[0].s>>", {"q": value, "r": [{"s": value}]})
        == before + value + after + value
    )
