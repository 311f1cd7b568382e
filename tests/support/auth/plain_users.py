"""Lines of the file of users for PLAIN."""

from base64 import b64encode

from protocol.auth.scram_credentials import ScramMechanism
from protocol.auth.scram_keys import credential_of, salt_password


def plain_user(user: str, password: str, mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512) -> str:
    """The line of a user, with few iterations."""
    salted = salt_password(password, salt=b"salt", iterations=10, mechanism=mechanism)
    credential = credential_of(salted, salt=b"salt", iterations=10, mechanism=mechanism)
    parts = (credential.salt, credential.stored_key, credential.server_key)
    salt, stored, server = (b64encode(part).decode() for part in parts)
    return f"{user}:{mechanism.sasl_name}$10:{salt}${stored}:{server}"
