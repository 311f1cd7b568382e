"""An agent does not start where no principal could ever give a right."""

from dataclasses import replace

import pytest

from agent.config.authorizer_settings import AuthorizerSettings
from agent.config.option_sources import InvalidSettings
from agent.security.authorizer import check_administrator
from coordinator.security.acls import EVERY_HOST, Acl
from protocol.auth.operations import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from protocol.auth.principals import ANONYMOUS

ON = AuthorizerSettings(is_enabled=True)
MAY_ALTER = Acl(
    principal=ANONYMOUS,
    host=EVERY_HOST,
    operation=Operation.ALTER,
    permission=Permission.ALLOW,
    resource_type=ResourceType.CLUSTER,
    name=CLUSTER_NAME,
    pattern=PatternType.LITERAL,
)


@pytest.mark.parametrize(
    "acl",
    [
        replace(MAY_ALTER, operation=Operation.DESCRIBE),
        replace(MAY_ALTER, permission=Permission.DENY),
        replace(MAY_ALTER, resource_type=ResourceType.TOPIC, name="*"),
    ],
    ids=["another operation", "a denial", "another resource"],
)
def test_without_an_administrator_it_says_how_to_name_one(acl: Acl) -> None:
    with pytest.raises(InvalidSettings, match=r"--set super\.users=User:NAME.*User:ANONYMOUS"):
        check_administrator(ON, [acl])


@pytest.mark.parametrize(
    ("settings", "acls"),
    [
        (AuthorizerSettings(), []),
        (replace(ON, super_users=frozenset({ANONYMOUS})), []),
        (replace(ON, is_allowed_without_acls=True), []),
        (ON, [replace(MAY_ALTER, operation=Operation.READ), MAY_ALTER]),
        (ON, [replace(MAY_ALTER, operation=Operation.ALL)]),
    ],
    ids=["no authorizer", "a super user", "everybody without ACLs", "ALTER on the cluster", "ALL on the cluster"],
)
def test_an_administrator_is_a_super_user_or_one_by_an_acl(settings: AuthorizerSettings, acls: list[Acl]) -> None:
    check_administrator(settings, acls)
