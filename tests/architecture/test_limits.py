"""Limits stand in one file, and the relations between them hold."""

import ast

from agent.produce.record_validator import (
    INLINE_BYTES_MAX,
    INLINE_PLAIN_BYTES_MAX,
    INLINE_PLAIN_RECORDS_MAX,
    INLINE_UNPACKED_BYTES_MAX,
)
from coordinator.configs.broker_configs import BROKER_CONFIGS
from protocol import limits
from tests.architecture.source import PACKAGES, ROOT, modules, place, tree

OF_A_FORMAT = {
    "EPOCH_MAX",
    "KEY_BYTES_MAX",
    "LONG_MAX",
    "NODE_ID_MAX",
    "PORT_MAX",
    "PRODUCER_IDS_MAX",
    "RECORDS_PER_WRITE_MAX",
    "UNSIGNED_VARINT_BYTES_MAX",
    "VERSION_MAX",
    "_DELTA_MAX",
    "_HEADER_OVERHEAD_MAX",
    "_INT16_MAX",
    "_INT32_MAX",
    "INT64_MAX",
    "_INT64_MAX",
    "_RECORD_OVERHEAD_MAX",
}
"""Nobody chose these: a type or somebody else's format has them."""
OF_A_WAY = {
    "BLOOM_VALUES_MAX",
    "INLINE_BYTES_MAX",
    "INLINE_PLAIN_BYTES_MAX",
    "INLINE_PLAIN_RECORDS_MAX",
    "INLINE_UNPACKED_BYTES_MAX",
    "PAUSE_SECONDS_MAX",
    "SHOWN_CHARS_MAX",
}
"""Beyond these nothing is refused: work goes to a thread, a pause grows no longer, a text is shortened."""


def test_every_limit_stands_in_the_one_file() -> None:
    elsewhere = [
        f"{place(module, node)}: {target.id}"
        for package in PACKAGES
        for module in modules(package)
        if module != ROOT / "protocol" / "limits.py"
        for node in tree(module).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id.endswith("_MAX")
        if target.id not in OF_A_FORMAT | OF_A_WAY
    ]
    assert not elsewhere, "\n".join(elsewhere)


def test_the_cluster_remembers_more_producers_than_one_partition() -> None:
    assert limits.PRODUCER_STATES_PER_PARTITION_MAX < limits.PRODUCER_STATES_MAX


def test_a_request_can_carry_one_record_batch_of_the_greatest_size() -> None:
    assert limits.MESSAGE_BYTES_MAX_DEFAULT < limits.REQUEST_BYTES_MAX


def test_damage_is_remembered_for_longer_than_a_damaged_chunk_is_left_alone() -> None:
    assert limits.DAMAGED_CHUNK_REREAD_INTERVAL_S < limits.DAMAGED_CHUNK_REMEMBERED_S


def test_one_request_fits_into_one_intake_object() -> None:
    assert limits.REQUEST_BYTES_MAX <= limits.INTAKE_OBJECT_BYTES_MAX


def test_an_intake_object_of_the_usual_size_can_be_read_whole_and_several_of_them_be_held() -> None:
    assert limits.INTAKE_OBJECT_BYTES_TARGET <= limits.OBJECT_BYTES_READ_WHOLE_MAX
    assert 4 * limits.OBJECT_BYTES_READ_WHOLE_MAX <= limits.READ_CACHE_BYTES_DEFAULT
    assert limits.OBJECT_BYTES_READ_WHOLE_MAX <= limits.FETCH_READS_BYTES_MAX


def test_the_intake_buffer_holds_every_put_in_flight() -> None:
    assert limits.INTAKE_OBJECT_BYTES_ENOUGH * limits.INTAKE_PUTS_IN_FLIGHT_MAX <= limits.INTAKE_BUFFER_BYTES_MAX


def test_the_intake_buffer_holds_full_objects_on_their_way_beside_an_open_one() -> None:
    assert 5 * limits.INTAKE_OBJECT_BYTES_TARGET <= limits.INTAKE_BUFFER_BYTES_MAX


def test_what_is_enough_for_an_object_is_less_than_what_fills_it() -> None:
    assert limits.CHEAP_OBJECT_BYTES_TARGET < limits.INTAKE_OBJECT_BYTES_ENOUGH < limits.INTAKE_OBJECT_BYTES_TARGET
    assert 0 < limits.INTAKE_PAUSE_SHARE < 1


def test_an_intake_object_is_sealed_before_it_is_too_large() -> None:
    assert limits.INTAKE_OBJECT_BYTES_TARGET + limits.MESSAGE_BYTES_MAX_DEFAULT <= limits.INTAKE_OBJECT_BYTES_MAX


def test_a_group_of_appends_holds_at_least_one_entry_of_the_greatest_size() -> None:
    assert limits.LEDGER_ENTRY_BYTES_MAX <= limits.LEDGER_GROUP_BYTES_MAX


def test_a_dead_agent_is_not_waited_for_when_digests_are_compared() -> None:
    """Its session ends, and that is seen, before a snapshot is taken without its word (S3)."""
    assert limits.DIGEST_LOOK_INTERVAL_S < 1
    assert limits.LEDGER_SESSION_SECONDS + 2 * limits.SESSION_END_SECOND_TRY_S < limits.DIGEST_WAIT_SECONDS_MAX
    assert limits.DIGEST_WAIT_SECONDS_MAX < limits.DIGEST_COMPARISON_INTERVAL_S


def test_a_silent_watch_is_given_up_before_a_session_is_lost() -> None:
    assert 2 * limits.ETCD_PROGRESS_SECONDS < limits.ETCD_WATCH_SILENT_SECONDS_MAX < limits.LEDGER_SESSION_SECONDS


def test_a_group_of_appends_stays_below_the_limits_of_etcd() -> None:
    etcd_transaction_operations_max = 128
    etcd_request_bytes_max = 1_572_864
    session_and_head = 2
    assert limits.LEDGER_GROUP_ENTRIES_MAX + session_and_head <= etcd_transaction_operations_max
    assert etcd_request_bytes_max > limits.LEDGER_GROUP_BYTES_MAX


def test_what_is_deleted_or_dropped_at_once_fits_into_one_entry() -> None:
    topic_id_bytes, row_bytes, rest_of_the_entry = 18, 4 + 4 + 8, limits.KIB
    of_log_starts = limits.LOG_STARTS_PER_ENTRY_MAX * (topic_id_bytes + row_bytes)
    assert of_log_starts + rest_of_the_entry <= limits.LEDGER_ENTRY_BYTES_MAX
    assert limits.DROPPING_PARTITIONS_PER_ENTRY_MAX <= limits.LOG_STARTS_PER_ENTRY_MAX
    range_bytes = 1 + 3 + 3
    of_ranges = limits.DROPPING_PARTITIONS_PER_ENTRY_MAX * (topic_id_bytes + range_bytes)
    assert of_ranges + rest_of_the_entry <= limits.LEDGER_ENTRY_BYTES_MAX


def test_the_configs_of_a_topic_fit_into_one_entry() -> None:
    rest_of_the_entry = limits.KIB + limits.TOPIC_NAME_CHARS_MAX
    assert limits.CONFIG_VALUE_CHARS_MAX <= limits.CONFIGS_BYTES_MAX
    assert limits.CONFIGS_BYTES_MAX + rest_of_the_entry <= limits.LEDGER_ENTRY_BYTES_MAX


def test_a_schema_fits_into_one_entry_with_its_references_and_into_a_request() -> None:
    utf_8_bytes_of_most, bytes_around_a_reference, rest_of_the_entry = 3, 16, limits.KIB
    of_references = limits.SCHEMA_REFERENCES_BYTES_MAX + limits.SCHEMA_REFERENCES_MAX * bytes_around_a_reference
    of_the_subject = limits.SUBJECT_CHARS_MAX * utf_8_bytes_of_most
    together = limits.SCHEMA_BYTES_MAX + of_references + of_the_subject + rest_of_the_entry
    assert together <= limits.LEDGER_ENTRY_BYTES_MAX
    bytes_of_an_escaped_one = 6
    assert limits.SCHEMA_BYTES_MAX * bytes_of_an_escaped_one < limits.SCHEMA_BODY_BYTES_MAX


def test_every_schema_may_have_what_it_refers_to() -> None:
    assert limits.SCHEMA_REFERENCES_MAX <= limits.SCHEMA_FILES_MAX
    assert limits.SCHEMA_BYTES_MAX <= limits.SCHEMA_FILES_BYTES_MAX


def test_a_timestamp_of_the_greatest_value_fits_the_microseconds_of_a_table() -> None:
    assert limits.TIMESTAMP_MS_MAX * 1_000 + 999 < 1 << 63


def test_a_fetch_can_answer_with_the_greatest_batch() -> None:
    assert limits.MESSAGE_BYTES_MAX_DEFAULT <= limits.FETCH_RESPONSE_BYTES_MAX


def test_a_fetch_that_meets_a_store_and_a_ledger_that_are_away_is_answered_before_its_client_gives_up() -> None:
    clients_request_timeout_s = 30
    assert clients_request_timeout_s > limits.FETCH_READ_SECONDS_MAX + limits.BARRIER_SECONDS_MAX


def test_several_fetches_of_the_greatest_size_can_be_read_at_once() -> None:
    assert 2 * limits.FETCH_RESPONSE_BYTES_MAX <= limits.FETCH_READS_BYTES_MAX


def test_a_batch_of_the_greatest_size_can_be_unpacked() -> None:
    assert limits.MESSAGE_BYTES_MAX_DEFAULT <= limits.DECOMPRESSED_BYTES_MAX


def test_the_greatest_batch_fits_into_what_may_be_unpacked_at_once_and_the_usual_one_needs_no_reservation() -> None:
    assert limits.DECOMPRESSED_BYTES_MAX <= limits.UNPACKED_BYTES_AT_ONCE_MAX
    assert limits.MESSAGE_BYTES_MAX_DEFAULT * 8 <= limits.UNPACKED_BYTES_UNRESERVED_MAX


def test_the_read_cache_holds_what_is_being_written() -> None:
    assert limits.INTAKE_BUFFER_BYTES_MAX <= limits.READ_CACHE_BYTES_DEFAULT


def test_a_topic_can_have_as_many_partitions_as_a_cluster_allows() -> None:
    assert limits.PARTITIONS_PER_TOPIC_MAX <= limits.PARTITIONS_MAX


def test_a_fetch_can_name_every_partition_of_a_cluster() -> None:
    assert limits.PARTITIONS_MAX <= limits.FETCH_PARTITIONS_MAX


def test_the_reserve_is_given_back_before_the_rest_of_the_memory() -> None:
    assert limits.RECEIVE_STALLED_SECONDS_MAX <= limits.RESERVE_SECONDS_MAX < limits.RECEIVE_SECONDS_MAX
    assert limits.RECEIVE_SECONDS_MAX < limits.HALF_OPEN_SECONDS_MAX
    assert limits.RECEIVE_STALLED_SECONDS_MAX < limits.RECEIVE_IDLE_SECONDS_MAX < limits.HALF_OPEN_SECONDS_MAX
    assert limits.REQUEST_BYTES_MAX < limits.REQUEST_BYTES_QUEUED_MAX
    assert limits.RECEIVE_BUFFER_BYTES <= limits.RECEIVE_BUFFERS_BYTES_MAX


def test_work_that_fails_is_tried_less_and_less() -> None:
    assert (
        limits.ARCHIVE_CHECK_INTERVAL_S
        < limits.TOPIC_PAUSE_SECONDS_FIRST
        < limits.TOPIC_PAUSE_OUTAGE_SECONDS_MAX
        < limits.TOPIC_PAUSE_SECONDS_MAX
    )


def test_an_archive_pass_takes_more_than_one_object_and_writes_more_than_one_row_group() -> None:
    assert limits.INTAKE_OBJECT_BYTES_MAX <= limits.ARCHIVE_PASS_BYTES_MAX
    assert limits.ROW_GROUP_BYTES_TARGET < limits.ARCHIVE_PASS_BYTES_MAX
    assert limits.RUN_OUTPUT_BYTES == 2 * limits.ROW_GROUP_BYTES_TARGET


def test_a_table_keeps_the_snapshot_that_it_was_made_of_and_merges_manifests_into_larger_ones() -> None:
    assert limits.TABLE_SNAPSHOTS_MAX >= 2
    assert limits.TABLE_SNAPSHOTS_EXPIRED_AT_ONCE >= 1
    assert 2 <= limits.TABLE_MANIFESTS_PER_LEVEL_MAX < limits.TABLE_MANIFEST_FILES_MAX


def test_an_entry_can_name_all_that_a_tables_commit_brings_and_releases() -> None:
    topic_name_bytes_max, rest_of_a_key_bytes = 249, 100
    # Of what one snapshot dropped there may be a list, as many data files, and as many manifests that they were in.
    # More there is only of one that had a name; upkeep releases the rest, as many at a time as a commit drops.
    assert 2 * limits.TABLE_FILES_PER_COMMIT_MAX + 100 <= limits.TABLE_RELEASED_PER_COMMIT_MAX
    names = limits.TABLE_RELEASED_PER_COMMIT_MAX + 3 * limits.TABLE_FILES_PER_COMMIT_MAX
    assert names * (topic_name_bytes_max + rest_of_a_key_bytes) < limits.LEDGER_ENTRY_UNPACKED_BYTES_MAX


def test_an_entry_of_the_greatest_size_can_be_unpacked() -> None:
    assert limits.LEDGER_ENTRY_BYTES_MAX <= limits.LEDGER_ENTRY_UNPACKED_BYTES_MAX


def test_a_request_waits_for_its_command_longer_than_for_a_barrier() -> None:
    assert limits.BARRIER_SECONDS_MAX <= limits.LEDGER_WAIT_SECONDS_MAX


def test_s7_a_client_waits_longer_for_an_answer_than_its_connections_age_may_take_to_be_known() -> None:
    request_timeout_s = 3.0  # of impatient clients; by default 30 to 60
    assert request_timeout_s > 2 * limits.CONNECTION_EPOCH_SECONDS_MAX


def test_the_command_line_takes_the_largest_answer_to_a_fetch() -> None:
    assert limits.FETCH_RESPONSE_BYTES_MAX < limits.CLIENT_ANSWER_BYTES_MAX


def test_an_answer_over_http_has_no_more_rows_by_itself_than_on_demand() -> None:
    assert limits.HTTP_ROWS_DEFAULT <= limits.HTTP_ROWS_MAX


def test_every_object_that_holds_records_can_be_inspected() -> None:
    assert limits.INTAKE_OBJECT_BYTES_MAX <= limits.INSPECTED_OBJECT_BYTES_MAX
    assert limits.ARCHIVE_PASS_BYTES_MAX <= limits.INSPECTED_OBJECT_BYTES_MAX


def test_a_recovery_watches_for_several_marks_of_whoever_uses_the_bucket() -> None:
    assert limits.RECOVERY_WATCH_S >= 3 * limits.REACHED_MARK_INTERVAL_S


def test_what_stays_behind_a_snapshot_is_little_of_etcds_room() -> None:
    kept_bytes = limits.LEDGER_KEPT_POSITIONS_MAX * limits.LEDGER_GROUP_BYTES_MAX
    assert kept_bytes < (1 - limits.LEDGER_PRESSURE_HIGH) * limits.ETCD_QUOTA_BYTES_DEFAULT


def test_committed_offsets_of_one_entry_fit_into_it() -> None:
    row_bytes, utf_8_bytes_of_most, rest_of_the_entry = 4 + 4 + 4 + 8 + 4 + 8, 3, 32 * limits.KIB
    of_rows = limits.OFFSETS_PER_COMMIT_ENTRY_MAX * row_bytes
    of_metadata = limits.OFFSET_METADATA_CHARS_PER_ENTRY_MAX * utf_8_bytes_of_most
    assert of_rows + of_metadata + rest_of_the_entry <= limits.LEDGER_ENTRY_BYTES_MAX
    assert limits.OFFSETS_PER_COMMIT_ENTRY_MAX <= limits.OFFSETS_PER_ENTRY_MAX
    assert limits.GROUP_IDS_PER_CLAIM_MAX * limits.GROUP_ID_BYTES_MAX < limits.LEDGER_ENTRY_BYTES_MAX
    assert limits.GROUP_IDS_PER_CLAIM_MAX <= limits.VACANT_GROUPS_MAX <= limits.GROUPS_MAX
    of_ids = limits.EXPIRING_GROUP_CHARS_PER_ENTRY_MAX * utf_8_bytes_of_most
    assert of_ids + rest_of_the_entry <= limits.LEDGER_ENTRY_BYTES_MAX


def test_what_a_member_of_a_consumer_group_tells_fits_into_an_entry() -> None:
    with_its_topics_once_more = 2 * limits.CONSUMER_GROUP_MEMBER_BYTES_MAX
    assert with_its_topics_once_more < limits.LEDGER_ENTRY_BYTES_MAX
    assert limits.CONSUMER_GROUP_REGEX_CHARS_MAX < limits.CONSUMER_GROUP_MEMBER_BYTES_MAX
    assert 2 * limits.CONSUMER_GROUP_MEMBER_BYTES_MAX < limits.CONSUMER_GROUP_CHANGE_BYTES_MAX
    assert limits.CONSUMER_GROUP_CHANGE_BYTES_MAX < limits.LEDGER_ENTRY_BYTES_MAX - limits.GROUP_ID_BYTES_MAX
    assert limits.CONSUMER_GROUP_MEMBER_BYTES_MAX < limits.CONSUMER_GROUP_TARGETS_BYTES_MAX


def test_those_who_leave_a_consumer_group_at_once_fit_into_an_entry_with_their_expressions() -> None:
    gone = limits.CONSUMER_GROUP_GONE_BYTES_MAX + limits.CONSUMER_GROUP_REGEXES_BYTES_MAX
    assert gone < limits.CONSUMER_GROUP_CHANGE_BYTES_MAX
    assert limits.CONSUMER_GROUP_MEMBER_BYTES_MAX <= limits.CONSUMER_GROUP_GONE_BYTES_MAX


def test_what_an_expression_matches_fits_into_an_entry_with_what_else_is_looked_up() -> None:
    assert limits.CONSUMER_GROUP_EXPRESSION_NAMES_BYTES_MAX < limits.CONSUMER_GROUP_CHANGE_BYTES_MAX
    assert limits.CONSUMER_GROUP_EXPRESSION_NAMES_BYTES_MAX < limits.CONSUMER_GROUP_NAMES_BYTES_MAX
    assert limits.CONSUMER_GROUP_NAMES_BYTES_MAX < limits.LEDGER_ENTRY_UNPACKED_BYTES_MAX


def test_a_group_can_be_told_all_that_it_committed() -> None:
    assert limits.PARTITIONS_MAX <= limits.OFFSETS_LISTED_MAX <= limits.ARRAY_LENGTH_MAX


def test_a_note_beside_an_offset_fits_into_an_entry_by_itself() -> None:
    assert limits.OFFSET_METADATA_BYTES_MAX < limits.OFFSET_METADATA_CHARS_PER_ENTRY_MAX


def test_a_tail_manifest_has_room_for_the_longest_tail_of_a_partition_and_is_looked_at_after_late_puts() -> None:
    assert limits.ARCHIVE_PASS_CHUNKS_MAX <= limits.TAIL_CHUNKS_PER_PARTITION_MAX <= limits.TAIL_CHUNKS_MAX
    assert 0 < limits.TAIL_BUSY_SHARE_MAX < 1
    assert 2 * limits.TAIL_PUT_SECONDS_MAX < limits.TAIL_CHECK_SECONDS
    assert limits.TAIL_INTERVAL_MS_DEFAULT / 1000 < limits.LEDGER_SESSION_SECONDS < limits.TAIL_CHECK_SECONDS


def test_keys_for_engines_are_made_again_long_before_they_end() -> None:
    for seconds, tries_min in (
        (limits.CATALOG_CREDENTIALS_SECONDS_MAX, 10),
        (limits.CATALOG_CREDENTIALS_SECONDS_MIN, 4),
    ):
        used = seconds * (1 - limits.CATALOG_CREDENTIALS_SPARE_SHARE)
        tries = (used - seconds / 2) / limits.CATALOG_CREDENTIALS_PAUSE_SECONDS
        assert tries > tries_min
    assert limits.CATALOG_STS_SECONDS_MAX < limits.CATALOG_CREDENTIALS_PAUSE_SECONDS
    # What AWS allows, and what it allows a role that another role takes.
    assert limits.CATALOG_CREDENTIALS_SECONDS_MIN == 900
    assert limits.CATALOG_CREDENTIALS_SECONDS_MAX <= 3_600


def test_an_agent_without_kernels_checks_less_on_the_loop_and_has_them_loaded_by_a_few_large_requests() -> None:
    assert INLINE_PLAIN_BYTES_MAX < INLINE_BYTES_MAX < INLINE_UNPACKED_BYTES_MAX
    assert INLINE_PLAIN_RECORDS_MAX < limits.PLAIN_RECORDS_MAX < limits.MESSAGE_BYTES_MAX_DEFAULT


def test_a_tables_metadata_fits_into_the_catalogs_memory() -> None:
    assert limits.HTTP_BODY_BYTES_MAX < limits.CATALOG_BODY_BYTES_MAX < limits.CATALOG_METADATA_CACHED_BYTES_MAX
    assert limits.HTTP_TOKEN_CHARS_MIN < limits.HTTP_TOKEN_CHARS_MAX


def test_a_task_of_spark_reads_more_than_it_asks_for_at_once_and_a_manifest_is_waited_for_while_it_is_written() -> None:
    assert limits.SPARK_SPLIT_BYTES_MIN < limits.SPARK_FILE_RUN_BYTES < limits.SPARK_SPLIT_BYTES_MAX
    assert limits.ROW_GROUP_BYTES_TARGET <= limits.SPARK_FILE_RUN_BYTES <= limits.READ_BYTES_MAX
    assert limits.TAIL_INTERVAL_MS_DEFAULT / 1000 < limits.SPARK_PAUSES_MAX
    assert limits.FOOTER_READ_BYTES_MIN < limits.FOOTER_READ_BYTES_MAX <= limits.READ_GAP_BYTES_MAX
    assert limits.SPARK_FILES_AHEAD_MAX * limits.READ_GAP_BYTES_MAX <= limits.SPARK_FILE_RUN_BYTES
    assert limits.SPARK_FILES_CACHED_MAX <= limits.SPARK_SPANS_CACHED_MAX


def test_an_object_that_could_not_be_deleted_is_tried_again_later_than_garbage_is_looked_for() -> None:
    assert limits.GC_CHECK_INTERVAL_S < limits.GC_RETRY_SECONDS_FIRST < limits.GC_RETRY_SECONDS_MAX
    assert limits.GC_DELETIONS_PER_STEP_MAX < limits.GC_FAILED_KEYS_MAX


def test_a_bucket_that_is_not_the_cluster_s_is_found_long_before_it_would_no_longer_be_believed() -> None:
    assert limits.BUCKET_CONFIRM_RETRY_S < limits.BUCKET_CONFIRM_INTERVAL_S
    assert 2 * limits.BUCKET_CONFIRM_INTERVAL_S <= limits.BUCKET_CONFIRMED_SECONDS_MAX


def test_relays_and_direct_connections_of_all_members_fit_into_the_connections_of_one_agent() -> None:
    assert limits.RELAY_CONNECTIONS_MAX <= limits.CONNECTIONS_MAX // 2
    assert limits.RELAYS_PER_CONNECTION_MAX < limits.RELAY_CONNECTIONS_MAX


def test_introductions_share_the_memory_of_strangers() -> None:
    assert limits.RELAY_INTRODUCTION_BYTES_MAX <= limits.UNAUTHENTICATED_BYTES_MAX


def test_a_relay_waits_for_longer_than_its_coordinator_waits_for_the_ledger() -> None:
    assert limits.RELAYED_ANSWER_SECONDS_MAX >= limits.LEDGER_WAIT_SECONDS_MAX + limits.BARRIER_SECONDS_MAX


def test_a_commit_is_made_or_lost_before_kafkas_clients_give_it_up() -> None:
    waits_s = int(str(BROKER_CONFIGS["offsets.commit.timeout.ms"].default)) / 1000
    request_timeout_s = 30.0  # request.timeout.ms of Kafka's consumers
    # It waits at the relaying agent, on the way, and at the coordinator.
    assert waits_s + limits.RELAY_UNACKNOWLEDGED_SECONDS_MAX + waits_s < request_timeout_s
    assert limits.RELAY_UNACKNOWLEDGED_SECONDS_MAX < limits.RELAYED_ANSWER_SECONDS_MAX


def test_a_relayed_answer_fits_into_the_memory_of_unread_answers() -> None:
    assert limits.RELAYED_ANSWER_BYTES_MAX <= limits.ANSWER_BYTES_UNREAD_MAX


def test_a_client_waits_for_less_than_a_session_time_out_until_an_agent_counts_as_unreachable() -> None:
    assert limits.RELAY_CONNECT_SECONDS_MAX + limits.CONNECTION_EPOCH_SECONDS_MAX < 6.0  # Kafka's shortest time-out
    assert limits.RELAY_INTRODUCTION_SECONDS_MAX >= limits.RELAY_CONNECT_SECONDS_MAX


def test_the_rank_of_a_connection_fits_into_an_int64() -> None:
    assert limits.CONNECTION_RANK_POSITION_BITS + limits.CONNECTION_RANK_INDEX_BITS <= 63
