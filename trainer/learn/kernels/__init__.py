"""The loops of training, one file per step of the algorithm."""
