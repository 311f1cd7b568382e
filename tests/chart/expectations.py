"""What holds for every set-up of the chart. Each function raises `AssertionError` for manifests of which it does not.

`ALL` has them. `test_templates` applies them to the chart, `test_mutations` to charts with a line changed: a change
that passes all of them is one that nothing protects.

Above 500 lines, for each expectation is some lines, and one table holds them all. `test_mutations` shows that
none of them is idle.
"""

import ipaddress
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from agent.cli.failure import EXIT_UNDECIDED
from tests.chart.rendering import NAME, Manifest, Manifests, agent_container, containers

CONFIG_FILE: Final = "/etc/penstock/config/penstock.toml"


def toml(manifests: Manifests) -> dict[str, Any]:
    return tomllib.loads(manifests.named("ConfigMap")["data"]["penstock.toml"])


def variables(container: Manifest) -> dict[str, Any]:
    """The variables of a container: text, or where it comes from."""
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


def agents_end_in_time_and_are_replaced_one_by_one(manifests: Manifests) -> None:
    for each in manifests.agents():
        spec = each["spec"]
        pod, container = spec["template"]["spec"], agent_container(each)
        seconds = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        assert pod["terminationGracePeriodSeconds"] == 60
        assert seconds <= 15
        has_host_port = any("hostPort" in port for port in container["ports"])
        rolling = {"maxSurge": 0, "maxUnavailable": 1} if has_host_port else {"maxSurge": 1, "maxUnavailable": 0}
        assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}
        assert spec["minReadySeconds"] == 5
        assert spec["revisionHistoryLimit"] == 5
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError", "kubectl describe would have no reason"


def probes_ask_what_they_are_for(manifests: Manifests) -> None:
    scheme = "HTTPS" if toml(manifests)["http"].startswith("https://") else "HTTP"
    for each in manifests.agents():
        container = agent_container(each)
        live = {"path": "/live", "port": "http", "scheme": scheme}
        assert container["startupProbe"] == {"httpGet": live, "periodSeconds": 1, "failureThreshold": 60}
        assert container["livenessProbe"] == {
            "httpGet": live,
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        }
        assert container["readinessProbe"] == {
            "httpGet": {**live, "path": "/ready"},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
            "failureThreshold": 1,
        }


def every_pod_is_restricted(manifests: Manifests) -> None:
    """Kubernetes' pod security standard "restricted", and a root file system that nothing writes to."""
    for name, pod in manifests.pods():
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["enableServiceLinks"] is False, name
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert security.get("runAsUser") == security.get("runAsGroup") != 0, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod), name
        for container in containers(pod):
            assert container["securityContext"] == {
                "readOnlyRootFilesystem": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }, name
        for volume in pod.get("volumes", ()):
            assert {"configMap", "emptyDir", "secret", "projected"} & set(volume), f"{name}: {volume}"


def every_container_has_its_resources(manifests: Manifests) -> None:
    for name, pod in manifests.pods():
        for container in containers(pod):
            resources = container["resources"]
            assert {"cpu", "memory"} <= set(resources["requests"]), name
            assert set(resources["limits"]) == {"memory"}, f"{name}: a limit of the CPU delays answers"
            assert "image" in container, name


def agents_are_spread_and_leave_lost_nodes(manifests: Manifests) -> None:
    for each in manifests.agents():
        pod, labels = each["spec"]["template"]["spec"], each["spec"]["template"]["metadata"]["labels"]
        zone = labels.get("penstock-zone")
        keys = ["topology.kubernetes.io/zone"] if zone is None else []
        rows = pod["topologySpreadConstraints"]
        assert [row["topologyKey"] for row in rows] == [*keys, "kubernetes.io/hostname"]
        for row in rows:
            assert row["maxSkew"] == 1
            assert row["whenUnsatisfiable"] == "ScheduleAnyway"
            assert row["matchLabelKeys"] == ["pod-template-hash"]
            assert row["labelSelector"]["matchLabels"].items() <= labels.items()
        lost = {row["key"]: row for row in pod["tolerations"]}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
            expected = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
            assert lost[key] == expected
        assert (pod.get("nodeSelector", {}).get("topology.kubernetes.io/zone")) == zone


def agents_have_the_names_of_pods_and_know_their_zone(manifests: Manifests) -> None:
    for each in manifests.agents():
        known = variables(agent_container(each))
        assert known["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
        assert known["POD_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}
        assert known["PENSTOCK_NAME"] == "$(POD_NAME)"
        assert toml(manifests)["take-over-name"] is True
        assert known["PENSTOCK_CONFIG"] == CONFIG_FILE
        zone = each["spec"]["template"]["metadata"]["labels"].get("penstock-zone")
        label = {"fieldRef": {"fieldPath": "metadata.labels['topology.kubernetes.io/zone']"}}
        assert known["PENSTOCK_ZONE"] == (zone or label)
        names = list(known)
        for name, value in known.items():  # Kubernetes replaces $(NAME) by variables above alone
            for other in ("POD_NAME", "POD_IP", "HOST_IP"):
                assert f"$({other})" not in str(value) or names.index(other) < names.index(name)


def every_pod_may_run_where_agents_may(manifests: Manifests) -> None:
    """A job that is bound to the agents' nodes, and does not tolerate their taints, waits indefinitely."""
    agent = manifests.agents()[0]["spec"]["template"]["spec"]
    tolerated = [row for row in agent["tolerations"] if not row["key"].startswith("node.kubernetes.io/")]
    nodes = {key: value for key, value in agent.get("nodeSelector", {}).items() if not key.startswith("topology.")}
    for name, pod in manifests.pods():
        assert [row for row in pod.get("tolerations", []) if row in tolerated] == tolerated, name
        assert nodes.items() <= pod.get("nodeSelector", {}).items(), name
    for etcd in manifests.all("StatefulSet"):
        priority = etcd["spec"]["template"]["spec"].get("priorityClassName")
        assert priority == agent.get("priorityClassName"), "agents could push members off their nodes"


def one_budget_counts_all_agents(manifests: Manifests) -> None:
    budget = manifests.named("PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    for each in manifests.agents():
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert budget["selector"]["matchLabels"].items() <= labels.items()


def selectors_find_their_pods_and_no_others(manifests: Manifests) -> None:
    pods = {
        f"{each['kind']} {each['metadata']['name']}": each["spec"]["template"]["metadata"]["labels"]
        for each in manifests.objects
        if each["kind"] in ("Deployment", "StatefulSet", "Job")
    }
    for each in manifests.objects:
        name, spec = f"{each['kind']} {each['metadata']['name']}", each.get("spec", {})
        if each["kind"] in ("Deployment", "StatefulSet"):
            assert spec["selector"]["matchLabels"].items() <= pods[name].items(), name
            others = [
                other for other, labels in pods.items() if spec["selector"]["matchLabels"].items() <= labels.items()
            ]
            assert others == [name]
        if each["kind"] == "Service":
            found = {
                labels["app.kubernetes.io/component"]
                for labels in pods.values()
                if spec["selector"].items() <= labels.items()
            }
            assert len(found) == 1, f"{name} selects {found}"


def services_lead_to_ports_of_their_pods(manifests: Manifests) -> None:
    kafka = manifests.named("Service")["spec"]
    assert [(port["name"], port["port"]) for port in kafka["ports"]] == [("kafka", 9092), ("http", 9644)]
    assert kafka["type"] == "ClusterIP"
    assert kafka["trafficDistribution"] in ("PreferSameZone", "PreferClose")
    agents = manifests.named("Service", f"{NAME}-agents")["spec"]
    assert agents["clusterIP"] == "None"
    assert agents["publishNotReadyAddresses"] is True
    workloads = [*manifests.all("Deployment"), *manifests.all("StatefulSet")]
    for service in manifests.all("Service"):
        selected = [
            each["spec"]["template"]
            for each in workloads
            if service["spec"]["selector"].items() <= each["spec"]["template"]["metadata"]["labels"].items()
        ]
        assert selected, f"{service['metadata']['name']} selects no pod"
        for pod in selected:
            names = {port["name"] for each in pod["spec"]["containers"] for port in each["ports"]}
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= names
            assert all(len(name) <= 15 for name in names)


def listeners_are_ports_and_have_an_address(manifests: Manifests) -> None:
    options = toml(manifests)
    listeners = dict(_listener(text) for text in options["listen"])
    protocols = dict(row.split(":") for row in options["set"]["listener.security.protocol.map"].split(","))
    assert protocols.keys() == listeners.keys()
    is_encrypted = options["http"].startswith("https://")
    assert all(("SSL" in protocol) is is_encrypted for name, protocol in protocols.items() if name != "RELAY")
    assert options.get("insecure", False) is not is_encrypted
    for each in manifests.agents():
        container = agent_container(each)
        ports = {port["containerPort"] for port in container["ports"]}
        assert {port for _host, port in listeners.values()} | {9644} == ports
        advertised = dict(_listener(text) for text in variables(container)["PENSTOCK_ADVERTISE"].split(","))
        assert advertised.keys() == listeners.keys()
        address = "[$(POD_IP)]" if options["listen"][0].startswith("INTERNAL://[::]") else "$(POD_IP)"
        own = "{dashed:$(POD_IP)}." + f"{NAME}-agents.streams.svc" if is_encrypted else address
        assert advertised["INTERNAL"] == (own, 9092)
        scheme = "https" if is_encrypted else "http"
        assert variables(container)["PENSTOCK_ADVERTISE_HTTP"] == f"{scheme}://{own}:9644"
    every = "[::]" if "[" in options["http"] else "0.0.0.0"
    for host, _port in listeners.values():
        assert host == every  # also loopback, which `kubectl port-forward` connects to


def services_have_addresses_of_the_families_that_agents_listen_on(manifests: Manifests) -> None:
    is_dual = "[::]" in toml(manifests)["http"]
    for service in manifests.all("Service"):
        assert service["spec"].get("ipFamilyPolicy", "") == ("PreferDualStack" if is_dual else "")
    for etcd in manifests.all("StatefulSet"):
        listening = [word for word in agent_container(etcd)["args"] if word.startswith("--listen-")]
        assert all(("//[::]:" if is_dual else "//0.0.0.0:") in word for word in listening)


def agents_that_share_an_address_relay_to_each_other(manifests: Manifests) -> None:
    """They are asked for certificates of each other wherever clients have names, rights or encryption."""
    options = toml(manifests)
    configs, listeners = options["set"], dict(_listener(text) for text in options["listen"])
    is_sharing = any("$(" not in host for host, _port in _advertised(manifests))
    assert ("RELAY" in listeners) is is_sharing
    own = {name.removeprefix("listener.name.relay."): value for name, value in configs.items() if ".relay." in name}
    authorities = [each for each in manifests.all("Certificate") if each["spec"].get("isCA")]
    protocols = dict(row.split(":") for row in configs["listener.security.protocol.map"].split(","))
    is_protected = protocols.get("RELAY") == "SSL"
    assert bool(own) is is_protected
    if is_sharing:
        assert is_protected is any(protocol != "PLAINTEXT" for name, protocol in protocols.items() if name != "RELAY")
    for each in manifests.agents() if is_sharing else ():
        advertised = dict(_listener(text) for text in variables(agent_container(each))["PENSTOCK_ADVERTISE"].split(","))
        assert listeners["RELAY"][1] == 9095
        assert advertised["RELAY"] == (advertised["INTERNAL"][0], 9095)
        assert not is_protected or ".svc" in advertised["RELAY"][0], "the name that the certificate has"
    for service in manifests.all("Service"):
        assert "relay" not in [port["targetPort"] for port in service["spec"]["ports"]], "clients must not reach it"
    if is_protected:
        assert own.pop("penstock.ssl.principal.source") == "SUBJECT"
        assert own == {
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "DEFAULT",
            "ssl.keystore.location": "/etc/penstock/relay/tls.crt",
            "ssl.keystore.key.file": "/etc/penstock/relay/tls.key",
            "ssl.truststore.location": "/etc/penstock/relay/ca.crt",
        }
        assert f"User:CN={NAME}-relay" in configs["super.users"].split(";"), "it needs CLUSTER_ACTION"
    for authority in authorities:
        issuers = {each["metadata"]["name"]: each["spec"] for each in manifests.all("Issuer")}
        of_agents = manifests.named("Certificate", f"{NAME}-relay")["spec"]
        assert issuers[of_agents["issuerRef"]["name"]] == {"ca": {"secretName": authority["spec"]["secretName"]}}
        assert issuers[authority["spec"]["issuerRef"]["name"]] == {"selfSigned": {}}
        assert of_agents["commonName"] == f"{NAME}-relay"
        assert of_agents["dnsNames"] == [f"*.{NAME}-agents.streams.svc"]
        assert of_agents["usages"] == ["server auth", "client auth"]


def external_addresses_reach_the_listener_that_advertises_them(manifests: Manifests) -> None:
    services = [each for each in manifests.all("Service") if "-external" in each["metadata"]["name"]]
    for deployment in manifests.agents():
        container = agent_container(deployment)
        names = {port["containerPort"]: port for port in container["ports"]}
        listeners = dict(_listener(text) for text in toml(manifests)["listen"])
        advertised = dict(_listener(text) for text in variables(container)["PENSTOCK_ADVERTISE"].split(","))
        for name, (host, port) in advertised.items():
            own = names[listeners[name][1]]
            if name in ("INTERNAL", "RELAY"):
                continue
            if host == "$(HOST_IP)":
                assert own["hostPort"] == port
                assert variables(container)["HOST_IP"] == {"fieldRef": {"fieldPath": "status.hostIP"}}
                continue
            (service,) = (each for each in services if each["spec"]["ports"][0]["targetPort"] == own["name"])
            (outside,) = service["spec"]["ports"]
            assert outside.get("nodePort", outside["port"]) == port
            assert "nodePort" not in outside or 30_000 <= port < 32_768, "Kubernetes gives no other port of nodes"
            zone = service["spec"]["selector"].get("penstock-zone")
            assert zone is None or name == zone.upper().replace("-", "_")


def every_file_that_is_named_is_mounted(manifests: Manifests) -> None:
    text = manifests.named("ConfigMap")["data"]
    named = {path for path in _paths({**toml(manifests), **_users(text)}) if path.startswith("/")}
    for name, pod in manifests.pods():
        volumes = {volume["name"] for volume in pod.get("volumes", ())}
        if pod["containers"][0]["args"][0] not in ("agent", "recover", "audit", "doctor"):
            continue
        for container in containers(pod):
            mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
            assert {mount["name"] for mount in mounts.values()} == volumes, name
            assert all(mount.get("readOnly") for path, mount in mounts.items() if path.startswith("/etc/")), name
            assert (mounts["/tmp"]["name"], mounts[toml(manifests)["cache-dir"]]["name"]) == ("tmp", "cache")
            for path in {*named, CONFIG_FILE}:
                assert any(f"{path}/".startswith(f"{folder}/") for folder in mounts), f"{name}: {path} is not mounted"
            bundle = variables(container).get("AWS_CA_BUNDLE")
            assert bundle is None or any(bundle.startswith(f"{folder}/") for folder in mounts)


def nothing_secret_is_written_out(manifests: Manifests) -> None:
    assert not manifests.all("Secret")
    for name, pod in manifests.pods():
        for container in containers(pod):
            for each in container.get("env", ()):
                is_secret = any(word in each["name"] for word in ("PASSWORD", "SECRET", "TOKEN"))
                assert not is_secret or "secretKeyRef" in each["valueFrom"], f"{name}: {each['name']}"


def autoscaling_is_slow_to_end_agents(manifests: Manifests) -> None:
    scalers = manifests.all("HorizontalPodAutoscaler")
    targets = {each["spec"]["scaleTargetRef"]["name"] for each in scalers}
    for each in scalers:
        spec = each["spec"]
        assert spec["scaleTargetRef"] == {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": each["metadata"]["name"],
        }
        (metric,) = spec["metrics"]
        assert metric["resource"] == {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}
        up, down = spec["behavior"]["scaleUp"], spec["behavior"]["scaleDown"]
        assert up["selectPolicy"] == "Max"
        assert {(rule["type"], rule["value"], rule["periodSeconds"]) for rule in up["policies"]} == {
            ("Percent", 50, 60),
            ("Pods", 3, 60),
        }
        assert down == {
            "stabilizationWindowSeconds": 1800,
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 900}],
        }
    for each in manifests.agents():
        assert ("replicas" in each["spec"]) is (each["metadata"]["name"] not in targets)


def the_network_is_closed_where_it_is_restricted(manifests: Manifests) -> None:
    for policy in manifests.all("NetworkPolicy"):
        spec = policy["spec"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        names = spec["egress"][0]
        assert _ports(names) == [53, 53, 5353, 5353]
        assert {port["protocol"] for port in names["ports"]} == {"UDP", "TCP"}
        if policy["metadata"]["name"] == f"{NAME}-etcd":
            (rule,) = spec["ingress"]
            assert _ports(rule) == ["client", "peer"]
            assert rule["from"] == [{"podSelector": {"matchLabels": _selector()}}]
            members = {"podSelector": {"matchLabels": {**_selector(), "app.kubernetes.io/component": "etcd"}}}
            assert spec["egress"][1:] == [{"ports": rule["ports"], "to": [members]}]
            continue
        if policy["metadata"]["name"] == f"{NAME}-jobs":
            (components,) = spec["podSelector"]["matchExpressions"]
            assert (components["operator"], components["values"]) == ("In", ["audit", "recover", "test"])
            assert "ingress" not in spec
            assert "relay" not in [port for rule in spec["egress"] for port in _ports(rule)]
            agents_too = manifests.named("NetworkPolicy")["spec"]["egress"]
            assert spec["egress"][2:] == agents_too[2:], "they need the ledger and the bucket"
            continue
        assert spec["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "agent"
        clients, inside, *others = spec["ingress"]
        ports = [port["name"] for port in agent_container(manifests.agents()[0])["ports"]]
        assert sorted(_ports(clients)) == sorted(name for name in ports if name not in ("http", "relay"))
        of_agents = {"podSelector": {"matchLabels": {**_selector(), "app.kubernetes.io/component": "agent"}}}
        assert _ports(inside) == ["kafka", "http"]
        assert inside["from"] == [{"podSelector": {"matchLabels": _selector()}}], "the rule has Kafka's port"
        peers = {tuple(_ports(rule)): rule["from"] for rule in others}
        assert peers.pop(("http",), "no rule"), "an empty list of peers lets everyone in"
        assert peers == ({("relay",): [of_agents]} if "relay" in ports else {}), "no other ports are open"
        _names, agents, ledger, store = spec["egress"]
        assert ("relay" in _ports(agents)) is ("relay" in ports)
        assert agents["to"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "agent"
        assert _ports(ledger) == [2379]
        assert len(_ports(store)) == 1
        if manifests.all("StatefulSet"):
            assert ledger["to"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "etcd"


def the_certificate_has_the_names_that_clients_use(manifests: Manifests) -> None:
    for certificate in manifests.all("Certificate"):
        spec = certificate["spec"]
        if "-relay" in certificate["metadata"]["name"]:
            continue
        assert {f"{NAME}.streams.svc", f"*.{NAME}-agents.streams.svc"} <= set(spec["dnsNames"])
        assert spec["usages"] == ["server auth", "client auth"]
        assert spec["secretName"] == f"{NAME}-tls"
        assert spec["privateKey"]["rotationPolicy"] == "Always"
        hosts = {host for host, _port in _advertised(manifests) if "$(" not in host}
        assert hosts <= {*spec["dnsNames"], *spec.get("ipAddresses", ())}
        assert all(ipaddress.ip_address(each) for each in spec.get("ipAddresses", ()))


def etcd_keeps_its_majority_and_its_volumes(manifests: Manifests) -> None:
    for each in manifests.all("StatefulSet"):
        name, spec = each["metadata"]["name"], each["spec"]
        (container,) = spec["template"]["spec"]["containers"]
        flags = dict(word.removeprefix("--").split("=", 1) for word in container["args"])
        assert spec["replicas"] == 3
        assert spec["podManagementPolicy"] == "Parallel"
        assert set(spec["persistentVolumeClaimRetentionPolicy"].values()) == {"Retain"}
        assert spec["volumeClaimTemplates"][0]["spec"]["accessModes"] == ["ReadWriteOnce"]
        members = dict(row.split("=") for row in flags["initial-cluster"].split(","))
        assert list(members) == [f"{name}-{number}" for number in range(3)]
        for member, url in members.items():
            assert url == f"http://{member}.{spec['serviceName']}.streams.svc:2380"
            assert f"{member}.{spec['serviceName']}.streams.svc:2379" in toml(manifests)["ledger"]
        assert flags["quota-backend-bytes"] == "2147483648"
        assert not [flag for flag in flags if flag.startswith("auto-compaction")]
        mount = container["volumeMounts"][0]["mountPath"]
        assert flags["data-dir"].startswith(f"{mount}/")
        budget = manifests.named("PodDisruptionBudget", name)["spec"]
        assert budget["maxUnavailable"] == 1
        assert budget["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
        assert manifests.named("Service", name)["spec"]["publishNotReadyAddresses"] is True
        near = spec["template"]["spec"]["affinity"]["podAntiAffinity"]
        assert near["requiredDuringSchedulingIgnoredDuringExecution"][0]["topologyKey"] == "kubernetes.io/hostname"
        for probe, path in (("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
            assert container[probe]["httpGet"] == {"path": path, "port": "health"}


def jobs_do_not_repeat_what_would_fail_again(manifests: Manifests) -> None:
    for job in manifests.all("Job"):
        assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"
        assert job["spec"]["backoffLimit"] == 3
        undecided, drained = job["spec"]["podFailurePolicy"]["rules"]
        codes = {"containerName": "recover", "operator": "In", "values": [EXIT_UNDECIDED]}
        assert undecided == {"action": "FailJob", "onExitCodes": codes}
        assert drained == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert container["name"] == codes["containerName"]
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
        assert all(each["spec"]["replicas"] == 0 for each in manifests.agents()), "agents run beside the recovery"
        assert not manifests.all("HorizontalPodAutoscaler"), "it would start agents"
        assert not manifests.all("CronJob")
    for job in manifests.all("CronJob"):
        assert job["spec"]["concurrencyPolicy"] == "Forbid"
        assert job["spec"]["jobTemplate"]["spec"]["backoffLimit"] == 0
        assert job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def tests_are_hooks_that_end(manifests: Manifests) -> None:
    assert manifests.named("Pod", f"{NAME}-test-doctor")
    for pod in manifests.all("Pod"):
        assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
        assert pod["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation"
        assert pod["spec"]["restartPolicy"] == "Never"
        assert pod["spec"]["activeDeadlineSeconds"] == 120
        for container in containers(pod["spec"]):
            assert container["resources"]["requests"].items() >= {"cpu": "100m", "memory": "128Mi"}.items()


def the_service_account_gives_no_token(manifests: Manifests) -> None:
    assert manifests.named("ServiceAccount")["automountServiceAccountToken"] is False
    for name, pod in manifests.pods():
        assert pod.get("serviceAccountName", "default") == ("default" if name.endswith("-etcd") else NAME), name


def metrics_are_collected_as_they_are_served(manifests: Manifests) -> None:
    for monitor in manifests.all("PodMonitor"):
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert (endpoint["port"], endpoint["path"]) == ("http", "/metrics")
        is_encrypted = toml(manifests)["http"].startswith("https://")
        assert endpoint.get("scheme", "http") == ("https" if is_encrypted else "http")
        assert not is_encrypted or endpoint["tlsConfig"]["serverName"] == f"{NAME}.streams.svc"
        assert toml(manifests)["metrics-open"] or "authorization" in endpoint
        labels = manifests.agents()[0]["spec"]["template"]["metadata"]["labels"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()


ALL: Final[tuple[Callable[[Manifests], None], ...]] = (
    agents_end_in_time_and_are_replaced_one_by_one,
    probes_ask_what_they_are_for,
    every_pod_is_restricted,
    every_container_has_its_resources,
    agents_are_spread_and_leave_lost_nodes,
    agents_have_the_names_of_pods_and_know_their_zone,
    every_pod_may_run_where_agents_may,
    one_budget_counts_all_agents,
    selectors_find_their_pods_and_no_others,
    services_lead_to_ports_of_their_pods,
    listeners_are_ports_and_have_an_address,
    services_have_addresses_of_the_families_that_agents_listen_on,
    agents_that_share_an_address_relay_to_each_other,
    external_addresses_reach_the_listener_that_advertises_them,
    every_file_that_is_named_is_mounted,
    nothing_secret_is_written_out,
    autoscaling_is_slow_to_end_agents,
    the_network_is_closed_where_it_is_restricted,
    the_certificate_has_the_names_that_clients_use,
    etcd_keeps_its_majority_and_its_volumes,
    jobs_do_not_repeat_what_would_fail_again,
    tests_are_hooks_that_end,
    the_service_account_gives_no_token,
    metrics_are_collected_as_they_are_served,
)


def _listener(text: str) -> tuple[str, tuple[str, int]]:
    name, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    return name, (host, int(port))


def _advertised(manifests: Manifests) -> Iterator[tuple[str, int]]:
    for each in manifests.agents():
        for text in variables(agent_container(each))["PENSTOCK_ADVERTISE"].split(","):
            yield _listener(text)[1]


def _users(texts: Mapping[str, str]) -> dict[str, Any]:
    return tomllib.loads(texts["users.toml"]) if "users.toml" in texts else {}


def _paths(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for each in value.values():
                yield from _paths(each)
        case list():
            for each in value:
                yield from _paths(each)


def _ports(rule: Manifest) -> list[Any]:
    return [port["port"] for port in rule["ports"]]


def _selector() -> dict[str, str]:
    return {"app.kubernetes.io/name": "penstock", "app.kubernetes.io/instance": "records"}
