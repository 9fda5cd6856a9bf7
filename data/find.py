"""Which files a path, folder or glob means: each found file as it is named, and none left out unsaid.

A path that exists means itself, also where its name holds `*`, `?` or `[`; so does every folder on
the way of a glob. Links are followed. A folder that is reached twice, through a link to itself or to
its neighbour, is read once, so nothing is endless or double. A folder that can't be listed and a
link to nothing are errors: text may be missing there.
"""

import contextlib
import fnmatch
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

SUFFIXES = (".txt", ".jsonl", ".ndjson", ".parquet")
PACKED = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".lz4", ".zip", ".7z", ".tar")
REFUSED = (*PACKED, ".json", ".arrow", ".npy", ".npz")


def find_files(
    pattern: str, field: str, suffixes: tuple[str, ...] = SUFFIXES
) -> list[tuple[str, Path]]:
    """(name, path) of each file that a path, folder or glob means, in the order of the names.

    Names are relative to the folder, or to the deepest folder that holds all files. ValueError names
    `field` and what is missing, can't be read or is no text by its ending.
    """
    root = Path(os.path.expanduser(pattern)).absolute()
    try:
        if _kind(root) == "folder":
            found = expand(root, ("**",))
            # What was packed would be left out without a word.
            paths = [
                path
                for path in found
                if path.suffix.lower() in suffixes
                or (path.suffix.lower() in PACKED and Path(path.stem).suffix.lower() in suffixes)
            ]
            if not paths:
                raise ValueError(f'the folder "{pattern}" holds no {", ".join(suffixes)} file')
        else:
            paths = list(expand(Path(root.anchor), root.parts[1:]))
            if not paths:
                raise ValueError(f'no file matches "{pattern}"')
            root = Path(os.path.commonpath([path.parent for path in paths]))
        for path in paths:
            if _kind(path) != "file":
                raise ValueError(f'"{path}" is no regular file')
            if path.suffix.lower() in REFUSED:
                raise ValueError(f'"{path}" is not text; give txt, jsonl or parquet files')
    except OSError as error:
        raise ValueError(f'{field}: "{error.filename}" cannot be read: {error.strerror}') from None
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None
    return sorted((path.relative_to(root).as_posix(), path) for path in paths)


def hash_files(files: list[tuple[str, Path]]) -> list[list[str]]:
    """[name, sha256 of the content] of each file."""
    hashes = []
    for name, path in files:
        with reading(path) as file:
            hashes.append([name, hashlib.file_digest(file, "sha256").hexdigest()])
    return hashes


@contextlib.contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    """The open file; ValueError names it where it can't be read."""
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise ValueError(f'"{path}" cannot be read: {error.strerror or error}') from error


def expand(
    folder: Path, parts: tuple[str, ...], hidden: bool = False, seen: set | None = None
) -> Iterator[Path]:
    """What is no folder below `folder` and fits the parts of a glob.

    `**` is any number of folders, and at the end all that is in them; `*` and `**` leave out names
    with a leading dot unless `hidden`.
    """
    seen = set() if seen is None else seen
    part, rest = parts[0], parts[1:]
    if part == "**" and not rest:
        rest = ("*",)
    literal = folder / part
    if part != "**" and (not _is_magic(part) or os.path.lexists(literal)):
        if rest and _kind(literal) == "folder":
            yield from expand(literal, rest, hidden, seen)
        elif not rest and _kind(literal) not in (None, "folder"):
            yield literal
        return
    here = os.stat(folder)
    if (here.st_dev, here.st_ino, parts) in seen:
        return
    seen.add((here.st_dev, here.st_ino, parts))
    if part == "**":
        yield from expand(folder, rest, hidden, seen)
    with os.scandir(folder) as entries:
        # Links last: what is there by itself keeps the name that it has without them.
        inside = sorted(entries, key=lambda entry: (entry.is_symlink(), entry.name))
    for entry in inside:
        if entry.name.startswith(".") and not (hidden or part.startswith(".")):
            continue
        if part != "**" and not fnmatch.fnmatchcase(entry.name, part):
            continue
        path = folder / entry.name
        if _kind(path) == "folder":
            if part == "**" or rest:
                yield from expand(path, parts if part == "**" else rest, hidden, seen)
        elif part != "**" and not rest:
            yield path


def _is_magic(part: str) -> bool:
    return any(letter in part for letter in "*?[")


def _kind(path: Path) -> str | None:
    """ "folder", "file", "other", or None where there is nothing of that name."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        if os.path.islink(path):
            raise
        return None
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"
