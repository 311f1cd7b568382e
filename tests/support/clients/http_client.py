"""One HTTP request to an agent and its whole answer, whatever the status."""

import json
import urllib.error
import urllib.request
from typing import Any, NamedTuple

Json = Any
"""What a text in JSON stands for."""
ANSWER_SECONDS_MAX = 60.0


class HttpAnswer(NamedTuple):
    """What was answered."""

    status: int
    text: str

    @property
    def json(self) -> Json:
        return json.loads(self.text)


def ask_http(
    http: str, method: str, path: str, *, authorization: str = "", body: object = None, scheme: str = "http"
) -> HttpAnswer:
    """The answer. A POST, PUT or PATCH without a body has an empty object."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": authorization} if authorization else {})
    if body is None and method in {"POST", "PUT", "PATCH"}:
        body = {}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{scheme}://{http}{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX) as answer:
            return HttpAnswer(answer.status, answer.read().decode())
    except urllib.error.HTTPError as error:
        return HttpAnswer(error.code, error.read().decode())
