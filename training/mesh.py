"""Devices: the batch is split over all of them, parameters over those of the `fsdp` axis."""

from collections.abc import Callable

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from training.config import MeshConfig, TrainConfig

Rows = dict[str, np.ndarray]


def make_mesh(c: MeshConfig, train: TrainConfig) -> Mesh:
    """The (data, fsdp) mesh; ValueError where it does not fit the devices or the batch."""
    devices = jax.devices()
    data = c.data or len(devices) // c.fsdp
    if data * c.fsdp > len(devices) or data == 0:
        raise ValueError(
            f"mesh.data={c.data} and mesh.fsdp={c.fsdp} need {max(data, 1) * c.fsdp} devices; "
            f"there are {len(devices)}"
        )
    if data * c.fsdp < len(devices) and jax.process_count() > 1:
        raise ValueError(
            f"mesh.data={c.data} and mesh.fsdp={c.fsdp} use {data * c.fsdp} devices; with several "
            f"processes they must use all {len(devices)}"
        )
    rows = train.batch_size // train.accumulate
    if rows % (data * c.fsdp):
        raise ValueError(
            f"train.batch_size={train.batch_size} / train.accumulate={train.accumulate} = {rows} rows "
            f"must be a multiple of the {data * c.fsdp} devices of the mesh; set mesh.data to a divisor"
        )
    return jax.make_mesh(
        (data, c.fsdp),
        ("data", "fsdp"),
        axis_types=(AxisType.Auto, AxisType.Auto),
        devices=devices[: data * c.fsdp],
    )


def state_sharding(mesh: Mesh, state):
    """Each array split over `fsdp` along its longest axis that divides evenly; small ones on every device."""
    size = mesh.shape["fsdp"]

    def of(array) -> NamedSharding:
        axes = [a for a in range(array.ndim) if array.shape[a] % size == 0]
        if size == 1 or not axes or array.size < 2**10:
            return NamedSharding(mesh, PartitionSpec())
        longest = max(axes, key=lambda a: array.shape[a])
        return NamedSharding(mesh, PartitionSpec(*[None] * longest, "fsdp"))

    return jax.tree.map(of, state)


def gathered(mesh: Mesh, params):
    """Each parameter whole on every device while it is used, inside a jitted function.

    Otherwise XLA splits activations the way the parameters are, and moves those between devices.
    """
    whole = NamedSharding(mesh, PartitionSpec())
    return jax.lax.with_sharding_constraint(params, jax.tree.map(lambda _: whole, params))


def fully_sharded(mesh: Mesh, train_step: Callable) -> Callable:
    """The train step (state, batch) -> (state, metrics) for a state split over `fsdp`.

    Parameters are put together for the step; their gradients meet the optimiser's state, and the
    new state is kept, in parts (Rajbhandari et al. 2020, stage 3). The state given is consumed.
    """
    if mesh.shape["fsdp"] == 1:
        return train_step

    def sharded_step(state, batch):
        whole = {**state, "params": gathered(mesh, state["params"])}
        new, metrics = train_step(whole, batch)
        return jax.lax.with_sharding_constraint(new, state_sharding(mesh, new)), metrics

    return jax.jit(sharded_step, donate_argnums=0)


def put_state(state, sharding):
    """A state that every process holds whole, laid out over the devices of all of them."""
    if jax.process_count() == 1:
        return jax.device_put(state, sharding)

    def put(array, where: NamedSharding) -> jax.Array:
        whole = np.asarray(array)
        return jax.make_array_from_callback(whole.shape, where, lambda index: whole[index])

    return jax.tree.map(put, state, sharding)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(("data", "fsdp")))


def batch_rows(mesh: Mesh, batch_size: int) -> list[tuple[int, int]]:
    """The ranges [start, stop) of the whole batch that the devices of this process hold, in order.

    One range, unless the mesh's order of devices deals a process several.
    """
    slices = batch_sharding(mesh).addressable_devices_indices_map((batch_size,)).values()
    ranges: list[tuple[int, int]] = []
    for start, stop, _ in sorted(index[0].indices(batch_size) for index in slices if index):
        if ranges and ranges[-1][1] == start:
            start = ranges.pop()[0]
        ranges.append((start, stop))
    return ranges


def read_rows(ranges: list[tuple[int, int]], read: Callable[[int, int], Rows]) -> Rows:
    """These rows of a batch, `read(start, stop)` being any of them."""
    parts = [read(*rows) for rows in ranges]
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def put_batch(mesh: Mesh, batch: Rows) -> dict[str, jax.Array]:
    """This process's rows as its part of the whole batch, split over all devices."""
    sharding = batch_sharding(mesh)
    return {
        name: jax.make_array_from_process_local_data(sharding, rows) for name, rows in batch.items()
    }
