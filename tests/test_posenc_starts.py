"""Where parameters start, and what options are when nothing is said."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import posenc


def create(spec, **sizes):
    dims = posenc.Dims(**{"D": 64, "H": 8, "K": 16, "train_length": 100, **sizes})
    return posenc.create(spec, dims, nnx.Rngs(0))


def spread(parameter):
    return float(jnp.std(parameter[...]))


def largest(parameter):
    return float(jnp.abs(parameter[...]).max())


@pytest.mark.parametrize(
    "spec, attribute, std",
    [
        ("learned", "table", 1.0),
        ("t5:num_buckets=128,max_distance=1000", "table", 1 / 8),
        ("transformer_xl", "W_R", 1 / 8),
        ("deberta", "table", 0.02),
        ("deberta", "key_projection", 1 / 8),
        ("deberta", "query_projection", 1 / 8),
    ],
)
def test_normal_starts(spec, attribute, std):
    assert spread(getattr(create(spec), attribute)) == pytest.approx(std, rel=0.06)


def test_uniform_starts():
    """FIRE's layers within 1/sqrt(inputs), Shaw's tables within Glorot's limit."""
    fire = create("fire:hidden=400", H=200)
    for attribute, limit in (
        ("hidden_weight", 1.0),
        ("hidden_bias", 1.0),
        ("output_weight", 1 / 20),
        ("output_bias", 1 / 20),
    ):
        assert 0.95 * limit < largest(getattr(fire, attribute)) <= limit, attribute
        assert abs(float(jnp.mean(getattr(fire, attribute)[...]))) < 0.1 * limit
    shaw = create("shaw:clip_distance=40")
    limit = math.sqrt(6 / (81 + 16))
    assert 0.95 * limit < largest(shaw.key_table) <= limit
    assert 0.95 * limit < largest(shaw.value_table) <= limit
    assert not np.array_equal(shaw.key_table[...], shaw.value_table[...])


@pytest.mark.parametrize(
    "spec, options",
    [
        ("rope", {"base": 10000, "pairing": "half", "rotated": 16, "max_position": 2048}),
        ("sinusoidal", {"base": 10000, "factor": 1}),
        ("learned", {"extend": None, "max_length": 100}),
        ("pi", {"factor": "auto", "original_length": 100}),
        ("dynamic_ntk", {"factor": 1, "original_length": 100}),
        ("ntk_by_parts", {"factor": "auto", "beta_fast": 32, "beta_slow": 1}),
        ("yarn", {"beta_fast": 32, "beta_slow": 1, "ramp": "index", "truncate": True}),
        ("llama3", {"low_freq_factor": 1, "high_freq_factor": 4}),
        ("p_rope", {"p": 0.25}),
        ("xpos", {"scale_base": 512, "gamma": 0.4}),
        ("log_n", {"clip": True}),
        ("alibi", {"slope_scale": 1}),
        ("t5", {"num_buckets": 32, "max_distance": 128}),
        ("kerple", {"kind": "log"}),
        ("sandwich", {"width": 128}),
        ("fire", {"init_length": 100}),
        ("shaw", {"clip_distance": 16, "values": True}),
        ("deberta", {"num_buckets": 32, "max_distance": 128, "p2c_index": "code"}),
        ("cope", {"max_positions": 64}),
        ("window:size=8", {"sinks": 0, "streaming": False}),
    ],
)
def test_defaults(spec, options):
    scheme = create(spec)
    assert {name: getattr(scheme, name) for name in options} == options


def test_sizes_that_follow_from_defaults():
    assert create("fire").hidden_weight[...].shape == (32,)
    assert create("cope").table[...].shape == (64, 16)
    assert create("shaw").key_table[...].shape == (33, 16)
