"""Limits in which schemes become one another, and wrong YaRNs that others have shipped."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from oracles import Setting
from oracles.comparison import build, hook_logits

import posenc

K, H, L = 16, 2, 64


def scheme_of(spec, n=None, K=K, L=L, **options):
    dims = posenc.Dims(D=8, H=H, K=K, train_length=L)
    scheme = posenc.create(spec, dims, nnx.Rngs(0), **options)
    return scheme if n is None else scheme.at_length(n)


@functools.cache
def queries_and_keys(size=K):
    rng = np.random.default_rng(0)
    return tuple(jnp.asarray(rng.normal(size=(6, H, size)), jnp.float32) for _ in range(2))


POSITIONS = (0, 1, 7, 63, 100, 255)


def turned(scheme, size=K):
    """Queries and keys after their hooks, at near and far positions."""
    q, k = queries_and_keys(size)
    pos = jnp.asarray(POSITIONS, jnp.int32)
    return np.stack([scheme.query(q, pos), scheme.key(k, pos)])


def probabilities(scheme, size=K):
    q, k = queries_and_keys(size)
    pos = jnp.asarray(POSITIONS, jnp.int32)
    return jax.nn.softmax(hook_logits(scheme, q, k, pos, pos), axis=-1)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("name", ["pi", "ntk", "yarn", "dynamic_ntk"])
def test_factor_one_is_rope_bit_for_bit(name, pairing):
    rope = scheme_of("rope", pairing=pairing)
    same = [scheme_of(name, factor=1.0, pairing=pairing)]
    same += [scheme_of(name, n, pairing=pairing) for n in (None, 8, L)]
    for scheme in same:
        np.testing.assert_array_equal(scheme.inverse_frequencies(), rope.inverse_frequencies())
        np.testing.assert_array_equal(turned(scheme), turned(rope))
        assert scheme.attention_factor == 1.0


@pytest.mark.parametrize("name", ["pi", "ntk", "yarn", "dynamic_ntk"])
def test_beyond_the_training_length_they_are_not_rope(name):
    assert np.max(np.abs(turned(scheme_of(name, 4 * L)) - turned(scheme_of("rope")))) > 0.1


def test_dynamic_ntk_with_factor_one_is_ntk_at_the_ratio():
    for n in (96, 128, 1000):
        np.testing.assert_allclose(
            scheme_of("dynamic_ntk", n).inverse_frequencies(),
            scheme_of("ntk", factor=n / L).inverse_frequencies(),
            rtol=1e-14,
        )


def test_alibi_with_no_slope_is_nope():
    np.testing.assert_allclose(
        probabilities(scheme_of("alibi", slope_scale=1e-30)),
        probabilities(scheme_of("nope")),
        atol=1e-7,
    )


@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize("spec", ["rope", "yarn:factor=4"])
def test_pairings_are_one_function_of_permuted_channels(spec, fraction):
    """Interleaved is half-split with the rotated channels in the order 0, 2, 4, …, 1, 3, 5, …."""
    rotated = int(K * fraction)
    order = [*range(0, rotated, 2), *range(1, rotated, 2), *range(rotated, K)]
    options = {"rotary_fraction": fraction}
    options |= {"factor": 4} if spec.startswith("yarn") else {}
    half, interleaved = (
        scheme_of(spec.split(":")[0], pairing=p, **options) for p in ("half", "interleaved")
    )
    q, _ = queries_and_keys()
    pos = jnp.asarray(POSITIONS, jnp.int32)
    np.testing.assert_allclose(
        half.query(q[..., np.array(order)], pos),
        interleaved.query(q, pos)[..., np.array(order)],
        atol=1e-6,
    )
    assert np.max(np.abs(half.query(q, pos) - interleaved.query(q, pos))) > 0.1


def test_rotation_keeps_lengths_and_yarn_scales_them():
    """|q| is kept by rotation; YaRN's temperature t multiplies logits at distance zero by t²."""
    rope, yarn = scheme_of("rope"), scheme_of("yarn", factor=16.0)
    q, k = turned(rope)
    before = np.stack(queries_and_keys())
    np.testing.assert_allclose(
        np.linalg.norm([q, k], axis=-1), np.linalg.norm(before, axis=-1), rtol=1e-6
    )
    zero = np.einsum("thk,thk->th", *before)
    np.testing.assert_allclose(np.einsum("thk,thk->th", q, k), zero, rtol=1e-4, atol=1e-5)
    q, k = turned(yarn)
    heat = (0.1 * math.log(16.0) + 1.0) ** 2
    np.testing.assert_allclose(np.einsum("thk,thk->th", q, k), heat * zero, rtol=1e-4, atol=1e-5)
    assert heat == pytest.approx(1.2772588722**2)


def test_yarn_temperature_leaves_unrotated_channels():
    """It multiplies cosines and sines, so channels that are not turned are not heated."""
    scheme = scheme_of("yarn", factor=16.0, rotary_fraction=0.5)
    q, k = turned(scheme)
    before = np.stack(queries_and_keys())[..., K // 2 :]
    np.testing.assert_allclose(
        q[..., K // 2 :] * k[..., K // 2 :], before[0] * before[1], rtol=1e-6
    )


def test_rope_logits_depend_on_the_distance_only():
    q, k = queries_and_keys()
    for spec in ("rope", "pi:factor=4", "ntk:factor=4", "yarn:factor=4"):
        scheme = build(spec, Setting(D=8, H=H, K=K, L=L))
        first, later = (
            hook_logits(scheme, q, k, pos, pos)
            for pos in (jnp.arange(s, s + 6, dtype=jnp.int32) for s in (0, 500))
        )
        visible = np.isfinite(first)
        np.testing.assert_allclose(first[visible], later[visible], atol=2e-4, err_msg=spec)


FAR = 65_500  # positions up to 65,536 are promised


@pytest.mark.parametrize(
    "spec", ["rope", "yarn:factor=4", "sinusoidal", "transformer_xl", "sandwich"]
)
def test_far_positions_are_as_exact_as_near_ones(spec):
    """Angles that grow without bound lose 4e-3 radians in a float32 product out there."""
    if spec == "sinusoidal":
        scheme = scheme_of(spec)
        pos = np.arange(FAR, FAR + 8)
        table = scheme.embed(jnp.zeros((8, 8)), jnp.asarray(pos, jnp.int32))
        angles = pos[:, None] * scheme.frequencies()[None]
        expected = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(8, 8)
        np.testing.assert_allclose(table, expected, atol=1e-4)
        return
    scheme = scheme_of(spec)
    q, k = queries_and_keys()
    places = [jnp.arange(start, start + 6, dtype=jnp.int32) for start in (0, FAR)]
    near, far = (hook_logits(scheme, q, k, pos, pos) for pos in places)
    np.testing.assert_allclose(far, near, atol=3e-4)


def test_fire_with_a_tiny_c_is_a_network_of_the_share_of_the_distance():
    """ψ(x) = ln(|cx| + 1) is cx for small c: the network then sees (i − j)/max(i, L)."""
    scheme = scheme_of("fire")
    scheme.c[...] = jnp.asarray(1e-4)
    pos = jnp.asarray([3, 64, 200], jnp.int32)
    seen = scheme.distances(pos, pos)
    i, j = np.asarray(pos)[:, None], np.asarray(pos)[None]
    expected = np.maximum(i - j, 0) / np.maximum(i, L)
    np.testing.assert_allclose(seen, expected, atol=0.02)


@pytest.mark.parametrize("factor", [4.0, "auto"])
def test_interpolated_sinusoids_are_plain_ones_at_shares_of_positions(factor):
    scheme = scheme_of("sinusoidal", n=256, factor=factor)  # auto: 256 / 64
    zeros, pos = jnp.zeros((6, 8)), np.array(POSITIONS)
    angles = pos[:, None] / 4 * 10000.0 ** (-np.arange(0, 8, 2) / 8)[None]
    expected = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(6, 8)
    np.testing.assert_allclose(
        scheme.embed(zeros, jnp.asarray(pos, jnp.int32)), expected, atol=1e-5
    )
    assert scheme.prefix_invariant == (factor != "auto")
