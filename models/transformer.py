"""A pre-norm decoder whose position scheme is one field, and whose attention kind is another:
RMSNorm, SwiGLU or GELU, no biases.

Shapes: B batch, T tokens, D model width, H query heads, G key/value heads, K head size, F
feed-forward width, V vocabulary, N layers. Parameters are float32 and are cast to the compute dtype
where they are used. Dense layers see tokens flattened to [B·T, D]: XLA's CPU backward pass of a
rank-3 dense layer is up to 2.5 times slower.
"""

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import nnx

from models.config import ModelConfig
from models.latent import LatentAttention
from models.layers import Dense, Norm, dropout
from models.linear import LinearAttention
from models.multihead import Cache, MultiHeadAttention
from models.remat import recomputed
from posenc import Composition, Scheme, create_layers

# model.attention -> its module; models/carry.py says which schemes each can carry.
KINDS = {"softmax": MultiHeadAttention, "latent": LatentAttention, "linear": LinearAttention}


class FeedForward(nnx.Module):
    """SwiGLU (Shazeer 2020) or GELU, D -> F -> D."""

    def __init__(self, rngs: nnx.Rngs, c: ModelConfig):
        self.activation = c.activation
        if c.activation == "swiglu":
            self.gate = Dense(rngs, c.d_model, c.d_ff)
        self.up = Dense(rngs, c.d_model, c.d_ff)
        self.down = Dense(rngs, c.d_ff, c.d_model, std=(2 * c.num_layers * c.d_ff) ** -0.5)

    def __call__(self, x: jax.Array) -> jax.Array:
        if self.activation == "swiglu":
            return self.down(jax.nn.silu(self.gate(x)) * self.up(x))
        return self.down(jax.nn.gelu(self.up(x)))


class Block(nnx.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x))."""

    def __init__(self, rngs: nnx.Rngs, c: ModelConfig, own: Mapping[str, Scheme]):
        self.dropout = c.dropout
        self.attention_norm = Norm(c.d_model)
        self.attention = KINDS[c.attention](rngs, c)
        self.feed_forward_norm = Norm(c.d_model)
        self.feed_forward = FeedForward(rngs, c)
        self.posenc = nnx.Dict(own)

    def __call__(self, x, shared, positions, segments, key, block, cache, last=None):
        """x [B, T, D] -> ([B, last or T, D], the cache with all T tokens or None). `key`: dropout, or None."""
        keys = (None, None) if key is None else jax.random.split(key)
        scheme = compose({**shared, **self.posenc})
        y = self.attention_norm(x)
        y, cache = self.attention(y, scheme, positions, segments, block, cache, last)
        x = x[:, x.shape[1] - y.shape[1] :] + dropout(y, self.dropout, keys[0])
        B, T, D = x.shape
        y = self.feed_forward(self.feed_forward_norm(x).reshape(B * T, D)).reshape(B, T, D)
        return x + dropout(y, self.dropout, keys[1]), cache


class Transformer(nnx.Module):
    """Tokens to logits. `position` is a spec of `posenc.create`; parameters of shared schemes live
    in `posenc.NAME`, those of per-layer schemes in `blocks.i.posenc.NAME`, so a composition with a
    parameter-free part keeps their names.
    """

    def __init__(self, c: ModelConfig, rngs: nnx.Rngs):
        self.config = c
        self.embedding = nnx.Param(
            c.d_model**-0.5 * jax.random.normal(rngs.params(), (c.vocab_size, c.d_model))
        )
        # Position parameters come from a stream of their own: every other weight is the same under
        # every scheme.
        layers = create_layers(c.position, c.dims, c.num_layers, rngs)
        self.posenc = nnx.Dict(layers.shared)
        self.layer_posenc = layers.names
        self.blocks = nnx.List(Block(rngs, c, own) for own in layers.own)
        self.norm = Norm(c.d_model)
        if not c.tie_embeddings:
            self.head = Dense(rngs, c.d_model, c.vocab_size)

    @property
    def scheme(self) -> Scheme:
        """Every part that acts in any layer, together: its claims hold for the model."""
        own = {name: part for block in self.blocks for name, part in block.posenc.items()}
        return compose({**self.posenc, **own})

    def at_length(self, n: int) -> "Transformer":
        """The same parameters under the scheme `at_length(n)`; LengthError where it is not defined."""
        graph, params = nnx.split(self)
        model = nnx.merge(graph, params)
        for holder in (model, *model.blocks):
            holder.posenc = nnx.Dict({k: s.at_length(n) for k, s in holder.posenc.items()})
        return model

    def __call__(
        self,
        tokens: jax.Array,
        positions: jax.Array | None = None,
        segments: jax.Array | None = None,
        *,
        key: jax.Array | None = None,
        block: int | None = None,
        cache: list[Cache] | None = None,
    ):
        """Logits float32 [B, T, V] of the token after each of `tokens` int32 [B, T].

        positions: int32 [T], or [B, T] for rows of their own; default those of the scheme.
        segments: int32 [B, T]; a token sees only its own segment. key: turns dropout on. block:
        query rows per attention block. cache: from `init_cache`; then the result is (logits, the
        cache with these tokens).
        """
        x, new = self.hidden(tokens, positions, segments, key=key, block=block, cache=cache)
        B, T, D = x.shape
        logits = self.logits(x.reshape(B * T, D)).reshape(B, T, self.config.vocab_size)
        return logits if cache is None else (logits, new)

    def hidden(
        self, tokens, positions=None, segments=None, *, key=None, block=None, cache=None, last=None
    ):
        """What the logits are made of, [B, T, D], and the caches; the arguments are those of a call.

        With `last`, that of the last so many tokens alone, [B, last, D]: the last layer then asks
        nothing for the others.
        """
        c = self.config
        B, T = tokens.shape
        if cache is not None:
            if positions is None:
                raise ValueError("with a cache, give the positions of the new tokens")
            segments = jnp.zeros((B, T), jnp.int32) if segments is None else segments
        if positions is None:
            positions = self.scheme.positions(T)
        x = self.embed(tokens, positions)
        keys = (
            [None] * (c.num_layers + 1) if key is None else jax.random.split(key, c.num_layers + 1)
        )
        x = dropout(x, c.dropout, keys[-1])
        caches = [None] * c.num_layers if cache is None else cache
        new = []
        rows = [None] * (c.num_layers - 1) + [last]
        layers = zip(self.blocks, self.layer_posenc, keys[:-1], caches, rows, strict=True)
        for module, names, layer_key, layer_cache, kept in layers:
            shared = {name: self.posenc[name] for name in names}
            args = (module, x, shared, positions, segments, layer_key, layer_cache)
            run = functools.partial(run_block, block, kept)
            x, layer_cache = (recomputed(run) if c.remat else run)(*args)
            new.append(layer_cache)
        return self.norm(x), new

    def logits(self, x: jax.Array) -> jax.Array:
        """Logits float32 [P, V] of what `hidden` made of P tokens, [P, D]."""
        return head_logits(x, self.head_matrix())

    def head_matrix(self) -> jax.Array:
        """What turns the last layer's result into logits, [D, V]."""
        return self.embedding[...].T if self.config.tie_embeddings else self.head.kernel[...]

    def embed(self, tokens: jax.Array, positions: jax.Array) -> jax.Array:
        """What the first block gets, [B, T, D], of tokens [B, T] at positions [T] or [B, T]."""
        dtype = jnp.dtype(self.config.dtype)
        x = self.embedding[...].astype(dtype)[tokens]
        x = x * jnp.asarray(self.config.d_model**0.5, dtype)
        for scheme in self.posenc.values():
            rows = (0, 0 if positions.ndim == 2 else None)
            x = jax.vmap(scheme.embed, in_axes=rows)(x, positions)
        return x

    def layer_schemes(self) -> list[Scheme]:
        """The scheme that acts in each block."""
        layers = zip(self.layer_posenc, self.blocks, strict=True)
        return [
            compose({**{name: self.posenc[name] for name in names}, **block.posenc})
            for names, block in layers
        ]

    def init_cache(self, batch: int, length: int) -> list[Cache]:
        """Room for `length` tokens per layer, in whatever form the attention kind keeps them."""
        c = self.config
        kind = KINDS[c.attention]
        return [kind.init_cache(c, batch, length) for _ in range(c.num_layers)]


def run_block(block, last, module: Block, x, shared, positions, segments, key, cache):
    return module(x, shared, positions, segments, key, block, cache, last)


def compose(parts: Mapping[str, Scheme]) -> Scheme:
    parts = dict(parts)
    return next(iter(parts.values())) if len(parts) == 1 else Composition(parts)


def head_logits(x: jax.Array, head: jax.Array) -> jax.Array:
    """x [P, D], head [D, V] -> float32 [P, V]."""
    return jnp.matmul(x, head.astype(x.dtype), preferred_element_type=jnp.float32)
