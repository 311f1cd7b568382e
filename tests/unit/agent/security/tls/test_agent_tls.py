"""What an agent reports of the certificates and revocation lists of its listeners."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.config.settings import CliCommand, load_settings
from agent.runtime.metrics import Metrics
from agent.runtime.notices import NoticeKind
from agent.security.tls.agent_tls import AgentTls
from tests.support.agent.ledger_parts import BEGAN_MS, ManualClock
from tests.support.certificates import TestAuthority

DAY_S = 86_400


async def test_a_certificate_and_a_list_that_end_are_reported_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority, now = TestAuthority(folder=tmp_path), datetime.now(UTC).replace(microsecond=0)
    files = authority.issue("server", expires=now + timedelta(days=10))
    lists = tmp_path / "crl.pem"
    lists.write_bytes(authority.revocation_list(ends=now + timedelta(days=5)))
    values: dict[str, object] = {
        "listen": ["SSL://127.0.0.1:0"],
        "store": "memory:",
        "data-dir": str(tmp_path),
        "tls-cert": str(files.cert),
        "tls-key": str(files.key),
        "tls-client-ca": str(authority.ca_path),
        "set": [f"ssl.crl.location={lists}", "super.users=User:alice"],
    }
    clock = ManualClock()
    clock.seconds = now.timestamp() - BEGAN_MS / 1000
    tls = AgentTls(load_settings(CliCommand.RUN, values, environment={}), clock, Metrics())
    reported: list[list[tuple[NoticeKind, str]]] = []
    for days in (0, 4, 2, 5):
        clock.seconds += days * DAY_S
        await tls.reload()
        await tls.reload()
        reported.append([(notice.kind, notice.detail.partition(";")[0]) for notice in tls.notices()])
    ended = (
        NoticeKind.REVOCATION_LIST_ENDED,
        "a revocation list of listener SSL has ended: clients with certificates cannot connect",
    )
    assert reported == [
        [],
        [(NoticeKind.CERTIFICATE_EXPIRES, "the certificate of listener SSL expires in 6.0 days")],
        [(NoticeKind.CERTIFICATE_EXPIRES, "the certificate of listener SSL expires in 4.0 days"), ended],
        [(NoticeKind.CERTIFICATE_EXPIRED, "the certificate of listener SSL expired: clients cannot connect"), ended],
    ]
    lines = [(record.message, vars(record)["listener"]) for record in caplog.records]
    kinds = (NoticeKind.CERTIFICATE_EXPIRES, NoticeKind.REVOCATION_LIST_ENDED, NoticeKind.CERTIFICATE_EXPIRED)
    assert lines == [(kind.value, "SSL") for kind in kinds]
    assert str(lists) in vars(caplog.records[1])["reason"]
