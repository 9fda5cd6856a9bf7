"""FIRE: a small network of the distance, measured against the query's own position."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from posenc.base import Dims, Scheme, whole


class FIRE(Scheme):
    """bias(h, i, j) = MLP_h(ψ(i − j)/(ψ(max(i, |m·L₀|)) + 1e-6)), ψ(x) = ln(|c·x| + 1).

    Li et al. 2024, "Functional Interpolation for Relative Positions Improves Long Context
    Transformers". The MLP has one hidden layer of F ReLUs and H outputs; it, c (0.1 at the
    start) and m (1) are learned and shared by all layers. Dividing by the query's position keeps
    the MLP's input within [0, 1] at every length, and makes the bias depend on i besides i − j.
    Added after the 1/√K scaling; keys in the future count as distance 0. The authors' L₀ is 512,
    for their training length; here it follows ours.

    Cost: T·S·F·H multiplications, and [T, S, F] floats while a block of T query rows is worked on:
    measured, a loop over F that never holds them takes several times as long to differentiate.

    Options: `hidden` F (32); `init_length` L₀ (the training length), tokens.
    """

    paper = "Li et al. 2024"
    extrapolates = True
    relative = False

    def __init__(
        self,
        dims: Dims,
        rngs: nnx.Rngs | None = None,
        *,
        hidden: int = 32,
        init_length: int | None = None,
        **options,
    ):
        super().__init__(dims, rngs, **options)
        F = whole("hidden", hidden, at_least=1)
        L = dims.train_length if init_length is None else init_length
        self.init_length = whole("init_length", L, at_least=1)
        if rngs is None:
            raise ValueError("it has parameters: give rngs")

        def uniform(limit: float, *shape: int) -> nnx.Param:
            drawn = jax.random.uniform(rngs.posenc(), shape, jnp.float32, -limit, limit)
            return nnx.Param(drawn)

        # Both layers uniform within 1/√(inputs), the authors' initialisation.
        self.hidden_weight, self.hidden_bias = uniform(1.0, F), uniform(1.0, F)
        self.output_weight = uniform(F**-0.5, F, dims.H)
        self.output_bias = uniform(F**-0.5, dims.H)
        self.c = nnx.Param(jnp.asarray(0.1, jnp.float32))
        self.length_multiplier = nnx.Param(jnp.asarray(1.0, jnp.float32))  # m

    def distances(self, q_pos: jax.Array, k_pos: jax.Array) -> jax.Array:
        """The input of the MLP, float32 [T, S], in [0, 1]."""
        r = jnp.maximum(q_pos[:, None] - k_pos[None, :], 0).astype(jnp.float32)  # [T, S]
        threshold = jnp.abs(self.length_multiplier[...] * np.float32(self.init_length))
        longest = jnp.maximum(q_pos.astype(jnp.float32), threshold)  # [T]
        c = jnp.abs(self.c[...])
        return jnp.log1p(c * r) / (jnp.log1p(c * longest) + 1e-6)[:, None]

    def bias(self, q_pos: jax.Array, k_pos: jax.Array) -> jax.Array:
        x = self.distances(q_pos, k_pos)[:, :, None]  # [T, S, 1]
        weight, offset = (y[...][None, None, :] for y in (self.hidden_weight, self.hidden_bias))
        hidden = jax.nn.relu(x * weight + offset)  # [T, S, F]
        out = jnp.einsum(
            "tsf,fh->hts", hidden, self.output_weight[...], precision=jax.lax.Precision.HIGHEST
        )
        return out + self.output_bias[...][:, None, None]
