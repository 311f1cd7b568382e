"""Checks of certificates by `penstock doctor`: whether each listener's files fit, and for how long they are valid."""

from collections.abc import Iterator

from agent.cli.doctor.machine_checks import CheckStatus, DoctorFinding
from agent.config.listener_security import HTTPS_LISTENER
from agent.config.settings import InvalidSettings, Settings
from agent.runtime.clock import SystemClock
from protocol.limits import TLS_EXPIRY_WARNING_SECONDS

DAY_SECONDS = 86_400


def check_certificates(settings: Settings) -> Iterator[DoctorFinding]:
    """A finding for each listener that encrypts."""
    listeners = {name: each.tls for name, each in settings.listener_security.items()}
    listeners[HTTPS_LISTENER] = settings.http_tls
    for name, tls in listeners.items():
        if tls is None:
            continue
        from agent.security.tls.tls_files import ListenerTls  # late: most agents have no certificate

        now_s = SystemClock().now_ms() / 1000
        try:
            seconds = ListenerTls(tls, now_s).expires_s - now_s
        except InvalidSettings as error:
            yield DoctorFinding(
                name="certificate", verdict=CheckStatus.FAILED, text=str(error), remedy="mend the files it names"
            )
            continue
        is_fine = seconds >= TLS_EXPIRY_WARNING_SECONDS
        yield DoctorFinding(
            name="certificate",
            verdict=CheckStatus.FINE if is_fine else CheckStatus.DOUBTFUL,
            text=f"that of listener {name} is valid for {seconds / DAY_SECONDS:.1f} days",
            remedy="" if is_fine else "renew it: write the new one into its files, which a running agent reads again",
        )
