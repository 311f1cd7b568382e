"""The shim and the trust store of the Java runtime that comes from a wheel."""

import hashlib
import ssl
import struct
import subprocess
from pathlib import Path

from tools import java_runtime

CERTIFICATE = ssl.DER_cert_to_PEM_cert(b"\x30\x03\x02\x01\x05")


def test_the_shim_drops_the_module_that_the_runtime_lacks_and_nothing_else(tmp_path: Path) -> None:
    shim = tmp_path / "java"
    shim.write_text(java_runtime.SHIM.format(java="/usr/bin/printf", options="'%s|' "))
    shim.chmod(0o755)
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "Main", "*"]
    assert subprocess.run([shim, *words], capture_output=True, text=True, check=True).stdout == "-cp|a b||Main|*|"


def test_the_trust_store_holds_every_certificate_of_the_bundle_and_its_own_digest(tmp_path: Path) -> None:
    bundle, store = tmp_path / "bundle.pem", tmp_path / "cacerts.jks"
    bundle.write_text(f"# a comment\n{CERTIFICATE}\n{CERTIFICATE}")
    java_runtime.write_trust_store(bundle, store)
    content = store.read_bytes()
    assert struct.unpack(">III", content[:12]) == (0xFEEDFEED, 2, 2)
    assert content.count(b"\x00\x05X.509\x00\x00\x00\x05\x30\x03\x02\x01\x05") == 2
    password = java_runtime.TRUST_STORE_PASSWORD.encode("utf-16-be")
    assert hashlib.sha1(password + b"Mighty Aphrodite" + content[:-20]).digest() == content[-20:]
