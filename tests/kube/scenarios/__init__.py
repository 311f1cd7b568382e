"""One module for each thing that happens to a cluster. README.md of the folder above says how one is written."""
