"""The command line as far as it gets without an agent."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent.cli.failure import EXIT_FAILED, EXIT_USAGE, CommandFailed
from agent.cli.main import app
from agent.config.options import OPTIONS
from agent.runtime.version import VERSION

ROOT = Path(__file__).parents[4]
NOBODY = "127.0.0.1:1"


def failure(*arguments: str) -> CommandFailed:
    result = CliRunner().invoke(app, list(arguments))
    assert isinstance(result.exception, CommandFailed), result.output
    return result.exception


def test_the_version_is_printed() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"penstock {VERSION}\n")


def test_every_option_is_a_flag_of_the_agent() -> None:
    text = CliRunner().invoke(app, ["agent", "--help"], env={"COLUMNS": "200"}).output
    for option in OPTIONS:
        assert f"--{option.name}" in text
        assert option.variable in text


def test_penstock_run_has_its_own_ledger() -> None:
    assert "--ledger" not in CliRunner().invoke(app, ["run", "--help"]).output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--listen", "10.1.1.1:1"], "--insecure"),
        (["run", "--set", "num.partition=1"], "did you mean num.partitions"),
        (["run", "--config", "/nowhere/x.toml"], "cannot be read"),
        (["agent"], "needs --ledger"),
        (["topics", "list", "--server", "nowhere"], "HOST:PORT"),
        (["topics", "alter", "t"], "give --config KEY=VALUE or --delete-config KEY"),
        (["topics", "alter", "t", "--config", "retention.ms"], "is not KEY=VALUE"),
        (
            ["topics", "alter", "t", "--config", "retention.ms=1", "--delete-config", "retention.ms"],
            "remove one of them",
        ),
        (["produce", "t", "--key", "k", "--key-separator", "="], "exclude each other"),
        (["produce", "t", "--key-separator", ""], "--key-separator is empty"),
        (["inspect", "object", "x", "--data-dir", "/nowhere"], "there is no"),
    ],
)
def test_what_was_asked_wrongly_is_explained(arguments: list[str], words: str) -> None:
    error = failure(*arguments)
    assert words in str(error)
    assert error.exit_code == EXIT_USAGE


@pytest.mark.parametrize("source", ["flag", "environment", "file"])
def test_the_doctor_takes_settings_with_a_ledger_for_those_of_an_agent(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, file, arguments = "etcd://127.0.0.1:1/c", tmp_path / "penstock.toml", ["doctor"]
    text = 'listen = ["A://127.0.0.1:0", "RELAY://127.0.0.1:0"]\n'
    match source:
        case "flag":
            arguments += ["--ledger", url]
        case "environment":
            monkeypatch.setenv("PENSTOCK_LEDGER", url)
        case _:
            text += f'ledger = "{url}"\n'
    file.write_text(text)
    monkeypatch.setenv("PENSTOCK_CONFIG", str(file))
    assert "penstock agent needs --store" in str(failure(*arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "list"],
        ["topics", "describe", "t"],
        ["archive", "t", "--wait"],
        ["consume", "t"],
        ["produce", "t", "--value", "v"],
        ["inspect", "ledger"],
        ["acls", "confirm"],
        ["agents", "list"],
        ["agents", "drain", "a"],
    ],
)
def test_an_agent_that_does_not_answer_is_named(arguments: list[str]) -> None:
    error = failure(*arguments, "--server", NOBODY)
    assert f"no agent answers at http://{NOBODY}" in str(error)
    assert error.exit_code == EXIT_FAILED


def test_waiting_for_an_archive_has_an_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        error = failure("archive", "a", "b", "--wait", "--timeout", "0.1", "--server", server)
    assert str(error).startswith("a, b: not archived within 0.1 s. The agent goes on with it")
    assert error.exit_code == EXIT_FAILED


def test_a_bad_bootstrap_address_is_named_with_its_option() -> None:
    assert str(failure("consume", "t", "--bootstrap", "x")).startswith("--bootstrap: 'x' is not HOST:PORT")


def test_a_folder_without_a_ledger_is_named() -> None:
    assert "there is no ledger in /nowhere" in str(failure("inspect", "state", "--data-dir", "/nowhere"))


def test_a_failure_is_one_line_on_stderr_and_an_exit_code() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agent.cli.main", "run", "--http", "10.1.1.1:1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (EXIT_USAGE, "")
    assert done.stderr.startswith("penstock: --http 10.1.1.1:1: other machines can reach")
    assert done.stderr.count("\n") == 1


def test_the_command_line_imports_nothing_slow() -> None:
    program = (
        "import sys, agent.cli.main; print(*{'numpy','kio','rich','starlette','uvicorn','uvloop','pydantic',"
        "'prometheus_client','pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "")


@pytest.mark.parametrize("purpose", ["rewrite", "backfill"])
def test_a_rewrite_of_which_nobody_could_be_asked_has_not_the_status_of_one_that_left_files(purpose: str) -> None:
    told = failure("lake", purpose, "orders", "--server", NOBODY)
    assert told.exit_code == EXIT_USAGE
    assert str(told).startswith("not done: no agent answers")
