"""Clusters of real agents over etcd and MinIO, and faults for them."""
