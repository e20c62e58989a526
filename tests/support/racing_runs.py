"""Two runs that begin at once on one folder: `python racing_runs.py FOLDER RACE…`, each
race with an order that is arranged.

Both processes stop before each thing they do to the folder (Python's audit events, and
writes to the log), and go on one step at a time, as the race says. A race is
`INTERRUPTED` or `INTERRUPTED!`: the first process stops at this step, the second comes
to its end, and the first goes on, or dies by `kill -9` and is taken up again. Or it is
`rSEED`: turns and deaths are drawn. What is left must be one run's alone. Prints a line
for each race: the race, how the two ended, and `whole` or what is wrong.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from selectrie.errors import OptionError
from selectrie.evaluation.runner import ITEMS, SUMMARY, run
from selectrie.runs.folder import LOG, RUN
from tests.support.kill_points import engine, tasks

EVENTS = {"open", "os.listdir", "os.scandir", "os.mkdir", "os.rename", "os.remove", "os.truncate", "fcntl.flock"}
END_OF_STEPS = 1_000
"""Far more steps than a run has."""


def kinds(which: int) -> list[tuple[int, bool]]:
    """Seed of the model and whether items are others, of both processes: other models,
    or the items in another order."""
    return [(4, False), (5, False)] if which % 3 else [(4, False), (4, True)]


def one_run(out: Path, kind: tuple[int, bool]) -> None:
    """A run to its end."""
    seed, has_other_items = kind
    asked = tasks()
    if has_other_items:
        asked = [dataclasses.replace(asked[0], items=asked[0].items[::-1]), asked[1]]
    with engine(seed) as llm:
        run(llm, asked, out)


class Racer:
    """A process that does one thing to the folder each time it is told to go on."""

    def __init__(self, out: Path, kind: tuple[int, bool]) -> None:
        theirs, self._go = os.pipe()
        said, mine = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._go)
            os.close(said)
            _be_raced(out, kind, theirs, mine)
        os.close(theirs)
        os.close(mine)
        self._said = os.fdopen(said)
        self.ended: str | None = None
        self._hear()

    def _hear(self) -> None:
        line = self._said.readline()
        if line != "step\n":
            self._end(line.strip() or "killed")

    def _end(self, how: str) -> None:
        self.ended = how
        os.waitpid(self.pid, 0)
        os.close(self._go)
        self._said.close()

    def step(self) -> None:
        """Go on up to the next step, or to the end."""
        os.write(self._go, b"g")
        self._hear()

    def kill(self) -> None:
        """`kill -9` where it stands."""
        os.kill(self.pid, signal.SIGKILL)
        self._end("killed")


def _be_raced(out: Path, kind: tuple[int, bool], go: int, say: int) -> None:
    """The life of a racer."""
    write, mine = os.write, str(out)

    def wait() -> None:
        write(say, b"step\n")
        if not os.read(go, 1):  # the one who arranges the race is gone
            os._exit(1)

    def hook(event: str, args: tuple[object, ...]) -> None:
        if event in EVENTS and (event in {"fcntl.flock", "os.truncate"} or any(mine in str(arg) for arg in args)):
            wait()

    def writing(file: int, data: bytes) -> int:
        wait()
        return write(file, data)

    sys.addaudithook(hook)
    os.write = writing
    try:
        one_run(out, kind)
        how = "done"
    except OptionError as error:
        how = f"refused: {error}"
    except BaseException as error:  # noqa: BLE001 - whatever it is, the one who arranges the race has to hear it
        how = f"failed: {error!r}"
    write(say, how.replace("\n", " ").encode() + b"\n")
    os._exit(0)


def interrupted(racers: list[Racer], race: str) -> None:
    """The first stops at a step, the second comes to its end, then the first goes on or
    dies."""
    first, second = racers
    for _ in range(int(race.rstrip("!"))):
        if first.ended is None:
            first.step()
    while second.ended is None:
        second.step()
    if race.endswith("!") and first.ended is None:
        first.kill()
    while first.ended is None:
        first.step()


def drawn(racers: list[Racer], race: str) -> None:
    """Turns of drawn lengths; in every second race one process dies at a drawn step."""
    rng = random.Random(race)
    dies_at = rng.randrange(50) if rng.random() < 0.5 else END_OF_STEPS
    step = 0
    while going := [racer for racer in racers if racer.ended is None]:
        racer = rng.choice(going)
        for _ in range(rng.choice((1, 1, 2, 5, 20))):
            if racer.ended is None:
                racer.kill() if step == dies_at else racer.step()
                step += 1


def files(out: Path) -> dict[str, bytes]:
    """What a folder holds."""
    return {path.name: path.read_bytes() for path in out.iterdir()} if out.exists() else {}


Kinds = list[tuple[int, bool]]
Expected = list[dict[str, bytes]]


def faults(out: Path, ended: list[str], racing: Kinds, expected: Expected) -> Iterator[str]:
    """What is wrong after a race; nothing where the folder is that of one run, and the
    loser was told so."""
    for how in ended:
        if how not in {"done", "killed"} and "no other run is writing" not in how and "of the same run" not in how:
            yield how
    if ended.count("done") > 1 or (ended.count("done") == 0 and "killed" not in ended):
        yield "not one run came to its end"
    left = files(out)
    for mine, how in enumerate(ended):
        if how == "done" and any(left.get(name) != expected[mine][name] for name in (ITEMS, SUMMARY, LOG)):
            yield f"not the files of run {mine}, which came to its end"
    begun = [mine for mine in (0, 1) if left.get(RUN) == expected[mine][RUN]]
    if (RUN in left) != bool(begun):
        yield f"{RUN} is of neither run"
    for mine in (0, 1):
        yield from faults_of_going_on(out, mine, racing[mine], expected[mine], may=begun in ([], [mine]))


def faults_of_going_on(
    out: Path, mine: int, kind: tuple[int, bool], expected: dict[str, bytes], *, may: bool
) -> Iterator[str]:
    """What is wrong where a run goes on with a copy of the folder; it may where the
    folder is its own or that of no run yet."""
    again = out.with_name(f"{out.name}-again-{mine}")
    shutil.copytree(out, again) if out.exists() else again.mkdir()
    try:
        one_run(again, kind)
    except OptionError as error:
        if may:
            yield f"run {mine} cannot go on: {error}"
        elif files(again) != files(out):
            yield f"run {mine} was refused and wrote"
    else:
        if not may:
            yield f"run {mine} went on with the other"
        if files(again) != expected:
            yield f"not the files of run {mine}, taken up again"


def main(folder: Path, races: list[str]) -> None:
    """Print `RACE [ends] fault` for each race."""
    alone: dict[tuple[int, bool], dict[str, bytes]] = {}
    for kind in {*kinds(0), *kinds(1)}:
        undisturbed = folder / f"alone{kind}"
        one_run(undisturbed, kind)
        alone[kind] = files(undisturbed)
    for which, race in enumerate(races):
        out, racing = folder / f"race{which}", kinds(which)
        racers = [Racer(out, kind) for kind in racing]
        (drawn if race.startswith("r") else interrupted)(racers, race)
        ended = [str(racer.ended) for racer in racers]
        wrong = list(faults(out, ended, racing, [alone[kind] for kind in racing]))
        sys.stdout.write(f"{race} {json.dumps(ended)} {'; '.join(wrong) or 'whole'}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
