"""Starts of a command without the seconds that its imports take.

A server process imports a command (train.py, eval_extrapolation.py) and everything that it needs,
touches no device, and forks for each start. The fork is the command from its first line to the
interpreter's end, with files for stdout and stderr of its own.
"""

import dataclasses
import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    "train": "training.allocator training.hosts training.setup training.loop training.mesh",
    "eval_extrapolation": "evaluation.collection evaluation.model evaluation.plots evaluation.report "
    "evaluation.probe_plot evaluation.probes training.checkpoint tqdm",
}
WORK = {"train": "train", "eval_extrapolation": "measure", "study": "run"}
MEMORY = 12 * 2**30  # bytes of addresses for one start: a huge size must not take the machine down


@dataclasses.dataclass
class Done:
    """How one start ended: its exit status (negative: the signal), what it wrote, and the seconds of work."""

    status: int
    out: str
    err: str
    seconds: float
    timed_out: bool = False


class Forks:
    """Starts of one command, one at a time. A context manager."""

    def __init__(self, command: str, folder: Path, environment: dict[str, str]):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.server = subprocess.Popen(
            [sys.executable, __file__, command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=ROOT,
        )
        assert self.reply(120) == "ready", f"{command}: its imports fail"

    def __enter__(self) -> "Forks":
        return self

    def __exit__(self, *error) -> None:
        self.server.stdin.close()
        self.server.wait()
        self.server.stdout.close()

    def reply(self, seconds: float | None):
        """The server's next line; None if it takes longer."""
        if not select.select([self.server.stdout], [], [], seconds)[0]:
            return None
        return json.loads(self.server.stdout.readline())

    def start(self, words: list[str], cwd: Path | None = None, **options) -> int:
        """Begin; the process's id. `options`: file_size, the most bytes of a file."""
        out, err = self.folder / "stdout", self.folder / "stderr"
        for path in (out, err):
            path.write_bytes(b"")  # what an earlier start said is not this one's
        request = {"words": words, "cwd": str(cwd or ROOT), "out": str(out), "err": str(err)}
        self.server.stdin.write(json.dumps({**request, **options}).encode() + b"\n")
        self.server.stdin.flush()
        self.began = time.perf_counter()
        self.pid = self.reply(60)
        return self.pid

    def wait(self, limit: float = 60) -> Done:
        """Its end, or after `limit` seconds the end that is made for it."""
        left = self.began + limit - time.perf_counter()
        ended = self.reply(max(left, 0))
        late = ended is None
        if late:
            os.killpg(self.pid, signal.SIGKILL)
            ended = self.reply(60)
        out, err = (
            (self.folder / name).read_text(errors="replace") for name in ("stdout", "stderr")
        )
        return Done(ended[0], out, err, ended[1], late)

    def run(self, words: list[str], limit: float = 60, **options) -> Done:
        self.start(words, **options)
        return self.wait(limit)


def serve(name: str) -> None:
    """Fork for each request on stdin, until there are no more; in the fork, return as the command."""
    sys.path.insert(0, str(ROOT))
    module = importlib.import_module(name)
    for heavy in HEAVY.get(name, "").split():
        importlib.import_module(heavy)
    replies = os.fdopen(os.dup(1), "w")

    def reply(value) -> None:
        replies.write(json.dumps(value) + "\n")
        replies.flush()

    reply("ready")
    # A fork that a signal finds before it is the command ends without a word, as a shell's would.
    handlers = {s: signal.signal(s, signal.SIG_DFL) for s in (signal.SIGINT, signal.SIGTERM)}
    while line := sys.stdin.readline():
        request = json.loads(line)
        pid = os.fork()
        if not pid:
            become(name, request)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            return module
        reply(pid)
        _, status, used = os.wait4(pid, 0)
        reply([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime])
    return None


def become(name: str, request: dict) -> None:
    """Take the place of a command started with these words."""
    os.setsid()
    os.chdir(request["cwd"])
    for number, path in ((1, request["out"]), (2, request["err"])):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, number)
        os.close(file)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    if "file_size" in request:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_size"],) * 2)
    if request.get("setup_only"):  # all that may refuse is done: the work itself is not
        setattr(sys.modules[name], WORK[name], lambda *given: sys.exit(0))
    sys.argv = [f"{name}.py", *request["words"]]


if __name__ == "__main__":
    forked = serve(sys.argv[1])
    if forked is not None:
        from configs import command

        command.run(forked.main)
