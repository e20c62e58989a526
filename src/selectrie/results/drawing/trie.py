"""Lays out the trie of a result: shared tokens once, a line for each end of a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from selectrie.core.notation import (
    UNKNOWN,
    cells_of,
    count,
    cut,
    percent,
    quoted_bytes,
    show_bytes,
    show_text,
    write_logp,
)
from selectrie.results.drawing.shapes import (
    CELL,
    LABEL_CELL,
    Drawing,
    Item,
    Shape,
    bounded_bar,
    path,
    rect,
    text,
    titles,
    to_html,
)
from selectrie.results.plain import listing

MAX_NODES = 200
"""Maximum number of nodes that are drawn."""
_ROW, _BOX, _GAP, _LEFT, _TOP = 26.0, 20.0, 22.0, 12.0, 34.0
_MAX_CELLS = 24
"""Maximum length of a token's text; longer ones are cut."""
_BAR = 120.0
_MAX_RUN = 4
"""Maximum number of tokens without a branch that have a box each."""
_REPR_ROWS = 20
MARKS = {"winner": "★", "tied": "=", "greedy": "~", "pruned": "×", "wanted": "…"}


@dataclass(frozen=True, slots=True, repr=False)
class TrieView:
    """The nodes of an evaluated trie that a report shows.

    The fields are parallel tuples over these nodes, parents first. Node 0 is the shared
    context.

    Attributes:
        parent: Index of the parent in these tuples, -1 for node 0.
        piece: Bytes of the edge's token, b"" for node 0.
        logp: Log-probability of the edge; None if not evaluated.
        logp_prefix: Log-probability from the shared context (0 at node 0).
        choice: Lowest index of the choices that end at the node, or None.
        n_choices: Number of choices at or below the node, duplicates included.
        n_hidden: Number of choices below the node in children that are not shown.
        on_winner: Whether the node is on the winner's path, or on one of a tied choice.
        on_greedy: Whether the node is on the path of masked greedy decoding.
        pruned: Whether no choice at or below the node was scored to its end.
        node: Number of the node in the trie; a node is folded by it.
        p_hidden: Total probability in the set of the choices that `n_hidden` counts;
            None if probabilities are not known.
        tolerance: The tolerance, in nats, by which numbers are written (`percent`).
        tied: Indices of the choices that share the first place; empty without a tie.
    """

    parent: tuple[int, ...]
    piece: tuple[bytes, ...]
    logp: tuple[float | None, ...]
    logp_prefix: tuple[float | None, ...]
    choice: tuple[int | None, ...]
    n_choices: tuple[int, ...]
    n_hidden: tuple[int, ...]
    on_winner: tuple[bool, ...]
    on_greedy: tuple[bool, ...]
    pruned: tuple[bool, ...]
    node: tuple[int, ...]
    p_hidden: tuple[float | None, ...]
    tolerance: float = UNKNOWN
    tied: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.parent)

    def __repr__(self) -> str:
        lines = [
            f"{'  ' * depth}{self._describe(at)}{' *' if self.on_winner[at] else ''}"
            for at, depth in self._list_depths(_REPR_ROWS)
        ]
        head = f"TrieView({len(self) - 1} nodes, {self.n_choices[0] if len(self) else 0} choices)"
        return listing(head, lines, len(self) - 1)

    def _repr_html_(self) -> str:
        """Return the nodes as a picture, for notebooks."""
        title = f"The tokens of {count(self.n_choices[0], 'choice')} as a tree"
        return to_html(draw_trie(self, title=title))

    def _describe(self, at: int) -> str:
        """Return the token, the log-probability and the number of choices of a node."""
        piece, logp, n = self.piece[at], self.logp[at], self.n_choices[at]
        step = "" if logp is None else f"  logp {write_logp(logp, self.tolerance)}"
        return f"{quoted_bytes(piece) if piece else 'control token'}{step}{f'  {n} choices' if n > 1 else ''}"

    def _list_depths(self, limit: int) -> list[tuple[int, int]]:
        """Return the first `limit` nodes below node 0 as (node, depth) pairs."""
        depths = [0]
        for parent in self.parent[1 : limit + 1]:
            depths.append(depths[parent] + 1)
        return list(enumerate(depths))[1:]


@dataclass(frozen=True, slots=True)
class End:
    """What is drawn where a choice ends.

    Attributes:
        name: Name of its number, such as "share of the set".
        low, high: Bounds on the number, a probability; NaN if it is not compared.
        words: The number as text.
        logp: The log-probability of the text, the end included, and the same as text.
    """

    name: str
    low: float
    high: float
    words: str
    logp: tuple[float, str] | None = None


@dataclass(slots=True)
class _Node:
    """A node with its place: the row, the left and the right end of its box.

    `tokens` are the nodes of the view that it stands for, more than one in the middle
    of a long run of tokens without a branch. `more` is the row of the line that counts
    what is hidden below it. `p`, `p_whole` and `p_hidden` are, as text, the probability
    of the step, of everything up to its end, and of the hidden texts.
    """

    at: int
    label: str
    p: str
    row: int
    left: float
    right: float
    text: bytes
    children: list[_Node]
    tokens: list[int]
    more: int | None = None
    p_whole: str = ""
    p_hidden: str = ""


def draw_trie(
    view: TrieView,
    end: Callable[[int], End] | None = None,
    *,
    title: str,
    root: str = "after the prompt",
    wanted: Sequence[tuple[str, float]] = (),
) -> Drawing:
    """Return the drawing of a part of a trie, the most probable branches first.

    Args:
        view: The part of the trie.
        end: Returns what is drawn where the choice with an index ends; None if nothing
            is known of choices.
        title: What is drawn, as a sentence.
        root: Name of the shared context.
        wanted: Texts that the model would like to go on with, which no choice does,
            with their probabilities.
    """
    tree, n_rows = _Layout(view).place(root)
    nodes = _walk(tree)
    edge = max([_right_end(view, node) for node in nodes] + [tree.right + _GAP + 150.0])
    numbers, shapes = 0.0, list[Shape]()
    for node in nodes:
        shapes += _draw_edges(view, node)
    boxes = [shape for node in nodes for shape in (*_draw_box(view, node), *_draw_hidden(view, node))]
    for node in nodes:
        choice = view.choice[node.at]
        if choice is not None and node.at and end is not None:
            shapes += _draw_end(view, node, last := end(choice), edge + _GAP)
            numbers = max(numbers, cells_of(last.words) * LABEL_CELL)
    written = [(label, p, percent(p, view.tolerance)) for label, p in wanted]
    ghosts = _draw_wanted(tree, written, n_rows)
    legend = _legend(view, wanted, is_rough=any("≈" in one.p for one in nodes))
    width = edge + _GAP + (26 + _BAR + 8 + numbers + 12 if end is not None else 0)
    width = max(width, _LEFT + cells_of(legend) * LABEL_CELL)
    height = _TOP + (n_rows + len(wanted)) * _ROW + 8
    head = rect(0, 0, width, height, "ground"), text(_LEFT, 20, legend, "soft", "small")
    outline = (_describe(view, tree, end, written),)
    return Drawing(width, height, title, (*head, *shapes, *boxes, *ghosts), outline)


def _legend(view: TrieView, wanted: Sequence[object], *, is_rough: bool) -> str:
    """Return the meaning of the marks that occur; `is_rough` is whether "≈" does."""
    used = {
        "winner": any(view.on_winner) and not view.tied,
        "tied": bool(view.tied),
        "greedy": any(view.on_greedy),
        "pruned": any(view.pruned),
        "wanted": bool(wanted),
    }
    words = {
        "winner": "winner",
        "tied": "shares the first place",
        "greedy": "masked greedy",
        "pruned": "pruned",
        "wanted": "what the model would say instead",
    }
    return "   ".join(
        [
            *(f"{MARKS[name]} {words[name]}" for name in used if used[name]),
            "%: probability of each step",
            *(["≈ one digit is known"] if is_rough else []),
        ]
    )


class _Layout:
    """Places the nodes of a view in rows."""

    def __init__(self, view: TrieView) -> None:
        self._view = view
        self._below: list[list[int]] = [[] for _ in view.parent]
        for child, above in enumerate(view.parent[1:], start=1):
            self._below[above].append(child)
        self._row = 0

    def place(self, root: str) -> tuple[_Node, int]:
        """Return the tree of the nodes with their places, and the number of rows.

        The first child of a node is on its row, unless a choice ends at the node. What
        is hidden is counted on the row below the node's children, or on its own.
        """
        tree = _Node(0, root, "", 0, _LEFT, _LEFT + cells_of(root) * LABEL_CELL + 14, b"", [], [0])
        self._write(tree)
        pending: list[tuple[_Node, int | None]] = self._list_children(tree, 0)
        while pending:
            parent, at = pending.pop()
            is_free = not parent.children and (self._view.choice[parent.at] is None or not parent.at)
            self._row += not is_free
            if at is None:
                parent.more = self._row
                continue
            for tokens in _shorten(self._follow(at)):
                parent = self._add(parent, tokens)
            pending += self._list_children(parent, parent.at)
        return tree, self._row + 1

    def _list_children(self, node: _Node, at: int) -> list[tuple[_Node, int | None]]:
        """Return what is below a node, the first one last; None is what is hidden."""
        children: list[tuple[_Node, int | None]] = [(node, child) for child in _order(self._view, self._below[at])]
        if self._view.n_hidden[at] and children:
            children.append((node, None))
        elif self._view.n_hidden[at]:
            node.more = node.row
        return children[::-1]

    def _follow(self, at: int) -> list[int]:
        """Return a node and the ones after it as long as there is one way to go on."""
        run = [at]
        while len(self._below[at]) == 1 and self._view.choice[at] is None and not self._view.n_hidden[at]:
            at = self._below[at][0]
            run.append(at)
        return run

    def _add(self, parent: _Node, tokens: list[int]) -> _Node:
        """Add a box for a node, or for several of a run, on the current row."""
        view, at = self._view, tokens[-1]
        piece = b"".join(view.piece[token] for token in tokens)
        label = cut(show_bytes(piece), _MAX_CELLS) or "control token"
        left = parent.right + _GAP
        node = _Node(at, label, "", self._row, left, left, parent.text + piece, [], tokens)
        self._write(node)
        node.right = left + cells_of(label) * CELL + (len(node.p) * 6.6 + 6 if node.p else 0) + 14
        parent.children.append(node)
        return node

    def _write(self, node: _Node) -> None:
        """Write the probabilities of a node as text."""
        logp, whole, hidden = (
            _step_logp(self._view, node),
            self._view.logp_prefix[node.at],
            self._view.p_hidden[node.at],
        )
        node.p = "" if logp is None else percent(math.exp(logp), self._view.tolerance)
        node.p_whole = "" if whole is None else percent(math.exp(whole), self._view.tolerance)
        # Hidden texts have a probability above 0, although it may round to it.
        node.p_hidden = "" if hidden is None else percent(hidden or math.ulp(0.0), self._view.tolerance)


def _shorten(run: list[int]) -> list[list[int]]:
    """Return the boxes of a run of tokens: one each, or one for the middle of many."""
    return [[token] for token in run] if len(run) <= _MAX_RUN else [run[:1], run[1:-1], run[-1:]]


def _order(view: TrieView, nodes: list[int]) -> list[int]:
    """Return siblings in the order of drawing: the most probable first."""
    return sorted(nodes, key=lambda at: (view.logp[at] is None, -(view.logp[at] or 0.0), at))


def _walk(tree: _Node) -> list[_Node]:
    """Return all nodes, parents first, in the order of their rows."""
    found, stack = [], [tree]
    while stack:
        node = stack.pop()
        found.append(node)
        stack += node.children[::-1]
    return found


def _middle(row: float) -> float:
    """Return the height of the middle of a row."""
    return _TOP + row * _ROW + _BOX / 2


def _classes(view: TrieView, at: int) -> tuple[str, ...]:
    """Return the classes of a node by its marks."""
    if view.pruned[at]:
        return ("off",)
    return ("win" if view.on_winner[at] else "", "alt" if view.on_greedy[at] else "")


def _draw_edges(view: TrieView, node: _Node) -> list[Shape]:
    """Return the lines from a node to its children; a thick line is a probable one."""
    shapes, x, y = [], node.right, _middle(node.row)
    for child in reversed(node.children):  # the most probable one lies on top
        logp = view.logp_prefix[child.at]
        width = 1 + 7 * math.exp(min(0.0, logp)) if logp is not None else 1
        to, bend = _middle(child.row), x + _GAP / 2
        down = "" if child.row == node.row else f"H{bend:.1f}V{to:.1f}"
        names = [name for name in _classes(view, child.at) if name and name != "off"]
        shapes.append(
            path(f"M{x:.1f} {y:.1f}{down}H{child.left:.1f}", "line", *names[:1], **{"stroke-width": f"{width:.1f}"})
        )
    return shapes


def _draw_box(view: TrieView, node: _Node) -> list[Shape]:
    """Return the box of a token with its probability after the tokens before it."""
    top, names = _TOP + node.row * _ROW, _classes(view, node.at)
    if not node.at:
        return [
            rect(node.left, top, node.right - node.left, _BOX, "box", radius=4),
            text(node.left + 7, top + 14.5, node.label, "soft"),
        ]
    mark = "win" if view.on_winner[node.at] else "alt" if view.on_greedy[node.at] else ""
    words = [rect(node.left, top, node.right - node.left, _BOX, "box", *names, radius=4)]
    words.append(text(node.left + 7, top + 14.5, node.label, "data", mark or ("soft" if view.pruned[node.at] else "")))
    if node.p:
        words.append(text(node.right - 6, top + 14.5, node.p, "small", "soft", "end"))
    number = {"data-node": str(view.node[node.at])} if node.children or view.n_hidden[node.at] else {}
    return [Shape("g", number, "", (*titles(_tell(view, node)), *words))]


def _tell(view: TrieView, node: _Node) -> str:
    """Return what a node's title says: text, probabilities and log-probability."""
    logp, whole = _step_logp(view, node), view.logp_prefix[node.at]
    words = [f"‹{show_bytes(node.text)}›"]
    if logp is not None and whole is not None:
        words.append(f"{node.p_whole} of everything, log-probability {write_logp(whole, view.tolerance)}")
        words.append(f"after the tokens before it {node.p}, {write_logp(logp, view.tolerance)}")
    return "; ".join([*words, count(view.n_choices[node.at], "choice"), *_mark_words(view, node.at)])


def _step_logp(view: TrieView, node: _Node) -> float | None:
    """Return the log-probability of a node's tokens, given the ones before them."""
    known = [logp for token in node.tokens if (logp := view.logp[token]) is not None]
    return sum(known) if len(known) == len(node.tokens) else None


def _mark_words(view: TrieView, at: int) -> list[str]:
    """Return the marks of a node in words."""
    way = "on the path of a tied choice" if view.tied else "on the winner's path"
    marks = (
        (view.on_winner[at], "shares the first place" if view.choice[at] in view.tied else way),
        (view.on_greedy[at], "on the path of masked greedy decoding"),
        (view.pruned[at], "pruned"),
    )
    return [words for is_marked, words in marks if is_marked]


def _draw_end(view: TrieView, node: _Node, end: End, x: float) -> list[Shape]:
    """Return bar and number of the choice that ends at a node."""
    top, won = _TOP + node.row * _ROW, view.on_winner[node.at]
    is_greedy = view.on_greedy[node.at] and not any(view.on_greedy[child.at] for child in node.children)
    won = won and not any(view.on_winner[child.at] for child in node.children)
    won = view.choice[node.at] in view.tied if view.tied else won
    mark = MARKS["tied" if view.tied else "winner"] * won + MARKS["greedy"] * is_greedy
    mark = MARKS["pruned"] if view.pruned[node.at] else mark
    name = "win" if won else "alt" if is_greedy else ""
    shapes = [
        path(f"M{_line_end(view, node):.1f} {_middle(node.row):.1f}H{x - 4:.1f}", "line", **{"stroke-dasharray": "1 4"})
    ]
    shapes.append(text(x, top + 14.5, mark, "strong", name))
    if not math.isnan(end.low):
        shapes += bounded_bar(end.low, end.high, (x + 26, top + 4, _BAR, _BOX - 8), name)
    shapes.append(text(x + 26 + _BAR + 8, top + 14.5, end.words, "soft" if view.pruned[node.at] else "", name))
    return shapes


def _draw_hidden(view: TrieView, node: _Node) -> list[Shape]:
    """Return the line that counts the choices hidden below a node."""
    if node.more is None:
        return []
    words = _hidden_words(view, node)
    if node.more == node.row:
        return [text(node.right + 8, _middle(node.row) + 4.5, words, "small", "soft")]
    x, y, bend = node.right, _middle(node.row), node.right + _GAP / 2
    place = f"M{x:.1f} {y:.1f}H{bend:.1f}V{_middle(node.more):.1f}H{x + _GAP:.1f}"
    line = path(place, "line", **{"stroke-dasharray": "2 3"})
    return [line, text(x + _GAP + 4, _middle(node.more) + 4.5, words, "small", "soft")]


def _line_end(view: TrieView, node: _Node) -> float:
    """Return where the line to the number of a choice begins."""
    return 4 + (_right_end(view, node) if node.more == node.row else node.right)


def _right_end(view: TrieView, node: _Node) -> float:
    """Return the right end of a node with what is beside it."""
    hidden = 0.0 if node.more is None else cells_of(_hidden_words(view, node)) * LABEL_CELL + _GAP + 8
    return node.right + hidden


def _hidden_words(view: TrieView, node: _Node) -> str:
    """Return how many texts are hidden below a node, and their probability."""
    n = view.n_hidden[node.at]
    return f"… {count(n, 'text')}{f', p {node.p_hidden}' if n and node.p_hidden else ''}"


def _draw_wanted(tree: _Node, wanted: Sequence[tuple[str, float, str]], row: int) -> list[Shape]:
    """Return the texts that the model would go on with, which no choice does."""
    shapes = []
    x, left = tree.right, tree.right + _GAP
    for at, (label, _, p) in enumerate(wanted):
        y, words = _middle(row + at), f"{MARKS['wanted']} {cut(show_text(label), _MAX_CELLS)}"
        shapes.append(
            path(f"M{x:.1f} {_middle(0):.1f}h{_GAP / 2}V{y:.1f}H{left:.1f}", "line", **{"stroke-dasharray": "2 3"})
        )
        shapes.append(text(left + 4, y + 4.5, words, "data", "soft"))
        shapes.append(text(left + 12 + cells_of(words) * CELL, y + 4.5, p, "small", "soft"))
    return shapes


def _describe(
    view: TrieView, tree: _Node, end: Callable[[int], End] | None, wanted: Sequence[tuple[str, float, str]] = ()
) -> Item:
    """Return the outline of a node and of all below it."""
    items: dict[int, Item] = {}
    for node in reversed(_walk(tree)):
        logp, whole, choice = _step_logp(view, node), view.logp_prefix[node.at], view.choice[node.at]
        numbers: list[tuple[str, float | None, str]] = []
        if logp is not None and whole is not None:
            numbers.append(("probability of the step", math.exp(logp), node.p))
            numbers.append(("probability of everything", math.exp(whole), node.p_whole))
            numbers.append(("log-probability", whole, write_logp(whole, view.tolerance)))
        children = [items[child.at] for child in node.children]
        if choice is not None and end is not None:
            last = end(choice)
            numbers.append((last.name, last.low if last.low == last.high else None, last.words))
            if last.logp is not None and last.logp != (whole, write_logp(whole or 0.0, view.tolerance)):
                numbers.append(("log-probability of the text", *last.logp))
        if view.n_hidden[node.at]:
            p_hidden = view.p_hidden[node.at]
            shown = () if p_hidden is None else (("share of the set", p_hidden, node.p_hidden),)
            children.append(Item(count(view.n_hidden[node.at], "more text"), shown))
        if not node.at:
            children += [
                Item(f"‹{show_text(label)}›", (("probability", p, words),), ("what the model would say instead",))
                for label, p, words in wanted
            ]
        label = f"‹{show_bytes(node.text)}›" if node.at else node.label
        is_open = bool(node.children or view.n_hidden[node.at])
        node_number = view.node[node.at] if is_open and node.at else None
        items[node.at] = Item(label, tuple(numbers), tuple(_mark_words(view, node.at)), node_number, tuple(children))
    return items[tree.at]
