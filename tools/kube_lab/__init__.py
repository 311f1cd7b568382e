"""A real Kubernetes of three nodes on this machine, for tests and to try things with: `make kube`.

One network namespace without a way out holds everything. `confinement` separates it from the machine, `images` makes
what nodes run, `control_plane` and `nodes` are Kubernetes, `lab` starts all of it and installs the chart.
"""
