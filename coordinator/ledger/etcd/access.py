"""How etcd is reached: channels to endpoints, TLS, and what its errors mean in the ledger's words.

Rule: certificates are read whenever a channel is opened, so that renewed ones are taken up without a restart. Every
error says what to do. Texts: etcd's api/v3rpc/rpctypes/error.go (v3.6).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio

from coordinator.ledger.port import LedgerUnavailable, Trimmed

_OPTIONS = (
    ("grpc.max_receive_message_length", -1),  # a page of entries is bounded by their number and size
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),  # a channel that is closed takes its connection with it
)
_ENDPOINT_FAILED = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


class LeaseGone(LedgerUnavailable):
    """The lease has ended."""


class NotPermitted(LedgerUnavailable):
    """etcd lets this user in, but not do this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAccess:
    """Where etcd is, and how to get in: `ca` verifies it, `cert` and `key` are shown to it, `user` logs in."""

    endpoints: Sequence[str]
    """HOST:PORT each."""
    is_tls: bool = False
    ca: Path | None = None
    """PEM; None: the authorities that gRPC comes with."""
    cert: Path | None = None
    key: Path | None = None
    user: str | None = None
    password: str = field(default="", repr=False)


def open_channel(access: EtcdAccess, endpoint: str) -> grpc.aio.Channel:
    """A channel to one endpoint. Raises `LedgerUnavailable` where a certificate cannot be read."""
    if not access.is_tls:
        return grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_read(access.ca), private_key=_read(access.key), certificate_chain=_read(access.cert)
    )
    return grpc.aio.secure_channel(endpoint, credentials, options=_OPTIONS)


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise LedgerUnavailable(f"{path}, which the ledger's TLS needs, cannot be read: {error.strerror}") from error


def is_endpoint_failed(error: grpc.aio.AioRpcError) -> bool:
    """Whether another endpoint may do better."""
    return error.code() in _ENDPOINT_FAILED


def is_token_rejected(error: grpc.aio.AioRpcError) -> bool:
    """No token was sent, it ran out, or the authentication's revision has moved on: nothing was carried out."""
    details = error.details() or ""
    return any(text in details for text in ("invalid auth token", "revision of auth store is old", "name is empty"))


def is_authentication_off(error: grpc.aio.AioRpcError) -> bool:
    """Whether etcd's authentication is disabled."""
    return "authentication is not enabled" in (error.details() or "")


def ledger_error(error: grpc.aio.AioRpcError, access: EtcdAccess, endpoint: str) -> LedgerUnavailable | Trimmed:
    """The ledger's error for an error of gRPC."""
    details = error.details() or ""
    match error.code():
        case grpc.StatusCode.OUT_OF_RANGE if "compacted" in details:
            return Trimmed("etcd has compacted this position: load the snapshot again")
        case grpc.StatusCode.NOT_FOUND if "lease" in details:
            return LeaseGone(f"etcd: {details}")
        case grpc.StatusCode.RESOURCE_EXHAUSTED if "space exceeded" in details:
            # Of unknown outcome, as every failed write: etcd carries out the transaction that crosses its quota
            # (`quotaApplierV3.Txn` in its server/etcdserver/apply, v3.6).
            return LedgerUnavailable(
                "etcd is full (NOSPACE) and takes no writes: compact and defragment it, then disarm the alarm "
                '(docs/operations/etcd.md, "etcd is full")'
            )
        case grpc.StatusCode.PERMISSION_DENIED:
            return NotPermitted(_not_let_in(details, access))
        case grpc.StatusCode.UNAUTHENTICATED:
            return LedgerUnavailable(_not_let_in(details, access))
        case grpc.StatusCode.INVALID_ARGUMENT if "authentication failed" in details or "user name" in details:
            return LedgerUnavailable(_not_let_in(details, access))
        case grpc.StatusCode.UNAVAILABLE:
            return LedgerUnavailable(f"etcd at {endpoint} cannot be reached ({details}){_tls_remedy(details, access)}")
        case code:
            return LedgerUnavailable(f"etcd at {endpoint} did not answer ({code.name}: {details})")


def _not_let_in(details: str, access: EtcdAccess) -> str:
    """etcd's roles are about keys: one that may not use the cluster's is as good as none."""
    who = f"user {access.user}" if access.user else "an agent without --ledger-user"
    return (
        f"etcd does not let {who} in ({details}): check user and password (--ledger-user, --ledger-password-file), and "
        "that its role may read and write the keys below /penstock/CLUSTER/ "
        '(docs/operations/etcd.md, "etcd does not let an agent in")'
    )


def _tls_remedy(details: str, access: EtcdAccess) -> str:
    """The remedy for an error that TLS may have caused. The texts are gRPC's, it has no codes for that."""
    if not access.is_tls:
        return (
            ": if it never answered before, it may expect TLS: use etcds://, or give --ledger-ca"
            if "Socket closed" in details
            else ""
        )
    if "CERTIFICATE_VERIFY_FAILED" in details:
        return ": no authority of --ledger-ca vouches for its certificate, or it has run out"
    if "Hostname Verification" in details:
        return ": its certificate is for other host names; use one of those in --ledger"
    if "TSI_DATA_CORRUPTED" in details and access.cert is None:
        return ": it asks for a client certificate; give --ledger-cert and --ledger-key"
    if "TSI_DATA_CORRUPTED" in details:
        return f": it does not accept the certificate {access.cert}; is it of an authority that etcd trusts, and valid?"
    if "Handshake read failed" in details:
        return ": does it speak TLS at all? If not, use etcd:// without --ledger-ca and --ledger-cert"
    return ""
