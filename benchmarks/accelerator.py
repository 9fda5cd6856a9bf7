"""What can only be measured on an accelerator: the training step in bfloat16, with and without the fused kernel.

    .venv/bin/python benchmarks/accelerator.py [--length=2048] [--windows=16] [--width=1024] [--layers=12]

For each scheme: tokens a second, model FLOP/s and, where the device's peak is known, its share. On a GPU, RoPE
is also timed with cuDNN's attention switched off, and the two are compared number by number. Writes
docs/performance/accelerator.jsonl.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags
from records import write

import models
from configs import base
from models import attention
from training.config import RunConfig
from training.step import init_state, make_train_step

LENGTH = flags.DEFINE_integer("length", 2048, "tokens of a window")
WINDOWS = flags.DEFINE_integer("windows", 16, "windows of a step")
WIDTH = flags.DEFINE_integer("width", 1024, "d_model")
LAYERS = flags.DEFINE_integer("layers", 12, "num_layers")
SCHEMES = flags.DEFINE_string("schemes", "nope,rope,alibi,t5", "separated by commas")

STEPS = 20
VOCABULARY = 257


def trained(position: str):
    """(train step, state, batch) of a model of the flags' shape, in bfloat16."""
    given = base.get_config(position)
    D = WIDTH.value
    given.model.update(d_model=D, num_heads=D // 64, d_ff=round(D * 8 / 3 / 64) * 64)
    given.model.update(num_layers=LAYERS.value, dtype="bfloat16")
    given.train.length, given.train.batch_size = LENGTH.value, WINDOWS.value
    config = RunConfig.from_config(given)
    graph, params = models.split(models.build(config.model_config(VOCABULARY), 0))
    random = np.random.default_rng(0)
    shape = (WINDOWS.value, LENGTH.value + 1)
    batch = {
        "tokens": jnp.asarray(random.integers(0, VOCABULARY, shape, dtype=np.int32)),
        "weights": jnp.ones((WINDOWS.value, LENGTH.value)),
    }
    return make_train_step(graph, config), init_state(params, config), batch


def measured(position: str) -> dict:
    step, state, batch = trained(position)
    losses = []
    for _ in range(3):
        state, metrics = step(state, batch)
        losses.append(float(metrics["loss"]))
    began = time.perf_counter()
    for _ in range(STEPS):
        state, metrics = step(state, batch)
    jax.block_until_ready(state)
    took = (time.perf_counter() - began) / STEPS
    tokens = WINDOWS.value * LENGTH.value
    record = {"scheme": position, "step_ms": round(1e3 * took, 2)}
    return record | {"tokens_per_second": round(tokens / took), "third_loss": round(losses[2], 5)}


def main(_) -> None:
    device = jax.devices()[0]
    records = [measured(name) for name in SCHEMES.value.split(",")]
    if device.platform == "gpu":
        fusible, attention.fusible = attention.fusible, lambda *args: False
        records.append(measured("rope") | {"scheme": "rope, without the fused kernel"})
        attention.fusible = fusible
        fused, plain = (r["third_loss"] for r in records if r["scheme"].startswith("rope"))
        if abs(fused - plain) > 0.02:
            raise SystemExit(f"the fused kernel's third loss is {fused}, and ours {plain}")
    shape = {"length": LENGTH.value, "windows": WINDOWS.value, "d_model": WIDTH.value}
    about = {"device": device.device_kind, "num_layers": LAYERS.value, **shape}
    write("accelerator", [record | about for record in records])


if __name__ == "__main__":
    app.run(main)
