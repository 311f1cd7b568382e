"""`penstock inspect`: the ledger, the state, chunks and objects as readable text.

The source is a running agent (--server), a data folder (--data-dir, read only, whether its broker runs or not), or a
single file.
"""

import asyncio
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from agent.cli.clients.http_client import AgentServer, Json, JsonOption, get
from agent.cli.failure import EXIT_USAGE, CommandFailed
from agent.cli.output import bytes_text, cell_text, print_json, print_pairs, print_table
from agent.cli.server_flags import with_server

app = typer.Typer(no_args_is_help=True)
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Read the data folder of a penstock run, stopped or running, instead of an agent.",
    ),
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="Longest list to show.")]
AfterOption = Annotated[int, typer.Option("--after", help="Show only entries above this position.")]


@app.command("state")
@with_server
def show_state(*, data_dir: DataDirOption = None, server: AgentServer, as_json: JsonOption = False) -> None:
    """Show a summary of the state: counts, ledger position and live sessions."""
    if data_dir is None:
        answer = get(server, "/api/inspect/state")
    else:
        from agent.cli.offline import read_state
        from agent.views.state import state_summary

        answer = state_summary(asyncio.run(read_state(data_dir)))
    if as_json:
        print_json(answer)
        return
    print_pairs(answer)
    _print_rows(
        answer, "sessions", ("session", "name", "node_id", "zone", "rules_version", "endpoints"), "No live sessions."
    )


@app.command("ledger")
@with_server
def show_ledger(
    *,
    after: AfterOption = -1,
    limit: LimitOption = 1_000,
    data_dir: DataDirOption = None,
    server: AgentServer,
    as_json: JsonOption = False,
) -> None:
    """Show the ledger's entries, oldest first. The ledger keeps only the newest entries that a snapshot covers."""
    if data_dir is None:
        query = {"limit": str(limit)} | ({"after": str(after)} if after >= 0 else {})
        answer = get(server, "/api/inspect/ledger", query)
    else:
        from agent.cli.offline import read_ledger
        from agent.views.inspection import ledger_rows

        answer = {"entries": ledger_rows(asyncio.run(read_ledger(data_dir)), after=after, limit=limit)}
    if as_json:
        print_json(answer)
    else:
        _print_entries(answer["entries"])


@app.command("objects")
@with_server
def show_objects(
    *,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Longest list of released objects to show.")] = 20,
    data_dir: DataDirOption = None,
    server: AgentServer,
    as_json: JsonOption = False,
) -> None:
    """Show all objects of the state: referenced ones, then released ones that wait for deletion."""
    if data_dir is None:
        answer = get(server, "/api/inspect/objects", {"limit": str(limit)})
    else:
        from agent.cli.offline import read_state
        from agent.views.state import object_rows

        state = asyncio.run(read_state(data_dir))
        answer = {"objects": object_rows(state, released_max=limit), "released": len(state.released)}
    if as_json:
        print_json(answer)
        return
    rows, released_count = answer["objects"], answer["released"]
    assert isinstance(rows, list)
    assert isinstance(released_count, int)
    _print_rows(answer, "objects", ("key", "kind", "bytes", "references", "state"), "There are no objects yet.")
    hidden_count = released_count - sum(row["state"] == "released" for row in rows)
    if hidden_count:
        sys.stderr.write(f"{hidden_count} more released objects; show them with a larger --limit\n")


@app.command("chunks")
@with_server
def show_chunks(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    *,
    partition: Annotated[int, typer.Option(min=-1, help="-1 shows all partitions.")] = -1,
    limit: LimitOption = 1_000,
    data_dir: DataDirOption = None,
    server: AgentServer,
    as_json: JsonOption = False,
) -> None:
    """Show the location of each range of a topic's offsets: bytes of an intake object, or rows of a Parquet file."""
    if data_dir is None:
        query = {"topic": topic, "limit": str(limit)} | ({"partition": str(partition)} if partition >= 0 else {})
        answer = get(server, "/api/inspect/chunks", query)
    else:
        answer = {"chunks": asyncio.run(_chunks_of_folder(data_dir, topic, partition))[:limit]}
    if as_json:
        print_json(answer)
        return
    columns = (
        "partition",
        "offset_first",
        "offset_end",
        "object",
        "byte_first",
        "byte_count",
        "row_group",
        "row_count",
    )
    _print_rows(answer, "chunks", columns, f"{topic} has no records.")


@app.command("transactions")
@with_server
def show_transactions(
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Longest list to show.")] = 20,
    data_dir: DataDirOption = None,
    server: AgentServer,
    as_json: JsonOption = False,
) -> None:
    """Show transactional ids: first open transactions, oldest first, then the recently used ids."""
    if data_dir is None:
        answer = get(server, "/api/inspect/transactions", {"limit": str(limit)})
    else:
        from agent.cli.offline import read_state
        from agent.views.transactions import transaction_list

        answer = transaction_list(asyncio.run(read_state(data_dir)), limit)
    if as_json:
        print_json(answer)
        return
    columns = (
        "transactional_id",
        "state",
        "open_s",
        "timeout_s",
        "producer_id",
        "epoch",
        "partitions",
        "groups",
        "first_partition",
    )
    _print_rows(answer, "transactions", columns, "No transactional id was used yet.")
    sys.stderr.write(f"{answer['open']} open of {answer['ids']} transactional ids\n")


@app.command("object")
@with_server
def show_object(
    key: Annotated[str, typer.Argument(metavar="KEY|FILE", help="A key of the bucket, or a local file.")],
    *,
    data_dir: DataDirOption = None,
    server: AgentServer,
    as_json: JsonOption = False,
) -> None:
    """Show one object: an intake object's chunks, a Parquet file's row groups, or a snapshot's contents."""
    payload = _object_here(key, data_dir)
    if payload is not None:
        from agent.views.inspection import InspectError, describe_bytes

        try:
            answer = {"file": key, **describe_bytes(payload, key)}
        except InspectError as error:
            raise CommandFailed(f"{key}: {error}") from error
    elif data_dir is not None:
        raise CommandFailed(
            f"there is no object {key} in {data_dir}; list keys with penstock inspect objects", exit_code=EXIT_USAGE
        )
    else:
        answer = get(server, "/api/inspect/object", {"key": key})
    if as_json:
        print_json(answer)
        return
    print_pairs(answer)
    columns = ("topic_id", "partition", "byte_first", "byte_count", "batches", "records", "crc32c", "damage")
    _print_rows(answer, "chunks", columns, "")
    _print_rows(answer, "row_groups", ("rows", "bytes", "partition", "offset"), "")
    _print_rows(answer, "sessions", ("session", "name", "node_id", "endpoints"), "")


def _object_here(key: str, data_dir: Path | None) -> bytes | None:
    """The bytes of an object of a data folder, or of a file on this machine; None where there is neither."""
    if data_dir is None:
        try:
            return Path(key).read_bytes() if Path(key).is_file() else None
        except OSError as error:
            raise CommandFailed(f"{key} cannot be read: {error.strerror}") from error
    from agent.cli.offline import read_object

    return read_object(data_dir, key)


async def _chunks_of_folder(data_dir: Path, topic: str, partition: int) -> list[Json]:
    from agent.cli.offline import read_state
    from agent.views.state import chunk_rows

    state = await read_state(data_dir)
    topic_id = state.topic_ids.get(topic)
    if topic_id is None:
        raise CommandFailed(f"there is no topic {topic!r}; topics: {', '.join(sorted(state.topic_ids)) or 'none'}")
    return list(chunk_rows(state, state.topics[topic_id], None if partition < 0 else partition))


def _print_entries(entries: object) -> None:
    """Print each entry as a paragraph: its position, its command, and the command's values."""
    assert isinstance(entries, list)
    if not entries:
        sys.stdout.write(
            "No entries: a snapshot covers them and they were trimmed, or --after is above all of them. See penstock "
            "inspect state.\n"
        )
    for entry in entries:
        moment = "no time" if entry.get("time_ms") is None else _moment(entry["time_ms"])
        sys.stdout.write(
            f"{entry['position']}  {entry['command']}  session {entry['session']} entry {entry['number']}  "
            f"{moment}  {bytes_text(entry['bytes'])}\n",
        )
        _print_values(entry.get("values") or {"reason": entry.get("reason")}, "    ")


def _print_values(values: Json, indent: str) -> None:
    for name, value in values.items():
        if isinstance(value, dict):
            sys.stdout.write(f"{indent}{name.replace('_', ' ')}\n")
            _print_values(value, indent + "    ")
        else:
            sys.stdout.write(f"{indent}{name.replace('_', ' ')}: {cell_text(name, value)}\n")


def _moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _print_rows(answer: Mapping[str, object], name: str, columns: tuple[str, ...], empty: str) -> None:
    rows = answer.get(name)
    if not isinstance(rows, list):
        return
    if rows or empty:
        print_table(rows, [column for column in columns if any(column in row for row in rows)], empty=empty)
