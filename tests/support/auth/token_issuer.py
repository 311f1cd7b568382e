"""An issuer of tokens on this machine: signing keys, its key set, and a token endpoint over HTTPS.

`TokenKeys` signs in memory, for unit tests. `TokenIssuer` is also a server in a thread: GET /jwks has the public keys,
GET /.well-known/openid-configuration describes the issuer, and POST /token answers the client-credentials grant of
RFC 6749, section 4.4, with a token whose subject is the client's id. POST /expired has tokens that have ended, and POST
/malformed answers with a text that is no token. GET /token is the metadata service of Azure,
for `alice`. `CLIENTS` are the clients and their secrets.
"""

import base64
import hmac
import json
import ssl
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import parse_qs

from joserfc import jwk, jws
from joserfc.errors import SecurityWarning

from tests.support.certificates import TestAuthority

ISSUER = "https://issuer.example"
AUDIENCE = "penstock"
LIFETIME_S = 3_600
CLIENTS = {"alice": "wonderland", "bob": "builder"}
_CURVES: Mapping[str, Literal["P-256", "P-384", "P-521"]] = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
Claims = Mapping[str, object]


def new_key(algorithm: str = "RS256", *, key_id: str | None = "first", bits: int = 2_048) -> jwk.Key:
    """A private key of joserfc, for one algorithm."""
    parameters: jwk.KeyParameters = {} if key_id is None else {"kid": key_id}
    if algorithm in _CURVES:
        return jwk.generate_key("EC", _CURVES[algorithm], parameters)
    if algorithm == "EdDSA":
        return jwk.generate_key("OKP", "Ed25519", parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)  # of a key that is too short
        return jwk.generate_key("RSA", bits, parameters)


def sign(claims: Claims | str, key: jwk.Key | None, algorithm: str = "RS256", **header: object) -> str:
    """A token; `claims` may be any text instead. The header has the key's id where it does not say otherwise.

    A header that is None is left out. Nothing is checked, so a token may be signed with what does not fit.
    """
    text = claims if isinstance(claims, str) else json.dumps(claims)
    names = {"alg": algorithm, **({"kid": key.kid} if key is not None and key.kid else {}), **header}
    shown = json.dumps({name: value for name, value in names.items() if value is not None})
    signed = f"{_encoded(shown.encode())}.{_encoded(text.encode())}"
    return f"{signed}.{_encoded(jws.JWSRegistry.algorithms[algorithm].sign(signed.encode(), key))}"


def sign_by_secret(claims: Claims, secret: bytes, **header: object) -> str:
    """A token of HS256 by any bytes: the library refuses those of a public key, an attacker does not."""
    shown = json.dumps({"alg": "HS256", **header})
    signed = f"{_encoded(shown.encode())}.{_encoded(json.dumps(claims).encode())}"
    return f"{signed}.{_encoded(hmac.digest(secret, signed.encode(), 'sha256'))}"


def _encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).decode().rstrip("=")


def public_pem(key: jwk.Key) -> bytes:
    """The public key in PEM."""
    assert not isinstance(key, jwk.OctKey), "a secret has no public part"
    return key.as_pem(private=False)


def key_set(*keys: jwk.Key) -> str:
    """The public keys as a JSON Web Key Set."""
    return json.dumps({"keys": [{**key.as_dict(private=False), "use": "sig"} for key in keys]})


@dataclass(slots=True)
class TokenKeys:
    """The keys of an issuer: it signs with the last one, and shows all."""

    issuer: str = ISSUER
    audience: str = AUDIENCE
    keys: list[jwk.Key] = field(default_factory=lambda: [new_key()])

    def claims(self, subject: str = "alice", *, now_s: float | None = None, **others: object) -> dict[str, object]:
        """The claims of a good token; those whose value is None are left out."""
        issued_s = int(time.time() if now_s is None else now_s)
        claims: dict[str, object] = {
            "iss": self.issuer,
            "aud": self.audience,
            "sub": subject,
            "iat": issued_s,
            "exp": issued_s + LIFETIME_S,
        }
        return {name: value for name, value in (claims | others).items() if value is not None}

    def token(self, subject: str = "alice", *, now_s: float | None = None, **others: object) -> str:
        """A token, signed with the newest key."""
        return sign(self.claims(subject, now_s=now_s, **others), self.keys[-1])

    def key_set(self) -> str:
        return key_set(*self.keys)

    def rotate(self, *, kept: int = 0) -> None:
        """Sign with a new key from now on, and show only so many of the earlier ones."""
        new = new_key(key_id=f"key-{time.monotonic_ns()}")
        self.keys = [*self.keys[len(self.keys) - kept :], new]


@dataclass(slots=True)
class TokenIssuer(TokenKeys):
    """The server. `is_away` makes it answer 503."""

    url: str = ""
    is_away: bool = False
    lifetime_s: float = LIFETIME_S
    """Of the tokens of /token."""
    key_requests: list[Mapping[str, str]] = field(default_factory=list)
    """The headers of the requests for the keys, with names in lower case."""
    token_requests: list[str] = field(default_factory=list)
    """The clients that were given tokens."""

    @property
    def jwks_url(self) -> str:
        return f"{self.url}/jwks"

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    def broker_configs(self, authority: TestAuthority) -> dict[str, str]:
        """The broker configs by which its tokens are accepted."""
        return {
            "sasl.oauthbearer.jwks.endpoint.url": self.jwks_url,
            "sasl.oauthbearer.expected.issuer": self.issuer,
            "sasl.oauthbearer.expected.audience": self.audience,
            "penstock.oauthbearer.jwks.ssl.truststore.location": str(authority.ca_path),
        }

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: str) -> tuple[int, str]:
        """Status and text of an answer."""
        if self.is_away:
            return 503, "{}"
        if (method, path) == ("GET", "/jwks"):
            self.key_requests.append(headers)
            return 200, self.key_set()
        if (method, path) == ("GET", "/.well-known/openid-configuration"):
            about = {"issuer": self.issuer, "jwks_uri": self.jwks_url, "token_endpoint": self.token_url}
            return 200, json.dumps(about)
        if (method, path) == ("GET", "/token"):
            return self._machine_token(headers, parse_qs(body))
        client = self._client(headers, parse_qs(body)) if method == "POST" else None
        if client is None:
            return (401, '{"error": "invalid_client"}') if method == "POST" else (404, "{}")
        self.token_requests.append(client)
        match path:
            case "/token":
                expires_s = int(time.time() + self.lifetime_s)
                return 200, self._grant(self.token(client, exp=expires_s, client_id=client))
            case "/expired":
                return 200, self._grant(self.token(client, now_s=time.time() - 2 * LIFETIME_S))
            case "/malformed":
                return 200, self._grant("this.is.no-token")
            case _:
                return 404, "{}"

    def _machine_token(self, headers: Mapping[str, str], query: Mapping[str, list[str]]) -> tuple[int, str]:
        """A token of a machine's own identity, as Azure's metadata service issues them."""
        is_complete = {"api-version", "resource", "client_id"} <= set(query) and headers.get("metadata") == "true"
        return (200, self._grant(self.token())) if is_complete else (400, '{"error": "invalid_request"}')

    def _grant(self, token: str) -> str:
        return json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": int(self.lifetime_s)})

    @staticmethod
    def _client(headers: Mapping[str, str], form: Mapping[str, list[str]]) -> str | None:
        """The client that asks for a token, by Basic or by the form; None where its secret is wrong."""
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "basic":
            client, _, secret = base64.b64decode(shown).decode().partition(":")
        else:
            client, secret = (form.get(name, [""])[0] for name in ("client_id", "client_secret"))
        is_known = form.get("grant_type") == ["client_credentials"] and CLIENTS.get(client) == secret
        return client if is_known else None


@contextmanager
def token_issuer(authority: TestAuthority) -> Iterator[TokenIssuer]:
    """An issuer that serves on a free port of this machine, with a certificate of the authority."""
    issuer = TokenIssuer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0))).decode()
            path, _, query = self.path.partition("?")
            status, text = issuer.answer(self.command, path, headers, body or query)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = handle_any

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the library has it
            """Nothing is logged."""

    files = authority.issue("issuer")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    # The handshake is the request's thread's: a client that is slow at it holds up nobody.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    issuer.url = f"https://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, name="token issuer", daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
