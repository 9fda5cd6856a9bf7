"""AdamW: its learning-rate schedule, what it clips and what it decays."""

import jax.numpy as jnp
import optax

from models import Params
from training.config import TrainConfig


def learning_rate(c: TrainConfig) -> optax.Schedule:
    """The learning rate of the update after `count` updates, a function of optimiser steps.

    Warm-up rises linearly and reaches the peak at update `warmup_steps`; then "constant" stays,
    "cosine" falls to final_fraction of the peak at update `steps`, and "wsd" stays until its last
    `decay_steps`, which fall linearly.
    """

    def schedule(count):
        done = (
            jnp.asarray(count, jnp.float32) + 1
        )  # the first update is number 1: never a rate of 0
        rise = done / c.warmup_steps if c.warmup_steps else jnp.ones_like(done)
        if c.schedule == "cosine":
            part = (done - c.warmup_steps) / max(c.steps - c.warmup_steps, 1)
            fall = 0.5 * (1 + jnp.cos(jnp.pi * jnp.clip(part, 0, 1)))
        elif c.schedule == "wsd":
            fall = jnp.clip((c.steps - done) / c.decay_steps, 0, 1)
        else:
            fall = jnp.ones_like(done)
        fall = c.final_fraction + (1 - c.final_fraction) * fall
        return c.learning_rate * jnp.where(done <= c.warmup_steps, rise, fall)

    return schedule


def decays(name: str) -> bool:
    """Weight decay acts on dense kernels and the token embedding: never on norms, nor on any position parameter."""
    return "posenc" not in name.split(".") and name.rsplit(".", 1)[-1] in ("kernel", "embedding")


def make_optimizer(c: TrainConfig) -> optax.GradientTransformation:
    """Clip the gradient of the whole batch by its global norm, then AdamW (Loshchilov & Hutter 2019)."""
    clip = optax.clip_by_global_norm(c.grad_clip) if c.grad_clip else optax.identity()

    def mask(params: Params) -> dict[str, bool]:
        return {name: decays(name) for name in params}

    return optax.chain(
        clip,
        optax.adamw(
            learning_rate(c), b1=c.beta1, b2=c.beta2, weight_decay=c.weight_decay, mask=mask
        ),
    )
