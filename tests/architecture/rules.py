"""What decides the state that agents compute: the forms of entries and snapshots, and the sources of apply.

`python -m tests.architecture.rules` records them in `rules.txt`, a line for each form and module, for
`test_rules.py` to compare. Of sources only those definitions count that apply, the codecs of entries and snapshots,
and what these use come to, without docstrings, comments, and layout; of limits the values.
"""

import ast
import hashlib
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from coordinator import snapshot
from coordinator.codec import codec
from coordinator.commands.forms import WireStruct, layout_in_form
from coordinator.commands.rules import RULES_FIRST, RULES_NEWEST
from protocol import limits
from tests.architecture.source import CORE_PACKAGES, dotted, modules, tree

RECORD = Path(__file__).with_name("rules.txt")
ROOTS = (
    ("coordinator.apply.apply", "apply"),
    ("coordinator.apply.apply", "apply_proposal"),
    ("coordinator.codec.codec", "encode"),
    ("coordinator.codec.codec", "decode"),
    ("coordinator.snapshot", "Frozen"),
    ("coordinator.snapshot", "decode_with_digest"),
)
LIMITS = "protocol.limits"
WIRE_MODULES = (codec, snapshot)
"""They import every module that has a wire struct."""

Definition = tuple[str, str]
"""Module and name."""


def recorded() -> dict[str, str]:
    """What stands in the file: hashes by what they are of."""
    lines = RECORD.read_text(encoding="utf-8").splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))


@cache
def current() -> dict[str, str]:
    """The same of this checkout."""
    return {**forms(), **sources()}


def forms() -> dict[str, str]:
    """Of every wire struct, in the form of every version that has it."""
    found: dict[str, str] = {}
    for name, kind in sorted((kind.__name__.removeprefix("Wire"), kind) for kind in wire_structs(WireStruct)):
        for rules_version in range(max(RULES_FIRST, kind.SINCE), RULES_NEWEST + 1):
            layout = repr((kind.__struct_config__.tag, layout_in_form(kind, rules_version)))
            found[f"form {rules_version} {name}"] = _hash(layout)
    return found


def wire_structs(base: type[WireStruct]) -> Iterator[type[WireStruct]]:
    """All that entries and snapshots are made of; not what tests derive from it."""
    for kind in base.__subclasses__():
        if kind.__module__.startswith("coordinator."):
            yield kind
            yield from wire_structs(kind)


def sources() -> dict[str, str]:
    """Of every module that apply comes to: a hash of the definitions that it comes to."""
    reached = _reached()
    by_module: dict[str, list[str]] = {}
    for module, name in sorted(reached):
        if module == LIMITS:
            by_module.setdefault(module, []).append(f"{name} = {getattr(limits, name)!r}")
        else:
            by_module.setdefault(module, []).extend(normalised(node) for node in _definitions(module)[name])
    return {f"source {module}": _hash("\n".join(parts)) for module, parts in sorted(by_module.items())}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _reached() -> set[Definition]:
    reached: set[Definition] = set()
    waiting = list(ROOTS)
    while waiting:
        definition = waiting.pop()
        module, name = definition
        if definition in reached or module not in _paths():
            continue
        imported = _imports(module).get(name)
        if imported is not None:
            waiting.extend(_of_import(imported))
        elif name in _definitions(module):
            reached.add(definition)
            if module != LIMITS:
                waiting.extend((module, used) for node in _definitions(module)[name] for used in _names(node))
    return reached


def _of_import(imported: Definition) -> Iterator[Definition]:
    """What an import may lead to: the definition, or all of a module that is imported whole."""
    module, name = imported
    if f"{module}.{name}" in _paths():
        yield from ((f"{module}.{name}", each) for each in _definitions(f"{module}.{name}"))
    else:
        yield imported


@cache
def _paths() -> Mapping[str, Path]:
    return {dotted(module): module for module in modules(*CORE_PACKAGES)}


@cache
def _definitions(module: str) -> Mapping[str, list[ast.stmt]]:
    """The statements that give each name of a module its value."""
    found: dict[str, list[ast.stmt]] = {}
    for node in tree(_paths()[module]).body:
        for name in _bound(node):
            found.setdefault(name, []).append(node)
    return found


def _bound(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))


@cache
def _imports(module: str) -> Mapping[str, Definition]:
    """What each imported name of a module means."""
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in tree(_paths()[module]).body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }


def _names(node: ast.stmt) -> set[str]:
    """Those that the statement uses, in quoted annotations too."""
    found = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    texts = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    return found | {text for text in texts if text.isidentifier()}


def normalised(node: ast.stmt) -> str:
    """The statement without docstrings, comments and layout."""
    copy = ast.parse(ast.unparse(node)).body[0]
    for part in ast.walk(copy):
        body: list[ast.stmt] | None = getattr(part, "body", None)
        if isinstance(body, list):
            body[:] = [each for each in body if not _is_text(each)] or [ast.Pass()]
    return ast.unparse(copy)


def _is_text(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def frozen_changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Forms of older versions that are others than recorded: never right."""
    older = tuple(f"form {rules_version} " for rules_version in range(RULES_FIRST, RULES_NEWEST))
    names = {name for name in before.keys() | now.keys() if name.startswith(older)}
    return sorted(name for name in names if before.get(name) != now.get(name))


def record() -> None:
    """Write the file again. Forms of older versions stay as they are: an agent of theirs reads them."""
    now = current()
    before = recorded() if RECORD.exists() else {}
    changed = frozen_changes(before, now) if before else []
    if changed:
        sys.exit("not recorded: the form of an older version of the rules never changes: " + ", ".join(changed))
    heading = "# Written by `python -m tests.architecture.rules`; see tests/architecture/test_rules.py.\n"
    RECORD.write_text(heading + "".join(f"{name} {value}\n" for name, value in now.items()), encoding="utf-8")
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            print("recorded:", name)


if __name__ == "__main__":
    record()
