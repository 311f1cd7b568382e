"""The version of this program, which `penstock --version` and the HTTP port report."""

VERSION = "0.1.0"
