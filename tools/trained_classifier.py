"""Print how often a trained classifier is right on Banking77, as a measure for `tools/accuracy.py`.

    python tools/trained_classifier.py [--items 60]

Naive Bayes on words and pairs of words is fitted to some messages of each label from the half `dev`, and chooses among the
eight labels of each item of the half `held-out`, which are the items of the set `banking8` there. The data lie in the folder
that SELECTRIE_TEST_DATA names.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from accuracy import SETS, half_of

N_EACH = (1, 2, 5, 10, 20)
PRIOR_COUNT = 0.1


def features(text: str) -> list[str]:
    """Return the words of a text, and its pairs of neighbours."""
    words = re.findall(r"\w+", text.lower())
    return words + [" ".join(pair) for pair in pairwise(words)]


def classify(text: str, options: Sequence[str], counts: Mapping[str, Counter[str]], n_features: int) -> str:
    """Return the label under which the text is most probable."""

    def logp(label: str) -> float:
        count = counts[label]
        total = count.total() + PRIOR_COUNT * n_features
        return sum(math.log((count[feature] + PRIOR_COUNT) / total) for feature in features(text))

    return max(options, key=logp)


def main() -> None:
    """Fit, ask and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=60)
    n_items = parser.parse_args().items
    items = SETS["banking8"].items()
    asked = [item for item in items if half_of(item) == "held-out"][:n_items]
    known: dict[str, list[str]] = {}
    for item in items:
        if half_of(item) == "dev":
            known.setdefault(item.gold, []).append(item.text)
    for n in N_EACH:
        counts = {label: Counter(f for text in texts[:n] for f in features(text)) for label, texts in known.items()}
        n_features = len(set().union(*counts.values()))
        right = sum(classify(item.text, item.options, counts, n_features) == item.gold for item in asked)
        print(f"{n:2d} messages of each label: {right / len(asked):.1%} of {len(asked)} right")


if __name__ == "__main__":
    main()
