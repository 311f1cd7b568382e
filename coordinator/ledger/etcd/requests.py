"""Parts of etcd's transactions: comparisons and operations, as messages.

Rule: pure. Source: etcd's api/etcdserverpb/rpc.proto (v3.6).
"""

from aetcd.rpc import rpc_pb2

_Compare = rpc_pb2.Compare


def put(key: bytes, value: bytes, lease: int = 0) -> rpc_pb2.RequestOp:
    return rpc_pb2.RequestOp(request_put=rpc_pb2.PutRequest(key=key, value=value, lease=lease))


def get(key: bytes, end: bytes = b"") -> rpc_pb2.RequestOp:
    """One key, or those from `key` to before `end`."""
    return rpc_pb2.RequestOp(request_range=rpc_pb2.RangeRequest(key=key, range_end=end))


def delete(key: bytes, end: bytes = b"") -> rpc_pb2.RequestOp:
    """One key, or those from `key` to before `end`. No put of the same transaction may touch them."""
    return rpc_pb2.RequestOp(request_delete_range=rpc_pb2.DeleteRangeRequest(key=key, range_end=end))


def is_absent(key: bytes, end: bytes = b"") -> rpc_pb2.Compare:
    """Whether there is no such key, or none from `key` to before `end`."""
    return _Compare(result=_Compare.EQUAL, target=_Compare.CREATE, key=key, range_end=end, create_revision=0)


def is_created_at(key: bytes, revision: int) -> rpc_pb2.Compare:
    return _Compare(result=_Compare.EQUAL, target=_Compare.CREATE, key=key, create_revision=revision)


def is_modified_at_or_after(key: bytes, revision: int) -> rpc_pb2.Compare:
    """Whether the key was put at `revision` (from 1) or later; an absent key was not."""
    return _Compare(result=_Compare.GREATER, target=_Compare.MOD, key=key, mod_revision=revision - 1)


def is_unmodified_after(key: bytes, end: bytes, revision: int) -> rpc_pb2.Compare:
    """Whether none of the keys from `key` to before `end` was put after `revision`."""
    return _Compare(result=_Compare.LESS, target=_Compare.MOD, key=key, range_end=end, mod_revision=revision + 1)


def has_value(key: bytes, value: bytes) -> rpc_pb2.Compare:
    return _Compare(result=_Compare.EQUAL, target=_Compare.VALUE, key=key, value=value)
