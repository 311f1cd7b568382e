"""A client names itself as KIP-511 allows."""

import pytest

from agent.handlers.api_versions import is_client_named


@pytest.mark.parametrize("name", ["a", "apache-kafka-java", "librdkafka", "0.x", "a--b..c9"])
def test_letters_digits_dots_and_dashes_are_a_name(name: str) -> None:
    assert is_client_named(name, "4.3.1")
    assert is_client_named("client", name)


@pytest.mark.parametrize("name", ["", "-", "a-", ".a", "a b", "caf\u00e9", "a\n", "a_b"])
def test_nothing_else_is(name: str) -> None:
    assert not is_client_named(name, "1")
    assert not is_client_named("client", name)
