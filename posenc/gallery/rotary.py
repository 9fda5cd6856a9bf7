"""Numbers of sinusoidal and rotary positions, read off the schemes' own hooks."""

import jax.numpy as jnp
import numpy as np

import posenc
from posenc.rope import RoPE

FAMILY = ("rope", "pi", "ntk", "yarn", "llama3", "longrope")
ROTARY = posenc.Dims(D=128, H=1, K=128, train_length=4096)  # a head and a length of Llama 2
HEAD = posenc.Dims(D=32, H=1, K=32, train_length=64)
FEW = posenc.Dims(D=8, H=1, K=8, train_length=64)  # few enough pairs to see each one
CIRCLE, ARC, OUTSIDE = 0, 1, 2  # what training has seen of the angles a pair takes


def family(dims: posenc.Dims, base: float, factor: float, length: int) -> dict[str, RoPE]:
    """RoPE and five scalings of it by `factor`, for sequences of `length` tokens in all."""
    made = {}
    for name in FAMILY:
        options = {"base": base} if name == "rope" else {"base": base, "factor": factor}
        if name == "longrope":
            options |= divisors(dims, base, factor)
        made[name] = posenc.create(name, dims, **options).at_length(length)
    return made


def divisors(dims: posenc.Dims, base: float, factor: float) -> dict[str, tuple[float, ...]]:
    """The two lists of a LongRoPE to draw. The paper's are found by search; these were not.

    The long one rises by equal ratios from 1 at the fastest pair to `factor` at the first pair that
    makes no full turn within the training length, and stays there.
    """
    turns = posenc.create("rope", dims, base=base).inverse_frequencies() / (2 * np.pi)
    slow = max(1, int(np.sum(turns * dims.train_length >= 1)))
    share = np.minimum(np.arange(len(turns)) / slow, 1.0)
    return {"short_factor": (1.0,) * len(turns), "long_factor": tuple(factor**share)}


def sinusoid_table(width: int, positions: np.ndarray, base: float) -> np.ndarray:
    """What `sinusoidal` adds to an embedding of this width at each position, [P, width]."""
    dims = posenc.Dims(D=width, H=1, K=width, train_length=len(positions))
    scheme = posenc.create("sinusoidal", dims, base=base)
    nothing = jnp.zeros((len(positions), width), jnp.float32)
    return np.asarray(scheme.embed(nothing, int32(positions)))


def wavelengths(scheme: RoPE) -> np.ndarray:
    """Tokens per full turn of each pair, float64 [R/2]."""
    return 2 * np.pi / scheme.inverse_frequencies()


def phasors(scheme: RoPE, positions: np.ndarray) -> np.ndarray:
    """Where a query that is 1 + 0i in every pair stands at each position, complex [P, R/2].

    The scheme must pair channel t with t + R/2 and rotate every channel.
    """
    pairs = scheme.rotated // 2
    start = jnp.concatenate([jnp.ones(pairs), jnp.zeros(pairs)])
    turned = np.asarray(scheme.query(rows(start, len(positions)), int32(positions)))[:, 0]
    return turned[:, :pairs] + 1j * turned[:, pairs:]


def rotation_matrices(scheme: posenc.Scheme, positions: np.ndarray) -> np.ndarray:
    """The matrices that take a query to its rotation at each position, [P, K, K]: column c is what
    becomes of the c-th unit vector.
    """
    K, P = scheme.dims.K, len(positions)
    units = np.tile(np.eye(K, dtype=np.float32), (P, 1))[:, None]  # [P·K, 1, K]
    images = np.asarray(scheme.query(jnp.asarray(units), int32(np.repeat(positions, K))))
    return images.reshape(P, K, K).swapaxes(1, 2)


def inner_products(
    scheme: posenc.Scheme, q: np.ndarray, k: np.ndarray, q_pos: np.ndarray, k_pos: np.ndarray
) -> np.ndarray:
    """q·k with a query [K] at each q_pos and a key [K] at each k_pos, pair by pair, [P].

    Through whatever the scheme does to embeddings, queries and keys.
    """
    q_pos, k_pos = int32(q_pos), int32(k_pos)
    queries = scheme.embed(rows(q, len(q_pos))[:, 0], q_pos)[:, None]  # [P, 1, K]
    keys = scheme.embed(rows(k, len(k_pos))[:, 0], k_pos)[:, None]
    return np.asarray(jnp.sum(scheme.query(queries, q_pos) * scheme.key(keys, k_pos), axis=(1, 2)))


def average_product(scheme: posenc.Scheme, distances: np.ndarray) -> np.ndarray:
    """q·k of a query equal to its key, both of ones and of length 1, against distance, [P].

    Under a rotation this is the mean of q·k over all random vectors of length 1 with q = k.
    """
    K = scheme.dims.K
    ones = np.full(K, K**-0.5, np.float32)
    return inner_products(scheme, ones, ones, distances, np.zeros_like(distances))


def far_distances(points: int, each: int) -> np.ndarray:
    """Distances from 1 to 16 training lengths, by equal ratios, [points, each]: the mean over a row
    averages quick waves away.
    """
    far = np.geomspace(1, 16 * ROTARY.train_length, points * each)
    return far.round().astype(int).reshape(points, each)


def smoothed_product(scheme: posenc.Scheme, distances: np.ndarray) -> np.ndarray:
    """The row means of `average_product` at distances [points, each], [points]."""
    return average_product(scheme, distances.ravel()).reshape(distances.shape).mean(axis=1)


def product_bound(scheme: RoPE, distances: np.ndarray) -> np.ndarray:
    """What bounds |q·k| at a distance whatever the tokens, up to a factor of theirs, [P].

    Su et al. 2021, section 3.4.3: the mean over j of |Σ_{t<j} e^(i·r·θ_t)|.
    """
    sums = np.cumsum(phasors(scheme, distances), axis=1)
    return np.abs(sums).mean(axis=1)


def seen_angles(scheme: RoPE, length: int) -> np.ndarray:
    """What training saw of the angles that each pair takes within `length` tokens, int [R/2].

    CIRCLE: the pair made a full turn within the training length, so that every angle was seen; ARC:
    it did not, and stays on the arc that was seen; OUTSIDE: its largest angle, (n − 1)·θ', is L·θ
    or more. The arc reaches one step past the last angle met, (L − 1)·θ, where a point is as near to
    one that was seen as points between two of them are; so dividing positions by n/L stays inside.
    """
    trained = scheme.dims.train_length * scheme.plain_frequencies()
    largest = (length - 1) * scheme.inverse_frequencies()
    leaves = largest >= trained * (1 - 1e-9)  # a quotient that is L may be rounded to just below
    return np.where(trained >= 2 * np.pi, CIRCLE, np.where(leaves, OUTSIDE, ARC))


def unseen_share(scheme: RoPE, length: int) -> float:
    """The share of pairs with an angle that training did not see."""
    return float(np.mean(seen_angles(scheme, length) == OUTSIDE))


def random_pair(dims: posenc.Dims) -> tuple[np.ndarray, np.ndarray]:
    """A random query and a key of about its direction, [K] each."""
    draws = np.random.default_rng(4).normal(size=(2, dims.K)).astype(np.float32)
    return draws[0], 0.7 * draws[0] + 0.3 * draws[1]


def int32(positions: np.ndarray):
    return jnp.asarray(positions, jnp.int32)


def rows(vector, count: int):
    """A vector [K] at every one of `count` positions, for one head: float32 [count, 1, K]."""
    vector = jnp.asarray(vector, jnp.float32)
    return jnp.broadcast_to(vector, (count, 1, vector.shape[0]))
