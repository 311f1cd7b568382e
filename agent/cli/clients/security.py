"""How the commands reach a protected agent: `--ca`, and `--command-config` with Kafka's client configs.

Both options hold for the HTTP and the Kafka connections of a command. The configs are those of Kafka's own tools, of
which TLS and the log-in by a password, or by a token in a file, are read here; stores are PEM or PKCS12.
Source: org.apache.kafka.clients.CommonClientConfigs, org.apache.kafka.common.config.SslConfigs and SaslConfigs,
javax.security.auth.login.Configuration for the form of sasl.jaas.config (Kafka 4.3).
"""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from agent.cli.failure import EXIT_USAGE, CommandFailed
from protocol.auth.scram_credentials import ScramMechanism

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
WITHOUT_LOGIN = (PLAINTEXT, SSL)
ENCRYPTED = (SSL, SASL_SSL)
PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, *(mechanism.sasl_name for mechanism in ScramMechanism), OAUTHBEARER)
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - a config's name

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s;]+))""")
_PAIR = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLogin:
    """A user and its password; of OAUTHBEARER a token, which names its user itself."""

    mechanism: str
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """The options of one command."""

    configs: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca: Path | None = None
    is_unverified: bool = False
    """Whether any certificate is taken. Only for what would be asked without encryption, too."""

    @property
    def protocol(self) -> str | None:
        """The security protocol of Kafka connections; None where no option says one."""
        protocol = self.configs.get("security.protocol")
        if protocol is not None and protocol.upper() not in PROTOCOLS:
            raise CommandFailed(
                f"--command-config: security.protocol={protocol} is none of {', '.join(PROTOCOLS)}",
                exit_code=EXIT_USAGE,
            )
        return None if protocol is None else protocol.upper()

    @property
    def is_encrypted(self) -> bool:
        """Whether the options are those of an agent that encrypts, by their protocol or else by --ca."""
        protocol = self.protocol
        return protocol in ENCRYPTED or (protocol is None and self.ca is not None)

    @property
    def authorities(self) -> Path | None:
        """The PEM file of the agent's authorities; None for those of the system. Raises `CommandFailed`."""
        if self.ca is None and self.configs.get("ssl.truststore.type") == "PKCS12":
            raise CommandFailed(
                "--command-config: a Spark job reads authorities in PEM alone. Give theirs with --ca FILE",
                exit_code=EXIT_USAGE,
            )
        return self.ca or _path(self.configs, "ssl.truststore.location")

    def login(self) -> ClientLogin | None:
        """The user that the configs name; None where the protocol has no log-in. Raises `CommandFailed`."""
        protocol = self.protocol
        if protocol is None or protocol in WITHOUT_LOGIN:
            return None
        mechanism = self.configs.get("sasl.mechanism", "")
        if mechanism not in MECHANISMS:
            raise CommandFailed(
                f"--command-config: sasl.mechanism={mechanism} is none of {', '.join(MECHANISMS)}", exit_code=EXIT_USAGE
            )
        if mechanism == OAUTHBEARER:
            return ClientLogin(mechanism=mechanism, user="", password=_token(self.configs.get(TOKEN_URL, "")))
        pairs = _JAAS_OPTION.findall(self.configs.get("sasl.jaas.config", ""))
        options = {name: _unescaped(double or single) or plain for name, double, single, plain in pairs}
        user, password = options.get("username"), options.get("password")
        if not user or not password:
            raise CommandFailed(
                '--command-config: sasl.jaas.config has no user: write MODULE required username="NAME" '
                'password="PASSWORD"; as for Kafka\'s own tools',
                exit_code=EXIT_USAGE,
            )
        return ClientLogin(mechanism=mechanism, user=user, password=password)

    def context(self) -> ssl.SSLContext:
        """TLS towards an agent. Raises `CommandFailed` where a file cannot be used."""
        from agent.security.tls.certificates import InvalidCertificate  # late: few commands encrypt

        try:
            return self._context()
        except (OSError, InvalidCertificate) as error:
            raise CommandFailed(f"--ca or --command-config: {error}", exit_code=EXIT_USAGE) from error

    def _context(self) -> ssl.SSLContext:
        from agent.security.tls.certificates import (
            KeyAndChain,
            authorities_of_pkcs12,
            identity_of_pkcs12,
            load_authorities,
            load_identity,
            reject_jks,
        )

        configs = self.configs
        context = ssl.create_default_context()
        if self.is_unverified:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            return context
        trusted = self.ca or _path(configs, "ssl.truststore.location")
        if trusted is not None:
            pem = trusted.read_bytes()
            reject_jks(pem, trusted)
            if self.ca is None and configs.get("ssl.truststore.type") == "PKCS12":
                pem = authorities_of_pkcs12(pem, configs.get("ssl.truststore.password", ""), trusted)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            load_authorities(context, pem, str(trusted))
        context.check_hostname = configs.get("ssl.endpoint.identification.algorithm", "https").strip() != ""
        keystore = _path(configs, "ssl.keystore.location")
        if keystore is not None:
            data = keystore.read_bytes()
            if configs.get("ssl.keystore.type") == "PKCS12":
                identity = identity_of_pkcs12(data, configs.get("ssl.keystore.password", ""), keystore)
            else:
                reject_jks(data, keystore)
                password = configs.get("ssl.key.password", "")
                identity = KeyAndChain(origin=str(keystore), chain_pem=data, key_pem=data, key_password=password)
            load_identity(context, identity)
        return context


def _token(url: str) -> str:
    """The token in a file, as Kafka's FileJwtRetriever reads it. Raises `CommandFailed`."""
    parts = urlsplit(url)
    if parts.scheme != "file" or not parts.path:
        raise CommandFailed(
            f"--command-config: {TOKEN_URL}={url} is no file. Write a token into a file, and its path as file:///PATH; "
            "an issuer is not asked here",
            exit_code=EXIT_USAGE,
        )
    try:
        token = Path(unquote(parts.path)).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(
            f"--command-config: {TOKEN_URL}={url} cannot be read: {error}", exit_code=EXIT_USAGE
        ) from error
    if not token or any(char.isspace() for char in token):
        raise CommandFailed(f"--command-config: {TOKEN_URL}={url} has no token, or more than one", exit_code=EXIT_USAGE)
    return token


NO_SECURITY = ClientSecurity()


def untrusted(address: str, error: ssl.SSLError) -> str:
    """The sentence about a TLS connection that failed, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {address} is not trusted: {error.verify_message}. Give its authority with --ca FILE, "
            "and address the agent by a name of its certificate"
        )
    return (
        f"{address} does not speak TLS, or requires a client certificate: {error.reason or error}. If its HTTP port "
        "does not encrypt, give --server http://HOST:PORT"
    )


def client_security(command_config: str | None, ca: str | None) -> ClientSecurity:
    """The security that these options describe. Raises `CommandFailed`."""
    configs = {} if command_config is None else read_properties(command_config)
    return ClientSecurity(configs=configs, ca=None if ca is None else Path(ca))


def read_properties(path: str) -> dict[str, str]:
    """The pairs of a properties file. Raises `CommandFailed`. Source: java.util.Properties.load."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"--command-config {path} cannot be read: {error}", exit_code=EXIT_USAGE) from error
    pairs: dict[str, str] = {}
    line = ""
    for part in text.splitlines():
        line += part.lstrip()
        if not line or (line == part.lstrip() and line[0] in "#!"):
            line = ""
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:  # the line goes on
            line = line[:-1]
            continue
        match = _PAIR.fullmatch(line)
        assert match is not None, "every line matches"
        pairs[_unescaped(match[1])] = _unescaped(match[2]).strip()
        line = ""
    return pairs


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(
        lambda match: chr(int(match[1][1:], 16)) if len(match[1]) == 5 else _CONTROL.get(match[1], match[1]),
        text,
    )


def _path(configs: Mapping[str, str], name: str) -> Path | None:
    return Path(configs[name]) if configs.get(name) else None
