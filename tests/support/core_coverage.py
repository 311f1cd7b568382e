"""Branch coverage of the core, measured inside a test run: a pytest plugin.

Only the core's own tests count (`CORE_TESTS`): the tracer is off while any other test runs, so what an integration
test happens to reach is not taken for tested. `make test` loads the plugin by `PYTEST_PLUGINS`, which also reaches the
worker processes of pytest-xdist, before they import anything of the core. The run fails where a line or a branch of
the core was not reached; which modules are the core says pyproject.toml, `[tool.coverage.run]`.
"""

import importlib
import io
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ("coordinator", "protocol", "storage", "txn")
CORE_TESTS = tuple(
    ROOT / path
    for path in (
        "tests/unit/coordinator",
        "tests/unit/protocol",
        "tests/unit/storage",
        "tests/unit/txn",
        "tests/unit/agent/recovery/test_recovery.py",
        "tests/unit/agent/recovery/test_recovery_losses.py",
        "tests/unit/agent/recovery/test_recovery_transactions.py",
        "tests/property",
    )
)
NOT_TRACED = tuple(
    ROOT / "tests/property" / name
    for name in (
        "lake/test_archive_round_trip.py",
        "lake/test_value_elision.py",
        "lake/test_typed_columns.py",
        "protocol/test_messages.py",
    )
)
"""Properties that take long under the tracer, and reach nothing of the core that others do not."""
DATA_FOLDER = "CORE_COVERAGE_DATA"
"""Environment variable: the folder that the first process of a run makes, and its workers write to. Its name is no
option of the broker (`PENSTOCK_...`), which agents that tests start would refuse."""


def is_core_test(path: Path) -> bool:
    """Whether what a test of this file reaches counts as tested."""
    return path not in NOT_TRACED and any(path.is_relative_to(tests) for tests in CORE_TESTS)


class CoreCoverage:
    """Traces the core's own tests in one process; the first process of the run also adds up and reports."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._measured = coverage.Coverage(
            data_file=str(folder / "data"), data_suffix=True, config_file=str(ROOT / "pyproject.toml")
        )
        # The first process of a run with workers runs no test, and a run of other tests reaches nothing of the core.
        self._measured.set_option("run:disable_warnings", ["no-data-collected"])
        self._is_tracing = False

    def trace(self, *, is_on: bool) -> None:
        """Switch the tracer on or off; the same again changes nothing, unless a test has switched it off by itself."""
        if is_on and self._is_tracing and sys.gettrace() is None:
            self._measured.stop()
            self._is_tracing = False
        if is_on and not self._is_tracing:
            self._measured.start()
        elif self._is_tracing and not is_on:
            self._measured.stop()
        self._is_tracing = is_on

    def save(self) -> None:
        """Write what this process reached."""
        self.trace(is_on=False)
        self._measured.save()

    def report(self, terminal: pytest.TerminalReporter) -> bool:
        """Add up all processes of the run and print what was not reached. Returns whether enough was."""
        total = coverage.Coverage(data_file=str(self._folder / "data"), config_file=str(ROOT / "pyproject.toml"))
        total.combine()
        terminal.section("coverage of the core")
        table = io.StringIO()
        reached = total.report(file=table)
        terminal.write(table.getvalue())
        needed = float(total.get_option("report:fail_under") or 0)  # type: ignore[arg-type]
        if reached < needed:
            terminal.write_line(f"{reached:.2f} % of the core is tested by its own tests, {needed:.0f} % is asked for:")
            incomplete = [row for row in table.getvalue().splitlines() if re.match(r"\S+\.py ", row)]
            terminal.write_line("\n".join(incomplete))  # again, for who sees the end of the run alone
        return reached >= needed

    def import_core(self) -> None:
        """Import every module of the core under the tracer: definitions are lines that have to be reached, too.

        After this tests alone are traced. Under the tracer a collection takes twice its time.
        """
        self.trace(is_on=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # as in tests
            for package in CORE:
                for path in sorted((ROOT / package).rglob("*.py")):
                    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                    importlib.import_module(name.removesuffix(".__init__"))
        self.trace(is_on=False)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.trace(is_on=is_core_test(item.path))
        return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        self.save()
        yield
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        if hasattr(session.config, "workerinput") or terminal is None:
            return
        if session.exitstatus == pytest.ExitCode.OK and not self.report(terminal):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        shutil.rmtree(self._folder, ignore_errors=True)


if __name__ == "__main__":  # `make coverage` asks which tests are the core's own
    print(
        *(test.relative_to(ROOT) for test in CORE_TESTS),
        *(f"--ignore={test.relative_to(ROOT)}" for test in NOT_TRACED),
    )
    raise SystemExit

if DATA_FOLDER not in os.environ:
    os.environ[DATA_FOLDER] = tempfile.mkdtemp(prefix="penstock-coverage-")
_PLUGIN = CoreCoverage(Path(os.environ[DATA_FOLDER]))
_PLUGIN.import_core()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_PLUGIN, "core-coverage")
