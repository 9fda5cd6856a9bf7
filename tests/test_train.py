"""Runs from end to end: resume bit for bit, checkpoints kept, starting from another run, mistakes in one line."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from configs import smoke
from training import checkpoint, setup
from training.config import RunConfig

ROOT = Path(__file__).parent.parent


def tiny(tmp_path, position="rope", **train):
    c = smoke.get_config(position)
    c.data.source = "synthetic:copy"
    c.data.cache_dir = str(tmp_path / "cache")
    c.model.num_layers = 1
    c.model.d_model = 16
    c.model.d_ff = 16
    c.model.dropout = 0.1
    c.train.batch_size = 8
    c.train.length = 16
    c.train.log_every = 1
    c.train.eval_windows = 8
    c.train.save_every = 10
    c.train.eval_every = 0
    c.mesh.data = 1
    c.train.update(train)
    return c


def train_to_end(config, workdir, init_from=None):
    """What train.py does once its flags are read; the exit status."""
    import train

    job = setup.prepare(config, Path(workdir), init_from)
    last = job.config.train.stop_at or job.config.train.steps
    if job.step >= last:
        job.checkpoints.close()
        return 0
    job.save_config()
    return train.train(job, last)


def metrics(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def steps_kept(workdir):
    return sorted(int(p.name) for p in (workdir / "checkpoints").iterdir() if p.name.isdigit())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """40 steps without interruption."""
    tmp = tmp_path_factory.mktemp("whole")
    workdir = tmp / "run"
    assert train_to_end(tiny(tmp), workdir) == 0
    return tmp, workdir


def test_resume_at_an_awkward_step_is_bit_exact(whole, tmp_path):
    tmp, straight = whole
    workdir = tmp_path / "run"
    assert train_to_end(tiny(tmp, stop_at=17), workdir) == 0
    assert metrics(workdir)[-1]["step"] == 17
    # Lines past the checkpoint, and one cut short, as a crash between two checkpoints leaves them.
    with (workdir / "metrics.jsonl").open("a") as f:
        f.write('{"step": 18, "loss": 9.9}\n{"step": 19, "lo')
    assert train_to_end(tiny(tmp), workdir) == 0

    def figures(where):
        speed = ("tokens_per_second", "flops_per_second")
        lines = [{k: v for k, v in m.items() if k not in speed} for m in metrics(where)]
        return [m for m in lines if "loss" in m], {m["step"]: m for m in lines if "loss" not in m}

    losses, valid = figures(workdir)
    losses_straight, valid_straight = figures(straight)
    assert losses == losses_straight
    assert [m["step"] for m in losses] == list(range(1, 41))
    assert valid.keys() - valid_straight.keys() == {17} and valid[40] == valid_straight[40]
    one, two = checkpoint.load_run(straight), checkpoint.load_run(workdir)
    for name in one.params:
        np.testing.assert_array_equal(one.params[name], two.params[name])
    events = EventAccumulator(str(workdir / "tensorboard")).Reload()
    assert [e.step for e in events.Scalars("loss")] == list(range(1, 41))


def test_metrics_say_what_was_trained_on(whole):
    _, workdir = whole
    lines = [m for m in metrics(workdir) if "loss" in m]
    assert set(lines[0]) == {
        "step", "loss", "lr", "grad_norm", "tokens_seen", "tokens_per_second", "batch_hash",
        "flops_per_second", "utilization",
    }  # fmt: skip
    assert lines[9]["tokens_seen"] == 10 * 8 * 16
    assert len({m["batch_hash"] for m in lines}) == 40  # no batch is met twice in the first epoch
    assert {m["step"] for m in metrics(workdir) if "valid_loss" in m} == {10, 20, 30, 40}
    assert lines[-1]["loss"] < lines[0]["loss"] - 0.5


def test_a_finished_run_does_nothing_and_more_steps_continue_it(whole, tmp_path):
    tmp, straight = whole
    config = tiny(tmp, steps=12, schedule="constant")
    workdir = tmp_path / "run"
    assert train_to_end(config, workdir) == 0
    before = (workdir / "metrics.jsonl").read_bytes()
    assert train_to_end(config, workdir) == 0
    assert (workdir / "metrics.jsonl").read_bytes() == before
    assert train_to_end(tiny(tmp, steps=14, schedule="constant"), workdir) == 0
    assert [m["step"] for m in metrics(workdir) if "loss" in m] == list(range(1, 15))
    assert json.loads((workdir / "config.json").read_text())["train"]["steps"] == 14


def test_the_newest_and_the_best_checkpoints_are_both_kept(whole, tmp_path, monkeypatch):
    tmp, _ = whole
    worsening = iter([1.0, 2.0, 3.0, 4.0, 5.0])
    monkeypatch.setattr(setup, "make_validation", lambda job: lambda params: next(worsening))
    config = tiny(tmp, steps=40, save_every=8, keep=2)
    assert train_to_end(config, tmp_path / "run") == 0
    assert steps_kept(tmp_path / "run") == [8, 32, 40]
    assert checkpoint.find_step(tmp_path / "run", "best") == 8
    assert checkpoint.find_step(tmp_path / "run", "latest") == 40
    assert checkpoint.find_step(tmp_path / "run", "32") == 32
    with pytest.raises(ValueError, match=r"no checkpoint 16; there are \[8, 32, 40\]"):
        checkpoint.find_step(tmp_path / "run", "16")


def test_a_broken_newest_checkpoint_is_skipped_by_name_and_written_again(whole, tmp_path):
    tmp, straight = whole
    workdir = tmp_path / "run"
    assert train_to_end(tiny(tmp, stop_at=20), workdir) == 0
    for path in (workdir / "checkpoints" / "20").rglob("*"):
        if path.is_file() and "METADATA" not in path.name.upper() and "commit" not in path.name:
            path.write_bytes(b"")
    with pytest.warns(UserWarning, match="checkpoint 20"):
        assert train_to_end(tiny(tmp), workdir) == 0
    assert steps_kept(workdir)[-1] == 40
    lines = [m for m in metrics(workdir) if "loss" in m]
    assert [m["step"] for m in lines] == list(range(1, 41))
    assert lines[-1]["loss"] == [m for m in metrics(straight) if "loss" in m][-1]["loss"]


def test_a_changed_setting_is_refused_by_name(whole):
    tmp, workdir = whole
    with pytest.raises(ValueError, match="train.batch_size was 8 and is 4"):
        setup.prepare(tiny(tmp, batch_size=4), workdir, None)
    with pytest.raises(ValueError, match="position was 'rope' and is 'alibi'"):
        setup.prepare(tiny(tmp, "alibi"), workdir, None)
    with pytest.raises(ValueError, match="began from fresh weights, not from init_from"):
        setup.prepare(tiny(tmp), workdir, "elsewhere")


def test_a_run_starts_from_anothers_weights_under_a_swap(whole, tmp_path):
    tmp, parent = whole
    config = tiny(tmp, "pi:factor=4", length=64, steps=3, warmup_steps=1)
    job = setup.prepare(config, tmp_path / "pi", str(parent))
    trained = checkpoint.load_run(parent)
    assert job.step == 0 and job.config.position == "pi:factor=4,original_length=16"
    for name, p in trained.params.items():
        np.testing.assert_array_equal(job.state["params"][name], p)
    assert job.record["parent"]["run"] == str(parent) and job.record["parent"]["step"] == 40
    job.checkpoints.close()
    assert train_to_end(config, tmp_path / "pi", str(parent)) == 0
    assert (
        train_to_end(tiny(tmp, "pi:factor=4", length=64, steps=5, warmup_steps=1), tmp_path / "pi")
        == 0
    )
    own = tiny(tmp, "pi:factor=4,original_length=8", length=64, steps=3, warmup_steps=1)
    job = setup.prepare(own, tmp_path / "own", str(parent))
    assert job.config.position == "pi:factor=4,original_length=8"
    job.checkpoints.close()


@pytest.mark.parametrize(
    "position, change, message",
    [
        ("alibi", {}, "checkpoint of rope cannot be read as alibi"),
        ("learned", {}, "lacks learned.table"),
        ("rope", {"d_model": 32}, "init_from=.* does not fit: model.d_model is 32, there 16"),
        ("rope", {"num_layers": 2}, "does not fit: model.num_layers is 2, there 1"),
    ],
)
def test_a_parent_that_does_not_fit_is_refused_with_the_names(
    whole, tmp_path, position, change, message
):
    tmp, parent = whole
    config = tiny(tmp, position)
    config.model.update(change)
    with pytest.raises(ValueError, match=message):
        setup.prepare(config, tmp_path / "child", str(parent))


def test_a_non_finite_loss_ends_the_run_and_leaves_the_last_good_checkpoint(
    whole, tmp_path, capsys
):
    tmp, _ = whole
    config = tiny(tmp, steps=40, save_every=5, learning_rate=1e30, grad_clip=0.0, warmup_steps=12)
    workdir = tmp_path / "run"
    assert train_to_end(config, workdir) == 1
    assert "non-finite" in capsys.readouterr().err
    with contextlib.suppress(ValueError):
        run = checkpoint.load_run(workdir)
        assert all(np.isfinite(p).all() for p in run.params.values())
    assert all(np.isfinite(m.get("loss", 0)) for m in metrics(workdir))


def test_paths_may_be_relative_or_hold_spaces(whole, tmp_path, monkeypatch):
    tmp, _ = whole
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for workdir in ("runs/x/", "~/a run"):
        assert train_to_end(tiny(tmp, steps=2, warmup_steps=1), Path(workdir)) == 0
    assert checkpoint.load_run("runs/x").step == 2
    assert checkpoint.load_run(str(tmp_path / "a run")).step == 2


def command(*words, **more):
    return subprocess.run(
        [sys.executable, ROOT / words[0], *words[1:]], capture_output=True, text=True, **more
    )


@pytest.mark.parametrize(
    "words, message",
    [
        (["--config.train.lenght=5"], 'the config has no field lenght. Did you mean "length"'),
        (["--config.train.steps=1e3"], "--config.train.steps='1e3' must be a whole number"),
        (["--confg=3"], "Unknown command line flag 'confg'"),
        (["--train.steps=3"], "unknown flag --train.steps; did you mean --config.train.steps=…?"),
        (["--config.position=yran"], "yran is no position scheme; did you mean yarn?"),
        (["--config.position=None"], "position=None must be a scheme"),
        (["--config.position=rope:rotary_fraction=0.2"], "rotary_fraction=0.2"),
        (["--config.data.source=nowhere"], "data.source"),
        (["--init_from=/nowhere"], "/nowhere holds no run"),
        (["stray"], "unexpected argument 'stray'"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(tmp_path, words, message):
    done = command(
        "train.py", f"--config={ROOT}/configs/smoke.py", f"--workdir={tmp_path}/run", *words
    )
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "run").exists()


def test_a_missing_config_file_is_named(tmp_path):
    done = command("train.py", f"--config={tmp_path}/none.py", f"--workdir={tmp_path}/run")
    assert (
        done.returncode == 2
        and done.stderr == f"train.py: --config={tmp_path}/none.py: there is no such file\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train.py", "--config.train.steps=3"], "changes a config file: give --config=FILE first"),
        (["train.py", f"--config={ROOT}/configs/smoke.py", "--data=x"], "flag 'data'"),
        (["eval_extrapolation.py", "--length=64"], "Did you mean: lengths ?"),
        (["eval_extrapolation.py", "--config.train.length=3"], "flag 'config.train.length'"),
        (["eval_extrapolation.py", "--seed=3"], "flag 'seed'"),
    ],
)
def test_hints_are_of_flags_that_the_command_has(words, message):
    done = command(*words)
    assert done.returncode == 2 and message in done.stderr and "mean --" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_config_that_is_no_python_file_is_named(tmp_path):
    done = command("train.py", f"--config={ROOT}/README.md", f"--workdir={tmp_path}/run")
    assert done.returncode == 2 and done.stderr.endswith(
        "README.md is no Python file, such as configs/rope.py\n"
    )


def test_missing_flags_are_named(tmp_path):
    done = command("train.py", f"--workdir={tmp_path}/run")
    assert done.returncode == 2 and "--config" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_signal_saves_a_checkpoint_and_ends_cleanly(tmp_path, number):
    words = [f"--config={ROOT}/configs/smoke.py", f"--workdir={tmp_path}/run"]
    words += ["--config.data.source=synthetic:copy", f"--config.data.cache_dir={tmp_path}/cache"]
    words += ["--config.train.steps=1000000", "--config.train.eval_windows=8"]
    words += ["--config.train.save_every=0", "--config.train.eval_every=0"]
    run = subprocess.Popen(
        [sys.executable, ROOT / "train.py", *words], stdout=subprocess.PIPE, text=True
    )
    lines = []
    for line in run.stdout:
        lines.append(line)
        if line.startswith("step 20/"):
            os.kill(run.pid, number)
            break
    began = time.time()
    out = run.stdout.read()
    run.stdout.close()
    assert run.wait(timeout=60) == 0, out
    assert "stopped after step" in out and time.time() - began < 60
    assert checkpoint.find_step(tmp_path / "run", "latest") >= 20


def copied(run, to, **model):
    """The run in another folder, with some fields of its config.json changed."""
    shutil.copytree(run, to)
    record = json.loads((to / "config.json").read_text())
    record["model"].update(model)
    (to / "config.json").write_text(json.dumps(record))
    return to


def test_a_checkpoint_of_another_model_is_refused_with_the_names(whole, tmp_path):
    run = copied(whole[1], tmp_path / "more", num_layers=2)
    with pytest.raises(ValueError, match="blocks.1.attention.*absent there"):
        checkpoint.load_run(run)
    run = copied(whole[1], tmp_path / "other", activation="gelu")  # one parameter fewer
    with pytest.raises(ValueError, match="gate.kernel .* there, absent here"):
        checkpoint.load_run(run)


def test_a_parent_with_other_heads_is_refused(whole, tmp_path):
    """The kernels have one shape whatever the number of heads: only the config tells."""
    config = tiny(whole[0])
    config.model.num_heads = 1
    with pytest.raises(
        ValueError, match="model.num_heads is 1, there 2; model.num_kv_heads is 1, there 2"
    ):
        setup.prepare(config, tmp_path / "child", str(whole[1]))
    assert not (tmp_path / "child").exists()


def test_a_child_takes_the_parents_rotary_options(whole, tmp_path):
    tmp, _ = whole
    assert train_to_end(tiny(tmp, "rope:base=500", steps=2, warmup_steps=1), tmp_path / "base") == 0
    config = tiny(tmp, "yarn:factor=4", length=64, steps=3, warmup_steps=1)
    job = setup.prepare(config, tmp_path / "child", str(tmp_path / "base"))
    job.checkpoints.close()
    assert job.config.position == "yarn:base=500,factor=4,original_length=16"


def test_checkpoints_that_cannot_be_read_are_left_alone(whole, tmp_path):
    run = copied(whole[1], tmp_path / "copy")
    for step in (30, 40):
        shutil.rmtree(run / "checkpoints" / str(step) / "default")
        (run / "checkpoints" / str(step) / "default").mkdir()
    before = (run / "metrics.jsonl").read_bytes()
    with (
        pytest.warns(UserWarning, match="broken"),
        pytest.raises(ValueError, match="no checkpoint in"),
    ):
        setup.prepare(tiny(whole[0]), run, None)
    assert steps_kept(run) == [30, 40] and (run / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    "text, message", [(None, "without config.json"), ("[]", "holds no JSON object")]
)
def test_checkpoints_without_their_config_are_refused(whole, tmp_path, text, message):
    run = copied(whole[1], tmp_path / "copy")
    (run / "config.json").unlink()
    if text:
        (run / "config.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        setup.prepare(tiny(whole[0]), run, None)


def test_a_signal_during_the_last_save_does_not_cut_it_short(whole, tmp_path, monkeypatch):
    close = checkpoint.Checkpoints.close

    def interrupted(self):
        os.kill(os.getpid(), signal.SIGTERM)
        close(self)

    monkeypatch.setattr(checkpoint.Checkpoints, "close", interrupted)
    assert train_to_end(tiny(whole[0], steps=3, warmup_steps=1), tmp_path / "run") == 0
    assert checkpoint.find_step(tmp_path / "run", "latest") == 3


def test_validation_text_without_targets_is_refused(tmp_path):
    for name, text in (("train", "a" * 4000), ("valid", "a"), ("test", "abcdef")):
        (tmp_path / f"{name}.txt").write_text(text)
    config = tiny(tmp_path)
    config.data.source = f"files:{tmp_path}/train.txt"
    config.data.valid_source = f"files:{tmp_path}/valid.txt"
    config.data.test_source = f"files:{tmp_path}/test.txt"
    with pytest.raises(ValueError, match="no validation document"):
        setup.prepare(config, tmp_path / "run", None)


def test_relative_sources_hold_from_everywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = tiny(tmp_path)
    config.data.source, config.data.cache_dir = "files:text/*.txt", "cache"
    found = RunConfig.from_config(config).data
    assert found.source == f"files:{tmp_path}/text/*.txt" and found.cache_dir == f"{tmp_path}/cache"


def test_a_position_may_be_a_mapping_or_a_string_anywhere(tmp_path):
    config = tiny(tmp_path)
    config.position = {"scheme": "yarn", "factor": np.float64(4), "beta_fast": 16}
    assert RunConfig.from_config(config).position == "yarn:beta_fast=16,factor=4"
    config.position = "yarn:factor=4.0,beta_fast=16"
    assert RunConfig.from_config(config).position == "yarn:beta_fast=16,factor=4"


def test_the_hash_is_of_the_experiment_and_not_of_its_seed(tmp_path):
    one, other = tiny(tmp_path), tiny(tmp_path, keep=7)
    other.seed = 5
    assert RunConfig.from_config(one).hash() == RunConfig.from_config(other).hash()
    other.train.learning_rate = 1e-4
    assert RunConfig.from_config(one).hash() != RunConfig.from_config(other).hash()


@pytest.mark.parametrize(
    "text, message",
    [
        ("def get_config():\n    raise ValueError('my own words')\n", "my own words"),
        ("import nothing_like_this\n", "nothing_like_this"),
        ("x = 1\n", "get_config"),
        ("from configs.studies.smoke import get_config\n", "is a study"),
    ],
)
def test_a_config_file_that_fails_says_why(tmp_path, text, message):
    (tmp_path / "c.py").write_text(text)
    done = command("train.py", f"--config={tmp_path}/c.py", f"--workdir={tmp_path}/run")
    assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1, (
        done.stderr
    )
