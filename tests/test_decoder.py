"""The whole decoder against a float64 transcription, and where its weights start."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import Setting, attend, embed
from oracles.comparison import parameters_of
from test_models import CONFIG, V

import models
import posenc

T = 10
TOKENS = np.random.default_rng(0).integers(0, V, T)
LARGE = dataclasses.replace(
    CONFIG, num_layers=2, d_model=96, num_heads=4, num_kv_heads=2, d_ff=160, vocab_size=150
)


def normed(x, scale):
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-6) * scale


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):  # by the hyperbolic tangent, as jax.nn.gelu
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def decoder(c, p, name, scheme_parameters):
    """Logits float64 [T, V] of TOKENS: a residual at a time."""
    D, H, G, K = c.d_model, c.num_heads, c.num_kv_heads, c.head_size
    s, pos = Setting(D=D, H=H, K=K, L=c.train_length), np.arange(T)
    x = p["embedding"][TOKENS] * math.sqrt(D)
    x = embed(name, s, scheme_parameters(None), x, pos)
    for layer in range(c.num_layers):
        w = {n.removeprefix(f"blocks.{layer}."): a for n, a in p.items()}
        y = normed(x, w["attention_norm.scale"])
        q = (y @ w["attention.query.kernel"]).reshape(T, H, K)
        k, v = ((y @ w[f"attention.{n}.kernel"]).reshape(T, G, K) for n in ("key", "value"))
        k, v = (np.repeat(a, H // G, axis=1) for a in (k, v))
        y = attend(name, s, scheme_parameters(layer), q, k, v, pos, pos).reshape(T, H * K)
        x = x + y @ w["attention.out.kernel"]
        y = normed(x, w["feed_forward_norm.scale"])
        up = y @ w["feed_forward.up.kernel"]
        gated = c.activation == "swiglu"
        y = silu(y @ w["feed_forward.gate.kernel"]) * up if gated else gelu(up)
        x = x + y @ w["feed_forward.down.kernel"]
    head = p["embedding"].T if c.tie_embeddings else p["head.kernel"]
    return normed(x, p["norm.scale"]) @ head


@pytest.mark.parametrize(
    "name, changes",
    [
        ("rope", {}),
        ("sinusoidal", {"activation": "gelu", "num_kv_heads": 4}),
        ("shaw", {"tie_embeddings": False, "num_kv_heads": 1}),
    ],
)
def test_logits_are_those_of_the_definition(name, changes):
    config = dataclasses.replace(CONFIG, num_layers=2, position=name, **changes)
    graph, params = models.split(models.build(config, 0))
    rng = np.random.default_rng(1)
    params = {n: p + 0.2 * jnp.float32(rng.normal(size=p.shape)) for n, p in params.items()}
    model = models.merge(graph, params)
    schemes = [parameters_of(name, scheme) for scheme in model.layer_schemes()]
    expected = decoder(
        config,
        {n: np.asarray(p, np.float64) for n, p in params.items()},
        name,
        lambda layer: schemes[layer or 0],
    )
    tokens = jnp.asarray(np.stack([TOKENS, TOKENS[::-1]]), jnp.int32)
    found = jax.jit(lambda tokens: model(tokens))(tokens)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found[0], expected, atol=2e-5 * np.abs(expected).max())


def drawn(config):
    return models.split(models.build(config, 0))[1]


def test_where_weights_start():
    """Each from N(0, 1/inputs); what is added to the residuals, by twice the layers less; norms at 1."""
    config = dataclasses.replace(LARGE, tie_embeddings=False)
    params = drawn(config)
    D, F, N = 96, 160, 2
    expected = {
        "embedding": D**-0.5,
        "head.kernel": D**-0.5,
        "blocks.1.attention.query.kernel": D**-0.5,
        "blocks.1.attention.key.kernel": D**-0.5,
        "blocks.1.attention.value.kernel": D**-0.5,
        "blocks.1.attention.out.kernel": (2 * N * D) ** -0.5,
        "blocks.1.feed_forward.gate.kernel": D**-0.5,
        "blocks.1.feed_forward.up.kernel": D**-0.5,
        "blocks.1.feed_forward.down.kernel": (2 * N * F) ** -0.5,
    }
    for name, std in expected.items():
        assert float(jnp.std(params[name])) == pytest.approx(std, rel=0.04), name
        assert abs(float(jnp.mean(params[name]))) < 0.1 * std, name
    assert all((params[n] == 1).all() for n in params if n.endswith("scale"))
    assert not np.array_equal(params["embedding"][:96], params["head.kernel"][:, :96])


def test_where_latent_weights_start():
    config = dataclasses.replace(
        LARGE,
        num_layers=1,
        attention="latent",
        num_kv_heads=0,
        latent_size=60,
        rope_size=8,
        query_latent_size=70,
    )
    params = drawn(config)
    inputs = {"query_latent": 96, "query": 70, "latent": 96, "key": 60, "value": 60, "out": 2 * 96}
    for name, width in inputs.items():
        kernel = params[f"blocks.0.attention.{name}.kernel"]
        assert float(jnp.std(kernel)) == pytest.approx(width**-0.5, rel=0.05), name


def test_dropout_acts_on_the_embedding_and_on_each_branch_alone():
    """A branch that is silenced leaves the residual as it was, whatever is dropped of it."""
    config = dataclasses.replace(CONFIG, dropout=0.5)
    graph, params = models.split(models.build(config, 0))
    tokens = jnp.asarray(TOKENS[None], jnp.int32)
    silent = {
        n: 0 * p if n.endswith(("out.kernel", "down.kernel")) else p for n, p in params.items()
    }
    run = jax.jit(lambda p, key: models.merge(graph, p).hidden(tokens, key=key)[0][0])
    hidden = run(silent, jax.random.key(0))
    dropped = np.asarray(hidden == 0)
    assert 0.4 < dropped.mean() < 0.6  # of the embedding, scaled by 2 and normed
    x = np.asarray(params["embedding"], np.float64)[TOKENS] * 32**0.5 * 2
    np.testing.assert_allclose(hidden, normed(np.where(dropped, 0, x), 1), atol=1e-5)


def test_seeds_and_streams_are_apart():
    """With one size for both, a table of positions would be the embedding over again."""
    config = dataclasses.replace(CONFIG, position="learned", vocab_size=CONFIG.train_length)
    first, second = (models.split(models.build(config, seed))[1] for seed in (0, 1))
    assert jnp.abs(first["embedding"] - second["embedding"]).max() > 0.1
    embedding, table = (np.ravel(first[n]) for n in ("embedding", "posenc.learned.table"))
    assert abs(np.corrcoef(embedding, table)[0, 1]) < 0.2


def test_schemes_of_the_layers_are_asked_for_the_length():
    config = dataclasses.replace(CONFIG, position="shaw:positions=randomized,max_position=32")
    model = models.build(config, 0)
    model.at_length(32)
    with pytest.raises(posenc.LengthError, match="max_position=32"):
        model.at_length(33)


def test_documents_are_told_apart_in_a_cache():
    model = models.build(CONFIG, 0)
    tokens = jnp.asarray(TOKENS[None], jnp.int32)
    segments = jnp.array([[0] * 4 + [1] * 6], jnp.int32)
    positions = jnp.arange(T, dtype=jnp.int32)
    full = jax.jit(lambda *a: model(*a))(tokens, positions, segments)
    cache, out = model.init_cache(1, T), []
    step = jax.jit(lambda *a, cache: model(*a, cache=cache))
    for i in (0, 5):
        part = (tokens[:, i : i + 5], positions[i : i + 5], segments[:, i : i + 5])
        logits, cache = step(*part, cache=cache)
        out.append(logits)
    np.testing.assert_allclose(jnp.concatenate(out, axis=1), full, atol=1e-5)
