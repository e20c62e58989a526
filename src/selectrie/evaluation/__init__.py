r"""Scores models on benchmarks.

Tasks are data. The modules read items, measure them (compute the log-likelihoods of
their choices), compute metrics, and keep runs that survive a crash. Items are measured
in units: groups that are evaluated, and logged, together.

>>> from selectrie.evaluation import Item, evaluate  # doctest: +SKIP
>>> evaluate(  # doctest: +SKIP
...     llm, [Item("Q: 2 + 2 = ?\nA:", ("3", "4"), gold=(1,))]
... )
"""

from __future__ import annotations

from selectrie.evaluation.comparison import Comparison, compare
from selectrie.evaluation.evaluator import evaluate
from selectrie.evaluation.label_report import LabelFigures, LabelReport, label_reports
from selectrie.evaluation.metrics import METRICS, ChoiceLoglikelihood, Item, ItemRecord
from selectrie.evaluation.report.decided import decided_page
from selectrie.evaluation.results import Evaluation, TaskResult

__all__ = [
    "METRICS",
    "ChoiceLoglikelihood",
    "Comparison",
    "Evaluation",
    "Item",
    "ItemRecord",
    "LabelFigures",
    "LabelReport",
    "TaskResult",
    "compare",
    "decided_page",
    "evaluate",
    "label_reports",
]
