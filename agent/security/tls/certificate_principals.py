"""The principal of a client by its certificate (mutual TLS).

The certificate's subject is mapped by the listener's rules. `penstock.ssl.principal.source` takes a URI (a SPIFFE id)
or a DNS name of the certificate's alternative names instead, as it is. A client without a certificate is ANONYMOUS: the
handshake has rejected it where one is required.
Source: org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder (Kafka 4.3).
"""

import ssl
from typing import cast

from agent.config.tls_settings import PrincipalSource
from agent.security.tls.principal_rules import PrincipalRules
from protocol.auth.der import InvalidDer
from protocol.auth.distinguished_names import subject_text
from protocol.auth.principals import ANONYMOUS, USER, Principal

_NAME_TYPES = {PrincipalSource.SAN_URI: "URI", PrincipalSource.SAN_DNS: "DNS"}


class UnnamedPrincipal(Exception):
    """A client's certificate names no principal. Close the connection."""


def certificate_principal(ssl_object: ssl.SSLObject, source: PrincipalSource, rules: PrincipalRules) -> Principal:
    """The principal of the other end. Raises `UnnamedPrincipal`."""
    certificate = ssl_object.getpeercert(binary_form=True)
    if certificate is None:
        return ANONYMOUS
    if source is PrincipalSource.SUBJECT:
        try:
            subject = subject_text(certificate)
        except InvalidDer as error:
            raise UnnamedPrincipal(f"the subject of the client's certificate cannot be read: {error}") from error
        name = rules.name_of(subject)
        if name is None:
            raise UnnamedPrincipal(f"no rule of ssl.principal.mapping.rules matches the subject {subject!r}")
        return Principal(USER, name)
    names = _alternative_names(ssl_object, _NAME_TYPES[source])
    if len(names) != 1:
        raise UnnamedPrincipal(
            f"the client's certificate has {len(names)} alternative names of type {_NAME_TYPES[source]}, and "
            f"penstock.ssl.principal.source={source.value} needs exactly one"
        )
    return Principal(USER, names[0])


def _alternative_names(ssl_object: ssl.SSLObject, name_type: str) -> list[str]:
    certificate = ssl_object.getpeercert() or {}
    pairs = cast("tuple[tuple[str, str], ...]", certificate.get("subjectAltName", ()))
    return [value for kind, value in pairs if kind == name_type]
