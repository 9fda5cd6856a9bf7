"""Intervals: their calibration where the truth is known, and what they must never do."""

import time

import numpy as np
import pytest

import evaluation
from evaluation.statistics import MOST_CLUSTERS, RESAMPLES, pooled, resampled_means, stretched


def corpus(random, C, truth=2.0):
    """Clusters of unequal size whose means scatter around the truth, as documents do."""
    counts = random.integers(20, 60, C)
    means = truth + 0.3 * random.normal(size=C)
    return counts * means + np.sqrt(counts) * random.normal(size=C), counts


@pytest.mark.parametrize("C", [3, 5, 12, 60])
def test_about_95_of_100_intervals_hold_the_truth(C):
    random = np.random.default_rng(C)
    trials = 300 if C == 60 else 500
    found = [evaluation.bootstrap_interval(*corpus(random, C)) for _ in range(trials)]
    covered = np.mean([low <= 2.0 <= high for low, high in found])
    below = np.mean([high < 2.0 for _, high in found])
    above = np.mean([low > 2.0 for low, _ in found])
    assert 0.92 <= covered <= 0.98
    assert max(below, above) < 0.05


@pytest.mark.parametrize("C", [2000, 50_001])
def test_the_interval_has_the_width_of_theory_with_many_clusters(C):
    random = np.random.default_rng(0)
    sums, counts = corpus(random, C)
    began = time.perf_counter()
    low, high = evaluation.bootstrap_interval(sums, counts)
    assert time.perf_counter() - began < 5  # a fraction of a second, with room for a busy machine
    mean = sums.sum() / counts.sum()
    residual = sums - mean * counts  # the delta method for a ratio
    error = np.sqrt((residual**2).sum()) / counts.sum()
    assert low == pytest.approx(mean - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(mean + 1.96 * error, abs=0.15 * error)


def test_clusters_are_weighted_by_their_tokens():
    sums, counts = np.repeat([3.0, 100.0], 20), np.repeat([1, 100], 20)
    low, high = evaluation.bootstrap_interval(sums, counts)
    assert 1 < low < 2060 / 2020 < high < 1.05  # the short texts' losses are 3, the long ones' 1
    assert evaluation.bootstrap_interval(7 * sums, 7 * counts) == pytest.approx((low, high))
    low, high = evaluation.bootstrap_interval(3.0 * np.array([1, 10, 100]), [1, 10, 100])
    assert low == high == 3.0


def test_the_interval_is_the_stretched_percentile_interval_of_a_slow_bootstrap():
    """Double loops from the definition, with draws of their own."""
    random = np.random.default_rng(4)
    sums, counts = corpus(random, 6)
    resampled = []
    for _ in range(6000):
        total = tokens = 0.0
        for _ in range(6):
            c = random.integers(6)
            total, tokens = total + sums[c], tokens + counts[c]
        resampled.append(total / tokens)
    mean = sums.sum() / counts.sum()
    low, high = np.quantile(resampled, [0.025, 0.975])
    factor = np.sqrt(6 / 5) * 2.5706 / 1.9600  # Student's t with 5 degrees of freedom
    expected = mean - factor * (mean - low), mean + factor * (high - mean)
    assert evaluation.bootstrap_interval(sums, counts) == pytest.approx(
        expected, abs=0.08 * (high - low)
    )


def test_many_quantities_at_once_have_the_intervals_of_each():
    random = np.random.default_rng(5)
    _, counts = corpus(random, 30)
    sums = random.normal(size=(4, 30)) * counts
    means = resampled_means(sums, counts)
    assert means.shape == (4, RESAMPLES)
    for row, mine in zip(sums, means, strict=True):
        found = stretched(mine, row.sum() / counts.sum(), mine.var() * 30 / 29, 29)
        assert found == pytest.approx(evaluation.bootstrap_interval(row, counts), rel=1e-9)


def test_neighbours_are_pooled_and_nothing_is_lost():
    values = np.arange(3.0 * 10_001).reshape(3, 10_001)
    found = pooled(values)
    assert found.shape == (3, MOST_CLUSTERS) and np.all(found.sum(1) == values.sum(1))
    assert np.array_equal(pooled(values[:, :5]), values[:, :5])


def test_one_cluster_has_no_interval_and_the_same_data_the_same_one():
    assert evaluation.bootstrap_interval([3.0], [1]) == (None, None)
    assert evaluation.bootstrap_interval([], []) == (None, None)
    sums, counts = corpus(np.random.default_rng(1), 30)
    state = np.random.get_state()[1].tolist()
    first = evaluation.bootstrap_interval(sums, counts)
    assert first == evaluation.bootstrap_interval(sums, counts)
    assert np.random.get_state()[1].tolist() == state  # the global generator is left alone
    assert all(type(bound) is float for bound in first)


def test_pairing_finds_a_difference_that_two_intervals_hide():
    random = np.random.default_rng(2)
    clusters = np.repeat(np.arange(20), 32)
    hard = np.repeat(random.normal(2.0, 0.6, 20), 32)  # texts differ far more than the models
    b = hard + 0.1 * random.normal(size=640)
    a = b + 0.03 + 0.05 * random.normal(size=640)
    mean, low, high = evaluation.paired_difference(a, b, clusters)
    assert mean == pytest.approx((a - b).mean(), rel=1e-9)
    assert 0 < low < mean < high < 0.06
    sums = [np.bincount(clusters, weights=values) for values in (a, b)]
    (_, high_b), (low_a, _) = (
        evaluation.bootstrap_interval(values, np.full(20, 32)) for values in sums[::-1]
    )
    assert low_a < high_b
    back = evaluation.paired_difference(b, a, clusters)
    assert back == pytest.approx((-mean, -high, -low), abs=2e-3)


def test_paired_difference_covers_the_truth():
    random, covered = np.random.default_rng(3), 0
    for _ in range(300):
        clusters = np.repeat(np.arange(10), random.integers(1, 30, 10))
        shift = (0.1 + 0.05 * random.normal(size=10))[clusters]
        b = random.normal(size=len(clusters))
        _, low, high = evaluation.paired_difference(b + shift, b, clusters + 7)
        covered += low <= 0.1 <= high
    assert 0.90 <= covered / 300 <= 0.985


def test_paired_difference_at_its_edges():
    assert evaluation.paired_difference([3.0, 1.0], [1.0, 1.0], [5, 5]) == (1.0, None, None)
    assert evaluation.paired_difference([1.0, 2.0], [1.0, 2.0], [0, 1]) == (0.0, 0.0, 0.0)
    for name in ("nll_a", "nll_b", "clusters"):
        for bad in (np.nan, np.inf):
            arguments = {"nll_a": [1.0, 2.0], "nll_b": [1.0, 2.0], "clusters": [0.0, 1.0]}
            arguments[name] = [bad, 1.0]
            with pytest.raises(ValueError, match=f"^{name} must be finite: 1 of its 2 values"):
                evaluation.paired_difference(**arguments)
    with pytest.raises(ValueError, match="sums must be finite"):
        evaluation.bootstrap_interval([np.nan, 1.0], [1, 1])
    with pytest.raises(ValueError, match="counts must be 1 or more"):
        evaluation.bootstrap_interval([0.0, 1.0], [0, 1])
    single = np.float32([1.5, 2.5])
    assert evaluation.paired_difference(single, single - 1, [0, 1])[0] == 1.0
    for wrong in (([1.0], [1.0, 2.0], [0]), ([], [], []), ([[1.0]], [[1.0]], [[0]])):
        with pytest.raises(ValueError, match="one shape"):
            evaluation.paired_difference(*wrong)


@pytest.mark.slow
def test_the_tables_of_coverage_are_what_the_benchmark_finds(monkeypatch):
    """Some of their rows: each has random numbers of its own, and the same ones every time."""
    from benchmarks import coverage

    page = coverage.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(coverage, "CLUSTERS", (5,))
    effects = {name: coverage.EFFECTS[name] for name in ("seeds and texts", "seeds differ most")}
    monkeypatch.setattr(coverage, "EFFECTS", effects)
    rows = coverage.one_level()[1:] + coverage.two_level()[1:]
    assert len(rows) == 4 + 4  # kinds of text; two effects with 8 and 40 clusters
    for row in rows:
        assert coverage.markdown([row]).splitlines()[0] in page
