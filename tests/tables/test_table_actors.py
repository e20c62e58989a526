"""Runs over tables on a local Ray cluster: the same files, an actor killed half-way included. Skipped by name without Ray."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from selectrie.engine.load import load
from selectrie.runs.actors import Cluster
from selectrie.runs.model_signature import signature_of
from selectrie.tables.table_actors import decided_on
from selectrie.tables.table_run import plan_table, run_table
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


def test_a_killed_actor_loses_nothing(cluster, tmp_path):
    """Two actors, one of which is killed after two units, rows with errors among them: the files of one machine."""
    table, asked, actors = write_table(tmp_path / "t.csv", 40, 1), replace(ASKED, unit_rows=8), []
    with load(n_threads=1) as llm:
        run_table(llm, plan_table(table, asked, tmp_path / "alone.csv"))
        plan = plan_table(table, asked, tmp_path / "many.csv")
        work = decided_on(Cluster(n_actors=2, options={"n_threads": 1}), signature_of(llm), actors.append)

        def killing(plan, units):
            for n, done in enumerate(work(plan, units)):
                if n == 1:
                    ray.kill(actors[0])
                yield done

        done = run_table(llm, plan, work=killing)
    assert (done.rows, done.errors) == (40, 6)
    assert len(actors) == 3
    assert (tmp_path / "many.csv").read_bytes() == (tmp_path / "alone.csv").read_bytes()
