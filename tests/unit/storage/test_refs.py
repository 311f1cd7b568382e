"""Keys of the bucket, made and read."""

import pytest

from protocol.types import ObjectNumber, Position, SessionId, TopicId
from storage.refs import (
    MANIFEST_LIST_SUFFIX,
    MANIFEST_SUFFIX,
    METADATA_SUFFIX,
    intake_key,
    intake_session_prefix,
    is_merged_key,
    metadata_copy_key,
    name_in_folder,
    number_of_intake_key,
    parquet_key,
    position_of_key,
    reached_key,
    session_of_key,
    short_name,
    snapshot_key,
    table_metadata_key,
    topic_folder,
    topic_of_copy,
    topic_of_metadata_key,
    topic_of_parquet_key,
    version_hint_key,
    version_of_copy,
)

SESSION = SessionId(0xABC)
NUMBER = ObjectNumber(7)
TOPIC = TopicId(bytes(range(16)))


def test_an_intake_key_names_session_and_number() -> None:
    assert intake_key(SESSION, NUMBER) == "intake/0000000000000abc/0000000000000007"
    assert intake_key(SESSION, NUMBER).startswith(intake_session_prefix(SESSION))


def test_keys_of_a_session_sort_by_number() -> None:
    keys = [intake_key(SESSION, ObjectNumber(number)) for number in (9, 10, 255, 256, 1 << 40)]
    assert keys == sorted(keys)


def test_a_data_file_lies_in_the_folder_of_its_topic_and_names_its_session() -> None:
    assert topic_folder("orders", TOPIC) == "lake/orders-000102030405060708090a0b0c0d0e0f/"
    assert parquet_key("orders", TOPIC, SESSION, NUMBER) == (
        "lake/orders-000102030405060708090a0b0c0d0e0f/data/0000000000000abc-0000000000000007.parquet"
    )


def test_a_merged_file_says_so_in_its_key() -> None:
    merged = parquet_key("orders", TOPIC, SESSION, NUMBER, is_merged=True)
    assert merged.endswith("/data/0000000000000abc-8000000000000007.parquet")
    assert is_merged_key(merged)
    assert not is_merged_key(parquet_key("orders", TOPIC, SESSION, NUMBER))
    assert not is_merged_key(merged.replace("/data/", "/other/"))
    assert not is_merged_key(merged.replace("8", "x"))
    assert topic_of_parquet_key(merged) == TOPIC


def test_snapshots_sort_by_position() -> None:
    assert snapshot_key(Position(255)) == "ledger/snapshots/00000000000000ff"
    assert reached_key(Position(255)) == "ledger/reached/00000000000000ff"


def test_the_number_stands_in_an_intake_key() -> None:
    assert number_of_intake_key(intake_key(SESSION, NUMBER)) == NUMBER
    assert number_of_intake_key("intake/0000000000000abc/7") is None
    assert number_of_intake_key(snapshot_key(Position(7))) is None


def test_the_position_stands_in_the_keys_of_snapshots_and_marks() -> None:
    assert position_of_key(snapshot_key(Position(1 << 44))) == 1 << 44
    assert position_of_key(reached_key(Position(7))) == 7
    for key in (
        "cluster.json",
        "ledger/snapshots/7",
        "ledger/tail/0000000000000007",
        intake_key(SessionId(1), ObjectNumber(0)),
    ):
        assert position_of_key(key) is None


def test_the_session_is_read_back_from_every_key() -> None:
    assert session_of_key(intake_key(SESSION, NUMBER)) == SESSION
    assert session_of_key(parquet_key("a-b", TOPIC, SESSION, NUMBER)) == SESSION
    assert session_of_key(parquet_key("a-b", TOPIC, SESSION, NUMBER, is_merged=True)) == SESSION
    for suffix in (METADATA_SUFFIX, MANIFEST_LIST_SUFFIX, MANIFEST_SUFFIX):
        assert session_of_key(table_metadata_key("a-b", TOPIC, SESSION, NUMBER, suffix)) == SESSION


def test_metadata_of_a_table_lies_beside_its_data() -> None:
    folder = "lake/orders-000102030405060708090a0b0c0d0e0f/metadata/"
    assert table_metadata_key("orders", TOPIC, SESSION, NUMBER, METADATA_SUFFIX) == (
        f"{folder}0000000000000abc-0000000000000007.metadata.json"
    )
    assert metadata_copy_key("orders", TOPIC, 12) == f"{folder}v12.metadata.json"
    assert version_hint_key("orders", TOPIC) == f"{folder}version-hint.text"


def test_copies_for_readers_without_a_catalog_belong_to_a_topic_and_to_no_session() -> None:
    for key in (metadata_copy_key("a-b", TOPIC, 12), version_hint_key("a-b", TOPIC)):
        assert topic_of_copy(key) == TOPIC
        assert session_of_key(key) is None
    assert version_of_copy(metadata_copy_key("a", TOPIC, 12)) == 12
    folder = f"lake/a-{TOPIC.hex()}/metadata/"
    for name in ("v.metadata.json", "vx.metadata.json", "12.metadata.json", "v12.json", "v-1.metadata.json", ""):
        assert version_of_copy(folder + name) is None
        assert topic_of_copy(folder + name) is None
    assert topic_of_copy("lake/a/metadata/version-hint.text") is None
    assert topic_of_copy(f"lake/a-{TOPIC.hex()}/data/version-hint.text") is None


@pytest.mark.parametrize(
    "key",
    [
        "",
        "cluster.json",
        "ledger/snapshots/0000000000000001",
        "intake/0000000000000abc",
        "intake/0000000000000abc/7",
        "intake/abc/0000000000000007",
        "lake/t/metadata/0000000000000abc-0000000000000007.json",
        "lake/t/metadata/0000000000000abc.metadata.json",
        "lake//metadata/0000000000000abc-0000000000000007.metadata.json",
        "intake/0000000000000ABC/0000000000000007",
        "intake/0000000000000abc/0000000000000007/x",
        "intake/+000000000000abc/0000000000000007",
        "lake/t-00/data/0000000000000abc-0000000000000007",
        "lake/t-00/data/0000000000000abc0000000000000007.parquet",
        "lake/t-00/data/abc-0000000000000007.parquet",
        "lake/t-00/data/0000000000000abc-7.parquet",
        "lake/t-00/metadata/0000000000000abc-0000000000000007.parquet",
        "lake//data/0000000000000abc-0000000000000007.parquet",
        "lake/t-00/data/x/0000000000000abc-0000000000000007.parquet",
    ],
)
def test_any_other_key_has_no_session(key: str) -> None:
    assert session_of_key(key) is None


def test_the_topic_is_read_back_from_the_key_of_a_data_file() -> None:
    assert topic_of_parquet_key(parquet_key("a-b", TOPIC, SESSION, NUMBER)) == TOPIC


@pytest.mark.parametrize(
    "key",
    [
        "intake/0000000000000abc/0000000000000007",
        "lake/00/data/x.parquet",
        f"lake/t-{'g' * 32}/data/x.parquet",
        f"lake/t-{'0' * 32}/metadata/x.parquet",
    ],
)
def test_other_keys_belong_to_no_table(key: str) -> None:
    assert topic_of_parquet_key(key) is None


def test_a_metadata_key_tells_its_topic_to_who_knows_the_name() -> None:
    key = table_metadata_key("orders.eu-1", TOPIC, SESSION, NUMBER, METADATA_SUFFIX)
    assert topic_of_metadata_key(key, "orders.eu-1") == TOPIC


def test_a_folders_name_is_no_longer_than_file_systems_allow() -> None:
    for length in range(1, 250):
        name = "n" * length
        folder = topic_folder(short_name(name), TOPIC).split("/")[1]
        assert len(folder) <= 255, length
        assert (short_name(name) == name) == (length <= 222), "tables that are there keep their folders"
    assert short_name("ab" * 124) == "ab" * 75 + "!"


@pytest.mark.parametrize("length", [1, 222, 223, 249])
def test_a_shortened_name_is_read_out_of_a_key_as_a_whole_one_is(length: int) -> None:
    name = "n" * length
    for in_folder in (name, short_name(name)):
        key = table_metadata_key(in_folder, TOPIC, SESSION, NUMBER, METADATA_SUFFIX)
        assert name_in_folder(key) == in_folder
        assert topic_of_metadata_key(key, name) == TOPIC
        assert topic_of_parquet_key(parquet_key(in_folder, TOPIC, SESSION, NUMBER)) == TOPIC
        assert session_of_key(key) == SESSION
    other = table_metadata_key(name[:-1], TOPIC, SESSION, NUMBER, METADATA_SUFFIX)
    assert topic_of_metadata_key(other, name) is None


@pytest.mark.parametrize(
    "key",
    [
        table_metadata_key("orders", TOPIC, SESSION, NUMBER, MANIFEST_LIST_SUFFIX),
        metadata_copy_key("orders", TOPIC, 3),
        f"{topic_folder('orders', TOPIC)}metadata/00001-8f0e.metadata.json",
        f"other/{table_metadata_key('orders', TOPIC, SESSION, NUMBER, METADATA_SUFFIX)}",
        table_metadata_key("orders-eu", TOPIC, SESSION, NUMBER, METADATA_SUFFIX),
        f"lake/orders-eu/metadata/{SESSION:016x}-{NUMBER:016x}{METADATA_SUFFIX}",
    ],
)
def test_what_no_session_wrote_as_metadata_of_that_name_is_none(key: str) -> None:
    assert topic_of_metadata_key(key, "orders") is None
