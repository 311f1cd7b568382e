"""The table of options.

Rule: an option stands here once; the command line's flags, the environment's names, the file's keys and
docs/CONFIGURATION.md follow from the row. Where values come from: `agent.config.option_sources`; what they mean for the
agent: `agent.config.settings`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from agent.config.addresses import read_host_port, read_ledger_url, read_listener, read_store_url
from protocol.limits import (
    ARCHIVE_AGE_MS_DEFAULT,
    ARCHIVE_BYTES_DEFAULT,
    KIB,
    MIB,
    PROCESSES_MAX,
    READ_CACHE_BYTES_DEFAULT,
    SNAPSHOT_BYTES_INTERVAL,
    SNAPSHOT_ENTRIES_INTERVAL,
    TAIL_INTERVAL_MS_DEFAULT,
)

DAY_SECONDS = 86_400
GIB = 1024 * MIB


class Kind(Enum):
    TEXT = auto()
    LIST = auto()
    """Repeatable on the command line; in the environment separated by commas; in the file an array."""
    PAIRS = auto()
    """KEY=VALUE, repeatable; in the environment one per line or separated by commas; in the file a table."""
    FLAG = auto()
    COUNT = auto()
    BYTES = auto()
    """A number of bytes, or with a unit: 64MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One row. `minimum` and `maximum` are inclusive and of the kind's unit; `default` is what the documents show."""

    name: str
    kind: Kind
    help: str
    default: str
    minimum: int = 0
    maximum: int = 0
    choices: tuple[str, ...] = ()
    is_cluster_only: bool = False
    check: Callable[[str], object] | None = None
    """Raises `ValueError` for a text that is no value of this option, and says why."""

    @property
    def variable(self) -> str:
        return "PENSTOCK_" + self.name.upper().replace("-", "_")

    @property
    def field(self) -> str:
        return self.name.replace("-", "_")


OPTIONS: tuple[Option, ...] = (
    Option(
        name="listen",
        kind=Kind.LIST,
        default="127.0.0.1:9092",
        check=read_listener,
        help="Address for Kafka clients, [NAME://]HOST:PORT; repeatable, one name each. Port 0 takes a free one.",
    ),
    Option(
        name="advertise",
        kind=Kind.LIST,
        default="what --listen says",
        check=read_listener,
        help="Address that clients are told to connect to, [NAME://]HOST:PORT; repeatable, by the listener's name.",
    ),
    Option(
        name="http",
        kind=Kind.TEXT,
        default="127.0.0.1:9644",
        check=read_host_port,
        help="Address of health, metrics, admin and the Iceberg catalog, HOST:PORT.",
    ),
    Option(
        name="http-token-file",
        kind=Kind.TEXT,
        default="none: this machine alone is answered",
        help="File with the tokens, one a line, of which requests to catalog and schema registry must show one.",
    ),
    Option(
        name="catalog-vended-credentials",
        kind=Kind.TEXT,
        default="auto",
        choices=("auto", "sts", "none"),
        help="Keys that engines get with a table of an s3:// store: from STS, for this table's files, to read. auto: "
        "where the store has an endpoint of its own or --catalog-role-arn is given; without keys if STS gives none.",
    ),
    Option(
        name="catalog-role-arn",
        kind=Kind.TEXT,
        default="none; AWS needs one",
        help="Role that the agent takes to make those keys; it must be allowed to read the bucket.",
    ),
    Option(
        name="catalog-s3-endpoint",
        kind=Kind.TEXT,
        default="the agent's own",
        help="URL at which engines find the s3:// store, if it is another one for them.",
    ),
    Option(
        name="external-catalogs",
        kind=Kind.TEXT,
        default="none",
        help="TOML file of catalogs of others (SQL, REST, Glue, Hive) in which topics' tables are to be found, too.",
    ),
    Option(
        name="data-dir",
        kind=Kind.TEXT,
        default="./penstock-data",
        help="Folder of the embedded ledger (ledger.sqlite) and bucket (store/), without # and ?.",
    ),
    Option(
        name="ledger",
        kind=Kind.TEXT,
        default="required by penstock agent",
        is_cluster_only=True,
        check=read_ledger_url,
        help="The cluster's ledger: etcd://HOST:PORT[,HOST:PORT...]/CLUSTER (over TLS etcds://), sqlite:///PATH or "
        "memory:.",
    ),
    Option(
        name="ledger-ca",
        kind=Kind.TEXT,
        default="public authorities",
        is_cluster_only=True,
        help="PEM file of the authorities that vouch for etcd's certificate; turns TLS on.",
    ),
    Option(
        name="ledger-cert",
        kind=Kind.TEXT,
        default="none",
        is_cluster_only=True,
        help="PEM file of the client certificate that etcd is shown; turns TLS on. Needs --ledger-key.",
    ),
    Option(
        name="ledger-key",
        kind=Kind.TEXT,
        default="none",
        is_cluster_only=True,
        help="PEM file of the client certificate's key, not encrypted.",
    ),
    Option(
        name="ledger-user",
        kind=Kind.TEXT,
        default="none",
        is_cluster_only=True,
        help="User to log in to etcd as. The password is in --ledger-password-file or in PENSTOCK_LEDGER_PASSWORD.",
    ),
    Option(
        name="ledger-password-file",
        kind=Kind.TEXT,
        default="none",
        is_cluster_only=True,
        help="File whose first line is the password of --ledger-user.",
    ),
    Option(
        name="etcd-compaction",
        kind=Kind.FLAG,
        default="true",
        is_cluster_only=True,
        help="Let etcd forget its history behind the trimmed ledger. Without it etcd must compact by itself "
        "(--auto-compaction-retention).",
    ),
    Option(
        name="ledger-quota-bytes",
        kind=Kind.BYTES,
        default="what etcd 3.6 tells; before that etcd's default of 2GiB",
        minimum=MIB,
        maximum=1024 * GIB,
        is_cluster_only=True,
        help="etcd's --quota-backend-bytes, so that agents make room before it is reached.",
    ),
    Option(
        name="store",
        kind=Kind.TEXT,
        default="store/ in the data folder; required by penstock agent",
        check=read_store_url,
        help="The bucket: s3://BUCKET/PREFIX (with the usual AWS_ variables), file:///PATH or memory:.",
    ),
    Option(
        name="name",
        kind=Kind.TEXT,
        default="penstock for run; the machine's name for agent",
        help="This agent's name, from which its node id follows; no two live agents of a cluster may have the same.",
    ),
    Option(
        name="zone", kind=Kind.TEXT, default="none", help="Availability zone, so that clients read from a near agent."
    ),
    Option(
        name="set",
        kind=Kind.PAIRS,
        default="Kafka's defaults",
        help="One of Kafka's broker configs by its own name, KEY=VALUE; repeatable.",
    ),
    Option(
        name="insecure",
        kind=Kind.FLAG,
        default="false",
        help="Allow addresses that other machines can reach, although nothing is encrypted or authenticated yet.",
    ),
    Option(
        name="fsync",
        kind=Kind.FLAG,
        default="true",
        help="Wait for the disk before acknowledging. Without it a loss of power can lose acknowledged records.",
    ),
    Option(
        name="accept-time",
        kind=Kind.FLAG,
        default="false",
        help=(
            "Believe at this start a clock that is far ahead of the ledger's last time, where the store has no clock "
            "of its own. Give it once, after you have checked the clock."
        ),
    ),
    Option(
        name="log-level",
        kind=Kind.TEXT,
        default="info",
        choices=("debug", "info", "warning", "error"),
        help="What is logged to stderr.",
    ),
    Option(
        name="log-format",
        kind=Kind.TEXT,
        default="text",
        choices=("text", "json"),
        help="One line of text, or one JSON object, per message.",
    ),
    Option(
        name="flush-interval-ms",
        kind=Kind.COUNT,
        default="5; with s3:// 250",
        minimum=0,
        maximum=60_000,
        help="How long a produced batch may wait for others to share its object; 0 writes at once while nothing is on "
        "its way. Shorter costs requests.",
    ),
    Option(
        name="archive-interval-s",
        kind=Kind.COUNT,
        default=str(ARCHIVE_AGE_MS_DEFAULT // 1000),
        minimum=1,
        maximum=DAY_SECONDS,
        help="Seconds between two archive passes of a topic that has new records. What waited before an agent began "
        "counts as having waited for a quarter of an hour.",
    ),
    Option(
        name="archive-bytes",
        kind=Kind.BYTES,
        default=f"{ARCHIVE_BYTES_DEFAULT // MIB}MiB",
        minimum=KIB,
        maximum=256 * MIB,
        help="Unarchived bytes of a topic at which a pass begins before the interval is over.",
    ),
    Option(
        name="tail-interval-ms",
        kind=Kind.COUNT,
        default=str(TAIL_INTERVAL_MS_DEFAULT),
        minimum=0,
        maximum=60 * 60 * 1000,
        help="How often the bucket is told, at most, where records lie that are not archived yet, for Spark jobs that "
        "read them without a broker; 0 never does. Each costs a request, and only while something changes.",
    ),
    Option(
        name="gc-min-age-s",
        kind=Kind.COUNT,
        default="3600",
        minimum=0,
        maximum=30 * DAY_SECONDS,
        help="Seconds before a released object is deleted; no shorter than your longest Spark job's plan lives.",
    ),
    Option(
        name="read-cache-bytes",
        kind=Kind.BYTES,
        default=f"{READ_CACHE_BYTES_DEFAULT // MIB}MiB",
        minimum=MIB,
        maximum=1024 * GIB,
        help="Memory for objects that were read or written lately.",
    ),
    Option(
        name="snapshot-entries",
        kind=Kind.COUNT,
        default=str(SNAPSHOT_ENTRIES_INTERVAL),
        minimum=10,
        maximum=10_000_000,
        help="Ledger entries between two snapshots of the state.",
    ),
    Option(
        name="snapshot-bytes",
        kind=Kind.BYTES,
        default=f"{SNAPSHOT_BYTES_INTERVAL // MIB}MiB",
        minimum=64 * KIB,
        maximum=GIB,
        help="Bytes of ledger entries between two snapshots, if that comes first.",
    ),
    Option(
        name="processes",
        kind=Kind.COUNT,
        default="1",
        minimum=1,
        maximum=PROCESSES_MAX,
        is_cluster_only=True,
        help="How many agents to run, each in a process of its own: NAME-0, NAME-1, ... at ports PORT, PORT+1, ... of "
        "every address. One for each core, at most.",
    ),
    Option(
        name="drain-timeout-s",
        kind=Kind.COUNT,
        default="20",
        minimum=0,
        maximum=3600,
        help="Seconds that a stopping agent gives to requests in progress.",
    ),
    Option(
        name="store-timeout-s",
        kind=Kind.COUNT,
        default="30",
        minimum=1,
        maximum=600,
        help="Seconds that one request to an s3:// store may take; then it is repeated.",
    ),
    Option(
        name="store-hedge-after-ms",
        kind=Kind.COUNT,
        default="0",
        minimum=0,
        maximum=60_000,
        help="Put an object once more when its put takes this long, and go on with the faster one; 0 never does. "
        "Each costs a request.",
    ),
)
OPTIONS_BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}
