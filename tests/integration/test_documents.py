"""The examples of README and the quickstart, run as they stand there; what they print is what the pages show."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.services.spark_python import worker_python
from tests.support.walk import Walk, page, quickstart


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    """A folder like a checkout in which `make run` and the installing commands were done, with an empty home."""
    folder, home = tmp_path / "penstock", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    with ExitStack() as stack:
        walk = Walk(folder=folder, stack=stack, env={"HOME": str(home)})
        walk.prepare()
        yield walk


def test_the_readme_does_what_it_shows(walk: Walk, java: Path, kafka_jars: Path, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    walk.provide_tools(java, kafka_jars, programs)
    walk.follow(page("README.md"))


def test_the_quickstart_does_what_it_shows(walk: Walk) -> None:
    walk.follow(quickstart(is_spark=False))


@pytest.mark.slow
def test_the_quickstart_reads_with_spark(walk: Walk, java: Path, tmp_path: Path) -> None:
    spark = {"JAVA_HOME": str(java.parent.parent), "PYSPARK_PYTHON": str(worker_python(tmp_path))}
    walk.env = {**walk.env, **spark, "SPARK_LOCAL_IP": "127.0.0.1"}
    walk.follow([*quickstart(is_spark=False)[:1], *quickstart(is_spark=True)])


@pytest.mark.parametrize("name", ["README.md", "docs/quickstart.md"])
def test_every_command_of_the_page_is_in_a_block_that_runs(name: str) -> None:
    assert {block.language for block in page(name)} <= {"console", "python", "mermaid"}
