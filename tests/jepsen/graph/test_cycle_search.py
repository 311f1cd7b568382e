"""Components and shortest cycles of small graphs, against what trying everything finds."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.jepsen.graph.cycle_search import components, shortest_cycle

A, B = 1, 2
NODES_MAX = 8

graphs = st.integers(1, NODES_MAX).flatmap(
    lambda count: st.lists(
        st.dictionaries(st.integers(0, count - 1), st.sampled_from([A, B, A | B])), min_size=count, max_size=count
    ).map(without_loops)
)


def without_loops(graph: list[dict[int, int]]) -> list[dict[int, int]]:
    return [{after: kind for after, kind in edges.items() if after != node} for node, edges in enumerate(graph)]


def distances(graph: list[dict[int, int]], kinds: int) -> dict[tuple[int, int], int]:
    """Between all nodes (Floyd and Warshall); 0 from a node to itself."""
    nodes = range(len(graph))
    known = {(a, b): 1 for a in nodes for b, kind in graph[a].items() if kind & kinds} | {(a, a): 0 for a in nodes}
    for middle in nodes:
        for a in nodes:
            for b in nodes:
                if (a, middle) in known and (middle, b) in known:
                    way = known[a, middle] + known[middle, b]
                    known[a, b] = min(way, known.get((a, b), way))
    return known


@given(graphs, st.sampled_from([A, B, A | B]))
def test_components_are_what_reaches_each_other(graph: list[dict[int, int]], kinds: int) -> None:
    reach = distances(graph, kinds)
    nodes = range(len(graph))
    together = {frozenset(b for b in nodes if (a, b) in reach and (b, a) in reach) for a in nodes}
    found = components(graph, nodes, kinds)
    assert {frozenset(component) for component in found} == {each for each in together if len(each) > 1}
    assert len(found) == len({frozenset(component) for component in found})


@given(graphs, st.sampled_from([A, A | B]), st.sampled_from([A, B]))
def test_the_shortest_cycle_is_a_cycle_and_none_is_shorter(
    graph: list[dict[int, int]], kinds: int, first_kinds: int
) -> None:
    reach = distances(graph, kinds | first_kinds)
    for component in components(graph, range(len(graph)), kinds | first_kinds):
        cycle = shortest_cycle(graph, component, kinds | first_kinds, first_kinds)
        lengths = [
            reach[b, a] + 1 for a in component for b, kind in graph[a].items() if kind & first_kinds and (b, a) in reach
        ]
        if cycle is None:
            assert not lengths
            continue
        assert len(cycle) == min(lengths)
        assert len(set(cycle)) == len(cycle)
        assert graph[cycle[0]][cycle[1]] & first_kinds
        assert all(graph[a][b] & (kinds | first_kinds) for a, b in pairwise([*cycle, cycle[0]]))


def test_only_the_nodes_that_are_asked_for_make_a_component() -> None:
    graph = [{1: A}, {2: A}, {0: A}]
    assert components(graph, [0, 1], A) == []
    assert [sorted(component) for component in components(graph, [2, 0, 1], A)] == [[0, 1, 2]]


def test_a_long_ring_is_no_recursion() -> None:
    count = 50_000
    ring = [{(node + 1) % count: A} for node in range(count)]
    (component,) = components(ring, range(count), A)
    assert len(component) == count
    assert shortest_cycle(ring, component, A, A, effort_max=1) == list(range(count))


def test_a_search_that_takes_too_long_ends_with_what_it_has() -> None:
    graph = [{1: A}, {2: A}, {0: A, 3: A}, {2: A}]
    assert shortest_cycle(graph, [0, 1, 2, 3], A, A, effort_max=1) == [0, 1, 2]
    assert shortest_cycle(graph, [0, 1, 2, 3], A, A) == [2, 3]
