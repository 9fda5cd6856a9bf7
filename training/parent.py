"""Starting from another run's weights: what is taken over, and what is refused."""

import dataclasses

import jax

import models
import posenc
from data import Tokenizer
from training.checkpoint import Run, differing_shapes
from training.config import RunConfig, canonical


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
    for name in config.model:
        here, there = getattr(model_config, name), getattr(parent.model_config, name)
        if here != there and name not in MAY_DIFFER:
            raise ValueError(
                f"model.{name}={here} does not fit init_from={parent.workdir}, which has {there}"
            )
    shapes = jax.eval_shape(lambda: models.split(models.build(model_config, config.seed))[1])
    misfits = differing_shapes({name: p.shape for name, p in parent.params.items()}, shapes)
    if misfits:
        raise ValueError(f"the parameters of init_from={parent.workdir} do not fit: {misfits}")
