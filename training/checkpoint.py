"""Checkpoints by orbax, and what else it takes to read a run back: its config.json.

WORKDIR/checkpoints/STEP holds {"params", "opt_state", "step"}. The newest `keep` and the best by validation loss stay.
"""

import dataclasses
import warnings
from pathlib import Path

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies

import models
from data import Tokenizer, load_tokenizer
from training.config import RunConfig, read_json
from training.step import State


def absolute(path: str | Path) -> Path:
    """The path with ~ and .. resolved; orbax takes absolute paths only."""
    return Path(path).expanduser().resolve()


def open_manager(workdir: Path, keep: int | None = None) -> ocp.CheckpointManager:
    """Orbax's manager of a run's checkpoints; read-only without `keep`."""
    options = ocp.CheckpointManagerOptions(
        best_fn=lambda metrics: metrics["valid_loss"],
        best_mode="min",
        read_only=keep is None,
        preservation_policy=policies.AnyPreservationPolicy(
            [
                policies.LatestN(keep),
                policies.BestN(get_metric_fn=lambda m: m["valid_loss"], reverse=True, n=1),
            ]
        ),
    )
    return ocp.CheckpointManager(workdir / "checkpoints", options=options)


class Checkpoints:
    """The checkpoints of one run, written in the background."""

    def __init__(self, workdir: Path, keep: int):
        self.folder = workdir / "checkpoints"
        self.manager = open_manager(workdir, keep)

    def save(self, state: State, step: int, valid_loss: float) -> None:
        """Write in the background; the state may be donated as soon as this returns."""
        saved = self.manager.save(
            step, args=ocp.args.StandardSave(state), metrics={"valid_loss": valid_loss}
        )
        if not saved:
            raise RuntimeError(f"checkpoint {step} was not written to {self.folder}")

    def restore_newest(self, like: State, sharding) -> State | None:
        """The newest state that reads back whole, or None; a broken one is set aside with a warning."""
        target = jax.tree.map(
            lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), like, sharding
        )
        for step in sorted(self.manager.all_steps(), reverse=True):
            try:
                return self.manager.restore(step, args=ocp.args.StandardRestore(target))
            except Exception as error:  # whatever orbax meets in a broken directory
                reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
                warnings.warn(
                    f"checkpoint {step} in {self.folder} is broken and is skipped ({reason})",
                    stacklevel=2,
                )
                # Out of the way: orbax would refuse to write this step again when training gets there.
                (self.folder / str(step)).rename(self.folder / f"broken-{step}")
                self.manager.reload()
        return None

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
    record = read_json(path)
    config = run_config(record)
    model_config = config.model_config(record["tokenizer"]["vocab_size"])
    tokenizer = load_tokenizer(record["tokenizer"], workdir / "tokenizer.json")
    step = find_step(workdir, checkpoint)
    shapes = jax.eval_shape(lambda: models.split(models.build(model_config, config.seed))[1])
    params = read_params(workdir / "checkpoints" / str(step), shapes)
    return Run(workdir, config, model_config, tokenizer, record, step, params)


def run_config(record: dict) -> RunConfig:
    """The settings that a config.json records, without what stands beside them."""
    names = [field.name for field in dataclasses.fields(RunConfig)]
    return RunConfig.from_config({name: record[name] for name in names if name in record})


def find_step(workdir: Path, checkpoint: str) -> int:
    """The step that "latest", "best" or a number names among a run's complete checkpoints."""
    if checkpoint not in ("latest", "best") and not checkpoint.isdigit():
        raise ValueError(f"checkpoint={checkpoint!r} must be latest, best or a step")
    steps = []
    if (workdir / "checkpoints").is_dir():
        with open_manager(workdir) as manager:
            steps, best = sorted(manager.all_steps()), manager.best_step()
    if not steps:
        raise ValueError(f"{workdir} holds no complete checkpoint yet")
    if checkpoint == "latest":
        return steps[-1]
    if checkpoint == "best":
        return best
    if int(checkpoint) not in steps:
        raise ValueError(f"{workdir} has no checkpoint {checkpoint}; there are {steps}")
    return int(checkpoint)


def read_params(folder: Path, shapes: models.Params) -> models.Params:
    """The parameters of one checkpoint, without its optimiser state, on this process's first device."""
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
            return checkpointer.restore(folder / "default", args=restore)["params"]
    except Exception as error:  # whatever orbax meets in a broken directory
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise ValueError(f"checkpoint {folder} cannot be read: {reason}") from error
