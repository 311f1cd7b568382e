"""Maps a failed answer of S3 to its `StoreError`, with what a person should do.

Rule: pure; texts in, an error out. It holds the operation, the code and the message, never the raw XML. What can pass
by itself is `StoreUnavailable`: a server that is away, a slow one, a clock that is about to be set, a token that is
renewed. What cannot is `StoreMisconfigured`: a missing bucket, denied access, a wrong region or address, TLS that does
not hold.
Source: Amazon S3 API Reference, "Error responses"; the Debug texts of object_store and rustls.
"""

import html
import re
from dataclasses import dataclass
from enum import Enum

from storage.object_store import (
    BucketMissing,
    ObjectDamaged,
    ObjectExists,
    ObjectMissing,
    ObjectRejected,
    StoreDenied,
    StoreError,
    StoreMisconfigured,
    StoreThrottled,
    StoreTimedOut,
    StoreUnavailable,
)

TEXT_CHARS_SHOWN = 200


class S3Operation(Enum):
    """The operation that was asked for, and the permission that it takes."""

    PUT = "s3:PutObject"
    GET = "s3:GetObject"
    HEAD = "s3:GetObject on an object's head"
    LIST = "s3:ListBucket"
    DELETE = "s3:DeleteObject"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorContext:
    """Where the bucket is, as an error should name it."""

    bucket: str
    endpoint: str
    region: str
    is_session_fixed: bool = False
    """Whether the session token was given as an option or variable: it is not renewed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The answer of the server. `status` 0: nothing. `code` empty: it does not speak S3, or answered a HEAD."""

    status: int
    code: str
    message: str
    region: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" if self.code else f"{self.status} {self.message}".rstrip()


_STATUS = re.compile(r"non-2xx status code: (\d+)([^:]*): ?(.*)", re.DOTALL)
_DELETE_REJECTED = re.compile(r"DeleteObjects request failed for (key .*) \(code: (\w+)\)", re.DOTALL)
_KEY_NOT_LISTED = re.compile(
    r'Encountered object with invalid path: .*?\n\nDebug source:.*?\bpath: "((?:[^"\\]|\\.)*)"', re.DOTALL
)
"""The library's word for a key that it cannot hold, escaped: with an empty segment, `..` or a control character."""
_ELEMENT = "<{0}>([^<]*)</{0}>"
_QUOTED = re.compile(r'(?:message|error): "([^"]+)"')
_PASSING_CODES = frozenset(
    {
        "ConditionalRequestConflict",
        "IncompleteBody",
        "InternalError",
        "OperationAborted",
        "RequestTimeTooSkewed",
        "RequestTimeout",
        "SlowDown",
        "TokenRefreshRequired",
    }
)
"""Error codes that another try may well change, whatever the status."""
_DENYING_CODES = frozenset({"AccessDenied", "AllAccessDisabled"})
_CODE_OF_COLD_OBJECTS = "InvalidObjectState"
"""The code for an object in a storage class from which it has to be restored before it can be read."""
_PASSING_STATUSES = frozenset({408, 425, 429})
_RANGE_NOT_SATISFIABLE = 416
_TLS_REMEDIES = (
    ("UnknownIssuer", "no CA that this machine trusts has signed its certificate: name its CA in AWS_CA_BUNDLE"),
    ("CaUsedAsEndEntity", "its certificate is one of a CA: give the server a certificate that its CA has signed"),
    ("NotValidForName", "its certificate is for another name: use that name in AWS_ENDPOINT_URL"),
    ("Expired", "its certificate has expired, or this machine's clock is off"),
    ("NotValidYet", "its certificate is not valid yet, or this machine's clock is off"),
    ("InvalidContentType", "it does not speak TLS: write http:// in AWS_ENDPOINT_URL, with AWS_ALLOW_HTTP=true"),
    ("InvalidCertificate", "its certificate does not hold: check it, and AWS_CA_BUNDLE"),
)


def store_error(operation: S3Operation, subject: str, text: str, place: ErrorContext) -> StoreError:
    """The error for the library's `text`; `subject` is the key, the prefix or a count of keys."""
    if operation is S3Operation.LIST and (named := _KEY_NOT_LISTED.match(text)):
        return _key_not_listed(subject, named[1], place)
    message, _, debug = text.partition("\n\n")
    answer = _answer(message)
    if answer is None:
        return _unanswered(subject, message, debug, place)
    return _answered(operation, subject, answer, place)


def is_rejected_key(text: str) -> bool:
    """Whether the library's `text` is DeleteObjects' rejection of one key: it says nothing of the others."""
    return _DELETE_REJECTED.search(text.partition("\n\n")[0]) is not None


def _key_not_listed(prefix: str, key: str, place: ErrorContext) -> StoreError:
    """The library gives nothing of the page that has such a key, and has no way to ask for what is behind it."""
    below = f"below {prefix}" if prefix else "in it"
    return StoreMisconfigured(
        f'list {prefix}: bucket {place.bucket} has an object of the key "{key}", which is none of Penstock and cannot '
        f"be listed: delete it or move it elsewhere; until then nothing {below} can be listed"
    )


def _answered(operation: S3Operation, subject: str, answer: _Answer, place: ErrorContext) -> StoreError:
    """S3 answers 403 for a missing key, too, where listing is not allowed: so a 403 is never "missing"."""
    passes = _passes(answer, place)
    if answer.code == "NoSuchKey" or (operation is S3Operation.HEAD and answer.status == 404):
        return ObjectMissing(f"{subject} does not exist")
    if operation is S3Operation.PUT and answer.status in {409, 412} and not passes:
        return ObjectExists(f"{subject} exists")
    if operation is S3Operation.GET and answer.status == _RANGE_NOT_SATISFIABLE:
        return ObjectDamaged(f"{subject} ends before the bytes that were asked for: it was cut")
    remedy = _remedy(operation, answer, place)
    message = f"{operation.name.lower()} {subject}: {answer}" + (f"; {remedy}" if remedy else "")
    if answer.code in _DENYING_CODES or (not answer.code and answer.status == 403):
        return StoreDenied(message)
    if answer.code == "NoSuchBucket":
        return BucketMissing(message)
    if answer.code == _CODE_OF_COLD_OBJECTS:
        return ObjectRejected(message)
    return _passing_error(answer, message) if passes else StoreMisconfigured(message)


def _passing_error(answer: _Answer, message: str) -> StoreUnavailable:
    if answer.code == "SlowDown" or answer.status == 429:
        return StoreThrottled(message)
    return (
        StoreTimedOut(message) if answer.code == "RequestTimeout" or answer.status == 408 else StoreUnavailable(message)
    )


def _passes(answer: _Answer, place: ErrorContext) -> bool:
    if answer.code == "ExpiredToken":
        return not place.is_session_fixed
    is_passing_status = answer.status in _PASSING_STATUSES or (answer.status >= 500 and answer.status != 501)
    return answer.code in _PASSING_CODES or is_passing_status


def _remedy(operation: S3Operation, answer: _Answer, place: ErrorContext) -> str:
    match answer.code:
        case "NoSuchBucket":
            return f"make the bucket {place.bucket} at {place.endpoint}, or correct --store or AWS_ENDPOINT_URL"
        case "InvalidBucketName":
            return f"no bucket can be called {place.bucket}: correct --store"
        case code if code in _DENYING_CODES:
            also = (
                ", and s3:ListBucket, without which missing objects are denied" if operation is S3Operation.GET else ""
            )
            return f"allow these credentials {operation.value}{also}, in bucket {place.bucket}"
        case "InvalidAccessKeyId":
            return f"{place.endpoint} does not know this access key: check AWS_ACCESS_KEY_ID, or the profile"
        case "SignatureDoesNotMatch":
            return "check AWS_SECRET_ACCESS_KEY: it is not the access key's"
        case "ExpiredToken" | "InvalidToken":
            return "give a new AWS_SESSION_TOKEN, or let a profile or a role renew it" if place.is_session_fixed else ""
        case "RequestTimeTooSkewed":
            return "set this machine's clock: it differs from the store's by more than S3 allows (NTP)"
        case "AuthorizationHeaderMalformed" | "PermanentRedirect" | "IllegalLocationConstraintException":
            return _region_remedy(answer, place)
        case "":
            return _remedy_of_status(operation, answer, place)
        case code if code.startswith("KMS."):
            return "check AWS_SSE_KMS_KEY_ID, and that these credentials may use the key"
        case _:
            return _region_remedy(answer, place) if answer.status in {301, 307, 308} else ""


def _remedy_of_status(operation: S3Operation, answer: _Answer, place: ErrorContext) -> str:
    """For an answer without a code: to a HEAD, or by something else than S3."""
    match answer.status:
        case 403 if operation is S3Operation.HEAD:
            return f"allow these credentials s3:GetObject and s3:ListBucket, in bucket {place.bucket}"
        case 400 if "HTTPS" in answer.message:
            return "the server speaks TLS: write https:// in AWS_ENDPOINT_URL"
        case 301 | 307 | 308:
            return _region_remedy(answer, place)
        case status if status < 500:
            return f"is {place.endpoint} an S3 endpoint, and no proxy in between? Check AWS_ENDPOINT_URL, AWS_REGION"
        case _:
            return ""


def _region_remedy(answer: _Answer, place: ErrorContext) -> str:
    if answer.region and answer.region != place.region:
        return f"the bucket is in region {answer.region}, not {place.region}: set AWS_REGION={answer.region}"
    return f"the bucket {place.bucket} is not in region {place.region}: set AWS_REGION to its region"


def _unanswered(subject: str, message: str, debug: str, place: ErrorContext) -> StoreError:
    """No answer came: the connection failed, or the time was over."""
    remedy = next((remedy for word, remedy in _TLS_REMEDIES if word in debug), None)
    if remedy is not None:
        return StoreMisconfigured(f"{subject}: no TLS connection to {place.endpoint}: {remedy}")
    if "dns error" in debug:
        return StoreUnavailable(
            f"{subject}: the name of {place.endpoint} is not known; check AWS_ENDPOINT_URL, and DNS"
        )
    if "kind: Timeout" in debug or "TimedOut" in debug:
        return StoreTimedOut(f"{subject}: {place.endpoint} did not answer in time")
    reasons = _QUOTED.findall(debug)
    reason = reasons[-1] if reasons else _without_markup(message)
    return StoreUnavailable(f"{subject}: no connection to {place.endpoint}, or it broke: {reason}")


def _answer(text: str) -> _Answer | None:
    """The server's answer, as far as the library's words hold it; None if it said nothing."""
    if match := _STATUS.search(text):
        status, reason, body = int(match[1]), match[2].strip(), match[3]
        code = _element("Code", body)
        message = _element("Message", body) if code else _without_markup(f"{reason} {body}")
        return _Answer(status=status, code=code, message=message, region=_element("Region", body))
    if match := _DELETE_REJECTED.search(text):
        return _Answer(status=0, code=match[2], message=_without_markup(match[1]), region="")
    if "redirect without LOCATION" in text:
        return _Answer(status=301, code="", message="Moved Permanently", region="")
    return None


def _element(name: str, body: str) -> str:
    match = re.search(_ELEMENT.format(name), body)
    return html.unescape(match[1]).strip() if match else ""


def _without_markup(text: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())[:TEXT_CHARS_SHOWN]
