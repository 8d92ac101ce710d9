"""The paper's experiments, one module each, run by `python -m trainer reproduce`."""
