"""The archive pass: selects chunks of the intake, and writes them as one Parquet data file."""
