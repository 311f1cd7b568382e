"""The schema registry's answers, by the codes and fields that clients of Confluent's go by."""

import asyncio
import json
from collections.abc import Mapping
from urllib.parse import quote

import pytest

from agent.config.http_auth import HttpAccess, HttpTokens
from agent.http.registry import registry
from agent.http.registry.registry import guid_of
from agent.http.registry.rest_api import MEDIA_TYPE
from coordinator.commands.commands import Command, Outcome, Rejected
from coordinator.commands.registry import RegisterSchema
from coordinator.ledger.port import OutcomeUnknown
from protocol.errors import ErrorCode
from protocol.limits import HTTP_TOKEN_CHARS_MIN, REGISTRY_TRIES_MAX, SCHEMA_BODY_BYTES_MAX, SCHEMA_BYTES_MAX
from tests.support.agent.http_app import http_app
from tests.support.agent.small_agent import SmallAgent

INT, LONG, STRING = '"int"', '"long"', '"string"'
PROTO = 'syntax = "proto3"; message M { int32 a = 1; }'


class Asked:
    """Requests to the application of an agent's HTTP port."""

    def __init__(
        self, agent: SmallAgent, peer: str = "127.0.0.1", tokens: HttpTokens | None = None, /, **headers: str
    ) -> None:
        self._app = http_app(agent, access=HttpAccess(tokens=tokens or HttpTokens()))
        self._peer = peer
        self._headers = {"host": "localhost:9644", **headers}
        self.content_type = ""

    async def __call__(
        self, method: str, path: str, body: object = None, *, kind: str = MEDIA_TYPE, data: bytes | None = None
    ) -> tuple[int, object]:
        sent: list[Mapping[str, object]] = []
        payload = data if data is not None else b"" if body is None else json.dumps(body).encode()
        raw_path, _, query = f"/schema-registry{path}".partition("?")
        headers = {**self._headers, "content-type": kind}
        scope = {
            "type": "http",
            "method": method,
            "path": raw_path,
            "raw_path": raw_path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), text.encode()) for name, text in headers.items()],
            "client": (self._peer, 1),
        }

        async def receive() -> Mapping[str, object]:
            return {"type": "http.request", "body": payload, "more_body": False}

        async def send(message: Mapping[str, object]) -> None:
            sent.append(message)

        await self._app(scope, receive, send)  # type: ignore[arg-type]
        start, *parts = sent
        answered = dict(start["headers"])  # type: ignore[call-overload]
        self.content_type = answered[b"content-type"].decode()
        text = b"".join(part["body"] for part in parts)  # type: ignore[misc]
        status = start["status"]
        assert isinstance(status, int)
        return status, json.loads(text)

    async def get(self, path: str) -> object:
        status, answer = await self("GET", path)
        assert status == 200, answer
        return answer

    async def register(self, subject: str, schema: str = INT, **others: object) -> object:
        status, answer = await self(
            "POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema, **others}
        )
        assert status == 200, answer
        assert isinstance(answer, dict)
        return answer["id"], answer["version"]

    async def code(self, method: str, path: str, body: object = None, **others: object) -> int:
        """Of an error, whose first digits are those of HTTP, with a sentence."""
        status, answer = await self(method, path, body, **others)  # type: ignore[arg-type]
        assert isinstance(answer, dict)
        assert answer["message"]
        code = answer["error_code"]
        assert str(code).startswith(str(status))
        return int(code)


@pytest.fixture
def agent() -> SmallAgent:
    return SmallAgent()


@pytest.fixture
def asked(agent: SmallAgent) -> Asked:
    return Asked(agent)


async def test_an_answer_has_the_type_of_the_api(asked: Asked) -> None:
    assert await asked.get("/") == {}
    assert asked.content_type == MEDIA_TYPE


async def test_a_version_is_told_with_its_id(agent: SmallAgent, asked: Asked) -> None:
    assert await asked.register("s") == (1, 1)
    assert await asked.register("s", LONG) == (2, 2)
    assert await asked.register("s", LONG) == (2, 2)
    guid = guid_of(agent.state.registry.schemas[2])
    row = {"subject": "s", "version": 2, "id": 2, "guid": guid, "schema": LONG}
    for version in ("2", "latest", "-1"):
        assert await asked.get(f"/subjects/s/versions/{version}") == row
    assert await asked.get("/subjects/s/versions/2/schema") == "long"
    assert await asked.get("/schemas/ids/2") == {"schema": LONG, "guid": guid}
    assert await asked.get("/schemas/ids/2?fetchMaxId=true") == {"schema": LONG, "guid": guid, "maxId": 2}
    assert await asked.get("/schemas/ids/2/schema") == "long"
    assert await asked.get(f"/schemas/guids/{guid}") == {"schema": LONG, "guid": guid}
    assert await asked.get("/schemas?latestOnly=true") == [row]
    assert await asked("POST", "/subjects/s", {"schema": ' "long" '}) == (200, row)


async def test_names_hold_any_character(asked: Asked) -> None:
    for subject in ("a/b", "100%", "a b?c=d", "ü", "versions", "a%2Fb"):
        await asked.register(subject)
        assert await asked.get(f"/subjects/{quote(subject, safe='')}/versions") == [1]
    assert await asked.get("/subjects/:.:versions/versions/") == [1]


async def test_lists_are_given_in_pages(asked: Asked) -> None:
    for subject in ("a1", "a2", "b"):
        await asked.register(subject)
    assert await asked.get("/subjects?subjectPrefix=a") == ["a1", "a2"]
    assert await asked.get("/subjects?offset=1&limit=1") == ["a2"]
    assert await asked.get("/schemas/ids/1/subjects?limit=2") == ["a1", "a2"]
    assert await asked.get("/schemas/ids/1/versions?subject=b") == [{"subject": "b", "version": 1}]
    assert await asked.get("/schemas/types") == ["JSON", "PROTOBUF", "AVRO"]
    assert await asked.get("/contexts") == ["."]
    assert await asked.code("GET", "/subjects?limit=x") == 400
    assert await asked.code("GET", "/subjects?deleted=perhaps") == 400


async def test_what_is_deleted_is_shown_on_demand(asked: Asked) -> None:
    await asked.register("s")
    await asked.register("s", LONG)
    assert await asked("DELETE", "/subjects/s/versions/latest") == (200, 2)
    assert await asked.get("/subjects/s/versions") == [1]
    assert await asked.get("/subjects/s/versions?deleted=true") == [1, 2]
    assert await asked.get("/subjects/s/versions?deletedOnly=true") == [2]
    assert await asked.code("GET", "/subjects/s/versions/2") == 40402
    assert isinstance(await asked.get("/schemas/ids/2"), dict)
    assert await asked.get("/schemas/ids/2/subjects") == []
    assert await asked.get("/schemas/ids/2/subjects?deleted=true") == ["s"]
    assert await asked("DELETE", "/subjects/s") == (200, [1])
    assert await asked.get("/subjects") == []
    assert await asked.get("/subjects?deleted=true") == await asked.get("/subjects?deletedOnly=True") == ["s"]
    shown = await asked.get("/subjects/s/versions/1?deleted=true")
    assert isinstance(shown, dict)
    assert shown["deleted"] is True
    assert await asked.code("POST", "/subjects/s", {"schema": INT}) == 40401
    assert (await asked("POST", "/subjects/s?deleted=true", {"schema": INT}))[0] == 200
    assert await asked("DELETE", "/subjects/s?permanent=true") == (200, [1, 2])
    assert await asked.code("GET", "/schemas/ids/2") == 40403


async def test_references_are_resolved_and_told(asked: Asked) -> None:
    await asked.register("money", '{"type": "record", "name": "Money", "fields": []}')
    reference = {"name": "Money", "subject": "money", "version": -1}
    await asked.register("order", '["null", "Money"]', references=[reference])
    shown = await asked.get("/schemas/ids/2")
    assert isinstance(shown, dict)
    assert shown["references"] == [{**reference, "version": 1}]
    assert await asked.get("/subjects/money/versions/1/referencedby") == [2]
    await asked.register("list", '{"type": "array", "items": "Money"}', references=[reference])
    deep = [{"name": "x", "subject": "order", "version": 1}]
    assert await asked.register("deep", '{"type": "map", "values": "Money"}', references=deep) == (4, 1)
    assert await asked.code("DELETE", "/subjects/money") == 42206


async def test_a_schema_that_does_not_go_is_refused_and_compared_on_demand(asked: Asked) -> None:
    await asked.register("s", LONG)
    await asked.register("s", '["null", "long"]')
    code, answer = await asked("POST", "/subjects/s/versions", {"schema": LONG.replace("long", "int")})
    assert code == 409
    assert isinstance(answer, dict)
    assert answer["error_code"] == 409
    assert "incompatible with an earlier schema for subject" in answer["message"]
    told = await asked("POST", "/compatibility/subjects/s/versions/latest?verbose=true", {"schema": STRING})
    assert isinstance(told[1], dict)
    assert told[1]["is_compatible"] is False
    assert told[1]["messages"]
    for path, schema, is_compatible in (
        ("s/versions/1", LONG, True),
        ("s/versions", LONG, False),
        ("s/versions/latest", '["null","long","int"]', True),
        ("none/versions/latest", INT, True),
        ("none/versions", INT, True),
    ):
        answered = await asked("POST", f"/compatibility/subjects/{path}", {"schema": schema})
        assert answered == (200, {"is_compatible": is_compatible})
    assert await asked.code("POST", "/compatibility/subjects/s/versions/9", {"schema": LONG}) == 40402
    assert await asked.code("POST", "/compatibility/subjects/s/versions/1", {"schema": "{"}) == 42201
    await asked("PUT", "/config/s", {"compatibility": "none"})
    assert await asked.register("s", PROTO, schemaType="PROTOBUF") == (3, 3)


async def test_normalized_texts_are_one_schema(asked: Asked) -> None:
    one, other = '{"type":"string","doc":"d"}', '{"doc":"d","type":"string"}'
    assert await asked.register("s", one) == (1, 1)
    assert await asked.register("s", other) == (2, 2)
    answer = await asked("POST", "/subjects/t/versions?normalize=True", {"schema": one})
    assert answer == await asked("POST", "/subjects/t/versions?normalize=true", {"schema": other})


async def test_a_descriptor_and_its_text_are_one_schema(asked: Asked) -> None:
    await asked.register("s", PROTO, schemaType="PROTOBUF")
    shown = await asked.get("/schemas/ids/1?format=serialized")
    assert isinstance(shown, dict)
    assert shown["schemaType"] == "PROTOBUF"
    assert await asked.register("s", shown["schema"], schemaType="PROTOBUF") == (1, 1)
    other = PROTO.replace("int32 a", "string a")
    assert await asked.code("POST", "/subjects/s", {"schema": other, "schemaType": "PROTOBUF"}) == 40403


async def test_settings_are_those_of_all_or_a_subjects_own(asked: Asked) -> None:
    assert await asked.get("/config") == {"compatibilityLevel": "BACKWARD"}
    assert await asked("PUT", "/config", {"compatibility": "FULL"}) == (200, {"compatibility": "FULL"})
    assert await asked.code("GET", "/config/s") == 40408
    assert await asked.get("/config/s?defaultToGlobal=true") == {"compatibilityLevel": "FULL"}
    await asked("PUT", "/config/s", {"compatibilityLevel": "FORWARD"})
    assert await asked("DELETE", "/config/s") == (200, {"compatibilityLevel": "FORWARD"})
    assert await asked.code("DELETE", "/config/s") == 40401
    assert await asked("DELETE", "/config") == (200, {"compatibilityLevel": "FULL"})
    assert await asked.get("/mode") == {"mode": "READWRITE"}
    assert await asked("PUT", "/mode/s", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert await asked.get("/mode/s") == {"mode": "READONLY"}
    assert await asked.code("POST", "/subjects/s/versions", {"schema": INT}) == 42205
    assert await asked("DELETE", "/mode/s") == (200, {"mode": "READONLY"})
    assert await asked.code("GET", "/mode/s") == 40409
    assert await asked.get("/mode/s?defaultToGlobal=true") == {"mode": "READWRITE"}
    await asked.register("s")
    assert await asked.code("PUT", "/mode", {"mode": "IMPORT"}) == 42205
    assert await asked("PUT", "/mode?force=true", {"mode": "IMPORT"}) == (200, {"mode": "IMPORT"})
    assert await asked.register("s", LONG, id=70, version=7) == (70, 7)


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/none", None, 404),
        ("PUT", "/subjects", None, 405),
        ("GET", "/schemas/ids/x", None, 404),
        ("GET", "/schemas/ids/9", None, 40403),
        ("GET", "/schemas/ids/9/subjects", None, 40403),
        ("GET", "/schemas/guids/x", None, 40403),
        ("GET", "/subjects/none/versions", None, 40401),
        ("GET", "/subjects/none/versions/1", None, 40401),
        ("GET", "/subjects/s/versions/0", None, 42202),
        ("GET", "/subjects/s/versions/2147483648", None, 42202),
        ("GET", "/subjects/s/versions/new", None, 42202),
        ("GET", "/subjects/:.other:s/versions", None, 42208),
        ("GET", "/subjects/a%00b/versions", None, 42208),
        ("POST", "/subjects/s/versions", [], 400),
        ("POST", "/subjects/s/versions", {}, 42201),
        ("POST", "/subjects/s/versions", {"schema": " "}, 42201),
        ("POST", "/subjects/s/versions", {"schema": 7}, 42201),
        ("POST", "/subjects/s/versions", {"schema": "\ud800"}, 400),
        ("POST", "/subjects/s/versions", {"schema": "no"}, 42201),
        ("POST", "/subjects/s/versions", {"schema": INT, "schemaType": "XML"}, 42201),
        ("POST", "/subjects/s/versions", {"schema": INT, "references": {}}, 42201),
        ("POST", "/subjects/s/versions", {"schema": INT, "references": [{"name": "a"}]}, 42201),
        (
            "POST",
            "/subjects/s/versions",
            {"schema": INT, "references": [{"name": "\ud800", "subject": "s", "version": 1}]},
            400,
        ),
        (
            "POST",
            "/subjects/s/versions",
            {"schema": INT, "references": [{"name": "a", "subject": "none", "version": 1}]},
            42201,
        ),
        ("POST", "/subjects/s/versions", {"schema": INT, "metadata": {"tags": {}}}, 42201),
        ("POST", "/subjects/s/versions", {"schema": INT, "id": 3}, 42205),
        ("POST", "/subjects/s/versions", {"schema": INT, "id": "3"}, 42202),
        ("POST", "/subjects/s/versions", {"schema": '"' + "x" * SCHEMA_BYTES_MAX + '"'}, 42209),
        ("PUT", "/config", {"compatibility": "SOME"}, 42203),
        ("PUT", "/config", {"compatibility": "FULL", "alias": "t"}, 42203),
        ("PUT", "/mode", {"mode": "FORWARD"}, 42204),
        ("DELETE", "/subjects/none", None, 40401),
        ("DELETE", "/subjects/none/versions/latest", None, 40401),
    ],
)
async def test_what_is_wrong_has_a_code(asked: Asked, method: str, path: str, body: object, code: int) -> None:
    assert await asked.code(method, path, body) == code


async def test_schemas_of_two_formats_do_not_refer_to_each_other(asked: Asked) -> None:
    await asked.register("p", PROTO, schemaType="PROTOBUF")
    body = {"schema": INT, "references": [{"name": "p", "subject": "p", "version": 1}]}
    assert await asked.code("POST", "/subjects/s/versions", body) == 42201


async def test_two_references_do_not_share_a_name(asked: Asked) -> None:
    await asked.register("a", '{"type": "fixed", "name": "A", "size": 1}')
    await asked.register("b", '{"type": "fixed", "name": "B", "size": 1}')
    references = [{"name": "x", "subject": subject, "version": 1} for subject in "ab"]
    body = {"schema": '["A", "B"]', "references": references}
    assert await asked.code("POST", "/subjects/s/versions", body) == 42201


async def test_bodies_are_bounded_json_of_a_type_that_no_page_can_send(asked: Asked) -> None:
    path = "/subjects/s/versions"
    assert await asked.code("POST", path, {"schema": INT}, kind="text/plain") == 415
    assert await asked.code("POST", path, data=b"{") == 400
    assert await asked.code("POST", path, data=b" " * (SCHEMA_BODY_BYTES_MAX + 1)) == 413


@pytest.mark.parametrize(
    ("peer", "headers"),
    [
        ("192.0.2.1", {}),
        ("", {}),
        ("127.0.0.1", {"host": "example.org"}),
        ("127.0.0.1", {"host": ""}),
        ("127.0.0.1", {"x-forwarded-for": "192.0.2.1"}),
    ],
)
async def test_without_tokens_only_this_machine_is_let_in(
    agent: SmallAgent, peer: str, headers: dict[str, str]
) -> None:
    assert await Asked(agent, peer, **headers).code("GET", "/subjects") == 40301


async def test_with_tokens_whoever_shows_one_is_let_in_and_nobody_else(agent: SmallAgent) -> None:
    token = "t" * HTTP_TOKEN_CHARS_MIN
    tokens = HttpTokens.of(token)
    shown = Asked(agent, "192.0.2.1", tokens, host="example.org", authorization=f"Bearer {token}")
    assert await shown.get("/subjects") == []
    assert await Asked(agent, "127.0.0.1", tokens).code("GET", "/subjects") == 40101
    assert await Asked(agent, "127.0.0.1", tokens, authorization=f"Bearer {token}x").code("GET", "/subjects") == 40101


async def test_this_machine_has_more_than_one_address(agent: SmallAgent) -> None:
    assert await Asked(agent, "::1", host="[::1]:9644").get("/subjects") == []


class Racing(SmallAgent):
    """Another agent registers a schema under the same subject each time before this one's comes, so often."""

    def __init__(self, *others: str) -> None:
        super().__init__()
        self._others = list(others)
        self.ledger.before = self._race

    def _race(self, command: Command) -> None:
        if isinstance(command, RegisterSchema) and self._others:
            rival = RegisterSchema(
                subject=command.subject,
                content=type(command.content)(schema_type=command.content.schema_type, text=self._others.pop(0)),
                checked_at=self.state.registry.changed_at(command.subject),
                checked_as=command.checked_as,
            )
            self.ledger.apply(rival)


async def test_a_schema_is_judged_again_against_what_came_before_it() -> None:
    asked = Asked(Racing(INT))
    assert await asked.register("s", LONG) == (2, 2)
    assert await Asked(Racing(STRING)).code("POST", "/subjects/s/versions", {"schema": LONG}) == 409


async def test_one_that_never_comes_first_is_told() -> None:
    rivals = [json.dumps({"type": "int", "doc": str(number)}) for number in range(REGISTRY_TRIES_MAX)]
    assert await Asked(Racing(*rivals)).code("POST", "/subjects/s/versions", {"schema": LONG}) == 50002


@pytest.mark.parametrize(
    "outcome",
    [
        None,
        OutcomeUnknown(),
        Rejected(error_code=ErrorCode.request_timed_out, reason="too many commands wait"),
    ],
)
async def test_an_outcome_that_is_not_known_is_an_error_that_clients_try_again_after(
    agent: SmallAgent, asked: Asked, monkeypatch: pytest.MonkeyPatch, outcome: Exception | Outcome | None
) -> None:
    def propose(_: Command) -> asyncio.Future[Outcome]:
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        elif outcome is not None:
            future.set_result(outcome)
        return future

    monkeypatch.setattr(registry, "LEDGER_WAIT_SECONDS_MAX", 0.01)
    monkeypatch.setattr(agent.ledger, "propose", propose)
    assert await asked.code("POST", "/subjects/s/versions", {"schema": INT}) == 50002


async def test_a_ledger_that_is_away_is_told_and_known_ids_are_answered(agent: SmallAgent, asked: Asked) -> None:
    await asked.register("s")
    agent.backend.is_reachable = False
    assert await asked.code("GET", "/subjects") == 50002
    shown = await asked.get("/schemas/ids/1")
    assert isinstance(shown, dict)
    assert shown["schema"] == INT


async def test_requests_at_a_time_do_not_disturb_each_other(asked: Asked) -> None:
    ids = await asyncio.gather(*(asked.register(f"s{number % 3}", INT) for number in range(12)))
    assert set(ids) == {(1, 1)}
