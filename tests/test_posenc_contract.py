"""What every registered scheme must keep, whatever it computes: registered is tested."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from oracles.comparison import hook_logits
from oracles.registered import (
    CASES,
    COARSE,
    D,
    G,
    H,
    K,
    L,
    N,
    arange,
    create,
    every_case,
    far,
    inputs,
    outputs,
    scheme_for,
    slow_variants,
)


@every_case
def test_shapes_and_dtypes_with_fewer_queries_than_keys(case):
    scheme, T, S = scheme_for(case), 3, N
    shapes = {"embed": (T, D), "query": (T, H, K), "key": (S, G, K)}
    shapes |= {"bias": (H, T, S), "content": (H, T, S), "value": (T, H, K)}
    for dtype in (jnp.float32, jnp.bfloat16):
        out = jax.eval_shape(
            functools.partial(outputs, scheme), *inputs(T, S, dtype), arange(5, 8), arange(0, 8)
        )
        for hook, array in out.items():
            assert array.shape == shapes[hook], hook
            kept = hook in ("embed", "query", "key")
            assert array.dtype == (dtype if kept else jnp.float32), hook


@every_case
def test_values_and_gradients_are_finite_everywhere(case):
    """The future included, and distances to 65,535: a later mask does not stop a NaN gradient.

    Positions are constants of a compiled function here, and traced in the test of batches.
    """
    scheme = scheme_for(case)
    last = 65536 if scheme.max_length is None and not scheme.randomized else L
    scheme = scheme.at_length(last)
    near = np.unique(np.r_[0:5, L - 2, last // 2 + 1, last - 1])
    assert len(near) == N
    pos = jnp.asarray(near, jnp.int32)
    graph, state = nnx.split(scheme)
    if scheme.max_length is not None:
        graph, state = nnx.split(scheme_for(case))

    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    @functools.partial(jax.value_and_grad, has_aux=True)
    def run(arguments):
        state, x, q, k, w = arguments
        out = outputs(nnx.merge(graph, state), x, q, k, w, pos, pos)
        return sum(jnp.sum(jnp.sin(y)) for y in out.values()), out

    for scale in (1.0, 0.0):
        data = tuple(scale * y for y in inputs(N, N))
        (_, out), gradients = run((state, *data))
        for hook, array in out.items():
            assert jnp.all(jnp.isfinite(array)), hook
        for gradient in jax.tree.leaves(gradients):
            assert jnp.all(jnp.isfinite(gradient))


@every_case
def test_one_row_is_that_row_of_the_whole(case):
    """No hook counts rows: one query against all keys gives its row, wherever it stands."""
    scheme, n = far(scheme_for(case), 32), N
    x, q, k, w = inputs(n, n)
    pos = jnp.asarray([0, 1, 2, 5, 6, 9, 12, 15], jnp.int32)
    whole = outputs(scheme, x, q, k, w, pos, pos)
    rows = {"embed": 0, "query": 0, "bias": 1, "content": 1, "value": 0}
    for i in (0, 4, 7):
        one = slice(i, i + 1)
        row = outputs(scheme, x[one], q[one], k, w[:, one], pos[one], pos)
        assert row.keys() == whole.keys()
        for hook in row.keys() & rows.keys():
            expected = jax.lax.slice_in_dim(whole[hook], i, i + 1, axis=rows[hook])
            np.testing.assert_allclose(row[hook], expected, atol=1e-5, err_msg=hook)
    half = scheme.key(k[5:6], pos[5:6])
    np.testing.assert_allclose(half, whole["key"][5:6], atol=1e-6)


@every_case
def test_rows_of_a_batch_may_have_positions_of_their_own(case):
    """Mapped over a batch, a row that starts later gives what it gives alone."""
    scheme = far(scheme_for(case), 32)
    starts, T = (0, 3, 7), N
    x, q, k, _ = (jnp.stack([y] * 3) for y in inputs(T, T))
    pos = jnp.stack([arange(start, start + T) for start in starts])

    def row(x, q, k, pos):
        return scheme.embed(x, pos), hook_logits(scheme, q, k, pos, pos)

    together = jax.vmap(row)(x, q, k, pos)
    for b in (0, 2):
        alone = row(x[b], q[b], k[b], pos[b])
        np.testing.assert_allclose(together[0][b], alone[0], atol=1e-5)
        np.testing.assert_allclose(together[1][b], alone[1], atol=1e-5)


@every_case
def test_causality(case):
    """A later key never reaches an earlier query's logits, content terms included."""
    scheme, n = far(scheme_for(case), 32), N
    _, q, k, _ = inputs(n, n)
    pos = arange(0, n)
    before = hook_logits(scheme, q, k, pos, pos)
    after = hook_logits(scheme, q, k.at[6].add(3.0), pos, pos)
    np.testing.assert_array_equal(before[:, :6], after[:, :6])
    assert jnp.any(before[:, 6:] != after[:, 6:])


@pytest.mark.parametrize("case", slow_variants([c for c in CASES if c[0] not in COARSE]), ids=str)
def test_neighbouring_positions_differ_in_bfloat16(case):
    """Positions are not held in the activations' dtype: seven past 256 give seven encodings.

    Not asked of schemes without positions, with buckets, or with a clipped distance.
    """
    options = dict(case[1])
    if case[0] == "longrope":
        options = {key: np.linspace(1, 4, 32).tolist() for key in options}
    bounded = scheme_for(case).max_length is not None
    scheme = create(case[0], train_length=512 if bounded else 64, head_size=64, **options)
    scheme = scheme.at_length(512)
    data, rows = inputs(1, 1, jnp.bfloat16, head_size=64), []
    for p in range(258, 265):  # 255 … 261 from key 3; from key 0 FIRE's distance is always one
        out = outputs(scheme, *data, arange(p, p + 1), arange(3, 4))
        moving = [
            np.asarray(out[hook], np.float32).ravel() for hook in sorted(out) if hook != "key"
        ]
        rows.append(np.concatenate(moving).tobytes())
    assert len(set(rows)) == 7


def test_nope_has_no_positions():
    scheme = create("nope")
    x, q, k, _ = inputs(8, 8)
    shuffled = jnp.asarray(np.random.default_rng(1).permutation(8), jnp.int32)
    for pos in (arange(0, 8), arange(0, 8) + 1000, shuffled):
        assert jnp.array_equal(scheme.embed(x, pos), x)
        assert jnp.array_equal(scheme.query(q, pos), q) and jnp.array_equal(scheme.key(k, pos), k)
        assert scheme.bias(pos, pos) is None
        assert scheme.content(q, jnp.repeat(k, H // G, axis=1), pos, pos) is None
    assert jax.tree.leaves(nnx.state(scheme)) == []


def test_randomised_positions():
    scheme = create("rope", positions="randomized", max_position=64)
    one, again, other = (scheme.positions(16, jax.random.key(s)) for s in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    many = np.stack([scheme.positions(16, jax.random.key(s)) for s in range(40)])
    assert many.max() == 63 and many.min() == 0 and np.all(np.diff(many) > 0)
    assert 28 < many.mean() < 35  # uniform over the range
    np.testing.assert_array_equal(scheme.positions(64, jax.random.key(0)), np.arange(64))
    assert scheme.at_length(64).max_length is None or scheme.max_length == 64
    with pytest.raises(ValueError, match="max_position"):
        scheme.at_length(65)
    with pytest.raises(ValueError, match="max_position"):
        scheme.positions(65, jax.random.key(0))
