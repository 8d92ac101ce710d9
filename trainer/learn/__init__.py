"""Everything that is learned: tree, hash, active sets, dictionary and classifier."""
