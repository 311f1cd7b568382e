"""Keys for engines: made once, renewed in time, and failures that are remembered."""

import asyncio
import logging
import threading

import pytest

from agent.http.iceberg.vended_credentials import CredentialVendor
from protocol.limits import CATALOG_CREDENTIALS_CACHED_MAX
from protocol.types import Milliseconds
from storage.object_store import StoreMisconfigured, StoreUnavailable
from storage.s3.session_credentials import SessionCredentials
from tests.support.agent.ledger_parts import ManualClock

HALF_S, END_S = 1_800.0, 3_600.0


class Sts:
    """Makes keys that tell how often it was asked for the folder."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.users: list[str] = []
        self.is_failing = False
        self.go_on = threading.Event()
        self.go_on.set()

    def __call__(self, folder: str, user: str) -> SessionCredentials:
        assert self.go_on.wait(10)
        self.asked.append(folder)
        self.users.append(user)
        if self.is_failing:
            raise StoreMisconfigured("not for you")
        number = self.asked.count(folder)
        return SessionCredentials(
            access_key_id=f"{folder}{number}", secret_access_key="s", session_token="t", expires_ms=Milliseconds(1)
        )


class Vendor(CredentialVendor):
    def __init__(self, seconds: int = int(END_S)) -> None:
        self.sts, self.clock = Sts(), ManualClock()
        super().__init__(ask=self.sts, clock=self.clock, is_required=False, seconds=seconds)

    async def key(self, folder: str = "a", user: str = "alice") -> str:
        return (await self.of_folder(folder, user)).access_key_id


async def test_a_table_has_keys_of_its_own_for_everybody_who_asks() -> None:
    vendor = Vendor()
    assert [await vendor.key("a"), await vendor.key("b"), await vendor.key("a")] == ["a1", "b1", "a1"]
    assert vendor.sts.asked == ["a", "b"]


async def test_each_principal_has_keys_of_its_own() -> None:
    vendor = Vendor()
    assert [await vendor.key(user=user) for user in ("alice", "bob", "alice")] == ["a1", "a2", "a1"]
    assert vendor.sts.users == ["alice", "bob"]


async def test_keys_that_hold_for_less_are_renewed_earlier() -> None:
    vendor = Vendor(seconds=900)
    await vendor.key()
    vendor.clock.seconds = 449
    assert await vendor.key() == "a1"
    vendor.clock.seconds = 450
    assert await vendor.key() == "a2"


async def test_keys_that_are_half_over_are_not_handed_out_again() -> None:
    vendor = Vendor()
    await vendor.key()
    vendor.clock.seconds = HALF_S - 1
    assert await vendor.key() == "a1"
    vendor.clock.seconds = HALF_S
    assert await vendor.key() == "a2"


async def test_those_who_ask_at_once_ask_once_and_one_who_goes_away_disturbs_nobody() -> None:
    vendor = Vendor()
    vendor.sts.go_on.clear()
    async with asyncio.TaskGroup() as group:
        first, second, third = (group.create_task(vendor.key()) for _ in range(3))
        await asyncio.sleep(0)
        first.cancel()
        vendor.sts.go_on.set()
    assert (second.result(), third.result()) == ("a1", "a1")
    assert vendor.sts.asked == ["a"]


async def test_a_failure_is_told_to_all_and_asked_about_again_after_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    vendor = Vendor()
    vendor.sts.is_failing = True
    with caplog.at_level(logging.INFO):
        for folder in ("a", "a", "b"):
            with pytest.raises((StoreUnavailable, StoreMisconfigured), match="not for you"):
                await vendor.key(folder)
    assert vendor.sts.asked == ["a"]
    assert [record.message for record in caplog.records] == [
        "the catalog cannot vend credentials: give engines their own, or see --catalog-vended-credentials"
    ]
    vendor.sts.is_failing, vendor.clock.seconds = False, 60.0
    with caplog.at_level(logging.INFO):
        assert await vendor.key("b") == "b1"
    assert caplog.records[-1].message == "the catalog vends credentials again"


async def test_while_there_are_no_new_keys_the_old_ones_serve_until_shortly_before_their_end() -> None:
    vendor = Vendor()
    await vendor.key()
    vendor.sts.is_failing = True
    vendor.clock.seconds = END_S - 301
    assert await vendor.key() == "a1"
    vendor.clock.seconds = END_S - 300
    with pytest.raises((StoreUnavailable, StoreMisconfigured)):
        await vendor.key()


async def test_keys_of_so_many_tables_are_kept() -> None:
    vendor = Vendor()
    for number in range(CATALOG_CREDENTIALS_CACHED_MAX):
        await vendor.key(str(number))
    await vendor.key("0")
    await vendor.key("one more")
    asked = len(vendor.sts.asked)
    await vendor.key("0")
    assert len(vendor.sts.asked) == asked
    await vendor.key("1")
    assert len(vendor.sts.asked) == asked + 1


async def test_a_mistake_is_no_failure_of_the_store() -> None:
    def broken(_: str, __: str) -> SessionCredentials:
        raise RuntimeError("a bug")

    vendor = CredentialVendor(ask=broken, clock=ManualClock(), is_required=False)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="a bug"):
            await vendor.of_folder("a", "alice")
