"""Published and independently computed numbers, asked of the schemes and of their oracles alike."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from oracles import Setting, embed
from oracles.distance import alibi_slopes
from oracles.spectrum import SOURCES, family_of, ratio, scheme_of


@pytest.fixture(params=SOURCES)
def family(request):
    return family_of(request.param)


def base_of(frequencies):
    """The base whose powers the frequencies are."""
    pairs = len(frequencies)
    return frequencies[1] ** -float(pairs)


def test_plain_frequencies_are_float64_powers(family):
    frequencies, temperature = family("rope", 64, 512)
    np.testing.assert_allclose(frequencies, 10000.0 ** (-np.arange(32) / 32), rtol=1e-14)
    assert frequencies.dtype == np.float64 and temperature == 1.0


@pytest.mark.parametrize(
    "d, s, base",
    [
        (128, 8, 82684.6226),
        (64, 4, 41829.3659),
        (32, 2, 20945.88246),
        (32, 4, 43872.99919),
        (32, 8, 91895.86840),
    ],
)
def test_ntk_base(family, d, s, base):
    frequencies, _ = family("ntk", d, 512, factor=s)
    assert base_of(frequencies) == pytest.approx(base, rel=1e-9)
    ends = ratio(family, "ntk", d, 512, factor=s)
    assert ends[0] == 1.0 and ends[-1] == pytest.approx(1 / s, rel=1e-12)


@pytest.mark.parametrize(
    "f, bases",
    [
        (1, {64: 10000.0, 512: 10000.0, 1024: 20452.2287, 2048: 41829.3659, 4096: 85550.3759}),
        (2, {512: 10000.0, 1024: 31082.2367, 2048: 74534.8303, 4096: 163692.8412}),
    ],
)
def test_dynamic_ntk_base(family, f, bases):
    for n, base in bases.items():
        frequencies, temperature = family("dynamic_ntk", 64, 512, n, factor=f)
        assert base_of(frequencies) == pytest.approx(base, rel=1e-8), n
        assert temperature == 1.0


def rotated_by(spec, x, position, **options):
    """One vector through `query`, as plain floats."""
    scheme = scheme_of(spec, len(x), 64, **options)
    q = jnp.asarray(x, jnp.float32)[None, None, :]
    return np.asarray(scheme.query(q, jnp.array([position], jnp.int32)))[0, 0]


def test_partial_rotary():
    """The rotated size is in the exponent and in the pairing; the rest passes bit for bit."""
    out = rotated_by("rope", [1, 2, 3, 4, 5, 6, 7, 8], 3, rotary_fraction=0.5)
    expected = [-1.41335252, 1.87911807, -2.82885748, 4.05819114]
    np.testing.assert_allclose(out[:4], expected, atol=2e-6)
    assert out[4:].tolist() == [5, 6, 7, 8]


def test_position_interpolation_keeps_fractions():
    x = [0.3, -1.2, 0.7, 2.0]
    phases = [rotated_by("pi", x, p, factor=4) for p in range(8)]
    assert len({tuple(p.round(5)) for p in phases}) == 8
    np.testing.assert_allclose(phases[4], rotated_by("rope", x, 1), atol=1e-6)
    half = rotated_by("pi", x, 3, factor=2)
    np.testing.assert_allclose(phases[6], half, atol=1e-6)  # 6/4 = 3/2
    for p in (0, 5):
        np.testing.assert_array_equal(
            rotated_by("pi", x, p, factor=1), rotated_by("rope", x, p), strict=True
        )
        np.testing.assert_array_equal(
            rotated_by("pi", x, p, factor=4), rotated_by("pi", x, p, factor=4.0), strict=True
        )


ROOT = [0.70710678, 0.35355339, 0.1767767, 0.08838835]


@pytest.mark.parametrize(
    "H, slopes",
    [
        (1, [2.0**-8]),
        (2, [2.0**-4, 2.0**-8]),
        (4, [0.25, 0.0625, 0.015625, 0.00390625]),
        (6, [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]),
        (8, [2.0**-e for e in range(1, 9)]),
        (12, [2.0**-e for e in range(1, 9)] + ROOT),
    ],
)
def test_alibi_slopes(H, slopes):
    scheme = scheme_of("alibi", 4, 64, H=H)
    q_pos, k_pos = jnp.array([9], jnp.int32), jnp.array([9, 8, 2], jnp.int32)
    bias = scheme.bias(q_pos, k_pos)
    assert bias.shape == (H, 1, 3) and bias.dtype == jnp.float32
    np.testing.assert_allclose(bias[:, 0, 0] - bias[:, 0, 1], slopes, rtol=2e-7)
    np.testing.assert_allclose(bias[:, 0, 0] - bias[:, 0, 2], 7 * np.array(slopes), rtol=2e-7)
    np.testing.assert_allclose(alibi_slopes(H), slopes, rtol=1e-7)
    assert jnp.all(bias[:, 0, 0] == 0.0)  # the relative form, so float32 is exact far away
    halved = scheme_of("alibi", 4, 64, H=H, slope_scale=0.5).bias(q_pos, k_pos)
    np.testing.assert_allclose(halved, bias / 2, rtol=1e-7)


def test_sinusoidal_rows():
    """sin on even channels, cos on odd ones, row 0 = 0, 1, 0, 1, …"""
    x, pos = jnp.zeros((3, 4)), jnp.array([0, 2, 70000], jnp.int32)
    out = np.asarray(scheme_of("sinusoidal", 4, 64, D=4).embed(x, pos))
    assert out[0].tolist() == [0.0, 1.0, 0.0, 1.0]
    np.testing.assert_allclose(
        out[1], [0.90929743, -0.41614684, math.sin(0.02), math.cos(0.02)], atol=1e-7
    )
    np.testing.assert_allclose(out[:, 0::2] ** 2 + out[:, 1::2] ** 2, 1.0, atol=1e-6)
    oracle = embed("sinusoidal", Setting(D=4, H=1, K=4, L=64), {}, np.zeros((3, 4)), [0, 2, 70000])
    np.testing.assert_allclose(oracle[1], out[1], atol=1e-7)


def test_sinusoidal_adds():
    x = jnp.full((2, 8), 3.0)
    pos = jnp.array([5, 6], jnp.int32)
    scheme = scheme_of("sinusoidal", 4, 64)
    np.testing.assert_allclose(scheme.embed(x, pos) - scheme.embed(0 * x, pos), 3.0, atol=1e-6)


@pytest.mark.parametrize("base", [500000, 1e10, 10**10, 1000000.0])
def test_large_and_integer_bases(family, base):
    frequencies, _ = family("rope", 64, 512, base=base)
    assert frequencies[0] == 1.0 and np.all(np.isfinite(frequencies)) and np.all(frequencies > 0)
    assert np.all(np.diff(frequencies) < 0)
    assert base_of(frequencies) == pytest.approx(float(base), rel=1e-9)


@pytest.mark.parametrize("base", [500000, 10**10])
def test_large_bases_turn_queries(base):
    out = rotated_by("rope", [1.0, 2.0, 3.0, 4.0], 7, base=base)
    assert np.all(np.isfinite(out))
    np.testing.assert_allclose(
        out[0], math.cos(7) - 3 * math.sin(7), atol=1e-6
    )  # pair (0, 2) turns by 7


def test_log_n():
    expected = {1: 1.0, 256: 1.0, 512: 1.0, 1024: 1.111111, 2048: 1.222222, 4096: 1.333333}
    q = jnp.ones((len(expected), 1, 4))
    visible = jnp.array([n - 1 for n in expected], jnp.int32)  # a query at n − 1 sees n keys
    out = scheme_of("log_n", 4, 512).query(q, visible)
    np.testing.assert_allclose(out[:, 0, 0], list(expected.values()), atol=1e-6)
    free = scheme_of("log_n", 4, 512, clip=False).query(q, visible)
    np.testing.assert_allclose(free[:, 0, 0], np.log(list(expected)) / np.log(512), atol=1e-6)
    with pytest.raises(ValueError):
        scheme_of("log_n", 4, 1)
