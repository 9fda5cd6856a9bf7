"""Intervals: their calibration where the truth is known, and what they must never do."""

import time

import numpy as np
import pytest

import evaluation


def corpus(random, C, truth=2.0):
    """Clusters of unequal size whose means scatter around the truth, as documents do."""
    counts = random.integers(20, 60, C)
    means = truth + 0.3 * random.normal(size=C)
    return counts * means + np.sqrt(counts) * random.normal(size=C), counts


@pytest.mark.parametrize("C", [8, 12, 60])
def test_about_95_of_100_intervals_hold_the_truth(C):
    random = np.random.default_rng(C)
    trials = 500
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
    low, high = evaluation.bootstrap_interval([3000.0, 1.0], [1000, 1])
    assert (low, high) == (1.0, 3.0)
    low, high = evaluation.bootstrap_interval(3.0 * np.array([1, 10, 100]), [1, 10, 100])
    assert low == high == 3.0


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
    single = np.float32([1.5, 2.5])
    assert evaluation.paired_difference(single, single - 1, [0, 1])[0] == 1.0
    for wrong in (([1.0], [1.0, 2.0], [0]), ([], [], []), ([[1.0]], [[1.0]], [[0]])):
        with pytest.raises(ValueError, match="one shape"):
            evaluation.paired_difference(*wrong)
