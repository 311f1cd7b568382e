"""Which answers of etcd are still those of the ledger that was opened (S9)."""

from dataclasses import replace

import pytest
from aetcd.rpc import kv_pb2, rpc_pb2

from coordinator.codec.codec import decode, encode
from coordinator.commands.commands import Proposal, ReportTime
from coordinator.commands.rules import RULES_CHECKED_ENTRIES
from coordinator.ledger.etcd.keys import EtcdKeys, write_head, write_meta
from coordinator.ledger.etcd.lineage import KnownLedger, Lineage
from coordinator.ledger.etcd.requests import has_value
from coordinator.ledger.port import Head, LedgerCorrupt, LedgerIdentity, LedgerRecord, SnapshotPointer, position_first
from protocol.types import Milliseconds, Position, SessionId

KEYS = EtcdKeys("c1")
SECOND = position_first(2)
IDENTITY = LedgerIdentity(cluster_id="mine", incarnation=2)


def lineage() -> Lineage:
    return Lineage(KEYS, IDENTITY)


def found(*pairs: kv_pb2.KeyValue | None) -> list[rpc_pb2.ResponseOp]:
    """Answers to single gets, None where the key is absent."""
    answers = [rpc_pb2.RangeResponse(kvs=[] if pair is None else [pair]) for pair in pairs]
    return [rpc_pb2.ResponseOp(response_range=answer) for answer in answers]


def meta(cluster_id: str = "mine", incarnation: int = 2, bucket_id: str = "") -> kv_pb2.KeyValue:
    identity = LedgerIdentity(cluster_id=cluster_id, incarnation=incarnation, bucket_id=bucket_id)
    return kv_pb2.KeyValue(key=KEYS.meta, value=write_meta(identity))


def head(revision: int) -> kv_pb2.KeyValue:
    return kv_pb2.KeyValue(key=KEYS.head, value=write_head(SessionId(SECOND + 5), 3), mod_revision=revision, version=4)


def entry(revision: int) -> kv_pb2.KeyValue:
    return kv_pb2.KeyValue(key=KEYS.entry(SessionId(SECOND + 5), 3), mod_revision=revision)


LAST = LedgerRecord(position=Position(SECOND + 9), session=SessionId(SECOND + 5), number=3, payload=b"x")
NOTHING = KnownLedger(head=SECOND, read=None)
SEEN = KnownLedger(head=LAST.position, read=LAST)


def test_a_position_is_the_revision_above_the_incarnations_first() -> None:
    opened = lineage()
    assert opened.position(9) == SECOND + 9
    assert opened.revision(SECOND + 9) == 9
    assert opened.revision(position_first(1) + 9) == 0


def test_a_ledger_without_appends_is_at_its_first_position() -> None:
    assert lineage().head([]) == Head(position=SECOND, appends_count=0)


def test_the_newest_is_remembered() -> None:
    opened = lineage()
    opened.judge(found(meta(), head(8)), NOTHING)
    assert opened.seen == KnownLedger(head=Position(SECOND + 8), read=None)
    opened.read([LAST])
    assert opened.seen == SEEN
    opened.read([])
    opened.read([replace(LAST, position=Position(SECOND + 1))])
    opened.see(Position(SECOND + 8))
    assert opened.seen == SEEN


def test_a_head_that_goes_on_says_nothing_of_what_was_read() -> None:
    opened = lineage()
    opened.read([LAST])
    opened.judge_head([head(20)], SEEN)
    assert opened.seen == KnownLedger(head=Position(SECOND + 20), read=LAST)


def test_the_head_may_have_gone_on() -> None:
    lineage().judge(found(meta(), head(10)), SEEN)


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ((None, None), "is gone from etcd: was etcd wiped"),
        ((meta("other"), head(9)), "cluster other now, where that of mine was"),
        ((meta(incarnation=3), head(9)), "incarnation 3: was the cluster recovered"),
        ((meta(), None), "restored from a backup"),
        ((meta(), head(8)), "restored from a backup"),
    ],
    ids=["wiped", "another cluster", "another incarnation", "no head", "an older head"],
)
def test_s9_another_ledger_is_found_out(
    answers: tuple[kv_pb2.KeyValue | None, kv_pb2.KeyValue | None], says: str
) -> None:
    with pytest.raises(LedgerCorrupt, match=says):
        lineage().judge(found(*answers), SEEN)
    with pytest.raises(LedgerCorrupt, match=says):
        lineage().judge_reading(found(*answers, None, entry(9)), SEEN)


def test_s9_a_bucket_that_another_agent_claimed_is_learnt_of_and_guards_what_is_written() -> None:
    opened = lineage()
    assert opened.identity.bucket_id == ""
    opened.judge(found(meta(bucket_id="one"), None), NOTHING)
    assert opened.identity == replace(IDENTITY, bucket_id="one")
    assert opened.guards() == [has_value(KEYS.meta, meta(bucket_id="one").value)]
    opened.judge(found(meta(bucket_id="one"), None), NOTHING)
    opened.judge_event(meta(bucket_id="one"))


@pytest.mark.parametrize(("bucket_id", "says"), [("two", "the bucket two"), ("", "names no bucket")])
def test_s9_a_ledger_that_names_another_bucket_than_it_did_is_found_out(bucket_id: str, says: str) -> None:
    opened = lineage()
    opened.claimed(replace(IDENTITY, bucket_id="one"))
    with pytest.raises(LedgerCorrupt, match=rf"{says}, where it named one: was etcd restored from a backup"):
        opened.judge(found(meta(bucket_id=bucket_id), None), NOTHING)


def test_an_answer_may_be_older_than_what_was_seen_since_it_was_asked_for() -> None:
    opened = lineage()
    opened.read([LAST])
    assert opened.judge_head([head(7)], NOTHING).position == SECOND + 7
    assert opened.seen == SEEN


def trimmed(position: int) -> kv_pb2.KeyValue:
    return kv_pb2.KeyValue(key=KEYS.trimmed, value=b"%d" % position)


def test_reading_begins_with_the_newest_entry_there_or_trimmed() -> None:
    assert lineage().judge_reading(found(meta(), head(12), None, entry(9)), SEEN)[1] == SECOND
    answers = found(meta(), head(12), trimmed(LAST.position), None)
    assert lineage().judge_reading(answers, SEEN)[1] == LAST.position


@pytest.mark.parametrize("newest", [None, entry(11)], ids=["gone", "another append's"])
def test_s9_a_backup_that_went_on_is_found_out_by_the_entry_that_it_lacks(newest: kv_pb2.KeyValue | None) -> None:
    answers = found(meta(), head(12), trimmed(SECOND + 8), newest)
    with pytest.raises(LedgerCorrupt, match=f"which was read at {LAST.position}, is not there any more"):
        lineage().judge_reading(answers, SEEN)


def test_a_write_is_guarded_by_the_identity_and_by_the_newest_append() -> None:
    opened = lineage()
    assert [compare.key for compare in opened.guards()] == [KEYS.meta]
    opened.read([LAST])
    assert [compare.key for compare in opened.guards()] == [KEYS.meta, KEYS.head]
    assert opened.guards()[1].mod_revision == 8


def put_at(created: int, changed: int) -> kv_pb2.KeyValue:
    key = KEYS.entry(SessionId(SECOND + 5), 3)
    return kv_pb2.KeyValue(key=key, value=b"x", create_revision=created, mod_revision=changed)


def test_an_entry_is_at_the_revision_at_which_it_was_put() -> None:
    assert lineage().record(put_at(9, 9)) == LAST


@pytest.mark.parametrize("bit", range(44))
def test_s20_an_entry_that_is_elsewhere_in_the_order_is_damaged(bit: int) -> None:
    for moved in (put_at(9 ^ 1 << bit, 9), put_at(9, 9 ^ 1 << bit)):
        with pytest.raises(LedgerCorrupt, match=r"entry 3 of session .* it is damaged, or another program wrote it"):
            lineage().record(moved)


@pytest.mark.parametrize("number", [3, 0xABCDEF])
def test_s20_no_flipped_bit_of_an_entrys_key_is_believed(number: int) -> None:
    """Neither is another exception raised: whoever reads knows `LedgerCorrupt` alone."""
    session = SessionId(SECOND + 0xAB)
    payload = encode(Proposal(time_ms=Milliseconds(5), command=ReportTime()), RULES_CHECKED_ENTRIES, session, number)
    key = bytearray(KEYS.entry(session, number))

    def read() -> Proposal:
        return decode(
            lineage().record(kv_pb2.KeyValue(key=bytes(key), value=payload, create_revision=0xABC, mod_revision=0xABC))
        )

    assert read().time_ms == 5
    refused: set[str] = set()
    for bit in range(len(key) * 8):
        key[bit // 8] ^= 1 << bit % 8
        with pytest.raises(LedgerCorrupt) as caught:
            read()
        key[bit // 8] ^= 1 << bit % 8
        refused |= {words for words in ("is no entry", "was put at", "its checksum") if words in str(caught.value)}
    assert len(refused) == 3
    assert read().time_ms == 5


@pytest.mark.parametrize("session", [SECOND - 1, SECOND, SECOND + 9, position_first(3) + 5])
def test_s20_so_is_one_of_a_session_that_begins_later_or_in_another_incarnation(session: int) -> None:
    moved = kv_pb2.KeyValue(key=KEYS.entry(SessionId(session), 3), create_revision=9, mod_revision=9)
    with pytest.raises(LedgerCorrupt, match="it is damaged"):
        lineage().record(moved)


def test_s20_what_is_trimmed_is_covered_by_the_snapshot() -> None:
    pointer = SnapshotPointer(position=LAST.position, object_key="k", appends_count=1, digest=b"")
    opened = lineage()
    opened.judge_trimmed(SECOND, None)
    opened.judge_trimmed(LAST.position, pointer)
    with pytest.raises(LedgerCorrupt, match="'trimmed' or 'snapshot' is damaged"):
        opened.judge_trimmed(Position(SECOND + 1), None)
    with pytest.raises(LedgerCorrupt, match="'trimmed' or 'snapshot' is damaged"):
        opened.judge_trimmed(Position(LAST.position + 1), pointer)
