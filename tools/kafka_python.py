"""kafka-python's own tests, out of its source distribution.

Rule: they are laid down as they came. The client that they test is the one of `uv.lock`, at the same version.
"""

import shutil
from pathlib import Path

from tools import pins
from tools.archives import unpack_source_distribution
from tools.steps import cache_folder, ensure


def kafka_python_folder() -> Path:
    """Where `ensure_kafka_python` puts the tests."""
    _name, version, sha256 = pins.KAFKA_PYTHON
    return cache_folder() / f"kafka-python-{version}-{sha256[:12]}"


def ensure_kafka_python() -> Path:
    """Folder with the tests in `test`."""

    def build(folder: Path) -> None:
        sources = folder.with_name(f"{folder.name}.sources")
        shutil.rmtree(sources, ignore_errors=True)
        unpack_source_distribution(pins.KAFKA_PYTHON, sources)
        (sources / "test").rename(folder / "test")
        shutil.rmtree(sources)

    return ensure("kafka-python's tests", kafka_python_folder(), build)
