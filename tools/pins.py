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

JAVA_VERSIONS = (17, 21)
"""Java runtimes that Spark and Kafka are tested with; another one on the PATH is passed over."""

LIBRDKAFKA = (
    "@confluentinc/kafka-javascript",
    "1.10.1",
    "ada7d703bb1d3237e2292bfabf438d663b6160c9f1ac2a2406b5dc4257c81b66",
)
"""An npm package with the sources of librdkafka 2.15.1 and of its tests: name, version, SHA-256 of its archive."""
ZLIB = ("zlib-sync", "0.1.10", "bd2180fc18426cf464ecab1321bb31a1af81c36b927a28cdb26c3a56f302f2b6")
"""An npm package with the sources of zlib, for librdkafka."""
ZSTD = ("zstd-napi", "0.0.13", "5b76defc67c808989c5f3920e14f662d6318b84b8d53ac3e94b99463d8d65e76")
"""An npm package with the sources of zstd, for librdkafka."""
RAPIDJSON = ("python-rapidjson", "1.25", "97c1de449552ec28ac5ae89350c2b53e4c5d21a9b4308d7a1630b1099e5db9fc")
"""A Python source distribution with RapidJSON's headers, for librdkafka's tests."""
KAFKA_PYTHON = ("kafka-python", "3.0.12", "4ccda3616b9aa5c353d74a97f2770d6cd1b950890d77ab0e8890e09a48eeed65")
"""The source distribution with kafka-python's tests; its version is that of `uv.lock`, which installs the client."""
MERMAID = ("mermaid", "11.12.1", "3bd65ddefe97fb2e01d976a01d4078f8d773bfc56c6a75a9abf08b564ce0f8b2")
"""An npm package with the parser of the documents' diagrams."""
