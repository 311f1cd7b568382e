"""What a person sees when the agent is up: where it listens, where data lies, how safe it is, what to paste.

Rule: pure text. The `ready` line is for machines and goes to stdout alone; the report goes to stderr.
"""

import shlex
from collections.abc import Sequence

from agent.addresses import HostPort, Listener, is_every_interface
from agent.settings import Settings


def ready_line(kafka: Listener, http: HostPort) -> str:
    """`ready kafka=HOST:PORT http=HOST:PORT`, with the ports that the sockets got: it serves from now on."""
    return f"ready kafka={HostPort(host=kafka.host, port=kafka.port)} http={http}"


def startup_report(
    settings: Settings,
    *,
    bound: Sequence[Listener],
    advertised: Sequence[Listener],
    http: HostPort,
    cluster_id: str,
    program: str,
) -> str:
    """The report, several lines without a final line break. `bound` and `http` hold the ports that the sockets got;
    `program` is how this one was called.
    """
    bootstrap = HostPort(host=advertised[0].host, port=advertised[0].port)
    http_host = "127.0.0.1" if is_every_interface(http.host) else http.host
    http_url = f"http://{HostPort(host=http_host, port=http.port)}"
    width = max(len(str(listener)) for listener in bound)
    lines = [
        f"Penstock agent {settings.name} of cluster {cluster_id}",
        *(
            f"  Kafka       {listener!s:<{width}}  clients connect to {HostPort(host=shown.host, port=shown.port)}"
            for listener, shown in zip(bound, advertised, strict=True)
        ),
        f"  HTTP        {http_url}  (/live /ready /metrics /api/status)",
        f"  ledger      {settings.ledger_url}",
        f"  store       {settings.store_url}",
        f"  durability  {durability_text(settings)}",
        "Try it:",
        f"  kcat        echo hello | kcat -b {bootstrap} -P -t greetings && kcat -b {bootstrap} -C -t greetings -e",
        f"  Java tools  kafka-console-producer.sh --bootstrap-server {bootstrap} --topic greetings",
        f"  Python      {python_line(bootstrap)}",
        f"  without     {shlex.quote(program)} consume greetings --from earliest --server {http_host}:{http.port}",
    ]
    return "\n".join(lines)


def durability_text(settings: Settings) -> str:
    """What an acknowledged record survives with these settings."""
    is_embedded = settings.ledger_url.startswith("sqlite:") or settings.store_url.startswith("file:")
    if "memory:" in (settings.ledger_url, settings.store_url):
        return "none: data is gone when this process ends"
    if not is_embedded:
        return "an acknowledged record is in the bucket and in the ledger"
    if settings.is_durable:
        return "an acknowledged record is on disk (fsync) and survives a loss of power"
    return "NO FSYNC: an acknowledged record survives a crash of this process, but not a loss of power"


def python_line(bootstrap: HostPort) -> str:
    """A line for a shell that produces one record with confluent-kafka."""
    return (
        'python -c "from confluent_kafka import Producer; '
        f"p = Producer({{'bootstrap.servers': '{bootstrap}'}}); p.produce('greetings', 'hello'); p.flush()\""
    )
