"""Every jar is pinned by its digest, and what the pom asks for is in the lock."""

import re

import pytest

from tools import jars


@pytest.mark.parametrize("jar_set", jars.TITLES)
def test_a_lock_holds_what_its_pom_asks_for(jar_set: str) -> None:
    _project, _, dependencies = (jars.LOCKS / f"{jar_set}.pom.xml").read_text().partition("<dependencies>")
    wanted = re.findall(
        r"<groupId>(.+?)</groupId>\s*<artifactId>(.+?)</artifactId>\s*<version>(.+?)</version>", dependencies
    )
    assert wanted
    assert set(wanted) <= {(jar.group, jar.name, jar.version) for jar in jars.artifacts(jar_set)}


@pytest.mark.parametrize("jar_set", jars.TITLES)
def test_no_two_jars_of_a_lock_have_the_same_file_name(jar_set: str) -> None:
    names = [jar.file_name for jar in jars.artifacts(jar_set)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("jar_set", jars.TITLES)
def test_every_jar_has_a_sha256(jar_set: str) -> None:
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in jars.artifacts(jar_set))


def test_a_version_may_have_jars_beside_its_own() -> None:
    streams = [jar.file_name for jar in jars.artifacts("streams") if jar.name == "kafka-streams"]
    assert streams == ["kafka-streams-4.3.1.jar", "kafka-streams-4.3.1-test.jar"]
