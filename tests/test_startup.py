"""The cache of compiled programs: loaded by the next start, never in the way, and the same bits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from configs import command

ROOT = Path(__file__).parent.parent


def launch(tmp_path, name, folder, **environment):
    """A short training with its compiled programs in `folder`."""
    words = [sys.executable, ROOT / "train.py", f"--config={ROOT}/configs/smoke.py"]
    words += [f"--workdir={tmp_path}/{name}", f"--config.data.cache_dir={tmp_path}/cache"]
    words += ["--config.data.source=synthetic:copy", "--config.train.steps=5"]
    words += ["--config.train.log_every=1", "--config.train.eval_windows=8"]
    env = {
        **os.environ,
        "JAX_ENABLE_COMPILATION_CACHE": "true",
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        **environment,
    }
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, env=env, **pipes)


def start(tmp_path, name, folder, **environment):
    """Run it to its end: its metrics without speeds, and what stood on stderr."""
    return ended(tmp_path, name, launch(tmp_path, name, folder, **environment))


def ended(tmp_path, name, process):
    said = process.communicate()[1]
    assert process.returncode == 0, said
    lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
    speeds = ("tokens_per_second", "flops_per_second")
    return [{k: v for k, v in json.loads(m).items() if k not in speeds} for m in lines], said


@pytest.mark.slow
def test_a_second_start_loads_what_the_first_compiled(tmp_path):
    folder = tmp_path / "compiled"
    plain, quiet = start(tmp_path, "plain", folder, JAX_ENABLE_COMPILATION_CACHE="false")
    assert not folder.exists() and quiet == ""
    cold, quiet = start(tmp_path, "cold", folder)
    programs = {path: path.stat().st_mtime_ns for path in folder.glob("*-cache")}
    assert any("train_step" in path.name for path in programs) and quiet == ""
    warm, said = start(tmp_path, "warm", folder, JAX_LOGGING_LEVEL="DEBUG")
    assert "Persistent compilation cache hit for 'jit_train_step'" in said
    assert "PERSISTENT COMPILATION CACHE MISS" not in said
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*-cache")} == programs
    assert plain == cold == warm

    for path in programs:
        path.write_bytes(path.read_bytes()[:100])
    damaged, said = start(tmp_path, "damaged", folder)
    assert damaged == plain
    assert all(line.startswith("warning: ") for line in said.splitlines()) and said


@pytest.mark.slow
def test_two_starts_at_once_share_a_folder(tmp_path):
    names = ("one", "other")
    both = {name: launch(tmp_path, name, tmp_path / "compiled") for name in names}
    one, other = (ended(tmp_path, name, process)[0] for name, process in both.items())
    assert one == other


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_only_warns(tmp_path):
    (tmp_path / "file").write_text("")
    _, said = start(tmp_path, "run", tmp_path / "file" / "compiled")
    assert said and all(line.startswith("warning: ") for line in said.splitlines()), said


def test_the_folder_is_documented_and_the_users_own_choice_wins(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = command.compiled_folder()
    assert folder.startswith(f"{tmp_path}/.cache/lengthwise/compiled/")
    assert command.COMPILED in (ROOT / "docs" / "distributed.md").read_text()
    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")  # and back afterwards
    for given, expected in ((None, folder), ("/elsewhere", "/elsewhere")):
        monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
        if given:
            monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", given)
        with pytest.raises(SystemExit):
            command.run(lambda: 0)
        assert os.environ["JAX_COMPILATION_CACHE_DIR"] == expected


def test_help_imports_nothing_heavy():
    code = "import sys, train; print([m for m in ('jax', 'flax', 'orbax', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done


CONFIG = f"--config={ROOT}/configs/smoke.py"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config.train.steps=abc"], "--config.train.steps='abc' must be a whole number"),
        (["--config.train.steps=1e3"], "--config.train.steps='1e3' must be a whole number"),
        (["--config.train.steps", "x"], "--config.train.steps='x' must be a whole number"),
        (["--config.train.steps="], "--config.train.steps='' must be a whole number"),
        (["--config.seed=1: 2"], "--config.seed='1: 2' must be a whole number"),
        (["--config.seed=1\n2"], r"--config.seed='1\n2' must be a whole number"),
        (["--config.train.learning_rate=fast"], "learning_rate='fast' must be a number"),
        (["--config.model.remat=maybe"], "--config.model.remat='maybe' must be true or false"),
        (["--config.train=3"], "--config.train is a section; write --config.train.accumulate=…"),
        (["--config.=3"], "--config.=3: --config. names no field"),
        (["--config.train.=3"], "--config.train. names no field"),
        (["--config.train.steps.more=3"], "no field train.steps.more: train.steps is a value"),
        (["--config.train.steps"], "Missing value for flag --config.train.steps"),
        (["--init_from=", "--workdir=w"], "--init_from= is empty: name a run, or leave it out"),
    ],
)
def test_a_value_that_fits_no_flag_is_one_line(words, message):
    """Each before jax is imported, and with nothing left behind."""
    code = "import sys, train; from configs import command; sys.argv[0] = 'train.py'; "
    code += "command.run(train.main)"
    done = subprocess.run(
        [sys.executable, "-c", code, CONFIG, *words], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert done.stderr.startswith("train.py: ") and done.stderr.count("\n") == 1
    assert not (ROOT / "w").exists()
