"""Results as figures, tables and files, and whether the goals are reached."""
