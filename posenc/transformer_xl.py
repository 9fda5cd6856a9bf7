"""Transformer-XL's relative sinusoids, which are XLNet's as well: transformer_xl, xlnet."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from posenc.angles import angles
from posenc.base import Dims, Scheme


class TransformerXL(Scheme):
    """logit = [(q_i + u)·k_j + (q_i + v)·(W_R R_{i−j})]/√K, R_r = [sin(r·f), cos(r·f)].

    f_t = 10000^(−2t/D). Dai et al. 2019, "Transformer-XL: Attentive Language Models beyond a
    Fixed-Length Context", section 3.3. u and v [H, K] are drawn from N(0, 0.02²), and W_R [D, H, K]
    like the other dense kernels from N(0, 1/D); all three are of the layer (the authors' code
    shares u and v between layers and draws all from N(0, 0.02²)). Distances are not clamped.

    By the angle addition theorem R_{i−j} is R_{−j} with each pair turned by i·f. So W_R meets the
    query, the result [H, T, D] is turned by the query's position, and one product with the keys'
    sinusoids [S, D] gives every distance, at any positions: no table of distances, no gather.
    """

    paper = "Dai et al. 2019"
    extrapolates = True
    per_layer = True

    def __init__(self, dims: Dims, rngs: nnx.Rngs | None = None, **options):
        super().__init__(dims, rngs, **options)
        if dims.D % 2:
            raise ValueError(f"model.d_model={dims.D} must be even for sinusoids of distances")
        if rngs is None:
            raise ValueError("its parameters are drawn from rngs: give them")
        D, H, K = dims.D, dims.H, dims.K
        self.u = nnx.Param(0.02 * jax.random.normal(rngs.posenc(), (H, K), jnp.float32))
        self.v = nnx.Param(0.02 * jax.random.normal(rngs.posenc(), (H, K), jnp.float32))
        self.W_R = nnx.Param(D**-0.5 * jax.random.normal(rngs.posenc(), (D, H, K), jnp.float32))

    def sinusoids(self, pos: jax.Array) -> tuple[jax.Array, jax.Array]:
        """sin and cos of pos·f, float32 [P, D/2] each."""
        D = self.dims.D
        phase = angles(pos, 10000.0 ** (-np.arange(0, D, 2, dtype=np.float64) / D))
        return jnp.sin(phase), jnp.cos(phase)

    def content(self, q, k, q_pos, k_pos, visible=None) -> jax.Array:
        q, k = q.astype(jnp.float32), k.astype(jnp.float32)
        to_keys = jnp.einsum("hk,shk->hs", self.u[...], k)[:, None, :]  # [H, 1, S]
        moved = q + self.v[...][None]
        projected = jnp.einsum("thk,dhk->htd", moved, self.W_R[...])  # [H, T, D]
        of_sin, of_cos = jnp.split(projected, 2, axis=-1)
        (q_sin, q_cos), (k_sin, k_cos) = self.sinusoids(q_pos), self.sinusoids(k_pos)
        q_sin, q_cos = q_sin[None], q_cos[None]  # [1, T, D/2]
        # of_sin·sin(i − j) + of_cos·cos(i − j), sorted by what stands beside sin j and cos j
        pair = (of_cos * q_sin - of_sin * q_cos, of_sin * q_sin + of_cos * q_cos)
        turned = jnp.concatenate(pair, axis=-1)  # [H, T, D]
        features = jnp.concatenate([k_sin, k_cos], axis=-1)  # [S, D]
        to_distances = jnp.einsum("htd,sd->hts", turned, features)
        return (to_keys + to_distances) * np.float32(self.dims.K**-0.5)


class XLNet(TransformerXL):
    """Transformer-XL's formula, all that is left of XLNet's in a causal model of one segment.

    Yang et al. 2019, "XLNet: Generalized Autoregressive Pretraining for Language Understanding",
    sections 2.4 and 2.5. What XLNet adds cannot act here: its two streams serve orders other than
    left to right, and with one segment the segment term is the same for every key, which the
    softmax does not see. u and v are of the layer, as in the released models (`untie_r`).
    """

    paper = "Yang et al. 2019"
    extrapolates = True
