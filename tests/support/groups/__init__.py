"""Consumer groups without a network: members by short names."""
