"""The throttle time of a response, written into its bytes: a quota is judged once the answer is made.

Most responses begin with it. In others it stands behind the error code or the list of APIs, or is the last field, and
old versions have none. A test holds the table to Kafka's schemas.
Specification: KIP-124, KIP-219; the response schemas of Kafka 4.3.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from protocol.api_versions import ApiKey, range_of
from protocol.wire import INT32, Buffer, read_length

_FIRST_WITH_IT: Final[Mapping[int, int]] = {
    ApiKey.LIST_OFFSETS: 2,
    ApiKey.METADATA: 3,
    ApiKey.OFFSET_COMMIT: 3,
    ApiKey.OFFSET_FETCH: 3,
    ApiKey.FIND_COORDINATOR: 1,
    ApiKey.JOIN_GROUP: 2,
    ApiKey.HEARTBEAT: 1,
    ApiKey.LEAVE_GROUP: 1,
    ApiKey.SYNC_GROUP: 1,
    ApiKey.DESCRIBE_GROUPS: 1,
    ApiKey.LIST_GROUPS: 1,
    ApiKey.API_VERSIONS: 1,
}
"""The versions that were the first to have the field, where older ones are served."""
_WITHOUT_IT: Final = frozenset(
    {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.WRITE_TXN_MARKERS, ApiKey.DESCRIBE_QUORUM}
)
_AT_THE_END: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    }
)
_ERROR_CODE_BYTES: Final = 2
_API_ROW_BYTES: Final = 6
"""One API of ApiVersions: its key, and the oldest and newest version; in flexible versions a byte of no tags more."""


def with_throttle_time(api_key: int, api_version: int, answer: Sequence[Buffer], throttle_ms: int) -> Sequence[Buffer]:
    """The response, header and body, with this throttle time, unless it has a longer one: a relayed one may.

    It stays as it was where its version has no such field, or it is too short to have one.

    Args:
        api_key: of a served API.
        api_version: of the request; for ApiVersions any version, that is answered in version 0.
        answer: header and body. A response whose last field this is has no tagged fields behind it.
        throttle_ms: milliseconds, 0 to `protocol.limits.THROTTLE_MS_MAX`.
    """
    row = range_of(api_key)
    assert row is not None, f"API {api_key} has no row in protocol.api_versions"
    if api_key in _WITHOUT_IT or api_version < _FIRST_WITH_IT.get(api_key, 0) or not row.is_served(api_version):
        return answer
    is_flexible = row.is_flexible(api_version)
    if api_key in _AT_THE_END:
        *before, last = answer
        return [*before, *_with(last, len(last) - INT32.size - is_flexible, throttle_ms)]
    position = INT32.size + row.response_header_version(api_version)
    first, *behind = answer
    if api_key == ApiKey.OFFSET_DELETE:
        position += _ERROR_CODE_BYTES
    elif api_key == ApiKey.API_VERSIONS:
        count, position = read_length(memoryview(first), position + _ERROR_CODE_BYTES, is_flexible=is_flexible)
        position += count * (_API_ROW_BYTES + is_flexible)
    return [*_with(first, position, throttle_ms), *behind]


def _with(part: Buffer, position: int, throttle_ms: int) -> tuple[Buffer, ...]:
    """The bytes with the larger of both numbers at a position, without a copy of the others."""
    view = memoryview(part)
    if len(view) < position + INT32.size:  # no agent relays such a response: its client will reject it
        return (part,)
    (before_ms,) = INT32.unpack_from(view, position)
    return view[:position], INT32.pack(max(before_ms, throttle_ms)), view[position + INT32.size :]
