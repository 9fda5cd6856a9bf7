"""Compiled scoring functions: one for each length and kind of scheme, whoever asks for it, and none
that the device has not the memory for.
"""

import dataclasses
import functools
import os
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from flax import nnx

import models
from evaluation.scoring import TooLarge
from posenc import Rotation, is_rotation

# What a container may use, where it is less than the machine has: cgroup v2 and v1.
CONTAINER_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)

# Programs in memory, a few MB each: those of all lengths and protocols of most evaluations. A sweep
# of more lengths compiles anew what an earlier scheme had compiled, rather than keep it all.
KEPT = 32


def general(model: models.Transformer) -> tuple[nnx.GraphDef, dict[str, np.ndarray]]:
    """The static part of a model, and what must be added to its parameters to be merged with it.

    Whatever only sets the frequencies or the temperature of rotary positions is no longer in the
    static part but among the numbers added, and nothing is that a forward pass does not read. So
    models of one architecture have equal static parts under rope, pi, yarn, … with any options but
    the rotated size and the pairing, whatever length they were trained at.
    """
    graph, params = nnx.split(model)
    model = nnx.merge(graph, params)
    parts, names, numbers = {}, {}, {}
    for name, scheme in model.posenc.items():
        names[name] = name
        if is_rotation(scheme):
            names[name] = f"rotation@{len(numbers) // 2}"
            scheme = Rotation(scheme)
            path = f"posenc.{names[name]}"
            numbers[f"{path}.steps"] = np.asarray(scheme.steps[...])
            numbers[f"{path}.factor"] = np.asarray(scheme.factor[...])
        parts[names[name]] = scheme
    model.posenc = nnx.Dict(parts)
    model.layer_posenc = tuple(tuple(names[n] for n in layer) for layer in model.layer_posenc)
    # Only their schemes read these two fields.
    config = dataclasses.replace(model.config, position="nope", train_length=1)
    for holder in (model, *(block.attention for block in model.blocks)):
        holder.config = config
    return nnx.split(model)[0], numbers


def program(length: int, function: Callable, graph: nnx.GraphDef, *args) -> Callable:
    """function(model, *rest) compiled as one of (params, *rest), for args of these shapes.

    Equal graphs and shapes share one compilation in the whole process. Raises TooLarge, naming
    `length`, where running it takes more memory than the device has.
    """
    run, needed = measured(function, graph, *args)
    held = device_bytes()
    if needed is not None and held is not None and needed > held:
        gib = 2**30
        raise TooLarge(
            f"length {length} needs {needed / gib:.1f} GiB; the device has {held / gib:.1f} GiB"
        )
    return run


def measured(function: Callable, graph: nnx.GraphDef, *args) -> tuple[Callable, int | None]:
    """The program, and the bytes that its arguments, results and work take; None if unknown."""
    leaves, tree = jax.tree.flatten(jax.tree.map(described, args))
    return compiled(function, graph, tuple(leaves), tree)


def described(a) -> jax.ShapeDtypeStruct:
    sharding = a.sharding if isinstance(a, jax.Array) and a.committed else None
    return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding)


@functools.lru_cache(KEPT)
def compiled(function: Callable, graph: nnx.GraphDef, leaves: tuple, tree):
    @functools.wraps(function)  # its name, in JAX's logs and profiles
    def run(params, *rest):
        return function(models.merge(graph, params), *rest)

    made = jax.jit(run).lower(*jax.tree.unflatten(tree, leaves)).compile()
    size = made.memory_analysis()
    if size is None:
        return made, None
    parts = (size.argument_size_in_bytes, size.output_size_in_bytes, size.temp_size_in_bytes)
    return made, sum(parts) - size.alias_size_in_bytes


def device_bytes() -> int | None:
    """Memory of the device that scores: an accelerator's, or the machine's or container's; None if unknown."""
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    if device.platform != "cpu":
        return None
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in map(Path, CONTAINER_LIMITS):
        text = path.read_text().strip() if path.exists() else "max"
        limits += [int(text)] if text.isdigit() else []
    return min(limits)
