"""A small kind of run: rows of numbers in a file, in units of 64 rows by their order.

The values of a unit are one number for each row. The file is read lazily, and the
results are written at the end from the log in `OUT.run/`. As a program,
`python -m tests.support.summed_rows FOLDER POINT…` runs it killed at each point, and
`python -m tests.support.summed_rows --rows N FOLDER` measures it over N rows.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from selectrie.core.files import check_plain, replaced, writing
from selectrie.errors import InputFileError
from selectrie.runs.folder import FolderFormat, begin, open_log, plan_digest, read_resumable
from tests.support.kill_points import in_child

UNIT_ROWS, WINDOW = 64, 4

FOLDER = FolderFormat(
    kind="sums",
    version=1,
    parts={"configuration": dict, "plan": dict, "signature": dict},
    compared=("configuration", "signature", "plan"),
)


@dataclass(frozen=True)
class Rows:
    """A unit: consecutive lines of the input."""

    number: int
    lines: tuple[str, ...]

    @property
    def digest(self) -> str:
        """A digest of the unit's input."""
        return blake2b("".join(self.lines).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Sums:
    """The values of a unit: float per row, and the digest of its input."""

    digest: str
    values: list[float]


class SumLines:
    """The format of the log's lines."""

    def encode(self, values: Sums) -> dict[str, object]:
        """The fields of a line."""
        return {"rows": values.digest, "values": values.values}

    def decode(self, fields: Mapping[str, Any]) -> Sums:
        """The values of a line."""
        values = list(fields["values"])
        if type(fields["rows"]) is not str or not all(type(value) is float for value in values):
            raise ValueError("rows or a value has the wrong type")
        return Sums(fields["rows"], values)

    def check(self, unit: Rows, values: Sums) -> None:
        """A line is of its unit where the digests of the rows agree."""
        if values.digest != unit.digest or len(values.values) != len(unit.lines):
            raise ValueError(f"unit {unit.number} of the input has other rows")


def units_of(table: Path, unit_rows: int = UNIT_ROWS) -> Iterator[Rows]:
    """The units of a file, read lazily."""
    number = 0
    with table.open(encoding="utf-8") as file:
        while lines := tuple(islice(file, unit_rows)):
            yield Rows(number, lines)
            number += 1


def summed(unit: Rows) -> Sums:
    """The sum of the numbers in each row."""
    return Sums(unit.digest, [float(sum(map(int, line.split()))) for line in unit.lines])


Work = Callable[[Iterator[Rows]], Iterator[tuple[Rows, Sums]]]


def one_after_another(units: Iterator[Rows]) -> Iterator[tuple[Rows, Sums]]:
    """Units in their order."""
    for unit in units:
        yield unit, summed(unit)


def run(table: Path, out: Path, work: Work = one_after_another, *, window: int = WINDOW) -> None:
    """Write the input's rows with their sums to `out`; go on with `out.run/`."""
    digest, n_units = blake2b(digest_size=16), 0
    for unit in units_of(table):
        digest.update(unit.digest.encode())
        n_units += 1
    parts = {
        "configuration": {"table": str(table.resolve()), "unit_rows": UNIT_ROWS},
        "plan": {"n_units": n_units, "digest": digest.hexdigest()},
        "signature": {"model": "sum"},
    }
    folder = out.with_name(f"{out.name}.run")
    with writing(out.parent):
        check_plain(out)
    with open_log(folder, SumLines(), window=window) as log:
        run_json = begin(folder, FOLDER, log, FOLDER.describe(parts, "none"), other_machine=False)
        missing = log.recover(plan_digest(run_json), units_of(table), lambda unit, values: None)
        for unit, values in work(missing):
            log.add(unit, values)
        log.finish()
        with writing(out.parent), replaced(out) as file:
            for unit, values in log.in_order(units_of(table)):
                for line, value in zip(unit.lines, values.values, strict=True):
                    file.write(f"{line.rstrip()}\t{value!r}\n".encode())


def resume(folder: Path) -> None:
    """Go on with a folder alone."""
    described = read_resumable(folder, FOLDER)
    table = Path(described["configuration"]["table"])
    if not table.exists():
        raise InputFileError(str(table), "the input of the run is gone")
    run(table, folder.with_name(folder.name.removesuffix(".run")))


def twin(table: Path) -> bytes:
    """What the results must be, without units, log and folder."""
    lines = table.read_text(encoding="utf-8").split("\n")[:-1]
    return "".join(f"{line.rstrip()}\t{float(sum(map(int, line.split())))!r}\n" for line in lines).encode()


def write_table(path: Path, n_rows: int) -> Path:
    """A table of so many rows."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{i} {i * 7 % 1000} {-i}\n" for i in range(n_rows))
    return path


def main(folder: Path, points: list[str]) -> None:
    """Print `POINT signals same` for each point."""
    table = write_table(folder / "table.txt", 64 * 9 + 5)
    expected = twin(table)
    undisturbed = folder / "undisturbed"
    run(table, undisturbed)
    log = (folder / "undisturbed.run" / "log.jsonl").read_bytes()
    sys.stdout.write(f"bytes {len(log)} {undisturbed.read_bytes() == expected}\n")
    for point in points:
        out = folder / f"out{point}"
        signals = [in_child(lambda out=out: run(table, out), int(part)) for part in point.split(",")]
        began = (folder / f"out{point}.run" / "run.json").exists()
        whole = (lambda out=out: resume(out.with_name(f"{out.name}.run"))) if began else lambda out=out: run(table, out)
        ended = in_child(whole, None)
        same = out.read_bytes() == expected and (folder / f"out{point}.run" / "log.jsonl").read_bytes() == log
        sys.stdout.write(f"{point} {signals} {ended} {same}\n")


def measure(n_rows: int, folder: Path) -> None:
    """Print rows a second of reader, log and writer, and the peak memory."""
    table = write_table(folder / f"table{n_rows}.txt", n_rows)
    began = time.perf_counter()
    run(table, folder / f"out{n_rows}")
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sys.stdout.write(json.dumps({"rows": n_rows, "rows_per_s": round(n_rows / seconds), "peak_kb": peak}) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--rows":
        measure(int(sys.argv[2]), Path(sys.argv[3]))
    else:
        main(Path(sys.argv[1]), sys.argv[2:])
