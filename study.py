"""Train the runs of a study that are missing, evaluate them together, and print the table.

    python study.py --config=configs/studies/seven_schemes.py --workdir=runs/seven_schemes

Each run is a `train.py` of its own in WORKDIR/NAME, each evaluation an `eval_extrapolation.py`; the
report of all is in WORKDIR/report. Interrupted and started again, it goes on where it stopped, and
measures no point twice; a study whose evaluations were changed, or that was moved, is evaluated anew.
--print_commands prints those commands instead, and says which may run at once.
"""

import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from absl import flags

from configs import command, streams

CONFIG = command.define_config("configs/studies/smoke.py")
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
        workdir = Path(WORKDIR.value)
        commands = study_commands(CONFIG.value, workdir)
    if PRINT_COMMANDS.value:
        print_commands(commands)
        return streams.printed()
    evaluations = [words for words in commands if words[0] == "eval_extrapolation.py"]
    failed = 0
    for number, words in enumerate(commands, 1):
        if words is evaluations[0]:
            with command.reporting():
                words = [*words, "--append"] if continues(workdir, evaluations) else words
        print(f"\n[{number}/{len(commands)}] {python()} {shlex.join(words)}", flush=True)
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
    train, evaluate = (words_of(f"config.{name}", study.get(name)) for name in FLAGS_OF_ALL)
    commands, trained = [], []
    for where, spec in entries(study, "runs", needed=("name", "config"), optional=("init_from",)):
        name = spec["name"]
        if name in trained:
            raise ValueError(f"{where}: there is an earlier run of that name")
        if "," in name or Path(name).name != name or name in ("..", "report"):
            raise ValueError(f"{where}: it must name a folder beside report, without a comma")
        config = spec["config"] if Path(spec["config"]).exists() else HERE / spec["config"]
        words = ["train.py", f"--config={config}", f"--workdir={workdir / name}"]
        if "init_from" in spec:
            known(where, spec["init_from"], trained)
            words.append(f"--init_from={workdir / spec['init_from']}")
        commands.append(words + train + words_of(f"{where}: flags", spec.get("flags", "")))
        trained.append(name)
    for where, spec in entries(study, "evaluations", needed=("runs",), optional=("schemes",)):
        names = [name.strip() for name in spec["runs"].split(",")]
        for name in names:
            known(where, name, trained)
        runs = ",".join(str(workdir / name) for name in names)
        words = ["eval_extrapolation.py", f"--runs={runs}", f"--out={workdir / 'report'}"]
        words += [f"--schemes={spec['schemes']}"] if "schemes" in spec else []
        words += ["--append"] if where != "config.evaluations[0]" else []
        commands.append(words + evaluate + words_of(f"{where}: flags", spec.get("flags", "")))
    return commands


FLAGS_OF_ALL = ("train", "evaluate")  # fields of a study: flags of every training and evaluation


def entries(study, field: str, needed: tuple, optional: tuple) -> list[tuple[str, dict]]:
    """(what a message calls it, the entry) of each entry of study.FIELD, all of them in order."""
    found = study.get(field)
    if not isinstance(found, tuple | list) or not found:
        raise ValueError(f"config.{field}={found!r} must be a tuple of one entry or more")
    allowed = (*needed, *optional, "flags")
    for number, spec in enumerate(found):
        where = f"config.{field}[{number}]"
        if not hasattr(spec, "keys"):
            raise ValueError(f"{where}={spec!r} must be a dict with {', '.join(needed)}")
        for name in [name for name in needed if name not in spec]:
            raise ValueError(f"{where}: {name} is missing")
        for name, value in spec.items():
            if name not in allowed:
                raise ValueError(f"{where}: no field {name}; there are {', '.join(allowed)}")
            if not isinstance(value, str) or not (value.strip() or name == "flags"):
                raise ValueError(f"{where}: {name}={value!r} must be a string, not empty")
    return [
        (f"config.{field}[{number}]" + (f": name={spec['name']}" if "name" in spec else ""), spec)
        for number, spec in enumerate(found)
    ]


def words_of(where: str, text) -> list[str]:
    """A string of flags as words."""
    if not isinstance(text, str):
        raise ValueError(f'{where}={text!r} must be flags in one string; "" for none')
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{where}={text!r}: {error}") from None


def known(where: str, name: str, trained: list[str]) -> None:
    if name not in trained:
        raise ValueError(f"{where}: {name} is no run before it; there are {', '.join(trained)}")


def continues(workdir: Path, evaluations: list[list[str]]) -> bool:
    """Whether the report in workdir is of these same evaluations, which then go on with it.

    WORKDIR/evaluations.json has those that the report was begun with, and the sha256 of the records
    that it then held, of another study's evaluations: as long as they are there, it has not begun.
    """
    note, records = workdir / "evaluations.json", workdir / "report" / "records.jsonl"
    there = hashlib.sha256(records.read_bytes()).hexdigest() if records.exists() else None
    try:
        before = json.loads(note.read_text())
        if before["evaluations"] == evaluations and before["instead_of"] != there:
            return True
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none, or none that can be read: evaluated anew
    part = note.with_suffix(".part")
    part.write_text(json.dumps({"evaluations": evaluations, "instead_of": there}, indent=1))
    os.replace(part, note)
    return False


def print_commands(commands: list[list[str]]) -> None:
    """For a queue or a script: one command a line, and comments that say what waits for what."""
    print(f"# To be run in {HERE}")
    print("# Trainings may run at once; one with --init_from waits for the run that it names.")
    for number, words in enumerate(commands):
        if words[0] != "train.py" and commands[number - 1][0] == "train.py":
            print("# Evaluations, when their runs have ended. The first replaces what the report")
            print("# folder holds, so it goes alone; those with --append may then run at once.")
        print(shlex.join([python(), *words]))


def python() -> str:
    """This Python as one would type it: from the repository's folder, where it is inside."""
    path = Path(sys.executable)
    return str(path.relative_to(HERE)) if path.is_relative_to(HERE) else str(path)


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
