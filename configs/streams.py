"""Standard streams that may be closed, full or left by their reader: a command's work goes on without them."""

import errno
import os
import sys


class Stream:
    """A text stream whose failed writes are noted instead of raised; each later write tries again."""

    def __init__(self, stream):
        self.stream = stream
        self.failure: OSError | None = None  # the first

    def __getattr__(self, name: str):
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        try:
            self.stream.write(text)
        except OSError as error:
            self.failure = self.failure or error
        return len(text)

    def writelines(self, lines) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except OSError as error:
            self.failure = self.failure or error


def protect() -> None:
    """Make sys.stdin, stdout and stderr usable whatever the command was started with.

    Closed descriptors are opened on /dev/null: else the next file opened would take their number,
    and whatever prints to it from C would write into that file.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
            os.set_inheritable(opened, True)  # by study.py's commands
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed before Python began
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, Stream):
            continue
        if hasattr(stream, "reconfigure"):  # a file name may hold any byte
            stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, Stream(stream))


def failure() -> OSError | None:
    """What kept the first line from stdout; None where every line was printed."""
    sys.stdout.flush()
    return getattr(sys.stdout, "failure", None)


def printed() -> int:
    """The exit status of a command whose result is what it prints: 141 where the reader has left, as in `| head`."""
    error = failure()
    if error is None:
        return 0
    return 141 if error.errno == errno.EPIPE else 1
