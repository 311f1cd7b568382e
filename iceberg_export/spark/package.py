"""The archive that a Spark cluster gets: the source and the jobs, and of the project what it imports, as one small zip.

    python -m iceberg_export.spark.package penstock-spark.zip
    spark-submit --py-files penstock-spark.zip job.py     (or spark.addArtifacts("penstock-spark.zip", pyfile=True))

Rule: what goes in follows from the import statements, so nothing is forgotten. Equal sources give equal bytes.
Libraries of others do not go in: what the executors have to have is told.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

ENTRY: Final = "iceberg_export.spark.source"
JOBS: Final = ("iceberg_export.jobs.rewrite", "iceberg_export.jobs.verify")
OF_DRIVERS: Final = "iceberg_export.spark.sink"
"""What drivers may import, too; its library is not one that executors have to have."""
ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("coordinator", "iceberg_export", "protocol", "storage", "txn")
MADE_AT: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest that a zip can tell."""
PACKAGE_OF: Final = {"google": "protobuf"}
"""Packages with another name than their module."""


def modules(*entries: str) -> dict[str, Path]:
    """These modules and those of the project that they import, by name, also where they do so only when needed."""
    found: dict[str, Path] = {}
    waiting = list(entries)
    while waiting:
        name = waiting.pop()
        path = _path(name)
        if name in found or path is None:
            continue
        found[name] = path
        if "." in name:
            waiting.append(name.rpartition(".")[0])
        waiting.extend(imported for imported in _imports(path) if imported.partition(".")[0] in PACKAGES)
    return dict(sorted(found.items()))


def libraries() -> list[str]:
    """The packages of others that those modules import, but for pyspark, which is there."""
    names = {name.partition(".")[0] for path in modules(ENTRY, *JOBS).values() for name in _imports(path)}
    return sorted(
        {PACKAGE_OF.get(name, name) for name in names - set(PACKAGES) - sys.stdlib_module_names - {"pyspark"}}
    )


def write_archive(path: Path) -> list[str]:
    """Write the zip, and return the names of its modules."""
    found = modules(ENTRY, *JOBS, OF_DRIVERS)
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for source in found.values():
            entry = ZipInfo(source.relative_to(ROOT).as_posix(), MADE_AT)
            entry.compress_type = ZIP_DEFLATED
            archive.writestr(entry, source.read_bytes())
    return list(found)


def _path(name: str) -> Path | None:
    """Where a module's source lies; None for a name that is no module."""
    base = ROOT.joinpath(*name.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def _imports(path: Path) -> Iterator[str]:
    """Every name that may be a module; of `from a import b` both `a` and `a.b`."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{each.name}" for each in names)
            case _:
                pass


def main(arguments: list[str]) -> int:
    """Writes the zip that the one argument names."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m iceberg_export.spark.package OUT.zip\n")
        return 2
    path = Path(arguments[0])
    count = len(write_archive(path))
    sys.stdout.write(f"{path}: {count} modules, {path.stat().st_size} bytes; executors need {', '.join(libraries())}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
