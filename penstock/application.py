"""Where the packages of an installed Penstock lie: in the folder `app` of this one, so that none of their bare names
(`storage`, `protocol`) stands in somebody else's site-packages.
"""

import sys
from pathlib import Path
from typing import Final

APP: Final = Path(__file__).parent / "app"
"""Made by the wheel (pyproject.toml). A checkout has none: the packages lie beside this one, and are found there."""


def find_packages(app: Path = APP) -> None:
    """Let this process import the packages, before anything of the same name."""
    if app.is_dir() and str(app) not in sys.path:
        sys.path.insert(0, str(app))
