"""Evaluations killed, doubled, or over damaged files: finished points survive and are not computed again."""

import contextlib
import json
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from damages import DAMAGES, files
from forks import Done, Forks
from kills import alive, kill
from runs import ALLOWED, Outcome, ended, real

SCHEMES = "rope,pi:factor=2,ntk:factor=2,yarn:factor=2"
OUTPUTS = ("records.jsonl", "targets.npz", "statistics.jsonl", "curves.csv")


class Evaluations:
    """Evaluations of one run into a folder, and the figures of one that nothing disturbed."""

    def __init__(self, folder: Path, run: Path, forks: Forks):
        self.folder, self.run, self.forks = folder, run, forks
        self.out = folder / "report"
        done = forks.run(self.words(), 180)
        assert done.status == 0, done.err
        self.figures = points(self.out)
        assert len(self.figures) == 16, sorted(self.figures)  # four schemes: three lengths, cropped
        self.kept = folder / "kept_report"
        shutil.copytree(self.out, self.kept, dirs_exist_ok=True)

    def words(self, *more: str) -> list[str]:
        flags = {"runs": self.run, "out": self.out, "schemes": SCHEMES, "lengths": "16,32,64"}
        return [f"--{name}={value}" for name, value in flags.items()] + ["--targets=8", *more]

    def restore(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(self.kept, self.out)

    def killed(self, rng: random.Random, times: int) -> Iterator[Outcome]:
        """Killed at a moment drawn, started again with --append: no figure is lost, none made twice."""
        for _ in range(times):
            shutil.rmtree(self.out, ignore_errors=True)
            self.forks.start(self.words("--append"))
            wanted = rng.randrange(0, 16, 4)
            end = time.perf_counter() + 60
            while len(points(self.out)) < wanted and time.perf_counter() < end:
                if not alive(self.forks.pid):
                    break
                time.sleep(0.005)
            time.sleep(rng.uniform(0, 0.5))
            kill(self.forks.pid, signal.SIGKILL)
            self.forks.wait(60)
            before = seconds(self.out)
            done = self.forks.run(self.words("--append"), 120)
            again = [at for at, took in before.items() if seconds(self.out).get(at) != took]
            verdict = self.judge(done)
            if again and verdict[0] == "continued":
                verdict = "lost", f"{len(again)} finished points computed again: {again[:3]}"
            yield Outcome("evaluation killed", f"after {len(before)} points", *verdict)

    def judge(self, done: Done) -> tuple[str, str]:
        said = done.err[-1500:]
        if done.timed_out:
            return "too slow", said
        if "Traceback" in done.err + done.out:
            return "traceback", said
        try:
            found = points(self.out, strict=done.status != 2)  # refused: the damage is still there
        except ValueError as error:
            return "half-written file", str(error)
        if done.status:
            own = [s for s in done.err.splitlines() if s.startswith("eval_extrapolation.py: ")]
            others = [s for s in done.err.splitlines() if s not in own and not ALLOWED.match(s)]
            told = all(" records " in s for s in others)
            return ("refused", own[0]) if len(own) == 1 and told else ("unclear", said)
        wrong = [at for at, nll in self.figures.items() if found.get(at) != nll]
        return ("lost", f"points {wrong[:4]}; {said}") if wrong else ("continued", said)

    def two_at_once(self, rounds: int) -> Iterator[Outcome]:
        """Two that append to one folder at once: the points of both are there, or one is refused."""
        for index in range(rounds):
            shutil.rmtree(self.out, ignore_errors=True)
            halves = ("rope,pi:factor=2", "ntk:factor=2,yarn:factor=2")
            both = []
            for half in halves:
                flags = self.words("--append", f"--schemes={half}")
                both.append((half, real("eval_extrapolation.py", flags, self.folder)))
                time.sleep(0.3 * index)
            ends = [(half, ended(process)) for half, process in both]
            for half, done in ends:
                if done.status == 2 and "Traceback" not in done.err:  # refused: its turn is now
                    self.forks.run(self.words("--append", f"--schemes={half}"), 120)
            whole = Done(0, "", "".join(done.err for _, done in ends), 0.0)
            yield Outcome("two at once", f"evaluations, round {index}", *self.judge(whole))

    def damaged_records(self, rng: random.Random, share: float) -> Iterator[Outcome]:
        """What an earlier evaluation wrote, damaged, and added to."""
        for name in OUTPUTS:
            for damage in DAMAGES:
                if rng.random() >= share:
                    continue
                self.restore()
                damage(self.out / name, rng)
                done = self.forks.run(self.words("--append", "--schemes=rope,nope"), 120)
                verdict, detail = self.judge(done)
                flipped = damage.__name__ == "flipped"  # a figure may be another and still be one
                if verdict == "lost" and (flipped or damage.__name__ == "removed"):
                    verdict = "continued"
                yield Outcome(
                    "evaluation's files damaged", f"{name} {damage.__name__}", verdict, detail
                )

    def damaged_checkpoints(self, rng: random.Random, share: float) -> Iterator[Outcome]:
        """Evaluation of a run whose checkpoint is damaged: refused, or an older one in a clear line."""
        kept = self.folder / "kept_run"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.run, kept)
        newest = max((f for f in (kept / "checkpoints").iterdir() if f.name.isdecimal()), key=_step)
        for path in [*files(newest), kept / "config.json"]:
            for damage in DAMAGES:
                if rng.random() >= share:
                    continue
                shutil.rmtree(self.run)
                shutil.copytree(kept, self.run)
                damage(self.run / path.relative_to(kept), rng)
                shutil.rmtree(self.out, ignore_errors=True)
                verdict, detail = self.judge(self.forks.run(self.words(), 120))
                if verdict == "lost" and "warning: checkpoint" in detail:
                    verdict = "continued"  # of an older checkpoint, and it says so
                case = f"{path.relative_to(kept)} {damage.__name__}"
                yield Outcome("evaluation of a damaged run", case, verdict, detail)
        shutil.rmtree(self.run)
        shutil.copytree(kept, self.run)


def _step(folder: Path) -> int:
    return int(folder.name)


def rows(out: Path, strict: bool = False) -> list[dict]:
    """The records in a folder; without `strict`, those lines that can be read."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for line in (out / "records.jsonl").read_text().splitlines():
            with contextlib.nullcontext() if strict else contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found


def points(out: Path, strict: bool = False) -> dict[tuple, float]:
    """(scheme, protocol, length) -> nll."""
    return {(r["scheme"], r["protocol"], r["length"]): r["nll"] for r in rows(out, strict)}


def seconds(out: Path) -> dict[tuple, float]:
    """(scheme, protocol, length) -> the seconds it took, which differ where it is measured again."""
    return {(r["scheme"], r["protocol"], r["length"]): r["seconds"] for r in rows(out)}
