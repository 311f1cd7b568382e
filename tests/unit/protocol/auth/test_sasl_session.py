"""The states of an authentication: each with each request, and the ways through."""

import struct

import pytest

from protocol.api_versions import ApiKey
from protocol.auth.sasl_bearer import BearerExchange
from protocol.auth.sasl_exchange import BearerCheck, PasswordCheck, SaslExchange, SaslIdentity
from protocol.auth.sasl_plain import PlainExchange
from protocol.auth.sasl_session import (
    Failure,
    ListVersions,
    Output,
    Reply,
    SaslRules,
    SaslSession,
    SaslState,
    Success,
)
from protocol.auth.scram import ScramAccount, ScramExchange
from protocol.auth.scram_credentials import ScramMechanism
from protocol.auth.scram_keys import credential_of, salt_password
from protocol.connection import read_request_frame
from protocol.errors import ErrorCode
from tests.support.auth.drawn_scram_client import DrawnScramClient
from tests.support.auth.sasl_frames import (
    api_versions,
    authenticate,
    handshake,
    header,
    metadata,
    read_authenticate_answer,
    read_handshake_answer,
)

ALICE = SaslIdentity(name="alice")
MECHANISMS = ("SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")
SALTED = salt_password("wonderland", salt=b"salt", iterations=4096, mechanism=ScramMechanism.SCRAM_SHA_256)
CREDENTIAL = credential_of(SALTED, salt=b"salt", iterations=4096, mechanism=ScramMechanism.SCRAM_SHA_256)


def begin_exchange(mechanism: str) -> SaslExchange:
    match mechanism:
        case "PLAIN":
            return PlainExchange()
        case "OAUTHBEARER":
            return BearerExchange()
        case _:
            return ScramExchange(
                ScramMechanism.SCRAM_SHA_256,
                find_account=lambda name, is_token: ScramAccount(
                    credential=CREDENTIAL, identity=SaslIdentity(name=name)
                ),
                server_nonce="servernonce",
            )


RULES = SaslRules(mechanisms=MECHANISMS, begin_exchange=begin_exchange, lifetime_ms=lambda mechanism, identity: 60_000)


def session_in(state: SaslState) -> SaslSession:
    session = SaslSession(RULES)
    match state:
        case SaslState.NEW:
            pass
        case SaslState.VERSIONS_LISTED:
            session.receive(api_versions())
        case SaslState.EXCHANGE:
            session.receive(handshake("PLAIN"))
        case SaslState.RAW_EXCHANGE:
            session.receive(handshake("PLAIN", version=0))
        case SaslState.DONE:
            session.receive(handshake("PLAIN"))
            session.receive(authenticate(b"\0alice\0w"))
            session.checked(ALICE)
        case SaslState.FAILED:
            session.receive(metadata())
    assert session.state is state
    return session


FRAMES = {
    "ApiVersions": api_versions(),
    "SaslHandshake": handshake("PLAIN"),
    "SaslAuthenticate": authenticate(b"\0alice\0w"),
    "Metadata": metadata(),
    "no request": memoryview(b"GET / HTTP/1.1\r\n\r\n"),
    "nothing": memoryview(b""),
}


class TestTable:
    @pytest.mark.parametrize(
        ("state", "frame", "kind", "after"),
        [
            (SaslState.NEW, "ApiVersions", ListVersions, SaslState.VERSIONS_LISTED),
            (SaslState.NEW, "SaslHandshake", Reply, SaslState.EXCHANGE),
            (SaslState.NEW, "SaslAuthenticate", Failure, SaslState.FAILED),
            (SaslState.NEW, "Metadata", Failure, SaslState.FAILED),
            (SaslState.NEW, "no request", Failure, SaslState.FAILED),
            (SaslState.NEW, "nothing", Failure, SaslState.FAILED),
            (SaslState.VERSIONS_LISTED, "ApiVersions", Failure, SaslState.FAILED),
            (SaslState.VERSIONS_LISTED, "SaslHandshake", Reply, SaslState.EXCHANGE),
            (SaslState.VERSIONS_LISTED, "SaslAuthenticate", Failure, SaslState.FAILED),
            (SaslState.VERSIONS_LISTED, "Metadata", Failure, SaslState.FAILED),
            (SaslState.VERSIONS_LISTED, "no request", Failure, SaslState.FAILED),
            (SaslState.VERSIONS_LISTED, "nothing", Failure, SaslState.FAILED),
            (SaslState.EXCHANGE, "ApiVersions", Failure, SaslState.FAILED),
            (SaslState.EXCHANGE, "SaslHandshake", Failure, SaslState.FAILED),
            (SaslState.EXCHANGE, "SaslAuthenticate", PasswordCheck, SaslState.EXCHANGE),
            (SaslState.EXCHANGE, "Metadata", Failure, SaslState.FAILED),
            (SaslState.EXCHANGE, "no request", Failure, SaslState.FAILED),
            (SaslState.EXCHANGE, "nothing", Failure, SaslState.FAILED),
            # Each frame is a token here: none of these has the three parts of PLAIN.
            (SaslState.RAW_EXCHANGE, "ApiVersions", Failure, SaslState.FAILED),
            (SaslState.RAW_EXCHANGE, "SaslHandshake", Failure, SaslState.FAILED),
            (SaslState.RAW_EXCHANGE, "SaslAuthenticate", Failure, SaslState.FAILED),
            (SaslState.RAW_EXCHANGE, "Metadata", Failure, SaslState.FAILED),
            (SaslState.RAW_EXCHANGE, "no request", Failure, SaslState.FAILED),
            (SaslState.RAW_EXCHANGE, "nothing", Failure, SaslState.FAILED),
        ],
    )
    def test_each_state_with_each_frame(
        self, state: SaslState, frame: str, kind: type[object], after: SaslState
    ) -> None:
        session = session_in(state)
        output = session.receive(FRAMES[frame])
        assert isinstance(output, kind)
        assert session.state is after
        if isinstance(output, Failure):
            assert output.answer is None

    @pytest.mark.parametrize("state", [SaslState.DONE, SaslState.FAILED])
    @pytest.mark.parametrize("frame", FRAMES)
    def test_a_session_that_is_over_takes_no_frame(self, state: SaslState, frame: str) -> None:
        session = session_in(state)
        with pytest.raises(AssertionError):
            session.receive(FRAMES[frame])

    def test_no_check_is_due_before_an_exchange(self) -> None:
        with pytest.raises(AssertionError):
            SaslSession(RULES).checked(ALICE)


class TestApiVersions:
    def test_an_unknown_version_is_answered_and_may_come_again(self) -> None:
        session = SaslSession(RULES)
        assert isinstance(session.receive(memoryview(header(ApiKey.API_VERSIONS, 99))), ListVersions)
        assert isinstance(session.receive(api_versions()), ListVersions)
        assert session.state is SaslState.VERSIONS_LISTED

    def test_an_invalid_name_is_answered_and_may_come_again(self) -> None:
        session = SaslSession(RULES)
        assert isinstance(session.receive(api_versions(name="a b")), ListVersions)
        assert session.state is SaslState.NEW

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_old_versions_have_no_name(self, version: int) -> None:
        session = SaslSession(RULES)
        output = session.receive(api_versions(version))
        assert isinstance(output, ListVersions)
        assert output.frame.api_version == version
        assert session.state is SaslState.VERSIONS_LISTED

    def test_one_that_is_cut_off_closes_the_connection(self) -> None:
        session = SaslSession(RULES)
        assert isinstance(session.receive(memoryview(header(ApiKey.API_VERSIONS, 3, is_flexible=True))), Failure)


class TestExchange:
    def test_a_handshake_lists_the_mechanisms(self) -> None:
        output = SaslSession(RULES).receive(handshake("PLAIN"))
        assert isinstance(output, Reply)
        answer = read_handshake_answer(output.answer)
        assert (answer.error_code, answer.mechanisms) == (0, MECHANISMS)

    @pytest.mark.parametrize("mechanism", ["GSSAPI", "SCRAM-SHA-512", "plain", ""])
    def test_another_mechanism_has_error_33_and_the_list(self, mechanism: str) -> None:
        session = SaslSession(RULES)
        output = session.receive(handshake(mechanism))
        assert isinstance(output, Failure)
        assert output.answer is not None
        answer = read_handshake_answer(output.answer)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.unsupported_sasl_mechanism, MECHANISMS)
        assert session.state is SaslState.FAILED

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_scram_ends_with_the_identity_and_its_lifetime(self, version: int) -> None:
        session, client = SaslSession(RULES), DrawnScramClient()
        session.receive(handshake("SCRAM-SHA-256"))
        first = session.receive(authenticate(client.first(), version))
        assert isinstance(first, Reply)
        challenge = read_authenticate_answer(first.answer, version)
        assert (challenge.error_code, challenge.lifetime_ms) == (0, 0)
        output = session.receive(authenticate(client.final(challenge.token), version))
        assert isinstance(output, Success)
        assert (output.identity, output.mechanism, output.lifetime_ms) == (ALICE, "SCRAM-SHA-256", 60_000)
        answer = read_authenticate_answer(output.answer, version)
        assert answer.token.startswith(b"v=")
        assert answer.lifetime_ms == (60_000 if version else 0)

    def test_a_failure_does_not_say_what_was_wrong(self) -> None:
        session, client = SaslSession(RULES), DrawnScramClient(password="other")
        session.receive(handshake("SCRAM-SHA-256"))
        first = session.receive(authenticate(client.first()))
        assert isinstance(first, Reply)
        output = session.receive(authenticate(client.final(read_authenticate_answer(first.answer).token)))
        assert isinstance(output, Failure)
        assert output.answer is not None
        answer = read_authenticate_answer(output.answer)
        assert answer.error_code == ErrorCode.sasl_authentication_failed
        assert answer.message == (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
        )
        assert (output.user, output.mechanism, output.reason) == ("alice", "SCRAM-SHA-256", "the password is wrong")

    def test_a_mechanisms_own_text_reaches_the_client(self) -> None:
        session = session_in(SaslState.EXCHANGE)
        session.receive(authenticate(b"\0alice\0w"))
        output = session.checked(None)
        assert isinstance(output, Failure)
        assert output.answer is not None
        assert read_authenticate_answer(output.answer).message == "Authentication failed: Invalid username or password"

    def test_a_rejected_token_is_answered_before_the_failure(self) -> None:
        session = SaslSession(RULES)
        session.receive(handshake("OAUTHBEARER"))
        assert isinstance(session.receive(authenticate(b"n,,\x01auth=Bearer a\x01\x01")), BearerCheck)
        output = session.checked(None)
        assert isinstance(output, Reply)
        assert read_authenticate_answer(output.answer).token == b'{"status":"invalid_token"}'
        assert isinstance(session.receive(authenticate(b"\x01")), Failure)

    def test_a_request_that_is_cut_off_closes_the_connection(self) -> None:
        assert isinstance(SaslSession(RULES).receive(memoryview(header(ApiKey.SASL_HANDSHAKE, 1))), Failure)


class TestRawTokens:
    def test_answers_are_tokens_alone(self) -> None:
        session, client = SaslSession(RULES), DrawnScramClient()
        session.receive(handshake("SCRAM-SHA-256", version=0))
        first = session.receive(memoryview(client.first()))
        assert isinstance(first, Reply)
        assert first.answer.startswith(b"r=clientnonceservernonce,")
        output = session.receive(memoryview(client.final(first.answer)))
        assert isinstance(output, Success)
        assert output.answer.startswith(b"v=")

    def test_plain_is_answered_with_nothing(self) -> None:
        session = session_in(SaslState.RAW_EXCHANGE)
        assert isinstance(session.receive(memoryview(b"\0alice\0w")), PasswordCheck)
        output = session.checked(ALICE)
        assert isinstance(output, Success)
        assert output.answer == b""

    def test_a_failure_has_no_answer(self) -> None:
        session = session_in(SaslState.RAW_EXCHANGE)
        session.receive(memoryview(b"\0alice\0w"))
        output = session.checked(None)
        assert isinstance(output, Failure)
        assert output.answer is None
        assert output.user == "alice"


class TestReauthentication:
    PREVIOUS = ("PLAIN", "alice")

    def take(self, session: SaslSession, view: memoryview) -> Output:
        return session.receive_request(read_request_frame(0, view))

    def test_the_same_user_by_the_same_mechanism(self) -> None:
        session = SaslSession(RULES, previous=self.PREVIOUS)
        assert isinstance(self.take(session, handshake("PLAIN")), Reply)
        assert isinstance(self.take(session, authenticate(b"\0alice\0w")), PasswordCheck)
        assert isinstance(session.checked(ALICE), Success)

    def test_another_user_is_rejected_in_kafkas_words(self) -> None:
        session = SaslSession(RULES, previous=self.PREVIOUS)
        self.take(session, handshake("PLAIN"))
        self.take(session, authenticate(b"\0bob\0w"))
        output = session.checked(SaslIdentity(name="bob"))
        assert isinstance(output, Failure)
        assert output.answer is not None
        answer = read_authenticate_answer(output.answer)
        assert answer.error_code == ErrorCode.sasl_authentication_failed
        assert answer.message == "Cannot change principals during re-authentication from User.alice: User.bob"
        assert session.state is SaslState.FAILED

    def test_another_mechanism_is_rejected_at_its_first_token(self) -> None:
        session = SaslSession(RULES, previous=self.PREVIOUS)
        output = self.take(session, handshake("SCRAM-SHA-256"))
        assert isinstance(output, Reply)
        assert read_handshake_answer(output.answer).error_code == 0
        failed = self.take(session, authenticate(b"n,,n=alice,r=a"))
        assert isinstance(failed, Failure)
        assert failed.answer is not None
        assert read_authenticate_answer(failed.answer).message == (
            "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for re-authentication of mechanism "
            "'PLAIN'"
        )
        with pytest.raises(AssertionError):
            session.checked(ALICE)

    def test_a_wrong_password_says_that_it_was_a_re_authentication(self) -> None:
        session = SaslSession(RULES, previous=("SCRAM-SHA-256", "alice"))
        self.take(session, handshake("SCRAM-SHA-256"))
        failed = self.take(session, authenticate(b""))
        assert isinstance(failed, Failure)
        assert failed.answer is not None
        message = read_authenticate_answer(failed.answer).message
        assert message is not None
        assert "during re-authentication" in message

    def test_raw_tokens_are_rejected(self) -> None:
        session = SaslSession(RULES, previous=self.PREVIOUS)
        failed = self.take(session, handshake("PLAIN", version=0))
        assert isinstance(failed, Failure)
        assert failed.answer is not None
        assert struct.unpack_from(">h", failed.answer, 4) == (ErrorCode.illegal_sasl_state,)

    def test_any_other_request_closes_the_connection(self) -> None:
        session = SaslSession(RULES, previous=self.PREVIOUS)
        self.take(session, handshake("PLAIN"))
        assert isinstance(self.take(session, metadata()), Failure)


class TestBeginningMechanism:
    """The caller takes a barrier before the token that names the user, and before no other frame."""

    @pytest.mark.parametrize("version", [0, 1])
    def test_it_is_told_between_the_handshake_and_the_first_token(self, version: int) -> None:
        session, told = SaslSession(RULES), list[str | None]()
        first = b"n,,n=alice,r=a"
        token = authenticate(first) if version else memoryview(first)
        for frame in (handshake("SCRAM-SHA-256", version=version), token):
            told.append(session.beginning_mechanism)
            assert isinstance(session.receive(frame), Reply)
        assert [*told, session.beginning_mechanism] == [None, "SCRAM-SHA-256", None]

    def test_it_is_not_told_after_a_failure(self) -> None:
        session = SaslSession(RULES)
        session.receive(handshake("SCRAM-SHA-256"))
        assert isinstance(session.receive(metadata()), Failure)
        assert session.beginning_mechanism is None
