"""Train one run from a config, or continue it.

    python train.py --config=configs/rope.py --workdir=runs/rope [--config.train.steps=2000 …] [--init_from=RUN]

Started again in the same workdir, it continues after its newest complete checkpoint. --init_from
takes the parameters of another run's newest checkpoint, with a fresh optimiser at step 0. Writes
WORKDIR/config.json, metrics.jsonl, tensorboard/ and checkpoints/.
"""

import contextlib
import functools
import sys
from pathlib import Path

from absl import flags

from configs import command

CONFIG = command.define_config()
flags.declare_key_flag("config")  # for --help
WORKDIR = flags.DEFINE_string("workdir", None, "folder of the run; made if absent")
INIT_FROM = flags.DEFINE_string("init_from", None, "workdir of a run whose weights to start from")


def main() -> int:
    with command.reporting():
        command.require(config=CONFIG.value, workdir=WORKDIR.value)
        if "runs" in CONFIG.value:
            raise ValueError("--config is a study: study.py trains and evaluates those")
        if INIT_FROM.value == "":  # an unset variable of a script
            raise ValueError("--init_from= is empty: name a run, or leave it out")
        from training import allocator, hosts, setup  # jax and all that: not for --help

        allocator.keep_freed_memory()
        if CONFIG.value.get("mesh", {}).get("distributed"):
            hosts.join()
        job = setup.prepare(CONFIG.value, Path(WORKDIR.value), INIT_FROM.value)
    steps, stop_at = job.config.train.steps, job.config.train.stop_at
    last = min(steps, stop_at) if stop_at else steps
    if job.step >= last:
        job.checkpoints.close()
        say(f"{job.workdir} is at step {job.step}, and {last} are asked for: nothing to do")
        return 0
    with command.reporting():  # the disk may be full, or only for reading
        job.save_config()
    say(setup.summary(job))
    if job.step:
        say(f"continuing after step {job.step}")
    return train(job, last)


def say(line: str, file=None) -> None:
    """Print once, however many processes there are."""
    from training import hosts

    if hosts.is_chief():
        print(line, file=file, flush=True)


def train(job, last: int) -> int:
    """Steps job.step + 1 … last, with a checkpoint however they end; the exit status."""
    from training import hosts, loop, mesh, setup, step

    c = job.config.train
    train_step = mesh.fully_sharded(job.mesh, step.make_train_step(job.graph, job.config))
    validate = setup.make_validation(job)
    rows = mesh.batch_rows(job.mesh, c.batch_size)
    vote = hosts.StopVote(job.mesh)
    state = job.state
    try:
        # In this order: a signal must not cut short the wait for the last checkpoint.
        with (
            loop.Interrupts() as interrupts,
            contextlib.closing(loop.Recorder(job, last)) as recorder,
        ):
            for done in range(job.step + 1, last + 1):
                read = functools.partial(job.batches.batch, done - 1)
                batch = mesh.put_batch(job.mesh, mesh.read_rows(rows, read))
                state, metrics = train_step(state, batch)
                recorder.stepped(done, metrics)
                interrupted = vote.cast(interrupts.received is not None)
                stopping = done == last or interrupted
                saving = stopping or (c.save_every and done % c.save_every == 0)
                if saving or (c.eval_every and done % c.eval_every == 0):
                    recorder.settle()
                    valid_loss = recorder.validated(done, validate(state["params"]))
                    if saving:
                        recorder.checkpoint(done, state, valid_loss)
                if stopping:
                    break
    except (loop.NonFinite, loop.Unwritten) as error:
        say(f"train.py: {error}", file=sys.stderr)
        return 1
    if interrupted and done < last:
        signal = interrupts.received or "a signal to another process"
        say(f"{signal}: stopped after step {done} with a checkpoint; start again to continue")
    return 0


if __name__ == "__main__":
    command.run(main)
