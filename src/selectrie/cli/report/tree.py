"""The drawing of a `TrieView` as an indented tree, readable without colour."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from selectrie.core.output import count, quoted_bytes
from selectrie.results import TrieView

WINNER_MARK, GREEDY_MARK, PRUNED_MARK = "*", "~", "×"
LEGEND = f"{WINNER_MARK} joint winner   {GREEDY_MARK} masked greedy   {PRUNED_MARK} pruned   numbers: log-probabilities"

_WINNER, _GREEDY, _PRUNED, _GUIDE = "bold green", "yellow", "bright_black", "bright_black"


def tree_lines(view: TrieView, label: Callable[[int], str], *, root: str = "(prompt)") -> list[Text]:
    """Return one line for each node, depth first, the heaviest siblings first.

    Each line begins with a gutter of two marks. Choices that are not shown are counted:
    on the node's own line if nothing below it is shown, else on a last line below.

    Args:
        label: Returns the text to write after the edge at which the choice with this
            index ends.
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
        kin = [(child, True) for child in sorted(children[node], key=lambda child: _weight(view, child))]
        if kin and view.n_hidden[node]:
            kin.append((node, False))
        elif view.n_hidden[node]:
            line.append(f"  … {count(view.n_hidden[node], 'more choice')}", _GUIDE)
        for at, (other, is_node) in reversed(list(enumerate(kin))):
            last = at == len(kin) - 1
            stack.append((other, is_node, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")))
    return lines


def _node_line(view: TrieView, node: int, lead: str, label: Callable[[int], str], root: str) -> Text:
    pruned, winner, greedy = view.pruned[node], view.on_winner[node], view.on_greedy[node]
    style = _WINNER if winner else _GREEDY if greedy else _PRUNED if pruned else ""
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(PRUNED_MARK if pruned else WINNER_MARK if winner else " ", style)
    line.append(GREEDY_MARK if greedy else " ", _GREEDY if greedy else "")
    line.append(f" {lead}", _GUIDE)
    line.append(quoted_bytes(view.piece[node]) if node else root, style)
    logp = view.logp[node]
    if logp is not None:
        line.append(f" {logp:.3f}", _PRUNED if pruned else "")
    choice = view.choice[node]
    if choice is not None:
        line.append(f"  {label(choice)}", style)
    return line


def _hidden_line(view: TrieView, node: int, lead: str) -> Text:
    mark = PRUNED_MARK if view.pruned[node] else " "
    return Text(
        f"{mark}  {lead}… {count(view.n_hidden[node], 'more choice')}", _GUIDE, no_wrap=True, overflow="ellipsis"
    )


def _weight(view: TrieView, node: int) -> tuple[bool, float, int]:
    logp = view.logp[node]
    return (logp is None, 0.0 if logp is None else -logp, node)
