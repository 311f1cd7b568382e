"""What builds the wheel is pinned, with hashes."""

import re
import tomllib

from tools.packaging.wheel import BUILD_LOCK
from tools.steps import ROOT


def test_the_build_lock_pins_the_build_system() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    text = re.sub(r"\\\n\s*", "", BUILD_LOCK.read_text(encoding="utf-8"))
    rows = [line for line in text.splitlines() if not line.startswith("#")]
    assert set(project["build-system"]["requires"]) < {row.split()[0] for row in rows}
    assert all(re.fullmatch(r"\S+==\S+ (--hash=sha256:[0-9a-f]{64} ?)+", row) for row in rows)
