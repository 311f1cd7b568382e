"""Tests: unit, property, contract, scenarios, integration, architecture."""
