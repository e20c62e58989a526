"""Put passages in the order in which they fit a query.

    python examples/rerank_passages.py model.gguf

The model is not asked whether a passage fits: it is asked for a query that the passage fits, and the score says how much the
passage makes this query more probable. `POST /v1/rerank` of the server computes the same numbers.
"""

from __future__ import annotations

import sys
import warnings

import selectrie
from selectrie import Choice, DecisionParams

QUERY = "Where is my parcel?"
PASSAGES = [
    "If you forgot your password, ask for a new one on the login page.",
    "You can track your parcel with the order number.",
    "We give your money back within two weeks.",
]
PARAMS = DecisionParams(rule="pmi", layout="state first", list_options=False)


def main() -> None:
    warnings.simplefilter("ignore", selectrie.AdviceWarning)  # one query is always little of what a model would say
    question = Choice("Write a search query for which this text is relevant.", [QUERY])
    with selectrie.load(*sys.argv[1:2]) as llm:
        found = [decision["query"] for decision in llm.decide_many(PASSAGES, {"query": question}, params=PARAMS)]
    scores = [answer.selection.choices[0].score for answer in found]
    for score, passage in sorted(zip(scores, PASSAGES, strict=True), reverse=True):
        print(f"{score:6.1f}  {passage}")


if __name__ == "__main__":
    main()
