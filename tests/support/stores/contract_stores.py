"""Stores of the embedded broker, an observer of a store, and numbers for buckets."""

import itertools
import os
import time
from pathlib import Path

from storage.decorators.routed import RoutedStore
from storage.embedded.local_store import PACKS_FOLDER, LocalStore
from storage.embedded.pack_store import PackStore
from storage.object_store import ObjectStore
from storage.refs import INTAKE_PREFIX

bucket_numbers = itertools.count()
"""Numbers of buckets, for names that no other test has."""


class NoObserver:
    """Checks that what it is given can be true, and records nothing."""

    def observe(self, object_bytes: int, seconds: float, *, failure: str | None) -> None:
        assert object_bytes >= 0
        assert seconds >= 0
        assert failure is None or failure


def packs(folder: Path, *, is_durable: bool = True) -> PackStore:
    """A pack store in a folder."""
    return PackStore(
        folder, now_ms=lambda: time.time_ns() // 1_000_000, new_nonce=lambda: os.urandom(16), is_durable=is_durable
    )


def with_packs(folder: Path) -> ObjectStore:
    """The store of an embedded broker: packs for the intake, files for the rest."""
    files = LocalStore(folder)
    return RoutedStore(INTAKE_PREFIX, packs(folder / PACKS_FOLDER), files)
