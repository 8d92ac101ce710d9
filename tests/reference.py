"""A slow, obvious oracle for every kernel: plain numpy, float64, one step of the paper at a time.

Nothing here is shared with the engine. Each function is written from the paper's text and
from the docstrings of `service.engine`, so that an agreement between the two means something.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "EPSILON",
    "PRINTED_FILTER",
    "DecisionTree",
    "LookUpTable",
    "Model",
    "NodeLevel",
    "at_most_one",
    "box_means",
    "clamped",
    "colour_cells",
    "contours",
    "convolve",
    "decision_margins",
    "derivatives",
    "describe",
    "describe_lazebnik",
    "describe_rounded",
    "features",
    "fixed_point",
    "gather",
    "least_squares_code",
    "orientation_bands",
    "patch_sums",
    "pool",
    "pooled_vector",
    "residual_parts",
    "residual_sums",
    "rounded",
    "route",
    "route_integers",
    "scores",
    "softmax",
    "step_of",
    "unit_rows",
    "x_derivative_filter",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# Distance from 1 to the next float32: what one rounding may cost, relatively.
EPSILON = float(np.finfo(np.float32).eps)

# The commented-out line of the paper's source: the x-derivative filter, four digits.
PRINTED_FILTER: Floats = np.array(
    [
        [0.0284, 0.0261, 0.0, -0.0261, -0.0284],
        [0.1274, 0.1168, 0.0, -0.1168, -0.1274],
        [0.2100, 0.1927, 0.0, -0.1927, -0.2100],
        [0.1274, 0.1168, 0.0, -0.1168, -0.1274],
        [0.0284, 0.0261, 0.0, -0.0261, -0.0284],
    ]
)


def x_derivative_filter() -> Floats:
    """The printed filter without its rounding: a Gaussian of width one times its differences.

    One-sided differences at the two ends, central ones between; the absolute sum is two.
    """
    g = [float(np.exp(-(k**2) / 2)) for k in (-2, -1, 0, 1, 2)]
    differences = [g[1] - g[0], (g[2] - g[0]) / 2, 0.0, (g[4] - g[2]) / 2, g[4] - g[3]]
    table: Floats = np.outer(g, differences)
    scaled: Floats = table * (2 / np.abs(table).sum())
    return scaled


def convolve(image: Floats, table: Floats) -> Floats:
    """True convolution (the table turned round), only where the table fits inside."""
    turned = table[::-1, ::-1]
    height, width = (image.shape[0] - 4, image.shape[1] - 4)
    result = np.zeros((height, width))
    for y, x in product(range(5), range(5)):
        result += turned[y, x] * image[y : y + height, x : x + width]
    return result


def derivatives(gray: npt.ArrayLike) -> tuple[Floats, Floats]:
    """I_x and I_y: the y filter is the x filter lying on its side."""
    image = np.asarray(gray, np.float64)
    table = x_derivative_filter()
    return convolve(image, table), convolve(image, table.T)


def orientation_bands(ix: npt.ArrayLike, iy: npt.ArrayLike) -> Floats:
    """v(n) = m·cos(φ - nπ/4)₊⁹ for n = 0…7, bands first."""
    ix, iy = np.asarray(ix, np.float64), np.asarray(iy, np.float64)
    angle = np.arctan2(iy, ix)
    magnitude = np.sqrt(ix**2 + iy**2)
    cosines = [np.maximum(np.cos(angle - n * np.pi / 4), 0) for n in range(8)]
    return np.stack([magnitude * cosine**9 for cosine in cosines])


@dataclass(frozen=True)
class LookUpTable:
    """The paper's own shortcut: v(n) tabulated at the centres of 500 x 500 bins.

    Positive taps of the filter add up to one, so grey levels in [0, 1] have derivatives
    in [-1, 1]: the range that never needs a check.
    """

    bins: int = 500

    @property
    def half_width(self) -> float:
        """How far a value can be from the centre of its bin."""
        return 1 / self.bins

    def centres(self, values: npt.ArrayLike) -> Floats:
        """The centre of the bin that each value falls into."""
        places = np.floor((np.asarray(values, np.float64) + 1) / 2 * self.bins)
        return (np.clip(places, 0, self.bins - 1) + 0.5) * 2 / self.bins - 1

    def bands(self, ix: npt.ArrayLike, iy: npt.ArrayLike) -> Floats:
        """What the table answers; looking up equals computing at the centres."""
        return orientation_bands(self.centres(ix), self.centres(iy))


def box_means(plane: npt.ArrayLike, side: int) -> Floats:
    """Means of boxes of side x side values; what is left over at the end is dropped."""
    values = np.asarray(plane, np.float64)
    rows, cols = (length // side for length in values.shape)
    means = np.zeros((rows, cols))
    for y, x in product(range(rows), range(cols)):
        means[y, x] = values[side * y : side * (y + 1), side * x : side * (x + 1)].mean()
    return means


def contours(gray: npt.ArrayLike, side: int) -> Floats:
    """The square root of the gradient's magnitude, in boxes of side x side pixels."""
    ix, iy = derivatives(gray)
    return box_means(np.sqrt(np.hypot(ix, iy)), side)


def _subsample(v: Floats) -> Floats:
    """u(y, x) = v(2y, 2x) + v(2y, 2x+1) + v(2y+1, 2x) + v(2y+1, 2x+1)."""
    _, height, width = v.shape
    u = np.zeros((8, height // 2, width // 2))
    for y, x in product(range(height // 2), range(width // 2)):
        u[:, y, x] = v[:, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2].sum(axis=(1, 2))
    return u


def _smooth(v: Floats) -> Floats:
    """u(y, x) = v(y, x) + v(y, x+1) + v(y+1, x) + v(y+1, x+1)."""
    return v[:, :-1, :-1] + v[:, :-1, 1:] + v[:, 1:, :-1] + v[:, 1:, 1:]


def features(gray: npt.ArrayLike) -> Floats:
    """The feature map that descriptors are gathered from, (rows + 6, cols + 6, 8)."""
    ix, iy = derivatives(gray)
    return _smooth(_subsample(orientation_bands(ix, iy))).transpose(1, 2, 0)


def gather(gray: npt.ArrayLike) -> Floats:
    """Descriptors (rows, cols, 128) of any length: 4 x 4 cells at distance two."""
    cells = features(gray)
    rows, cols = cells.shape[0] - 6, cells.shape[1] - 6
    descriptors = np.zeros((rows, cols, 128))
    for y, x in product(range(rows), range(cols)):
        parts = [cells[y + 2 * j, x + 2 * i] for j in range(4) for i in range(4)]
        descriptors[y, x] = np.concatenate(parts)
    return descriptors


def at_most_one(descriptors: Floats) -> Floats:
    """Descriptors (…, d), those longer than one scaled down to that length."""
    scaled: Floats = descriptors / np.maximum(np.linalg.norm(descriptors, axis=-1), 1)[..., None]
    return scaled


def describe(gray: npt.ArrayLike) -> Floats:
    """Descriptors (rows, cols, 128): 4 x 4 cells at distance two, norm at most one."""
    return at_most_one(gather(gray))


def describe_rounded(gray: npt.ArrayLike) -> Floats:
    """The same in narrow steps: rounded first, then scaled down."""
    return at_most_one(np.apply_along_axis(rounded, 2, gather(gray), wide=False))


def patch_sums(gray: npt.ArrayLike, step: int) -> Floats:
    """Lazebnik's descriptors (rows, cols, 128) before scaling, every pixel of every patch.

    Patches of 16 x 16 pixels of the derivatives, as many as fit, in the middle (the odd
    pixel at the end). A pixel (y, x) of a patch adds to the bin centred on (cy, cx) its
    bands times (1 - |y - cy|/4)₊ (1 - |x - cx|/4)₊.
    """
    bands = orientation_bands(*derivatives(gray))
    tops, lefts = (range((side - 16) % step // 2, side - 15, step) for side in bands.shape[1:])
    centres = np.array([1.5, 5.5, 9.5, 13.5])
    sums = np.zeros((len(tops), len(lefts), 4, 4, 8))
    for (row, top), (col, left) in product(enumerate(tops), enumerate(lefts)):
        for y, x in product(range(16), range(16)):
            shares_y = np.maximum(1 - np.abs(y - centres) / 4, 0)
            shares_x = np.maximum(1 - np.abs(x - centres) / 4, 0)
            shares = np.outer(shares_y, shares_x)
            sums[row, col] += shares[:, :, None] * bands[:, top + y, left + x]
    return sums.reshape(len(tops), len(lefts), 128)


def clamped(descriptor: npt.ArrayLike) -> Floats:
    """Lowe's rule above norm one: to norm one, values at most .2, to norm one again."""
    x = np.asarray(descriptor, np.float64)
    if np.linalg.norm(x) <= 1:
        return x
    cut = np.minimum(x / np.linalg.norm(x), 0.2)
    scaled: Floats = cut / np.linalg.norm(cut)
    return scaled


def describe_lazebnik(gray: npt.ArrayLike, step: int) -> Floats:
    """Lazebnik's descriptors (rows, cols, 128)."""
    return np.apply_along_axis(clamped, 2, patch_sums(gray, step))


@dataclass(frozen=True)
class DecisionTree:
    """Decision vectors and thresholds; node i has children 2i + 1 and 2i + 2.

    Whether it is wide matters only to what rounding may change.
    """

    vectors: npt.NDArray[np.floating]
    thresholds: npt.NDArray[np.floating]
    wide: bool = True

    def margin(self, descriptor: npt.NDArray[np.floating], node: int) -> float:
        """Positive means right: how far x·v exceeds t‖x‖."""
        x = descriptor.astype(np.float64)
        v = self.vectors[node].astype(np.float64)
        return float(x @ v - float(self.thresholds[node]) * np.linalg.norm(x))

    def rounding(self, descriptor: npt.NDArray[np.floating], node: int) -> float:
        """How far fixed point can move the margin, the tree being rounded already.

        Each value of x moves by half a step, or by one where it is cut off at the largest
        int16. That moves x·v, and the norm of x where it is that of the rounded direction. In
        float32 are the length of a wide direction, the product, the cut, and its multiple.
        """
        x = descriptor.astype(np.float64)
        v = self.vectors[node].astype(np.float64)
        size = float(np.linalg.norm(v) + abs(self.thresholds[node]))
        moved = step_of(x, wide=self.wide) * (1 + float(np.sqrt(len(x))) / 2)
        return size * (moved + (len(x) + 8) * EPSILON * float(np.linalg.norm(x)))


def step_of(vector: npt.ArrayLike, *, wide: bool) -> float:
    """What one is in a direction: of 2¹⁵ the length, or of 127 the largest value."""
    x = np.asarray(vector, np.float64)
    return float(np.linalg.norm(x) / 2**15 if wide else np.abs(x).max(initial=0) / 127)


def fixed_point(vector: npt.ArrayLike, *, wide: bool) -> Floats:
    """A vector in its steps before it is rounded; zero for the zero vector."""
    x, step = np.asarray(vector, np.float64), step_of(vector, wide=wide)
    return x / step if step > 0 else x


def rounded(vector: npt.ArrayLike, *, wide: bool) -> Floats:
    """A vector of whole steps."""
    return np.rint(fixed_point(vector, wide=wide)) * step_of(vector, wide=wide)


def route_integers(
    directions: npt.NDArray[np.integer],
    cuts: npt.NDArray[np.float32],
    x: npt.ArrayLike,
    norm: np.float32,
) -> int:
    """The leaf of one direction x of that norm: right where x·v > t‖x‖, left without a norm.

    The product is a whole number of any size, rounded once to float32; so is the other side.
    """
    node, whole = 0, [int(value) for value in np.asarray(x)]
    while node < len(cuts):
        product_ = sum(a * int(b) for a, b in zip(whole, directions[node], strict=True))
        right = norm > 0 and np.float32(product_) > np.float32(cuts[node] * norm)
        node = 2 * node + (2 if right else 1)
    return node - len(cuts)


def route(tree: DecisionTree, descriptor: npt.NDArray[np.floating], node: int = 0) -> int:
    """The leaf of one descriptor, by recursion; leaves are numbered from the left."""
    n_nodes = len(tree.thresholds)
    if node >= n_nodes:
        return node - n_nodes
    right = tree.margin(descriptor, node) > 0
    return route(tree, descriptor, 2 * node + (2 if right else 1))


def decision_margins(
    tree: DecisionTree, descriptor: npt.NDArray[np.floating], leaf: int
) -> list[tuple[bool, float, float]]:
    """(went right, margin, rounding) at each node on the way up from `leaf`."""
    node = leaf + len(tree.thresholds)
    decisions = []
    while node > 0:
        parent = (node - 1) // 2
        decisions.append(
            (
                node == 2 * parent + 2,
                tree.margin(descriptor, parent),
                tree.rounding(descriptor, parent),
            )
        )
        node = parent
    return decisions


def least_squares_code(atoms: npt.ArrayLike, descriptor: npt.ArrayLike) -> Floats:
    """The z of smallest norm that minimises ‖Wz - x‖, the atoms (m, d) as columns of W.

    Directions below a hundredth of the largest are dropped: the square root of the
    share of the Gram matrix that the coder documents.
    """
    w = np.asarray(atoms, np.float64).T
    solution = np.linalg.lstsq(w, np.asarray(descriptor, np.float64), rcond=1e-2)[0]
    return solution.astype(np.float64)


def channels_of(dense: Floats, sign_rule: str) -> Floats:
    """Values (rows, cols, atoms) as what is pooled, (rows, cols, channels)."""
    if sign_rule == "absolute":
        return np.abs(dense)
    if sign_rule == "raw":
        return np.maximum(dense, 0)
    return np.concatenate([np.maximum(dense, 0), np.maximum(-dense, 0)], axis=-1)


def pool(
    atom_ids: npt.NDArray[np.integer],
    values: npt.NDArray[np.floating],
    n_atoms: int,
    sign_rule: str,
    levels: tuple[int, ...],
) -> Floats:
    """Dense maximum per region, every level from the codes themselves; not yet scaled.

    atom_ids, values (rows, cols, m). A position (y, x) lies in region (⌊y·r/rows⌋,
    ⌊x·r/cols⌋); a region without positions, or with negative values only, stays at zero.
    """
    rows, cols, _ = atom_ids.shape
    dense = np.zeros((rows, cols, n_atoms))
    for y, x in product(range(rows), range(cols)):
        dense[y, x, atom_ids[y, x]] = values[y, x]
    channels = channels_of(dense, sign_rule)
    parts = []
    for regions in levels:
        level = np.zeros((regions, regions, channels.shape[-1]))
        for y, x in product(range(rows), range(cols)):
            place = (y * regions // rows, x * regions // cols)
            level[place] = np.maximum(level[place], channels[y, x])
        parts.append(level.ravel())
    return np.concatenate(parts)


def colour_cells(colours: npt.NDArray[np.integer]) -> Floats:
    """Cells (⌊h / 2⌋, ⌊w / 2⌋, 8) of colours (h, w, 3): Y, Cb and Cr in levels of 0 to 255.

    A cell of 2x2 pixels has their three means from -1/2 to 1/2, chroma times four; their three
    standard deviations, of brightness times three and of chroma times eight; one half, and zero.
    """
    rows, cols = colours.shape[0] // 2, colours.shape[1] // 2
    cells = np.zeros((rows, cols, 8))
    for y, x in product(range(rows), range(cols)):
        box = colours[2 * y : 2 * y + 2, 2 * x : 2 * x + 2].reshape(4, 3) / 255
        cells[y, x, :3] = (box.mean(axis=0) - 0.5) * [1, 4, 4]
        cells[y, x, 3:6] = box.std(axis=0) * [3, 8, 8]
        cells[y, x, 6] = 0.5
    return cells


def residual_sums(
    directions: npt.NDArray[np.integer],
    steps: npt.NDArray[np.float32],
    norms: npt.NDArray[np.float32],
    places: Integers,
    n_places: int,
) -> tuple[Integers, Integers]:
    """Totals (places, d) and masses (places,), whole numbers of any size, by the definition.

    A mass is the length in units of 2⁻⁸, rounded; a descriptor is its direction times its step
    in units of 2⁻²³, rounded to units of 2⁻¹¹, or nothing if its mass is zero.
    """
    totals = np.zeros((n_places, directions.shape[1]), np.int64)
    masses = np.zeros(n_places, np.int64)
    for direction, step, norm, place in zip(directions, steps, norms, places, strict=True):
        mass = round(float(step * norm) * 2**8)
        masses[place] += mass
        whole = round(float(step) * 2**23) if mass > 0 else 0
        totals[place] += [(int(value) * whole + 2**11) // 2**12 for value in direction]
    return totals, masses


class NodeLevel(NamedTuple):
    """A level of a pyramid: its regions a side, the nodes (rows, cols) of the descriptors there.

    The nodes have means (nodes, d) and projections (nodes, d, components).
    """

    regions: int
    nodes: npt.NDArray[np.integer]
    means: npt.NDArray[np.floating]
    projections: npt.NDArray[np.floating]


def residual_parts(
    descriptors: npt.NDArray[np.floating],
    levels: Sequence[NodeLevel],
) -> Floats:
    """Projected residuals of every level, region and node, not yet scaled: (parts, components).

    descriptors (rows, cols, d). The residual of a node and region is Σ x - ‖x‖·mean over its
    descriptors; regions are those of `pool`.
    """
    rows, cols, width = descriptors.shape
    parts = []
    for regions, nodes, means, projections in levels:
        level = np.zeros((regions, regions, len(means), width))
        for y, x in product(range(rows), range(cols)):
            value, node = descriptors[y, x].astype(np.float64), nodes[y, x]
            place = (y * regions // rows, x * regions // cols, node)
            level[place] += value - np.linalg.norm(value) * means[node].astype(np.float64)
        projected = np.einsum("yxnd,ndc->yxnc", level, projections.astype(np.float64))
        parts.append(projected.reshape(-1, projections.shape[2]))
    return np.concatenate(parts)


def unit_rows(rows: Floats) -> Floats:
    """Every row at unit length; rows of zeros stay."""
    scaled = np.zeros_like(rows)
    for place, row in enumerate(rows):
        if row.any():
            scaled[place] = row / np.linalg.norm(row)
    return scaled


def scores(pooled: npt.ArrayLike, weights: npt.ArrayLike, bias: npt.ArrayLike) -> Floats:
    """Linear scores (labels,): pooled (f,) times weights (f, labels), plus bias."""
    product_: Floats = np.asarray(pooled, np.float64) @ np.asarray(weights, np.float64)
    return product_ + np.asarray(bias, np.float64)


def softmax(values: npt.ArrayLike, scale: float) -> Floats:
    """Probabilities by the textbook formula, for moderate scores."""
    exponentials = np.exp(np.asarray(values, np.float64) * scale)
    chances: Floats = exponentials / exponentials.sum()
    return chances


@dataclass(frozen=True)
class Model:
    """What a bundle holds, for the oracle's own way from an image to a pooled vector."""

    tree: DecisionTree
    table: npt.NDArray[np.integer]
    dictionary: npt.NDArray[np.floating]
    sign_rule: str
    levels: tuple[int, ...]


def pooled_vector(model: Model, gray: npt.ArrayLike) -> Floats:
    """Grey image -> pooled vector of unit norm, every stage by the oracle above."""
    grid = describe_rounded(gray)
    rows, cols, _ = grid.shape
    m = model.table.shape[1]
    atom_ids, values = np.zeros((rows, cols, m), np.int64), np.zeros((rows, cols, m))
    for y, x in product(range(rows), range(cols)):
        atom_ids[y, x] = model.table[route(model.tree, grid[y, x])]
        values[y, x] = least_squares_code(model.dictionary[atom_ids[y, x]], grid[y, x])
    pooled = pool(atom_ids, values, len(model.dictionary), model.sign_rule, model.levels)
    norm = np.linalg.norm(pooled)
    return pooled / norm if norm > 0 else pooled


def somp(descriptors: npt.ArrayLike, atoms: npt.ArrayLike, nonzeros: int) -> list[int]:
    """Algorithm 1 to the letter: descriptors (n, d) and atoms (K, d) -> chosen atoms."""
    x, w = np.asarray(descriptors, np.float64), np.asarray(atoms, np.float64)
    chosen: list[int] = []
    residual = x
    for _ in range(nonzeros):
        sums = np.abs(residual @ w.T).sum(axis=0)
        sums[chosen] = -1
        chosen.append(int(sums.argmax()))
        z, *_ = np.linalg.lstsq(w[chosen].T, x.T)
        residual = x - (w[chosen].T @ z).T
    return chosen


def dense_codes(
    atom_ids: npt.NDArray[np.integer], values: npt.NDArray[np.floating], n_atoms: int
) -> Floats:
    """Sparse codes (n, m) as a matrix Z (n, K)."""
    z = np.zeros((len(atom_ids), n_atoms))
    for row, (ids, numbers) in enumerate(zip(atom_ids, values, strict=True)):
        np.add.at(z[row], ids, numbers)
    return z


def two_means_direction(points: npt.ArrayLike, rounds: int) -> Floats:
    """Unit vector between two centres: farthest insertion from the mean, then Lloyd."""
    x = np.asarray(points, np.float64)
    first = x[np.linalg.norm(x - x.mean(axis=0), axis=1).argmax()]
    second = x[np.linalg.norm(x - first, axis=1).argmax()]
    for _ in range(rounds):
        nearer = np.linalg.norm(x - first, axis=1) < np.linalg.norm(x - second, axis=1)
        if nearer.all() or not nearer.any():
            break
        first, second = x[nearer].mean(axis=0), x[~nearer].mean(axis=0)
    direction: Floats = (first - second) / np.linalg.norm(first - second)
    return direction


def smallest_energy(atoms: npt.ArrayLike, costs: npt.ArrayLike, descriptor: npt.ArrayLike) -> float:
    """The minimum over z of ‖x - Wz‖² + Σ c·z², atoms (m, d): least squares with extra rows."""
    w, c = np.asarray(atoms, np.float64), np.asarray(costs, np.float64)
    system = np.concatenate([w.T, np.diag(np.sqrt(c))])
    target = np.concatenate([np.asarray(descriptor, np.float64), np.zeros(len(c))])
    z, *_ = np.linalg.lstsq(system, target)
    return float(((target - system @ z) ** 2).sum())


def bounded_dictionary(
    descriptors: npt.ArrayLike, codes: Floats, atoms: npt.ArrayLike, steps: int = 3000
) -> Floats:
    """Atoms (K, d) in the unit ball with the smallest ‖X - ZW‖²: projected gradients, Z (n, K)."""
    x, w = np.asarray(descriptors, np.float64), np.array(atoms, np.float64)
    largest = np.linalg.eigvalsh(codes.T @ codes)[-1]
    for _ in range(steps):
        w -= codes.T @ (codes @ w - x) / largest
        w /= np.maximum(1, np.linalg.norm(w, axis=1, keepdims=True))
    return w


def ksvd_sweep(
    descriptors: npt.ArrayLike, codes: Floats, users: npt.NDArray[np.bool_], atoms: npt.ArrayLike
) -> tuple[Floats, Floats]:
    """K-SVD as published: Z (n, K) with its users (n, K), atoms (K, d) -> new Z and atoms."""
    x, w, z = np.asarray(descriptors, np.float64), np.array(atoms, np.float64), codes.copy()
    for atom in np.flatnonzero(users.any(axis=0)):
        who = users[:, atom]
        z[who, atom] = 0
        left, sizes, right = np.linalg.svd(x[who] - z[who] @ w, full_matrices=False)
        z[who, atom], w[atom] = left[:, 0] * sizes[0], right[0]
    return z, w


def coordinate_sweep(
    gram: npt.ArrayLike, signs: npt.ArrayLike, costs: npt.ArrayLike, coefficients: npt.ArrayLike
) -> Floats:
    """Each coefficient (m,) in turn to where ½βᵀHβ + ½Σ β²/c − yᵀβ, yβ >= 0, is least.

    gram H (m, m), signs y (m,), costs c (m,); nothing is left of a coefficient whose c is 0.
    """
    h, y, c = (np.asarray(array, np.float64) for array in (gram, signs, costs))
    beta = np.array(coefficients, np.float64)
    for i in range(len(y)):
        others = h[i] @ beta - h[i, i] * beta[i]
        least = (y[i] - others) / (h[i, i] + 1 / c[i]) if c[i] else 0.0
        beta[i] = max(y[i] * least, 0) * y[i]
    return beta
