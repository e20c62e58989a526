"""Tasks as data: the shipped ones give the harness's own strings, and a file that is wrong gives one error with its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import real_file
from selectrie.errors import InputFileError
from selectrie.evaluation.building import Shots, items_of, task_for
from selectrie.evaluation.readers import Data, Record, read_data
from selectrie.evaluation.tasks import load_task, parse_task, shipped, written

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
    return Data(Path(name), tuple(Record(i, one) for i, one in enumerate(records, start=1)), name)


def harness_task(path, records):
    """The harness's own task on these records, without a network."""
    pytest.importorskip("lm_eval")
    import lm_eval
    from datasets import Dataset
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.tasks._yaml_loader import load_yaml

    class Local(ConfigurableTask):
        def download(self, *_, **__):
            docs = Dataset.from_list(records)
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
    path, records = HARNESS[name]
    theirs, ours = harness_task(path, records), load_task(name)
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
