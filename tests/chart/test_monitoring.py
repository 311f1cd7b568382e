"""Rules and dashboards come from files of the chart, which deploy/monitoring fills."""

import shutil
from pathlib import Path

import pytest

from deploy.monitoring.alerts import ALERTS, RUNBOOK
from tests.chart.rendering import CHART, HIGHEST, NAME, NAMESPACE, SETUPS, Manifests, conformity, render, template

RULES = """\
groups:
  - name: penstock
    rules:
      - alert: AgentsMissing
        expr: count(penstock_ready == 1) < AGENTS_MIN
        for: 5m
        annotations:
          summary: "{{ $value }} of {{ $labels.job }}: text of Prometheus, not of Helm"
"""
RULE = "monitoring.prometheusRule.enabled=true"
DASHBOARDS = "monitoring.dashboards.enabled=true"


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """A copy of the chart with rules and a dashboard of this test."""
    copy = tmp_path / "penstock"
    shutil.copytree(CHART, copy, ignore=shutil.ignore_patterns("files"))
    (copy / "files" / "dashboards").mkdir(parents=True)
    (copy / "files" / "rules.yaml").write_text(RULES)
    (copy / "files" / "dashboards" / "overview.json").write_text('{"title": "{{job}} & <more>"}\n')
    return copy


@pytest.mark.parametrize(
    ("values", "agents_min"),
    [
        (["replicas=1"], 1),
        (["replicas=3"], 2),
        (["replicas=9"], 6),
        (["autoscaling.enabled=true", "autoscaling.minReplicas=6"], 4),
        (['zones=[{"name":"a","replicas":5},{"name":"b"}]', "replicas=4"], 6),
    ],
)
def test_an_alert_knows_how_many_agents_there_should_be(chart: Path, values: list[str], agents_min: int) -> None:
    spec = render(SETUPS["minimal"], chart=chart, values=[*values, RULE]).named("PrometheusRule")["spec"]
    (rule,) = spec["groups"][0]["rules"]
    assert rule["expr"] == f"count(penstock_ready == 1) < {agents_min}"
    assert rule["annotations"]["summary"].startswith("{{ $value }} of {{ $labels.job }}")


def test_the_chart_has_penstocks_own_rules_and_dashboards() -> None:
    manifests = render(SETUPS["minimal"], values=["replicas=3", RULE, DASHBOARDS])
    rules = {rule["alert"]: rule for rule in manifests.named("PrometheusRule")["spec"]["groups"][0]["rules"]}
    assert rules["AgentsMissing"]["expr"].startswith("(sum by (job) (penstock_ready) < 2) or ")
    assert len(rules) == 25
    both = render(SETUPS["minimal"], values=["replicas=3", RULE, "monitoring.podMonitor.enabled=true"])
    own = both.named("PrometheusRule")["spec"]["groups"][0]["rules"][0]
    job = f'penstock_ready{{job="{NAMESPACE}/{NAME}"}}'
    ended = f"(sum by (job) (max_over_time({job}[70m])) unless on (job) penstock_ready) or absent_over_time({job}[1h])"
    assert own["expr"] == f"(sum by (job) ({job}) < 2) or {ended}", "other releases have other numbers of agents"
    dashboards = [found for found in manifests.all("ConfigMap") if "grafana_dashboard" in found["metadata"]["labels"]]
    assert len(dashboards) == 6


def test_the_number_of_agents_is_that_of_the_releases_own_job() -> None:
    monitored = render(SETUPS["minimal"], values=[RULE, "monitoring.podMonitor.enabled=true"])
    (rule,) = (
        rule
        for rule in monitored.named("PrometheusRule")["spec"]["groups"][0]["rules"]
        if rule["alert"] == "AgentsMissing"
    )
    monitor = monitored.named("PodMonitor")["metadata"]
    assert rule["expr"].count(f'penstock_ready{{job="{NAMESPACE}/{monitor["name"]}"}}') == 3


def test_an_alert_links_to_its_section_where_the_documents_are_published() -> None:
    def urls(*values: str) -> set[str]:
        spec = render(SETUPS["minimal"], values=[RULE, *values]).named("PrometheusRule")["spec"]
        return {rule["annotations"]["runbook_url"] for rule in spec["groups"][0]["rules"]}

    names = {alert.anchor for alert in ALERTS}
    assert urls() == {f"{RUNBOOK}#{name}" for name in names}
    page = "https://docs.example.net/penstock/alerts.md"
    assert urls(f'monitoring.prometheusRule.runbookUrl="{page}"') == {f"{page}#{name}" for name in names}


def test_a_dashboard_is_a_map_that_grafana_finds_by_its_label(chart: Path) -> None:
    found = render(SETUPS["minimal"], chart=chart, values=[DASHBOARDS]).named("ConfigMap", f"{NAME}-overview")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["data"] == {"overview.json": '{"title": "{{job}} & <more>"}\n'}


def test_prometheus_operator_knows_every_field(chart: Path, tmp_path: Path) -> None:
    done = template(SETUPS["minimal"], chart=chart, values=[RULE, DASHBOARDS, "monitoring.podMonitor.enabled=true"])
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "all.yaml").write_text(done.stdout)
    assert {"PodMonitor", "PrometheusRule"} <= {line.partition(" ")[2] for line in done.stdout.splitlines()}
    summary = conformity(folder, HIGHEST)["summary"]
    assert (summary["invalid"], summary["errors"]) == (0, 0)


@pytest.mark.parametrize(("value", "file"), [(RULE, "files/rules.yaml"), (DASHBOARDS, "files/dashboards")])
def test_a_chart_without_its_files_says_so(chart: Path, value: str, file: str) -> None:
    shutil.rmtree(chart / "files")
    done = template(SETUPS["minimal"], chart=chart, values=[value])
    assert done.returncode != 0
    assert f"this chart was packaged without its {file.partition('/')[2].partition('.')[0]} ({file})" in done.stderr


def test_nothing_of_it_is_there_unless_it_is_asked_for() -> None:
    plain: Manifests = render(SETUPS["minimal"], apis=())
    assert not plain.all("PodMonitor")
    assert not plain.all("PrometheusRule")
    assert len(plain.all("ConfigMap")) == 1
