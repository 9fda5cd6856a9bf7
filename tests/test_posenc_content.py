"""Positions that meet the query or the key: Shaw, Transformer-XL, XLNet, DeBERTa, CoPE."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from oracles import Setting
from oracles.comparison import (
    assert_gradients_match_oracle,
    assert_matches_oracle,
    hook_attention,
    hook_logits,
    parameters_of,
    randomised,
)
from oracles.content import deberta_bucket, deberta_row, shaw_index
from oracles.parameters import ATTRIBUTES, read, write

import posenc

NAMES = ("shaw", "transformer_xl", "xlnet", "deberta", "cope")

CASES = [
    ("shaw", {}, [None, 256]),
    ("shaw", {"clip_distance": 3}, [256]),
    ("shaw", {"values": False}, [64]),
    ("transformer_xl", {}, [None, 256]),
    ("xlnet", {}, [None, 256]),
    ("deberta", {}, [None, 256]),
    ("deberta", {"num_buckets": 8, "max_distance": 20}, [256]),
    ("deberta", {"p2c_index": "paper"}, [256]),
    ("cope", {}, [None, 256]),
    ("cope", {"max_positions": 3}, [64]),
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
        ("shaw", {"clip_distance": 2}),
        ("transformer_xl", {}),
        ("xlnet", {}),
        ("deberta", {"num_buckets": 4, "max_distance": 8}),
        ("deberta", {"p2c_index": "paper"}),
        ("cope", {"max_positions": 3}),
    ],
)
def test_gradients_equal_finite_differences_of_the_oracle(spec, options):
    assert_gradients_match_oracle(spec, Setting(D=8, H=2, K=8, L=64, n=128, options=options))


def scheme_of(spec, D=8, H=1, K=4, L=64, **options):
    dims = posenc.Dims(D=D, H=H, K=K, train_length=L)
    return posenc.create(spec, dims, nnx.Rngs(0), **options)


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def arange(*bounds):
    return jnp.arange(*bounds, dtype=jnp.int32)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_known_to_the_oracle(name):
    """No parameter of the scheme is left out of the comparison."""
    scheme = scheme_of(name)
    leaves = jax.tree.leaves(nnx.state(scheme))
    named = read(name, scheme)
    assert len(named) == len(ATTRIBUTES[name]) == len(leaves)
    assert sorted(v.shape for v in named.values()) == sorted(leaf.shape for leaf in leaves)


@pytest.mark.parametrize("name", NAMES)
def test_zero_tables_are_nope(name):
    """DeBERTa's divisor stays 3K, so it is NoPE on queries smaller by √3."""
    scheme = scheme_of(name, H=2)
    graph, state = nnx.split(scheme)
    scheme = nnx.merge(graph, jax.tree.map(jnp.zeros_like, state))
    q, k, v, pos = normal(6, 2, 4), normal(6, 2, 4, seed=1), normal(6, 2, 4, seed=2), arange(6)
    plain = q / 3**0.5 if name == "deberta" else q
    np.testing.assert_allclose(
        hook_attention(scheme, q, k, v, pos, pos),
        hook_attention(scheme_of("nope", H=2), plain, k, v, pos, pos),
        atol=1e-6,
    )


def test_shaw_indices():
    """clip(j − i, −4, 4) + 4 in both directions, and far past the table."""
    scheme = scheme_of("shaw", clip_distance=4)
    assert read("shaw", scheme)["key_table"].shape == (9, 4)
    rows = jnp.zeros((9, 4)).at[:, 0].set(jnp.arange(9.0))
    write("shaw", scheme, {"key_table": rows, "value_table": rows})
    q = jnp.zeros((8, 1, 4)).at[..., 0].set(2.0)  # √K = 2 cancels
    k = normal(8, 1, 4)
    index = scheme.content(q, k, arange(8), arange(8))[0]
    assert index[0].tolist() == [4, 5, 6, 7, 8, 8, 8, 8]
    assert index[7].tolist() == [0, 0, 0, 0, 1, 2, 3, 4]
    assert index.tolist() == [[shaw_index(i, j, 4) for j in range(8)] for i in range(8)]
    far = scheme.content(q[:1], k[:2], jnp.array([1000], jnp.int32), arange(2))
    assert far[0, 0].tolist() == [0, 0]
    one_hot = jnp.eye(8)[None]  # each query looks at one key: the value side uses the same index
    for j in (0, 3, 7):
        w = jnp.broadcast_to(one_hot[:, j : j + 1], (1, 8, 8))
        value = scheme.value(w, arange(8), arange(8))[:, 0, 0]
        assert value.tolist() == index[:, j].tolist()


def test_shaw_without_values():
    scheme = randomised(scheme_of("shaw", values=False))
    w = jnp.full((1, 8, 8), 1 / 8)
    assert scheme.value(w, arange(8), arange(8)) is None
    assert "value_table" not in parameters_of("shaw", scheme)


@pytest.mark.parametrize("name", ["transformer_xl", "xlnet"])
def test_transformer_xl_terms(name):
    """u meets the key, v meets the projected distance, and the scale is on the sum."""
    zero = scheme_of(name, D=4, H=1, K=4)
    u, v = normal(1, 4, seed=3), normal(1, 4, seed=4)
    W = (
        jnp.zeros((4, 1, 4)).at[0, 0, 1].set(1.0).at[2, 0, 2].set(1.0)
    )  # sin r → channel 1, cos r → 2
    write(name, zero, {"u": u, "v": v, "W_R": W})
    q, k = normal(3, 1, 4), normal(3, 1, 4, seed=1)
    content = zero.content(q, k, jnp.array([5, 6, 9], jnp.int32), jnp.array([0, 4, 5], jnp.int32))
    for t, i in enumerate((5, 6, 9)):
        for s, j in enumerate((0, 4, 5)):
            moved = q[t, 0] + v[0]
            expected = u[0] @ k[s, 0] + moved[1] * np.sin(i - j) + moved[2] * np.cos(i - j)
            assert float(content[0, t, s]) == pytest.approx(float(expected) / 2.0, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_the_oldest_key_reaches_the_last_query(name):
    scheme = randomised(scheme_of(name, H=2))
    q, k, v = normal(1, 2, 4), normal(9, 2, 4, seed=1), normal(9, 2, 4, seed=2)
    last = jnp.array([8], jnp.int32)
    before = hook_attention(scheme, q, k, v, last, arange(9))
    after = hook_attention(scheme, q, k, v.at[0].add(1.0), last, arange(9))
    assert jnp.max(jnp.abs(before - after)) > 1e-3


def test_deberta_log_buckets():
    """The rows that content→position reads, learned from a table that holds its row numbers."""
    scheme = scheme_of("deberta", D=4, num_buckets=256, max_distance=512)
    table = jnp.zeros((512, 4)).at[:, 0].set(jnp.arange(512.0))
    into_first = jnp.zeros((4, 1, 4)).at[0, 0, 0].set(1.0)
    write(
        "deberta",
        scheme,
        {"table": table, "key_projection": into_first, "query_projection": 0 * into_first},
    )
    q = jnp.zeros((1, 1, 4)).at[..., 0].set(1.0)
    distances = [0, 1, 127, 128, 129, 130, 200, 300, 400, 511, 512, 600, 5000]
    published = [0, 1, 127, 128, 129, 130, 169, 207, 233, 255, 255, 255, 255]
    k_pos = jnp.asarray(5000 - np.array(distances), jnp.int32)
    k = normal(len(distances), 1, 4)
    rows = scheme.content(q, k, jnp.array([5000], jnp.int32), k_pos)[0, 0] * 12**0.5
    np.testing.assert_allclose(rows, 256 + np.array(published), atol=1e-3)
    assert [deberta_row(r, 256, 512) for r in distances] == [256 + p for p in published]
    assert deberta_bucket(-200, 256, 512) == -169


@pytest.mark.parametrize("B, M", [(256, 512), (8, 20), (20, 81)])
def test_deberta_buckets_of_every_distance(B, M):
    scheme = scheme_of("deberta", num_buckets=B, max_distance=M)
    distances = np.arange(-M - 9, M + 9)
    found = np.asarray(scheme.rows(jnp.asarray(distances)))
    assert found.tolist() == [deberta_row(int(r), B, M) for r in distances]


def test_deberta_buckets_at_exact_powers():
    """Of 20 to 81, three buckets a doubling of 10: float64 puts the third logarithm above 3."""
    scheme = scheme_of("deberta", num_buckets=20, max_distance=81)
    rows = scheme.rows(jnp.array([0, 9, 10, 11, 20, 21, 40, 41, 80, 81]))
    assert rows.tolist() == [20, 29, 30, 31, 33, 34, 36, 37, 39, 39]


@pytest.mark.parametrize("name", NAMES)
def test_terms_of_bfloat16_queries_are_computed_in_float32(name):
    scheme = randomised(scheme_of(name, H=2))
    low = [normal(6, 2, 4, seed=s).astype(jnp.bfloat16) for s in (0, 1)]
    exact = scheme.content(*(a.astype(jnp.float32) for a in low), arange(6), arange(6))
    np.testing.assert_array_equal(scheme.content(*low, arange(6), arange(6)), exact)


def test_deberta_directions():
    """Code and paper agree on the diagonal and, where the table is not symmetric, nowhere else."""
    code, paper = (
        randomised(scheme_of("deberta", p2c_index=index, num_buckets=4, max_distance=8))
        for index in ("code", "paper")
    )
    q, k, pos = normal(6, 1, 4), normal(6, 1, 4, seed=1), arange(6)
    ours, theirs = (hook_logits(scheme, q, k, pos, pos)[0] for scheme in (code, paper))
    np.testing.assert_allclose(np.diag(ours), np.diag(theirs), atol=1e-6)
    below = np.tril_indices(6, -1)
    assert np.min(np.abs(ours[below] - theirs[below])) > 1e-4


def test_cope_counts_gates():
    """With every gate at one half, a key's position is half the number of keys up to the query."""
    scheme = scheme_of("cope", max_positions=5)
    table = jnp.zeros((5, 4)).at[:, 0].set(jnp.arange(5.0))
    write("cope", scheme, {"table": table})
    q = jnp.zeros((12, 1, 4)).at[..., 0].set(2.0)
    content = scheme.content(q, jnp.zeros((12, 1, 4)), arange(12), arange(12))[0]
    for i in range(12):
        expected = [min((i - j + 1) / 2, 4.0) for j in range(i + 1)]
        np.testing.assert_allclose(content[i, : i + 1], expected, atol=1e-5)


def test_cope_gates_outside_the_mask_count_nothing():
    """A document that starts at key 4 counts no gates before it: its rows are as when alone."""
    scheme = randomised(scheme_of("cope"), scale=1.0)
    q, k, pos = normal(9, 1, 4), normal(9, 1, 4, seed=1), arange(9)
    segment = np.array([0] * 4 + [1] * 5)
    visible = jnp.asarray(np.tril(np.ones((9, 9), bool)) & (segment[:, None] == segment[None]))
    inside = scheme.content(q, k, pos, pos, visible)
    first = scheme.content(q[:4], k[:4], pos[:4], pos[:4])
    alone = scheme.content(q[4:], k[4:], pos[4:], pos[4:])
    below = np.tril_indices(5)
    np.testing.assert_allclose(inside[0, 4:, 4:][below], alone[0][below], atol=1e-5)
    np.testing.assert_allclose(
        inside[0, :4, :4][np.tril_indices(4)], first[0][np.tril_indices(4)], atol=1e-5
    )
    default = scheme.content(q, k, pos, pos)
    stated = scheme.content(q, k, pos, pos, pos[None, :] <= pos[:, None])
    np.testing.assert_array_equal(default, stated)


def test_tables_start_where_their_papers_do():
    assert jnp.all(read("cope", scheme_of("cope"))["table"] == 0.0)
    for name in ("transformer_xl", "xlnet"):
        named = read(name, scheme_of(name, D=64, H=8, K=32))
        assert all(0.015 < float(jnp.std(named[key])) < 0.025 for key in ("u", "v")), name


@pytest.mark.parametrize(
    "spec, options, named",
    [
        ("shaw", {"clip_distance": 0}, "clip_distance"),
        ("shaw", {"values": "no"}, "values"),
        ("deberta", {"num_buckets": 0}, "num_buckets"),
        ("deberta", {"num_buckets": 32, "max_distance": 17}, "max_distance"),  # log(1) = 0 divides
        ("deberta", {"p2c_index": "both"}, "p2c_index"),
        ("cope", {"max_positions": 0}, "max_positions"),
        ("transformer_xl", {"clamp_len": 3}, "clamp_len"),
    ],
)
def test_refused_by_name(spec, options, named):
    with pytest.raises(ValueError, match=named):
        scheme_of(spec, **options)


def test_sinusoids_of_an_odd_width_are_refused():
    for name in ("transformer_xl", "xlnet"):
        with pytest.raises(ValueError, match="D|d_model"):
            scheme_of(name, D=5)
