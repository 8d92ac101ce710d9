"""What the service tells about itself: one record a request, logs, metrics, traces."""
