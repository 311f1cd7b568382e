"""Files without typed columns are written and merged without the kernels of typed ones, which compile for seconds."""

import subprocess
import sys

import pytest

from tools.steps import ROOT


def loads_kernels(module: str) -> bool:
    program = (
        f"import {module}, sys; "
        "print(sum('kernel' in name.rpartition('.')[2] for name in sys.modules if name.startswith('iceberg_export.')))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    return int(done.stdout) > 0


@pytest.mark.parametrize(
    "module", ["iceberg_export.parquet.writer", "iceberg_export.compaction.writer", "iceberg_export.typed.file_columns"]
)
def test_an_import_loads_no_kernels(module: str) -> None:
    assert not loads_kernels(module)


def test_a_module_with_kernels_is_noticed() -> None:
    assert loads_kernels("iceberg_export.typed.avro_kernels")
