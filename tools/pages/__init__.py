"""Pages that are written from the code, and the check of their diagrams."""
