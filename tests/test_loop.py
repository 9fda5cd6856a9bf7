"""The training loop: what waits for what, and what a signal does where there are several processes."""

from pathlib import Path

import jax
import numpy as np
import pytest

import data
import train
from configs import smoke
from training import flops, hosts, mesh, setup, step
from training.config import RunConfig


def configured(tmp_path, **settings):
    config = smoke.get_config()
    config.data.source = "synthetic:copy"
    config.data.cache_dir = str(tmp_path / "cache")
    config.model.update({"num_layers": 1, "d_model": 16, "d_ff": 16})
    config.train.update({"steps": 5, "batch_size": 8, "length": 16, "log_every": 1})
    config.train.update({"eval_windows": 8, "save_every": 0, "eval_every": 0})
    config.mesh.data = 1
    config.train.update(settings)
    return config


def prepared(tmp_path, **settings):
    return setup.prepare(configured(tmp_path, **settings), Path(tmp_path) / "run", None)


class Late:
    """A number on the device, which tells when it is fetched."""

    def __init__(self, events, number, value):
        self.events, self.number, self.value = events, number, value

    def __float__(self):
        self.events.append(("read", self.number))
        return float(self.value)


def test_the_next_batch_is_ready_and_nothing_waits_for_the_step_that_runs(tmp_path, monkeypatch):
    """Metrics are read one step late, when the next step has been started: batch n + 1 is made while n runs."""
    events = []
    job = prepared(tmp_path, log_every=100)
    rows, make_train_step = job.batches.batch, step.make_train_step

    def batch(number, start=0, stop=None):
        events.append(("batch", number + 1))
        return rows(number, start, stop)

    def make(graph, config):
        run, numbers = make_train_step(graph, config), iter(range(1, 6))

        def train_step(state, batch):
            number = next(numbers)
            with jax.transfer_guard("disallow"):  # nor is any number sent along unseen
                state, metrics = run(state, batch)
            events.append(("start", number))
            return state, {name: Late(events, number, value) for name, value in metrics.items()}

        return train_step

    monkeypatch.setattr(job.batches, "batch", batch)
    monkeypatch.setattr(step, "make_train_step", make)
    assert train.train(job, 5) == 0
    expected = [("batch", 1), ("start", 1)]
    for n in range(2, 6):
        expected += [("batch", n), ("start", n), ("read", n - 1)]
    expected += [("read", 5), ("batch", 5)]  # the last for its hash
    assert list(dict.fromkeys(events)) == list(dict.fromkeys(expected))
    assert events.count(("read", 2)) == 4  # loss, lr, grad_norm, finite: once each


def test_a_vote_is_obeyed_one_step_later_by_all(monkeypatch):
    config = smoke.get_config()
    config.train.batch_size = 8
    config = RunConfig.from_config(config)
    devices = mesh.make_mesh(config.mesh, config.train)
    vote = hosts.StopVote(devices)
    assert [vote.cast(stop) for stop in (False, True, False)] == [False, True, False]  # alone
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert [vote.cast(stop) for stop in (False, True, False, False)] == [False, False, True, False]


def test_rows_that_a_process_reads(monkeypatch):
    config = smoke.get_config()
    config = RunConfig.from_config(config)
    devices = mesh.make_mesh(config.mesh, config.train)
    assert mesh.batch_rows(devices, 16) == [(0, 16)]
    sharding = mesh.batch_sharding(devices)
    held = sharding.addressable_devices_indices_map((16,))
    for mine, expected in (([0, 1, 2, 3], [(0, 8)]), ([5, 4, 0, 1], [(0, 4), (8, 12)])):
        part = {device: held[device] for device in devices.devices.flat[mine]}

        class Part:
            def addressable_devices_indices_map(self, shape, part=part):
                assert shape == (16,)
                return part

        monkeypatch.setattr(mesh, "batch_sharding", lambda _, part=Part: part())
        assert mesh.batch_rows(devices, 16) == expected
    rows = mesh.read_rows(expected, lambda a, b: {"tokens": np.arange(a, b)})
    np.testing.assert_array_equal(rows["tokens"], [0, 1, 2, 3, 8, 9, 10, 11])


def test_part_of_the_devices_is_refused_with_several_processes(monkeypatch):
    config = smoke.get_config()
    config.mesh.data = 2
    config = RunConfig.from_config(config)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(
        ValueError, match="use 2 devices; with several processes they must use all 8"
    ):
        mesh.make_mesh(config.mesh, config.train)


def test_speed_and_utilization_are_written_where_they_are_known(tmp_path, monkeypatch):
    import json

    monkeypatch.setattr(flops, "peak", lambda mesh, dtype: 1e12)
    job = prepared(tmp_path, steps=3, warmup_steps=1)
    assert train.train(job, 3) == 0
    lines = [json.loads(m) for m in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    lines = [m for m in lines if "loss" in m]
    assert lines[0]["flops_per_second"] is None and lines[0]["utilization"] is None
    per_token = flops.per_token(job.model_config, job.state["params"])
    for m in lines[1:]:
        assert m["flops_per_second"] == pytest.approx(m["tokens_per_second"] * per_token)
        assert m["utilization"] == pytest.approx(m["flops_per_second"] / 1e12)
    assert [m["tokens_seen"] for m in lines] == [128, 256, 384]
    for number, m in enumerate(lines):
        assert m["batch_hash"] == data.batch_hash(job.batches.batch(number)["tokens"])
    # Warm-up ends at the first update; then half a cosine down to a tenth of 1e-2.
    assert [m["lr"] for m in lines] == pytest.approx([1e-2, 5.5e-3, 1e-3])


def test_the_summary_says_how_much_of_an_epoch_is_trained(tmp_path):
    job = prepared(tmp_path, steps=2, warmup_steps=1)
    said = setup.summary(job)
    part = 2 * 8 / job.batches.windows_per_epoch
    assert part < 0.005 and f"; 2 steps = {part:.3g} epochs" in said and " 0.00 " not in said
    assert "step        8 windows of 16 = 128 tokens" in said


@pytest.mark.parametrize("name", ["JAX_NUM_PROCESSES", "JAX_PROCESS_ID"])
@pytest.mark.parametrize("value", ["two", "-1", "1.0", ""])
def test_a_number_of_processes_that_is_none_is_named(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"{name}='{value}' must be a whole number"):
        hosts.join()
