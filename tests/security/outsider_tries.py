"""The tries of the attacker: each asks for something of the victim's, and says whether it was stopped."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import Final, NamedTuple

import obstore
from kio.static.primitive import Records
from obstore.exceptions import BaseError
from obstore.store import S3Store

from agent.security.required_rights import ACT_ON_CLUSTER
from protocol.api_versions import ApiKey
from protocol.errors import ErrorCode
from protocol.records.batch import TRANSACTIONAL_BIT
from tests.security.guarded_paths import GuardedPath, guarded_paths
from tests.security.guarded_requests import FILTERED, GUARDED, FilteredRequest, GuardedRequest
from tests.security.outsider_audit import LOGIN
from tests.security.tenant import ATTACKER, SECRET, VICTIM, Tenants
from tests.support.clients.kafka_requests import Broken
from tests.support.clients.login_client import LoginClient, error_codes
from tests.support.records.record_batches import hand_made

CREATE_TABLE: Final = "POST /iceberg/v1/namespaces/{namespace}/tables"
ALLOWED: Final = ("InitProducerId",)
"""Requests that name nothing of the victim's: a tenant that may write to a topic may have a producer's id."""
TIMED_ROUNDS: Final = 60
LIKELY: Final = (0.25, 0.75)
"""Of two samples of the same times one is the greater with a probability of 0.5; of 60 pairs beyond these never."""
ERRORS: Final = {int(code): code.name for code in ErrorCode}


class TryResult(NamedTuple):
    is_stopped: bool
    text: str


@dataclass(frozen=True, slots=True)
class Try:
    """One try. `event` is the API and the names of resources that its denial in the audit topic may have."""

    label: str
    run: Callable[[Tenants], TryResult]
    event: tuple[str, frozenset[str]] | None = None


def all_tries(tenants: Tenants) -> Iterator[Try]:
    """Every try, of every kind."""
    yield from (_guarded(row, tenants) for row in GUARDED if row.label not in ALLOWED)
    yield from map(_filtered, FILTERED)
    yield from (_path(row) for row in guarded_paths() if row.needs)
    yield from (_listed(row) for row in guarded_paths() if row.lists)
    yield from _bucket_tries(tenants)
    yield from _tail_tries(tenants)
    yield from _transaction_tries()
    yield from _login_tries()
    yield Try("times: Metadata of a hidden topic and of none", lambda t: _timed(t, _metadata_time))
    yield Try("times: a hidden table and none over HTTP", lambda t: _timed(t, _table_time))
    yield Try("times: a hidden group and none", lambda t: _timed(t, _group_time))


def _guarded(row: GuardedRequest, tenants: Tenants) -> Try:
    names, need = tenants.names[VICTIM], row.needs[0]
    resources = frozenset(name for right in need.rights for name in names.of(right.resource_type))
    if need.rights == (ACT_ON_CLUSTER,):
        resources |= names.of(ACT_ON_CLUSTER.resource_type)

    def run(tenants: Tenants) -> TryResult:
        answer = tenants.attacker.ask(row.api_key, row.version, row.values(names))
        codes = set(error_codes(answer)) - {0}
        return TryResult(codes == {need.code} and SECRET not in repr(answer), _named(codes))

    return Try(f"Kafka: {row.label}", run, (_api_name(row.api_key), resources))


def _filtered(row: FilteredRequest) -> Try:
    def run(tenants: Tenants) -> TryResult:
        names = tenants.names[VICTIM]
        answer = tenants.attacker.ask(row.api_key, row.version, row.values(names))
        is_stopped = not row.shown(answer, names) and SECRET not in repr(answer)
        return TryResult(is_stopped, "left out" if is_stopped else "shown")

    return Try(f"Kafka: {row.label}", run)


def _path(row: GuardedPath) -> Try:
    def run(tenants: Tenants) -> TryResult:
        status, text = tenants.ask_path(ATTACKER, row.method, _path_of(row, tenants), row.body(_topic(tenants)))
        return TryResult(status in (403, 404) and not _shows(text), str(status))

    path = row.path(f"{VICTIM}.topic").partition("?")[0]
    names = frozenset({f"{VICTIM}.topic", f"schema:{VICTIM}.topic-value", "kafka-cluster"})
    # Nobody may create a table: its answer is no denial.
    event = None if row.row == CREATE_TABLE else (f"{row.method} {path}", names)
    return Try(f"HTTP: {row.row}", run, event)


def _listed(row: GuardedPath) -> Try:
    def run(tenants: Tenants) -> TryResult:
        status, text = tenants.ask_path(ATTACKER, row.method, _path_of(row, tenants), row.body(_topic(tenants)))
        asked = _path_of(row, tenants)
        is_stopped = not _shows(text) and (status in (403, 404) or _topic(tenants) not in text.replace(asked, ""))
        return TryResult(is_stopped, f"{status}, left out" if is_stopped else f"{status}, shown")

    return Try(f"HTTP list: {row.row}", run)


def _path_of(row: GuardedPath, tenants: Tenants) -> str:
    """The path of a request about the victim's topic and its schema."""
    schema = tenants.schemas[VICTIM]
    path = row.path(_topic(tenants)).replace("/guids/1", f"/guids/{schema['guid']}")
    return path.replace("/ids/1", f"/ids/{schema['id']}")


def _shows(text: str) -> bool:
    """Whether a text has something of the victim's that it alone knows."""
    return SECRET in text or "hidden" in text


def _topic(tenants: Tenants) -> str:
    return tenants.names[VICTIM].topic


def _api_name(api_key: ApiKey) -> str:
    return "".join(word.title() for word in api_key.name.split("_"))


def _named(codes: set[int]) -> str:
    return ", ".join(ERRORS.get(code, str(code)).lower() for code in sorted(codes)) or "no error"


# The bucket, by the keys that the catalog gives the attacker for its own table.


def _vended(tenants: Tenants) -> S3Store:
    """A store by the attacker's own keys."""
    path = f"/iceberg/v1/namespaces/lake/tables/{tenants.names[ATTACKER].topic}/credentials"
    status, text = tenants.ask_path(ATTACKER, "GET", path)
    assert status == 200, text
    (credential,) = _json(text)["storage-credentials"]
    config = credential["config"]
    return S3Store(
        tenants.bucket,
        endpoint=tenants.minio.endpoint,
        access_key_id=config["s3.access-key-id"],
        secret_access_key=config["s3.secret-access-key"],
        session_token=config["s3.session-token"],
        region="us-east-1",
        client_options={"allow_http": True},
    )


def _json(text: str) -> "dict[str, list[dict[str, dict[str, str]]]]":
    loaded: dict[str, list[dict[str, dict[str, str]]]] = json.loads(text)
    return loaded


def _bucket_tries(tenants: Tenants) -> Iterator[Try]:
    kinds = {
        "the victim's metadata": r"lake/victim\.topic-.*/metadata/.*\.json",
        "the victim's manifest": r"lake/victim\.topic-.*/metadata/.*\.avro",
        "the victim's data": r"lake/victim\.topic-.*\.parquet",
        "the intake": r"intake/.*",
        "the cluster's name": r"cluster\.json",
        "its own data, to write": r"lake/attacker\.topic-.*\.parquet",
    }
    for kind, pattern in kinds.items():
        keys = tenants.keys(pattern)
        assert keys, f"the bucket has no object for {pattern}: {tenants.objects()}"
        key = f"{tenants.prefix}/{keys[0]}"
        if kind != "its own data, to write":
            yield Try(f"bucket: get {kind}", lambda t, key=key: _denied(lambda: obstore.get(_vended(t), key).bytes()))  # type: ignore[misc]
        yield Try(f"bucket: put {kind}", lambda t, key=key: _denied(lambda: obstore.put(_vended(t), key, b"x")))  # type: ignore[misc]
        yield Try(f"bucket: delete {kind}", lambda t, key=key: _denied(lambda: obstore.delete(_vended(t), key)))  # type: ignore[misc]
    folder = tenants.keys(r"lake/victim\.topic-.*")[0].split("/")[1]
    for prefix in ("", "intake/", "ledger/", "lake/", "checks/", f"lake/{folder}/"):
        place = f"{tenants.prefix}/{prefix}"
        yield Try(f"bucket: list {prefix or 'all'}", lambda t, place=place: _unlisted(t, place))  # type: ignore[misc]
    for key in ("ledger/1", "checks/access"):
        place = f"{tenants.prefix}/{key}"
        yield Try(f"bucket: put {key}", lambda t, place=place: _denied(lambda: obstore.put(_vended(t), place, b"x")))  # type: ignore[misc]


def _denied(act: Callable[[], object]) -> TryResult:
    try:
        act()
    except (BaseError, PermissionError) as error:
        text = str(error)
        return TryResult("403" in text or "denied" in text.lower(), "denied by the store")
    return TryResult(False, "done")


def _unlisted(tenants: Tenants, prefix: str) -> TryResult:
    try:
        listed = [each["path"] for page in obstore.list(_vended(tenants), prefix) for each in page]
    except (BaseError, PermissionError):
        return TryResult(True, "denied by the store")
    return TryResult(not listed, f"{len(listed)} keys")


# The tail, through the attacker's own topic.


def _tail_tries(tenants: Tenants) -> Iterator[Try]:
    own = tenants.names[ATTACKER].topic
    for kind in (r"intake/.*", r"lake/victim\.topic-.*", r"cluster\.json"):
        for key in tenants.keys(kind)[:3]:
            for first, count in ((0, 1 << 16), (0, 64), (4, 4096)):
                yield Try(
                    f"tail: {count} bytes from {first} on of {key[:40]}",
                    lambda t, path=f"/api/tail/{own}/bytes?key={key}&first={first}&count={count}": _bytes(t, path),  # type: ignore[misc]
                )


def _bytes(tenants: Tenants, path: str) -> TryResult:
    status, text = tenants.ask_path(ATTACKER, "GET", path)
    return TryResult(SECRET not in text and status in (403, 404, 416), str(status))


# Transactions: the id of the victim's producer is no secret, and no right.


def _transaction_tries() -> Iterator[Try]:
    yield Try("transaction: the victim's producer under the attacker's own id", _joined)
    for version in (9, 12):
        yield Try(
            f"transaction: a record of the victim's producer, Produce {version}",
            lambda t, version=version: _forged(t, version),  # type: ignore[misc]
        )


def _ids(tenants: Tenants) -> dict[str, int]:
    begun = {"transactional_id": tenants.names[VICTIM].transactional_id, "transaction_timeout": timedelta(seconds=500)}
    producer = tenants.victim.ask(ApiKey.INIT_PRODUCER_ID, 4, begun)
    assert producer.error_code == 0
    return {"producer_id": int(producer.producer_id), "producer_epoch": int(producer.producer_epoch)}


def _joined(tenants: Tenants) -> TryResult:
    ids, own = _ids(tenants), tenants.names[ATTACKER]
    begun = {"transactional_id": own.transactional_id, "transaction_timeout": timedelta(seconds=500)}
    assert tenants.attacker.ask(ApiKey.INIT_PRODUCER_ID, 4, begun).error_code == 0
    values = {
        "v3_and_below_transactional_id": own.transactional_id,
        "v3_and_below_producer_id": ids["producer_id"],
        "v3_and_below_producer_epoch": ids["producer_epoch"],
        "v3_and_below_topics": [{"name": own.topic, "partitions": [0]}],
    }
    codes = set(error_codes(tenants.attacker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, values))) - {0}
    return TryResult(bool(codes), _named(codes))


def _forged(tenants: Tenants, version: int) -> TryResult:
    own = tenants.names[ATTACKER]
    batch = hand_made(attributes=TRANSACTIONAL_BIT, base_sequence=0, **_ids(tenants))
    topics = [{"name": own.topic, "partition_data": [{"index": 0, "records": Records(batch)}]}]
    values = {"transactional_id": own.transactional_id, "acks": -1, "timeout": timedelta(seconds=5)}
    codes = set(error_codes(tenants.attacker.ask(ApiKey.PRODUCE, version, {**values, "topic_data": topics}))) - {0}
    return TryResult(bool(codes), _named(codes))


# Logins as the victim.


def _login_tries() -> Iterator[Try]:
    for label, user, password in [
        ("the attacker's password", VICTIM, f"password-of-{ATTACKER}"),
        ("no password", VICTIM, ""),
        ("the victim's name in capitals", VICTIM.upper(), f"password-of-{VICTIM.upper()}"),
    ]:
        yield Try(
            f"login as the victim: {label}",
            lambda t, u=user, p=password: _login(t, u, p),  # type: ignore[misc]
            (LOGIN, frozenset({f"User:{user}"})),
        )


def _login(tenants: Tenants, user: str, password: str) -> TryResult:
    with LoginClient(tenants.broker.bootstrap) as client:
        try:
            code = client.log_in(user, password).error_code
        except Broken:
            return TryResult(True, "closed")
    return TryResult(code != 0, _named({code} - {0}))


# Times.


def _timed(tenants: Tenants, ask: Callable[[Tenants, str], float]) -> TryResult:
    """Whether the times of what is hidden can be told from those of what is not there."""
    hidden: list[float] = []
    missing: list[float] = []
    for number in range(TIMED_ROUNDS):
        pair = [(hidden, "topic"), (missing, "nothg")]
        for times, name in pair if number % 2 else reversed(pair):
            times.append(ask(tenants, f"{VICTIM}.{name}"))
    greater = sum(a > b for a in hidden for b in missing) / TIMED_ROUNDS**2
    text = f"{median(hidden) * 1000:.1f} and {median(missing) * 1000:.1f} ms, {greater:.2f} greater"
    return TryResult(LIKELY[0] < greater < LIKELY[1], text)


def _metadata_time(tenants: Tenants, name: str) -> float:
    topics = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    began = time.perf_counter()
    tenants.attacker.ask(ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "isolation_level": 0, "topics": topics})
    return time.perf_counter() - began


def _table_time(tenants: Tenants, name: str) -> float:
    began = time.perf_counter()
    tenants.ask_path(ATTACKER, "GET", f"/iceberg/v1/namespaces/lake/tables/{name}")
    return time.perf_counter() - began


def _group_time(tenants: Tenants, name: str) -> float:
    group = name.replace("topic", "group").replace("nothg", "nogrp")
    began = time.perf_counter()
    tenants.attacker.ask(ApiKey.DESCRIBE_GROUPS, 5, {"groups": [group], "include_authorized_operations": False})
    return time.perf_counter() - began
