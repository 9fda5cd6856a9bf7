"""targets.npz: the loss of each fixed target, for paired comparisons.

Reading one runs nothing (no pickles), and takes no more memory than the file has bytes, whatever its headers say.
"""

import os
import zipfile
from pathlib import Path

import numpy as np

KINDS = {"nll": np.dtype("<f8"), "clusters": np.dtype("<i8")}


def read_targets(path: str | os.PathLike) -> dict:
    """The details that `write_records` was given: (run, scheme) -> {(protocol, length): arrays},
    where the protocol is "fixed" or "cropped".

    `path` is a targets.npz, or the folder that may hold one; without one there are no details.
    ValueError names a file that is broken, or none of ours.
    """
    path = Path(path)
    path = path / "targets.npz" if path.is_dir() else path
    if not path.exists():
        return {}
    try:
        with path.open("rb") as stream:
            return details_of(read_arrays(stream))
    except OSError:
        raise
    except Exception as error:  # zipfile and NumPy raise a dozen kinds on a damaged file
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(
            f"{path} is broken ({reason}): remove it, or evaluate without --append"
        ) from None


def read_arrays(stream) -> dict[str, np.ndarray]:
    """The one-dimensional arrays of an uncompressed npz file, by name; an error if it is anything else."""
    arrays = {}
    size = os.fstat(stream.fileno()).st_size
    with zipfile.ZipFile(stream) as archive:
        members = archive.infolist()
        if any(m.compress_type != zipfile.ZIP_STORED or m.flag_bits & 1 for m in members):
            raise ValueError("it is compressed or encrypted")
        if sum(m.file_size for m in members) > size:
            raise ValueError(f"it promises more than its {size} bytes hold")
        for member in members:
            name = member.filename.removesuffix(".npy")
            kind = KINDS["clusters" if name.rpartition("|")[2] == "clusters" else "nll"]
            with archive.open(member) as file:
                arrays[name] = read_array(file, member.file_size, name, kind)
    return arrays


def read_array(file, size: int, name: str, kind: np.dtype) -> np.ndarray:
    """One array [n] from the `size` bytes of a npy file."""
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"{name} is of a format that is not ours")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    begin = file.tell()
    if dtype != kind or len(shape) != 1 or begin + shape[0] * kind.itemsize != size:
        raise ValueError(f"{name} is said to be {dtype} {shape}, in {size - begin} bytes")
    return np.frombuffer(file.read(), kind)  # to the end, where its checksum is compared


def details_of(arrays: dict[str, np.ndarray]) -> dict:
    details: dict[tuple[str, str], dict] = {}
    for name, nll in arrays.items():
        if name.rpartition("|")[2] != "clusters":
            run, scheme, length = name.rsplit("|", 2)
            ids = arrays["clusters" if "clusters" in arrays else f"{run}|{scheme}|clusters"]
            if len(ids) != len(nll):
                raise ValueError(f"{name} has {len(nll)} losses, and {len(ids)} cluster ids")
            *cropped, length = length.split()
            point = "cropped" if cropped else "fixed", int(length)
            details.setdefault((run, scheme), {})[point] = {"nll": nll, "clusters": ids}
    return details


def arrays_of(details: dict) -> dict[str, np.ndarray]:
    """The arrays of targets.npz by name."""
    arrays, clusters = {}, {}
    for (run, scheme), points in details.items():
        for (protocol, length), point in points.items():
            if protocol in ("fixed", "cropped"):
                at = length if protocol == "fixed" else f"cropped {length}"
                arrays[f"{run}|{scheme}|{at}"] = np.asarray(point["nll"], KINDS["nll"])
                ids = np.asarray(point["clusters"], KINDS["clusters"])
                clusters[f"{run}|{scheme}|clusters"] = ids
    ids = list(clusters.values())
    if all(np.array_equal(ids[0], other) for other in ids[1:]):
        clusters = {"clusters": ids[0]} if ids else {}
    return arrays | clusters
