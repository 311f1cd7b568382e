"""The relations that must hold between limits."""

from protocol import limits


def test_a_request_can_carry_one_record_batch_of_the_greatest_size() -> None:
    assert limits.MESSAGE_BYTES_MAX_DEFAULT < limits.REQUEST_BYTES_MAX


def test_one_request_fits_into_one_intake_object() -> None:
    assert limits.REQUEST_BYTES_MAX <= limits.INTAKE_OBJECT_BYTES_MAX


def test_the_intake_buffer_holds_every_put_in_flight() -> None:
    assert limits.INTAKE_OBJECT_BYTES_TARGET * limits.INTAKE_PUTS_IN_FLIGHT_MAX <= limits.INTAKE_BUFFER_BYTES_MAX


def test_an_intake_object_is_sealed_before_it_is_too_large() -> None:
    assert limits.INTAKE_OBJECT_BYTES_TARGET + limits.MESSAGE_BYTES_MAX_DEFAULT <= limits.INTAKE_OBJECT_BYTES_MAX


def test_a_group_of_appends_holds_at_least_one_entry_of_the_greatest_size() -> None:
    assert limits.LEDGER_ENTRY_BYTES_MAX <= limits.LEDGER_GROUP_BYTES_MAX


def test_a_group_of_appends_stays_below_the_limits_of_etcd() -> None:
    etcd_transaction_operations_max = 128
    etcd_request_bytes_max = 1_572_864
    session_and_head = 2
    assert limits.LEDGER_GROUP_ENTRIES_MAX + session_and_head <= etcd_transaction_operations_max
    assert etcd_request_bytes_max > limits.LEDGER_GROUP_BYTES_MAX


def test_the_configs_of_a_topic_fit_into_one_entry() -> None:
    rest_of_the_entry = limits.KIB + limits.TOPIC_NAME_CHARS_MAX
    assert limits.CONFIG_VALUE_CHARS_MAX <= limits.CONFIGS_BYTES_MAX
    assert limits.CONFIGS_BYTES_MAX + rest_of_the_entry <= limits.LEDGER_ENTRY_BYTES_MAX


def test_a_timestamp_of_the_greatest_value_fits_the_microseconds_of_a_table() -> None:
    assert limits.TIMESTAMP_MS_MAX * 1_000 + 999 < 1 << 63


def test_a_fetch_can_answer_with_the_greatest_batch() -> None:
    assert limits.MESSAGE_BYTES_MAX_DEFAULT <= limits.FETCH_RESPONSE_BYTES_MAX


def test_several_fetches_of_the_greatest_size_can_be_read_at_once() -> None:
    assert 2 * limits.FETCH_RESPONSE_BYTES_MAX <= limits.FETCH_READS_BYTES_MAX


def test_a_batch_of_the_greatest_size_can_be_unpacked() -> None:
    assert limits.MESSAGE_BYTES_MAX_DEFAULT <= limits.DECOMPRESSED_BYTES_MAX


def test_the_read_cache_holds_what_is_being_written() -> None:
    assert limits.INTAKE_BUFFER_BYTES_MAX <= limits.READ_CACHE_BYTES_DEFAULT


def test_a_topic_can_have_as_many_partitions_as_a_cluster_allows() -> None:
    assert limits.PARTITIONS_PER_TOPIC_MAX <= limits.PARTITIONS_MAX


def test_an_archive_pass_takes_more_than_one_object_and_writes_more_than_one_row_group() -> None:
    assert limits.INTAKE_OBJECT_BYTES_MAX <= limits.ARCHIVE_PASS_BYTES_MAX
    assert limits.ROW_GROUP_BYTES_TARGET < limits.ARCHIVE_PASS_BYTES_MAX
