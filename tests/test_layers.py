"""Schemes that alternate over layers, windows and sinks."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from test_models import CONFIG, TOKENS, L, T, make

import models
import posenc
from models.attention import attend

DIMS = posenc.Dims(D=8, H=2, K=8, train_length=8)
FOUR = {"num_layers": 4, "d_model": 16, "num_heads": 2, "num_kv_heads": 1, "d_ff": 16}


def run(model, tokens=TOKENS, **more):
    return jax.jit(lambda tokens: model(tokens, **more))(tokens)


def test_a_pattern_cycles_over_the_layers():
    schemes = posenc.create_layers("rope|alibi|rope:base=5", DIMS, num_layers=4)
    assert schemes.names == (("rope@0",), ("alibi",), ("rope@1",), ("rope@0",))
    assert schemes.shared["rope@0"].base == 10000 and schemes.shared["rope@1"].base == 5
    with pytest.raises(ValueError, match="alternates over 3 layers; model.num_layers=2"):
        posenc.create_layers("rope|alibi|nope", DIMS, num_layers=2)
    with pytest.raises(ValueError, match="alternates schemes over layers"):
        posenc.create("rope|nope", DIMS)


def test_a_pattern_of_equal_elements_is_the_scheme():
    one, four = make("rope", **FOUR), make("rope|rope", **FOUR)
    np.testing.assert_array_equal(run(one), run(four))
    assert posenc.parse_pattern("rope|nope") == [[("rope", {})], [("nope", {})]]


def test_each_layer_gets_its_own_element():
    """Zeroing the blocks of one kind leaves a model of the other kind alone."""
    mixed = make("rope|nope", **FOUR)
    graph, params = models.split(mixed)
    outputs = ("attention.out.kernel", "feed_forward.down.kernel")
    for kept, position in (("02", "rope"), ("13", "nope")):
        silenced = {
            name: p * 0 if name.endswith(outputs) and name.split(".")[1] not in kept else p
            for name, p in params.items()
        }
        plain_graph, plain = models.split(make(position, **FOUR))
        plain = {name: silenced[name] for name in plain}
        expected = run(models.merge(plain_graph, plain))
        np.testing.assert_allclose(run(models.merge(graph, silenced)), expected, atol=1e-6)


def test_parameters_are_named_by_scheme_and_shared_where_equal():
    names = set(models.split(make("t5|t5|nope|shaw", **FOUR))[1])
    assert {n for n in names if "posenc" in n} == {
        "posenc.t5.table",
        "blocks.3.posenc.shaw.key_table",
        "blocks.3.posenc.shaw.value_table",
    }
    names = set(models.split(make("t5:max_distance=20|t5", **FOUR))[1])
    assert {n for n in names if "posenc" in n} == {"posenc.t5@0.table", "posenc.t5@1.table"}


def test_layers_share_the_first_instance_and_its_draw():
    """So a shared scheme starts as it does alone, however many layers name it."""
    alone = posenc.create("t5", DIMS, nnx.Rngs(0))
    layers = posenc.create_layers("t5|nope", DIMS, 4, nnx.Rngs(0))
    np.testing.assert_array_equal(layers.shared["t5"].table[...], alone.table[...])


def test_a_table_is_added_to_the_embeddings_once():
    graph, params = models.split(make("learned|nope", **FOUR))
    plain_graph, plain = models.split(make("learned", **FOUR))
    assert params.keys() == plain.keys()
    tokens = TOKENS[:, :L]
    np.testing.assert_array_equal(
        run(models.merge(graph, params), tokens), run(models.merge(plain_graph, params), tokens)
    )


def test_decoding_a_pattern_with_windows():
    model = make("rope:base=100+window:size=6|rope", **FOUR).at_length(T)
    full, cache, out = run(model), model.init_cache(2, T), []
    step = jax.jit(lambda tokens, at, cache: model(tokens, at, cache=cache))
    for i in range(0, T, 4):
        logits, cache = step(TOKENS[:, i : i + 4], jnp.arange(i, i + 4), cache)
        out.append(logits)
    np.testing.assert_allclose(jnp.concatenate(out, axis=1), full, atol=1e-4)
    np.testing.assert_allclose(run(model, block=5), full, atol=1e-4)


@pytest.mark.parametrize(
    "trained, asked, expected",
    [
        ("rope|nope", "yarn|nope", "yarn|nope"),
        ("rope:base=5|rope", "pi", "pi:base=5|pi"),
        ("rope", "rope|nope", "rope|nope"),
        ("rope", "rope+window:size=4,sinks=1", "rope+window:size=4,sinks=1"),
        ("rope|rope", "rope", "rope"),
    ],
)
def test_swaps_layer_by_layer(trained, asked, expected):
    trained, asked = posenc.parse_pattern(trained), posenc.parse_pattern(asked)
    assert posenc.format_pattern(posenc.swap_pattern(trained, asked, DIMS)) == expected


@pytest.mark.parametrize(
    "trained, asked, message",
    [
        ("rope|nope", "yarn", "checkpoint of nope cannot be read as yarn"),
        ("rope|nope", "rope|nope|rope", "alternates over 3 layers, and the checkpoint's rope"),
        ("rope|alibi", "alibi|rope", "cannot be read as alibi"),
    ],
)
def test_swaps_that_a_layer_refuses(trained, asked, message):
    with pytest.raises(ValueError, match=message):
        posenc.swap_pattern(posenc.parse_pattern(trained), posenc.parse_pattern(asked), DIMS)


def weights(spec, q_pos, k_pos):
    """Attention weights [T, S] of zero queries and keys: even over what is seen."""
    scheme = posenc.create(spec, DIMS)
    q = jnp.zeros((1, len(q_pos), 2, 8))
    S = len(k_pos)
    v = jnp.broadcast_to(jnp.eye(S)[None, :, None, :], (1, S, 2, S))
    return attend(scheme, q, jnp.zeros((1, S, 2, 8)), v, jnp.array(q_pos), jnp.array(k_pos))[
        0, :, 0
    ]


def test_a_window_shows_the_nearest_keys_and_the_sinks():
    rows = weights("window:size=3", range(6), range(6))
    for i in range(6):
        seen = [j for j in range(6) if i - 2 <= j <= i]
        np.testing.assert_allclose(
            rows[i], [j in seen and 1 / len(seen) for j in range(6)], atol=1e-6
        )
    rows = weights("window:size=2,sinks=1", [5], range(6))
    np.testing.assert_allclose(rows[0], [1 / 3, 0, 0, 0, 1 / 3, 1 / 3], atol=1e-6)
    assert not posenc.create("window:size=2,sinks=1", DIMS).relative


def test_streaming_sinks_stand_where_the_cache_holds_them():
    """StreamingLLM: with `size` recent keys and the sinks in the cache, distances are those between cache places."""
    spec, size, sinks, i = "rope+window:size=4,sinks=2,streaming=true", 4, 2, 20
    scheme, rope = posenc.create(spec, DIMS), posenc.create("rope", DIMS)
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.normal(size=(1, n, 2, 8)), jnp.float32) for n in (1, i + 1, i + 1))
    got = attend(scheme, q, k, v, jnp.array([i]), jnp.arange(i + 1))
    kept = [*range(sinks), *range(i - size + 1, i + 1)]  # what the cache would hold
    places = jnp.arange(sinks + size)
    cached = attend(rope, q, k[:, kept], v[:, kept], places[-1:], places)
    np.testing.assert_allclose(got, cached, atol=1e-5)
    far = attend(
        posenc.create("rope+window:size=4,sinks=2", DIMS),
        q,
        k,
        v,
        jnp.array([i]),
        jnp.arange(i + 1),
    )
    assert jnp.abs(far - cached).max() > 1e-3


@pytest.mark.parametrize(
    "spec, message",
    [
        ("rope+window", "size is missing"),
        ("window:size=0", "size=0"),
        ("window:size=4,streaming=true", "only with sinks"),
        ("sinusoidal+window:size=4,sinks=1,streaming=true", "sinusoidal has added them"),
    ],
)
def test_windows_that_make_no_sense_are_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        posenc.create(spec, DIMS, nnx.Rngs(0))


def test_a_window_reads_a_rope_checkpoint():
    params = models.split(make("rope"))[1]
    config = dataclasses.replace(CONFIG, position="rope+window:size=64")
    graph, _ = models.split(models.build(config, 0))
    np.testing.assert_allclose(run(models.merge(graph, params)), run(make("rope")), atol=1e-6)


@pytest.mark.parametrize(
    "spec, longest, expected",
    [
        ("pi:factor=1", 16, "factor=1 is plain rope"),
        ("pi:factor=1", 8, None),
        ("pi:factor=2", 16, None),
        ("pi", 16, None),
        ("rope+window:size=16", 16, "size=16 shows every key"),
        ("rope+window:size=15", 16, None),
        ("log_n", 8, "identity up to the training length"),
        ("log_n", 9, None),
        ("log_n:clip=false", 8, None),
    ],
)
def test_an_option_that_changes_nothing_is_told(spec, longest, expected):
    found = posenc.create(spec, DIMS).idle(longest)
    assert (found is None) if expected is None else expected in found
