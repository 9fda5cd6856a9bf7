"""Several hosts as one run: JAX's runtime joins their processes, and they agree on what each must do alike."""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

# What jax.distributed.initialize is told beside the coordinator's address, which it reads itself.
NUMBERS = {"num_processes": "JAX_NUM_PROCESSES", "process_id": "JAX_PROCESS_ID"}


def join() -> None:
    """Join the processes of all hosts; called before anything touches a device.

    JAX finds them by itself under Slurm, Open MPI and Kubernetes and on TPU pods; elsewhere
    JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID name them. ValueError where there
    is neither, or where they do not meet.
    """
    numbers = {}
    for argument, variable in NUMBERS.items():
        if variable in os.environ:
            if not re.fullmatch("[0-9]+", os.environ[variable]):
                raise ValueError(f"{variable}={os.environ[variable]!r} must be a whole number")
            numbers[argument] = int(os.environ[variable])
    # Its handler would swallow a SIGTERM that arrives while a run is set up; see StopVote.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(**numbers)
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            "mesh.distributed=True, but the processes of the run cannot be joined "
            f"({' '.join(str(error).split())}). Start it under Slurm, Open MPI, Kubernetes or on a TPU "
            "pod, or set JAX_COORDINATOR_ADDRESS=HOST:PORT, JAX_NUM_PROCESSES and JAX_PROCESS_ID; "
            "mesh.distributed=False trains on one host"
        ) from None


def is_chief() -> bool:
    """Whether this process is the one that writes and speaks for all of them."""
    return jax.process_index() == 0


def wait_for_all(where: str) -> None:
    """Until every process is here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(where)


def everywhere(holds: bool) -> bool:
    """Whether it holds in every process; each of them calls this, and waits for the others."""
    if jax.process_count() == 1:
        return holds
    return bool(multihost_utils.process_allgather(np.asarray(holds)).all())


@contextlib.contextmanager
def together() -> Iterator[None]:
    """For what one process may refuse alone: then all refuse, and none waits for one that has left.

    No process may wait for others inside. ValueError in those that had nothing against it.
    """
    try:
        yield
    except (ValueError, OSError):
        everywhere(False)
        raise
    if not everywhere(True):
        raise ValueError("another process of this run was refused, and says why")


def require_alike(values: dict[str, object]) -> None:
    """Refuse processes that were started differently. ValueError names what differs between them.

    The names must be the same everywhere.
    """
    if jax.process_count() == 1:
        return
    digests = [hashlib.sha256(repr(value).encode()).digest()[:4] for value in values.values()]
    mine = np.frombuffer(b"".join(digests), np.uint32)
    alike = (multihost_utils.process_allgather(mine) == mine[None]).all(axis=0)
    differing = [name for name, same in zip(values, alike, strict=True) if not same]
    if differing:  # then every process sees it, and ends
        raise ValueError(
            f"the {jax.process_count()} processes of this run differ in {', '.join(differing)}; "
            "start all of them alike, with the workdir on a file system that they share"
        )


class StopVote:
    """Whether any process was asked to stop, learnt by all of them at the same step.

    A process that stopped alone would leave the others waiting for it in their next step for ever.
    Every process votes once a step. The votes are put together on the devices, behind the step
    just started, and read when the next one is running: as with the metrics, nothing waits.
    """

    def __init__(self, mesh: Mesh):
        self.sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
        self.any = jax.jit(
            lambda votes: votes.any(), out_shardings=NamedSharding(mesh, PartitionSpec())
        )
        self.pending: jax.Array | None = None

    def cast(self, stop: bool) -> bool:
        """Vote on this step; the outcome of the vote before it. A single process is obeyed at once."""
        if jax.process_count() == 1:
            return stop
        votes = np.full(len(self.sharding.addressable_devices), stop)
        earlier = self.pending
        self.pending = self.any(jax.make_array_from_process_local_data(self.sharding, votes))
        return earlier is not None and bool(earlier)
