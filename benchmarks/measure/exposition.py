"""What an agent's /metrics says, as a mapping of series to values.

Rule: reading is pure; only `scrape` asks an agent. The names are those of docs/reference/metrics.md.
"""

import re
from collections.abc import Mapping
from urllib.request import urlopen

SCRAPE_SECONDS_MAX = 30
STORE_REQUESTS = "penstock_store_requests_total"
KERNELS_LOADED = "penstock_kernels_loaded"
_SAMPLE = re.compile(r"^(?P<series>penstock_\w+(?:\{[^}]*\})?) (?P<value>\S+)$", re.MULTILINE)

Samples = Mapping[str, float]
"""Series as it is written (`name{label="value"}`) -> value."""


def scrape(http: str) -> Samples:
    """What the agent at `http` (host:port) says now. Raises `OSError`."""
    with urlopen(f"http://{http}/metrics", timeout=SCRAPE_SECONDS_MAX) as response:
        return read_samples(response.read().decode())


def read_samples(text: str) -> Samples:
    """The agent's own series of an exposition in Prometheus' text format."""
    return {sample["series"]: float(sample["value"]) for sample in _SAMPLE.finditer(text)}


def total(samples: Samples, name: str, operation: str = "") -> float:
    """The sum of a metric's series, of one operation where it is named; 0 where there is none."""
    wanted = f'{name}{{operation="{operation}"}}' if operation else name
    return sum(value for series, value in samples.items() if wanted in (series, series.partition("{")[0]))


def increase(before: Samples, after: Samples, name: str, operation: str = "") -> float:
    """How much was counted between two scrapes of one process."""
    return total(after, name, operation) - total(before, name, operation)
