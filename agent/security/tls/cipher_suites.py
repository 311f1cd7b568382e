"""Names of TLS 1.2 cipher suites: Java and the standard say one thing, OpenSSL another. Pure.

Source: the TLS Cipher Suites registry of IANA; ciphers(1) of OpenSSL, "CIPHER SUITE NAMES".
"""

from collections.abc import Sequence

_OPENSSL_NAMES = {
    f"TLS_{exchange}_WITH_{cipher}": f"{exchange.replace('_', '-')}-{name}"
    for exchange in ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA")
    for cipher, name in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
        ("AES_128_CBC_SHA256", "AES128-SHA256"),
        ("AES_256_CBC_SHA384", "AES256-SHA384"),
        ("AES_256_CBC_SHA256", "AES256-SHA256"),
    )
}
_TLS_1_3 = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
"""They are always enabled: Python's `ssl` has no call that chooses among them."""


def openssl_ciphers(suites: Sequence[str]) -> str:
    """OpenSSL's text for these suites of TLS 1.2; "" where none is named, and its own choice holds."""
    return ":".join(_OPENSSL_NAMES.get(suite, suite) for suite in suites if suite not in _TLS_1_3)
