"""Compositions, hook by hook and claim by claim: what the parts do in turn, and what holds for all of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from oracles.comparison import randomised

import posenc

L, D, H, K = 16, 8, 2, 8


def create(spec, L=L):
    dims = posenc.Dims(D=D, H=H, K=K, train_length=L)
    return randomised(posenc.create(spec, dims, nnx.Rngs(0)), scale=0.5)


def drawn(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


POS = jnp.array([0, 3, 4, 9, 20, 21], jnp.int32)
X, Q, KEYS = drawn(6, D), drawn(6, H, K, seed=1), drawn(6, H, K, seed=2)


@pytest.mark.parametrize(
    "spec, relative, prefix_invariant, per_layer, max_length, sinks",
    [
        ("rope+alibi", True, True, False, None, 0),
        ("rope+log_n", False, True, False, None, 0),
        ("dynamic_ntk+alibi", True, False, False, None, 0),
        ("alibi+shaw", True, True, True, None, 0),
        ("learned+rope", False, True, False, L, 0),
        ("rope+window:size=4,sinks=2", False, True, False, None, 2),
        ("rope:positions=randomized,max_position=32+alibi", True, False, False, None, 0),
    ],
)
def test_claims(spec, relative, prefix_invariant, per_layer, max_length, sinks):
    both = create(spec)
    assert both.relative == relative and both.prefix_invariant == prefix_invariant
    assert both.per_layer == per_layer and both.max_length == max_length
    assert both.sinks == sinks


def test_the_shortest_table_is_how_far_it_reaches():
    parts = {"a": create("learned"), "b": create("learned", L=8), "c": create("alibi")}
    assert posenc.Composition(parts).max_length == 8


def test_the_part_with_randomised_positions_draws_for_all():
    spec = "rope:positions=randomized,max_position=32"
    both, alone, key = create(f"alibi+{spec}"), create(spec), jax.random.key(3)
    assert both.randomized and both.max_position == 32
    np.testing.assert_array_equal(both.positions(8, key), alone.positions(8, key))
    plain = create("rope+alibi")
    assert not plain.randomized and plain.positions(4).tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="one part"):
        create(f"{spec}+alibi:positions=randomized")


def test_each_part_acts_in_turn():
    pos = POS[:4]
    tables = [create(spec).embed(0 * X[:4], pos) for spec in ("sinusoidal", "learned")]
    both = posenc.Composition({s: create(s) for s in ("sinusoidal", "learned")})
    np.testing.assert_allclose(both.embed(X[:4], pos), X[:4] + sum(tables), atol=1e-6)
    rope, log_n = create("rope"), create("log_n")
    for spec in ("rope+log_n", "log_n+rope"):
        np.testing.assert_allclose(
            create(spec).query(Q, POS), log_n.query(rope.query(Q, POS), POS), atol=1e-6
        )
        np.testing.assert_array_equal(create(spec).key(KEYS, POS), rope.key(KEYS, POS))
    assert jnp.abs(log_n.query(Q, POS) - Q).max() > 0.1  # 20 is behind the training length


def test_terms_are_summed():
    names = ("alibi", "t5", "shaw", "cope", "rope")
    parts = {name: create(name) for name in names}
    both, w = posenc.Composition(parts), jax.nn.softmax(drawn(H, 6, 6), axis=-1)
    bias = parts["alibi"].bias(POS, POS) + parts["t5"].bias(POS, POS)
    np.testing.assert_allclose(both.bias(POS, POS), bias, atol=1e-6)
    content = [parts[name].content(Q, KEYS, POS, POS) for name in ("shaw", "cope")]
    np.testing.assert_allclose(both.content(Q, KEYS, POS, POS), sum(content), atol=1e-6)
    np.testing.assert_array_equal(both.value(w, POS, POS), parts["shaw"].value(w, POS, POS))
    assert create("rope+log_n").bias(POS, POS) is None


def test_a_key_is_seen_where_every_part_shows_it():
    windows = {"a": create("window:size=2,sinks=9"), "b": create("window:size=6")}
    seen = posenc.Composition(windows).visible(POS, POS)
    i, j = np.asarray(POS)[:, None], np.asarray(POS)[None]
    np.testing.assert_array_equal(seen, ((i - j < 2) | (j < 9)) & (i - j < 6))
    assert create("rope+alibi").visible(POS, POS) is None


def test_every_part_is_at_the_length():
    both = create("dynamic_ntk+learned:extend=interpolate").at_length(64)
    assert [part.length for part in both.parts.values()] == [64, 64]
    with pytest.raises(posenc.LengthError):
        create("rope+learned").at_length(17)


def test_it_overrides_what_any_part_does():
    both = create("rope+alibi")
    acts = {hook for hook in ("query", "key", "bias", "content") if posenc.overrides(both, hook)}
    assert acts == {"query", "key", "bias"}


def test_what_a_part_says_is_idle_is_idle():
    assert create("rope+window:size=64").idle(64) and not create("rope+window:size=63").idle(64)
