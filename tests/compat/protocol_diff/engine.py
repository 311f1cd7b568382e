"""Runs a case against one broker, as a client would: requests go to the coordinator or the leader, or all to one.

Rule: every case works on topics, groups and connections of its own, so that cases may run at the same time.
"""

import contextlib
import time
import uuid
from typing import Any

from tests.compat.protocol_diff.connection import CLIENT_ID, Connection
from tests.compat.protocol_diff.logins import Logins
from tests.compat.protocol_diff.messages import Definitions
from tests.compat.protocol_diff.plain import Plain, dig, error_codes
from tests.compat.protocol_diff.steps import Case, G, Lazy, Mode, Step, T, V

Answers = list[tuple[str, Any]]
"""(number and label of the step, its answer in comparable form), for every step that is not quiet."""

TRANSIENT = {14, 15, 16, 51}
"""Errors that mean "ask again": waited out unless a step says `raw`."""
WAIT_SECONDS = 20.0
DENIED_WAIT_SECONDS = 3.0
"""A client without rights never gets most of what it waits for."""
ADMINISTRATOR = "administrator"
"""The name of the connection that prepares what a client without rights asks."""
ANSWER_SECONDS = 8.0
POLL_SECONDS = 0.05

BY_GROUP_ID = {
    "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetDelete", "TxnOffsetCommit",
    "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat",
}  # fmt: skip
BY_FIRST_GROUP = {"DescribeGroups", "ConsumerGroupDescribe", "ShareGroupDescribe"}
BY_TRANSACTIONAL_ID = {"InitProducerId", "AddOffsetsToTxn", "EndTxn"}
BY_LEADER = {"Produce", "Fetch", "ListOffsets", "DeleteRecords", "OffsetForLeaderEpoch", "DescribeProducers"}
GROUP, TRANSACTION = 0, 1
LOGIN_APIS = {"SaslHandshake", "SaslAuthenticate"}
"""Their steps are always those of the connection that they name."""


class Run:
    """One case on one broker."""

    def __init__(
        self,
        bootstrap: str,
        definitions: Definitions,
        run_id: str,
        case: Case,
        *,
        is_any_leader: bool = False,
        logins: Logins | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        self._definitions = definitions
        self._prefix = f"pd{run_id}-{case.name.replace('.', '-')}-"
        self._case = case
        self._is_any_leader = is_any_leader
        self._logins = logins
        self._is_without_rights = logins is not None and logins.is_without_rights
        self._wait_seconds = DENIED_WAIT_SECONDS if self._is_without_rights else WAIT_SECONDS
        self._connections: dict[tuple[str, str], Connection] = {}
        self._saved: dict[str, Any] = {}
        self._topics: set[str] = set()
        self._routes: dict[tuple[Any, ...], str] = {}
        self._plain = Plain(self._prefix)
        self._pending: dict[str, tuple[Connection, Step]] = {}

    def answers(self) -> Answers:
        """Holds the conversation, then deletes the topics. Where it cannot go on, the reason is the last answer."""
        out: Answers = []
        try:
            for number, step in enumerate(self._case.steps):
                label = f"{number}:{step.label}"
                try:
                    answer = self._step(step)
                except (OSError, KeyError, TypeError, ValueError, IndexError) as reason:
                    out.append((label, f"case broke off: {type(reason).__name__}: {reason}"))
                    break
                self._save(step, answer)
                plain = self._plain.answer(answer, step)  # of quiet steps too: they bring symbols
                is_unprepared = not self._is_without_rights and isinstance(answer, dict) and "never" in answer
                if not step.quiet or is_unprepared:
                    out.append((label, plain))
        finally:
            self._close()
        return out

    def _save(self, step: Step, answer: Any) -> None:
        for name, path in step.save.items():
            with contextlib.suppress(KeyError, IndexError, TypeError):
                self._saved[name] = dig(answer, path)

    def _close(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self._topics:
                topics = [{"Name": topic} for topic in sorted(self._topics)]
                self._connection("route", self._bootstrap).call(
                    "DeleteTopics", 6, {"Topics": topics, "TimeoutMs": 5000}
                )
        for connection in self._connections.values():
            connection.close()

    def _step(self, step: Step) -> Any:
        time.sleep(step.pause)
        if step.mode is Mode.RECEIVE:
            connection, sent = self._pending.pop(step.conn)
            return self._read(connection, sent)
        body = self._resolve(step.body)
        deadline_s = time.monotonic() + self._wait_seconds
        while True:
            answer = self._asked(step, body)
            if not isinstance(answer, dict):
                return answer
            if step.until is not None:
                if self._has(answer, step.until[0], self._resolve(step.until[1])):
                    return answer
            elif step.raw or not error_codes(answer) & TRANSIENT:
                return answer
            if time.monotonic() > deadline_s:
                return {"never": step.until[0], "last": answer} if step.until else answer
            time.sleep(POLL_SECONDS)
            self._routes.clear()

    def _has(self, answer: dict[str, Any], path: str, value: Any) -> bool:
        """Whether an answer has a value at a path. Raises the error of `dig` where it never will."""
        try:
            return bool(dig(answer, path) == value)
        except (KeyError, IndexError, TypeError):
            if self._is_without_rights:
                raise
            return False

    def _asked(self, step: Step, body: Any) -> Any:
        """The answer; to a request about groups with several coordinators, as clients put it together."""
        if isinstance(body, bytes):
            return self._once(step, body, self._bootstrap)
        groups = body.get("Groups") or [] if step.api == "OffsetFetch" else []
        if len({self._coordinator(GROUP, group["GroupId"]) for group in groups}) <= 1:
            return self._once(step, body, self._address(step.api, body))
        answers = [self._asked(step, {**body, "Groups": [group]}) for group in groups]
        return answers[0] | {"Groups": [group for answer in answers for group in answer["Groups"]]}

    def _once(self, step: Step, body: Any, address: str) -> Any:
        if step.api == "Fetch" and self._is_any_leader:
            # What another agent was told is here a moment later; this request makes sure that it is.
            self._connection("barrier", address).call("DescribeProducers", 0, {"Topics": []})
        client_id = CLIENT_ID if step.client is None else str(self._resolve(step.client))
        is_preparing = self._logins is not None and step.quiet and step.mode is Mode.CALL and step.api not in LOGIN_APIS
        connection = self._connection(ADMINISTRATOR if is_preparing else step.conn, address, client_id)
        try:
            if isinstance(body, bytes):
                connection.send_raw(step.api, step.version, body, step.key)
            else:
                connection.send(step.api, step.version, body)
        except OSError:
            return "connection closed"
        if step.mode is Mode.SEND:
            self._pending[step.conn] = (connection, step)
            return None
        return None if step.mode is Mode.MUTE else self._read(connection, step)

    def _read(self, connection: Connection, step: Step) -> Any:
        try:
            return connection.read(step.api, step.version)
        except TimeoutError:
            reason = "no answer"
        except ConnectionError:
            reason = "connection closed"
        except (ValueError, KeyError) as error:
            reason = f"unreadable answer: {error}"
        connection.close()
        self._connections = {key: kept for key, kept in self._connections.items() if kept is not connection}
        return reason

    def _resolve(self, value: Any) -> Any:
        """`value` with every placeholder replaced."""
        match value:
            case V(name=name, add=add):
                return self._saved[name] + add if add else self._saved[name]
            case T(name=name):
                self._topics.add(self._prefix + name)
                return self._prefix + name
            case G(name=name):
                return self._prefix + name
            case Lazy(make=make, arguments=arguments):
                return make(**{key: self._resolve(each) for key, each in arguments})
            case dict():
                return {key: self._resolve(each) for key, each in value.items()}
            case list():
                return [self._resolve(each) for each in value]
            case _:
                return value

    def _address(self, api: str, body: dict[str, Any]) -> str:
        """Where a client would send the request."""
        if api in BY_GROUP_ID:
            return self._coordinator(GROUP, body.get("GroupId"))
        if api == "OffsetFetch":
            groups = body.get("Groups") or [{"GroupId": body.get("GroupId")}]
            return self._coordinator(GROUP, groups[0]["GroupId"])
        if api in BY_FIRST_GROUP:
            return self._coordinator(GROUP, (body.get("Groups") or body.get("GroupIds") or [None])[0])
        if api == "DeleteGroups":
            return self._coordinator(GROUP, (body.get("GroupsNames") or [None])[0])
        if api in BY_TRANSACTIONAL_ID:
            return self._coordinator(TRANSACTION, body.get("TransactionalId"))
        if api == "AddPartitionsToTxn":
            ids = [t["TransactionalId"] for t in body.get("Transactions", [])]
            return self._coordinator(TRANSACTION, (ids or [body.get("V3AndBelowTransactionalId")])[0])
        if api == "DescribeTransactions":
            return self._coordinator(TRANSACTION, (body.get("TransactionalIds") or [None])[0])
        if api == "ListTransactions":
            return self._coordinator(TRANSACTION, self._prefix + "x")
        if api == "WriteTxnMarkers":
            return self._leader(body["Markers"][0]["Topics"])
        if api in BY_LEADER:
            return self._leader(body.get("TopicData") or body.get("Topics") or [])
        return self._bootstrap

    def _coordinator(self, kind: int, key: str | None) -> str:
        if key is None or (kind == TRANSACTION and not key):
            return self._bootstrap
        deadline_s = time.monotonic() + WAIT_SECONDS
        while (kind, key) not in self._routes:
            answer = self._connection("route", self._bootstrap).call(
                "FindCoordinator", 4, {"KeyType": kind, "CoordinatorKeys": [key]}
            )
            found = answer["Coordinators"][0]
            if found["ErrorCode"] == 0:
                self._routes[kind, key] = f"{found['Host']}:{found['Port']}"
            elif found["ErrorCode"] not in TRANSIENT or time.monotonic() > deadline_s:
                return self._bootstrap
            else:
                time.sleep(POLL_SECONDS)
        return self._routes[kind, key]

    def _leader(self, topics: list[dict[str, Any]]) -> str:
        """The leader of the first partition that is named."""
        if not topics or self._is_any_leader:
            return self._bootstrap
        name = topics[0].get("Name") or topics[0].get("Topic") or topics[0].get("TopicName")
        topic_id = topics[0].get("TopicId")
        rows = topics[0].get("PartitionData", topics[0].get("Partitions", []))
        indexes = [
            row.get("Index", row.get("Partition", row.get("PartitionIndex", 0)))
            for row in rows
            if isinstance(row, dict)
        ]
        index: int = indexes[0] or 0 if indexes else 0
        route = (name, topic_id, index)
        if route not in self._routes:
            wanted = {"Name": name or None, "TopicId": topic_id or uuid.UUID(int=0)}
            leader = self._leader_told(wanted, index)
            if leader is None:
                return self._bootstrap
            self._routes[route] = leader
        return self._routes[route]

    def _leader_told(self, topic: dict[str, Any], index: int) -> str | None:
        try:
            body = {"Topics": [topic], "AllowAutoTopicCreation": False}
            told = self._connection("route", self._bootstrap).call("Metadata", 12, body)
        except (OSError, ValueError):
            return None
        nodes = {broker["NodeId"]: f"{broker['Host']}:{broker['Port']}" for broker in told["Brokers"]}
        for each in told["Topics"]:
            for partition in each["Partitions"]:
                if partition["PartitionIndex"] == index:
                    return nodes.get(partition["LeaderId"])
        return None

    def _connection(self, name: str, address: str, client_id: str = CLIENT_ID) -> Connection:
        if (name, address) not in self._connections:
            login = None
            if self._logins is not None:
                is_administrator = name in (ADMINISTRATOR, "route", "barrier")
                login = self._logins.administrator if is_administrator else self._logins.client
            self._connections[name, address] = Connection(address, self._definitions, ANSWER_SECONDS, client_id, login)
        return self._connections[name, address]
