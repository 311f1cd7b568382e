"""Answers of the delegation token APIs while no listener authenticates: such a request is not allowed on it.

Source: org.apache.kafka.server.KafkaApis.allowTokenRequests (Kafka 4.3), KIP-48.
"""

import datetime
from collections.abc import Mapping
from typing import Any, Final

from protocol.errors import ErrorCode

NOT_ALLOWED: Final[Mapping[str, Any]] = {"error_code": ErrorCode.delegation_token_request_not_allowed}
NO_TIMESTAMP: Final = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=datetime.UTC)
"""-1 ms, which stands for none."""
