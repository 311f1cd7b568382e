"""The table of options.

Flags of the command line, names in the environment, keys of the file and docs/reference/options.md follow from these
rows. An option whose value is a setting as it stands is a field of `PlainSettings`. The others are rows of `_COMBINED`,
which `agent.config.settings` makes settings of. `agent.config.option_sources` reads the values of all of them.

Above 500 lines, for each option is some lines, and one table holds them all.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum, auto
from typing import Annotated, get_type_hints

from agent.config.addresses import read_http_address, read_ledger_url, read_listener, read_store_url
from agent.config.audit_classes import read_audit_class
from protocol.limits import (
    ARCHIVE_AGE_MS_DEFAULT,
    ARCHIVE_BYTES_DEFAULT,
    AUDIT_LOG_FILE_BYTES_MIN,
    AUDIT_LOG_FILES_KEPT,
    CATALOG_CREDENTIALS_SECONDS_MAX,
    CATALOG_CREDENTIALS_SECONDS_MIN,
    KIB,
    MIB,
    PROCESSES_MAX,
    READ_CACHE_BYTES_DEFAULT,
    READ_CACHE_BYTES_MAX,
    READ_CACHE_BYTES_MIN,
    SNAPSHOT_BYTES_INTERVAL,
    SNAPSHOT_ENTRIES_INTERVAL,
    TAIL_INTERVAL_MS_DEFAULT,
)

DAY_SECONDS = 86_400
GIB = 1024 * MIB
FLUSH_INTERVAL_MS_EMBEDDED = 5
FLUSH_INTERVAL_MS_S3 = 250
"""A PUT costs money and time: the intake makes fewer, larger objects (ADR 8)."""


class OptionKind(Enum):
    """The type of an option's value."""

    TEXT = auto()
    LIST = auto()
    """Repeatable on the command line; in the environment separated by commas; in the file an array."""
    PAIRS = auto()
    """KEY=VALUE, repeatable; in the environment one per line or separated by commas; in the file a table."""
    FLAG = auto()
    COUNT = auto()
    BYTES = auto()
    """A number of bytes, or with a unit: 64MiB; or one of the option's `choices`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option. `minimum` and `maximum` are inclusive, in the kind's unit; `default` is the text of the documents."""

    name: str = ""
    kind: OptionKind
    help: str
    default: str = ""
    minimum: int = 0
    maximum: int = 0
    choices: tuple[str, ...] = ()
    is_cluster_only: bool = False
    may_be_empty: bool = False
    """Whether an empty text is a value, and means the default."""
    check: Callable[[str], object] | None = None
    """Raises `ValueError` with the reason for a text that is no value of this option."""

    @property
    def variable(self) -> str:
        return "PENSTOCK_" + self.name.upper().replace("-", "_")

    @property
    def field(self) -> str:
        return self.name.replace("-", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainSettings:
    """The settings that are the value of one option. Names of times and sizes end in their unit.

    The option of a field has the field's name, with hyphens, and its default, unless it says otherwise.
    """

    is_durable: Annotated[
        bool,
        Option(
            name="fsync",
            kind=OptionKind.FLAG,
            help="Syncs to disk before acknowledging. Without it a power failure can lose acknowledged records.",
        ),
    ] = True
    """Whether embedded ledger and store sync to disk before records are acknowledged."""
    is_time_accepted: Annotated[
        bool,
        Option(
            name="accept-time",
            kind=OptionKind.FLAG,
            help="Accepts at this start a clock far ahead of the ledger's last time, if the store has no clock. Use it "
            "once, after checking the clock.",
        ),
    ] = False
    """Whether the clock is believed at this start (safety rule S21)."""
    is_rules_held: Annotated[
        bool | None,
        Option(
            name="hold-rules",
            kind=OptionKind.FLAG,
            default="the hold stays as it is",
            help="Holds the cluster's rules version at the one in force, so that an upgrade can be taken back. "
            "--no-hold-rules ends the hold.",
        ),
    ] = None
    """Whether the rules version is to be held (safety rule S3); None leaves the hold as it is."""
    is_taking_over_name: Annotated[
        bool,
        Option(
            name="take-over-name",
            kind=OptionKind.FLAG,
            is_cluster_only=True,
            help="At its start the agent ends a session that holds its name, instead of waiting up to 9 seconds for "
            "its end. For names that no other agent can have, as with names of pods.",
        ),
    ] = False
    """Whether the agent ends a session that holds its name at its start, which is then a dead process's."""
    log_level: Annotated[
        str,
        Option(
            kind=OptionKind.TEXT,
            choices=("debug", "info", "warning", "error"),
            help="Lowest level of messages logged to stderr.",
        ),
    ] = "info"
    log_format: Annotated[
        str,
        Option(
            kind=OptionKind.TEXT,
            choices=("text", "json"),
            help="Format of a log message: one line of text, or one JSON object.",
        ),
    ] = "text"
    flush_interval_ms: Annotated[
        int,
        Option(
            kind=OptionKind.COUNT,
            default=f"{FLUSH_INTERVAL_MS_EMBEDDED}; with s3:// {FLUSH_INTERVAL_MS_S3}",
            minimum=0,
            maximum=60_000,
            help="Longest time that a produced batch waits to share an object with others. 0 writes at once. Shorter "
            "intervals cost more requests.",
        ),
    ] = FLUSH_INTERVAL_MS_EMBEDDED
    archive_interval_s: Annotated[
        int,
        Option(
            kind=OptionKind.COUNT,
            minimum=1,
            maximum=DAY_SECONDS,
            help="Seconds between two archive passes of a topic with new records. A topic that brings a 32nd of "
            "archive-bytes in a 15th of them is archived then. Records that wait at the start count as 15 minutes "
            "old.",
        ),
    ] = ARCHIVE_AGE_MS_DEFAULT // 1000
    archive_bytes: Annotated[
        int,
        Option(
            kind=OptionKind.BYTES,
            minimum=KIB,
            maximum=256 * MIB,
            help="Unarchived bytes of a topic that start an archive pass before the interval ends.",
        ),
    ] = ARCHIVE_BYTES_DEFAULT
    tail_interval_ms: Annotated[
        int,
        Option(
            kind=OptionKind.COUNT,
            minimum=0,
            maximum=60 * 60 * 1000,
            help="Shortest time between two tail manifests, from which Spark reads unarchived records. 0 writes none. "
            "Each costs a request, only after changes.",
        ),
    ] = TAIL_INTERVAL_MS_DEFAULT
    gc_min_age_s: Annotated[
        int,
        Option(
            kind=OptionKind.COUNT,
            minimum=0,
            maximum=30 * DAY_SECONDS,
            help="Seconds between the release and the deletion of an object. Use at least the duration of your longest "
            "Spark job.",
        ),
    ] = 3600
    catalog_credentials_s: Annotated[
        int,
        Option(
            kind=OptionKind.COUNT,
            minimum=CATALOG_CREDENTIALS_SECONDS_MIN,
            maximum=CATALOG_CREDENTIALS_SECONDS_MAX,
            help="Lifetime in seconds of vended S3 credentials. A reader whose rights are revoked can use them until "
            "then.",
        ),
    ] = CATALOG_CREDENTIALS_SECONDS_MAX
    read_cache_bytes: Annotated[
        int,
        Option(
            kind=OptionKind.BYTES,
            default="auto",
            choices=("auto",),
            minimum=READ_CACHE_BYTES_MIN,
            maximum=READ_CACHE_BYTES_MAX,
            help="Memory for recently read and written objects. auto is a quarter of the memory limit of the control "
            "group (a container's), shared by --processes, and 256MiB without one.",
        ),
    ] = READ_CACHE_BYTES_DEFAULT
    snapshot_entries: Annotated[
        int,
        Option(
            kind=OptionKind.COUNT,
            minimum=10,
            maximum=10_000_000,
            help="Ledger entries between two snapshots of the state.",
        ),
    ] = SNAPSHOT_ENTRIES_INTERVAL
    snapshot_bytes: Annotated[
        int,
        Option(
            kind=OptionKind.BYTES,
            minimum=64 * KIB,
            maximum=GIB,
            help="Bytes of ledger entries between two snapshots of the state, if they come first.",
        ),
    ] = SNAPSHOT_BYTES_INTERVAL
    processes: Annotated[
        int,
        Option(
            kind=OptionKind.COUNT,
            minimum=1,
            maximum=PROCESSES_MAX,
            is_cluster_only=True,
            help="Number of agents, each in its own process: NAME-0, NAME-1, ... on ports PORT, PORT+1, ... At most "
            "one per core.",
        ),
    ] = 1
    drain_timeout_s: Annotated[
        int,
        Option(
            kind=OptionKind.COUNT,
            minimum=0,
            maximum=3600,
            help="Seconds that a stopping agent gives to requests in progress.",
        ),
    ] = 20
    store_timeout_s: Annotated[
        int,
        Option(
            kind=OptionKind.COUNT,
            minimum=1,
            maximum=600,
            help="Time-out in seconds of one request to an s3:// store. The agent then repeats the request.",
        ),
    ] = 30
    store_hedge_after_ms: Annotated[
        int,
        Option(
            kind=OptionKind.COUNT,
            minimum=0,
            maximum=60_000,
            help="Milliseconds after which the agent repeats a slow put and takes the faster answer. 0 turns it off. "
            "Each repeat costs a request.",
        ),
    ] = 0


_COMBINED: tuple[Option, ...] = (
    Option(
        name="listen",
        kind=OptionKind.LIST,
        default="127.0.0.1:9092",
        check=read_listener,
        help="Address for Kafka clients, [NAME://]HOST:PORT. Repeatable, with a unique name for each listener. SSL as "
        "name encrypts. Port 0 takes a free port. 0.0.0.0 is every IPv4 address, [::] every address of both families.",
    ),
    Option(
        name="advertise",
        kind=OptionKind.LIST,
        default="the address of --listen",
        check=read_listener,
        help="Address that the agent returns to clients of a listener, [NAME://]HOST:PORT. Repeatable, by the "
        "listener's name. In the host {name} stands for the agent's name, and {dashed:ADDRESS} for an IP address with "
        "dashes, as Kubernetes names endpoints.",
    ),
    Option(
        name="http",
        kind=OptionKind.TEXT,
        default="127.0.0.1:9644",
        check=read_http_address,
        help="HTTP address of health, metrics, admin API, Iceberg catalog and schema registry, [https://]HOST:PORT.",
    ),
    Option(
        name="advertise-http",
        kind=OptionKind.TEXT,
        default="the address of --http; none if that is every interface",
        check=read_http_address,
        help="Address of this agent's HTTP port for people and other agents, [https://]HOST:PORT. The host may have "
        "{name} and {dashed:ADDRESS}, as in --advertise.",
    ),
    Option(
        name="tls-cert",
        kind=OptionKind.TEXT,
        default="none",
        help="PEM file of the certificate and its intermediate certificates, for all addresses that encrypt.",
    ),
    Option(
        name="tls-key",
        kind=OptionKind.TEXT,
        default="none",
        help="PEM file of that certificate's private key. The agent reads both files again when they change.",
    ),
    Option(
        name="tls-client-ca",
        kind=OptionKind.TEXT,
        default="none; clients need no certificate",
        help="PEM file of the authorities of clients. Listeners that encrypt then require a certificate of them.",
    ),
    Option(
        name="http-token-file",
        kind=OptionKind.TEXT,
        default="none; only this machine may use the HTTP port",
        help="File of bearer tokens, one per line. Every HTTP request must carry one of them, except to /live and "
        "/ready.",
    ),
    Option(
        name="metrics-open",
        kind=OptionKind.FLAG,
        default="false",
        help="Answers /metrics to everybody who can reach the HTTP port, without a token.",
    ),
    Option(
        name="bootstrap-users",
        kind=OptionKind.TEXT,
        default="none",
        help="TOML file of the cluster's first users, with passwords and ACLs. It is used once: later starts, and "
        "clusters that have, or had, users ignore it.",
    ),
    Option(
        name="plain-users",
        kind=OptionKind.TEXT,
        default="none; PLAIN checks the cluster's SCRAM credentials",
        help="File of users for the SASL mechanism PLAIN, with a SCRAM verifier each, one per line: "
        "NAME:SCRAM-SHA-512$ITERATIONS:SALT$STORED_KEY:SERVER_KEY. They come before the cluster's users.",
    ),
    Option(
        name="catalog-vended-credentials",
        kind=OptionKind.TEXT,
        default="auto",
        choices=("auto", "sts", "none"),
        help="Vends S3 credentials from STS that can read one table. auto does so if the store has its own endpoint "
        "or --catalog-role-arn is set; if STS fails, tables come without credentials.",
    ),
    Option(
        name="catalog-role-arn",
        kind=OptionKind.TEXT,
        default="none; required on AWS",
        help="IAM role that the agent assumes to vend credentials. The role must be able to read the bucket.",
    ),
    Option(
        name="catalog-s3-endpoint",
        kind=OptionKind.TEXT,
        default="the agent's endpoint",
        help="URL of the s3:// store as engines reach it, if it differs from the agent's endpoint.",
    ),
    Option(
        name="external-catalogs",
        kind=OptionKind.TEXT,
        default="none",
        help="TOML file that lists external catalogs (SQL, REST, Glue, Hive). The agent keeps its tables registered "
        "in each of them.",
    ),
    Option(
        name="data-dir",
        kind=OptionKind.TEXT,
        default="./penstock-data",
        help="Folder of the embedded bucket (store/) and the embedded ledger: a journal (journal/), or SQLite "
        "(ledger.sqlite) where --store names another bucket. The path must not contain # or ?.",
    ),
    Option(
        name="cache-dir",
        kind=OptionKind.TEXT,
        default="beside the program, else ~/.cache/numba",
        help="Folder for compiled code, if that of an image does not fit this CPU, or the program's folder cannot be "
        "written. Without any, each start compiles: ten seconds of a processor.",
    ),
    Option(
        name="ledger",
        kind=OptionKind.TEXT,
        default="required by penstock agent",
        is_cluster_only=True,
        check=read_ledger_url,
        help="URL of the cluster's ledger: etcd://HOST:PORT[,HOST:PORT...]/CLUSTER, etcds:// for TLS, "
        "journal:///DIR/journal with --store file:///DIR/NAME, sqlite:///PATH or memory:.",
    ),
    Option(
        name="ledger-ca",
        kind=OptionKind.TEXT,
        default="public authorities",
        is_cluster_only=True,
        help="PEM file of the certificate authorities of etcd. Turns TLS on.",
    ),
    Option(
        name="ledger-cert",
        kind=OptionKind.TEXT,
        default="none",
        is_cluster_only=True,
        help="PEM file of the client certificate for etcd. Turns TLS on and requires --ledger-key.",
    ),
    Option(
        name="ledger-key",
        kind=OptionKind.TEXT,
        default="none",
        is_cluster_only=True,
        help="PEM file of the client certificate's private key, unencrypted.",
    ),
    Option(
        name="ledger-user",
        kind=OptionKind.TEXT,
        default="none",
        is_cluster_only=True,
        help="User name for etcd. The password comes from --ledger-password-file or PENSTOCK_LEDGER_PASSWORD.",
    ),
    Option(
        name="ledger-password-file",
        kind=OptionKind.TEXT,
        default="none",
        is_cluster_only=True,
        help="File whose first line is the password of --ledger-user.",
    ),
    Option(
        name="etcd-compaction",
        kind=OptionKind.FLAG,
        default="true",
        is_cluster_only=True,
        help="Agents compact etcd's history behind the trimmed ledger. Turn it off if etcd compacts itself "
        "(--auto-compaction-retention).",
    ),
    Option(
        name="ledger-quota-bytes",
        kind=OptionKind.BYTES,
        default="etcd 3.6 reports it; for older versions 2GiB",
        minimum=MIB,
        maximum=1024 * GIB,
        is_cluster_only=True,
        help="etcd's --quota-backend-bytes. Agents free space before etcd reaches it.",
    ),
    Option(
        name="store",
        kind=OptionKind.TEXT,
        default="store/ in the data folder; required by penstock agent",
        check=read_store_url,
        help="URL of the bucket: s3://BUCKET/PREFIX with the usual AWS_ variables, file:///PATH or memory:.",
    ),
    Option(
        name="name",
        kind=OptionKind.TEXT,
        default="penstock for run; the host name for agent",
        help="Name of this agent. It determines the node id and must be unique among the live agents of a cluster.",
    ),
    Option(
        name="zone",
        kind=OptionKind.TEXT,
        default="none",
        may_be_empty=True,  # a pod whose node has no zone gets an empty variable from Kubernetes
        help="Availability zone of this agent. Clients in the same zone then read from it. Empty for none.",
    ),
    Option(
        name="set",
        kind=OptionKind.PAIRS,
        default="Kafka's defaults",
        help="A Kafka broker config by its Kafka name, KEY=VALUE. Repeatable.",
    ),
    Option(
        name="audit-log",
        kind=OptionKind.TEXT,
        default="none; DATA_DIR/audit.log with --secure",
        help="Where log-ins, denied operations and changes are recorded: stderr, the path of a file, or topic for the "
        "topic __penstock_audit.",
    ),
    Option(
        name="audit-log-bytes",
        kind=OptionKind.BYTES,
        default="no bound; 16MiB for the file of --secure",
        minimum=AUDIT_LOG_FILE_BYTES_MIN,
        maximum=GIB,
        help=f"Size at which the file of --audit-log is renamed to FILE.1, and a new one begun. "
        f"{AUDIT_LOG_FILES_KEPT} such files are kept. Changes go to a file of their own then, with as many older ones: "
        "audit-changes.log beside audit.log.",
    ),
    Option(
        name="audit-log-classes",
        kind=OptionKind.LIST,
        default="authentication, denied, change and credential",
        check=read_audit_class,
        help="Classes of events that the audit log has: authentication, denied, change, credential, allowed. "
        "Repeatable.",
    ),
    Option(
        name="secure",
        kind=OptionKind.FLAG,
        default="false",
        help="Encrypts and authenticates by files of its own in the data folder: an authority, a certificate, a user "
        "admin with a random password, admin.properties for Kafka's tools, and an audit log. penstock run only.",
    ),
    Option(
        name="insecure",
        kind=OptionKind.FLAG,
        default="false",
        help="Allows addresses that other machines can reach without encryption.",
    ),
)


def _plain_options() -> dict[str, Option]:
    """The options of `PlainSettings` by the names of its fields."""
    hints = get_type_hints(PlainSettings, include_extras=True)
    options: dict[str, Option] = {}
    for setting in fields(PlainSettings):
        (option,) = hints[setting.name].__metadata__
        name = option.name or setting.name.replace("_", "-")
        options[setting.name] = replace(option, name=name, default=option.default or _shown(option, setting.default))
    return options


def _shown(option: Option, default: object) -> str:
    """The default of a setting as the documents show it."""
    if option.kind is OptionKind.BYTES:
        assert isinstance(default, int)
        return f"{default // MIB}MiB"
    return str(default).lower()


PLAIN_OPTIONS: Mapping[str, Option] = _plain_options()
OPTIONS: tuple[Option, ...] = (*_COMBINED, *PLAIN_OPTIONS.values())
OPTIONS_BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}
