"""Positions up to 131,072: relative schemes are there what they are near zero, and what their papers say.

Angles are counted in whole units of 2^−32 turns, as int32 that overflows at whole turns: sums and
differences of positions are exact at any distance, and what is left is the rounding of a
frequency to the unit, half of one a token: 9.6e-5 radians at 131,072.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from oracles import Setting
from oracles.comparison import assert_matches_oracle, hook_weights
from oracles.registered import CASES, H, K, N, arange, create, inputs, slow_variants

from posenc.angles import angles, steps

LAST = 131_072
# The decay's two powers fill float32 at 128·scale_base tokens.
REACH = {"xpos": {"scale_base": 1024}}
RELATIVE = [case for case in CASES if create(case[0], **case[1]).relative]


def turns_apart(found, exact):
    """The angle between two angles, radians."""
    return np.abs((found - exact + np.pi) % (2 * np.pi) - np.pi)


def test_angles_are_within_half_a_unit_a_token():
    frequencies = np.r_[1.0, 10000.0 ** -np.random.default_rng(0).uniform(size=99)]
    for last, bound in ((65_536, 4.8e-5), (LAST, 9.6e-5)):
        pos = np.arange(last - 64, last)
        found = np.asarray(angles(jnp.asarray(pos, jnp.int32), frequencies), np.float64)
        apart = turns_apart(found, pos[:, None] * frequencies)
        assert bound / 2 < apart.max() < bound + 4e-7  # and float32 of an angle up to π
        assert -np.pi <= found.min() and found.max() <= np.float32(np.pi)


def test_differences_of_positions_are_exact():
    """A frequency that is a whole number of units: no rounding is left, at any position."""
    units = np.array([1, 3, 2**20 + 1, 2**31 - 1])
    frequencies = units * (2 * np.pi / 2**32)
    np.testing.assert_array_equal(steps(frequencies), units)
    pos = np.array([0, 1, 65_537, LAST - 1, LAST, 2**31 - 1])
    whole = (pos[:, None] * units + 2**31) % 2**32 - 2**31
    exact = whole.astype(np.float32) * np.float32(2 * np.pi / 2**32)
    np.testing.assert_array_equal(angles(jnp.asarray(pos, jnp.int32), frequencies), exact)


@pytest.mark.parametrize("case", slow_variants(RELATIVE), ids=str)
def test_far_from_zero_the_weights_are_those_near_it(case):
    """Shifted by 131,064 positions, and again from a key at 0 to one query 131,071 behind it."""
    scheme = create(case[0], **case[1], **REACH.get(case[0], {}))
    scheme = scheme if scheme.randomized else scheme.at_length(LAST)
    x = inputs(N, N)[0]
    near, far = (hook_weights(scheme, x, arange(s, s + N), H, K) for s in (0, LAST - N))
    assert far.dtype == jnp.float32
    np.testing.assert_allclose(far, near, atol=1e-4 if case[0] == "xpos" else 2e-5)


# Softmax weights of the float64 transcriptions, with distances from 0 to 131,071 in one row. Half a
# unit a token moves the angles of so far a pair by 9.6e-5, and the logits by that times |q||k|.
TOLERANCE = 5e-4
QUICK = {"rope", "alibi", "t5", "transformer_xl"}
ORACLES = [
    ("rope", {}),
    ("rope", {"pairing": "interleaved", "rotary_fraction": 0.5}),
    ("alibi", {}),
    ("t5", {}),
    ("transformer_xl", {}),
    ("nope", {}),
    ("pi", {}),
    ("dynamic_pi", {}),
    ("ntk", {}),
    ("dynamic_ntk", {}),
    ("ntk_by_parts", {}),
    ("yarn", {}),
    ("dynamic_yarn", {}),
    ("llama3", {}),
    ("longrope", {"short_factor": (1.0,) * 8, "long_factor": tuple(range(1, 9))}),
    ("p_rope", {}),
    ("xpos", {"scale_base": 1024}),
    ("kerple", {}),
    ("sandwich", {}),
    ("shaw", {}),
    ("xlnet", {}),
    ("deberta", {}),
    ("cope", {}),
]


@pytest.mark.parametrize(
    "spec, options",
    [
        pytest.param(*c, id=c[0], marks=[] if c[0] in QUICK and not c[1] else pytest.mark.slow)
        for c in ORACLES
    ],
)
def test_far_positions_are_those_of_the_oracle(spec, options):
    setting = Setting(D=16, H=4, K=16, L=64, n=LAST, options=options)
    assert_matches_oracle(spec, setting, G=2, atol=TOLERANCE)


def test_every_relative_scheme_has_its_oracle_here():
    """The window acts on the mask alone, which no oracle has: tests/test_posenc_window.py."""
    assert {name for name, _ in ORACLES} == {case[0] for case in RELATIVE if "+" not in case[0]} - {
        "window"
    }
