"""A tiny run, what it comes to when nothing disturbs it, and the judgement of a start after a fault."""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from forks import ROOT, Done, Forks

STEPS, EVERY = 12, 3
TINY = {
    "data.source": "synthetic:copy",
    "model.num_layers": 1,
    "model.d_model": 16,
    "model.d_ff": 16,
    "train.steps": STEPS,
    "train.batch_size": 4,
    "train.length": 16,
    "train.warmup_steps": 2,
    "train.log_every": 1,
    "train.eval_every": 0,
    "train.eval_windows": 8,
    "train.save_every": EVERY,
    "train.keep": 3,
}
# What no start may come to, whatever happened before it.
FAULTS = (
    "lost", "traceback", "silent restart", "false success", "half-written file", "left a file",
    "too slow", "unclear", "grown",
)  # fmt: skip
ALLOWED = re.compile(r"(warning|note): |interrupted|SIG[A-Z]+: ")


@dataclasses.dataclass
class Outcome:
    """One fault and what came of it: "continued", "refused", "ended", or one of FAULTS."""

    fault: str  # the row of the table that it is counted in
    case: str
    verdict: str
    detail: str = ""


def environment(folder: Path) -> dict[str, str]:
    """One thread and one cache of compiled programs for all starts: quick, and the same bits."""
    return {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "true",
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
        "HF_HUB_OFFLINE": "1",
        "TMPDIR": str(folder),
    }


def words(workdir: Path, cache: Path, **changes) -> list[str]:
    """The flags of train.py for the tiny run; `changes` by field, a double underscore for the dot."""
    fields = TINY | {name.replace("__", "."): value for name, value in changes.items()}
    flags = [f"--config.{name}={value}" for name, value in fields.items()]
    return [
        f"--config={ROOT}/configs/smoke.py",
        f"--workdir={workdir}",
        f"--config.data.cache_dir={cache}",
        *flags,
    ]


class Place:
    """A folder for faults: the starts of train.py, and the losses of the run that nothing disturbed."""

    def __init__(self, folder: Path, forks: Forks):
        self.folder, self.forks = folder, forks
        self.cache, self.workdir = folder / "cache", folder / "run"
        self.losses: dict[int, dict] = {}

    def words(self, **changes) -> list[str]:
        return words(self.workdir, self.cache, **changes)

    def train(self, limit: float = 60, **changes) -> Done:
        return self.forks.run(self.words(**changes), limit)

    def reference(self, **changes) -> None:
        """The losses of an undisturbed run; the workdir is empty afterwards."""
        shutil.rmtree(self.workdir, ignore_errors=True)
        done = self.train(180, **changes)
        assert done.status == 0, done.err
        self.losses = read_losses(self.workdir)
        steps = changes.get("train__steps", STEPS)
        assert list(self.losses) == list(range(1, steps + 1)), list(self.losses)
        shutil.rmtree(self.workdir)

    def judge(self, done: Done, at_least: int = 0, since: int | None = None) -> tuple[str, str]:
        """What a start after a fault came to, and what it said.

        at_least: the newest checkpoint that the fault spared: there it must continue. since: of
        metrics.jsonl only the steps past this one are compared, where the fault was in that file.
        """
        return judge(done, self.workdir, self.losses, at_least, since or 0)


def judge(done: Done, workdir: Path, losses: dict, at_least: int, since: int) -> tuple[str, str]:
    said = done.err[-2000:]
    if done.timed_out:
        return "too slow", said
    if "Traceback" in done.err + done.out:
        return "traceback", said
    if done.status:
        lines = [line for line in done.err.splitlines() if not ALLOWED.match(line)]
        if len(lines) != 1 or len(lines[0]) > 1500 or done.status < 0:
            return "unclear", f"status {done.status}: {said}"
        return "refused", lines[0]
    if len(done.err.splitlines()) > 6:
        return "unclear", said
    if "nothing to do" not in done.out:
        found = re.search(r"continuing after step (\d+)", done.out)
        if int(found[1] if found else 0) < at_least:
            return "silent restart", f"{at_least} steps were saved; {done.out[-300:]} {said}"
    newest = max(saved_steps(workdir), default=0)
    if newest < max(losses):
        return "false success", f"exit status 0 at step {newest}: {done.out[-300:]}"
    then, now = ({k: v for k, v in m.items() if k > since} for m in (losses, read_losses(workdir)))
    if then != now:
        wrong = [k for k in then | now if then.get(k) != now.get(k)]
        return "lost", f"other figures than without the fault at steps {wrong}; {said}"
    return "continued", said


def read_losses(workdir: Path) -> dict[int, dict]:
    """step -> what must be equal bit for bit; a line that is none is passed over, as train.py does."""
    found = {}
    with contextlib.suppress(FileNotFoundError):
        for line in (workdir / "metrics.jsonl").read_bytes().splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                m = json.loads(line)
                if "loss" in m:
                    twice = m["step"] in found
                    fields = ("loss", "grad_norm", "lr", "batch_hash", "tokens_seen")
                    found[m["step"]] = {k: m[k] for k in fields} | ({"twice": 1} if twice else {})
    return found


def saved_steps(workdir: Path) -> list[int]:
    """The checkpoints under their final names."""
    folder = workdir / "checkpoints"
    return sorted(int(f.name) for f in folder.glob("*") if f.name.isdecimal())


def real(script: str, flags: list[str], folder: Path, prefix: str = "", suffix: str = ""):
    """A command as a user starts it, through a shell that may close its streams; a Popen."""
    import shlex

    line = f"{prefix} exec {shlex.join([sys.executable, str(ROOT / script), *flags])} {suffix}"
    return subprocess.Popen(
        ["sh", "-c", line],
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen, limit: float = 120) -> Done:
    """The end of a `real` one."""
    late = False
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        late = True
        process.kill()
        out, err = process.communicate()
    return Done(process.returncode, out, err, 0.0, late)
