"""A store in a folder: objects in pack files, written and synchronised by one process."""
