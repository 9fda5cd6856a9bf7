"""What an evaluation has measured so far, with what still stands of an earlier one in the same folder."""

from pathlib import Path

import numpy as np

from evaluation.comparison import fixed_targets
from evaluation.diagnostics import read_diagnostics, standing, write_diagnostics
from evaluation.records import read_records, read_targets, write_records


class Collection:
    """The records of OUT, the losses of their targets and the diagnostics; on disk after each addition.

    With `keep`, those that OUT already holds stay until the same is measured again.

    Attributes:
      measured: the records added here.
      records: all that stand, the earlier ones first.
      targets: (run, scheme) -> the losses of its fixed targets, as `write_records` takes them.
    """

    def __init__(self, out: Path, keep: bool):
        self.out = out
        there = keep and (out / "records.jsonl").exists()
        self.earlier = (read_records(out), read_targets(out)) if there else ([], {})
        self.earlier_diagnostics = read_diagnostics(out) if keep else []
        # Before anything is measured: what a broken file lacks would be missed after it.
        require(out / "records.jsonl", self.earlier[0], ("run", "scheme", "protocol", "length"))
        require(out / "diagnostics.jsonl", self.earlier_diagnostics, ("run", "scheme", "length"))
        self.measured: list[dict] = []
        self.losses: dict = {}
        self.diagnostics: list[dict] = []

    def add(self, run: str, scheme: str, records: list[dict], targets: dict) -> None:
        """The records of one curve, and the losses of its targets by (protocol, length)."""
        self.measured += records
        self.losses.setdefault((run, scheme), {}).update(targets)
        kept, kept_losses = not_measured_again(*self.earlier, self.measured, self.losses)
        self.records = kept + self.measured
        self.targets = {
            key: {**kept_losses.get(key, {}), **self.losses.get(key, {})}
            for key in {**kept_losses, **self.losses}
        }
        self.standing = standing(self.earlier_diagnostics, kept)
        write_records(self.out, self.records, self.targets)
        self.add_diagnostics([])

    def add_diagnostics(self, rows: list[dict]) -> None:
        """Rows of the curve added last."""
        self.diagnostics += rows
        write_diagnostics(self.out, self.standing + self.diagnostics)


def require(path: Path, rows: list[dict], names: tuple[str, ...]) -> None:
    """ValueError that names the file where a row lacks one of these fields."""
    for number, row in enumerate(rows, 1):
        for name in names:
            if name not in row:
                raise ValueError(
                    f"{path}, line {number} has no field {name}: it is no record of ours"
                )


def not_measured_again(
    earlier: list[dict], targets: dict, records: list[dict], losses: dict
) -> tuple[list, dict]:
    """The earlier records that none of `records` replaces, with the losses of their fixed targets.

    One is replaced by the same point measured again, and by fixed points of the same curve on other
    targets: with another stride, longest length, block or text. `targets` and `losses` are those of
    `earlier` and `records`.
    """
    fixed = ("fixed", "cropped")

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
        and not (r["protocol"] in fixed and (r["run"], r["scheme"]) in moved)
    ]
    there = {point(r) for r in kept if r["protocol"] in fixed}
    standing = {
        (run, scheme): {at: value for at, value in points.items() if (run, scheme, *at) in there}
        for (run, scheme), points in targets.items()
    }
    return kept, {key: points for key, points in standing.items() if points}


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
