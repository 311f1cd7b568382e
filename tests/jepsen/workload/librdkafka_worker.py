"""A client of the transactional workload by librdkafka, which speaks transactions V1; Java and Go have the same one.

    python -m tests.jepsen.workload.librdkafka_worker BOOTSTRAP TRANSACTIONAL_ID GROUP TRANSACTION_TIMEOUT_MS

A line of JSON on stdin is a call, answered by one line on stdout (`tests.jepsen.workload.worker` starts it and asks):

    {"f": "txn", "value": [["send", "a-1", 4], ["poll"]], "abort": false}
    {"type": "ok", "value": [["send", "a-1", [17, 4]], ["poll", {"a-0": [[5, 1]]}]], "error": null, "rebalance_log": []}

Rule: what is not known not to have happened is `info`. A transaction whose commit was never asked for has failed; so
has one whose abort succeeded, or whose producer was told that it is fenced. After a transaction that is not ok the
consumer goes back to what it polled first. Sends of a transaction go out together, and are waited for before its end.
`assign` goes on where a key that is still named was, and begins at the start of the others; `fresh` begins all again.

Source: Jepsen, jepsen.tests.kafka and the clients of its Redpanda and Bufstream tests.
"""

import json
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

Fields = dict[str, Any]
"""As JSON has them."""

API_SECONDS = 10.0
POLL_SECONDS = 0.1
RECORDS_MAX = 500
COMMON: Fields = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 1_000, "log_level": 3}
PRODUCER: Fields = {
    **COMMON,
    "acks": "all",
    "retries": 1_000,
    "enable.idempotence": True,
    "linger.ms": 0,
    "request.timeout.ms": 3_000,
}
DELIVERY_MS = 10_000
SOCKET_MS = 3_000
SOCKET_MARGIN_MS = 100
CONSUMER: Fields = {
    **COMMON,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 300,
    "partition.assignment.strategy": "range",
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 100,
    "topic.metadata.refresh.interval.ms": 3_000,
}
DEFINITE = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_EXCEPTION,
    }
)
"""Upon these nothing was written."""


def place_of(key: str) -> tuple[str, int]:
    """Topic and partition of a key."""
    topic, _, partition = key.rpartition("-")
    return topic, int(partition)


def transactional(transactional_id: str, timeout_ms: int) -> Fields:
    """Settings of transactions. librdkafka gives no record and no request longer than its transaction has."""
    return {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
        "delivery.timeout.ms": min(DELIVERY_MS, timeout_ms),
        "socket.timeout.ms": min(SOCKET_MS, timeout_ms - SOCKET_MARGIN_MS),
    }


class Sends:
    """Records handed to a producer in one call, and what was told of each."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._waiting = 0
        self.error: KafkaError | None = None

    def send(self, key: str, value: int) -> list[Any]:
        """Hand it over; the micro-operation that it gives learns the offset later."""
        pair: list[int | None] = [None, value]

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._waiting -= 1
            if error is not None:
                self.error = self.error or error
            else:
                offset = message.offset()
                pair[0] = offset if offset is not None and offset >= 0 else None

        topic, partition = place_of(key)
        self._waiting += 1
        self._producer.produce(topic, str(value).encode(), partition=partition, on_delivery=delivered)
        return ["send", key, pair]

    def wait(self) -> None:
        """Until each is acknowledged. Raises KafkaException: one was not."""
        deadline_s = time.monotonic() + API_SECONDS + 1
        while self._waiting and self.error is None:
            if time.monotonic() > deadline_s:
                raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT))
            self._producer.poll(0.05)
        if self.error is not None:
            raise KafkaException(self.error)


class Worker:
    """The client's state between calls."""

    def __init__(self, bootstrap: str, transactional_id: str, group: str, transaction_timeout_ms: str) -> None:
        self._bootstrap, self._group = bootstrap, group
        self._transactions = transactional(transactional_id, int(transaction_timeout_ms))
        self._transactional: Producer | None = None
        self._idempotent: Producer | None = None
        self._consumer: Consumer | None = None
        self._positions: dict[str, int] = {}
        """Where the next poll of each assigned key begins."""
        self._is_subscribed = False
        self._first: dict[str, int] = {}
        """The first offset of each key that this call polled."""
        self._next: dict[str, int] = {}
        self._rebalance_log: list[str] = []
        self._notes: list[str] = []

    def do(self, call: Fields) -> Fields:
        self._first, self._next, self._rebalance_log, self._notes = {}, {}, [], []
        match call["f"]:
            case "txn":
                answer = self._txn(call)
            case "send" | "poll":
                answer = self._alone(call)
            case "assign":
                answer = self._assign(call["value"], is_fresh=call.get("fresh", False))
            case "subscribe":
                answer = self._subscribe(call["value"])
            case other:
                raise ValueError(f"no call: {other}")
        notes = [*([answer["error"]] if answer.get("error") else []), *self._notes]
        return {**answer, "error": "; ".join(notes) or None, "rebalance_log": self._rebalance_log}

    def _micro(self, sends: Sends, micro: list[Any]) -> list[Any]:
        return sends.send(micro[1], micro[2]) if micro[0] == "send" else self._poll()

    # Transactions

    def _txn(self, call: Fields) -> Fields:
        done: list[Any] = []
        is_commit_tried = False
        try:
            producer = self._transactional_producer()
            producer.begin_transaction()
        except KafkaException as error:
            self._transactional = None
            return _ended("fail", _with_rest(done, call["value"]), f"begin: {_text(error)}")
        sends = Sends(producer)
        try:
            done.extend(self._micro(sends, micro) for micro in call["value"])
            sends.wait()
            self._send_offsets(producer)
            if call["abort"]:
                producer.abort_transaction(API_SECONDS)
                return self._rewound(_ended("fail", done, "aborted as told"))
            is_commit_tried = True
            self._commit(producer)
        except KafkaException as error:
            outcome = self._failed(producer, error, is_commit_tried=is_commit_tried)
            return self._rewound(_ended(outcome, _with_rest(done, call["value"]), _text(error)))
        return _ended("ok", done)

    def _commit(self, producer: Producer) -> None:
        deadline_s = time.monotonic() + API_SECONDS
        while True:
            try:
                producer.commit_transaction(API_SECONDS)
            except KafkaException as error:
                if not _error(error).retriable() or time.monotonic() > deadline_s:
                    raise
            else:
                return

    def _failed(self, producer: Producer, error: KafkaException, *, is_commit_tried: bool) -> str:
        """Leave the transaction behind; returns how it ended."""
        cause = _error(error)
        try:
            if cause.fatal():
                raise error
            producer.abort_transaction(API_SECONDS)
        except KafkaException as second:
            self._notes.append(f"abort: {_text(second)}")
            self._transactional = None
            producer.purge()
            is_definite = not is_commit_tried or cause.code() in DEFINITE
            return "fail" if is_definite else "info"
        return "fail"

    def _send_offsets(self, producer: Producer) -> None:
        if self._is_subscribed and self._next and self._consumer is not None:
            offsets = [TopicPartition(*place_of(key), offset) for key, offset in self._next.items()]
            producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata(), API_SECONDS)

    def _transactional_producer(self) -> Producer:
        if self._transactional is None:
            producer = Producer({**PRODUCER, **self._transactions, "bootstrap.servers": self._bootstrap})
            producer.init_transactions(API_SECONDS)
            self._transactional = producer
        return self._transactional

    # Without a transaction

    def _alone(self, call: Fields) -> Fields:
        done: list[Any] = []
        try:
            sends = Sends(self._idempotent_producer())
            done.extend(self._micro(sends, micro) for micro in call["value"])
            sends.wait()
        except KafkaException as error:
            cause = _error(error)
            if cause.fatal():
                self._idempotent = None
            outcome = "fail" if cause.code() in DEFINITE else "info"
            return self._rewound(_ended(outcome, _with_rest(done, call["value"]), _text(error)))
        self._commit_offsets()
        return _ended("ok", done)

    def _commit_offsets(self) -> None:
        """What was polled was polled, even where this does not succeed."""
        if self._is_subscribed and self._next and self._consumer is not None:
            offsets = [TopicPartition(*place_of(key), offset) for key, offset in self._next.items()]
            try:
                self._consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as error:
                self._notes.append(f"commit of offsets: {_text(error)}")

    def _idempotent_producer(self) -> Producer:
        if self._idempotent is None:
            self._idempotent = Producer(
                {**PRODUCER, "delivery.timeout.ms": DELIVERY_MS, "bootstrap.servers": self._bootstrap}
            )
        return self._idempotent

    # Reading

    def _poll(self) -> list[Any]:
        """One poll, which learns no more after the first error, told in the answer."""
        records: dict[str, list[tuple[int, int]]] = {}
        consumer, timeout_s = self._consumer, POLL_SECONDS
        for _ in range(RECORDS_MAX if consumer is not None else 0):
            assert consumer is not None
            message = consumer.poll(timeout_s)
            if message is None:
                break
            error = message.error()
            if error is not None:
                self._notes.append(f"poll: {error.name()}")
                break
            timeout_s = 0
            self._polled(message, records)
        return ["poll", records]

    def _polled(self, message: Message, records: dict[str, list[tuple[int, int]]]) -> None:
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert isinstance(value, bytes)
        key = f"{message.topic()}-{message.partition()}"
        records.setdefault(key, []).append((offset, int(value)))
        self._first.setdefault(key, offset)
        self._next[key] = self._positions[key] = offset + 1

    def _assign(self, keys: list[str], *, is_fresh: bool) -> Fields:
        consumer = self._reading_consumer()
        if self._is_subscribed:
            consumer.unsubscribe()
            self._is_subscribed = False
        self._positions = {key: 0 if is_fresh else self._positions.get(key, 0) for key in keys}
        self._place(consumer)
        return _ended("ok", keys)

    def _subscribe(self, topics: list[str]) -> Fields:
        consumer = self._reading_consumer()
        if not self._is_subscribed:
            consumer.unassign()
        self._positions = {}
        consumer.subscribe(topics, on_assign=self._on_rebalance, on_revoke=self._on_rebalance)
        self._is_subscribed = True
        return _ended("ok", topics)

    def _rewound(self, answer: Fields) -> Fields:
        """Go back to what this call polled first."""
        consumer = self._consumer
        if self._first and consumer is not None:
            self._positions.update(self._first)
            if not self._is_subscribed:
                self._place(consumer)
                return answer
            try:
                assigned = {f"{place.topic}-{place.partition}" for place in consumer.assignment()}
                for key in assigned & self._first.keys():
                    consumer.seek(TopicPartition(*place_of(key), self._first[key]))
            except KafkaException as error:
                self._notes.append(f"rewind: {_text(error)}")
        return answer

    def _place(self, consumer: Consumer) -> None:
        consumer.assign([TopicPartition(*place_of(key), offset) for key, offset in self._positions.items()])

    def _reading_consumer(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer({**CONSUMER, "bootstrap.servers": self._bootstrap, "group.id": self._group})
        return self._consumer

    def _on_rebalance(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        self._rebalance_log += [f"{place.topic}-{place.partition}" for place in places]


def _ended(outcome: str, value: object, error: str | None = None) -> Fields:
    return {"type": outcome, "value": value, "error": error}


def _with_rest(done: list[Any], micros: list[Any]) -> list[Any]:
    """What was done, and what was not, as a completion tells it."""
    rest = [
        ["send", micro[1], [None, micro[2]]] if micro[0] == "send" else ["poll", {}] for micro in micros[len(done) :]
    ]
    return done + rest


def _error(error: KafkaException) -> KafkaError:
    cause = error.args[0]
    assert isinstance(cause, KafkaError)
    return cause


def _text(error: KafkaException) -> str:
    return f"{_error(error).name()}: {_error(error).str()}"


def main() -> None:
    worker = Worker(*sys.argv[1:5])
    for line in sys.stdin:
        print(json.dumps(worker.do(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
