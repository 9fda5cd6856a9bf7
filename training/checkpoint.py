"""Checkpoints by orbax: saved, looked through, and read back with their run.

WORKDIR/checkpoints/STEP holds {"params", "opt_state", "step"}, the validation loss and checksums of
both. The newest `keep` and the best by validation loss stay.
"""

import dataclasses
import math
import re
import shutil
import warnings
from pathlib import Path

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies

import models
from data import Tokenizer, load_tokenizer
from training import checksums, hosts
from training.config import RunConfig, read_json
from training.record import read_record
from training.restore import brief, read_params, read_state
from training.step import State

REMOVED = "removed"  # folder of checkpoints that are to go, beside those that stay


def absolute(path: str | Path) -> Path:
    """The path with ~ and .. resolved; orbax takes absolute paths only."""
    return Path(path).expanduser().resolve()


def complete_steps(workdir: Path) -> dict[int, float]:
    """step -> validation loss of every checkpoint that tells it; a broken one is warned of by its step.

    Read without orbax's manager, which does not open at all where one of them is broken.
    """
    found = {}
    for folder in step_folders(workdir):
        try:
            stamp = folder / "_CHECKPOINT_METADATA"  # opening, orbax reads that of every step
            if stamp.exists():
                read_json(stamp)
            checksums.verify(folder, "metrics/")
            loss = float(read_json(folder / "metrics" / "metrics")["valid_loss"])
            if not math.isfinite(loss):
                raise ValueError(f"valid_loss={loss}")
            found[int(folder.name)] = loss
        except (OSError, ValueError, KeyError, TypeError) as error:
            warn_broken(folder, error)
    return found


def step_folders(workdir: Path) -> list[Path]:
    """The folders of a run's checkpoints; orbax gives a half-written one another name."""
    return [f for f in (workdir / "checkpoints").glob("*") if f.name.isdecimal()]


def nothing_readable(folder: Path) -> str:
    return (
        f"no checkpoint in {folder} can be read; name another workdir, or move that folder and "
        "metrics.jsonl away to train from the start"
    )


def warn_broken(folder: Path, error: Exception) -> None:
    warnings.warn(
        f"checkpoint {folder.name} in {folder.parent} is broken and is skipped ({brief(error)})",
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
            async_options=ocp.AsyncOptions(post_finalization_callback=self.sum_up),
            todelete_subdir=REMOVED,  # a kill while one is being removed leaves no part of it under its name
        )
        self.manager = ocp.CheckpointManager(self.folder, options=options)
        self.saving = 0  # the step being written

    def set_aside(self, folder: Path) -> None:
        """Out of orbax's way, which would refuse to write this step again when training gets there."""
        if hosts.is_chief():
            kept = folder.with_name(f"broken-{folder.name}")
            shutil.rmtree(kept, ignore_errors=True)
            folder.rename(kept)

    def save(self, state: State, step: int, valid_loss: float) -> None:
        """Write in the background; the state may be donated as soon as this returns."""
        self.wait()
        self.saving = step
        saved = self.manager.save(
            step, args=ocp.args.StandardSave(state), metrics={"valid_loss": valid_loss}
        )
        if not saved:
            raise RuntimeError(f"checkpoint {step} was not written to {self.folder}")

    def sum_up(self) -> None:
        """Called by orbax in the background, in one process, when the folder is written and has yet to get its name."""
        (unnamed,) = self.folder.glob(f"{self.saving}.*")
        checksums.write(unnamed)

    def restore_newest(self, like: State, sharding) -> State | None:
        """The newest state that reads back whole, or None where there is no checkpoint at all.

        Broken ones before it are set aside with a warning; ValueError if none can be read.
        """
        broken = []
        for step in sorted(self.manager.all_steps(), reverse=True):
            folder = self.folder / str(step)
            state, reason = None, OSError("another process could not read it")
            try:
                if hosts.is_chief():
                    checksums.verify(folder)
                whole = True
            except (OSError, ValueError) as error:
                whole, reason = False, error
            if hosts.everywhere(whole):
                try:
                    state = read_state(folder, like, sharding)
                except Exception as error:  # whatever orbax meets in a broken directory
                    reason = error
            if not hosts.everywhere(state is not None):
                warn_broken(folder, reason)
                broken.append(folder)
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
        if hosts.is_chief():
            shutil.rmtree(self.folder / REMOVED, ignore_errors=True)

    def close(self) -> None:
        try:
            self.wait()
        finally:
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
    record, config = read_record(path)
    model_config = config.model_config(record["tokenizer"]["vocab_size"])
    try:
        tokenizer = load_tokenizer(record["tokenizer"], workdir / "tokenizer.json")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    step = find_step(workdir, checkpoint)
    shapes = jax.eval_shape(lambda: models.split(models.build(model_config, config.seed))[1])
    params = read_params(workdir / "checkpoints" / str(step), shapes)
    return Run(workdir, config, model_config, tokenizer, record, step, params)


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
