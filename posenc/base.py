"""What a position scheme is: the hooks it may override, and the claims it makes.

    tokens -> embed(x, pos) --> blocks:  q --> query(q, q_pos) --.
                                         k --> key(k, k_pos) ----+--> q·k/√K + content(q, k, q_pos,
                                         k_pos)
                                                                         + bias(q_pos, k_pos) ->
                                                                         mask -> softmax = w
                                                                   w·v + value(w, q_pos, k_pos)

Hooks see one sequence; attention maps them over the batch. Shapes everywhere: T query positions, S
key positions, D model width, H query heads, G key/value heads, K head size. Positions are int32 [T]
or [S] and come from outside: no hook counts rows, so one row against a cache is the same
computation as a whole sequence.
"""

import copy
import dataclasses
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx


class LengthError(ValueError):
    """A scheme is not defined at the length or position asked for (a learned table past its end)."""


@dataclasses.dataclass(frozen=True)
class Dims:
    """The sizes a scheme is built for.

    D model width; H query heads; K head size; train_length L in tokens; G key/value heads (default
    H).
    """

    D: int
    H: int
    K: int
    train_length: int
    G: int | None = None

    def __post_init__(self):
        if self.G is None:
            object.__setattr__(self, "G", self.H)
        for field in dataclasses.fields(self):
            whole(f"Dims.{field.name}", getattr(self, field.name), at_least=1)
        if self.H % self.G:
            raise ValueError(f"Dims.G={self.G} must divide Dims.H={self.H}")


class Scheme(nnx.Module):
    """A position scheme that does nothing anywhere; the others override where they act.

    Options of every scheme: `positions`, "arange" or "randomized" (Ruoss et al. 2023: sorted
    distinct draws from [0, max_position)), and `max_position` (default 2048; only with randomized
    positions).
    """

    # Claims, verified numerically by the tests. Read them from an instance: options can change
    # them.
    per_layer: ClassVar[bool] = False  # own parameters in each block
    relative: bool = (
        True  # shifting every position by a constant, at a fixed at_length, changes nothing
    )
    prefix_invariant: bool = True  # row i never depends on the total length
    max_length: int | None = None  # tokens a learned table reaches; None: any length
    swaps: tuple[str, ...] = ()  # scheme names that this one's checkpoints may be evaluated as
    paper: ClassVar[str] = ""  # where it comes from
    sinks: int = 0  # first positions that every query sees, whatever its window
    extrapolates: ClassVar[bool] = False  # made to be used past L: its paper's claim, not a figure

    def __init__(
        self,
        dims: Dims,
        rngs: nnx.Rngs | None = None,
        *,
        positions: str = "arange",
        max_position: int | None = None,
    ):
        del rngs  # schemes with parameters draw them from rngs.posenc
        self.dims = dims
        self.length = dims.train_length  # n, until at_length says otherwise
        self.randomized = choice("positions", positions, ("arange", "randomized")) == "randomized"
        if max_position is not None and not self.randomized:
            raise ValueError(
                f"max_position={max_position} is read only with positions=randomized; remove it"
            )
        self.max_position = whole("max_position", 2048 if max_position is None else max_position, 1)
        if self.randomized:
            self.prefix_invariant = False
            self.check_length(dims.train_length)

    def positions(self, T: int, key: jax.Array | None = None) -> jax.Array:
        """Positions of T tokens, int32 [T], increasing. Randomised ones are a function of `key`.

        Without a key, randomised positions are one fixed draw (that of `jax.random.key(0)`).
        """
        if not self.randomized:
            return jnp.arange(T, dtype=jnp.int32)
        self.check_length(T)
        key = jax.random.key(0) if key is None else key
        drawn = jax.random.permutation(key, self.max_position)[:T]
        return jnp.sort(drawn).astype(jnp.int32)

    def embed(self, x: jax.Array, pos: jax.Array) -> jax.Array:
        """Token embeddings x [T, D], already scaled by √D, at pos [T] -> [T, D]."""
        return x

    def query(self, q: jax.Array, pos: jax.Array) -> jax.Array:
        """Queries q [T, H, K] at pos [T] -> [T, H, K], same dtype."""
        return q

    def key(self, k: jax.Array, pos: jax.Array) -> jax.Array:
        """Keys k [S, G, K] at pos [S] -> [S, G, K], same dtype."""
        return k

    def bias(self, q_pos: jax.Array, k_pos: jax.Array) -> jax.Array | None:
        """What is added to the logits whatever the tokens: float32 [H, T, S], or None."""
        return None

    def content(
        self,
        q: jax.Array,
        k: jax.Array,
        q_pos: jax.Array,
        k_pos: jax.Array,
        visible: jax.Array | None = None,
    ) -> jax.Array | None:
        """What is added to the logits depending on raw q [T, H, K] and k [S, H, K]: float32 [H, T,
        S], or None.

        `visible` is bool [T, S], the mask attention will apply (default k_pos <= q_pos).
        """
        return None

    def value(self, w: jax.Array, q_pos: jax.Array, k_pos: jax.Array) -> jax.Array | None:
        """What is added to w·v, from attention weights w float32 [H, T, S]: float32 [T, H, K], or None."""
        return None

    def visible(self, q_pos: jax.Array, k_pos: jax.Array) -> jax.Array | None:
        """Which keys a query may see besides being no later than it: bool [T, S], or None for all."""
        return None

    def sink_positions(self, q_pos: jax.Array) -> jax.Array | None:
        """Where queries stand for the keys before `sinks`, int32 [T], or None for where they are."""
        return None

    def at_length(self, n: int) -> Self:
        """This scheme for sequences of n tokens in all. Pure: a function of the options and n
        alone.

        Raises LengthError where the scheme is not defined at n.
        """
        self.check_length(n)
        if self.prefix_invariant:
            return self
        other = copy.copy(self)
        other.length = n
        return other

    def idle(self, longest: int) -> str | None:
        """Why the options given change nothing at any length up to `longest`, or None if they do."""
        return None

    def check_length(self, n: int) -> None:
        """Raise LengthError when sequences of n tokens are beyond what the scheme defines."""
        whole("length", n, at_least=1)
        if self.max_length is not None and n > self.max_length:
            raise LengthError(
                f"length {n} is past the end of the learned table: max_length={self.max_length}"
            )
        if self.randomized and n > self.max_position:
            raise LengthError(
                f"length {n} needs {n} distinct randomized positions: max_position={self.max_position}"
            )

    def check_positions(self, pos: jax.Array) -> None:
        """Raise LengthError for concrete positions outside [0, max_length); traced ones cannot be read."""
        if self.max_length is None or isinstance(pos, jax.core.Tracer) or pos.size == 0:
            return
        known = np.asarray(pos)  # numpy's: inside a trace jax's would trace even these
        low, high = int(known.min()), int(known.max())
        if low < 0 or high >= self.max_length:
            outside = low if low < 0 else high
            raise LengthError(
                f"position {outside} is outside the learned table: 0 to {self.max_length - 1}"
            )


def number(option: str, value, above: float | None = None, at_least: float | None = None) -> float:
    """The option as a finite float within its range; ValueError naming it otherwise."""
    limit = f" above {above:g}" if above is not None else ""
    limit += f" of at least {at_least:g}" if at_least is not None else ""
    fits = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    fits = fits and np.isfinite(value)
    fits = fits and (above is None or value > above) and (at_least is None or value >= at_least)
    if not fits:
        raise ValueError(f"{option}={value!r} must be a number{limit}")
    return float(value)


def whole(option: str, value, at_least: int) -> int:
    """The option as an int of at least `at_least`; ValueError naming it otherwise."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < at_least:
        raise ValueError(f"{option}={value!r} must be a whole number of at least {at_least}")
    return int(value)


def choice(option: str, value, choices: tuple):
    """The option if it is one of the choices; ValueError naming it and them otherwise."""
    if value not in choices or isinstance(value, bool) != isinstance(choices[0], bool):
        raise ValueError(f"{option}={value!r} must be one of {', '.join(map(str, choices))}")
    return value
