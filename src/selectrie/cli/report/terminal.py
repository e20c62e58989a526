"""Layout on a terminal: a safe console, wrapped text, trees, growing sequences.

Texts of a report cannot control the console. Lines break between words, but not inside
quotes such as `' a b'`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, TextIO, cast

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from selectrie.core.notation import count, quoted_bytes, write_logp
from selectrie.core.output import is_terminal, put, visible
from selectrie.results import TrieView

if TYPE_CHECKING:
    from selectrie.results import Chunk, Completion


class Screen(Console):
    """A rich console on which control characters in texts have no effect.

    Only the colours and cursor movements that rich itself writes take effect. If
    NO_COLOR is set, there is no style at all, not even bold.
    """

    def __init__(self, stream: TextIO, *, width: int | None = None) -> None:
        super().__init__(
            file=cast("IO[str]", _StreamAdapter(stream)),
            width=width,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=False,
            color_system=None if os.environ.get("NO_COLOR") else "auto",
        )

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable, with control characters made visible."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(visible(text), style)


class _StreamAdapter:
    """A file object for rich that writes to a stream with `put`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write text with `put`; return its length."""
        put(text, self._stream)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return is_terminal(self._stream)

    def fileno(self) -> int:
        return self._stream.fileno()


_UNIT = re.compile(r"""(?<!\S)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\S*|\S+""")


class Units:
    """A rich renderable of text units that are not broken across lines if they fit.

    `Units.of(sentence)` splits a sentence at white space outside quotes.

    Args:
        units: (text, style) pairs, written with one space between them.
    """

    def __init__(self, units: Sequence[tuple[str, str]]) -> None:
        self._units = units

    @classmethod
    def of(cls, sentence: str) -> Units:
        """Return the units of a plain sentence."""
        return cls([(unit, "") for unit in _UNIT.findall(sentence)])

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        widths = [cell_len(unit) for unit, _ in self._units]
        whole = sum(widths) + max(0, len(widths) - 1)
        return Measurement(max(widths, default=0), max(whole, 1)).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._lines(max(1, options.max_width))

    def _lines(self, width: int) -> Iterator[Text]:
        """Yield the units as lines of at most `width` cells."""
        line, used = Text(), 0
        for unit, style in self._units:
            for part in chop_cells(unit, width) if cell_len(unit) > width else [unit]:
                if used and used + 1 + cell_len(part) > width:
                    yield line
                    line, used = Text(), 0
                line.append((" " if used else "") + part, style)
                used += bool(used) + cell_len(part)
        yield line


def make_table(*columns: str, texts: Collection[int], style: str = "bold") -> Table:
    """Return an empty table; only its columns `texts` are aligned to the left."""
    table = Table(box=None, pad_edge=False, show_edge=False, header_style=style)
    for at, name in enumerate(columns):
        table.add_column(name, justify="left" if at in texts else "right", overflow="fold", no_wrap=at not in texts)
    return table


WINNER_MARK, TIED_MARK, GREEDY_MARK, PRUNED_MARK = "*", "=", "~", "×"

_WINNER, _GREEDY, _PRUNED, _GUIDE = "bold green", "yellow", "bright_black", "bright_black"


def tree_legend(view: TrieView) -> str:
    """Return the meaning of the marks of `tree_lines`."""
    first = f"{TIED_MARK} tied for first" if view.tied else f"{WINNER_MARK} joint winner"
    return f"{first}   {GREEDY_MARK} masked greedy   {PRUNED_MARK} pruned   numbers: log-probabilities"


def tree_lines(view: TrieView, label: Callable[[int], str], *, root: str = "(prompt)") -> list[Text]:
    """Return one line for each node of a trie, depth first, heaviest siblings first.

    Each line begins with two marks (`tree_legend`). Choices that are not shown are
    counted: on the node's own line if nothing below it is shown, else on a last line
    below.

    Args:
        view: The part of the trie to show.
        label: Returns the text after the edge at which the choice with this index ends.
        root: Text for the root.
    """
    children: list[list[int]] = [[] for _ in view.parent]
    for node, parent in enumerate(view.parent[1:], start=1):
        children[parent].append(node)
    lines: list[Text] = []
    # Node, itself or the count of what is hidden below it, guides of its line and
    # below.
    stack = [(0, True, "", "")]
    while stack:
        node, itself, lead, below = stack.pop()
        if not itself:
            lines.append(_hidden_line(view, node, lead))
            continue
        line = _node_line(view, node, lead, label, root)
        lines.append(line)
        kin = [(child, True) for child in sorted(children[node], key=lambda child: _sibling_order(view, child))]
        if kin and view.n_hidden[node]:
            kin.append((node, False))
        elif view.n_hidden[node]:
            line.append(f"  … {count(view.n_hidden[node], 'more choice')}", _GUIDE)
        for at, (other, is_node) in reversed(list(enumerate(kin))):
            last = at == len(kin) - 1
            stack.append((other, is_node, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")))
    return lines


def _node_line(view: TrieView, node: int, lead: str, label: Callable[[int], str], root: str) -> Text:
    """Return the line of a node: marks, guides, bytes, log-probability and label."""
    pruned, winner, greedy = view.pruned[node], view.on_winner[node], view.on_greedy[node]
    style = _WINNER if winner else _GREEDY if greedy else _PRUNED if pruned else ""
    line = Text(no_wrap=True, overflow="ellipsis")
    first = TIED_MARK if view.tied else WINNER_MARK
    line.append(PRUNED_MARK if pruned else first if winner else " ", style)
    line.append(GREEDY_MARK if greedy else " ", _GREEDY if greedy else "")
    line.append(f" {lead}", _GUIDE)
    line.append(quoted_bytes(view.piece[node]) if node else root, style)
    logp = view.logp[node]
    if logp is not None:
        line.append(f" {write_logp(logp, view.tolerance)}", _PRUNED if pruned else "")
    choice = view.choice[node]
    if choice is not None:
        line.append(f"  {label(choice)}", style)
    return line


def _hidden_line(view: TrieView, node: int, lead: str) -> Text:
    """Return the line that counts the choices below a node that are not shown."""
    mark = PRUNED_MARK if view.pruned[node] else " "
    return Text(
        f"{mark}  {lead}… {count(view.n_hidden[node], 'more choice')}", _GUIDE, no_wrap=True, overflow="ellipsis"
    )


def _sibling_order(view: TrieView, node: int) -> tuple[bool, float, int]:
    """Return a sort key that puts nodes with a higher log-probability first."""
    logp = view.logp[node]
    return (logp is None, 0.0 if logp is None else -logp, node)


_SPARE_LINES = 2
"""Lines of a terminal left free, so that earlier output can be seen."""


class GrowingTexts:
    """A rich renderable with the end of each unfinished sequence, one line for each.

    It has at most as many lines as the terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._texts: dict[tuple[int, int], str] = {}

    def add(self, chunk: Chunk) -> None:
        """Append a chunk to its sequence, which is hidden when it has ended."""
        key = chunk.prompt_index, chunk.index
        self._texts[key] = self._texts.get(key, "") + chunk.text
        if chunk.completion is not None:
            del self._texts[key]

    def __rich__(self) -> Group:
        max_lines = max(1, self._console.size.height - _SPARE_LINES)
        shown = sorted(self._texts.items())[:max_lines]
        lines = [Text(self._line(*item), no_wrap=True) for item in shown]
        rest = len(self._texts) - len(shown)
        return Group(*lines, *([Text(f"… {rest} more")] if rest else []))

    def _line(self, key: tuple[int, int], text: str) -> str:
        """Return the end of `text` on one line, cut at its beginning to fit."""
        begin = f"{key[0]}.{key[1]}  "
        free = max(8, self._console.size.width - cell_len(begin) - 1)
        line = visible(" ".join(text[-4 * free :].split()))
        if cell_len(line) > free:
            line = "…" + set_cell_size(line[::-1], free - 1)[::-1]
        return begin + line


def watch(chunks: Iterable[Chunk], whole: Callable[[Completion], str], console: Console | None = None) -> None:
    """Show sequences on a terminal while they grow.

    A finished sequence is written permanently above the unfinished ones.

    Args:
        chunks: The chunks of all sequences.
        whole: Returns the text to write for a finished sequence.
        console: The console to write to; a `Screen` on standard output by default.
    """
    console = console or Screen(sys.stdout)
    growing = GrowingTexts(console)
    with Live(growing, console=console, transient=True, refresh_per_second=8):
        for chunk in chunks:
            growing.add(chunk)
            if chunk.completion is not None:
                console.print(Text(whole(chunk.completion)), soft_wrap=True)


def show(report: RenderableType, file: TextIO, *, width: int | None = None) -> None:
    """Write a report to `file`.

    It is coloured on a terminal unless NO_COLOR is set. Elsewhere it is plain, without
    trailing spaces.
    """
    screen = Screen(file, width=width)
    with screen.capture() as capture:
        screen.print(report, crop=False)
    text = capture.get()
    put(text if screen.is_terminal else "".join(line.rstrip() + "\n" for line in text.split("\n")[:-1]), file)
