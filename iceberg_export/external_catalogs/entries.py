"""What a follower can do with the entries of one namespace of somebody else's catalog.

Rule: an entry is a name and the URI of a table's metadata; nothing here writes files of a table, and nothing is ever
purged. All of it blocks, and belongs into a thread. Whatever a catalog's client raises comes as `CatalogFailed`,
without secrets: the call may have been carried out all the same, so look before the next one.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from protocol.limits import EXTERNAL_CATALOG_ERROR_CHARS_MAX

T = TypeVar("T")

SECRET = "***"  # noqa: S105 - what is shown in the place of one


class CatalogFailed(Exception):
    """A catalog did not do what it was asked, or did not say so. The message holds no secrets."""


class Entries(Protocol):
    """The entries of one namespace."""

    is_compared: bool
    """Whether `move` and `drop` do nothing where the entry is no longer as it was seen, in one step of the catalog."""

    def names(self) -> list[str]:
        """The tables of the namespace."""
        ...

    def find(self, name: str) -> str | None:
        """The URI of the metadata that a table's entry names; None where there is none."""
        ...

    def create(self, name: str, location: str) -> bool:
        """Make an entry; False where there is one already."""
        ...

    def move(self, name: str, seen: str, location: str) -> bool:
        """Have the entry that named `seen` name `location`; False where it was seen to have changed."""
        ...

    def drop(self, name: str, seen: str) -> bool:
        """Remove the entry that named `seen`, and no file; False where it is gone, or was seen to have changed."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


def open_entries(*, catalog_name: str, properties: Mapping[str, str], namespace: tuple[str, ...], root: str) -> Entries:
    """The entries of `namespace`, which is made where it is missing. `root`: the bucket's URI.

    `properties` are PyIceberg's ("Catalogs" in its documentation), with `type`.
    """
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog(catalog_name, **properties)
    if not catalog.namespace_exists(namespace):  # to make one may need rights that are not needed otherwise
        catalog.create_namespace_if_not_exists(namespace)
    if properties["type"] == "sql":
        from iceberg_export.external_catalogs.sql_entries import SqlEntries

        return SqlEntries(catalog, namespace)
    from iceberg_export.external_catalogs.general_entries import GeneralEntries

    return GeneralEntries(catalog, namespace, root=root, can_overwrite=properties["type"] == "rest")


def asked(secrets: Iterable[str], function: Callable[[], T]) -> T:
    """What the function returns. Raises `CatalogFailed` for whatever it raises."""
    try:
        return function()
    except Exception as error:
        reason = without_secrets(f"{type(error).__name__}: {error}", secrets)
        raise CatalogFailed(reason) from None  # its cause may hold secrets


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """The text on one line, shortened, with none of the secrets in it."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, SECRET)
    return re.sub(r"\s+", " ", text)[:EXTERNAL_CATALOG_ERROR_CHARS_MAX]
