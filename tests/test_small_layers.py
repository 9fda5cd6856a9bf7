"""The small layers of the model and its rotations: their values, and in which precision they are computed."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import nnx

import posenc
from models.layers import Dense, Norm, dropout


def bfloat16(*shape, scale=1.0, seed=0):
    """Random values that bfloat16 holds exactly: as such, and as float64."""
    low = (scale * np.random.default_rng(seed).normal(size=shape)).astype(ml_dtypes.bfloat16)
    return jnp.asarray(low), low.astype(np.float64)


def rounded_once(found, exact):
    """The share of bfloat16 values that are the nearest to the exact ones: all but ties, if rounded at the end."""
    return np.mean(np.asarray(found) == np.asarray(exact).astype(ml_dtypes.bfloat16))


def test_dropout_keeps_the_mean():
    """What is kept is scaled by 1/(1 − rate), in the dtype it had."""
    x = jnp.full((100, 100), 3.0, jnp.bfloat16)
    out = dropout(x, 0.2, jax.random.key(0))
    assert out.dtype == jnp.bfloat16
    assert set(np.unique(out).astype(float)) == {0.0, 3.75}
    assert 0.79 < np.mean(np.asarray(out) != 0) < 0.81
    assert dropout(x, 0.2, None) is x and dropout(x, 0.0, jax.random.key(0)) is x


def test_a_norm_is_computed_in_float32():
    low, x = bfloat16(16, 96, scale=2.0)
    norm = Norm(96)
    scale = np.random.default_rng(1).normal(size=96).astype(np.float32)
    norm.scale[...] = jnp.asarray(scale)
    exact = x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-6) * scale
    assert norm(low).dtype == jnp.bfloat16
    assert rounded_once(norm(low), exact) > 0.99
    np.testing.assert_allclose(norm(low.astype(jnp.float32)), exact, rtol=1e-5)
    tiny = jnp.full((1, 96), 1e-3)  # where 1e-6 is as much as the mean square
    np.testing.assert_allclose(norm(tiny)[0], scale / np.sqrt(2), rtol=1e-5)


@pytest.mark.parametrize("spec", ["rope", "rope:pairing=interleaved", "xpos", "log_n"])
def test_queries_are_turned_in_float32(spec):
    """Rounded once, at the end: bfloat16's cosines alone would be off by 1/512."""
    dims = posenc.Dims(D=8, H=2, K=32, train_length=64)
    scheme = posenc.create(spec, dims, nnx.Rngs(0)).at_length(1024)
    low, _ = bfloat16(16, 2, 32)
    pos = jnp.arange(1000, 1016, dtype=jnp.int32)
    for hook in (scheme.query, scheme.key):
        exact = hook(low.astype(jnp.float32), pos)
        assert hook(low, pos).dtype == jnp.bfloat16
        assert rounded_once(hook(low, pos), exact) == 1


def test_a_dense_layer_is_drawn_with_the_width_of_what_it_reads():
    layer = Dense(nnx.Rngs(0), 256, 64)
    assert float(jnp.std(layer.kernel[...])) == pytest.approx(1 / 16, rel=0.02)
    given = Dense(nnx.Rngs(0), 256, 64, std=0.5)
    assert float(jnp.std(given.kernel[...])) == pytest.approx(0.5, rel=0.02)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 256)), jnp.float32)
    np.testing.assert_allclose(layer(x), np.asarray(x) @ layer.kernel[...], atol=1e-5)
    assert layer(x.astype(jnp.bfloat16)).dtype == jnp.bfloat16
