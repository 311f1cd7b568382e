"""Credentials for clients: they read one folder of the bucket, for a limited time, and allow nothing else.

Rule: the agent's own keys are never handed out. What is handed out are keys that STS made for a session whose policy
allows less than the agent's; so what they allow is what both say. This blocks, and is called in a thread.
Source: AWS STS API Reference, "AssumeRole"; IAM User Guide, "Session policies", "IAM policy elements: variables";
MinIO's "AssumeRole", which is asked with a user's keys and takes no notice of the role.
"""

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from protocol.limits import CATALOG_STS_SECONDS_MAX, STS_SESSION_NAME_CHARS_MAX
from protocol.types import Milliseconds
from storage.object_store import StoreError, StoreMisconfigured, StoreUnavailable
from storage.s3.settings import S3Settings

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

PLACEHOLDER_ROLE = "arn:aws:iam::000000000000:role/penstock"
"""For an STS that takes no notice of it."""
SESSION_PREFIX = "penstock-"
_NOT_IN_A_SESSION_NAME = re.compile(r"[^\w+=,.@-]", re.ASCII)
PASSING_STATUS = 500
NAMED_BY_PATTERNS = frozenset("*?$")
"""In a policy they do not stand for themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCredentials:
    """Keys that hold until `expires_ms`, by the clock of who made them."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(repr=False)
    expires_ms: Milliseconds


def read_policy(settings: S3Settings, folder: str) -> str:
    """The session policy, JSON: get what lies below `folder` (a key's beginning, with its last slash) and list it.

    Raises `StoreMisconfigured` where the folder's name cannot stand in a policy.
    """
    path = f"{settings.prefix}/{folder}" if settings.prefix else folder
    if not NAMED_BY_PATTERNS.isdisjoint(settings.bucket + path):
        raise StoreMisconfigured(f"{path!r} holds one of * ? $: no policy can name it, so clients bring their own keys")
    partition = _partition(settings.region)
    bucket = f"arn:{partition}:s3:::{settings.bucket}"
    statements: list[dict[str, object]] = [
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"{bucket}/{path}*"},
        {
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": bucket,
            "Condition": {"StringLike": {"s3:prefix": f"{path}*"}},
        },
    ]
    if settings.is_amazons:  # objects may be encrypted by a key of KMS; reading them asks S3 to use it
        via = {"kms:ViaService": f"s3.{settings.region}.amazonaws.com{'.cn' if partition == 'aws-cn' else ''}"}
        statements.append(
            {"Effect": "Allow", "Action": "kms:Decrypt", "Resource": "*", "Condition": {"StringEquals": via}}
        )
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))


def session_name(user: str) -> str:
    """The name of a session for a user: the cloud's own log then says who reads.

    Characters that STS does not accept, and what is beyond its length, are replaced by a digest of the whole name.
    """
    name = SESSION_PREFIX + _NOT_IN_A_SESSION_NAME.sub("_", user)
    if name == SESSION_PREFIX + user and len(name) <= STS_SESSION_NAME_CHARS_MAX:
        return name
    digest = hashlib.sha256(user.encode(errors="replace")).hexdigest()[:12]
    return f"{name[: STS_SESSION_NAME_CHARS_MAX - len(digest) - 1]}-{digest}"


def assume_role(
    settings: S3Settings, *, role_arn: str | None, sts_endpoint: str | None, folder: str, user: str, seconds: int
) -> SessionCredentials:
    """Keys that read `folder` for so many seconds, in a user's name. `sts_endpoint`: a URL; None is the region's own.

    Raises `StoreUnavailable` where STS is away, `StoreMisconfigured` where it rejects.
    """
    import botocore.session
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    policy = read_policy(settings, folder)
    session = botocore.session.get_session()
    try:
        client = session.create_client(
            "sts",
            region_name=settings.region,
            endpoint_url=sts_endpoint,
            aws_access_key_id=settings.access_key_id,
            aws_secret_access_key=settings.secret_access_key,
            aws_session_token=settings.session_token,
            verify=None if settings.ca_bundle is None else str(settings.ca_bundle),
            config=Config(
                connect_timeout=settings.connect_timeout_s,
                read_timeout=CATALOG_STS_SECONDS_MAX,
                retries={"total_max_attempts": 1},
            ),
        )
        try:
            credentials = client.assume_role(
                RoleArn=role_arn or PLACEHOLDER_ROLE,
                RoleSessionName=session_name(user),
                Policy=policy,
                DurationSeconds=seconds,
            )["Credentials"]
        finally:
            client.close()
    except ClientError as error:
        raise _rejection(error, sts_endpoint) from error
    except KeyError as error:
        raise StoreUnavailable(f"STS{_at(sts_endpoint)} answered without {error}") from error
    except (BotoCoreError, ValueError) as error:  # an address that is none is a ValueError there
        raise StoreUnavailable(f"STS{_at(sts_endpoint)}: {error}") from error
    return SessionCredentials(
        access_key_id=credentials["AccessKeyId"],
        secret_access_key=credentials["SecretAccessKey"],
        session_token=credentials["SessionToken"],
        expires_ms=Milliseconds(int(credentials["Expiration"].timestamp() * 1000)),
    )


def _rejection(error: "ClientError", endpoint: str | None) -> StoreError:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if status >= PASSING_STATUS:
        return StoreUnavailable(f"STS{_at(endpoint)}: {error}")
    return StoreMisconfigured(f"STS{_at(endpoint)} gave no credentials: {error}")


def _at(endpoint: str | None) -> str:
    return "" if endpoint is None else f" at {endpoint}"


def _partition(region: str) -> str:
    """Which of Amazon's clouds a region is in: it stands in every ARN."""
    match region.split("-"):
        case ["cn", *_]:
            return "aws-cn"
        case ["us", "gov", *_]:
            return "aws-us-gov"
        case _:
            return "aws"
