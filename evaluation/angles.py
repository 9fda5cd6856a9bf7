"""Which rotary pairs meet angles at a length that training never showed them."""

import jax.numpy as jnp
import numpy as np

from models.attention import visible
from models.carry import parts_of
from posenc import Scheme
from posenc.rope import RoPE

WHOLE_TURN = 2 * np.pi


def unseen_angles(trained: Scheme, asked: Scheme, trained_length: int, length: int) -> float | None:
    """The share of a layer's rotary pairs whose largest angle at `length` was never met in training.

    `trained` and `asked` are the layer's scheme as it was trained and as it is used, at their
    lengths. None where the layer rotates nothing, or where two of its parts do.

    In training the queries and keys of pair t stood at d·θ_t, d = 0 … L−1, L being one more than
    the largest distance that the mask let through. Taken modulo a turn, a pair with L·θ_t ≥ 2π has
    been all around: no angle is new to it, at any length. A slower pair knows [0, L·θ_t) only: its
    last angle is (L−1)·θ_t, and a point less than one token past it lies as near to a known one as
    points in between do. (So position interpolation by s at s·L, whose last distance falls on
    (sL−1)/s = L − 1/s, stays inside, as its paper says.) The pair leaves what it knows when its
    largest angle now, d·θ'_t at the largest distance that the mask lets through (ℓ−1 without a
    window), is L·θ_t or more. A pair that training did not turn, or whose channels it paired
    otherwise, knows the angle 0 alone.
    """
    new, old = rotation(asked), rotation(trained)
    if new is None:
        return None
    same_pairs = old is not None and (old.rotated, old.pairing) == (new.rotated, new.pairing)
    trained_frequencies = old.inverse_frequencies() if same_pairs else np.zeros(new.rotated // 2)
    known = (largest_distance(trained, trained_length) + 1) * trained_frequencies
    largest = largest_distance(asked, length) * new.inverse_frequencies()
    # 1e-9: a quotient that is L in exact numbers may be rounded to just below it.
    leaves = (known < WHOLE_TURN) & (largest > 0) & (largest >= known * (1 - 1e-9))
    return float(np.mean(leaves))


def rotation(scheme: Scheme) -> RoPE | None:
    """The one part that rotates, or None."""
    found = [part for part in parts_of(scheme) if isinstance(part, RoPE)]
    return found[0] if len(found) == 1 else None


def positions_in_use(scheme: Scheme, length: int) -> int:
    """How many different positions windows of `length` tokens stand at: more, where they are drawn."""
    return scheme.max_position if scheme.randomized else length


def largest_distance(scheme: Scheme, span: int) -> int:
    """The largest distance at which a query at position span − 1 meets a key."""
    query, keys = jnp.array([span - 1], jnp.int32), jnp.arange(span, dtype=jnp.int32)
    seen, window = visible(query, keys), scheme.visible(query, keys)
    seen = seen if window is None else seen & window
    to_sinks = scheme.sink_positions(query)
    stands = query if to_sinks is None else jnp.where(keys < scheme.sinks, to_sinks, query)
    return int(jnp.max(jnp.where(seen[0], stands - keys, 0)))
