"""Files from strangers execute nothing: docs/security.md, line by line."""

import pickle
import re
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest

import data
from configs import smoke
from evaluation.records import read_records
from evaluation.targets import read_targets
from training import checkpoint, setup

ROOT = Path(__file__).parent.parent


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def sprung(tmp_path):
    """The file that a trap makes; that traps work is seen here."""
    pickle.loads(pickle.dumps(Trap(tmp_path / "works")))
    assert (tmp_path / "works").exists()
    yield tmp_path / "sprung"
    assert not (tmp_path / "sprung").exists()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with one checkpoint, and the folder of its token files."""
    folder = tmp_path_factory.mktemp("run")
    c = smoke.get_config()
    c.data.source, c.data.cache_dir = "synthetic:copy", str(folder / "cache")
    c.model.num_layers, c.model.d_model, c.model.d_ff = 1, 8, 8
    c.mesh.data = 1
    job = setup.prepare(c, folder / "run", None)
    job.save_config()
    job.checkpoints.save(job.state, 1, 5.0)
    job.checkpoints.close()
    return folder / "run", job.config.data, job.corpus.directory


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_pickle_among_the_targets_is_refused(sprung, tmp_path):
    np.savez(tmp_path / "targets.npz", **{"run|rope|32": np.array([Trap(sprung)], object)})
    with pytest.raises(ValueError, match=r"targets\.npz is broken"):
        read_targets(tmp_path)
    (tmp_path / "targets.npz").write_bytes(pickle.dumps(Trap(sprung)))
    with pytest.raises(ValueError, match=r"targets\.npz is broken"):
        read_targets(tmp_path)


def test_a_header_that_promises_more_than_the_file_holds_takes_no_memory(tmp_path):
    path = tmp_path / "targets.npz"
    np.savez(path, **{"run|rope|32": np.zeros(1000)})
    held = path.read_bytes()
    larger = held.replace(b"(1000,), }" + b" " * 8, b"(100000000000,), }")
    assert larger != held and len(larger) == len(held)
    path.write_bytes(larger)
    with pytest.raises(ValueError, match=r"targets\.npz is broken"):
        read_targets(tmp_path)


def test_a_model_larger_than_the_machine_is_refused_before_any_of_it_is_made(monkeypatch, tmp_path):
    monkeypatch.setattr(setup.models, "build", None)
    c = smoke.get_config()
    c.data.source, c.data.cache_dir = "synthetic:copy", str(tmp_path / "cache")
    c.model.d_model, c.mesh.data = 2**20, 1
    with pytest.raises(ValueError, match=r"2,\d{3},\d{3},\d{3},\d{3} parameters or more"):
        setup.prepare(c, tmp_path / "run", None)


def test_a_pickle_for_records_is_refused(sprung, tmp_path):
    (tmp_path / "records.jsonl").write_bytes(pickle.dumps(Trap(sprung)))
    with pytest.raises(ValueError, match=r"records\.jsonl"):
        read_records(tmp_path)


def test_pickles_for_every_file_of_a_checkpoint_are_refused(sprung, run):
    workdir, _, _ = run
    trap = pickle.dumps(Trap(sprung))
    for path in files(workdir / "checkpoints"):
        kept = path.read_bytes()
        path.write_bytes(trap)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a checkpoint that is broken
            try:  # some files, such as that of the shardings, are not read
                found = checkpoint.load_run(workdir)
            except ValueError as error:
                assert "checkpoint" in str(error)
            else:
                assert found.step == 1
        path.write_bytes(kept)
    kept = (workdir / "config.json").read_bytes()
    (workdir / "config.json").write_bytes(trap)
    with pytest.raises(ValueError, match=r"config\.json"):
        checkpoint.load_run(workdir)
    (workdir / "config.json").write_bytes(kept)


def test_pickles_for_every_token_file_are_made_again(sprung, run):
    _, config, directory = run
    trap = pickle.dumps(Trap(sprung))
    for path in files(directory):
        if path.name == "tokenizer.json":
            continue  # of bytes there is nothing to read in it
        kept = path.read_bytes()
        path.write_bytes(trap)
        data.prepare(config)
        assert path.read_bytes() == kept, path.name


# What runs what it reads. `shell=True` and os.system hand a text to a shell.
RUNS = re.compile(
    r"\b(?:import|from) +(?:pickle|marshal|shelve|dill|joblib|yaml)\b|allow_pickle=True"
    r"|(?<![.\w])(?:eval|exec)\(|shell=True|os\.system"
)


def test_nothing_in_the_code_runs_what_it_reads():
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    sources = [name for name in listed.stdout.split() if not name.startswith("tests/")]
    assert "evaluation/records.py" in sources
    found = [(name, RUNS.findall((ROOT / name).read_text())) for name in sources]
    assert [(name, words) for name, words in found if words] == []
