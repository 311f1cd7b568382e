"""Penstock on a real Kubernetes, under the faults that a cluster meets: `make kube-test`."""
