"""What tests of the journal share."""
