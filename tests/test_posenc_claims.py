"""The claims of every registered scheme, verified numerically."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from oracles.comparison import hook_weights
from oracles.registered import (
    CASES,
    EVERY,
    PER_LAYER,
    REQUIRED,
    D,
    G,
    H,
    K,
    L,
    N,
    arange,
    create,
    every_case,
    every_scheme,
    far,
    inputs,
    scheme_for,
)

import posenc


@every_case
def test_relative_is_what_it_says(case):
    """Every position moved by a constant, at a fixed length: the same weights, or not."""
    scheme = scheme_for(case)
    bounded = scheme.max_length is not None
    scheme = far(scheme, 64)
    T, shift = N, 7 if bounded else 40
    x = inputs(T, T)[0]
    here, there = (hook_weights(scheme, x, arange(s, s + T), H, K) for s in (0, shift))
    moved = float(jnp.max(jnp.abs(here - there)))
    if scheme.relative:
        assert moved < 2e-5
    else:
        assert moved > 1e-3


@every_case
def test_prefix_invariant_is_what_it_says(case):
    """A row's weights at length n and at 2n: the same, or not."""
    scheme = scheme_for(case)
    if scheme.randomized:
        assert not scheme.prefix_invariant  # the positions themselves depend on the length
        return
    n = L if scheme.max_length is None else scheme.max_length // 2
    x, pos = inputs(N, N)[0], arange(n - N, n)
    short, long = (hook_weights(scheme.at_length(m), x, pos, H, K) for m in (n, 2 * n))
    moved = float(jnp.max(jnp.abs(short - long)))
    if scheme.prefix_invariant:
        assert moved < 2e-5
    else:
        assert moved > 1e-3


@every_case
def test_at_length_is_pure(case):
    """In any order a length gives what it gives a fresh scheme; the original never changes."""
    scheme = scheme_for(case)
    x, pos = inputs(N, N)[0], arange(L - N, L)
    if scheme.max_length is not None:
        with pytest.raises(ValueError, match="max_length|length"):
            scheme.at_length(scheme.max_length + 1)
    limit = scheme.max_length or 4 * L
    weights = functools.partial(hook_weights, x=x, pos=pos, H=H, K=K)
    untouched = weights(scheme)
    np.testing.assert_array_equal(untouched, weights(scheme.at_length(L)))
    reused = scheme
    for n in (2 * L, L - 1, L, L + 1, 4 * L):
        if n > limit:
            continue
        fresh = create(case[0], **case[1]).at_length(n)
        reused = reused.at_length(n)
        np.testing.assert_array_equal(weights(reused), weights(fresh))
    np.testing.assert_array_equal(weights(scheme), untouched)


@every_case
def test_parameters_are_all_the_state(case):
    scheme = scheme_for(case)
    for path, leaf in nnx.to_flat_state(nnx.state(scheme)):
        assert isinstance(leaf, nnx.Param), path
        assert leaf[...].dtype == jnp.float32, path
    assert jax.tree.leaves(nnx.state(scheme, nnx.Not(nnx.Param))) == []


@every_case
def test_positions(case):
    scheme = scheme_for(case)
    for T in (1, 7, L):
        pos = scheme.positions(T, jax.random.key(3))
        assert pos.shape == (T,) and pos.dtype == jnp.int32
        assert np.all(np.diff(pos) > 0) and pos[0] >= 0
    if not scheme.randomized:
        np.testing.assert_array_equal(scheme.positions(L), np.arange(L))


@every_case
def test_claims_are_plain_values(case):
    scheme = scheme_for(case)
    assert all(isinstance(getattr(scheme, c), bool) for c in ("relative", "prefix_invariant"))
    assert scheme.per_layer == any(p.split(":")[0] in PER_LAYER for p in case[0].split("+"))
    assert isinstance(scheme.swaps, tuple) and set(scheme.swaps) <= set(EVERY)


@every_scheme
def test_class_claims_hold_for_default_options(name):
    scheme, cls = scheme_for(CASES[EVERY.index(name)]), posenc.SCHEMES[name]
    for claim in ("per_layer", "relative", "prefix_invariant", "swaps"):
        assert getattr(cls, claim) == getattr(scheme, claim), claim
    assert scheme.max_length == (L if name == "learned" else None)


@every_scheme
def test_swaps_share_every_parameter(name):
    """A checkpoint of this scheme fills the other's parameters exactly."""
    scheme = scheme_for(CASES[EVERY.index(name)])

    def tree(scheme):
        return {p: v[...].shape for p, v in nnx.to_flat_state(nnx.state(scheme))}

    for other in scheme.swaps:
        assert tree(scheme_for(CASES[EVERY.index(other)])) == tree(scheme), other


def test_swaps_of_the_families():
    swaps = {name: set(scheme_for(CASES[EVERY.index(name)]).swaps) for name in EVERY}
    assert {"pi", "ntk", "dynamic_ntk", "yarn"} <= swaps["rope"]
    for one in ("sinusoidal", "learned", "alibi"):
        assert "rope" not in swaps[one] and one not in swaps["rope"]


@every_scheme
def test_parameters_have_a_stream_of_their_own(name):
    """Making a scheme draws from rngs.posenc only: other weights do not depend on the scheme."""
    rngs, untouched = nnx.Rngs(params=0, posenc=1), nnx.Rngs(params=0, posenc=1)
    posenc.create(
        name, posenc.Dims(D=D, H=H, K=K, train_length=L, G=G), rngs, **REQUIRED.get(name, {})
    )
    assert jnp.array_equal(
        jax.random.key_data(rngs.params()), jax.random.key_data(untouched.params())
    )
    only = nnx.Rngs(posenc=1)
    posenc.create(name, posenc.Dims(D=D, H=H, K=K, train_length=L), only, **REQUIRED.get(name, {}))
