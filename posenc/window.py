"""A sliding window, with or without attention sinks, as a part of any composition."""

import jax
import jax.numpy as jnp
from flax import nnx

from posenc.base import Dims, Scheme, choice, whole


class Window(Scheme):
    """Query i sees the `size` keys i − size + 1 … i, and the first `sinks` positions.

    Beltagy et al. 2020 (sliding window); Xiao et al. 2024, "Efficient Streaming Language Models with Attention Sinks".
    Owns no parameters, so any checkpoint can be read with it: `rope+window:size=64,sinks=4`. Options: `size`, tokens;
    `sinks` (0); `streaming` (False; only with sinks): sinks stand where they would in StreamingLLM's cache, at most
    size + sinks − 1 tokens back, so that no distance is new to a model trained at that length.
    """

    paper = "Beltagy et al. 2020"
    extrapolates = True
    swaps = ("nope",)

    def __init__(
        self,
        dims: Dims,
        rngs: nnx.Rngs | None = None,
        *,
        size: int | None = None,
        sinks: int = 0,
        streaming: bool | None = None,
        **options,
    ):
        super().__init__(dims, rngs, **options)
        if size is None:
            raise ValueError("size is missing: the tokens a query sees, itself included")
        self.size = whole("size", size, at_least=1)
        self.sinks = whole("sinks", sinks, at_least=0)
        if streaming is not None and not self.sinks:
            raise ValueError(f"streaming={streaming} is read only with sinks; remove it")
        self.streaming = streaming is not None and choice("streaming", streaming, (True, False))
        self.relative = self.sinks == 0

    def idle(self, longest: int) -> str | None:
        return f"size={self.size} shows every key up to {longest}" if self.size >= longest else None

    def visible(self, q_pos: jax.Array, k_pos: jax.Array) -> jax.Array:
        near = k_pos[None, :] > q_pos[:, None] - self.size
        return near | (k_pos[None, :] < self.sinks)

    def sink_positions(self, q_pos: jax.Array) -> jax.Array | None:
        if not self.streaming:
            return None
        return jnp.minimum(q_pos, self.size + self.sinks - 1)
