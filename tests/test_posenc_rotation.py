"""A rotation as arrays is the scheme it stands for, bit for bit; what is more than one is not taken for one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import posenc

DIMS = posenc.Dims(D=8, H=2, K=16, train_length=32)
LISTS = "short_factor=1/1/1/1/1/1/1/1,long_factor=1/2/3/4/5/6/7/8"


def create(spec):
    return posenc.create(spec, DIMS, nnx.Rngs(0))


@pytest.mark.parametrize(
    "spec",
    [
        "rope",
        "pi",
        "ntk:factor=4",
        "yarn:factor=4",
        "dynamic_yarn",
        f"longrope:{LISTS}",
        "p_rope:p=0.5",
        "rope:pairing=interleaved,rotary_fraction=0.5",
    ],
)
def test_arrays_of_a_rotation_turn_as_it_does(spec):
    scheme = create(spec).at_length(256)
    assert posenc.is_rotation(scheme)
    arrays = posenc.Rotation(scheme)
    q = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2, 16)), jnp.float32)
    pos = jnp.array([0, 1, 31, 100, 255], jnp.int32)
    np.testing.assert_allclose(arrays.query(q, pos), scheme.query(q, pos), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(arrays.key(q, pos), scheme.key(q, pos), rtol=1e-6, atol=1e-7)


def test_arrays_of_a_rotation_draw_its_positions():
    scheme = create("rope:positions=randomized,max_position=64")
    arrays, key = posenc.Rotation(scheme), jax.random.key(1)
    np.testing.assert_array_equal(arrays.positions(8, key), scheme.positions(8, key))


@pytest.mark.parametrize("spec", ["xpos", "nope", "log_n", "alibi", "rope+log_n", "sinusoidal"])
def test_what_is_more_than_a_rotation(spec):
    assert not posenc.is_rotation(create(spec))
