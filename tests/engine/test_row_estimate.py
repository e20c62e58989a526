"""The estimate of rows for both layouts, against the rows that a fake model evaluates."""

from __future__ import annotations

import pytest

from selectrie import Choice, DecisionParams
from selectrie.engine.row_estimate import row_estimate
from selectrie.errors import ChoiceError, IncompatibleOptionsError
from selectrie.tables.asked import TableQuestions
from selectrie.tables.table_run import laid_out, plan_table, run_table
from tests.support.deciding import QUESTIONS, fake

STATES = ["My parcel has not come!", "Where is it? I ask for the third time.", "x y z", "Mine"]
LONG = {"q": Choice("Which of these many teams answers it?", [f"team number {i} of the house" for i in range(9)])}


@pytest.mark.parametrize("questions", [QUESTIONS, LONG], ids=["three", "long"])
@pytest.mark.parametrize("permutations", [None, 2])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_estimate_is_what_is_evaluated(questions, permutations, n):
    """For the rows that were counted, it is within 1 % of what evaluating all of them together takes."""
    params = DecisionParams(permutations=permutations)
    found = row_estimate(fake(), STATES[:n], n, questions, params)
    for layout, estimated in (("state first", found.state_first), ("questions first", found.questions_first)):
        params = DecisionParams(permutations=permutations, layout=layout)
        made = fake().decide_many(STATES[:n], questions, params=params)
        assert estimated == pytest.approx(sum(decision.usage.cost.rows for decision in made), rel=0.01)


def test_the_shared_part_counts_once_for_all_rows():
    """A thousand times the rows take a thousand times what rows do not share."""
    few, many = (row_estimate(fake(), STATES, n, LONG, DecisionParams()) for n in (4, 4000))
    assert few.n_sampled == many.n_sampled == 4
    shared = (1000 * few.questions_first - many.questions_first) / 999
    assert shared > 100
    assert many.questions_first < many.state_first / 2
    assert many.layout == "questions first"


def test_rows_that_cannot_be_asked_are_not_counted():
    """A state that is too long is left out; without any other there is no estimate."""
    assert row_estimate(fake(), ["x" * 50_000, *STATES[:1]], 2, QUESTIONS, DecisionParams()).n_sampled == 1
    assert row_estimate(fake(), ["x" * 50_000], 1, QUESTIONS, DecisionParams()) is None


def test_a_run_has_the_layout_that_takes_fewer_rows(tmp_path):
    """With "auto" it is chosen for the table, kept when the run goes on, and the same as if it had been named."""
    (tmp_path / "t.csv").write_text("body\n" + "\n".join(STATES * 5) + "\n")
    for name, layout in (("auto", "auto"), ("named", "questions first"), ("other", "state first")):
        asked = TableQuestions(state="body", questions=LONG, params=DecisionParams(layout=layout))
        plan, found = laid_out(fake(), plan_table(tmp_path / "t.csv", asked, tmp_path / f"{name}.csv"))
        assert (found.layout, plan.layout) == ("questions first", "questions first" if name == "auto" else layout)
        run_table(fake(), plan)
    assert (tmp_path / "auto.csv").read_bytes() == (tmp_path / "named.csv").read_bytes()
    assert (tmp_path / "auto.csv").read_bytes() != (tmp_path / "other.csv").read_bytes()
    asked = TableQuestions(state="body", questions=LONG)
    run = tmp_path / "auto.csv.run" / "run.json"
    run.write_text(run.read_text().replace('"layout": "questions first"', '"layout": "state first"'))
    again, _ = laid_out(fake(), plan_table(tmp_path / "t.csv", asked, tmp_path / "auto.csv"))
    assert again.layout == "state first"


def test_questions_that_cannot_be_asked_at_all(tmp_path):
    """They are one error before anything is written."""
    (tmp_path / "t.csv").write_text("body\nx\n")
    for params, error in (
        (DecisionParams(top=1), IncompatibleOptionsError),
        (DecisionParams(prior=[1.0]), ChoiceError),
    ):
        asked = TableQuestions(state="body", questions=QUESTIONS, params=params)
        with pytest.raises(error):
            run_table(fake(), plan_table(tmp_path / "t.csv", asked, tmp_path / "o.csv"))
    assert not (tmp_path / "o.csv.run").exists()
