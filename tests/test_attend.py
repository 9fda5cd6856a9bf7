"""Attention of a batch against the oracles' loops: grouped heads, gaps, rows of their own, documents."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import Setting, attend
from oracles.comparison import build, normal, parameters_of, plain_name

from models import attention

S = Setting(D=16, H=4, K=16, L=16, n=64)
T, KEYS, G = 5, 9, 2
FAR = np.array([0, 1, 5, 6, 20, 21, 40, 62, 63])


def operands(B=2):
    rng = np.random.default_rng(0)
    q, k, v = (normal(rng, B, n, h, S.K) for n, h in ((T, S.H), (KEYS, G), (KEYS, G)))
    return q, k, v


def float32(*arrays):
    return [jnp.asarray(a, jnp.float32) for a in arrays]


def slow(spec, scheme, q, k, v, q_pos, k_pos):
    k, v = (np.repeat(a, S.H // G, axis=1) for a in (k, v))
    parameters = parameters_of(spec, scheme)
    return attend(plain_name(spec), S, parameters, q, k, v, q_pos, k_pos)


@pytest.mark.parametrize(
    "spec, block", [("rope+log_n", None), ("alibi", 2), ("shaw", None), ("deberta", None)]
)
def test_rows_of_their_own_equal_the_oracle(spec, block):
    scheme = build(spec, S)
    q, k, v = operands()
    k_pos = np.stack([FAR, np.arange(9)])
    q_pos = k_pos[:, -T:]
    places = (jnp.asarray(q_pos, jnp.int32), jnp.asarray(k_pos, jnp.int32))
    found = jax.jit(lambda *a: attention.attend(scheme, *a, block=block))(
        *float32(q, k, v), *places
    )
    for row in range(2):
        expected = slow(spec, scheme, q[row], k[row], v[row], q_pos[row], k_pos[row])
        np.testing.assert_allclose(found[row], expected, atol=2e-5)


def test_documents_in_a_row_are_each_alone():
    spec, scheme = "alibi", build("alibi", S)
    q, k, v = operands(1)
    k_pos = np.array([0, 1, 2, 3, 0, 1, 2, 3, 4])
    segment = np.array([0] * 4 + [1] * 5)
    found = jax.jit(functools.partial(attention.attend, scheme))(
        *float32(q, k, v),
        *(jnp.asarray(p, jnp.int32) for p in (k_pos[4:], k_pos)),
        *(jnp.asarray(s[None], jnp.int32) for s in (segment[4:], segment)),
    )[0]
    expected = slow(spec, scheme, q[0], k[0, 4:], v[0, 4:], k_pos[4:], k_pos[4:])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_row_that_sees_nothing_is_finite_and_so_are_the_gradients():
    """A filler's segment may hold no key at all."""
    scheme = build("rope", S)
    q, k, v = float32(*operands(1))
    places = (jnp.arange(T, dtype=jnp.int32) + 4, jnp.arange(KEYS, dtype=jnp.int32))
    segments = (jnp.array([[0, 0, 0, 0, 7]]), jnp.zeros((1, KEYS), jnp.int32))

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1, 2))
    def run(q, k, v):
        return jnp.sum(attention.attend(scheme, q, k, v, *places, *segments) ** 2)

    value, gradients = run(q, k, v)
    assert np.isfinite(value) and all(np.isfinite(g).all() for g in gradients)


def test_bfloat16_in_is_bfloat16_out_and_logits_are_float32():
    scheme = build("alibi", S)
    q, k, v = (a.astype(jnp.bfloat16) for a in float32(*operands(1)))
    places = (jnp.arange(T, dtype=jnp.int32) + 4, jnp.arange(KEYS, dtype=jnp.int32))
    assert attention.attend(scheme, q, k, v, *places).dtype == jnp.bfloat16
    logits, seen = attention.attention_logits(scheme, q[0], k[0], *places)
    assert logits.dtype == jnp.float32 and seen.dtype == bool
    exact, _ = attention.attention_logits(
        scheme, *(a[0].astype(jnp.float32) for a in (q, k)), *places
    )
    np.testing.assert_allclose(logits, exact, rtol=1e-6, atol=1e-5)


def test_large_logits_do_not_overflow():
    scheme = build("nope", S)
    q, k, v = float32(*operands(1))
    places = (jnp.arange(T, dtype=jnp.int32) + 4, jnp.arange(KEYS, dtype=jnp.int32))
    out = attention.attend(scheme, 1e3 * q, k, v, *places)
    assert np.isfinite(out).all() and np.abs(out).max() <= np.abs(v).max() + 1e-5
