"""What people deploy Penstock with: images, charts, dashboards and alerts."""
