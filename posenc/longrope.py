"""LongRoPE: a divisor of its own for every frequency, found by search."""

import math
from collections.abc import Sequence

import numpy as np
from flax import nnx

from posenc.base import Dims, number
from posenc.rope import Factored


class LongRoPE(Factored):
    """θ'_t = θ_t/ρ_t, ρ being `short_factor` up to L tokens and `long_factor` beyond.

    Ding et al. 2024, "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens", with the
    two lists of its released models, and their temperature: cosine and sine times
    √(1 + ln s/ln L), 1 at s ≤ 1. The lists act at every s, and the length at hand says which: keys
    are cached raw, so decoding past L agrees with a full forward. The search for the lists is not
    here, nor the first tokens that the paper leaves as they are.

    Options: `short_factor`, `long_factor` (required): R/2 positive numbers each, fastest pair
    first; `factor`: s, read by the temperature only, a number, which then holds at every length,
    or "auto" = max(1, n/L); `attention_factor` replaces the temperature; `original_length`: L.
    """

    paper = "Ding et al. 2024"
    extrapolates = True

    def __init__(
        self,
        dims: Dims,
        rngs: nnx.Rngs | None = None,
        *,
        short_factor: Sequence[float] | None = None,
        long_factor: Sequence[float] | None = None,
        attention_factor: float | None = None,
        **options,
    ):
        super().__init__(dims, rngs, **options)
        self.prefix_invariant = False  # whatever s is, the lists switch at L
        self.short_factor = divisors("short_factor", short_factor, self.rotated // 2)
        self.long_factor = divisors("long_factor", long_factor, self.rotated // 2)
        self.given_attention_factor = (
            None
            if attention_factor is None
            else number("attention_factor", attention_factor, above=0)
        )
        if self.original_length < 2:
            raise ValueError(
                f"original_length={self.original_length} must be at least 2: the temperature has "
                "ln L in its denominator"
            )

    @property
    def attention_factor(self) -> float:
        if self.given_attention_factor is not None:
            return self.given_attention_factor
        return math.sqrt(1.0 + math.log(self.scale) / math.log(self.original_length))

    def idle(self, longest: int) -> None:
        """Never: its lists act at every factor."""

    def inverse_frequencies(self) -> np.ndarray:
        far = self.length > self.original_length
        return self.plain_frequencies() / np.array(self.long_factor if far else self.short_factor)


def divisors(option: str, value, pairs: int) -> tuple[float, ...]:
    """The option as `pairs` positive numbers; ValueError naming it otherwise."""
    listed = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
    if not listed or len(value) != pairs:
        got = f"{len(value)} of them" if listed else repr(value)
        raise ValueError(
            f"{option} must list {pairs} numbers, one for each rotated pair, as in "
            f"{option}=1/1.05/1.2; got {got}"
        )
    return tuple(number(f"{option}[{t}]", rho, above=0) for t, rho in enumerate(value))
