"""Object stores as contract tests make them."""
