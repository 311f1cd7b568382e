"""Iceberg's properties with which an engine or PyIceberg opens the files in the bucket.

Input: the settings of the store. Output: property names and values, without secrets.
Source: Iceberg's configuration ("S3 file IO properties"); PyIceberg's "FileIO".
"""

from urllib.parse import urlsplit, urlunsplit

from storage.s3.settings import S3Settings

S3_FILE_IO = "org.apache.iceberg.aws.s3.S3FileIO"
LOCAL_FILE_IO = "org.apache.iceberg.hadoop.HadoopFileIO"


def s3_file_io(settings: S3Settings, endpoint: str | None) -> dict[str, str]:
    """The properties for S3FileIO of Java and for PyIceberg.

    `endpoint`: the store's endpoint for engines; None where it is the agents' one.
    """
    endpoint = endpoint or without_bucket(settings)
    properties = {
        "io-impl": S3_FILE_IO,
        "client.region": settings.region,
        "s3.region": settings.region,
        "s3.path-style-access": "false" if settings.is_virtual_hosted or endpoint is None else "true",
    }
    if endpoint is not None:
        properties["s3.endpoint"] = endpoint
        if settings.is_virtual_hosted:
            # PyIceberg ignores path-style-access: it addresses an endpoint by path unless this property is set.
            properties["s3.force-virtual-addressing"] = "true"
    return properties


def without_bucket(settings: S3Settings) -> str | None:
    """The store's endpoint without the bucket's name in its host; None for Amazon's own endpoint."""
    if settings.endpoint is None or not settings.is_virtual_hosted:
        return settings.endpoint
    # Engines prepend the bucket's name to the host themselves: here it would be there twice.
    parts = urlsplit(settings.endpoint)
    return urlunsplit(parts._replace(netloc=parts.netloc.removeprefix(f"{settings.bucket}.")))
