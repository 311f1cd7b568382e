"""Programs of a real Kubernetes, for the lab, and those that check the chart: helm and kubeconform."""
