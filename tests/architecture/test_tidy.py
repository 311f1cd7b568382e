"""The code stays readable: lengths, headers of handlers, no notes to self, no broad excepts, no sleeps in tests."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.handlers.rejected_requests import REJECTIONS
from protocol.api_versions import API_VERSIONS, ApiRange
from tests.architecture.source import PACKAGES, dotted, modules, place, texts, tree

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
CATCHES_ALL = {
    "agent.lake.topic_work",
    "agent.lake.typed_columns",
    "agent.runtime.supervisor",
    "iceberg_export.external_catalogs.entries",
    "iceberg_export.jobs.rewrite",
    "iceberg_export.jobs.verify",
    "iceberg_export.rows.footer",
    "iceberg_export.rows.kernels",
    "iceberg_export.tables.avro_files",
    "iceberg_export.typed.decode",
    "iceberg_export.typed.file_columns",
    "storage.embedded.one_thread",
}
"""One ends what failed, one hands it to whoever waits for the result; clients of catalogs raise what they like, and so
do a compiler and libraries of what producers send, schemas say and damaged files hold; the exit status of a job that
failed is not that of one that found something."""
DECODERS = {
    "agent.schemas.json_text",
    "agent.security.oauth.web_tokens",
    "iceberg_export.tables.avro_files",
    "iceberg_export.typed.avro_shapes",
    "protocol.decoding",
}
"""The modules that decode what was stored or sent: each turns whatever its library raises into one error (safety rule
S20). JSON of schemas and of tokens has rules of its own, and records are decoded by their schemas."""
DECODING = {
    "json": {"load", "loads", "JSONDecoder"},
    "msgspec.json": {"decode", "Decoder"},
    "msgspec.msgpack": {"decode", "Decoder"},
    "msgspec.yaml": {"decode"},
    "msgspec.toml": {"decode"},
    "msgspec": {"convert"},
    "fastavro": {"reader", "block_reader", "schemaless_reader", "json_reader"},
    "pickle": {"load", "loads", "Unpickler"},
}
"""Names in modules that decode."""
WAITS = {
    "tests.compat.protocol_diff.engine",
    "tests.compat.protocol_diff.single_rights",
    "tests.support.processes",
}
NOTE_TO_SELF = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:ro" + r"ot|wo" + r"rk|ho" + r"me|Us" + r"ers|tmp/lab)/")
HANDLER_BULLET = re.compile(r"^- ([A-Z][A-Za-z ]+): ", re.MULTILINE)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(module: Path) -> Iterator[Function]:
    for node in ast.walk(tree(module)):
        if isinstance(node, Function):
            yield node


def lines_without_docstring(function: Function) -> int:
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def test_a_file_above_500_lines_says_why_in_its_docstring() -> None:
    long = [
        place(module)
        for module in modules()
        if len(module.read_text(encoding="utf-8").splitlines()) > FILE_LINES_MAX
        and "500 lines" not in (ast.get_docstring(tree(module)) or "")
    ]
    assert not long, "\n".join(long)


def test_no_function_has_more_than_70_lines() -> None:
    long = [
        f"{place(module, function)} {function.name}"
        for module in modules()
        for function in functions(module)
        if lines_without_docstring(function) > FUNCTION_LINES_MAX
    ]
    assert not long, "\n".join(long)


def test_every_module_says_what_it_is() -> None:
    silent = [
        place(module) for module in modules() if ast.get_docstring(tree(module)) is None and module.stat().st_size
    ]
    assert not silent, "\n".join(silent)


def test_every_handler_names_its_api_and_versions_and_every_api_has_a_handler() -> None:
    rows = {int(api.api_key): api for api in API_VERSIONS}
    wrong, handled = [], set()
    for module in modules("agent/handlers"):
        key = next(filter(None, (_api_key(node) for node in tree(module).body)), None)
        if key is None:
            continue
        api_key = ast.literal_eval(key)
        handled.add(api_key)
        if api_key not in rows:
            wrong.append(f"{place(module)}: it has no row in protocol.api_versions")
        else:
            header = ast.get_docstring(tree(module)) or ""
            wrong += [f"{place(module)}: {problem}" for problem in _header_problems(rows[api_key], header)]
    assert not wrong, "\n".join(wrong)
    assert handled | {int(rejection.api_key) for rejection in REJECTIONS} == set(rows)


def test_nothing_is_left_to_do_in_a_comment() -> None:
    notes = list(_lines_with(NOTE_TO_SELF))
    assert not notes, "\n".join(notes)


def test_no_text_names_a_path_of_one_machine() -> None:
    named = list(_lines_with(MACHINE_PATH))
    assert not named, "\n".join(named)


def test_nobody_else_catches_every_exception() -> None:
    broad = [
        place(module, node)
        for module in modules(*PACKAGES)
        if dotted(module) not in CATCHES_ALL
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and not _raises_again(node)
    ]
    assert not broad, "\n".join(broad)


def test_bytes_are_decoded_in_the_modules_for_it_alone() -> None:
    elsewhere = [
        f"{place(module, node)} {name}: use protocol.decoding"
        for module in modules(*PACKAGES)
        if dotted(module) not in DECODERS
        for name, node in _names_used(module)
        if name.rpartition(".")[2] in DECODING.get(name.rpartition(".")[0], ())
    ]
    assert not elsewhere, "\n".join(elsewhere)


@pytest.mark.parametrize(
    "source",
    [
        "import msgspec\nmsgspec.json.decode(data)",
        "import msgspec\nread = msgspec.msgpack.Decoder(int).decode",
        "from msgspec import json as fast\nfast.decode(data)",
        "from msgspec.json import Decoder\nDecoder(int)",
        "import json\njson.loads(data)",
        "from json import loads as read\nread(data)",
        "from fastavro import reader\nreader(data)",
        "def late():\n    import fastavro as avro\n    return avro.reader(data)",
    ],
)
def test_a_decoder_is_found_by_whatever_name(source: str, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(source, encoding="utf-8")
    assert any(name.rpartition(".")[2] in DECODING.get(name.rpartition(".")[0], ()) for name, _ in _names_used(module))


def test_no_test_sleeps() -> None:
    sleeps = [
        place(module, node)
        for module in modules("tests")
        if dotted(module) not in WAITS
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"time.sleep", "asyncio.sleep"}
        if not (isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)
    ]
    assert not sleeps, "\n".join(sleeps)


def _names_used(module: Path) -> Iterator[tuple[str, ast.expr]]:
    """Every dotted name of another module that is used, in full, whatever it was imported as."""
    imported: dict[str, str] = {}
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            imported |= {each.asname or each.name.partition(".")[0]: each.name for each in node.names if each.asname}
            imported |= {each.name.partition(".")[0]: each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            imported |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Name | ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            if first in imported:
                yield f"{imported[first]}.{rest}" if rest else imported[first], node


def _api_key(node: ast.stmt) -> ast.expr | None:
    match node:
        case (
            ast.Assign(targets=[ast.Name(id="API_KEY")], value=value)
            | ast.AnnAssign(target=ast.Name(id="API_KEY"), value=value)
        ):
            return value
        case _:
            return None


def _header_problems(api: ApiRange, header: str) -> Iterator[str]:
    """The deviations of a handler's docstring from its form: the API's name, then bullets in a fixed order."""
    if not header.startswith(f"{api.name}: "):
        yield f"its docstring should start with '{api.name}: '"
    names = HANDLER_BULLET.findall(header)
    if names not in (["Versions", "Behaviour", "Source"], ["Versions", "Behaviour", "Differs from Kafka", "Source"]):
        yield f"its docstring has the bullets {names}: Versions, Behaviour, (Differs from Kafka,) Source are expected"
    first, last = api.version_served_min, api.version_max
    versions = f"- Versions: {first}-{last}." if first != last else f"- Versions: {last}."
    if versions not in header.splitlines() and f"\n{versions} " not in header:
        yield f"its docstring should have '{versions}'"


def _is_broad(kind: ast.expr | None) -> bool:
    match kind:
        case None:
            return True
        case ast.Name(id=name):
            return name in {"Exception", "BaseException"}
        case ast.Tuple(elts=kinds):
            return any(_is_broad(each) for each in kinds)
        case _:
            return False


def _raises_again(handler: ast.ExceptHandler) -> bool:
    """Whether a handler only cleans up: it ends by raising what it caught."""
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def _lines_with(pattern: re.Pattern[str]) -> Iterator[str]:
    for text in texts():
        for number, line in enumerate(text.read_text(encoding="utf-8").splitlines(), start=1):
            if pattern.search(line):
                yield f"{place(text)}:{number} {line.strip()}"
