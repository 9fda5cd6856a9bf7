"""Sandwich: the inner products of sinusoidal vectors as a bias by distance."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from posenc.angles import angles
from posenc.base import Dims, Scheme, whole


class Sandwich(Scheme):
    """bias(h, r) = (Σ_{t=1…W/2} cos(r/10000^(2t/W)) − W/2)/(8h/H), r = i − j, h = 1 … H.

    Chi et al. 2023, "Dissecting Transformer Length Extrapolation via the Lens of Receptive Field
    Analysis". Added after the 1/√K scaling; no parameters. The sum is the inner product of two
    sinusoidal vectors of width W (the paper's d̄), and is computed as one: T·S·W multiplications and
    no [T, S, W] array. The paper's NumPy snippet sums t = 0 … W/2 − 1 instead. The head factor 8h/H
    is from the paper's text and was not checked against author code.

    Options: `width` W (128), even, independent of the model's.
    """

    paper = "Chi et al. 2023"
    extrapolates = True

    def __init__(self, dims: Dims, rngs: nnx.Rngs | None = None, *, width: int = 128, **options):
        super().__init__(dims, rngs, **options)
        self.width = whole("width", width, at_least=2)
        if self.width % 2:
            raise ValueError(f"width={width} must be even: sines and cosines come in pairs")

    def vectors(self, pos: jax.Array) -> jax.Array:
        """Cosines and sines of pos [T], float32 [T, W]."""
        t = np.arange(1, self.width // 2 + 1)
        phase = angles(pos, 10000.0 ** (-2.0 * t / self.width))  # [T, W/2]
        return jnp.concatenate([jnp.cos(phase), jnp.sin(phase)], axis=-1)

    def bias(self, q_pos: jax.Array, k_pos: jax.Array) -> jax.Array:
        vectors = (self.vectors(q_pos), self.vectors(k_pos))
        sums = jnp.einsum("tw,sw->ts", *vectors, precision=jax.lax.Precision.HIGHEST)
        divisor = 8.0 * np.arange(1, self.dims.H + 1) / self.dims.H
        return (sums - self.width / 2)[None] / divisor.astype(np.float32)[:, None, None]
