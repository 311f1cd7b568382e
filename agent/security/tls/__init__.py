"""TLS of listeners and of the HTTP port: certificate files, handshakes, transport, and principals of certificates.

In: settings, files, bytes of clients. Out: decrypted bytes and a principal. The session itself is pure:
`protocol.auth.tls_session`.
"""
