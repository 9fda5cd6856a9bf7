"""Records as curves: one per scheme and family of runs, several seeds of one being one curve."""

import re
from dataclasses import dataclass

from evaluation.tables import MARKS


@dataclass(frozen=True)
class Curve:
    """One line of the picture. P lengths have a figure.

    Attributes:
      scheme: the string asked for, such as "yarn:factor=4".
      label: the scheme, with the run's name where several runs were measured under one scheme.
      seeds: how many runs with seeds of their own it is the mean of.
      lengths: ascending, [P].
      nll, low, high: nats per token, [P]: the mean over seeds and its range, or with one seed the
        figure and its bootstrap interval (None with one cluster).
      missing: lengths without a figure -> status. A length that failed for any seed is missing, so
        that no mean is over fewer seeds than its neighbours.
      cropped: nll of the same targets with the training length of context, or None.
      train_length: L, or None.
      runs: the names of its runs, one per seed.
    """

    scheme: str
    label: str
    seeds: int
    lengths: list[int]
    nll: list[float]
    low: list[float | None]
    high: list[float | None]
    missing: dict[int, str]
    cropped: float | None
    train_length: int | None
    runs: list[str]

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


def gather(records: list[dict], protocol: str) -> list[Curve]:
    """The curves of one protocol, in the order in which their runs and schemes are met."""
    records = [r for r in records if r["protocol"] in (protocol, "cropped")]
    families: dict[tuple, list[dict]] = {}
    for r in records:
        # Seeds of one experiment have one config_hash, which leaves the seed out.
        family = (r["scheme"], r.get("train_length"), r.get("config_hash"))
        families.setdefault(family, []).append(r)
    groups: list[list[dict]] = []
    for family in families.values():
        groups += [family] if _one_per_seed(family) else _split(family)
    schemes = [group[0]["scheme"] for group in groups]
    curves = []
    for group in groups:
        scheme = group[0]["scheme"]
        name = _family_name(group[0])
        label = scheme if schemes.count(scheme) == 1 or not name else f"{scheme} ({name})"
        curves.append(_curve(group, scheme, label, protocol))
    return [curve for curve in curves if curve.lengths or curve.missing]


def main_protocol(records: list[dict]) -> str:
    """The protocol that the picture shows: fixed where there is one, else the first."""
    names = [r["protocol"] for r in records if r["protocol"] != "cropped"]
    return "fixed" if "fixed" in names or not names else names[0]


def _one_per_seed(records: list[dict]) -> bool:
    """Whether no two of the runs have one seed: then they may be repeats of one experiment."""
    runs = {r.get("run"): r.get("seed") for r in records}
    return len(runs) == len(set(runs.values()))


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
    name, seed = str(record.get("run") or "").rstrip("/"), record.get("seed")
    if seed is not None:
        name = re.sub(rf"(?:^|(?<=/)|[-_./])(?:seed|s)?[-_=]?{seed}(?=[-_./]|$)", "", name)
    return name.rsplit("/", 1)[-1]


def _curve(records: list[dict], scheme: str, label: str, protocol: str) -> Curve:
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
    runs = list(dict.fromkeys(r.get("run") for r in records))
    train_length = records[0].get("train_length")
    return Curve(scheme, label, len(runs), *columns, missing, mean, train_length, runs)
