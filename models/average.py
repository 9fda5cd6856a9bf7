"""Values averaged with softmax weights, with a gradient of its own that keeps less and passes over it fewer times.

The derivative that JAX makes keeps the normalised weights and the mask's choice, [T, S] each, and
walks over [T, S] arrays several times more. With e = exp(logits − row maximum), o = Σ e·v / Σ e and
the cotangent g of o,

    ∂/∂logit_ts = e_ts/Σe · (g_t·v_s − g_t·o_t),    ∂/∂v_s = Σ_t e_ts/Σe · g_t

where g_t·o_t, [T], stands for the sum over keys that softmax's own derivative takes (FlashAttention,
Dao et al. 2022, section 3.1, eq. 4). Derivatives are backward only: `jax.jvp` through it is refused.
"""

import jax
import jax.numpy as jnp


@jax.custom_vjp
def average(logits: jax.Array, v: jax.Array) -> jax.Array:
    """softmax(logits)·v: logits float32 [H, T, S], v [S, G, V] -> float32 [T, H, V].

    Each of the G value heads serves H/G heads in turn. The product is taken in v's dtype and summed
    in float32.
    """
    return forward(logits, v)[0]


def forward(logits, v):
    H, T, S = logits.shape
    G, V = v.shape[1:]
    e = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
    share = 1 / jnp.sum(e, axis=-1)  # [H, T]
    e = e.astype(v.dtype).reshape(G, H // G * T, S)
    out = jnp.matmul(e, v.swapaxes(0, 1), preferred_element_type=jnp.float32)
    out = (out.reshape(H, T, V) * share[..., None]).swapaxes(0, 1)
    return out, (e, share, v, out)


def backward(saved, g):
    e, share, v, out = saved
    G, rows, S = e.shape
    T, H, V = g.shape
    g = g * share.T[..., None]  # [T, H, V]
    along = jnp.sum(g * out, axis=-1).T.reshape(G, rows, 1)
    g = g.astype(v.dtype).swapaxes(0, 1).reshape(G, rows, V)
    to_weights = jnp.matmul(g, v.transpose(1, 2, 0), preferred_element_type=jnp.float32)
    to_values = jnp.matmul(e.swapaxes(1, 2), g, preferred_element_type=jnp.float32)  # [G, S, V]
    return (e * (to_weights - along)).reshape(H, T, S), to_values.swapaxes(0, 1).astype(v.dtype)


average.defvjp(forward, backward)
