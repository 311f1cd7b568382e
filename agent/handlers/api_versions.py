"""ApiVersions: the APIs, versions and features that this broker serves.

- Versions: 0-4. From 3 on a client must name itself in the characters that KIP-511 allows. It also reads the level of
  transaction.version, which decides how it uses transactions (KIP-584, KIP-890).
- Behaviour: the response is derived from `protocol.api_versions`. A version that is not served gets a response in
  version 0: UNSUPPORTED_VERSION and the table. The response header is always version 0, so that any client can read it
  (KIP-511).
- Source: org.apache.kafka.common.requests.ApiVersionsRequest, org.apache.kafka.server.ApiVersionManager (Kafka 4.3).
"""

from collections.abc import Sequence
from functools import lru_cache

from agent.request.features import finalized_features, supported_features
from agent.request.messages import decode, encode
from agent.request.services import Request, Services
from protocol.api_versions import API_VERSIONS, range_of
from protocol.client_names import FIRST_WITH_CLIENT_NAME, is_client_named
from protocol.errors import ErrorCode
from protocol.limits import CLIENT_SAID_CHARS_MAX
from protocol.messages import write_body
from protocol.wire import INT32
from storage.object_store import Buffer

API_KEY = 18


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    served = range_of(API_KEY)
    assert served is not None
    version = request.frame.api_version
    is_served = served.version_min <= version <= served.version_max
    if is_served and version >= FIRST_WITH_CLIENT_NAME:
        body = await decode(request.frame)
        if not is_client_named(body.client_software_name, body.client_software_version):
            return encode(request.frame, {"error_code": ErrorCode.invalid_request, "api_keys": []})
        request.client.software_name = body.client_software_name[:CLIENT_SAID_CHARS_MAX]
        request.client.software_version = body.client_software_version[:CLIENT_SAID_CHARS_MAX]
    state = services.state
    body_bytes = _answer(version if is_served else None, state.features_epoch, state.transaction_version)
    return [INT32.pack(request.frame.correlation_id) + body_bytes]


@lru_cache(maxsize=8)  # one for each version, and one for those that are not served
def _answer(version: int | None, features_epoch: int, transaction_version: int) -> bytes:
    """The answer behind its header, which is always version 0; None as the version for one that is not served.

    Kept: each client that connects needs one or two, the same for all, and to write one takes 0.3 ms.
    """
    answered_version = 0 if version is None else version
    values = {
        "error_code": ErrorCode.unsupported_version if version is None else ErrorCode.none,
        "api_keys": [
            {"api_key": api.api_key, "min_version": api.version_min, "max_version": api.version_max}
            for api in API_VERSIONS
        ],
        "supported_features": supported_features(answered_version),
        "finalized_features_epoch": features_epoch,
        "finalized_features": finalized_features(transaction_version),
    }
    return write_body(API_KEY, answered_version, values)
