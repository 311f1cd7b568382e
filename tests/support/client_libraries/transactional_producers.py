"""Producers of transactions, one step at a time, whichever the client.

Rule: each step returns once the broker has answered it, or raises `StepFailed` with what the client made of the answer.
"""

import asyncio
import subprocess
import warnings
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Protocol, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaException
from confluent_kafka import Producer as ConfluentProducer

from tests.support.client_libraries.interface import SECONDS_MAX, Place
from tests.support.services.java import JavaProgram

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # this library reads its own files in a deprecated way
    from kafka import KafkaProducer
    from kafka.errors import KafkaError as KafkaPythonError

TIMEOUT_MS = 60_000


class StepFailed(Exception):
    """A step did not succeed."""


class TransactionalProducer(AbstractContextManager["TransactionalProducer"], Protocol):
    """One instance under a transactional id; entering it is its InitProducerId."""

    def begin(self) -> None: ...
    def send(self, place: Place, value: str) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...


OpenProducer = Callable[[str, str, int], TransactionalProducer]
"""With the broker's address, a transactional id, and the time-out of transactions in milliseconds."""


class Confluent:
    """librdkafka's, of V1."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = ConfluentProducer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "log_level": 0,
            }
        )

    def __enter__(self) -> Self:
        self._step(lambda: self._producer.init_transactions(SECONDS_MAX))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer.purge()
        with suppress(KafkaException):  # of one that was fenced
            self._producer.flush(SECONDS_MAX)

    def begin(self) -> None:
        self._step(self._producer.begin_transaction)

    def send(self, place: Place, value: str) -> None:
        topic, partition = place
        errors: list[object] = []
        self._step(
            lambda: self._producer.produce(
                topic, value.encode(), partition=partition, on_delivery=lambda error, _: errors.append(error)
            )
        )
        self._producer.flush(SECONDS_MAX)
        if errors != [None]:
            raise StepFailed(f"not delivered: {errors}")

    def commit(self) -> None:
        self._step(lambda: self._producer.commit_transaction(SECONDS_MAX))

    def abort(self) -> None:
        self._step(lambda: self._producer.abort_transaction(SECONDS_MAX))

    def _step(self, step: Callable[[], object]) -> None:
        try:
            step()
        except KafkaException as error:
            raise StepFailed(str(error)) from error


class KafkaPython:
    """kafka-python's, of V1."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=int(SECONDS_MAX * 1000),
        )

    def __enter__(self) -> Self:
        self._step(self._producer.init_transactions)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer.close(timeout=1)

    def begin(self) -> None:
        self._step(self._producer.begin_transaction)

    def send(self, place: Place, value: str) -> None:
        topic, partition = place
        self._step(lambda: self._producer.send(topic, value.encode(), partition=partition).get(SECONDS_MAX))

    def commit(self) -> None:
        self._step(self._producer.commit_transaction)

    def abort(self) -> None:
        self._step(self._producer.abort_transaction)

    def _step(self, step: Callable[[], object]) -> None:
        try:
            step()
        except KafkaPythonError as error:
            raise StepFailed(repr(error)) from error


class AioKafka:
    """aiokafka's, of V1. Its loop runs while a step does."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._runner = asyncio.Runner()
        self._producer = self._runner.run(self._made(bootstrap, transactional_id, timeout_ms))

    async def _made(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )

    def __enter__(self) -> Self:
        self._step(self._producer.start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._runner:
            self._runner.run(self._stop())

    async def _stop(self) -> None:
        try:
            await asyncio.wait_for(self._producer.stop(), 1)
        except (TimeoutError, AioKafkaError):
            await self._producer.client.close()

    def begin(self) -> None:
        self._step(self._producer.begin_transaction)

    def send(self, place: Place, value: str) -> None:
        topic, partition = place
        self._step(lambda: self._producer.send_and_wait(topic, value.encode(), partition=partition))

    def commit(self) -> None:
        self._step(self._producer.commit_transaction)

    def abort(self) -> None:
        self._step(self._producer.abort_transaction)

    def _step(self, step: Callable[[], Awaitable[object]]) -> None:
        async def awaited() -> None:
            await asyncio.wait_for(step(), SECONDS_MAX)

        try:
            self._runner.run(awaited())
        except AioKafkaError as error:
            raise StepFailed(repr(error)) from error


class Java:
    """Apache Kafka's, of V2 where the broker says so: `TransactionalProducer.java`."""

    def __init__(self, program: JavaProgram, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._process = subprocess.Popen(
            program.command(bootstrap, transactional_id, str(timeout_ms)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Self:
        self._step("init")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def begin(self) -> None:
        self._step("begin")

    def send(self, place: Place, value: str) -> None:
        topic, partition = place
        self._step(f"send {topic} {partition} {value}")

    def commit(self) -> None:
        self._step("commit")

    def abort(self) -> None:
        self._step("abort")

    def _step(self, line: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        told = self._process.stdout.readline().strip()
        if told != "done":
            raise StepFailed(told or f"it ended with {self._process.wait()}")
