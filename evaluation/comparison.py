"""What the fixed targets say of every curve, every pair of curves, and the use of longer contexts.

All is computed from the losses of single targets, which curves share, so that a difference is
paired: the text that is hard for one is hard for the other. docs/statistics.md describes the
resampling.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations
from zlib import crc32

import numpy as np

from evaluation.curves import Curve, gather
from evaluation.statistics import RESAMPLES, SEED, pooled, resampled_means, stretched

DUST = 1e-12  # nats; what the order of a float64 sum may leave of a difference of equal losses

Point = tuple[str, int]  # ("fixed", length) or ("cropped", training length)


@dataclass(frozen=True)
class Sample:
    """A mean loss, or a difference of two, of S seeds that scored the same C clusters.

    Attributes:
      seeds: [S], which seeds they are; those of different runs with one seed are paired.
      means: [S], the mean of each seed over the targets.
      resampled: [S, R], the mean of each seed over each resample of the clusters.
    """

    seeds: tuple
    means: np.ndarray
    resampled: np.ndarray

    def minus(self, other: "Sample") -> tuple["Sample", ...]:
        """The independent parts of self - other: one of paired seeds, or two of different ones."""
        if self.seeds != other.seeds:
            return self, Sample(other.seeds, -other.means, -other.resampled)
        resampled = self.resampled - other.resampled
        resampled[np.abs(resampled) < DUST] = 0
        return (Sample(self.seeds, self.means - other.means, resampled),)


def compare(records: Iterable[dict], targets: dict) -> list[dict]:
    """The rows of statistics.jsonl, from records and the losses of their fixed targets.

    Every row has the number of seeds (of two curves, the smaller), of targets, and the clusters
    as records name them; the bounds are 95 %, and null with one cluster. All in nats per token.

    kind "curve": label, scheme, runs, length, nll, ci_low, ci_high (over seeds and text) and
      seed_low, seed_high (the lowest and highest seed).
    kind "difference", for each pair of curves on the same targets: length, a, b, difference (a - b),
      ci_low, ci_high, and the verdict on a: "lower", "higher" or "undecided".
    kind "context", for each length at which every target has more than the training length of
      context: label, length, gain (cropped - full context), ci_low, ci_high, and the answer to
      "uses the extra context": "yes", "no" (nothing is gained) or "undecided".

    Args:
      records: as `read_records` returns them; those of other protocols play no part.
      targets: (run, scheme) -> {(protocol, length): {"nll", "clusters"}}, as `read_targets` and the
        details of `sweep` are.
    """
    records = [r for r in records if r["protocol"] in ("fixed", "cropped")]
    measured: dict[tuple, dict[Point, dict]] = {}
    for r in records:
        measured.setdefault((r["run"], r["scheme"]), {})[r["protocol"], r["length"]] = r
    shared: dict[tuple, list[Curve]] = {}
    for curve in gather(records, "fixed"):
        keys = [(run, curve.scheme) for run in curve.runs]
        found = {_same_targets(measured[key], targets.get(key, {})) for key in keys}
        if len(found) == 1 and None not in found:  # else its seeds are of different targets
            shared.setdefault(found.pop(), []).append(curve)
    rows = [row for curves in shared.values() for row in _rows(curves, measured, targets)]
    kinds = ("curve", "difference", "context")
    return sorted(rows, key=lambda row: kinds.index(row["kind"]))


def fixed_targets(records: Iterable[dict]) -> tuple[int, int, frozenset] | None:
    """What tells the fixed targets of one run and scheme from others, as far as records say it.

    The stride and the longest length that a document fills place the blocks; the set holds the
    counts, which are one tuple where all lengths were scored on the same text. None if nothing says.
    """
    fixed = [r for r in records if r["protocol"] == "fixed"]
    filled = [r for r in fixed if r["status"] != "insufficient_data"]
    if not filled:
        return None
    counts = set()
    for r in filled:
        if r["status"] == "ok":
            block = r["length"] - r["min_context"] + 1
            bits = r.get("bits_per_byte")
            size = round(r["nll_sum"] / (math.log(2) * bits)) if bits else None  # bytes of text
            facts = r["stride"], r["tokens_scored"], r["documents"], r["clusters"], block, size
            counts.add(facts)
    longest = max(r.get("longest") or r["length"] for r in filled)
    return filled[-1]["stride"], longest, frozenset(counts)


def _same_targets(points: dict[Point, dict], losses: dict) -> tuple | None:
    """What the curves that share their targets have in common, cluster ids included; None without."""
    found = fixed_targets(points.values())
    ids = {np.asarray(point["clusters"]).tobytes() for point in losses.values()}
    if found is None or len(found[2]) != 1 or len(ids) != 1:
        return None
    (_, scored, *_), *_ = found[2]
    whole = all(len(p["nll"]) == len(p["clusters"]) == scored for p in losses.values())
    return (*found, ids.pop()) if whole else None


def _rows(curves: list[Curve], measured: dict, targets: dict) -> list[dict]:
    """The rows of curves that share their targets."""
    samples, about, C = _samples(curves, measured, targets)
    choices = seed_choices()

    def estimate(*parts: Sample) -> tuple[float, float | None, float | None]:
        return combined_interval(parts, C, choices)

    rows = []
    for curve in curves:
        for length in curve.lengths:
            sample = samples.get((curve.label, ("fixed", length)))
            if sample is None:
                continue
            nll, low, high = estimate(sample)
            row = {"kind": "curve", "label": curve.label, "scheme": curve.scheme}
            row |= {"runs": list(curve.runs), "seeds": curve.seeds, "length": length, "nll": nll}
            row |= {"ci_low": low, "ci_high": high, "seed_low": float(sample.means.min())}
            rows.append(row | {"seed_high": float(sample.means.max())} | about)
            cropped = samples.get((curve.label, ("cropped", curve.train_length)))
            run = measured[curve.runs[0], curve.scheme]["fixed", length]
            if cropped is not None and run["min_context"] >= curve.train_length:
                gain, low, high = estimate(*cropped.minus(sample))
                answer = "undecided"
                if low is not None:
                    answer = "yes" if low > 0 else "no" if high <= 0 else answer
                row = {"kind": "context", "label": curve.label, "length": length, "gain": gain}
                row |= {"ci_low": low, "ci_high": high, "seeds": curve.seeds}
                rows.append(row | about | {"answer": answer})
    for a, b in combinations(curves, 2):
        for length in a.lengths:
            pair = [samples.get((curve.label, ("fixed", length))) for curve in (a, b)]
            if None in pair:
                continue
            difference, low, high = estimate(*pair[0].minus(pair[1]))
            row = {"kind": "difference", "length": length, "a": a.label, "b": b.label}
            row |= {"difference": difference, "ci_low": low, "ci_high": high}
            row |= {"seeds": min(a.seeds, b.seeds)} | about
            verdict = "undecided"
            if low is not None:
                verdict = "lower" if high < 0 else "higher" if low > 0 else verdict
            rows.append(row | {"verdict": verdict})
    return rows


def _samples(curves: list[Curve], measured: dict, targets: dict) -> tuple[dict, dict, int]:
    """((label, point) -> sample, what all rows say of the targets, clusters resampled)."""
    wanted = {}  # (label, point) -> its runs, where all of them have the point
    for curve in curves:
        keys = [(run, curve.scheme) for run in curve.runs]
        for point in dict.fromkeys(point for key in keys for point in measured[key]):
            there = (measured[key].get(point, {}).get("status") == "ok" for key in keys)
            if all(there) and all(point in targets[key] for key in keys):
                wanted[curve.label, point] = keys
    losses = [targets[key][point]["nll"] for (_, point), keys in wanted.items() for key in keys]
    (_, first), keys = next(iter(wanted.items()))
    _, index = np.unique(targets[keys[0]][first]["clusters"], return_inverse=True)
    counts = pooled(np.bincount(index).astype(np.float64))
    sums = pooled(np.array([np.bincount(index, weights=nll) for nll in losses]))
    means, C = sums.sum(axis=1) / counts.sum(), len(counts)
    resampled = resampled_means(sums, counts) if C > 1 else np.zeros((len(means), 0))
    samples, begin = {}, 0
    for name, keys in wanted.items():
        seeds = [measured[key][name[1]].get("seed") for key in keys]
        order = begin + np.argsort(seeds) if len(seeds) > 1 else [begin]
        samples[name] = Sample(tuple(sorted(seeds)), means[order], resampled[order])
        begin += len(keys)
    about = {"targets": len(index), "clusters": measured[keys[0]][first]["clusters"]}
    return samples, about, C


def seed_choices() -> Callable[[tuple], np.ndarray]:
    """seeds [S] -> the share of each in every resample, [S, R]: a function of the set of seeds."""
    drawn: dict[tuple, np.ndarray] = {}

    def choices(seeds: tuple) -> np.ndarray:
        if seeds not in drawn:
            S, random = len(seeds), np.random.default_rng((SEED, crc32(repr(seeds).encode())))
            drawn[seeds] = random.multinomial(S, np.full(S, 1 / S), size=RESAMPLES).T / S
        return drawn[seeds]

    return choices


def combined_interval(
    parts: tuple[Sample, ...], C: int, choices: Callable[[tuple], np.ndarray]
) -> tuple[float, float | None, float | None]:
    """(mean, low, high) of the sum of the parts, over seeds and clusters.

    Seeds and clusters are crossed, so each is resampled by itself: the pigeonhole bootstrap (Owen
    2007, "The pigeonhole bootstrap", Annals of Applied Statistics 1(2)). The interval is then
    stretched as in `bootstrap_interval`; the variances of the two levels are added, and the degrees
    of freedom of the sum are Satterthwaite's. With one seed it is `bootstrap_interval`.
    """
    mean = float(sum(part.means.mean() for part in parts))
    if C < 2:
        return mean, None, None
    levels = [(sum(part.resampled.mean(axis=0) for part in parts).var() * C / (C - 1), C - 1)]
    for part in parts:
        if len(part.seeds) > 1:
            S = len(part.seeds)
            levels.append((part.means.var(ddof=1) / S, S - 1))
    variance = sum(level for level, _ in levels)
    if variance == 0:
        return mean, mean, mean
    freedom = variance**2 / sum(level**2 / freedom for level, freedom in levels)
    both = sum((part.resampled * choices(part.seeds)).sum(axis=0) for part in parts)
    return mean, *stretched(both, mean, variance, freedom)
