"""Which keys and prefixes the bucket accepts, the same in every adapter.

Rule: a key that one adapter takes and another rejects, or that leaves the bucket's root on a disk, is rejected by all.
"""

import re

from storage.object_store import ObjectRejected, StoreMisconfigured

KEY_BYTES_MAX = 1024
"""Amazon S3's limit ("Naming Amazon S3 objects")."""
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
_SEGMENTS_REJECTED = frozenset({"", ".", ".."})


def check_key(key: str) -> None:
    """Pass if `key` is relative, `/`-separated, UTF-8 and stays below the root. Raises `ObjectRejected`."""
    if not is_key(key):
        raise ObjectRejected(
            f"{key!r} is not a key: it must be relative, without empty, '.' or '..' segments and control characters, "
            f"and at most {KEY_BYTES_MAX} bytes of UTF-8"
        )


def is_key(name: str) -> bool:
    """Whether `check_key` passes: what else is found in a bucket can be named, and neither read nor deleted."""
    return _SEGMENTS_REJECTED.isdisjoint(name.split("/")) and _is_utf8_within_limit(name)


def printable(name: str) -> str:
    """A name that may be no key, for logs and reports: bytes that are no UTF-8, and control characters, escaped."""
    text = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return _CONTROL_CHARACTER.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def check_prefix(prefix: str) -> None:
    """Pass if `prefix` is empty or a key followed by `/`. Raises `StoreMisconfigured`."""
    if not prefix:
        return
    if not prefix.endswith("/"):
        raise StoreMisconfigured(f"{prefix!r} is not a prefix: it must be empty or end with '/'")
    check_key(prefix[:-1])


def _is_utf8_within_limit(key: str) -> bool:
    if _CONTROL_CHARACTER.search(key):
        return False
    try:
        return len(key.encode()) <= KEY_BYTES_MAX
    except UnicodeEncodeError:
        return False
