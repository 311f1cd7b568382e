"""The core is pure: what import-linter cannot say in one contract is said here.

Rule: of `protocol`, `txn`, `coordinator` and `storage` every module is core unless it is listed as an adapter. The list
stands twice in pyproject.toml (what coverage leaves out, what the purity contract leaves out); here they are compared.
"""

import tomllib

from tests.architecture.source import CORE_PACKAGES, PACKAGES, ROOT, dotted, imports, modules, place

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ADAPTERS = {path.removesuffix(".py").replace("/", ".") for path in PYPROJECT["tool"]["coverage"]["run"]["omit"]}


def test_coverage_and_purity_leave_out_the_same_adapters() -> None:
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    (purity,) = (contract for contract in contracts if contract["name"] == "the core is pure")
    assert {line.removesuffix(" -> **") for line in purity["ignore_imports"]} == ADAPTERS


def test_no_module_of_the_core_imports_an_adapter() -> None:
    wrong = [
        f"{place(module, statement)} imports {name}"
        for module in modules(*CORE_PACKAGES)
        if dotted(module) not in ADAPTERS
        for name, statement in imports(module)
        if name in ADAPTERS
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
