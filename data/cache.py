"""The cache folder: a thing is made by one process at a time, and nothing half-made stays behind.

What is being made has a name of its own, `.tmp-NAME-…`, and its maker holds the lock `.tmp-NAME.lock`,
which the system lets go when a process dies. Where a file system has no locks, several processes may
make the same thing at once; the first to rename it is the one that is used.
"""

import contextlib
import errno
import fcntl
import os
import re
import shutil
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no room, quota, file-size limit
_LEFT_OVER = re.compile(r"\.tmp-((?:tokens-)?[^-.]+)")


def note(line: str) -> None:
    """Say one line on stderr, if there is one."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def naming_cache(cache: Path) -> Iterator[None]:
    """Turn what goes wrong with the folder itself, and not with a text, into a ValueError that names its field."""
    try:
        yield
    except OSError as error:
        place = Path(error.filename) if isinstance(error.filename, str) else None
        ours = place and (place.is_relative_to(cache) or cache.is_relative_to(place))
        if not (ours or error.errno in (*FULL, errno.EROFS)):
            raise
        reason = (
            "it is no folder" if os.path.lexists(cache) and not cache.is_dir() else error.strerror
        )
        at = f' ("{place}")' if ours and place != cache else ""
        raise ValueError(f'data.cache_dir="{cache}" cannot be written: {reason}{at}') from error


@contextlib.contextmanager
def locked(cache: Path, name: str, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of NAME; gives whether it is held. A lock held by another process is waited for or, without
    `wait`, left."""
    path = cache / f".tmp-{name}.lock"
    file, held, told = None, False, False
    while not held:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not wait:
                    break
                if not told:
                    note(f"waiting for another process that prepares the same text ({path})")
                told = True
                fcntl.flock(file, fcntl.LOCK_EX)
            # The one that held it before has removed the file, and another may hold a new one.
            held = path.exists() and os.path.samestat(os.fstat(file), os.stat(path))
            if not held:
                os.close(file)
        except OSError:  # no locks here, or no right to write
            break
    try:
        yield held
    finally:
        if held:
            with contextlib.suppress(OSError):
                path.unlink()
        if file is not None:
            os.close(file)


@contextlib.contextmanager
def making(cache: Path, name: str) -> Iterator[Path]:
    """An empty folder to make NAME in; whatever is in it at the end is removed."""
    folder = cache / f".tmp-{name}-{uuid.uuid4().hex[:8]}"
    folder.mkdir(parents=True)  # unlike tempfile's, open to those whom the cache is open to
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_left_overs(cache: Path) -> None:
    """Remove what processes that died left half-made; what a living one is making stays."""
    with contextlib.suppress(OSError):
        there = os.listdir(cache)
        for name in {found[1] for each in there if (found := _LEFT_OVER.match(each))}:
            with locked(cache, name, wait=False) as held:
                for each in there if held else ():
                    if f"{each}-".startswith(f".tmp-{name}-"):
                        shutil.rmtree(cache / each, ignore_errors=True)
