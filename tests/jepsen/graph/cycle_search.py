"""Cycles in a directed graph whose edges have kinds: strongly connected components, and a shortest cycle in one.

Rule: no recursion and nothing quadratic: a history has hundreds of thousands of nodes and millions of edges. Nothing
here knows what nodes and kinds stand for.

Source: Tarjan, "Depth-First Search and Linear Graph Algorithms" (1972).
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

Graph: TypeAlias = Sequence[Mapping[int, int]]
"""By node its successors, each with the kinds of the edge as a bit set."""

EFFORT_MAX = 2_000_000
"""Edges that are looked at in one component for a shorter cycle than the one that was found already."""


def components(graph: Graph, nodes: Iterable[int], kinds: int) -> list[list[int]]:
    """The strongly connected components of two or more nodes, of these nodes and the edges of these kinds."""
    nodes = list(nodes)
    inside = set(nodes)
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    open_nodes: list[int] = []
    found: list[list[int]] = []
    for root in nodes:
        if root in order:
            continue
        path: list[tuple[int, Iterator[tuple[int, int]]]] = []
        after: int | None = root
        while path or after is not None:
            if after is not None:
                order[after] = low[after] = len(order)
                open_nodes.append(after)
                path.append((after, iter(graph[after].items())))
            node, edges = path[-1]
            after = _descend(node, edges, kinds, inside, order, low)
            if after is None:
                path.pop()
                if path:
                    parent = path[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == order[node]:
                    component = _closed(node, open_nodes, inside)
                    if len(component) > 1:
                        found.append(component)
    return found


def _descend(
    node: int,
    edges: Iterator[tuple[int, int]],
    kinds: int,
    inside: set[int],
    order: Mapping[int, int],
    low: dict[int, int],
) -> int | None:
    """The next successor that was not visited yet; until then the lowest that can be reached is noted."""
    for successor, kind in edges:
        if kind & kinds and successor in inside:
            if successor not in order:
                return successor
            low[node] = min(low[node], order[successor])
    return None


def _closed(root: int, open_nodes: list[int], inside: set[int]) -> list[int]:
    """The component of a root: all nodes above it. They are taken out of play."""
    component: list[int] = []
    while not component or component[-1] != root:
        component.append(open_nodes.pop())
    inside.difference_update(component)
    return component


def shortest_cycle(
    graph: Graph, component: Sequence[int], kinds: int, first_kinds: int, effort_max: int = EFFORT_MAX
) -> list[int] | None:
    """The nodes of the shortest cycle of these kinds that begins with an edge of `first_kinds`; None if there is none.

    `component`: strongly connected by the kinds. Ends early, with the shortest found until then, when it has looked
    at `effort_max` edges.
    """
    inside = set(component)
    best: list[int] | None = None
    effort = 0
    for start in sorted(component):
        cycle, edges_seen = _cycle_through(graph, start, inside, kinds, first_kinds, len(best) if best else None)
        best = cycle or best
        effort += edges_seen
        if best and (len(best) == 2 or effort > effort_max):
            break
    return best


def _cycle_through(
    graph: Graph, start: int, inside: set[int], kinds: int, first_kinds: int, below: int | None
) -> tuple[list[int] | None, int]:
    """The shortest cycle from a node, of fewer than `below` nodes, found breadth first; and the edges looked at."""
    came_from: dict[int, int] = {}
    steps = {successor: 1 for successor, kind in graph[start].items() if kind & first_kinds and successor in inside}
    effort = len(graph[start])
    left = deque(steps)
    while left:
        node = left.popleft()
        if below is not None and steps[node] + 1 >= below:
            break
        effort += len(graph[node])
        for successor, kind in graph[node].items():
            if successor == start and kind & kinds:
                return _path(start, node, came_from), effort
            if kind & kinds and successor in inside and successor not in steps:
                steps[successor] = steps[node] + 1
                came_from[successor] = node
                left.append(successor)
    return None, effort


def _path(start: int, last: int, came_from: Mapping[int, int]) -> list[int]:
    nodes = [last]
    while nodes[-1] in came_from:
        nodes.append(came_from[nodes[-1]])
    return [start, *reversed(nodes)]
