"""An etcd with TLS, and certificates that it must accept or reject."""

from pathlib import Path

import trustme

from tests.support.services.etcd import Etcd

USER, PASSWORD, PREFIX = "agents", "s3cret", b"/penstock/c/"


class Certificates:
    """Files of one authority: the server's certificate, a client's, and those that etcd must not accept."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        authority, stranger = trustme.CA(), trustme.CA()
        self.ca, self.other_ca = folder / "ca.pem", folder / "other-ca.pem"
        authority.cert_pem.write_to_path(self.ca)
        stranger.cert_pem.write_to_path(self.other_ca)
        self.server = self._write(folder / "server", authority.issue_cert("127.0.0.1"))
        self.elsewhere = self._write(folder / "elsewhere", authority.issue_cert("etcd.example"))
        self.client = self._write(folder / "client", authority.issue_cert("agent.example", common_name=USER))
        self.stranger = self._write(folder / "stranger", stranger.issue_cert("agent.example", common_name=USER))

    @staticmethod
    def _write(path: Path, issued: trustme.LeafCert) -> tuple[Path, Path]:
        cert, key = path.with_suffix(".pem"), path.with_suffix(".key")
        issued.cert_chain_pems[0].write_to_path(cert)
        issued.private_key_pem.write_to_path(key)
        return cert, key


def running(folder: Path, server: tuple[Path, Path] | None = None, client_ca: Path | None = None) -> Etcd:
    """An etcd with this server certificate and its key; with `client_ca` it requires certificates of clients."""
    options = [] if server is None else ["--cert-file", str(server[0]), "--key-file", str(server[1])]
    if client_ca is not None:
        options += ["--client-cert-auth", "--trusted-ca-file", str(client_ca)]
    return Etcd(folder, options=options)
