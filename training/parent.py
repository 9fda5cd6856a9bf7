"""Starting from another run's weights: what is taken over, and what is refused."""

import dataclasses

import jax

import models
import posenc
from data import Tokenizer
from training.checkpoint import Run
from training.config import RunConfig


def describe(parent: Run) -> dict:
    """What a child's config.json records of its parent."""
    pattern = posenc.parse_pattern(parent.config.position)
    options = [given for parts in pattern for _, given in parts]
    original = [given["original_length"] for given in options if "original_length" in given]
    return {
        "run": str(parent.workdir),
        "step": parent.step,
        "config_hash": parent.config.hash(),
        "position": parent.config.position,
        "original_length": original[0] if original else parent.config.train.length,
    }


def adopt(config: RunConfig, parent: dict) -> RunConfig:
    """The child's settings completed: rotary scalings measure their factor from the parent's training length."""

    def complete(name: str, options: dict) -> tuple[str, dict]:
        if "original_length" in posenc.option_names(name):
            options = {"original_length": parent["original_length"], **options}
        return name, options

    pattern = posenc.parse_pattern(config.position)
    pattern = [[complete(name, options) for name, options in parts] for parts in pattern]
    return dataclasses.replace(config, position=posenc.format_pattern(pattern)).checked()


def check(config: RunConfig, tokenizer: Tokenizer, parent: Run) -> None:
    """Refuse a parent whose scheme this run's is no swap of, or whose tokens or parameters differ; by name."""
    trained = posenc.parse_pattern(parent.config.position)
    posenc.swap_pattern(trained, posenc.parse_pattern(config.position), parent.model_config.dims)
    if tokenizer.sha256 != parent.tokenizer.sha256:
        raise ValueError(
            f"init_from={parent.workdir} was trained with the tokenizer {parent.tokenizer.name} "
            f"({parent.tokenizer.sha256[:12]}), this run has {tokenizer.name} ({tokenizer.sha256[:12]})"
        )
    model_config = config.model_config(tokenizer.vocab_size)
    shapes = jax.eval_shape(lambda: models.split(models.build(model_config, config.seed))[1])
    wanted = {name: shape.shape for name, shape in shapes.items()}
    there = {name: array.shape for name, array in parent.params.items()}
    misfits = [
        f"{name} {there.get(name, 'absent')} there, {wanted.get(name, 'absent')} here"
        for name in sorted(wanted.keys() | there.keys())
        if wanted.get(name) != there.get(name)
    ]
    if misfits:
        more = f" and {len(misfits) - 4} more" if len(misfits) > 4 else ""
        raise ValueError(
            f"the parameters of init_from={parent.workdir} do not fit: {'; '.join(misfits[:4])}{more}"
        )
