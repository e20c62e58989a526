"""The embedded model: what its corpus contains, what its file holds, and what it knows."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

import selectrie
from embedded_model import corpus, decisions, export, forms, held_out
from embedded_model.config import END_OF_TEXT, SPECIAL, TURN_END, Config
from embedded_model.country_tables import COUNTRIES
from embedded_model.evaluate import CHATS, FACTS, Accuracy, accuracies, answers, read_items, table, together
from embedded_model.files import EMBEDDED, HELD_OUT, REPOSITORY
from embedded_model.held_out import contained
from embedded_model.phrases import Fact, Item, expand
from embedded_model.topics import intents, predicates, typed_questions
from selectrie import DecisionParams, PromptParams
from selectrie.tokenization.encoding import encode_prompt
from selectrie.tokenization.prompts import read_prompt

CARD = EMBEDDED.with_suffix(".md")
MOST_BYTES = 8_000_000
LEAST = {"sentiment": 0.90, "intents": 0.90, "records": 0.90}
"""Accuracy by kind that the model is held to; facts together: 0.95."""
LAYOUTS = ("state first", "questions first")
README_MESSAGE = "My parcel has not come, and this is the third time!"
QUARTER = "731e101020e627873114cad6eb569a828adba9adec6bf5d4120f3774627aeb9d"
"""sha256 of the documents of `documents`, as the embedded model read them."""


@pytest.fixture(scope="module")
def documents() -> list[str]:
    """The documents of every course that its generators make first: a quarter of the corpus."""
    return [
        document
        for course in corpus.COURSES
        for document in corpus.documents(replace(course, n_characters=course.n_characters // 4))
    ]


@pytest.fixture(scope="module")
def items() -> list[Item]:
    """Every held-out question."""
    return read_items()


def digest_of(courses: Iterable[list[str]]) -> str:
    """sha256 of the documents of courses, as `corpus` writes them."""
    digest = hashlib.sha256()
    for documents in courses:
        digest.update(corpus.SEPARATOR.join(documents).encode())
    return digest.hexdigest()


def accuracies_of(items):
    """Accuracies of the embedded model on held-out questions, by kind."""
    with selectrie.load(n_threads=1) as llm:
        return {row.kind: row for row in accuracies(llm, items)}


@pytest.fixture(scope="module", params=[4, pytest.param(1, marks=pytest.mark.long)], ids=["every fourth", "all"])
def measured(items, request):
    """Accuracies on the held-out questions, or on every fourth of them."""
    return accuracies_of(items[:: request.param])


# The corpus and the held-out questions


def test_no_document_contains_a_held_out_phrase(documents, items):
    """What is asked was never read. (`make model` searches everything that it trains on, too, and refuses.)"""
    assert contained([README_MESSAGE, *(item.phrase for item in items)], documents) == []


def test_the_tables_still_give_the_corpus_that_the_model_was_trained_on(documents):
    """A quarter of it. After a change of a table, train the model anew and change the digest (tools/embedded_model/README.md)."""
    assert digest_of([documents]) == QUARTER


@pytest.mark.long
def test_the_card_names_the_whole_corpus():
    """The digest of all documents is on the model card."""
    assert digest_of(map(corpus.documents, corpus.COURSES)) in CARD.read_text(encoding="utf-8")


@pytest.mark.long
def test_no_document_at_all_contains_a_held_out_phrase(items):
    """The same for the whole corpus."""
    for course in corpus.COURSES:
        assert contained([README_MESSAGE, *(item.phrase for item in items)], corpus.documents(course)) == []


def test_a_phrase_that_a_document_contains_is_found(documents):
    """The search above can fail: pieces of documents, in capitals and with other punctuation, are found."""
    rng = random.Random(3)
    pieces = []
    for document in rng.sample([text for text in documents if len(text) > 60], 25):
        words = document.upper().split()
        start = rng.randrange(len(words) - 4)
        pieces.append(", ".join(words[start : start + 4]) + "!")
    assert contained(pieces, documents) == pieces


def test_the_held_out_files_are_what_the_script_writes():
    """Questions and generators have not drifted apart."""
    for topic in corpus.TOPICS:
        assert (HELD_OUT / f"{topic}.jsonl").read_text(encoding="utf-8") == held_out.lines(topic), topic


def test_the_corpus_is_a_function_of_its_seed():
    """The same seed gives the same text, another seed another."""
    first, again, other = (
        corpus.documents(replace(corpus.COURSES[0], seed=seed, n_characters=300_000)) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_the_corpus_does_not_depend_on_the_order_of_sets():
    """Processes that hash strings otherwise make the same text; of one process the test above sees nothing."""
    script = (
        "from dataclasses import replace; from embedded_model import corpus;"
        "first, *_, last = (replace(course, n_characters=100_000) for course in corpus.COURSES);"
        "print(ascii([corpus.documents(first), corpus.documents(last)]))"
    )
    path = os.pathsep.join(map(str, (REPOSITORY / "tools", REPOSITORY / "src")))
    first, second = (
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in "12"
    )
    assert len(first) > 150_000
    assert first == second


def test_every_topic_gets_its_share(documents):
    """The corpus has the size that is asked for, and no document is empty or ends in a line break."""
    n_characters = sum(course.n_characters // 4 for course in corpus.COURSES)
    assert abs(sum(map(len, documents)) - n_characters) < 0.01 * n_characters
    assert all(document and document == document.rstrip("\n") for document in documents)


def test_held_out_questions_are_well_formed(items):
    """Each has distinct choices, a right one among them, and its phrase in its prompt; no place is preferred."""
    for item in items:
        assert len(set(item.choices)) == len(item.choices) > 1
        assert 0 <= item.gold < len(item.choices)
        assert item.phrase in item.prompt
    for kind in {item.kind for item in items}:
        fours = [item.gold for item in items if item.kind == kind and len(item.choices) == 4]
        assert not fours or max(Counter(fours).values()) <= 0.4 * len(fours) + 2, kind


def test_the_tables_have_what_the_card_says(items):
    """At least 120 countries and 20 intents are known, and 40 questions are made to mislead."""
    assert len(COUNTRIES) >= 120
    assert len(intents.INTENTS) >= 20
    assert sum(item.kind == "ambiguity" for item in items) >= 40


def test_a_pattern_takes_one_of_its_alternatives():
    """Alternatives may nest and may be empty; fields are filled in last."""
    texts = {expand("[a|b[ c|]] {x}", random.Random(seed), {"x": "[d]"}) for seed in range(40)}
    assert texts == {"a [d]", "b c [d]", "b [d]"}


def test_a_lettered_question_is_answered_by_the_letter_of_the_right_option():
    """The letter at the end names the line on which the answer stands."""
    for seed in range(30):
        text = forms.lettered("Which?", "yes", ("no", "maybe", "never"), random.Random(seed))
        right = next(line for line in text.splitlines() if line.endswith("yes"))
        assert text[-1] == right[0]


def test_answers_are_found_in_a_document():
    """Turns of the assistant with their end, and the rest of a line behind a colon or below a question; no long line."""
    talk = forms.chat([("Which?", "gold"), ("And now: what?", "lead\nand tin")], random.Random(1))
    asked = "Question: Which metal is it?\nAnswer: gold"
    below = "Which metal is it?\ngold"
    long = "Review: It is gold, I would say, and nothing but gold.\nSentiment: positive"
    found = [[text[start:stop] for start, stop in forms.answers(text)] for text in (talk, asked, below, long)]
    assert found == [["gold<|im_end|>", "lead\nand tin<|im_end|>"], ["gold"], ["gold"], ["positive"]]


@pytest.mark.parametrize("template", ["chat", "base"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_typed_questions_are_read_as_decide_asks_them(template, layout):
    """Up to its answer, a document about each kind of question is the prompt that the engine writes; then it ends as it is scored."""
    rng = random.Random(5)
    kinds = Counter()
    with selectrie.load(n_threads=1) as llm:
        for source in typed_questions.SOURCES:
            stream = source(rng)
            for _ in range(30):
                case = next(stream)()
                params = DecisionParams(template=template, layout=layout, list_options=rng.random() < 0.8)
                [(prompt,)] = llm.decision_prompts(case.state, {"q": case.question}, params=params).values()
                end = prompt.following or f"{TURN_END}\n"
                shown = prompt.shown.removeprefix(SPECIAL[0])
                assert typed_questions.asked(case, template, params) == f"{shown}{case.answer}{end}"
                assert case.answer in prompt.choices
                kinds[type(case.question).__name__] += 1
    assert min(kinds.values()) > 2
    assert len(kinds) == 3


def test_a_document_goes_on_with_questions_about_the_same_text():
    """State first, a chat or a page has up to five questions, of which the first alone has the text; else it has one."""
    rng = random.Random(6)
    stream = typed_questions.documents(rng)
    several = 0
    for document in (next(stream) for _ in range(400)):
        n_answers = document.count(forms.ASSISTANT) or document.count("\nAnswer: ")
        assert len(re.findall(r"^Text: ", document, re.MULTILINE)) == 1
        assert 1 <= n_answers <= 5
        assert n_answers == 1 or document.removeprefix(forms.USER).startswith("Text: ")
        several += n_answers > 1
    assert several > 80


def test_predicates_are_true_as_often_as_not():
    """Neither answer is preferred, for any source of questions and in either order of the two words."""
    rng = random.Random(7)
    for source in typed_questions.SOURCES:
        stream = source(rng)
        found = [
            case for case in (next(stream)() for _ in range(1500)) if isinstance(case.question, selectrie.Predicate)
        ]
        share = sum(case.answer == case.question.yes for case in found) / len(found)
        assert 0.42 < share < 0.58, (source.__name__, share)


@pytest.mark.parametrize("level", predicates.LEVELS.values(), ids=map(str, predicates.LEVELS))
def test_statements_of_a_level_name_its_labels_and_are_true_as_often_as_not(level):
    """On the first level a kind of statement has one label, on the second a few, and then all; the texts vary enough."""
    for source in (predicates.about_intents, predicates.about_moods, predicates.about_reviews):
        stream = source(random.Random(9), level)
        found = [next(stream) for _ in range(1200)]
        share = sum(case.answer == case.question.yes for case in found) / len(found)
        likely = 0.75 if source is predicates.about_intents and level.n_intents == 1 else 0.5
        assert abs(share - likely) < 0.12, (source.__name__, share)
    stream = predicates.about_intents(random.Random(9), level)
    stated = {next(stream).question.statement for _ in range(1200)}
    usual = {f"The customer wants: {name}." for name in intents.NAMES}
    assert len(stated & usual) == level.n_intents
    assert (stated <= usual) is (level.usual == 1)


def test_every_form_of_a_fact_contains_its_answer_or_judges_it():
    """Question, sentence, chat, key, letters: the answer stands in each; a claim is judged by yes or no."""
    fact = Fact("What is it?", "It is", "It", "gold", ("lead", "tin", "iron"))
    for seed in range(200):
        text = forms.ask(fact, random.Random(seed))
        assert "gold" in text or text.rstrip(".").split()[-1].lower() in ("no", "false")


# The file


def random_weights(config: Config, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    """Weights by PyTorch's names."""
    sizes = {
        "attention_norm": (config.n_embd,),
        "feed_forward_norm": (config.n_embd,),
        "feed_forward.gate": (config.n_ff, config.n_embd),
        "feed_forward.up": (config.n_ff, config.n_embd),
        "feed_forward.down": (config.n_embd, config.n_ff),
        **{f"attention.{name}": (config.n_embd, config.n_embd) for name in ("query", "key", "value", "output")},
    }
    shapes = {"embedding.weight": (config.n_vocab, config.n_embd), "norm.weight": (config.n_embd,)}
    shapes |= {f"blocks.{i}.{name}.weight": shape for i in range(config.n_layer) for name, shape in sizes.items()}
    return {name: 0.1 * rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
def test_an_exported_model_loads_and_answers(tmp_path, kind):
    """Both formats are written in a way that llama.cpp reads; the same weights give the same bytes."""
    config = Config(n_vocab=261, n_embd=64, n_layer=2, n_head=2, n_ff=96, n_ctx=128)
    letters = sorted(chr(code) for code in gguf_bytes())
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *letters, "ab"])}
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text(json.dumps({"model": {"vocab": vocabulary, "merges": [["a", "b"]]}}), encoding="utf-8")
    weights = random_weights(config, np.random.default_rng(1))
    paths = [tmp_path / f"{name}.gguf" for name in ("one", "two")]
    for path in paths:
        export.export(path, weights, config, tokenizer, kind)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    with selectrie.load(paths[0], n_threads=1) as llm:
        assert llm.select("ab", ["cd", "ce", "x"]).certificate.proved


def test_weights_are_read_back_as_they_were_rounded(tmp_path):
    """What training goes on from is what the file holds: matrices as f16, norms as they were."""
    config = Config(n_vocab=261, n_embd=64, n_layer=2, n_head=2, n_ff=96, n_ctx=128)
    tokenizer = tmp_path / "tokenizer.json"
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *sorted(map(chr, gguf_bytes())), "ab"])}
    tokenizer.write_text(json.dumps({"model": {"vocab": vocabulary, "merges": [["a", "b"]]}}), encoding="utf-8")
    weights = random_weights(config, np.random.default_rng(2))
    export.export(tmp_path / "one.gguf", weights, config, tokenizer, "f16")
    found = export.weights_of(tmp_path / "one.gguf", config)
    assert found.keys() == weights.keys()
    for name, array in weights.items():
        rounded = array.astype(np.float16).astype(np.float32) if array.ndim == 2 else array
        np.testing.assert_array_equal(found[name], rounded)


def test_the_tokenizer_read_out_of_the_file_encodes_as_the_model_does(documents):
    """Documents that the last course is encoded from have the tokens that the engine makes of them."""
    pytest.importorskip("tokenizers")
    from embedded_model import tokenizer

    read_back = tokenizer.tokenizer_of(EMBEDDED)
    with selectrie.load(n_threads=1) as llm:
        vocabulary = llm.vocabulary
        for document in random.Random(8).sample(documents, 300):
            encoded = encode_prompt(vocabulary, read_prompt(vocabulary, document, PromptParams(parse_special=True)))
            assert read_back.encode(document).ids == encoded.tolist()[1:]


def test_a_batch_in_parts_has_the_gradients_of_the_whole():
    """Steps that threads share do what one thread does, up to rounding."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("tokenizers")
    from embedded_model import train

    config = Config(n_vocab=32, n_embd=32, n_layer=1, n_head=2, n_ff=32, n_ctx=16)
    tokens = torch.randint(0, 32, (4, 9), generator=torch.Generator().manual_seed(1))
    batch = train.Batch(tokens, torch.rand(4, 8) + 0.1, train.causal(tokens[:, :-1], 0))
    (loss, whole), (other_loss, in_parts) = (
        train.Training(replace(train.LAST, n_parts=n, is_continued=False), config).gradients(batch) for n in (1, 2)
    )
    assert loss == pytest.approx(other_loss, rel=1e-3)
    for one, other in zip(whole, in_parts, strict=True):
        torch.testing.assert_close(one, other, rtol=0.05, atol=1e-3)


def gguf_bytes() -> list[int]:
    """Code points that stand for the 256 bytes in a byte-level vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return plain + [256 + i for i in range(256 - len(plain))]


def test_the_embedded_file_is_small_and_complete():
    """At most 8 MB, at most 4096 entries with all bytes among them, control tokens, a chat template."""
    assert EMBEDDED.stat().st_size <= MOST_BYTES
    fields = gguf.GGUFReader(EMBEDDED).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    assert len(tokens) <= 4096
    assert {chr(code) for code in gguf_bytes()} <= set(tokens)
    assert tokens[fields["tokenizer.ggml.eos_token_id"].contents()] == END_OF_TEXT
    assert tokens[fields["tokenizer.ggml.eot_token_id"].contents()] == TURN_END
    assert "<|im_start|>" in fields["tokenizer.chat_template"].contents()


def test_the_card_names_the_file_it_describes():
    """Size and digest of the card are the file's."""
    card, content = CARD.read_text(encoding="utf-8"), EMBEDDED.read_bytes()
    assert hashlib.sha256(content).hexdigest() in card
    assert f"{len(content):,} bytes" in card


# What it knows


@pytest.mark.long
def test_the_card_quotes_the_accuracies(items):
    """Each line of the table is what the evaluation prints today, to within one question in a hundred."""
    measured = accuracies_of(items)
    card = CARD.read_text(encoding="utf-8")
    quoted = dict(re.findall(r"^\| ([a-z ]+) \| \d+ \| ([\d.]+)% \|", card, re.MULTILINE))
    assert quoted.keys() == {row.kind for row in table(list(measured.values()))}
    for row in table(list(measured.values())):
        assert abs(float(quoted[row.kind]) - 100 * row.joint) <= 1, row


def test_held_out_facts_are_known(measured):
    """At least 95 % of the questions about facts are answered right."""
    assert together(list(measured.values()), FACTS).joint >= 0.95


@pytest.mark.parametrize("kind", ["sentiment", "intents", "records"])
def test_held_out_texts_are_understood(measured, kind):
    """At least 90 % of reviews, messages and records."""
    assert measured[kind].joint >= LEAST[kind]


def test_joint_beats_greedy_where_greedy_is_misled(measured):
    """By 20 points and more on the questions made for it, and in 40 of them and more it is right where greedy is not."""
    row = measured["ambiguity"]
    assert row.joint - row.greedy >= 0.20
    assert row.n_joint_alone >= 40


def test_an_accuracy_counts_what_was_right():
    """By hand: two of three right by joint, one by greedy, one by joint alone."""
    row = Accuracy.of("x", [(True, True), (True, False), (False, False)])
    assert (row.n, row.joint, row.greedy, row.n_joint_alone) == (3, 2 / 3, 1 / 3, 1)


def test_the_marks_of_turns_are_read_as_control_tokens(items):
    """A chat is asked as it was read in training; as plain text its marks would be bytes, and the answer chance."""
    chat = next(item for item in items if item.prompt.startswith(forms.USER))
    with selectrie.load(n_threads=1) as llm:
        (_, asked), *_ = answers(llm, [chat])
        spelled = llm.select(chat.prompt, chat.choices, prompting=CHATS)
        plain = llm.select(chat.prompt, chat.choices)
    assert asked.choices[0].logp == spelled.choices[0].logp != plain.choices[0].logp


def test_every_question_is_asked_once(items):
    """Grouping by what follows loses nothing and mixes nothing up."""
    chosen = random.Random(2).sample([item for item in items if item.kind == "ambiguity"], 30)
    with selectrie.load(n_threads=1) as llm:
        found = list(answers(llm, chosen))
        assert Counter(item for item, _ in found) == Counter(chosen)
        item, answer = next((item, answer) for item, answer in found if item.following)
        alone = llm.select(item.prompt, item.choices, following=item.following)
    assert alone.text == answer.text


@pytest.fixture(scope="module", params=[4, pytest.param(1, marks=pytest.mark.long)], ids=["every fourth", "all"])
def asked(items, request):
    """The held-out questions by kind, or every fourth of them, and whether they are all."""
    kinds = {
        "intents": [item for item in items if item.kind == "intents" and "Department" not in item.prompt],
        "sentiment": [item for item in items if item.kind == "sentiment"],
        "all facts": [item for item in items if item.kind in FACTS],
    }
    return {kind: own[:: request.param] for kind, own in kinds.items()}, request.param == 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_held_out_questions_are_decided(asked, layout):
    """Through `decide`, 85 % of intents, sentiments and facts, and of statements about intents and sentiments, are right.

    With the questions first, statements reach it by less than a part of them can tell, so only all of them are counted.
    """
    kinds, are_all = asked
    params = DecisionParams(template="chat", layout=layout)
    with selectrie.load(EMBEDDED, n_threads=1) as llm:
        found = [decisions.choices(llm, kind, own, params) for kind, own in kinds.items()]
        if are_all or layout == "state first":
            found += [decisions.predicates(llm, kind, kinds[kind], params) for kind in ("intents", "sentiment")]
    assert [one.n for one in found[:3]] == [len(own) for own in kinds.values()]
    assert [one for one in found if one.accuracy < 0.85 or one.label_mass < 0.5] == []
