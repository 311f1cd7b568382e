"""Leaders and node addresses, as bytes."""

from protocol.leaders import LeaderAndEpoch, NodeEndpoint, pack_leader, pack_node_endpoints


def test_a_leader_is_two_numbers_and_no_tagged_fields() -> None:
    assert pack_leader(LeaderAndEpoch(leader_id=2, leader_epoch=3)) == b"\0\0\0\2\0\0\0\3\0"
    assert pack_leader(LeaderAndEpoch()) == b"\xff" * 8 + b"\0"


def test_node_endpoints_are_a_compact_array() -> None:
    endpoints = [
        NodeEndpoint(node_id=1, host="h", port=9092),
        NodeEndpoint(node_id=2, host="é", port=1, rack="r"),
    ]
    assert pack_node_endpoints(endpoints) == (
        b"\3" + b"\0\0\0\1\2h\0\0\x23\x84\0\0" + b"\0\0\0\2\3\xc3\xa9\0\0\0\1\2r\0"
    )
    assert pack_node_endpoints([]) == b"\1"
