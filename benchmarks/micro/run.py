"""`make bench-micro`: the micro-benchmarks one after the other, on one core each, with their output as one table.

Rule: each runs in a process of its own, so that none warms or fills the memory of another. Those that print JSON lines
become aligned columns; what is printed as a table stays as it is. Status 1: one failed.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.report.table import aligned

FOLDER = Path(__file__).parent
SECONDS_MAX = 600
QUICK: dict[str, tuple[str, ...]] = {
    "apply": ("--chunks", "100000", "--rounds", "2"),
    "behind": ("--rounds", "2"),
    "parquet": ("--mib", "16", "--rounds", "1"),
    "passes": ("--mib", "16"),
}


def main(arguments: Sequence[str]) -> int:
    """`arguments`: names of benchmarks (all where none is named) and `--quick`."""
    known = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in {"__init__", "run"})
    wanted = [word for word in arguments if word != "--quick"]
    chosen = [name for name in known if not wanted or any(word in name for word in wanted)]
    if not chosen:
        print(f"nothing matches; there is {', '.join(known)}", file=sys.stderr)
        return 2
    is_passed = True
    for name in chosen:
        options = QUICK.get(name, ()) if "--quick" in arguments else ()
        is_passed = _run(name, options) and is_passed
    return 0 if is_passed else 1


def _run(name: str, options: Sequence[str]) -> bool:
    began = time.monotonic()
    print(f"{name}: at work", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", f"benchmarks.micro.{name}", *options]
    try:
        done = subprocess.run(command, cwd=FOLDER.parents[1], capture_output=True, text=True, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        print(f"\n{name} FAILED: it took over {SECONDS_MAX} s", flush=True)
        return False
    title = f"\n{name} ({time.monotonic() - began:.0f} s)"
    if done.returncode != 0:
        print(f"{title} FAILED with status {done.returncode}\n{done.stderr[-2000:]}", flush=True)
        return False
    print(f"{title}\n{tabulate(done.stdout)}", flush=True)
    return True


def tabulate(output: str) -> str:
    """JSON lines as columns, other lines as they are. Rows share a heading while one's keys are among the other's."""
    return "\n".join(_blocks(output.splitlines()))


def _blocks(lines: Sequence[str]) -> Iterator[str]:
    rows: list[dict[str, object]] = []
    heading: list[str] = []
    for line in lines:
        row = _row(line)
        if row is not None and (row.keys() <= set(heading) or row.keys() >= set(heading)):
            heading = list(row) if len(row) > len(heading) else heading
            rows.append(row)
            continue
        if rows:
            yield _columns(heading, rows)
        rows, heading = ([], []) if row is None else ([row], list(row))
        if row is None:
            yield line
    if rows:
        yield _columns(heading, rows)


def _columns(heading: Sequence[str], rows: Sequence[dict[str, object]]) -> str:
    return aligned([heading, *([_cell(row.get(key, "-")) for key in heading] for row in rows)], texts=1)


def _cell(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _row(line: str) -> dict[str, object] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
