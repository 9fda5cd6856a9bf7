"""Adding to the records of an earlier evaluation without losing any that still stand."""

from pathlib import Path

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

    One is replaced by the same point measured again, and by fixed points of the same curve on other targets.
    """

    def point(r: dict) -> tuple:
        return r["run"], r["scheme"], r["protocol"], r["length"]

    again = {point(r) for r in records}
    fixed = ("fixed", "cropped")
    strides = {(r["run"], r["scheme"]): r["stride"] for r in records if r["protocol"] == "fixed"}
    kept = [
        r
        for r in earlier
        if point(r) not in again
        and not (
            r["protocol"] in fixed
            and strides.get((r["run"], r["scheme"]), r["stride"]) != r["stride"]
        )
    ]
    there = {(r["run"], r["scheme"], r["length"]) for r in kept if r["protocol"] == "fixed"}
    losses = {
        (run, scheme): {at: value for at, value in points.items() if (run, scheme, at[1]) in there}
        for (run, scheme), points in targets.items()
    }
    return kept, {key: points for key, points in losses.items() if points}
