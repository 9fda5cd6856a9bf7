"""Attention and its gradients against float64 transcriptions that share no code with it."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from oracles import Setting
from oracles.comparison import (
    assert_gradients_match_oracle,
    assert_matches_oracle,
    build,
    hook_logits,
)

import posenc

AUTO = [64, 128, 400]  # at, just past and far past the training length

# (spec, options, lengths evaluated; None: at_length is never called)
CASES = [
    ("nope", {}, [None]),
    ("sinusoidal", {}, [None, 256]),
    ("learned", {}, [None, 64, 32]),
    ("learned", {"extend": "interpolate"}, [None, 64, 100, 256]),
    ("alibi", {}, [None, 256]),
    ("alibi", {"slope_scale": 0.25}, [256]),
    ("rope", {}, [None, 256]),
    ("rope", {"pairing": "interleaved", "base": 500}, [256]),
    ("rope", {"rotary_fraction": 0.5}, [256]),
    ("rope", {"rotary_fraction": 0.25, "pairing": "interleaved"}, [256]),
    ("pi", {}, [None, *AUTO]),
    ("pi", {"factor": 4}, [None, 256]),
    ("pi", {"original_length": 32}, [None, 16, 256]),
    ("ntk", {}, AUTO),
    ("ntk", {"factor": 8.0, "rotary_fraction": 0.5}, [256]),
    ("dynamic_ntk", {}, [None, 32, *AUTO]),
    ("dynamic_ntk", {"factor": 2.0}, AUTO),
    ("dynamic_ntk", {"original_length": 16, "rotary_fraction": 0.5}, [None, 256]),
    ("yarn", {}, [None, 32, *AUTO]),
    ("yarn", {"factor": 4.0, "beta_fast": 8, "beta_slow": 0.125}, [None, 256]),
    ("yarn", {"factor": 4.0, "beta_fast": 8, "truncate": False}, [256]),
    ("yarn", {"factor": 4.0, "ramp": "wavelength", "beta_fast": 4}, [256]),
    ("yarn", {"factor": 4.0, "attention_factor": 1.0, "pairing": "interleaved"}, [256]),
    ("yarn", {"factor": 1.0, "attention_factor": 1.5}, [None]),
    ("yarn", {"factor": 4.0, "rotary_fraction": 0.5, "original_length": 32}, [256]),
]

COMPOSITIONS = [
    ("alibi+log_n", {}),
    ("rope+log_n", {}),
    ("yarn+log_n", {}),
    ("yarn:factor=4+log_n", {"factor": 4}),
    ("rope+log_n:clip=False", {"clip": False}),
    ("pi:factor=2+log_n", {"factor": 2}),
]


def expand(cases):
    return [
        pytest.param(spec, options, n, id=f"{spec}-{options}-{n}".replace(" ", ""))
        for spec, options, lengths in cases
        for n in lengths
    ]


@pytest.mark.parametrize("spec, options, n", expand(CASES))
def test_attention_equals_the_oracle(spec, options, n):
    assert_matches_oracle(spec, Setting(D=16, H=4, K=16, L=64, n=n, options=options), G=2)


@pytest.mark.parametrize("spec, options", COMPOSITIONS)
def test_compositions_equal_the_oracle(spec, options):
    assert_matches_oracle(spec, Setting(D=16, H=4, K=16, L=64, n=256, options=options), G=2)


@pytest.mark.parametrize("H", [1, 3, 6])
def test_alibi_for_any_number_of_heads(H):
    assert_matches_oracle("alibi", Setting(D=12, H=H, K=4, L=64, n=256))


@pytest.mark.parametrize(
    "spec, options, n",
    [
        ("nope", {}, None),
        ("sinusoidal", {}, 128),
        ("learned", {}, None),
        ("learned", {"extend": "interpolate"}, 100),
        ("alibi", {}, 128),
        ("rope", {"rotary_fraction": 0.5}, 128),
        ("pi", {}, 128),
        ("ntk", {}, 128),
        ("dynamic_ntk", {}, 128),
        ("yarn", {"beta_fast": 8, "beta_slow": 0.125}, 128),
    ],
)
def test_gradients_equal_finite_differences_of_the_oracle(spec, options, n):
    assert_gradients_match_oracle(spec, Setting(D=8, H=2, K=8, L=64, n=n, options=options))


def test_the_comparison_can_fail():
    """A scheme checked against a neighbour's oracle is caught, or the whole file shows nothing."""
    wrong = Setting(D=16, H=4, K=16, L=64, n=256, options={"factor": 4.0, "truncate": False})
    right = Setting(D=16, H=4, K=16, L=64, n=256, options={"factor": 4.0})
    ours, theirs = build("yarn", right), build("yarn", wrong)
    rng, pos = np.random.default_rng(0), jnp.arange(240, 256, dtype=jnp.int32)
    q, k = (jnp.asarray(rng.normal(size=(16, 4, 16)), jnp.float32) for _ in range(2))
    a, b = (jax.nn.softmax(hook_logits(s, q, k, pos, pos), axis=-1) for s in (ours, theirs))
    assert jnp.max(jnp.abs(a - b)) > 1e-2


def test_temperature_leaves_the_bias_alone():
    """A temperature leaves a bias as it is: log-n on queries of zero changes nothing."""
    s = Setting(D=8, H=2, K=8, L=16, n=64)
    pos = jnp.arange(60, 64, dtype=jnp.int32)
    zero = jnp.zeros((4, 2, 8))
    alone, beside = (build(spec, s) for spec in ("alibi", "alibi+log_n"))
    assert jnp.array_equal(
        hook_logits(alone, zero, zero, pos, pos), hook_logits(beside, zero, zero, pos, pos)
    )


def test_learned_interpolation_reads_between_rows():
    """At twice the length, odd positions are the mean of two rows; the last is the last row."""
    dims = posenc.Dims(D=4, H=1, K=4, train_length=8)
    scheme = posenc.create("learned", dims, nnx.Rngs(0), extend="interpolate")
    x = jnp.zeros((16, 4))
    short = scheme.embed(x[:8], jnp.arange(8, dtype=jnp.int32))
    long = scheme.at_length(16).embed(x, jnp.arange(16, dtype=jnp.int32))
    np.testing.assert_allclose(long[0::2], short, atol=1e-6)
    np.testing.assert_allclose(long[1:15:2], (short[:-1] + short[1:]) / 2, atol=1e-6)
    np.testing.assert_allclose(long[15], short[7], atol=1e-6)
    assert math.isfinite(float(jnp.sum(long)))
