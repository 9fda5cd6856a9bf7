"""Processes ended at any moment: SIGKILL, and SIGTERM and SIGINT once and twice."""

import json
import os
import random
import shutil
import signal
import time

from runs import Outcome, Place, ended, read_losses, real, saved_steps

LONG = {"train__steps": 60, "train__save_every": 2}


def chain(place: Place, rng: random.Random, kills: int) -> list[Outcome]:
    """One run killed again and again; each start is judged by where it continues, the last by all losses."""
    shutil.rmtree(place.workdir, ignore_errors=True)
    outcomes: list[Outcome] = []
    while True:
        spared = max(saved_steps(place.workdir), default=0)
        place.forks.start(place.words(**LONG))
        if len(outcomes) < kills:
            in_save = rng.random() < 0.6
            moment = await_moment(place, rng, in_save)
        done = place.forks.wait(90)
        if outcomes and outcomes[-1].verdict == "":  # this start is what came of the last kill
            settle(outcomes[-1], place, done, spared)
        if done.status != -signal.SIGKILL:
            return outcomes
        shown = max(read_losses(place.workdir), default=0)
        case = f"{moment} after step {shown}"
        outcomes.append(Outcome("SIGKILL", case, ""))


def await_moment(place: Place, rng: random.Random, in_save: bool) -> str:
    """Kill the process at a moment drawn: while a checkpoint is being written, or any."""
    pid, end = place.forks.pid, time.perf_counter() + 20
    skipped = rng.randrange(12)  # checkpoints to let pass
    seen: set[str] = set()
    until = time.perf_counter() + rng.uniform(0.1, 4.0)
    while time.perf_counter() < (end if in_save else until) and alive(pid):
        if in_save:
            writing = {f.name for f in place.workdir.glob("checkpoints/*tmp*")} - seen
            if writing and skipped:
                seen, skipped = seen | writing, skipped - 1
            elif writing:
                time.sleep(rng.uniform(0, 0.02))
                break
        time.sleep(0.001)
    kill(pid, signal.SIGKILL)
    return "in a save" if in_save else "at any moment"


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def settle(outcome: Outcome, place: Place, done, spared: int) -> None:
    """The verdict of the start after a kill, which may itself have been killed before it said a word."""
    if done.status == 0:
        outcome.verdict, outcome.detail = place.judge(done, spared)
    elif done.status != -signal.SIGKILL:
        outcome.verdict, outcome.detail = place.judge(done, spared)
        if outcome.verdict == "refused":
            outcome.verdict = "lost"  # a mere kill breaks nothing that a start may refuse
    elif "Traceback" in done.err:
        outcome.verdict, outcome.detail = "traceback", done.err[-2000:]
    elif "is broken" in done.err:
        outcome.verdict, outcome.detail = "half-written file", done.err[-2000:]
    else:
        said = "continuing after step" in done.out or "loss" not in done.out
        outcome.verdict = "continued" if said or not spared else "silent restart"
        now = read_losses(place.workdir)
        if any(place.losses[k] != m for k, m in now.items()):
            outcome.verdict, outcome.detail = "lost", "other figures after a kill"
    try:
        json.loads((place.workdir / "config.json").read_text())
    except FileNotFoundError:
        pass
    except ValueError as error:
        outcome.verdict, outcome.detail = "half-written file", f"config.json: {error}"


def signals(place: Place, rng: random.Random, each: int) -> list[Outcome]:
    """SIGTERM and SIGINT, once, twice at once, and again after a while: a checkpoint is saved, and the run goes on."""
    outcomes = []
    for number in (signal.SIGTERM, signal.SIGINT):
        for times, pause in (("once", 0.0), ("twice at once", 0.02), ("twice", 3.0)):
            for _ in range(each):
                case = f"{number.name} {times}"
                verdict, detail = signalled(place, rng, number, times, pause)
                outcomes.append(Outcome("SIGTERM or SIGINT", case, verdict, detail))
    return outcomes


def signalled(place: Place, rng: random.Random, number: int, times: str, pause: float):
    shutil.rmtree(place.workdir, ignore_errors=True)
    few = {**LONG, "train__save_every": 0}  # what is saved, the signal has saved
    pid, wanted = place.forks.start(place.words(**few)), rng.randrange(1, 50)
    end = time.perf_counter() + 30
    while max(read_losses(place.workdir), default=0) < 1 and time.perf_counter() < end:
        out = (place.forks.folder / "stdout").read_text()
        if f"step {wanted}/" in out or not alive(pid):
            break
        time.sleep(0.002)
    kill(pid, number)
    if times != "once":
        time.sleep(pause)
        kill(pid, number)
    done = place.forks.wait(60)
    shown = [line for line in done.out.splitlines() if line.startswith("step ")]
    if "Traceback" in done.err + done.out:
        return "traceback", done.err[-2000:]
    saved = max(saved_steps(place.workdir), default=0)
    if shown and not saved:
        return "lost", f"{shown[-1]}; status {done.status}; {done.out[-200:]} {done.err[-300:]}"
    if done.status == 0 and saved < LONG["train__steps"] and "start again" not in done.out:
        return "false success", done.out[-300:]
    return place.judge(place.train(90, **few), saved)


def early(place: Place, rng: random.Random, count: int) -> list[Outcome]:
    """Signals to a command as a user starts it, its imports not done yet."""
    outcomes = []
    for index in range(count):
        shutil.rmtree(place.workdir, ignore_errors=True)
        number = (signal.SIGINT, signal.SIGTERM)[index % 2]
        process = real("train.py", place.words(**LONG), place.folder)
        delay = rng.uniform(0.05, 3.5)
        time.sleep(delay)
        process.send_signal(number)
        done = ended(process)
        saved = max(saved_steps(place.workdir), default=0)
        case = f"{signal.Signals(number).name} {delay:.2f} s after the start"
        if "Traceback" in done.err:
            outcome = "traceback", done.err[-2000:]
        else:
            outcome = place.judge(place.train(90, **LONG), saved)
        outcomes.append(Outcome("SIGTERM or SIGINT", case, *outcome))
    return outcomes
