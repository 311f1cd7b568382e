"""Arbitrary commands about ACLs and credentials, of few principals, names and users, so that they meet each other."""

from hypothesis import strategies as st

from coordinator.commands.security import AlterScram, BootstrapUsers, CreateAcls, DeleteAcls, ScramRow, SecurityCommand
from coordinator.security.acls import Acl, AclFilter
from protocol.auth.operations import Operation, PatternType, Permission, ResourceType
from protocol.auth.principals import EVERY_USER, Principal
from protocol.auth.scram_credentials import ScramMechanism

principals = st.sampled_from([Principal("User", "a"), Principal("User", "b"), Principal("Group", "a"), EVERY_USER])
hosts = st.sampled_from(["*", "10.0.0.1"])
names = st.sampled_from(["a", "ab", "b", "*"])
operations = st.sampled_from([Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE])
resource_types = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
patterns = st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED])
acls = st.builds(
    Acl,
    principal=principals,
    host=hosts,
    operation=operations,
    permission=st.sampled_from([Permission.ALLOW, Permission.DENY]),
    resource_type=resource_types,
    name=names,
    pattern=patterns,
)
acl_filters = st.builds(
    AclFilter,
    principal=st.none() | principals.map(str),
    host=st.none() | hosts,
    operation=st.just(Operation.ANY) | operations,
    permission=st.sampled_from(Permission),
    resource_type=st.just(ResourceType.ANY) | resource_types,
    name=st.none() | names,
    pattern=st.sampled_from(PatternType),
)
users = st.sampled_from(["a", "b", "c"])
mechanisms = st.sampled_from(ScramMechanism)
scram_rows = st.builds(
    ScramRow,
    user=users,
    mechanism=mechanisms,
    salt=st.just(b"salt"),
    stored_key=st.binary(min_size=1, max_size=2),
    server_key=st.binary(min_size=1, max_size=2),
    iterations=st.just(4096),
)
creations = st.lists(acls, max_size=4).map(CreateAcls.of)

security_commands: st.SearchStrategy[SecurityCommand] = st.one_of(
    creations,
    creations,
    acl_filters.map(DeleteAcls.of),
    st.builds(
        AlterScram,
        deletions=st.lists(st.tuples(users, mechanisms), max_size=2).map(tuple),
        upsertions=st.lists(scram_rows, max_size=2).map(tuple),
    ),
    st.builds(
        BootstrapUsers,
        credentials=st.lists(scram_rows, max_size=2).map(tuple),
        acls=creations.map(lambda command: command.rows),
    ),
)
