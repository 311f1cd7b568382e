"""The port to the entries of one namespace in an external catalog.

An entry is a name and the URI of a table's metadata file. Nothing here writes or purges files of a table. All calls
block, so they belong into a thread. `without_leaks` turns every error of a catalog's client into `CatalogFailed`,
without secrets. A call that failed may have taken effect all the same: read the entry before the next change.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from protocol.limits import EXTERNAL_CATALOG_ERROR_CHARS_MAX

T = TypeVar("T")

SECRET = "***"  # noqa: S105 - replaces a secret in messages


class CatalogFailed(Exception):
    """A call to a catalog failed, or its result is unknown. The message has no secrets."""


class Entries(Protocol):
    """The entries of one namespace."""

    is_compared: bool
    """True where `move` and `drop` compare the entry with its expected value and change it in one atomic step."""

    def names(self) -> list[str]:
        """The tables of the namespace."""
        ...

    def find(self, name: str) -> str | None:
        """The URI of the metadata that a table's entry names; None where there is no entry."""
        ...

    def create(self, name: str, location: str) -> bool:
        """Create an entry that names `location`; False where the entry exists."""
        ...

    def move(self, name: str, expected: str, location: str) -> bool:
        """Change the entry from the URI `expected` to `location`; False where it has another URI or is gone."""
        ...

    def drop(self, name: str, expected: str) -> bool:
        """Remove the entry with the URI `expected`, and no file; False where it has another URI or is gone."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


def open_entries(*, catalog_name: str, properties: Mapping[str, str], namespace: tuple[str, ...], root: str) -> Entries:
    """The entries of `namespace`, which is created where it is missing.

    `properties`: PyIceberg's ("Catalogs" in its documentation), with `type`. `root`: the bucket's URI. Raises whatever
    PyIceberg does.
    """
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog(catalog_name, **properties)
    # The check comes first: the right to create a namespace is often missing where it exists.
    if not catalog.namespace_exists(namespace):
        catalog.create_namespace_if_not_exists(namespace)
    if properties["type"] == "sql":
        from iceberg_export.external_catalogs.sql_entries import SqlEntries

        return SqlEntries(catalog, namespace)
    from iceberg_export.external_catalogs.general_entries import GeneralEntries

    return GeneralEntries(catalog, namespace, root=root, can_overwrite=properties["type"] == "rest")


def without_leaks(secrets: Iterable[str], function: Callable[[], T]) -> T:
    """Returns the function's result. Raises `CatalogFailed`, without the secrets, for every exception of it."""
    try:
        return function()
    except Exception as error:
        reason = without_secrets(f"{type(error).__name__}: {error}", secrets)
        raise CatalogFailed(reason) from None  # a traceback of the cause may show secrets


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """The text on one line, without the secrets, at most `EXTERNAL_CATALOG_ERROR_CHARS_MAX` characters."""
    # Longest first: a secret may be a part of another one, whose remainder would stay in the text.
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, SECRET)
    return re.sub(r"\s+", " ", text)[:EXTERNAL_CATALOG_ERROR_CHARS_MAX]
