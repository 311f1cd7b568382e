"""The settings of one agent, checked and typed.

A `Settings` is complete and consistent: no other module parses an option's text or has a default for it. Order of
sources: command line, environment, TOML file (`agent.config.option_sources`), then the defaults below. The reference
for users is docs/reference/options.md.
"""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from agent.config.addresses import (
    EtcdUrl,
    FileUrl,
    HostPort,
    HttpAddress,
    InvalidAddress,
    ListenerAddress,
    S3Url,
    is_every_interface,
    read_http_address,
    read_ledger_url,
    read_listener,
    read_store_url,
)
from agent.config.audit_options import AuditSettings, audit_settings
from agent.config.authorizer_settings import AuthorizerSettings, read_authorizer
from agent.config.bootstrap_users import BootstrapUser, read_bootstrap_users
from agent.config.catalog_options import CatalogAccess, catalog_access
from agent.config.etcd_options import LedgerAccess, ledger_access
from agent.config.external_catalog_settings import ExternalCatalogSettings, read_external_catalogs
from agent.config.http_auth import HttpAccess, http_access
from agent.config.listener_security import (
    HTTPS_LISTENER,
    PLAINTEXT,
    RELAY_LISTENER,
    ListenerSecurity,
    check_configs_are_used,
    check_is_protected,
    check_relay,
    read_http_tls,
    read_listener_security,
)
from agent.config.memory_limit import memory_limit, read_cache_bytes
from agent.config.oauth_settings import OauthSettings, check_oauth_is_used, read_http_oauth
from agent.config.option_sources import InvalidSettings, Value, gather
from agent.config.options import FLUSH_INTERVAL_MS_S3, OPTIONS_BY_NAME, PLAIN_OPTIONS, PlainSettings
from agent.config.secret_files import SecretFile, secret_files
from agent.config.secret_key import SecretKey, read_secret_key
from agent.config.secure_options import SecureFiles, secure_values
from agent.config.tls_settings import TlsSettings
from agent.config.token_settings import TokenSettings, read_token_settings
from protocol.suggestions import nearest

__all__ = ["CliCommand", "InvalidSettings", "ListenerAddress", "Settings", "load_settings"]

LISTEN_DEFAULT = "127.0.0.1:9092"
HTTP_DEFAULT = "127.0.0.1:9644"
AUTO = "auto"
DATA_DIR_DEFAULT = "./penstock-data"


class CliCommand(Enum):
    """The command that the settings are for: they differ in the defaults of ledger, bucket and name."""

    RUN = "run"
    """One process with its own ledger and, unless it is given another, its own bucket, both under `data_dir`."""
    AGENT = "agent"
    """One of several agents that share a ledger and a bucket, both of which have to be given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(PlainSettings):
    """The settings of one agent. `data_dir` is absolute."""

    listeners: tuple[ListenerAddress, ...]
    advertised: tuple[ListenerAddress, ...]
    """One per listener, in the same order. Port 0 stands for the port that the listener gets, and `{name}` in a host
    for the agent's name.
    """
    listener_security: Mapping[str, ListenerSecurity] = field(default_factory=dict)
    authorizer: AuthorizerSettings = field(default_factory=AuthorizerSettings)
    """The protection of each listener by its name; one that is not listed is PLAINTEXT."""
    http: HostPort
    advertised_http: HttpAddress | None = None
    """The address of the HTTP port for others; None where there is none. Port 0 and `{name}` as for `advertised`."""
    http_tls: TlsSettings | None = None
    """The TLS of the HTTP port; None where it does not encrypt."""
    http_oauth: OauthSettings | None = None
    """The issuer's tokens that the HTTP port accepts; None where it accepts none."""
    bootstrap_users: tuple[BootstrapUser, ...] = ()
    """The users that a new cluster is to have."""
    secure_files: SecureFiles | None = None
    """The files of `--secure`, which are created before the agent starts; None without it."""
    secret_key: SecretKey | None = None
    """The key that encrypts the keys of SCRAM credentials; None where they are stored as they are."""
    tokens: TokenSettings = field(default_factory=TokenSettings)
    plain_users: Path | None = None
    """The file of users for PLAIN."""
    secret_files: tuple[SecretFile, ...] = ()
    """The files with keys, passwords, tokens and users that the settings name."""
    http_access: HttpAccess = field(default_factory=HttpAccess)
    ledger_url: str
    ledger_access: LedgerAccess = field(default_factory=LedgerAccess)
    store_url: str
    catalog_access: CatalogAccess = field(default_factory=CatalogAccess)
    external_catalogs: tuple[ExternalCatalogSettings, ...] = ()
    data_dir: Path
    cache_dir: Path | None = None
    """The folder for compiled code; None for wherever numba keeps it (`protocol.kernel_cache`)."""
    name: str
    """The agent's name. A restarted agent with the same name is the same broker to clients."""
    zone: str | None = None
    broker_configs: dict[str, str] = field(default_factory=dict)
    """The broker configs that are set; the others have Kafka's defaults (`coordinator.configs.topic_configs`).

    Secrets are hidden (`coordinator.configs.security_configs.HIDDEN`): who needs one has it as `Secret`.
    """
    audit: AuditSettings = field(default_factory=AuditSettings)

    def security_of(self, listener: str) -> ListenerSecurity:
        """The protection of the listener of that name."""
        return self.listener_security.get(listener, PLAINTEXT)

    @property
    def has_relay(self) -> bool:
        """Whether this agent relays requests of groups, and takes those that others relay."""
        return any(listener.name == RELAY_LISTENER for listener in self.listeners)

    @property
    def is_store_cheap(self) -> bool:
        """Whether the intake is sealed as soon as no put is in flight: embedded stores, or no flush interval."""
        return self.flush_interval_ms == 0 or not isinstance(read_store_url(self.store_url), S3Url)


def load_settings(
    command: CliCommand,
    command_line: Mapping[str, object],
    *,
    environment: Mapping[str, str] | None = None,
    config_path: str | None = None,
) -> Settings:
    """The settings of `penstock run` or `penstock agent`. Raises `InvalidSettings`: show the message, exit 2.

    `command_line` has values by option name, None for a flag that is absent; `environment` is the process's by default.
    """
    environment = os.environ if environment is None else environment
    values = gather(command_line, environment, config_path)
    if values.get("secure"):
        if command is not CliCommand.RUN:
            raise InvalidSettings("secure is an option of penstock run; give several agents the same files and users")
        values = secure_values(
            values, SecureFiles(data_dir=_data_dir(values)), listen=LISTEN_DEFAULT, http=HTTP_DEFAULT
        )
    try:
        return _settings(command, values, environment, config_path or environment.get("PENSTOCK_CONFIG"))
    except InvalidAddress as error:
        raise InvalidSettings(str(error)) from error


def _settings(
    command: CliCommand, values: Mapping[str, Value], environment: Mapping[str, str], config_path: str | None
) -> Settings:
    pairs = _broker_configs(values)
    listeners = _listeners(_texts(values, "listen", (LISTEN_DEFAULT,)))
    security = read_listener_security(listeners, pairs, values)
    of_clients = [each for name, each in security.items() if name != RELAY_LISTENER]
    authorizer = read_authorizer(pairs, is_authenticating=any(each.is_authenticating for each in of_clients))
    if command is CliCommand.RUN and RELAY_LISTENER in security:
        raise InvalidSettings(f"--listen: {RELAY_LISTENER} is a listener of penstock agent; penstock run is one agent")
    check_relay(security, is_authorizer_enabled=authorizer.is_enabled)
    is_https, http = read_http_address(_text(values, "http", HTTP_DEFAULT))
    http_tls = read_http_tls(pairs, values, is_https=is_https)
    http_oauth = read_http_oauth(HTTPS_LISTENER, pairs) if pairs else None
    check_configs_are_used(security, http_tls, pairs, values)
    has_oauth = any(each.sasl is not None and each.sasl.oauth is not None for each in security.values())
    check_oauth_is_used(pairs, is_used=has_oauth or http_oauth is not None)
    if not values.get("insecure", False):
        for listener in listeners:
            check_is_protected("listen", listener, is_encrypted=security[listener.name].protocol.is_encrypted)
        check_is_protected("http", http, is_encrypted=is_https)
    data_dir = _data_dir(values)
    ledger_url, store_url = _urls(command, values, data_dir)
    secret_key = read_secret_key(pairs)
    # One agent of `run` is the cluster; several agents need a name each, and the machine has one.
    default_name = "penstock" if command is CliCommand.RUN else platform.node()
    bootstrap_users = _bootstrap_users(values)
    external_catalogs = read_external_catalogs(store_url, values, environment)
    secure_files = SecureFiles(data_dir=data_dir) if values.get("secure") else None
    settings = Settings(
        listeners=listeners,
        advertised=_advertised(listeners, _texts(values, "advertise", ())),
        listener_security=security,
        authorizer=authorizer,
        http=http,
        advertised_http=_advertised_http(_text(values, "advertise-http", ""), http, is_https=is_https),
        http_tls=http_tls,
        http_oauth=http_oauth,
        bootstrap_users=bootstrap_users,
        secret_key=secret_key,
        tokens=read_token_settings(pairs, secret_key),
        plain_users=_path(values, "plain-users"),
        http_access=http_access(values),
        ledger_url=ledger_url,
        ledger_access=ledger_access(ledger_url, values, environment),
        store_url=store_url,
        catalog_access=catalog_access(store_url, values, environment),
        external_catalogs=external_catalogs,
        data_dir=data_dir,
        cache_dir=_path(values, "cache-dir"),
        name=_text(values, "name", default_name),
        zone=_text(values, "zone", "") or None,
        broker_configs=_shown_configs(pairs),
        audit=audit_settings(values, data_dir),
        secure_files=secure_files,
        secret_files=secret_files(
            values,
            pairs,
            config_path=config_path,
            users=bootstrap_users,
            catalogs=external_catalogs,
            secure=secure_files,
        ),
        **_plain_fields(values, store_url),
    )
    _check_processes(settings)
    return settings


def _data_dir(values: Mapping[str, Value]) -> Path:
    return Path(_text(values, "data-dir", DATA_DIR_DEFAULT)).expanduser().absolute()


def _plain_fields(values: Mapping[str, Value], store_url: str) -> dict[str, Any]:
    """The fields of `PlainSettings` that have another value than their default."""
    plain: dict[str, Any] = {
        name: values[option.name] for name, option in PLAIN_OPTIONS.items() if option.name in values
    }
    # The defaults of these depend on the store and on the machine, so `PlainSettings` cannot have them.
    if isinstance(read_store_url(store_url), S3Url):
        plain.setdefault("flush_interval_ms", FLUSH_INTERVAL_MS_S3)
    if plain.get("read_cache_bytes", AUTO) == AUTO:
        plain["read_cache_bytes"] = read_cache_bytes(memory_limit(), plain.get("processes", 1))
    return plain


def _listeners(texts: tuple[str, ...]) -> tuple[ListenerAddress, ...]:
    # Clients of a listener that another agent lacks get the first address of that agent: RELAY is for agents alone.
    listeners = tuple(sorted(map(read_listener, texts), key=lambda listener: listener.name == RELAY_LISTENER))
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 1:
            raise InvalidSettings(
                f"--listen: two listeners have the name {name}; give each its own, as in INTERNAL://HOST:PORT"
            )
    return listeners


def _advertised(listeners: tuple[ListenerAddress, ...], texts: tuple[str, ...]) -> tuple[ListenerAddress, ...]:
    """The advertised address of each listener: the one with its name, else the listener's own."""
    by_name = {listener.name: listener for listener in listeners}
    advertised_by_name: dict[str, ListenerAddress] = {}
    for text in texts:
        advertised = read_listener(text)
        # HOST:PORT alone has the default name. A single listener is meant whatever its name is.
        if "://" not in text and len(listeners) == 1:
            advertised = ListenerAddress(name=listeners[0].name, host=advertised.host, port=advertised.port)
        if advertised.name not in by_name:
            raise InvalidSettings(
                f"--advertise {text}: no listener has the name {advertised.name}; the names are {', '.join(by_name)}"
                f"{nearest(advertised.name, by_name)}",
            )
        advertised_by_name[advertised.name] = advertised
    for listener in listeners:
        advertised = advertised_by_name.setdefault(listener.name, listener)
        if is_every_interface(advertised.host):
            raise InvalidSettings(
                f"clients cannot connect to {advertised}; give the address of this agent with "
                f"--advertise {listener.name}://HOST:{listener.port}",
            )
    return tuple(advertised_by_name[listener.name] for listener in listeners)


def _advertised_http(text: str, http: HostPort, *, is_https: bool) -> HttpAddress | None:
    """The address of --advertise-http, by default that of --http. An address of every interface leads nowhere."""
    if not text:
        return None if is_every_interface(http.host) else HttpAddress(is_https=is_https, address=http)
    is_advertised_https, address = read_http_address(text)
    if is_every_interface(address.host):
        raise InvalidSettings(f"--advertise-http {text}: no one can connect to every interface; give a host")
    return HttpAddress(is_https=is_advertised_https if "://" in text else is_https, address=address)


def _urls(command: CliCommand, values: Mapping[str, Value], data_dir: Path) -> tuple[str, str]:
    """The URLs of ledger and bucket. Raises `InvalidSettings`, or `InvalidAddress` for a ledger that is no URL."""
    match command:
        case CliCommand.RUN:
            for name in values:
                if OPTIONS_BY_NAME[name].is_cluster_only:
                    raise InvalidSettings(
                        f"{name} is an option of penstock agent; penstock run has its own ledger in --data-dir"
                    )
            store_url = _text(values, "store", f"file://{data_dir}/store")
            # A journal has the intake of the bucket beside it. With a bucket elsewhere the ledger is in SQLite.
            ledger = f"journal://{data_dir}/journal"
            if not _is_store_of(data_dir, store_url):
                ledger = f"sqlite://{data_dir}/ledger.sqlite"
            read_ledger_url(ledger)  # raises where the path has a character that no store or table can have
            return ledger, store_url
        case CliCommand.AGENT:
            for name in ("ledger", "store"):
                if name not in values:
                    raise InvalidSettings(f"penstock agent needs --{name}; for a single process use penstock run")
            ledger_url, store_url = _text(values, "ledger", ""), _text(values, "store", "")
            read_ledger_url(ledger_url)  # raises; the store's URL is read where its kind decides a default
            return ledger_url, store_url


def _is_store_of(data_dir: Path, store_url: str) -> bool:
    """Whether the bucket is the folder `store` of the data folder: not another one, nor a link to one."""
    store = read_store_url(store_url)
    return isinstance(store, FileUrl) and Path(store.path).resolve() == data_dir.resolve() / "store"


def _check_processes(settings: Settings) -> None:
    if settings.processes > 1 and not isinstance(read_ledger_url(settings.ledger_url), EtcdUrl):
        raise InvalidSettings(
            f"--processes {settings.processes}: only a ledger in etcd can be shared by several processes"
        )


def _broker_configs(values: Mapping[str, Value]) -> dict[str, str]:
    pairs = values.get("set", {})
    assert isinstance(pairs, Mapping)
    return dict(pairs)


def _shown_configs(pairs: Mapping[str, str]) -> dict[str, str]:
    """The configs without secrets."""
    if not pairs:
        return {}
    from coordinator.configs.security_configs import without_secrets  # late: importing the room takes time

    return without_secrets(pairs)


def _bootstrap_users(values: Mapping[str, Value]) -> tuple[BootstrapUser, ...]:
    path = _path(values, "bootstrap-users")
    return () if path is None else read_bootstrap_users(path)


def _path(values: Mapping[str, Value], name: str) -> Path | None:
    text = _text(values, name, "")
    return Path(text).expanduser().absolute() if text else None


def _text(values: Mapping[str, Value], name: str, default: str) -> str:
    value = values.get(name, default)
    assert isinstance(value, str)
    return value


def _texts(values: Mapping[str, Value], name: str, default: tuple[str, ...]) -> tuple[str, ...]:
    value = values.get(name, default)
    assert isinstance(value, tuple)
    return value
