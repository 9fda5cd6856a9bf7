"""The rows of statistics.jsonl: curves, pairs and the use of context, over seeds and text."""

import json
import math
import time

import numpy as np
import pytest

import evaluation
from evaluation.collection import not_measured_again
from evaluation.curves import gather

BLOCK, L = 4, 8


def measured(run, seed, losses, scheme="rope", cropped=None, clusters=None, **change):
    """(records, targets) of one run: losses {length: [n]} in blocks of 4; a document is 8 targets."""
    n = len(next(iter(losses.values())))
    ids = np.repeat(np.arange(n // 8), 8) if clusters is None else np.asarray(clusters)
    points = {("fixed", length): nll for length, nll in losses.items()}
    points |= {} if cropped is None else {("cropped", L): cropped}
    records, targets = [], {}
    for (protocol, length), nll in points.items():
        r = {"run": run, "scheme": scheme, "seed": seed, "protocol": protocol, "length": length}
        r |= {"stride": 64, "status": "ok", "train_length": L, "config_hash": scheme}
        r |= {"tokens_scored": n, "documents": 9, "clusters": f"{len(set(ids))} documents"}
        r |= {"min_context": L if protocol == "cropped" else length - BLOCK + 1}
        total = float(np.sum(nll))
        r |= {"nll_sum": total, "nll": total / n, "ci_low": total / n - 1, "ci_high": total / n + 1}
        records.append(r | {"bits_per_byte": total / n / math.log(2)} | change)
        targets[protocol, length] = {"nll": np.asarray(nll, float), "clusters": ids}
    return records, {(run, scheme): targets}


def together(*parts):
    records, targets = [], {}
    for found, losses in parts:
        records += found
        targets |= losses
    return records, targets


def rows_of(kind, rows):
    return [row for row in rows if row["kind"] == kind]


def text(seed, documents=12):
    """Losses whose documents differ, [8 a document]."""
    random = np.random.default_rng(seed)
    return np.repeat(random.normal(2.0, 0.3, documents), 8) + 0.1 * random.normal(
        size=8 * documents
    )


def test_with_one_seed_the_rows_are_the_public_functions():
    hard, random = text(0), np.random.default_rng(1)
    shift = lambda by: hard + by + np.repeat(random.normal(0, 0.05, 12), 8)
    a = {16: shift(0.1), 64: shift(0.3)}
    b = {16: shift(0.1), 64: shift(0.05)}
    crop = shift(0.2)
    parts = [measured("a", 0, a, "rope", crop), measured("b", 0, b, "pi"), measured("c", 1, b, "t")]
    records, targets = together(*parts)
    rows = evaluation.compare(records, targets)
    assert [r["kind"] for r in rows] == ["curve"] * 6 + ["difference"] * 6 + ["context"] * 2
    ids = np.repeat(np.arange(12), 8)
    runs = {"rope": ("a", a), "pi": ("b", b), "t": ("c", b)}
    for row in rows_of("curve", rows):
        run, losses = runs[row["label"]]
        nll = losses[row["length"]]
        bounds = evaluation.bootstrap_interval(np.bincount(ids, nll), np.bincount(ids))
        assert (row["ci_low"], row["ci_high"]) == pytest.approx(bounds, rel=1e-9)
        assert row["seed_low"] == row["seed_high"] == row["nll"] == pytest.approx(nll.mean())
        assert (row["runs"], row["seeds"], row["targets"]) == ([run], 1, 96)
        assert row["clusters"] == "12 documents" and row["scheme"] == row["label"]
    for row in rows_of("difference", rows)[:2]:
        n = row["length"]
        assert (row["a"], row["b"], row["seeds"]) == ("rope", "pi", 1)
        found = row["difference"], row["ci_low"], row["ci_high"]
        assert found == pytest.approx(evaluation.paired_difference(a[n], b[n], ids), abs=1e-9)
    # another seed's run of the same losses is no pair by seed, but it is paired on the text
    other = rows_of("difference", rows)[2:4]
    for row, same in zip(other, rows_of("difference", rows)[:2], strict=True):
        assert row["b"] == "t" and row["ci_low"] == pytest.approx(same["ci_low"])
    for row in rows_of("context", rows):
        assert row["label"] == "rope"
        expected = evaluation.paired_difference(crop, a[row["length"]], ids)
        found = row["gain"], row["ci_low"], row["ci_high"]
        assert found == pytest.approx(expected, abs=1e-9)
    assert [(r["length"], r["answer"]) for r in rows_of("context", rows)] == [
        (16, "yes"),
        (64, "no"),
    ]
    json.dumps(rows, allow_nan=False)


def test_verdicts():
    hard = text(1)
    noise = np.random.default_rng(2).normal(size=len(hard))
    noise -= noise.mean()
    parts = [
        measured("a", 0, {16: hard}, "a", cropped=hard),
        measured("b", 0, {16: hard}, "b", cropped=hard + noise),
        measured("c", 0, {16: hard + 0.2 + 0.1 * noise}, "c", cropped=hard + 0.3),
        measured("d", 0, {16: hard + noise}, "d"),
    ]
    rows = evaluation.compare(*together(*parts))
    pairs = {(r["a"], r["b"]): r for r in rows_of("difference", rows)}
    assert list(pairs) == [(a, b) for a, b in ("ab", "ac", "ad", "bc", "bd", "cd")]
    verdicts = {key: pairs[tuple(key)]["verdict"] for key in ("ab", "ac", "ad")}
    assert verdicts == {"ab": "undecided", "ac": "lower", "ad": "undecided"}
    same = pairs["a", "b"]  # equal losses: nothing, and not the dust of a float sum
    assert same["difference"] == same["ci_low"] == same["ci_high"] == 0
    back = evaluation.compare(*together(*parts[::-1]))
    assert {(r["a"], r["b"]): r["verdict"] for r in rows_of("difference", back)}[
        "c", "a"
    ] == "higher"
    answers = {r["label"]: r["answer"] for r in rows_of("context", rows)}
    assert answers == {"a": "no", "b": "undecided", "c": "yes"}


def test_context_is_asked_only_where_every_target_has_more_of_it():
    losses = {n: text(3) for n in (4, 8, 10, 11, 16)}  # blocks of 4 and L = 8: from 11 on
    rows = evaluation.compare(*measured("a", 0, losses, cropped=text(4)))
    assert [r["length"] for r in rows_of("context", rows)] == [11, 16]
    rows = evaluation.compare(*measured("a", 0, losses))
    assert not rows_of("context", rows) and len(rows) == 5


def crossed(random, S, C, seeds, clusters, both):
    """Losses of S seeds, [S, 8 C], which are seed + cluster + an effect of the two; mean 2."""
    cells = 2.0 + seeds * random.normal(size=(S, 1)) + clusters * random.normal(size=(1, C))
    return np.repeat(cells + both * random.normal(size=(S, C)), 8, axis=1)


def of_seeds(cells, scheme="rope", seeds=None, **change):
    seeds = range(len(cells)) if seeds is None else seeds
    parts = [
        measured(f"{scheme}_s{s}", s, {16: nll}, scheme, **change)
        for s, nll in zip(seeds, cells, strict=True)
    ]
    return together(*parts)


@pytest.mark.parametrize("S, seeds, clusters", [(3, 0.3, 0.2), (2, 0.5, 0.05)])
def test_seeds_and_text_are_resampled_by_themselves(S, seeds, clusters):
    """Double loops from the definition (Owen 2007), stretched by Satterthwaite's t."""
    random, C = np.random.default_rng(5), 10
    cells = crossed(random, S, C, seeds, clusters, 0.05)
    (row,) = rows_of("curve", evaluation.compare(*of_seeds(cells)))
    values = cells[:, ::8]
    resampled = []
    for _ in range(4000):
        chosen_seeds, chosen = random.integers(S, size=S), random.integers(C, size=C)
        resampled.append(sum(values[s, c] for s in chosen_seeds for c in chosen) / (S * C))
    mean = values.mean()
    per_seed = [sum(values[s]) / C for s in range(S)]
    per_cluster = [sum(values[:, c]) / S for c in range(C)]
    of_seed = sum((m - mean) ** 2 for m in per_seed) / (S - 1) / S
    of_text = sum((m - mean) ** 2 for m in per_cluster) / (C - 1) / C
    freedom = (of_seed + of_text) ** 2 / (of_seed**2 / (S - 1) + of_text**2 / (C - 1))
    from scipy.stats import t

    low, high = np.quantile(resampled, [0.025, 0.975])
    factor = t.ppf(0.975, freedom) / 1.96 * np.sqrt(of_seed + of_text) / np.std(resampled)
    expected = mean - factor * (mean - low), mean + factor * (high - mean)
    width = expected[1] - expected[0]
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(expected, abs=0.06 * width)
    assert row["nll"] == pytest.approx(mean) and row["seeds"] == S
    assert (row["seed_low"], row["seed_high"]) == pytest.approx((min(per_seed), max(per_seed)))


@pytest.mark.parametrize("seeds, clusters", [(0.15, 0.3), (0.3, 0.2)])
def test_three_seeds_cover_the_truth_and_single_levels_do_not(seeds, clusters):
    random, covered, text_only, trials = np.random.default_rng(6), 0, 0, 120
    for _ in range(trials):
        cells = crossed(random, 3, 20, seeds, clusters, 0.05)
        (row,) = rows_of("curve", evaluation.compare(*of_seeds(cells)))
        covered += row["ci_low"] <= 2 <= row["ci_high"]
        pooled = cells.mean(0)
        low, high = evaluation.bootstrap_interval(pooled[::8], np.ones(20))
        text_only += low <= 2 <= high
    assert 0.86 <= covered / trials <= 0.995  # three standard errors about 93 in 100
    assert text_only / trials < 0.88


def test_pairs_of_one_seed_are_paired():
    random = np.random.default_rng(7)
    cells = crossed(random, 3, 12, 0.3, 0.3, 0.01)
    shifted = cells + 0.05 + 0.01 * random.normal(size=cells.shape)
    paired = evaluation.compare(*together(of_seeds(cells, "a"), of_seeds(shifted, "b")))
    (row,) = rows_of("difference", paired)
    assert row["verdict"] == "lower" and row["seeds"] == 3
    assert row["difference"] == pytest.approx((cells - shifted).mean())
    strangers = of_seeds(shifted, "b", seeds=(7, 8, 9))
    (apart,) = rows_of("difference", evaluation.compare(*together(of_seeds(cells, "a"), strangers)))
    assert apart["verdict"] == "undecided"
    assert apart["difference"] == pytest.approx(row["difference"])
    assert apart["ci_high"] - apart["ci_low"] > 5 * (row["ci_high"] - row["ci_low"])
    single = together(of_seeds(cells, "a"), of_seeds(shifted[:1], "b"))
    (row,) = rows_of("difference", evaluation.compare(*single))
    assert row["seeds"] == 1 and row["difference"] == pytest.approx(
        cells.mean() - shifted[0].mean()
    )


def test_seeds_are_matched_by_their_number_and_not_by_their_order():
    random = np.random.default_rng(8)
    cells = crossed(random, 3, 12, 0.3, 0.1, 0.01)
    forward = together(of_seeds(cells, "a"), of_seeds(cells + 0.1, "b"))
    backward = together(of_seeds(cells, "a"), of_seeds(cells[::-1] + 0.1, "b", seeds=(2, 1, 0)))
    rows = [rows_of("difference", evaluation.compare(*found))[0] for found in (forward, backward)]
    assert rows[0] == rows[1] and rows[0]["verdict"] == "lower"


@pytest.mark.parametrize(
    "change",
    [{"stride": 32}, {"documents": 8}, {"min_context": 10}, {"bits_per_byte": 0.7}, {"clusters": "x"}],
)  # fmt: skip
def test_curves_on_other_targets_are_not_compared(change):
    hard = text(9)
    one, two = measured("a", 0, {16: hard}, "a"), measured("b", 0, {16: hard + 1}, "b")
    assert len(rows_of("difference", evaluation.compare(*together(one, two)))) == 1
    for r in two[0]:
        r |= change
    rows = evaluation.compare(*together(one, two))
    assert not rows_of("difference", rows) and len(rows_of("curve", rows)) == 2


def test_other_blocks_of_the_same_number_are_other_targets():
    """Blocks end at the longest length, so a sweep to 32 scores others than one to 16."""
    hard = text(10)
    one = measured("a", 0, {16: hard}, "a")
    two = measured("b", 0, {16: hard, 32: hard}, "b")
    assert not rows_of("difference", evaluation.compare(*together(one, two)))
    undefined = dict(two[0][1], run="a", scheme="a", config_hash="a", status="undefined")
    one[0].append(undefined)  # the same blocks, which this scheme does not reach
    rows = rows_of("difference", evaluation.compare(*together(one, two)))
    assert [row["length"] for row in rows] == [16]
    one[0][-1] |= {"status": "insufficient_data"}  # a length that no document fills places nothing
    assert not rows_of("difference", evaluation.compare(*together(one, two)))


def test_other_clusters_or_missing_losses_are_not_compared():
    hard = text(11)
    one = measured("a", 0, {16: hard}, "a")
    two = measured("b", 0, {16: hard}, "b", clusters=np.repeat(np.arange(12), 8)[::-1])
    assert not rows_of("difference", evaluation.compare(*together(one, two)))
    records, targets = together(one, measured("b", 0, {16: hard}, "b"))
    del targets["b", "b"]
    rows = evaluation.compare(records, targets)
    assert [r["label"] for r in rows] == ["a"]
    targets["a", "a"]["fixed", 16]["nll"] = hard[:-1]  # of another evaluation
    assert evaluation.compare(records, targets) == []
    assert evaluation.compare([], {}) == []


def test_a_curve_has_no_row_where_a_seed_has_no_figure():
    cells = crossed(np.random.default_rng(12), 3, 12, 0.1, 0.1, 0.1)
    parts = [measured(f"rope_s{s}", s, {16: cells[s], 32: cells[s] - 1}) for s in range(3)]
    records, targets = together(*parts)
    del targets["rope_s1", "rope"]["fixed", 32]
    assert [r["length"] for r in evaluation.compare(records, targets)] == [16]


def test_one_cluster_decides_nothing():
    hard = np.ones(8)
    parts = [measured(n, 0, {16: hard + i}, n, cropped=hard) for i, n in enumerate("ab")]
    rows = evaluation.compare(*together(*parts))
    assert all(row["ci_low"] is row["ci_high"] is None for row in rows)
    assert {r.get("verdict", r.get("answer", "undecided")) for r in rows} == {"undecided"}


def test_twenty_curves_take_a_second():
    hard, random, parts = text(13, documents=300), np.random.default_rng(14), []
    for k in range(20):
        losses = {n: hard + 0.1 * random.normal(size=2400) for n in (16, 32, 64, 128, 256)}
        parts.append(measured(f"r{k}", 0, losses, f"s{k}", cropped=hard))
    records, targets = together(*parts)
    began = time.perf_counter()
    rows = evaluation.compare(records, targets)
    assert time.perf_counter() - began < 8  # half a second, with room for a busy machine
    assert len(rows_of("difference", rows)) == 5 * 20 * 19 // 2


def test_rows_on_disk(tmp_path):
    rows = evaluation.compare(*measured("a|b", 0, {16: text(15)}, cropped=text(16)))
    evaluation.write_statistics(tmp_path, rows)
    assert evaluation.read_statistics(tmp_path) == rows
    assert evaluation.read_statistics(tmp_path / "statistics.jsonl") == rows
    assert len((tmp_path / "statistics.jsonl").read_text().splitlines()) == len(rows) == 2
    evaluation.write_records(tmp_path, [])  # those of other records would pass for its own
    assert evaluation.read_statistics(tmp_path) == []
    evaluation.write_statistics(tmp_path, rows)
    evaluation.write_statistics(tmp_path, [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curves.csv", "records.jsonl"]


def test_the_rows_are_the_same_from_disk(tmp_path):
    records, targets = measured("a|b", 0, {16: text(15)}, cropped=text(16))
    evaluation.write_records(tmp_path, records, targets)
    back = evaluation.read_records(tmp_path), evaluation.read_targets(tmp_path)
    assert evaluation.compare(*back) == evaluation.compare(records, targets)


def test_adding_to_an_evaluation_keeps_what_is_on_the_same_targets():
    hard = text(17)
    old = measured("a", 0, {16: hard, 64: hard}, cropped=hard)
    again = measured("a", 0, {64: hard})[0]
    kept, targets = not_measured_again(*old, again, {})
    assert [(r["protocol"], r["length"]) for r in kept] == [("fixed", 16), ("cropped", L)]
    assert list(targets["a", "rope"]) == [("fixed", 16), ("cropped", L)]
    other = measured("b", 0, {16: hard[:8]})[0]
    assert not_measured_again(*old, other, {}) == old
    # of the same stride, but ending elsewhere, or of other text
    for new in (measured("a", 0, {32: hard}), measured("a", 0, {64: hard}, documents=5)):
        assert not_measured_again(*old, new[0], {}) == ([], {})
    failed = measured("a", 0, {64: hard}, status="failed")[0]
    assert len(not_measured_again(*old, failed, {})[0]) == 2


def test_bands_come_from_the_statistics():
    cells = crossed(np.random.default_rng(18), 3, 12, 0.1, 0.1, 0.1)
    records, targets = of_seeds(cells)
    rows = evaluation.compare(records, targets)
    (curve,) = gather(records, "fixed", rows)
    assert (curve.band, curve.seeds, curve.runs) == (
        "seeds and text", 3, ("rope_s0", "rope_s1", "rope_s2")
    )  # fmt: skip
    assert (curve.low, curve.high) == ([rows[0]["ci_low"]], [rows[0]["ci_high"]])
    (without,) = gather(records, "fixed")
    assert without.band == "range" and without.low == [rows[0]["seed_low"]]
    stale = [rows[0] | {"runs": ["rope_s0", "rope_s1"]}]
    assert gather(records, "fixed", stale) == gather(records, "disjoint", rows) + [without]
    single = measured("a", 0, {16: cells[0]})[0]
    assert gather(single, "fixed")[0].band == "text"


def test_no_two_curves_share_a_label():
    names = ("x/rope_s0", "y/rope_s0", "y/pi_s0")
    records = [measured(name, 0, {16: text(19)})[0][0] for name in names]
    labels = [curve.label for curve in gather(records, "fixed")]
    assert labels == ["rope (x/rope)", "rope (y/rope)", "rope (y/pi)"]
    records = [measured(name, 0, {16: text(19)})[0][0] for name in ("rope_s0", "rope-s0", "pi")]
    labels = [curve.label for curve in gather(records, "fixed")]
    assert labels == ["rope (rope_s0)", "rope (rope-s0)", "rope (pi)"]


def swept(seed, run, scheme="rope"):
    """Records and losses of a stub model on ten texts that are alike in every number, but not in their words."""
    random = np.random.default_rng(seed)
    documents = [random.integers(0, 9, 200).astype(np.int32) for _ in range(10)]
    details = {}
    score = lambda tokens: 1.0 + 0.01 * tokens[:, 1:]
    found = evaluation.sweep(score, documents, [16, 64], targets=8, details=details)
    about = {"run": run, "scheme": scheme, "seed": 0, "train_length": 16, "config_hash": run}
    return [r | about for r in found], {(run, scheme): details}


def test_other_texts_of_equal_sizes_are_not_taken_for_the_same_targets():
    one, same, other = swept(1, "a"), swept(1, "b", "alibi"), swept(2, "c", "t5")
    records = [*one[0], *same[0], *other[0]]
    rows = evaluation.compare(records, one[1] | same[1] | other[1])
    pairs = {(r["a"], r["b"]) for r in rows if r["kind"] == "difference"}
    assert pairs == {("rope", "alibi")}
    again = swept(2, "a")
    later = [r for r in again[0] if r["length"] == 64]
    kept, targets = not_measured_again(*one, later, again[1])
    assert kept == [] and targets == {}  # nothing of the first text stands beside the second


def test_an_interval_does_not_depend_on_the_other_curves():
    random = np.random.default_rng(3)
    records, targets = [], {}
    for scheme, first in (("rope", 0), ("alibi", 3)):
        for seed in range(first, first + 3):
            loss = 2 + random.normal(size=96)
            found, losses = measured(
                f"{scheme}{seed}", seed, {16: loss}, scheme, config_hash=scheme
            )
            records += found
            targets |= losses
    bounds = [
        {r["label"]: (r["ci_low"], r["ci_high"]) for r in evaluation.compare(order, targets)[:2]}
        for order in (records, records[::-1])
    ]
    assert bounds[0] == bounds[1] and len(bounds[0]) == 2


def test_a_broken_file_is_named_before_anything_is_measured(tmp_path):
    from evaluation.collection import Collection

    records, targets = swept(1, "a")
    for name, content in (
        ("targets.npz", b"PK\x03\x04 cut"),
        ("targets.npz", b""),
        ("records.jsonl", b"5\n"),
        ("records.jsonl", b'{"run": "x"}\n'),
        ("diagnostics.jsonl", b"{}\n"),
    ):
        evaluation.write_records(tmp_path, records, targets)
        (tmp_path / "diagnostics.jsonl").unlink(missing_ok=True)
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=name):
            Collection(tmp_path, keep=True)
