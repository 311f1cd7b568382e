"""What other people's tests and Apache Kafka's recorded answers say about Penstock."""
