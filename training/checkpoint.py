"""Checkpoints by orbax, and what else it takes to read a run back: its config.json.

WORKDIR/checkpoints/STEP holds {"params", "opt_state", "step"}. The newest `keep` and the best by
validation loss stay.
"""

import dataclasses
import json
import re
import shutil
import warnings
from pathlib import Path

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies

import models
from data import Tokenizer, load_tokenizer
from training import hosts
from training.config import RunConfig, read_json
from training.step import State


def absolute(path: str | Path) -> Path:
    """The path with ~ and .. resolved; orbax takes absolute paths only."""
    return Path(path).expanduser().resolve()


def complete_steps(workdir: Path) -> dict[int, float]:
    """step -> validation loss of every checkpoint whose metrics can be read; a broken one is warned
    of by its step.

    Read without orbax's manager, which does not open at all where one of them is broken.
    """
    found = {}
    for folder in step_folders(workdir):
        try:
            metrics = json.loads((folder / "metrics" / "metrics").read_text())
            found[int(folder.name)] = float(metrics["valid_loss"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            warn_broken(folder, error)
    return found


def step_folders(workdir: Path) -> list[Path]:
    """The folders of a run's checkpoints; orbax gives a half-written one another name."""
    return [f for f in (workdir / "checkpoints").glob("*") if f.name.isdecimal()]


def nothing_readable(folder: Path) -> str:
    return f"no checkpoint in {folder} can be read; move that folder away to train from the start"


def warn_broken(folder: Path, error: Exception) -> None:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    warnings.warn(
        f"checkpoint {folder.name} in {folder.parent} is broken and is skipped ({reason})",
        stacklevel=3,
    )


class Checkpoints:
    """The checkpoints of one run, written in the background."""

    def __init__(self, workdir: Path, keep: int):
        self.folder = workdir / "checkpoints"
        complete = complete_steps(workdir)
        broken = [f for f in step_folders(workdir) if int(f.name) not in complete]
        if broken and not complete:
            raise ValueError(nothing_readable(self.folder))
        hosts.wait_for_all("checkpoints looked through")
        for folder in broken:
            self.set_aside(folder)
        hosts.wait_for_all("broken checkpoints set aside")
        by_loss = policies.BestN(get_metric_fn=lambda m: m["valid_loss"], reverse=True, n=1)
        options = ocp.CheckpointManagerOptions(
            best_fn=lambda metrics: metrics["valid_loss"],  # what makes orbax store the metrics
            best_mode="min",
            preservation_policy=policies.AnyPreservationPolicy([policies.LatestN(keep), by_loss]),
        )
        self.manager = ocp.CheckpointManager(self.folder, options=options)

    def set_aside(self, folder: Path) -> None:
        """Out of orbax's way, which would refuse to write this step again when training gets there."""
        if hosts.is_chief():
            kept = folder.with_name(f"broken-{folder.name}")
            shutil.rmtree(kept, ignore_errors=True)
            folder.rename(kept)

    def save(self, state: State, step: int, valid_loss: float) -> None:
        """Write in the background; the state may be donated as soon as this returns."""
        saved = self.manager.save(
            step, args=ocp.args.StandardSave(state), metrics={"valid_loss": valid_loss}
        )
        if not saved:
            raise RuntimeError(f"checkpoint {step} was not written to {self.folder}")

    def restore_newest(self, like: State, sharding) -> State | None:
        """The newest state that reads back whole, or None where there is no checkpoint at all.

        Broken ones before it are set aside with a warning; ValueError if none can be read.
        """
        target = jax.tree.map(
            lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), like, sharding
        )
        broken = []
        for step in sorted(self.manager.all_steps(), reverse=True):
            state, reason = None, OSError("another process could not read it")
            try:
                state = self.manager.restore(step, args=ocp.args.StandardRestore(target))
            except Exception as error:  # whatever orbax meets in a broken directory
                reason = error
            if not hosts.everywhere(state is not None):
                warn_broken(self.folder / str(step), reason)
                broken.append(self.folder / str(step))
                continue
            for folder in broken:
                self.set_aside(folder)
            if broken:
                hosts.wait_for_all("unreadable checkpoints set aside")
                self.manager.reload()
            return state
        if broken:
            raise ValueError(nothing_readable(self.folder))
        return None

    def check(self) -> None:
        """Raise what went wrong in the background, without waiting for it."""
        self.manager.check_for_errors()

    def wait(self) -> None:
        """Until everything saved so far is on disk."""
        self.manager.wait_until_finished()

    def close(self) -> None:
        self.manager.close()


@dataclasses.dataclass(frozen=True)
class Run:
    """A trained run as read back from its workdir: all that evaluation or a fine-tune needs."""

    workdir: Path
    config: RunConfig
    model_config: models.ModelConfig
    tokenizer: Tokenizer
    record: dict  # config.json
    step: int
    params: models.Params


def load_run(workdir: str | Path, checkpoint: str = "latest") -> Run:
    """Read a run's config.json and the parameters of a checkpoint: "latest", "best" or a step.

    ValueError says in one line what is missing: the run, its checkpoints, that step.
    """
    workdir = absolute(workdir)
    path = workdir / "config.json"
    if not path.is_file():
        raise ValueError(f"{workdir} holds no run: there is no config.json")
    record = read_record(path)
    config = run_config(record)
    model_config = config.model_config(record["tokenizer"]["vocab_size"])
    tokenizer = load_tokenizer(record["tokenizer"], workdir / "tokenizer.json")
    step = find_step(workdir, checkpoint)
    shapes = jax.eval_shape(lambda: models.split(models.build(model_config, config.seed))[1])
    params = read_params(workdir / "checkpoints" / str(step), shapes)
    return Run(workdir, config, model_config, tokenizer, record, step, params)


def read_record(path: Path) -> dict:
    """A run's config.json; ValueError if it is none."""
    record = read_json(path)
    needed = ("seed", "position", "model", "data", "train", "mesh", "tokenizer", "corpus", "parent")
    missing = [name for name in needed if not isinstance(record, dict) or name not in record]
    if missing:
        raise ValueError(f"{path} is no run's config.json: {missing[0]} is missing")
    return record


# What runs did before a field was there, for a config.json that lacks it.
BEFORE = {"mesh": {"distributed": False}}


def run_config(record: dict) -> RunConfig:
    """The settings that a config.json records, without what stands beside them."""
    names = [field.name for field in dataclasses.fields(RunConfig)]
    settings = {name: record[name] for name in names if name in record}
    for section, earlier in BEFORE.items():
        if isinstance(settings.get(section), dict):
            settings[section] = {**earlier, **settings[section]}
    return RunConfig.from_config(settings)


def find_step(workdir: Path, checkpoint: str) -> int:
    """The step that "latest", "best" or a number names among a run's complete checkpoints."""
    if checkpoint not in ("latest", "best") and not re.fullmatch("[0-9]+", checkpoint):
        raise ValueError(f"checkpoint={checkpoint!r} must be latest, best or a step")
    losses = complete_steps(workdir)
    if not losses:
        raise ValueError(f"{workdir} holds no complete checkpoint yet")
    if checkpoint == "latest":
        return max(losses)
    if checkpoint == "best":
        return min(losses, key=lambda step: (losses[step], step))
    if int(checkpoint) not in losses:
        raise ValueError(f"{workdir} has no checkpoint {checkpoint}; there are {sorted(losses)}")
    return int(checkpoint)


def read_params(folder: Path, shapes: models.Params) -> models.Params:
    """The parameters of one checkpoint, without its optimiser state, on this process's first device.

    ValueError names those that are missing, that nothing reads, or whose shapes differ.
    """
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    target = {
        name: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding)
        for name, s in shapes.items()
    }
    restore = ocp.args.PyTreeRestore(
        item={"params": target},
        restore_args=ocp.checkpoint_utils.construct_restore_args({"params": target}),
        partial_restore=True,
    )
    try:
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
            stored = checkpointer.metadata(folder / "default").item_metadata["params"]
            misfits = differing_shapes({name: tuple(m.shape) for name, m in stored.items()}, shapes)
            if not misfits:
                return checkpointer.restore(folder / "default", args=restore)["params"]
    except Exception as error:  # whatever orbax meets in a broken directory
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"checkpoint {folder} cannot be read ({reason})") from error
    raise ValueError(f"checkpoint {folder} is not of the model in config.json: {misfits}")


def differing_shapes(there: dict[str, tuple], here: models.Params) -> str:
    """The parameters that do not fit, by name, both shapes given; "" if all do."""
    wanted = {name: array.shape for name, array in here.items()}
    misfits = [
        f"{name} {there.get(name, 'absent')} there, {wanted.get(name, 'absent')} here"
        for name in sorted(wanted.keys() | there.keys())
        if wanted.get(name) != there.get(name)
    ]
    more = f" and {len(misfits) - 4} more" if len(misfits) > 4 else ""
    return "; ".join(misfits[:4]) + more
