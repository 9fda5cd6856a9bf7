"""YaRN: published numbers, the corners of its ramp, and wrong YaRNs that others have shipped."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from oracles.rotary import yarn_bounds
from oracles.spectrum import SOURCES, family_of, ratio, scheme_of


@pytest.fixture(params=SOURCES)
def family(request):
    return family_of(request.param)


YARN = [  # d, L, s, temperature, {pair: ratio}
    (128, 4096, 16, 1.2772588722, {0: 1, 16: 1, 32: 0.56730769, 48: 0.0625, 63: 0.0625}),
    (
        128,
        4096,
        16,
        1.2772588722,
        {24: 0.856, 28: 0.712, 32: 0.567, 36: 0.423, 40: 0.279, 44: 0.135},
    ),
    (
        128,
        4096,
        16,
        1.2772588722,
        {0: 1, 10: 1, 20: 1, 30: 0.639, 40: 0.279, 50: 0.0625, 63: 0.0625},
    ),
    (128, 2048, 8, 1.2079441542, {32: 0.44, 48: 0.125, 16: 1}),
    (64, 512, 4, 1.1386294361, {0: 1, 8: 0.71153846, 16: 0.25, 24: 0.25, 31: 0.25}),
    (64, 512, 8, 1.2079441542, {8: 0.66346154, 16: 0.125, 24: 0.125, 31: 0.125}),
    (32, 256, 4, 1.1386294361, {4: 0.57142857, 0: 1, 7: 0.25}),
    (64, 4096, 40, 1.3688879454, {16: 0.55, 10: 1, 23: 0.025}),
    (16, 64, 2, 1.0693147181, {2: 0.66666667, 0: 1, 3: 0.5}),
]


@pytest.mark.parametrize("d, L, s, temperature, ratios", YARN)
def test_yarn_ratios_and_temperature(family, d, L, s, temperature, ratios):
    ours = ratio(family, "yarn", d, L, factor=s)
    for t, expected in ratios.items():
        places = 5e-4 if round(expected, 3) == expected else 5e-9
        assert ours[t] == pytest.approx(expected, abs=places), t
    assert family("yarn", d, L, factor=s)[1] == pytest.approx(temperature, abs=1e-10)
    by_length = family("yarn", d, L, s * L)
    np.testing.assert_array_equal(by_length[0], family("yarn", d, L, factor=float(s))[0])


@pytest.mark.parametrize(
    "d, L, s, low, high",
    [
        (128, 4096, 16, 20.944482, 45.026881),
        (128, 2048, 8, 16.128002, 40.210401),
        (64, 512, 4, 3.247521, 15.288721),
        (32, 256, 4, 0.419640, 6.440240),
        (64, 4096, 40, 10.472241, 22.513441),
        (16, 64, 2, -0.9943, 2.016),
    ],
)
def test_yarn_raw_bounds(family, d, L, s, low, high):
    """With truncate=False two pairs inside the ramp give back the raw bounds (never below 0)."""
    exact = yarn_bounds(d, 10000.0, L, 32, 1)
    assert exact == pytest.approx((low, high), abs=5e-5)
    ramp = (1 - ratio(family, "yarn", d, L, factor=s, truncate=False)) / (1 - 1 / s)
    inside = [t for t in range(d // 2) if 1e-9 < ramp[t] < 1 - 1e-9]
    slope = (ramp[inside[-1]] - ramp[inside[0]]) / (inside[-1] - inside[0])
    found_low = inside[0] - ramp[inside[0]] / slope
    assert found_low == pytest.approx(max(low, 0.0), abs=5e-6 + 5e-5 * (d == 16))
    assert found_low + 1 / slope == pytest.approx(high, abs=5e-6 + 5e-4 * (d == 16))


def test_yarn_with_the_ramp_of_its_paper(family):
    ours = ratio(family, "yarn", 128, 4096, factor=16, ramp="wavelength")
    expected = {24: 0.656, 28: 0.383, 32: 0.229, 36: 0.143, 40: 0.095, 44: 0.067}
    for t, value in expected.items():
        assert ours[t] == pytest.approx(value, abs=5e-4), t


def test_attention_factor_replaces_the_temperature(family):
    assert family("yarn", 64, 512, factor=4, attention_factor=1.5)[1] == 1.5
    assert family("yarn", 64, 512, factor=1, attention_factor=1.5)[1] == 1.5
    assert family("yarn", 64, 512, factor=1)[1] == 1.0


def test_yarn_where_the_bounds_meet(family):
    """low == high == d − 1: 0.001 goes to high. On low it would flip the ramp for every pair."""
    raw = yarn_bounds(16, 4.74, 4096, 32, 1)
    assert math.floor(raw[0]) == 15 and math.ceil(raw[1]) > 15
    ours = ratio(family, "yarn", 16, 4096, factor=4, base=4.74)
    np.testing.assert_allclose(ours, np.ones(8), rtol=1e-12)


@pytest.mark.parametrize(
    "L, options, right",
    [
        (64, {"beta_fast": 640, "beta_slow": 320}, [1.0, 0.25]),  # no pair makes beta_slow turns
        (4096, {"base": 2.0}, [1.0]),  # every pair makes more than beta_fast turns
    ],
)
def test_the_ramp_of_yarn_is_never_upside_down(L, options, right):
    """Bounds past the ends are refused, or clamped so that low stays below high."""
    try:
        ours = scheme_of("yarn", 16, L, factor=4, **options).inverse_frequencies()
    except ValueError as refusal:
        assert "beta" in str(refusal) or "length" in str(refusal) or "base" in str(refusal)
        return
    base = {"base": options["base"]} if "base" in options else {}
    ratios = ours / scheme_of("rope", 16, L, **base).inverse_frequencies()
    assert np.all(np.diff(ratios) <= 1e-12)
    assert min(abs(ratios[-1] - end) for end in right) < 1e-9


# The wrong YaRNs, at d = 128, L = 4096, s = 16.

D_ROT, LENGTH, S = 128, 4096, 16.0
PAIRS = [0, 10, 20, 30, 40, 50, 63]
LOW, HIGH = yarn_bounds(D_ROT, 10000.0, LENGTH, 32, 1)


def blend(ramp):
    """Ratios to plain RoPE when `ramp` is the share that is interpolated."""
    ramp = np.clip(ramp, 0.0, 1.0)
    return ramp / S + (1.0 - ramp)


def index_ramp(low=math.floor(LOW), high=math.ceil(HIGH), step=1):
    return (step * np.arange(D_ROT // 2) - low) / (high - low)


def halved_dimension_and_double_interpolation():
    """Bounds from d/2 in place of d, and positions divided by s besides."""
    low, high = yarn_bounds(D_ROT // 2, 10000.0, LENGTH, 32, 1)
    low, high = max(math.floor(low), 0), min(math.ceil(high), D_ROT // 2 - 1)
    return blend(index_ramp(low, high)) / S


def inverted_ramp():
    return blend(1.0 - np.clip(index_ramp(), 0.0, 1.0))


def flipped_degenerate_ramp():
    """0.001 added to low in place of high where the two are equal: both taken to be 33."""
    return blend(index_ramp(33.001, 33.0))


# name -> (ratios at every pair, temperature on cosines and sines, published ratios at PAIRS)
WRONG = {
    "halved dimension, interpolated twice": (
        halved_dimension_and_double_interpolation(),
        math.sqrt(0.1 * math.log(S) + 1.0),
        [0.0625, 0.0625, 0.01743, 0.00391, 0.00391, 0.00391, 0.00391],
    ),
    "inverted ramp, no temperature": (
        inverted_ramp(),
        1.0,
        [0.0625, 0.0625, 0.0625, 0.423, 0.784, 1, 1],
    ),
    "flipped degenerate ramp": (flipped_degenerate_ramp(), 0.1 * math.log(S) + 1.0, None),
    "no temperature": (blend(index_ramp()), 1.0, None),
    "temperature twice": (blend(index_ramp()), (0.1 * math.log(S) + 1.0) ** 2, None),
    "square root of the temperature": (
        blend(index_ramp()),
        math.sqrt(0.1 * math.log(S) + 1.0),
        None,
    ),
    "ramp over d in place of d/2 entries": (
        blend(index_ramp(step=2)),
        0.1 * math.log(S) + 1.0,
        None,
    ),
    "real bounds": (blend(index_ramp(LOW, HIGH)), 0.1 * math.log(S) + 1.0, None),
}


def test_our_yarn_is_the_published_one():
    ours = scheme_of("yarn", D_ROT, LENGTH, factor=S)
    ratios = ours.inverse_frequencies() / scheme_of("rope", D_ROT, LENGTH).inverse_frequencies()
    np.testing.assert_allclose(ratios[PAIRS], [1, 1, 1, 0.639, 0.279, 0.0625, 0.0625], atol=5e-4)
    np.testing.assert_allclose(ratios, blend(index_ramp()), rtol=1e-13)
    assert ours.attention_factor == pytest.approx(0.1 * math.log(S) + 1.0, rel=1e-14)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_yarn_is_not_ours(name):
    """Each mistake gives its published ratios, and is far from ours."""
    ratios, temperature, published = WRONG[name]
    if published is not None:
        np.testing.assert_allclose(ratios[PAIRS], published, atol=6e-4)
    ours = scheme_of("yarn", D_ROT, LENGTH, factor=S)
    plain = scheme_of("rope", D_ROT, LENGTH).inverse_frequencies()
    apart = np.max(np.abs(ours.inverse_frequencies() / plain / ratios - 1.0))
    hotter = abs((ours.attention_factor / temperature) ** 2 - 1.0)
    assert max(apart, hotter) > 0.05

    theta = np.asarray(plain * ratios)
    q, k = np.random.default_rng(0).normal(size=(2, D_ROT))
    turn = np.exp(1j * 4000.0 * theta)
    pair = (q[: D_ROT // 2] + 1j * q[D_ROT // 2 :]) * (k[: D_ROT // 2] - 1j * k[D_ROT // 2 :])
    wrong = temperature**2 * np.sum((pair * turn).real)
    at = [jnp.array([p], jnp.int32) for p in (4000, 0)]
    hooked = (
        ours.query(jnp.float32(q)[None, None], at[0]),
        ours.key(jnp.float32(k)[None, None], at[1]),
    )
    assert abs(float(jnp.sum(hooked[0] * hooked[1])) - wrong) > 0.1
