"""The small layers that every part of the model is made of."""

import jax
import jax.numpy as jnp
from flax import nnx


class Norm(nnx.Module):
    """RMSNorm (Zhang & Sennrich 2019) of x [..., D], computed in float32."""

    def __init__(self, D: int):
        self.scale = nnx.Param(jnp.ones(D, jnp.float32))

    def __call__(self, x: jax.Array) -> jax.Array:
        x32 = x.astype(jnp.float32)
        rms = jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + 1e-6)
        scale = self.scale[...].reshape((1,) * (x.ndim - 1) + (-1,))
        return (x32 * rms * scale).astype(x.dtype)


class Dense(nnx.Module):
    """y = x·W for x [B·T, inputs]; W is drawn from N(0, std²), std defaulting to inputs^−½."""

    def __init__(self, rngs: nnx.Rngs, inputs: int, outputs: int, std: float | None = None):
        std = inputs**-0.5 if std is None else std
        self.kernel = nnx.Param(std * jax.random.normal(rngs.params(), (inputs, outputs)))

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.kernel[...].astype(x.dtype)


def dropout(x: jax.Array, rate: float, key: jax.Array | None) -> jax.Array:
    """x with entries dropped at `rate` and the rest scaled up; x itself without a key."""
    if key is None or rate == 0:
        return x
    keep = jax.random.bernoulli(key, 1 - rate, x.shape)
    return jnp.where(keep, x / (1 - rate), 0).astype(x.dtype)
