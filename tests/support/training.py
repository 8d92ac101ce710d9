"""Settings that train within a second or two."""

SMALL = ("--samples", "6000", "--atoms", "64", "--nonzeros", "3", "--iterations", "3")
