"""What OUT holds: added to as it is measured, by one evaluation or by several at once."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from evaluation.comparison import fixed_targets
from evaluation.diagnostics import read_diagnostics, standing, write_diagnostics
from evaluation.records import IDENTITY, check_fields, parsed, write_records
from evaluation.sharing import writing_alone
from evaluation.targets import read_targets

# What else two measurements of one point must have in common for the second to be needless.
ALIKE = "seed step config_hash weights text targets longest".split()


class NotWritten(OSError):
    """OUT cannot be written: the message is for the user."""


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Alone with `out`; what its disk says is a NotWritten. Every file there stays whole, old or new."""
    try:
        with writing_alone(out):
            yield
    except OSError as error:
        raise NotWritten(
            f"{out} cannot be written ({error}); what was written before stands: mend that, and give "
            "the same command with --append to go on"
        ) from error


class Collection:
    """The records of OUT, the losses of their targets and the diagnostics.

    What is added is merged with what is on disk at that moment, so that evaluations at work on one
    OUT keep each other's. Without `keep`, what was there at the start goes with the first write.

    Attributes:
      statuses: those of all records added here.
    """

    def __init__(self, out: Path, keep: bool):
        self.out = out
        self.path = out / "records.jsonl"
        self.statuses: list[str] = []
        self.replaced: set[bytes] = set()
        if not keep and self.path.exists():
            self.replaced = set(self.path.read_bytes().splitlines())
        self.records: list[dict] = []  # not written yet, as the two below
        self.losses: dict = {}
        self.rows: list[dict] = []
        self.due = 0.0
        self.read()  # before anything is measured: what a broken file lacks would be missed after it

    def read(self) -> tuple[list[dict], dict, list[dict]]:
        """(records, losses of their targets, diagnostics) that stand on disk, none that is to be
        replaced. ValueError names the file that is broken, and the line."""
        lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        if all(line in self.replaced for line in lines):
            return [], {}, []
        records = parsed(self.path, lines)
        records = [r for r, line in zip(records, lines, strict=True) if line not in self.replaced]
        check_fields(self.path, records, (*IDENTITY, "status"))
        rows = read_diagnostics(self.out)
        check_fields(self.out / "diagnostics.jsonl", rows, ("run", "scheme", "length"))
        return records, backed(records, read_targets(self.out)), standing(rows, records)

    def measured_before(self, about: dict) -> "Measured":
        """The points that OUT already holds of the curve with these fields."""
        with writing(self.out):
            return Measured(about, *self.read()[:2])

    def without_diagnostics(self, about: dict) -> set[int]:
        """The lengths at which fixed has a figure for this curve, and attention has not been looked at."""
        with writing(self.out):
            records, _, rows = self.read()
        there = {row["length"] for row in rows if _same_curve(row, about)}
        mine = (r for r in records if _same_curve(r, about) and r["protocol"] == "fixed")
        return {r["length"] for r in mine if r["status"] == "ok"} - there

    def add(self, records: list[dict], losses: dict) -> None:
        """The records of one point or more of one curve, and the losses of their targets by
        (protocol, length); on disk at once, or soon where writing takes long."""
        self.records += records
        self.statuses += [r["status"] for r in records]
        for r in records:
            if losses:
                self.losses.setdefault((r["run"], r["scheme"]), {}).update(losses)
        if time.monotonic() >= self.due:
            self.write()

    def add_diagnostics(self, rows: list[dict]) -> None:
        """Rows of points that are on disk."""
        self.rows += rows
        self.write()

    def write(self) -> None:
        """Everything added so far, on disk beside what else is there."""
        if not (self.records or self.rows):
            return
        began = time.monotonic()
        with writing(self.out):
            earlier, losses, rows = self.read()
            kept, losses = not_measured_again(earlier, losses, self.records, self.losses)
            for key, points in self.losses.items():
                losses[key] = {**losses.get(key, {}), **points}
            # First, so that a row never explains a record that has taken its record's place.
            write_diagnostics(self.out, standing(rows, kept) + self.rows)
            if self.records:
                write_records(self.out, kept + self.records, losses)
        self.records, self.losses, self.rows = [], {}, []
        took = time.monotonic() - began
        self.due = time.monotonic() + 9 * took  # a tenth of the time, however much there is


class Measured:
    """Which points of a curve stand already: measured on the same text, with the same weights."""

    def __init__(self, about: dict, records: list[dict], losses: dict):
        self.about = about
        mine = losses.get((about["run"], about["scheme"]), {})
        self.records = [
            r
            for r in records
            if r["status"] == "ok"
            and _same_curve(r, about)
            and all(r.get(name) == about[name] for name in ALIKE if name in about)
            and (r["protocol"] not in FIXED or (r["protocol"], r["length"]) in mine)
        ]

    def holds(self, point) -> list[dict]:
        """The records of a pass over the data (protocol, length, stride), if it was made before."""
        return [
            r
            for r in self.records
            if (r["protocol"], r["stride"]) == (point.protocol, point.stride)
            and (r["length"] == point.length or point.protocol == "position")
        ]


FIXED = ("fixed", "cropped")


def _same_curve(a: dict, b: dict) -> bool:
    return (a["run"], a["scheme"]) == (b["run"], b["scheme"])


def backed(records: list[dict], losses: dict) -> dict:
    """The losses whose record is there and says the same of them.

    An evaluation that was ended between writing the two leaves losses without: they are measured again.
    """
    found: dict = {}
    for r in records:
        key, point = (r["run"], r["scheme"]), (r["protocol"], r["length"])
        arrays = losses.get(key, {}).get(point)
        if arrays is not None and r["status"] == "ok" and r["tokens_scored"] == len(arrays["nll"]):
            total = arrays["nll"].sum()
            if abs(total - r["nll_sum"]) <= 1e-9 * abs(total):
                found.setdefault(key, {})[point] = arrays
    return found


def not_measured_again(
    earlier: list[dict], targets: dict, records: list[dict], losses: dict
) -> tuple[list, dict]:
    """The earlier records that none of `records` replaces, with the losses of their fixed targets.

    One is replaced by the same point measured again; by fixed points of the same curve on other
    targets: with another stride, longest length, block or text; by points of the same curve from
    another checkpoint; and by points of the same curve and protocol on another text (`position`: or
    of windows of another length). `targets` and `losses` are those of `earlier` and `records`.
    """

    def point(r: dict) -> tuple:
        return r["run"], r["scheme"], r["protocol"], r["length"]

    def curves(rows: list[dict]) -> dict[tuple, list[dict]]:
        found: dict[tuple, list[dict]] = {}
        for r in rows:
            found.setdefault((r["run"], r["scheme"]), []).append(r)
        return found

    again = {point(r) for r in records}
    anew = curves(records)
    moved = {
        curve
        for curve, rows in curves(earlier).items()
        if curve in anew
        and (
            _others(fixed_targets(rows), fixed_targets(anew[curve]))
            or _differ(targets.get(curve, {}), losses.get(curve, {}))
        )
    }
    kept = [
        r
        for r in earlier
        if point(r) not in again
        and not (r["protocol"] in FIXED and (r["run"], r["scheme"]) in moved)
        and not any(_elsewhere(r, new) for new in anew.get((r["run"], r["scheme"]), ()))
    ]
    there = {point(r) for r in kept if r["protocol"] in FIXED}
    standing = {
        (run, scheme): {at: value for at, value in points.items() if (run, scheme, *at) in there}
        for (run, scheme), points in targets.items()
    }
    return kept, {key: points for key, points in standing.items() if points}


def _elsewhere(earlier: dict, new: dict) -> bool:
    """Whether two records of one curve are of two checkpoints, or of two texts under one protocol."""
    names = ["seed", "step", "config_hash", "weights"]
    if earlier["protocol"] == new["protocol"]:
        names += ["text", "stride"] if new["protocol"] == "position" else ["text"]
    pairs = [(earlier.get(name), new.get(name)) for name in names]
    return any(a != b for a, b in pairs if a is not None and b is not None)


def _differ(earlier: dict, now: dict) -> bool:
    """Whether the losses of a curve are of other targets, which have other cluster ids."""
    ids = [
        {np.asarray(p["clusters"]).tobytes() for p in points.values()} for points in (earlier, now)
    ]
    return all(ids) and ids[0] != ids[1]


def _others(earlier: tuple | None, now: tuple | None) -> bool:
    """Whether two results of `fixed_targets` are of different targets, as far as is known."""
    if earlier is None or now is None:
        return False
    return earlier[:2] != now[:2] or bool(earlier[2] and now[2] and earlier[2] != now[2])
