"""Clients on another machine, through two ports of `kubectl port-forward`: one of all agents, and one of HTTP."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.kube.conftest import StartLoad
from tests.kube.release import Release
from tests.support.cluster.conditions import wait_until
from tests.support.processes import is_listening, provided
from tests.support.walk import Walk, page, quickstart
from tools import jars, java_runtime
from tools.kube_lab.lab import Lab, environment
from tools.kubernetes.helm import kubectl_program

KAFKA_PORT, HTTP_PORT = 9094, 9644
KAFKA_ADDRESS, HTTP_ADDRESS = f"127.0.0.1:{KAFKA_PORT}", f"127.0.0.1:{HTTP_PORT}"
TOPIC_OF_BOTH_PAGES = "greetings"


@pytest.fixture(scope="module")
def forwarded_release(lab: Lab) -> Iterator[Release]:
    """A release of its own: the pages show all the transactional ids that there are. Both its ports are forwarded."""
    values = f"external.enabled=true,external.type=ClusterIP,external.host=127.0.0.1,external.port={KAFKA_PORT}"
    release = Release(lab, "port-forward", "port-forward", ("--set", values), address=KAFKA_ADDRESS)
    lab.create_namespace(release.namespace)
    release.install()
    with (
        forwarded(release, f"{release.full_name}-external", KAFKA_PORT),
        forwarded(release, release.full_name, HTTP_PORT),
    ):
        yield release
    release.uninstall()


@contextmanager
def forwarded(release: Release, service: str, port: int) -> Iterator[None]:
    """`kubectl port-forward` of a Service's port, which has to last while a block does."""
    command = [*release.lab.programs.cgroups.joining(), str(kubectl_program()), "port-forward"]
    command += ["--namespace", release.namespace, f"service/{service}", str(port)]
    with subprocess.Popen(command, env=environment(release.lab.folder), stdout=subprocess.DEVNULL) as forwarding:
        try:
            wait_until(lambda: is_listening(port), "the forwarded port")
            yield
            assert forwarding.poll() is None
        finally:
            forwarding.terminate()


def test_the_readme_and_the_quickstart_can_be_followed(forwarded_release: Release, tmp_path: Path) -> None:
    """All but their parts about Spark and a broker's end. The folder has no broker, and its agents are elsewhere."""
    checkout, home, programs = (tmp_path / name for name in ("penstock", "home", "bin"))
    for folder in (checkout, home, programs):
        folder.mkdir()
    with ExitStack() as stack:
        walk = Walk(
            folder=checkout,
            stack=stack,
            env={"HOME": str(home), "PENSTOCK_BOOTSTRAP": KAFKA_ADDRESS},
            kafka=KAFKA_ADDRESS,
            http=HTTP_ADDRESS,
            runs_elsewhere=True,
        )
        walk.prepare()
        java, kafka_jars = provided(java_runtime.java_home()) / "bin" / "java", provided(jars.jar_folder("kafka"))
        walk.provide_tools(java, kafka_jars, programs)
        walk.follow(page("README.md"))
        admin = AdminClient({"bootstrap.servers": KAFKA_ADDRESS, "log_level": 0})
        admin.delete_topics([TOPIC_OF_BOTH_PAGES])[TOPIC_OF_BOTH_PAGES].result(30)
        walk.follow(quickstart(is_spark=False))
    forwarded_release.audit()


def test_groups_form(forwarded_release: Release, start_load: StartLoad) -> None:
    with start_load(forwarded_release) as load:
        load.wait_for_records(500)
        assert forwarded_release.broker_addresses() == {KAFKA_ADDRESS}, "clients know other ways"
