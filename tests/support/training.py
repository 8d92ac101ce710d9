"""Settings that train within a second or two."""

SIZES = ("--samples", "6000", "--atoms", "64", "--nonzeros", "3", "--iterations", "3")
SMALL = ("--recipe", "paper", *SIZES)
