"""`deploy/chart/README.md`, made of the comments in the chart's `values.yaml` and `ci/`.

python3 -m tools.pages.chart_readme      (from the environment that holds the group test)

In `values.yaml` the comment above a name explains it. Rule: every value that somebody may set has such a comment, and a
comment above a name with further names below it does not count for these.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tools.pages.reference import code, table
from tools.steps import ROOT, say

CHART: Final = ROOT / "deploy" / "chart"
README: Final = CHART / "README.md"
_NAME: Final = re.compile(r"( *)([A-Za-z][\w.-]*):(?: |$)")
_INDENT: Final = 2

INTRO: Final = """
# The Helm chart of Penstock

<!-- `make reference` writes this page from values.yaml and ci/. -->

    helm install kafka deploy/chart --set store.url=s3://BUCKET/PREFIX --set ledger.url=etcd://HOST:2379/CLUSTER

An agent keeps nothing: the chart runs Deployments, with a bucket and an etcd that you have. Kubernetes 1.31 or newer.
Helm rejects values that are unknown or do not fit together, and says what to write instead.

[Kubernetes](../../docs/operations/kubernetes.md) is the page to go by: how to install, upgrade and remove a cluster,
and [what to do when pods do not become ready](../../docs/operations/kubernetes.md#when-pods-do-not-become-ready).
[Alerts](../../docs/operations/alerts.md) and [troubleshooting](../../docs/operations/troubleshooting.md) are for later.

- `helm test RELEASE` checks ledger, bucket and clock, and writes and reads a record. Where clients authenticate, it
  needs `tests.clientConfigSecret` for the record.
- Secrets are never values. The chart takes names of Secrets.
- The image has to be where the cluster finds it: `image.repository`.
- With `tls.enabled` an agent is `10-77-1-2.NAME-agents.NAMESPACE.svc` to clients, by the address of its pod. The
  cluster's DNS must name endpoints of headless Services so, as CoreDNS does.
- The chart's etcd is for those who have none. [Kubernetes](../../docs/operations/kubernetes.md#etcd) says
  what to do if a member loses its volume.
"""


def readme() -> str:
    """The whole page. Raises `LookupError` for a value without a comment."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    rows = [(code(name), default, meaning) for name, default, meaning in value_rows(text)]
    setups = [(f"[{path.stem}](ci/{path.name})", first_comment(path)) for path in sorted((CHART / "ci").glob("*.yaml"))]
    parts = (
        INTRO.strip(),
        "## Set-ups",
        "Each of these files is tested. Copy the nearest one.",
        table(("values", "what it is"), setups),
        "## Values",
        table(("value", "default", "meaning"), rows),
    )
    return "\n\n".join(part.strip() for part in parts) + "\n"


def value_rows(text: str) -> Iterator[tuple[str, str, str]]:
    """Name with dots, default, and meaning of each value, as Markdown. Raises `LookupError` without a comment."""
    comments = comments_by_name(text)
    for path, default in leaves(yaml.safe_load(text)):
        if path not in comments:
            raise LookupError(f"values.yaml: {'.'.join(path)} has no comment")
        yield ".".join(path), code(json.dumps(default)), comments[path]


def leaves(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """The values that have no names below them, an empty map included. A map that users fill is one value."""
    for name, value in values.items():
        path = (*above, name)
        if isinstance(value, Mapping) and value and path not in _MAPS_OF_USERS:
            yield from leaves(value, path)
        else:
            yield path, value


_MAPS_OF_USERS: Final = {("monitoring", "dashboards", "labels")}
"""Maps with a default whose names are the user's."""


def comments_by_name(text: str) -> dict[tuple[str, ...], str]:
    """The comment directly above each name, by the names from the top."""
    found: dict[tuple[str, ...], str] = {}
    above: list[str] = []
    lines: list[str] = []
    for line in text.splitlines():
        match = _NAME.match(line)
        if line.strip().startswith("#"):
            lines.append(line.strip().removeprefix("#").strip())
            continue
        if match is not None:
            above = [*above[: len(match[1]) // _INDENT], match[2]]
            if lines:
                found[tuple(above)] = " ".join(lines)
        lines = []
    return found


def first_comment(path: Path) -> str:
    """The sentences at the top of a file of values."""
    lines: Sequence[str] = path.read_text(encoding="utf-8").splitlines()
    return lines[0].removeprefix("#").strip()


def main() -> None:
    README.write_text(readme(), encoding="utf-8")
    say(f"{README.relative_to(ROOT)}: {len(readme().splitlines())} lines")


if __name__ == "__main__":
    main()
