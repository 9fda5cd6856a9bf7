"""Segment recurrence: caches that keep the last tokens of a document from one segment to the next.

Transformer-XL (Dai et al. 2019, section 3.2), in evaluation. A layer's cache has room for the memory
and one segment; reading the segment fills it, and `shift` then lets the oldest tokens go. Keys are
raw, so whoever reads a segment says anew at which positions the memory stands.
"""

import jax
import jax.numpy as jnp

from models.multihead import EMPTY, Cache
from models.transformer import Transformer


def begin(model: Transformer, batch: int, length: int, segment: int) -> list[Cache]:
    """For each layer `length` empty slots, the last `segment` of them for the segment to be read."""
    used = jnp.asarray(length - segment, jnp.int32)
    return [layer | {"used": used} for layer in model.init_cache(batch, length)]


def reset(cache: Cache, rows: jax.Array) -> Cache:
    """The cache with nothing in the rows where bool [B] is True."""

    def emptied(name: str, a: jax.Array) -> jax.Array:
        chosen = rows.reshape(-1, *(1,) * (a.ndim - 1))
        return jnp.where(chosen, jnp.asarray(_filler(name), a.dtype), a)

    return {name: a if name == "used" else emptied(name, a) for name, a in cache.items()}


def held(cache: Cache) -> jax.Array:
    """Tokens in each row's memory, int32 [B]; they stand right before the segment's slots."""
    return jnp.sum(cache["segments"] != EMPTY, axis=1, dtype=jnp.int32)


def shift(cache: Cache, segment: int) -> Cache:
    """The cache without its `segment` oldest slots, and as many empty ones behind the rest."""

    def moved(name: str, a: jax.Array) -> jax.Array:
        room = jnp.full((a.shape[0], segment, *a.shape[2:]), _filler(name), a.dtype)
        return jnp.concatenate([a[:, segment:], room], axis=1)

    kept = {name: moved(name, a) for name, a in cache.items() if name != "used"}
    return kept | {"used": cache["used"] - segment}


def _filler(name: str) -> int:
    return EMPTY if name == "segments" else 0
