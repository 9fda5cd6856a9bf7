"""Records as curves: one per scheme and family of runs, several seeds of one being one curve."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from evaluation.tables import MARKS


@dataclass(frozen=True)
class Curve:
    """One line of the picture. P lengths have a figure.

    Attributes:
      scheme: the string asked for, such as "yarn:factor=4".
      label: the scheme, with the run's name where several runs were measured under one scheme.
        Different in every curve.
      runs: the runs that it is the mean of, each with a seed of its own.
      lengths: ascending, [P].
      nll, low, high: nats per token, [P]: the mean over seeds and the band around it.
      band: what the band is: "text", the bootstrap interval of a single run (None with one
        cluster); "seeds and text", the two-level interval of several; or "range", the lowest and
        highest of several, where the statistics do not hold their interval.
      missing: lengths without a figure -> status. A length that failed for any seed is missing, so
        that no mean is over fewer seeds than its neighbours.
      cropped: nll of the same targets with the training length of context, or None.
      train_length: L, or None.
    """

    scheme: str
    label: str
    runs: tuple[str, ...]
    lengths: list[int]
    nll: list[float]
    low: list[float | None]
    high: list[float | None]
    band: str
    missing: dict[int, str]
    cropped: float | None
    train_length: int | None

    @property
    def seeds(self) -> int:
        """How many seeds it is the mean of."""
        return len(self.runs)

    def note(self) -> str:
        """Where and why the curve has no figure: "undefined past 64", or "" if it is whole."""
        if not self.missing:
            return ""
        words = {"insufficient_data": "too little text", "out_of_memory": "out of memory"}
        kinds = sorted(set(self.missing.values()), key=list(MARKS).index)
        why = ", ".join(words.get(kind, kind.replace("_", "-")) for kind in kinds)
        if not self.lengths:
            return why
        if min(self.missing) > self.lengths[-1]:
            return f"{why} past {self.lengths[-1]}"
        return f"{why} at {', '.join(map(str, sorted(self.missing)))}"


def gather(records: list[dict], protocol: str, statistics: Iterable[dict] = ()) -> list[Curve]:
    """The curves of one protocol, in the order in which their runs and schemes are met.

    `statistics` are the rows of `evaluation.compare`, for the intervals of several seeds.
    """
    records = [r for r in records if r["protocol"] in (protocol, "cropped")]
    families: dict[tuple, list[dict]] = {}
    for r in records:
        # Seeds of one experiment have one config_hash, which leaves the seed out.
        family = (r["scheme"], r.get("train_length"), r.get("config_hash"))
        families.setdefault(family, []).append(r)
    groups: list[list[dict]] = []
    for family in families.values():
        groups += [family] if _one_per_seed(family) else _split(family)
    labelled = zip(groups, _labels(groups), strict=True)
    curves = [_curve(group, label, protocol) for group, label in labelled]
    rows = {(r["label"], r["length"]): r for r in statistics if r["kind"] == "curve"}
    if protocol == "fixed":
        curves = [_with_interval(curve, rows) for curve in curves]
    return [curve for curve in curves if curve.lengths or curve.missing]


def main_protocol(records: list[dict]) -> str:
    """The protocol that the picture shows: fixed where there is one, else the first."""
    names = [r["protocol"] for r in records if r["protocol"] != "cropped"]
    return "fixed" if "fixed" in names or not names else names[0]


def _one_per_seed(records: list[dict]) -> bool:
    """Whether no two of the runs have one seed: then they may be repeats of one experiment."""
    runs = {r.get("run"): r.get("seed") for r in records}
    return None not in runs.values() and len(runs) == len(set(runs.values()))


def _split(records: list[dict]) -> list[list[dict]]:
    """Groups of runs whose names differ in their seed only, or else every run by itself."""
    groups: dict[str, list[dict]] = {}
    for r in records:
        groups.setdefault(_family_name(r), []).append(r)
    parts = []
    for group in groups.values():
        if _one_per_seed(group):
            parts.append(group)
        else:
            parts += [[r for r in group if r["run"] == run] for run in {r["run"]: 0 for r in group}]
    return parts


def _family_name(record: dict) -> str:
    """The last part of the run's name without its seed: "rope" for runs/rope_s1 with seed 1."""
    return _family(record).rsplit("/", 1)[-1]


def _family(record: dict) -> str:
    """The run's name without its seed."""
    name, seed = str(record.get("run") or "").rstrip("/"), record.get("seed")
    if seed is not None:
        name = re.sub(rf"(?:^|(?<=/)|[-_./])(?:seed|s)?[-_=]?{seed}(?=[-_./]|$)", "", name)
    return name


def _labels(groups: list[list[dict]]) -> list[str]:
    """The scheme of each group, with as much of its runs' name as tells it from the others."""
    schemes = [group[0]["scheme"] for group in groups]
    paths = [_family(group[0]).split("/") for group in groups]
    depths = range(1, max(map(len, paths), default=0) + 1)
    candidates = [["/".join(path[-depth:]) for path in paths] for depth in depths]
    candidates.append([str(group[0].get("run")) for group in groups])
    for names in candidates:
        labels = [
            scheme if schemes.count(scheme) == 1 or not name else f"{scheme} ({name})"
            for scheme, name in zip(schemes, names, strict=True)
        ]
        if len(set(labels)) == len(labels):
            break
    return labels


def _with_interval(curve: Curve, rows: dict[tuple[str, int], dict]) -> Curve:
    """The curve with the two-level interval of each point, where all points have one."""
    mine = [rows.get((curve.label, length)) for length in curve.lengths]
    runs = list(curve.runs)
    if curve.seeds < 2 or any(r is None or r["runs"] != runs or r["ci_low"] is None for r in mine):
        return curve
    low, high = [r["ci_low"] for r in mine], [r["ci_high"] for r in mine]
    return replace(curve, low=low, high=high, band="seeds and text")


def _curve(records: list[dict], label: str, protocol: str) -> Curve:
    at: dict[int, list[dict]] = {}
    for r in records:
        if r["protocol"] == protocol:
            at.setdefault(r["length"], []).append(r)
    missing, points = {}, []
    for length in sorted(at):
        bad = [r["status"] for r in at[length] if r["status"] != "ok"]
        if bad:
            missing[length] = bad[0]
            continue
        values = [r["nll"] for r in at[length]]
        mean = sum(values) / len(values)
        low, high = (
            (min(values), max(values))
            if len(values) > 1
            else (at[length][0]["ci_low"], at[length][0]["ci_high"])
        )
        points.append((length, mean, low, high))
    columns = [list(column) for column in zip(*points, strict=True)] or [[], [], [], []]
    cropped = [r["nll"] for r in records if r["protocol"] == "cropped" and r["status"] == "ok"]
    mean = sum(cropped) / len(cropped) if cropped else None
    runs = tuple(dict.fromkeys(r.get("run") for r in records))
    band = "text" if len(runs) == 1 else "range"
    first = records[0]
    return Curve(
        first["scheme"], label, runs, *columns, band, missing, mean, first.get("train_length")
    )
