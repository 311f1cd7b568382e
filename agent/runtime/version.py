"""The version of this program, as `penstock --version` and the HTTP port tell it."""

VERSION = "0.1.0"
