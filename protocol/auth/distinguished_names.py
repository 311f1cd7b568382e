"""The subject of a certificate as Java writes it: the text that Kafka's mapping rules and ACLs are made for. Pure.

The text is that of RFC 2253, with the most specific part first: `CN=alice,OU=Sales,O=Example,C=DE`. Nine attributes
have names; every other one is `OID=#` and the DER of its value in hexadecimal, also where OpenSSL would name it.
Source: javax.security.auth.x500.X500Principal.getName(), which is sun.security.x509.AVA.toRFC2253String (OpenJDK 21);
org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder (Kafka 4.3).
"""

from typing import Final

from protocol.auth.der import (
    CONTEXT_0,
    OBJECT_IDENTIFIER,
    SEQUENCE,
    SET,
    Element,
    InvalidDer,
    elements,
    object_identifier,
    only_element,
)

_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_TEXT_TAGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString and BMPString. Java shows other values as DER."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_SPACES: Final = " \r"


def subject_text(certificate: bytes) -> str:
    """The subject of a certificate in DER. Raises `InvalidDer`."""
    parts = list(elements(only_element(certificate, SEQUENCE).contents))  # the signed part comes first
    fields = list(elements(parts[0].contents)) if parts else []
    if fields and fields[0].tag == CONTEXT_0:  # the version, left out for version 1
        del fields[0]
    # serial number, signature algorithm, issuer, validity, subject
    if len(fields) < 5 or fields[4].tag != SEQUENCE:
        raise InvalidDer("the certificate has no subject")
    return name_text(fields[4].encoding)


def name_text(name: bytes) -> str:
    """An X.500 name in DER. Raises `InvalidDer`."""
    relative_names = list(elements(only_element(name, SEQUENCE).contents))
    return ",".join(_relative_name(each) for each in reversed(relative_names))


def _relative_name(relative_name: Element) -> str:
    if relative_name.tag != SET:
        raise InvalidDer("a relative name is no set")
    return "+".join(_attribute(each) for each in elements(relative_name.contents))


def _attribute(attribute: Element) -> str:
    parts = list(elements(attribute.contents))
    if len(parts) != 2 or parts[0].tag != OBJECT_IDENTIFIER:
        raise InvalidDer("an attribute is not a type and a value")
    oid, value = object_identifier(parts[0].contents), parts[1]
    name = _NAMES.get(oid)
    if name is None or value.tag not in _TEXT_TAGS:
        return f"{name or oid}=#{value.encoding.hex()}"
    return f"{name}={_escaped(_text(value))}"


def _text(value: Element) -> str:
    # Java takes the bytes as UTF-8, whatever the tag says.
    return value.contents.decode("utf-8", "replace")


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{char}" if char in _ESCAPED else "\\00" if char == "\0" else char for char in text)
    start = len(escaped) - len(escaped.lstrip(_SPACES))
    end = len(escaped.rstrip(_SPACES))
    return "".join(f"\\{char}" if index < start or index >= end else char for index, char in enumerate(escaped))
