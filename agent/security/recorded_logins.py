"""The log-ins over HTTP that the audit log has: one event for each client in a while, not one for each request."""

from collections import OrderedDict

from protocol.auth.principals import Principal
from protocol.limits import HTTP_BEARER_SECONDS_REMEMBERED, HTTP_BEARERS_REMEMBERED_MAX


class RecordedLogins:
    """The clients whose log-in was recorded of late. Of too many the oldest is forgotten, and is recorded again."""

    def __init__(self) -> None:
        self._until_s: OrderedDict[tuple[Principal, str, str], float] = OrderedDict()

    def is_due(self, principal: Principal, mechanism: str, host: str, now_s: float) -> bool:
        """Whether the client's log-in has to be recorded; it counts as recorded from now on."""
        client = (principal, mechanism, host)
        if now_s < self._until_s.get(client, now_s):
            return False
        self._until_s[client] = now_s + HTTP_BEARER_SECONDS_REMEMBERED
        self._until_s.move_to_end(client)
        if len(self._until_s) > HTTP_BEARERS_REMEMBERED_MAX:
            self._until_s.popitem(last=False)
        return True
