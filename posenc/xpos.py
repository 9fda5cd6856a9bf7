"""xPos: rotary positions whose pairs decay with distance, the slow ones less."""

import copy
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from posenc.base import Dims, LengthError, number
from posenc.rope import RoPE, rotate

# In multiples of scale_base: at the ends of so long a sequence the powers of ζ reach 1e±35, and
# float32 has just room for q and k besides.
SPANS = 128


class XPos(RoPE):
    """RoPE with pair t of q times ζ_t^(p/B), of k times ζ_t^(−p/B); q·k decays as ζ_t^((i − j)/B).

    ζ_t = (2t + γR)/((1 + γ)R). Sun et al. 2022, "A Length-Extrapolatable Transformer",
    algorithm 1, in the half-split pairing of this family (theirs is `pairing=interleaved`). The
    logits depend on differences of positions only, so `at_length(n)` counts p from n/2, which keeps
    both powers within float32 up to n = 128·B tokens (65,536); longer ones are refused. Logits of
    keys in the future grow instead, at long range to infinity: a mask must replace them.

    Options: `scale_base` B (512), tokens; `gamma` γ (0.4): the smaller, the faster the decay.
    """

    paper = "Sun et al. 2023"
    extrapolates = True
    swaps = ()  # trained weights expect the decay: no plain rotation is the same function

    def __init__(
        self,
        dims: Dims,
        rngs: nnx.Rngs | None = None,
        *,
        scale_base: float = 512.0,
        gamma: float = 0.4,
        **options,
    ):
        self.scale_base = number("scale_base", scale_base, above=0)
        self.gamma = number("gamma", gamma, above=0)
        super().__init__(dims, rngs, **options)
        self.check_length(dims.train_length)

    def decay(self) -> np.ndarray:
        """ζ_t, by which pair t of q·k shrinks in `scale_base` tokens of distance, float64 [R/2]."""
        R = self.rotated
        return (np.arange(0, R, 2) + self.gamma * R) / ((1 + self.gamma) * R)

    def powers(self, pos: jax.Array) -> jax.Array:
        """ζ_t^((p − centre)/B) at pos [T], float32 [T, R/2]."""
        span = self.max_position if self.randomized else self.length  # positions are below this
        spans = (pos.astype(jnp.float32) - span / 2) / self.scale_base  # [T]
        return jnp.exp(spans[:, None] * np.log(self.decay()).astype(np.float32)[None, :])

    def query(self, q: jax.Array, pos: jax.Array) -> jax.Array:
        return rotate(q, self.angles(pos), self.powers(pos), self.pairing)

    def key(self, k: jax.Array, pos: jax.Array) -> jax.Array:
        return rotate(k, self.angles(pos), 1 / self.powers(pos), self.pairing)

    def check_length(self, n: int) -> None:
        super().check_length(n)
        span = self.max_position if self.randomized else n
        if span > SPANS * self.scale_base:
            raise LengthError(
                f"scale_base={self.scale_base:g} reaches {SPANS * self.scale_base:g} tokens in "
                f"float32, not {span}; raise scale_base"
            )

    def at_length(self, n: int) -> Self:
        # The logits do not depend on n, but the centre of the powers does, which the base class
        # would leave where it is.
        self.check_length(n)
        other = copy.copy(self)
        other.length = n
        return other
