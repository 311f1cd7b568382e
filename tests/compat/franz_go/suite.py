"""Runs franz-go's own tests against a broker: those that its Go module ships, built from the module as it is.

Rule: their variables say where the broker is (KGO_SEEDS, KGO_TEST_TLS, KGO_TEST_SCRAM); a test that skips itself for
want of one counts as skipped.
Source: github.com/twmb/franz-go, pkg/kgo/helpers_test.go.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.compat.access import SASL_PLAINTEXT, SSL
from tests.compat.outcomes import Outcome, State
from tests.compat.suites import Part, Suite
from tests.compat.target import Target
from tests.support.processes import Process, ProcessFailed
from tools.go_clients import ensure_franz_go_tests, franz_go_version

BY_TLS = (
    *("TestPing", "TestIssue1034", "TestUnknownGroupOffsetFetchPinned", "TestIssue325", "TestIssue337"),
    *("TestConsumeTopicRetrieval", "TestConsumeRegex", "TestDirectPartitionPurge", "TestIssue434", "TestIssue523"),
    *("TestAddRemovePartitions", "TestPauseIssue489", "TestIssue648", "TestIssue865", "TestGroupSimple"),
    *("TestGroupETL",),
)
"""Those that speak to a broker; `tests/compat/FINDINGS.md` has what is left out."""
BY_SCRAM = ("TestSCRAMAuth", "TestSCRAMAuthBadCredentials")
OF_GROUPS = "TestGroup,TestUnknownGroup,TestConsume,TestAddRemove,TestDirect,TestPause,TestIssue4,TestIssue5,TestIssue6"
RECORDS = 20_000
"""Written and moved on by the tests that copy records; 500,000 by default."""
SECONDS_MAX = 420.0
_RESULT = re.compile(r"^--- (PASS|FAIL|SKIP): (\S+) \(([\d.]+)s\)$", re.MULTILINE)


def run_tests(tests: Sequence[str], target: Target, folder: Path, only: str) -> Iterator[Outcome]:
    """Runs the tests whose names begin with one of the words in `only`."""
    wanted = [name for name in tests if name.startswith(tuple(only.split(",")))]
    if not wanted:
        return
    folder.mkdir(parents=True)
    names = "|".join(wanted)
    command = [str(ensure_franz_go_tests()), "-test.v", f"-test.run=^({names})$", f"-test.timeout={SECONDS_MAX:.0f}s"]
    with Process(command, folder, name="franz-go", env=_environment(target)) as process:
        try:
            process.wait_ended(seconds_max=SECONDS_MAX + 30)
        except ProcessFailed as failure:
            yield Outcome(name="franz-go", state=State.FAILED, note=str(failure))
    found = {name: (State(state), float(seconds)) for state, name, seconds in _RESULT.findall(process.stdout)}
    for name in wanted:
        state, seconds = found.get(name, (State.FAILED, 0.0))
        note = "" if name in found else f"no outcome: {process.stdout[-200:]}"
        yield Outcome(name=name, state=state, seconds=seconds, note=note)


def _environment(target: Target) -> dict[str, str]:
    access = target.access
    assert access is not None
    found = {
        "KGO_SEEDS": target.bootstrap,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(RECORDS),
        "KGO_LOG_LEVEL": "none",
    }
    if access.has_sasl:
        scram = f"{access.user}:{access.password}:{access.mechanism.rpartition('-')[2]}"
        return {**found, "KGO_TEST_SCRAM": scram, "KGO_TEST_SCRAM_SEEDS": target.bootstrap}
    return {**found, "KGO_TEST_TLS": f"ca:{access.ca},cert:{access.client.cert},key:{access.client.key}"}


FRANZ_GO = Suite(
    name="franz_go",
    title="franz-go's tests by TLS and SCRAM",
    version=franz_go_version(),
    folder=Path(__file__).parent,
    of_groups=OF_GROUPS,
    parts=(
        Part(run=partial(run_tests, BY_SCRAM), protocol=SASL_PLAINTEXT),
        Part(run=partial(run_tests, BY_TLS), protocol=SSL),
    ),
)
