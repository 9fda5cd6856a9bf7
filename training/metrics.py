"""What a run writes down as it goes: metrics.jsonl and TensorBoard, each step once, also after a resume."""

import json
import os
from pathlib import Path

from tensorboardX import SummaryWriter


class MetricsLog:
    """Scalars by step, in WORKDIR/metrics.jsonl and WORKDIR/tensorboard.

    Opened at the step a run resumes from: later lines are taken back first, in one atomic
    replacement.
    """

    def __init__(self, workdir: Path, step: int):
        self.path = workdir / "metrics.jsonl"
        keep_until(self.path, step)
        self.file = self.path.open("a")
        self.board = SummaryWriter(str(workdir / "tensorboard"), purge_step=step + 1)

    def write(self, step: int, values: dict) -> None:
        """One line; numbers also go to TensorBoard."""
        self.file.write(json.dumps({"step": step, **values}, allow_nan=False) + "\n")
        for name, value in values.items():
            if isinstance(value, int | float):
                self.board.add_scalar(name, value, step)

    def flush(self) -> None:
        """Called before a checkpoint commits, so that no checkpoint is ahead of its metrics."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.board.flush()

    def close(self) -> None:
        self.flush()
        self.file.close()
        self.board.close()


def keep_until(path: Path, step: int) -> None:
    """Drop the lines of later steps, and a last line that an interruption cut short."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text().splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except (json.JSONDecodeError, KeyError, TypeError):
            continue
    part = path.with_suffix(".part")
    part.write_text("".join(kept))
    os.replace(part, path)
