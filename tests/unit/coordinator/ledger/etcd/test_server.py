"""What an etcd's version and size mean."""

import pytest

from coordinator.ledger.etcd.server import EtcdStatus, check_version
from coordinator.ledger.port import LedgerUnsupported
from protocol.limits import ETCD_QUOTA_BYTES_DEFAULT


@pytest.mark.parametrize("version", ["3.5.0", "3.6.16", "3.10.1", "4.0.0"])
def test_a_version_that_works(version: str) -> None:
    check_version(version, "etcd:2379")


@pytest.mark.parametrize("version", ["3.4.35", "2.3.8", "", "main"])
def test_a_version_that_is_too_old_or_none(version: str) -> None:
    with pytest.raises(LedgerUnsupported, match=f"etcd:2379 has version {version}; 3.5 is the oldest.*upgrade it"):
        check_version(version, "etcd:2379")


def status(quota_bytes: int | None) -> EtcdStatus:
    return EtcdStatus(version="3.5.0", file_bytes=3 << 30, used_bytes=1 << 30, quota_bytes=quota_bytes)


def test_the_pressure_is_what_is_used_of_the_quota() -> None:
    assert status(8 << 30).size(None).pressure == 1 / 8
    assert status(8 << 30).size(2 << 30).pressure == 1 / 8, "what etcd tells comes first"
    assert status(None).size(4 << 30).pressure == 1 / 4
    assert status(None).size(None).pressure == (1 << 30) / ETCD_QUOTA_BYTES_DEFAULT
