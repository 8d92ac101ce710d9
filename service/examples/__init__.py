"""Images to try the embedded model with, drawn by `python -m service.examples.draw`."""
