"""Users of an etcd under test: made by its administrator, after which etcd asks everybody for a password."""

import grpc
import grpc.aio
from aetcd.rpc import auth_pb2, rpc_pb2, rpc_pb2_grpc

ROOT_PASSWORD = "root-secret"


async def require_password(channel: grpc.aio.Channel, *, users: dict[str, tuple[str, bytes]] | None = None) -> None:
    """Turn authentication on. `users`: by name their password and the prefix of the keys that they may use."""
    auth = rpc_pb2_grpc.AuthStub(channel)
    await auth.RoleAdd(rpc_pb2.AuthRoleAddRequest(name="root"))
    await auth.UserAdd(rpc_pb2.AuthUserAddRequest(name="root", password=ROOT_PASSWORD))
    await auth.UserGrantRole(rpc_pb2.AuthUserGrantRoleRequest(user="root", role="root"))
    for name, (password, prefix) in (users or {}).items():
        await auth.RoleAdd(rpc_pb2.AuthRoleAddRequest(name=name))
        await auth.RoleGrantPermission(_grant(name, prefix))
        await auth.UserAdd(rpc_pb2.AuthUserAddRequest(name=name, password=password))
        await auth.UserGrantRole(rpc_pb2.AuthUserGrantRoleRequest(user=name, role=name))
    await auth.AuthEnable(rpc_pb2.AuthEnableRequest())


async def permit(channel: grpc.aio.Channel, *, role: str, prefix: bytes) -> None:
    """Let a role use more keys, in an etcd that asks for passwords already."""
    auth = rpc_pb2_grpc.AuthStub(channel)
    login = await auth.Authenticate(rpc_pb2.AuthenticateRequest(name="root", password=ROOT_PASSWORD))
    await auth.RoleGrantPermission(_grant(role, prefix), metadata=(("token", login.token),))


def _grant(role: str, prefix: bytes) -> rpc_pb2.AuthRoleGrantPermissionRequest:
    end = prefix[:-1] + bytes([prefix[-1] + 1])
    permission = auth_pb2.Permission(permType=auth_pb2.Permission.READWRITE, key=prefix, range_end=end)
    return rpc_pb2.AuthRoleGrantPermissionRequest(name=role, perm=permission)
