"""Who asks, and what it may do: TLS, authentication, rights, quotas, and the audit log.

In: what clients present, the state's ACLs and credentials, the settings. Out: a principal for each connection and each
HTTP request, and its rights. The rules themselves are pure: `protocol.auth` and `coordinator.security`. `tls` and
`audit` are rooms of their own.
"""
