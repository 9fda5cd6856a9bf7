"""How often intervals hold the truth, where it is known: the tables of docs/statistics.md.

    python -m benchmarks.coverage            # prints them: about two minutes on one core
    python -m benchmarks.coverage --write    # and puts them into docs/statistics.md

A table holds percentages of TRIALS simulated test sets; the standard error of 95 % is one point.
The seed is fixed: the same versions print the same tables.
"""

import argparse
import re
import sys
from pathlib import Path

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from evaluation.comparison import Sample, combined_interval, seed_choices
from evaluation.statistics import RESAMPLES, resampled_means, stretched

PAGE = Path(__file__).resolve().parent.parent / "docs" / "statistics.md"
TRIALS = 500
TRUTH = 2.0
CLUSTERS = (3, 5, 8, 12, 40)
SEEDS = 3


def texts(random: np.random.Generator, C: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """(sums [C], counts [C]) of texts whose token-weighted mean loss is TRUTH in expectation.

    Sizes are log-normal with a spread of e (the middle two thirds lie within a factor of 7), effects
    exponential where skewed; "both" also makes long texts easier.
    """
    z = random.normal(size=C)
    sized = kind in ("sizes differ", "both")
    counts = np.ceil(np.exp(4 + z)) if sized else np.full(C, 32.0)
    effects = random.normal(size=C)
    if kind in ("effects skewed", "both"):
        effects = random.exponential(size=C) - 1
    means = TRUTH + 0.3 * effects
    if kind == "both":
        means -= 0.1 * (z - 1)  # the mean of z over tokens is 1
    return counts * means + np.sqrt(counts) * random.normal(size=C), counts


def ours(sums: np.ndarray, counts: np.ndarray, means: np.ndarray) -> tuple[float, float]:
    """What `bootstrap_interval` computes from the same resampled means."""
    C = len(sums)
    return stretched(means, sums.sum() / counts.sum(), means.var() * C / (C - 1), C - 1)


def percentile(sums: np.ndarray, counts: np.ndarray, means: np.ndarray) -> tuple[float, float]:
    return tuple(np.quantile(means, [0.025, 0.975]))


def widened(sums: np.ndarray, counts: np.ndarray, means: np.ndarray) -> tuple[float, float]:
    """Hesterberg's: the percentiles of a t interval in place of 2.5 and 97.5."""
    C = len(sums)
    level = ndtr(-np.sqrt(C / (C - 1)) * stdtrit(C - 1, 0.975))
    return tuple(np.quantile(means, [level, 1 - level]))


def bca(sums: np.ndarray, counts: np.ndarray, means: np.ndarray) -> tuple[float, float]:
    """Bias-corrected and accelerated: Efron and Tibshirani 1993, section 14.3."""
    below = np.mean(means < sums.sum() / counts.sum())
    bias = ndtri(np.clip(below, 1 / RESAMPLES, 1 - 1 / RESAMPLES))
    without = (sums.sum() - sums) / (counts.sum() - counts)  # the jackknife
    skew = without.mean() - without
    acceleration = (skew**3).sum() / (6 * (skew**2).sum() ** 1.5)
    z = bias + ndtri([0.025, 0.975])
    return tuple(np.quantile(means, ndtr(bias + z / (1 - acceleration * z))))


def studentised(sums: np.ndarray, counts: np.ndarray, _: np.ndarray) -> tuple[float, float]:
    """Bootstrap-t with the delta method's standard error; infinite where a resample has none."""
    C = len(sums)
    chosen = np.random.default_rng(0).integers(C, size=(RESAMPLES, C))
    s, n = sums[chosen], counts[chosen]
    mean, means = sums.sum() / counts.sum(), s.sum(axis=1) / n.sum(axis=1)
    error = np.sqrt(((sums - mean * counts) ** 2).sum()) / counts.sum()
    errors = np.sqrt(((s - means[:, None] * n) ** 2).sum(axis=1)) / n.sum(axis=1)
    none = errors < 1e-9
    t = np.where(
        none, np.where(means < mean, -np.inf, np.inf), (means - mean) / np.where(none, 1, errors)
    )
    low, high = np.quantile(t, [0.025, 0.975], method="inverted_cdf")
    return mean - high * error, mean - low * error


ONE_LEVEL = {
    "stretched (ours)": ours,
    "widened levels": widened,
    "percentile": percentile,
    "BCa": bca,
    "bootstrap-t": studentised,
}


def one_level() -> list[list[str]]:
    rows = [["texts", "clusters", *ONE_LEVEL]]
    for kind in ("all alike", "sizes differ", "effects skewed", "both"):
        for C in CLUSTERS:
            random = np.random.default_rng(C)
            found = []
            for _ in range(TRIALS):
                sums, counts = texts(random, C, kind)
                means = resampled_means(sums[None], counts)[0]
                found.append([method(sums, counts, means) for method in ONE_LEVEL.values()])
            shares = map(share, np.moveaxis(found, 1, 0))
            rows.append([kind, str(C), *shares])
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def crossed(
    random: np.random.Generator, S: int, C: int, seeds: float, text: float, both: float
) -> tuple[np.ndarray, np.ndarray]:
    """(sums [S, C], counts [C]): effects of the seed, of the (skewed) text, and of the two."""
    counts = np.ceil(np.exp(4 + 0.6 * random.normal(size=C)))
    means = TRUTH + seeds * random.normal(size=S)[:, None]
    means = means + text * (random.exponential(size=C) - 1) + both * random.normal(size=(S, C))
    return counts * means, counts


def two_levels(sample: Sample, C: int, shares: np.ndarray) -> tuple[float, float]:
    """What `evaluation.compare` computes."""
    return combined_interval((sample,), C, lambda seeds: shares)[1:]


def pigeonhole(sample: Sample, C: int, shares: np.ndarray) -> tuple[float, float]:
    """Percentiles as they are."""
    return tuple(np.quantile((sample.resampled * shares).sum(axis=0), [0.025, 0.975]))


def text_only(sample: Sample, C: int, shares: np.ndarray) -> tuple[float, float]:
    """The mean of the seeds as if it were one run."""
    means = sample.resampled.mean(axis=0)
    return stretched(means, sample.means.mean(), means.var() * C / (C - 1), C - 1)


TWO_LEVELS = {
    "stretched (ours)": two_levels,
    "percentile": pigeonhole,
    "text only": text_only,
}
EFFECTS = {  # spread over seeds, over texts, over the cells of both
    "seeds nearly alike": (0.01, 0.3, 0.02),
    "seeds and texts": (0.1, 0.3, 0.05),
    "seeds differ most": (0.3, 0.2, 0.05),
    "a difference of two schemes": (0.02, 0.03, 0.1),
}


def two_level() -> list[list[str]]:
    rows = [["effects", "seeds", "clusters", *TWO_LEVELS]]
    seeds = tuple(range(SEEDS))
    chosen = seed_choices()(seeds)
    for name, spreads in EFFECTS.items():
        for C in (8, 40):
            random, found = np.random.default_rng(100 * SEEDS + C), []
            for _ in range(TRIALS):
                sums, counts = crossed(random, SEEDS, C, *spreads)
                means = sums.sum(axis=1) / counts.sum()
                sample = Sample(seeds, means, resampled_means(sums, counts))
                found.append([method(sample, C, chosen) for method in TWO_LEVELS.values()])
            rows.append([name, str(SEEDS), str(C), *map(share, np.moveaxis(found, 1, 0))])
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def share(bounds: np.ndarray) -> str:
    """Percentage of the intervals [TRIALS, 2] that hold the truth, and their median width."""
    covered = np.mean((bounds[:, 0] <= TRUTH) & (bounds[:, 1] >= TRUTH))
    width = np.median(bounds[:, 1] - bounds[:, 0])
    return f"{100 * covered:.0f} ({width:.2f})"


def markdown(rows: list[list[str]]) -> str:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    write = parser.parse_args().write
    tables = {"one level": markdown(one_level()), "two levels": markdown(two_level())}
    for name, table in tables.items():
        print(f"{name}\n\n{table}")
    if write:
        page = PAGE.read_text(encoding="utf-8")
        for name, table in tables.items():
            part = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
            page = part.sub(lambda found, table=table: found[1] + table + found[2], page)
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
