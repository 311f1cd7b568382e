"""Files that fix what bytes mean: once written by a released program they stay readable for ever.

`PENSTOCK_REWRITE=1` writes them anew. A file that existed before and changes is a new format: give it a new name.
"""

import os
from pathlib import Path

FOLDER = Path(__file__).parent
IS_REWRITING = "PENSTOCK_REWRITE" in os.environ


def golden_bytes(name: str, current: bytes | None = None) -> bytes:
    """The bytes kept under `name`, as hexadecimal lines; `current` is kept instead while rewriting.

    Without `current`: what an older program wrote, which this one cannot write again.
    """
    path = FOLDER / f"{name}.hex"
    if IS_REWRITING and current is not None:
        text = current.hex()
        lines = [text[first : first + 100] for first in range(0, len(text), 100)]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="ascii")
    return bytes.fromhex(path.read_text(encoding="ascii"))
