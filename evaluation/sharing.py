"""Evaluations that share one OUT: they write in turns, and each can tell whether another is at work.

By locks on files, which the system lets go when a process ends, however it ends. Where there are none
(Windows, some network file systems) nothing is waited for or refused: one evaluation at a time, there.
"""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:
    fcntl = None

LEFT_OVER = re.compile(r"\.[a-z]+\.[0-9]+\.[a-z]+")  # the temporary files of `records.replacing`


@contextmanager
def writing_alone(out: Path) -> Iterator[None]:
    """What is inside happens while no other evaluation reads or writes the files of `out`."""
    path = out / ".lock"
    with ExitStack() as stack:
        while True:
            file = stack.enter_context(path.open("ab"))
            if take(file, wait=True) is None or is_at(file, path):
                break  # else it was removed by the one that held it
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def at_work(out: Path, alone: bool) -> Iterator[None]:
    """Tells others that this process evaluates into `out`. ValueError if `alone` and another does."""
    host, pid = socket.gethostname(), os.getpid()
    mine = out / f".evaluating.{host}.{pid}"
    with ExitStack() as stack:
        with writing_alone(out):
            for other in sorted(out.glob(".evaluating.*")):
                if is_held(other):
                    if alone:
                        where, _, number = other.name.removeprefix(".evaluating.").rpartition(".")
                        raise ValueError(
                            f"{out}: process {number} on {where} is evaluating into this folder; "
                            "wait for it, add to it with --append, or give another --out"
                        )
                else:
                    other.unlink(missing_ok=True)  # of one that was killed
            for left in out.iterdir():
                if LEFT_OVER.fullmatch(left.name):
                    left.unlink(missing_ok=True)
            take(stack.enter_context(mine.open("ab")), wait=False)
        try:
            yield
        finally:
            mine.unlink(missing_ok=True)


def take(file: BinaryIO, wait: bool) -> bool | None:
    """Lock a file until it is closed: whether it is now ours, None where files cannot be locked."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def is_held(path: Path) -> bool:
    with path.open("ab") as file:
        return take(file, wait=False) is False


def is_at(file: BinaryIO, path: Path) -> bool:
    """Whether an open file is still the one at this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
