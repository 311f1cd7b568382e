"""What an error of the environment is called, and which option it names."""

import errno
import socket
from pathlib import Path

import pytest

from agent.cli.reasons import reason
from agent.config.settings import CliCommand, Settings, load_settings
from coordinator.ledger.port import LedgerUnavailable


def settings(**given: object) -> Settings:
    values = {name.replace("_", "-"): value for name, value in given.items()}
    return load_settings(CliCommand.RUN, {"insecure": True, **values}, environment={})


TAKEN = errno.EADDRINUSE


@pytest.mark.parametrize(
    ("text", "option"),
    [  # asyncio's words, and those of socket.create_server
        ("error while attempting to bind on address ('127.0.0.1', 9092): address already in use", "--listen"),
        ("Address already in use (while attempting to bind on address ('127.0.0.1', 9644))", "--http"),
    ],
)
def test_a_port_that_is_taken_names_its_option(text: str, option: str) -> None:
    port = "9092" if option == "--listen" else "9644"
    said = reason(OSError(TAKEN, text), settings())
    assert said.lower().startswith(
        f"{option} 127.0.0.1:{port}: address already in use; stop the program that listens there"
    )


def test_a_listener_by_a_hosts_name_is_known_by_its_port() -> None:
    error = OSError(TAKEN, "error while attempting to bind on address ('127.0.0.1', 5): address already in use")
    assert reason(error, settings(listen=["A://127.0.0.1:4", "B://localhost:5"])).startswith("--listen localhost:5: ")
    assert reason(error, settings(listen=["127.0.0.1:4"])).startswith("--listen or --http, at 127.0.0.1:5: ")


def test_an_address_that_is_in_two_options_is_the_one_that_is_bound_last() -> None:
    error = OSError(TAKEN, "error while attempting to bind on address ('127.0.0.1', 5): address already in use")
    assert reason(error, settings(listen=["127.0.0.1:5"], http="127.0.0.1:5")).startswith("--listen 127.0.0.1:5: ")


def test_a_host_that_nobody_knows_is_named() -> None:
    error = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert reason(error, settings(listen=["nowhere:0"])) == (
        "--listen nowhere:0: Name or service not known; give an address of this machine"
    )
    assert reason(error, settings()).startswith("--listen or --http: ")


def test_a_folder_that_is_a_file_is_said_to_be_one() -> None:
    given = settings(data_dir="/srv/x")
    error = FileExistsError(errno.EEXIST, "File exists", "/srv/x")
    assert reason(error, given) == "--data-dir /srv/x: File exists; that is a file: choose a folder"
    below = PermissionError(errno.EACCES, "Permission denied", Path("/srv/x/store"))
    assert reason(below, given).startswith("--data-dir /srv/x: /srv/x/store: Permission denied; this user may not")
    assert (
        reason(OSError(errno.EIO, "I/O error", "/other"), given) == "/other: I/O error; check the folder and its disk"
    )


def test_other_errors_keep_their_own_words() -> None:
    assert reason(LedgerUnavailable("the ledger is away"), settings()) == "the ledger is away"
    assert "free some space" in reason(OSError(errno.ENOSPC, "No space left on device"), settings())
    assert reason(OSError(), settings()) == "OSError: no reason given"
