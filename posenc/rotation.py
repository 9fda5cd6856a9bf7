"""The rotary family with its numbers as arrays, so that one compiled program serves every scaling."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from posenc.angles import steps, turned
from posenc.base import Scheme
from posenc.rope import RoPE

# Where a scheme can act or decide; one that overrides any of them beyond RoPE is more than a rotation.
HOOKS = (
    *("positions", "embed", "query", "key", "angles", "bias", "content", "value"),
    *("visible", "sink_positions"),
)


def is_rotation(scheme: Scheme) -> bool:
    """Whether it only turns queries and keys, by frequencies and an attention factor of its own."""
    return isinstance(scheme, RoPE) and all(
        getattr(type(scheme), hook) is getattr(RoPE, hook) for hook in HOOKS
    )


class Rotation(RoPE):
    """A rotation (`is_rotation`) as it acts at its length, the same function of arrays for all of them.

    The static part is that of every scheme of one pairing and rotated size, so what is compiled for
    one of them is compiled for all. It stands in for a scheme once that is final; it has no
    options, no length, and cannot be trained.
    """

    def __init__(self, scheme: RoPE):
        self.dims = dataclasses.replace(scheme.dims, train_length=1)
        self.pairing, self.rotated = scheme.pairing, scheme.rotated
        self.randomized, self.max_position = scheme.randomized, scheme.max_position
        # int32 [R/2], units of 2^−32 turns per token; float32 []
        self.steps = nnx.Param(jnp.asarray(steps(scheme.inverse_frequencies())))
        self.factor = nnx.Param(jnp.asarray(np.float32(scheme.attention_factor)))

    @property
    def attention_factor(self) -> jax.Array:
        return self.factor[...]

    def angles(self, pos: jax.Array) -> jax.Array:
        return turned(pos, self.steps[...])
