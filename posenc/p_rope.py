"""p-RoPE: only the fastest of the frequencies rotate."""

import math

import numpy as np
from flax import nnx

from posenc.base import Dims, number
from posenc.rope import RoPE


class PRoPE(RoPE):
    """θ_t = b^(−2t/K) for the ⌊p·K/2⌋ fastest pairs; 0 for the others, which carry content alone.

    Barbero et al. 2024, "Round and Round We Go! What makes Rotary Positional Encodings useful?",
    section 6. p = 1 is RoPE and p = 0 is NoPE, both bit for bit. Not the same as `rotary_fraction`,
    whose exponent runs over the rotated channels only and which pairs other channels: that option
    is refused here. Options: `p` (0.25), `base`, `pairing`.
    """

    paper = "Barbero et al. 2025"

    def __init__(self, dims: Dims, rngs: nnx.Rngs | None = None, *, p: float = 0.25, **options):
        super().__init__(dims, rngs, **options)
        if self.rotary_fraction != 1:
            raise ValueError(
                f"rotary_fraction={self.rotary_fraction:g} does not go with p_rope, whose p says "
                "how many pairs rotate; remove it"
            )
        self.p = number("p", p, at_least=0)
        if self.p > 1:
            raise ValueError(f"p={p!r} must be at most 1, the share of the pairs that rotate")

    def inverse_frequencies(self) -> np.ndarray:
        pairs = self.rotated // 2
        rotating = math.floor(self.p * pairs + 1e-9)  # 0.58·50 is 29, in binary too
        return np.where(np.arange(pairs) < rotating, self.plain_frequencies(), 0.0)
