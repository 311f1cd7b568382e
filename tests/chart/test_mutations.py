"""Each line of the templates that matters is protected: a chart with that line changed breaks an expectation."""

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.chart import expectations
from tests.chart.rendering import CHART, SETUPS, parse, setup, template


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change of a template: `old`, which is there, becomes `new`, and the set-up shows it."""

    file: str
    old: str
    new: str
    setup: str = "minimal"

    def __str__(self) -> str:
        return f"{self.file}, {self.setup}: {self.old.strip()!r} -> {self.new.strip()!r}"


AGENTS = (
    Mutation("agents.yaml", "path: /live, port: http", "path: /ready, port: http"),
    Mutation("agents.yaml", "path: /ready", "path: /live"),
    Mutation("agents.yaml", "failureThreshold: 60", "failureThreshold: 6"),
    Mutation("agents.yaml", "timeoutSeconds: 5\n", "timeoutSeconds: 1\n"),
    Mutation("agents.yaml", "periodSeconds: 2\n            # A busy", "periodSeconds: 20\n            # A busy"),
    Mutation("agents.yaml", 'ternary "HTTPS" "HTTP"', 'ternary "HTTP" "HTTP"', "tls"),
    Mutation("agents.yaml", "terminationGracePeriodSeconds: {{ $.Values.terminationGracePeriodSeconds }}", ""),
    Mutation("agents.yaml", "minReadySeconds: 5", "minReadySeconds: 0"),
    Mutation("agents.yaml", "FallbackToLogsOnError", "File"),
    Mutation("agents.yaml", "revisionHistoryLimit: 5", ""),
    Mutation("agents.yaml", "maxSurge: {{ $hostPort | ternary 0 1 }}", "maxSurge: 0"),
    Mutation("agents.yaml", "maxUnavailable: {{ $hostPort | ternary 1 0 }}", "maxUnavailable: 1"),
    Mutation("agents.yaml", "maxSurge: {{ $hostPort | ternary 0 1 }}", "maxSurge: 1", "host-ports"),
    Mutation("agents.yaml", "key: node.kubernetes.io/unreachable", "key: node.kubernetes.io/unreachables"),
    Mutation("agents.yaml", "tolerationSeconds: {{ $.Values.lostNodeSeconds }}", "tolerationSeconds: 300"),
    Mutation("agents.yaml", "whenUnsatisfiable: ScheduleAnyway", "whenUnsatisfiable: DoNotSchedule"),
    Mutation("agents.yaml", "matchLabelKeys: [pod-template-hash]", ""),
    Mutation(
        "agents.yaml",
        '(list "topology.kubernetes.io/zone" "kubernetes.io/hostname")',
        '(list "kubernetes.io/hostname")',
    ),
    Mutation("agents.yaml", '(merge (dict "topology.kubernetes.io/zone" .)', "(merge dict", "zones"),
    Mutation("agents.yaml", "metadata.labels['topology.kubernetes.io/zone']", "metadata.labels['zone']"),
    Mutation(
        "agents.yaml",
        "              value: {{ . | quote }}\n              {{- else }}",
        "              value: a\n              {{- else }}",
        "zones",
    ),
    Mutation("agents.yaml", "  replicas: 0\n", "  replicas: 3\n", "recover"),
    Mutation("agents.yaml", "  {{- else if not $.Values.autoscaling.enabled }}", "  {{- else }}", "production"),
    Mutation("agents.yaml", '{{- include "penstock.containerSecurity" $ | nindent 12 }}', "privileged: true"),
    Mutation("agents.yaml", "{{- toYaml $.Values.resources | nindent 12 }}", "requests: {cpu: 100m}"),
    Mutation("agents.yaml", "hostPort: {{ .advertisedPort }}", "hostPort: 9999", "host-ports"),
    Mutation(
        "agents.yaml",
        "penstock-zone: {{ . | quote }}\n      {{- end }}\n  template",
        "penstock-zoned: a\n      {{- end }}\n  template",
        "zones",
    ),
)
PODS = (
    Mutation("_pod.tpl", "automountServiceAccountToken: false", "automountServiceAccountToken: true"),
    Mutation("_pod.tpl", "tolerations:\n  {{- toYaml . | nindent 2 }}\n", "", "production"),
    Mutation("_pod.tpl", "enableServiceLinks: false", "enableServiceLinks: true"),
    Mutation("_pod.tpl", "runAsNonRoot: true", "runAsNonRoot: false"),
    Mutation("_pod.tpl", "runAsGroup: {{ . }}", "runAsGroup: 0"),
    Mutation("_pod.tpl", "type: RuntimeDefault", "type: Unconfined"),
    Mutation("_pod.tpl", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"),
    Mutation("_pod.tpl", "allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true"),
    Mutation("_pod.tpl", "drop: [ALL]", "drop: [NET_RAW]"),
    Mutation(
        "_pod.tpl",
        'serviceAccountName: {{ include "penstock.serviceAccount" . | quote }}',
        "serviceAccountName: default",
    ),
    Mutation("_pod.tpl", "  value: $(POD_NAME)", "  value: penstock"),
    Mutation("_pod.tpl", "fieldPath: status.podIP", "fieldPath: status.hostIP"),
    Mutation("_pod.tpl", "fieldPath: status.hostIP", "fieldPath: status.podIP", "host-ports"),
    Mutation("_pod.tpl", "value: /etc/penstock/config/penstock.toml", "value: /etc/penstock.toml"),
    Mutation("_pod.tpl", "- name: tmp\n  mountPath: /tmp", "- name: tmp\n  mountPath: /temporary"),
    Mutation("_pod.tpl", 'printf "http://%s:9644"', 'printf "http://%s:80"'),
    Mutation("_pod.tpl", '"folder" "relay"', '"folder" "relays"', "one-address-tls"),
    Mutation("_pod.tpl", "mountPath: /cache", "mountPath: /kernels"),
    Mutation(
        "_pod.tpl",
        "  mountPath: /etc/penstock/{{ $each.folder }}\n  readOnly: true",
        "  mountPath: /etc/penstock/{{ $each.folder }}",
        "tls",
    ),
    Mutation("_pod.tpl", "  mountPath: /etc/penstock/passwords", "  mountPath: /etc/penstock/words", "production"),
    Mutation("_pod.tpl", '"folder" "client-ca"', '"folder" "clients"', "tls"),
    Mutation("_pod.tpl", '"folder" "store-ca"', '"folder" "ca"', "node-ports"),
    Mutation(
        "_pod.tpl",
        "  valueFrom:\n    secretKeyRef:\n      name: {{ .name | quote }}\n      key: {{ .key | quote }}",
        "  value: word",
        "node-ports",
    ),
)
ADDRESSES = (
    Mutation(
        "_listeners.tpl", 'ternary (include "penstock.podHost" .)', 'ternary (include "penstock.podAddress" .)', "tls"
    ),
    Mutation("_listeners.tpl", '"[$(HOST_IP)]" "$(HOST_IP)"', '"[$(HOST_IP)]" "$(POD_IP)"', "host-ports"),
    Mutation("_listeners.tpl", '"[$(POD_IP)]" "$(POD_IP)"', '"$(POD_IP)" "$(POD_IP)"', "ipv6"),
    Mutation("_listeners.tpl", 'ternary "[::]" "0.0.0.0"', 'ternary "0.0.0.0" "0.0.0.0"', "ipv6"),
    Mutation("_listeners.tpl", "PreferDualStack", "SingleStack", "ipv6"),
    Mutation("_listeners.tpl", '"RELAY" "port" 9095', '"RELAY" "port" 9096', "one-address"),
    Mutation("_listeners.tpl", '(ne .Values.external.type "HostPort")', "true", "host-ports"),
    Mutation(
        "_listeners.tpl", "(or .Values.tls.enabled .Values.authentication.enabled (", "(and false (", "one-address-tls"
    ),
    Mutation("_listeners.tpl", 'ternary "PLAINTEXT" "SSL"', 'ternary "SSL" "SSL"', "one-address"),
    Mutation("_settings.tpl", '.ssl.client.auth" $own) "required"', '.ssl.client.auth" $own) "requested"', "tls"),
    Mutation("_settings.tpl", '$own) "DEFAULT"', '$own) "RULE:.*/admin/"', "tls"),
    Mutation("_settings.tpl", '"User:CN=%s"', '"User:%s"', "one-address-tls"),
    Mutation("services.yaml", "{{- if .isExternal }}", '{{- if ne .name "INTERNAL" }}', "one-address"),
    Mutation("relay.yaml", "  ca:\n    secretName", "  ca:\n    # secretName", "one-address-tls"),
    Mutation("relay.yaml", "commonName: {{ $name | quote }}\n", "commonName: penstock\n", "one-address-tls"),
    Mutation("network.yaml", '{{- if ne .name "RELAY" }}', "{{- if true }}", "one-address"),
    Mutation(
        "network.yaml",
        "- {protocol: TCP, port: relay}\n      from:",
        "- {protocol: TCP, port: kafka}\n      from:",
        "one-address",
    ),
    Mutation("_listeners.tpl", "ternary .nodePort .port | int", "ternary .port .port | int", "node-ports"),
    Mutation(
        "_listeners.tpl",
        'ternary "SASL_SSL" "SASL_PLAINTEXT"',
        'ternary "SASL_PLAINTEXT" "SASL_PLAINTEXT"',
        "production",
    ),
    Mutation("_listeners.tpl", 'ternary "SSL" "PLAINTEXT"', 'ternary "PLAINTEXT" "PLAINTEXT"', "tls"),
    Mutation("_settings.tpl", '"take-over-name" true', '"take-over-name" false'),
    Mutation("_listeners.tpl", '"[::]" "0.0.0.0"', '"[::]" "127.0.0.1"'),
    Mutation("_settings.tpl", 'printf "https://%s:9644"', 'printf "http://%s:9644"', "tls"),
    Mutation("services.yaml", "clusterIP: None", "type: ClusterIP"),
    Mutation("services.yaml", "publishNotReadyAddresses: true", "publishNotReadyAddresses: false"),
    Mutation("services.yaml", "targetPort: {{ .portName }}", "targetPort: kafka", "one-address"),
    Mutation("services.yaml", "nodePort: {{ .advertisedPort }}", "nodePort: 31000", "node-ports"),
    Mutation("services.yaml", "    penstock-zone: {{ . | quote }}\n", '    penstock-zone: "eu-west-1a"\n', "zones"),
    Mutation("services.yaml", "{name: http, port: 9644, targetPort: http}", "{name: http, port: 80, targetPort: http}"),
    Mutation("certificate.yaml", '    - "*.{{ $name }}-agents.{{ .Release.Namespace }}.svc"\n', "", "production"),
    Mutation("certificate.yaml", "usages: [server auth, client auth]", "usages: [server auth]", "production"),
)
OTHERS = (
    Mutation("budget.yaml", "unhealthyPodEvictionPolicy: AlwaysAllow", ""),
    Mutation("budget.yaml", "maxUnavailable: {{ .Values.podDisruptionBudget.maxUnavailable }}", "maxUnavailable: 50%"),
    Mutation("budget.yaml", '{{- include "penstock.agentSelector" . | nindent 6 }}', "app: penstock"),
    Mutation("account.yaml", "automountServiceAccountToken: false", "automountServiceAccountToken: true"),
    Mutation("autoscaling.yaml", "stabilizationWindowSeconds: 1800", "stabilizationWindowSeconds: 300", "production"),
    Mutation("autoscaling.yaml", "periodSeconds: 900", "periodSeconds: 60", "production"),
    Mutation("autoscaling.yaml", "value: 50", "value: 100", "production"),
    Mutation("autoscaling.yaml", " (not .Values.recover.enabled)", "", "recover"),
    Mutation("audit.yaml", " (not .Values.recover.enabled)", "", "recover"),
    Mutation("audit.yaml", "concurrencyPolicy: Forbid", "concurrencyPolicy: Allow", "production"),
    Mutation("audit.yaml", "backoffLimit: 0", "backoffLimit: 6", "production"),
    Mutation("recover.yaml", "values: [3]", "values: [1]", "recover"),
    Mutation("recover.yaml", "- action: Ignore", "- action: Count", "recover"),
    Mutation("_pod.tpl", "terminationMessagePolicy: FallbackToLogsOnError\n", "", "recover"),
    Mutation("recover.yaml", "restartPolicy: Never", "restartPolicy: OnFailure", "recover"),
    Mutation("network.yaml", "policyTypes: [Ingress, Egress]", "policyTypes: [Ingress]", "one-address"),
    Mutation("network.yaml", "- {protocol: UDP, port: 5353}", "", "one-address"),
    Mutation("network.yaml", "values: [audit, recover, test]", "values: [audit, test]", "one-address"),
    Mutation(
        "network.yaml",
        "- {protocol: TCP, port: http}\n      from:\n        {{- toYaml",
        "- {protocol: TCP, port: kafka}\n      from:\n        {{- toYaml",
        "production",
    ),
    Mutation("network.yaml", '"hasRelay" "")', '"hasRelay" "true")', "one-address"),
    Mutation("network.yaml", "- {protocol: UDP, port: 53}", "", "one-address"),
    Mutation("network.yaml", '{{- include "penstock.etcdSelector" .root | nindent 10 }}', "app: etcd", "etcd"),
    Mutation("network.yaml", '{{- include "penstock.etcdSelector" . | nindent 14 }}', "app: etcd", "etcd"),
    Mutation("network.yaml", "- {protocol: TCP, port: peer}", "- {protocol: TCP, port: 2381}", "etcd"),
    Mutation("monitoring.yaml", "scheme: https", "scheme: http", "production"),
    Mutation("monitoring.yaml", "path: /metrics", "path: /metric", "production"),
    Mutation("monitoring.yaml", "authorization:", "basicAuth:", "production"),
    Mutation("tests/doctor.yaml", "restartPolicy: Never", "restartPolicy: Always"),
    Mutation("tests/records.yaml", "activeDeadlineSeconds: 120", ""),
    Mutation("_pod.tpl", '"requests" (dict "cpu" "100m" "memory" "128Mi")', '"requests" (dict)'),
    Mutation("tests/records.yaml", "helm.sh/hook: test", "helm.sh/hook: post-install"),
    Mutation("etcd.yaml", "podManagementPolicy: Parallel", "podManagementPolicy: OrderedReady", "etcd"),
    Mutation("etcd.yaml", "whenDeleted: Retain", "whenDeleted: Delete", "etcd"),
    Mutation("etcd.yaml", "publishNotReadyAddresses: true", "publishNotReadyAddresses: false", "etcd"),
    Mutation("etcd.yaml", "replicas: 3", "replicas: 1", "etcd"),
    Mutation("etcd.yaml", "--data-dir=/var/lib/etcd/data", "--data-dir=/tmp/etcd", "etcd"),
    Mutation("etcd.yaml", "requiredDuringScheduling", "requiredDuringNothing", "etcd"),
    Mutation("etcd.yaml", "{path: /livez, port: health}", "{path: /readyz, port: health}", "etcd"),
    Mutation("etcd.yaml", "automountServiceAccountToken: false", "automountServiceAccountToken: true", "etcd"),
)
ALL = (*AGENTS, *PODS, *ADDRESSES, *OTHERS)


def broken(mutation: Mutation, folder: Path) -> Sequence[str]:
    """The names of the expectations that a chart with this change breaks."""
    chart = folder / "penstock"
    shutil.copytree(CHART, chart)
    path = chart / "templates" / mutation.file
    text = path.read_text(encoding="utf-8")
    assert mutation.old in text, f"{mutation}: the template has changed; change the mutation, too"
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    done = template(SETUPS[mutation.setup], chart=chart)
    assert done.returncode == 0, f"{mutation}: {done.stderr}"
    manifests = parse(done.stdout)
    assert manifests != setup(mutation.setup), f"{mutation} changes nothing"
    found: list[str] = []
    for expectation in expectations.ALL:
        try:
            expectation(manifests)
        except (AssertionError, KeyError, TypeError, ValueError):
            found.append(expectation.__name__)
    return found


def test_every_change_of_a_line_that_matters_is_noticed_and_every_expectation_notices_one(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(len(ALL))]
    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(broken, ALL, folders))
    unnoticed = [str(mutation) for mutation, found in zip(ALL, results, strict=True) if not found]
    assert not unnoticed, "\n".join(unnoticed)
    idle = {each.__name__ for each in expectations.ALL} - {name for found in results for name in found}
    assert not idle, "these hold for every manifest, and protect nothing"
