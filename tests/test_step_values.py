"""Parts of a training step one by one: documents, seeds, accumulation, clipping, decay, layouts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_training_step import batch, run_config, start

from training import mesh, optimizer
from training.step import accumulated, finite, make_eval_step, make_train_step


def test_documents_in_one_row_are_scored_as_if_alone():
    """Neither seen by one another nor at one another's positions, which sinusoids would show."""
    config = run_config(position="sinusoidal")
    graph, state = start(config)
    evaluate = make_eval_step(graph)
    tokens = batch()["tokens"]
    together = {
        "tokens": tokens,
        "weights": jnp.ones((8, 8)).at[:, 4].set(0),  # its target begins the second document
        "segments": jnp.tile(jnp.array([0] * 5 + [1] * 3, jnp.int32), (8, 1)),
        "positions": jnp.tile(jnp.array([0, 1, 2, 3, 4, 0, 1, 2], jnp.int32), (8, 1)),
    }
    first = {"tokens": tokens, "weights": jnp.ones((8, 8)).at[:, 4:].set(0)}
    second = {
        "tokens": jnp.pad(tokens[:, 5:], ((0, 0), (0, 5))),
        "weights": jnp.zeros((8, 8)).at[:, :3].set(1),
    }
    found = evaluate(state["params"], together)
    alone = [evaluate(state["params"], one) for one in (first, second)]
    np.testing.assert_allclose(found, sum(alone), rtol=1e-5)


def test_dropout_follows_the_seed_and_an_empty_batch_is_finite():
    losses = []
    for seed in (0, 1):
        config = run_config(model__dropout=0.5, seed=seed)
        graph, _ = start(config)
        _, state = start(run_config(model__dropout=0.5))  # the same weights for both
        step = make_train_step(graph, config)
        state, metrics = step(state, batch())
        losses.append(float(metrics["loss"]))
    assert losses[0] != losses[1]
    _, metrics = step(state, batch(weights=jnp.zeros((8, 8))))
    assert float(metrics["loss"]) == 0 and bool(metrics["finite"])


def test_an_update_that_is_not_finite_is_flagged_though_the_loss_is():
    config = run_config()
    graph, state = start(config)
    state["opt_state"] = jax.tree.map(
        lambda a: a * jnp.nan if a.dtype == jnp.float32 else a, state["opt_state"]
    )
    _, metrics = make_train_step(graph, config)(state, batch())
    assert np.isfinite(metrics["loss"]) and not bool(metrics["finite"])
    assert bool(finite(jnp.float32(1), {"a": jnp.ones(2)}))
    assert not bool(finite(jnp.float32(1), {"a": jnp.array([1, jnp.inf])}))


def test_accumulated_parts_are_dealt_out_in_turn_each_with_a_key():
    """Rows 0, 2 and then 1, 3, so that no row moves to another device."""

    def product(p, part, key, tokens):
        return p * part["x"][0] * part["x"][1] / tokens

    rows, key = {"x": jnp.array([1.0, 2.0, 3.0, 5.0])}, jax.random.key(0)
    value, gradient = accumulated(product, jnp.float32(2), rows, key, 4.0, 2)
    assert float(value) == 2 * (1 * 3 + 2 * 5) / 4 and float(gradient) == (3 + 10) / 4

    def signed(p, part, key, tokens):
        return p * jnp.where(part["x"][0] == 1, 1, -1) * jax.random.uniform(key)

    assert accumulated(signed, jnp.float32(1), rows, key, 4.0, 2)[0] != 0


def test_the_cosine_stays_at_its_end():
    c = run_config(train__steps=100, train__warmup_steps=10, train__learning_rate=1.0).train
    np.testing.assert_allclose(
        optimizer.learning_rate(c)(jnp.array([99, 150, 209])), 0.1, rtol=1e-5
    )


def test_what_decays():
    assert optimizer.decays("embedding") and optimizer.decays("blocks.0.attention.out.kernel")
    for name in ("norm.scale", "posenc.learned.table", "blocks.0.posenc.x.kernel"):
        assert not optimizer.decays(name)


def test_moments_are_those_of_the_clipped_gradient():
    """By the norm of all gradients together: entries keep their ratio; then Adam's two averages."""
    c = run_config(train__grad_clip=0.5, train__beta1=0.8, train__beta2=0.9).train
    params = {"a.kernel": jnp.zeros(2), "norm.scale": jnp.zeros(1)}
    gradients = {"a.kernel": jnp.array([2.0, 4.0]), "norm.scale": jnp.array([4.0])}  # of norm 6
    tx = optimizer.make_optimizer(c)
    _, state = tx.update(gradients, tx.init(params), params)
    leaves = {a.tobytes() for a in map(np.asarray, jax.tree.leaves(state)) if a.shape == (2,)}
    clipped = np.array([2, 4]) / 12
    moments = [np.float64(np.frombuffer(raw, np.float32)) for raw in leaves]
    moments.sort(key=lambda m: -m[0])
    np.testing.assert_allclose(moments, [0.2 * clipped, 0.1 * clipped**2], rtol=1e-5)


def test_a_mesh_takes_what_devices_there_are():
    config = run_config(mesh__data=0, mesh__fsdp=2)
    assert mesh.make_mesh(config.mesh, config.train).shape == {"data": 4, "fsdp": 2}
    for changes, words in (
        ({"mesh__data": 0, "train__accumulate": 2}, "= 4 rows must be a multiple of the 8 devices"),
        ({"mesh__data": 1, "mesh__fsdp": 3}, "= 8 rows must be a multiple of the 3 devices"),
    ):
        config = run_config(**changes)
        with pytest.raises(ValueError, match=words):
            mesh.make_mesh(config.mesh, config.train)


def test_parameters_are_split_along_the_longest_axis_that_divides():
    config = run_config(mesh__data=1, mesh__fsdp=8)
    devices = mesh.make_mesh(config.mesh, config.train)
    shapes = {(16, 128): (None, "fsdp"), (128, 16): ("fsdp",), (300, 64): (None, "fsdp")}
    shapes |= {(8, 8): (), (1023,): (), (1025,): (), (1024,): ("fsdp",), (33, 33): ()}
    for shape, spec in shapes.items():
        assert tuple(mesh.state_sharding(devices, jnp.zeros(shape)).spec) == spec, shape


def test_the_norm_told_is_that_of_the_gradient():
    """Of the mean loss, before it is clipped and whatever Adam makes of it."""
    config = run_config(train__grad_clip=0.1)
    graph, state = start(config)
    evaluate = make_eval_step(graph)
    gradient = jax.jit(jax.grad(lambda p: evaluate(p, batch()) / 64))(state["params"])
    expected = np.sqrt(sum(np.sum(np.float64(g) ** 2) for g in gradient.values()))
    _, metrics = make_train_step(graph, config)(state, batch())
    np.testing.assert_allclose(metrics["grad_norm"], expected, rtol=1e-5)
