"""A real Prometheus over three agents: panels have data, and faults raise their alerts: `make monitoring-check`."""
