"""A release of the chart in the lab: its agents, and what is done to it."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tests.kube.clients import ClientSettings
from tests.support.cluster.conditions import wait_until
from tools.kube_lab.lab import CHART, Lab, LabCommandFailed

READY_SECONDS_MAX = 180.0
LOST_SECONDS_MAX = 120.0
ETCD_MEMBERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod with one container."""

    name: str
    node: str
    tag: str
    """Of its image."""
    address: str
    is_ready: bool
    restarts: int
    container: str
    """Id of its container."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release by its name, in a namespace that `Lab.create_namespace` made."""

    lab: Lab
    name: str
    namespace: str
    options: tuple[str, ...] = ()
    """Options of helm that every upgrade has."""
    client_settings: ClientSettings = field(default_factory=dict)
    address: str = ""
    """Where clients connect to, if it is not the Service inside the cluster."""

    @property
    def full_name(self) -> str:
        """The name of the chart's objects."""
        return f"{self.name}-penstock"

    @property
    def bootstrap(self) -> str:
        return self.address or f"{self.full_name}.{self.namespace}.svc:9092"

    def install(self, *options: str, chart: Path = CHART) -> None:
        """Install or upgrade it, and wait until all of it is ready. `options`: those of helm."""
        self.lab.install(self.name, self.namespace, *self.options, *options, chart=chart)
        self.wait_until_ready()

    def revision(self) -> int:
        """The number of its last installation, upgrade or rollback."""
        history = self.lab.helm("history", self.name, "--namespace", self.namespace, "--output=json")
        return max(int(each["revision"]) for each in json.loads(history))

    def roll_back(self, *options: str) -> None:
        """Return to the revision before, or to one that `options` name, and wait until all of it is ready."""
        words = ("--namespace", self.namespace, "--wait", "--timeout=3m")
        self.lab.helm("rollback", self.name, *words, *options)
        self.wait_until_ready()

    def uninstall(self) -> None:
        self.lab.helm("uninstall", self.name, "--namespace", self.namespace, "--wait")

    def kubectl(self, *words: str) -> str:
        return self.lab.kubectl("--namespace", self.namespace, *words)

    def pods(self, component: str) -> list[Pod]:
        """The pods of a component of the chart, `agent` or `etcd`, but for those that are ending."""
        selector = f"app.kubernetes.io/instance={self.name},app.kubernetes.io/component={component}"
        items = self.lab.get("pods", "--namespace", self.namespace, "--selector", selector)["items"]
        pods = []
        for item in items:
            if "deletionTimestamp" in item["metadata"]:
                continue
            (status,) = item["status"].get("containerStatuses") or [{}]
            pods.append(
                Pod(
                    name=item["metadata"]["name"],
                    node=item["spec"].get("nodeName", ""),
                    tag=item["spec"]["containers"][0]["image"].rpartition(":")[2],
                    address=item["status"].get("podIP", ""),
                    is_ready=status.get("ready", False),
                    restarts=status.get("restartCount", 0),
                    container=status.get("containerID", "").removeprefix("containerd://"),
                )
            )
        return pods

    def agents(self) -> list[Pod]:
        return self.pods("agent")

    def restarts(self) -> dict[str, int]:
        """How often the container of each agent was started again, by pod."""
        return {agent.name: agent.restarts for agent in self.agents()}

    def wait_until_ready(self, agents: int = 3, *, members: int = ETCD_MEMBERS) -> float:
        """Return when so many agents, and no others, and so many members of etcd are ready. The seconds that passed."""

        def is_ready() -> bool:
            with suppress(LabCommandFailed):  # the API's server is busy
                ready = [pod.is_ready for pod in self.agents()]
                return len(ready) == agents and all(ready) and sum(pod.is_ready for pod in self.pods("etcd")) >= members
            return False

        return wait_until(is_ready, f"{agents} ready agents", seconds_max=READY_SECONDS_MAX)

    def restart_agents(self) -> None:
        """Replace all agents, one after the other. Returns when none of the former ones is left."""
        before = {agent.name for agent in self.agents()}
        deployment = f"deployment/{self.full_name}"
        self.kubectl("rollout", "restart", deployment)
        self.kubectl("rollout", "status", deployment, "--timeout=300s")
        self.wait_until_ready()
        assert before.isdisjoint(agent.name for agent in self.agents())

    def broker_addresses(self) -> set[str]:
        """The addresses that clients of `bootstrap` learn from Metadata."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, **self.client_settings})
        brokers = admin.list_topics(timeout=30).brokers.values()
        return {f"{broker.host}:{broker.port}" for broker in brokers}

    def in_agent(self, *words: str) -> str:
        """What a command of `penstock` writes in the container of a ready agent."""
        agent = next(agent for agent in self.agents() if agent.is_ready)
        return self.kubectl("exec", agent.name, "--", "/usr/bin/penstock", *words)

    def kill(self, pods: Sequence[Pod]) -> None:
        """End all processes of containers at once, as the kernel does when memory is short."""
        for pod in pods:
            self.lab.programs.cgroups.kill_container(pod.container)

    def lose_and_return_node(self) -> float:
        """Lose the node of an agent, and start it again when three agents are ready elsewhere. Returns when all is as
        before. The seconds until the agent was replaced.
        """
        node = self.agents()[0].node

        def is_replaced() -> bool:
            return sum(agent.node != node and agent.is_ready for agent in self.agents()) == 3

        def is_ready() -> bool:
            conditions = self.lab.get("node", node)["status"]["conditions"]
            return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

        self.lab.lose_node(node)
        seconds = wait_until(is_replaced, "an agent elsewhere", seconds_max=LOST_SECONDS_MAX)
        assert not is_ready(), f"the cluster did not notice that it lost node {node}"
        self.lab.return_node(node)
        wait_until(is_ready, "the node", seconds_max=LOST_SECONDS_MAX)
        self.wait_until_ready()
        return seconds

    def audit(self) -> str:
        """Run the chart's audit once, and return its report. Fails if the audit does."""
        job = f"{self.full_name}-audit"
        self.kubectl("delete", "job", job, "--ignore-not-found")
        self.kubectl("create", "job", job, f"--from=cronjob/{job}")

        def has_ended() -> bool:
            conditions = self.lab.get("job", job, "--namespace", self.namespace)["status"].get("conditions", [])
            return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)

        wait_until(has_ended, "the audit", seconds_max=READY_SECONDS_MAX)
        report = self.kubectl("logs", f"job/{job}")
        succeeded = self.lab.get("job", job, "--namespace", self.namespace)["status"].get("succeeded", 0)
        assert succeeded == 1, report
        return report
