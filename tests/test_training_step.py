"""The train step and what it is made of: gradients, schedule, decay, randomness, devices."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import models
from configs import base, smoke
from training import mesh, optimizer
from training.checkpoint import Checkpoints
from training.config import RunConfig, TrainConfig
from training.step import init_state, make_eval_step, make_train_step

V = 11


def run_config(**changes) -> RunConfig:
    config = smoke.get_config()
    config.model.num_layers = 1
    config.train.length = 8
    config.train.batch_size = 8
    with config.unlocked():
        for name, value in changes.items():
            section, _, field = name.rpartition("__")
            setattr(getattr(config, section) if section else config, field, value)
    return RunConfig.from_config(config)


def start(config: RunConfig):
    model = models.build(config.model_config(V), config.seed)
    graph, params = models.split(model)
    return graph, init_state(params, config)


def batch(seed=0, B=8, T=8, weights=None):
    tokens = jax.random.randint(jax.random.key(seed), (B, T + 1), 0, V)
    return {"tokens": tokens, "weights": jnp.ones((B, T)) if weights is None else weights}


def test_golden_step():
    """Three steps of the smoke model. Where these change, training computes something else: say why in the commit."""
    config = run_config()
    graph, state = start(config)
    step = make_train_step(graph, config)
    losses = []
    for seed in range(3):
        state, metrics = step(state, batch(seed))
        losses.append(float(metrics["loss"]))
    np.testing.assert_allclose(losses, GOLDEN, rtol=2e-5)


GOLDEN = [4.336692, 3.741221, 3.656890]


def test_accumulation_is_token_weighted_and_clips_afterwards():
    """Rows with few counted targets must not weigh more; the clip acts on the whole gradient, not on each part's."""
    weights = jnp.ones((8, 8)).at[::2, 2:].set(0)
    states, norms = [], []
    for rounds in (1, 4):
        config = run_config(train__accumulate=rounds, train__grad_clip=0.1)
        graph, state = start(config)
        state, metrics = make_train_step(graph, config)(state, batch(weights=weights))
        states.append(state["params"])
        norms.append(float(metrics["grad_norm"]))
    assert norms[0] > 0.2  # before clipping, which acts here
    np.testing.assert_allclose(norms[0], norms[1], rtol=1e-5)
    for name in states[0]:
        np.testing.assert_allclose(states[1][name], states[0][name], atol=2e-5, err_msg=name)


def test_loss_is_the_mean_over_counted_targets():
    config = run_config(train__learning_rate=0.0)
    graph, state = start(config)
    weights = jnp.zeros((8, 8)).at[3, 4].set(1.0)
    one = batch(weights=weights)
    model = models.merge(graph, state["params"])
    logits = model(one["tokens"][:, :-1])
    expected = -jax.nn.log_softmax(logits)[3, 4, one["tokens"][3, 5]]
    total = make_eval_step(graph)(state["params"], one)
    _, metrics = make_train_step(graph, config)(state, one)
    np.testing.assert_allclose(metrics["loss"], expected, rtol=1e-5)
    np.testing.assert_allclose(total, expected, rtol=1e-5)


def test_schedule_counts_optimiser_steps():
    c = run_config(train__steps=100, train__warmup_steps=10, train__learning_rate=1.0).train
    cosine = jax.vmap(optimizer.learning_rate(c))(jnp.arange(100))
    np.testing.assert_allclose(cosine[:10], np.arange(1, 11) / 10, rtol=1e-6)
    np.testing.assert_allclose([cosine[54], cosine[99]], [0.55, 0.1], rtol=1e-5)
    assert (np.diff(cosine[10:]) < 0).all()
    constant = dataclasses.replace(c, schedule="constant")
    np.testing.assert_allclose(jax.vmap(optimizer.learning_rate(constant))(jnp.arange(9, 100)), 1)
    wsd = dataclasses.replace(c, schedule="wsd", decay_steps=20, final_fraction=0.0)
    rates = jax.vmap(optimizer.learning_rate(wsd))(jnp.arange(100))
    np.testing.assert_allclose(np.asarray(rates)[[9, 50, 79, 89, 99]], [1, 1, 1, 0.5, 0], atol=1e-6)


def test_accumulation_does_not_slow_the_schedule():
    for rounds in (1, 2):
        config = run_config(train__accumulate=rounds, train__warmup_steps=4)
        graph, state = start(config)
        step = make_train_step(graph, config)
        rates = []
        for _ in range(3):
            state, metrics = step(state, batch())
            rates.append(float(metrics["lr"]))
        np.testing.assert_allclose(rates, 1e-2 * np.arange(1, 4) / 4, rtol=1e-6)
        assert int(state["step"]) == 3


def test_only_dense_kernels_and_the_embedding_decay():
    """With zero gradients weight decay alone moves parameters: no norm and no position parameter may shrink."""
    for position in ("learned", "rope"):
        config = run_config(position=position, train__weight_decay=0.1)
        _, state = start(config)
        ones = {name: jnp.ones_like(p) for name, p in state["params"].items()}
        zero = jax.tree.map(jnp.zeros_like, ones)
        tx = optimizer.make_optimizer(config.train)
        updates, _ = tx.update(zero, tx.init(ones), ones)
        shrunk = {name for name, u in updates.items() if jnp.any(u < 0)}
        kept = {name for name in ones if name.endswith("scale") or "posenc" in name}
        assert shrunk == ones.keys() - kept and len(kept) >= 3
        assert all(jnp.all(updates[name] == 0) for name in kept)


def test_dropout_is_a_function_of_seed_and_step():
    config = run_config(model__dropout=0.5, train__learning_rate=0.0)

    def losses():
        graph, state = start(config)
        step = make_train_step(graph, config)
        out = []
        for _ in range(3):
            state, metrics = step(state, batch())
            out.append(float(metrics["loss"]))
        return out

    first = losses()
    assert len(set(first)) == 3
    assert losses() == first


def test_randomised_positions_are_drawn_anew_each_step_and_row():
    config = run_config(
        position="rope:positions=randomized,max_position=64", train__learning_rate=0.0
    )
    graph, state = start(config)
    step = make_train_step(graph, config)
    losses = []
    for _ in range(2):
        state, metrics = step(state, batch())
        losses.append(float(metrics["loss"]))
    assert losses[0] != losses[1]
    scheme = models.merge(graph, state["params"]).scheme
    restarted = jnp.array([[0, 1, 2, 0, 1, 0, 1, 2]] * 2)
    rows = models.row_positions(scheme, 8, jax.random.split(jax.random.key(0), 2), restarted)
    assert (rows[0] != rows[1]).any() and (rows[:, 0] == rows[:, 3]).all()
    assert (jnp.diff(rows, axis=1)[:, [0, 1, 3, 5, 6]] > 0).all() and (rows < 64).all()


def test_rows_of_a_step_have_draws_of_their_own():
    """Two rows of one text under randomised positions: each is read at places of its own."""
    config = run_config(position="rope:positions=randomized,max_position=64")
    graph, state = start(config)
    tokens = jnp.broadcast_to(batch()["tokens"][:1], (8, 9))
    evaluate = make_eval_step(graph)
    losses = [
        evaluate(state["params"], {"tokens": tokens, "weights": weights})
        for weights in (jnp.zeros((8, 8)).at[row].set(1.0) for row in range(3))
    ]
    assert len({float(loss) for loss in losses}) == 3


def test_a_batch_is_split_over_all_devices():
    """Rows go to the devices in order, one each of eight, however the mesh is cut."""
    for data, fsdp in ((8, 1), (2, 4), (1, 8)):
        config = run_config(mesh__data=data, mesh__fsdp=fsdp)
        devices = mesh.make_mesh(config.mesh, config.train)
        rows = {"tokens": np.arange(8 * 9, dtype=np.int32).reshape(8, 9)}
        put = mesh.put_batch(devices, rows)["tokens"]
        held = {shard.device: np.asarray(shard.data) for shard in put.addressable_shards}
        for row, device in enumerate(devices.devices.flat):
            np.testing.assert_array_equal(held[device], rows["tokens"][row : row + 1])
        assert mesh.batch_rows(devices, 8) == [(0, 8)]


def test_bfloat16_trains_float32_weights_and_moments():
    config = run_config(model__dtype="bfloat16")
    graph, state = start(config)
    step = make_train_step(graph, config)
    for _ in range(3):
        state, metrics = step(state, batch())
    dtypes = {a.dtype for a in jax.tree.leaves(state) if jnp.issubdtype(a.dtype, jnp.floating)}
    assert dtypes == {jnp.dtype("float32")}
    assert (
        float(metrics["loss"]) * 16 % 1 != 0
    )  # bfloat16's grid near 2 is 1/64, near 10 it is 1/16


def test_non_finite_steps_are_flagged():
    config = run_config()
    graph, state = start(config)
    step = make_train_step(graph, config)
    state, metrics = step(state, batch())
    assert bool(metrics["finite"])
    state["params"]["norm.scale"] = state["params"]["norm.scale"] * jnp.inf
    _, metrics = step(state, batch())
    assert not bool(metrics["finite"])


def test_train_step_compiles_once():
    config = run_config(position="learned")
    graph, state = start(config)
    step = make_train_step(graph, config)
    for seed in range(3):
        state, _ = step(state, batch(seed))
    assert step._cache_size() == 1


@pytest.mark.parametrize("data, fsdp", [(8, 1), (1, 8), (2, 4)])
def test_eight_devices_train_as_one(data, fsdp):
    """Batch and parameters split over devices change the sums' order and nothing else."""

    def losses(**sizes):
        config = run_config(model__dropout=0.1, **sizes)
        graph, state = start(config)
        devices = mesh.make_mesh(config.mesh, config.train)
        sharding = mesh.state_sharding(devices, state)
        state = jax.device_put(state, sharding)
        step = mesh.fully_sharded(devices, make_train_step(graph, config))
        out = []
        for seed in range(4):
            rows = {name: np.asarray(a) for name, a in batch(seed).items()}
            state, metrics = step(state, mesh.put_batch(devices, rows))
            out.append(float(metrics["loss"]))
        for array, where in zip(*map(jax.tree.leaves, (state, sharding)), strict=True):
            assert array.sharding.is_equivalent_to(where, array.ndim)  # parts stay parts
        split = [a for a in jax.tree.leaves(state) if not a.sharding.is_fully_replicated]
        return out, len(split)

    one, _ = losses(mesh__data=1, mesh__fsdp=1)
    many, split = losses(mesh__data=data, mesh__fsdp=fsdp)
    np.testing.assert_allclose(many, one, rtol=1e-5)
    assert (split > 0) == (fsdp > 1)


def test_split_parameters_move_and_activations_do_not():
    """Left to itself XLA splits activations as the weights are, and deals them out anew at every layer."""
    config = run_config(train__length=16, train__batch_size=16, mesh__data=2, mesh__fsdp=4)
    graph, params = models.split(models.build(config.model_config(257), 0))
    devices = mesh.make_mesh(config.mesh, config.train)
    state = init_state(params, config)
    state = mesh.put_state(state, mesh.state_sharding(devices, state))
    rows = {"tokens": np.zeros((16, 17), np.int32), "weights": np.ones((16, 16), np.float32)}
    step = mesh.fully_sharded(devices, make_train_step(graph, config))
    program = step.lower(state, mesh.put_batch(devices, rows)).compile().as_text()
    assert "all-to-all(" not in program and "all-gather(" in program


def test_mesh_that_does_not_fit_is_refused():
    with pytest.raises(
        ValueError, match="mesh.data=5 and mesh.fsdp=2 need 10 devices; there are 8"
    ):
        config = run_config(mesh__data=5, mesh__fsdp=2)
        mesh.make_mesh(config.mesh, config.train)
    with pytest.raises(ValueError, match="train.batch_size=8"):
        config = run_config(mesh__data=3)
        mesh.make_mesh(config.mesh, config.train)


@pytest.mark.parametrize(
    "field, value, message",
    [
        ("steps", 0, "train.steps=0 must be at least 1"),
        ("accumulate", 3, "a divisor of train.batch_size=8"),
        ("schedule", "linear", "cosine, constant or wsd"),
        ("decay_steps", 5, "only schedule=wsd reads it"),
        ("beta2", 1.0, "train.beta2=1.0"),
        ("warmup_steps", 50, "at most train.steps=40"),
        ("grad_clip", -1.0, "train.grad_clip=-1.0"),
        ("length", 0, "train.length=0"),
        ("steps", 2**31, "train.steps=2147483648 must be below"),
        ("learning_rate", 1e39, "train.learning_rate=1e\\+39 must be a number that 32 bits hold"),
        ("weight_decay", 1e39, "train.weight_decay=1e\\+39 must be a number that 32 bits hold"),
    ],
)
def test_training_settings_out_of_range_are_refused_by_name(field, value, message):
    with pytest.raises(ValueError, match=message):
        run_config(**{f"train__{field}": value})


def test_config_keys_are_checked():
    config = base.get_config().to_dict()
    with pytest.raises(ValueError, match="no field train.lenght; did you mean length"):
        RunConfig.from_config({**config, "train": {**config["train"], "lenght": 3}})
    with pytest.raises(ValueError, match="lacks train.stop_at"):
        RunConfig.from_config({**config, "train": {"steps": 3}})
    with pytest.raises(ValueError, match="model.d_model='wide' must be of type int"):
        RunConfig.from_config({**config, "model": {**config["model"], "d_model": "wide"}})
    with pytest.raises(ValueError, match="no field sead; did you mean seed"):
        RunConfig.from_config({**config, "sead": 3})
    with pytest.raises(ValueError, match="seed=-1"):
        RunConfig.from_config({**config, "seed": -1})


def test_what_may_change_on_resume():
    now, then = run_config(train__steps=50, train__keep=5), run_config()
    assert now.differences(then) == []
    changed = run_config(train__batch_size=4, position="alibi", seed=1)
    assert changed.differences(then) == [
        "seed was 0 and is 1",
        "position was 'rope' and is 'alibi'",
        "train.batch_size was 8 and is 4",
    ]
    assert (
        run_config(position="yarn:factor=4").differences(run_config(position="yarn:factor=4.0"))
        == []
    )


def test_config_dataclass_shows_every_field_of_base():
    names = {field.name for field in dataclasses.fields(TrainConfig)}
    assert names == set(base.get_config().train.keys())


def test_a_checkpoint_is_read_on_another_layout(tmp_path):
    """Split over all, saved; read by one device, and by another split: the same bits, in the new places."""
    config = run_config()
    _, fresh = start(config)
    fresh["step"] = jnp.full_like(fresh["step"], 3)
    layouts = [
        mesh.make_mesh(run_config(mesh__data=data, mesh__fsdp=fsdp).mesh, config.train)
        for data, fsdp in ((1, 8), (1, 1), (2, 4))
    ]
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(mesh.put_state(fresh, mesh.state_sharding(layouts[0], fresh)), 3, 1.0)
    checkpoints.wait()
    for layout in layouts[1:]:
        sharding = mesh.state_sharding(layout, fresh)
        state = checkpoints.restore_newest(fresh, sharding)
        for read, saved, where in zip(*map(jax.tree.leaves, (state, fresh, sharding)), strict=True):
            np.testing.assert_array_equal(read, saved)
            assert read.sharding.is_equivalent_to(where, read.ndim)
    checkpoints.close()
