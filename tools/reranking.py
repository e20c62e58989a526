"""How well does `/v1/rerank` find the document that fits a query? `python tools/reranking.py MODEL [--queries 24]`.

MODEL is a GGUF file, or `embedded`. Each query has four documents, of which one fits. In the set `boolq`, queries are
questions of BoolQ and documents its passages of less than 420 characters: the question's own, the two others that have the
rarest words in common with it, and one by chance. In `banking`, a query is a message of Banking77 and the document that fits
another message of its intent, beside three of other intents. Each set is ordered in two ways: by the score of `/v1/rerank`,
and by the probability of yes to whether the text is relevant to the query.

- auroc: chance that a document that fits has a larger score than one that does not, over all queries together
- first: share of queries whose best document is the one that fits, in percent
- rows: rows of the model for a document
"""

import argparse
import math
import random
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

import selectrie
from accuracy import banking, lines
from out_of_scope import auroc
from selectrie import AdviceWarning, Choice, DecisionParams, Predicate
from selectrie.server.calls.rerank import INSTRUCTIONS, PARAMS, relevance_of

N_DOCUMENTS = 4
MAX_CHARACTERS = 420
_PASSAGE = re.compile(r"Passage: (.*)\nQuestion: (.*?)\n?", re.DOTALL)
Query = tuple[str, list[str]]
"""A query, and its documents: the one that fits comes first."""


def boolq(n: int) -> list[Query]:
    """Return questions with passages."""
    found = [_PASSAGE.fullmatch(one["context"]) for one in lines("boolq")]
    pairs = {one[1]: one[2] for one in found if one is not None and len(one[1]) < MAX_CHARACTERS}
    passages = random.Random("boolq").sample(sorted(pairs), len(pairs))
    words = {text: set(re.findall(r"\w+", text.lower())) for text in passages}
    counts = Counter(word for one in words.values() for word in one)
    queries = []
    for index, own in enumerate(passages[:n]):
        asked = set(re.findall(r"\w+", pairs[own].lower()))

        def shared(text: str, asked: set[str] = asked) -> float:
            return sum(math.log(len(passages) / counts[word]) for word in asked & words[text])

        near = sorted((one for one in passages if one != own), key=shared, reverse=True)[: N_DOCUMENTS - 2]
        queries.append((pairs[own], [own, *near, passages[n + index]]))
    return queries


def messages(n: int) -> list[Query]:
    """Return messages of Banking77 with others."""
    by_intent: dict[str, list[str]] = {}
    for text, intent in banking():
        by_intent.setdefault(intent, []).append(text)
    rng = random.Random("reranking")
    queries = []
    for _ in range(n):
        intents = rng.sample(sorted(by_intent), N_DOCUMENTS)
        query, own, *others = by_intent[intents[0]]
        by_intent[intents[0]] = [own, *others, query]
        queries.append((query, [own, *(rng.choice(by_intent[one]) for one in intents[1:])]))
    return queries


def gains(llm: selectrie.Engine, query: str, documents: Sequence[str]) -> tuple[list[float], int]:
    """Return the scores of `/v1/rerank`, and the rows that they took."""
    answers = llm.decide_many(documents, Choice(INSTRUCTIONS, [query]), params=PARAMS)
    return [relevance_of(one) for one in answers], sum(one.usage.cost.rows for one in answers)


def yes_or_no(llm: selectrie.Engine, query: str, documents: Sequence[str]) -> tuple[list[float], int]:
    """Return the probabilities of yes, and the rows that they took."""
    question = Predicate(f'The text is relevant to the query "{query}".')
    answers = llm.decide_many(documents, question, params=DecisionParams())
    return [one.probability for one in answers], sum(one.usage.cost.rows for one in answers)


SETS: Mapping[str, Callable[[int], list[Query]]] = {"boolq": boolq, "banking": messages}
WAYS = {"rerank": gains, "yes or no": yes_or_no}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each set and way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--queries", type=int, default=24)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", AdviceWarning)  # a query is not what the model would say by itself
    source = None if options.model == "embedded" else options.model
    print(f"{'set':8} {'way':10} auroc  first  rows")
    with selectrie.load(source, precision="fast", n_threads=options.threads) as llm:
        for name in options.sets:
            queries = SETS[name](options.queries)
            for way, score in WAYS.items():
                llm.trim()
                results = [score(llm, query, documents) for query, documents in queries]
                scores = np.array([scores for scores, _ in results])
                fits = np.zeros(scores.shape, bool)
                fits[:, 0] = True
                first = 100 * np.mean(scores.argmax(axis=1) == 0)
                rows = sum(n for _, n in results) / scores.size
                print(
                    f"{name:8} {way:10} {auroc(scores.ravel(), fits.ravel()):5.2f} {first:6.0f} {rows:5.0f}", flush=True
                )


if __name__ == "__main__":
    main()
