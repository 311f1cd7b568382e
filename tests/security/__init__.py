"""Long checks of security, run by make and not by pytest."""
