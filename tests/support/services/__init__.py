"""Real services on loopback: etcd, MinIO, Java, PostgreSQL, stand-ins of AWS."""
