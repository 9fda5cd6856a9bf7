"""Sums of a checkpoint's files: written into it before it is committed, compared before it is read.

Neither zarr nor zstd, as orbax writes them, notices a flipped bit in an array.
"""

import hashlib
import json
from pathlib import Path

from training.config import read_json

NAME = "checksums.json"
ITEMS = ("default", "metrics")  # orbax writes on beside them, when it commits


def write(folder: Path) -> None:
    """checksums.json of a checkpoint that is whole: the sha256 of each of its files, by name."""
    sums = {name: sha256(folder / name) for name in files(folder)}
    (folder / NAME).write_text(json.dumps(sums, indent=1) + "\n")


def verify(folder: Path, part: str = "") -> None:
    """ValueError names a file that is not as it was written, or is missing; of `part` alone where it is given.

    A checkpoint of an earlier version has no sums, and passes.
    """
    if not (folder / NAME).exists():
        return
    sums, there = read_json(folder / NAME), files(folder)
    for name, expected in sums.items():
        if name.startswith(part):
            if name not in there:
                raise ValueError(f"{name} is missing")
            if sha256(folder / name) != expected:
                raise ValueError(f"{name} is not as it was written: its checksum differs")


def fingerprint(folder: Path) -> str | None:
    """Stands for what is in a checkpoint, wherever it is moved to; None where it has no sums."""
    return sha256(folder / NAME) if (folder / NAME).exists() else None


def files(folder: Path) -> list[str]:
    """Their names within the checkpoint."""
    found = [path for item in ITEMS for path in (folder / item).rglob("*") if path.is_file()]
    return sorted(path.relative_to(folder).as_posix() for path in found)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
