"""How often intervals hold the truth, where it is known: the tables of docs/statistics.md.

    python -m benchmarks.coverage            # prints them: about ten minutes on one core
    python -m benchmarks.coverage --write    # and puts them into docs/statistics.md

A table holds percentages of TRIALS simulated test sets; its standard error is at most 0.7 points
where the truth is 95. The seed is fixed: the same versions print the same tables.
"""

import argparse
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.special import ndtr, stdtrit
from scipy.stats import bootstrap

from evaluation.comparison import Sample, combined_interval, seed_choices
from evaluation.statistics import RESAMPLES, bootstrap_interval, resampled_means

PAGE = Path(__file__).resolve().parent.parent / "docs" / "statistics.md"
TRIALS = 1000
TRUTH = 2.0
CLUSTERS = (3, 5, 8, 12, 40)


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


def percentile(sums: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    means = resampled_means(sums[None], counts)[0]
    return tuple(np.quantile(means, [0.025, 0.975]))


def widened(sums: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """Hesterberg's: the percentiles of a t interval in place of 2.5 and 97.5."""
    C = len(sums)
    level = ndtr(-np.sqrt(C / (C - 1)) * stdtrit(C - 1, 0.975))
    return tuple(np.quantile(resampled_means(sums[None], counts)[0], [level, 1 - level]))


def bca(sums: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    found = bootstrap(
        (sums, counts),
        lambda s, n, axis: s.sum(axis) / n.sum(axis),
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        method="BCa",
        rng=0,
    )
    return tuple(found.confidence_interval)


def studentised(sums: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """Bootstrap-t with the delta method's standard error; infinite where a resample has none."""
    C = len(sums)
    chosen = np.random.default_rng(0).integers(C, size=(RESAMPLES, C))
    s, n = sums[chosen], counts[chosen]
    mean, means = sums.sum() / counts.sum(), s.sum(axis=1) / n.sum(axis=1)
    error = np.sqrt(((sums - mean * counts) ** 2).sum()) / counts.sum()
    errors = np.sqrt(((s - means[:, None] * n) ** 2).sum(axis=1)) / n.sum(axis=1)
    none = errors < 1e-9
    t = np.where(none, np.sign(means - mean) * np.inf, (means - mean) / np.where(none, 1, errors))
    low, high = np.quantile(t, [0.025, 0.975], method="inverted_cdf")
    return mean - high * error, mean - low * error


ONE_LEVEL = {
    "stretched (ours)": bootstrap_interval,
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
            corpora = [texts(random, C, kind) for _ in range(TRIALS)]
            shares = [share(method, corpora) for method in ONE_LEVEL.values()]
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


def two_levels(sums: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """What `evaluation.compare` computes."""
    means = sums.sum(axis=1) / counts.sum()
    sample = Sample(tuple(range(len(sums))), means, resampled_means(sums, counts))
    return combined_interval((sample,), len(counts), seed_choices())[1:]


def pigeonhole(sums: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """Percentiles as they are."""
    chosen = seed_choices()(tuple(range(len(sums))))
    both = (resampled_means(sums, counts) * chosen).sum(axis=0)
    return tuple(np.quantile(both, [0.025, 0.975]))


def text_only(sums: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    return bootstrap_interval(sums.mean(axis=0), counts)


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
    for name, spreads in EFFECTS.items():
        for S in (2, 3, 5):
            for C in (8, 40):
                random = np.random.default_rng(100 * S + C)
                corpora = [crossed(random, S, C, *spreads) for _ in range(TRIALS)]
                shares = [share(method, corpora) for method in TWO_LEVELS.values()]
                rows.append([name, str(S), str(C), *shares])
                print(rows[-1], file=sys.stderr, flush=True)
    return rows


def share(method: Callable, corpora: list[tuple]) -> str:
    """Percentage of the corpora whose interval holds the truth, and its median width."""
    bounds = np.array([method(*corpus) for corpus in corpora])
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
    warnings.simplefilter("ignore")  # BCa says where it is degenerate, which the table shows
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
