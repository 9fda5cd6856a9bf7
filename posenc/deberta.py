"""DeBERTa: disentangled attention between content and bucketed distance, in both directions."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from posenc.base import Dims, Scheme, choice, whole


def log_buckets(distance: np.ndarray, num_buckets: int, max_distance: int) -> np.ndarray:
    """Signed buckets: distances to mid = num_buckets/2 as they are, then logarithmic.

    The last bucket, num_buckets − 1, is reached at max_distance − 1. `make_log_bucket_position` of
    the authors' code, in float64. The logarithms are a whole number at that distance and may be one
    at others: ceil(x − 1e-9) keeps rounding out of it.
    """
    mid = num_buckets // 2
    far = np.maximum(np.abs(distance), mid)
    grown = np.log(far / mid) / np.log((max_distance - 1) / mid) * (mid - 1)
    outer = np.sign(distance) * (np.ceil(grown - 1e-9) + mid)
    return np.where(np.abs(distance) <= mid, distance, outer).astype(np.int32)


class DeBERTa(Scheme):
    """logit = [q_i·k_j + q_i·K^r_δ + k_j·Q^r_δ]/√(3K), δ = clip(bucket(i − j) + B, 0, 2B − 1).

    He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", eq. 2 to 4. K^r
    and Q^r are two projections [D, H, K] of a table [2B, D] of relative embeddings, all of the
    layer (in the paper the layers share the table): the table drawn from N(0, 0.02²), the
    projections like other dense kernels from N(0, 1/D). The 3 counts the terms; `query` brings it
    to q·k. Distances fall into the log buckets of DeBERTa v2. A causal model reads c2p, and p2c by
    the code's index, in the half of the table for j ≤ i only; the absolute positions of the
    masked-token decoder have no place in it. Products are made per row of the table, [H, T, 2B] and
    [H, S, 2B], and scalars are gathered from them.

    Options: `num_buckets` B (32); `max_distance` (128); `p2c_index`: "code", the released code,
    where both terms read δ(i, j), or "paper", where the second reads δ(j, i).
    """

    paper = "He et al. 2021"
    extrapolates = True
    per_layer = True

    def __init__(
        self,
        dims: Dims,
        rngs: nnx.Rngs | None = None,
        *,
        num_buckets: int = 32,
        max_distance: int = 128,
        p2c_index: str = "code",
        **options,
    ):
        super().__init__(dims, rngs, **options)
        self.num_buckets = whole("num_buckets", num_buckets, at_least=2)
        self.max_distance = whole("max_distance", max_distance, at_least=1)
        shortest = self.num_buckets // 2 + 2
        if self.max_distance < shortest:
            raise ValueError(
                f"max_distance={max_distance} must be at least num_buckets/2 + 2 = {shortest}: "
                "the logarithmic buckets lie between"
            )
        self.p2c_index = choice("p2c_index", p2c_index, ("code", "paper"))
        if rngs is None:
            raise ValueError("its parameters are drawn from rngs: give them")
        D, H, K = dims.D, dims.H, dims.K

        def normal(std: float, *shape: int) -> nnx.Param:
            return nnx.Param(std * jax.random.normal(rngs.posenc(), shape, jnp.float32))

        self.table = normal(0.02, 2 * self.num_buckets, D)
        self.key_projection = normal(D**-0.5, D, H, K)
        self.query_projection = normal(D**-0.5, D, H, K)

    def rows(self, distance: jax.Array) -> jax.Array:
        """The table's row δ of each distance, int32 of the same shape."""
        B, M = self.num_buckets, self.max_distance
        near = np.arange(-M, M + 1)  # beyond, all are in the outermost row
        rows = np.clip(log_buckets(near, B, M) + B, 0, 2 * B - 1)
        return jnp.asarray(rows)[jnp.clip(distance, -M, M) + M]

    def query(self, q: jax.Array, pos: jax.Array) -> jax.Array:
        return (q.astype(jnp.float32) * np.float32(3**-0.5)).astype(q.dtype)

    def content(self, q, k, q_pos, k_pos, visible=None) -> jax.Array:
        q, k = q.astype(jnp.float32), k.astype(jnp.float32)
        table = self.table[...]
        K_r = jnp.einsum("rd,dhk->rhk", table, self.key_projection[...])
        Q_r = jnp.einsum("rd,dhk->rhk", table, self.query_projection[...])
        c2p = jnp.einsum("thk,rhk->htr", q, K_r)
        p2c = jnp.einsum("shk,rhk->hsr", k, Q_r)
        distance = q_pos[:, None] - k_pos[None, :]  # [T, S]
        rows = self.rows(distance)
        reverse = rows if self.p2c_index == "code" else self.rows(-distance)
        from_query = jnp.take_along_axis(c2p, rows[None], axis=-1)  # [H, T, S]
        from_key = jnp.take_along_axis(p2c, reverse.T[None], axis=-1)  # [H, S, T]
        return (from_query + from_key.transpose(0, 2, 1)) * np.float32((3 * self.dims.K) ** -0.5)
