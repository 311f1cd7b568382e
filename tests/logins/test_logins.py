"""The sweep at its short length; `make logins` runs the whole."""

import pytest

from tests.logins.sweep import LoginSweep


@pytest.mark.parametrize("seed", [1, 2])
def test_no_frame_raises_or_lets_a_client_in(seed: int) -> None:
    sweep = LoginSweep(seed)
    sweep.run(3_000)
    # Each kind is reached: else the frames would be too far off.
    assert {"ListVersions", "Reply", "Failure"} <= set(sweep.outputs)
