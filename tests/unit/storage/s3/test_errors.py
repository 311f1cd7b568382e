"""What S3 or the network said, as the client library words it, becomes an error that says what to do."""

import pytest

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
from storage.s3.errors import ErrorContext, S3Operation, is_rejected_key, store_error

PLACE = ErrorContext(bucket="lake", endpoint="https://s3.example.net", region="us-east-1")


def answered(status: int, body: str = "") -> str:
    """As the library puts an answer: its own words, a blank line, and its structures."""
    doing = "Generic S3 error: Error performing PUT http://h/b/a in 1ms"
    return f"{doing} - Server returned non-2xx status code: {status} Some Reason: {body}\n\nDebug source:\nx"


def rejection(status: int, code: str, message: str = "told", more: str = "") -> str:
    error = f"<Error><Code>{code}</Code><Message>{message}</Message>{more}</Error>"
    return answered(status, f'<?xml version="1.0"?>\n{error}')


def unanswered(debug: str) -> str:
    doing = "Generic S3 error: Error performing PUT http://h/b/a in 1ms"
    return f"{doing} - HTTP error: error sending request\n\nDebug source:\n{debug}"


def error_of(text: str, operation: S3Operation = S3Operation.PUT, place: ErrorContext = PLACE) -> StoreError:
    return store_error(operation, "a/key", text, place)


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        (404, "NoSuchBucket", BucketMissing, "make the bucket lake at https://s3.example.net"),
        (400, "InvalidBucketName", StoreMisconfigured, "correct --store"),
        (403, "AccessDenied", StoreDenied, "allow these credentials s3:PutObject, in bucket lake"),
        (403, "InvalidAccessKeyId", StoreMisconfigured, "AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", StoreMisconfigured, "AWS_SECRET_ACCESS_KEY"),
        (403, "InvalidObjectState", ObjectRejected, "told"),
        (403, "RequestTimeTooSkewed", StoreUnavailable, "set this machine's clock"),
        (400, "ExpiredToken", StoreUnavailable, "told"),
        (301, "PermanentRedirect", StoreMisconfigured, "not in region us-east-1: set AWS_REGION"),
        (400, "KMS.DisabledException", StoreMisconfigured, "AWS_SSE_KMS_KEY_ID"),
        (501, "NotImplemented", StoreMisconfigured, "told"),
        (503, "SlowDown", StoreThrottled, "SlowDown"),
        (500, "InternalError", StoreUnavailable, "InternalError"),
        (400, "RequestTimeout", StoreTimedOut, "RequestTimeout"),
        (409, "ConditionalRequestConflict", StoreUnavailable, "ConditionalRequestConflict"),
        (412, "PreconditionFailed", ObjectExists, "a/key exists"),
        (409, "FileAlreadyExists", ObjectExists, "a/key exists"),
        (404, "NoSuchKey", ObjectMissing, "a/key does not exist"),
        (302, "Found", StoreMisconfigured, "Found"),
        (308, "Elsewhere", StoreMisconfigured, "AWS_REGION"),
    ],
)
def test_each_code_has_its_kind_and_its_remedy(status: int, code: str, kind: type[StoreError], words: str) -> None:
    error = error_of(rejection(status, code))
    assert type(error) is kind
    assert words in str(error)
    assert "<" not in str(error)


def test_code_and_message_are_shown_as_text() -> None:
    error = error_of(rejection(403, "AccessDenied", "no &#39;entry&#39; &amp; more"))
    assert str(error).startswith("put a/key: AccessDenied: no 'entry' & more; ")


@pytest.mark.parametrize(
    ("operation", "permission"),
    [
        (S3Operation.PUT, "s3:PutObject"),
        (S3Operation.GET, "s3:GetObject, and s3:ListBucket"),
        (S3Operation.LIST, "s3:ListBucket"),
        (S3Operation.DELETE, "s3:DeleteObject"),
    ],
)
def test_a_denied_request_names_its_permission(operation: S3Operation, permission: str) -> None:
    assert permission in str(error_of(rejection(403, "AccessDenied"), operation))


def test_a_session_token_that_nobody_renews_is_a_matter_of_configuration() -> None:
    place = ErrorContext(bucket="lake", endpoint="https://s3.example.net", region="us-east-1", is_session_fixed=True)
    error = error_of(rejection(400, "ExpiredToken"), place=place)
    assert isinstance(error, StoreMisconfigured)
    assert "AWS_SESSION_TOKEN" in str(error)


def test_the_region_is_named_where_the_server_tells_it() -> None:
    error = error_of(rejection(400, "AuthorizationHeaderMalformed", more="<Region>eu-west-1</Region>"))
    assert isinstance(error, StoreMisconfigured)
    assert "set AWS_REGION=eu-west-1" in str(error)


def test_a_redirect_to_nowhere_is_a_wrong_region() -> None:
    text = "Generic S3 error: Received redirect without LOCATION, this normally indicates an incorrect region\n\nx"
    error = error_of(text)
    assert isinstance(error, StoreMisconfigured)
    assert "AWS_REGION" in str(error)


def test_a_key_that_could_not_be_deleted_is_told_by_its_code() -> None:
    text = "Generic S3 error: DeleteObjects request failed for key b: Access Denied. (code: AccessDenied)\n\nx"
    error = error_of(text, S3Operation.DELETE)
    assert type(error) is StoreDenied
    assert "s3:DeleteObject" in str(error)
    assert is_rejected_key(text)
    assert not is_rejected_key(answered(503))
    busy = "Generic S3 error: DeleteObjects request failed for key b: Busy (code: SlowDown)\n\nx"
    assert isinstance(error_of(busy, S3Operation.DELETE), StoreUnavailable)


def test_a_head_has_no_body_to_explain_itself() -> None:
    assert isinstance(error_of(answered(404), S3Operation.HEAD), ObjectMissing)
    denied = error_of(answered(403), S3Operation.HEAD)
    assert type(denied) is StoreDenied
    assert "s3:GetObject" in str(denied)
    assert "AWS_REGION" in str(error_of(answered(400), S3Operation.HEAD))


def test_a_range_behind_the_end_of_an_object_is_damage_and_no_outage() -> None:
    error = error_of(rejection(416, "InvalidRange"), S3Operation.GET)
    assert type(error) is ObjectDamaged
    assert str(error).startswith("a/key ends before")


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (404, "<html><body>nginx</body></html>", StoreMisconfigured, "an S3 endpoint"),
        (400, "Client sent an HTTP request to an HTTPS server.", StoreMisconfigured, "write https://"),
        (301, "", StoreMisconfigured, "AWS_REGION"),
        (502, "<html>Bad Gateway</html>", StoreUnavailable, "Bad Gateway"),
        (429, "", StoreThrottled, "429"),
        (408, "", StoreTimedOut, "408"),
    ],
)
def test_what_is_not_s3_is_never_taken_for_it(status: int, body: str, kind: type[StoreError], words: str) -> None:
    """Above all a 404: "the object is missing" would be a lie."""
    error = error_of(answered(status, body), S3Operation.GET)
    assert type(error) is kind
    assert words in str(error)
    assert "<" not in str(error)


@pytest.mark.parametrize(
    ("debug", "kind", "words"),
    [
        ('ConnectError("tcp connect error", Os { message: "Connection refused" })', StoreUnavailable, "refused"),
        ('ConnectError("dns error", Custom { error: "failed to lookup" })', StoreUnavailable, "name of https://s3"),
        ("HttpError { kind: Timeout, source: TimedOut }", StoreTimedOut, "did not answer in time"),
        ("InvalidCertificate(UnknownIssuer)", StoreMisconfigured, "AWS_CA_BUNDLE"),
        ("InvalidCertificate(NotValidForName)", StoreMisconfigured, "another name"),
        ("InvalidCertificate(Expired)", StoreMisconfigured, "expired"),
        ("InvalidCertificate(Revoked)", StoreMisconfigured, "does not hold"),
        ("InvalidMessage(InvalidContentType)", StoreMisconfigured, "does not speak TLS"),
        ("IncompleteMessage", StoreUnavailable, "error sending request"),
    ],
)
def test_no_answer_says_what_kept_it(debug: str, kind: type[StoreError], words: str) -> None:
    error = error_of(unanswered(debug))
    assert type(error) is kind
    assert words in str(error)
