"""Every supported set-up renders into manifests that Kubernetes accepts, and that agents can run with."""

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.chart import expectations
from tests.chart.rendering import (
    APIS,
    CHART,
    HIGHEST,
    LOWEST,
    NAME,
    SETUPS,
    Manifests,
    agent_container,
    conformity,
    helm,
    parse,
    render,
    setup,
    setup_text,
    template,
)
from tools.kube_lab.images import ETCD_IMAGE

VERSIONS = (LOWEST, HIGHEST)
ODD_NAMES = Path(__file__).with_name("odd_names.yaml")
NAMING = {
    *("name", "secretName", "serviceName", "serviceAccountName", "priorityClassName", "storageClassName"),
    *("commonName", "key", "path", "labels", "matchLabels", "nodeSelector", "storage"),
}
"""Fields of manifests, and maps of such, whose values are texts."""


def test_helm_finds_nothing_to_say_about_any_setup() -> None:
    options = ("--strict", "--quiet", "--kube-version", f"{HIGHEST}.0")
    with ThreadPoolExecutor(2) as threads:
        answers = threads.map(lambda path: helm("lint", *options, "--values", str(path), str(CHART)), SETUPS.values())
    for name, done in zip(SETUPS, answers, strict=True):
        is_api_missing = "this cluster has no" in done.stdout  # helm lint cannot be told of APIs
        assert done.returncode == 0 or is_api_missing, f"{name}: {done.stdout}{done.stderr}"


@pytest.mark.parametrize("kubernetes", VERSIONS)
def test_kubernetes_knows_every_field_of_every_setup(tmp_path: Path, kubernetes: str) -> None:
    for name in SETUPS:
        (tmp_path / f"{name}.yaml").write_text(setup_text(name, kubernetes), encoding="utf-8")
    report = conformity(tmp_path, kubernetes)
    assert report["summary"] == {
        "valid": sum(len(setup(name, kubernetes).objects) for name in SETUPS),
        "invalid": 0,
        "errors": 0,
        "skipped": 0,
    }, report["resources"]


def test_a_field_that_kubernetes_does_not_know_is_found(tmp_path: Path) -> None:
    text = setup_text("minimal", HIGHEST).replace("minReadySeconds", "minReadySecond")
    (tmp_path / "misspelt.yaml").write_text(text, encoding="utf-8")
    report = conformity(tmp_path, HIGHEST)
    (problem,) = report["resources"]
    assert "minReadySecond" in problem["msg"]


@pytest.mark.parametrize("name", SETUPS)
@pytest.mark.parametrize("expectation", expectations.ALL, ids=lambda each: each.__name__)
def test_a_setup_is_as_expected(name: str, expectation: Callable[[Manifests], None]) -> None:
    expectation(setup(name))


def test_values_render_into_the_same_text_each_time() -> None:
    assert template(SETUPS["production"]).stdout == setup_text("production", HIGHEST)


def test_traffic_prefers_the_zone_by_the_word_that_the_version_knows() -> None:
    words = [setup("minimal", version).named("Service")["spec"]["trafficDistribution"] for version in VERSIONS]
    assert words == ["PreferClose", "PreferSameZone"]


def test_an_older_kubernetes_is_rejected() -> None:
    done = template(SETUPS["minimal"], kubernetes="1.30")
    assert done.returncode != 0
    assert "chart requires kubeVersion: >=1.31.0-0" in done.stderr


def test_a_changed_option_replaces_the_pods_and_a_changed_label_of_the_service_does_not() -> None:
    def checksum(*values: str) -> str:
        (deployment,) = render(SETUPS["minimal"], values=values).agents()
        return str(deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    assert checksum() == checksum('service.annotations={"a":"b"}')
    assert checksum() != checksum("settings.flush-interval-ms=100")
    assert checksum() != checksum('kafka={"num.partitions":3}')


def test_a_user_of_openshift_is_the_namespaces() -> None:
    for name, pod in setup("openshift").pods():
        assert "runAsUser" not in pod["securityContext"], name
        assert "fsGroup" not in pod["securityContext"], name


def test_agents_have_the_keys_of_the_bucket_by_a_secret_or_an_identity() -> None:
    (with_keys,) = setup("minimal").agents()
    assert agent_container(with_keys)["envFrom"] == [{"secretRef": {"name": "bucket-keys"}}]
    (with_role,) = setup("irsa").agents()
    assert "envFrom" not in agent_container(with_role)
    role = setup("irsa").named("ServiceAccount")["metadata"]["annotations"]
    assert role == {"eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/penstock"}


def test_zones_have_their_own_numbers_of_agents() -> None:
    counts = {each["metadata"]["name"]: each["spec"]["replicas"] for each in setup("zones").agents()}
    assert counts == {f"{NAME}-eu-west-1a": 3, f"{NAME}-eu-west-1b": 2, f"{NAME}-eu-west-1c": 2}


def test_names_of_zones_become_names_of_objects_and_are_short_enough_for_a_service() -> None:
    zones = '[{"name":"US-ASHBURN-AD_1","externalHost":"a"},{"name":"northamerica-northeast1-a","externalHost":"b"}]'
    name = "a-release-of-records-with-a-long-name-40"
    manifests = render(
        SETUPS["minimal"], values=[f"zones={zones}", 'external={"enabled":true}', f'fullnameOverride="{name}"']
    )
    names = [each["metadata"]["name"] for each in manifests.objects]
    assert f"{name}-us-ashburn-ad-1" in names
    services = [each["metadata"]["name"] for each in manifests.all("Service")]
    assert len(set(services)) == 4
    assert all(re.fullmatch("[a-z][a-z0-9-]{0,62}", each) for each in services), services
    assert [each["spec"]["template"]["spec"]["nodeSelector"] for each in manifests.agents()] == [
        {"topology.kubernetes.io/zone": "US-ASHBURN-AD_1"},
        {"topology.kubernetes.io/zone": "northamerica-northeast1-a"},
    ]


def test_names_that_yaml_takes_for_numbers_and_truths_stay_names() -> None:
    """A release `no`, a Secret `7`: Kubernetes rejects labels and names that are no texts."""
    done = helm("template", "no", str(CHART), "--values", str(ODD_NAMES), *(f"--api-versions={api}" for api in APIS))
    assert done.returncode == 0, done.stderr
    manifests = parse(done.stdout)
    assert {each["metadata"]["labels"]["app.kubernetes.io/instance"] for each in manifests.objects} == {"no"}
    found = [
        f"{each['kind']}: {'.'.join(map(str, path))} is {value!r}"
        for each in manifests.objects
        for path, value in leaves(each)
        if not isinstance(value, str) and NAMING.intersection(path[-2:])
    ]
    assert found == []


def leaves(value: object, above: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], object]]:
    """Every scalar of a manifest, by its path."""
    match value:
        case dict():
            for name, each in value.items():
                yield from leaves(each, (*above, name))
        case list():
            for number, each in enumerate(value):
                yield from leaves(each, (*above, number))
        case _:
            yield above, value


def test_another_autoscaler_decides_the_number_of_agents_where_replicas_is_null() -> None:
    (deployment,) = render(SETUPS["minimal"], values=["replicas=null"]).agents()
    assert "replicas" not in deployment["spec"]


def test_a_recovery_with_other_values_is_another_job_where_helm_counts_no_revisions() -> None:
    def job(*values: str) -> str:
        (found,) = render(SETUPS["recover"], values=values).all("Job")
        return str(found["metadata"]["name"])

    assert job() == job(), "a second rendering would replace a Job that runs"
    assert len({job(), job("recover.dryRun=true"), job('resources.limits={"memory":"8Gi"}')}) == 3


def test_a_member_of_etcd_can_return_without_its_volume() -> None:
    (etcd,) = render(SETUPS["etcd"], values=['etcd.initialClusterState="existing"']).all("StatefulSet")
    assert "--initial-cluster-state=existing" in agent_container(etcd)["args"]
    (etcd,) = setup("etcd").all("StatefulSet")
    assert "--initial-cluster-state=new" in agent_container(etcd)["args"]


def test_the_image_of_etcd_is_the_published_one_that_compose_and_the_lab_use() -> None:
    """Docker Hub has no official image `etcd`: a name without a registry cannot be pulled."""
    (etcd,) = setup("etcd").all("StatefulSet")
    image = agent_container(etcd)["image"]
    compose = yaml.safe_load((CHART.parent / "compose.yaml").read_text(encoding="utf-8"))
    assert image == ETCD_IMAGE
    assert compose["services"]["etcd"]["image"] == f"${{ETCD_IMAGE:-{image}}}"
    assert image.startswith("quay.io/coreos/etcd:v")


def test_a_certificate_has_addresses_among_its_further_names() -> None:
    values = [
        'tls={"enabled":true,"certManager":{"issuerRef":{"name":"a"}},"extraNames":["192.0.2.7","k.example.net"]}'
    ]
    spec = render(SETUPS["host-ports"], values=values).named("Certificate")["spec"]
    assert spec["ipAddresses"] == ["192.0.2.7"]
    assert "k.example.net" in spec["dnsNames"]
    assert "192.0.2.7" not in spec["dnsNames"]


def test_a_policy_allows_the_ports_that_the_urls_name() -> None:
    urls = ['store.endpoint="https://minio.minio.svc:9000/"', 'ledger.url="etcd://a:12379,[2001:db8::2]:2479/c"']
    policy = render(SETUPS["minimal"], values=[*urls, "networkPolicy.enabled=true"]).named("NetworkPolicy")["spec"]
    ports = [[port["port"] for port in rule["ports"]] for rule in policy["egress"]]
    assert ports[2:] == [[2379, 12379, 2479], [443, 9000]]


@pytest.mark.parametrize("value", ["monitoring", "engines"])
def test_a_policy_lets_prometheus_and_engines_reach_the_http_port_alone(value: str) -> None:
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "others"}}}
    clients = 'networkPolicy.clients=[{"ipBlock":{"cidr":"192.0.2.0/24"}}]'
    values = ["networkPolicy.enabled=true", clients, f"networkPolicy.{value}={json.dumps([peer])}"]
    policy = render(SETUPS["minimal"], values=values).named("NetworkPolicy")["spec"]
    reached = [rule["ports"] for rule in policy["ingress"] if peer in rule["from"]]
    assert reached == [[{"protocol": "TCP", "port": "http"}]]


@pytest.mark.parametrize(("name", "account"), [("", "default"), ("records", "records")])
def test_a_service_account_that_is_not_the_charts_is_named(name: str, account: str) -> None:
    values = [f'serviceAccount={{"create":false,"name":"{name}"}}']
    manifests = render(SETUPS["minimal"], values=values)
    assert not manifests.all("ServiceAccount")
    assert {pod["serviceAccountName"] for _name, pod in manifests.pods()} == {account}


@pytest.mark.parametrize(
    ("values", "api"),
    [
        ("monitoring.podMonitor.enabled=true", "monitoring.coreos.com/v1"),
        ('tls={"enabled":true,"certManager":{"issuerRef":{"name":"internal"}}}', "cert-manager.io/v1"),
    ],
)
def test_a_missing_operator_is_named(values: str, api: str) -> None:
    done = template(SETUPS["minimal"], apis=(), values=[values])
    assert done.returncode != 0
    assert f"(API {api})" in done.stderr


def test_chart_and_program_have_one_version() -> None:
    assert f'appVersion: "{_version()}"' in (CHART / "Chart.yaml").read_text(encoding="utf-8")
    (deployment,) = setup("minimal").agents()
    assert agent_container(deployment)["image"] == f"penstock:{_version()}"


def _version() -> str:
    project = tomllib.loads((CHART.parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
    return str(project["project"]["version"])
