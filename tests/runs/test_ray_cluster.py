"""Runs and tables over one local Ray cluster, which takes longest to start: the same files, an actor killed half-way included.
Skipped by name without Ray.
"""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from selectrie.engine.load import load
from selectrie.errors import ClusterError, OptionError
from selectrie.evaluation import Item
from selectrie.evaluation.evaluator import measure_on, measure_units
from selectrie.evaluation.runner import ITEMS, SUMMARY, run
from selectrie.evaluation.work_units import TaskItems, plan
from selectrie.runs.actors import Cluster, _check_reachable
from selectrie.runs.folder import signature_of
from selectrie.tables.table_run import decide_on_cluster, plan_table, run_table
from tests.support.decided_tables import ASKED, write_table

ray = pytest.importorskip("ray")

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own threads and sockets, at the end of a cluster


@pytest.fixture(scope="module")
def cluster():
    """A cluster of this machine with two places; its processes inherit where the source is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path))
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()


def tasks():
    """Six units of questions the embedded model was made for."""
    questions = [Item(f"Q: What is {i} and {i + 1}? A:", (" one", " two", " three"), (i % 3,)) for i in range(18)]
    return [TaskItems("sums", tuple(questions), ("acc", "acc_norm"), unit_rows=40)]


def test_a_killed_actor_loses_nothing(cluster, tmp_path):
    """Two actors, one of which is killed after two units: the files of the single machine, byte for byte."""
    actors = []
    with load(n_threads=1) as llm:
        run(llm, tasks(), tmp_path / "alone")
        alone = signature_of(llm)
        measure = measure_on(Cluster(n_actors=2, options={"n_threads": 1}), alone, actors.append)

        def killing(units):
            for n, done in enumerate(measure(units)):
                if n == 1:
                    ray.kill(actors[0])
                yield done

        run(llm, tasks(), tmp_path / "many", measure=killing)
    assert len(actors) == 3
    for name in (ITEMS, SUMMARY):
        assert (tmp_path / "many" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


def test_a_killed_actor_loses_no_row_of_a_table(cluster, tmp_path):
    """Two actors, one of which is killed after two units, rows with errors among them: the files of one machine."""
    table, asked, actors = write_table(tmp_path / "t.csv", 40, 1), replace(ASKED, unit_rows=8), []
    with load(n_threads=1) as llm:
        run_table(llm, plan_table(table, asked, tmp_path / "alone.csv"))
        plan = plan_table(table, asked, tmp_path / "many.csv")
        work = decide_on_cluster(Cluster(n_actors=2, options={"n_threads": 1}), signature_of(llm), actors.append)

        def killing(plan, units):
            for n, done in enumerate(work(plan, units)):
                if n == 1:
                    ray.kill(actors[0])
                yield done

        done = run_table(llm, plan, work=killing)
    assert (done.rows, done.errors) == (40, 6)
    assert len(actors) == 3
    assert (tmp_path / "many.csv").read_bytes() == (tmp_path / "alone.csv").read_bytes()


def test_an_actor_has_room_for_the_longest_sequence(cluster):
    """A short item beside one of 400 tokens, in calls of 64 rows: what this machine measures."""
    options = {"n_threads": 1, "n_batch": 64}
    items = [Item(f"{'one two ' * n}is", (" one", " two"), (0,)) for n in (1, 200)]
    with load(**options) as llm:
        units = plan(llm.vocabulary, llm.limits, [TaskItems("t", tuple(items), ("acc",), unit_rows=1)])
        assert [unit.longest > 400 for unit in units] == [False, True]
        expected = {done.unit.number: done.records for done in measure_units(llm, units)}
        there = measure_on(Cluster(n_actors=1, options=options), signature_of(llm))(units)
        assert {done.unit.number: done.records for done in there} == expected


def test_an_actor_of_another_model_is_refused(cluster, tmp_path):
    """Its log-probabilities would be others: the error says in what they differ."""
    with load(n_threads=1) as llm:
        other = {**signature_of(llm), "model_digest": "another"}
        with pytest.raises(ClusterError, match=r"model_digest is 'blake2b.*here it is 'another'"):
            run(llm, tasks(), tmp_path / "out", measure=measure_on(Cluster(n_actors=1), other))


def test_a_model_that_is_not_there_is_said(cluster, tmp_path):
    """The error of the actor names the file."""
    with load(n_threads=1) as llm, pytest.raises(ClusterError, match=r"nowhere\.gguf"):
        run(llm, tasks(), tmp_path / "out", measure=measure_on(Cluster("nowhere.gguf", n_actors=1), signature_of(llm)))


def test_options_of_a_cluster_are_checked():
    """Numbers below what makes sense."""
    with pytest.raises(OptionError, match="n_actors"):
        Cluster(n_actors=0)
    with pytest.raises(OptionError, match="retries"):
        Cluster(retries=-1)


def test_actors_without_room_are_refused(cluster, tmp_path):
    """Three of one CPU, or one of three, on a cluster of two: they would never start."""
    with load(n_threads=1) as llm:
        for wanted in (Cluster(n_actors=3), Cluster(cpus=3)):
            with pytest.raises(OptionError, match=r"at most \d, what the cluster has room for"):
                run(llm, tasks(), tmp_path / "out", measure=measure_on(wanted, signature_of(llm)))


def test_an_address_where_nobody_listens_is_said():
    """At once, not after Ray has looked for two minutes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(OptionError, match="address of a running cluster"):
        _check_reachable(address)
