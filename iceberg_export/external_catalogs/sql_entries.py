"""Entries in a SQL catalog: rows of `iceberg_tables`, as in Iceberg's JDBC catalog.

One UPDATE with the expected metadata in its WHERE clause changes an entry. The catalog's own commits work the same way,
so two agents never undo each other's change. No metadata file is read: the one that an entry names may be deleted.

Source: `org.apache.iceberg.jdbc.JdbcUtil` (Iceberg 1.12); `pyiceberg.catalog.sql` (PyIceberg 0.12).
"""

from typing import TYPE_CHECKING, cast

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from sqlalchemy import Engine

_NAMES = text("SELECT table_name FROM iceberg_tables WHERE catalog_name = :catalog AND table_namespace = :namespace")
_IS = "catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name"
_FIND = text(f"SELECT metadata_location FROM iceberg_tables WHERE {_IS}")  # noqa: S608 - a constant
_CREATE = text(
    "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) "
    "VALUES (:catalog, :namespace, :name, :location)"
)
_MOVE = text(
    "UPDATE iceberg_tables SET metadata_location = :location, previous_metadata_location = :expected "  # noqa: S608
    f"WHERE {_IS} AND metadata_location = :expected"
)
_DROP = text(f"DELETE FROM iceberg_tables WHERE {_IS} AND metadata_location = :expected")  # noqa: S608 - a constant


class SqlEntries:
    """Implements `iceberg_export.external_catalogs.entries.Entries`."""

    is_compared = True

    def __init__(self, catalog: "Catalog", namespace: tuple[str, ...]) -> None:
        """`catalog`: a `pyiceberg.catalog.sql.SqlCatalog` whose SQL tables exist."""
        self._engine = cast("Engine", getattr(catalog, "engine"))  # noqa: B009 - only this kind of catalog has it
        self._scope = {"catalog": catalog.name, "namespace": ".".join(namespace)}

    def names(self) -> list[str]:
        """The tables of the namespace."""
        with self._engine.connect() as connection:
            return [str(name) for (name,) in connection.execute(_NAMES, self._scope)]

    def find(self, name: str) -> str | None:
        """The URI of the metadata that a table's entry names; None where there is no entry, "" for a view's."""
        with self._engine.connect() as connection:
            row = connection.execute(_FIND, {**self._scope, "name": name}).one_or_none()
        return None if row is None else str(row[0] or "")

    def create(self, name: str, location: str) -> bool:
        """Create an entry that names `location`; False where the entry exists."""
        try:
            with self._engine.begin() as connection:
                connection.execute(_CREATE, {**self._scope, "name": name, "location": location})
        except IntegrityError:
            return False
        return True

    def move(self, name: str, expected: str, location: str) -> bool:
        """Change the entry from the URI `expected` to `location`; False where it has another URI or is gone."""
        with self._engine.begin() as connection:
            values = {**self._scope, "name": name, "expected": expected, "location": location}
            return connection.execute(_MOVE, values).rowcount > 0

    def drop(self, name: str, expected: str) -> bool:
        """Remove the entry with the URI `expected`, and no file; False where it has another URI or is gone."""
        with self._engine.begin() as connection:
            return connection.execute(_DROP, {**self._scope, "name": name, "expected": expected}).rowcount > 0

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()
