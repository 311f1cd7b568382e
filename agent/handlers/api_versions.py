"""ApiVersions 0-4: what this broker serves.

The answer is derived from `protocol.api_versions`. A version that is not served is answered in version 0 with
UNSUPPORTED_VERSION and the table, and the response header is always version 0, so that any client can read it
(KIP-511). Features are left empty until transactions are served.
"""

from collections.abc import Sequence

from agent.handlers.entities import entity
from agent.services import Request, Services
from protocol.api_versions import API_VERSIONS, range_of
from protocol.errors import ErrorCode
from protocol.messages import write_response
from storage.object_store import Buffer

API_KEY = 18


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    served = range_of(API_KEY)
    assert served is not None
    version = request.frame.api_version
    is_served = served.version_min <= version <= served.version_max
    values = {
        "error_code": ErrorCode.none if is_served else ErrorCode.unsupported_version,
        "api_keys": [
            {"api_key": api.api_key, "min_version": api.version_min, "max_version": api.version_max}
            for api in API_VERSIONS
        ],
    }
    return write_response(request.frame, entity(API_KEY, version if is_served else 0, values))
