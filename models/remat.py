"""Activations recomputed in the backward pass instead of kept, in a form that every XLA backend honours."""

from collections.abc import Callable

import jax
import jax.numpy as jnp


def recomputed(f: Callable) -> Callable:
    """`f` with a gradient that keeps its arguments alone and computes the rest again (Chen et al. 2016).

    All that is differentiated must be an argument of `f`: arrays, modules, or trees of them.
    """

    @jax.custom_vjp
    def run(*args):
        return f(*args)

    def forward(*args):
        return f(*args), args

    def backward(args, g):
        # jax.checkpoint keeps the two computations apart by optimisation barriers, which XLA's CPU
        # backend in jaxlib 0.10 removes before it merges equal computations; every activation is
        # then kept after all. A dependence on the cotangent cannot be removed.
        first = jax.tree.leaves(g)[0].reshape(-1)[0]
        _, vjp = jax.vjp(f, *jax.tree.map(lambda a: after(first, a), args))
        return vjp(g)

    run.defvjp(forward, backward)
    return run


def after(first: jax.Array, a: jax.Array) -> jax.Array:
    """`a`, known only once the number `first` is; NaN where that is NaN, as all that follows is then."""
    if not jnp.issubdtype(a.dtype, jnp.floating):
        return a
    return jnp.where(first == first, a, jnp.asarray(jnp.nan, a.dtype))
