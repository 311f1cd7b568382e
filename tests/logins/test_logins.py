"""The sweep at its short length; `make logins` runs the whole."""

import pytest

from tests.logins.sockets import attack
from tests.logins.sweep import LoginSweep
from tests.logins.tls_sweep import TlsSweep


@pytest.mark.parametrize("seed", [1, 2])
def test_no_frame_raises_or_lets_a_client_in(seed: int) -> None:
    sweep = LoginSweep(seed)
    sweep.run(3_000)
    # Each kind is reached: else the frames would be too far off.
    assert {"ListVersions", "Reply", "Failure"} <= set(sweep.outputs)


def test_no_flight_of_tls_raises_or_makes_up_a_byte() -> None:
    sweep = TlsSweep(1)
    sweep.run(1_000)
    assert set(sweep.outcomes) == {"failed", "shaken", "not shaken"}


@pytest.mark.slow
def test_frames_over_sockets_disturb_nobody() -> None:
    attack(10_000, seed=1)
