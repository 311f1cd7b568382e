"""Record batches of message format v2, and the records inside: checked, decoded, encoded, compressed."""
