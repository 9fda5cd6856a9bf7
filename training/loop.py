"""What stands around the train step: signals, the metrics of each step one step late, the progress line."""

import math
import signal
import sys
import time

import jax
from tqdm import tqdm

import data
from training import flops, hosts
from training.metrics import MetricsLog
from training.setup import Job


class NonFinite(RuntimeError):
    """A loss or an update is not a finite number; nothing of that step may be saved."""


class Interrupts:
    """While active, the first SIGINT or SIGTERM is noted instead of ending the process; a second one ends it."""

    def __init__(self):
        self.received: str | None = None

    def __enter__(self) -> "Interrupts":
        self.old = {s: signal.signal(s, self.note) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def note(self, number: int, frame) -> None:
        self.received = signal.Signals(number).name
        for s, handler in self.old.items():
            signal.signal(s, handler)

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
        self.elapsed, self.steps, self.mark = 0.0, 0, None
        self.chief = hosts.is_chief()
        self.flops = flops.per_token(job.model_config, job.state["params"])
        self.peak = flops.peak(job.mesh, job.model_config.dtype)
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
        if self.mark is not None:  # not the first step since a pause, which may compile
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
            self.log.write(step, values)
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
            self.log.write(step, {"valid_loss": loss})
        self.say(f"step {step}/{self.last}  valid_loss {loss:.4f}")
        self.mark = None
        return loss

    def checkpoint(self, step: int, state, valid_loss: float) -> None:
        """Save in the background, the metrics up to here on disk first."""
        if self.log:
            self.log.flush()
        self.job.checkpoints.save(state, step, valid_loss)
        self.mark = None

    def say(self, line: str) -> None:
        """A line of its own, above the progress bar where there is one."""
        if self.chief:
            self.bar.write(line) if not self.bar.disable else print(line, flush=True)

    def close(self) -> None:
        """Await the checkpoints and close the files."""
        self.bar.close()
        self.job.checkpoints.close()
        if self.log:
            self.log.close()
