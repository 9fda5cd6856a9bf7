"""Log-n scaling: sharpen the softmax as more keys come into view."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from posenc.base import Dims, Scheme, choice


class LogN(Scheme):
    """q_i times max(1, ln(i + 1)/ln L), i + 1 being the number of keys the query sees; alone, nope
    with it.

    Su 2021 ("Scaling attention from the viewpoint of entropy invariance"); Qwen's `logn`. L is the
    training length. Composes with any scheme (`rope+log_n`), multiplying q·k only. Options: `clip`
    (True); False is the original proposal, whose factor is below 1 before position L.
    """

    paper = "Su 2021"
    extrapolates = True
    relative = False
    swaps = ("nope",)

    def __init__(self, dims: Dims, rngs: nnx.Rngs | None = None, *, clip: bool = True, **options):
        super().__init__(dims, rngs, **options)
        if dims.train_length < 2:
            raise ValueError(f"train.length={dims.train_length} must be at least 2: ln L divides")
        self.clip = choice("clip", clip, (True, False))

    def idle(self, longest: int) -> str | None:
        idle = self.clip and longest <= self.dims.train_length
        return "log_n is the identity up to the training length" if idle else None

    def query(self, q: jax.Array, pos: jax.Array) -> jax.Array:
        factor = jnp.log1p(pos.astype(jnp.float32)) / np.float32(math.log(self.dims.train_length))
        factor = jnp.maximum(factor, 1) if self.clip else factor
        return (q.astype(jnp.float32) * factor[:, None, None]).astype(q.dtype)
