"""The frequency scaling of the Llama 3.1 models."""

import numpy as np
from flax import nnx

from posenc.base import Dims, number
from posenc.rope import Factored
from posenc.yarn import check_turns, keep_by_turns, mix


class Llama3(Factored):
    """Wavelengths below L/hf keep θ_t, above L/lf get θ_t/s; between, (1 − m)·θ_t/s + m·θ_t.

    m = (L/λ_t − lf)/(hf − lf), λ_t = 2π/θ_t: linear in the number of turns, so this is NTK-by-parts
    with other bounds. No temperature. Grattafiori et al. 2024, "The Llama 3 Herd of Models", whose
    released code has the formula (there L = 8192, s = 8, base 500,000).

    Options: `low_freq_factor` lf (1), `high_freq_factor` hf (4), in turns within L tokens;
    `factor`; `original_length`.
    """

    paper = "Grattafiori et al. 2024"
    extrapolates = True

    def __init__(
        self,
        dims: Dims,
        rngs: nnx.Rngs | None = None,
        *,
        low_freq_factor: float = 1.0,
        high_freq_factor: float = 4.0,
        **options,
    ):
        super().__init__(dims, rngs, **options)
        self.low_freq_factor = number("low_freq_factor", low_freq_factor, above=0)
        self.high_freq_factor = number("high_freq_factor", high_freq_factor, above=0)
        check_turns(self, "low_freq_factor", "high_freq_factor")

    def inverse_frequencies(self) -> np.ndarray:
        return mix(self, keep_by_turns(self, "low_freq_factor", "high_freq_factor"))
