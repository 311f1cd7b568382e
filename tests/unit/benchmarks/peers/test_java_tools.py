"""The values that are produced."""

import json

import pytest

from benchmarks.peers.java_tools import make_values


@pytest.mark.parametrize("value_bytes", [100, 1000, 1024])
def test_values_are_json_of_exactly_the_size_and_the_same_in_every_run(value_bytes: int) -> None:
    values = make_values(value_bytes)
    assert {len(value.encode()) for value in values} == {value_bytes}
    assert [json.loads(value)["id"] for value in values[:3]] == [0, 1, 2]
    assert len(set(values)) == len(values)
    assert values[:5] == make_values(value_bytes)[:5]
