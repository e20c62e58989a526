"""Strongly connected components: rules that lead to each other."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def rings(graph: Mapping[Node, Sequence[Node]]) -> list[list[Node]]:
    """Components of a graph given by successors, each after all that it leads to (Tarjan 1972, with an explicit stack).

    Successors that are no nodes of the graph are left out. A component of one node may or may not lead to itself.
    """
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    path: list[Node] = []
    on_path: set[Node] = set()
    found: list[list[Node]] = []
    work: list[tuple[Node, Iterator[Node]]] = []

    def enter(node: Node) -> None:
        index[node] = low[node] = len(index)
        path.append(node)
        on_path.add(node)
        work.append((node, iter(graph[node])))

    def leave(node: Node) -> None:
        work.pop()
        if work:
            low[work[-1][0]] = min(low[work[-1][0]], low[node])
        if low[node] == index[node]:
            found.append([path.pop()])
            while found[-1][-1] != node:
                found[-1].append(path.pop())
            on_path.difference_update(found[-1])
            found[-1].reverse()

    for root in graph:
        if root not in index:
            enter(root)
        while work:
            node, successors = work[-1]
            for after in successors:
                if after in on_path:
                    low[node] = min(low[node], index[after])
                elif after in graph and after not in index:
                    enter(after)
                    break
            else:
                leave(node)
    return found
