"""Writes the generated files: `make monitoring`."""

from deploy.monitoring.generated import write

write()
