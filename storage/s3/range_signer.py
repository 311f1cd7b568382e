"""Signs URLs for ranges of bytes with a store's own credentials: those of the settings, or of AWS's usual chain."""

from dataclasses import replace

from storage.object_store import StoreMisconfigured
from storage.s3.aws_credentials import AwsCredentials
from storage.s3.settings import S3Settings
from storage.s3.signed_ranges import BucketAddress, SigningKeys, signed_url


class RangeSigner:
    """Signs reads of one bucket. For one event loop."""

    def __init__(self, settings: S3Settings, *, readers_endpoint: str | None = None) -> None:
        """`readers_endpoint`: the store's endpoint for those who get the URLs; None where it is the settings'."""
        self._settings = settings
        self._readers_settings = settings if readers_endpoint is None else replace(settings, endpoint=readers_endpoint)
        self._credentials = AwsCredentials(settings.region) if settings.access_key_id is None else None

    async def sign(self, key: str, byte_range: str, *, now_ms: int, seconds: int, is_for_readers: bool = True) -> str:
        """The URL of a GET with that header `Range`, by the readers' endpoint or by the settings'.

        Raises `StoreError` where there are no credentials.
        """
        settings = self._readers_settings if is_for_readers else self._settings
        bucket = BucketAddress(url=settings.bucket_url, prefix=settings.prefix, region=settings.region)
        return signed_url(bucket, await self._keys(), key, byte_range, now_ms=now_ms, seconds=seconds)

    async def _keys(self) -> SigningKeys:
        if self._credentials is None:
            settings = self._settings
            if settings.access_key_id is None or settings.secret_access_key is None:
                raise StoreMisconfigured("both keys are set, or neither")
            return SigningKeys(
                access_key_id=settings.access_key_id,
                secret_access_key=settings.secret_access_key,
                session_token=settings.session_token,
            )
        await self._credentials.ready()
        credential = self._credentials()
        return SigningKeys(
            access_key_id=credential["access_key_id"],
            secret_access_key=credential["secret_access_key"],
            session_token=credential.get("token"),
        )
