"""The arrays of one checkpoint, read once their files and sizes are found right.

Nothing in a checkpoint is executed: it is JSON, and arrays that tensorstore reads. No array takes
memory before its size is known to be the model's.
"""

import math
import sys
from pathlib import Path

import jax
import orbax.checkpoint as ocp

import models
from training import checksums
from training.step import State


def read_state(folder: Path, like: State, sharding) -> State:
    """The training state in a checkpoint whose sums were compared, laid out by `sharding`.

    ValueError names what does not have the sizes of `like`; whatever else orbax meets in a damaged
    checkpoint is raised as it is.
    """
    target = jax.tree.map(
        lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), like, sharding
    )
    quiet_late_reads()
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
        misfits = differing(stored(checkpointer, folder), target)
        if misfits:
            raise ValueError(misfits)
        state = checkpointer.restore(folder / "default", args=ocp.args.StandardRestore(target))
    if int(state["step"]) != int(folder.name):
        raise ValueError(f"it holds step {int(state['step'])}")
    return state


def read_params(folder: Path, shapes: models.Params) -> models.Params:
    """The parameters of one checkpoint, without its optimiser state, on this process's first device.

    ValueError says what is damaged, or names the parameters that are missing, that nothing reads,
    or whose shapes differ.
    """
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    target = {
        name: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding)
        for name, s in shapes.items()
    }
    restore = ocp.args.PyTreeRestore(
        item={"params": target},
        restore_args=ocp.checkpoint_utils.construct_restore_args({"params": target}),
        partial_restore=True,
    )
    quiet_late_reads()
    try:
        checksums.verify(folder)
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
            misfits = differing(stored(checkpointer, folder)["params"], target)
            if not misfits:
                return checkpointer.restore(folder / "default", args=restore)["params"]
    except Exception as error:  # whatever orbax meets in a broken directory
        raise ValueError(f"checkpoint {folder} cannot be read ({brief(error)})") from error
    raise ValueError(f"checkpoint {folder} is not of the model in config.json: {misfits}")


def stored(checkpointer: ocp.Checkpointer, folder: Path):
    """The tree of a checkpoint, with the size of each array and of the parts it is read in. Reads no array."""
    found = checkpointer.metadata(folder / "default").item_metadata
    if found is None:
        raise ValueError("its arrays are not listed, or not where they are listed")
    tree = found.tree
    for name, array in by_name(tree).items():
        part = array.storage.chunk_shape if array.storage else None
        if part and math.prod(part) > math.prod(array.shape):
            raise ValueError(f"{name} {array.shape} is stored in parts of {tuple(part)}")
    return tree


def by_name(tree) -> dict:
    """The leaves of a tree of arrays by where they stand, as in "opt_state.1.0.count"."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def differing(there, here) -> str:
    """The arrays of two trees that do not fit, by name, both shapes given; "" if all do."""
    found, wanted = (
        {name: tuple(array.shape) for name, array in by_name(tree).items()}
        for tree in (there, here)
    )
    misfits = [
        f"{name} {found.get(name, 'absent')} there, {wanted.get(name, 'absent')} here"
        for name in sorted(wanted.keys() | found.keys())
        if wanted.get(name) != found.get(name)
    ]
    more = f" and {len(misfits) - 4} more" if len(misfits) > 4 else ""
    return "; ".join(misfits[:4]) + more


def brief(error: Exception) -> str:
    """An error of orbax in one line; they may be long, and empty."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def quiet_late_reads() -> None:
    """No traceback for each read still under way when another of them fails.

    orbax ends its event loop at the first failure, and tensorstore then reports the others to a
    loop that is closed, on threads of its own. The failure itself is raised.
    """
    earlier = sys.unraisablehook
    if getattr(earlier, "__name__", "") == "unless_late":
        return

    def unless_late(raised):
        error = raised.exc_value
        if not (isinstance(error, RuntimeError) and str(error) == "Event loop is closed"):
            earlier(raised)

    sys.unraisablehook = unless_late
