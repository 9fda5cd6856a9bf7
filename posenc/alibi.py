"""ALiBi: a linear penalty on distance, one slope per head."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from posenc.base import Dims, Scheme, number


def alibi_slopes(H: int) -> np.ndarray:
    """The m_h of Press et al. 2022, section 3, with the reference rule for H not a power of two;
    float64 [H].

    H a power of two: m_h = 2^(−8(h+1)/H). Otherwise those of the largest power of two c below H,
    then every other one of 2c's, as in fairseq's `get_slopes` of the authors.
    """

    def power_of_two(n: int) -> np.ndarray:
        return 2.0 ** (-8.0 * np.arange(1, n + 1) / n)

    c = 1 << (H.bit_length() - 1)
    return np.concatenate([power_of_two(c), power_of_two(2 * c)[0::2][: H - c]])


class ALiBi(Scheme):
    """bias(h, i, j) = −m_h·(i − j), after the 1/√K scaling; no parameters.

    Press, Smith & Lewis 2022, "Train Short, Test Long". The relative form: nearer keys get the
    larger bias, the query itself 0. Options: `slope_scale` (1) multiplies every slope; 1/s is ALiBi
    interpolation (Al-Khateeb et al. 2023).
    """

    paper = "Press et al. 2022"
    extrapolates = True

    def __init__(
        self, dims: Dims, rngs: nnx.Rngs | None = None, *, slope_scale: float = 1.0, **options
    ):
        super().__init__(dims, rngs, **options)
        self.slope_scale = number("slope_scale", slope_scale, above=0)

    def slopes(self) -> np.ndarray:
        """Logit units per token of distance, float64 [H]."""
        return alibi_slopes(self.dims.H) * self.slope_scale

    def bias(self, q_pos: jax.Array, k_pos: jax.Array) -> jax.Array:
        distance = (q_pos[:, None] - k_pos[None, :]).astype(jnp.float32)  # [T, S]
        return -self.slopes().astype(np.float32)[:, None, None] * distance[None]  # [H, T, S]
