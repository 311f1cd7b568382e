"""The design pages: short, with a diagram, and true of the modules, safety rules and mutations that they name."""

import re
from pathlib import Path

import pytest

from tests.architecture.source import FOLDERS, PACKAGES, ROOT, modules
from tests.support.documents import CODE_SPAN, FENCE, blocks, links

DESIGN = ROOT / "docs" / "design"
PAGES = sorted(page.name for page in DESIGN.glob("*.md"))
LINES_MAX = 150
RULE_HEADING = re.compile(r"^## (S\d+) ", re.MULTILINE)
RULE_IN_CODE = re.compile(r"[Ss]afety\s+rules?\s+((?:S\d+(?:,\s*|\s+and\s+)?)+)")
MUTATION = re.compile(r"^def (s\d+)_\w+\(\) -> Iterator", re.MULTILINE)
ROOMS = [name for name in FOLDERS if name != "penstock"]
"""With `penstock.` begin the names of topic configs, too."""
DOTTED = re.compile(rf"(?:{'|'.join(ROOMS)})(?:\.\w+)+")


def text(page: str) -> str:
    return (DESIGN / page).read_text(encoding="utf-8")


def rules() -> dict[str, str]:
    """Each safety rule of the page by its number, with what stands below its heading."""
    parts = RULE_HEADING.split(text("safety-rules.md"))[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_short_and_has_a_diagram(page: str) -> None:
    kind = "flowchart" if page == "README.md" else "sequenceDiagram"
    diagrams = [block.text for block in blocks(text(page)) if block.language == "mermaid"]
    assert len(text(page).splitlines()) <= LINES_MAX
    assert any(diagram.startswith(kind) for diagram in diagrams)


def test_the_overview_leads_to_every_page() -> None:
    assert set(PAGES) - {"README.md"} <= set(links(text("README.md")))


@pytest.mark.parametrize("page", PAGES)
def test_every_module_that_a_page_names_is_there(page: str) -> None:
    spans = (match[2] for match in CODE_SPAN.finditer(FENCE.sub("", text(page))))
    names = sorted({name for span in spans if (name := span.removesuffix("()")) and DOTTED.fullmatch(name)})
    assert [name for name in names if not _is_there(name)] == []


def _is_there(name: str) -> bool:
    """Whether a dotted name is a package or a module, or a word in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:count])
        if path.is_dir():
            return count == len(parts)
        if (module := path.with_suffix(".py")).is_file():
            source = module.read_text(encoding="utf-8")
            return all(re.search(rf"\b{part}\b", source) for part in parts[count:])
    return False


def test_a_module_that_is_gone_is_found() -> None:
    assert _is_there("agent.fetch.fetch_path.FetchPath")
    assert _is_there("coordinator.apply")
    assert not _is_there("agent.fetch.fetch_path.NoSuchThing")
    assert not _is_there("coordinator.no_such_module")


def test_every_safety_rule_that_the_code_names_is_on_the_page() -> None:
    named = {
        number
        for module in modules(*PACKAGES, "tests")
        for listed in RULE_IN_CODE.findall(module.read_text(encoding="utf-8"))
        for number in re.findall(r"S\d+", listed)
    }
    assert len(named) >= 15
    assert sorted(named - set(rules())) == []


def test_a_safety_rule_names_its_mutations() -> None:
    sources = (ROOT / "tests" / "simulation" / "mutations").glob("*.py")
    mutated = {number for source in sources for number in MUTATION.findall(source.read_text(encoding="utf-8"))}
    claimed = {number.lower() for number, body in rules().items() if f"`{number.lower()}_*`" in body}
    assert claimed == mutated


@pytest.mark.parametrize("number", sorted(rules()))
def test_a_safety_rule_says_what_happens_otherwise_and_what_shows_it(number: str) -> None:
    body = rules()[number]
    tests = re.findall(r"`(tests/\S+\.py)`", body)
    assert "*Otherwise:*" in body
    assert "*Shown by:*" in body
    assert [test for test in tests if not Path(ROOT, test).is_file()] == []
