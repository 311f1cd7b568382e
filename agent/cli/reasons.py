"""Messages for errors of the environment that stop an agent. Pure.

In: an error and the settings. Out: a sentence with the option whose value caused it, where that is known, and what to
do.
"""

import errno
import re
import socket
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

from agent.config.addresses import HostPort
from agent.config.settings import InvalidSettings, Settings
from coordinator.ledger.port import LedgerError
from storage.object_store import StoreError

ENVIRONMENT_ERRORS = (OSError, LedgerError, StoreError, InvalidSettings)

ADDRESS_REMEDIES = {
    errno.EADDRINUSE: "stop the program that listens there, or choose another port (0 takes a free one)",
    errno.EADDRNOTAVAIL: "it is no address of this machine: choose one of its addresses",
    errno.EACCES: "this user may not use the port: choose one above 1023",
}
FILE_REMEDIES = {
    errno.EEXIST: "that is a file: choose a folder",
    errno.ENOTDIR: "that is a file: choose a folder",
    errno.EACCES: "this user may not write there: choose another folder",
    errno.EPERM: "this user may not write there: choose another folder",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.ENOENT: "the folder cannot be made there: choose another one",
    errno.ENOSPC: "free some space, or choose another folder",
}
_BOUND_ADDRESS = re.compile(r"address \('([^']*)', (\d+)")
"""The form in which asyncio and socket.create_server name the address that they could not bind."""


def reason(error: BaseException, settings: Settings) -> str:
    """The reason of a failure, and the remedy where it is known."""
    text = str(error) or "no reason given"
    match error:
        case LedgerError() | StoreError() | InvalidSettings():
            return text
        case OSError(filename=str() | Path() as path):
            remedy = FILE_REMEDIES.get(error.errno or 0, "check the folder and its disk")
            return f"{_folder_option(Path(path), settings)}: {error.strerror}; {remedy}"
        case socket.gaierror():
            return f"{_unknown_host(settings)}: {_words(error)}; give an address of this machine"
        case OSError() if address := _BOUND_ADDRESS.search(text):
            option = _address_option(address[1], int(address[2]), settings)
            return f"{option}: {_words(error)}; {ADDRESS_REMEDIES.get(error.errno or 0, 'choose another address')}"
        case OSError(errno=errno.ENOSPC):
            return f"{text}; {FILE_REMEDIES[errno.ENOSPC]}"
        case _:
            return f"{type(error).__name__}: {text}"


def addresses(settings: Settings) -> Iterator[tuple[str, HostPort]]:
    """The options that name addresses of this machine, in the order in which an agent takes their ports."""
    yield "--http", settings.http
    for listener in settings.listeners:
        yield "--listen", HostPort(host=listener.host, port=listener.port)


def _words(error: OSError) -> str:
    """The operating system's message, without number and address."""
    words = error.strerror or "it cannot be used"
    return words.partition(" (while")[0].rpartition(": ")[2]


def _folder_option(path: Path, settings: Settings) -> str:
    folder = settings.data_dir
    if path == folder:
        return f"--data-dir {folder}"
    if folder in path.parents or path in folder.parents:
        return f"--data-dir {folder}: {path}"
    return str(path)


def _address_option(host: str, port: int, settings: Settings) -> str:
    """The option of an address that could not be bound."""
    matches = [
        f"{option} {address}"
        for option, address in addresses(settings)
        if address.port == port and (address.host == host or not _is_ip(address.host))
    ]
    # The last match: of an address that stands in two options the second one fails.
    return matches[-1] if matches else f"--listen or --http, at {HostPort(host=host, port=port)}"


def _unknown_host(settings: Settings) -> str:
    names = [f"{option} {address}" for option, address in addresses(settings) if not _is_ip(address.host)]
    return " or ".join(names) or "--listen or --http"


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
