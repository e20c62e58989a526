"""Writes results to standard output, and progress to stderr.

Formats for programs are one JSON object or tab-separated rows. Long work shows a bar on
a terminal, or lines elsewhere.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from selectrie.cli.inputs import STDIN
from selectrie.core.files import write_file
from selectrie.core.output import flush, is_terminal, json_escaped, put, write
from selectrie.errors import IncompatibleOptionsError, OptionError, OptionRef

if TYPE_CHECKING:
    from rich.console import RenderableType

    from selectrie.results import ChoiceScore


TSV_COLUMNS = ("rank", "index", "text", "probability", "logp", "score", "logp_upper")


def to_json(fields: Mapping[str, object]) -> str:
    r"""Return one JSON object on one line, in UTF-8.

    Control characters and direction marks are written `\uXXXX`. NaN and infinities
    raise `InternalError`, because JSON cannot hold them.
    """
    return json_escaped(json.dumps(fields, ensure_ascii=False, allow_nan=False))


def to_tsv(ranked: Iterable[ChoiceScore]) -> str:
    r"""Return a header line and a line for each choice, best first.

    Numbers are written in full. A pruned choice has empty cells except for its bound.
    In texts, backslash, tab, CR and LF are written `\\`, `\t`, `\r`, `\n`.
    """
    lines = ["\t".join(TSV_COLUMNS)]
    for rank, choice in enumerate(ranked, start=1):
        numbers = (choice.probability, choice.logp, choice.score, choice.logp_upper)
        cells = ("" if value is None else repr(value) for value in numbers)
        lines.append("\t".join((str(rank), str(choice.index), escape_line(choice.text), *cells)))
    return "\n".join(lines)


def escape_line(text: str) -> str:
    r"""Return the text on one line, with backslash, tab, CR and LF escaped.

    They are written `\\`, `\t`, `\r`, `\n`.
    """
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\r", "\\r").replace("\n", "\\n")


def tag_lines(prompt_index: int, index: int, text: str) -> str:
    """Return a text with a tag and a tab before each of its lines.

    The tag `P.I` has the index of the prompt and the index of its sequence. The text's
    last line end is ignored.
    """
    begin = f"{prompt_index}.{index}\t"
    return "\n".join(begin + line for line in text.removesuffix("\n").split("\n"))


def show_json(fields: Mapping[str, object], kind: str = "") -> int:
    """Write one JSON object on one line, and return the exit code 0.

    Args:
        fields: The fields of the object.
        kind: The object's `kind`, which is written with `format` before the fields; ""
            if the fields have both.
    """
    if kind:
        from selectrie.results import FORMAT_VERSION  # numpy: not needed for --help

        fields = {"format": FORMAT_VERSION, "kind": kind, **fields}
    write(to_json(fields), sys.stdout)
    return 0


def show_stream(parts: Iterable[Any]) -> str:
    """Write the text of each part as it comes, and end the last line.

    Returns the last character, or "" if there was no text.
    """
    last = ""
    try:
        for part in parts:
            if part.text:
                write(part.text, sys.stdout, end="")
                flush()
                last = part.text[-1]
    finally:
        if last not in ("", "\n"):
            write("", sys.stdout)
    return last


FILE_WIDTH = 10_000
"""Width in columns of a report whose lines are cut only on a terminal."""


def show_report(report: RenderableType, *, is_cut: bool = True) -> int:
    """Write a report for people, and return the exit code 0.

    With `is_cut` false, lines are wrapped and cut only on a terminal.
    """
    from selectrie.cli.report import terminal  # rich: not needed for --help

    terminal.show(report, sys.stdout, width=None if is_cut or is_terminal(sys.stdout) else FILE_WIDTH)
    return 0


PATIENCE_S = 1.0
"""Seconds after which a bar or a line appears; shorter work shows nothing."""

LINE_S = 10.0
"""Seconds between lines of progress if stderr is no terminal."""

OnProgress = Callable[[int, int], None]


@contextmanager
def announce(text: str) -> Iterator[None]:
    """Write a line to a terminal if the `with` block takes over `PATIENCE_S`."""
    timer = threading.Timer(PATIENCE_S, write, (text, sys.stderr))
    if is_terminal(sys.stderr):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


class ShowProgress(Protocol):
    """A callback that shows how many of `total` items are done.

    `resumed` of them were done by an earlier run. `about` is a note shown at the end.
    """

    def __call__(self, done: int, total: int, *, resumed: int, about: str) -> None: ...


@contextmanager
def count_progress(noun: str, clock: Callable[[], float] = time.monotonic) -> Iterator[ShowProgress]:
    """Yield a callback that shows the number of items done, the pace, and a note.

    It draws a bar on a terminal, and elsewhere a line every `LINE_S` seconds.

    Args:
        noun: Name of the items.
        clock: Returns the time in seconds.
    """
    began = last_shown = clock()

    def text(done: int, resumed: int, about: str) -> str:
        return f"{(done - resumed) / max(1e-9, clock() - began):.3g} a second, {about}"

    def line(done: int, total: int, *, resumed: int, about: str) -> None:
        nonlocal last_shown
        if clock() - last_shown >= LINE_S:
            last_shown = clock()
            write(f"{done} of {total} {noun}, {text(done, resumed, about)}", sys.stderr)

    if not is_terminal(sys.stderr):
        yield line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from selectrie.cli.report.terminal import Screen

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=Screen(sys.stderr), transient=True) as bar:
        task = bar.add_task(noun, total=None)

        def draw(done: int, total: int, *, resumed: int, about: str) -> None:
            bar.update(task, completed=done, total=total, description=f"{noun}, {text(done, resumed, about)}")

        yield draw


@contextmanager
def progress(clock: Callable[[], float] = time.monotonic) -> Iterator[OnProgress | None]:
    """Yield a callback (done, total) that draws a bar of nodes after `PATIENCE_S`.

    Yields None if stderr is not a terminal.
    """
    if not is_terminal(sys.stderr):
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from selectrie.cli.report.terminal import Screen

    columns = (TextColumn("nodes"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Screen(sys.stderr), transient=True)
    task = bar.add_task("nodes", total=None)
    began, shown = clock(), False

    def tell(done: int, total: int) -> None:
        nonlocal shown
        if not shown and clock() - began > PATIENCE_S:
            shown = True
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield tell
    finally:
        bar.stop()


def check_page(path: str | None, *, as_json: bool) -> None:
    """Raise `OptionError` if the file of `--html` cannot be written.

    It is checked before the run, not after. `as_json` says whether standard output gets
    JSON, so no page.
    """
    if path is None:
        return
    if path == STDIN:
        if as_json:
            raise IncompatibleOptionsError("json", OptionRef("html", STDIN), "leave one of them out")
        return
    try:
        target = _target(Path(path))
        is_writable = target.parent.is_dir() and not target.is_dir()
    # A NUL, a name too long, or a loop of links (until Python 3.13).
    except (OSError, RuntimeError, ValueError):
        is_writable = False
    if not is_writable:
        raise OptionError("html", path, "a file in a folder that exists")


def _target(path: Path) -> Path:
    """Return `path` as an absolute path with all links resolved.

    Raises `OSError` or `RuntimeError` for a loop of links, and `ValueError` for a NUL.
    """
    with suppress(FileNotFoundError):
        path.stat()
    return path.resolve()


def write_page(path: str, text: str) -> None:
    """Write the HTML page `text` to the file `path`, or to standard output for "-".

    Standard output is flushed first, because the file may be standard output.
    """
    flush()
    if path == STDIN:
        return put(text, sys.stdout)
    try:
        write_file(Path(path), text)
    except OSError as error:
        raise OptionError("html", path, f"a file that can be written ({error.strerror})") from error
