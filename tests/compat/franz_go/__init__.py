"""franz-go's own tests of its client against a broker, by TLS and SCRAM."""
