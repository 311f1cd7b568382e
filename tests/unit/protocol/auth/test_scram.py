"""The server's side of SCRAM, on the messages of the RFCs and on a client that goes astray."""

from base64 import b64decode, b64encode

import pytest

from protocol.auth.sasl_exchange import Accepted, Challenge, SaslIdentity, SaslRejection, Step
from protocol.auth.scram import OTHER_AUTHORIZATION_ID, ScramAccount, ScramExchange
from protocol.auth.scram_credentials import ScramCredential, ScramMechanism
from protocol.auth.scram_keys import credential_of, salt_password
from protocol.limits import SASL_NAME_CHARS_MAX
from tests.support.auth.drawn_scram_client import DrawnScramClient

NONCE = "servernonce"


def credential(password: str, mechanism: ScramMechanism, salt: bytes = b"salt") -> ScramCredential:
    salted = salt_password(password, salt=salt, iterations=4096, mechanism=mechanism)
    return credential_of(salted, salt=salt, iterations=4096, mechanism=mechanism)


class ScramServer:
    """A server that knows alice, the user "a,b=c", the token "token-id", and nobody else."""

    def __init__(self, mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256) -> None:
        self.mechanism = mechanism
        self.exchange = ScramExchange(mechanism, find_account=self._find, server_nonce=NONCE)

    def _find(self, name: str, is_token: bool) -> ScramAccount:
        known = credential("wonderland", self.mechanism)
        if is_token:
            return ScramAccount(credential=known, identity=SaslIdentity(name="owner") if name == "token-id" else None)
        return ScramAccount(credential=known, identity=SaslIdentity(name=name) if name != "stranger" else None)

    def run(self, client: DrawnScramClient) -> Step:
        step = self.exchange.receive(client.first())
        if isinstance(step, Challenge):
            step = self.exchange.receive(client.final(step.token))
        return step


class TestAccepted:
    def test_the_example_of_rfc_7677(self) -> None:
        salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
        account = ScramAccount(
            credential=credential("pencil", ScramMechanism.SCRAM_SHA_256, salt), identity=SaslIdentity(name="user")
        )
        exchange = ScramExchange(
            ScramMechanism.SCRAM_SHA_256,
            find_account=lambda name, is_token: account,
            server_nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        )
        first = exchange.receive(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
        assert first == Challenge(
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        )
        final = exchange.receive(
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        )
        assert final == Accepted(SaslIdentity(name="user"), b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")

    @pytest.mark.parametrize("mechanism", ScramMechanism)
    def test_a_client_with_the_password(self, mechanism: ScramMechanism) -> None:
        step = ScramServer(mechanism).run(DrawnScramClient(mechanism=mechanism))
        assert isinstance(step, Accepted)
        assert step.identity == SaslIdentity(name="alice")

    @pytest.mark.parametrize("header", ["n,,", "y,,", "n,a=alice,"])
    def test_without_channel_binding_and_for_itself(self, header: str) -> None:
        assert isinstance(ScramServer().run(DrawnScramClient(gs2_header=header)), Accepted)

    @pytest.mark.parametrize("user", ["a,b=c", "b\u00f6b", "=2C"])
    def test_a_name_of_any_characters(self, user: str) -> None:
        step = ScramServer().run(DrawnScramClient(user=user))
        assert isinstance(step, Accepted)
        assert step.identity.name == user

    def test_unknown_extensions_are_ignored(self) -> None:
        server, client = ScramServer(), DrawnScramClient(extensions=",x=1,yy=a=b")
        first = server.exchange.receive(client.first())
        assert isinstance(first, Challenge)
        assert isinstance(server.exchange.receive(client.final(first.token, extensions=",z=3")), Accepted)

    @pytest.mark.parametrize("extension", [",tokenauth=true", ",tokenauth=TRUE"])
    def test_a_delegation_token_gives_its_owner(self, extension: str) -> None:
        step = ScramServer().run(DrawnScramClient(user="token-id", extensions=extension))
        assert isinstance(step, Accepted)
        assert step.identity == SaslIdentity(name="owner")

    def test_a_token_that_is_not_asked_for_is_a_user(self) -> None:
        step = ScramServer().run(DrawnScramClient(user="token-id", extensions=",tokenauth=false"))
        assert isinstance(step, Accepted)
        assert step.identity == SaslIdentity(name="token-id")


class TestRejected:
    def test_a_wrong_password(self) -> None:
        assert ScramServer().run(DrawnScramClient(password="other")) == SaslRejection(
            reason="the password is wrong", user="alice"
        )

    @pytest.mark.parametrize("password", ["wonderland", "other"])
    def test_an_unknown_user_fails_at_the_last_step_whatever_it_sends(self, password: str) -> None:
        server, client = ScramServer(), DrawnScramClient(user="stranger", password=password)
        first = server.exchange.receive(client.first())
        assert isinstance(first, Challenge)
        assert server.exchange.receive(client.final(first.token)) == SaslRejection(
            reason="the user is not known", user="stranger"
        )

    def test_one_that_acts_for_another(self) -> None:
        step = ScramServer().run(DrawnScramClient(gs2_header="n,a=bob,"))
        assert isinstance(step, SaslRejection)
        assert step.message == OTHER_AUTHORIZATION_ID

    def test_a_message_of_another_exchange(self) -> None:
        client = DrawnScramClient()
        recorded = ScramServer().exchange.receive(client.first())
        assert isinstance(recorded, Challenge)
        final = client.final(recorded.token)
        exchange = ScramExchange(
            ScramMechanism.SCRAM_SHA_256,
            find_account=lambda name, is_token: ScramAccount(
                credential=credential("wonderland", ScramMechanism.SCRAM_SHA_256), identity=SaslIdentity(name=name)
            ),
            server_nonce="anothernonce",
        )
        exchange.receive(client.first())
        step = exchange.receive(final)
        assert isinstance(step, SaslRejection)
        assert "nonce of this exchange" in step.reason

    @pytest.mark.parametrize(
        "message",
        [
            b"",
            b"n",
            b"n,",
            b"n,,",
            b"x,,n=alice,r=abc",
            b"n,b=alice,n=alice,r=abc",
            b"n,a=,n=alice,r=abc",
            b"p=tls-unique,,n=alice,r=abc",
            b"n,,m=1,n=alice,r=abc",
            b"n,,n=alice",
            b"n,,u=alice,r=abc",
            b"n,,n=alice,q=abc",
            b"n,,n=alice,r=",
            b"n,,n=alice,r=a\x7fb",
            b"n,,n=alice,r=abc,",
            b"n,,n=alice,r=abc,1=2",
            b"n,,n=,r=abc",
            b"n,,n=a=b,r=abc",
            b"n,,n=a\0b,r=abc",
            b"n,,n=" + b"a" * (SASL_NAME_CHARS_MAX + 1) + b",r=abc",
            b"n,,n=\xff,r=abc",
        ],
    )
    def test_a_first_message_of_another_form(self, message: bytes) -> None:
        assert isinstance(ScramServer().exchange.receive(message), SaslRejection)

    @pytest.mark.parametrize(
        "message",
        [
            b"",
            b"c=biws",
            b"c=eSws,r=clientnonceservernonce,p=AAAA",
            b"c=biws,r=clientnonce,p=AAAA",
            b"c=biws,p=AAAA",
            b"c=biws,r=clientnonceservernonce,x,p=AAAA",
            b"c=biws,r=clientnonceservernonce,p=A",
            b"c=biws,r=clientnonceservernonce,p=AAAA",
            b"c=biws,r=clientnonceservernonce,p=",
            b"c=biws,r=clientnonceservernonce,p=\xc3\xbc",
            b"c=biws,r=clientnonceservernonce,p=\xff",
            b"c=biws,r=clientnonceservernonce,p=" + b64encode(bytes(31)),
        ],
    )
    def test_a_last_message_of_another_form(self, message: bytes) -> None:
        server = ScramServer()
        server.exchange.receive(DrawnScramClient().first())
        step = server.exchange.receive(message)
        assert isinstance(step, SaslRejection)
        assert step.user == "alice"

    def test_no_reason_has_what_the_client_sent(self) -> None:
        step = ScramServer().exchange.receive(b"n,,n=SECRET=SECRET,r=SECRET")
        assert isinstance(step, SaslRejection)
        assert "SECRET" not in step.reason


def test_scram_needs_no_check() -> None:
    with pytest.raises(AssertionError):
        ScramServer().exchange.checked(None)
