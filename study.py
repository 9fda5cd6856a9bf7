"""Train the runs of a study that are missing, evaluate them together, and print the table.

    python study.py --config=configs/studies/seven_schemes.py --workdir=runs/seven_schemes

Each run is a `train.py` of its own in WORKDIR/NAME, each evaluation an `eval_extrapolation.py`; the
report of all is in WORKDIR/report. Interrupted and started again, it goes on where it stopped.
--print_commands prints those commands instead, in an order that a cluster's queue may run them in.
"""

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from absl import flags

from configs import command, streams

CONFIG = command.define_config()
flags.declare_key_flag("config")  # for --help
WORKDIR = flags.DEFINE_string(
    "workdir", None, "folder of the study: one folder per run, and report"
)
PRINT_COMMANDS = flags.DEFINE_boolean("print_commands", False, "print the commands; run nothing")

HERE = Path(__file__).parent


def main() -> int:
    with command.reporting():
        command.require(config=CONFIG.value, workdir=WORKDIR.value)
        if "runs" not in CONFIG.value:
            raise ValueError("--config is no study: train.py trains a single run")
        commands = study_commands(CONFIG.value, Path(WORKDIR.value))
    if PRINT_COMMANDS.value:
        for words in commands:
            print(shlex.join(["python", *words]))
        return streams.printed()
    failed = 0
    for number, words in enumerate(commands, 1):
        print(f"\n[{number}/{len(commands)}] python {shlex.join(words)}", flush=True)
        status = run(words)
        if status == 1 and words[0] == "eval_extrapolation.py":
            failed = 1  # some of its points failed; the others, and other evaluations, still count
        elif status or (words[0] == "train.py" and not finished(words)):
            return status or 1
    return failed


def study_commands(study, workdir: Path) -> list[list[str]]:
    """The commands of a study, in order. ValueError names a run that is not there, or a mistyped
    field.

    study.train, study.evaluate: flags of every training and of every evaluation. study.runs: a
    tuple of {name, config (a file), flags, init_from (the name of an earlier run)}.
    study.evaluations: a tuple of {runs (names, separated by commas), schemes, flags}. What a run or
    evaluation does not need it may leave out.
    """
    if "," in str(workdir):
        raise ValueError(f"workdir={workdir}: commas separate runs, so none may be in their names")
    commands, trained = [], []
    for spec in study.runs:
        field = f"runs: {spec.get('name', spec)}"
        fields(field, spec, needed=("name", "config"), optional=("flags", "init_from"))
        config = spec["config"] if Path(spec["config"]).exists() else HERE / spec["config"]
        words = ["train.py", f"--config={config}", f"--workdir={workdir / spec['name']}"]
        if spec["name"] in trained or "," in spec["name"]:
            raise ValueError(f"{field}: a name must be the only one of its kind, without a comma")
        if "init_from" in spec:
            known(field, spec["init_from"], trained)
            words.append(f"--init_from={workdir / spec['init_from']}")
        commands.append(words + shlex.split(study.train) + shlex.split(spec.get("flags", "")))
        trained.append(spec["name"])
    for number, spec in enumerate(study.evaluations):
        fields("evaluations", spec, needed=("runs",), optional=("schemes", "flags"))
        names = [name.strip() for name in spec["runs"].split(",")]
        for name in names:
            known("evaluations", name, trained)
        runs = ",".join(str(workdir / name) for name in names)
        words = ["eval_extrapolation.py", f"--runs={runs}", f"--out={workdir / 'report'}"]
        words += [f"--schemes={spec['schemes']}"] if "schemes" in spec else []
        words += ["--append"] if number else []
        commands.append(words + shlex.split(study.evaluate) + shlex.split(spec.get("flags", "")))
    return commands


def fields(where: str, spec, needed: tuple, optional: tuple) -> None:
    for name in spec:
        if name not in needed + optional:
            raise ValueError(f"{where}: no field {name}; there are {', '.join(needed + optional)}")
    for name in needed:
        if name not in spec:
            raise ValueError(f"{where}: {name} is missing")


def known(where: str, name: str, trained: list[str]) -> None:
    if name not in trained:
        raise ValueError(f"{where}: {name} is no run before it; there are {', '.join(trained)}")


def finished(words: list[str]) -> bool:
    """Whether a training that ended well is at its last step; a signal or `stop_at` ends it well before."""
    workdir = Path(next(w for w in words if w.startswith("--workdir=")).partition("=")[2])
    steps = json.loads((workdir / "config.json").read_text())["train"]["steps"]
    saved = [int(p.name) for p in (workdir / "checkpoints").iterdir() if p.name.isdecimal()]
    if max(saved, default=0) < steps:
        print(f"{workdir} stopped before step {steps}; start the study again to go on", flush=True)
    return max(saved, default=0) >= steps


def run(words: list[str]) -> int:
    """Run one command to its end; an interruption is passed on once, and waited for."""
    # In a session of its own, so that Ctrl-C reaches it through us alone and it can save a
    # checkpoint.
    child = subprocess.Popen([sys.executable, HERE / words[0], *words[1:]], start_new_session=True)
    received = []

    def forward(number, frame):
        received.append(number)
        child.send_signal(number)

    old = {s: signal.signal(s, forward) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        status = child.wait()
    finally:
        for s, handler in old.items():
            signal.signal(s, handler)
    return 128 + received[0] if received else status


if __name__ == "__main__":
    command.run(main)
