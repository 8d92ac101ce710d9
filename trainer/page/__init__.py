"""The report of a model as one HTML file: no scripts, and nothing from elsewhere."""
