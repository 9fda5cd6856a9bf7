"""One training a workdir: a lock that the operating system lets go of when its process ends, however it ends."""

import contextlib
import errno
import fcntl
import os
import socket
import time
import warnings
from pathlib import Path

# By the lock file's device and inode, so that a folder made anew under
# the same name is locked anew, and a process may prepare a run twice.
HELD: dict[tuple[int, int], int] = {}

READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
LOCKED = (errno.EWOULDBLOCK, errno.EACCES)


def take(workdir: Path) -> None:
    """Take WORKDIR/lock until `release`, or as long as this process lives.

    ValueError names the process that holds it. A folder that this process cannot write to needs no
    lock; a file system that has none is warned of.
    """
    try:
        file = os.open(workdir / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        if error.errno in READ_ONLY:
            return
        raise
    about = os.fstat(file)
    key = (about.st_dev, about.st_ino)
    if key in HELD:
        os.close(file)
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(file, 200).decode(errors="replace").split("\n")[0]
        os.close(file)
        if error.errno in LOCKED:
            raise ValueError(
                f"{workdir} is in use by another training ({holder or 'not yet named'}); "
                "wait for it, or name another workdir"
            ) from None
        warnings.warn(
            f"{workdir} is on a file system without locks ({error.strerror}): make sure that no "
            "other training runs there",
            stacklevel=2,
        )
        return
    HELD[key] = file
    began = time.strftime("%Y-%m-%d %H:%M:%S %z")
    with contextlib.suppress(OSError):  # a full disk; the lock is held all the same
        os.ftruncate(file, 0)
        os.write(file, f"process {os.getpid()} on {socket.gethostname()}, since {began}\n".encode())


def release(workdir: Path) -> None:
    """Let other processes train here. The file stays: one made anew could be locked by two."""
    with contextlib.suppress(OSError):
        about = os.stat(workdir / "lock")
        held = HELD.pop((about.st_dev, about.st_ino), None)
        if held is not None:
            os.close(held)
