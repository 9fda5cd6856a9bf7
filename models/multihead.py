"""Grouped-query attention: its projections, and the cache of raw keys that any position scheme can be read from."""

import jax
import jax.numpy as jnp
from flax import nnx

from models.attention import attend
from models.config import ModelConfig
from models.layers import Dense
from posenc import Scheme

Cache = dict[str, jax.Array]
EMPTY = -1  # the segment of cache slots that hold nothing yet: no token belongs to it


class MultiHeadAttention(nnx.Module):
    """H query heads over G key/value heads (Ainslie et al. 2023); H = G is plain multi-head attention."""

    def __init__(self, rngs: nnx.Rngs, c: ModelConfig):
        D, H, G, K = c.d_model, c.num_heads, c.num_kv_heads, c.head_size
        self.config = c
        self.query = Dense(rngs, D, H * K)
        self.key = Dense(rngs, D, G * K)
        self.value = Dense(rngs, D, G * K)
        self.out = Dense(rngs, H * K, D, std=(2 * c.num_layers * H * K) ** -0.5)

    def operands(self, x, scheme: Scheme, positions):
        """What attention without a cache is given: the scheme, q [B, T, H, K], raw k and v [B, T, G, K]."""
        B, T, D = x.shape
        H, G, K = self.config.num_heads, self.config.num_kv_heads, self.config.head_size
        rows = x.reshape(B * T, D)
        q = self.query(rows).reshape(B, T, H, K)
        k = self.key(rows).reshape(B, T, G, K)
        v = self.value(rows).reshape(B, T, G, K)
        return scheme, q, k, v

    def __call__(
        self, x, scheme: Scheme, positions, segments, block, cache: Cache | None, last=None
    ):
        """x [B, T, D] -> ([B, last or T, D], the cache with all T tokens or None)."""
        B, T, D = x.shape
        last = last or T
        _, q, k, v = self.operands(x, scheme, positions)
        k_positions, k_segments = positions, segments
        if cache is not None:
            new = {"k": k, "v": v}
            cache, k_positions, k_segments = extend(cache, new, positions, segments)
            k, v = cache["k"], cache["v"]
        q, positions, segments = of_last(last, T, q, positions, segments)
        y = attend(scheme, q, k, v, positions, k_positions, segments, k_segments, block)
        return self.out(y.reshape(B * last, -1)).reshape(B, last, D), cache

    @staticmethod
    def init_cache(c: ModelConfig, batch: int, length: int) -> Cache:
        """Room for `length` tokens of raw keys and values."""
        shape = (batch, length, c.num_kv_heads, c.head_size)
        return empty_cache({"k": jnp.zeros(shape, c.dtype), "v": jnp.zeros(shape, c.dtype)})


def of_last(last: int, T: int, q, positions, segments):
    """q [B, T, …], positions [T] or [B, T] and segments [B, T] or None, of the last rows of T."""
    segments = segments if segments is None else segments[:, T - last :]
    return q[:, T - last :], positions[..., T - last :], segments


def empty_cache(arrays: dict[str, jax.Array]) -> Cache:
    """A cache of arrays [B, S, …] that hold nothing yet, with each slot's position and segment."""
    batch, length = next(iter(arrays.values())).shape[:2]
    return {
        **arrays,
        "positions": jnp.zeros((batch, length), jnp.int32),
        "segments": jnp.full((batch, length), EMPTY, jnp.int32),
        "used": jnp.zeros((), jnp.int32),
    }


def extend(cache: Cache, new: dict[str, jax.Array], positions, segments):
    """Write T new tokens behind those a layer's cache holds.

    Returns the cache, and the positions and segments of all its slots.
    """
    B, T = segments.shape
    start = cache["used"]
    # A slice update past the end would be moved back over older keys without a word: let it be NaN instead.
    fits = start + T <= cache["positions"].shape[1]
    new = {name: jnp.where(fits, a, jnp.nan) for name, a in new.items()}
    new |= {"positions": jnp.broadcast_to(positions, (B, T)), "segments": segments}
    written = {
        name: jax.lax.dynamic_update_slice_in_dim(
            cache[name], a.astype(cache[name].dtype), start, 1
        )
        for name, a in new.items()
    }
    written["used"] = start + T
    return written, written["positions"], written["segments"]
