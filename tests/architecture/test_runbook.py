"""What a message calls a section of docs/RUNBOOK.md is one."""

import ast
import re

from tests.architecture.source import PACKAGES, ROOT, modules, tree

NAMED = re.compile(r"""docs/RUNBOOK\.md, (?:"([^"]+)"|'([^']+(?:'s [^']+)*)')""")


def test_every_section_that_a_message_names_is_there() -> None:
    headings = set(re.findall(r"(?m)^#+ (.+)$", (ROOT / "docs" / "RUNBOOK.md").read_text(encoding="utf-8")))
    named = {
        double or single
        for module in modules(*PACKAGES)
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for double, single in NAMED.findall(node.value)
    }
    assert len(named) > 5
    assert named <= headings
