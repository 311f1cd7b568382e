"""URLs that read one range of bytes of one object, for some minutes (AWS Signature Version 4 in the query). Pure.

The header `Range` is signed beside `host`: a request with another range, with two, or with none has another signature,
and a store that checks signatures rejects it. The secret key is not in the URL; the access key's id is.
Source: Amazon S3 API Reference, "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)".
"""

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlsplit

from storage.keys import check_key

ALGORITHM: Final = "AWS4-HMAC-SHA256"
SIGNED_HEADERS: Final = "host;range"
DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKeys:
    """The keys that sign."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def range_header(byte_first: int, byte_count: int) -> str:
    """The value of the header `Range` for `byte_count` bytes from `byte_first`, one at least."""
    return f"bytes={byte_first}-{byte_first + byte_count - 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketAddress:
    """The address of a bucket's objects."""

    url: str
    """The bucket's own URL, http[s]://HOST[:PORT][/PATH]."""
    prefix: str
    """The beginning of every key, without the `/` behind it; empty for none."""
    region: str


def signed_url(
    bucket: BucketAddress, keys: SigningKeys, key: str, byte_range: str, *, now_ms: int, seconds: int
) -> str:
    """The URL of a GET of an object with the header `Range: byte_range`, good for `seconds` from `now_ms` on.

    `byte_range`: of `range_header`. The request's `Host` has no default port.
    """
    check_key(key)
    address = urlsplit(bucket.url)
    host = address.hostname or ""
    if address.port is not None and address.port != DEFAULT_PORTS[address.scheme]:
        host = f"{host}:{address.port}"
    path = quote("/".join(filter(None, (address.path, bucket.prefix, key))), safe="/~")
    path = path if path.startswith("/") else f"/{path}"
    time = datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{time[:8]}/{bucket.region}/s3/aws4_request"
    query = {
        "X-Amz-Algorithm": ALGORITHM,
        "X-Amz-Credential": f"{keys.access_key_id}/{scope}",
        "X-Amz-Date": time,
        "X-Amz-Expires": str(seconds),
        "X-Amz-SignedHeaders": SIGNED_HEADERS,
    }
    if keys.session_token is not None:
        query["X-Amz-Security-Token"] = keys.session_token
    text = "&".join(f"{name}={quote(value, safe='~')}" for name, value in sorted(query.items()))
    request = f"GET\n{path}\n{text}\nhost:{host}\nrange:{byte_range}\n\n{SIGNED_HEADERS}\nUNSIGNED-PAYLOAD"
    to_sign = f"{ALGORITHM}\n{time}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    signing_key = f"AWS4{keys.secret_access_key}".encode()
    for part in (time[:8], bucket.region, "s3", "aws4_request"):
        signing_key = hmac.digest(signing_key, part.encode(), "sha256")
    signature = hmac.digest(signing_key, to_sign.encode(), "sha256").hex()
    return f"{address.scheme}://{host}{path}?{text}&X-Amz-Signature={signature}"
