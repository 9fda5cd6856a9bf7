"""Learned and fixed biases by distance: T5, KERPLE, Sandwich, FIRE."""

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from oracles import Setting
from oracles.comparison import assert_gradients_match_oracle, assert_matches_oracle, randomised
from oracles.distance import sandwich_sum, t5_bucket
from oracles.parameters import read, write

import posenc

CASES = [
    ("t5", {}, [None, 256]),
    ("t5", {"num_buckets": 8, "max_distance": 20}, [256]),
    ("kerple", {}, [None, 256]),
    ("kerple", {"kind": "power"}, [64]),
    ("sandwich", {}, [None, 256]),
    ("sandwich", {"width": 32}, [256]),
    ("fire", {}, [None, 256]),
    ("fire", {"hidden": 5, "init_length": 20}, [256]),
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
    [
        ("t5", {}),
        ("kerple", {}),
        ("kerple", {"kind": "power"}),
        ("sandwich", {}),
        ("fire", {}),
    ],
)
def test_gradients_equal_finite_differences_of_the_oracle(spec, options):
    assert_gradients_match_oracle(spec, Setting(D=8, H=2, K=8, L=64, n=128, options=options))


def scheme_of(spec, H=4, L=64, **options):
    dims = posenc.Dims(D=8, H=H, K=8, train_length=L)
    return posenc.create(spec, dims, nnx.Rngs(0), **options)


def by_distance(scheme, distances):
    """The bias of one far query against keys at these distances, [H, S]."""
    last = max(*distances, 64)
    q_pos = jnp.array([last], jnp.int32)
    k_pos = jnp.asarray(last - np.asarray(distances), jnp.int32)
    return np.asarray(scheme.bias(q_pos, k_pos))[:, 0]


@pytest.mark.parametrize("name", ["t5", "fire"])
def test_every_parameter_is_known_to_the_oracle(name):
    """No parameter of the scheme is left out of the comparison."""
    scheme = scheme_of(name)
    shapes = sorted(value.shape for value in read(name, scheme).values())
    assert shapes == sorted(leaf.shape for leaf in jax.tree.leaves(nnx.state(scheme)))


def bucket_of(distances, **options):
    """The rows of the table that T5 reads, learned from a table that holds its row numbers."""
    scheme = scheme_of("t5", **options)
    rows = options.get("num_buckets", 32)
    write("t5", scheme, {"table": jnp.tile(jnp.arange(rows, dtype=jnp.float32)[:, None], (1, 4))})
    return by_distance(scheme, distances)[0].astype(int).tolist()


FIRST = {16: 16, 17: 19, 18: 21, 19: 24, 20: 27, 21: 31, 22: 35, 23: 40, 24: 46, 25: 52}
FIRST |= {26: 59, 27: 67, 28: 77, 29: 87, 30: 99, 31: 113}


def test_t5_buckets_begin_where_published():
    distances = list(range(201)) + [5000]
    ours = bucket_of(distances)
    assert ours == [t5_bucket(n) for n in distances]
    assert ours[:16] == list(range(16))
    for bucket, first in FIRST.items():
        assert ours[first] == bucket and ours[first - 1] == bucket - 1
    assert ours[-1] == 31


def test_t5_buckets_at_exact_powers():
    """Where the logarithm is a whole number, rounding could miss it either way."""
    ours = bucket_of([16, 32, 64, 127, 128, 129], num_buckets=32, max_distance=128)
    exact = [16, 16 + 16 // 3, 16 + 32 // 3, 31, 31, 31]
    assert ours == exact
    doubling = bucket_of([4, 8, 16, 32, 64, 1000], num_buckets=8, max_distance=64)
    assert doubling == [4, 5, 6, 7, 7, 7]
    for step in range(1, 12):  # a bucket each doubling: every power of two begins one
        far = 2 ** (step + 3)
        found = bucket_of([far - 1, far], num_buckets=16, max_distance=8 * 2**8)
        assert found[1] == min(8 + step, 15), far
        assert found[0] == min(8 + step - 1, 15), far


def test_t5_buckets_of_other_sizes_at_exact_powers():
    """With 20 buckets to 320 tokens every second edge is 10·2^k; float64 puts 10·32^(1/5) above 20."""
    found = bucket_of(
        [9, 10, 19, 20, 39, 40, 79, 80, 159, 160, 319], num_buckets=20, max_distance=320
    )
    assert found == [9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]


def test_t5_with_a_bucket_each_is_a_table_by_distance():
    distances = list(range(64))
    assert bucket_of(distances, num_buckets=128, max_distance=10**6) == distances


def test_t5_future_keys_share_bucket_zero():
    scheme = randomised(scheme_of("t5"))
    bias = scheme.bias(jnp.array([3], jnp.int32), jnp.array([3, 4, 90], jnp.int32))
    np.testing.assert_array_equal(bias[..., 1:], jnp.broadcast_to(bias[..., :1], (4, 1, 2)))


SUMS = {  # distance: (terms t = 0 … 63, terms t = 1 … 64)
    0: (64, 64),
    1: (62.093684, 62.553381),
    8: (45.720514, 46.866014),
    64: (30.520059, 31.128181),
    512: (14.04316, 16.038683),
    4096: (-3.382614, -3.269324),
}


def test_sandwich_sums_and_head_factor():
    """The terms are t = 1 … 64, and head h = 1 … H divides by 8h/H."""
    ours = by_distance(scheme_of("sandwich"), list(SUMS))
    for head in range(4):
        expected = [(high - 64) / (8 * (head + 1) / 4) for _, high in SUMS.values()]
        np.testing.assert_allclose(ours[head], expected, atol=1e-4)
    for r, (zero_based, one_based) in SUMS.items():
        assert sandwich_sum(r, first=0) == pytest.approx(zero_based, abs=1e-6)
        assert sandwich_sum(r) == pytest.approx(one_based, abs=1e-6)


def set_kerple(scheme, p, a):
    """The scheme with these positive values, whatever its parameterisation: Newton's method."""
    graph, state = nnx.split(scheme)
    flat, unravel = jax.flatten_util.ravel_pytree(state)
    target = jnp.concatenate([jnp.asarray(p, jnp.float32), jnp.asarray(a, jnp.float32)])

    def values(flat):
        named = read("kerple", nnx.merge(graph, unravel(flat)))
        return jnp.concatenate([named["p"], named["a"]])

    jacobian = jax.jit(jax.jacobian(values))
    for _ in range(60):
        flat = flat + 0.7 * jnp.linalg.solve(jacobian(flat), target - values(flat))
    np.testing.assert_allclose(values(flat), target, rtol=2e-6)
    return nnx.merge(graph, unravel(flat))


def test_kerple_power_with_p_one_is_alibi():
    alibi = scheme_of("alibi", H=2, slope_scale=8.0)  # slopes 1/2 and 1/32, above KERPLE's floor
    scheme = set_kerple(scheme_of("kerple", H=2, kind="power"), [1.0, 1.0], [0.5, 0.03125])
    distances = [0, 1, 2, 30, 1000]
    np.testing.assert_allclose(
        by_distance(scheme, distances), by_distance(alibi, distances), rtol=2e-5, atol=1e-6
    )


def test_kerple_log_by_hand():
    scheme = set_kerple(scheme_of("kerple", H=2), [0.5, 1.5], [1.0, 0.25])
    ours = by_distance(scheme, [0, 1, 3])
    np.testing.assert_allclose(
        ours,
        -np.array([0.5 * np.log([1, 2, 4]), 1.5 * np.log([1, 1.25, 1.75])]),
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("kind", ["log", "power"])
def test_kerple_stays_positive_with_a_live_gradient(kind):
    """However far the parameters are pushed down, the values stay above 0.01 and can return."""
    graph, state = nnx.split(scheme_of("kerple", kind=kind))
    for push in (-6.0, -1.0, 0.0, 1.0, 6.0):
        moved = jax.tree.map(lambda leaf: leaf + push, state)  # noqa: B023
        named = read("kerple", nnx.merge(graph, moved))
        assert jnp.all(named["p"] >= 0.01) and jnp.all(named["a"] >= 0.01)
        if kind == "power":
            assert jnp.all(named["p"] <= 2.0 + 1e-6)

        def total(state):
            return sum(jnp.sum(y) for y in read("kerple", nnx.merge(graph, state)).values())

        for gradient in jax.tree.leaves(jax.grad(total)(moved)):
            assert jnp.all(gradient > 0.0)


@pytest.mark.parametrize("kind", ["log", "power"])
def test_kerple_starts_as_the_reference_does(kind):
    """p uniform on (0, 2) and a uniform on (0, 1), drawn for each head."""
    named = read("kerple", scheme_of("kerple", H=256, kind=kind))
    p, a = np.asarray(named["p"]), np.asarray(named["a"])
    assert p.shape == a.shape == (256,)
    assert p.max() <= 2.01 and a.max() <= 1.01
    assert 0.85 < p.mean() < 1.15 and 0.42 < a.mean() < 0.58 and len(np.unique(p)) > 200


def test_fire_depends_on_the_query_and_not_only_on_the_distance():
    """Within init_length the normaliser is constant; beyond it, it grows with the query."""
    scheme = randomised(scheme_of("fire", L=16))
    write("fire", scheme, {"L_mult": jnp.ones(())})

    def at(i):
        return scheme.bias(jnp.array([i], jnp.int32), jnp.array([i - 5], jnp.int32))

    np.testing.assert_array_equal(at(8), at(15))
    assert jnp.max(jnp.abs(at(15) - at(200))) > 1e-3


def test_fire_threshold_starts_at_the_training_length():
    for L, options, T in ((16, {}, 16), (16, {"init_length": 64}, 64)):
        scheme = scheme_of("fire", L=L, **options)
        named = read("fire", scheme)
        assert float(named["L_mult"]) == 1.0 and float(named["c"]) == pytest.approx(0.1)
        rows = [
            scheme.bias(jnp.array([i], jnp.int32), jnp.array([i - 5], jnp.int32))
            for i in (T - 1, T, 2 * T)
        ]
        np.testing.assert_allclose(rows[0], rows[1], atol=1e-7)
        assert jnp.max(jnp.abs(rows[1] - rows[2])) > 0.0


@pytest.mark.parametrize(
    "spec, options, named",
    [
        ("t5", {"num_buckets": 1}, "num_buckets"),
        ("t5", {"num_buckets": 31}, "num_buckets"),
        ("t5", {"num_buckets": 32, "max_distance": 16}, "max_distance"),
        ("t5", {"max_distance": 0}, "max_distance"),
        ("kerple", {"kind": "cubic"}, "kind"),
        ("sandwich", {"width": 0}, "width"),
        ("sandwich", {"width": 7}, "width"),
        ("fire", {"hidden": 0}, "hidden"),
        ("fire", {"init_length": 0}, "init_length"),
        ("t5", {"bias_scale": 2.0}, "bias_scale"),
    ],
)
def test_refused_by_name(spec, options, named):
    with pytest.raises(ValueError, match=named):
        scheme_of(spec, **options)


def test_fire_takes_the_size_of_c_and_no_distance_to_the_future():
    scheme, pos = scheme_of("fire"), jnp.array([3, 9, 70], jnp.int32)
    seen = np.asarray(scheme.distances(pos, pos))
    scheme.c[...] = -scheme.c[...]
    np.testing.assert_array_equal(scheme.distances(pos, pos), seen)
    assert (seen[np.triu_indices(3)] == 0).all() and (seen[np.tril_indices(3, -1)] > 0).all()


def test_fire_adds_its_output_biases():
    """A softmax does not see them, and no comparison of weights; a checkpoint's bias is what it says."""
    scheme, pos = scheme_of("fire"), jnp.array([3, 9, 70], jnp.int32)
    before = np.asarray(scheme.bias(pos, pos))
    scheme.output_bias[...] += jnp.arange(4.0)
    after = np.asarray(scheme.bias(pos, pos))
    np.testing.assert_allclose(
        after - before, np.arange(4.0)[:, None, None] + 0 * before, atol=1e-6
    )
