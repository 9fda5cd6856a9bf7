"""What surrounds a run fails: the disk is full or read-only, the streams are closed, another process is there."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from runs import Outcome, Place, ended, real, saved_steps


@contextlib.contextmanager
def disk(folder: Path, kilobytes: int) -> Iterator[bool]:
    """A file system of that size at `folder`; False where this machine lets us mount none."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    mounted = subprocess.run(words, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


def full_disks(place: Place, sizes: list[int]) -> Iterator[Outcome]:
    """A training whose workdir is on a disk of so many kB; and again once there is room."""
    for size in sizes:
        with disk(place.workdir, size) as mounted:
            if mounted:
                done = place.train(90)
            else:
                done = place.forks.run(place.words(), 90, file_size=size * 128)
            saved = max(saved_steps(place.workdir), default=0)
            outcome = Outcome("full disk", f"{size} kB", *place.judge(done))
            if outcome.verdict == "refused":
                if mounted:
                    remount(place.workdir, "size=64m")
                outcome.verdict, outcome.detail = place.judge(place.train(90), saved)
            yield outcome


def full_cache(place: Place, sizes: list[int]) -> Iterator[Outcome]:
    """The same of data.cache_dir, in which the token files are made."""
    cache = place.folder / "small_cache"
    for size in sizes:
        with disk(cache, size) as mounted:
            shutil.rmtree(place.workdir, ignore_errors=True)
            words = place.words(data__cache_dir=cache)
            limit = {} if mounted else {"file_size": size * 128}
            outcome = place.judge(place.forks.run(words, 60, **limit))
            if outcome[0] == "refused" and list(cache.glob("tokens-*")):
                outcome = "half-written file", f"in {cache} after {outcome[1]}"
            yield Outcome("full disk", f"{size} kB for tokens", *outcome)


def read_only(place: Place) -> Iterator[Outcome]:
    """A workdir in which nothing can be written, new and with a run in it."""
    for case in ("new", "with a run"):
        with disk(place.workdir, 65536) as mounted:
            if case == "with a run":
                assert place.train(90, train__stop_at=6).status == 0
            if mounted:
                remount(place.workdir, "ro")
            elif os.geteuid():
                place.workdir.chmod(0o555)
            else:
                return  # modes do not bind root, and this machine lets us mount nothing
            outcome = place.judge(place.train(60))
            if mounted:
                remount(place.workdir, "rw")
            else:
                place.workdir.chmod(0o755)
            if outcome[0] == "refused":
                outcome = place.judge(place.train(90), 6 if case == "with a run" else 0)
            yield Outcome("read-only workdir", case, *outcome)


STREAMS = (
    ">&-", "2>&-", ">&- 2>&-", ">/dev/full", "2>/dev/full", ">/dev/full 2>/dev/full",
    "| head -1", "2>&1 | head -1", "<&-",
)  # fmt: skip


def streams(place: Place, cases: tuple[str, ...] = STREAMS) -> Iterator[Outcome]:
    """Standard streams that are closed, full, or read no further: what is trained is saved all the same."""
    for case in cases:
        shutil.rmtree(place.workdir, ignore_errors=True)
        done = ended(real("train.py", place.words(), place.folder, suffix=case))
        if "Traceback" in done.out + done.err:
            yield Outcome("closed streams", case, "traceback", done.err[-2000:] + done.out[-500:])
            continue
        trained = max(saved_steps(place.workdir), default=0) == max(place.losses)
        if done.status == 0 and not trained and "|" not in case:
            yield Outcome("closed streams", case, "false success", done.err[-500:])
            continue
        saved = max(saved_steps(place.workdir), default=0)
        yield Outcome("closed streams", case, *place.judge(place.train(90), saved))


def two_trainings(place: Place, rounds: int) -> Iterator[Outcome]:
    """Two at once in one workdir: one trains to the end, the other is refused in one line."""
    for index in range(rounds):
        shutil.rmtree(place.workdir, ignore_errors=True)
        first = real("train.py", place.words(), place.folder)
        time.sleep(0.7 * index)
        both = [ended(p) for p in (first, real("train.py", place.words(), place.folder))]
        verdicts = [place.judge(done) for done in both]
        case = f"{0.7 * index:.1f} s apart"
        names = sorted(verdict for verdict, _ in verdicts)
        if names in (["continued", "refused"], ["continued", "continued"]):
            done = next(d for d in both if d.status == 0)
            yield Outcome("two at once", case, *place.judge(done))
        else:
            wrong = next((v for v in verdicts if v[0] not in ("continued", "refused")), None)
            yield Outcome("two at once", case, *(wrong or ("lost", f"both refused: {verdicts}")))


def text_gone_under_way(place: Place) -> Iterator[Outcome]:
    """The text of a run from files removed, or changed, while it trains: it ends with the same losses."""
    folder = place.folder / "text"
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    source = {"data__source": f"files:{folder}", "train__steps": 60, "train__save_every": 10}
    place.reference(**source)
    for case in ("removed", "changed"):
        place.forks.start(place.words(**source))
        end = time.perf_counter() + 60
        while not saved_steps(place.workdir) and time.perf_counter() < end:
            time.sleep(0.005)
        for path in kept:
            path.unlink() if case == "removed" else path.write_bytes(b"another text\n" * 500)
        yield Outcome("text changed under way", case, *place.judge(place.forks.wait(90)))
        for path, content in kept.items():
            path.write_bytes(content)
        shutil.rmtree(place.workdir)
