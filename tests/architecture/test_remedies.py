"""Every section of a document that a message names is there."""

import ast
import re

from tests.architecture.source import PACKAGES, ROOT, modules, tree

NAMED = re.compile(r"""(docs/operations/[\w-]+\.md), (?:"([^"]+)"|'([^']+(?:'s [^']+)*)')""")


def test_every_section_that_a_message_names_is_there() -> None:
    named = {
        (page, double or single)
        for module in modules(*PACKAGES)
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for page, double, single in NAMED.findall(node.value)
    }
    assert len(named) > 5
    missing = {(page, section) for page, section in named if section not in headings(page)}
    assert missing == set()


def test_every_page_that_a_message_names_is_there() -> None:
    named = {
        page
        for module in modules(*PACKAGES)
        for page in re.findall(r"docs/[\w/-]+\.md", module.read_text(encoding="utf-8"))
    }
    assert [page for page in sorted(named) if not (ROOT / page).exists()] == []


def headings(page: str) -> set[str]:
    return set(re.findall(r"(?m)^#+ (.+)$", (ROOT / page).read_text(encoding="utf-8")))
