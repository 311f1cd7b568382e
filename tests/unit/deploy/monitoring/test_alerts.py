"""The alerts fire when they should, and say where to read on."""

import subprocess
from pathlib import Path

import yaml

from deploy.monitoring.alerts import ALERTS, RUNBOOK, rules
from deploy.monitoring.generated import FOLDER
from tests.support.documents import anchors
from tests.support.monitoring.alert_cases import CASES, promtool_tests
from tests.support.processes import provided
from tools.go_servers import promtool_program
from tools.steps import ROOT


def promtool(*words: str | Path) -> None:
    """Run promtool; fail with what it says."""
    done = subprocess.run([provided(promtool_program()), *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_twenty_five_alerts() -> None:
    assert len({alert.name for alert in ALERTS}) == 25


def test_each_rule_has_a_case_that_fires_and_one_that_does_not() -> None:
    named = {(alert.name, alert.severity) for alert in ALERTS}
    assert {(case.alert, case.severity) for case in CASES if case.labels is not None} == named
    assert {(case.alert, case.severity) for case in CASES if case.labels is None} == named


def test_alerts_fire_as_their_cases_say(tmp_path: Path) -> None:
    files: list[Path] = []
    for name in dict.fromkeys(alert.name for alert in ALERTS):
        # An alert's rules alone: all rules beside each case would take ten times as long.
        rules_file, tests_file = tmp_path / f"{name}.rules.yaml", tmp_path / f"{name}.tests.yaml"
        rules_file.write_text(yaml.safe_dump(rules(alerts=[alert for alert in ALERTS if alert.name == name])))
        tests_file.write_text(yaml.safe_dump(promtool_tests(name, str(rules_file), RUNBOOK)))
        files.append(tests_file)
    promtool("test", "rules", *files)


def test_the_committed_rules_are_valid() -> None:
    promtool("check", "rules", FOLDER / "monitoring" / "rules.yaml")


def test_the_number_of_agents_can_be_left_to_the_chart() -> None:
    text = yaml.safe_dump(rules("AGENTS_MIN"))
    assert "penstock_ready) < AGENTS_MIN" in text
    assert text.replace("AGENTS_MIN", "1") == yaml.safe_dump(rules())


def test_the_agents_that_are_counted_can_be_left_to_the_chart() -> None:
    text = yaml.safe_dump(rules(agents_job="{AGENTS_JOB}"), width=1000)
    assert text.count("{AGENTS_JOB}") == 3
    assert "AGENTS_JOB" not in yaml.safe_dump(rules())
    assert 'penstock_ready{job="a"}) < 1' in yaml.safe_dump(rules(agents_job='{job="a"}'), width=1000)


def test_each_alert_has_its_section_in_the_runbook() -> None:
    sections = anchors((ROOT / RUNBOOK).read_text())
    assert {alert.anchor for alert in ALERTS} == sections - {"alerts"}


def test_the_address_of_the_runbook_can_be_left_to_the_chart() -> None:
    text = yaml.safe_dump(rules(runbook="RUNBOOK_URL"))
    assert "runbook_url: RUNBOOK_URL#notready\n" in text
    assert text.replace("RUNBOOK_URL", RUNBOOK) == yaml.safe_dump(rules())
