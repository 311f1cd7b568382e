"""The lab that all scenarios share, Penstock in it, and the table of the longest pauses at the end."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from tests.kube.load import Load, load
from tests.kube.newer_image import write_newer_image
from tests.kube.pauses import Pause, Pauses
from tests.kube.release import Release
from tests.support.older_sources import extract
from tools.kube_lab.images import PenstockImage, ensure_previous_image, find_image, read_image
from tools.kube_lab.lab import Lab, running_lab
from tools.packaging.image import previous_commit
from tools.packaging.wheel import DIST
from tools.steps import SetupFailed


class StartLoad(Protocol):
    """Starts the clients of a load.

    `limit_s` bounds the longest pause, on a machine where nothing else runs. `restarts`: how often Kubernetes starts
    containers of agents again meanwhile.
    """

    def __call__(
        self, release: Release, limit_s: float | None = None, restarts: int = 0
    ) -> AbstractContextManager[Load]: ...


_PAUSES = pytest.StashKey[Pauses]()
_NUMBERS = pytest.StashKey[Iterator[int]]()
"""One for the topics of each load, also after one that failed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kube")
    group.addoption("--kube-image", type=Path, help="archive of the image, by default that in dist")
    group.addoption("--kube-folder", type=Path, default="penstock-kube", help="where the lab's files lie")
    group.addoption("--kube-idle", action="store_true", help="nothing else runs: fail on pauses above their limits")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_PAUSES] = Pauses()
    config.stash[_NUMBERS] = itertools.count()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash[_PAUSES].lines():
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest) -> PenstockImage:
    """The image that is tested."""
    path: Path | None = request.config.getoption("--kube-image")
    try:
        found = read_image(path) if path else find_image(DIST)
    except SetupFailed as error:
        pytest.fail(str(error), pytrace=False)
    request.config.stash[_PAUSES].notes.append(f"Penstock {found.version} of commit {found.revision[:12]}")
    return found


@pytest.fixture(scope="session")
def newer_image(image: PenstockImage, tmp_path_factory: pytest.TempPathFactory) -> PenstockImage:
    """A newer version of the image, with newer rules. Nodes have both."""
    return write_newer_image(image, tmp_path_factory.mktemp("newer") / "newer.oci.tar")


@pytest.fixture(scope="session")
def previous_image(request: pytest.FixtureRequest) -> PenstockImage:
    """The image of the release before, by the commit that `deploy/previous` names. Nodes have it, too."""
    try:
        found = ensure_previous_image()
    except SetupFailed as error:
        pytest.fail(str(error), pytrace=False)
    request.config.stash[_PAUSES].notes.append(f"The release before is that of commit {found.revision[:12]}")
    return found


@pytest.fixture(scope="session")
def previous_chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart of the release before."""
    return extract(previous_commit(), tmp_path_factory.mktemp("previous"), "deploy/chart") / "deploy" / "chart"


@pytest.fixture(scope="session")
def lab(
    request: pytest.FixtureRequest, image: PenstockImage, newer_image: PenstockImage, previous_image: PenstockImage
) -> Iterator[Lab]:
    """A cluster of three nodes. From here on this process is in its network, until the last scenario has ended."""
    try:
        with running_lab(request.config.getoption("--kube-folder"), image, [newer_image, previous_image]) as running:
            yield running
    except SetupFailed as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def kafka(lab: Lab) -> Release:
    """Three agents by the chart, which scenarios share: each leaves as many behind."""
    release = Release(lab, "kafka", "kafka")
    lab.create_namespace(release.namespace)
    release.install()
    return release


@pytest.fixture
def is_idle(request: pytest.FixtureRequest) -> bool:
    """Whether nothing else runs on this machine, so that times prove something."""
    return bool(request.config.getoption("--kube-idle"))


@pytest.fixture
def start_load(request: pytest.FixtureRequest, *, is_idle: bool) -> StartLoad:
    """Clients that write and read through a release while a block lasts. At its end their records are counted, and
    the audit of the release has to find nothing.
    """
    pauses = request.config.stash[_PAUSES]
    scenario = Path(request.path).stem.replace("_", "-")
    numbers = request.config.stash[_NUMBERS]

    @contextmanager
    def start(release: Release, limit_s: float | None = None, restarts: int = 0) -> Iterator[Load]:
        began_s, before = time.monotonic(), release.restarts()
        with load(release.bootstrap, f"{scenario}-{next(numbers)}", release.client_settings) as running:
            yield running
        row = Pause(
            scenario=request.node.name.removeprefix("test_").replace("_", " ")[:40],
            records=running.acknowledged_count,
            ack_s=running.longest_ack_s,
            transaction_s=running.longest_transaction_s,
            rebalances=running.rebalances,
            seconds=time.monotonic() - began_s,
            limit_s=limit_s,
        )
        pauses.rows.append(row)
        further = {name: count - before.get(name, 0) for name, count in release.restarts().items()}
        assert sum(further.values()) == restarts, f"containers were started again: {further}"
        release.audit()
        assert not (is_idle and row.is_too_long), f"{row.ack_s:.1f} s until a record was acknowledged"

    return start


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Adds a measured time to the table of the run."""
    return request.config.stash[_PAUSES].notes.append
