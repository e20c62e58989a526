"""Strongly connected components, such as rules that lead to each other."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

Node = TypeVar("Node", bound=Hashable)


def rings(graph: Mapping[Node, Sequence[Node]]) -> list[list[Node]]:
    """Return the components of a graph, each after all components that it leads to.

    The graph maps nodes to successors; successors that are not nodes are ignored. A
    component of one node may or may not lead to itself. Uses Tarjan's algorithm (1972)
    with an explicit stack.
    """
    search = _Search(graph)
    for root in graph:
        if root not in search.index:
            search.run(root)
    return search.found


class _Search(Generic[Node]):
    """A depth-first search.

    Attributes:
        index: The order in which a node was met.
        low: Index of the first node met that the node's subtree leads back to.
    """

    def __init__(self, graph: Mapping[Node, Sequence[Node]]) -> None:
        self.graph = graph
        self.index: dict[Node, int] = {}
        self.low: dict[Node, int] = {}
        self.path: list[Node] = []
        self.on_path: set[Node] = set()
        self.found: list[list[Node]] = []
        self.work: list[tuple[Node, Iterator[Node]]] = []

    def run(self, root: Node) -> None:
        self._enter(root)
        while self.work:
            node, successors = self.work[-1]
            for after in successors:
                if after in self.on_path:
                    self.low[node] = min(self.low[node], self.index[after])
                elif after in self.graph and after not in self.index:
                    self._enter(after)
                    break
            else:
                self._leave(node)

    def _enter(self, node: Node) -> None:
        self.index[node] = self.low[node] = len(self.index)
        self.path.append(node)
        self.on_path.add(node)
        self.work.append((node, iter(self.graph[node])))

    def _leave(self, node: Node) -> None:
        self.work.pop()
        if self.work:
            above = self.work[-1][0]
            self.low[above] = min(self.low[above], self.low[node])
        if self.low[node] == self.index[node]:
            ring = [self.path.pop()]
            while ring[-1] != node:
                ring.append(self.path.pop())
            self.on_path.difference_update(ring)
            self.found.append(ring[::-1])
