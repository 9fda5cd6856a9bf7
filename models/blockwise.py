"""Work along the tokens of a batch in blocks, forward and backward, so that no pass holds more than one
block's intermediate results.

Attention goes through here in blocks of query rows, the vocabulary's loss and, with
`model.remat`, the feed-forward layers in blocks of tokens. The forward pass keeps its operands alone;
the backward pass makes each block again and sums what it says of parameters and keys in float32.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from models.remat import after

Tree = Any


def in_blocks(function: Callable, block: int, rows: Tree, shared: Tree) -> Tree:
    """`function`(rows, shared), applied to `block` tokens of `rows` at a time.

    rows: arrays [B, T, …], or positions [T] that the batch shares. shared: what every block meets
    whole, arrays and modules. The function's results are arrays [B, t, …] of its t tokens, here
    put together.
    """
    return worked(function, block, shared, rows)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def worked(function, block, shared, rows):
    first = next(a for a in jax.tree.leaves(rows) if differentiable(a)).reshape(-1)[0]

    def one(carry, chunk):
        return carry, function(chunk, shared)

    return along(one, first, block, (), rows)[1]


def forward(function, block, shared, rows):
    return worked(function, block, shared, rows), (shared, rows)


def backward(function, block, saved, g):
    shared, rows = saved
    to_sum, rejoin_shared = floats(shared)
    floating, rejoin_rows = floats(rows)
    first = jax.tree.leaves(g)[0].reshape(-1)[0]

    def one(sums, chunk):
        floating, rows, g = chunk

        def out(to_sum, floating):
            return function(rejoin_rows(floating, rows), rejoin_shared(to_sum))

        _, vjp = jax.vjp(out, to_sum, floating)
        to_shared, to_rows = vjp(g)
        return [s + a.astype(jnp.float32) for s, a in zip(sums, to_shared, strict=True)], to_rows

    sums = [begun(first, a.shape, jnp.float32) for a in to_sum]
    sums, to_rows = along(one, first, block, sums, (floating, rows, g))
    sums = [s.astype(a.dtype) for s, a in zip(sums, to_sum, strict=True)]
    return rejoin_shared(sums, None), rejoin_rows(to_rows, None)


worked.defvjp(forward, backward)


def along(step: Callable, first: jax.Array, block: int, carry: Tree, rows: Tree):
    """`step`(carry, chunk) -> (carry, results) over the chunks of `rows`; the last carry, and the results
    put together along the tokens."""
    T = max(a.shape[token_axis(a)] for a in jax.tree.leaves(rows))
    count, rest = divmod(T, block)

    def cut(start, size):
        return jax.tree.map(
            lambda a: jax.lax.dynamic_slice_in_dim(a, start, size, token_axis(a)), rows
        )

    def put(whole, part, start):
        return jax.tree.map(
            lambda w, p: jax.lax.dynamic_update_slice_in_dim(w, p, start, 1), whole, part
        )

    def body(number, so_far):
        carry, results = so_far
        carry, part = step(carry, cut(number * block, block))
        return carry, put(results, part, number * block)

    shapes = jax.eval_shape(lambda carry: step(carry, cut(0, block))[1], carry)
    results = jax.tree.map(lambda s: begun(first, (s.shape[0], T, *s.shape[2:]), s.dtype), shapes)
    carry, results = jax.lax.fori_loop(0, count, body, (carry, results))
    if rest:
        carry, part = step(carry, cut(count * block, rest))
        results = put(results, part, count * block)
    return carry, results


def begun(first: jax.Array, shape: tuple, dtype) -> jax.Array:
    """Zeros that are there only once the number `first` is: XLA would lay out the zeros of every layer at
    the start of a step, and keep them until they are needed."""
    zero = after(first.astype(jnp.float32), jnp.zeros((), jnp.float32))
    return jnp.broadcast_to(zero.astype(dtype), shape)


def token_axis(a: jax.Array) -> int:
    return min(1, a.ndim - 1)


def differentiable(a) -> bool:
    return jnp.issubdtype(a.dtype, jnp.floating)


def floats(tree: Tree) -> tuple[list, Callable]:
    """The floating-point leaves of a tree, and what puts such a list back among the others."""
    leaves, treedef = jax.tree.flatten(tree)

    def rejoin(some: list, others: Tree = tree) -> Tree:
        rest = [None] * len(leaves) if others is None else jax.tree.leaves(others)
        given = iter(some)
        mixed = [
            next(given) if differentiable(a) else other
            for a, other in zip(leaves, rest, strict=True)
        ]
        return jax.tree.unflatten(treedef, mixed)

    return [a for a in leaves if differentiable(a)], rejoin
