"""Sinusoids and learned tables at the edges: within the training length, and past a table's end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import posenc

DIMS = posenc.Dims(D=8, H=2, K=8, train_length=16)


def create(spec):
    return posenc.create(spec, DIMS, nnx.Rngs(0))


def test_the_factor_of_sinusoids():
    assert create("sinusoidal").scale is None
    assert create("sinusoidal:factor=2").at_length(64).scale == 2
    auto = create("sinusoidal:factor=auto")
    assert [auto.at_length(n).scale for n in (8, 16, 64)] == [1, 1, 4]


def test_an_interpolated_table_is_read_row_by_row_within_its_length():
    scheme, x = create("learned:extend=interpolate"), jnp.zeros((16, 8))
    pos = jnp.arange(16, dtype=jnp.int32)
    for n in (4, 16):
        np.testing.assert_array_equal(scheme.at_length(n).embed(x, pos), scheme.table[...])


def test_a_table_under_randomised_positions_has_a_row_for_each():
    scheme = create("learned:positions=randomized,max_position=40")
    assert scheme.table[...].shape == (40, 8) and scheme.max_length == 40
    with pytest.raises(ValueError, match="does not go with positions=randomized"):
        create("learned:extend=interpolate,positions=randomized")


@pytest.mark.parametrize("outside", [-1, -16, 16, 100])
def test_traced_positions_outside_a_table_are_nan(outside):
    scheme = create("learned")
    rows = jax.jit(scheme.embed)(jnp.zeros((2, 8)), jnp.array([15, outside], jnp.int32))
    assert jnp.isnan(rows[1]).all()
    np.testing.assert_array_equal(rows[0], scheme.table[15])
