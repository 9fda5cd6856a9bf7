"""What is read back from a run's folder: damaged, moved, old and new; never silently something else."""

import json
import pickle
import shutil
import sys
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
import tensorstore
from test_train import copied, metrics, tiny, train_to_end

from training import checkpoint, checksums, record, restore, setup
from training.config import RunConfig

SHORT = {"steps": 12, "save_every": 4, "keep": 3, "warmup_steps": 1}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run with checkpoints 4, 8 and 12."""
    tmp = tmp_path_factory.mktemp("whole")
    assert train_to_end(tiny(tmp, **SHORT), tmp / "run") == 0
    return tmp, tmp / "run"


@pytest.fixture(scope="module")
def child(whole):
    """A run that began from it, with checkpoints of its own."""
    tmp, parent = whole
    assert train_to_end(tiny(tmp, **SHORT, stop_at=4), tmp / "child", str(parent)) == 0
    return tmp / "child"


@pytest.fixture
def kept(whole, tmp_path):
    """A copy of the finished run, to be damaged."""
    return copied(whole[1], tmp_path / "run")


def arrays(folder):
    """The files that hold the arrays' values, the largest first."""
    found = [path for path in (folder / "default").rglob("*") if path.parent.name == "d"]
    return sorted(found, key=lambda path: -path.stat().st_size)


def flip(path, where=0.5):
    """One bit of a file."""
    content = bytearray(path.read_bytes())
    content[int(len(content) * where)] ^= 4
    path.write_bytes(bytes(content))


def state_of(config, workdir):
    """The step and the parameters, optimiser state and all, that a run continues from."""
    job = setup.prepare(config, workdir, None)
    job.checkpoints.close()
    return job.step, jax.tree.map(np.asarray, job.state)


@pytest.fixture(scope="module")
def eight(whole, tmp_path_factory):
    """The whole state at step 8."""
    run = copied(whole[1], tmp_path_factory.mktemp("eight") / "run")
    shutil.rmtree(run / "checkpoints" / "12")
    step, state = state_of(tiny(whole[0], **SHORT), run)
    assert step == 8
    return state


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGE = {
    "no default": lambda c: shutil.rmtree(c / "default"),
    "no metrics": lambda c: shutil.rmtree(c / "metrics"),
    "nothing in it": lambda c: [shutil.rmtree(c), c.mkdir()],
    "no manifest": lambda c: (c / "default" / "manifest.ocdbt").unlink(),
    "no list of arrays": lambda c: (c / "default" / "_METADATA").unlink(),
    "cut": lambda c: [cut(path) for path in arrays(c)],
    "empty": lambda c: [path.write_bytes(b"") for path in arrays(c)],
    "empty metrics": lambda c: (c / "metrics" / "metrics").write_bytes(b""),
    "loss not finite": lambda c: (c / "metrics" / "metrics").write_text('{"valid_loss": NaN}'),
    "metrics not text": lambda c: (c / "metrics" / "metrics").write_bytes(b"\xff\xfe"),
    "stamp cut": lambda c: cut(c / "_CHECKPOINT_METADATA"),
    "stamp no object": lambda c: (c / "_CHECKPOINT_METADATA").write_text("[]"),
}
# What only sums can tell.
SUBTLE = {
    "an array's bit": lambda c: flip(arrays(c)[0]),
    "a bit of the last": lambda c: flip(arrays(c)[-1]),
    "a digit of the loss": lambda c: flip(c / "metrics" / "metrics", 0.9),
    "zeros at the end": lambda c: arrays(c)[0].write_bytes(arrays(c)[0].read_bytes() + bytes(8)),
    "sums cut": lambda c: cut(c / "checksums.json"),
    "sums empty": lambda c: (c / "checksums.json").write_bytes(b""),
}


@pytest.mark.parametrize(
    "damage, sums",
    [
        *[(damage, True) for damage in [*DAMAGE, *SUBTLE]],
        *[(damage, False) for damage in DAMAGE],  # as earlier versions wrote
    ],
)
def test_a_damaged_newest_checkpoint_costs_no_other(whole, kept, eight, capfd, damage, sums):
    """The run goes on from the one before, the same bits, after one warning and not a word more."""
    for step in () if sums else (4, 8, 12):
        (kept / "checkpoints" / str(step) / "checksums.json").unlink()
    {**DAMAGE, **SUBTLE}[damage](kept / "checkpoints" / "12")
    capfd.readouterr()
    with pytest.warns(UserWarning) as told:
        step, state = state_of(tiny(whole[0], **SHORT), kept)
    assert [str(w.message)[:14] for w in told] == ["checkpoint 12 "]
    assert "\n" not in str(told[0].message)
    assert "Traceback" not in capfd.readouterr().err
    assert step == 8
    assert jax.tree.all(jax.tree.map(np.array_equal, state, eight))
    left = sorted(path.name for path in (kept / "checkpoints").iterdir())
    assert left == ["4", "8", "broken-12"]


def test_a_stamp_that_orbax_can_do_without_costs_nothing(whole, kept):
    (kept / "checkpoints" / "12" / "_CHECKPOINT_METADATA").unlink()
    assert state_of(tiny(whole[0], **SHORT), kept)[0] == 12


def test_a_run_that_fell_back_ends_as_one_that_did_not(whole, kept):
    flip(arrays(kept / "checkpoints" / "12")[0])
    with pytest.warns(UserWarning, match="checkpoint 12 .* is not as it was written"):
        assert train_to_end(tiny(whole[0], **SHORT), kept) == 0
    there, here = checkpoint.load_run(whole[1]), checkpoint.load_run(kept)
    assert here.step == 12
    for name, array in there.params.items():
        np.testing.assert_array_equal(here.params[name], array)
    losses = [[m["loss"] for m in metrics(run) if "loss" in m] for run in (whole[1], kept)]
    assert losses[0] == losses[1] and len(losses[0]) == 12


def test_every_file_of_a_checkpoint_has_its_sum(whole):
    folder = whole[1] / "checkpoints" / "12"
    sums = json.loads((folder / "checksums.json").read_text())
    there = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("commit_success.txt", "_CHECKPOINT_METADATA")
    }
    assert {name for name in sums if not name.endswith("commit_success.txt")} | {
        "checksums.json"
    } == there
    assert {"metrics/metrics", "default/manifest.ocdbt", "default/_METADATA"} < set(sums)


def test_a_checkpoint_with_a_file_less_is_refused_by_its_sums(kept):
    folder = kept / "checkpoints" / "12"
    checksums.verify(folder)
    (folder / "default" / "_sharding").unlink()  # orbax reads the arrays without it
    with pytest.raises(ValueError, match="default/_sharding is missing"):
        checksums.verify(folder)


def test_evaluation_and_children_read_no_damaged_checkpoint(whole, kept, tmp_path):
    file = arrays(kept / "checkpoints" / "12")[0]
    flip(file)
    message = f"checkpoint .*/12 cannot be read .*{file.name} is not as it was written"
    with pytest.raises(ValueError, match=message):
        checkpoint.load_run(kept)
    with pytest.raises(ValueError, match=message):
        setup.prepare(tiny(whole[0], **SHORT), tmp_path / "child", str(kept))
    assert checkpoint.load_run(kept, "8").step == 8


def test_a_digit_of_a_loss_makes_no_other_checkpoint_the_best(kept):
    best = checkpoint.find_step(kept, "best")
    file = kept / "checkpoints" / str(best) / "metrics" / "metrics"
    file.write_text(json.dumps({"valid_loss": 1e3}))
    with pytest.warns(UserWarning, match=f"checkpoint {best} .*checksum"):
        assert checkpoint.find_step(kept, "best") != best


def test_a_checkpoint_under_another_step_is_not_that_step(whole, kept):
    (kept / "checkpoints" / "12").rename(kept / "checkpoints" / "13")
    with pytest.warns(UserWarning, match="checkpoint 13 .* holds step 12"):
        assert state_of(tiny(whole[0], **SHORT), kept)[0] == 8


def test_a_run_whose_checkpoints_are_gone_does_not_begin_again(whole, kept):
    shutil.rmtree(kept / "checkpoints")
    before = (kept / "metrics.jsonl").read_bytes()
    lost = r"metrics.jsonl in .*/run reaches step 12, but there is no checkpoint in .*/checkpoints"
    for config in (tiny(whole[0], **SHORT), tiny(whole[0], **{**SHORT, "steps": 20})):
        with pytest.raises(ValueError, match=f"{lost}.*or remove metrics.jsonl"):
            setup.prepare(config, kept, None)
    (kept / "checkpoints").mkdir()  # emptied, and not taken away
    with pytest.raises(ValueError, match=lost):
        setup.prepare(tiny(whole[0], **SHORT), kept, None)
    assert (kept / "metrics.jsonl").read_bytes() == before
    (kept / "metrics.jsonl").unlink()
    assert state_of(tiny(whole[0], **SHORT), kept)[0] == 0


def test_a_young_run_whose_checkpoints_are_gone_is_refused(whole, kept):
    """Also before a save must have been committed: orbax makes the folder at the start."""
    shutil.rmtree(kept / "checkpoints")
    (kept / "metrics.jsonl").write_text('{"step": 5, "loss": 4.0}\n')
    with pytest.raises(ValueError, match="reaches step 5, but there is no checkpoint"):
        setup.prepare(tiny(whole[0], **SHORT), kept, None)


def test_a_run_ended_before_its_first_checkpoint_begins_again_and_says_so(whole, kept):
    shutil.rmtree(kept / "checkpoints")
    (kept / "checkpoints").mkdir()

    def reached(step):
        lines = [json.dumps(m) for m in metrics(whole[1]) if m["step"] <= step]
        (kept / "metrics.jsonl").write_text("\n".join([*lines, '{"step": 99, "lo']))

    reached(8)  # the checkpoint of step 4 may have been under way
    with pytest.warns(UserWarning, match="was ended at step 8, before its first checkpoint"):
        assert state_of(tiny(whole[0], **SHORT), kept)[0] == 0
    reached(9)  # but not any more
    with pytest.raises(ValueError, match="reaches step 9"):
        setup.prepare(tiny(whole[0], **SHORT), kept, None)


def test_the_last_save_may_have_been_cut_off(whole, tmp_path):
    """A run that saves at its end alone: what tells is the folder that the save leaves half-written."""
    config = tiny(whole[0], **{**SHORT, "save_every": 0, "steps": 2})
    assert train_to_end(config, tmp_path / "run") == 0
    folder = tmp_path / "run" / "checkpoints"
    (folder / "2").rename(folder / "2.orbax-checkpoint-tmp")
    with pytest.warns(UserWarning, match="was ended at step 2"):
        assert state_of(config, tmp_path / "run")[0] == 0
    shutil.rmtree(folder / "2.orbax-checkpoint-tmp", ignore_errors=True)
    with pytest.raises(ValueError, match="reaches step 2"):
        setup.prepare(config, tmp_path / "run", None)


@pytest.mark.parametrize("left", ["checkpoints", "metrics.jsonl"])
def test_a_run_without_its_config_is_not_begun_over(whole, kept, left):
    gone = {"checkpoints": "metrics.jsonl", "metrics.jsonl": "checkpoints"}[left]
    (kept / "config.json").unlink()
    (kept / gone).rename(kept / "elsewhere")
    with pytest.raises(ValueError, match=f"holds {left} without config.json; name another workdir"):
        setup.prepare(tiny(whole[0], **SHORT), kept, None)


def test_reading_a_checkpoint_executes_nothing(whole, monkeypatch):
    """No pickle, no evaluated text, no program: neither in training nor in evaluation."""
    seen = []
    listening = [True]

    def hook(event, given):
        if listening[0] and event.startswith(
            ("pickle.", "marshal.", "os.system", "os.exec", "subprocess.")
        ):
            seen.append(event)

    sys.addaudithook(hook)
    pickle.loads(pickle.dumps(Path("x")))
    assert seen == ["pickle.find_class"]  # it hears
    seen.clear()
    run = checkpoint.load_run(whole[1])
    checkpoints = checkpoint.Checkpoints(whole[1], keep=3)
    config = RunConfig.from_config(tiny(whole[0], **SHORT))
    fresh = setup.init_state(run.params, config)
    sharding = jax.tree.map(lambda a: jax.sharding.SingleDeviceSharding(jax.devices()[0]), fresh)
    assert int(checkpoints.restore_newest(fresh, sharding)["step"]) == 12
    checkpoints.close()
    listening[0] = False
    assert seen == []


def database(folder, name, shape, chunks):
    """An array in the place of a checkpoint's, of zeros, which take no room."""
    spec = {
        "driver": "zarr",
        "kvstore": {"driver": "ocdbt", "base": f"file://{folder / 'default'}", "path": f"{name}/"},
        "metadata": {
            "shape": shape,
            "chunks": chunks,
            "dtype": "<f4",
            "compressor": {"id": "zstd", "level": 1},
            "fill_value": 0,
        },
    }
    tensorstore.open(spec, create=True, delete_existing=True).result()


@pytest.mark.parametrize(
    "shape, chunks, message",
    [
        ([2**40], [2**20], "params.norm.scale (1099511627776,) there, (16,) here"),
        ([16], [2**28], "params.norm.scale (16,) is stored in parts of (268435456,)"),
    ],
)
def test_sizes_are_compared_before_memory_is_taken(whole, kept, shape, chunks, message):
    """An array of 4 TB, and one whose only part takes 1 GB to read, where the model has 16 numbers."""
    folder = kept / "checkpoints" / "12"
    database(folder, "params.norm.scale", shape, chunks)
    checksums.write(folder)  # whoever made it could sum it up as well
    with pytest.raises(ValueError) as told:
        checkpoint.load_run(kept)
    assert message.replace("params.", "") in str(told.value).replace("params.", "")
    with pytest.warns(UserWarning) as told:
        assert state_of(tiny(whole[0], **SHORT), kept)[0] == 8
    assert message in str(told[0].message)


def test_records_of_any_size_are_judged_by_their_shapes(whole, kept):
    """A table of 2^30 by 2^20 numbers, in a config.json, is not made to be refused."""
    edit(kept, lambda r: r["model"].update(d_model=2**20, num_heads=2**14))
    edit(kept, lambda r: r.update(position="learned"))
    edit(kept, lambda r: r["train"].update(length=2**30))
    with pytest.raises(ValueError, match="is not of the model in config.json"):
        checkpoint.load_run(kept)


def test_a_checkpoint_that_goes_leaves_its_name_at_once(whole, kept, monkeypatch):
    """A kill while it is being removed would else leave half of one under the name of a whole one."""
    job = setup.prepare(tiny(whole[0], **SHORT | {"keep": 1}), kept, None)
    monkeypatch.setattr(checkpoint.shutil, "rmtree", lambda *args, **options: None)
    job.checkpoints.save(job.state, 13, 9.0)
    job.checkpoints.wait()
    there = [int(folder.name) for folder in checkpoint.step_folders(kept)]
    gone = {4, 8, 12} - set(there)
    assert 13 in there and gone
    for step in gone:
        checksums.verify(kept / "checkpoints" / "removed" / str(step))
        assert (kept / "checkpoints" / "removed" / str(step) / checksums.NAME).exists()
    monkeypatch.undo()
    job.checkpoints.close()
    assert not (kept / "checkpoints" / "removed").exists()


def edit(run, change):
    file = run / "config.json"
    found = json.loads(file.read_text())
    change(found)
    file.write_text(json.dumps(found))


def fields(tree, path=()):
    """Where each field of a config.json stands, those of what is only for people left out."""
    for key, value in tree.items():
        yield (*path, key)
        if isinstance(value, dict) and key not in ("provenance", "key", "splits"):
            yield from fields(value, (*path, key))


INFORMATIVE = ("config_hash", "train_length", "provenance")  # read by no part of the program


def test_a_field_that_is_missing_is_named_with_its_file(whole, child, tmp_path):
    """At any depth, and in nobody else's words: not a word of configs/base.py."""
    run = copied(child, tmp_path / "run")
    original = json.loads((run / "config.json").read_text())
    missed = []
    for path in fields(original):
        changed = json.loads(json.dumps(original))
        inner = changed
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]
        (run / "config.json").write_text(json.dumps(changed))
        try:
            record.read_record(run / "config.json")
        except ValueError as error:
            text = str(error)
            assert text.startswith(f"{run}/config.json: ") and text.endswith(" is missing"), text
            assert path[-1] in text and "\n" not in text
        else:
            missed.append(path)
    assert [path for path in missed if path[0] not in (*INFORMATIVE, "corpus")] == [
        ("mesh", "distributed"),  # what runs did before these were there is known
        ("parent", "settings"),
        ("parent", "settings", "mesh", "distributed"),
        ("parent", "checksums"),
    ]


def put(*path_and_value):
    *path, value = path_and_value

    def change(found):
        for key in path[:-1]:
            found = found[key]
        found[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change, message",
    [
        (put("model", None), "model=None must be a group of fields"),
        (put("train", []), "train=[] must be a group of fields"),
        (put("corpus", {}), "corpus.key is missing"),
        (put("corpus", None), "corpus=None must be a group of fields"),
        (put("tokenizer", {}), "tokenizer.name is missing"),
        (put("tokenizer", "vocab_size", "257"), "tokenizer.vocab_size='257' must be of type int"),
        (put("tokenizer", "vocab_size", 300), "tokenizer.vocab_size=300 is not that of byte"),
        (put("tokenizer", "name", "words"), "data.tokenizer='words' should be \"byte\""),
        (put("parent", "nowhere"), "parent='nowhere' must be a group of fields"),
        (put("parent", {"run": "x"}), "parent.step is missing"),
        (put("parent", "step", -1), "parent.step=-1 must be at least 0"),
        (put("parent", "original_length", 0), "parent.original_length=0 must be at least 1"),
        (put("parent", "position", "rope+"), "'' is not a scheme's name"),
        (put("parent", "settings", "train", None), "parent.settings: train=None must be a group"),
        (put("parent", "settings", 3), "parent.settings=3 must be a group of fields"),
        (put("seed", None), "seed=None must be a whole number"),
        (put("seed", True), "seed=True must be a whole number"),
        (put("position", 7), "position=7 must be a scheme's name"),
        (put("train", "steps", "40"), "train.steps='40' must be of type int"),
        (put("train", "steps", 2**31), "train.steps=2147483648 must be below 2^31"),
        (put("train", "learning_rate", float("nan")), "train.learning_rate=nan must be a finite"),
        (put("train", "learning_rate", 10**400), "must be a finite number"),
        (put("train", "momentum", 0.9), "train.momentum is not known to this version"),
        (put("model", "experts", 8), "model.experts is not known to this version"),
        (put("optimizer", "muon"), "optimizer is not known to this version"),
    ],
)
def test_a_damaged_record_is_one_line_that_names_its_file(child, whole, tmp_path, change, message):
    run = copied(child, tmp_path / "run")
    edit(run, change)
    for read in (
        lambda: checkpoint.load_run(run),
        lambda: setup.prepare(tiny(whole[0], **SHORT), run, None),
    ):
        if message == "tokenizer mismatch" and read.__code__.co_names[0] != "checkpoint":
            continue
        with pytest.raises(ValueError) as told:
            read()
        text = str(told.value)
        assert text.startswith(f"{run}/config.json: ") and message in text and "\n" not in text
        assert "base.py" not in text and "did you mean" not in text


def test_a_tokenizer_that_the_record_does_not_fit_is_named_by_it(kept):
    edit(kept, put("tokenizer", "separator", 0))
    with pytest.raises(ValueError, match="run/config.json: tokenizer mismatch"):
        checkpoint.load_run(kept)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "is not valid JSON"),
        (b"\xff\xfe{}", "is not text in UTF-8"),
        (b"[]", "holds no JSON object"),
        (b"null", "holds no JSON object"),
        (b"[" * 100_000, "is not valid JSON"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "is not valid JSON"),
        (b"{}", "tokenizer is missing"),
    ],
)
def test_a_config_that_is_no_record_is_named(kept, content, message):
    (kept / "config.json").write_bytes(content)
    with pytest.raises(ValueError) as told:
        checkpoint.load_run(kept)
    assert str(told.value).startswith(f"{kept}/config.json") and message in str(told.value)


def test_a_tokenizer_that_is_damaged_or_gone_is_named(whole, tmp_path):
    config = tiny(tmp_path, **{**SHORT, "steps": 2})
    text = "".join(f"the {n} of {n * n % 97} was {n * 7 % 31}\n\n" for n in range(4000))
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.txt").write_text(text)
    config.data.source, config.data.tokenizer = f"files:{tmp_path}/a.txt", "bpe:280"
    config.data.valid_source = f"files:{tmp_path}/b.txt"
    config.data.test_source = f"files:{tmp_path}/c.txt"
    run = tmp_path / "run"
    assert train_to_end(config, run) == 0
    assert checkpoint.load_run(run).tokenizer.vocab_size == 280
    assert not list(run.glob("*.part"))
    flip(run / "tokenizer.json")
    with pytest.raises(ValueError, match="run/tokenizer.json has sha256"):
        checkpoint.load_run(run)
    (run / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="run/tokenizer.json is missing"):
        checkpoint.load_run(run)


def test_folders_move(whole, child, tmp_path):
    """After both are elsewhere, the child's own command continues it, and says where its parent is now."""
    config = tiny(whole[0], **SHORT)
    moved, parent = copied(child, tmp_path / "moved"), copied(whole[1], tmp_path / "parent")
    job = setup.prepare(config, moved, str(parent))
    job.checkpoints.close()
    assert job.step == 4 and job.record["parent"]["run"] == str(parent)
    assert job.record["parent"]["settings"] == RunConfig.from_config(config).to_dict()
    # The parent was trained on meanwhile: still the parent.
    edit(parent, put("train", "steps", 99))
    job = setup.prepare(config, moved, str(parent))
    job.checkpoints.close()
    assert job.step == 4
    edit(parent, put("seed", 1))
    with pytest.raises(ValueError, match="began from .*, not from .*: seed was 0 and is 1"):
        setup.prepare(config, moved, str(parent))


def test_a_child_with_checkpoints_needs_no_parent(whole, child, tmp_path):
    config = tiny(whole[0], **SHORT)
    moved = copied(child, tmp_path / "moved")
    edit(moved, put("parent", "run", str(tmp_path / "gone")))
    for init_from in (None, str(tmp_path / "gone")):
        job = setup.prepare(config, moved, init_from)
        job.checkpoints.close()
        assert job.step == 4
    with pytest.warns(UserWarning, match="init_from=.*/nowhere holds no run; .* goes on without"):
        job = setup.prepare(config, moved, str(tmp_path / "nowhere"))
    job.checkpoints.close()
    assert job.step == 4


def test_a_child_without_checkpoints_finds_its_parent_again_or_says_so(whole, child, tmp_path):
    config = tiny(whole[0], **SHORT)
    moved, parent = copied(child, tmp_path / "moved"), copied(whole[1], tmp_path / "parent")
    shutil.rmtree(moved / "checkpoints")
    (moved / "metrics.jsonl").unlink()
    edit(moved, put("parent", "run", str(tmp_path / "gone")))
    with pytest.raises(ValueError, match="begins from step 12 of .*/gone, .*with --init_from"):
        setup.prepare(config, moved, None)
    job = setup.prepare(config, moved, str(parent))
    job.checkpoints.close()
    trained = checkpoint.load_run(parent)
    for name, array in trained.params.items():
        np.testing.assert_array_equal(job.state["params"][name], array)
    assert job.record["parent"]["checksums"] == checksums.fingerprint(parent / "checkpoints" / "12")
    checksums.write(parent / "checkpoints" / "8")
    shutil.rmtree(parent / "checkpoints" / "12")
    shutil.copytree(parent / "checkpoints" / "8", parent / "checkpoints" / "12")
    with pytest.raises(ValueError, match="checkpoint 12 of .* is not the one that .* began from"):
        setup.prepare(config, moved, str(parent))


def test_a_parent_recorded_by_an_earlier_version_is_known_by_path_or_settings(
    whole, child, tmp_path
):
    config = tiny(whole[0], **SHORT)
    moved, parent = copied(child, tmp_path / "moved"), copied(whole[1], tmp_path / "parent")

    def forget(found):
        del found["parent"]["settings"], found["parent"]["checksums"]

    edit(moved, forget)
    for init_from in (str(whole[1]), str(parent)):
        job = setup.prepare(config, moved, init_from)
        job.checkpoints.close()
        assert job.step == 4
    edit(parent, put("train", "learning_rate", 0.5))
    with pytest.raises(ValueError, match="began from .*, not from .*: config_hash was"):
        setup.prepare(config, moved, str(parent))


def test_a_grandchild_scales_from_the_length_that_was_first_trained_at(whole, child, tmp_path):
    """16 tokens, then 64 under PI, then 256 under YaRN: positions are still those of 16."""
    tmp, first = whole
    assert json.loads((child / "config.json").read_text())["parent"]["original_length"] == 16
    config = tiny(tmp, "pi:factor=4", steps=2, warmup_steps=1, length=64)
    assert train_to_end(config, tmp_path / "second", str(first)) == 0
    config = tiny(tmp, "yarn:factor=16", steps=2, warmup_steps=1, length=256)
    job = setup.prepare(config, tmp_path / "third", str(tmp_path / "second"))
    job.checkpoints.close()
    assert job.record["parent"]["original_length"] == 16
    assert job.config.position == "yarn:factor=16,original_length=16"


def test_an_ordinary_continuation_warns_of_nothing(whole, kept, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert state_of(tiny(whole[0], **SHORT), kept)[0] == 12
    assert capfd.readouterr().err == ""


def test_late_reads_alone_are_quiet(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    restore.quiet_late_reads()
    restore.quiet_late_reads()
    for error in (RuntimeError("Event loop is closed"), RuntimeError("other"), ValueError("x")):
        raised = type("Raised", (), {"exc_value": error})
        sys.unraisablehook(raised)
    assert [str(raised.exc_value) for raised in told] == ["other", "x"]
