"""Writes docs/reference/: pages of options, configs, metrics, the HTTP API and commands, from the product's own tables.

    python -m tools.pages.reference      (`make reference`)

`tests/architecture/test_reference.py` fails if a page differs from what the code gives.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from unittest.mock import Mock

import typer.main
from starlette.routing import BaseRoute, Mount, Route

from agent.cli.main import app as command_line
from agent.config.options import OPTIONS, OPTIONS_BY_NAME, Option, OptionKind
from agent.http.api import build_app
from agent.http.iceberg.catalog_config import CatalogParts
from agent.http.registry.rest_api import PREFIX as REGISTRY_PREFIX
from agent.http.registry.rest_api import rights_key
from agent.http.registry.rest_api import routes as registry_routes
from agent.security.required_http_rights import HTTP_RIGHTS, REGISTRY_RIGHTS
from coordinator.configs.broker_configs import BROKER_CONFIGS, CLUSTER_WIDE
from coordinator.configs.client_metrics_configs import CLIENT_METRICS_CONFIGS
from coordinator.configs.config_types import LONG_MAX, ConfigSpec, ConfigType, Effect
from coordinator.configs.group_configs import GROUP_CONFIGS, broker_name_of
from coordinator.configs.topic_configs import BROKER_SYNONYMS, TOPIC_CONFIGS
from protocol.auth.operations import Operation, ResourceType
from protocol.limits import HTTP_ROWS_DEFAULT, HTTP_ROWS_MAX, KIB, MIB
from tools.pages.http_routes import SECTIONS, RouteText
from tools.pages.metric_rows import metric_rows
from tools.steps import ROOT, say

FOLDER: Final = ROOT / "docs" / "reference"
NOTE: Final = "<!-- `make reference` writes this page from the code. -->"
UNITS: Final = ((1024 * MIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))


def pages() -> dict[str, str]:
    """Every page's text by its file name."""
    return {
        "options.md": options_page(),
        "topic-configs.md": topic_configs_page(),
        "broker-configs.md": broker_configs_page(),
        "metrics.md": metrics_page(),
        "http-api.md": http_page(),
        "cli.md": cli_page(),
    }


def page(title: str, *parts: str) -> str:
    return "\n\n".join((f"# {title}", NOTE, *(part.strip("\n") for part in parts))) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(columns), "|".join("---" for _ in columns)]
    lines += [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join(f"|{line}|" if set(line) <= {"-", "|"} else f"| {line} |" for line in lines)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


# Options

OPTIONS_INTRO: Final = """
Each option has three sources. The command line comes first, then the environment, then the file, then the default:

    penstock run --data-dir /srv/penstock
    PENSTOCK_DATA_DIR=/srv/penstock penstock run
    penstock run --config penstock.toml            # data-dir = "/srv/penstock"

An unknown name is an error that names the nearest known one. Penstock ignores the variables that Kubernetes sets for a
Service whose name starts with `penstock`, such as `PENSTOCK_PORT`.

`penstock run` is one process with an embedded ledger, and an embedded bucket unless `store` names another one.
`penstock agent` is one agent of a cluster and requires `ledger` and `store`. Options for `agent` alone have no flag in
`penstock run`.
"""
OPTIONS_NOTES: Final = """
## Forms of values

- **Flags**: `--NAME VALUE`. `listen`, `advertise` and `set` are repeatable. A switch is `--fsync` or `--no-fsync`.
- **Environment**: commas or line breaks separate the values of a list. Values of one line each may contain commas.
- **Bytes**: a number, or a number with a unit: `64MiB`, `1GB`.
- **File**: `--config FILE` or `PENSTOCK_CONFIG` names a TOML file. Its keys are the names of the options, and `set` is
  a table. The values of `set` are merged key by key over all sources.

```toml
data-dir = "/srv/penstock"
listen = ["INTERNAL://127.0.0.1:9092", "EXTERNAL://0.0.0.0:9094"]
advertise = ["EXTERNAL://broker.example.net:9094"]
insecure = true
archive-bytes = "32MiB"

[set]
"num.partitions" = 3
"auto.create.topics.enable" = false
```

## Other variables

| variable | meaning |
|---|---|
| `PENSTOCK_CONFIG` | Path of the TOML file, as `--config`. |
| `PENSTOCK_LEDGER_PASSWORD` | Password of `ledger-user`. |
| `PENSTOCK_SERVER`, `PENSTOCK_BOOTSTRAP`, `PENSTOCK_JSON` | Defaults for [commands](cli.md) on a running agent. |
| `AWS_...` | Credentials, region and endpoint of an [s3:// store](../operations/s3.md). |
"""


def options_page() -> str:
    rows = [
        (
            code(option.name),
            code(option.variable),
            option_type(option),
            option.default,
            "agent" if option.is_cluster_only else "run, agent",
            option.help,
        )
        for option in OPTIONS
    ]
    columns = ("option and file key", "environment", "type", "default", "commands", "meaning")
    return page("Options", OPTIONS_INTRO, "## All options", table(columns, rows), OPTIONS_NOTES)


def option_type(option: Option) -> str:
    match option.kind:
        case OptionKind.TEXT:
            return ", ".join(code(choice) for choice in option.choices) or "text"
        case OptionKind.LIST:
            return "list"
        case OptionKind.PAIRS:
            return "KEY=VALUE list"
        case OptionKind.FLAG:
            return "switch"
        case OptionKind.COUNT:
            return f"number, {option.minimum} to {option.maximum}"
        case OptionKind.BYTES:
            choices = "".join(f"{code(choice)}, or " for choice in option.choices)
            return f"{choices}bytes, {bytes_text(option.minimum)} to {bytes_text(option.maximum)}"


def bytes_text(count: int) -> str:
    for size, unit in UNITS:
        if count >= size and count % size == 0:
            return f"{count // size}{unit}"
    return str(count)


# Configs of topics, brokers, groups and client metrics

TOPIC_INTRO: Final = """
Topic configs have Kafka's names, types, defaults and limits. Names that start with `penstock.` are Penstock's own.

    penstock topics create orders --config retention.ms=3600000
    penstock topics alter orders --config retention.ms=7200000 --delete-config retention.bytes
    penstock topics describe orders --all

A topic without an own value takes the broker config of the last column, and then the default. *Accepted* configs are
stored and shown, and have no effect. [Broker configs](broker-configs.md) explains where values come from.
"""
BROKER_INTRO: Final = r"""
Broker configs have Kafka's names, types, defaults and limits. `--set KEY=VALUE` sets them at the start of an agent.
Kafka's tools alter the other ones while the cluster runs, and altered values survive restarts:

    kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type brokers --entity-default \
        --add-config message.max.bytes=2000000
    kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type brokers --entity-name 7 \
        --add-config message.max.bytes=3000000

The nearest source counts: the topic's own config, the value altered for this agent, the value altered for every agent,
`--set`, and the default. Give all agents the same values of `--set`, since any agent coordinates any group.

In the column *altered*, `start` means only by `--set`, `agent` for one agent or all of them, and `cluster` for all
agents. *Accepted* configs are stored and shown, and have no effect.
"""
LOGGER_NOTE: Final = r"""
## Log levels

Log levels are configs of the resource `broker-loggers`, named after modules. They last until the process ends:

    kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type broker-loggers --entity-name 7 \
        --add-config agent.maintenance=DEBUG
"""


def topic_configs_page() -> str:
    rows = [
        (*config_cells(spec), ", ".join(code(name) for name, _ in BROKER_SYNONYMS.get(spec.name, ())))
        for spec in TOPIC_CONFIGS.values()
    ]
    columns = ("config", "type", "default", "values", "effect", "meaning", "broker config")
    return page("Topic configs", TOPIC_INTRO, "## All topic configs", table(columns, rows))


def broker_configs_page() -> str:
    columns = ("config", "type", "default", "values", "effect", "meaning")
    brokers = [(*config_cells(spec), altered_by(spec)) for spec in BROKER_CONFIGS.values()]
    groups = [(*config_cells(spec), code(broker_name_of(spec.name) or "")) for spec in GROUP_CONFIGS.values()]
    return page(
        "Broker, group and client metrics configs",
        BROKER_INTRO,
        "## Broker configs",
        table((*columns, "altered"), brokers),
        "## Group configs",
        "These are configs of the resource `groups`. A group without an own value takes the broker config.",
        table((*columns, "broker config"), groups),
        "## Client metrics configs",
        "These are configs of the resource `client-metrics` (KIP-714). [Metrics](metrics.md#metrics-of-clients) shows "
        "the result.",
        table(columns, [config_cells(spec) for spec in CLIENT_METRICS_CONFIGS.values()]),
        LOGGER_NOTE,
    )


def altered_by(spec: ConfigSpec) -> str:
    if spec.is_read_only:
        return "start"
    return "cluster" if spec.name in CLUSTER_WIDE else "agent"


def config_cells(spec: ConfigSpec) -> tuple[str, ...]:
    effect = "yes" if spec.effect is Effect.HONOURED else "accepted"
    default = "none" if spec.default is None else code(number_text(spec.default)) or "empty"
    return code(spec.name), spec.type.name.lower(), default, values_text(spec), effect, spec.documentation


def values_text(spec: ConfigSpec) -> str:
    if spec.choices:
        return ", ".join(code(choice) for choice in spec.choices)
    if spec.type is ConfigType.BOOLEAN or (spec.low is None and spec.high is None):
        return ""
    bounds = [f"{number_text(str(bound))}" for bound in (spec.low, spec.high) if bound is not None]
    if spec.low is None:
        return f"at most {bounds[0]}"
    return f"at least {bounds[0]}" if spec.high is None else " to ".join(bounds)


def number_text(text: str) -> str:
    return "2^63-1" if text == str(LONG_MAX) else text


# Metrics

METRICS_INTRO: Final = """
`GET /metrics` returns these metrics as Prometheus text. [Monitoring](../operations/monitoring.md) says which to watch.
The `process_*` metrics of the Prometheus client stand beside them: CPU, memory and open files.

Metrics of the whole cluster have a value on one agent alone, the maintenance leader: topics, partitions, objects,
groups and transactions. So sums over all agents are right, as they are for the metrics of single agents. When another
agent becomes the leader, its counters begin at what it has applied since its own start.

Series are limited, so that a scrape stays small. It has at most 5,000 topics, 5,000 groups, and 5,000 pairs of a group
and a topic: those that are furthest behind. Log ends are there up to 5,000 partitions.
`penstock_series_dropped_total` counts what is left out.

Ages of records go by the append time in topics with `LogAppendTime`, and by producers' timestamps in all others.
"""
METRICS_OF_CLIENTS: Final = r"""
## Metrics of clients

Clients with KIP-714 push their own metrics: Java 3.7 or later, librdkafka 2.5 or later. Resources of the type
CLIENT_METRICS choose metrics, interval and clients:

    kafka-client-metrics.sh --bootstrap-server HOST:PORT --alter --name producers \
        --metrics org.apache.kafka.producer. --interval 60000

The agent that receives a push exposes it as `kafka_client_*`. For example `org.apache.kafka.producer.record.send.total`
becomes `kafka_client_producer_record_send_total`. The labels are `client_id`, `client_instance_id`,
`client_software_name` and the metric's own.

- An agent exposes gauges and sums, at most 500 series of a client and 5,000 of all clients.
  `penstock_client_telemetry_series_dropped_total` counts the rest.
- Series disappear three intervals after their client's last push, and after one minute at the earliest.
- A client may move from one agent to another. Each agent shows what it received, so add up the sums.
- `telemetry.max.bytes` limits one push.
"""


def metrics_page() -> str:
    rows = [(code(row.name), row.kind, ", ".join(map(code, row.labels)), row.text) for row in metric_rows()]
    return page(
        "Metrics", METRICS_INTRO, "## All metrics", table(("metric", "type", "labels", "meaning"), rows),
        METRICS_OF_CLIENTS,
    )  # fmt: skip


# HTTP API

HTTP_INTRO: Final = f"""
The HTTP port (`--http`) serves health, metrics, administration, the [Iceberg catalog](../tables.md) and the
[schema registry](../schema-registry.md). Bodies are JSON with `Content-Type: application/json`. GET routes also answer
HEAD, except in the schema registry.

- `limit` is {HTTP_ROWS_DEFAULT:,} by default and {HTTP_ROWS_MAX:,} at most.
- An error is `{{"error": {{"code": ..., "message": ..., "remedy": ...}}}}`. Below `/iceberg` it is
  `{{"error": {{"message": ..., "type": ..., "code": ...}}}}`, below `/schema-registry`
  `{{"error_code": ..., "message": ...}}`.
- A client that omits the prefix `/iceberg` or `/schema-registry` gets a 404 that names it.
- A request must arrive within 30 seconds, its head within 32 KiB. The client must read the answer within one minute.
  200 connections are served at once, and others get 503.

## Access

A request says who sends it by one of these:

- `Authorization: Bearer TOKEN` with a token of `--http-token-file`. A line of that file is `TOKEN` for the principal
  `User:token`, or `User:NAME TOKEN`. A token has 16 to 512 letters, digits or `-._~+/`. The file is read at the start.
- `Authorization: Bearer TOKEN` with a token of up to 16 KiB that an [issuer](../operations/oauth.md) signed.
- `Authorization: Bearer ID~HMAC` with a [delegation token](../operations/delegation-tokens.md): its id, and its HMAC in
  base64.
- `Authorization: Basic` with a user of the cluster and the password. A success is remembered for a minute, unless the
  user's credential changes.
- a client certificate, where the port has TLS and asks for one.
- nothing: the principal is `User:ANONYMOUS`.

Penstock's own commands take a token from `--token-file` or `PENSTOCK_TOKEN_FILE`.

- What a request shows must be valid; otherwise it gets 401. Failed logins are answered with a delay.
- **With an authorizer** the principal needs the rights in the tables. A right that is missing is named in a 403, and an
  ANONYMOUS request gets 401. A topic that the principal may not DESCRIBE is answered as one that does not exist.
- **Without an authorizer** a client that logs in may do everything. ANONYMOUS requests get 401 where there is a token
  file. Without one they are answered from this machine alone, over loopback connections that no proxy forwarded.
- An ANONYMOUS request over loopback must name this machine in `Host`: a loopback address, `localhost`, the host name,
  or the name in `--http`. Others get 403 `foreign_host`, since a web page could use them.
- `/live` and `/ready` answer everybody, and so does `/metrics` with `--metrics-open`.
- **While the agent starts** users and ACLs are not known yet. `/metrics` then takes a token of `--http-token-file`,
  with an authorizer that of a super user, or needs no login. All other requests get 503.
- In the tables, "listed" means that the answer leaves out what the principal has not that right on. "body" means that
  the request's body decides which of the rights are needed.
- A subject of the schema registry has the rights of its topic, which is its name without `-key` or `-value`, and those
  of the topic resource `schema:SUBJECT`.
"""


def http_page() -> str:
    check_routes()
    parts: list[str] = []
    for title, texts in SECTIONS.items():
        rows = [(*route_cells(route), rights_text(route), text.request, text.answer) for route, text in texts.items()]
        parts += [f"## {title}", table(("method", "path", "rights", "request", "answer"), rows)]
    return page("HTTP API", HTTP_INTRO, *parts)


def route_cells(route: str) -> tuple[str, str]:
    method, _, path = route.partition(" ")
    return method, code(path)


def rights_text(route: str) -> str:
    """The rights that a route asks for, as its row says."""
    method, _, path = route.partition(" ")
    if path.startswith(REGISTRY_PREFIX):
        subject = REGISTRY_RIGHTS[rights_key(method, path)]
        where = "subject" if "{subject}" in path else "cluster"
        parts = [(subject.subject, where), (subject.listed, "listed: subjects")]
        return "; ".join(f"{_one_of(operations)}, {what}" for operations, what in parts if operations)
    row = HTTP_RIGHTS[route]
    found = [f"{_one_of(row.cluster)}, cluster"] if row.cluster else []
    found += [f"{', '.join(each.name for each in row.topic)}, topic"] if row.topic else []
    found += [f"body: {_on_type(*each)}" for each in row.body]
    return "; ".join([*found, *(f"listed: {_on_type(*each)}" for each in row.listed)])


def _one_of(operations: Iterable[Operation]) -> str:
    return " or ".join(each.name for each in operations)


def _on_type(operation: Operation, resource_type: ResourceType) -> str:
    return f"{operation.name}, {resource_type.name.lower().replace('_', ' ')}"


def check_routes() -> None:
    """Raise `LookupError` unless the application's routes and those of `tools.pages.http_routes` are the same."""
    texts: dict[str, RouteText] = {route: text for section in SECTIONS.values() for route, text in section.items()}
    served = {f"{method} {path}" for method, path in http_routes()}
    if served != texts.keys():
        raise LookupError(f"tools/pages/http_routes.py: missing or superfluous {sorted(served ^ texts.keys())}")


def http_routes() -> Iterator[tuple[str, str]]:
    """Every method and path that the HTTP port serves, without HEAD."""
    application = build_app(Mock(), CatalogParts(root_uri="memory:"), identities=Mock())
    yield from _routes_below("", application.routes)
    yield from registry_routes()


def _routes_below(prefix: str, routes: Iterable[BaseRoute]) -> Iterator[tuple[str, str]]:
    for route in routes:
        if isinstance(route, Mount):
            yield from _routes_below(prefix + route.path, route.routes)
        elif isinstance(route, Route):
            yield from ((method, prefix + route.path) for method in sorted(route.methods or ()) if method != "HEAD")


# Commands

CLI_INTRO: Final = """
Results go to stdout, everything else to stderr. Exit codes: 0 success, 1 failure, 2 wrong usage, 3 a
recovery that needs `--accept-loss` or `--force`.

`topics`, `produce`, `consume`, `archive`, `lake` and `inspect` talk to a running agent over HTTP. `produce` and
`consume` ask it for the Kafka address.

- `produce` stops at a line that it cannot send. It prints the line's number and how many records were acknowledged.
- `consume` prints committed records, up to the first open transaction. Values print as they are.
- `archive --wait` ends with an error after its time-out, while the agent continues.
"""


def cli_page() -> str:
    root: Any = typer.main.get_command(command_line)
    parts = [
        part
        for path, command in commands("penstock", root)
        for part in (f"## {path}", code(usage(path, command)), paragraphs(command.help or ""), *parameters(command))
        if part
    ]
    return page("Commands", CLI_INTRO, *parts)


def commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - Click's classes are Typer's own
    """The commands below one, in the order in which help lists them; groups without their own options are left out."""
    subcommands: Mapping[str, Any] | None = getattr(command, "commands", None)
    if subcommands is None or path == "penstock":
        yield path, command
    for name, each in (subcommands or {}).items():
        yield from commands(f"{path} {name}", each)


def usage(path: str, command: Any) -> str:  # noqa: ANN401
    arguments = [each.metavar for each in command.params if not each.opts[0].startswith("-")]
    return " ".join((path, "[OPTIONS]", *(["COMMAND"] if hasattr(command, "commands") else []), *arguments))


def paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def parameters(command: Any) -> Iterator[str]:  # noqa: ANN401
    shared: list[str] = []
    rows: list[tuple[str, ...]] = []
    for each in command.params:
        name = each.opts[0]
        option = OPTIONS_BY_NAME.get(name.removeprefix("--"))
        if option is not None and each.help.startswith(option.help):
            shared.append(code(name))
        elif name.startswith("-"):
            rows.append(
                (code(name), each.metavar or value_name(each), default_text(each), code(each.envvar or ""), each.help)
            )
    if rows:
        yield table(("option", "value", "default", "environment", "meaning"), rows)
    if len(shared) > 20:
        yield f"It also takes {len(shared)} [options](options.md#all-options) as flags."
    elif shared:
        yield f"It also takes these [options](options.md#all-options) as flags: {', '.join(shared)}."


def value_name(parameter: Any) -> str:  # noqa: ANN401
    if parameter.is_flag:
        return ""
    return "NUMBER" if parameter.type_descriptor.annotation in (int, float) else "TEXT"


def default_text(parameter: Any) -> str:  # noqa: ANN401
    return "" if parameter.is_flag or parameter.default is None else code(str(parameter.default))


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        say(f"docs/reference/{name}: {len(text.splitlines())} lines")


if __name__ == "__main__":
    main()
