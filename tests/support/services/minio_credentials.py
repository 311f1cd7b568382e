"""Credentials of MinIO that may do less than its owner, from its STS."""

import json
from collections.abc import Sequence

from tests.support.services.local_services import Minio


def limited_keys(minio: Minio, bucket: str, actions: Sequence[str], *, undeletable: str = "") -> dict[str, str]:
    """The AWS variables of credentials that may do `actions` in the bucket and no more.

    With `undeletable` they may not delete what lies below that prefix of the bucket.
    """
    resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
    statements: list[object] = [{"Effect": "Allow", "Action": list(actions), "Resource": resources}]
    if undeletable:
        protected = f"arn:aws:s3:::{bucket}/{undeletable}*"
        statements.append({"Effect": "Deny", "Action": ["s3:DeleteObject"], "Resource": [protected]})
    return keys_of_policy(minio, json.dumps({"Version": "2012-10-17", "Statement": statements}))


def keys_of_policy(minio: Minio, policy: str) -> dict[str, str]:
    """The AWS variables of credentials that may do what a policy allows, and no more."""
    import botocore.session

    client = botocore.session.get_session().create_client(
        "sts",
        region_name="us-east-1",
        endpoint_url=minio.endpoint,
        aws_access_key_id=minio.access_key,
        aws_secret_access_key=minio.secret_key,
    )
    found = client.assume_role(
        RoleArn="arn:aws:iam::123456789012:role/any",
        RoleSessionName="test",
        DurationSeconds=3600,
        Policy=policy,
    )["Credentials"]
    return {
        "AWS_ACCESS_KEY_ID": found["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": found["SecretAccessKey"],
        "AWS_SESSION_TOKEN": found["SessionToken"],
    }
