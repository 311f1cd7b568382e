"""Answer times of failed logins do not show who exists, and a thousand clients may connect again at once."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from benchmarks.measure.logins import (
    MECHANISMS,
    SETTINGS,
    USERS_FILE,
    failure_times,
    reconnect,
    share_slower,
)
from tests.support.processes import provided
from tests.support.services.local_services import PENSTOCK, Penstock, PenstockFactory

PAIRS = 400
SHARE_OFF_MAX = 0.1
"""Five times the standard error of the share for so many pairs: sqrt((2 * PAIRS + 1) / (12 * PAIRS * PAIRS))."""
CLIENTS = 1_000
SECONDS_MAX = 15.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    provided(PENSTOCK)
    folder = tmp_path_factory.mktemp("logins")
    (folder / "users.toml").write_text(USERS_FILE)
    with ExitStack() as stack:
        yield PenstockFactory(folder=folder, stack=stack)(
            listen="SASL_PLAINTEXT://127.0.0.1:0",
            options={"bootstrap-users": str(folder / "users.toml")},
            settings=SETTINGS,
        )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_answer_times_do_not_show_who_exists(broker: Penstock, mechanism: str) -> None:
    times = await failure_times(broker.bootstrap, mechanism, PAIRS)
    for known, unknown in (
        ([each.first_s for each in times.known], [each.first_s for each in times.unknown]),
        ([each.last_s for each in times.known], [each.last_s for each in times.unknown]),
    ):
        assert share_slower(known, unknown) == pytest.approx(0.5, abs=SHARE_OFF_MAX)


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_thousand_clients_connect_again_at_once(broker: Penstock) -> None:
    found = await reconnect(broker.bootstrap, MECHANISMS[0], CLIENTS)
    assert found.seconds <= SECONDS_MAX


def test_the_share_is_that_of_pairs_in_which_the_second_is_larger() -> None:
    assert share_slower([1.0, 2.0], [3.0, 4.0]) == 1.0
    assert share_slower([3.0, 4.0], [1.0, 2.0]) == 0.0
    assert share_slower([1.0, 4.0], [2.0, 3.0]) == 0.5
