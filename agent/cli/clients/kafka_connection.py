"""One connection of the commands to a Kafka listener: it logs in, and sends one request at a time.

In: requests of kio, each of one fixed version. Out: their answers. Errors are `CommandFailed`, with the user's remedy.
"""

import asyncio
import ssl
from io import BytesIO
from typing import Self, TypeVar

from kio.schema.sasl_authenticate.v2 import request as sasl_authenticate
from kio.schema.sasl_authenticate.v2 import response as sasl_authenticate_response
from kio.schema.sasl_handshake.v1 import request as sasl_handshake
from kio.schema.sasl_handshake.v1 import response as sasl_handshake_response
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32
from kio.static.protocol import RequestPayload, ResponsePayload

from agent.cli.clients.http_client import KafkaAddress
from agent.cli.clients.security import OAUTHBEARER, PLAIN, ClientLogin, untrusted
from agent.cli.failure import EXIT_USAGE, CommandFailed, Unavailable
from agent.config.addresses import HostPort
from agent.runtime.ids import SystemIds
from protocol.auth.scram_client import ScramClient, ServerRejected
from protocol.auth.scram_credentials import ScramMechanism
from protocol.errors import ErrorCode
from protocol.limits import CLIENT_ANSWER_BYTES_MAX, CLIENT_ANSWER_SECONDS_MAX, CLIENT_CONNECT_SECONDS_MAX

CLIENT_ID = "penstock-cli"
ERRORS_OF_AN_OUTAGE = (
    ErrorCode.not_leader_or_follower,
    ErrorCode.kafka_storage_error,
    ErrorCode.leader_not_available,
    ErrorCode.request_timed_out,
)
HINTS = {
    ErrorCode.kafka_storage_error: (
        "its records are damaged, or the store rejects the read: see the agent's log, and docs/operations/damage.md, "
        '"A damaged file"; docs/operations/bucket.md, "Faults of the bucket"'
    ),
    ErrorCode.request_timed_out: "the ledger or the store does not answer: see the agent's log",
}
"""Explanations of error codes, for the user of the command."""


Answer = TypeVar("Answer", bound=ResponsePayload)


class KafkaConnection:
    """`async with await KafkaConnection.connect(address) as connection`. Raises `CommandFailed`."""

    def __init__(self, address: HostPort, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._address = address
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    @classmethod
    async def connect(cls, kafka: KafkaAddress) -> Self:
        address = kafka.address
        context = None if kafka.security is None else kafka.security.context()
        try:
            async with asyncio.timeout(CLIENT_CONNECT_SECONDS_MAX):
                reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
        except ssl.SSLError as error:
            raise Unavailable(untrusted(str(address), error)) from error
        except OSError as error:  # TimeoutError is one
            raise Unavailable(f"no Kafka listener answers at {address}: is the agent running?") from error
        client = cls(address, reader, writer)
        if kafka.login is not None:
            try:
                await client._log_in(kafka.login)
            except BaseException:
                client.close()
                raise
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._writer.close()

    async def _log_in(self, login: ClientLogin) -> None:
        """Authenticate by SASL. Raises `CommandFailed`."""
        handshake = sasl_handshake.SaslHandshakeRequest(mechanism=login.mechanism)
        listed = await self.ask(handshake, sasl_handshake_response.SaslHandshakeResponse)
        if listed.error_code is not ErrorCode.none:
            raise CommandFailed(
                f"the agent does not take sasl.mechanism={login.mechanism}; it takes {', '.join(listed.mechanisms)}",
                exit_code=EXIT_USAGE,
            )
        if login.mechanism == PLAIN:
            await self._send_token(f"\0{login.user}\0{login.password}".encode())
            return
        if login.mechanism == OAUTHBEARER:
            error = await self._send_token(f"n,,\x01auth=Bearer {login.password}\x01\x01".encode())
            if error:  # the agent sends what is wrong, and fails after the client's answer (RFC 7628, section 3.2.3)
                await self._send_token(b"\x01")
            return
        (mechanism,) = (each for each in ScramMechanism if each.sasl_name == login.mechanism)
        scram = ScramClient(mechanism, user=login.user, password=login.password, nonce=SystemIds().new_uuid().hex())
        try:
            challenge = await self._send_token(scram.first())
            scram.check(await self._send_token(scram.final(challenge)))
        except ServerRejected as error:
            raise CommandFailed(f"{self._address} cannot be trusted: {error}") from error

    async def _send_token(self, token: bytes) -> bytes:
        request = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=token)
        answer = await self.ask(request, sasl_authenticate_response.SaslAuthenticateResponse)
        if answer.error_code is not ErrorCode.none:
            raise CommandFailed(f"the agent rejects the user of --command-config: {answer.error_message}")
        return answer.auth_bytes

    async def ask(self, request: RequestPayload, answer_type: type[Answer]) -> Answer:
        """Send a request and return its answer. After an error the connection must not be used again."""
        self._correlation_id += 1
        try:
            async with asyncio.timeout(CLIENT_ANSWER_SECONDS_MAX):
                self._writer.write(_frame(request, self._correlation_id))
                await self._writer.drain()
                answer = await self._receive()
        except asyncio.IncompleteReadError as error:
            raise Unavailable("the agent closed the connection: see its log") from error
        except TimeoutError as error:
            raise Unavailable(f"no answer within {CLIENT_ANSWER_SECONDS_MAX:.0f} s: see the agent's log") from error
        except OSError as error:
            raise Unavailable(f"the connection broke: {error}") from error
        header_type = answer_type.__header_schema__
        header, header_bytes = entity_reader(header_type)(answer, 0)
        if header.correlation_id != self._correlation_id:
            raise CommandFailed("the answer belongs to another request: is the address that of a Kafka broker?")
        return entity_reader(answer_type)(answer, header_bytes)[0]

    async def _receive(self) -> bytes:
        size = await self._reader.readexactly(4)
        answer_bytes = int.from_bytes(size, "big")
        if answer_bytes > CLIENT_ANSWER_BYTES_MAX:
            protocol = "HTTP" if size == b"HTTP" else "another protocol"
            raise CommandFailed(
                f"{self._address} speaks {protocol}: --bootstrap takes the address of a Kafka listener (--listen, port "
                "9092 by default), --server the HTTP address (--http, port 9644 by default)",
                exit_code=EXIT_USAGE,
            )
        return await self._reader.readexactly(answer_bytes)


def _frame(request: RequestPayload, correlation_id: int) -> bytes:
    header_type = request.__header_schema__
    header = header_type(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=i32(correlation_id),
        client_id=CLIENT_ID,
    )
    buffer = BytesIO()
    entity_writer(header_type)(buffer, header)
    try:
        entity_writer(type(request))(buffer, request)
    except UnicodeEncodeError as error:
        raise CommandFailed(f"{error.object!r} is not UTF-8", exit_code=EXIT_USAGE) from error
    return len(buffer.getbuffer()).to_bytes(4, "big") + buffer.getvalue()


def check(error_code: ErrorCode, what: str, message: str | None = None) -> None:
    """Raise `CommandFailed` for an error code. `message` is the broker's, which names the object of the error."""
    if error_code is ErrorCode.none:
        return
    failure = Unavailable if error_code in ERRORS_OF_AN_OUTAGE else CommandFailed
    if message:
        raise failure(f"{message.removesuffix('.')} ({error_code.name.upper()})")
    hint = HINTS.get(error_code)
    raise failure(f"the cluster answered {error_code.name.upper()} for {what}{f' ({hint})' if hint else ''}")
