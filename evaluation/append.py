"""Adding to the records of an earlier evaluation without losing any that still stand."""

from pathlib import Path

from evaluation.comparison import fixed_targets
from evaluation.records import read_records, read_targets


def load_earlier(out: Path) -> tuple[list[dict], dict]:
    """The records that OUT holds, and the losses of their targets."""
    if not (out / "records.jsonl").exists():
        return [], {}
    return read_records(out), read_targets(out)


def not_measured_again(
    earlier: list[dict], targets: dict, records: list[dict]
) -> tuple[list, dict]:
    """The earlier records that none of `records` replaces, with the losses of their fixed targets.

    One is replaced by the same point measured again, and by fixed points of the same curve on other
    targets: with another stride, longest length, block or text.
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
        if curve in anew and _others(fixed_targets(rows), fixed_targets(anew[curve]))
    }
    kept = [
        r
        for r in earlier
        if point(r) not in again
        and not (r["protocol"] in fixed and (r["run"], r["scheme"]) in moved)
    ]
    there = {point(r) for r in kept if r["protocol"] in fixed}
    losses = {
        (run, scheme): {at: value for at, value in points.items() if (run, scheme, *at) in there}
        for (run, scheme), points in targets.items()
    }
    return kept, {key: points for key, points in losses.items() if points}


def _others(earlier: tuple | None, now: tuple | None) -> bool:
    """Whether two results of `fixed_targets` are of different targets, as far as is known."""
    if earlier is None or now is None:
        return False
    return earlier[:2] != now[:2] or bool(earlier[2] and now[2] and earlier[2] != now[2])
