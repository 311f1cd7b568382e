"""Keys and values under a cluster's prefix, byte for byte: other versions of this program read them."""

import pytest

from coordinator.ledger.etcd.keys import (
    EtcdKeys,
    is_fenced,
    prefix_end,
    read_meta,
    read_pointer,
    read_trimmed,
    write_head,
    write_meta,
    write_pointer,
)
from coordinator.ledger.port import LedgerCorrupt, LedgerIdentity, SnapshotPointer
from protocol.types import Position, SessionId

KEYS = EtcdKeys("c1")


def test_every_key_stands_below_the_clusters_prefix() -> None:
    assert [
        KEYS.meta,
        KEYS.head,
        KEYS.snapshot,
        KEYS.trimmed,
        KEYS.doctor,
        KEYS.entries,
        KEYS.sessions,
        KEYS.session("a"),
    ] == [
        b"/penstock/c1/meta",
        b"/penstock/c1/head",
        b"/penstock/c1/snapshot",
        b"/penstock/c1/trimmed",
        b"/penstock/c1/doctor",
        b"/penstock/c1/ledger/",
        b"/penstock/c1/sessions/",
        b"/penstock/c1/sessions/a",
    ]


def test_an_entry_is_found_by_its_key() -> None:
    key = KEYS.entry(SessionId(26), 255)
    assert key == b"/penstock/c1/ledger/000000000000001a/00000000000000ff"
    assert key.startswith(KEYS.entries_of(SessionId(26)))
    assert KEYS.read_entry(key) == (26, 255)


@pytest.mark.parametrize(
    "rest", [b"", b"000000000000001a", b"1a/ff", b"000000000000001a/ff", b"000000000000001A/00000000000000ff"]
)
def test_what_is_no_entry_is_corruption(rest: bytes) -> None:
    with pytest.raises(LedgerCorrupt, match=r"no entry.*The ledger holds what cannot be read"):
        KEYS.read_entry(KEYS.entries + rest)


def test_a_prefix_ends_before_the_next_one() -> None:
    assert prefix_end(b"/penstock/c1/ledger/") == b"/penstock/c1/ledger0"


def test_the_identity_survives() -> None:
    identity = LedgerIdentity(cluster_id="abc", incarnation=2)
    assert write_meta(identity) == b'{"cluster_id":"abc","incarnation":2}'
    assert read_meta(write_meta(identity)) == identity
    of_bucket = LedgerIdentity(cluster_id="abc", incarnation=2, bucket_id="one")
    assert write_meta(of_bucket) == b'{"cluster_id":"abc","incarnation":2,"bucket_id":"one"}'
    assert read_meta(write_meta(of_bucket)) == of_bucket


def test_a_fenced_ledger_says_so_in_its_meta() -> None:
    identity = LedgerIdentity(cluster_id="abc", incarnation=2)
    fenced = write_meta(identity, is_fenced=True)
    assert fenced == b'{"cluster_id":"abc","incarnation":2,"is_fenced":true}'
    assert read_meta(fenced) == identity
    assert (is_fenced(fenced), is_fenced(write_meta(identity))) == (True, False)


def test_a_meta_that_says_no_fence_because_of_a_flipped_bit_is_corruption() -> None:
    fenced = write_meta(LedgerIdentity(cluster_id="abc", incarnation=2, bucket_id="one"), is_fenced=True)
    for name in (b"is_fenced", b"bucket_id"):
        assert fenced.count(name) == 1
        with pytest.raises(LedgerCorrupt, match="'meta' holds what this program cannot read"):
            is_fenced(fenced.replace(name, name[:-1] + b"x"))


def test_runs_are_ranges_that_hold_no_other_entry() -> None:
    rows = [(1, 0), (1, 1), (1, 3), (2, 4), (2, 5)]
    keys = [KEYS.entry(SessionId(session), number) for session, number in rows]
    assert KEYS.runs(keys) == [
        (keys[0], keys[1][:-1] + b"2"),
        (keys[2], keys[2][:-1] + b"4"),
        (keys[3], keys[4][:-1] + b"6"),
    ]
    assert KEYS.runs([]) == []
    strange = keys[1][:-1] + b"A"
    assert KEYS.runs([keys[0], strange]) == [(keys[0], keys[1]), (strange, strange + b"\0")]


def test_the_head_names_the_last_entry() -> None:
    assert write_head(SessionId(26), 255) == b"1a/ff"


def test_the_pointer_survives() -> None:
    pointer = SnapshotPointer(
        position=Position(7), object_key="ledger/snapshots/7", appends_count=3, digest=b"\x01\x02"
    )
    assert write_pointer(pointer) == (
        b'{"position":7,"object_key":"ledger/snapshots/7","appends_count":3,"digest":"AQI="}'
    )
    assert read_pointer(write_pointer(pointer)) == pointer


@pytest.mark.parametrize("value", [b"", b"{}", b"\xff"])
def test_values_that_cannot_be_read_are_corruption(value: bytes) -> None:
    with pytest.raises(LedgerCorrupt, match="'meta'"):
        read_meta(value)
    with pytest.raises(LedgerCorrupt, match="'snapshot'"):
        read_pointer(value)


@pytest.mark.parametrize(
    "rest",
    [b"0000000000000g1a/00000000000000ff", b"+000000000000001/00000000000000ff", b"000000000000001a/\xff" + b"0" * 15],
)
def test_a_key_with_a_flipped_bit_is_no_entry(rest: bytes) -> None:
    with pytest.raises(LedgerCorrupt, match=r"no entry.*The ledger holds what cannot be read"):
        KEYS.read_entry(KEYS.entries + rest)


def test_the_name_of_a_session_is_in_its_key() -> None:
    assert KEYS.read_session_name(KEYS.session("a-1")) == "a-1"
    with pytest.raises(LedgerCorrupt, match=r"no session.*The ledger holds what cannot be read"):
        KEYS.read_session_name(KEYS.sessions + b"a\xff")


def test_the_position_up_to_which_entries_went_is_read() -> None:
    assert read_trimmed(b"1234") == 1234
    with pytest.raises(LedgerCorrupt, match=r"trimmed.*The ledger holds what cannot be read"):
        read_trimmed(b"12s4")


def test_a_flipped_bit_in_a_value_is_corruption_or_another_value() -> None:
    identity = LedgerIdentity(cluster_id="c", incarnation=1, bucket_id="b")
    pointer = SnapshotPointer(position=Position(7), object_key="k", appends_count=3, digest=b"1" * 32)
    refused = 0
    for value, read, written in (
        (write_meta(identity), read_meta, identity),
        (write_pointer(pointer), read_pointer, pointer),
    ):
        for bit in range(len(value) * 8):
            damaged = bytes([*value[: bit // 8], value[bit // 8] ^ 1 << (bit % 8), *value[bit // 8 + 1 :]])
            try:
                assert read(damaged) != written
            except LedgerCorrupt:
                refused += 1
    assert refused > 500
