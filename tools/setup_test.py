"""Everything that `make test` and `make check` need beside the broker.

python3 -m tools.setup_test
"""

from tools import pins
from tools.environment import sync
from tools.go_clients import CLIENTS, ensure_go_client
from tools.go_servers import ensure_etcd, ensure_minio, ensure_promtool
from tools.helm import ensure_helm
from tools.jars import TITLES, ensure_jars
from tools.java_runtime import ensure_java
from tools.kafka_python import ensure_kafka_python
from tools.kubeconform import ensure_kubeconform, ensure_schemas
from tools.mermaid import ensure_mermaid
from tools.steps import cache_folder, main, say


def _main() -> None:
    say(f"test set-up (cache: {cache_folder()})")
    sync(["test", "lint"])
    java = ensure_java()
    for jar_set in TITLES:
        ensure_jars(jar_set, java)
    ensure_minio()
    for version in (pins.ETCD, pins.ETCD_OLDEST):
        ensure_etcd(version)
    ensure_promtool()
    for client in CLIENTS:
        ensure_go_client(client)
    ensure_kafka_python()
    ensure_mermaid()
    ensure_helm()
    ensure_kubeconform()
    for kubernetes in pins.KUBERNETES_SCHEMAS:
        ensure_schemas(kubernetes)


if __name__ == "__main__":
    main(_main)
