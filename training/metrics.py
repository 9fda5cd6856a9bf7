"""What a run writes down as it goes: metrics.jsonl and TensorBoard, each step once, also after a resume."""

import contextlib
import json
import os
import socket
import time
import warnings
from pathlib import Path

from tensorboardX.record_writer import RecordWriter
from tensorboardX.summary import scalar
from tensorboardX.writer import Event, SessionLog

from training import durable

BOARD_SECONDS = 60  # what TensorBoard shows of a run is at most this old


class MetricsLog:
    """Scalars by step, in WORKDIR/metrics.jsonl and WORKDIR/tensorboard.

    Opened at the step a run resumes from: later lines are taken back first, in one atomic
    replacement. OSError where the disk is full. Nothing is written in the background, where that
    could not be told.
    """

    def __init__(self, workdir: Path, step: int):
        self.path = workdir / "metrics.jsonl"
        keep_until(self.path, step)
        self.file = self.path.open("a")
        folder = workdir / "tensorboard"
        folder.mkdir(exist_ok=True)
        # Nanoseconds, for starts within one second.
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}"
        self.board = RecordWriter(str(folder / name))
        self.add(0, file_version="brain.Event:2")
        # TensorBoard forgets what it has read of this step and later ones.
        self.add(step + 1, session_log=SessionLog(status=SessionLog.START))
        self.shown = time.monotonic()

    def add(self, step: int, **content) -> None:
        event = Event(wall_time=time.time(), step=step, **content)
        self.board.write(event.SerializeToString())

    def write(self, step: int, values: dict) -> None:
        """One line; numbers also go to TensorBoard."""
        self.file.write(json.dumps({"step": step, **values}, allow_nan=False) + "\n")
        self.file.flush()
        for name, value in values.items():
            if isinstance(value, int | float):
                self.add(step, summary=scalar(name, value))
        if time.monotonic() - self.shown > BOARD_SECONDS:
            self.board.flush()
            self.shown = time.monotonic()

    def flush(self) -> None:
        """Called before a checkpoint commits, so that no checkpoint is ahead of its metrics."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.board.flush()

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self.board.close)
            stack.callback(self.file.close)
            stack.callback(self.flush)


def keep_until(path: Path, step: int) -> None:
    """Drop the lines of later steps, a last line that an interruption cut short, and damaged ones, of
    which a warning tells."""
    if not path.exists():
        return
    *lines, last = path.read_bytes().split(b"\n")
    steps = [step_of(line) for line in lines]
    damaged = steps.count(None)
    if damaged:
        were = "line was" if damaged == 1 else "lines were"
        warnings.warn(f"{path}: {damaged} damaged {were} dropped", stacklevel=2)
    lines, steps = [*lines, last], [*steps, step_of(last)]
    kept = [n for n, at in zip(lines, steps, strict=True) if at is not None and at <= step]
    if kept + [b""] != lines:
        durable.replace(path, b"".join(line + b"\n" for line in kept))


def last_step(path: Path) -> int:
    """The last step that a metrics.jsonl tells of; 0 where there is none."""
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    return max((step_of(line) or 0 for line in lines), default=0)


def step_of(line: bytes) -> int | None:
    """The step that a line of metrics.jsonl is of; None where it is no such line."""
    try:
        step = json.loads(line)["step"]
    except (
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        RecursionError,
    ):  # UTF-8 and JSON: ValueError
        return None
    return step if type(step) is int else None
