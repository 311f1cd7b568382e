"""Entries in any catalog that PyIceberg knows, by what all of them can do: load, register and drop a table.

Rule: no step compares, so whoever moves an entry has just looked at it. A REST catalog that can overwrite an entry
moves it at once; elsewhere it is dropped and registered again, and for a moment readers find no table. Nothing is
purged.

Specification: Iceberg's REST catalog specification, "registerTable" (`overwrite`); `pyiceberg.catalog.Catalog`.
"""

import re
from typing import TYPE_CHECKING

from pyiceberg.exceptions import BadRequestError, NoSuchTableError, RESTError, TableAlreadyExistsError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


_CANNOT_OVERWRITE = (BadRequestError, RESTError)
"""Of these types exactly: 400, and what has no type of its own, as 406, by which Iceberg's own handlers refuse it."""


class KeptElsewhere(Exception):
    """A catalog took an entry, and names other metadata than it was given: it cannot follow."""


class GeneralEntries:
    """Implements `iceberg_export.external_catalogs.entries.Entries`."""

    is_compared = False

    def __init__(self, catalog: "Catalog", namespace: tuple[str, ...], *, root: str, can_overwrite: bool) -> None:
        """`root`: the bucket's URI. `can_overwrite`: whether the catalog may be asked to register over an entry."""
        self._catalog = catalog
        self._namespace = namespace
        self._can_overwrite = can_overwrite
        self._root = root
        place = re.escape(root.partition("://")[2])
        self._missing_pattern = re.compile(rf"(?:^|://|file:|[\s'\"(]){place}/([^\s'\"]+\.metadata\.json)")

    def names(self) -> list[str]:
        """As `Entries` says."""
        return [identifier[-1] for identifier in self._catalog.list_tables(self._namespace)]

    def find(self, name: str) -> str | None:
        """As `Entries` says.

        To tell it a catalog reads the metadata, which is deleted some time after it was replaced. What is said of
        metadata that is missing names it, with or without the URI's scheme, and that is as good.
        """
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
        """As `Entries` says."""
        try:
            self._register(name, location, is_overwriting=False)
        except TableAlreadyExistsError:
            return False
        return True

    def move(self, name: str, seen: str, location: str) -> bool:
        """As `Entries` says; what happens to the entry meanwhile is not seen."""
        if self._can_overwrite:
            try:
                self._register(name, location, is_overwriting=True)
            except TableAlreadyExistsError:  # it knows of no such thing
                self._can_overwrite = False
            except RESTError as error:
                if type(error) not in _CANNOT_OVERWRITE:
                    raise
                self._can_overwrite = False
            else:
                return True
        return self.drop(name, seen) and self.create(name, location)

    def drop(self, name: str, seen: str) -> bool:
        """As `Entries` says; what happens to the entry after a look is not seen."""
        if self.find(name) != seen:
            return False
        try:
            self._catalog.drop_table((*self._namespace, name))
        except NoSuchTableError:
            return False
        return True

    def close(self) -> None:
        """As `Entries` says."""
        self._catalog.close()

    def _register(self, name: str, location: str, *, is_overwriting: bool) -> None:
        identifier = (*self._namespace, name)
        kept = self._catalog.register_table(identifier, location, overwrite=is_overwriting).metadata_location
        if kept != location:
            raise KeptElsewhere(f"the catalog was given {location} and names {kept}: it keeps metadata of its own")
