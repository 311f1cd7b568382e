"""librdkafka's own test of OAUTHBEARER, 0126, with the local issuer.

Its parts for share consumers are left out, since share groups are not served, and so are those for assertions that a
client signs, since the test-runner skips them without a private key. The parts about AWS speak to no broker.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.support.auth.token_issuer import CLIENTS, TokenIssuer, token_issuer
from tests.support.certificates import TestAuthority
from tests.support.processes import provided
from tests.support.services.local_services import PENSTOCK, PenstockFactory
from tools.librdkafka import ensure_librdkafka

SECONDS_MAX: Final = 240
PART: Final = "do_test_produce_consumer_with_OIDC"
"""The beginning of the names of its parts for producers and consumers."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the test-runner is told of broker and issuer."""
    provided(PENSTOCK)
    folder = tmp_path_factory.mktemp("librdkafka")
    authority, home = TestAuthority(folder=folder), ensure_librdkafka()
    server, configs = authority.issue("server"), folder / "test.conf"
    with token_issuer(authority) as issuer, ExitStack() as stack:
        broker = PenstockFactory(folder=folder, stack=stack)(
            listen="SASL_SSL://127.0.0.1:0",
            options={"tls-cert": str(server.cert), "tls-key": str(server.key)},
            settings={
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "super.users": "User:alice",
                **issuer.broker_configs(authority),
            },
        )
        configs.write_text(_configs(broker.bootstrap, issuer, authority.ca_path))
        yield {
            **os.environ,
            "LD_LIBRARY_PATH": str(home / "src"),
            "RUNNER": str(home / "tests" / "test-runner"),
            "RDKAFKA_TEST_CONF": str(configs),
            "TEST_KAFKA_VERSION": "4.3.1",
            "TESTS": "0126",
            "VALID_OIDC_URL": issuer.token_url,
            "INVALID_OIDC_URL": f"{issuer.url}/malformed",
            "EXPIRED_TOKEN_OIDC_URL": f"{issuer.url}/expired",
        }


def _configs(bootstrap: str, issuer: TokenIssuer, authority: Path) -> str:
    configs = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": authority,
        "https.ca.location": authority,
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "OIDC",
        "sasl.oauthbearer.client.id": "alice",
        "sasl.oauthbearer.client.secret": CLIENTS["alice"],
        "sasl.oauthbearer.token.endpoint.url": issuer.token_url,
        "test.topic.random": "true",
    }
    return "".join(f"{name}={value}\n" for name, value in configs.items())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_librdkafka_finds_no_fault(environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [environment["RUNNER"], "-p1", "-L", "-E"],
        cwd=tmp_path,
        env={**environment, "SUBTESTS": PART},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-4_000:]
    assert said.count(": PASS (") >= 3, said[-4_000:]
