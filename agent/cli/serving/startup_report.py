"""The report that an agent prints when it serves: addresses, ledger and store, durability, commands to try. Pure.

The report is for people and goes to stderr. The `ready` line is for programs, and alone on stdout.
"""

import shlex
from collections.abc import Mapping, Sequence

from agent.config.addresses import HostPort, ListenerAddress, is_every_interface, is_loopback, read_host_port
from agent.config.listener_security import RELAY_LISTENER, ListenerSecurity, SecurityProtocol
from agent.config.oauth_settings import OAUTHBEARER
from agent.config.secure_options import ADMIN
from agent.config.settings import Settings
from agent.config.tls_settings import ClientAuth
from agent.runtime.version import VERSION


def ready_line(kafka: ListenerAddress, http: HostPort) -> str:
    """The line `ready kafka=HOST:PORT http=HOST:PORT`, with the ports that the sockets got."""
    return f"ready kafka={HostPort(host=kafka.host, port=kafka.port)} http={http}"


def startup_report(
    settings: Settings,
    *,
    bound: Sequence[ListenerAddress],
    advertised: Sequence[ListenerAddress],
    http: HostPort,
    cluster_id: str,
    program: str,
) -> str:
    """The report, several lines without a final line break.

    `bound` and `http` have the ports that the sockets got; `program` is the path by which this program was called.
    """
    bootstrap = HostPort(host=advertised[0].host, port=advertised[0].port)
    server = HostPort(host="127.0.0.1" if is_every_interface(http.host) else http.host, port=http.port)
    kafka_word, http_word = shlex.quote(str(bootstrap)), shlex.quote(str(server))
    width = max(len(str(listener)) for listener in bound)
    security = settings.security_of(bound[0].name)
    is_encrypted = security.protocol.is_encrypted
    needs_properties = is_encrypted or security.sasl is not None
    client = client_configs(settings, security)
    kcat = " ".join([f"kcat -b {kafka_word}", *(f"-X {shlex.quote(f'{name}={client[name]}')}" for name in client)])
    properties = "client.properties" if settings.secure_files is None else str(settings.secure_files.properties)
    tool = (
        f"--bootstrap-server {kafka_word}{f' --command-config {shlex.quote(properties)}' if needs_properties else ''}"
    )
    authority = "ca.pem" if settings.secure_files is None else shlex.quote(str(settings.secure_files.authority))
    ca_words = f" --ca {authority}" if is_encrypted or settings.http_tls is not None else ""
    if security.sasl is not None:
        ca_words += f" --command-config {shlex.quote(properties)}"
    open_addresses = unencrypted_addresses(settings, bound, http)
    scheme = "http" if settings.http_tls is None else "https"
    lines = [
        f"Penstock agent {settings.name} of cluster {cluster_id}",
        *(
            f"  Kafka       {listener!s:<{width}}  {_users(listener)} connect to "
            f"{HostPort(host=shown.host, port=shown.port)}"
            for listener, shown in zip(bound, advertised, strict=True)
        ),
        f"  HTTP        {scheme}://{server}  (/live /ready /metrics /api/status)",
        f"  ledger      {settings.ledger_url}",
        f"  store       {settings.store_url}",
        f"  durability  {durability_text(settings)}",
        *(f"  WARNING     {address} does not encrypt, and other machines can reach it" for address in open_addresses),
        "Try it:",
        f"  kcat        echo hello | {kcat} -P -t greetings && {kcat} -C -t greetings -e",
        f"  Java tools  kafka-console-producer.sh {tool} --topic greetings",
        f"              kafka-console-consumer.sh {tool} --topic greetings --from-beginning",
        f"  Python      {python_line(bootstrap, client)}",
        f"  without     {shlex.quote(program)} consume greetings --from earliest --server "
        f"{'https://' if settings.http_tls else ''}{http_word}{ca_words}",
    ]
    if needs_properties and settings.secure_files is None:
        lines.append(f"  your files  {_own_files(security)}")
    if settings.secure_files is not None:
        lines.append(f"  PASSWORD    that of {ADMIN} is in {settings.secure_files.password}")
    return "\n".join(lines)


def _users(listener: ListenerAddress) -> str:
    return "agents" if listener.name == RELAY_LISTENER else "clients"


def startup_fields(
    settings: Settings,
    *,
    bound: Sequence[ListenerAddress],
    advertised: Sequence[ListenerAddress],
    http: HostPort,
    cluster_id: str,
) -> dict[str, object]:
    """The same for programs that read the log, without the commands to try."""
    return {
        "agent": settings.name,
        "version": VERSION,
        "cluster_id": cluster_id,
        "kafka": [str(listener) for listener in advertised],
        "listeners": [str(listener) for listener in bound],
        "http": f"{'http' if settings.http_tls is None else 'https'}://{http}",
        "ledger": settings.ledger_url,
        "store": settings.store_url,
        "durability": durability_text(settings),
        "unencrypted": unencrypted_addresses(settings, bound, http),
        "password_file": None if settings.secure_files is None else str(settings.secure_files.password),
    }


def unencrypted_addresses(settings: Settings, bound: Sequence[ListenerAddress], http: HostPort) -> list[str]:
    """The addresses that do not encrypt, and that other machines can reach."""
    addresses = [
        *(str(each) for each in bound if not settings.security_of(each.name).protocol.is_encrypted),
        *([f"http://{http}"] if settings.http_tls is None else []),
    ]
    return [each for each in addresses if not is_loopback(read_host_port(each.split("://")[1]).host)]


def _own_files(security: ListenerSecurity) -> str:
    """The files that the commands name, and that no agent writes: what each is."""
    properties = [f"security.protocol={security.protocol.value}"]
    words = ["client.properties"]
    if security.protocol.is_encrypted:
        words.append("ca.pem, the authority of the agent's certificate")
        properties += ["ssl.truststore.type=PEM", "ssl.truststore.location=ca.pem"]
    if _has_client_certificate(security):
        words.append("client.pem, a client's certificate and key")
        properties += ["ssl.keystore.type=PEM", "ssl.keystore.location=client.pem"]
    if security.sasl is not None:
        properties.append("sasl.mechanism and sasl.jaas.config")
    return f"write {'; '.join(words)}. client.properties has {', '.join(properties)}"


def _has_client_certificate(security: ListenerSecurity) -> bool:
    return security.tls is not None and security.tls.client_auth is ClientAuth.REQUIRED


def durability_text(settings: Settings) -> str:
    """The failures that an acknowledged record survives with these settings."""
    is_ledger_embedded = settings.ledger_url.startswith(("sqlite:", "journal:"))
    is_store_embedded = settings.store_url.startswith("file:")
    if "memory:" in (settings.ledger_url, settings.store_url):
        return "none: data is gone when this process ends"
    if not is_ledger_embedded and not is_store_embedded:
        return "an acknowledged record is in the bucket and in the ledger"
    if not settings.is_durable:
        return "NO FSYNC: an acknowledged record survives a crash of this process, but not a loss of power"
    if not is_store_embedded:
        return "an acknowledged record is in the bucket, its ledger entry on disk (fsync): it survives a loss of power"
    return "an acknowledged record is on disk (fsync) and survives a loss of power"


def client_configs(settings: Settings, security: ListenerSecurity) -> dict[str, str]:
    """The configs that librdkafka needs for a listener. What only the user knows is a word in capitals."""
    configs: dict[str, str] = {}
    if security.protocol is not SecurityProtocol.PLAINTEXT:
        configs["security.protocol"] = security.protocol.value
    files = settings.secure_files
    if security.protocol.is_encrypted:
        configs["ssl.ca.location"] = "ca.pem" if files is None else str(files.authority)
    if _has_client_certificate(security):
        configs["ssl.certificate.location"] = configs["ssl.key.location"] = "client.pem"
    if security.sasl is not None:
        by_password = [mechanism for mechanism in security.sasl.mechanisms if mechanism != OAUTHBEARER]
        configs["sasl.mechanism"] = [OAUTHBEARER, *by_password][-1]
        if not by_password:
            configs["sasl.oauthbearer.method"] = "oidc"
            configs["sasl.oauthbearer.token.endpoint.url"] = "URL"
            configs["sasl.oauthbearer.client.id"] = "ID"
            configs["sasl.oauthbearer.client.secret"] = "SECRET"
            return configs
        configs["sasl.username"] = "USER" if files is None else ADMIN
        configs["sasl.password"] = "PASSWORD"  # a person's own; that of --secure is in DATA_DIR/admin.password
    return configs


def python_line(bootstrap: HostPort, client: Mapping[str, str]) -> str:
    """A line for a shell that produces one record with confluent-kafka."""
    pairs = ", ".join(f"'{name}': '{value}'" for name, value in {"bootstrap.servers": str(bootstrap), **client}.items())
    return (
        'python -c "from confluent_kafka import Producer; '
        f"p = Producer({{{pairs}}}); p.produce('greetings', 'hello'); p.flush()\""
    )
