"""p-RoPE and xPos."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import Setting, spectrum
from oracles.comparison import assert_gradients_match_oracle, assert_matches_oracle, hook_logits
from oracles.rotary import decay

CASES = [
    ("p_rope", {}, [None, 256]),
    ("p_rope", {"p": 0.7}, [256]),
    ("p_rope", {"p": 0.5, "pairing": "interleaved"}, [256]),
    ("xpos", {}, [None, 256]),
    ("xpos", {"scale_base": 64, "gamma": 0.8}, [256]),
]


@pytest.mark.parametrize(
    "spec, options, n",
    [
        pytest.param(s, o, n, id=f"{s}-{i}-{n}")
        for i, (s, o, lengths) in enumerate(CASES)
        for n in lengths
    ],
)
def test_attention_equals_the_oracle(spec, options, n):
    assert_matches_oracle(spec, Setting(D=16, H=4, K=16, L=64, n=n, options=options), G=2)


@pytest.mark.parametrize("spec, options", [("p_rope", {"p": 0.5}), ("xpos", {})])
def test_gradients_equal_finite_differences_of_the_oracle(spec, options):
    assert_gradients_match_oracle(spec, Setting(D=8, H=2, K=8, L=64, n=128, options=options))


def scheme_of(spec, K=16, L=64, n=None, **options):
    return spectrum.scheme_of(spec, K, L, n, H=2, **options)


QUERIES, KEYS = (
    jnp.asarray(np.random.default_rng(0).normal(size=(2, 6, 2, 16)), jnp.float32)[i]
    for i in range(2)
)
POSITIONS = jnp.array([0, 1, 7, 63, 100, 255], jnp.int32)


def turned(scheme):
    return np.stack([scheme.query(QUERIES, POSITIONS), scheme.key(KEYS, POSITIONS)])


def weights(scheme, shift=0):
    pos = POSITIONS + shift
    return jax.nn.softmax(hook_logits(scheme, QUERIES, KEYS, pos, pos), axis=-1)


def test_p_rope_ends():
    whole, none = scheme_of("p_rope", p=1.0), scheme_of("p_rope", p=0.0)
    np.testing.assert_array_equal(turned(whole), turned(scheme_of("rope")))
    np.testing.assert_array_equal(turned(none), np.stack([QUERIES, KEYS]))
    half = scheme_of("p_rope", p=0.6).inverse_frequencies()  # floor(0.6 · 8) = 4 pairs
    assert half.shape == (8,) and np.all(half[4:] == 0.0)
    np.testing.assert_array_equal(half[:4], scheme_of("rope").inverse_frequencies()[:4])
    assert np.count_nonzero(scheme_of("p_rope").inverse_frequencies()) == 2  # p = 0.25


def test_p_rope_is_not_partial_rotary():
    proportional, partial = scheme_of("p_rope", p=0.5), scheme_of("rope", rotary_fraction=0.5)
    assert np.max(np.abs(turned(proportional) - turned(partial))) > 0.1


ZETA = {0: 0.285714, 8: 0.464286, 16: 0.642857, 24: 0.821429, 31: 0.977679}


@pytest.mark.parametrize("t", ZETA)
def test_xpos_decay(t):
    """One pair at a time: after scale_base tokens its share of the logit has shrunk by ζ_t."""
    scheme, rope = (scheme_of(name, K=64, L=1024) for name in ("xpos", "rope"))
    one = jnp.zeros((1, 2, 64)).at[..., t].set(1.0).at[..., t + 32].set(0.5)
    q_pos, k_pos = jnp.array([700], jnp.int32), jnp.array([188], jnp.int32)
    ours, plain = (
        jnp.sum(s.query(one, q_pos) * s.key(one, k_pos), axis=-1)[0, 0] for s in (scheme, rope)
    )
    assert float(ours / plain) == pytest.approx(ZETA[t], rel=2e-5)
    assert decay("xpos", Setting(D=8, H=1, K=64, L=1024), t, 512) == pytest.approx(
        ZETA[t], abs=1e-6
    )


def test_xpos_with_hardly_any_decay_is_rope():
    scheme = scheme_of("xpos", scale_base=10**9)
    np.testing.assert_allclose(weights(scheme), weights(scheme_of("rope")), atol=1e-5)


def test_xpos_centre_cancels_and_nothing_overflows():
    """Centred at n/2, 65,536 tokens stay within float32; beyond them scale_base is named."""
    short, long = scheme_of("xpos", n=256), scheme_of("xpos", n=1024)
    np.testing.assert_allclose(weights(short), weights(long), atol=1e-5)
    last = scheme_of("xpos", n=65536)
    ends = jnp.array([0, 1, 32768, 65533, 65534, 65535], jnp.int32)
    for hook, x in ((last.query, QUERIES), (last.key, KEYS)):
        assert jnp.all(jnp.isfinite(hook(x, ends)))
    near = hook_logits(last, QUERIES[-3:], KEYS[-3:], ends[-3:], ends[-3:])
    at = ends[-3:] - 65400
    expected = hook_logits(short, QUERIES[-3:], KEYS[-3:], at, at)
    np.testing.assert_allclose(jnp.exp(near), jnp.exp(expected), rtol=2e-2)
    with pytest.raises(ValueError, match="scale_base"):
        scheme_of("xpos", n=65537)
    with pytest.raises(ValueError, match="scale_base"):
        scheme_of("xpos", n=128 * 64 + 1, scale_base=64)
    scheme_of("xpos", n=128 * 64, scale_base=64)
    assert math.isfinite(float(jnp.sum(turned(scheme_of("xpos", n=128 * 64, scale_base=64)))))


@pytest.mark.parametrize(
    "spec, options, named",
    [
        ("p_rope", {"p": 1.1}, "p"),
        ("p_rope", {"p": -0.1}, "p"),
        ("p_rope", {"rotary_fraction": 0.5}, "rotary_fraction"),
        ("xpos", {"scale_base": 0}, "scale_base"),
        ("xpos", {"gamma": -1.0}, "gamma"),
    ],
)
def test_refused_by_name(spec, options, named):
    with pytest.raises(ValueError, match=named):
        scheme_of(spec, **options)
