"""Credentials by AWS's usual chain, renewed before they end; the only module that knows botocore.

Rule: keys in the environment are used as they are and never come here. Everything else is botocore's own chain, so that
Penstock finds what every other AWS tool finds: profile (AWS_PROFILE; files, SSO, a process, an assumed role), web
identity, container, instance. botocore reads the process's environment and blocks, so it works in a thread and is
imported when it is first needed. While the credentials at hand still hold, no request waits for their renewal.
Source: AWS SDKs and Tools Reference Guide, "Standardized credential providers"; botocore.credentials.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from storage.object_store import StoreError, StoreMisconfigured, StoreUnavailable

if TYPE_CHECKING:
    from botocore.credentials import Credentials, ReadOnlyCredentials
    from botocore.exceptions import ClientError
    from obstore.store import S3Credential

log = logging.getLogger(__name__)

MUST_RENEW_SECONDS = 60
"""Credentials that end within this are renewed before they are used once more."""
RENEWAL_PAUSE_SECONDS = 10.0
"""Between two renewals while the old credentials hold. botocore begins 15 minutes before their end."""
ALWAYS_ASK_AGAIN = datetime(1970, 1, 1, tzinfo=UTC)
"""The object store's client keeps credentials that last; these are ours to keep."""
NOT_FOUND = (
    "no AWS credentials were found in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the profile, a web identity "
    "(AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN), the container's or the instance's metadata; give one of them"
)
PASSING_CODES = frozenset({"Throttling", "ThrottlingException", "ExpiredTokenException", "IDPCommunicationError"})
"""Answers of STS that another try may well change: a token file is written again by who hands it out."""


def profile_region() -> str | None:
    """The region of the profile in force, if any. Raises `StoreMisconfigured` for a profile that cannot be read."""
    import botocore.session
    from botocore.exceptions import BotoCoreError

    try:
        return botocore.session.get_session().get_config_variable("region")
    except BotoCoreError as error:
        raise StoreMisconfigured(f"the AWS profile: {error}; check AWS_PROFILE and the files it stands in") from error


class AwsCredentials:
    """The credentials that sign requests: `ready` before a request, then a call hands the credentials out (obstore's
    port)."""

    def __init__(self, region: str, find: Callable[[str], "Credentials | None"] | None = None) -> None:
        """`find` looks for credentials and may block; by default botocore's chain. `region` is that of STS."""
        self._region = region
        self._find = find or _find_in_chain
        self._credentials: Credentials | None = None
        self._current: ReadOnlyCredentials | None = None
        self._renewal: asyncio.Future[None] | None = None
        self._renew_after_s = 0.0

    def __call__(self) -> "S3Credential":
        current = self._current
        assert current is not None, "`ready` comes first"
        return {
            "access_key_id": current.access_key,
            "secret_access_key": current.secret_key,
            "token": current.token,
            "expires_at": ALWAYS_ASK_AGAIN,
        }

    async def ready(self) -> None:
        """Return with credentials that hold. Raises `StoreUnavailable` where a source is away, `StoreMisconfigured`
        where there is none, or it rejects. A cancelled call leaves the renewal going on for the others.
        """
        if self._current is not None and not _is_due(self._credentials):
            return
        if self._renewal is None and (self._must_wait() or self._loop_s() >= self._renew_after_s):
            self._renewal = asyncio.get_running_loop().run_in_executor(None, self._renew)
            self._renewal.add_done_callback(self._renewed)
        if self._must_wait() and self._renewal is not None:
            await asyncio.shield(self._renewal)

    def _must_wait(self) -> bool:
        return self._current is None or _is_due(self._credentials, MUST_RENEW_SECONDS)

    @staticmethod
    def _loop_s() -> float:
        return asyncio.get_running_loop().time()

    def _renewed(self, renewal: "asyncio.Future[None]") -> None:
        """Handles a renewal's end. No error does not mean success: botocore hides the failure of an early renewal."""
        self._renewal = None
        self._renew_after_s = self._loop_s() + RENEWAL_PAUSE_SECONDS
        if not renewal.cancelled() and (error := renewal.exception()) is not None and self._current is not None:
            log.warning("AWS credentials could not be renewed yet", extra={"reason": str(error)})

    def _renew(self) -> None:
        """In a thread: find the credentials, or renew them."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            if self._credentials is None:
                self._credentials = self._find(self._region)
                if self._credentials is None:
                    raise StoreMisconfigured(NOT_FOUND)
                log.info("found AWS credentials", extra={"source": self._credentials.method})
            self._current = self._credentials.get_frozen_credentials()
        except ClientError as error:
            raise _rejection(error) from error
        except BotoCoreError as error:
            raise _failure(error) from error
        except (OSError, RuntimeError) as error:
            raise StoreUnavailable(f"AWS credentials: {error}") from error


def _is_due(credentials: "Credentials | None", seconds: int | None = None) -> bool:
    """Whether they end within `seconds`; None: whether botocore would renew them. Some never end."""
    from botocore.credentials import RefreshableCredentials

    return isinstance(credentials, RefreshableCredentials) and credentials.refresh_needed(seconds)


def _find_in_chain(region: str) -> "Credentials | None":
    import botocore.session

    logging.getLogger("botocore").setLevel(logging.ERROR)  # its warnings are tracebacks; ours say the same in a line
    session = botocore.session.get_session()
    session.set_config_variable("region", region)
    return session.get_credentials()


def _rejection(error: "ClientError") -> StoreError:
    """STS answered, and not with credentials."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in PASSING_CODES or status >= 500:
        return StoreUnavailable(f"AWS credentials: {error}")
    return StoreMisconfigured(f"AWS credentials: {error}; check the role, and who may take it")


def _failure(error: Exception) -> StoreError:
    """botocore's own errors: what is written wrong stays so, and a service that is away comes back."""
    from botocore import exceptions

    lasting = (
        exceptions.ProfileNotFound,
        exceptions.ConfigParseError,
        exceptions.InvalidConfigError,
        exceptions.PartialCredentialsError,
        exceptions.InfiniteLoopConfigError,
        exceptions.UnknownCredentialError,
        exceptions.SSOError,
    )
    if isinstance(error, lasting):
        return StoreMisconfigured(f"AWS credentials: {error}; check AWS_PROFILE and the files it stands in")
    return StoreUnavailable(f"AWS credentials: {error}")
