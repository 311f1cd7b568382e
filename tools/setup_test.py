"""Everything that `make test` and `make check` need beside the broker.

    python3 -m tools.setup_test

Programs of Go are built by a process beside the others: compilers want all cores, the other steps wait for registries.
"""

import sys

from tools import pins
from tools.environment import sync
from tools.go_clients import CLIENTS, ensure_go_client
from tools.go_servers import ensure_etcd, ensure_minio, ensure_promtool
from tools.jars import TITLES, ensure_jars
from tools.java_runtime import ensure_java
from tools.kafka_python import ensure_kafka_python
from tools.kubernetes.helm import ensure_helm
from tools.kubernetes.kubeconform import ensure_kubeconform, ensure_schemas
from tools.pages.mermaid import ensure_mermaid
from tools.steps import beside, cache_folder, main, say

GO_PROGRAMS = "go-programs"
"""Argument of the process that builds them."""


def _main() -> None:
    if sys.argv[1:] == [GO_PROGRAMS]:
        _go_programs()
        return
    say(f"test set-up (cache: {cache_folder()})")
    with beside("what is built by Go", [sys.executable, "-m", "tools.setup_test", GO_PROGRAMS]):
        sync(["test", "lint"])
        java = ensure_java()
        for jar_set in TITLES:
            ensure_jars(jar_set, java)
        ensure_kafka_python()
        ensure_mermaid()
        ensure_helm()


def _go_programs() -> None:
    ensure_minio()
    for version in (pins.ETCD, pins.ETCD_OLDEST):
        ensure_etcd(version)
    ensure_promtool()
    for client in CLIENTS:
        ensure_go_client(client)
    ensure_kubeconform()
    for kubernetes in pins.KUBERNETES_SCHEMAS:
        ensure_schemas(kubernetes)


if __name__ == "__main__":
    main(_main)
