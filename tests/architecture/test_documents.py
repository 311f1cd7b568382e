"""The documents: links lead somewhere, diagrams can be drawn, sentences are short."""

import re
from pathlib import Path

from tests.architecture.source import ROOT
from tests.support.documents import anchors, blocks, cells, links, sentences, word_count
from tests.support.processes import provided
from tools.pages.mermaid import diagram_errors, mermaid_folder

README_LINES_MAX = 120
SENTENCE_WORDS_MAX = 30
CELL_WORDS_MAX = 40
SHORT_SENTENCES = (
    "README.md",
    "CONTRIBUTING.md",
    "deploy/chart/README.md",
    "tests/README.md",
    "docs/quickstart.md",
    "docs/compatibility.md",
    "docs/concepts.md",
    "docs/adr/*.md",
    "docs/design/*.md",
    "docs/known-limits.md",
    "docs/schema-registry.md",
    "docs/spark.md",
    "docs/tables.md",
    "docs/typed-columns.md",
    "docs/operations/*.md",
    "docs/reference/*.md",
)
"""Pages whose sentences are held to the limit. A page is added here once it is rewritten."""
NUMBER = r"\d[\d,]*(?:\.\d+)?(?<!,)"
OPTIONS_OF_OTHERS = frozenset(
    {
        "add",
        "add-config",
        "allow-principal",
        "api-versions",
        "auto-compaction-mode",
        "auto-compaction-retention",
        "bootstrap-server",
        "bucket",
        "cacert",
        "cap-drop",
        "cascade",
        "cert",
        "check",
        "conf",
        "create",
        "create-namespace",
        "deny-principal",
        "describe",
        "duration-filter",
        "endpoints",
        "execute",
        "expire",
        "expiry-time-period",
        "force-conflicts",
        "from-beginning",
        "from-literal",
        "hmac",
        "inodes",
        "input",
        "jars",
        "keys-only",
        "kube-version",
        "max-depth",
        "max-life-time-period",
        "max-messages",
        "members",
        "namespace",
        "offset-json-file",
        "operation",
        "owner-principal",
        "packages",
        "peer-urls",
        "prefix",
        "profile",
        "py-files",
        "quiet",
        "read-only",
        "recursive",
        "renew",
        "renew-time-period",
        "renewer-principal",
        "reset-offsets",
        "reset-then-reuse-values",
        "reuse-values",
        "rm",
        "selector",
        "set-json",
        "spec",
        "start-offset",
        "state",
        "stdin",
        "summarize",
        "tail",
        "target",
        "to-offset",
        "topic",
        "transactional-id",
        "untried-image",
        "user",
        "user-principal",
        "values",
    }
)
"""Options that the pages name of etcd's, Kafka's, Spark's, AWS's, Debian's and containers' tools, and of pip. One is of
`make release`.
"""


def pages() -> list[str]:
    """README, CONTRIBUTING, those of tests and chart, and everything below docs, as paths within the checkout."""
    found = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "tests" / "README.md"]
    found.append(ROOT / "deploy" / "chart" / "README.md")
    return sorted(str(page.relative_to(ROOT)) for page in found)


def text(page: str | Path) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def short_pages() -> list[str]:
    return sorted(str(page.relative_to(ROOT)) for pattern in SHORT_SENTENCES for page in ROOT.glob(pattern))


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    broken = [
        f"{page}: {link}"
        for page in pages()
        for link in links(text(page))
        if "://" not in link and not _is_there(page, link)
    ]
    assert broken == []


def _is_there(page: str, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (ROOT / page).parent / path if path else ROOT / page
    if not target.exists():
        return False
    return not anchor or (target.suffix == ".md" and anchor in anchors(target.read_text(encoding="utf-8")))


def test_every_option_and_metric_that_a_page_names_is_in_the_reference() -> None:
    reference = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "docs" / "reference").glob("*.md"))
    unknown: list[str] = []
    for page in short_pages():
        words = set(re.findall(r"(?<![\w-])--(?:no-)?([a-z][a-z0-9-]*[a-z0-9])", text(page))) - OPTIONS_OF_OTHERS
        words |= set(re.findall(r"\bpenstock_[a-z_]+[a-z]\b", text(page)))
        if not page.startswith("tests/"):
            unknown += [f"{page}: {word}" for word in sorted(words) if not re.search(rf"(?:--|`){word}\b", reference)]
    assert unknown == []


def test_every_latency_of_the_readme_is_in_the_benchmarks() -> None:
    section = text("README.md").partition("\n## What it takes\n")[2].partition("\n## ")[0]
    measured = set(re.findall(NUMBER, text("docs/BENCHMARKS.md")))
    quoted = re.findall(rf"({NUMBER}) (?:ms|s|USD)\b", section)
    assert len(quoted) >= 10
    assert set(quoted) <= measured


def test_each_decision_has_a_number_and_a_row_of_its_own() -> None:
    records = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    assert [int(path.name[:4]) for path in records] == list(range(1, len(records) + 1))
    rows = re.findall(r"\| \[(\d+)\]\(([^)]+)\)", (ROOT / "docs" / "adr" / "README.md").read_text())
    assert rows == [(str(number), path.name) for number, path in enumerate(records, 1)]
    for number, path in enumerate(records, 1):
        assert path.read_text().startswith(f"# {number}. "), path.name


def test_the_readme_is_short() -> None:
    assert len(text("README.md").splitlines()) <= README_LINES_MAX


def test_no_sentence_is_long() -> None:
    long = [
        f"{page}: {sentence}"
        for page in short_pages()
        for sentence in sentences(text(page))
        if word_count(sentence) > SENTENCE_WORDS_MAX
    ]
    assert long == []


def test_no_cell_of_a_table_is_long() -> None:
    long = [f"{page}: {cell}" for page in pages() for cell in cells(text(page)) if word_count(cell) > CELL_WORDS_MAX]
    assert long == []


def test_every_diagram_can_be_parsed_by_mermaid() -> None:
    provided(mermaid_folder())
    diagrams = [
        (f"{page}:{block.line}", block.text)
        for page in pages()
        for block in blocks(text(page))
        if block.language == "mermaid"
    ]
    assert len(diagrams) >= 4
    errors = diagram_errors([diagram for _, diagram in diagrams])
    found = [f"{where}: {error}" for (where, _), error in zip(diagrams, errors, strict=True) if error]
    assert found == []


def test_a_diagram_with_an_error_is_found() -> None:
    provided(mermaid_folder())
    wrong = ["flowchart LR\n  a[open --> b", "sequenceDiagram\n  A hello", "no diagram"]
    assert all(diagram_errors(wrong))
