"""DuckDB's Iceberg extension passes over files by their counts; a column without one has no values for it."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from storage.embedded.local_store import LocalStore
from tests.support.lake.typed_table_fixtures import FIRST, FIRST_VALUES, SECOND, SECOND_VALUES, TypedTable

pytestmark = pytest.mark.slow
PACKAGES = ("duckdb==1.4.4", "duckdb-ext-iceberg==1.4.4.20260205", "duckdb-ext-avro==1.4.4.20260205", "pytz")
"""An environment of its own: this one has a newer DuckDB, and extensions are built for one version each."""
ASK = """
import glob, json, sys
import duckdb, duckdb_ext
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for name in ("avro", "iceberg"):
    pattern = f"{list(duckdb_ext.__path__)[0]}/**/{name}.duckdb_extension"
    connection.execute(f"load '{glob.glob(pattern, recursive=True)[0]}'")
table = f"iceberg_scan('{sys.argv[1]}')"
answers = {}
for name, *_ in connection.execute(f"describe select * from {table}").fetchall():
    rows = connection.execute(f'select "{name}" from {table}').fetchall()
    nulls = sum(value is None for (value,) in rows)
    found = [
        connection.execute(f'select count("offset") from {table} where "{name}" {what}').fetchone()[0]
        for what in ("is null", "is not null")
    ]
    answers[name] = [[nulls, len(rows) - nulls], found]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("duckdb")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    python = folder / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES], check=True, timeout=600)
    return python


async def make_table(folder: Path) -> str:
    """The key of the table's metadata."""
    made = TypedTable(store=LocalStore(folder, is_durable=False), root=f"file://{folder}")
    await made.add(FIRST, FIRST_VALUES)
    await made.add(SECOND, SECOND_VALUES)
    await made.add(None, None)
    return made.metadata_key


def test_null_and_not_null_find_all_rows_of_every_column(tmp_path: Path, python: Path) -> None:
    metadata_key = asyncio.run(make_table(tmp_path))
    command = [str(python), "-c", ASK, str(tmp_path / metadata_key)]
    done = subprocess.run(command, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert len(answers) == 28
    assert {name: found for name, (expected, found) in answers.items() if found != expected} == {}
