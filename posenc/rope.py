"""Rotary positions and the scalings that change only their frequencies: rope, pi, dynamic_pi, ntk,
dynamic_ntk.

Notation: R rotated channels per head, pair t = 0 … R/2−1, base b, θ_t = b^(−2t/R) radians per
token, L the original training length, n the length at hand, s ≥ 1 the extension factor. The query
at i and the key at j are rotated by i·θ_t and j·θ_t, so their inner product depends on i − j only.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from posenc.angles import angles
from posenc.base import Dims, Scheme, choice, number, whole

# A rotary checkpoint holds no position parameter, so it can be read under any of these. (nope:
# rotation removed.)
ROPE_SWAPS = (
    *("nope", "rope", "pi", "dynamic_pi", "ntk", "dynamic_ntk", "ntk_by_parts"),
    *("yarn", "dynamic_yarn", "llama3", "longrope", "p_rope"),
)


def rotate(x: jax.Array, angles: jax.Array, scale: float | jax.Array, pairing: str) -> jax.Array:
    """Rotate channel pairs of x [T, H, K] by angles float32 [T, R/2] and multiply them by `scale`.

    `scale` is a number or float32 [T, R/2]. pairing "half": channels (t, t + R/2) (GPT-NeoX, Llama
    in Hugging Face); "interleaved": (2t, 2t+1) (RoFormer, GPT-J). Computed in float32; channels
    from R on pass unchanged, bit for bit.
    """
    R = 2 * angles.shape[-1]
    # The product with the identity changes nothing, but it is a step of its own: XLA would otherwise
    # compute the cosines again for every row, head and layer that they meet.
    table = jnp.concatenate([scale * jnp.cos(angles), scale * jnp.sin(angles)], axis=-1)
    table = jnp.dot(table, np.eye(R, dtype=np.float32), precision="highest")  # [T, R]
    cos, sin = table[:, None, : R // 2], table[:, None, R // 2 :]  # [T, 1, R/2]
    rotated = x[..., :R].astype(jnp.float32)
    if pairing == "half":
        a, b = rotated[..., : R // 2], rotated[..., R // 2 :]
    else:
        a, b = rotated[..., 0::2], rotated[..., 1::2]
    pair = (a * cos - b * sin, b * cos + a * sin)
    if pairing == "half":
        rotated = jnp.concatenate(pair, axis=-1)
    else:
        rotated = jnp.stack(pair, axis=-1).reshape(rotated.shape)
    rotated = rotated.astype(x.dtype)
    return rotated if R == x.shape[-1] else jnp.concatenate([rotated, x[..., R:]], axis=-1)


class RoPE(Scheme):
    """Rotary position embedding: θ_t = b^(−2t/R).

    Su et al. 2021, "RoFormer", eq. 34. Options: `base` b (10000); `rotary_fraction` (1): the first
    R = rotary_fraction·K channels are rotated, and R stands in the exponent; `pairing`: "half" or
    "interleaved".
    """

    paper = "Su et al. 2021"
    swaps = ROPE_SWAPS

    def __init__(
        self,
        dims: Dims,
        rngs: nnx.Rngs | None = None,
        *,
        base: float = 10000.0,
        rotary_fraction: float = 1.0,
        pairing: str = "half",
        **options,
    ):
        super().__init__(dims, rngs, **options)
        self.base = number("base", base, above=1)
        self.rotary_fraction = number("rotary_fraction", rotary_fraction, above=0)
        self.pairing = choice("pairing", pairing, ("half", "interleaved"))
        share = dims.K * self.rotary_fraction
        self.rotated = round(share)  # R
        if (
            share > dims.K
            or self.rotated % 2
            or self.rotated == 0
            or abs(share - self.rotated) > 1e-6
        ):
            raise ValueError(
                f"rotary_fraction={rotary_fraction} of a head size of {dims.K} rotates {share:g} "
                "channels; it must be an even number of them, at least 2 and at most the head size"
            )

    def plain_frequencies(self) -> np.ndarray:
        """θ_t before any scaling, radians per token, float64 [R/2]."""
        return self.base ** (-np.arange(0, self.rotated, 2, dtype=np.float64) / self.rotated)

    def inverse_frequencies(self) -> np.ndarray:
        """θ'_t as used at this length, radians per token, float64 [R/2]."""
        return self.plain_frequencies()

    @property
    def attention_factor(self) -> float | jax.Array:
        """What cosine and sine are multiplied by (so q·k by its square)."""
        return 1.0

    def angles(self, pos: jax.Array) -> jax.Array:
        """p·θ'_t at pos [T], radians, float32 [T, R/2]."""
        return angles(pos, self.inverse_frequencies())

    def query(self, q: jax.Array, pos: jax.Array) -> jax.Array:
        return rotate(q, self.angles(pos), self.attention_factor, self.pairing)

    def key(self, k: jax.Array, pos: jax.Array) -> jax.Array:
        return rotate(k, self.angles(pos), self.attention_factor, self.pairing)


class Extended(RoPE):
    """RoPE whose frequencies depend on the extension factor s; here s = max(1, n/L) for the length
    n at hand.

    The base of every scaling; used as it is by the dynamic ones. Keys are cached raw and rotated
    when read, so decoding agrees with a full forward at every length. Options: `original_length`:
    L, default the training length.
    """

    prefix_invariant = False

    def __init__(
        self,
        dims: Dims,
        rngs: nnx.Rngs | None = None,
        *,
        original_length: int | None = None,
        **options,
    ):
        super().__init__(dims, rngs, **options)
        L = dims.train_length if original_length is None else original_length
        self.original_length = whole("original_length", L, at_least=1)

    @property
    def scale(self) -> float:
        """s, the extension factor in use at this length; 1 means plain RoPE."""
        return max(1.0, self.length / self.original_length)


class Factored(Extended):
    """Adds the option `factor`: a number, or "auto" = max(1, n/L). s = max(1, factor), so s ≤ 1 is plain RoPE."""

    def __init__(
        self,
        dims: Dims,
        rngs: nnx.Rngs | None = None,
        *,
        factor: float | str = "auto",
        **options,
    ):
        self.factor = factor if factor == "auto" else number("factor", factor, above=0)
        super().__init__(dims, rngs, **options)
        self.prefix_invariant = self.factor != "auto" and not self.randomized

    @property
    def scale(self) -> float:
        return super().scale if self.factor == "auto" else max(1.0, self.factor)

    def idle(self, longest: int) -> str | None:
        if self.factor == "auto" or self.factor > 1 or longest <= self.original_length:
            return None
        return f"factor={self.factor:g} is plain rope at every length"


class DynamicPI(Extended):
    """Position interpolation by the length at hand: θ'_t = θ_t/max(1, n/L)."""

    paper = "Chen et al. 2023"
    extrapolates = True

    def inverse_frequencies(self) -> np.ndarray:
        return self.plain_frequencies() / self.scale


class PI(Factored, DynamicPI):
    """Position interpolation: θ'_t = θ_t/s, that is, positions divided by s.

    Chen et al. 2023, "Extending Context Window of Large Language Models via Positional
    Interpolation", eq. 4. Meant to be followed by a short fine-tune at the longer length. Options:
    `factor`.
    """

    paper = "Chen et al. 2023"
    extrapolates = True


def ntk_base(base: float, scale: float, R: int) -> float:
    """b' = b·s^(R/(R−2)): the first pair keeps its frequency, the last is divided by exactly s."""
    return base * scale ** (R / (R - 2))


class NTK(Factored):
    """NTK-aware scaling: the base becomes b·s^(R/(R−2)).

    bloc97 2023; YaRN paper, eq. 16. The highest frequency is kept and the lowest interpolated by s;
    as some pairs are still extrapolated, a factor above the true ratio of lengths often serves
    better.
    """

    paper = "bloc97 2023"
    extrapolates = True

    def __init__(self, dims: Dims, rngs: nnx.Rngs | None = None, **options):
        super().__init__(dims, rngs, **options)
        check_ntk(self)

    def inverse_frequencies(self) -> np.ndarray:
        base = ntk_base(self.base, self.scale, self.rotated)
        return base ** (-np.arange(0, self.rotated, 2, dtype=np.float64) / self.rotated)


class DynamicNTK(Extended):
    """NTK-aware scaling by the length at hand: b' = b·(f·n̂/L − (f − 1))^(R/(R−2)), n̂ = max(n, L).

    emozilla 2023; Hugging Face `dynamic`. One base serves every token of a sequence, so row i
    depends on n. Options: `factor` is f (1).
    """

    paper = "emozilla 2023"
    extrapolates = True

    def __init__(self, dims: Dims, rngs: nnx.Rngs | None = None, *, factor: float = 1.0, **options):
        super().__init__(dims, rngs, **options)
        self.factor = number("factor", factor, above=0)
        check_ntk(self)

    @property
    def scale(self) -> float:
        return self.factor * super().scale - (self.factor - 1.0)

    inverse_frequencies = NTK.inverse_frequencies


def check_ntk(scheme: RoPE) -> None:
    if scheme.rotated == 2:
        raise ValueError(
            f"rotary_fraction={scheme.rotary_fraction} rotates 2 channels, and NTK's exponent R/(R−2) then divides by "
            "zero; rotate at least 4"
        )
