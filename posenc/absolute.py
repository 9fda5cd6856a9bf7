"""Schemes that act on the embeddings, or nowhere: nope, sinusoidal, learned."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from posenc.angles import angles
from posenc.base import Dims, Scheme, choice, number


class NoPE(Scheme):
    """No position information at all; order is seen only through the causal mask.

    Kazemnejad et al. 2023, "The Impact of Positional Encoding on Length Generalization".
    """

    paper = "Kazemnejad et al. 2023"
    swaps = ("log_n",)


class Sinusoidal(Scheme):
    """PE(p)[2t] = sin(p·b^(−2t/D)), PE(p)[2t+1] = cos(same), added to the scaled token embeddings.

    Vaswani et al. 2017, section 3.5, in the interleaved layout of the paper. Defined at every
    position. Options: `base` b (10000); `factor` s (1): positions are divided by it, which is
    position interpolation (Chen et al. 2023), a number of at least 1, or "auto" = max(1, n/L).
    """

    paper = "Vaswani et al. 2017"
    relative = False

    def __init__(
        self,
        dims: Dims,
        rngs: nnx.Rngs | None = None,
        *,
        base: float = 10000.0,
        factor: float | str = 1.0,
        **options,
    ):
        super().__init__(dims, rngs, **options)
        if dims.D % 2:
            raise ValueError(f"model.d_model={dims.D} must be even for sinusoidal positions")
        self.base = number("base", base, above=1)
        self.factor = factor if factor == "auto" else number("factor", factor, at_least=1)
        self.prefix_invariant = self.factor != "auto" and not self.randomized

    @property
    def scale(self) -> float | None:
        """s, the extension factor in use at this length; None for plain sinusoids, which have none."""
        if self.factor == "auto":
            return max(1.0, self.length / self.dims.train_length)
        return None if self.factor == 1 else self.factor

    def frequencies(self) -> np.ndarray:
        """Radians per position of each sine/cosine pair, float64 [D/2]."""
        plain = self.base ** (-np.arange(0, self.dims.D, 2, dtype=np.float64) / self.dims.D)
        return plain / (self.scale or 1.0)

    def embed(self, x: jax.Array, pos: jax.Array) -> jax.Array:
        phase = angles(pos, self.frequencies())  # [T, D/2]
        table = jnp.stack([jnp.sin(phase), jnp.cos(phase)], axis=-1)  # [T, D/2, 2]
        return x + table.reshape(pos.shape[0], self.dims.D).astype(x.dtype)


class Learned(Scheme):
    """A trained vector per position, added to the scaled token embeddings; undefined past its
    table.

    Gehring et al. 2017 / Radford et al. 2018. The table has L = train_length rows (max_position
    rows with randomized positions), initialised N(0, 1), the scale of the scaled token embeddings.
    Longer sequences raise LengthError: JAX would silently clamp the index and give a plausible,
    meaningless curve.

    Options: `extend="interpolate"`: at n > L row p reads the table at p·L/n, linearly between rows
    and clamped to the last (position interpolation for a learned table); then no length is refused.
    """

    paper = "Gehring et al. 2017"
    relative = False

    def __init__(
        self, dims: Dims, rngs: nnx.Rngs | None = None, *, extend: str | None = None, **options
    ):
        super().__init__(dims, rngs, **options)
        self.extend = choice("extend", extend, (None, "interpolate"))
        rows = self.max_position if self.randomized else dims.train_length
        if self.extend is None:
            self.max_length = rows
        elif self.randomized:
            raise ValueError("extend=interpolate does not go with positions=randomized")
        else:
            self.prefix_invariant = False
        if rngs is None:
            raise ValueError("learned positions have parameters: give rngs")
        self.table = nnx.Param(jax.random.normal(rngs.posenc(), (rows, dims.D), jnp.float32))

    def embed(self, x: jax.Array, pos: jax.Array) -> jax.Array:
        self.check_positions(pos)
        table = self.table[...]  # [rows, D]
        rows = table.shape[0]
        if self.extend == "interpolate" and self.length > rows:
            where = jnp.clip(pos.astype(jnp.float32) * np.float32(rows / self.length), 0, rows - 1)
            low = jnp.floor(where).astype(jnp.int32)
            part = (where - low)[:, None]  # [T, 1]
            vectors = table[low] * (1 - part) + table[jnp.minimum(low + 1, rows - 1)] * part
        else:
            # Traced positions cannot be refused: out of range they become NaN, never a neighbour's
            # row.
            gather = table.at[pos]
            vectors = gather.get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)
        return x + vectors.astype(x.dtype)
