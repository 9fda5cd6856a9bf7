"""Devices: the batch is split over all of them, parameters over those of the `fsdp` axis."""

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from training.config import MeshConfig, TrainConfig


def make_mesh(c: MeshConfig, train: TrainConfig) -> Mesh:
    """The (data, fsdp) mesh; ValueError where it does not fit the devices or the batch."""
    devices = jax.devices()
    data = c.data or len(devices) // c.fsdp
    if data * c.fsdp > len(devices) or data == 0:
        raise ValueError(
            f"mesh.data={c.data} and mesh.fsdp={c.fsdp} need {max(data, 1) * c.fsdp} devices; "
            f"there are {len(devices)}"
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


def batch_rows(batch_size: int) -> tuple[int, int]:
    """The rows [start, stop) of the global batch that this process reads."""
    share = batch_size // jax.process_count()
    return jax.process_index() * share, (jax.process_index() + 1) * share


def put_batch(mesh: Mesh, batch: dict[str, np.ndarray]) -> dict[str, jax.Array]:
    """This process's rows as its part of the global batch, split over all devices."""
    sharding = NamedSharding(mesh, PartitionSpec(("data", "fsdp")))
    return {
        name: jax.make_array_from_process_local_data(sharding, rows) for name, rows in batch.items()
    }
