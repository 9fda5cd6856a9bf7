"""`sweep` against a slow double loop written from the protocols' text, and the window rules."""

import dataclasses
import math

import numpy as np
import pytest

import evaluation
from evaluation import protocols
from evaluation.protocols import position_buckets, sliding

PROTOCOLS = ("fixed", "disjoint", "sliding", "position")


def hashed(tokens):
    """A stub whose loss depends on every input before the target and on the window's start."""
    weights = np.arange(1, tokens.shape[1] + 1) ** 2
    return (np.cumsum((tokens + 1) * weights, axis=1, dtype=np.int64)[:, 1:] % 997) / 100


def hashed_one(document, start, target):
    total = 0
    for i, token in enumerate(document[start : target + 1]):
        total += (int(token) + 1) * (i + 1) ** 2
    return (total % 997) / 100


def places(protocol, documents, length, longest, stride, targets):
    """(document, target, window start) of every scored target, straight from the text."""
    for d, document in enumerate(documents):
        if protocol in ("fixed", "cropped"):
            for end in range(1, len(document)):
                if end >= longest and (end - longest) % stride == 0:
                    for t in range(end - targets + 1, end + 1):
                        yield d, t, (t - length if protocol == "cropped" else end - length)
        else:
            for t in range(1, len(document)):
                start = 0
                while t > start + length:
                    start += stride
                yield d, t, start


def random_documents(seed, sizes):
    random = np.random.default_rng(seed)
    return [random.integers(0, 50, size).astype(np.int32) for size in sizes]


def check(record, documents, found):
    nll = [hashed_one(documents[d], start, t) for d, t, start in found]
    assert record["status"] == "ok" and record["reason"] is None
    assert record["tokens_scored"] == len(found)
    assert record["min_context"] == min(t - start for _, t, start in found)
    assert record["documents"] == len({d for d, _, _ in found})
    assert record["nll_sum"] == pytest.approx(math.fsum(nll), rel=1e-12)
    assert record["nll"] == pytest.approx(math.fsum(nll) / len(nll), rel=1e-12)
    assert record["ppl"] == pytest.approx(math.exp(math.fsum(nll) / len(nll)), rel=1e-12)
    assert record["windows"] == len({(d, start) for d, _, start in found})
    return nll


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_sweep_equals_the_slow_double_loop(protocol, seed):
    random = np.random.default_rng(100 + seed)
    sizes = random.choice(
        [0, 1, 2, 5, 9, 17, 33, 34, 40, 64, 65, 66, 97, 130], random.integers(3, 14)
    )
    documents = random_documents(seed, [*sizes, 65 + seed])
    lengths = [int(n) for n in random.permutation([8, 16, 24, 33, 64, 200])]
    targets = int(random.integers(1, 9))
    stride = {"fixed": targets + 3 * seed, "sliding": 1 + seed}.get(protocol) if seed % 2 else None
    records = evaluation.sweep(
        hashed, documents, lengths, protocol, stride, targets, batch_size=1 + seed, train_length=20
    )
    longest = max(n for n in lengths if any(len(document) > n for document in documents))
    assert longest == 64
    if protocol == "position":
        ends = [record["length"] for record in records]
        assert ends == sorted({int(2 ** (k / 8) + 1e-9) for k in range(49)})
        found = list(places("disjoint", documents, longest, longest, longest, targets))
        for record, before in zip(records, [0, *ends], strict=False):
            assert record["start"] == before + 1 and record["stride"] == longest
            bucket = [p for p in found if before < p[1] - p[2] <= record["length"]]
            check(record, documents, bucket)
        return
    expected = [("fixed", n) for n in lengths] + [("cropped", 20)]
    expected = expected if protocol == "fixed" else [(protocol, n) for n in lengths]
    assert [(r["protocol"], r["length"]) for r in records] == expected
    for record in records:
        name, length = record["protocol"], record["length"]
        default = {"sliding": max(1, length // 2), "disjoint": length}.get(name, longest)
        assert record["stride"] == (stride or default)
        if length == 200:
            assert record["status"] == "insufficient_data" and "200" in record["reason"]
            continue
        found = list(places(name, documents, length, longest, record["stride"], targets))
        nll = check(record, documents, found)
        counted = {d for d, _, _ in found}
        if len(counted) >= 8:
            keys = [d for d, _, _ in found]
            assert record["clusters"] == f"{len(counted)} documents"
        elif name in ("fixed", "cropped"):
            keys = [i // targets for i in range(len(found))]
            assert record["clusters"] == f"{len(set(keys))} windows"
        else:
            keys = [(d, start) for d, _, start in found]
            assert record["clusters"] == f"{len(set(keys))} windows"
        order = list(dict.fromkeys(keys))
        sums = [math.fsum(v for v, k in zip(nll, keys, strict=True) if k == key) for key in order]
        counts = [keys.count(key) for key in order]
        low, high = evaluation.bootstrap_interval(sums, counts)
        assert record["ci_low"] == (low if low is None else pytest.approx(low, rel=1e-9))
        assert record["ci_high"] == (high if high is None else pytest.approx(high, rel=1e-9))


def test_position_buckets_end_at_whole_powers_too():
    assert position_buckets(1) == [(1, 1)]
    for longest in (5, 64, 100, 4096):
        buckets = position_buckets(longest)
        assert [b for b, _ in buckets[1:]] == [e + 1 for _, e in buckets[:-1]]
        assert buckets[0][0] == 1 and buckets[-1][1] == longest
        ends = {end for _, end in buckets}
        assert {2**k for k in range(longest.bit_length()) if 2**k <= longest} <= ends


class Recorder:
    """Keeps a copy of every batch it is given."""

    def __init__(self):
        self.batches = []

    def __call__(self, tokens):
        assert tokens.dtype == np.int32
        self.batches.append(tokens.copy())
        return hashed(tokens)

    def rows(self):
        return [tuple(row.tolist()) for batch in self.batches for row in batch]


@pytest.mark.parametrize("protocol", ["disjoint", "sliding"])
def test_the_last_window_stays_in_place(protocol):
    """Token i is i, so a window that was moved back shows itself, and so does a target lost."""
    document, score = np.arange(100, dtype=np.int32), Recorder()
    (record,) = evaluation.sweep(score, [document], [8], protocol, stride=3, batch_size=1)
    step = 8 if protocol == "disjoint" else 3
    assert [row[0] for row in score.rows()] == list(range(0, len(score.rows()) * step, step))
    assert len(set(score.rows())) == len(score.rows())
    for row in score.rows():
        real = np.arange(row[0], min(row[0] + 9, 100))
        assert row[: len(real)] == tuple(real) and set(row[len(real) :]) <= {99}
    assert record["tokens_scored"] == 99


def test_fixed_targets_do_not_depend_on_the_length():
    documents = random_documents(0, [300, 129, 500, 20])
    details = {}
    alone = lambda tokens: tokens[:, 1:] + 0.0  # the loss is the target's own id
    evaluation.sweep(alone, documents, [32, 64, 128, 512], details=details, train_length=50)
    assert set(details) == {("fixed", 32), ("fixed", 64), ("fixed", 128), ("cropped", 50)}
    for point in details.values():
        assert np.array_equal(point["nll"], details["fixed", 32]["nll"])
        assert np.array_equal(point["clusters"], details["fixed", 32]["clusters"])
        assert point["nll"].dtype == np.float64 and point["clusters"].dtype.kind == "i"
    ends = [(0, 128), (0, 256), (1, 128), (2, 128), (2, 256), (2, 384)]
    expected = np.concatenate([documents[d][e - 31 : e + 1] for d, e in ends])
    assert np.array_equal(details["fixed", 64]["nll"], expected)


def test_a_model_that_ignores_distant_tokens_stays_on_the_cropped_line():
    L, targets = 16, 8

    def short_sighted(tokens):
        padded = np.pad(tokens, ((0, 0), (L, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, L + 1, axis=1)[:, 1:]
        return (windows * np.arange(1, L + 2) ** 2).sum(-1) % 997 / 100

    documents = random_documents(1, [400, 300])
    records = evaluation.sweep(
        short_sighted, documents, [8, 16, 23, 64], targets=targets, train_length=L
    )
    short, trained, reached, longest, cropped = (r["nll_sum"] for r in records)
    assert reached == longest == cropped
    assert short != cropped and trained != cropped
    assert records[-1]["windows"] == records[-1]["tokens_scored"] == 8 * records[0]["windows"]


@pytest.mark.parametrize(
    "size, reason",
    [
        (64, "add a length of at least 63, which gives every target 32 tokens"),
        (63, "takes a document of 64 tokens, and the longest has 63"),
    ],
)
def test_what_cropped_lacks_is_a_length_or_a_document(size, reason):
    documents = [np.arange(size, dtype=np.int32)]
    score = lambda tokens: tokens[:, 1:] / 7.0
    *_, cropped = evaluation.sweep(score, documents, [32], targets=32, train_length=32)
    assert (cropped["protocol"], cropped["reason"]) == ("cropped", reason)
    longer = evaluation.sweep(score, documents, [32, 63], targets=32, train_length=32)
    assert longer[-1]["status"] == ("ok" if size == 64 else "insufficient_data")


@pytest.mark.parametrize("longest, status", [(46, "insufficient_data"), (47, "ok")])
def test_cropped_needs_room_for_its_first_target(longest, status):
    documents = random_documents(2, [200])
    records = evaluation.sweep(hashed, documents, [32, longest], targets=16, train_length=32)
    assert records[-1]["protocol"] == "cropped" and records[-1]["status"] == status
    assert records[-1]["length"] == 32 and records[-1]["stride"] == longest
    assert records[-1]["min_context"] == (32 if status == "ok" else None)


def test_windows_never_cross_a_document_and_nothing_is_inserted():
    documents = [np.arange(100 * d, 100 * d + n, dtype=np.int32) for d, n in enumerate((70, 5, 33))]
    for protocol in PROTOCOLS:
        score = Recorder()
        evaluation.sweep(score, documents, [16, 32], protocol, targets=4, train_length=10)
        for row in score.rows():
            assert len({token // 100 for token in row}) == 1
            text = list(dict.fromkeys(row))  # the document's tokens differ; its last one may repeat
            assert text == list(range(row[0], row[0] + len(text)))
            assert set(row[len(text) :]) <= {text[-1]}


def test_the_first_token_of_a_document_is_never_a_target():
    """A model that fails on every target that is the opening token 99 is not troubled."""
    documents = [np.r_[99, random_documents(d, [40])[0]] for d in range(3)]
    score = lambda tokens: np.where(tokens[:, 1:] == 99, np.nan, 1.0)
    for protocol in PROTOCOLS:
        records = evaluation.sweep(score, documents, [8, 40], protocol, targets=8, train_length=8)
        assert {record["status"] for record in records} == {"ok"}


def test_the_guard_sees_a_target_scored_twice(monkeypatch):
    real = np.minimum
    monkeypatch.setattr("evaluation.protocols.np.minimum", lambda a, b: real(a, b) - 1)
    with pytest.raises(RuntimeError, match="exactly once"):
        sliding(np.array([30]), 8, 4)


@pytest.mark.parametrize("protocol", ["disjoint", "sliding", "recurrent"])
def test_every_target_of_the_corpus_is_scored_exactly_once(protocol):
    """Tokens name their place and have losses of 45 random bits: no other multiset has their sum."""
    sizes = (41, 2, 33, 1, 70)
    documents = [np.arange(n, dtype=np.int32) + 100 * d for d, n in enumerate(sizes)]
    losses = np.random.default_rng(7).integers(2**45, size=500).astype(np.float64)
    score = Places(losses)
    records = evaluation.sweep(score, documents, [8, 16], protocol, train_length=8, batch_size=3)
    for record in records:
        assert record["tokens_scored"] == sum(n - 1 for n in sizes)
        assert record["nll_sum"] == sum(losses[token] for d in documents for token in d[1:])


class Places:
    """A scorer, with and without memory, whose loss of a token depends on its id only."""

    def __init__(self, losses):
        self.losses = losses

    def __call__(self, tokens):
        return self.losses[tokens[:, 1:]]

    def recurrent(self, length, segment):
        return (lambda B: None), (lambda state, tokens, fresh: (self(tokens), None))


@pytest.mark.parametrize(
    "name, wrong",
    [
        ("first", lambda plan: plan.first + 1),  # a target of each block is left out
        ("document", lambda plan: plan.document[::-1]),
        ("start", lambda plan: plan.start - 1),  # the window does not end with its block
    ],
)
def test_fixed_lengths_that_differ_in_their_targets_are_an_internal_error(monkeypatch, name, wrong):
    real = protocols.fixed

    def broken(sizes, length, *rest):
        plan = real(sizes, length, *rest)
        return dataclasses.replace(plan, **{name: wrong(plan)}) if length == 32 else plan

    monkeypatch.setattr(protocols, "fixed", broken)
    with pytest.raises(RuntimeError, match="length 32 does not score the same targets"):
        evaluation.sweep(hashed, random_documents(6, [200, 90]), [16, 32], targets=8)


@pytest.mark.parametrize("protocol", protocols.PROTOCOLS[:2])
def test_a_window_read_twice_is_an_internal_error(monkeypatch, protocol):
    real = protocols.calls

    def broken(plan, batch_size):
        table = real(plan, batch_size)
        table[0, 1] = table[0, 0]
        return table

    monkeypatch.setattr(protocols, "calls", broken)
    with pytest.raises(RuntimeError, match="is not read exactly once"):
        evaluation.sweep(hashed, random_documents(6, [200, 90]), [16, 32], protocol, targets=8)


def test_overlapping_blocks_are_an_internal_error(monkeypatch):
    real = protocols.fixed
    monkeypatch.setattr(
        protocols, "fixed", lambda sizes, n, longest, stride, k: real(sizes, n, longest, k - 1, k)
    )
    with pytest.raises(RuntimeError, match="each once"):
        evaluation.sweep(hashed, random_documents(6, [200]), [16, 32], targets=8)


def test_one_shape_per_length_and_full_batches():
    documents, shapes = random_documents(3, [50, 90, 200]), {}

    def score(tokens):
        shapes.setdefault(tokens.shape[1] - 1, set()).add(tokens.shape)
        return hashed(tokens)

    for protocol in PROTOCOLS:
        evaluation.sweep(
            score, documents, [16, 64], protocol, targets=8, batch_size=7, train_length=20
        )
    assert shapes == {n: {(7, n + 1)} for n in (16, 64, 20)}


def test_order_of_lengths_is_kept_and_a_repeated_one_measured_once():
    documents, score = random_documents(4, [200]), Recorder()
    records = evaluation.sweep(score, documents, [64, 16, 64, np.int64(32)], targets=8)
    assert [record["length"] for record in records] == [64, 16, 32]
    assert len(score.batches) == 3


def test_a_window_takes_one_token_more_than_its_length():
    for size, statuses in ((65, ["ok", "ok"]), (64, ["ok", "insufficient_data"])):
        records = evaluation.sweep(hashed, random_documents(5, [size]), [32, 64], targets=8)
        assert [record["status"] for record in records] == statuses
        assert {record["stride"] for record in records} == {64 if size == 65 else 32}
        assert records[0]["windows"] == 1
