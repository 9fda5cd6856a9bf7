"""A stub model whose true curve is known: `sweep` must hold it in about 95 of 100 corpora."""

from pathlib import Path

import numpy as np

import evaluation

ROOT = Path(__file__).parent.parent
CORPORA, L, BLOCK, LENGTHS = 100, 32, 16, (48, 96)
DOCUMENTS, LONGEST, MEAN = 12, 500, 2.0


class Stub:
    """A model of known loss: what text it reads is known from its token ids, d · LONGEST + place.

    The loss of a token with k inputs before it, in a window of ℓ, is in expectation
    true(ℓ, k) = MEAN + 2 / √k + 0.1 · log2(ℓ / L). Documents are harder or easier than that, and
    use their context more or less, by effects of mean zero; tokens add noise.
    """

    def __init__(self, random):
        self.hard = 0.3 * random.normal(size=DOCUMENTS)
        self.use = 0.2 * random.normal(size=DOCUMENTS)
        self.noise = random.normal(size=(DOCUMENTS * LONGEST, 2))

    def __call__(self, tokens):
        length, targets = tokens.shape[1] - 1, tokens[:, 1:]
        document, context = targets // LONGEST, np.arange(1, length + 1)[None]
        loss = true(length, context) + self.hard[document] + self.noise[targets, 0]
        own = np.sin(targets * 7.0 + length)  # what the window makes of the token
        return loss + self.use[document] * np.log2(context / L) + self.noise[targets, 1] * own


def true(length, context):
    return MEAN + 2 / np.sqrt(context) + 0.1 * np.log2(length / L)


def truths():
    """The expected nll at each length, and the expected gain of each over cropped context."""
    curve = {n: true(n, np.arange(n - BLOCK + 1, n + 1)).mean() for n in LENGTHS}
    return curve, {n: true(L, L) - value for n, value in curve.items()}


def held(low, high, truth):
    return low <= truth <= high


def token_interval(nll):
    """The mistake to be told apart: tokens resampled as if they were independent."""
    chosen = np.random.default_rng(0).integers(len(nll), size=(200, len(nll)))
    return np.quantile(nll[chosen].mean(axis=1), [0.025, 0.975])


def test_about_95_of_100_simulated_corpora_hold_the_true_curve():
    random = np.random.default_rng(0)
    curve, gain = truths()
    covered = {("curve", n): 0 for n in LENGTHS} | {("context", n): 0 for n in LENGTHS}
    naive = 0
    for _ in range(CORPORA):
        sizes = random.integers(110, LONGEST, DOCUMENTS)
        documents = [d * LONGEST + np.arange(n, dtype=np.int32) for d, n in enumerate(sizes)]
        stub, details = Stub(random), {}
        records = evaluation.sweep(
            stub, documents, LENGTHS, targets=BLOCK, train_length=L, batch_size=256, details=details
        )
        about = {"run": "stub", "scheme": "stub", "seed": 0, "train_length": L, "config_hash": ""}
        records = [r | about for r in records]
        assert records[0]["clusters"] == f"{DOCUMENTS} documents"
        for r in records[: len(LENGTHS)]:
            covered["curve", r["length"]] += held(r["ci_low"], r["ci_high"], curve[r["length"]])
        for row in evaluation.compare(records, {("stub", "stub"): details}):
            if row["kind"] == "context":
                n = row["length"]
                covered["context", n] += held(row["ci_low"], row["ci_high"], gain[n])
        naive += held(*token_interval(details["fixed", 96]["nll"]), curve[96])
    # of 100 that hold with probability 0.95, fewer than 88 do so 2 times in 1000
    assert all(count >= 88 for count in covered.values()), covered
    assert sum(covered.values()) < 4 * CORPORA, "intervals that always hold are too wide"
    assert naive < 80
    page = " ".join((ROOT / "docs" / "statistics.md").read_text(encoding="utf-8").split())
    at = [covered[kind, n] for kind in ("curve", "context") for n in LENGTHS]
    assert (
        "is held by {} and {} of its intervals at the two lengths, and its true gain".format(*at)
        in page
    )
    assert "gain from context by {} and {}.".format(*at[2:]) in page
    assert f"such intervals hold the truth {naive} times in 100." in page
