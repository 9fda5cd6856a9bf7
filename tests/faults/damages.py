"""Files of a run damaged between two starts: each one emptied, cut short, a bit flipped, or gone."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from runs import EVERY, STEPS, Outcome, Place, saved_steps

NEWEST = STEPS - EVERY  # where the run to be damaged stopped
STOPPED = {"train__stop_at": NEWEST}


def emptied(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def cut(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: rng.randrange(max(path.stat().st_size, 1))])


def flipped(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes() or b"\0")
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(content))


def removed(path: Path, rng: random.Random) -> None:
    path.unlink()


DAMAGES = (emptied, cut, flipped, removed)


class Damaged:
    """A run stopped at NEWEST, brought back as it was before every damage."""

    def __init__(self, place: Place, **changes):
        self.place, self.changes = place, changes
        place.reference(**changes)
        done = place.train(90, **STOPPED, **changes)
        assert done.status == 0 and saved_steps(place.workdir)[-1] == NEWEST, done.err
        self.kept = place.folder / "kept"
        shutil.rmtree(self.kept, ignore_errors=True)
        for name in ("run", "cache", "text"):
            if (place.folder / name).exists():
                shutil.copytree(place.folder / name, self.kept / name)

    def restore(self) -> None:
        for folder in self.kept.iterdir():
            shutil.rmtree(self.place.folder / folder.name, ignore_errors=True)
            shutil.copytree(folder, self.place.folder / folder.name)

    def try_damage(self, fault: str, case: str, damage: Callable, at_least: int, since=None):
        """Damage, start, judge."""
        self.restore()
        damage()
        done = self.place.train(60, **self.changes)
        return Outcome(fault, case, *self.place.judge(done, at_least, since))

    def unlike(self, folder: str) -> list[str]:
        """The files below `folder` that are not what they were before the damage."""
        then, now = self.kept / folder, self.place.folder / folder
        names = [path.relative_to(then) for path in files(then)]
        same = (
            (now / name).is_file() and (now / name).read_bytes() == (then / name).read_bytes()
            for name in names
        )
        return [str(name) for name, equal in zip(names, same, strict=True) if not equal]


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def checkpoint_files(run: Damaged, rng: random.Random, share: float) -> Iterator[Outcome]:
    """Every file of the newest checkpoint, damaged in every way: the one before it serves."""
    newest = run.place.workdir / "checkpoints" / str(NEWEST)
    for path in files(run.kept / "run" / "checkpoints" / str(NEWEST)):
        name = path.relative_to(run.kept / "run" / "checkpoints" / str(NEWEST))
        for damage in DAMAGES:
            if rng.random() < share:
                yield continued(
                    run.try_damage(
                        "checkpoint file damaged",
                        f"{name} {damage.__name__}",
                        lambda: damage(newest / name, rng),  # noqa: B023 (called at once)
                        NEWEST - EVERY,
                    )
                )


def whole_checkpoints(run: Damaged, rng: random.Random) -> Iterator[Outcome]:
    """A half-written newest step; all of them broken, or gone, while metrics.jsonl says how far it was."""
    folder = run.place.workdir / "checkpoints"

    def half_written() -> None:
        target = folder / str(NEWEST + 1)
        shutil.copytree(folder / str(NEWEST), target)
        for path in rng.sample(files(target), len(files(target)) // 2):
            path.unlink()

    def left_over() -> None:
        target = folder / f"{NEWEST + 1}.orbax-checkpoint-tmp"
        shutil.copytree(folder / str(NEWEST) / "default", target / "default")

    def no_arrays() -> None:
        shutil.rmtree(folder / str(NEWEST) / "default")

    def all_broken() -> None:
        for path in files(folder):
            path.write_bytes(b"")

    fault = "half-written checkpoint"
    yield continued(run.try_damage(fault, "half its files", half_written, NEWEST))
    yield continued(run.try_damage(fault, "temporary folder", left_over, NEWEST))
    yield continued(run.try_damage(fault, "no arrays", no_arrays, NEWEST - EVERY))
    yield refused(run.try_damage(fault, "all emptied", all_broken, NEWEST))
    yield refused(run.try_damage(fault, "all gone", lambda: shutil.rmtree(folder), NEWEST))


def refused(outcome: Outcome) -> Outcome:
    """Of a fault after which nothing is left to continue from: only a refusal will do."""
    if outcome.verdict == "continued":
        outcome.verdict = "silent restart"
    return outcome


def continued(outcome: Outcome) -> Outcome:
    """Of a fault that left an older checkpoint whole: it must serve."""
    if outcome.verdict == "refused":
        outcome.verdict = "lost"
    return outcome


def records(run: Damaged, rng: random.Random, share: float, each: int) -> Iterator[Outcome]:
    """metrics.jsonl, config.json and tokenizer.json of a run."""
    for name in ("metrics.jsonl", "config.json", "tokenizer.json"):
        for damage in DAMAGES:
            for _ in range(each if damage in (cut, flipped) else 1):
                if rng.random() >= share:
                    continue
                yield run.try_damage(
                    f"{name} damaged",
                    damage.__name__,
                    lambda: damage(run.place.workdir / name, rng),  # noqa: B023 (called at once)
                    NEWEST,
                    NEWEST if name == "metrics.jsonl" else None,
                )


def token_files(run: Damaged, rng: random.Random, share: float, each: int) -> Iterator[Outcome]:
    """The token files in data.cache_dir: made again, or refused; never another text."""
    kept = [path for path in files(run.kept / "cache") if "tokens-" in str(path)]
    for path in kept:
        name = path.relative_to(run.kept / "cache")
        for damage in DAMAGES:
            for _ in range(each if damage is flipped and path.suffix == ".tokens" else 1):
                if rng.random() >= share:
                    continue
                outcome = run.try_damage(
                    "token file damaged",
                    f"{name.name} {damage.__name__}",
                    lambda: damage(run.place.cache / name, rng),  # noqa: B023 (called at once)
                    NEWEST,
                )
                # The byte tokenizer reads no file; meta.json says when it was made.
                unread = path.name in ("meta.json", "tokenizer.json")
                left = [] if unread else run.unlike("cache")
                if outcome.verdict == "continued" and left:
                    outcome.verdict, outcome.detail = "lost", f"damaged and still in use: {left}"
                yield outcome


def texts(run: Damaged) -> Iterator[Outcome]:
    """The text itself, of a run from files: gone, changed, or one file more."""
    folder = run.place.folder / "text"
    first = folder / "a.txt"
    changes = {
        "a file gone": first.unlink,
        "all gone": lambda: shutil.rmtree(folder),
        "a byte changed": lambda: first.write_bytes(b"#" + first.read_bytes()[1:]),
        "emptied": lambda: first.write_bytes(b""),
        "one more": lambda: (folder / "z.txt").write_text("one more document\n" * 100),
    }
    for case, change in changes.items():
        yield refused(run.try_damage("text changed between starts", case, change, NEWEST))
