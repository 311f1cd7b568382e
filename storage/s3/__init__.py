"""A bucket on S3 or a compatible store: the client, its settings, credentials and errors."""
