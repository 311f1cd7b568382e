# Of etcd's services what Penstock uses. Source: etcd's api/etcdserverpb/rpc.proto (v3.6).

import grpc.aio
from aetcd.rpc import rpc_pb2 as pb

class KVStub:
    Range: grpc.aio.UnaryUnaryMultiCallable[pb.RangeRequest, pb.RangeResponse]
    Put: grpc.aio.UnaryUnaryMultiCallable[pb.PutRequest, pb.PutResponse]
    DeleteRange: grpc.aio.UnaryUnaryMultiCallable[pb.DeleteRangeRequest, pb.DeleteRangeResponse]
    Txn: grpc.aio.UnaryUnaryMultiCallable[pb.TxnRequest, pb.TxnResponse]
    Compact: grpc.aio.UnaryUnaryMultiCallable[pb.CompactionRequest, pb.CompactionResponse]
    def __init__(self, channel: grpc.aio.Channel) -> None: ...

class LeaseStub:
    LeaseGrant: grpc.aio.UnaryUnaryMultiCallable[pb.LeaseGrantRequest, pb.LeaseGrantResponse]
    LeaseRevoke: grpc.aio.UnaryUnaryMultiCallable[pb.LeaseRevokeRequest, pb.LeaseRevokeResponse]
    LeaseKeepAlive: grpc.aio.StreamStreamMultiCallable[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]
    def __init__(self, channel: grpc.aio.Channel) -> None: ...

class WatchStub:
    Watch: grpc.aio.StreamStreamMultiCallable[pb.WatchRequest, pb.WatchResponse]
    def __init__(self, channel: grpc.aio.Channel) -> None: ...

class AuthStub:
    Authenticate: grpc.aio.UnaryUnaryMultiCallable[pb.AuthenticateRequest, pb.AuthenticateResponse]
    RoleAdd: grpc.aio.UnaryUnaryMultiCallable[pb.AuthRoleAddRequest, pb.AdminResponse]
    RoleGrantPermission: grpc.aio.UnaryUnaryMultiCallable[pb.AuthRoleGrantPermissionRequest, pb.AdminResponse]
    UserAdd: grpc.aio.UnaryUnaryMultiCallable[pb.AuthUserAddRequest, pb.AdminResponse]
    UserGrantRole: grpc.aio.UnaryUnaryMultiCallable[pb.AuthUserGrantRoleRequest, pb.AdminResponse]
    AuthEnable: grpc.aio.UnaryUnaryMultiCallable[pb.AuthEnableRequest, pb.AdminResponse]
    def __init__(self, channel: grpc.aio.Channel) -> None: ...

class MaintenanceStub:
    Alarm: grpc.aio.UnaryUnaryMultiCallable[pb.AlarmRequest, pb.AlarmResponse]
    Defragment: grpc.aio.UnaryUnaryMultiCallable[pb.DefragmentRequest, pb.AdminResponse]
    Status: grpc.aio.UnaryUnaryMultiCallable[pb.StatusRequest, pb.StatusResponse]
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
