"""CoPE: positions that count what the query deems worth counting."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from posenc.base import Dims, Scheme, whole


class CoPE(Scheme):
    """logit = (q_i·k_j + z_i(p_ij))/√K, gates g_ij = σ(q_i·k_j/√K), position p_ij = Σ_{u=j…i} g_iu.

    Golovneva et al. 2024, "Contextual Position Encoding: Learning to Count What's Important",
    section 4. z_i(n) = q_i·e_n at whole positions, linear between them; p is clipped to the last of
    N. The table e [N, K] is of the layer, shared by its heads, and starts at zero, as in the
    authors' code. Only keys that the query sees are counted, so neither later tokens nor another
    document leak in; keys must stand in the order of their positions, as they do everywhere here.

    Options: `max_positions` N (64).
    """

    paper = "Golovneva et al. 2024"
    per_layer = True

    def __init__(
        self, dims: Dims, rngs: nnx.Rngs | None = None, *, max_positions: int = 64, **options
    ):
        super().__init__(dims, rngs, **options)
        self.max_positions = whole("max_positions", max_positions, at_least=1)
        self.table = nnx.Param(jnp.zeros((self.max_positions, dims.K), jnp.float32))

    def content(self, q, k, q_pos, k_pos, visible=None) -> jax.Array:
        q, k = q.astype(jnp.float32), k.astype(jnp.float32)
        root = np.float32(self.dims.K**-0.5)
        if visible is None:
            visible = k_pos[None, :] <= q_pos[:, None]  # [T, S]
        gates = jax.nn.sigmoid(jnp.einsum("thk,shk->hts", q, k) * root)
        gates = jnp.where(visible[None], gates, 0)
        counted = jax.lax.cumsum(gates, axis=2, reverse=True)  # from the key to the last one seen
        p = jnp.minimum(counted, self.max_positions - 1)  # [H, T, S]
        low = jnp.floor(p)
        z = jnp.einsum("thk,nk->htn", q, self.table[...])  # at whole positions
        rise = jnp.diff(z, axis=-1, append=z[..., -1:])  # to the next one; none after the last
        index = low.astype(jnp.int32)
        start = jnp.take_along_axis(z, index, axis=-1)
        slope = jnp.take_along_axis(rise, index, axis=-1)
        return (start + (p - low) * slope) * root
