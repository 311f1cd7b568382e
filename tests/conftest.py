"""What all tests share: services to run against, Hypothesis's profiles, and the rule that CI skips nothing.

Rule: a fixture never skips; where something is missing it fails and says which command provides it.
"""

import gc
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import durations
from tests.support.cluster.cluster import clusters
from tests.support.cluster.shared_agents import shared_broker, shared_cluster
from tests.support.services.etcd import etcd, etcd_oldest
from tests.support.services.java import compile_java, java, kafka_broker, kafka_jars, streams_jars
from tests.support.services.local_services import minio, penstock, spark, spark_jars, spark_session
from tests.support.services.postgres import postgres

__all__ = [
    "clusters",
    "compile_java",
    "etcd",
    "etcd_oldest",
    "java",
    "kafka_broker",
    "kafka_jars",
    "minio",
    "penstock",
    "postgres",
    "shared_broker",
    "shared_cluster",
    "spark",
    "spark_jars",
    "spark_session",
    "streams_jars",
]

settings.register_profile("explore", max_examples=60, deadline=None, print_blob=True)
settings.register_profile(
    "deep", max_examples=5_000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
# A whole run measures the core's coverage: the same examples each time, or the last branch would be reached by luck.
settings.register_profile("repeatable", max_examples=25, deadline=None, derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "explore"))

IS_SKIP_FORBIDDEN = os.environ.get("CI") == "true" or "PENSTOCK_NO_SKIPS" in os.environ


COSTLY = frozenset({"kafka_broker", "spark", "spark_session"})
"""Fixtures of which a run has one: of processes that run tests beside each other, one runs all that use them."""
ARCHITECTURE = Path(__file__).parent / "architecture"
"""Its tests share what one process has read of the code, so they are one group."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    """Which tests stay together where several processes share them: those that share what is dear to start.

    PySpark leaves sockets to the garbage collector; tests that use it do not answer for that.
    """
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        if "spark" in item.fixturenames:
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
        if not COSTLY.isdisjoint(item.fixturenames):
            item.add_marker(pytest.mark.xdist_group("costly"))
        elif item.path.is_relative_to(ARCHITECTURE):
            item.add_marker(pytest.mark.xdist_group("architecture"))
    yield
    durations.check_groups(config, items)
    durations.longest_first(items)  # last of all: pytest-randomly has shuffled, and pytest-xdist has named the groups


def pytest_collectstart() -> None:
    gc.disable()  # until all is collected: nothing of it goes soon


def pytest_collection_finish() -> None:
    """Let the cyclic GC pass over what collecting made: a million objects, which each collection would visit."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """At exit all is collected, or libraries complain of what they see left."""
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> durations.GroupScheduling:
    return durations.GroupScheduling(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if durations.is_recording():
        durations.record(terminalreporter.stats)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if IS_SKIP_FORBIDDEN and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = (
            f"{report.longrepr}\nA skipped test counts as a failure here (CI or PENSTOCK_NO_SKIPS is set)."
        )
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if IS_SKIP_FORBIDDEN and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{report.longrepr}\nA skipped module counts as a failure here."
    return report
