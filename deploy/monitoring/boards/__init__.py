"""The six dashboards, a module for each."""
