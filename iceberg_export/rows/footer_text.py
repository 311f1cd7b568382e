"""The JSON in a data file's footer with its format and the offsets that it answers for. Pure.

`iceberg_export.parquet.archive_file` writes it.
"""

import msgspec

from iceberg_export.rows.footer import FileUnreadable
from protocol.decoding import JsonDecoder, Undecodable


class FooterText(msgspec.Struct, frozen=True):
    """The fields that a reader needs. `partitions`: offsets `[first, end)` of each one, as (partition, first, end)."""

    version: int
    partitions: tuple[tuple[int, int, int], ...] = ()


_decoder = JsonDecoder(FooterText)


def read_footer_text(text: bytes | str) -> FooterText:
    """The fields of the JSON. Raises `FileUnreadable`."""
    try:
        return _decoder.decode(text)
    except Undecodable as error:
        raise FileUnreadable(f"the footer does not name the file's format ({error}): {text[:200]!r}") from error
