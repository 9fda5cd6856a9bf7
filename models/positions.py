"""The positions of a batch's rows, where they are not one arange for all."""

import jax
import jax.numpy as jnp

from posenc import Scheme


def row_positions(
    scheme: Scheme, T: int, keys: jax.Array, restarted: jax.Array | None = None
) -> jax.Array | None:
    """int32 [B, T], or None where the model's default will do.

    keys [B]: each row of a scheme with randomised positions gets a draw of its own. restarted [B,
    T]: positions that begin again at 0 with each document; they then index the draw.
    """
    if not scheme.randomized:
        return restarted
    drawn = jax.vmap(lambda key: scheme.positions(T, key))(keys)
    return drawn if restarted is None else jnp.take_along_axis(drawn, restarted, axis=1)
