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

RESOLVED = r"([\w.-]+):([\w.-]+):jar:(?:([a-z][\w-]*):)?([\w.-]+):(?:compile|runtime)"
"""A line of Maven's list: group, name, classifier, version."""


def lock(jar_set: str) -> None:
    """Writes `tools/jars/SET.lock`."""
    with tempfile.TemporaryDirectory() as scratch:
        listing, jars = Path(scratch) / "list", Path(scratch) / "jars"
        maven = ["mvn", "-q", "-B", "-f", str(LOCKS / f"{jar_set}.pom.xml"), "-DincludeScope=runtime"]
        subprocess.run([*maven, "dependency:list", f"-DoutputFile={listing}"], check=True)
        subprocess.run([*maven, "dependency:copy-dependencies", f"-DoutputDirectory={jars}"], check=True)
        lines = []
        for group, name, classifier, version in re.findall(RESOLVED, listing.read_text()):
            coordinates, file = f"{group}:{name}:{version}", f"{name}-{version}"
            if classifier:
                coordinates, file = f"{coordinates}:{classifier}", f"{file}-{classifier}"
            lines.append(f"{coordinates} {hashlib.sha256((jars / f'{file}.jar').read_bytes()).hexdigest()}\n")
        (LOCKS / f"{jar_set}.lock").write_text("".join(sorted(lines)))


if __name__ == "__main__":
    lock(sys.argv[1])
