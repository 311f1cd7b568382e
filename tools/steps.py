"""Steps of the set-up: each says what it installs and where, shows that it lives, and is done once.

Rule: a step builds beside its place and renames, so a folder that exists is complete; a lock file keeps two set-ups
from building the same thing; whatever a killed step fetched stays in its client's own cache and is not fetched again.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEARTBEAT_SECONDS = 20
CLEARED_LINE = f"\r{'':<110}\r"
"""Written first on a terminal, whose line may show how far a step is: perhaps one of a set-up beside this one."""

_locks_held: list[int] = []
"""File numbers of the locks; children inherit them, so a lock outlives a killed set-up while its child still works."""


class SetupFailed(Exception):
    """A step could not be done. The message says what to do."""


def cache_folder() -> Path:
    """Where set-up keeps what it fetches and builds: `$XDG_CACHE_HOME/penstock`, else `~/.cache/penstock`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "penstock"


def environment_folder() -> Path:
    """The folder of the Python environment: `$UV_PROJECT_ENVIRONMENT`, else `.venv` of this checkout."""
    return ROOT / os.environ.get("UV_PROJECT_ENVIRONMENT", ".venv")


def say(text: str) -> None:
    print(f"{CLEARED_LINE}{text}" if sys.stdout.isatty() else text, flush=True)


def report(title: str, outcome: str, place: Path) -> None:
    """Prints the one line of a step."""
    say(f"  {title:<28} {outcome:<14} {place}")


@contextlib.contextmanager
def locked(place: Path) -> Iterator[None]:
    """Holds the lock file of `place`. Waits, and says so, while another set-up holds it."""
    locks = cache_folder() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / str(place).strip("/").replace("/", "+")).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"  another set-up is at work on {place}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        _locks_held.append(lock.fileno())
        try:
            yield
        finally:
            _locks_held.remove(lock.fileno())


def ensure(title: str, place: Path, build: Callable[[Path], None]) -> Path:
    """Makes the folder `place` by calling `build(folder)` once; returns `place`."""
    with locked(place):
        if place.exists():
            report(title, "is there", place)
            return place
        started = time.monotonic()
        partial = place.with_name(place.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        build(partial)
        partial.rename(place)
        report(title, f"{time.monotonic() - started:.0f} s", place)
        return place


def run(title: str, command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, attempts: int = 1) -> None:
    """Runs a command with its output in a log file. Raises `SetupFailed` with the end of that log.

    `attempts`: how often it is tried, for clients that give up at the first broken connection.
    """
    logs = cache_folder() / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{title.replace(' ', '-')}-{os.getpid()}.log"
    words = [str(word) for word in command]
    status = _run_once(title, words, log, env or {})
    while status != 0 and attempts > 1:
        attempts -= 1
        say(f"  {title:<28} failed with status {status}; once more")
        status = _run_once(title, words, log, env or {})
    if status != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
        raise SetupFailed(f"{tail}\n\n{title} failed with status {status}; the whole log is {log}")
    log.unlink()


@contextlib.contextmanager
def beside(what: str, command: Sequence[str]) -> Iterator[None]:
    """Runs another part of the set-up meanwhile, which prints lines of its own, and waits for its end.

    Raises `SetupFailed` where it failed. Where the block ends with an exception, the other part is ended.
    """
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL)
    try:
        yield
    except BaseException:
        process.terminate()
        raise
    finally:
        status = process.wait()
    if status != 0:
        raise SetupFailed(f"{what} is not complete: see above")


def _run_once(title: str, words: list[str], log: Path, env: Mapping[str, str]) -> int:
    started = time.monotonic()
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **env},
                pass_fds=tuple(_locks_held),
            )
        except OSError as error:
            raise SetupFailed(f"{words[0]} cannot be started: {error}") from error
        try:
            _wait(title, process, started, log)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    return process.returncode


def _wait(title: str, process: subprocess.Popen[bytes], started: float, log: Path) -> None:
    is_terminal = sys.stdout.isatty()
    wait_seconds = 1 if is_terminal else HEARTBEAT_SECONDS
    while True:
        try:
            process.wait(timeout=wait_seconds)
        except subprocess.TimeoutExpired:
            text = f"  {title:<28} at work, {time.monotonic() - started:.0f} s  {_last_line(log)[:60]}"
            if is_terminal:
                print(f"\r{text:<110}", end="", flush=True)
            else:
                say(text)
        else:
            if is_terminal:
                print(CLEARED_LINE, end="", flush=True)
            return


def _last_line(log: Path) -> str:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - 500))
        lines = stream.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def main(action: Callable[[], None]) -> None:
    """Runs a set-up from the command line: a failed step shows no traceback, and SIGTERM ends its children, too."""
    signal.signal(signal.SIGTERM, _end)
    try:
        action()
    except SetupFailed as failure:
        say(f"\n{failure}")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        say("\ninterrupted; run it again, it goes on where it was")
        raise SystemExit(130) from None
