"""Pack files and their disk, changed as damage or a power cut would."""
