"""Texts of the audit log's changes, without secrets."""

import re
from collections.abc import Iterable
from typing import Final

from coordinator.configs.security_configs import HIDDEN, is_secret

_SECRET: Final = re.compile(r"password|secret|jaas|credential|token|\.key$", re.IGNORECASE)


def config_text(name: str, value: object) -> str:
    """A config or property that was set; the value of one that looks like a secret is hidden."""
    return f"{name}={HIDDEN if is_secret(name) or _SECRET.search(name) else value}"


def configs_text(pairs: Iterable[tuple[str, object]]) -> str:
    """Several of them."""
    return ", ".join(config_text(name, value) for name, value in pairs)
