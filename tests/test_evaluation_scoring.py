"""What `sweep` makes of losses: sums, statuses, errors, independence of batch and order."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evaluation

PROTOCOLS = ("fixed", "disjoint", "sliding", "position")
FIGURES = ("nll_sum", "nll", "ci_low", "ci_high", "ppl", "bits_per_byte")


def hashed(tokens):
    weights = np.arange(1, tokens.shape[1] + 1) ** 2
    return (np.cumsum((tokens + 1) * weights, axis=1, dtype=np.int64)[:, 1:] % 997) / 100


def constant(value, dtype=np.float64):
    return lambda tokens: np.full((tokens.shape[0], tokens.shape[1] - 1), value, dtype)


def context(tokens):
    """A stub whose loss is the number of inputs before the target."""
    return np.broadcast_to(np.arange(1.0, tokens.shape[1]), (len(tokens), tokens.shape[1] - 1))


def documents(*sizes, seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(0, 50, size).astype(np.int32) for size in sizes]


def strict(records):
    def refuse(name):
        raise AssertionError(name)

    text = json.dumps(records, allow_nan=False)
    assert json.loads(text, parse_constant=refuse) == records
    return records


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_targets_are_shifted_once(protocol):
    counting = [np.arange(n, dtype=np.int32) % 50 for n in (120, 70)]
    predict = lambda inputs, tokens: np.where(inputs == tokens[:, 1:], 0.0, 10.0)
    follow = lambda tokens: predict((tokens[:, :-1] + 1) % 50, tokens)
    copy = lambda tokens: predict(tokens[:, :-1], tokens)
    for score, nll in ((follow, 0.0), (copy, 10.0)):
        records = evaluation.sweep(score, counting, [16, 64], protocol, targets=16, train_length=20)
        assert {record["nll"] for record in records} == {nll}


@pytest.mark.parametrize(
    ("protocol", "asked"), [("fixed", {4}), ("disjoint", set()), ("position", set())]
)
def test_a_score_is_asked_for_no_more_than_is_scored(protocol, asked):
    """With a method `last`, fixed and cropped ask for a block's targets alone: the same records."""

    class Score:
        def __init__(self):
            self.asked, self.whole = set(), 0

        def __call__(self, tokens):
            self.whole += 1
            return hashed(tokens)

        def last(self, tokens, count):
            self.asked.add(count)
            return hashed(tokens)[:, -count:]

    score, texts = Score(), documents(100, 37, 200)
    options = {"targets": 4, "train_length": 8}
    found = evaluation.sweep(score, texts, [8, 32], protocol, **options)
    plain = evaluation.sweep(hashed, texts, [8, 32], protocol, **options)
    for record in found + plain:
        record.pop("seconds")
    assert found == plain and {r["status"] for r in found} == {"ok"}
    assert score.asked == asked and (score.whole == 0) == bool(asked)


def test_sliding_with_stride_equal_to_the_length_is_disjoint_to_the_bit():
    texts = documents(100, 37, 200)
    (a,) = evaluation.sweep(hashed, texts, [32], "disjoint")
    (b,) = evaluation.sweep(hashed, texts, [32], "sliding", stride=32)
    for record in (a, b):
        del record["protocol"], record["seconds"]
    assert a == b and a["length"] == a["stride"] == 32


def test_mean_context_rises_as_the_stride_falls():
    texts = documents(500, 300)
    sweeps = [evaluation.sweep(context, texts, [64], "sliding", stride=s) for s in (64, 32, 8, 1)]
    means = [records[0]["nll"] for records in sweeps]
    assert means == sorted(means) and len(set(means)) == 4


def test_the_length_is_honoured():
    texts = documents(1025)
    short, long = evaluation.sweep(context, texts, [32, 64], "disjoint")
    assert (short["nll"], long["nll"]) == (16.5, 32.5)
    assert (short["windows"], long["windows"]) == (32, 16)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_count_is_of_the_terms_summed(protocol):
    for record in evaluation.sweep(
        constant(1.0), documents(70, 33, 8, 1), [16, 32], protocol, targets=5
    ):
        assert record["nll_sum"] == record["tokens_scored"] > 0
        assert record["nll"] == record["ci_low"] == record["ci_high"] == 1.0
    if protocol in ("disjoint", "sliding"):
        assert record["tokens_scored"] == 69 + 32 + 7


def test_overflow_of_exp_is_null_and_the_sweep_goes_on():
    score = lambda tokens: constant(1000.0 if tokens.shape[1] == 33 else 2.0)(tokens)
    records = strict(evaluation.sweep(score, documents(100), [32, 64]))
    assert records[0]["nll"] == 1000.0 and records[0]["ppl"] is None
    assert records[0]["status"] == records[1]["status"] == "ok"
    assert records[1]["ppl"] == pytest.approx(math.exp(2.0))


def test_sums_are_float64_whatever_the_losses_are():
    texts = [np.zeros(3_000_001, np.int32)]
    (record,) = evaluation.sweep(constant(0.1, np.float32), texts, [4096], "disjoint")
    assert record["nll"] == pytest.approx(float(np.float32(0.1)), rel=1e-12)
    half = lambda tokens: jnp.full((8, tokens.shape[1] - 1), 10.4375, jnp.bfloat16)
    (record,) = evaluation.sweep(half, documents(900), [64], "disjoint")
    assert record["nll"] == 10.4375


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_batch_size_changes_nothing(protocol):
    texts = documents(120, 33, 64, 65, 300)
    runs = []
    for batch_size in (1, 3, 8, 100):
        details = {}
        records = evaluation.sweep(
            hashed,
            texts,
            [16, 64],
            protocol,
            targets=8,
            batch_size=batch_size,
            train_length=20,
            details=details,
        )
        losses = {key: point["nll"].tolist() for key, point in details.items()}
        runs.append(([{**record, "seconds": 0} for record in records], losses))
    assert all(run == runs[0] for run in runs)


def test_documents_do_not_touch_one_another():
    texts = documents(200, 150, 180)
    changed = [documents(200, seed=9)[0], *texts[1:]]
    found = []
    for corpus in (texts, changed, texts[::-1]):
        details = {}
        evaluation.sweep(hashed, corpus, [16, 32], targets=8, batch_size=4, details=details)
        blocks = np.split(details["fixed", 32]["nll"], len(details["fixed", 32]["nll"]) // 8)
        found.append([block.tolist() for block in blocks])
    first = len(range(32, 200, 32))
    assert found[0][first:] == found[1][first:]
    assert found[0][:first] != found[1][:first]
    assert sorted(found[0]) == sorted(found[2])


def test_bits_per_byte_counts_the_bytes_of_the_scored_targets():
    token_bytes = np.array([0, 3, 4])
    text = np.r_[0, np.tile([1, 2], 50)].astype(np.int32)
    (record,) = evaluation.sweep(constant(3.0), [text], [50], "disjoint", token_bytes=token_bytes)
    assert record["tokens_scored"] == 100
    assert record["bits_per_byte"] == pytest.approx(300 / (math.log(2) * 350), rel=1e-12)
    assert record["bits_per_byte"] == pytest.approx(1.2365957, abs=1e-7)
    accents = np.r_[0, list("éé".encode())].astype(np.int32)
    (record,) = evaluation.sweep(
        constant(math.log(2)), [accents], [4], "disjoint", token_bytes=np.ones(256, int)
    )
    assert record["bits_per_byte"] == pytest.approx(1.0)
    (record,) = evaluation.sweep(constant(1.0), [text], [50], "disjoint")
    assert record["bits_per_byte"] is None
    zero = np.zeros(3, int)
    (record,) = evaluation.sweep(constant(1.0), [text], [50], "disjoint", token_bytes=zero)
    assert record["bits_per_byte"] is None


TROUBLE = [
    (MemoryError(), "out_of_memory"),
    (
        jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nwhile trying"),
        "out_of_memory",
    ),
    (evaluation.Undefined("position 32 is past the table"), "undefined"),
    (ZeroDivisionError("first line\n  second line"), "failed"),
]


@pytest.mark.parametrize("error, status", TROUBLE, ids=lambda value: str(value)[:12])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_bad_point_is_a_record_and_the_sweep_goes_on(protocol, error, status):
    def score(tokens):
        if tokens.shape[1] == 33:
            raise error
        return hashed(tokens)

    lengths = [16, 32] if protocol == "position" else [16, 32, 64]
    details = {}
    records = strict(
        evaluation.sweep(score, documents(200, 90), lengths, protocol, targets=8, details=details)
    )
    bad = records if protocol == "position" else [records[1]]
    assert all(record["status"] == "ok" for record in records if record not in bad)
    for record in bad:
        assert record["status"] == status
        assert record["reason"] and "\n" not in record["reason"]
        assert str(error).split("\n")[0] in record["reason"]
        assert all(record[name] is None for name in FIGURES)
        assert record["tokens_scored"] == record["windows"] == record["documents"] == 0
    assert ("fixed", 32) not in details


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_loss_that_is_not_finite_counts_only_where_it_is_scored(value):
    def score(tokens):
        losses = hashed(tokens)
        losses[:, 0] = value  # scored by disjoint, not by fixed
        return losses

    texts = documents(200)
    (record,) = strict(evaluation.sweep(score, texts, [64], "disjoint"))
    assert record["status"] == "non_finite" and "4 of the 199" in record["reason"]
    assert all(record[name] is None for name in FIGURES) and record["tokens_scored"] == 0
    (record,) = evaluation.sweep(score, texts, [64], "fixed")
    assert record["status"] == "ok"
    buckets = evaluation.sweep(score, texts, [64], "position")
    assert [r["status"] for r in buckets] == ["non_finite"] + ["ok"] * (len(buckets) - 1)


def test_fillers_are_never_counted():
    """The document's last token is its filler: as a real target it costs 1, as a filler inf."""

    def score(tokens):
        repeated = (tokens[:, 1:] == 49) & (tokens[:, :-1] == 49)
        return np.where(repeated, np.inf, 1.0)

    texts = [np.r_[np.arange(n) % 40, 49].astype(np.int32) for n in (70, 5, 33)]
    for protocol in ("disjoint", "sliding", "position"):
        for record in evaluation.sweep(score, texts, [32], protocol):
            assert (record["status"], record["nll"]) == ("ok", 1.0)


def test_a_wrong_shape_is_named():
    (record,) = evaluation.sweep(lambda tokens: np.zeros(tokens.shape), documents(100), [32])
    assert record["status"] == "failed" and "(8, 33), expected (8, 32)" in record["reason"]


def test_an_interrupt_passes_through():
    def score(tokens):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluation.sweep(score, documents(100), [32])


WRONG = [
    ("protocol", {"protocol": "cropped"}),
    ("lengths", {"lengths": []}),
    ("lengths", {"lengths": [32, 0]}),
    ("lengths", {"lengths": [32, 64.0]}),
    ("lengths", {"lengths": 32}),
    ("batch_size", {"batch_size": 0}),
    ("targets", {"targets": 33}),
    ("targets", {"targets": 0}),
    ("stride", {"stride": 31}),
    ("stride", {"stride": 0}),
    ("stride", {"stride": -1, "protocol": "sliding"}),
    ("stride", {"stride": 0, "protocol": "sliding"}),
    ("stride", {"stride": 33, "protocol": "sliding"}),
    ("train_length", {"train_length": 0}),
    ("token_bytes", {"token_bytes": np.ones(10, int)}),
    ("documents", {"documents": [np.zeros(50)]}),
    ("documents", {"documents": [np.array([-1, 2])]}),
]


@pytest.mark.parametrize("name, change", WRONG, ids=[f"{n}-{i}" for i, (n, _) in enumerate(WRONG)])
def test_errors_name_the_argument_before_any_work(name, change):
    def score(tokens):
        raise AssertionError("scored")

    arguments = {"documents": documents(100), "lengths": [64, 32]} | change
    with pytest.raises(ValueError, match=f"^{name}") as caught:
        evaluation.sweep(score, **arguments)
    assert "\n" not in str(caught.value)


def test_protocols_ignore_what_is_not_theirs():
    texts = documents(100)
    for protocol in ("disjoint", "position"):
        records = evaluation.sweep(hashed, texts, [16], protocol, stride=1000, targets=1000)
        assert {record["stride"] for record in records} == {16}


def test_no_data_at_all():
    for protocol in PROTOCOLS:
        for corpus in ([], documents(5), documents(0, 1)):
            records = strict(
                evaluation.sweep(hashed, corpus, [16], protocol, targets=8, train_length=8)
            )
            assert {record["status"] for record in records} == {"insufficient_data"}
            assert all(record["reason"] for record in records)


def test_one_cluster_has_no_interval():
    (record,) = evaluation.sweep(hashed, documents(65), [64])
    assert record["clusters"] == "1 windows"
    assert record["ci_low"] is None and record["ci_high"] is None


def test_eight_documents_are_the_clusters():
    for count, name in ((7, "14 windows"), (8, "8 documents")):
        details = {}
        (record,) = evaluation.sweep(hashed, documents(*[130] * count), [64], details=details)
        assert record["clusters"] == name
        assert len(np.unique(details["fixed", 64]["clusters"])) == int(name.split()[0])


@pytest.mark.parametrize("broken", [32, 64])
def test_progress_rises_to_the_total_even_where_a_point_breaks_off(broken):
    calls = []

    def score(tokens):
        if tokens.shape[1] == broken + 1:
            raise MemoryError
        return hashed(tokens)

    report = lambda done, total: calls.append((done, total))
    texts = documents(300, 200)
    evaluation.sweep(score, texts, [32, 64], targets=8, batch_size=2, progress=report)
    done = [d for d, _ in calls]
    assert done == sorted(done) and len({total for _, total in calls}) == 1
    assert calls[-1][0] == calls[-1][1]


def test_records_hold_these_fields():
    names = "protocol length stride status reason tokens_scored windows documents clusters "
    names += "min_context nll_sum nll ci_low ci_high ppl bits_per_byte seconds"
    for lengths in ([16], [500]):
        for record in evaluation.sweep(hashed, documents(100), lengths, targets=8, train_length=8):
            assert list(record) == names.split()
            assert record["seconds"] >= 0


def test_each_length_compiles_once():
    traces = []

    @jax.jit
    def score(tokens):
        traces.append(tokens.shape)
        return jnp.abs(jnp.sin(tokens[:, 1:].astype(jnp.float32)))

    evaluation.sweep(score, documents(300, 70, 20), [16, 64], "disjoint", batch_size=5)
    assert sorted(traces) == [(5, 17), (5, 65)]
