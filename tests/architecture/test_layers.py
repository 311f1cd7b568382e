"""The core is pure, and each library has its modules. Layers and circles: import-linter's contracts in pyproject.toml.

Every module of `protocol`, `txn`, `coordinator` and `storage` is core unless it is an adapter: coverage's `omit` in
pyproject.toml is the one list of adapters.
"""

import tomllib

from tests.architecture.source import CORE_PACKAGES, PACKAGES, ROOT, dotted, imports, modules, place

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ADAPTERS = {path.removesuffix(".py").replace("/", ".") for path in PYPROJECT["tool"]["coverage"]["run"]["omit"]}
INPUT_AND_OUTPUT = {
    "asyncio", "logging", "os", "random", "secrets", "socket", "sqlite3", "threading", "time", "uuid",
    "aetcd", "boto3", "botocore", "grpc", "obstore", "pyarrow", "pyiceberg", "pyspark", "starlette", "uvloop",
}  # fmt: skip
"""Modules and libraries that the core does not import: a simulation could not stand in for them."""
LIBRARIES = {
    "aetcd": {"coordinator.ledger.etcd"},
    "boto3": set[str](),
    "botocore": {"storage.s3.aws_credentials", "storage.s3.session_credentials"},
    "grpc": {"coordinator.ledger.etcd"},
    "joserfc": {"agent.security.oauth.token_signatures"},
    "obstore": {"storage.s3.aws_credentials", "storage.s3.store"},
    "opentelemetry": {"agent.telemetry.series"},
    "pyiceberg": {"iceberg_export.external_catalogs"},
    "pyspark": {"iceberg_export.jobs", "iceberg_export.spark"},
    "sqlalchemy": {"iceberg_export.external_catalogs"},
    "uvloop": {"agent.cli"},
}
"""The rooms or modules that may import each library, so that it can be replaced there."""


def test_every_adapter_exists() -> None:
    assert {dotted(module) for module in modules(*CORE_PACKAGES)} >= ADAPTERS


def test_no_module_of_the_core_imports_an_adapter_or_does_input_and_output() -> None:
    wrong = [
        f"{place(module, statement)} imports {name}"
        for module in modules(*CORE_PACKAGES)
        if dotted(module) not in ADAPTERS
        for name, statement in imports(module)
        if name in ADAPTERS or name.partition(".")[0] in INPUT_AND_OUTPUT
    ]
    assert not wrong, "\n".join(wrong)


def test_a_library_is_imported_in_its_own_rooms_alone() -> None:
    wrong = [
        f"{place(module, statement)} imports {name}"
        for module in modules(*PACKAGES)
        for name, statement in imports(module)
        if (rooms := LIBRARIES.get(name.partition(".")[0])) is not None
        if not any(f"{dotted(module)}.".startswith(f"{room}.") for room in rooms)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_package_imports_tests_tools_or_benchmarks() -> None:
    wrong = [
        f"{place(module, statement)} imports {name}"
        for module in modules(*PACKAGES)
        for name, statement in imports(module)
        if name.split(".")[0] in {"tests", "tools", "benchmarks"}
    ]
    assert not wrong, "\n".join(wrong)


def test_no_module_imports_a_test_module() -> None:
    """What several test modules use stands in `tests/support`, or in a module without tests beside them."""
    test_modules = {dotted(module) for module in modules("tests") if module.name.startswith("test_")}
    assert test_modules
    wrong = [
        f"{place(module, statement)} imports {name}: move what it needs to tests/support"
        for module in modules("tests", "benchmarks", "tools")
        for name, statement in imports(module)
        if name in test_modules
    ]
    assert not wrong, "\n".join(wrong)
