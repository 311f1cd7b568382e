"""An upgrade to newer rules under load: held, taken back, made again and raised. Then nothing leads back or stops.

docs/operations/upgrade.md, by the chart's values.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kube.conftest import StartLoad
from tests.kube.release import Release
from tests.support.cluster.conditions import wait_until
from tools.kube_lab.images import PenstockImage
from tools.kube_lab.lab import Lab, LabCommandFailed

HELD, RAISED = "rulesHold=true", "rulesHold=false"


@pytest.fixture(scope="module")
def upgraded(lab: Lab) -> Iterator[Release]:
    """A release of the older version, for this module alone: no agent of that version could join it later."""
    release = Release(lab, "upgraded", "upgraded")
    lab.create_namespace(release.namespace)
    release.install()
    yield release
    release.uninstall()


def test_an_upgrade_with_held_rules_is_taken_back(
    upgraded: Release, newer_image: PenstockImage, start_load: StartLoad
) -> None:
    before = rules(upgraded)
    with start_load(upgraded) as load:
        upgraded.install("--set", f"image.tag={newer_image.version},{HELD}")
        load.wait_for_records()
        held = rules(upgraded)
        upgraded.lab.helm("rollback", upgraded.name, "--namespace", upgraded.namespace, "--wait", "--timeout=3m")
        upgraded.wait_until_ready()
    assert held["rules_version"] == before["rules_version"]
    assert held["rules_known_by_all"] == before["rules_version"] + 1
    assert held["rules_held_since_ms"] is not None
    assert versions(upgraded) == {upgraded.lab.image.version}


def test_rules_are_raised_and_then_nothing_leads_back_while_all_newer_agents_serve(
    upgraded: Release, newer_image: PenstockImage, start_load: StartLoad, note: Callable[[str], None]
) -> None:
    newer = f"image.tag={newer_image.version}"
    before = rules(upgraded)
    with start_load(upgraded) as load:
        upgraded.install("--set", f"{newer},{HELD}")
        upgraded.install("--set", f"{newer},{RAISED}")

        def are_raised() -> bool:
            return bool(rules(upgraded)["rules_version"] == before["rules_version"] + 1)

        seconds = wait_until(are_raised, "the newer rules in force", seconds_max=30)
        note(f"rules in force {seconds:.1f} s after the upgrade with {RAISED}")
        load.wait_for_records()
        names = {agent.name for agent in upgraded.agents()}
        with pytest.raises(LabCommandFailed):
            upgraded.lab.helm(
                *("upgrade", upgraded.name, "deploy/chart", "--namespace", upgraded.namespace, "--reuse-values"),
                *("--set", f"image.tag={upgraded.lab.image.version}", "--wait", "--timeout=60s"),
            )
        load.wait_for_records()
        serving = {agent.name for agent in upgraded.agents() if agent.is_ready}
        (refused,) = (agent.name for agent in upgraded.agents() if agent.name not in names)
        reason = refusal(upgraded, refused)
        upgraded.install("--set", f"{newer},{RAISED}")
    assert serving == names
    assert re.search(r"rules \d+ are in force, this program knows \d+: upgrade it", reason), reason
    assert versions(upgraded) == {newer_image.version}


def rules(release: Release) -> dict[str, Any]:
    """What `penstock agents list --json` says of the rules, and of each agent."""
    answer: dict[str, Any] = json.loads(release.in_agent("agents", "list", "--json"))
    return answer


def versions(release: Release) -> set[str]:
    return {agent["version"] for agent in rules(release)["agents"]}


def refusal(release: Release, agent: str) -> str:
    """What an agent's container that does not start has written, the one before it where this one is new."""
    try:
        return release.kubectl("logs", agent, "--previous")
    except LabCommandFailed:
        return release.kubectl("logs", agent)
