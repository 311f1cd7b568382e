"""A change of what apply computes, or of the form of an entry or a snapshot, is a change of the rules (S3).

Agents of two versions of this program run side by side while a cluster is upgraded. If they compute different states
from one entry, all stop. So forms and sources are recorded, and whoever changes them says which of two things it is.
"""

import ast
from itertools import pairwise

from coordinator.commands.rules import RULES_FIRST, RULES_NEWEST
from tests.architecture.rules import LIMITS, current, frozen_changes, normalised, recorded
from tests.architecture.source import ROOT, dotted, modules, place, tree

WHAT_TO_DO = f"""
This decides which state agents compute, and the version of the rules is still {RULES_NEWEST}:
  {{changed}}

If apply computes the same as before for every entry at every state, and entries and snapshots have the same bytes (a
new name, a faster way, a part that is not reached): record it, and say in the commit why it is the same.
    .venv/bin/python -m tests.architecture.rules

If not, it belongs to a version of coordinator/commands/rules.py that no release has:
  1. The newest one, if that is not released; else add the next number with a name and a line, as RULES_NEWEST.
  2. Decide by `state.rules_version >= RULES_...`, so that under older rules apply does what it did.
  3. A field of an entry or a snapshot stands at the end, `Annotated[TYPE, since(RULES_...)]`, with a default; a new
     entry has `SINCE`. A proposer uses them once the version is in force.
  4. Test both sides of the version, then record as above. docs/adr/0021-versions-of-the-rules.md says more.
"""


def test_s3_forms_and_sources_of_the_rules_are_as_recorded() -> None:
    before, now = recorded(), current()
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    assert not changed, WHAT_TO_DO.format(changed="\n  ".join(changed))


def test_s3_the_forms_of_older_versions_never_change() -> None:
    changed = frozen_changes(recorded(), current())
    assert not changed, f"an agent of an older version reads these: {changed}"


def test_s3_every_struct_on_the_wire_refuses_what_it_does_not_know() -> None:
    """A struct of msgspec's own ignores what stands behind its last field."""
    wrong = [
        f"{place(module, node)}: {node.name} is to be a WireStruct"
        for module in modules("coordinator")
        if module != ROOT / "coordinator" / "commands" / "forms.py"
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ClassDef)
        if any(ast.unparse(base) in {"Struct", "msgspec.Struct"} for base in node.bases)
        and any(keyword.arg == "array_like" for keyword in node.keywords)
    ]
    assert not wrong, "\n".join(wrong)


def test_s3_versions_are_compared_by_their_names() -> None:
    """Numbers are given in the order in which changes land; a document may call a version by another one."""
    wrong = [
        f"{place(module, node)}: {ast.unparse(node)}"
        for module in modules("agent", "coordinator", "iceberg_export", "storage", "txn")
        if "rules_version" in module.read_text(encoding="utf-8")
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Compare)
        and any(
            isinstance(part, ast.Attribute) and part.attr == "rules_version" for part in [node.left, *node.comparators]
        )
        and any(
            isinstance(part, ast.Constant) and isinstance(part.value, int) for part in [node.left, *node.comparators]
        )
    ]
    assert not wrong, "\n".join(wrong)


def test_every_version_has_a_name_and_a_line() -> None:
    module = ROOT / "coordinator" / "commands" / "rules.py"
    body = tree(module).body
    named: dict[int, str] = {}
    for node, following in pairwise(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Constant):
            assert isinstance(following, ast.Expr), f"{place(module, node)} says not what it brings"
            assert isinstance(node.value.value, int)
            named[node.value.value] = ast.unparse(node.target)
    assert sorted(named) == list(range(RULES_FIRST, RULES_NEWEST + 1)), named


def test_what_apply_uses_is_among_the_sources() -> None:
    """The walk that finds them is as good as what it finds."""
    found = {name.removeprefix("source ") for name in current() if name.startswith("source ")}
    # The room's own file holds no code; quotas are checked there for clients, before an entry is written.
    unused = {dotted(module) for module in modules("coordinator/apply")} - found
    assert unused == {"coordinator.apply", "coordinator.apply.client_quotas"}
    assert {LIMITS, "txn.producer_state", "txn.transitions", "storage.refs", "coordinator.state.chunk_index"} <= found
    assert "coordinator.ledger.sqlite" not in found


def test_words_and_layout_do_not_count_and_what_is_done_does() -> None:
    said = '"""One."""\ndef f(a):\n    """Two."""\n    # three\n    return (a +\n        1)\n'
    plain, other = "def f(a):\n    return a + 1\n", "def f(a):\n    return a + 2\n"
    assert normalised(ast.parse(said).body[1]) == normalised(ast.parse(plain).body[0])
    assert normalised(ast.parse(plain).body[0]) != normalised(ast.parse(other).body[0])
