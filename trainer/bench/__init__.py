"""`python -m trainer reproduce speed`: how fast, measured side by side in one run.

`engine_figures.py` has one function for each ratio that we are judged by, `peers.py` what
we are compared with, `curves.py` how time grows, `stages.py` where it goes and how far
each stage is from what the hardware allows. `run.py` puts it together.
"""
