"""What stands around the train step: signals, the metrics of each step one step late, the progress line."""

import contextlib
import errno
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax
from tqdm import tqdm

import data
from training import checkpoint, flops, hosts, lock
from training.metrics import MetricsLog
from training.setup import Job


class NonFinite(RuntimeError):
    """A loss or an update is not a finite number; nothing of that step may be saved."""


class Unwritten(RuntimeError):
    """The workdir cannot be written to; one line for a person."""


@contextlib.contextmanager
def writing(workdir: Path) -> Iterator[None]:
    """Around what writes to the workdir: Unwritten for whatever the file system, orbax or tensorstore says."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        text = " ".join(str(error).split())
        known = (os.strerror(n) for n in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS))
        reason = next((words for words in known if words in text), text[:200])
        disk = next(p for p in (workdir, *workdir.parents) if p.is_mount() or p == p.parent)
        free = shutil.disk_usage(disk).free
        steps = [int(folder.name) for folder in checkpoint.step_folders(workdir)]
        newest = f"the newest checkpoint is of step {max(steps)}" if steps else "no checkpoint yet"
        raise Unwritten(
            f"{workdir} cannot be written: {reason} (disk {disk}, {free // 1024:,} KiB free); "
            f"{newest}; make room and start again to continue"
        ) from error


# Schedulers signal a job's processes one by one and as a group, so that one request comes twice.
REPEAT_SECONDS = 5


class Interrupts:
    """While active, the first SIGINT or SIGTERM is noted instead of ending the process.

    Later ones mean the first again for REPEAT_SECONDS; after that, one ends the process.
    """

    def __init__(self):
        self.received: str | None = None

    def __enter__(self) -> "Interrupts":
        self.old = {s: signal.signal(s, self.note) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def note(self, number: int, frame) -> None:
        if self.received is None:
            self.received, self.since = signal.Signals(number).name, time.monotonic()
            line = f"{self.received}: saving a checkpoint; send the signal again to abandon it\n"
            with contextlib.suppress(OSError):  # not print, which this may have interrupted
                os.write(2, line.encode())
        elif time.monotonic() - self.since >= REPEAT_SECONDS:
            self.__exit__()
            signal.raise_signal(number)

    def __exit__(self, *error) -> None:
        for s, handler in self.old.items():
            signal.signal(s, handler)


class Recorder:
    """Writes metrics. Those of a step are read when the next one is already running, so the device never waits."""

    def __init__(self, job: Job, last: int):
        self.job = job
        self.config = job.config.train
        self.last = last
        self.pending: tuple[int, dict] | None = None
        self.elapsed, self.steps = 0.0, 0
        self.mark: float | None = None  # when the step in progress had the device for itself
        self.chief = hosts.is_chief()
        self.flops = flops.per_token(job.model_config, job.state["params"])
        self.peak = flops.peak(job.mesh, job.model_config.dtype)
        with writing(job.workdir):
            self.log = MetricsLog(job.workdir, job.step) if self.chief else None
        quiet = not (self.chief and sys.stderr.isatty())
        self.bar = tqdm(
            total=last, initial=job.step, disable=quiet, unit="step", dynamic_ncols=True
        )

    def stepped(self, step: int, metrics: dict) -> None:
        """Note the metrics of a step just started, and settle those of the one before."""
        self.settle()
        self.pending = (step, metrics)

    def settle(self) -> None:
        """Wait for the noted step. Raises NonFinite; logs it when due."""
        if self.pending is None:
            return
        (step, metrics), self.pending = self.pending, None
        values = {name: float(value) for name, value in jax.device_get(metrics).items()}
        now = time.perf_counter()
        if self.mark is not None:  # not the first step of all, which compiles
            self.elapsed, self.steps = self.elapsed + now - self.mark, self.steps + 1
        self.mark = now
        if not values.pop("finite"):
            raise NonFinite(
                f"non-finite loss or update at step {step} (loss {values['loss']}, grad_norm {values['grad_norm']}); "
                "a lower train.learning_rate or a longer train.warmup_steps may help"
            )
        self.bar.update()
        if step % self.config.log_every == 0 or step == self.last:
            self.write(step, values)

    def write(self, step: int, values: dict) -> None:
        batch_tokens = self.config.batch_size * self.config.length
        speed = batch_tokens * self.steps / self.elapsed if self.elapsed else None
        self.elapsed, self.steps = 0.0, 0
        if self.log:
            whole_batch = self.job.batches.batch(step - 1)["tokens"]
            achieved = speed * self.flops if speed else None
            values = {
                **values,
                "tokens_seen": step * batch_tokens,
                "tokens_per_second": speed,
                "flops_per_second": achieved,
                "utilization": achieved / self.peak if achieved and self.peak else None,
                "batch_hash": data.batch_hash(whole_batch),
            }
            with writing(self.job.workdir):
                self.log.write(step, values)
                self.job.checkpoints.check()
        rate = f"{speed:,.0f}" if speed else "-"
        if self.bar.disable:
            left = (self.last - step) * batch_tokens / speed if speed else math.nan
            eta = f", {left:.0f} s left" if speed else ""
            self.say(f"step {step}/{self.last}  loss {values['loss']:.4f}  {rate} tokens/s{eta}")
        else:
            self.bar.set_postfix(loss=f"{values['loss']:.4f}", tokens_per_s=rate)

    def validated(self, step: int, loss: float) -> float:
        """Write a validation loss down; it is returned. Raises NonFinite."""
        if not math.isfinite(loss):
            raise NonFinite(f"non-finite validation loss at step {step}")
        if self.log:
            with writing(self.job.workdir):
                self.log.write(step, {"valid_loss": loss})
        self.say(f"step {step}/{self.last}  valid_loss {loss:.4f}")
        self.resumed()
        return loss

    def checkpoint(self, step: int, state, valid_loss: float) -> None:
        """Save in the background, the metrics up to here on disk first."""
        with writing(self.job.workdir):
            if self.log:
                self.log.flush()
            self.job.checkpoints.save(state, step, valid_loss)
        self.resumed()

    def resumed(self) -> None:
        """A pause is over: the next step's time counts from here."""
        self.mark = time.perf_counter()

    def say(self, line: str) -> None:
        """A line of its own, above the progress bar where there is one."""
        if self.chief:
            self.bar.write(line) if not self.bar.disable else print(line, flush=True)

    def close(self) -> None:
        """Await the checkpoints, close the files and let go of the workdir, each whatever became of the others."""
        with writing(self.job.workdir), contextlib.ExitStack() as stack:
            stack.callback(lock.release, self.job.workdir)
            if self.log:
                stack.callback(self.log.close)
            stack.callback(self.job.checkpoints.close)
            stack.callback(self.bar.close)
