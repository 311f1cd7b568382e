"""An archive pass: which chunks of the intake become which data file, and the work of one file."""
