"""Which tests librdkafka's test-runner has, and which of them `tests.txt` asks for.

Rule: nothing here runs anything.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

PLAN = Path(__file__).with_name("tests.txt")


class Scenario(Enum):
    """Under which circumstances a test runs."""

    DEFAULT = "default"
    NO_AUTO_CREATE = "noautocreate"
    SOCKETS = "sockem"
    PATIENT = "patient"
    """The test-runner knows no such scenario: it is the default one, on a broker that lets new groups wait."""
    TLS = "tls"
    """Nor this one: the tests about TLS, by a listener that requires a certificate."""
    SASL = "sasl"
    """The tests about SASL, by a listener of protocol SASL_SSL whose sessions end."""
    OIDC = "oidc"
    """The tests about OAUTHBEARER, whose clients ask an issuer for tokens."""
    CLIENT = "client"
    """The tests about TLS and SASL that speak to no broker."""


OWN_SCENARIOS = (Scenario.DEFAULT, Scenario.NO_AUTO_CREATE, Scenario.SOCKETS)
"""Those that the test-runner's table knows."""


@dataclass(frozen=True, slots=True, order=True)
class Planned:
    """A number of `tests.txt`: the test-runner picks tests by number, and several may share one."""

    number: str
    is_quick: bool
    part: str = ""
    """A part of the names of the parts to run; all of them where it is empty."""

    def named(self, test: str) -> str:
        """The name that a test's outcome gets."""
        return f"{test}:{self.part.removeprefix('do_test_').rstrip(':').replace(' ', '_')}" if self.part else test


def planned(scenario: Scenario) -> Iterator[Planned]:
    """What `tests.txt` asks for in a scenario, in its order."""
    for line in PLAN.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        number, length, name, *part = line.split(maxsplit=3)
        if Scenario(name) is scenario:
            yield Planned(number, {"quick": True, "full": False}[length], *part)


def scenario_tests(source: str, scenario: Scenario) -> list[str]:
    """Names of the tests of a scenario, out of the test-runner's own table (test.c)."""
    table = source[source.index("struct test tests[] = {") :]
    rows = re.findall(r"_TEST\((\d{4}\w+)\s*,(.*?)\),?\n\s*(?=_TEST|#|/\*|\{NULL)", table, re.DOTALL)
    return [
        name
        for name, flags in rows
        if ("TEST_F_LOCAL" in flags) is (scenario is Scenario.CLIENT)
        and "TEST_F_MANUAL" not in flags
        and _scenario(flags) is (scenario if scenario in OWN_SCENARIOS else Scenario.DEFAULT)
    ]


def _scenario(flags: str) -> Scenario:
    if "noautocreate" in flags:
        return Scenario.NO_AUTO_CREATE
    return Scenario.SOCKETS if "SOCKEM" in flags else Scenario.DEFAULT
