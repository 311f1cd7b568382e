"""Prices of Amazon S3 Standard in us-east-1: requests alone, nothing for storage, nothing for traffic within a region.

Source: Amazon S3 pricing, "Requests & data retrievals", as known in November 2026.
"""

USD_PER_PUT = 0.005 / 1000
"""And per list; deleting is free."""
USD_PER_GET = 0.0004 / 1000
"""And per head."""


def requests_usd(*, puts: float = 0.0, lists: float = 0.0, gets: float = 0.0, heads: float = 0.0) -> float:
    """US dollars for so many requests."""
    return (puts + lists) * USD_PER_PUT + (gets + heads) * USD_PER_GET
