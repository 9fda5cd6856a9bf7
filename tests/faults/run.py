"""Do to runs and evaluations what machines and people do to them, and see that nothing is lost.

    python tests/faults/run.py [--only=kills,inputs] [--seed=0] [--record=docs/reliability/faults.jsonl]

Prints one line for each fault that came to what may not be, and ends with the counts; the exit
status is 1 if there was any. --record writes the counts as JSON lines, of which docs/build.py makes
the table in docs/reliability.md. About half an hour on two cores; tests/faults/test_faults.py is
the same with few of each.
"""

import argparse
import dataclasses
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import damages  # noqa: E402 (found on the path set above)
import evaluations  # noqa: E402
import inputs  # noqa: E402
import kills  # noqa: E402
import long_runs  # noqa: E402
import places  # noqa: E402
from forks import Forks  # noqa: E402
from runs import FAULTS, Outcome, Place, environment  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Amount:
    """How many of each."""

    kills: int
    signals: int  # of each kind
    early: int  # signals to commands that are still importing
    share: float  # of the files that are damaged, and of the inputs that are enumerated
    each: int  # damages drawn for one file
    drawn: int  # inputs drawn by hypothesis, for each command
    sizes: tuple[int, ...]  # kB of disks that fill up
    streams: tuple[str, ...]
    steps: int  # of a long run
    lengths: int  # of a long sweep


FULL = Amount(
    kills=55, signals=4, early=8, share=1.0, each=4, drawn=150, sizes=(200, 300, 500, 700, 900),
    streams=places.STREAMS, steps=20_000, lengths=200,
)  # fmt: skip
FEW = Amount(
    kills=4, signals=1, early=1, share=0.05, each=1, drawn=8, sizes=(300,),
    streams=places.STREAMS[:1], steps=1_500, lengths=64,
)  # fmt: skip


def about_kills(folder: Path, forks: Forks, rng: random.Random, a: Amount) -> Iterator[Outcome]:
    place = Place(folder, forks)
    place.reference(**kills.LONG)
    left = a.kills
    while left > 0:  # a run may come to its end before it is killed that often
        for outcome in kills.chain(place, rng, left):
            left -= 1
            yield outcome
    yield from kills.signals(place, rng, a.signals)
    yield from kills.early(place, rng, a.early)


def about_damages(folder: Path, forks: Forks, rng: random.Random, a: Amount) -> Iterator[Outcome]:
    run = damages.Damaged(Place(folder, forks))
    yield from damages.checkpoint_files(run, rng, a.share)
    yield from damages.whole_checkpoints(run, rng)
    yield from damages.records(run, rng, a.share, a.each)
    yield from damages.token_files(run, rng, a.share, a.each)


def about_texts(folder: Path, forks: Forks, rng: random.Random, a: Amount) -> Iterator[Outcome]:
    text = folder / "text"
    text.mkdir(parents=True)
    for name in "abcdef":
        letters = (rng.choice("abcdefgh \n") for _ in range(4000))
        (text / f"{name}.txt").write_text("".join(letters))
    place = Place(folder, forks)
    yield from places.text_gone_under_way(place)
    if a is FULL:
        yield from damages.texts(damages.Damaged(place, data__source=f"files:{text}"))


def about_places(folder: Path, forks: Forks, rng: random.Random, a: Amount) -> Iterator[Outcome]:
    place = Place(folder, forks)
    place.reference()
    yield from places.full_disks(place, a.sizes)
    yield from places.full_cache(place, a.sizes[:2])
    yield from places.read_only(place)
    yield from places.streams(place, a.streams)
    yield from places.two_trainings(place, 1 if a is FEW else 4)


def about_evaluations(folder: Path, forks: Forks, rng: random.Random, a: Amount):
    place = Place(folder, forks)
    assert place.train().status == 0
    with Forks("eval_extrapolation", folder / "forks", environment(folder)) as evaluating:
        found = evaluations.Evaluations(folder, place.workdir, evaluating)
        yield from found.killed(rng, 1 if a is FEW else 10)
        yield from found.two_at_once(1 if a is FEW else 3)
        yield from found.damaged_records(rng, a.share)
        yield from found.damaged_checkpoints(rng, a.share / 3)


def about_inputs(folder: Path, forks: Forks, rng: random.Random, a: Amount) -> Iterator[Outcome]:
    place, seed = Place(folder, forks), rng.randrange(2**30)
    assert place.train().status == 0
    yield from inputs.train_inputs(folder, a.share / 2, a.drawn, seed)
    yield from inputs.evaluation_inputs(folder, place.workdir, a.share / 2, a.drawn, seed)
    yield from inputs.study_inputs(folder, a.share, seed)


def about_corpora(folder: Path, forks: Forks, rng: random.Random, a: Amount) -> Iterator[Outcome]:
    yield from inputs.corpora(folder, a.share)


def about_long(folder: Path, forks: Forks, rng: random.Random, a: Amount) -> Iterator[Outcome]:
    yield from long_runs.training(Place(folder, forks), a.steps)
    yield from long_runs.sweep(a.lengths)


ROOMS = {
    "kills": about_kills,
    "damages": about_damages,
    "texts": about_texts,
    "places": about_places,
    "evaluations": about_evaluations,
    "inputs": about_inputs,
    "corpora": about_corpora,
    "long": about_long,
}


def outcomes(room: str, folder: Path, seed: int, amount: Amount) -> Iterator[Outcome]:
    """What came of each fault of one room."""
    folder = folder / room
    folder.mkdir(parents=True)
    with Forks("train", folder / "train", environment(folder.parent)) as forks:
        yield from ROOMS[room](folder / "work", forks, random.Random(seed), amount)


def counts(found: dict[str, list[Outcome]]) -> list[dict]:
    """One row per room and kind of fault: how many, and what they came to."""
    rows = []
    for room, here in found.items():
        for fault in dict.fromkeys(outcome.fault for outcome in here):
            verdicts = Counter(o.verdict for o in here if o.fault == fault)
            row = {"room": room, "fault": fault, "tried": verdicts.total()}
            rows.append(row | dict(sorted(verdicts.items())))
    return rows


def record(path: Path, rows: list[dict]) -> None:
    """Write the rows in place of the earlier ones of their rooms."""
    anew = {row["room"] for row in rows}
    earlier = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    rows = rows + [row for row in earlier if row["room"] not in anew]
    rows.sort(key=lambda row: list(ROOMS).index(row["room"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", default=",".join(ROOMS), help="of " + ", ".join(ROOMS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--few", action="store_true", help="as many as the slow tests do")
    parser.add_argument("--record", type=Path, help="file for the counts")
    given = parser.parse_args()
    found: dict[str, list[Outcome]] = {}
    began = time.time()
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    try:
        for room in given.only.split(","):
            here = found[room] = []
            for outcome in outcomes(room, folder, given.seed, FEW if given.few else FULL):
                here.append(outcome)
                if outcome.verdict in FAULTS:
                    said = " ".join(outcome.detail.split())[-600:]
                    print(f"{outcome.fault}: {outcome.case}: {outcome.verdict}: {said}", flush=True)
            print(f"{room}: {len(here)} tried, {time.time() - began:.0f} s so far", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = counts(found)
    for row in rows:
        print(", ".join(f"{name} {value}" for name, value in row.items()))
    every = [outcome for here in found.values() for outcome in here]
    bad = Counter(o.verdict for o in every if o.verdict in FAULTS)
    print(f"{len(every)} faults and inputs; " + ", ".join(f"{name} {bad[name]}" for name in FAULTS))
    if given.record:
        record(given.record, rows)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
