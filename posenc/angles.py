"""Positions times frequencies, as exact far out as near."""

import jax
import jax.numpy as jnp
import numpy as np


def angles(pos: jax.Array, frequencies: np.ndarray) -> jax.Array:
    """pos·f modulo whole turns, radians in [−π, π), float32 [P, F], of pos int32 [P] and f float64 [F] per token.

    Counted in units of 2^−32 turns, as int32: whole turns overflow and vanish, which is what they should do, so
    differences of positions stay exact. At position 65,536 this is off by at most 5e-5 radians, where the float32
    product is by 4e-3.
    """
    return turned(pos, steps(frequencies))


def steps(frequencies: np.ndarray) -> np.ndarray:
    """Frequencies float64 [F], radians per token, as int32 [F] in units of 2^−32 turns per token."""
    units = np.round(np.asarray(frequencies, np.float64) / (2 * np.pi) * 2.0**32)
    return units.astype(np.int64).astype(np.int32)


def turned(pos: jax.Array, steps: np.ndarray | jax.Array) -> jax.Array:
    """pos·f of frequencies as `steps` gives them, radians in [−π, π), float32 [P, F]."""
    return (pos[:, None] * steps[None, :]).astype(jnp.float32) * np.float32(2 * np.pi / 2.0**32)
