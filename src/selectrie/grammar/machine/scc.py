"""Finds strongly connected components, such as rules that lead to each other."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def rings(graph: Mapping[Node, Sequence[Node]]) -> list[list[Node]]:
    """Return the components of a graph, each after all components that it leads to.

    The graph maps nodes to successors; successors that are not nodes are ignored. A
    component of one node may or may not lead to itself. Uses Tarjan's algorithm (1972)
    with an explicit stack.
    """
    index: dict[Node, int] = {}  # the order in which a node was met
    low: dict[Node, int] = {}  # index of the first node met that the node's subtree leads back to
    path: dict[Node, None] = {}
    components: list[list[Node]] = []
    work: list[tuple[Node, Iterator[Node]]] = []

    def enter(node: Node) -> None:
        index[node] = low[node] = len(index)
        path[node] = None
        work.append((node, iter(graph[node])))

    for root in graph:
        if root not in index:
            enter(root)
        while work:
            node, successors = work[-1]
            for after in successors:
                if after in path:
                    low[node] = min(low[node], index[after])
                elif after in graph and after not in index:
                    enter(after)
                    break
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == index[node]:
                    components.append(_cut(path, node))
    return components


def _cut(path: dict[Node, None], node: Node) -> list[Node]:
    """Remove the part of a path from `node` on and return it."""
    ring = [path.popitem()[0]]
    while ring[-1] != node:
        ring.append(path.popitem()[0])
    return ring[::-1]
