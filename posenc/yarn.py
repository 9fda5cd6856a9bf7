"""Frequencies interpolated by parts, and YaRN, which adds a temperature.

Schemes: ntk_by_parts, yarn, dynamic_yarn.

Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models". Notation as
in rope.py.
"""

import math

import numpy as np
from flax import nnx

from posenc.base import Dims, choice, number
from posenc.rope import Extended, Factored


class NTKByParts(Factored):
    """Fast pairs keep θ_t, slow ones get θ_t/s, those between a mixture linear in their turns.

    θ'_t = (1 − γ)·θ_t/s + γ·θ_t, γ(r) = (r − α)/(β − α) clipped to [0, 1], r = L·θ_t/2π the turns
    within L tokens. No temperature. bloc97 2023; Peng et al. 2023, eq. 17-20. (The three-way
    mixture of that name in the authors' first code is another one.)

    Options: `beta_fast` β (32), `beta_slow` α (1); `factor`.
    """

    paper = "Peng et al. 2023"
    extrapolates = True

    def __init__(
        self,
        dims: Dims,
        rngs: nnx.Rngs | None = None,
        *,
        beta_fast: float = 32.0,
        beta_slow: float = 1.0,
        **options,
    ):
        super().__init__(dims, rngs, **options)
        self.beta_fast = number("beta_fast", beta_fast, above=0)
        self.beta_slow = number("beta_slow", beta_slow, above=0)
        check_turns(self)

    def inverse_frequencies(self) -> np.ndarray:
        return mix(self, keep_by_turns(self))


class YaRNFrequencies(Extended):
    """Fast pairs keep θ_t, slow ones get θ_t/s, a ramp between; cosine and sine times 0.1·ln s + 1.

    Options: `beta_fast` (32) and `beta_slow` (1): the turns in L tokens above which a pair is kept
    and below which it is interpolated. `ramp="index"`: linear in the pair index between the two
    bounds, rounded outwards when `truncate` (True), which is what the authors' code and every
    published checkpoint use; `ramp="wavelength"`: linear in the number of turns, the paper's eq.
    18. `attention_factor` replaces 0.1·ln s + 1 (eq. 22) entirely, also at s ≤ 1.
    """

    def __init__(
        self,
        dims: Dims,
        rngs: nnx.Rngs | None = None,
        *,
        beta_fast: float = 32.0,
        beta_slow: float = 1.0,
        ramp: str = "index",
        truncate: bool | None = None,
        attention_factor: float | None = None,
        **options,
    ):
        super().__init__(dims, rngs, **options)
        self.ramp = choice("ramp", ramp, ("index", "wavelength"))
        if truncate is not None and self.ramp == "wavelength":
            raise ValueError(
                f"truncate={truncate} is read only with ramp=index; remove it or the ramp"
            )
        self.truncate = True if truncate is None else choice("truncate", truncate, (True, False))
        self.given_attention_factor = (
            None
            if attention_factor is None
            else number("attention_factor", attention_factor, above=0)
        )
        self.beta_fast = number("beta_fast", beta_fast, above=0)
        self.beta_slow = number("beta_slow", beta_slow, above=0)
        check_turns(self)
        if self.ramp == "index":
            self.index_bounds()

    @property
    def attention_factor(self) -> float:
        if self.given_attention_factor is not None:
            return self.given_attention_factor
        return 0.1 * math.log(self.scale) + 1.0

    def index_bounds(self) -> tuple[float, float]:
        """The pair indices between which the index ramp rises from 0 (keep) to 1 (interpolate)."""

        def index(turns: float) -> float:  # the pair that makes `turns` full turns in L tokens
            ratio = self.original_length / (2 * math.pi * turns)
            return self.rotated * math.log(ratio) / (2 * math.log(self.base))

        low, high = index(self.beta_fast), index(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        # The upper clamp is R − 1, not R/2 − 1, in the authors' code and in every loader of its
        # checkpoints.
        low, high = max(low, 0), min(high, self.rotated - 1)
        if high < low:
            raise ValueError(
                f"base={self.base:g} with original_length={self.original_length}: every pair makes more than "
                f"beta_fast={self.beta_fast:g} turns, so there is nothing to interpolate; raise base"
            )
        return low, high + 0.001 if low == high else high

    def keep(self) -> np.ndarray:
        """The share of θ_t that is kept rather than interpolated, in [0, 1], float64 [R/2]."""
        if self.ramp == "index":
            low, high = self.index_bounds()
            return 1 - np.clip((np.arange(self.rotated // 2) - low) / (high - low), 0, 1)
        return keep_by_turns(self)

    def inverse_frequencies(self) -> np.ndarray:
        return mix(self, self.keep())


class YaRN(Factored, YaRNFrequencies):
    """YaRN with a fixed factor, or the smallest that reaches the length at hand. Options: `factor`, and the above."""

    paper = "Peng et al. 2023"
    extrapolates = True


class DynamicYaRN(YaRNFrequencies):
    """YaRN with s = max(1, n/L) of the length at hand, whatever that is; it has no `factor`.

    Peng et al. 2023, section 3.4 ("dynamic scaling"): frequencies and temperature are those of n
    for every token.
    """

    paper = "Peng et al. 2023"
    extrapolates = True


def mix(scheme: Extended, keep: np.ndarray) -> np.ndarray:
    """θ_t where `keep` is 1, θ_t/s where it is 0, float64 [R/2]; exactly θ_t at s = 1."""
    theta = scheme.plain_frequencies()
    return theta / scheme.scale * (1 - keep) + theta * keep if scheme.scale > 1 else theta


def keep_by_turns(scheme: Extended, slow: str = "beta_slow", fast: str = "beta_fast") -> np.ndarray:
    """γ(r) of YaRN eq. 18, float64 [R/2]: 0 at `slow` turns in L tokens or fewer, 1 at `fast` or
    more, linear between. Both are names of options.
    """
    low, high = getattr(scheme, slow), getattr(scheme, fast)
    turns = scheme.original_length * scheme.plain_frequencies() / (2 * np.pi)
    return np.clip((turns - low) / (high - low), 0, 1)


def check_turns(scheme: Extended, slow: str = "beta_slow", fast: str = "beta_fast") -> None:
    """Refuse bounds for which the ramp is undefined or runs the wrong way."""
    low, high = getattr(scheme, slow), getattr(scheme, fast)
    if high <= low:
        raise ValueError(f"{fast}={high:g} must be above {slow}={low:g}")
    shortest = 2 * math.pi * max(1.0, low)
    if scheme.original_length < shortest:
        raise ValueError(
            f"original_length={scheme.original_length} is below {shortest:.4g} "
            f"(2π·max(1, {slow})): not even the fastest pair turns so often in it"
        )
