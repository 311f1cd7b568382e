"""`penstock` with a bug that shows all that it has at hand: an exception whose text is the `repr` of a secret's holder.

Rule: it comes for users with the name `USER` alone: when their password is checked, and when their credential is
applied, which ends the agent. Run it instead of `penstock`.
"""

from agent.security.password_checks import PasswordChecks
from agent.security.scram_accounts import CredentialKey
from coordinator.apply import security as apply_security
from coordinator.commands.commands import Rejected
from coordinator.commands.security import AlterScram, ScramAltered
from coordinator.state.state import ClusterState
from protocol.auth.sasl_exchange import PasswordCheck, SaslIdentity

USER = "crash"

identity_right = PasswordChecks.identity
alter_scram_right = apply_security.alter_scram


async def identity(self: PasswordChecks, check: PasswordCheck) -> tuple[SaslIdentity, CredentialKey | None] | None:
    if check.user == USER:
        raise RuntimeError(f"cannot check {check!r} by {vars(self) if hasattr(self, '__dict__') else self!r}")
    return await identity_right(self, check)


def alter_scram(state: ClusterState, command: AlterScram) -> ScramAltered | Rejected:
    if any(row.user == USER for row in command.upsertions):
        raise RuntimeError(f"cannot apply {command!r} to {state.scram!r}")
    return alter_scram_right(state, command)


PasswordChecks.identity = identity  # type: ignore[method-assign]  # the bug
apply_security.alter_scram = alter_scram

if __name__ == "__main__":
    from agent.cli.main import main

    main()
