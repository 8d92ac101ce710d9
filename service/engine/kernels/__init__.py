"""The loops that make the engine fast, one file per stage, and nothing else."""
