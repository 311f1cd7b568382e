"""What a job says of an address where no agent answers."""

import pytest

from iceberg_export.jobs.agents import AgentAddress, NoAnswer


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:x", "[::1", "a" * 70 + ":9644", "a..b:9644"])
def test_an_address_where_nobody_answers_is_told(address: str) -> None:
    with pytest.raises(NoAnswer, match="no agent answers at http://"):
        AgentAddress(address).get("/api/status")
