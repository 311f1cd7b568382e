"""Which handler answers which API. The table is complete: a test holds it against `protocol.api_versions`."""

from collections.abc import Awaitable, Callable
from types import ModuleType

from agent.handlers import (
    api_versions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from agent.services import Answer, Request, Services

Handler = Callable[[Services, Request], Awaitable[Answer]]

_MODULES: tuple[ModuleType, ...] = (
    api_versions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)

HANDLERS: dict[int, Handler] = {module.API_KEY: module.handle for module in _MODULES}
