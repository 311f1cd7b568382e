"""Upgrades under load: from the release before to this one, and to a version with newer rules. Each is made with held
rules first, and can be taken back; once rules are raised, nothing leads back or stops.

docs/operations/kubernetes.md, Upgrade: by the chart's values. `deploy/previous` names the release before.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kube.conftest import StartLoad
from tests.kube.load import Load
from tests.kube.release import Release
from tests.support.cluster.conditions import wait_until
from tools.kube_lab.images import ETCD_IMAGE, PenstockImage
from tools.kube_lab.lab import Lab, LabCommandFailed

HELD, RAISED = "rulesHold=true", "rulesHold=false"


@pytest.fixture(scope="module")
def upgraded(lab: Lab, previous_image: PenstockImage, previous_chart: Path) -> Iterator[Release]:
    """A release of the version before, by its own chart, for this module alone: no agent of that version could join it
    later."""
    release = Release(lab, "upgraded", "upgraded")
    lab.create_namespace(release.namespace)
    values = f"image.tag={previous_image.tag},etcd.image.repository={ETCD_IMAGE.rpartition(':')[0]}"
    release.install("--set", values, chart=previous_chart)
    yield release
    release.uninstall()


def test_an_upgrade_from_the_release_before_is_taken_back(
    upgraded: Release, image: PenstockImage, previous_image: PenstockImage, start_load: StartLoad
) -> None:
    before = rules(upgraded)
    assert tags(upgraded) == {previous_image.tag}
    with start_load(upgraded) as load:
        held = upgrade_with_held_rules(upgraded, image, load)
        assert tags(upgraded) == {image.tag}
        upgraded.roll_back()
    assert held["rules_version"] == before["rules_version"]
    assert rules(upgraded)["rules_version"] == before["rules_version"]
    assert tags(upgraded) == {previous_image.tag}


def test_it_is_made_again_and_all_rules_of_this_version_come_into_force(
    upgraded: Release, image: PenstockImage, start_load: StartLoad, note: Callable[[str], None]
) -> None:
    with start_load(upgraded) as load:
        held = upgrade_with_held_rules(upgraded, image, load)
        raise_rules(upgraded, image, held["rules_known_by_all"], note)
        load.wait_for_records()
    assert tags(upgraded) == {image.tag}


def test_nothing_leads_back_from_raised_rules_and_all_newer_agents_serve(
    upgraded: Release,
    image: PenstockImage,
    newer_image: PenstockImage,
    start_load: StartLoad,
    note: Callable[[str], None],
) -> None:
    before, revision = rules(upgraded), upgraded.revision()
    with start_load(upgraded) as load:
        held = upgrade_with_held_rules(upgraded, newer_image, load)
        raise_rules(upgraded, newer_image, before["rules_version"] + 1, note)
        load.wait_for_records()
        names = {agent.name for agent in upgraded.agents()}
        with pytest.raises(LabCommandFailed):
            upgraded.roll_back(str(revision), "--timeout=60s")
        load.wait_for_records()
        serving = {agent.name for agent in upgraded.agents() if agent.is_ready}
        (refused,) = (agent for agent in upgraded.agents() if agent.name not in names)
        reason = refusal(upgraded, refused.name)
        upgraded.install("--set", f"image.tag={newer_image.tag},{RAISED}")
    assert held["rules_version"] == before["rules_version"]
    assert serving == names
    assert refused.tag == image.tag
    assert re.search(r"rules \d+ are in force, this program knows \d+: upgrade it", reason), reason
    assert tags(upgraded) == {newer_image.tag}


def upgrade_with_held_rules(release: Release, image: PenstockImage, load: Load) -> dict[str, Any]:
    """What is known of the rules while all agents are of the newer version, and none has raised them."""
    release.install("--set", f"image.tag={image.tag},{HELD}")
    load.wait_for_records()
    held = rules(release)
    assert held["rules_held_since_ms"] is not None
    assert {agent["version"] for agent in held["agents"]} == {image.version}
    return held


def raise_rules(release: Release, image: PenstockImage, rules_version: int, note: Callable[[str], None]) -> None:
    """End the hold, and wait for the rules that it kept back."""

    def are_raised() -> bool:
        now = rules(release)
        return bool(now["rules_version"] == rules_version and now["rules_held_since_ms"] is None)

    release.install("--set", f"image.tag={image.tag},{RAISED}")
    seconds = wait_until(are_raised, "the newer rules in force", seconds_max=30)
    note(f"rules {rules_version} in force {seconds:.1f} s after the upgrade with {RAISED}")


def rules(release: Release) -> dict[str, Any]:
    """What `penstock agents list --json` says of the rules, and of each agent."""
    answer: dict[str, Any] = json.loads(release.in_agent("agents", "list", "--json"))
    return answer


def tags(release: Release) -> set[str]:
    return {agent.tag for agent in release.agents()}


def refusal(release: Release, agent: str) -> str:
    """What an agent's container that does not start has written, the one before it where this one is new."""
    try:
        return release.kubectl("logs", agent, "--previous")
    except LabCommandFailed:
        return release.kubectl("logs", agent)
