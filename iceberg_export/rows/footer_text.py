"""What a data file says of itself in its footer, as JSON: its format, and which offsets it answers for.

Rule: pure. `iceberg_export.parquet.archive_file` writes it.
"""

import msgspec

from iceberg_export.rows.footer import FileUnreadable
from protocol.decoding import JsonDecoder, Undecodable


class FooterText(msgspec.Struct, frozen=True):
    """`partitions`: offsets [first, end) of each partition, as (partition, first, end). Other fields are for people."""

    version: int
    partitions: tuple[tuple[int, int, int], ...] = ()


_decoder = JsonDecoder(FooterText)


def read_footer_text(text: bytes | str) -> FooterText:
    """The fields out of the JSON. Raises `FileUnreadable`."""
    try:
        return _decoder.decode(text)
    except Undecodable as error:
        raise FileUnreadable(
            f"the footer does not say of which format the file is ({error}): {text[:200]!r}"
        ) from error
