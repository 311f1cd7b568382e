"""The routes of the HTTP port by name, for the audit log: what a client without a login asks for chooses no text there.

In: method and path of a request. Out: the method and the pattern of the path, such as `GET /api/topics/{name}`.
"""

import re
from functools import cache
from typing import Final

from agent.security.required_http_rights import HTTP_RIGHTS, REGISTRY_PREFIX, REGISTRY_RIGHTS

NO_ROUTE: Final = "(no route)"
OTHER_METHOD: Final = "OTHER"
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_PARAMETER: Final = re.compile(r"\{\w+\}")


def route_of(api: str) -> str:
    """The route of a request. `api` is its method and path, separated by a space."""
    method, _, path = api.partition(" ")
    pattern = next((pattern for expression, pattern in _patterns() if expression.fullmatch(path)), NO_ROUTE)
    return f"{method if method in METHODS else OTHER_METHOD} {pattern}"


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """An expression for the paths of each route, those with fewer parameters first."""
    paths = {key.partition(" ")[2] for key in HTTP_RIGHTS}
    paths |= {f"{REGISTRY_PREFIX}{key.partition(' ')[2]}" for key in REGISTRY_RIGHTS}
    return [(_expression(path), path) for path in sorted(paths, key=lambda path: (path.count("{"), path))]


def _expression(path: str) -> re.Pattern[str]:
    return re.compile("[^/]+".join(map(re.escape, _PARAMETER.split(path))))
