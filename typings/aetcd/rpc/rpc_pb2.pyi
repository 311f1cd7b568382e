# Of etcd's messages what Penstock uses. Source: etcd's api/etcdserverpb/rpc.proto (v3.6).

from collections.abc import Sequence
from typing import ClassVar

from aetcd.rpc.auth_pb2 import Permission
from aetcd.rpc.kv_pb2 import Event, KeyValue

class ResponseHeader:
    revision: int

class RangeRequest:
    DESCEND: ClassVar[int]
    def __init__(
        self,
        *,
        key: bytes,
        range_end: bytes = ...,
        limit: int = ...,
        revision: int = ...,
        sort_order: int = ...,
        min_mod_revision: int = ...,
        max_mod_revision: int = ...,
    ) -> None: ...

class RangeResponse:
    header: ResponseHeader
    kvs: Sequence[KeyValue]
    more: bool
    def __init__(self, *, kvs: Sequence[KeyValue] = ...) -> None: ...

class PutRequest:
    key: bytes
    def __init__(self, *, key: bytes, value: bytes, lease: int = ...) -> None: ...

class PutResponse:
    header: ResponseHeader

class DeleteRangeRequest:
    key: bytes
    def __init__(self, *, key: bytes, range_end: bytes = ...) -> None: ...

class DeleteRangeResponse:
    header: ResponseHeader
    deleted: int

class RequestOp:
    request_put: PutRequest
    request_delete_range: DeleteRangeRequest
    def __init__(
        self,
        *,
        request_range: RangeRequest = ...,
        request_put: PutRequest = ...,
        request_delete_range: DeleteRangeRequest = ...,
    ) -> None: ...

class ResponseOp:
    response_range: RangeResponse
    def __init__(self, *, response_range: RangeResponse = ...) -> None: ...

class Compare:
    EQUAL: ClassVar[int]
    GREATER: ClassVar[int]
    LESS: ClassVar[int]
    CREATE: ClassVar[int]
    MOD: ClassVar[int]
    VALUE: ClassVar[int]
    key: bytes
    mod_revision: int
    def __init__(
        self,
        *,
        result: int,
        target: int,
        key: bytes,
        range_end: bytes = ...,
        create_revision: int = ...,
        mod_revision: int = ...,
        value: bytes = ...,
    ) -> None: ...

class TxnRequest:
    success: Sequence[RequestOp]
    def __init__(
        self,
        *,
        compare: Sequence[Compare] = ...,
        success: Sequence[RequestOp] = ...,
        failure: Sequence[RequestOp] = ...,
    ) -> None: ...

class TxnResponse:
    header: ResponseHeader
    succeeded: bool
    responses: Sequence[ResponseOp]

class CompactionRequest:
    def __init__(self, *, revision: int, physical: bool = ...) -> None: ...

class CompactionResponse:
    header: ResponseHeader

class LeaseGrantRequest:
    def __init__(self, *, TTL: int) -> None: ...

class LeaseGrantResponse:
    ID: int

class LeaseRevokeRequest:
    def __init__(self, *, ID: int) -> None: ...

class LeaseRevokeResponse:
    header: ResponseHeader

class LeaseKeepAliveRequest:
    def __init__(self, *, ID: int) -> None: ...

class LeaseKeepAliveResponse:
    TTL: int

class WatchCreateRequest:
    NODELETE: ClassVar[int]
    NOPUT: ClassVar[int]
    def __init__(
        self, *, key: bytes, range_end: bytes = ..., start_revision: int = ..., filters: Sequence[int] = ...
    ) -> None: ...

class WatchProgressRequest:
    def __init__(self) -> None: ...

class WatchRequest:
    def __init__(
        self, *, create_request: WatchCreateRequest = ..., progress_request: WatchProgressRequest = ...
    ) -> None: ...

class WatchResponse:
    header: ResponseHeader
    canceled: bool
    cancel_reason: str
    compact_revision: int
    events: Sequence[Event]

class StatusRequest:
    def __init__(self) -> None: ...

class StatusResponse:
    header: ResponseHeader
    version: str
    dbSize: int
    dbSizeInUse: int

class AuthenticateRequest:
    def __init__(self, *, name: str, password: str) -> None: ...

class AuthenticateResponse:
    token: str

# Of administration, for tests.

class DefragmentRequest:
    def __init__(self) -> None: ...

class AlarmMember:
    memberID: int
    alarm: int

class AlarmRequest:
    GET: ClassVar[int]
    DEACTIVATE: ClassVar[int]
    def __init__(self, *, action: int, memberID: int = ..., alarm: int = ...) -> None: ...

class AlarmResponse:
    alarms: Sequence[AlarmMember]

class AuthRoleAddRequest:
    def __init__(self, *, name: str) -> None: ...

class AuthUserAddRequest:
    def __init__(self, *, name: str, password: str) -> None: ...

class AuthRoleGrantPermissionRequest:
    def __init__(self, *, name: str, perm: Permission) -> None: ...

class AuthUserGrantRoleRequest:
    def __init__(self, *, user: str, role: str) -> None: ...

class AuthEnableRequest:
    def __init__(self) -> None: ...

class AdminResponse:
    header: ResponseHeader
