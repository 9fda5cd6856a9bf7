"""KERPLE: a learned penalty on distance, one curve per head."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from posenc.base import Dims, Scheme, choice

FLOOR = np.float32(0.01)  # the least that p and a can be
STEEPEST = np.float32(2.0)  # p at most, for the kernel r^p to be conditionally positive definite


class Kerple(Scheme):
    """bias(h, r) = −p_h·ln(1 + a_h·r), or −a_h·r^(p_h), r = i − j; shared by all layers.

    Chi et al. 2022, "KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation",
    the logarithmic and the power variant. Added after the 1/√K scaling. p and a are learned. The
    authors' code clamps both to 0.01 or more, and p to 2 or less in r^p, before every forward pass;
    here they are 0.01 + softplus(raw), and p is 0.01 + 1.99·sigmoid(raw) in r^p: the same range
    with a gradient that never dies. They start as there, p uniform on (0, 2) and a on (0, 1).

    Options: `kind`, "log" or "power".
    """

    paper = "Chi et al. 2022"
    extrapolates = True

    def __init__(self, dims: Dims, rngs: nnx.Rngs | None = None, *, kind: str = "log", **options):
        super().__init__(dims, rngs, **options)
        self.kind = choice("kind", kind, ("log", "power"))
        if rngs is None:
            raise ValueError("it has parameters: give rngs")

        def uniform(high: float) -> jax.Array:  # not quite to the ends, where raw would be infinite
            drawn = jax.random.uniform(rngs.posenc(), (dims.H,), jnp.float32, 0.0, high)
            return jnp.clip(drawn - FLOOR, 0.001, high - 0.02)

        p, a = uniform(2.0), uniform(1.0)
        share = p / (STEEPEST - FLOOR)
        self.raw_p = nnx.Param(
            jnp.log(jnp.expm1(p)) if kind == "log" else jnp.log(share / (1 - share))
        )
        self.raw_a = nnx.Param(jnp.log(jnp.expm1(a)))

    def bounded(self) -> tuple[jax.Array, jax.Array]:
        """p and a as they act, float32 [H] each."""
        a = FLOOR + jax.nn.softplus(self.raw_a[...])
        if self.kind == "log":
            return FLOOR + jax.nn.softplus(self.raw_p[...]), a
        return FLOOR + (STEEPEST - FLOOR) * jax.nn.sigmoid(self.raw_p[...]), a

    def bias(self, q_pos: jax.Array, k_pos: jax.Array) -> jax.Array:
        p, a = (value[:, None, None] for value in self.bounded())  # [H, 1, 1]
        r = (q_pos[:, None] - k_pos[None, :]).astype(jnp.float32)[None]  # [1, T, S]
        if self.kind == "log":
            return -p * jnp.log1p(a * jnp.maximum(r, 0))
        # At r = 0 the power is 0 but its logarithm infinite: there raise 1, and drop the result.
        return jnp.where(r > 0, -a * jnp.exp(p * jnp.log(jnp.maximum(r, 1))), 0)
