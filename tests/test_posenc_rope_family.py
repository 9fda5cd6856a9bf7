"""The rest of the RoPE family: dynamic PI and YaRN, by-parts, llama3, LongRoPE, p-RoPE, xPos."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import Setting, spectrum
from oracles.comparison import assert_gradients_match_oracle, assert_matches_oracle, hook_logits
from oracles.spectrum import SOURCES, family_of

SHORT = (1.0, 1.05, 1.1, 1.2, 1.4, 1.7, 2.0, 2.5)
LONG = (1.0, 1.3, 1.9, 2.8, 3.5, 4.0, 4.0, 4.0)
LISTS = {"short_factor": SHORT, "long_factor": LONG}

CASES = [
    ("dynamic_pi", {}, [None, 32, 64, 128, 400]),
    ("dynamic_pi", {"original_length": 32, "rotary_fraction": 0.5}, [None, 256]),
    ("dynamic_yarn", {}, [None, 32, 64, 128, 400]),
    ("dynamic_yarn", {"beta_fast": 8, "beta_slow": 0.125, "truncate": False}, [256]),
    ("dynamic_yarn", {"attention_factor": 1.0, "original_length": 32}, [64]),
    ("ntk_by_parts", {}, [None, 32, 128, 400]),
    ("ntk_by_parts", {"factor": 4.0, "beta_fast": 8, "beta_slow": 0.125}, [None, 256]),
    ("llama3", {}, [None, 32, 128, 400]),
    ("llama3", {"factor": 8.0, "low_freq_factor": 0.1, "high_freq_factor": 8.0}, [None, 256]),
    ("llama3", {"factor": 8.0, "base": 500000, "pairing": "interleaved"}, [256]),
    ("longrope", {**LISTS, "factor": 4.0}, [None, 64, 65, 256]),
    ("longrope", {**LISTS, "factor": 1.0}, [64, 256]),
    ("longrope", {**LISTS, "factor": 4.0, "attention_factor": 1.0}, [256]),
    ("longrope", {**LISTS, "factor": 4.0, "original_length": 32}, [33]),
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


@pytest.mark.parametrize(
    "spec, options",
    [("dynamic_yarn", {}), ("longrope", {"factor": 4.0})],
)
def test_gradients_equal_finite_differences_of_the_oracle(spec, options):
    if spec == "longrope":
        options = {**options, "short_factor": SHORT[:4], "long_factor": LONG[:4]}
    assert_gradients_match_oracle(spec, Setting(D=8, H=2, K=8, L=64, n=128, options=options))


def scheme_of(spec, K=16, L=64, n=None, **options):
    return spectrum.scheme_of(spec, K, L, n, H=2, **options)


@pytest.fixture(params=SOURCES)
def family(request):
    return family_of(request.param)


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


@pytest.mark.parametrize("s", [8, 32])
def test_llama3_ratios(family, s):
    frequencies, heat = family("llama3", 128, 8192, factor=s, base=500000)
    ratios = frequencies / family("rope", 128, 8192, base=500000)[0]
    assert np.all(ratios[:29] == 1.0) and heat == 1.0
    np.testing.assert_allclose(ratios[35:], 1 / s, rtol=1e-12)
    published = np.array([0.828168, 0.643743, 0.493507, 0.371122, 0.271425, 0.190211])
    kept = (published - 1 / 8) / (1 - 1 / 8)  # the published ratios are for s = 8
    np.testing.assert_allclose(ratios[29:35], kept + (1 - kept) / s, atol=2e-6)


def test_by_parts_ratios(family):
    """Linear in turns, as in the paper, and nothing multiplies the logits."""
    frequencies, heat = family("ntk_by_parts", 128, 4096, factor=16)
    ratios = frequencies / family("rope", 128, 4096)[0]
    expected = {24: 0.656, 28: 0.383, 32: 0.229, 36: 0.143, 40: 0.095, 44: 0.067, 0: 1, 63: 0.0625}
    for t, value in expected.items():
        assert ratios[t] == pytest.approx(value, abs=5e-4), t
    assert heat == 1.0


def test_llama3_with_the_turns_of_by_parts_is_by_parts(family):
    ours = family("llama3", 128, 4096, factor=16, low_freq_factor=1, high_freq_factor=32)[0]
    np.testing.assert_allclose(ours, family("ntk_by_parts", 128, 4096, factor=16)[0], rtol=1e-13)


def test_yarn_with_the_ramp_of_its_paper_is_by_parts(family):
    ours = family("yarn", 128, 4096, factor=16, ramp="wavelength")[0]
    np.testing.assert_allclose(ours, family("ntk_by_parts", 128, 4096, factor=16)[0], rtol=1e-13)


@pytest.mark.parametrize(
    "L, f, expected",
    [
        (4096, 1, 1.0),
        (4096, 4, 1.08012345),
        (4096, 8, 1.11803399),
        (4096, 32, 1.1902380714),
        (128, 4, 1.13389342),
        (4096, 0.5, 1.0),
    ],
)
def test_longrope_temperature_holds_at_every_length(family, L, f, expected):
    for n in (None, L // 2, L, 2 * L):
        heat = family("longrope", 16, L, n, factor=f, **LISTS)[1]
        assert heat == pytest.approx(expected, abs=1e-8)
    assert family("longrope", 16, L, factor=f, attention_factor=1.25, **LISTS)[1] == 1.25


def test_longrope_switches_past_the_original_length(family):
    plain = family("rope", 16, 64)[0]
    for n, rho in [(None, SHORT), (1, SHORT), (64, SHORT), (65, LONG), (4096, LONG)]:
        ours = family("longrope", 16, 64, n, factor=4, **LISTS)[0]
        np.testing.assert_allclose(ours, plain / np.array(rho), rtol=1e-14)
        at_one = family("longrope", 16, 64, n, factor=1, **LISTS)[0]
        np.testing.assert_array_equal(at_one, ours)


def test_longrope_of_ones_is_rope():
    ones = {"short_factor": (1.0,) * 8, "long_factor": (1,) * 8, "factor": 1.0}
    for n in (64, 256):
        np.testing.assert_array_equal(
            turned(scheme_of("longrope", n=n, **ones)), turned(scheme_of("rope"))
        )


def test_longrope_lists_written_with_slashes():
    written = "longrope:factor=4,short_factor=" + "/".join(map(str, SHORT))
    written += ",long_factor=" + "/".join(map(str, LONG))
    np.testing.assert_array_equal(
        scheme_of(written, n=256).inverse_frequencies(),
        scheme_of("longrope", n=256, factor=4, **LISTS).inverse_frequencies(),
    )


@pytest.mark.parametrize("name", ["dynamic_pi", "dynamic_yarn", "ntk_by_parts", "llama3"])
def test_within_the_training_length_they_are_rope_bit_for_bit(name):
    same = [scheme_of(name), scheme_of(name, n=8), scheme_of(name, n=64)]
    if name in ("ntk_by_parts", "llama3"):
        same += [scheme_of(name, n=256, factor=f) for f in (1, 1.0, 0.5)]
    for scheme in same:
        np.testing.assert_array_equal(turned(scheme), turned(scheme_of("rope")))
        assert scheme.attention_factor == 1.0
    assert np.max(np.abs(turned(scheme_of(name, n=256)) - turned(scheme_of("rope")))) > 0.1


def test_dynamic_schemes_are_the_static_ones_at_the_ratio():
    for n in (96, 256):
        for dynamic, static in (("dynamic_pi", "pi"), ("dynamic_yarn", "yarn")):
            one, other = scheme_of(dynamic, n=n), scheme_of(static, n=n, factor=n / 64)
            np.testing.assert_allclose(
                one.inverse_frequencies(), other.inverse_frequencies(), rtol=1e-14
            )
            assert one.attention_factor == pytest.approx(other.attention_factor, rel=1e-14)


@pytest.mark.parametrize(
    "spec, options, named",
    [
        ("dynamic_pi", {"factor": 2.0}, "factor"),
        ("dynamic_yarn", {"factor": 2.0}, "factor"),
        ("ntk_by_parts", {"beta_fast": 2, "beta_slow": 2}, "beta_fast|beta_slow"),
        ("ntk_by_parts", {"factor": 0.0}, "factor"),
        ("ntk_by_parts", {"truncate": True}, "truncate"),
        ("llama3", {"low_freq_factor": 4.0}, "low_freq_factor|high_freq_factor"),
        ("llama3", {"low_freq_factor": 5.0}, "low_freq_factor|high_freq_factor"),
        ("llama3", {"low_freq_factor": 0.0}, "low_freq_factor"),
        ("llama3", {"factor": -1}, "factor"),
        ("longrope", {}, "short_factor|long_factor"),
        ("longrope", {"short_factor": SHORT}, "long_factor"),
        ("longrope", {"short_factor": SHORT[:7], "long_factor": LONG}, "short_factor"),
        ("longrope", {"short_factor": SHORT, "long_factor": (*LONG, 1.0)}, "long_factor"),
        ("longrope", {"short_factor": (0.0, *SHORT[1:]), "long_factor": LONG}, "short_factor"),
        ("longrope", {"short_factor": 1.0, "long_factor": LONG}, "short_factor"),
        ("dynamic_yarn", {"beta_fast": 4, "beta_slow": 4}, "beta_fast|beta_slow"),
        ("dynamic_yarn", {"ramp": "wavelength", "truncate": True}, "truncate"),
    ],
)
def test_refused_by_name(spec, options, named):
    with pytest.raises(ValueError, match=named):
        scheme_of(spec, **options)


def test_short_training_lengths():
    with pytest.raises(ValueError, match="length"):
        scheme_of("dynamic_yarn", L=6)
    with pytest.raises(ValueError, match="length|log"):
        scheme_of("longrope", L=1, factor=4, **LISTS)
