"""Work in blocks of tokens gives the values and the gradients of work on all at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import models
from configs import base
from models.remat import recomputed
from training import step
from training.config import RunConfig

B, T, V = 2, 24, 31
LATENT = {"attention": "latent", "latent_size": 12, "rope_size": 8}


def gradient(monkeypatch, position, block_rows=None, **model):
    """(loss, gradients) of a small model, all rows at once or so many query rows and tokens a block."""
    c = base.get_config(position)
    c.model.update({"num_layers": 2, "d_model": 32, "num_heads": 4, "d_ff": 24, **model})
    c.train.length, c.train.batch_size = T, B
    config = RunConfig.from_config(c)
    if block_rows:
        monkeypatch.setattr(step, "WHOLE_BYTES", 0)
        monkeypatch.setattr(step, "ROW_BLOCK_BYTES", block_rows * 4 * B * 4 * T)
        monkeypatch.setattr(step, "VOCABULARY_BLOCK_BYTES", block_rows * 4 * B * V)
        monkeypatch.setattr("models.blocks.LEAST", 1)
        monkeypatch.setattr("models.attention.SPANS", ((2, 10),))
    graph, params = models.split(models.build(config.model_config(V), 0))
    keys = jax.random.split(jax.random.key(5), len(params))
    params = {  # tables that start at zero would hide what does not reach them
        name: p + 0.1 * jax.random.normal(key, p.shape) if "posenc" in name else p
        for key, (name, p) in zip(keys, sorted(params.items()), strict=True)
    }
    tokens = jax.random.randint(jax.random.key(1), (B, T + 1), 0, V)
    batch = {"tokens": tokens, "weights": jnp.ones((B, T))}

    def loss(params):
        model = models.merge(graph, params)
        return step.sum_nll(model, batch, jax.random.key(2), dropout=True) / (B * T)

    return jax.jit(jax.value_and_grad(loss))(params)


@pytest.mark.parametrize(
    ("position", "changes"),
    [
        ("rope", {"num_kv_heads": 2}),
        ("t5", {}),
        ("fire|cope", {}),
        pytest.param("shaw", {}, marks=pytest.mark.slow),
        pytest.param("transformer_xl", {}, marks=pytest.mark.slow),
        pytest.param("deberta", {}, marks=pytest.mark.slow),
        pytest.param("kerple+window:size=7,sinks=2", {}, marks=pytest.mark.slow),
        pytest.param("rope:positions=randomized,max_position=64", {}, marks=pytest.mark.slow),
        pytest.param("rope", LATENT, marks=pytest.mark.slow),
    ],
)
def test_blocks_and_recomputed_layers_change_no_gradient(position, changes, monkeypatch):
    """Blocks of 7 rows: whole ones, and a rest, in each of two spans."""
    changes = {"dropout": 0.2, **changes}
    expected_loss, expected = gradient(monkeypatch, position, **changes)
    loss, found = gradient(monkeypatch, position, block_rows=7, remat=True, **changes)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-6)
    for name, value in expected.items():
        scale = float(jnp.max(jnp.abs(value)))
        np.testing.assert_allclose(found[name], value, atol=2e-6 * scale + 1e-8, err_msg=name)


def test_no_array_holds_all_logits(monkeypatch):
    monkeypatch.setattr(step, "WHOLE_BYTES", 0)
    monkeypatch.setattr(step, "VOCABULARY_BLOCK_BYTES", 6 * 4 * B * V)
    monkeypatch.setattr(step, "ROW_BLOCK_BYTES", 8 * 4 * B * 2 * T)
    monkeypatch.setattr("models.blocks.LEAST", 1)
    c = base.get_config("rope")
    c.model.update(num_layers=1, d_model=16, num_heads=2, d_ff=16)
    model = models.build(RunConfig.from_config(c).model_config(V), 0)
    graph, params = models.split(model)
    tokens = jnp.zeros((B, T + 1), jnp.int32)
    batch = {"tokens": tokens, "weights": jnp.ones((B, T))}
    program = str(
        jax.make_jaxpr(
            jax.grad(
                lambda p: step.sum_nll(models.merge(graph, p), batch, jax.random.key(0), False)
            )
        )(params)
    )
    assert f"f32[{B},6,{V}]" in program
    assert f"f32[{B},{T},{V}]" not in program and f"f32[{B * T},{V}]" not in program
    assert f"f32[{B},2,8,{T}]" in program  # of two heads, 8 rows against all keys
    assert f"f32[{B},2,{T},{T}]" not in program


def test_recomputing_waits_for_the_gradient():
    """The recomputation depends on the cotangent, so no compiler can merge it with the forward pass."""
    f = recomputed(lambda x, n: jnp.sin(jnp.sin(x)) * n)
    x, n = jnp.linspace(0.1, 1, 5), jnp.asarray(3, jnp.int32)
    out, vjp = jax.vjp(lambda x: f(x, n), x)
    np.testing.assert_allclose(out, jnp.sin(jnp.sin(x)) * 3, rtol=1e-6)
    np.testing.assert_allclose(vjp(jnp.ones(5))[0], 3 * jnp.cos(jnp.sin(x)) * jnp.cos(x), rtol=1e-6)
    assert "eq" in str(jax.make_jaxpr(jax.grad(lambda x: f(x, n).sum()))(x))
