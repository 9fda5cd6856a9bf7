"""Softmax-weighted averages against double loops, and their gradient against differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.average import average

H, G, T, S, V = 4, 2, 3, 5, 2
FLOOR = np.finfo(np.float32).min


def arrays(masked=True):
    random = np.random.default_rng(0)
    logits = 3 * random.normal(size=(H, T, S))
    if masked:
        logits[:, np.arange(T)[:, None] + S - T < np.arange(S)[None]] = FLOOR
    return logits, random.normal(size=(S, G, V)), random.normal(size=(T, H, V))


def slow(logits, v):
    """Σ_s softmax(logits)_ts·v_s, one number after the other, float64."""
    out = np.zeros((T, H, V))
    for h in range(H):
        for t in range(T):
            e = [np.exp(logits[h, t, s] - logits[h, t].max()) for s in range(S)]
            for c in range(V):
                out[t, h, c] = sum(e[s] / sum(e) * v[s, h // (H // G), c] for s in range(S))
    return out


@pytest.mark.parametrize("masked", [True, False])
def test_values_are_those_of_the_definition(masked):
    logits, v, _ = arrays(masked)
    found = average(jnp.asarray(logits, jnp.float32), jnp.asarray(v, jnp.float32))
    np.testing.assert_allclose(found, slow(logits, v), atol=1e-6)


@pytest.mark.parametrize("argument", [0, 1])
def test_gradients_are_those_of_differences(argument):
    given = arrays()[:2]
    g = arrays()[2]
    found = jax.grad(lambda *a: jnp.sum(average(*a) * jnp.asarray(g, jnp.float32)), argument)(
        *(jnp.asarray(a, jnp.float32) for a in given)
    )
    for at in np.ndindex(given[argument].shape):
        if given[argument][at] == FLOOR:
            assert found[at] == 0
            continue
        change = np.zeros_like(given[argument])
        change[at] = 1e-5
        up, down = ([*given] for _ in range(2))
        up[argument], down[argument] = given[argument] + change, given[argument] - change
        slope = np.sum((slow(*up) - slow(*down)) * g) / 2e-5
        np.testing.assert_allclose(found[at], slope, atol=1e-5)


def test_a_row_that_sees_nothing_spoils_no_gradient():
    logits, v = jnp.full((H, T, S), FLOOR).at[:, 0].set(1.0), jnp.ones((S, G, V))
    value, grads = jax.value_and_grad(lambda *a: jnp.sum(average(*a)), (0, 1))(logits, v)
    assert np.isfinite(value) and all(np.isfinite(g).all() for g in grads)


def test_bfloat16_values_are_summed_in_float32():
    """A thousand equal weights: bfloat16 sums would stop growing at 256."""
    v = jnp.ones((1024, 1, 1), jnp.bfloat16)
    out = average(jnp.zeros((1, 1, 1024)), v)
    assert out.dtype == jnp.float32 and out[0, 0, 0] == 1
    half = v.at[::2].add(2**-7)  # of a mean between two bfloat16 numbers, and a sum as well
    assert average(jnp.zeros((1, 1, 1024)), half)[0, 0, 0] == 1 + 2**-8
    grads = jax.grad(lambda v: average(jnp.zeros((1, 1, 1024)), v)[0, 0, 0])(v)
    assert grads.dtype == jnp.bfloat16
    np.testing.assert_allclose(grads.astype(jnp.float32), 1 / 1024, rtol=1e-2)
