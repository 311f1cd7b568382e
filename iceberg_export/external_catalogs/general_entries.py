"""Entries in any catalog that PyIceberg supports, through the calls that all have: load, register and drop a table.

These calls compare nothing, so the caller reads an entry right before it changes it. A REST catalog that can overwrite
an entry changes it in one step. Elsewhere the entry is dropped and registered again, and in between readers find no
table. Nothing is purged.

Source: Iceberg's REST catalog specification, "registerTable" (`overwrite`); `pyiceberg.catalog.Catalog`.
"""

import re
from typing import TYPE_CHECKING

from pyiceberg.exceptions import BadRequestError, NoSuchTableError, RESTError, TableAlreadyExistsError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


_CANNOT_OVERWRITE = (BadRequestError, RESTError)
"""The exact types of an error where a REST catalog does not know `overwrite`: 400, and every status without a type of
its own, such as the 406 of Iceberg's own handlers. Their subclasses mean something else."""


class KeptElsewhere(Exception):
    """A catalog accepted an entry but names other metadata than it was given, so its entries cannot be kept in sync."""


class GeneralEntries:
    """Implements `iceberg_export.external_catalogs.entries.Entries`."""

    is_compared = False

    def __init__(self, catalog: "Catalog", namespace: tuple[str, ...], *, root: str, can_overwrite: bool) -> None:
        """`root`: the bucket's URI. `can_overwrite`: whether to try `overwrite` when an entry is registered."""
        self._catalog = catalog
        self._namespace = namespace
        self._can_overwrite = can_overwrite
        self._root = root
        path = re.escape(root.partition("://")[2])
        self._missing_pattern = re.compile(rf"(?:^|://|file:|[\s'\"(]){path}/([^\s'\"]+\.metadata\.json)")

    def names(self) -> list[str]:
        """The tables of the namespace."""
        return [identifier[-1] for identifier in self._catalog.list_tables(self._namespace)]

    def find(self, name: str) -> str | None:
        """The URI of the metadata that a table's entry names; None where there is no entry."""
        # A catalog loads a table by reading its metadata, and old metadata is deleted. The error about a missing object
        # contains its URI, with or without the scheme, which is all that is needed here.
        try:
            return self._catalog.load_table((*self._namespace, name)).metadata_location
        except Exception as error:
            missing = self._missing_pattern.search(str(error))
            if missing is not None:
                return f"{self._root}/{missing[1]}"
            if isinstance(error, NoSuchTableError):
                return None
            raise

    def create(self, name: str, location: str) -> bool:
        """Create an entry that names `location`; False where the entry exists. Raises `KeptElsewhere`."""
        try:
            self._register(name, location, is_overwriting=False)
        except TableAlreadyExistsError:
            return False
        return True

    def move(self, name: str, expected: str, location: str) -> bool:
        """Change the entry from the URI `expected` to `location`; False where it has another URI or is gone.

        A concurrent change of the entry is overwritten. Raises `KeptElsewhere`.
        """
        if self._can_overwrite:
            try:
                self._register(name, location, is_overwriting=True)
            except TableAlreadyExistsError:  # the catalog ignores `overwrite`
                self._can_overwrite = False
            except RESTError as error:
                if type(error) not in _CANNOT_OVERWRITE:
                    raise
                self._can_overwrite = False
            else:
                return True
        return self.drop(name, expected) and self.create(name, location)

    def drop(self, name: str, expected: str) -> bool:
        """Remove the entry with the URI `expected`, and no file; False where it has another URI or is gone.

        An entry that changes between the check and the drop is dropped all the same.
        """
        if self.find(name) != expected:
            return False
        try:
            self._catalog.drop_table((*self._namespace, name))
        except NoSuchTableError:
            return False
        return True

    def close(self) -> None:
        """Close the connections."""
        self._catalog.close()

    def _register(self, name: str, location: str, *, is_overwriting: bool) -> None:
        identifier = (*self._namespace, name)
        registered = self._catalog.register_table(identifier, location, overwrite=is_overwriting).metadata_location
        if registered != location:
            raise KeptElsewhere(
                f"the catalog was given the metadata {location} and names {registered}: it writes metadata of its own, "
                f"so its tables cannot be kept in sync"
            )
