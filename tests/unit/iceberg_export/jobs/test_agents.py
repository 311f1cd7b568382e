"""What a job says of an address where no agent answers, and of tokens."""

from pathlib import Path

import pytest

from iceberg_export.jobs.agents import AgentAddress, AgentUnavailable, read_token
from iceberg_export.spark.options import OptionError


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:x", "[::1", "a" * 70 + ":9644", "a..b:9644"])
def test_an_address_where_nobody_answers_is_told(address: str) -> None:
    with pytest.raises(AgentUnavailable, match="no agent answers at http://"):
        AgentAddress(address).get("/api/status")


def test_the_token_is_the_first_of_the_agents_file(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# of this month\n\n  0123456789abcdef \nfedcba9876543210\n")
    assert (read_token(str(file)), read_token("")) == ("0123456789abcdef", "")


def test_a_line_may_name_the_user_of_its_token(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("User:spark  0123456789abcdef\n")
    assert read_token(str(file)) == "0123456789abcdef"


@pytest.mark.parametrize("text", ["", "# none\n", None])
def test_a_file_without_a_token_is_reported(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "tokens"
    if text is not None:
        file.write_text(text)
    with pytest.raises(OptionError, match=r"has no token|cannot be read"):
        read_token(str(file))
