"""Files to deploy Penstock with: images, charts, dashboards and alerts."""
