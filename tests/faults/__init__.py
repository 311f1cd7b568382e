"""Tests that break things: processes killed at any point, power cut between a write and its sync."""
