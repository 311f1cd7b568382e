"""Builds the zip archive for a Spark cluster: the data source, the jobs, and the modules that they import.

    python -m iceberg_export.spark.package penstock-spark.zip
    spark-submit --py-files penstock-spark.zip job.py     (or spark.addArtifacts("penstock-spark.zip", pyfile=True))

The import statements determine the modules, so none is missing. Equal sources give equal bytes. Third-party libraries
are not included: the command prints those that the executors need.
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
"""A module for drivers; executors do not need its library."""
ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("coordinator", "iceberg_export", "protocol", "storage", "txn")
MADE_AT: Final = (1980, 1, 1, 0, 0, 0)
"""The time of each entry: the earliest that a zip can have."""
PACKAGE_OF: Final = {"google": "protobuf"}
"""The names of packages that differ from their modules'."""


def modules(*entries: str) -> dict[str, Path]:
    """The paths of these modules and of all that they import of the project, by name. Imports in functions count."""
    paths: dict[str, Path] = {}
    pending = list(entries)
    while pending:
        name = pending.pop()
        path = _path(name)
        if name in paths or path is None:
            continue
        paths[name] = path
        if "." in name:
            pending.append(name.rpartition(".")[0])
        pending.extend(imported for imported in _imports(path) if imported.partition(".")[0] in PACKAGES)
    return dict(sorted(paths.items()))


def libraries() -> list[str]:
    """The third-party packages that those modules import, except pyspark, which a cluster has."""
    names = {name.partition(".")[0] for path in modules(ENTRY, *JOBS).values() for name in _imports(path)}
    return sorted(
        {PACKAGE_OF.get(name, name) for name in names - set(PACKAGES) - sys.stdlib_module_names - {"pyspark"}}
    )


def write_archive(path: Path) -> list[str]:
    """Write the zip, and return the names of its modules."""
    paths = modules(ENTRY, *JOBS, OF_DRIVERS)
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for source in paths.values():
            entry = ZipInfo(source.relative_to(ROOT).as_posix(), MADE_AT)
            entry.compress_type = ZIP_DEFLATED
            archive.writestr(entry, source.read_bytes())
    return list(paths)


def _path(name: str) -> Path | None:
    """The path of a module's source; None for a name that is no module of the project."""
    base = ROOT.joinpath(*name.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def _imports(path: Path) -> Iterator[str]:
    """Every imported name that may be a module: for `from a import b` both `a` and `a.b`."""
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
    """Write the zip to the path in `arguments`; returns the exit status."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m iceberg_export.spark.package OUT.zip\n")
        return 2
    path = Path(arguments[0])
    count = len(write_archive(path))
    sys.stdout.write(f"{path}: {count} modules, {path.stat().st_size} bytes; executors need {', '.join(libraries())}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
