"""The smallest sizes that the benchmark can be run in."""

from trainer.bench.settings import BenchSettings

TINY = BenchSettings(
    samples=3000,
    vectors=200,
    depth=4,
    atoms=32,
    many_atoms=64,
    nonzeros=3,
    labels=3,
    photographs=1,
    sklearn_vectors=20,
    rounds=1,
    milliseconds=1,
    width=96,
    height=64,
    made=6,
    requests=6,
    load_seconds=1,
)
