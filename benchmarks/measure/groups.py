"""Many classic groups on one broker: how long they take to form, what they cost while idle and while they commit.

Rule: `benchmarks.measure.group_load` is the members, in a process of its own, and tells when a phase begins and ends;
what the broker took is looked at then. CPU is the broker's alone; entries are those that its ledger applied in that
time.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.measure import process_usage
from benchmarks.measure.exposition import scrape, total
from benchmarks.measure.group_load import FORM_SECONDS_MAX
from benchmarks.measure.rows import Bench, topic_of
from benchmarks.peers.brokers import Peer, PenstockPeer
from benchmarks.peers.tool_output import UnreadableOutput
from tests.support.processes import Process
from tools.steps import ROOT

MEMBERS = 10
ENTRIES = "penstock_ledger_entries_applied_total"
PHASE_SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A phase's name, and what the members counted in it."""

    name: str
    is_over: bool
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a broker had taken at one moment."""

    cpu_s: float
    entries: float | None
    """None where nobody counts."""


def groups(bench: Bench, peer: Peer) -> dict[str, float]:
    """GROUPS: formed, idle, committing. Afterwards there are none."""
    seconds = str(bench.scale.idle_seconds)
    with topic_of(peer, MEMBERS) as topic:
        words = [peer.bootstrap, topic, "--groups", str(bench.scale.groups), "--members", str(MEMBERS)]
        command = [
            sys.executable,
            "-m",
            "benchmarks.measure.group_load",
            *words,
            "--idle-s",
            seconds,
            "--commit-s",
            seconds,
        ]
        with Process(command, peer.folder, name="groups", env={"PYTHONPATH": str(ROOT)}) as process:
            figures = dict(_next(process, "form", is_over=True, seconds_max=FORM_SECONDS_MAX + PHASE_SECONDS_MAX))
            figures |= _phase(process, peer, "settle", bench.scale.idle_seconds)
            idle = _phase(process, peer, "idle", bench.scale.idle_seconds)
            figures["rss_mib"] = process_usage.memory_mib(peer.pid)
            committing = _phase(process, peer, "commit", bench.scale.idle_seconds)
            process.wait_ended(seconds_max=PHASE_SECONDS_MAX)
    return {
        "form_s": figures["form_s"],
        "rss_mib": figures["rss_mib"],
        **idle,
        **{name: value for name, value in committing.items() if name.startswith("commit")},
    }


def _phase(process: Process, peer: Peer, name: str, seconds: float) -> dict[str, float]:
    """What the members counted in a phase, and what the broker took meanwhile."""
    _next(process, name, is_over=False, seconds_max=PHASE_SECONDS_MAX)
    before = _taken(peer)
    figures = dict(_next(process, name, is_over=True, seconds_max=seconds + PHASE_SECONDS_MAX))
    return figures | taken_figures(name, before, _taken(peer), figures["seconds"])


def taken_figures(name: str, before: Taken, after: Taken, seconds: float) -> dict[str, float]:
    """By the phase's name: CPU, and entries where they are counted."""
    figures = {f"{name}_cpu_percent": (after.cpu_s - before.cpu_s) / seconds * 100}
    if before.entries is not None and after.entries is not None:
        figures[f"{name}_entries_per_s"] = (after.entries - before.entries) / seconds
    return figures


def _taken(peer: Peer) -> Taken:
    entries = total(scrape(peer.http), ENTRIES) if isinstance(peer, PenstockPeer) else None
    return Taken(cpu_s=peer.cpu_seconds(), entries=entries)


def _next(process: Process, name: str, *, is_over: bool, seconds_max: float) -> Mapping[str, float]:
    """The figures of the next line, which has to be that one. Raises `ProcessFailed` where none comes."""
    line = process.read_line(seconds_max=seconds_max)
    phase = read_phase(line)
    if (phase.name, phase.is_over) != (name, is_over):
        raise UnreadableOutput(f"group_load, phase {name},", line)
    return phase.figures


def read_phase(line: str) -> Phase:
    """A line of `benchmarks.measure.group_load`. Raises `UnreadableOutput`."""
    try:
        told = json.loads(line)
        figures = {str(name): float(value) for name, value in told.get("figures", {}).items()}
        return Phase(name=str(told["phase"]), is_over=told["event"] == "ended", figures=figures)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableOutput("group_load", line) from error
