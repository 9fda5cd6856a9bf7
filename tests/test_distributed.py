"""Two processes as one run, started as on two hosts: they meet through JAX's runtime, on this machine."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from configs import smoke
from training import checkpoint, setup
from training.config import RunConfig
from training.record import run_config

ROOT = Path(__file__).parent.parent
SETTINGS = {
    "data.source": "synthetic:copy",
    "model.num_layers": 1,
    "model.d_ff": 64,
    "model.dropout": 0.1,
    "train.steps": 1_000_000,
    "train.schedule": "constant",
    "train.batch_size": 16,
    "train.length": 16,
    "train.log_every": 1,
    "train.eval_every": 0,
    "train.eval_windows": 24,  # no multiple of the batch: the last one is filled up
    "train.save_every": 0,
}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def launch(workdir, cache, more=(), second=(), **settings):
    """train.py in two processes of two virtual devices each; more words for both, or for the second alone."""
    words = [sys.executable, ROOT / "train.py", f"--config={ROOT}/configs/smoke.py"]
    words += [f"--workdir={workdir}", f"--config.data.cache_dir={cache}"]
    given = {**SETTINGS, "mesh.distributed": True, **settings}
    words += [f"--config.{name}={value}" for name, value in given.items()]
    shared = {
        "JAX_NUM_CPU_DEVICES": "2",
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}",
        "JAX_NUM_PROCESSES": "2",
    }
    return [
        subprocess.Popen(
            [*words, *more, *others],
            env={**os.environ, **shared, "JAX_PROCESS_ID": str(index)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index, others in enumerate([(), second])
    ]


@contextlib.contextmanager
def running(*where, **how):
    """The processes of `launch`, none of which outlives the test."""
    processes = launch(*where, **how)
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def ended(processes):
    """(exit status, stdout, stderr) of each, once all have ended."""
    found = []
    for process in processes:
        out, err = process.communicate(timeout=900)
        found.append((process.returncode, out, err))
    return found


def in_one_process(workdir, cache, init_from=None, **settings):
    """The same training in this process, on some of its eight virtual devices."""
    import train

    config = smoke.get_config()
    config.update_from_flattened_dict({**SETTINGS, **settings})
    config.data.cache_dir = str(cache)
    job = setup.prepare(config, Path(workdir), init_from and str(init_from))
    job.save_config()
    assert train.train(job, job.config.train.stop_at) == 0


def metrics(workdir, name):
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return {m["step"]: m[name] for m in lines if name in m}


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path):
    """Trained by two, stopped by a signal to one, continued by one, then by two in another layout: one curve."""
    run, cache = tmp_path / "run", tmp_path / "cache"
    with running(run, cache) as both:
        lines = []
        for line in both[0].stdout:
            lines.append(line)
            if line.startswith("step 3/"):
                os.kill(
                    both[1].pid, signal.SIGTERM
                )  # one of them only, and not the one that writes
                break
        found = ended(both)
    assert [status for status, _, _ in found] == [0, 0], (lines, found)
    assert "a signal to another process: stopped after step" in found[0][1]
    assert "step" not in found[1][1]  # one process speaks (gloo says something of its own)
    first = checkpoint.find_step(run, "latest")
    assert 3 <= first < 1000

    in_one_process(run, cache, **{"train.stop_at": first + 3, "mesh.data": 1, "mesh.fsdp": 8})

    last = first + 6
    layout = {"train.stop_at": last, "mesh.data": 2, "mesh.fsdp": 2}
    with running(run, cache, **layout) as both:
        found = ended(both)
    assert [status for status, _, _ in found] == [0, 0], found
    assert f"continuing after step {first + 3}" in found[0][1]
    assert "4 x cpu, data 2, fsdp 2, of 2 processes" in found[0][1]

    straight = tmp_path / "straight"
    in_one_process(straight, cache, **{"train.stop_at": last, "mesh.data": 4})
    for name in ("loss", "grad_norm"):
        two, one = metrics(run, name), metrics(straight, name)
        assert list(two) == list(one) == list(range(1, last + 1))
        np.testing.assert_allclose(list(two.values()), list(one.values()), rtol=2e-4)
    assert metrics(run, "batch_hash") == metrics(straight, "batch_hash")
    two, one = metrics(run, "valid_loss"), metrics(straight, "valid_loss")
    np.testing.assert_allclose(two[last], one[last], rtol=2e-4)
    # What two processes saved is read by one, as evaluation reads it.
    saved, expected = checkpoint.load_run(run), checkpoint.load_run(straight)
    assert saved.step == last
    for name, array in expected.params.items():
        np.testing.assert_allclose(saved.params[name], array, atol=2e-3, err_msg=name)


@pytest.mark.slow
def test_a_child_of_a_run_and_an_end_that_all_processes_see(tmp_path):
    """Two processes start from a checkpoint of one, meet a loss that is not finite, and both end with it."""
    parent, child, cache = tmp_path / "parent", tmp_path / "child", tmp_path / "cache"
    in_one_process(parent, cache, **{"train.stop_at": 2, "mesh.data": 1})
    settings = {
        "train.warmup_steps": 0,
        "train.learning_rate": 1e15,
        "train.grad_clip": 0.0,
        "train.stop_at": 30,
    }
    with running(child, cache, more=[f"--init_from={parent}"], **settings) as both:
        found = ended(both)
    assert [status for status, _, _ in found] == [1, 1], found
    assert "train.py: non-finite" in found[0][2] and found[1][2] == ""
    record = json.loads((child / "config.json").read_text())
    assert record["parent"]["run"] == str(parent) and record["parent"]["step"] == 2
    # Its first step begins with the parent's weights: a loss that fresh ones do not have.
    alone = tmp_path / "alone"
    settings = {**settings, "train.stop_at": 1, "train.learning_rate": 0.0, "mesh.data": 1}
    in_one_process(alone, cache, parent, **settings)
    np.testing.assert_allclose(metrics(child, "loss")[1], metrics(alone, "loss")[1], rtol=2e-4)


@pytest.mark.slow
def test_processes_that_cannot_be_one_run_are_refused(tmp_path):
    """Different settings on one host, in one line and by name, before anything is trained."""
    second = ["--config.train.learning_rate=0.5", "--config.train.keep=7"]
    with running(tmp_path / "run", tmp_path / "cache", second=second) as both:
        found = ended(both)
    for status, _, err in found:
        assert status == 2, found
        said = [line for line in err.splitlines() if not line.startswith("waiting for another")]
        assert len(said) == 1 and "differ in train.learning_rate, train.keep" in said[0]
    second = ["--config.data.source=nowhere"]
    with running(tmp_path / "run", tmp_path / "cache", second=second) as both:
        found = ended(both)
    assert [status for status, _, _ in found] == [2, 2], found
    said = [n for n in found[1][2].splitlines() if not n.startswith("waiting for another")]
    assert len(said) == 1 and "data.source" in said[0]
    assert found[0][2] == "train.py: another process of this run was refused, and says why\n"
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize(
    "variables, message",
    [
        ({}, "coordinator_address should be defined"),
        ({"JAX_COORDINATOR_ADDRESS": "127.0.0.1:1"}, "Number of processes must be defined"),
        ({"JAX_NUM_PROCESSES": "two"}, "JAX_NUM_PROCESSES='two' must be a whole number"),
    ],
)
def test_a_cluster_that_is_not_there_is_named(monkeypatch, variables, message):
    from training import hosts

    for name in [n for n in os.environ if n.startswith(("SLURM_", "OMPI_", "KUBERNETES_"))]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(jax._src.xla_bridge, "backends_are_initialized", lambda: False)
    before = jax.config.jax_enable_preemption_service
    try:
        with pytest.raises(ValueError, match=message):
            hosts.join()
    finally:
        jax.config.update("jax_enable_preemption_service", before)


def test_mesh_distributed_may_change_on_resume_and_older_runs_lack_it():
    config = smoke.get_config()
    alone = RunConfig.from_config(config)
    config.mesh.distributed = True
    together = RunConfig.from_config(config)
    assert together.differences(alone) == [] and together.hash() == alone.hash()
    record = alone.to_dict()
    del record["mesh"]["distributed"]
    assert run_config(record) == alone
