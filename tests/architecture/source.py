"""The files of the checkout, for tests about the code itself."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("agent", "coordinator", "iceberg_export", "protocol", "storage", "txn")
CORE_PACKAGES = ("coordinator", "protocol", "storage", "txn")
FOLDERS = (*PACKAGES, "benchmarks", "deploy", "penstock", "tests", "tools")
TEXT_FILES = ("*.py", "*.md", "*.toml", "*.yaml", "*.yml", "*.sh", "*.java", "*.xml")


def modules(*folders: str) -> Iterator[Path]:
    """Every Python file below these folders."""
    for folder in folders or FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.py"))


def texts() -> Iterator[Path]:
    """Every text that people read or run: code, documents, settings, the Makefile."""
    for folder in (*FOLDERS, "docs"):
        for pattern in TEXT_FILES:
            yield from sorted((ROOT / folder).rglob(pattern))
    for pattern in TEXT_FILES:
        yield from sorted(ROOT.glob(pattern))
    yield from (ROOT / "Makefile", ROOT / ".ci" / "run")


@cache
def tree(module: Path) -> ast.Module:
    """The parsed source of a module."""
    return ast.parse(module.read_text(encoding="utf-8"), filename=str(module))


def dotted(module: Path) -> str:
    """The name under which a module is imported."""
    parts = module.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def place(module: Path, node: ast.stmt | ast.expr | ast.excepthandler | None = None) -> str:
    """`path:line`, for a message."""
    path = module.relative_to(ROOT)
    return f"{path}:{node.lineno}" if node is not None else str(path)


def imports(module: Path) -> Iterator[tuple[str, ast.stmt]]:
    """Every dotted name that a module imports, with the statement; `from a import b` gives `a` and `a.b`."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module, node
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node
