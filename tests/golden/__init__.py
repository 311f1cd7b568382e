"""Files that fix what bytes mean: once written by a released program they stay readable.

`PENSTOCK_REWRITE=1` writes those that are missing, and no other: a new format has a file of another name.
"""

import os
from pathlib import Path

FOLDER = Path(__file__).parent
IS_WRITING = "PENSTOCK_REWRITE" in os.environ


def golden_bytes(name: str, current: bytes | None = None) -> bytes:
    """The bytes in the file `name`, as hexadecimal lines; a missing file is written with `current` where that is asked.

    Without `current`: what an older program wrote, which this one cannot write again.
    """
    path = FOLDER / f"{name}.hex"
    if IS_WRITING and current is not None and not path.exists():
        text = current.hex()
        lines = [text[first : first + 100] for first in range(0, len(text), 100)]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="ascii")
    return bytes.fromhex(path.read_text(encoding="ascii"))
