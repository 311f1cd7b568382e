"""`make bench-spark`: Spark over Penstock beside Spark's Kafka connector over Apache Kafka."""
