"""Dashboards and alerts of Penstock, as code. `python -m deploy.monitoring` writes what is generated from it."""
