"""Shaw: a trained vector per clipped distance, on the keys and on the values."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from posenc.base import Dims, Scheme, choice, whole


class Shaw(Scheme):
    """logit = q_i·(k_j + a^K_c)/√K and out_i = Σ_j w_ij (v_j + a^V_c), c = clip(j − i, −C, C).

    Shaw, Uszkoreit & Vaswani 2018, "Self-Attention with Relative Position Representations", eq. 3
    to 5. The two tables [2C + 1, K] are of the layer, shared by its heads, and drawn Glorot-uniform
    like Tensor2Tensor's; a causal model reaches only their rows for j ≤ i. All distances of C or
    more are one. Nothing of size [T, S, K] is made: the keys' side gathers from q·a^K
    [H, T, 2C + 1], and the values' side sums the weights of each row before they meet a^V.

    Options: `clip_distance` C (16); `values` (True): the values' side as well.
    """

    paper = "Shaw et al. 2018"
    extrapolates = True
    per_layer = True

    def __init__(
        self,
        dims: Dims,
        rngs: nnx.Rngs | None = None,
        *,
        clip_distance: int = 16,
        values: bool = True,
        **options,
    ):
        super().__init__(dims, rngs, **options)
        self.clip_distance = whole("clip_distance", clip_distance, at_least=1)
        self.values = choice("values", values, (True, False))
        if rngs is None:
            raise ValueError("its parameters are drawn from rngs: give them")
        draw = jax.nn.initializers.glorot_uniform()
        shape = (2 * self.clip_distance + 1, dims.K)
        self.key_table = nnx.Param(draw(rngs.posenc(), shape, jnp.float32))
        if self.values:
            self.value_table = nnx.Param(draw(rngs.posenc(), shape, jnp.float32))

    def rows(self, q_pos: jax.Array, k_pos: jax.Array) -> jax.Array:
        """The row of the tables that each pair reads, int32 [T, S]."""
        C = self.clip_distance
        return jnp.clip(k_pos[None, :] - q_pos[:, None], -C, C) + C

    def content(self, q, k, q_pos, k_pos, visible=None) -> jax.Array:
        scores = jnp.einsum("thk,rk->htr", q.astype(jnp.float32), self.key_table[...])
        rows = self.rows(q_pos, k_pos)
        return jnp.take_along_axis(scores, rows[None], axis=-1) * np.float32(self.dims.K**-0.5)

    def value(self, w: jax.Array, q_pos: jax.Array, k_pos: jax.Array) -> jax.Array | None:
        if not self.values:
            return None
        H, T, _ = w.shape
        table = self.value_table[...]
        heads, queries = jnp.arange(H)[:, None, None], jnp.arange(T)[None, :, None]
        sums = jnp.zeros((H, T, table.shape[0]), jnp.float32)
        sums = sums.at[heads, queries, self.rows(q_pos, k_pos)[None]].add(w)  # [H, T, 2C + 1]
        return jnp.einsum("htr,rk->thk", sums, table)
