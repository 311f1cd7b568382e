"""The settings of the authorizer: when it is on, and who may do everything."""

import math

import pytest

from agent.config.authorizer_settings import STANDARD_AUTHORIZER, AuthorizerSettings, read_authorizer
from agent.config.option_sources import InvalidSettings
from protocol.auth.principals import read_principal


@pytest.mark.parametrize(
    ("class_name", "is_authenticating", "is_enabled"),
    [
        (None, False, False),
        (None, True, True),
        ("", True, False),
        (STANDARD_AUTHORIZER, False, True),
        (STANDARD_AUTHORIZER, True, True),
    ],
)
def test_a_listener_that_authenticates_turns_the_authorizer_on_unless_the_class_is_set(
    class_name: str | None, is_authenticating: bool, is_enabled: bool
) -> None:
    pairs = {} if class_name is None else {"authorizer.class.name": class_name}
    assert read_authorizer(pairs, is_authenticating=is_authenticating).is_enabled is is_enabled


def test_another_class_is_rejected_with_both_that_are_possible() -> None:
    with pytest.raises(InvalidSettings, match=r"AclAuthorizer: .*StandardAuthorizer, or nothing for none"):
        read_authorizer({"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}, is_authenticating=True)


def test_super_users_are_separated_by_semicolons() -> None:
    pairs = {
        "super.users": "User:alice; User:CN=a,O=b;",
        "allow.everyone.if.no.acl.found": "TRUE",
        "authorizer.stale.max.ms": "1500",
    }
    assert read_authorizer(pairs, is_authenticating=True) == AuthorizerSettings(
        is_enabled=True,
        super_users=frozenset({read_principal("User:alice"), read_principal("User:CN=a,O=b")}),
        is_allowed_without_acls=True,
        stale_max_s=1.5,
    )
    assert read_authorizer({}, is_authenticating=True).stale_max_s == math.inf


def test_a_super_user_without_a_type_is_rejected() -> None:
    with pytest.raises(InvalidSettings, match=r"super\.users: 'alice' is no principal.*semicolons"):
        read_authorizer({"super.users": "alice"}, is_authenticating=True)


def test_commas_between_super_users_are_rejected() -> None:
    """They would make one principal, which nobody is, of two that are to administer the cluster."""
    with pytest.raises(InvalidSettings, match="separate several principals by semicolons, not commas"):
        read_authorizer({"super.users": "User:alice, User:bob"}, is_authenticating=True)


@pytest.mark.parametrize("name", ["super.users", "allow.everyone.if.no.acl.found", "authorizer.stale.max.ms"])
def test_a_setting_of_an_authorizer_that_is_off_is_rejected(name: str) -> None:
    value = {"super.users": "User:a", "authorizer.stale.max.ms": "1000"}.get(name, "true")
    with pytest.raises(InvalidSettings, match=rf"{name}: the authorizer is off.*--set authorizer\.class\.name="):
        read_authorizer({name: value}, is_authenticating=False)
