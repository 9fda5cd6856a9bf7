"""T5's relative bias: a learned number per head and bucket of distances."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from posenc.base import Dims, Scheme, whole


class T5(Scheme):
    """bias(h, i, j) = table[bucket(i − j), h], one table for all layers, added after 1/√K scaling.

    Raffel et al. 2020, section 2.1, one-directional. With N buckets, E = N/2 and farthest distance
    M: bucket(r) = r below E, then min(E + ⌊(N − E)·ln(r/E)/ln(M/E)⌋, N − 1). Keys in the future
    count as distance 0. T5 itself leaves the 1/√K out of its logits; here they keep it, and the
    bias is not rescaled. The table starts as N(0, 1/D), as T5's does.

    Options: `num_buckets` N (32), even; `max_distance` M (128), above N/2.
    """

    paper = "Raffel et al. 2020"
    extrapolates = True

    def __init__(
        self,
        dims: Dims,
        rngs: nnx.Rngs | None = None,
        *,
        num_buckets: int = 32,
        max_distance: int = 128,
        **options,
    ):
        super().__init__(dims, rngs, **options)
        self.num_buckets = whole("num_buckets", num_buckets, at_least=2)
        if self.num_buckets % 2:
            raise ValueError(
                f"num_buckets={num_buckets} must be even: half of them hold one distance each"
            )
        self.max_distance = whole("max_distance", max_distance, at_least=1)
        if self.max_distance <= self.num_buckets // 2:
            raise ValueError(
                f"max_distance={max_distance} must be above num_buckets/2={self.num_buckets // 2}"
            )
        if rngs is None:
            raise ValueError("it has parameters: give rngs")
        normal = jax.random.normal(rngs.posenc(), (self.num_buckets, dims.H), jnp.float32)
        self.table = nnx.Param(normal * np.float32(dims.D**-0.5))

    def first_distances(self) -> np.ndarray:
        """The smallest distance of each bucket, tokens, int64 [N]; a bucket may be empty."""
        E, M = self.num_buckets // 2, self.max_distance
        # Where a logarithm is a whole number, rounding must not move it to the bucket below.
        step = (np.arange(self.num_buckets - E) - 1e-9) / (self.num_buckets - E)
        return np.concatenate([np.arange(E), np.ceil(E * (M / E) ** step).astype(np.int64)])

    def bias(self, q_pos: jax.Array, k_pos: jax.Array) -> jax.Array:
        distance = q_pos[:, None] - k_pos[None, :]  # [T, S]
        starts = self.first_distances()[1:].astype(np.int32)
        # Counting the starts passed is one fused pass over [T, S]. Measured: a gather with its
        # scattered gradient takes a tenth of the time of a product with one-hot rows.
        bucket = jnp.searchsorted(starts, distance, side="right", method="compare_all")
        return self.table[...].T[:, bucket]  # [H, T, S]
