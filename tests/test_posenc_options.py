"""How schemes are asked for, and what is refused by name before anything is traced."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from oracles.registered import REQUIRED

import posenc

DIMS = posenc.Dims(D=8, H=4, K=8, train_length=64, G=2)
ROTARY = ("rope", "pi", "ntk", "dynamic_ntk", "yarn")
SCALED = ("pi", "ntk", "yarn")


def create(spec, K=8, train_length=64, **options):
    dims = posenc.Dims(D=8, H=4, K=K, train_length=train_length, G=2)
    return posenc.create(spec, dims, nnx.Rngs(0), **options)


def frequencies(spec, **options):
    return create(spec, **options).inverse_frequencies()


def test_three_ways_to_say_the_same():
    expected = frequencies("yarn", factor=4.0, beta_fast=16)
    for spec in (
        "yarn:factor=4,beta_fast=16",
        "yarn:factor=4.0,beta_fast=16.0",
        {"scheme": "yarn", "factor": 4, "beta_fast": 16},
    ):
        np.testing.assert_array_equal(frequencies(spec), expected)


def test_values_written_in_a_string():
    assert create("yarn:factor=4,truncate=False").inverse_frequencies().shape == (4,)
    interleaved = create("rope:pairing=interleaved,rotary_fraction=0.5")
    assert interleaved.inverse_frequencies().shape == (2,)
    np.testing.assert_array_equal(frequencies("rope:base=1e4"), frequencies("rope", base=10000.0))
    np.testing.assert_array_equal(frequencies("rope:base=5e5"), frequencies("rope", base=500000))
    np.testing.assert_array_equal(frequencies("pi:factor=auto"), frequencies("pi"))


def test_a_plus_sign_separates_parts():
    """1e+4 is read as two parts, and the second is no scheme."""
    with pytest.raises(ValueError, match="4|1e4"):
        create("rope:base=1e+4")


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("pair", [(4, 4.0), (1, 1.0)])
def test_whole_and_fractional_factors_are_the_same(name, pair):
    whole, fractional = (create(name, factor=f).at_length(256) for f in pair)
    np.testing.assert_array_equal(whole.inverse_frequencies(), fractional.inverse_frequencies())
    assert whole.attention_factor == fractional.attention_factor
    q, pos = jnp.ones((3, 4, 8)), jnp.array([1, 50, 200], jnp.int32)
    assert jnp.array_equal(whole.query(q, pos), fractional.query(q, pos))


REFUSED = [  # spec, options, what the message must name
    ("ropee", {}, "rope"),
    ("yran", {}, "yarn"),
    ("", {}, "scheme"),
    ({"factor": 4}, {}, "scheme"),
    ("rope+", {}, "scheme|empty|part"),
    ("rope:bas=5", {}, "base"),
    ("yarn", {"beta_fats": 3}, "beta_fast"),
    ("yarn", {"mscale": 1.0}, "mscale"),
    ("yarn", {"mscale_all_dim": 1.0}, "mscale_all_dim"),
    ("rope", {"factor": 2.0}, "factor"),
    ("nope", {"base": 2.0}, "base"),
    ("alibi", {"factor": 2.0}, "factor"),
    ("rope", {"base": 1.0}, "base"),
    ("rope", {"base": 0.5}, "base"),
    ("rope", {"base": -10000.0}, "base"),
    ("rope", {"base": float("nan")}, "base"),
    ("rope", {"base": float("inf")}, "base"),
    ("rope", {"base": "large"}, "base"),
    ("rope", {"pairing": "diagonal"}, "pairing"),
    ("rope", {"rotary_fraction": 0.0}, "rotary_fraction"),
    ("rope", {"rotary_fraction": 1.5}, "rotary_fraction"),
    ("rope", {"rotary_fraction": 0.375}, "rotary_fraction"),  # 3 of 8 channels
    ("rope", {"max_position": 100}, "max_position"),
    ("nope", {"max_position": 100}, "max_position"),
    ("rope", {"positions": "shuffled"}, "positions"),
    ("rope", {"positions": "randomized", "max_position": 0}, "max_position"),
    ("rope", {"original_length": 32}, "original_length"),
    *[
        (name, {"factor": bad}, "factor")
        for name in SCALED
        for bad in (0, -2.0, "big", float("nan"))
    ],
    ("dynamic_ntk", {"factor": 0}, "factor"),
    ("pi", {"original_length": 0}, "original_length"),
    ("yarn", {"beta_fast": 8, "beta_slow": 8}, "beta_fast|beta_slow"),
    ("yarn", {"beta_fast": 1, "beta_slow": 32}, "beta_fast|beta_slow"),
    ("yarn", {"beta_slow": 0}, "beta_slow"),
    ("yarn", {"ramp": "wavelength", "truncate": True}, "truncate"),
    ("yarn", {"ramp": "wavelength", "truncate": False}, "truncate"),
    ("yarn", {"ramp": "cubic"}, "ramp"),
    ("yarn", {"attention_factor": 0.0}, "attention_factor"),
    ("yarn", {"original_length": 6}, "length"),  # below 2π
    ("alibi", {"slope_scale": -1.0}, "slope_scale"),
    ("learned", {"extend": "clamp"}, "extend"),
    ("yarn+log_n", {"factor": 4}, "factor|options|keyword"),
    ("rope+rope", {}, "rope"),
]


@pytest.mark.parametrize("spec, options, named", REFUSED, ids=[f"{r[0]}-{r[1]}" for r in REFUSED])
def test_refused_by_name(spec, options, named):
    with pytest.raises(ValueError, match=named) as raised:
        create(spec, **options)
    assert "\n" not in str(raised.value)


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(ValueError, match="yarn") as raised:
        create("yran")
    assert "yran" in str(raised.value)
    with pytest.raises(ValueError, match="beta_fast") as raised:
        create("yarn", beta_fats=3)
    assert "beta_fats" in str(raised.value)


def test_short_training_lengths():
    """Below 2π tokens no pair makes a full turn and the ramp of YaRN would be upside down."""
    for train_length in (1, 6):
        with pytest.raises(ValueError, match="length"):
            create("yarn", train_length=train_length)
    create("yarn", train_length=7)
    for name in ("rope", "pi", "ntk", "dynamic_ntk", "sinusoidal", "learned", "alibi", "nope"):
        create(name, train_length=1)


@pytest.mark.parametrize("name", ROTARY)
def test_an_odd_rotated_size_is_refused(name):
    with pytest.raises(ValueError, match="K|rotary_fraction"):
        create(name, K=7)
    with pytest.raises(ValueError, match="rotary_fraction"):
        create(name, K=10, rotary_fraction=0.5)


@pytest.mark.parametrize("name", ["ntk", "dynamic_ntk"])
def test_ntk_with_two_rotated_channels_is_refused(name):
    """The exponent d/(d−2) divides by zero."""
    with pytest.raises(ValueError, match="K|rotary_fraction|rotated"):
        create(name, K=2)
    with pytest.raises(ValueError, match="rotary_fraction|rotated"):
        create(name, K=8, rotary_fraction=0.25)


def test_an_odd_width_is_refused_for_sinusoids():
    with pytest.raises(ValueError, match="D|d_model"):
        posenc.create("sinusoidal", posenc.Dims(D=5, H=1, K=4, train_length=8), nnx.Rngs(0))


def test_positions_outside_the_table_are_refused():
    """Never clamped: at_length, and embed on positions that can be read."""
    scheme = create("learned")
    x = jnp.zeros((2, 8))
    with pytest.raises(ValueError, match="65"):
        scheme.at_length(65)
    assert scheme.at_length(64).max_length == 64
    scheme.embed(x, jnp.array([0, 63], jnp.int32))
    with pytest.raises(ValueError, match="64"):
        scheme.embed(x, jnp.array([0, 64], jnp.int32))
    with pytest.raises(ValueError, match="-1"):
        scheme.embed(x, jnp.array([-1, 0], jnp.int32))
    longer = create("learned", extend="interpolate")
    assert longer.max_length is None and not longer.prefix_invariant
    assert longer.at_length(4096).embed(x, jnp.array([0, 4095], jnp.int32)).shape == (2, 8)


@pytest.mark.parametrize("length", [0, -1])
def test_lengths_are_positive(length):
    for name in posenc.SCHEMES:
        with pytest.raises(ValueError, match="length"):
            create(name, **REQUIRED.get(name, {})).at_length(length)


def test_dims_are_checked():
    assert posenc.Dims(D=8, H=4, K=8, train_length=64).G == 4
    for bad in (dict(H=0), dict(K=-2), dict(train_length=0), dict(G=3)):
        with pytest.raises(ValueError, match="|".join(bad)):
            posenc.Dims(**{"D": 8, "H": 4, "K": 8, "train_length": 64, **bad})


@pytest.mark.parametrize("name", SCALED)
def test_auto_follows_the_length_and_is_one_within_it(name):
    plain = frequencies("rope")
    scheme = create(name)
    for n in (1, 32, 64):
        np.testing.assert_array_equal(scheme.at_length(n).inverse_frequencies(), plain)
    np.testing.assert_array_equal(
        scheme.at_length(256).inverse_frequencies(), frequencies(name, factor=4.0)
    )
    assert not scheme.prefix_invariant and create(name, factor=4.0).prefix_invariant
    fixed = create(name, factor=4.0)
    np.testing.assert_array_equal(
        fixed.inverse_frequencies(), fixed.at_length(4096).inverse_frequencies()
    )


def test_factors_below_one_are_plain_rope():
    plain = create("rope")
    q, pos = jax.random.normal(jax.random.key(0), (3, 4, 8)), jnp.array([1, 50, 200], jnp.int32)
    for name in SCALED:
        scheme = create(name, factor=0.5)
        np.testing.assert_array_equal(scheme.inverse_frequencies(), plain.inverse_frequencies())
        assert jnp.array_equal(scheme.query(q, pos), plain.query(q, pos))
