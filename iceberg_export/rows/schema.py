"""The columns of an archived topic, and their Iceberg field ids, which never change.

Columns are flat at the top level, because a nested metadata struct breaks predicate push-down in several engines. An id
is never reused, and a column never gets another meaning. Typed columns are added beside these, with ids from
`FIELD_ID_NEXT`, so older files need no rewrite.

Specification: architecture, "The lake"; Iceberg's table specification, "Column projection" (field ids in Parquet).
"""

from enum import IntEnum
from typing import Final


class FieldId(IntEnum):
    """Iceberg's id of each field, written to the Parquet schema."""

    PARTITION = 1
    OFFSET = 2
    TIMESTAMP = 3
    TIMESTAMP_TYPE = 4
    KEY = 5
    VALUE = 6
    HEADERS = 7
    HEADERS_ELEMENT = 8
    HEADER_KEY = 9
    HEADER_VALUE = 10


FIELD_ID_NEXT: Final = 100
"""The first id of a typed column; lower ids are reserved for columns that every topic may have."""

PARTITION: Final = "partition"
OFFSET: Final = "offset"
TIMESTAMP: Final = "timestamp"
"""Microseconds UTC, always whole milliseconds; -1 ms is a record without a timestamp, as in Kafka."""
TIMESTAMP_TYPE: Final = "timestamp_type"
"""0 = CreateTime, 1 = LogAppendTime: the values of `timestampType` in Spark's Kafka source."""
KEY: Final = "key"
VALUE: Final = "value"
HEADERS: Final = "headers"
"""A list, empty (never null) for a record without headers. Keys are text, with replacement characters for bytes that
are not UTF-8. In files of formats 1 and 2 keys are the producer's bytes, UTF-8 or not."""
HEADER_KEYS: Final = "header_keys"
"""The producer's bytes of all header keys of a record, null for a record whose keys are UTF-8. A file has the column,
after `headers`, only if some record has other keys. No table has it."""
HEADER_KEYS_FIELD_ID: Final = 13
HEADER_KEYS_ELEMENT_FIELD_ID: Final = 14
HEADER_KEY_PATH: Final = "headers.list.element.key"
"""The path of a header's key inside the Parquet file."""
HEADER_KEYS_PATH: Final = "header_keys.list.element"

ERROR: Final = "error"
"""The reason why a record is null in all typed columns. The column is before these, in tables that have any."""
ERROR_FIELD_ID: Final = 11
SCHEMA_ID: Final = "schema_id"
"""The schema that encodes a left-out value again, in files that leave values out. Null where the file has the bytes, or
the value is null. The column is after `error`, in tables that have had such files."""
SCHEMA_ID_FIELD_ID: Final = 12
KEPT_VALUE: Final = "kept_value"
"""The name of the column `value` in a file that leaves values out. A reader that selects columns by name must not take
it for all values. Readers of tables select by field id, and find the column."""

COLUMNS: Final = (PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, KEY, VALUE, HEADERS)
SORT_COLUMNS: Final = (PARTITION, OFFSET)
KAFKA_COLUMNS: Final = (*COLUMNS, HEADER_KEYS)
"""The columns of a file that Kafka's records are made of, besides the typed columns of left-out values."""
DICTIONARY_COLUMNS: Final = (PARTITION, TIMESTAMP_TYPE, KEY, HEADER_KEY_PATH, HEADER_KEYS_PATH)
DELTA_COLUMNS: Final = (OFFSET, TIMESTAMP)
STATISTICS_COLUMNS: Final = (PARTITION, OFFSET, TIMESTAMP)

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1
MICROSECONDS_PER_MILLISECOND: Final = 1000

FILE_METADATA_KEY: Final = "penstock.archive"
"""The key of the JSON in the file's footer with the topic and the offsets that the file answers for."""
FILE_FORMAT_VERSION: Final = 1
FILE_FORMAT_VERSION_LEFT_OUT: Final = 2
"""The format of files that leave values out."""
FILE_FORMAT_VERSION_HEADER_KEYS: Final = 3
"""The format of files with header keys that are not UTF-8, whether or not they leave values out."""
FILE_FORMAT_VERSION_NEWEST: Final = FILE_FORMAT_VERSION_HEADER_KEYS
"""The newest that this program reads."""
COUNTS_METADATA_KEY: Final = "penstock.column-counts"
"""Key of the JSON of `tables.column_counts.ColumnCounts` in the footer."""
CHECKSUMS_METADATA_KEY: Final = "penstock.checksums"
"""Key in the footer of a file with a block of checksums in front of the footer (`iceberg_export.rows.checksums`). Its
value is `CHECKSUMS_VERSION`."""
CHECKSUMS_VERSION: Final = "1"
PAGE_ROWS_METADATA_KEY: Final = "penstock.page-rows"
"""Key in the footer of a file whose large row groups can be read by pages: the rows of each page, as a decimal number.
Each page is a stretch of the checksums then (`iceberg_export.parquet.pages`)."""
TYPED_METADATA_KEY: Final = "penstock.typed-columns"
"""Key of the JSON of `typed.columns.TypedColumns`, in the footer of a file and the properties of a table with some."""
PLANS_METADATA_KEY: Final = "penstock.value-plans"
"""Key of the JSON of `typed.value_plans.ValuePlans` in the footer of a file that leaves values out."""
