"""The figures of a record, bootstrap intervals and paired differences; float64 on the host.

docs/statistics.md says what is resampled and why, and how often these intervals hold the truth.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

FEWEST_DOCUMENTS = 8  # with fewer, windows (or blocks of targets) are resampled in their place

RESAMPLES = 2000
SEED = 0  # fixed: the same losses always get the same interval
MOST_CLUSTERS = 4096  # resampled; of more, neighbours are pooled first, which bounds the time
INDEX_BUDGET = 1 << 20  # resampled indices held at once, which bounds the memory


def bootstrap_interval(sums: np.ndarray, counts: np.ndarray) -> tuple[float | None, float | None]:
    """95 % interval of the token-weighted mean Σ sums / Σ counts, by resampling clusters.

    It is the bootstrap percentile interval, stretched about the mean for few clusters: C clusters
    resampled scatter too little by √((C-1)/C), and what they say of their own scatter is uncertain,
    which Student's t allows for, so both arms are lengthened by √(C/(C-1)) · t(0.975, C-1) / 1.96.
    (Hesterberg 2015, "What teachers should know about the bootstrap", section 5.3, has the same
    two corrections but widens the levels, which cannot reach past the most extreme cluster.)

    Args:
      sums: [C], the summed loss of each cluster.
      counts: [C], the tokens of each cluster, at least one.

    Returns:
      (low, high), both None with fewer than two clusters. The mean lies between them.

    Raises:
      ValueError: sums or counts are not finite, or a cluster has no tokens.
    """
    sums, counts = np.asarray(sums, np.float64), np.asarray(counts, np.float64)
    check_finite(sums=sums, counts=counts)
    if np.any(counts <= 0):
        raise ValueError(f"counts must be 1 or more in every cluster: got {counts.min():g}")
    if len(sums) < 2:
        return None, None
    sums, counts = pooled(sums), pooled(counts)
    C = len(counts)
    means = _bootstrap((sums, counts), lambda s, n, axis: s.sum(axis) / n.sum(axis))
    return stretched(means, sums.sum() / counts.sum(), means.var() * C / (C - 1), C - 1)


def resampled_means(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The means of Q quantities over the same resampled clusters, [Q, RESAMPLES].

    The clusters drawn are those of `bootstrap_interval`, so that each row by itself gives the same
    interval, and the difference of two rows that of the paired difference.

    Args:
      sums: [Q, C], the summed loss of each quantity in each cluster.
      counts: [C], the tokens of each cluster, the same for all quantities.
    """
    C = len(counts)

    def means(chosen: np.ndarray, axis: int) -> np.ndarray:  # [b, C] -> [Q, b]
        rows = C * np.arange(len(chosen))[:, None]
        times = np.bincount((chosen + rows).ravel(), minlength=chosen.size)
        times = times.reshape(chosen.shape).astype(np.float64)  # how often each cluster is drawn
        return (times @ sums.T).T / (times @ counts)

    return _bootstrap((np.arange(C),), means)


def _bootstrap(data: tuple[np.ndarray, ...], statistic: Callable) -> np.ndarray:
    """`statistic` of each resample of the clusters, the last axis of every array in `data`."""
    from scipy.stats import bootstrap

    found = bootstrap(
        data,
        statistic,
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(1, INDEX_BUDGET // data[0].shape[-1]),
        method="percentile",
        rng=SEED,
    )
    return found.bootstrap_distribution


def stretched(
    resampled: np.ndarray, mean: float, variance: float, freedom: float
) -> tuple[float, float]:
    """The percentile interval of `resampled` [R], each arm lengthened to what is known about it.

    Args:
      resampled: the statistic of each resample; its skewness stays in the interval.
      mean: the statistic itself, which never lies outside.
      variance: the unbiased estimate of its variance, which resampling few units falls short of.
      freedom: the degrees of freedom of that estimate.
    """
    from scipy.special import ndtri, stdtrit

    spread = resampled.std()
    if spread == 0:
        return float(mean), float(mean)
    low, high = np.quantile(resampled, [0.025, 0.975])
    factor = stdtrit(freedom, 0.975) / ndtri(0.975) * math.sqrt(variance) / spread
    # rounding must not leave the mean outside
    return float(mean - factor * max(mean - low, 0)), float(mean + factor * max(high - mean, 0))


def pooled(values: np.ndarray) -> np.ndarray:
    """`values` [..., C] summed over neighbouring clusters so that at most MOST_CLUSTERS are left."""
    C = values.shape[-1]
    if C <= MOST_CLUSTERS:
        return values
    return np.add.reduceat(values, np.arange(MOST_CLUSTERS) * C // MOST_CLUSTERS, axis=-1)


def check_finite(**arrays: np.ndarray) -> None:
    """ValueError that names the first argument with a value that is not finite."""
    for name, values in arrays.items():
        if values.dtype.kind == "f" and not np.all(np.isfinite(values)):
            bad = int(np.sum(~np.isfinite(values)))
            raise ValueError(f"{name} must be finite: {bad} of its {values.size} values are not")


def cluster_totals(values: np.ndarray, clusters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(sums [C], counts [C]) of `values` [n] over the distinct ids in `clusters` [n]."""
    _, index = np.unique(clusters, return_inverse=True)
    return np.bincount(index, weights=values), np.bincount(index)


def paired_difference(
    nll_a: np.ndarray, nll_b: np.ndarray, clusters: np.ndarray
) -> tuple[float, float | None, float | None]:
    """Mean of a - b over the same targets, in nats per token, with its 95 % interval.

    Pairing removes what makes one text harder than another, so the interval is far narrower than
    those of a and b suggest.

    Args:
      nll_a, nll_b: [n], losses of the same n targets in the same order.
      clusters: [n], the cluster id of each target.

    Returns:
      (mean of a - b, low, high); the bounds are None with one cluster.

    Raises:
      ValueError: the shapes differ, or a value is not finite; the message names the argument.
    """
    a, b, clusters = np.asarray(nll_a), np.asarray(nll_b), np.asarray(clusters)
    if not (a.ndim == 1 and a.shape == b.shape == clusters.shape and a.size):
        shapes = f"{a.shape}, {b.shape}, {clusters.shape}"
        raise ValueError(f"nll_a, nll_b and clusters must have one shape [n], n >= 1: got {shapes}")
    a, b = a.astype(np.float64), b.astype(np.float64)
    check_finite(nll_a=a, nll_b=b, clusters=clusters)
    sums, counts = cluster_totals(a - b, clusters)
    return float(sums.sum() / counts.sum()), *bootstrap_interval(sums, counts)


@dataclass(frozen=True)
class Scored:
    """The n targets scored in one pass, each array [n]: what a record is computed from.

    Attributes:
      nll: float64, nats.
      context: inputs that the target's window holds before it.
      document, window: where it was scored.
      group: the window, or the block of `fixed`, that it belongs to.
      bytes: bytes of text it stands for, or None.
    """

    nll: np.ndarray
    context: np.ndarray
    document: np.ndarray
    window: np.ndarray
    group: np.ndarray
    bytes: np.ndarray | None

    def select(self, chosen: np.ndarray) -> "Scored":
        """The targets where `chosen` [n] is True."""
        values = (getattr(self, field.name) for field in fields(self))
        return Scored(*(None if value is None else value[chosen] for value in values))

    def clusters(self) -> tuple[np.ndarray, str]:
        """What is resampled together: (cluster ids [n], a name such as "12 documents")."""
        documents = len(np.unique(self.document))
        if documents >= FEWEST_DOCUMENTS:
            return self.document, f"{documents} documents"
        return self.group, f"{len(np.unique(self.group))} windows"

    def figures(self) -> dict:
        """The counts and figures of a record. nll_sum is not finite where a loss is not."""
        clusters, name = self.clusters()
        sums, counts = cluster_totals(self.nll, clusters)
        total, n = float(sums.sum()), len(self.nll)
        low, high = bootstrap_interval(sums, counts) if math.isfinite(total) else (None, None)
        try:
            ppl = math.exp(total / n)
        except OverflowError:
            ppl = None
        size = 0 if self.bytes is None else int(self.bytes.sum())
        return {
            "tokens_scored": n,
            "windows": len(np.unique(self.window)),
            "documents": len(np.unique(self.document)),
            "clusters": name,
            "min_context": int(self.context.min()),
            "nll_sum": total,
            "nll": total / n,
            "ci_low": low,
            "ci_high": high,
            "ppl": ppl,
            "bits_per_byte": total / (math.log(2) * size) if size else None,
        }
