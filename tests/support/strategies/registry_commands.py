"""Arbitrary commands about schemas, on few subjects and texts, so that they meet each other."""

from hypothesis import strategies as st

from coordinator.commands.registry import (
    Compatibility,
    DeleteVersions,
    RegisterSchema,
    RegistryCommand,
    RegistryMode,
    SchemaContent,
    SchemaReference,
    SchemaType,
    SetCompatibility,
    SetMode,
)

subjects = st.sampled_from(["", "a", "b", "a/b"])
versions = st.one_of(st.none(), st.integers(1, 4))
contents = st.builds(
    SchemaContent,
    schema_type=st.sampled_from(SchemaType),
    text=st.sampled_from(["one", "two", "three"]),
    references=st.lists(
        st.builds(SchemaReference, name=st.just("n"), subject=st.sampled_from("ab"), version=st.integers(1, 2)),
        max_size=1,
    ).map(tuple),
)

registry_commands: st.SearchStrategy[RegistryCommand] = st.one_of(
    st.builds(
        RegisterSchema,
        subject=subjects,
        content=contents,
        checked_at=st.integers(0, 6),
        checked_as=st.sampled_from([Compatibility.NONE, Compatibility.BACKWARD]),
        schema_id=st.one_of(st.none(), st.none(), st.integers(1, 9)),
        version=st.one_of(st.none(), st.none(), st.integers(1, 4)),
    ),
    st.builds(DeleteVersions, subject=subjects, version=versions, is_permanent=st.booleans()),
    st.builds(
        SetCompatibility,
        subject=subjects,
        compatibility=st.sampled_from([None, Compatibility.NONE, Compatibility.BACKWARD]),
    ),
    st.builds(
        SetMode, subject=subjects, mode=st.one_of(st.none(), st.sampled_from(RegistryMode)), is_forced=st.booleans()
    ),
)
