"""Makes the lock of a jar set from its pom: every artifact that Maven resolves, with its SHA-256.

python3 -m tools.lock_jars SET      (needs Maven)
"""

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.jars import LOCKS


def lock(jar_set: str) -> None:
    """Writes `tools/jars/SET.lock`."""
    with tempfile.TemporaryDirectory() as scratch:
        listing, jars = Path(scratch) / "list", Path(scratch) / "jars"
        maven = ["mvn", "-q", "-B", "-f", str(LOCKS / f"{jar_set}.pom.xml"), "-DincludeScope=runtime"]
        subprocess.run([*maven, "dependency:list", f"-DoutputFile={listing}"], check=True)
        subprocess.run([*maven, "dependency:copy-dependencies", f"-DoutputDirectory={jars}"], check=True)
        lines = []
        for group, name, version in re.findall(r"([\w.-]+):([\w.-]+):jar:([\w.-]+):\w+", listing.read_text()):
            sha256 = hashlib.sha256((jars / f"{name}-{version}.jar").read_bytes()).hexdigest()
            lines.append(f"{group}:{name}:{version} {sha256}\n")
        (LOCKS / f"{jar_set}.lock").write_text("".join(sorted(lines)))


if __name__ == "__main__":
    lock(sys.argv[1])
