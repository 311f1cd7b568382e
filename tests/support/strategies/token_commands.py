"""Arbitrary commands about delegation tokens, of few ids and users, so that they meet each other."""

from hypothesis import strategies as st

from coordinator.commands.delegation_tokens import (
    CreateDelegationToken,
    ExpireDelegationToken,
    RemoveExpiredTokens,
    RenewDelegationToken,
    TokenCommand,
)
from protocol.types import Milliseconds

token_ids = st.sampled_from(["A", "B", "C"])
users = st.sampled_from(["User:a", "User:b", "User:c"])
periods = st.integers(1, 1_000)

token_commands: st.SearchStrategy[TokenCommand] = st.one_of(
    st.builds(
        CreateDelegationToken,
        token_id=token_ids,
        owner=users,
        requester=users,
        renewers=st.lists(users, max_size=2).map(tuple),
        lifetime_ms=periods,
        renewal_ms=periods,
    ),
    st.builds(RenewDelegationToken, token_id=token_ids, renewer=users, period_ms=periods),
    st.builds(
        ExpireDelegationToken, token_id=token_ids, requester=users, period_ms=st.none() | periods.map(Milliseconds)
    ),
    st.builds(RemoveExpiredTokens, now_ms=st.integers(0, 1_500).map(Milliseconds), tokens_max=st.integers(1, 2)),
)
