"""Other people's tests against one agent, in part, and what is known of all of them. The whole: `make compat`.

Only kafka-python's in plain text are quick enough for every run. Those over TLS and SASL, and the parts of librdkafka's
and of Kafka's tools, are slow tests.
"""

import tomllib
from pathlib import Path

import pytest

from tests.compat.__main__ import main
from tests.compat.all_suites import SUITES
from tests.compat.kafka_java.suite import KAFKA_JAVA, KAFKA_JAVA_SECURED
from tests.compat.kafka_python.suite import KAFKA_PYTHON, KAFKA_PYTHON_SECURED, read_report
from tests.compat.librdkafka.suite import LIBRDKAFKA
from tests.compat.outcomes import Outcome, State, judge
from tests.compat.report_card import BEGIN, END, PAGE, render
from tests.compat.suites import AGENTS, KAFKA, Suite
from tests.compat.target import penstock_target
from tools import pins
from tools.steps import ROOT

QUICK_NUMBERS = "0001,0003,0005,0008,0012,0013,0017,0022,0029,0034,0036,0039,0056,0070,0073,0085,0099,0130,0140"
QUICK_CONVERSATIONS = "cli.topics,cli.round-trip,cli.groups-consumer"

PYTEST_REPORT = """\
<testsuites><testsuite name="pytest"><testcase classname="t" name="test_a" time="1.5" />
<testcase classname="t" name="test_b[x y]" time="0.5"><failure message="assert 1 == 2">trace</failure></testcase>
<testcase classname="t" name="test_c" time="0"><skipped message="too old" /></testcase>
<testcase classname="t" name="test_d" time="0"><error message="no broker">trace</error></testcase>
</testsuite></testsuites>"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("suite", "part", "only"),
    [
        pytest.param(KAFKA_PYTHON, 0, "", id="kafka-python"),
        pytest.param(KAFKA_PYTHON_SECURED, 0, "", id="kafka-python by SASL", marks=pytest.mark.slow),
        pytest.param(KAFKA_PYTHON_SECURED, 1, "", id="kafka-python by TLS", marks=pytest.mark.slow),
        # Slow: its first run builds librdkafka's tests, which takes some minutes.
        pytest.param(
            LIBRDKAFKA, 0, QUICK_NUMBERS, id="librdkafka", marks=[pytest.mark.slow, pytest.mark.timeout(1_200)]
        ),
        pytest.param(KAFKA_JAVA, 0, QUICK_CONVERSATIONS, id="Kafka's tools", marks=pytest.mark.slow),
        pytest.param(KAFKA_JAVA_SECURED, 0, "acls.deny", id="Kafka's tools by SASL_SSL", marks=pytest.mark.slow),
    ],
)
def test_other_peoples_tests_pass(suite: Suite, part: int, only: str, tmp_path: Path) -> None:
    chosen = suite.parts[part]
    with penstock_target(tmp_path / "broker", 1, chosen.settings, protocol=chosen.protocol) as target:
        verdict = judge(list(chosen.run(target, tmp_path / "run", only)), suite.known_failures(1))
    assert verdict.is_passed, "\n".join(verdict.lines())


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_every_known_failure_names_a_test_that_was_run_on_kafka(suite: Suite) -> None:
    for agents_count in AGENTS:
        assert suite.known_failures(agents_count).keys() <= suite.recorded(KAFKA).keys()


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_every_recorded_failure_is_known_and_every_known_one_was_recorded(suite: Suite) -> None:
    for agents_count, peer in AGENTS.items():
        run = {name: state for name, state in suite.recorded(peer).items() if state is not State.SKIPPED}
        failed = {name for name, state in run.items() if state is State.FAILED}
        assert failed == suite.known_failures(agents_count).keys() & run.keys()


def test_the_report_card_shows_the_recordings() -> None:
    card = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert card == render(SUITES), "write it again: python -m tests.compat --card"


def test_a_suite_that_there_is_not_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["compat", "kafka-java"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "there is no suite kafka-java, but protocol_diff," in capsys.readouterr().err


def test_a_report_of_pytest_is_read_test_by_test() -> None:
    assert list(read_report("admin", PYTEST_REPORT)) == [
        Outcome(name="admin::test_a", state=State.PASSED, seconds=1.5),
        Outcome(name="admin::test_b[x_y]", state=State.FAILED, seconds=0.5, note="assert 1 == 2"),
        Outcome(name="admin::test_c", state=State.SKIPPED, note="too old"),
        Outcome(name="admin::test_d", state=State.FAILED, note="no broker"),
    ]


def test_kafka_pythons_tests_are_those_of_the_client_that_is_installed() -> None:
    packages = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    (version,) = [package["version"] for package in packages if package["name"] == pins.KAFKA_PYTHON[0]]
    assert version == pins.KAFKA_PYTHON[1]
