"""Which keys and prefixes are accepted. What each adapter does with them: tests/contract/test_object_store.py."""

import pytest

from storage.keys import KEY_BYTES_MAX, check_key, check_prefix, is_key, printable
from storage.object_store import ObjectRejected, StoreMisconfigured


@pytest.mark.parametrize("key", ["a", "a/b", "...", "a/..b", "é" * (KEY_BYTES_MAX // 2), "with space"])
def test_keys_are_relative_paths(key: str) -> None:
    check_key(key)
    check_prefix(key + "/")


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "a/..",
        "a\0",
        "a\x1f",
        "\x7f",
        "\udc80",
        "é" * (KEY_BYTES_MAX // 2) + "x",
    ],
)
def test_anything_else_is_refused_with_the_key_in_the_message(key: str) -> None:
    with pytest.raises(ObjectRejected, match="is not a key"):
        check_key(key)
    assert not is_key(key)


@pytest.mark.parametrize(
    ("name", "shown"),
    [("lake/Grüße", "lake/Grüße"), ("a\udcff\udcfe", "a\\xff\\xfe"), ("a\n\x7fb", "a\\x0a\\x7fb")],
)
def test_a_name_that_is_no_key_can_be_shown(name: str, shown: str) -> None:
    assert printable(name) == shown
    assert printable(shown) == shown
    shown.encode()


def test_the_empty_prefix_is_the_whole_bucket() -> None:
    check_prefix("")


@pytest.mark.parametrize("prefix", ["a", "/", "a//", "../"])
def test_a_prefix_is_a_key_and_a_slash(prefix: str) -> None:
    with pytest.raises(StoreMisconfigured):
        check_prefix(prefix)
