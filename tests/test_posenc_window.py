"""Windows and sinks, key by key: which are seen, and what CoPE counts among them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from oracles.comparison import randomised

import posenc
from models.attention import attend

DIMS = posenc.Dims(D=8, H=2, K=4, train_length=16)


def arange(*bounds):
    return jnp.arange(*bounds, dtype=jnp.int32)


def drawn(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


@pytest.mark.parametrize("size, sinks", [(1, 0), (3, 0), (3, 2), (4, 1), (20, 0)])
def test_a_window_shows_so_many_keys(size, sinks):
    """Query i sees i − size + 1 … i, the first `sinks` besides; keys behind it are not its concern."""
    window = posenc.create(f"window:size={size},sinks={sinks}", DIMS)
    q_pos, k_pos = arange(4, 12), arange(12)
    seen = np.asarray(window.visible(q_pos, k_pos)) & (k_pos[None] <= q_pos[:, None])
    for row, i in zip(seen, range(4, 12), strict=True):
        expected = [j for j in range(i + 1) if j < sinks or i - j < size]
        assert np.flatnonzero(row).tolist() == expected
    both = posenc.create(f"rope+window:size={size},sinks={sinks}", DIMS)
    np.testing.assert_array_equal(both.visible(q_pos, k_pos), window.visible(q_pos, k_pos))
    assert both.sinks == window.sinks == sinks
    assert window.sink_positions(q_pos) is None


def test_streaming_brings_sinks_as_near_as_the_cache_has_them():
    window = posenc.create("window:size=3,sinks=2,streaming=true", DIMS)
    assert window.sink_positions(arange(8)).tolist() == [0, 1, 2, 3, 4, 4, 4, 4]


def counted(q, k, table, seen):
    """CoPE's weights [H, T, S] in float64, a gate at a time, over the keys that are seen [T, S]."""
    T, H, K = q.shape
    w = np.zeros((H, T, k.shape[0]))
    for h in range(H):
        for t in range(T):
            keys = np.flatnonzero(seen[t])
            scores = [q[t, h] @ k[j, h] for j in keys]
            gates = [1 / (1 + math.exp(-score / K**0.5)) for score in scores]
            for n, j in enumerate(keys):
                p = min(sum(gates[n:]), len(table) - 1)
                low = math.floor(p)
                e = table[low] * (1 - p + low) + table[min(low + 1, len(table) - 1)] * (p - low)
                w[h, t, j] = math.exp((scores[n] + q[t, h] @ e) / K**0.5)
    return w / w.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("window", ["window:size=3", "window:size=3,sinks=2"])
def test_cope_counts_what_the_window_shows(window):
    """Hidden keys open no gates: between a sink and the window nothing is counted."""
    scheme = posenc.create(f"cope:max_positions=4+{window}", DIMS, nnx.Rngs(0))
    scheme = randomised(scheme, scale=1.0)
    q, k, pos = drawn(9, 2, 4), drawn(9, 2, 4, seed=1), arange(9)
    mask = np.tril(np.ones((9, 9), bool)) & np.asarray(scheme.visible(pos, pos))
    table = np.asarray(jax.tree.leaves(nnx.state(scheme))[0], np.float64)
    expected = counted(np.float64(q), np.float64(k), table, mask)
    content = scheme.content(q, k, pos, pos, jnp.asarray(mask))
    logits = jnp.einsum("thk,shk->hts", q, k) / 2 + content
    found = jax.nn.softmax(jnp.where(mask[None], logits, -jnp.inf), axis=-1)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    # Attention hands on the same mask; values of unit vectors give back the weights.
    v = jnp.broadcast_to(jnp.eye(9)[None, :, None], (1, 9, 2, 9))
    out = attend(scheme, q[None], k[None], v, pos, pos)[0]
    np.testing.assert_allclose(out.swapaxes(0, 1), expected, atol=1e-5)
