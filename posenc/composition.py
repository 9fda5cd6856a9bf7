"""Several schemes acting together."""

import functools

import jax
import jax.numpy as jnp
from flax import nnx

from posenc.base import Scheme


class Composition(Scheme):
    """Several schemes acting together: `rope+log_n`. Each hook is applied in turn; terms are summed."""

    def __init__(self, parts: dict[str, Scheme]):
        self.parts = nnx.Dict(parts)
        schemes = tuple(parts.values())
        self.dims = schemes[0].dims
        randomized = [s for s in schemes if s.randomized]
        if len(randomized) > 1:
            raise ValueError("positions=randomized may stand on one part of a composition only")
        self.randomized = bool(randomized)
        self.max_position = randomized[0].max_position if randomized else 2048
        self.relative = all(s.relative for s in schemes)
        self.prefix_invariant = all(s.prefix_invariant for s in schemes)
        self.max_length = min((s.max_length for s in schemes if s.max_length), default=None)
        self.per_layer = any(s.per_layer for s in schemes)
        self.sinks = max(s.sinks for s in schemes)
        self.swaps = ()

    def embed(self, x: jax.Array, pos: jax.Array) -> jax.Array:
        for scheme in self.parts.values():
            x = scheme.embed(x, pos)
        return x

    def query(self, q: jax.Array, pos: jax.Array) -> jax.Array:
        for scheme in self.parts.values():
            q = scheme.query(q, pos)
        return q

    def key(self, k: jax.Array, pos: jax.Array) -> jax.Array:
        for scheme in self.parts.values():
            k = scheme.key(k, pos)
        return k

    def bias(self, q_pos: jax.Array, k_pos: jax.Array) -> jax.Array | None:
        return total(scheme.bias(q_pos, k_pos) for scheme in self.parts.values())

    def content(self, q, k, q_pos, k_pos, visible=None) -> jax.Array | None:
        return total(s.content(q, k, q_pos, k_pos, visible) for s in self.parts.values())

    def value(self, w: jax.Array, q_pos: jax.Array, k_pos: jax.Array) -> jax.Array | None:
        return total(scheme.value(w, q_pos, k_pos) for scheme in self.parts.values())

    def visible(self, q_pos: jax.Array, k_pos: jax.Array) -> jax.Array | None:
        seen = [s.visible(q_pos, k_pos) for s in self.parts.values()]
        seen = [mask for mask in seen if mask is not None]
        return functools.reduce(jnp.logical_and, seen) if seen else None

    def sink_positions(self, q_pos: jax.Array) -> jax.Array | None:
        found = (scheme.sink_positions(q_pos) for scheme in self.parts.values())
        return next((positions for positions in found if positions is not None), None)

    def idle(self, longest: int) -> str | None:
        return next(filter(None, (s.idle(longest) for s in self.parts.values())), None)

    def at_length(self, n: int) -> "Composition":
        return Composition({name: scheme.at_length(n) for name, scheme in self.parts.items()})


def total(terms) -> jax.Array | None:
    """The sum of the terms that are not None, or None."""
    present = [term for term in terms if term is not None]
    return sum(present[1:], present[0]) if present else None


def overrides(scheme: Scheme, hook: str) -> bool:
    """Whether the scheme (any part of a composition) acts through this hook."""
    if isinstance(scheme, Composition):
        return any(overrides(part, hook) for part in scheme.parts.values())
    return getattr(type(scheme), hook) is not getattr(Scheme, hook)
