"""Damage that an embedded store found in its own files, for the caller to report (safety rule S20)."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDamage:
    """One unreadable part of a file."""

    file: str
    detail: str
    key: str = ""
    """The damaged object; empty where it is not known."""
    is_certain: bool = True
    """False for what a crash may have torn before it was acknowledged: `penstock audit` knows whether it was."""


OnDamage = Callable[[StoreDamage], None]


OnRemoved = Callable[[str], None]
"""Called with a file of which no object is left: what was damaged in it is gone."""


def ignore_damage(_: StoreDamage) -> None:
    """For tools that report damage by the errors of their reads."""


def ignore_removed(_: str) -> None:
    """For those who keep no list of what is damaged."""
