"""Entries in a SQL catalog: rows of `iceberg_tables`, as Iceberg's JDBC catalog has them.

Rule: an entry moves by one UPDATE that names the metadata it moves from, which is how the catalog's own commits go; so
two agents never undo each other. No metadata file is read: the one that an entry names may be gone since long.

Specification: `org.apache.iceberg.jdbc.JdbcUtil` (Iceberg 1.12); `pyiceberg.catalog.sql` (PyIceberg 0.12).
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
    "UPDATE iceberg_tables SET metadata_location = :location, previous_metadata_location = :seen "  # noqa: S608
    f"WHERE {_IS} AND metadata_location = :seen"
)
_DROP = text(f"DELETE FROM iceberg_tables WHERE {_IS} AND metadata_location = :seen")  # noqa: S608 - a constant


class SqlEntries:
    """Implements `iceberg_export.external_catalogs.entries.Entries`."""

    is_compared = True

    def __init__(self, catalog: "Catalog", namespace: tuple[str, ...]) -> None:
        """`catalog` is a `pyiceberg.catalog.sql.SqlCatalog`, whose tables are there."""
        self._engine = cast("Engine", getattr(catalog, "engine"))  # noqa: B009 - of this kind of catalog alone
        self._place = {"catalog": catalog.name, "namespace": ".".join(namespace)}

    def names(self) -> list[str]:
        """As `Entries` says."""
        with self._engine.connect() as connection:
            return [str(name) for (name,) in connection.execute(_NAMES, self._place)]

    def find(self, name: str) -> str | None:
        """As `Entries` says; "" for an entry that names no metadata, as those of views."""
        with self._engine.connect() as connection:
            row = connection.execute(_FIND, {**self._place, "name": name}).one_or_none()
        return None if row is None else str(row[0] or "")

    def create(self, name: str, location: str) -> bool:
        """As `Entries` says."""
        try:
            with self._engine.begin() as connection:
                connection.execute(_CREATE, {**self._place, "name": name, "location": location})
        except IntegrityError:
            return False
        return True

    def move(self, name: str, seen: str, location: str) -> bool:
        """As `Entries` says."""
        with self._engine.begin() as connection:
            moved = connection.execute(_MOVE, {**self._place, "name": name, "seen": seen, "location": location})
            return moved.rowcount > 0

    def drop(self, name: str, seen: str) -> bool:
        """As `Entries` says."""
        with self._engine.begin() as connection:
            return connection.execute(_DROP, {**self._place, "name": name, "seen": seen}).rowcount > 0

    def close(self) -> None:
        """As `Entries` says."""
        self._engine.dispose()
