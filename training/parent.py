"""Starting from another run's weights: what is taken over, what is refused, and how the parent is known again."""

import dataclasses
import warnings
from pathlib import Path

import jax

import models
import posenc
from data import Tokenizer
from training import checksums
from training.checkpoint import Run, absolute, load_run
from training.config import RunConfig, canonical
from training.record import read_record, run_config
from training.restore import differing


def describe(parent: Run) -> dict:
    """What a child's config.json records of its parent.

    `settings` and `checksums` (of the checkpoint) tell whether a run is the parent, wherever it is
    moved to.
    """
    pattern = posenc.parse_pattern(parent.config.position)
    options = [given for parts in pattern for _, given in parts]
    original = [given["original_length"] for given in options if "original_length" in given]
    return {
        "run": str(parent.workdir),
        "step": parent.step,
        "config_hash": parent.config.hash(),
        "position": parent.config.position,
        "original_length": original[0] if original else parent.config.train.length,
        "settings": parent.config.to_dict(),
        "checksums": checksums.fingerprint(parent.workdir / "checkpoints" / str(parent.step)),
    }


def known_again(recorded: dict | None, init_from: str | None, workdir: Path) -> dict | None:
    """The parent that a run's config.json records, under the path that it has now.

    ValueError where --init_from names another run than that.
    """
    if not init_from:
        return recorded
    if not recorded:
        raise ValueError(
            f"{workdir} holds a run that began from fresh weights, not from init_from={init_from}"
        )
    path = absolute(init_from)
    if str(path) == recorded["run"]:
        return recorded
    if not (path / "config.json").exists():
        warnings.warn(
            f"init_from={init_from} holds no run; {workdir} goes on without it", stacklevel=2
        )
        return recorded
    _, config = read_record(path / "config.json")
    if "settings" in recorded:
        differences = config.differences(run_config(recorded["settings"]))
    else:  # recorded by an earlier version
        same = config.hash() == recorded["config_hash"]
        differences = [] if same else [f"config_hash was {recorded['config_hash']}"]
    if differences:
        raise ValueError(
            f"{workdir} holds a run that began from {recorded['run']}, not from init_from={init_from}: "
            f"{'; '.join(differences)}"
        )
    return {**recorded, "run": str(path)}


def read_again(recorded: dict, workdir: Path) -> Run:
    """The recorded parent, for a child without a checkpoint of its own. ValueError where it is gone or another."""
    path, step = Path(recorded["run"]), recorded["step"]
    if not (path / "config.json").exists():
        raise ValueError(
            f"{workdir} has no checkpoint yet and begins from step {step} of {path}, which holds no run "
            "any more: name its folder with --init_from"
        )
    parent = load_run(path, str(step))
    expected = recorded.get("checksums")
    if expected and expected != checksums.fingerprint(path / "checkpoints" / str(step)):
        raise ValueError(
            f"checkpoint {step} of {path} is not the one that {workdir} began from; name another workdir"
        )
    return parent


def adopt(config: RunConfig, parent: dict) -> RunConfig:
    """The child's settings completed from the parent's scheme; ValueError if they are no swap of it.

    Options that the two schemes share (base, pairing, …) are the parent's unless given, as in evaluation; and rotary
    scalings measure their factor from the parent's training length.
    """
    trained, asked = (posenc.parse_pattern(c) for c in (parent["position"], config.position))
    pattern = posenc.swap_pattern(trained, asked, config.model_config(vocab_size=1).dims)

    def complete(name: str, options: dict) -> tuple[str, dict]:
        if "original_length" in posenc.option_names(name):
            options = {"original_length": parent["original_length"], **options}
        return name, options

    pattern = [[complete(name, options) for name, options in parts] for parts in pattern]
    return dataclasses.replace(config, position=canonical(posenc.format_pattern(pattern))).checked()


# What a child's model may do differently with the same weights.
MAY_DIFFER = ("dropout", "dtype", "remat")


def check(config: RunConfig, tokenizer: Tokenizer, parent: Run) -> None:
    """Refuse a parent whose tokens, model or parameters are not this run's; ValueError names them."""
    if tokenizer.sha256 != parent.tokenizer.sha256:
        raise ValueError(
            f"init_from={parent.workdir} was trained with the tokenizer {parent.tokenizer.name} "
            f"({parent.tokenizer.sha256[:12]}), this run has {tokenizer.name} ({tokenizer.sha256[:12]})"
        )
    model_config = config.model_config(tokenizer.vocab_size)
    there = parent.model_config
    misfits = [
        f"model.{name} is {getattr(model_config, name)}, there {getattr(there, name)}"
        for name in config.model
        if name not in MAY_DIFFER and getattr(model_config, name) != getattr(there, name)
    ]
    if misfits:
        raise ValueError(f"init_from={parent.workdir} does not fit: {'; '.join(misfits)}")
    shapes = jax.eval_shape(lambda: models.split(models.build(model_config, config.seed))[1])
    misfits = differing(parent.params, shapes)
    if misfits:
        raise ValueError(f"the parameters of init_from={parent.workdir} do not fit: {misfits}")
