"""What threads that work on one image find, each in a layer of memory of its own.

A thread clears its layer when it has taken its first rows, so that a layer is in the cache of
whoever writes it, and one that nobody needed costs nothing. Whoever waits for all joins them.
"""

from typing import NamedTuple

from service.engine.arrays import Float32Array, Int32Array
from service.engine.compiling import part
from service.engine.kernels.strips import TAKEN_LAYERS, Strips
from service.engine.kernels.system import add_to, read

__all__ = ["Sums", "join_layers", "layer_of", "own_layer"]


class Sums(NamedTuple):
    """What threads add up and find the largest of, in as many layers as there may be threads.

    totals (layers, n, w) and masses (layers, regions, nodes) are those of `add_residuals`, regions
    (n,) being of all descriptors; finest (layers, regions, regions, channels) those of
    `raise_maxima`. Any may have no regions: it is left out. The first layer has the result. One
    layer is the same without the first axis.
    """

    regions: Int32Array
    levels_below: int
    totals: Int32Array
    masses: Int32Array
    finest: Float32Array
    sign_rule: int
    n_atoms: int


@part
def layer_of(sums: Sums, number: int) -> Sums:
    """One of the layers."""
    return Sums(
        sums.regions,
        sums.levels_below,
        sums.totals[number],
        sums.masses[number],
        sums.finest[number],
        sums.sign_rule,
        sums.n_atoms,
    )


@part
def _clear(own: Sums) -> None:
    own.totals[:] = 0
    own.masses[:] = 0
    own.finest[:] = 0


@part
def own_layer(strips: Strips, sums: Sums) -> Sums:
    """A layer that no other thread has, of zeros. It is for a thread that has taken rows.

    Whoever waits for those rows finds the layer cleared.
    """
    own = layer_of(sums, add_to(strips.counters, TAKEN_LAYERS, 1))
    _clear(own)
    return own


@part
def join_layers(strips: Strips, sums: Sums) -> None:
    """Let the first layer have what was found in all; zeros if there were no rows."""
    taken, joined = read(strips.counters, TAKEN_LAYERS), layer_of(sums, 0)
    if taken == 0:
        _clear(joined)
    for number in range(1, taken):
        own = layer_of(sums, number)
        for i in range(own.totals.shape[0]):
            for k in range(own.totals.shape[1]):
                joined.totals[i, k] += own.totals[i, k]
        for region in range(own.masses.shape[0]):
            for node in range(own.masses.shape[1]):
                joined.masses[region, node] += own.masses[region, node]
        for y in range(own.finest.shape[0]):
            for x in range(own.finest.shape[1]):
                for channel in range(own.finest.shape[2]):
                    value, largest = own.finest[y, x, channel], joined.finest[y, x, channel]
                    joined.finest[y, x, channel] = value if value > largest else largest
