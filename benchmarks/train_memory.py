"""What XLA plans for a training step to hold besides its state, with and without each setting that saves memory.

    .venv/bin/python benchmarks/train_memory.py

Nothing is run: the figures are the temporaries of the compiled program, by `memory_analysis()`, of
one device. Writes docs/performance/train_memory.jsonl; docs/build.py makes the table of
docs/performance.md from it.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import jax
import jax.numpy as jnp
from absl import app
from flax import nnx
from records import write

import models
from configs import base
from training import mesh
from training.config import RunConfig
from training.step import init_state, make_train_step

SMALL = {"num_layers": 4, "d_model": 256, "num_heads": 8, "d_ff": 688}
# 123 M parameters.
LARGE = {"num_layers": 12, "d_model": 768, "num_heads": 12, "d_ff": 2048}
SCHEMES = ("rope", "alibi", "t5", "kerple", "fire")
# name -> what is changed, of a step of SMALL at 512 tokens
SETTINGS = {
    "none": {},
    "model.remat=True": {"remat": True},
    "train.accumulate=4": {"accumulate": 4},
    "mesh.fsdp=8": {"fsdp": 8},
}


def planned(
    position: str,
    model: dict,
    vocabulary: int,
    length: int,
    batch_size: int,
    remat: bool = False,
    accumulate: int = 1,
    fsdp: int = 1,
) -> dict[str, float]:
    """MiB of a device: the program's temporaries, and its arguments, which are the state and the batch."""
    given = base.get_config(position)
    given.model.update({**model, "remat": remat})
    given.train.update(length=length, batch_size=batch_size, accumulate=accumulate)
    given.mesh.data, given.mesh.fsdp = 1, fsdp
    config = RunConfig.from_config(given)
    devices = mesh.make_mesh(config.mesh, config.train)

    def build():
        return models.build(config.model_config(vocabulary), 0)

    graph = nnx.split(nnx.eval_shape(build))[0]
    state = jax.eval_shape(lambda: init_state(models.split(build())[1], config))
    batch = {
        "tokens": jax.ShapeDtypeStruct((batch_size, length + 1), jnp.int32),
        "weights": jax.ShapeDtypeStruct((batch_size, length), jnp.float32),
    }

    def placed(array, sharding):
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)

    state = jax.tree.map(placed, state, mesh.state_sharding(devices, state))
    batch = {name: placed(a, mesh.batch_sharding(devices)) for name, a in batch.items()}
    step = mesh.fully_sharded(devices, make_train_step(graph, config))
    plan = step.lower(state, batch).compile().memory_analysis()
    return {
        "temporaries": plan.temp_size_in_bytes / 2**20,
        "arguments": plan.argument_size_in_bytes / 2**20,
    }


def by_setting() -> dict[str, dict[str, float]]:
    """What each setting leaves of a step of 16 windows of 512 tokens."""
    return {
        name: planned("rope", SMALL, 8192, 512, 16, **changed) for name, changed in SETTINGS.items()
    }


def large(position: str, length: int) -> dict[str, float]:
    """A step of 16,384 tokens of the large model, recomputed layer by layer."""
    return planned(position, LARGE, 49_152, length, 16_384 // length, remat=True)


def main(_) -> None:
    rows = [
        {"model": "small", "position": "rope", "length": 512, "setting": name, **found}
        for name, found in by_setting().items()
    ]
    for length in (2048, 8192):
        for position in SCHEMES:
            found = large(position, length)
            about = {"model": "123 M", "position": position, "length": length}
            rows.append({**about, "setting": "model.remat=True", **found})
    write("train_memory", [{**r, "temporaries": round(r["temporaries"], 1)} for r in rows])


if __name__ == "__main__":
    app.run(main)
