"""Rights and principals for tests of handlers."""
