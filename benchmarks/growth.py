"""How time and memory grow: with the length evaluated, the size of the model, and the number of devices.

    .venv/bin/python benchmarks/growth.py

Each row has a measure at one size; the exponent is the slope of log(measure) against log(size) over
the three largest sizes of its series, where attention is worked through in blocks. Memory is what
XLA plans for the compiled program, temporaries and outputs besides its arguments. Devices are
virtual ones of this machine, which share its cores: only memory is measured there. Writes
docs/performance/growth.jsonl; docs/build.py makes the table of docs/performance.md from it.
"""

import os
import statistics
import sys
import time
from pathlib import Path

os.environ["JAX_NUM_CPU_DEVICES"] = "8"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import jax
import jax.numpy as jnp
import numpy as np
from absl import app
from records import write

import models
from configs import base
from evaluation.model import token_nll
from training import mesh
from training.config import RunConfig
from training.step import init_state, make_train_step

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
WIDTHS = (64, 128, 256, 512)
DEVICES = (1, 2, 4, 8)
REPEATS = 3
LARGEST = 3  # sizes that the exponent is fitted to
VOCABULARY = 257


def seconds(function, *args) -> float:
    """The median of several calls, each waited for, after one that compiles."""
    jax.block_until_ready(function(*args))
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(function(*args))
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def mebibytes(compiled) -> float:
    plan = compiled.memory_analysis()
    return (plan.temp_size_in_bytes + plan.output_size_in_bytes) / 2**20


def series(name: str, unit: str, points: dict[float, float]) -> list[dict]:
    sizes, values = (np.log(np.array(list(side), float)) for side in (points, points.values()))
    exponent = round(float(np.polyfit(sizes[-LARGEST:], values[-LARGEST:], 1)[0]), 2)
    facts = {"measure": name, "unit": unit}
    return [
        {**facts, "size": size, "value": round(value, 4), "exponent": exponent}
        for size, value in points.items()
    ]


def configured(position: str, **model) -> RunConfig:
    config = base.get_config(position)
    config.model.update(model)
    return RunConfig.from_config(config)


def by_length(position: str) -> list[dict]:
    """One window of each length through the evaluation's forward pass."""
    config = configured(position)
    model = models.build(config.model_config(VOCABULARY), 0)
    took, memory = {}, {}
    for length in LENGTHS:
        graph, params = models.split(model.at_length(length))
        tokens = jnp.zeros((1, length + 1), jnp.int32)
        run = jax.jit(
            lambda params, tokens, graph=graph: token_nll(models.merge(graph, params), tokens)
        )
        run = run.lower(params, tokens).compile()
        took[length], memory[length] = seconds(run, params, tokens), mebibytes(run)
    label = f"evaluation of one window, {position}"
    return series(f"{label}: time by length", "s", took) + series(
        f"{label}: memory by length", "MiB", memory
    )


def by_parameters() -> list[dict]:
    """A training step of 512 tokens for models of several widths."""
    took = {}
    for D in WIDTHS:
        config = configured("rope", d_model=D, d_ff=round(D * 8 / 3))
        graph, params = models.split(models.build(config.model_config(VOCABULARY), 0))
        step, state = make_train_step(graph, config), init_state(params, config)
        batch = {"tokens": jnp.zeros((8, 65), jnp.int32), "weights": jnp.ones((8, 64))}
        count = sum(p.size for p in params.values())
        took[count] = seconds(one_by_one(step, state, batch))
    return series("training step of 512 tokens, rope: time by parameters", "s", took)


def one_by_one(step, state, batch):
    """A call that takes the next step; the step consumes the state that it is given."""

    def once():
        nonlocal state
        state, metrics = step(state, batch)
        return metrics

    return once


def by_devices() -> list[dict]:
    """What each device holds of parameters and optimiser state when they are fully split."""
    held = {}
    for count in DEVICES:
        given = base.get_config("rope")
        given.mesh.fsdp, given.mesh.data = count, 1
        config = RunConfig.from_config(given)
        devices = mesh.make_mesh(config.mesh, config.train)
        _, params = models.split(models.build(config.model_config(VOCABULARY), 0))
        state = init_state(params, config)
        state = jax.device_put(state, mesh.state_sharding(devices, state))
        shards = (leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(state))
        held[count] = sum(shards) / 2**20
    return series(
        "parameters and optimiser state, rope: memory of a device by devices", "MiB", held
    )


def main(_) -> None:
    write("growth", [*by_length("rope"), *by_length("t5"), *by_parameters(), *by_devices()])


if __name__ == "__main__":
    app.run(main)
