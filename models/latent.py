"""Multi-head latent attention: the keys and values of all heads come from one small vector per
token, which is all that is cached, and positions stand on channels of their own.

DeepSeek-V2 (2024), section 2.1. Shapes: C channels of the latent, K of a head's content and of its
value, R of its decoupled position part.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from models.attention import attend
from models.carry import parts_of
from models.config import ModelConfig
from models.layers import Dense, Norm
from models.multihead import Cache, empty_cache, extend, of_last
from posenc import Scheme
from posenc.rope import RoPE


class Decoupled(Scheme):
    """A scheme as queries [T, H, content + R] meet it, whose keys have been through `key` before.

    Rotations turn the last R channels, so YaRN's temperature is theirs alone; any other scale of
    the query (log_n) acts on all of it.
    """

    def __init__(self, scheme: Scheme, R: int):
        self.scheme = scheme
        self.R = R
        self.sinks = scheme.sinks

    def query(self, q: jax.Array, pos: jax.Array) -> jax.Array:
        content, rotary = q[..., : -self.R], q[..., -self.R :]
        for part in parts_of(self.scheme):
            rotary = part.query(rotary, pos)
            content = content if isinstance(part, RoPE) else part.query(content, pos)
        return jnp.concatenate([content, rotary], axis=-1)

    def bias(self, q_pos: jax.Array, k_pos: jax.Array) -> jax.Array | None:
        return self.scheme.bias(q_pos, k_pos)

    def visible(self, q_pos: jax.Array, k_pos: jax.Array) -> jax.Array | None:
        return self.scheme.visible(q_pos, k_pos)

    def sink_positions(self, q_pos: jax.Array) -> jax.Array | None:
        return self.scheme.sink_positions(q_pos)


def turned(scheme: Scheme, rotary, positions) -> jax.Array:
    """The raw rotary key [B, S, R] as queries meet it, [B, S, 1, R]: one head that all share."""
    axes = (0, 0 if positions.ndim == 2 else None)
    return jax.vmap(scheme.key, in_axes=axes)(rotary[:, :, None], positions)


class LatentAttention(nnx.Module):
    """logits = (q_content·k_content + q_rotary·k_rotary)/√(K + R), k_rotary being one head that all share.

    Without a cache each head's keys and values are made from the latent (naive). With one, the
    matrices that would make them act on queries and outputs instead, and the H heads meet the
    latent itself as one key and one value (absorbed): the same numbers.
    """

    def __init__(self, rngs: nnx.Rngs, c: ModelConfig):
        D, H, K, C, R = c.d_model, c.num_heads, c.head_size, c.latent_size, c.rope_size
        self.config = c
        if c.query_latent_size:
            self.query_latent = Dense(rngs, D, c.query_latent_size)
            self.query_norm = Norm(c.query_latent_size)
        self.query = Dense(rngs, c.query_latent_size or D, H * (K + R))
        self.latent = Dense(rngs, D, C + R)
        self.latent_norm = Norm(C)
        self.key = Dense(rngs, C, H * K)
        self.value = Dense(rngs, C, H * K)
        self.out = Dense(rngs, H * K, D, std=(2 * c.num_layers * H * K) ** -0.5)

    def __call__(
        self, x, scheme: Scheme, positions, segments, block, cache: Cache | None, last=None
    ):
        """x [B, T, D] -> ([B, last or T, D], the cache with all T tokens or None)."""
        B, T, D = x.shape
        last = last or T
        q, latent, rotary = self.project(x)
        k_positions, k_segments = positions, segments
        if cache is not None:
            new = {"latent": latent, "rotary": rotary}
            cache, k_positions, k_segments = extend(cache, new, positions, segments)
            latent, rotary = cache["latent"], cache["rotary"]
        rotary = turned(scheme, rotary, k_positions)
        form = self.naive if cache is None else self.absorbed
        q, positions, segments = of_last(last, T, q, positions, segments)
        where = (positions, k_positions, segments, k_segments, block)
        y = form(Decoupled(scheme, self.config.rope_size), q, latent, rotary, where)
        return self.out(y.reshape(B * last, -1)).reshape(B, last, D), cache

    def operands(self, x, scheme: Scheme, positions):
        """What attention without a cache is given: the scheme as it meets q and k [B, T, H, K + R], v [B, T, H, K]."""
        q, latent, rotary = self.project(x)
        k, v = self.expand(latent, turned(scheme, rotary, positions))
        return Decoupled(scheme, self.config.rope_size), q, k, v

    def project(self, x):
        """Of x [B, T, D]: q [B, T, H, K + R], the normed latent [B, T, C], the raw rotary key [B, T, R]."""
        c = self.config
        B, T, D = x.shape
        H, K, C, R = c.num_heads, c.head_size, c.latent_size, c.rope_size
        rows = x.reshape(B * T, D)
        queries = self.query_norm(self.query_latent(rows)) if c.query_latent_size else rows
        q = self.query(queries).reshape(B, T, H, K + R)
        made = self.latent(rows)
        latent = self.latent_norm(made[:, :C]).reshape(B, T, C)
        return q, latent, made[:, C:].reshape(B, T, R)

    def naive(self, scheme: Scheme, q, latent, rotary, where) -> jax.Array:
        """Attention of keys and values made from the latent."""
        return attend(scheme, q, *self.expand(latent, rotary), *where)

    def expand(self, latent, rotary):
        """Keys [B, S, H, K + R] and values [B, S, H, K] of every head, from the latent [B, S, C]."""
        B, S, C = latent.shape
        H, K, R = self.config.num_heads, self.config.head_size, self.config.rope_size
        rows = latent.reshape(B * S, C)
        content = self.key(rows).reshape(B, S, H, K)
        v = self.value(rows).reshape(B, S, H, K)
        k = jnp.concatenate([content, jnp.broadcast_to(rotary, (B, S, H, R))], axis=-1)
        return k, v

    def absorbed(self, scheme: Scheme, q, latent, rotary, where) -> jax.Array:
        """Queries are taken to the latent's channels and outputs back from them: no key or value is made."""
        C = latent.shape[-1]
        H, K, R = self.config.num_heads, self.config.head_size, self.config.rope_size
        to_key, to_value = (
            w.kernel[...].astype(q.dtype).reshape(C, H, K) for w in (self.key, self.value)
        )
        content = jnp.einsum("bthk,chk->bthc", q[..., :K], to_key)
        # Attention divides by the root of the channels it sees, which are C + R here.
        q = jnp.concatenate([content, q[..., K:]], axis=-1) * ((C + R) / (K + R)) ** 0.5
        k = jnp.concatenate([latent[:, :, None], rotary], axis=-1)  # [B, S, 1, C + R]
        y = attend(scheme, q, k, latent[:, :, None], *where)  # [B, T, H, C]
        return jnp.einsum("bthc,chk->bthk", y, to_value)

    @staticmethod
    def init_cache(c: ModelConfig, batch: int, length: int) -> Cache:
        """Room for `length` tokens: of each the normed latent, and the raw rotary key that all heads share."""
        return empty_cache(
            {
                "latent": jnp.zeros((batch, length, c.latent_size), c.dtype),
                "rotary": jnp.zeros((batch, length, c.rope_size), c.dtype),
            }
        )
