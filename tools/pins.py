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
